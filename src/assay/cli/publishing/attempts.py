"""`assay attempts`: what was sent to chains, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.publishing.words import DirArgument, JsonOption, targets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.publish.history import Tried

__all__ = ["attempts"]

LINES = 40
"""Of each target the last so many are shown."""


def attempts(
    folder: DirArgument,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="Only this target of publish.toml.", autocompletion=targets_of)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What was sent to chains, and what became of it.

    What was about to be sent, too: from the ledger, or from DIR/published. Nothing is asked of a chain, and nothing is sent.

    \b
    Example:
      assay attempts my-bounty --to sepolia
    """
    from assay.publish import targets
    from assay.publish.history import history

    names = [to] if to is not None else targets.names(folder) or [""]
    found = {name: history(targets.read(folder, name).journal().entries) for name in names}
    if as_json:
        from assay.cli.output import json_bytes, put

        put(json_bytes({"targets": {name: [one.document() for one in rows] for name, rows in found.items()}}), None)
        return
    from assay.cli.show import show

    show(*(part for name, rows in found.items() for part in _parts(name, rows)))


def _parts(name: str, rows: Sequence[Tried]) -> list[Any]:
    from assay.cli.show import Column, grid, heading, note

    if not rows:
        return [heading(name), note("Nothing was sent there from here.")]
    shown = rows[-LINES:]
    columns = [
        Column("what", [one.subject for one in shown]),
        Column("what became of it", [" → ".join(one.states) for one in shown], kind="text"),
        Column("last", [str(one.last.get("at", "")) for one in shown]),
        Column("block", [str(one.last.get("block", "")) for one in shown], right=True, spare=1),
        Column("transaction", [one.transaction for one in shown], kind="key"),
        Column("why", [one.why for one in shown], kind="text", spare=2),
    ]
    more = len(rows) - len(shown)
    return [heading(name), grid(columns), *([note(f"And {more} before: --json has them all.")] if more else [])]
