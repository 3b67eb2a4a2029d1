"""The fewest flips that bring one participant's agreed score to a mark: prices, then every state that they leave. SPEC 3.

`fences.FlipBound` is quick and often too low: it lets a flip be divided, and the flips that move the median and the MAD pay for
nothing else. Here both are asked together. As there, the search branches on median and MAD, which decide the fences. In a box,

- the state must bring enough: Σ stake · (score − mark) over what is inside the fences is not negative;
- the median and the MAD must be the box's: so many validators at most are below them, and so many above.

Each of these conditions has a *price* in flips (a Lagrange multiplier). Once prices are given, every validator chooses for itself
what it costs least to become, and the sum is never above the flips of a state of the box, whatever the prices are. Prices that
make the sum large are found by subgradients with Polyak's step. A box whose sum is above the flips that may be spent is closed.

What is left is counted: a validator that chooses otherwise makes the sum larger, so few choices of few validators fit. They are
joined validator by validator; of those that come to the same flips and counts, only the one that brings most is kept. So a box
has no state, or the kernel judges the ones it may have. Where the kernel confirms one, it takes the fewest flips.

With an even number of validators the median is the mean of two: boxes that are left are cut by each of the two.

Computed in binary floats, with the slack of `fences`. It decides no money.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.exact import NANO
from assay.rules.column import UP, ScoreColumn
from assay.rules.fences import FAR, MARK, SLACK, FlipBound
from assay.settle.consensus import LEAST
from assay.settle.inputs import Ints

__all__ = ["FewestInBoxes", "PricedFlips"]

Floats = NDArray[np.float64]
BOXES = 6_000
"""With more boxes, prices are not asked."""
ROUNDS = 60
"""Rounds in which prices are changed."""
BLOCK = 2_000_000
"""Numbers that are computed at once."""
JOINED = 60_000
"""Steps in which the choices of one box are joined, at most; a step takes about as long as a hundred numbers."""
NEVER = -1e9
"""What a score brings that a box does not have."""
EVEN = 1e-6
"""Flips by which a sum may be off."""


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
        """Some of them."""
        return Boxes(*(values[places] for values in self))


class Prices(NamedTuple):
    """By box: the sum of the least that each validator costs; the prices of what it brings, [N, G], and of the counts, [N, C]."""

    sums: Floats
    goods: Floats
    counts: Floats

    def at(self, places: Ints) -> Prices:
        """Some of them."""
        return Prices(*(values[places] for values in self))


class Terms(NamedTuple):
    """What is asked of boxes: the mark (nanos, upward), the flips, how many each counted set may have; and which of two cases.

    majority: half of the stake is outside the fences, and so every score counts. Otherwise those inside count.
    """

    mark: int
    flips: int
    caps: Floats
    majority: bool


class OpenBox(NamedTuple):
    """One box that prices left open."""

    box: Boxes
    prices: Prices
    terms: Terms


@dataclass(frozen=True, slots=True)
class FewestInBoxes:
    """At least so many flips (at most one more than was asked for); and a state that the kernel confirmed, with its flips."""

    least: int
    flips: int | None = None
    state: Ints | None = None


@dataclass(eq=False)
class PricedFlips:
    """One column and one way; downward every score s is 1 − s. Up to `flips` flips. `work`: how many numbers were computed."""

    column: ScoreColumn
    way: int
    flips: int
    work: int = 0
    _memo: dict[int, tuple[int, FewestInBoxes]] = field(default_factory=dict)

    @cached_property
    def supported(self) -> bool:
        """Whether prices can be asked: where fences come from medians, and the combination is a sum."""
        rules = self.column.rules
        if rules.outliers.method != "modified-z" or len(self._passed) < LEAST or not self._hull.supported:
            return False
        return self._boxes is not None

    @cached_property
    def _hull(self) -> FlipBound:
        return FlipBound(self.column, self.way, self.flips)

    @cached_property
    def _rows(self) -> Ints:
        return np.flatnonzero(self.column.passed >= 0)

    @cached_property
    def _passed(self) -> Ints:
        passed = self.column.passed[self._rows]
        return passed if self.way == UP else self.column.trials - passed

    @cached_property
    def _nanos(self) -> Floats:
        nanos = self.column.nanos.astype(np.float64)
        return nanos if self.way == UP else NANO - nanos[::-1]

    @property
    def _step(self) -> float:
        return NANO / self.column.trials

    def least(self, mark: int, flips: int) -> FewestInBoxes:
        """So many flips at least bring the agreed score to `mark` (nanos) or beyond, up to flips + 1."""
        known = self._memo.get(mark)
        if known is None or (known[0] < flips and known[1].least > known[0]):
            self._memo[mark] = known = flips, self._least(mark, flips)
        return known[1]

    def _least(self, mark: int, flips: int) -> FewestInBoxes:
        ahead = mark if self.way == UP else NANO - mark
        if ahead > NANO:
            return FewestInBoxes(flips + 1)
        left = [*self._left(ahead, flips, majority=False), *self._left(ahead, flips, majority=True)]
        least, loose = flips + 1, set[int]()
        first = ceil(min((float(box.prices.sums[0]) for box in left), default=flips + 1) - EVEN)
        for limit in range(max(0, first), flips + 1):
            for at, box in enumerate(left):
                if box.prices.sums[0] > limit + EVEN or at in loose or limit > least:
                    continue
                states = self._states(box, limit)
                reached = None if states is None else self._reached(states, mark)
                if reached is not None:
                    return FewestInBoxes(min(least, limit), int(np.abs(reached - self.column.passed).sum()), reached)
                if states is None or len(states):
                    loose.add(at)
                    least = min(least, limit)
        return FewestInBoxes(least)

    def _left(self, mark: int, flips: int, *, majority: bool) -> list[OpenBox]:
        """The boxes that prices do not close. majority: those where nobody is left out, because half of the stake is outside."""
        assert self._boxes is not None
        at_least = np.maximum(self._boxes.costs, self._majority) if majority else self._boxes.costs
        boxes, caps = self._boxes.at(np.flatnonzero(at_least <= flips)), self._caps(1)
        boxes, prices = self._priced(boxes, Terms(mark, flips, caps, majority))
        if len(self._passed) % 2 == 0 and len(boxes.costs):
            caps = self._caps(2)
            boxes, prices = self._priced(self._cut(boxes, flips), Terms(mark, flips, caps, majority))
        places = (np.array([at]) for at in range(len(boxes.costs)))
        return [OpenBox(boxes.at(at), prices.at(at), Terms(mark, flips, caps, majority)) for at in places]

    def _reached(self, states: Ints, mark: int) -> Ints | None:
        """The first of the states whose agreed score is at the mark or beyond, as the kernel says."""
        scores = self.column.judged(states)
        places = np.flatnonzero((self.way * scores >= self.way * mark) & (scores >= 0))
        return states[places[0]] if len(places) else None

    @cached_property
    def _half(self) -> int:
        return (len(self._passed) + 1) // 2

    def _caps(self, middles: int) -> Floats:
        """How many may be below each middle score, above it, nearer than each middle distance, and farther, [4 × M]."""
        count, half = len(self._passed), self._half
        if middles == 1:
            return np.full(4, float(count - half))
        below, above = [half - 1, count // 2], [count - half, count - count // 2 - 1]
        return np.array([*below, *above, *below, *above], np.float64)

    @cached_property
    def _boxes(self) -> Boxes | None:
        """A box for each median and each MAD that can be had; None if there are too many."""
        doubled, count, trials = 2 * self._passed, len(self._passed), self.column.trials
        medians2 = np.arange(0, 2 * trials + 1, 2 if count % 2 else 1)
        costs = self._shifts(doubled[None], medians2[:, None])
        rows: list[Floats] = []
        for median2, cost in zip(medians2[costs <= self.flips].tolist(), costs[costs <= self.flips].tolist(), strict=True):
            away = np.abs(doubled - median2)
            away.sort()
            near = max(0, int(away[self._half - 1]) - 2 * self.flips)
            far = int(away[count // 2]) + 2 * self.flips
            spreads = np.arange(2 * (near - near % 2), 2 * far + 1, 4 if count % 2 else 2)
            both = np.maximum(cost, self._shifts(away[None], spreads[:, None] / 2))
            kept = both <= self.flips
            rows.append(np.stack([np.full(int(kept.sum()), median2), spreads[kept], both[kept]], axis=1))
            if sum(len(row) for row in rows) > BOXES:
                return None
        medians, spread, cost = np.concatenate(rows or [np.zeros((0, 3))]).astype(np.float64).T
        return self._fenced(medians, medians[:, None], spread[:, None] / 2, spread / 4, cost)

    def _fenced(self, median2: Floats, middles: Floats, distances: Floats, mads: Floats, costs: Floats) -> Boxes:
        """With the fences of each box; mads in trials."""
        rules = self.column.rules.outliers
        middle, mad = median2 / 2 * self._step, mads * self._step
        reaches = [
            self._hull.reach(np.clip(middle + aside, 0, NANO), np.maximum(0, mad + slack), rules.threshold)
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

    def _cut(self, boxes: Boxes, flips: int) -> Boxes:
        """For an even number of validators: each box by the lower of the two middle scores and of the two middle distances."""
        doubled, rows = 2 * self._passed, []
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
            below = np.maximum(0, ordered[:half] - low).sum() + max(0, total - low - int(ordered[half])) * (2 * low == total)
            above = np.maximum(0, total - low - ordered[half:]).sum()
            cost = int(max(below, above) if 2 * low == total else below + above) // 2
            if cost > flips:
                break
            pairs.append((low, cost))
            low -= 2
        return pairs

    @cached_property
    def _stakes(self) -> Floats:
        return np.array([self.column.stakes[row] for row in self._rows], np.float64)

    @cached_property
    def _majority(self) -> Floats:
        """By box: so many flips at least, divided if need be, bring half of the stake outside of the fences. SPEC 3.2."""
        assert self._boxes is not None
        boxes, scores = self._boxes, self._nanos[self._passed][None]
        inside = np.minimum(scores - boxes.low_to[:, None], boxes.high_from[:, None] - scores)
        flips = np.maximum(0, np.ceil((inside - SLACK) / self._step))
        order = np.argsort(flips / self._stakes, axis=1, kind="stable")
        spent = np.pad(np.take_along_axis(flips, order, 1).cumsum(axis=1), ((0, 0), (1, 0)))
        outside = self._stakes[order].cumsum(axis=1) >= self._stakes.sum() / 2 * (1 - EVEN)
        return np.asarray(np.take_along_axis(spent, outside.argmax(axis=1)[:, None], 1)[:, 0], np.float64)

    def _goods(self, trials: Ints, boxes: Boxes, terms: Terms) -> Floats:
        """What these numbers of passed trials bring, [G, N, …], by unit of `_weights`; together they must not be negative.

        First, trials above the mark (of `stake-median` 1 or −1). For a majority also half a unit outside of the fences, less the
        same inside.
        """
        shape = (-1, *[1] * (trials.ndim - 1))
        low_from, low_to, high_from, high_to = (edge.reshape(shape) for edge in boxes[4:])
        score = self._nanos[trials]
        if self.column.rules.combine == "stake-median":
            brings = np.where(score >= terms.mark - (MARK - 0.5), 1.0, -1.0)
        else:
            brings = (score - (terms.mark - MARK)) / self._step
        outside = (score < low_to) | (score > high_from)
        if terms.majority:
            return np.stack([brings, np.where(outside, 0.5, -0.5)])
        brings = np.where((score >= low_from) & (score <= high_to), brings, NEVER)
        return np.where(outside, np.maximum(brings, 0), brings)[None]

    def _weights(self, terms: Terms) -> Floats:
        """What a unit of each good counts, by validator, [G, V]; about 1."""
        count = len(self._passed)
        stakes = [self._stakes / max(1.0, float(self._stakes.sum())) * count] if terms.majority else []
        return np.stack([self._hull.weights * count, *stakes])

    @staticmethod
    def _counted(trials: Ints, boxes: Boxes) -> Floats:
        """In which of the counted sets these numbers are, [N, …, C], in the order of `_caps`."""
        shape = (len(boxes.costs), *[1] * (trials.ndim - 1))
        doubled = 2 * trials[..., None]
        middles, distances = (values.reshape(*shape, -1) for values in (boxes.middles, boxes.distances))
        away = np.abs(doubled - boxes.median2.reshape(*shape, 1))
        sets = [doubled < middles, doubled > middles, away < distances, away > distances]
        return np.concatenate(sets, axis=-1).astype(np.float64)

    def _priced(self, boxes: Boxes, terms: Terms) -> tuple[Boxes, Prices]:
        """The boxes that prices do not close, and their prices."""
        width = max(1, BLOCK // (len(self._passed) * 40))
        parts = [(boxes.at(np.zeros(0, np.int64)), self._no_prices(terms))]
        for start in range(0, len(boxes.costs), width):
            part = boxes.at(np.arange(start, min(start + width, len(boxes.costs))))
            prices = self._prices(part, terms)
            left = np.flatnonzero(prices.sums <= terms.flips + EVEN)
            parts.append((part.at(left), prices.at(left)))
        return (
            Boxes(*(np.concatenate(values) for values in zip(*(part for part, _ in parts), strict=True))),
            Prices(*(np.concatenate(values) for values in zip(*(prices for _, prices in parts), strict=True))),
        )

    @staticmethod
    def _no_prices(terms: Terms) -> Prices:
        return Prices(np.zeros(0), np.zeros((0, 1 + terms.majority)), np.zeros((0, len(terms.caps))))

    def _ends(self, boxes: Boxes, mark: int) -> Ints:
        """The numbers of passed trials at which a validator's best choice can be, besides its own, [N, E]."""
        middle = boxes.median2[:, None]
        turns = [boxes.middles, middle - boxes.distances, middle + boxes.distances]
        fences = np.stack([boxes.low_from, boxes.high_to, np.full(len(middle), mark)], axis=1) / self._step
        edges = np.concatenate([*(turn / 2 for turn in turns), np.clip(fences, -2, self.column.trials + 2)], axis=1)
        ends = np.concatenate([np.ceil(edges) - 1, np.floor(edges), np.floor(edges) + 1], axis=1)
        whole = np.concatenate([ends, np.zeros((len(ends), 1)), np.full((len(ends), 1), self.column.trials)], axis=1)
        return np.asarray(np.clip(whole, 0, self.column.trials), np.int64)

    def _prices(self, boxes: Boxes, terms: Terms) -> Prices:
        """Prices that make the sums large, by subgradients; a box is left alone once its sum is above the flips."""
        ends, now = self._ends(boxes, terms.mark), np.broadcast_to(self._passed, (len(boxes.costs), len(self._passed)))
        goods, goods_now = self._goods(ends, boxes, terms), self._goods(now, boxes, terms)
        sets, sets_now = self._counted(ends, boxes), self._counted(now, boxes)
        away = np.abs(ends[:, None, :] - self._passed[None, :, None]).astype(np.float64)
        weights, many = self._weights(terms), len(goods)
        prices = np.zeros((len(ends), many + len(terms.caps)))
        prices[:, 0] = 1 / weights[0].max()
        sums, best, live = np.full(len(ends), -np.inf), prices.copy(), np.arange(len(ends))
        for _ in range(ROUNDS):
            if not len(live):
                break
            price = prices[live]
            costs = away[live] + (sets[live] @ price[:, many:, None])[:, None, :, 0]
            stays = (sets_now[live] @ price[:, many:, None])[:, :, 0]
            for good in range(many):
                by = price[:, good, None] * weights[good]
                costs -= by[:, :, None] * goods[good, live][:, None, :]
                stays -= by * goods_now[good, live]
            choice = costs.argmin(axis=2)
            least = np.take_along_axis(costs, choice[:, :, None], 2)[:, :, 0]
            still = stays <= least
            total = np.where(still, stays, least).sum(axis=1) - price[:, many:] @ terms.caps
            better = total > sums[live]
            sums[live[better]], best[live[better]] = total[better], price[better]
            chosen = [np.where(still, goods_now[at, live], np.take_along_axis(goods[at, live], choice, 1)) for at in range(many)]
            count = np.where(still[:, :, None], sets_now[live], np.take_along_axis(sets[live], choice[:, :, None], 1)).sum(axis=1)
            lacking = [-(values @ weight) for values, weight in zip(chosen, weights, strict=True)]
            slope = np.concatenate([np.stack(lacking, axis=1), count - terms.caps], axis=1)
            slope = np.where((price <= 0) & (slope < 0), 0, slope)
            size = (slope * slope).sum(axis=1)
            step = np.maximum(0, terms.flips + 1 - total) / np.maximum(size, 1e-12)
            prices[live] = np.maximum(0, price + step[:, None] * slope)
            self.work += costs.size
            live = live[(sums[live] <= terms.flips + EVEN) & (size > 1e-12)]
        return Prices(sums, best[:, :many], best[:, many:])

    def _states(self, open_: OpenBox, flips: int) -> Ints | None:
        """States, [C, V], of one box that may reach the mark with so many flips; None if there are too many choices."""
        spare = flips - float(open_.prices.sums[0]) + EVEN
        order, options = self._options(open_, flips, spare)
        caps = (flips, *open_.terms.caps.astype(int).tolist())
        nothing = (0.0,) * open_.prices.goods.shape[1]
        joined: dict[tuple[int, ...], Joined] = {(0,) * len(caps): (nothing, 0.0, ())}
        steps = 0
        for choices in options:
            steps += len(joined) * len(choices)
            if steps > JOINED:
                self.work += 100 * JOINED
                return None
            joined = _joined(joined, choices, spare, caps)
        self.work += 100 * steps
        enough = -0.004 / self._step * len(self._passed)
        paths = [path for goods, _, path in joined.values() if min(goods) >= enough]
        states = np.repeat(self.column.passed[None, :], len(paths), axis=0)
        if paths:
            trials = np.array(paths)
            states[:, self._rows[order]] = trials if self.way == UP else self.column.trials - trials
        return states

    def _options(self, open_: OpenBox, flips: int, spare: float) -> tuple[Ints, list[list[Choice]]]:
        """Validators, those with the fewest choices first; and the choices of each, those that cost least first."""
        moves = np.arange(-flips, flips + 1)
        trials = self._passed[:, None] + moves
        there = (trials >= 0) & (trials <= self.column.trials)
        trials = np.clip(trials, 0, self.column.trials)
        goods = self._goods(trials[None], open_.box, open_.terms)[:, 0] * self._weights(open_.terms)[:, :, None]
        sets = self._counted(trials[None], open_.box)[0]
        costs = np.abs(moves) - np.tensordot(open_.prices.goods[0], goods, 1) + sets @ open_.prices.counts[0]
        costs = np.where(there & (goods[0] > NEVER / 10**3), costs, np.inf)
        extra = costs - costs.min(axis=1, keepdims=True)
        fits = extra <= spare
        order = np.argsort(fits.sum(axis=1), kind="stable")
        options = []
        for row in order.tolist():
            places = np.flatnonzero(fits[row])
            options.append(
                [
                    Choice(
                        int(trials[row, at]),
                        tuple(goods[:, row, at].tolist()),
                        float(extra[row, at]),
                        (abs(int(moves[at])), *map(int, sets[row, at])),
                    )
                    for at in places[np.argsort(extra[row, places], kind="stable")].tolist()
                ]
            )
        return order, options


