"""Boxes for `pricing`: every pair of a median and a MAD that some flips can bring about, and the fences that it has. SPEC 3.2.

Scores, medians and distances are counted in trials, doubled: so the median of two scores is a whole number. With an even number
of validators the median is the mean of two scores: `cut` makes a box for each two of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.exact import NANO
from assay.rules.fences import FAR, SLACK, FlipBound
from assay.settle.inputs import Ints

__all__ = ["SIZE", "Boxes", "MedianBoxes", "counted"]

Floats = NDArray[np.float64]
SIZE = 60_000
"""Boxes times validators; with more, prices are not asked, or boxes are not cut."""


class Boxes(NamedTuple):
    """By box: twice the median, 2 × (the middle scores), 2 × (the middle distances), all in trials; and the fences, nanos.

    With M middles, `middles` and `distances` are [N, M]; a distance is |2·score − 2·median|.
    """

    median2: Floats
    middles: Floats
    distances: Floats
    costs: Floats
    low_from: Floats
    low_to: Floats
    high_from: Floats
    high_to: Floats

    def at(self, places: Ints) -> Boxes:
        """The boxes at these places."""
        return Boxes(*(values[places] for values in self))


@dataclass(eq=False)
class MedianBoxes:
    """The boxes of a column: `passed`, [V], are its numbers of passed trials, counted along the way of `hull`."""

    hull: FlipBound
    passed: Ints

    @property
    def _step(self) -> float:
        return NANO / self.hull.column.trials

    @cached_property
    def _half(self) -> int:
        return (len(self.passed) + 1) // 2

    def caps(self, middles: int) -> Floats:
        """How many may be below each middle score, above it, nearer than each middle distance, and farther, [4 × M]."""
        count, half = len(self.passed), self._half
        if middles == 1:
            return np.full(4, float(count - half))
        below, above = [half - 1, count // 2], [count - half, count - count // 2 - 1]
        return np.array([*below, *above, *below, *above], np.float64)

    @cached_property
    def every(self) -> Boxes | None:
        """A box for each median and each MAD that can be had; None if there are too many."""
        doubled, count, trials = 2 * self.passed, len(self.passed), self.hull.column.trials
        medians2 = np.arange(0, 2 * trials + 1, 2 if count % 2 else 1)
        costs = self._shifts(doubled[None], medians2[:, None])
        rows: list[Floats] = []
        for median2, cost in zip(
            medians2[costs <= self.hull.flips].tolist(), costs[costs <= self.hull.flips].tolist(), strict=True
        ):
            away = np.abs(doubled - median2)
            away.sort()
            near = max(0, int(away[self._half - 1]) - 2 * self.hull.flips)
            far = int(away[count // 2]) + 2 * self.hull.flips
            spreads = np.arange(2 * (near - near % 2), 2 * far + 1, 4 if count % 2 else 2)
            both = np.maximum(cost, self._shifts(away[None], spreads[:, None] / 2))
            kept = both <= self.hull.flips
            rows.append(np.stack([np.full(int(kept.sum()), median2), spreads[kept], both[kept]], axis=1))
            if sum(len(row) for row in rows) * count > SIZE:
                return None
        medians, spread, cost = np.concatenate(rows or [np.zeros((0, 3))]).astype(np.float64).T
        return self._fenced(medians, medians[:, None], spread[:, None] / 2, spread / 4, cost)

    def _fenced(self, median2: Floats, middles: Floats, distances: Floats, mads: Floats, costs: Floats) -> Boxes:
        """The boxes with these medians and MADs (in trials), and the fences of each."""
        rules = self.hull.column.rules.outliers
        middle, mad = median2 / 2 * self._step, mads * self._step
        reaches = [
            self.hull.reach(np.clip(middle + aside, 0, NANO), np.maximum(0, mad + slack), rules.threshold)
            for slack in (-SLACK, SLACK)
            for aside in (-1, 1)
        ]
        near, far = np.minimum(*reaches[:2]), np.maximum(*reaches[2:])
        if rules.mad_floor == 0:
            nobody = (mad <= SLACK) & ((rules.scale is None) | (np.abs(middle - NANO / 2) >= NANO / 2 - SLACK))
            near, far = np.where(nobody, 0, near), np.where(nobody, FAR, far)
        edges = middle - far - SLACK, middle - near + SLACK, middle + near - SLACK, middle + far + SLACK
        return Boxes(median2, middles, distances, costs, *edges)

    def _shifts(self, values: Ints, middles: Ints | Floats) -> Floats:
        """The flips (2 in `values` each) after which half of the values are at or below each middle, and half at or above."""
        ends = [np.ceil(np.maximum(0, side * (values - middles)) / 2) for side in (1, -1)]
        below, above = (np.partition(end, self._half - 1, axis=-1)[..., : self._half].sum(axis=-1) for end in ends)
        return np.asarray(np.maximum(below, above), np.float64)

    def cut(self, boxes: Boxes, flips: int) -> Boxes:
        """For an even number of validators: each box by the lower of the two middle scores and of the two middle distances."""
        doubled, rows = 2 * self.passed, []
        for median2, spread in zip(
            boxes.median2.astype(int).tolist(), (2 * boxes.distances[:, 0]).astype(int).tolist(), strict=True
        ):
            nears = self._halves(np.abs(doubled - median2), spread, median2 % 2, flips)
            rows += [
                (median2, low, 2 * median2 - low, near, spread - near, spread / 4, max(moved, spent))
                for low, moved in self._halves(doubled, 2 * median2, 0, flips)
                for near, spent in nears
            ]
        cut = np.array(rows, np.float64).reshape(-1, 7)
        return self._fenced(cut[:, 0], cut[:, 1:3], cut[:, 3:5], cut[:, 5], cut[:, 6])

    def _halves(self, values: Ints, total: int, odd: int, flips: int) -> list[tuple[int, int]]:
        """The lower of two middle values (2 a flip) with this sum, and the flips that they take; `odd`: all values are odd."""
        ordered, half, pairs = np.sort(values), self._half, list[tuple[int, int]]()
        low = total // 2
        low -= (low - odd) % 2
        while low >= 0:
            below = np.maximum(0, ordered[:half] - low).sum()
            above = np.maximum(0, total - low - ordered[half:]).sum()
            cost = int(max(below, above) if 2 * low == total else below + above) // 2
            if cost > flips:
                break
            pairs.append((low, cost))
            low -= 2
        return pairs


def counted(trials: Ints, boxes: Boxes) -> Floats:
    """In which of the counted sets these numbers are, [N, …, C], in the order of `MedianBoxes.caps`."""
    shape = (len(boxes.costs), *[1] * (trials.ndim - 1))
    doubled = 2 * trials[..., None]
    middles, distances = (values.reshape(*shape, -1) for values in (boxes.middles, boxes.distances))
    away = np.abs(doubled - boxes.median2.reshape(*shape, 1))
    sets = [doubled < middles, doubled > middles, away < distances, away > distances]
    return np.concatenate(sets, axis=-1).astype(np.float64)
