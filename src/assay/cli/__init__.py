"""The command line. Only typer is imported here; a command is imported when it runs, so that `--help` is quick.

Exit codes: 0 success; 1 no settlement follows from the input (`CannotSettle`); 2 the input or the command is wrong (`BadInput`).
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.errors import Commands

__all__ = ["app", "main"]

app = typer.Typer(
    name="assay",
    cls=Commands,
    help="Assay scores AI agents and pays them by the score. Anyone can recompute every number, to the bit.",
    epilog="Start with: assay init --preset term-challenge my-competition, then: assay settle my-competition",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        import assay

        typer.echo(f"assay {assay.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file with options of commands; else that of ASSAY_CONFIG.",
            envvar="ASSAY_CONFIG",
            show_envvar=False,
        ),
    ] = None,
) -> None:
    """Options of every command."""


def main() -> None:
    """The entry point `assay`. Characters that the terminal cannot show are replaced."""
    gc.set_threshold(
        50_000
    )  # what a command imports stays to the end: looking through it again and again is a fifth of its start
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and (stream.encoding or "").lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="replace")
    app(prog_name="assay", color=False if os.environ.get("NO_COLOR") else None)
