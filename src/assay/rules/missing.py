"""The fewest missing trials that change a verdict, however they are decided. SPEC 2.1, 3.

A validator that misses trials of a participant counts once all of them are decided. So the cost of a change is the trials that
its validators miss, and the least is found by looking at every outcome of every such validator: exact where there are few enough,
otherwise at least the fewest trials that any of them misses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from assay.rules.completions import Reach, ReachStep, completed
from assay.rules.flips import Effort, FewestFlips
from assay.rules.trials import TrialBoard, marks
from assay.settle.inputs import Ints

__all__ = ["MissingSearch"]


class MissingSearch:
    """The least missing trials for each verdict."""

    def __init__(self, board: TrialBoard, effort: Effort) -> None:
        self.board = board
        self.order = board.settlement.order
        self.reach = {at: completed(board.columns[at], board.cells[at], effort.ball) for at in board.columns}
        self.open = [at for at in board.columns if board.cells[at] or at in board.unknown]

    def least(self, verdict: str) -> FewestFlips | None:
        """None: no outcome of the missing trials changes it."""
        if not self.open:
            return None
        least = {"winner": self._winner, "order": self._order, "tier": self._tier}[verdict]()
        blind = [at for at in self.open if at in self.board.unknown or not self.reach[at].whole]
        if not blind:
            return None if least is None else FewestFlips(least[0], least[0], least[1])
        floor = min(self._fewest_missing(at) for at in blind)
        if least is None:
            return FewestFlips(floor, None)
        return FewestFlips(min(floor, least[0]), least[0], least[1])

    def _fewest_missing(self, at: int) -> int:
        cells, counts = self.board.cells[at], self.board.settlement.scored.missing
        known = [cell.missing for cell in cells]
        if at in self.board.unknown and counts is not None:
            known += [count for count in counts[:, at].tolist() if count]
        return min(known)

    def _winner(self) -> tuple[int, dict[int, Ints]] | None:
        others = [at for at in self.board.columns if at not in self.order[:1]]
        if not self.order:
            return _least(self._enters(at) for at in others)
        first = self.order[0]
        return _least((self._leaves(first), *(self._pair(first, other) for other in others)))

    def _order(self) -> tuple[int, dict[int, Ints]] | None:
        ranked = set(self.order)
        return _least(
            (
                *(self._pair(*pair) for pair in pairwise(self.order)),
                *(self._leaves(at) for at in self.order),
                *(self._enters(at) for at in self.board.columns if at not in ranked),
            )
        )

    def _tier(self) -> tuple[int, dict[int, Ints]] | None:
        reached, above = marks(self.board.settlement)
        ups = [] if above is None else [self._at(at, lambda step: step.high >= above, "high") for at in self.board.columns]
        if reached is None:
            return _least(ups)
        falls = [
            self._at(at, lambda step: step.low < reached, "low") for at in self.order if self.reach[at].steps[0].low >= reached
        ]
        total = 0
        states: dict[int, Ints] = {}
        for fall in falls:
            if fall is None:
                return _least(ups)
            total, states = total + fall[0], states | fall[1]
        return _least([*ups, (total, states)])

    def _enters(self, at: int) -> tuple[int, dict[int, Ints]] | None:
        return self._at(at, lambda step: step.high >= 0, "high")

    def _leaves(self, at: int) -> tuple[int, dict[int, Ints]] | None:
        return self._at(at, lambda step: step.low < 0, "low")

    def _at(self, at: int, holds: Callable[[ReachStep], bool], which: str) -> tuple[int, dict[int, Ints]] | None:
        step = next((step for step in self.reach[at].steps if holds(step)), None)
        return None if step is None else (step.cost, {at: step.high_state if which == "high" else step.low_state})

    def _pair(self, above: int, below: int) -> tuple[int, dict[int, Ints]] | None:
        """The least that puts `below` before `above`."""
        tied = self.board.tied(above, below)
        return _least(_turned(self.reach[above], self.reach[below], above, below, tied))


def _turned(falls: Reach, rises: Reach, above: int, below: int, tied: int) -> Iterator[tuple[int, dict[int, Ints]]]:
    for fall in falls.steps:
        for rise in rises.steps:
            if rise.high >= 0 and rise.high >= fall.low + tied:
                yield fall.cost + rise.cost, {above: fall.low_state, below: rise.high_state}
                break


def _least(entries: Iterable[tuple[int, dict[int, Ints]] | None]) -> tuple[int, dict[int, Ints]] | None:
    return min((entry for entry in entries if entry is not None), key=lambda entry: entry[0], default=None)