class Choice(NamedTuple):
    """A validator's number of passed trials: what it brings, what it costs above the least, its flips and counts."""

    trials: int
    goods: tuple[float, ...]
    extra: float
    counts: tuple[int, ...]


Joined = tuple[tuple[float, ...], float, tuple[int, ...]]
"""What some validators bring together, what they cost above the least, and the trials of each."""


def _joined(
    joined: dict[tuple[int, ...], Joined], choices: list[Choice], spare: float, caps: tuple[int, ...]
) -> dict[tuple[int, ...], Joined]:
    """With one validator more; of those with the same flips and counts, the most that they bring."""
    longer: dict[tuple[int, ...], Joined] = {}
    for key, (goods, more, path) in joined.items():
        for trials, brings, extra, counts in choices:
            if more + extra > spare:
                break
            sums = tuple(map(int.__add__, key, counts))
            if not all(map(int.__le__, sums, caps)):
                continue
            together, old = tuple(map(float.__add__, goods, brings)), longer.get(sums)
            if old is None:
                longer[sums] = together, more + extra, (*path, trials)
            elif together != old[0]:
                best = together > old[0]
                most = tuple(map(max, together, old[0]))
                longer[sums] = most, min(more + extra, old[1]), (*path, trials) if best else old[2]
    return longer
