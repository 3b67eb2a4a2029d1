"""What a board says beside its numbers, and no request waits for: how firmly its verdicts hold, and whose outcomes are equal.

Both take seconds for a large board. A service computes them beside its requests (`serve/background.py`) when an epoch is settled,
and keeps them; a report of a small board computes them at once. No number of a settlement depends on them.

    margins/HEX.json    of the settlement sha256:HEX; it may be removed, and is computed again
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.exact import canonical, text
from assay.folder.files import stamp, write_bytes
from assay.rules.near_copies import equal_outcomes
from assay.serve.season import Season

__all__ = ["INLINE", "PLACE", "compute", "has_margins", "is_kept", "keep", "known", "of", "shown_range"]

Json = dict[str, Any]
PLACE, SCHEMA = "margins", "assay.board-margins/1"
INLINE = 400
"""Validators × participants up to which a report computes its margins itself; they take about a second then."""
SUBMISSIONS = 2_000
"""Participants above which outcomes are not compared: it is done for each pair."""
TRIES = 3
"""So often a computation begins that never ends: a process that is stopped, or the machine is too small."""


def has_margins(season: Season) -> bool:
    """Whether a margin is defined: kind tests, and each validator's trials count by themselves."""
    rules = season.scheme.score
    return season.scheme.kind.trials(rules) is not None and not rules.scores_jointly()


def compute(season: Season) -> Json:
    """The sentences, the range of each score with missing trials, and the pairs with equal outcomes. Shapes as in `SCHEMA`."""
    from assay.rules.margin import margins

    found: Json = {"schema": SCHEMA, "settlement": season.settlement.digest, "epoch": season.settlement.epoch}
    found |= {"sentences": [], "scores": [], "equal_outcomes": _equal(season)}
    if has_margins(season):
        margin = margins(season.settlement)
        found["sentences"] = margin.sentences
        found["scores"] = [
            {
                "participant": one.participant,
                "lowest": None if one.lowest is None else text(one.lowest),
                "highest": None if one.highest is None else text(one.highest),
                "missing": one.missing,
                "exact": one.exact,
            }
            for one in margin.ranges
            if one.missing
        ]
    return found


def _equal(season: Season) -> list[Json]:
    """The pairs of ranked participants whose outcomes are too alike; none where there are too many participants."""
    outcomes: dict[str, dict[str, bool]] = {}
    if len(season.document["ranking"]) > SUBMISSIONS:
        return []
    for name in season.tasks.names:
        for key, (passed, runs) in season.tasks.counted[name].items():
            if runs:
                outcomes.setdefault(key, {})[name] = 2 * passed > runs
    return [
        {"participants": [*pair], "tasks": one.tasks, "passed": one.passed, "ways": str(one.ways), "pairs": one.pairs}
        for pair, one in equal_outcomes(outcomes).items()
        if one.notable
    ]


def keep(season: Season) -> bool:
    """Compute what is not kept yet, and keep it; returns whether that was done. Raises BadInput if it cannot be written.

    Before it begins, it notes that it tries, so that no process begins for ever what it never ends.
    """
    if is_kept(season.folder, season.settlement.digest):
        return False
    file = _file(season.folder, season.settlement.digest)
    file.parent.mkdir(exist_ok=True)
    begun = _begun(file)
    write_bytes(file, canonical({"schema": SCHEMA, "begun": begun + 1}) + b"\n")
    write_bytes(file, canonical(compute(season)) + b"\n")
    return True


def known(season: Season) -> Json | None:
    """What is kept of this settlement; None if nothing is."""
    return _kept(season.folder, season.settlement.digest)


def is_kept(folder: Path, settlement: str) -> bool:
    """Whether the margins of a settlement are kept, or were begun in vain too often. settlement: its digest."""
    return _kept(folder, settlement) is not None or _begun(_file(folder, settlement)) >= TRIES


def _kept(folder: Path, settlement: str) -> Json | None:
    file = _file(folder, settlement)
    found = _read(file, stamp(file)) if file.exists() else {}
    return found if found.get("settlement") == settlement else None


def of(season: Season) -> Json | None:
    """What is known of an epoch: kept, or computed now where no service waits and the board is small; else None."""
    found = known(season)
    if found is None and season.address is None:
        rows, columns = season.settlement.frame.shape
        if rows * columns <= INLINE:
            found = season.once("margins", lambda: compute(season))
    return found


def shown_range(row: Json) -> str:
    """ "0.622 to 0.64": the scores to which its missing trials can lead."""
    lowest, highest = (("no score" if row[name] is None else row[name]) for name in ("lowest", "highest"))
    return f"{lowest} to {highest}"


def _file(folder: Path, settlement: str) -> Path:
    return folder / PLACE / f"{settlement[7:]}.json"


def _begun(file: Path) -> int:
    try:
        return int(json.loads(file.read_bytes())["begun"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


@lru_cache(maxsize=32)
def _read(file: Path, _state: tuple[object, ...]) -> Json:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else {}
