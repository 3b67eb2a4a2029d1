"""The fewest flipped trials that turn a pair around, or bring a participant to a mark: the flips, and a proof. SPEC 2.1, 3.

A participant's agreed score depends on its own column alone. So a pair turns around with the flips of one that falls and of one
that rises, and each side is asked by itself: how far does it come with k flips?

    at most    states that were found, judged by the kernel
    at least   `FlipBound`, which is quick; every state within a radius (`ScoreColumn.ball`) where there are few enough; and
               `PricedFlips`, which finds states too, and mostly the fewest flips

For k flips in all, the proof has a row for each way to divide them: with so many the one stays at or above a score, with the rest
the other stays at or below it. Where no such score is found, the answer is "at least L, at most U".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from assay.rules.column import DOWN, UP, Attained, ScoreColumn
from assay.rules.fences import FlipBound
from assay.rules.pricing import PricedFlips
from assay.settle.inputs import Ints

__all__ = ["Effort", "FewestFlips", "FlipSearch", "FlipSide", "ProofRow"]

WIDE = 400
"""With more flips than this a proof is not tried before there is something to compare with."""
FEW = 200_000
"""Scores of all states: where there are no more, all are judged before prices are asked."""
ASKED = 40
"""Tries of the scores between two participants, after a better state was found."""


Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class Effort:
    """Bounds of the scores to judge: for every state of a column, to search one, for flips in all, for lies in all.

    prices: of the numbers that `PricedFlips` computes for all columns, some nanoseconds each.
    """

    ball: int = 3_000_000
    climb: int = 3_000_000
    whole: int = 60_000_000
    lies: int = 20_000_000
    prices: int = 120_000_000


@dataclass(frozen=True, slots=True)
class ProofRow:
    """With `flips` flips, this participant's agreed score stays at or above (or below) `score`, nanos.

    by: how that is known: "bound", or "all" where the kernel judged every state.
    """

    participant: int
    flips: int
    stays: str
    score: int
    by: str


@dataclass(frozen=True)
class FewestFlips:
    """The least number of flips: between two numbers; the second is None where nothing was found.

    states: participant (column) → the state that does it. proof: why one flip less than `at_least` does not do it.
    """

    at_least: int
    at_most: int | None
    states: dict[int, Ints] = field(default_factory=dict)
    proof: tuple[ProofRow, ...] = ()
    never: bool = False
    """No number of flips does it."""


class FlipSide:
    """One column that falls or rises, in nanos along its way: how many flips a mark takes, at least and at most."""

    def __init__(self, name: int, column: ScoreColumn, way: int, search: FlipSearch) -> None:
        self.name, self.column, self.way, self.search = name, column, way, search
        self._bounds: dict[int, FlipBound] = {}
        self._priced: dict[int, PricedFlips] = {}
        self._proved: dict[int, int] = {}
        self._offered = 0

    @property
    def work(self) -> int:
        """The numbers that prices took so far."""
        return sum(priced.work for priced in self._priced.values())

    def bound(self, mark: int, flips: int, *, priced: bool = False) -> tuple[int, str]:
        """The least flips that take it to `mark` or beyond (at most flips + 1), and how that is known.

        priced: ask for prices too if what is quick does not suffice; states that this finds are kept.
        """
        reached, exact = self.column.exact(self.way)
        for flip in range(min(flips, reached) + 1):
            if self.way * exact.at(flip) >= self.way * mark:
                return flip, "all"
        if reached >= flips:
            return flips + 1, "all"
        least = min(_sized(self._bounds, flips, lambda: FlipBound(self.column, self.way, flips)).least(mark), flips + 1)
        least = max([least, *(proved for nearer, proved in self._proved.items() if self.way * nearer <= self.way * mark)])
        if priced and reached < flips and least <= flips:
            least = max(least, self._asked(mark, flips))
        least = min(least, flips + 1)
        return (least, "bound") if least > reached else (reached + 1, "all")

    def _asked(self, mark: int, flips: int) -> int:
        """As `bound`, by prices; 0 where there are none, or no effort is left."""
        prices = _sized(self._priced, flips, lambda: PricedFlips(self.column, self.way, flips))
        left = self.search.prices_left()
        if left <= 0 or not prices.supported:
            return 0
        prices.most = prices.work + left
        fewest = prices.least(mark, flips)
        self._proved[mark] = max(fewest.least, self._proved.get(mark, 0))
        if fewest.state is not None and fewest.flips is not None:
            score = int(self.column.judged(fewest.state[None, :])[0])
            self.column.climbed(self.way, 0, 0).offer(fewest.flips, score, fewest.state)
        return fewest.least

    def asks(self, flips: int) -> bool:
        """Whether prices can be asked about so many flips."""
        return _sized(self._priced, flips, lambda: PricedFlips(self.column, self.way, flips)).supported

    def look(self, flips: int, *, whole: bool) -> bool:
        """Judge every state within so many flips, or as far as the effort goes; returns whether any was not judged before.

        whole: only where these are few.
        """
        before, most = self.column.exact(self.way)[0], min(self.search.effort.ball, self.search.left())
        if whole and self.column.affordable(flips, min(FEW, most)) < flips:
            return False
        return self.column.ball(flips, most)[0] > before

    def attained(self, climb: int) -> Attained:
        """The scores that are known to be attained, after a search that goes to so many flips."""
        climbed = self.column.climbed(self.way, climb, min(self.search.effort.climb, self.search.left()))
        reached, exact = self.column.exact(self.way)
        for flip in range(self._offered + 1, reached + 1):
            climbed.offer(flip, exact.at(flip), exact.state(flip))
        self._offered = max(self._offered, reached)
        return climbed


@dataclass
class FlipSearch:
    """The columns of a board, and what is known of each."""

    columns: Mapping[int, ScoreColumn]
    effort: Effort = field(default_factory=Effort)
    _sides: dict[tuple[int, int], FlipSide] = field(default_factory=dict)

    def side(self, name: int, way: int) -> FlipSide:
        """A column and a way, with what was found out about them before."""
        if (name, way) not in self._sides:
            self._sides[name, way] = FlipSide(name, self.columns[name], way, self)
        return self._sides[name, way]

    def left(self) -> int:
        """The number of scores that may still be judged, in all."""
        return max(0, self.effort.whole - sum(column.judged_scores for column in self.columns.values()))

    def prices_left(self) -> int:
        """The numbers that prices may still take, in all; below 0 if they took more."""
        return self.effort.prices - sum(side.work for side in self._sides.values())

    def flips(self, name: int) -> int:
        """More flips than this no column takes."""
        column = self.columns[name]
        return int(column.trials * (column.passed >= 0).sum())

    def mark(self, name: int, mark: int, way: int, limit: int | None = None) -> FewestFlips:
        """The flips that bring one agreed score to `mark` (nanos) or beyond; nothing is looked for from `limit` on."""
        side = self.side(name, way)
        most = self.flips(name) + 1 if limit is None else limit

        def proof(total: int, priced: bool = False) -> list[ProofRow] | None:
            least, by = side.bound(mark, total, priced=priced)
            stays = "below" if way == UP else "above"
            return [ProofRow(name, total, stays, mark - way, by)] if least > total else None

        def best(total: int, climb: int = 0) -> dict[int, Ints] | None:
            attained = side.attained(climb)
            return {name: attained.state(total)} if way * attained.at(total) >= way * mark else None

        return self._least([side], proof, best, most, limit is None)

    def pair(self, above: int, below: int, tied: int, limit: int | None = None) -> FewestFlips:
        """The flips that put `below` before `above`, or take that out of the ranking. tied: 1 if `above` is first when tied."""
        falls, rises = self.side(above, DOWN), self.side(below, UP)
        most = self.flips(above) + self.flips(below) + 1 if limit is None else limit

        def proof(total: int, priced: bool = False) -> list[ProofRow] | None:
            return _divided(falls, rises, tied, total, priced)

        def best(total: int, climb: int = 0) -> dict[int, Ints] | None:
            low, high = falls.attained(climb), rises.attained(climb)
            for flips in range(total + 1):
                if high.at(total - flips) >= low.at(flips) + tied or low.at(flips) < 0:
                    return {above: low.state(flips), below: high.state(total - flips)}
            return None

        return self._least([falls, rises], proof, best, most, limit is None)

    def _least(
        self,
        sides: list[FlipSide],
        proof: Callable[..., list[ProofRow] | None],
        best: Callable[..., dict[int, Ints] | None],
        limit: int,
        every: bool,
    ) -> FewestFlips:
        """Between what is proved and what is found, below `limit`; every: no change takes as many."""
        if limit <= 0:
            return FewestFlips(0, None)
        rows = proof(limit - 1) if limit <= WIDE else None
        if rows is not None:
            return FewestFlips(limit, None, proof=tuple(rows), never=every)
        at_most = _first(lambda total: best(total) is not None, 0, limit - 1) if best(limit - 1) is not None else None
        top = limit if at_most is None else at_most
        if best(top - 1, top - 1) is not None:
            at_most = top = _first(lambda total: best(total) is not None, 0, top - 1)
        rows = proof(top - 1)
        for whole, priced in ((True, False), (False, True), (False, False)):
            if rows is not None:
                break
            new = [side.asks(top - 1) if priced else side.look(top - 1, whole=whole) for side in sides]
            if not any(new):
                continue
            rows = proof(top - 1, priced)
            while best(top - 1) is not None:
                at_most = top = _first(lambda total: best(total) is not None, 0, top - 1)
                rows = proof(top - 1, priced)
        at_least = top
        if rows is None:
            at_least = _first(lambda total: proof(total - 1) is None, 1, top) - 1
            rows = proof(at_least - 1) or []
        states = {} if at_most is None else best(at_most) or {}
        return FewestFlips(at_least, at_most, states, tuple(rows), never=every and at_most is None and at_least == limit)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least number above `low`, up to `high` where it holds, from which on it holds."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _sized(kept: dict[int, Kept], flips: int, new: Callable[[], Kept]) -> Kept:
    """The smallest of those that are for so many flips or more; a new one if there is none."""
    size = min((size for size in kept if size >= flips), default=flips)
    if size not in kept:
        kept[size] = new()
    return kept[size]


def _divided(falls: FlipSide, rises: FlipSide, tied: int, total: int, priced: bool) -> list[ProofRow] | None:
    """A score between the two for each way to divide so many flips; None if one has none."""
    score = _between(falls, total, rises, total, tied)
    if score is not None:
        return _rows(falls, total, rises, total, tied, score)
    rows: list[ProofRow] = []
    for flips in range(total + 1):
        score = _between(falls, flips, rises, total - flips, tied)
        if score is None and priced:
            score = _asked_between(falls, flips, rises, total - flips, tied)
        if score is None:
            return None
        rows += _rows(falls, flips, rises, total - flips, tied, score)
    return rows


def _asked_between(falls: FlipSide, falling: int, rises: FlipSide, rising: int, tied: int) -> int | None:
    """As `_between`, by prices: between the scores that were reached. None too if a state was found that is enough."""
    for _ in range(ASKED):
        low, high = falls.attained(0).at(falling), rises.attained(0).at(rising)
        first, last = max(0, high + 1 - tied), low
        if first > last:
            return None
        for score in dict.fromkeys(((first + last) // 2, first, last)):
            stays = falls.bound(score - 1, falling, priced=True)[0] > falling
            if stays and rises.bound(score + tied, rising, priced=True)[0] > rising:
                return score
            if (falls.attained(0).at(falling), rises.attained(0).at(rising)) != (low, high):
                break
        else:
            return None
    return None


def _between(falls: FlipSide, falling: int, rises: FlipSide, rising: int, tied: int) -> int | None:
    """A score that the one does not fall below and the other does not rise above."""
    low, high = max(0, rises.column.agreed), max(0, falls.column.agreed) + 1
    while low < high:
        score = (low + high) // 2
        stays = falls.bound(score - 1, falling)[0] > falling
        misses = rises.bound(score + tied, rising)[0] > rising
        if stays and misses:
            return score
        if not stays and not misses:
            return None
        low, high = (low, score) if misses else (score + 1, high)
    return None


def _rows(falls: FlipSide, falling: int, rises: FlipSide, rising: int, tied: int, score: int) -> list[ProofRow]:
    return [
        ProofRow(falls.name, falling, "above", score, falls.bound(score - 1, falling)[1]),
        ProofRow(rises.name, rising, "below", score + tied - 1, rises.bound(score + tied, rising)[1]),
    ]
