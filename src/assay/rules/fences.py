"""A lower bound for the flips that bring one participant's agreed score to a mark, without looking at every state. SPEC 3.

The agreed score is a mean (or median) by stake over the validators inside two fences. So the bound branches on what decides the
fences, the median and the MAD (or mean and σ), in boxes small enough that every fence is known to a nano:

- A box costs at least the flips that bring median and MAD into it.
- In a box each validator has a few good moves: further toward the mark, out of the fences if it holds the score back, into them
  if it would help. With a straight line between these moves, the cheapest flips are the steepest lines first.
- Another box has no fences at all: nobody is left out if the flagged hold half of the stake, or if there are fewer than three.

The least over the boxes is the bound: every state is in one of them, and in its box it costs at least that much. So the bound is
sound for every state, but it may be lower than the truth. It is computed in binary floats, and the mark is moved by a hundredth
of a nano toward the score, some thousand times of what these can be off. It decides no money.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.exact import NANO
from assay.rules.column import DOWN, UP, ScoreColumn
from assay.settle.consensus import LEAST, UNIT

__all__ = ["FlipBound"]

Floats = NDArray[np.float64]
SLACK = 3.0
"""Nanos by which fences are taken to be wider and narrower than they are: for roundings."""
MARK = 0.51
"""Nanos below a mark that still round to it, and a hundredth for floats."""
GRID = 1_000_000
"""Boxes times validators: with more, the boxes are made larger."""
SPREADS = 24
"""Into how many parts the mean and σ are cut, each."""
FAR = 1e15


class FenceBoxes(NamedTuple):
    """By box: the flips that it costs at least, and between which nanos its lower and its upper fence are."""

    costs: Floats
    low_from: Floats
    low_to: Floats
    high_from: Floats
    high_to: Floats


OPEN = FenceBoxes(*(np.array([value]) for value in (0.0, -FAR, -FAR, FAR, FAR)))
"""The box without fences."""


@dataclass(eq=False)
class FlipBound:
    """The bound for one column and one way; downward it is the same with every score s as 1 − s."""

    column: ScoreColumn
    way: int
    flips: int
    """The bound is computed up to here: it is flips + 1 for everything above."""
    _memo: dict[int, int] = field(default_factory=dict)

    @cached_property
    def supported(self) -> bool:
        """Whether there is a bound: not for `trimmed`, not downward for `clip`, nor where outliers may cost the quorum."""
        rules = self.column.rules
        if rules.combine == "trimmed" or (rules.combine == "clip" and self.way == DOWN):
            return False
        return not (rules.recheck and self.way == DOWN and self._fenced)

    @cached_property
    def _fenced(self) -> bool:
        count, outliers = len(self._at), self.column.rules.outliers
        if outliers.method == "none" or count < LEAST:
            return False
        return outliers.method != "z" or outliers.threshold**2 < NANO**2 * (count - 1)

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.column.passed >= 0)

    @cached_property
    def _at(self) -> Floats:
        """The scores, mirrored where the way is down."""
        scores = self.column.nanos[self.column.passed[self._rows]].astype(np.float64)
        return scores if self.way == UP else NANO - scores

    @cached_property
    def weights(self) -> Floats:
        """By how much each validator counts, together 1."""
        if self.column.rules.combine == "mean":
            return np.full(len(self._at), 1 / max(1, len(self._at)))
        stakes = np.array([self.column.stakes[row] for row in self._rows], np.float64)
        return stakes / max(1.0, float(stakes.sum()))

    @property
    def _step(self) -> float:
        return NANO / self.column.trials

    def least(self, mark: int) -> int:
        """So many flips at least bring the agreed score to `mark` (nanos) or beyond, up to flips + 1; 0 without a bound."""
        if mark not in self._memo:
            self._memo[mark] = self._least(mark)
        return self._memo[mark]

    def _least(self, mark: int) -> int:
        mark = mark if self.way == UP else NANO - mark
        if mark <= 0 or not self.supported:
            return 0
        if mark > NANO or not len(self._at):
            return self.flips + 1
        uneven = 0.0 if NANO % self.column.trials == 0 else 1.0
        least = min(self.flips + 1, self._cheapest(OPEN, mark, uneven))
        if self._fenced and least > 0 and len(self._boxes.costs) and self._cheapest(self._around, mark, uneven) < least:
            least = min(least, self._cheapest(self._boxes, mark, uneven))
        return int(least)

    @cached_property
    def _around(self) -> FenceBoxes:
        """One box around all of them."""
        costs, *edges = self._boxes
        ends = (edge.min() if at % 2 == 0 else edge.max() for at, edge in enumerate(edges))
        return FenceBoxes(*(np.array([value]) for value in (costs.min(), *ends)))

    @cached_property
    def _boxes(self) -> FenceBoxes:
        return self._by_moments() if self.column.rules.outliers.method == "z" else self._by_medians()

    def _by_medians(self) -> FenceBoxes:
        """A box for each median and each MAD that can be had."""
        at, step, rules = self._at, self._step, self.column.rules.outliers
        even = len(at) % 2 == 0
        half = (len(at) + 1) // 2
        middles = np.arange(0, NANO + 1, step / (2 if even else 1))
        cost = np.maximum(
            _sum_of_least(np.maximum(0, at[None] - middles[:, None] - SLACK), half, step),
            _sum_of_least(np.maximum(0, middles[:, None] - at[None] - SLACK), half, step),
        )
        middles, middle_costs = middles[cost <= self.flips], cost[cost <= self.flips]
        if not len(middles):
            return FenceBoxes(*(np.zeros(0) for _ in range(5)))
        finest = step / (4 if even else 1)
        spreads, width = np.arange(0, NANO + 1, finest), 0.0
        while True:
            around = self._spread_costs(middles[:1], middles[-1:], spreads, width)[0]
            spreads = spreads[around <= self.flips]
            if len(middles) * len(spreads) * len(at) <= GRID:
                break
            width = max(2 * width, 2 * finest)
            spreads = np.arange(0, NANO + 1, width)
        costs = np.maximum(middle_costs[:, None], self._spread_costs(middles, middles, spreads, width))
        here, there = np.nonzero(costs <= self.flips)
        m, s, costs = middles[here], spreads[there], costs[here, there]
        least, most = (self.reach(m, spread, rules.threshold) for spread in (np.maximum(0, s - SLACK), s + width + SLACK))
        if rules.mad_floor == 0 and rules.scale is None:
            least = np.where(s <= SLACK, 0, least)
        return FenceBoxes(costs, m - most - SLACK, m - least + SLACK, m + least - SLACK, m + most + SLACK)

    def _spread_costs(self, middle_from: Floats, middle_to: Floats, spreads: Floats, width: float) -> Floats:
        """The flips that a MAD of each spread (to spread + width) costs, about each middle, [M, S]."""
        at, half = self._at, (len(self._at) + 1) // 2
        near = np.sort(np.maximum(0, np.maximum(middle_from[:, None] - at, at - middle_to[:, None])), axis=1)
        far = np.sort(np.maximum(at - middle_from[:, None], middle_to[:, None] - at), axis=1)
        inward = near[:, None, :half] - (spreads[None, :, None] + width + SLACK)
        outward = spreads[None, :, None] - far[:, None, len(at) - half :] - SLACK
        pulled = np.ceil(np.maximum(0, inward) / self._step).sum(axis=2)
        return np.asarray(np.maximum(pulled, np.ceil(np.maximum(0, outward) / self._step).sum(axis=2)), np.float64)

    def reach(self, m: Floats, s: Floats, threshold: int) -> Floats:
        """How far the fences are from medians m with MADs s, nanos."""
        reach = threshold * 2 * np.maximum(s, self.column.rules.outliers.mad_floor) / UNIT
        if self.column.rules.outliers.scale is not None:
            noise = threshold / NANO * np.sqrt(np.maximum(0, m * (NANO - m)) / self.column.trials)
            reach = np.maximum(reach, noise)
        return np.asarray(reach, np.float64)

    def _by_moments(self) -> FenceBoxes:
        """A box for each part of where the mean and σ can be."""
        at, step, count = self._at, self._step, len(self._at)
        threshold = self.column.rules.outliers.threshold / NANO
        mean, spread = float(at.mean()), float(at.std())
        about = (self.flips + 1) * step / count, (self.flips + 1) * step / sqrt(count)
        edges = [np.linspace(here - far, here + far, SPREADS + 1) for here, far in zip((mean, spread), about, strict=True)]
        m_from, s_from = (grid.ravel() for grid in np.meshgrid(edges[0][:-1], edges[1][:-1], indexing="ij"))
        m_to, s_to = (grid.ravel() for grid in np.meshgrid(edges[0][1:], edges[1][1:], indexing="ij"))
        away = np.maximum(
            np.maximum(m_from - mean, mean - m_to) * count / step, np.maximum(s_from - spread, spread - s_to) * sqrt(count) / step
        )
        costs = np.maximum(0, np.ceil(away - 1e-6))
        least, most = threshold * np.maximum(0, s_from), threshold * np.maximum(0, s_to)
        within = (costs <= self.flips) & (s_to >= 0)
        boxes = FenceBoxes(costs, m_from - most - SLACK, m_to - least + SLACK, m_from + least - SLACK, m_to + most + SLACK)
        return FenceBoxes(*(values[within] for values in boxes))

    def _cheapest(self, boxes: FenceBoxes, mark: int, uneven: float) -> float:
        """The least over the boxes."""
        costs = self._by_lines(boxes, mark, uneven)
        return float(np.maximum(boxes.costs, costs).min())

    def _by_lines(self, boxes: FenceBoxes, mark: int, uneven: float) -> Floats:
        """In each box, the flips that reach the mark by the steepest lines first; infinite if nothing does."""
        if self.column.rules.combine == "stake-median":
            base, (raised, raised_gain, out, out_gain) = self._medianlike(boxes, mark)
        else:
            base, (raised, raised_gain, out, out_gain) = self._meanlike(boxes, mark, uneven)
        for flips_to, gain in ((raised, raised_gain), (out, out_gain)):
            base = np.where(flips_to < 1, np.maximum(base, gain), base)
        slopes, lengths = _hull(base, np.maximum(1, raised), raised_gain, np.maximum(1, out), out_gain)
        need = -base.sum(axis=1) - 1e-9
        order = np.argsort(-slopes, axis=1)
        slopes, lengths = np.take_along_axis(slopes, order, 1), np.take_along_axis(lengths, order, 1)
        gains = (slopes * lengths).cumsum(axis=1)
        flips = lengths.cumsum(axis=1)
        enough = gains >= need[:, None]
        place = enough.argmax(axis=1)
        rows = np.arange(len(need))
        here = slopes[rows, place]
        over = (gains[rows, place] - need) / np.where(here > 0, here, 1)
        cost = np.ceil(flips[rows, place] - over - 1e-6)
        cost = np.where(enough[rows, place], np.maximum(0, cost), np.inf)
        return np.where(need <= 0, 0.0, cost)

    def _meanlike(self, boxes: FenceBoxes, mark: int, uneven: float) -> tuple[Floats, tuple[Floats, ...]]:
        """Each validator's part of the mean less the mark, [B, V]; and the ends of its best lines: flips, and what it adds."""
        at, by, step = self._at[None], self.weights[None], self._step
        target = mark - MARK - uneven
        low_from, low_to, high_from, high_to = (edge[:, None] for edge in boxes[1:])
        can_stay, can_go = (at >= low_from) & (at <= high_to), (at < low_to) | (at > high_from)
        base = np.where(can_stay, by * (at - target), -FAR)
        base = np.where(can_go, np.maximum(base, 0), base)
        top = np.minimum(np.minimum(high_to, NANO), at + self.flips * step)
        raised = np.maximum(0, np.floor((top - at) / step + 1e-6))
        raised_to = at + raised * step
        after = np.where((raised_to >= low_from) & (at <= high_to), by * (raised_to - target), -FAR)
        out = np.where(can_go, FAR, _flips(np.minimum(at - low_to, high_from - at), step))
        out_gain = np.where(can_go, base, 0.0)
        above = at > high_to
        into = _flips(at - high_to, step)
        out = np.where(above, into, out)
        out_gain = np.where(above, np.maximum(0, by * (np.minimum(high_to, NANO) - target)), out_gain)
        return base, (raised, np.maximum(after, base), out, out_gain)

    def _medianlike(self, boxes: FenceBoxes, mark: int) -> tuple[Floats, tuple[Floats, ...]]:
        """As `_meanlike`: a validator adds its stake at or above the mark, and takes it away below."""
        at, by, step = self._at[None], self.weights[None], self._step
        target = mark - (MARK - 0.5)
        low_from, low_to, high_from, high_to = (edge[:, None] for edge in boxes[1:])
        can_stay, can_go = (at >= low_from) & (at <= high_to), (at < low_to) | (at > high_from)
        base = np.where(can_stay, np.where(at >= target, by, -by), -FAR)
        base = np.where(can_go, np.maximum(base, 0), base)
        table = self.column.nanos if self.way == UP else NANO - self.column.nanos[::-1]
        place = int(np.searchsorted(table, mark))
        passed = self.column.passed[self._rows]
        short = np.maximum(0, place - (passed if self.way == UP else self.column.trials - passed))[None]
        raised = np.maximum(short, _flips(low_from - at, step))
        fits = (at <= high_to) & (table[place] <= high_to + SLACK)
        after = np.where(fits, by, base)
        raised = np.where(fits, raised, 0.0)
        out = np.where(can_go, FAR, _flips(np.minimum(at - low_to, high_from - at), step))
        out_gain = np.where(can_go, base, 0.0)
        above = at > high_to
        out = np.where(above, _flips(at - high_to, step), out)
        out_gain = np.where(above, np.where(high_to >= target, by, 0.0), out_gain)
        return base, (raised, np.maximum(after, base), out, out_gain)


