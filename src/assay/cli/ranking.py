"""The board of a scheme that ranks and pays nobody: places, scores, intervals, ties. It only reads the settlement.

Equal scores share a place, written "2=". Intervals and ≈ are beside the scores and change no place. SPEC 2.1.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from assay.cli.runs import standings
from assay.cli.show import Column
from assay.settle import Settlement

__all__ = ["COLUMNS", "columns", "plain", "rows"]

Json = dict[str, Any]

COLUMNS = ("place", "participant", "name", "score", "low", "high", "tied_with_next", "passed", "trials", "tasks", "runs")
"""What a row says, in the order of `--csv`."""


def rows(settlement: Settlement) -> list[Json]:
    """A row for everybody with an agreed score, best first; without an interval `low`, `high` and the counts are None."""
    names = {participant.key: participant.name for participant in settlement.inputs.participants}
    ranked = settlement.document["agreed"][: len(settlement.ranking)]
    sure = standings(settlement) or {}
    found: list[Json] = []
    for at, agreed in enumerate(ranked, start=1):
        key = agreed["participant"]
        same = bool(found) and _value(agreed) == _value(ranked[at - 2])
        row = {"place": found[-1]["place"] if same else at, "participant": key, "name": names[key], "score": agreed["score"]}
        row["runs"] = sum(not vote["excluded"] for vote in agreed["validators"])
        if key in sure:
            its = sure[key]
            counts = {name: getattr(its, name) for name in ("tied_with_next", "passed", "trials", "tasks")}
            row |= counts | {"low": its.low, "high": its.high}
        found.append({name: row.get(name) for name in COLUMNS})
    return found


def plain(row: Json) -> Json:
    """The row as a table of text has it: booleans as JSON writes them, intervals to four digits."""
    shown = {name: f"{value:.4f}" for name, value in row.items() if isinstance(value, float)}
    return row | shown | {name: str(value).lower() for name, value in row.items() if isinstance(value, bool)}


def _value(row: Json) -> object:
    return row["score"] if row["bps"] is None else row["bps"]


def columns(found: list[Json], interval: str) -> list[Column]:
    """The rows as columns of a table; `interval` heads the intervals."""
    shared = Counter(row["place"] for row in found)
    several = max((row["runs"] for row in found), default=0) > 1
    columns = [
        Column("#", [f"{row['place']}{'=' if shared[row['place']] > 1 else ''}" for row in found]),
        Column("participant", [row["participant"] for row in found], kind="key", style="bold"),
        Column("name", [row["name"] for row in found], kind="crop", spare=3),
        Column("score", [row["score"] for row in found]),
        Column(interval, [_interval(row) for row in found], right=True, spare=1),
        Column("passed", [_passed(row) for row in found], right=True, spare=2),
        Column("runs", [str(row["runs"]) for row in found], right=True, spare=2),
    ]
    wanted = {
        "name": any(row["name"] for row in found),
        interval: any(row["low"] is not None for row in found),
        "passed": any(row["trials"] for row in found),
        "runs": several,
    }
    return [column for column in columns if wanted.get(column.heading, True)]


def _interval(row: Json) -> str:
    """The interval of the pass rate, and the mark of a neighbour that is not clearly behind."""
    if row["low"] is None or row["high"] is None:
        return "–  "
    return f"{100 * row['low']:.1f}–{100 * row['high']:.1f} % {'≈' if row['tied_with_next'] else ' '}"


def _passed(row: Json) -> str:
    return f"{row['passed']} of {row['trials']}" if row["trials"] else "–"
