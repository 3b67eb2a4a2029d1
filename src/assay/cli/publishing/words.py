"""What the commands that send to chains share: options, and how an outcome is told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from assay.publish.outcome import Outcome

__all__ = [
    "AsOption",
    "DirArgument",
    "JsonOption",
    "ToOption",
    "YesOption",
    "finish",
    "moment",
    "say",
    "sentence_of",
    "targets_of",
    "telling",
]


def targets_of(ctx: typer.Context, incomplete: str) -> list[str]:
    """The targets of publish.toml, for the shell's completion."""
    from assay.publish.targets import names

    folder = ctx.params.get("folder")
    return [] if folder is None else [name for name in names(Path(folder)) if name.startswith(incomplete)]


DirArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The competition's folder, with publish.toml.", show_default=False)
]
ToOption = Annotated[str, typer.Option("--to", metavar="NAME", help="A target of publish.toml.", autocompletion=targets_of)]
AsOption = Annotated[
    str | None, typer.Option("--as", metavar="KEY", help="A key of publish.toml; otherwise the target's own.", show_default=False)
]
YesOption = Annotated[bool, typer.Option("--yes", help="Send it. Without, only what would be sent is shown.")]
JsonOption = Annotated[bool, typer.Option("--json", help="As canonical JSON.")]


def telling(what: str) -> None:
    """How it goes on, on stderr."""
    from assay.cli.errors import printable

    typer.echo(printable(what), err=True)


def moment(at: int, unit: str) -> str:
    """From when on something may be sent: a time, or a block."""
    if unit != "time":
        return f"block {at}"
    try:
        return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):  # a contract may have any number there
        return f"second {at}"


def sentence_of(outcome: Outcome) -> str:
    """An outcome in words."""
    from assay.publish.outcome import Confirmed, Planned, Sent, TooEarly, Unknown

    match outcome:
        case Planned():
            return "Nothing was sent: --yes sends it."
        case Confirmed(block, transaction):
            return f"It is there, in block {block}" + (f", by {transaction}." if transaction else ", or before it.")
        case Sent(transaction, opens) if opens is not None:
            return f"It is in the chain, locked, by {transaction}. The chain opens it about block {opens}: do this again then."
        case Sent(transaction):
            return f"It was sent, as {transaction}, and is not deep enough in the chain yet: do this again to see it through."
        case TooEarly(at, unit, what):
            return f"It is too early: {what}. From {moment(at, unit)} on it can be sent."
        case Unknown(what, transaction):
            of = f"what became of {transaction}" if transaction else "how it stands"
            return _ended(f"It is not known {of}: {what}")
    return _ended(f"It was refused: {outcome.what}" + (f"; {outcome.hint}" if outcome.hint else ""))


def _ended(said: str) -> str:
    return said if said.endswith("?") else f"{said}."


def say(outcome: Outcome) -> None:
    """Tell an outcome below what was shown."""
    from assay.cli.show import sentence, show

    show("", sentence(sentence_of(outcome), style="bold" if outcome.ok else "bold red"))


def finish(outcome: Outcome, said: dict[str, Any], parts: Sequence[Any], *, as_json: bool) -> NoReturn:
    """Show what it came to, for programs or for people, and end: 0 if nobody has to do anything about it, else 1."""
    from assay.publish.outcome import document

    if as_json:
        from assay.cli.output import json_bytes, put

        put(json_bytes(said | {"outcome": document(outcome)}), None)
    else:
        from assay.cli.show import show

        show(*parts)
        say(outcome)
    raise typer.Exit(0 if outcome.ok else 1)
