"""Errors on the command line: one message on stderr and an exit code, never a traceback."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperGroup

from assay.cli.commands import COMMANDS, Loaded
from assay.errors import AssayError, BadInput, not_here, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.errors import Refused

__all__ = ["Commands", "cut_digests", "of_the_file", "printable", "refuse", "tell", "warn"]

BROKEN_PIPE = 128 + 13
"""The exit code of a program that SIGPIPE ended, as `head` does to the programs before it."""


class Commands(TyperGroup):
    """The root of all commands: turns an error that a command raises on purpose into a message and an exit code."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs | {"commands": Loaded()})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands in the help; it imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, and let the configuration file and variables set its options."""
        from assay.cli.configuration import configure

        name, command, rest = super().resolve_command(ctx, args)
        if name != "config":  # which says itself what is wrong with the file
            configure(ctx, ctx.params.get("config"), str(name), command)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and report its error."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            refused = of_the_file(error)
            if refused is None:
                raise
            tell("error", str(refused), typer.colors.RED)
            raise typer.Exit(refused.exit_code) from None
        except AssayError as error:
            tell("error", str(error), typer.colors.RED)
            raise typer.Exit(error.exit_code) from None
        except ModuleNotFoundError as error:
            elsewhere = not_here(error)
            if elsewhere is None:
                raise
            tell("error", str(elsewhere), typer.colors.RED)
            raise typer.Exit(elsewhere.exit_code) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains when it ends
            raise typer.Exit(BROKEN_PIPE) from None
        except OSError as error:  # no command expected it: a folder without permission, a full disk
            tell("error", str(_of_the_system(error)), typer.colors.RED)
            raise typer.Exit(BadInput.exit_code) from None


def refuse(error: Refused, *, as_json: bool) -> NoReturn:
    """End a command that verifies: with --json the refusal is whole, else it is a sentence with short digests."""
    from assay.cli.output import emit, refused_json

    if not emit(refused_json(error), as_json):
        tell("error", cut_digests(str(error)), typer.colors.RED)
    raise typer.Exit(error.exit_code) from None


def cut_digests(message: str) -> str:
    """The message with the first 8 digits of each digest and key; whole where two would look the same."""
    digests = re.findall(r"\b[0-9a-f]{64}\b", message)
    starts = [digest[:8] for digest in set(digests)]
    return re.sub(r"\b[0-9a-f]{64}\b", lambda whole: whole[0] if starts.count(whole[0][:8]) > 1 else f"{whole[0][:8]}…", message)


def _of_the_system(error: OSError) -> BadInput:
    """An error of the operating system, with its own words."""
    file = None if error.filename is None else os.fsdecode(error.filename)
    return BadInput(f"cannot be used ({error.strerror or error})", file=file, hint="check permissions, and that there is room")


def of_the_file(error: Any) -> BadInput | None:
    """The refusal of a value that the configuration file or a variable has; None for one of the command line."""
    from assay.cli.configuration import whence

    if error.ctx is None or error.param is None or error.ctx.get_parameter_source(error.param.name) is None:
        return None
    place = whence(error.ctx, error.param)
    return None if place in ("command line", "default") else BadInput(error.message, field=place, hint="correct it there")


def warn(messages: Iterable[str]) -> None:
    """Warn on stderr about what is allowed but probably not intended."""
    for message in messages:
        tell("warning", message, typer.colors.YELLOW)


def tell(kind: str, message: str, colour: str) -> None:
    """Write one message to stderr: on one line, so that it can be searched for; on a terminal wrapped between words."""
    line = f"{kind}: {printable(message)}"
    width = _width()
    if width is not None:
        line = textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    typer.secho(f"{kind}:", fg=colour, bold=True, nl=False, err=True)
    typer.echo(line.removeprefix(f"{kind}:"), err=True)


def _width() -> int | None:
    """The width of messages; None if stderr is not a terminal."""
    if not sys.stderr.isatty() and not os.environ.get("COLUMNS"):
        return None
    import shutil

    return max(40, shutil.get_terminal_size().columns)
