"""The scorers of two kinds: points for valid issues and starred repositories, and scores that arrive computed. SPEC 2.4, 2.5.

- points: valid and invalid issues are summed for each repository of the table, less what was revoked later, at least 0.
- points = worth × valid, and 0.25 for each starred repository (at most 1.25) if there is a valid issue. With more invalid than
  valid issues it is 0.
- score = points / 100, at most 1. Nine valid issues of 5 points and one star → 45.25 points → 0.4525.
- given: the score of the latest epoch counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.exact import NANO, half_even
from assay.records import Evidence, Given, Points
from assay.scheme.model import GivenScore, PointsScore
from assay.settle.inputs import Frame, Scored
from assay.settle.score import accepted, first_epochs, holding, of_kind


def score_given(records: Sequence[Evidence], frame: Frame, rules: GivenScore) -> Scored:
    """Each validator's latest score of each submission; raises BadInput as `accepted` does. SPEC 2.5."""
    mine = of_kind(records, Given)
    latest: dict[tuple[int, int], Given] = {}
    column_of = holding(frame)
    for record in accepted(mine, frame):
        column = column_of(record)
        if column is not None:
            cell = (frame.row[record.validator], column)
            latest[cell] = max(latest.get(cell, record), record, key=lambda given: given.epoch)
    scores, epochs = np.zeros(frame.shape, np.int64), np.zeros(frame.shape, np.int64)
    counting = np.zeros(frame.shape, np.bool_)
    for cell, record in latest.items():
        counting[cell], scores[cell], epochs[cell] = True, record.score, record.epoch
    return Scored(scores=scores, counting=counting, work={"epoch": epochs}, first=first_epochs(mine, frame))


@dataclass(frozen=True, slots=True)
class Tally:
    """A participant's issues: counts, points (nanos of a point), score (nanos). SPEC 2.4."""

    valid: int
    invalid: int
    starred: int
    points: int
    score: int


def points(valid: Mapping[str, int], invalid: int, starred: int, rules: PointsScore) -> Tally:
    """Points and score of valid issues by repository, invalid issues, and starred repositories. SPEC 2.4."""
    total = sum(valid.values())
    worth = sum(rules.repositories[repository] * count for repository, count in valid.items())
    if total:
        worth += min(rules.star_max, rules.star_points * starred)
    if invalid > total:
        worth = 0
    return Tally(total, invalid, starred, worth, min(NANO, half_even(worth, rules.full_points)))


def score(records: Sequence[Evidence], frame: Frame, rules: PointsScore) -> Scored:
    """Each validator's count of each participant's issues, as a score; raises BadInput as `accepted` does. SPEC 2.4."""
    mine = of_kind(records, Points)
    start = frame.oldest if rules.window_epochs is None else max(frame.oldest, frame.epoch - rules.window_epochs + 1)
    cells: dict[tuple[int, int], dict[str, list[Points]]] = {}
    for record in accepted(mine, frame):
        if record.repository in rules.repositories:
            cell = (frame.row[record.validator], frame.column[record.participant])
            cells.setdefault(cell, {}).setdefault(record.repository, []).append(record)
    counting = np.zeros(frame.shape, np.bool_)
    # Object arrays hold Python integers: a table may value an issue beyond 64 bits of nanos.
    arrays = {name: np.full(frame.shape, 0, np.object_) for name in ("valid", "invalid", "starred", "points", "score")}
    for cell, repositories in cells.items():
        if any(record.epoch >= start for of_repository in repositories.values() for record in of_repository):
            counting[cell] = True
            tally = _tally(repositories, start, rules)
            for name, array in arrays.items():
                array[cell] = getattr(tally, name)
    scores = arrays.pop("score").astype(np.int64)
    return Scored(scores=scores, counting=counting, work=arrays, first=first_epochs(mine, frame))


def _tally(repositories: Mapping[str, Sequence[Points]], start: int, rules: PointsScore) -> Tally:
    """The sums since `start`; stars as the latest record of any epoch says."""
    valid: dict[str, int] = {}
    invalid = starred = 0
    for repository, of_repository in repositories.items():
        recent = [record for record in of_repository if record.epoch >= start]
        valid[repository] = max(0, sum(record.valid - record.revoked_valid for record in recent))
        invalid += max(0, sum(record.invalid - record.revoked_invalid for record in recent))
        starred += max(of_repository, key=lambda record: record.epoch).starred
    return points(valid, invalid, starred, rules)
