"""Margins and equal outcomes, which a board shows beside its numbers. No request waits for them.

Both take seconds for a large board. A service computes them beside its requests (`serve/background.py`) when an epoch is settled,
and keeps them; a report of a small board computes them at once. No number of a settlement depends on them.

    margins/HEX.json    of the settlement sha256:HEX; it may be removed, and is computed again
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.exact import canonical, text
from assay.folder.files import stamp, write_bytes

if TYPE_CHECKING:
    from assay.serve.season import Season
    from assay.settle import Settlement

__all__ = [
    "INLINE",
    "PLACE",
    "compute",
    "has_margins",
    "is_kept",
    "keep",
    "known",
    "of",
    "of_settlement",
    "sentences",
    "shown_range",
]

Json = dict[str, Any]
PLACE, SCHEMA = "margins", "assay.board-margins/2"
INLINE, JUDGES = 400, 8
"""Validators × participants, and validators, up to which a report or a terminal computes margins itself: a tenth of a second."""
SUBMISSIONS = 2_000
"""Participants above which outcomes are not compared: it is done for each pair."""
TRIES = 3
"""So often a computation begins that never ends: a process that is stopped, or the machine is too small."""


def has_margins(settlement: Settlement) -> bool:
    """Whether a margin is defined: kind tests; where tasks pass by all validators, each trial must be known by itself."""
    from assay.rules.trials import knows_outcomes

    scheme = settlement.inputs.scheme
    return scheme.kind.trials(scheme.score) is not None and (not scheme.score.scores_jointly() or knows_outcomes(settlement))


def compute(settlement: Settlement) -> Json:
    """How firmly each verdict holds, the ranges of scores with missing trials, and whose change nothing. Shape as in `SCHEMA`."""
    from assay.rules.decided import spared
    from assay.rules.margin import margins

    document: Json = {"schema": SCHEMA, "settlement": settlement.digest, "epoch": settlement.epoch}
    document |= {"holds": {}, "scores": [], "spared": {}}
    if has_margins(settlement):
        margin = margins(settlement)
        document["holds"] = margin.holds
        document["spared"] = {} if settlement.inputs.scheme.score.scores_jointly() else spared(settlement)
        document["scores"] = [
            {
                "participant": interval.participant,
                "lowest": None if interval.lowest is None else text(interval.lowest),
                "highest": None if interval.highest is None else text(interval.highest),
                "missing": interval.missing,
                "exact": interval.exact,
            }
            for interval in margin.ranges
            if interval.missing
        ]
    return document


def _whole(season: Season) -> Json:
    return compute(season.settlement) | {"equal_outcomes": _equal(season)}


def _equal(season: Season) -> list[Json]:
    """The pairs of ranked participants whose outcomes are too alike; none where the scheme compares none."""
    from assay.rules.near_copies import equal_outcomes

    outcomes: dict[str, dict[str, bool]] = {}
    rules = season.scheme.submission
    if rules is None or rules.copies is None or len(season.document["ranking"]) > SUBMISSIONS:
        return []
    for name in season.tasks.names:
        for key, (passed, runs) in season.tasks.counted[name].items():
            if runs:
                outcomes.setdefault(key, {})[name] = 2 * passed > runs
    return [
        {"participants": [*pair], "tasks": alike.tasks, "passed": alike.passed, "ways": str(alike.ways), "pairs": alike.pairs}
        for pair, alike in equal_outcomes(outcomes).items()
        if alike.notable
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
    write_bytes(file, canonical(_whole(season)) + b"\n")
    return True


def known(season: Season) -> Json | None:
    """The margins kept of this settlement; None if there are none."""
    return _stored(season.folder, season.settlement.digest)


def is_kept(folder: Path, settlement: str) -> bool:
    """Whether the margins of a settlement are kept, or were begun in vain too often. settlement: its digest."""
    return _stored(folder, settlement) is not None or _begun(_file(folder, settlement)) >= TRIES


def _stored(folder: Path, settlement: str) -> Json | None:
    file = _file(folder, settlement)
    document = _read(file, stamp(file)) if file.exists() else {}
    return document if document.get("settlement") == settlement else None


def of(season: Season) -> Json | None:
    """The margins of an epoch: kept, or computed now where no service waits and the board is small; else None."""
    document = known(season)
    if document is None and season.address is None and _is_small(season.settlement):
        document = season.once("margins", lambda: _whole(season))
    return document


def of_settlement(folder: Path, settlement: Settlement) -> Json | None:
    """The same for a terminal: without equal outcomes where it is computed now."""
    document = _stored(folder, settlement.digest)
    return compute(settlement) if document is None and _is_small(settlement) else document


def sentences(
    document: Json | None, settlement: Settlement, otherwise: str = "", name: Callable[[str], str] | None = None
) -> Iterator[str]:
    """Sentences about how firmly the verdicts hold; `otherwise` if that is not known; empty where no margin is defined.

    name: participant → what the page calls it; otherwise as the sentences of a terminal do.
    """
    from assay.rules.margin import VERDICTS, subject

    if not has_margins(settlement) or not settlement.ranking:
        return
    if document is None:
        yield from [otherwise] if otherwise else []
        return
    for verdict in VERDICTS:
        if verdict in document["holds"]:
            yield f"{subject(settlement, verdict, name)} {document['holds'][verdict]}."


def _is_small(settlement: Settlement) -> bool:
    rows, columns = settlement.frame.shape
    return rows <= JUDGES and rows * columns <= INLINE


def shown_range(row: Json) -> str:
    """ "between 0.622 and 0.64": the scores to which its missing trials can lead."""
    lowest, highest = row["lowest"], row["highest"]
    if highest is None:
        return "none"
    if lowest is None:
        return f"at most {highest}, or none"
    return f"between {lowest} and {highest}" if lowest != highest else f"{lowest} in any case"


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
        document = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) and document.get("schema") == SCHEMA else {}
