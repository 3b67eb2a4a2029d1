"""The least stake that must lie to change a verdict. SPEC 3, 9.

A coalition is a set of validators; each may say any number of passed trials of every participant that it counts for, and no
member withholds anything. Coalitions are looked at by ascending stake, and all that each can say is judged by the kernel, so the
first that changes the verdict is the least. Where that is too much work, the answer is the stake that was reached, and at most
that of a coalition whose members all say the same: the largest validators first, without those it can do without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise

from assay.rules.completions import ReachStep, lied
from assay.rules.flips import Effort, FewestFlips
from assay.rules.trials import TrialBoard, marks
from assay.settle.inputs import Ints

__all__ = ["LyingSearch", "ascending"]

Coalition = tuple[int, ...]
"""Rows of validators, ascending."""


class LyingSearch:
    """The least lying stake for each verdict. `left`: how many scores may still be judged."""

    def __init__(self, board: TrialBoard, effort: Effort) -> None:
        self.board = board
        self.order = board.settlement.order
        self.left = effort.lies
        self.most = effort.lies // 8
        self.stakes = board.settlement.seats.stakes
        self._known: dict[tuple[int, Coalition], tuple[ReachStep, bool]] = {}

    def least(self, verdict: str) -> FewestFlips | None:
        """None: not even all validators together change it."""
        check: Callable[[Coalition], tuple[dict[int, Ints] | None, bool]]
        check = {"winner": self._winner, "order": self._order, "tier": self._tier}[verdict]
        rows = sorted(
            {row for at in (*self.order, *self._others()) for row in self.board.rows[at]}, key=lambda row: (self.stakes[row], row)
        )
        if not rows:
            return None
        for coalition in ascending(rows, self.stakes):
            stake = sum(self.stakes[row] for row in coalition)
            states, whole = check(coalition)
            if states is not None:
                return FewestFlips(stake, stake, states)
            if not whole or self.left <= 0:
                return self._at_most(check, rows, stake)
        return None

    def _at_most(
        self, check: Callable[[Coalition], tuple[dict[int, Ints] | None, bool]], rows: Sequence[int], at_least: int
    ) -> FewestFlips:
        """A coalition that does it, and the stake that was reached."""
        self.most = 0  # from here on members say the same
        chosen: list[int] = []
        for row in reversed(rows):
            chosen.append(row)
            if check(tuple(sorted(chosen)))[0] is not None:
                break
        else:
            return FewestFlips(at_least, None)
        for row in [*chosen]:
            without = [other for other in chosen if other != row]
            if without and check(tuple(sorted(without)))[0] is not None:
                chosen = without
        states, _ = check(tuple(sorted(chosen)))
        return FewestFlips(at_least, sum(self.stakes[row] for row in chosen), states or {})

    def _step(self, at: int, coalition: Coalition) -> tuple[ReachStep, bool]:
        rows, column = self.board.rows[at], self.board.columns[at]
        places = tuple(place for place, row in enumerate(rows) if row in coalition and column.passed[place] >= 0)
        key = (at, places)
        if key not in self._known or not (self._known[key][1] or self.most == 0):
            before = column.judged_scores
            reach = lied(column, places, min(self.most, max(0, self.left)))
            self.left -= column.judged_scores - before
            self._known[key] = reach.steps[-1], reach.whole
        return self._known[key]

    def _pairs(self, pairs: Sequence[tuple[int, int]], coalition: Coalition) -> tuple[dict[int, Ints] | None, bool]:
        whole = True
        for above, below in pairs:
            fall, all_falls = self._step(above, coalition)
            rise, all_rises = self._step(below, coalition)
            if fall.low < 0:
                return {above: fall.low_state}, True
            if rise.high >= fall.low + self.board.tied(above, below):
                return {above: fall.low_state, below: rise.high_state}, True
            whole = whole and all_falls and all_rises
        return None, whole

    def _others(self) -> list[int]:
        """Participants without an agreed score that may get one by other scores."""
        if not self.board.settlement.inputs.scheme.consensus.recheck:
            return []
        return [at for at in self.board.columns if at not in set(self.order) and (self.board.columns[at].passed >= 0).any()]

    def _winner(self, coalition: Coalition) -> tuple[dict[int, Ints] | None, bool]:
        if not self.order:
            return self._order(coalition)
        first = self.order[0]
        states, whole = self._pairs([(first, other) for other in (*self.order[1:], *self._others())], coalition)
        leaves, all_falls = self._step(first, coalition)
        return (states or ({first: leaves.low_state} if leaves.low < 0 else None)), whole and all_falls

    def _order(self, coalition: Coalition) -> tuple[dict[int, Ints] | None, bool]:
        states, whole = self._pairs([*pairwise(self.order)], coalition)
        for at in (*self._others(), *self.order[-1:]):
            step, everything = self._step(at, coalition)
            whole = whole and everything
            if states is None and at in self.order and step.low < 0:
                states = {at: step.low_state}
            if states is None and at not in self.order and step.high >= 0:
                states = {at: step.high_state}
        return states, whole

    def _tier(self, coalition: Coalition) -> tuple[dict[int, Ints] | None, bool]:
        reached, above = marks(self.board.settlement)
        whole, falls, states = True, reached is not None, dict[int, Ints]()
        for at in (*self.order, *self._others()):
            step, everything = self._step(at, coalition)
            whole = whole and everything
            if above is not None and step.high >= above:
                return {at: step.high_state}, True
            if reached is not None and self.board.columns[at].agreed >= reached:
                falls = falls and step.low < reached
                states[at] = step.low_state
        return (states if falls else None), whole


def ascending(rows: Sequence[int], stakes: Sequence[int]) -> Iterator[Coalition]:
    """Every set of the rows (which ascend by stake), by ascending stake."""
    heap: list[tuple[int, Coalition]] = []
    if rows:
        heappush(heap, (stakes[rows[0]], (0,)))
    while heap:
        stake, places = heappop(heap)
        yield tuple(sorted(rows[place] for place in places))
        following = places[-1] + 1
        if following < len(rows):
            more = stakes[rows[following]]
            heappush(heap, (stake + more, (*places, following)))
            heappush(heap, (stake + more - stakes[rows[places[-1]]], (*places[:-1], following)))
