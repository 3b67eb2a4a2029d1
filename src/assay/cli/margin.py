"""`assay margin`: how little would have to be different for another winner, payout tier or order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.rules.margin import LeastChange, Margins
    from assay.settle import Settlement

__all__ = ["margin"]

_EPOCH = "The epoch; otherwise the highest that has evidence, or with a ledger the last one settled."
WAYS = {"flips": "trials are wrong", "missing": "missing trials are decided", "stake": "of the stake lies"}
SHOWN = 12
"""Changes of one verdict in the table; JSON has all."""


def margin(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    epoch: Annotated[int | None, typer.Option(metavar="N", help=_EPOCH, min=0)] = None,
    as_json: AsJson = False,
    top: Annotated[int | None, typer.Option(metavar="N", help="Show so many rows of each table [32].", min=1)] = None,
) -> None:
    """Show how little would have to be different for another verdict: winner, payout tier, order of the ranking.

    Three ways are counted, each by itself: trials that counted with the other outcome, missing trials that are decided, and
    stake of validators that lie. Every change that is shown was settled again. "at least" is proved; where it is smaller than
    "at most", the search ran out of effort, and the truth is between them.

    The scores of participants whose validators miss trials are shown with the lowest and the highest that these can lead to.

    Only for kind tests. --json has the changes, and the proof that fewer flips do not suffice.

    \b
    Examples:
      assay margin my-competition
      assay margin my-competition --epoch 12
      assay margin my-competition --json | jq .verdicts.winner.flips
    """
    from assay.cli.output import Working
    from assay.competition import open_competition

    with Working(f"changing trials of {folder}"):
        margins = open_competition(folder).margins(epoch)
    if not emit(lambda: margins.document, as_json):
        from assay.cli.show import TOP, show

        show(*_tables(margins, folder, top or TOP))


def _tables(margins: Margins, folder: Path, top: int) -> Iterator[RenderableType]:
    from assay.cli.show import Column, first, grid, heading, rest, sentence

    settlement = margins.settlement
    yield heading(f"{folder.resolve().name}, epoch {settlement.epoch}: what each verdict needs to hold")
    yield ""
    for text in margins.sentences:
        yield sentence(text)
    yield ""
    rows = [row for least in margins.found for row in _changes(settlement, least)]
    if rows:
        names = ("verdict", "what changes", "participant", "validator", "passed now", "passed then")
        columns = [
            Column(name, cells, kind="key" if at in (2, 3) else "whole", right=at > 3)
            for at, (name, cells) in enumerate(zip(names, zip(*rows, strict=True), strict=True))
        ]
        yield grid(first(columns, top, len(rows)))
        yield from rest(top, len(rows))
        yield ""
    yield from _ranges(margins, top)


def _changes(settlement: Settlement, least: LeastChange) -> Iterator[tuple[str, ...]]:
    for at, change in enumerate(least.changes):
        if at == SHOWN:
            yield ("", "", f"{len(least.changes) - SHOWN} more: --json", "", "", "")
            return
        head = ("", "") if at else (least.verdict, least.way)
        before = "not counted" if change.before is None else str(change.before)
        yield (*head, change.participant, change.validator, before, str(change.after))


def _ranges(margins: Margins, top: int) -> Iterator[RenderableType]:
    from assay.cli.show import Column, first, grid, note, rest
    from assay.exact import text

    open_ = [interval for interval in margins.ranges if interval.missing]
    if not open_:
        return

    def shown(score: int | None) -> str:
        return "none" if score is None else text(score)

    columns = [
        Column("participant", [interval.participant for interval in open_], kind="key"),
        Column("missing trials", [str(interval.missing) for interval in open_], right=True),
        Column("score", [shown(interval.score) for interval in open_], right=True),
        Column("[lowest, highest]", [f"[{shown(interval.lowest)}, {shown(interval.highest)}]" for interval in open_], right=True),
    ]
    yield grid(first(columns, top, len(open_)))
    yield from rest(top, len(open_))
    if not all(interval.exact for interval in open_):
        yield note("Some missing trials have too many outcomes: those scores may not all be reached, but none is outside.")
