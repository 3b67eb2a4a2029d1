"""One participant's scores, changed trial by trial: which agreed scores can so many flips make? The kernel judges all of it.

A state says how many trials each validator saw pass; `ABSENT` is a validator that does not count. A flip changes one trial, so
between two states there are Σ |difference| flips at least. `ScoreColumn` has three ways to ask:

    judged   the agreed scores of states, by `settle.consensus.agree`
    ball     every state within r flips: the exact extremes
    climbed  a search for good states, flip by flip: extremes that are attained, but need not be the best
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from assay.scheme.model import Consensus
from assay.settle.consensus import LEAST, Votes, agree
from assay.settle.inputs import Ints
from assay.settle.score.trials import score_of

__all__ = ["ABSENT", "DOWN", "UP", "Attained", "ScoreColumn"]

ABSENT = -1
"""In a state: this validator does not count."""
UP, DOWN = 1, -1
"""Whether the highest or the lowest agreed score is asked for."""
JUMPS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20)
"""By how many flips a step of the search moves a validator, either way; a few together may push it past a fence."""
KEPT = 4
"""States that the search keeps for each number of flips."""
BLOCK = 2**18
"""Scores that the kernel is given at once."""


class Attained:
    """By number of flips: the best agreed score that is known with at most so many, and a state that has it.

    Only flips that bring something better are kept, ascending; the first needs none.
    """

    def __init__(self, way: int, score: int, state: Ints) -> None:
        self._way, self._flips, self._scores, self._states = way, [0], [score], [state]

    def offer(self, flips: int, score: int, state: Ints) -> None:
        """Take a score that so many flips attain, if it is better."""
        at = bisect_right(self._flips, flips)
        if self._way * score <= self._way * self._scores[at - 1]:
            return
        end = at
        while end < len(self._scores) and self._way * self._scores[end] <= self._way * score:
            end += 1
        start = at - 1 if self._flips[at - 1] == flips else at
        self._flips[start:end], self._scores[start:end], self._states[start:end] = [flips], [score], [state]

    def at(self, flips: int) -> int:
        """The score of at most so many flips."""
        return self._scores[bisect_right(self._flips, flips) - 1]

    def state(self, flips: int) -> Ints:
        """Its state."""
        return self._states[bisect_right(self._flips, flips) - 1]


@dataclass(eq=False)
class ScoreColumn:
    """The counting validators of one participant. Arrays are [V]; `total`: the stake that the quorum is a share of, rao."""

    passed: Ints
    """Trials that each validator saw pass; `ABSENT` where it does not count, but might."""
    stakes: tuple[int, ...]
    total: int
    trials: int
    """n: tasks × trials."""
    rules: Consensus
    judged_scores: int = 0
    """The number of scores that the kernel has judged so far."""
    _known: dict[int, tuple[int, Attained]] = field(default_factory=dict)
    _climbs: dict[int, _Climb] = field(default_factory=dict)

    @cached_property
    def nanos(self) -> Ints:
        """The score of each number of passed trials, [n + 1]."""
        return np.array([score_of(count, self.trials) for count in range(self.trials + 1)], np.int64)

    @property
    def rises(self) -> bool:
        """Whether the agreed score never falls when one validator's score rises: so it is where nobody is an outlier. SPEC 3.3.

        A mean and a median rise with each of their parts; so do the ceiling of `clip` and the quantiles of `trimmed`.
        """
        return self.rules.outliers.method == "none" or len(self.stakes) < LEAST

    @cached_property
    def agreed(self) -> int:
        """The agreed score as it is, nanos; −1 without a quorum."""
        return int(self.judged(self.passed[None, :])[0])

    def judged(self, states: Ints) -> Ints:
        """The agreed scores, nanos, [C], of states [C, V]; −1 where there is no quorum."""
        width = max(1, BLOCK // max(1, len(self.stakes)))
        parts = [self._judged(states[start : start + width]) for start in range(0, len(states), width)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _judged(self, states: Ints) -> Ints:
        self.judged_scores += states.size
        there = states.T >= 0
        scores = np.where(there, self.nanos[np.maximum(states.T, 0)], 0)
        return agree(Votes(scores, there, self.stakes, self.total, trials=self.trials), self.rules).score

    def ball(self, radius: int, most: int) -> tuple[int, Attained, Attained]:
        """The exact lowest and highest agreed scores within r flips, for every r up to the first value that is returned.

        It is `radius`, or the last one for which no more than `most` scores are judged.
        """
        reached, low = self.exact(DOWN)
        _, high = self.exact(UP)
        wanted = min(radius, self.affordable(radius, most))
        for flips, states in self._shells(reached + 1, wanted):
            scores = self.judged(states)
            if len(scores):
                for way, attained in ((DOWN, low), (UP, high)):
                    best = int((way * scores).argmax())
                    attained.offer(flips, int(scores[best]), states[best])
        reached = max(reached, wanted)
        self._known = {DOWN: (reached, low), UP: (reached, high)}
        return reached, low, high

    def exact(self, way: int) -> tuple[int, Attained]:
        """The radius that `ball` reached, and the scores that it attained."""
        return self._known.get(way) or (0, Attained(way, self.agreed, self.passed))

    def _rooms(self, radius: int) -> list[tuple[int, int]]:
        """Up to how many flips each validator can go down, and up."""
        return [(0, 0) if has < 0 else (min(has, radius), min(self.trials - has, radius)) for has in self.passed.tolist()]

    def sizes(self, radius: int) -> list[int]:
        """The number of states exactly r flips away, for r = 0 … radius."""
        counts = [1] + [0] * radius
        for down, up in self._rooms(radius):
            counts = [
                counts[at]
                + sum(counts[at - step] * ((step <= down) + (step <= up)) for step in range(1, min(at, max(down, up)) + 1))
                for at in range(radius + 1)
            ]
        return counts

    def affordable(self, radius: int, most: int) -> int:
        """The largest number of flips, up to `radius` and 64, whose states make up no more than `most` scores."""
        left = most
        for flips, count in enumerate(self.sizes(min(radius, 64))):
            left -= count * len(self.stakes)
            if left < 0:
                return flips - 1
        return min(radius, 64)

    def _shells(self, first: int, last: int) -> Iterator[tuple[int, Ints]]:
        """The states at each distance from `first` to `last`."""
        if first > last:
            return
        heads: list[Ints] = [np.zeros((int(at == 0), 0), np.int16) for at in range(last + 1)]
        rooms = self._rooms(last)
        for place, (down, up) in enumerate(rooms):
            ends = range(first if place == len(rooms) - 1 else 0, last + 1)
            grown = {at: self._grown(heads, at, down, up) for at in ends}
            heads = [grown.get(at, heads[0][:0]) for at in range(last + 1)]
        for at in range(first, last + 1):
            yield at, self.passed[None, :] + heads[at]

    @staticmethod
    def _grown(heads: Sequence[Ints], at: int, down: int, up: int) -> Ints:
        parts = []
        for step in range(-min(down, at), min(up, at) + 1):
            head = heads[at - abs(step)]
            parts.append(np.concatenate([head, np.full((len(head), 1), step, np.int16)], axis=1))
        return np.concatenate(parts)

    def climbed(self, way: int, flips: int, most: int) -> Attained:
        """The scores that a search finds with at most so many flips; it goes on while it has judged fewer than `most` scores."""
        if way not in self._climbs:
            self._climbs[way] = _Climb(self, way)
        return self._climbs[way].upto(flips, most)


class _Climb:
    """A search that keeps some states for each number of flips, and takes steps of several sizes from them."""

    def __init__(self, column: ScoreColumn, way: int) -> None:
        self.column, self.way = column, way
        self.attained = Attained(way, column.agreed, column.passed)
        self.levels: dict[int, dict[bytes, tuple[tuple[int, float], Ints]]] = {}
        self.done, self.spent = -1, 0
        self._put(np.zeros(1, np.int64), column.passed[None, :], np.array([column.agreed]))
        self._paths()

    def upto(self, flips: int, most: int) -> Attained:
        """Go on to so many flips."""
        while self.done < flips and self.spent < most:
            self.done += 1
            states = [state for _, state in sorted(self.levels.pop(self.done, {}).values(), key=lambda kept: kept[0])[-KEPT:]]
            if states:
                self._step(np.array(states))
        return self.attained

    def _step(self, states: Ints) -> None:
        counts = np.flatnonzero(self.column.passed >= 0)
        jumps = np.array([jump * way for jump in JUMPS for way in (UP, DOWN)], np.int64)
        moves = np.zeros((len(counts), len(jumps), states.shape[1]), np.int64)
        moves[np.arange(len(counts)), :, counts] = jumps
        after = (states[:, None, :] + moves.reshape(-1, states.shape[1])[None]).reshape(-1, states.shape[1])
        after = after[((after >= 0) | (self.column.passed < 0)).all(axis=1) & (after <= self.column.trials).all(axis=1)]
        away = np.abs(after - self.column.passed).sum(axis=1)
        after, away = after[away > self.done], away[away > self.done]
        self._put(away, after, self.column.judged(after))

    def _put(self, away: Ints, states: Ints, scores: Ints) -> None:
        if not len(states):
            return
        self.spent += states.size
        leaning = (np.maximum(states, 0) @ np.array(self.column.stakes, np.float64)) * self.way
        order = np.lexsort((-leaning, -self.way * scores, away))
        edges = np.searchsorted(away[order], np.unique(away))
        for start, end in zip(edges, [*edges[1:], len(order)], strict=True):
            flips = int(away[order[start]])
            level = self.levels.setdefault(flips, {})
            for at in order[start : min(end, start + 2 * KEPT)]:
                score, state = int(scores[at]), states[at]
                level[state.tobytes()] = ((self.way * score, float(leaning[at])), state)
                self.attained.offer(flips, score, state)

    def _paths(self) -> None:
        """Straight ways to the end: one validator after the other, all of them in turn, and the most distant one first."""
        column, end = self.column, self.column.trials if self.way == UP else 0
        order = sorted(np.flatnonzero(column.passed >= 0).tolist(), key=lambda row: -column.stakes[row])
        room = {row: abs(end - int(column.passed[row])) for row in order}
        in_turn = [row for turn in range(max(room.values(), default=0)) for row in order if turn < room[row]]
        distant = [row for left in range(max(room.values(), default=0), 0, -1) for row in order if left <= room[row]]
        for path in ([row for row in order for _ in range(room[row])], in_turn, distant):
            if path:
                steps = np.zeros((len(path), len(column.passed)), np.int64)
                steps[np.arange(len(path)), path] = self.way
                states = column.passed + steps.cumsum(axis=0)
                for flips, score in enumerate(column.judged(states).tolist(), 1):
                    self.attained.offer(flips, score, states[flips - 1])