def _flips(distance: Floats, step: float) -> Floats:
    """So many flips, at least, are a distance in nanos."""
    return np.maximum(0.0, np.ceil((distance - SLACK) / step))


def _sum_of_least(distances: Floats, count: int, step: float) -> Floats:
    """The sum of the `count` smallest of each row, in flips."""
    flips = np.ceil(distances / step)
    return np.asarray(np.partition(flips, count - 1, axis=1)[:, :count].sum(axis=1), np.float64)


def _hull(base: Floats, raised: Floats, raised_gain: Floats, out: Floats, out_gain: Floats) -> tuple[Floats, Floats]:
    """Slopes and lengths, [B, 2V], of the least concave line over (0, base) and the two points that rise."""
    swap = raised > out
    near, far = np.where(swap, out, raised), np.where(swap, raised, out)
    near_gain, far_gain = np.where(swap, out_gain, raised_gain), np.where(swap, raised_gain, out_gain)
    near_gain = np.maximum(near_gain, base)
    far_gain = np.maximum(far_gain, near_gain)
    first = (near_gain - base) / near
    second = (far_gain - near_gain) / np.maximum(far - near, 1)
    whole = (far_gain - base) / far
    bent = first >= second
    slopes = np.concatenate([np.where(bent, first, whole), np.where(bent, second, 0.0)], axis=1)
    lengths = np.concatenate([np.where(bent, near, far), np.where(bent, np.maximum(far - near, 1), 0.0)], axis=1)
    return slopes, lengths
