"""The scorers of two kinds: points for valid issues and starred repositories, and scores that arrive computed. SPEC 2.4, 2.5.

- points: valid and invalid issues are summed for each repository of the table, less what was revoked later, at least 0.
- points = worth × valid, and 0.25 for each starred repository (at most 1.25) if there is a valid issue (`stars_alone`: always).
  With more invalid than valid issues it is 0; or (`invalid = "subtract"`) less worth × invalid, at least 0.
- score = points / 100, at most 1. Nine valid issues of 5 points and one star → 45.25 points → 0.4525.
- given: the score of the latest epoch counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from assay.exact import NANO, half_even
from assay.scheme.model import GivenScore, PointsScore
from assay.settle.columns import COMMON, RecordColumn, StandingRecords, count, key, nanos
from assay.settle.inputs import Frame, Ints, Scored

GIVEN_COLUMNS = (*COMMON, nanos("score", NANO, None))
"""The columns of a record of kind given. SPEC 7."""
COLUMNS = (
    *COMMON,
    key("repository"),
    *(count(name) for name in ("valid", "invalid", "revoked_valid", "revoked_invalid")),
    RecordColumn("starred", "flag", 0),
)
"""The columns of a record of kind points. SPEC 7."""


def counted_given(standing: StandingRecords, frame: Frame, rules: GivenScore) -> Scored:
    """Each validator's latest score of each submission. SPEC 2.5."""
    columns, (rows, cols) = standing.counting()
    latest = _latest(rows * frame.shape[1] + cols, columns["epoch"])
    scores, epochs = np.zeros(frame.shape, np.int64), np.zeros(frame.shape, np.int64)
    counting = np.zeros(frame.shape, np.bool_)
    cell = rows[latest], cols[latest]
    counting[cell], scores[cell], epochs[cell] = True, columns["score"][latest], columns["epoch"][latest]
    return Scored(scores=scores, counting=counting, work={"epoch": epochs}, first=standing.first)


def _latest(groups: Ints, epochs: Ints) -> Ints:
    """The place of the highest epoch of each group, in the order of the groups."""
    order = np.lexsort((epochs, groups))
    ordered = groups[order]
    return order[np.append(ordered[1:] != ordered[:-1], True)] if len(order) else order


@dataclass(frozen=True, slots=True)
class Tally:
    """A participant's issues: counts, points (nanos of a point), score (nanos). SPEC 2.4."""

    valid: int
    invalid: int
    starred: int
    points: int
    score: int


def points(valid: Mapping[str, int], invalid: Mapping[str, int], starred: int, rules: PointsScore) -> Tally:
    """Points and score of valid and invalid issues by repository, and of starred repositories. SPEC 2.4."""
    right, wrong = sum(valid.values()), sum(invalid.values())
    worth = sum(rules.repositories[repository] * count for repository, count in valid.items())
    if right or rules.stars_alone:
        worth += min(rules.star_max, rules.star_points * starred)
    if rules.invalid == "subtract":
        worth = max(0, worth - sum(rules.repositories[repository] * count for repository, count in invalid.items()))
    elif wrong > right:
        worth = 0
    return Tally(right, wrong, starred, worth, min(NANO, half_even(worth, rules.full_points)))


def counted(standing: StandingRecords, frame: Frame, rules: PointsScore) -> Scored:
    """Each validator's count of each participant's issues, as a score. SPEC 2.4."""
    start = frame.oldest if rules.window_epochs is None else max(frame.oldest, frame.epoch - rules.window_epochs + 1)
    columns, width = standing.columns, frame.shape[1]
    listed = columns.lookup("repository", {name: at for at, name in enumerate(rules.repositories)})
    columns, listed = columns.take(listed >= 0), listed[listed >= 0]
    cells = columns.lookup("validator", frame.row) * width + columns.lookup("participant", frame.column)
    recent = columns["epoch"] >= start
    worth = list(rules.repositories.values())

    # One place for each (cell, repository) that occurs; sums of issues stay far below 2^63.
    pairs, place = np.unique(cells * len(worth) + listed, return_inverse=True)
    of_cell, repository = np.divmod(pairs, max(1, len(worth)))
    net = {}
    for name in ("valid", "invalid"):
        sums = np.zeros(len(pairs), np.int64)
        np.add.at(sums, place[recent], (columns[name] - columns[f"revoked_{name}"])[recent])
        net[name] = np.maximum(0, sums)
    starred = columns["starred"][_latest(place, columns["epoch"])]

    counting = np.zeros(frame.shape[0] * width, np.bool_)
    counting[cells[recent]] = True
    arrays = {name: np.full(len(counting), 0, np.object_) for name in ("valid", "invalid", "starred", "points", "score")}
    bounds = np.flatnonzero(np.append(np.append(True, of_cell[1:] != of_cell[:-1]), True)) if len(pairs) else np.zeros(1, int)
    # Python's integers: a table may value an issue beyond 64 bits of nanos.
    names, valid, invalid, stars = list(rules.repositories), net["valid"].tolist(), net["invalid"].tolist(), starred.tolist()
    of_cell, repository = of_cell.tolist(), repository.tolist()
    for begin, end in itertools.pairwise(bounds.tolist()):
        cell = of_cell[begin]
        if counting[cell]:
            right, wrong = ({names[repository[at]]: counts[at] for at in range(begin, end)} for counts in (valid, invalid))
            tally = points(right, wrong, sum(stars[begin:end]), rules)
            for name, array in arrays.items():
                array[cell] = getattr(tally, name)
    scores = arrays.pop("score").astype(np.int64).reshape(frame.shape)
    work = {name: array.reshape(frame.shape) for name, array in arrays.items()}
    return Scored(scores=scores, counting=counting.reshape(frame.shape), work=work, first=standing.first)
