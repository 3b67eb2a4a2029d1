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
from assay.rules.boxes import SIZE, Boxes, MedianBoxes, counted
from assay.rules.column import UP, ScoreColumn
from assay.rules.fences import MARK, SLACK, FlipBound
from assay.settle.consensus import LEAST
from assay.settle.inputs import Ints

__all__ = ["FewestInBoxes", "PricedFlips"]

Floats = NDArray[np.float64]
ROUNDS = 60
"""Rounds in which prices are changed."""
BLOCK = 2_000_000
"""Numbers that are computed at once."""
JOINED = 60_000
"""Steps in which the choices of one box are joined, at most; a step takes about as long as a hundred numbers."""
OPTIONS = 60_000
"""The cost of listing the choices of one box, in numbers computed."""
NEVER = -1e9
"""The gain of a score that a box does not have."""
EVEN = 1e-6
"""Flips by which a sum may be off."""


class Prices(NamedTuple):
    """By box: the sum of the least that each validator costs; the prices of what it brings, [N, G], and of the counts, [N, C]."""

    sums: Floats
    goods: Floats
    counts: Floats

    def at(self, places: Ints) -> Prices:
        """The prices at these places."""
        return Prices(*(values[places] for values in self))


class Terms(NamedTuple):
    """The question to boxes: the mark (nanos, upward), the flips, how many each counted set may have; and who counts.

    counts: "inside" the fences; "most", the same, where half of the stake must stay inside; or "all", if half of it is outside.
    """

    mark: int
    flips: int
    caps: Floats
    counts: str


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
    """One column and one way; downward every score s is 1 − s. Up to `flips` flips.

    work: how many numbers were computed; above `most`, what is proved by then is the answer.
    """

    column: ScoreColumn
    way: int
    flips: int
    most: int = 2**62
    work: int = 0
    _memo: dict[int, tuple[int, FewestInBoxes]] = field(default_factory=dict)

    @cached_property
    def supported(self) -> bool:
        """Whether prices can be asked: where fences come from medians, and the combination is a sum."""
        rules = self.column.rules
        if rules.outliers.method != "modified-z" or len(self._passed) < LEAST or not self._hull.supported:
            return False
        return self._medians.every is not None

    @cached_property
    def _hull(self) -> FlipBound:
        return FlipBound(self.column, self.way, self.flips)

    @cached_property
    def _medians(self) -> MedianBoxes:
        return MedianBoxes(self._hull, self._passed)

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
        left = [box for counts in ("inside", "most", "all") for box in self._left(ahead, flips, counts)]
        least, loose = flips + 1, set[int]()
        first = ceil(min((float(box.prices.sums[0]) for box in left), default=flips + 1) - EVEN)
        for limit in range(max(0, first), flips + 1):
            for at, box in enumerate(left):
                if box.prices.sums[0] > limit + EVEN or at in loose:
                    continue
                if self.work > self.most:
                    return FewestInBoxes(min(least, limit))
                states = self._states(box, limit)
                reached = None if states is None else self._reached(states, mark)
                if reached is not None:
                    return FewestInBoxes(min(least, limit), int(np.abs(reached - self.column.passed).sum()), reached)
                if states is None or len(states):
                    loose.add(at)
                    least = min(least, limit)
        return FewestInBoxes(least)

    def _left(self, mark: int, flips: int, counts: str) -> list[OpenBox]:
        """The boxes that prices do not close."""
        assert self._medians.every is not None
        fits = (self._majority > flips) if counts == "inside" else (self._majority <= flips)
        boxes, caps = self._medians.every.at(np.flatnonzero(fits & (self._medians.every.costs <= flips))), self._medians.caps(1)
        boxes, prices = self._priced(boxes, Terms(mark, flips, caps, counts))
        if len(self._passed) % 2 == 0 and len(boxes.costs):
            cut = self._medians.cut(boxes, flips)
            if len(cut.costs) * len(self._passed) <= SIZE:
                caps = self._medians.caps(2)
                boxes, prices = self._priced(cut, Terms(mark, flips, caps, counts))
        places = (np.array([at]) for at in range(len(boxes.costs)))
        return [OpenBox(boxes.at(at), prices.at(at), Terms(mark, flips, caps, counts)) for at in places]

    def _reached(self, states: Ints, mark: int) -> Ints | None:
        """The first of the states whose agreed score is at the mark or beyond, as the kernel says."""
        scores = self.column.judged(states)
        places = np.flatnonzero((self.way * scores >= self.way * mark) & (scores >= 0))
        return states[places[0]] if len(places) else None

    @cached_property
    def _stakes(self) -> Floats:
        return np.array([self.column.stakes[row] for row in self._rows], np.float64)

    @cached_property
    def _majority(self) -> Floats:
        """By box: so many flips at least, divided if need be, bring half of the stake outside of the fences. SPEC 3.2."""
        assert self._medians.every is not None
        boxes, scores = self._medians.every, self._nanos[self._passed][None]
        inside = np.minimum(scores - boxes.low_to[:, None], boxes.high_from[:, None] - scores)
        flips = np.maximum(0, np.ceil((inside - SLACK) / self._step))
        order = np.argsort(flips / self._stakes, axis=1, kind="stable")
        spent = np.pad(np.take_along_axis(flips, order, 1).cumsum(axis=1), ((0, 0), (1, 0)))
        outside = self._stakes[order].cumsum(axis=1) >= self._stakes.sum() / 2 * (1 - EVEN)
        return np.asarray(np.take_along_axis(spent, outside.argmax(axis=1)[:, None], 1)[:, 0], np.float64)

    def _goods(self, trials: Ints, boxes: Boxes, terms: Terms) -> Floats:
        """The gain of these numbers of passed trials, [G, N, …], by unit of `_weights`; together they must not be negative.

        First, trials above the mark (of `stake-median` 1 or −1). Where half of the stake must be on one side of the fences, also
        half a unit there, less the same on the other.
        """
        shape = (-1, *[1] * (trials.ndim - 1))
        low_from, low_to, high_from, high_to = (edge.reshape(shape) for edge in boxes[4:])
        score = self._nanos[trials]
        if self.column.rules.combine == "stake-median":
            brings = np.where(score >= terms.mark - (MARK - 0.5), 1.0, -1.0)
        else:
            brings = (score - (terms.mark - MARK)) / self._step
        outside = (score < low_to) | (score > high_from)
        if terms.counts == "all":
            return np.stack([brings, np.where(outside, 0.5, -0.5)])
        inside = (score >= low_from) & (score <= high_to)
        brings = np.where(inside, brings, NEVER)
        brings = np.where(outside, np.maximum(brings, 0), brings)
        return brings[None] if terms.counts == "inside" else np.stack([brings, np.where(inside, 0.5, -0.5)])

    def _weights(self, terms: Terms) -> Floats:
        """The weight of a unit of each good, by validator, [G, V]; about 1."""
        count = len(self._passed)
        stakes = [self._stakes / max(1.0, float(self._stakes.sum())) * count] if terms.counts != "inside" else []
        return np.stack([self._hull.weights * count, *stakes])

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
        return Prices(np.zeros(0), np.zeros((0, 1 + (terms.counts != "inside"))), np.zeros((0, len(terms.caps))))

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
        sets, sets_now = counted(ends, boxes), counted(now, boxes)
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
        self.work += OPTIONS
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
        sets = counted(trials[None], open_.box)[0]
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
