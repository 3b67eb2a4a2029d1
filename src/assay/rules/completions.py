"""Missing trials and lies: which agreed scores can one participant still get? Every state is judged by the kernel. SPEC 2.1, 3.

- A validator that misses trials does not count. Once all of them are decided, it does, with as many passed as it has by then. So
  each such validator either stays out, or comes in with any number between; coming in costs the trials that it misses.
- A lying validator that counts may say any number of passed trials, another one for each participant.

Where there are too many states to judge them all, `Reach.whole` is False: what is in it was attained, and there may be more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from assay.rules.column import ABSENT, ScoreColumn
from assay.settle.inputs import Ints

__all__ = ["OpenCell", "Reach", "ReachStep", "completed", "lied"]


@dataclass(frozen=True, slots=True)
class OpenCell:
    """A validator (its place in the column) that misses trials: how many passed, and how many are missing."""

    place: int
    passed: int
    missing: int


@dataclass(frozen=True, slots=True)
class ReachStep:
    """With at most `cost`: the lowest and the highest agreed score (nanos; −1: none), and a state that has it."""

    cost: int
    low: int
    high: int
    low_state: Ints
    high_state: Ints


@dataclass(frozen=True)
class Reach:
    """Steps by ascending cost; the first costs nothing. bare: whether some state has no agreed score."""

    steps: tuple[ReachStep, ...]
    whole: bool
    outer: tuple[int, int]
    """No agreed score is outside, nanos: exact if `whole`, otherwise the lowest and highest score that any validator may have."""
    bare: bool

    def at(self, cost: int) -> ReachStep:
        """The last step that costs at most this."""
        return [step for step in self.steps if step.cost <= cost][-1]


def completed(column: ScoreColumn, cells: Sequence[OpenCell], most: int) -> Reach:
    """The agreed scores that the missing trials can give; cost in trials. At most `most` scores are judged.

    Where the agreed score rises with each validator's, only the ends of each cell are looked at: no outcome is beyond them.
    """
    choices = [np.array([ABSENT, *_counts(column, cell)]) for cell in cells]
    whole = prod(len(choice) for choice in choices) * len(column.passed) <= most
    states = _product(column.passed, [cell.place for cell in cells], choices) if whole else _some(column.passed, cells)
    cost = np.zeros(len(states), np.int64)
    for cell in cells:
        cost += cell.missing * (states[:, cell.place] != ABSENT)
    scores = column.judged(states)
    ends = [
        *(int(column.nanos[count]) for count in column.passed[column.passed >= 0]),
        *(int(column.nanos[count]) for cell in cells for count in (cell.passed, cell.passed + cell.missing)),
    ]
    there = scores[scores >= 0]
    outer = (int(there.min()), int(there.max())) if whole and len(there) else (min(ends, default=-1), max(ends, default=-1))
    bare = bool((scores < 0).any()) or not whole
    return Reach(_steps(cost, states, scores), whole, outer if len(there) or not whole else (-1, -1), bare)


def _counts(column: ScoreColumn, cell: OpenCell) -> Sequence[int]:
    every = range(cell.passed, cell.passed + cell.missing + 1)
    return (every[0], every[-1]) if column.rises else every


def lied(column: ScoreColumn, places: Sequence[int], most: int) -> Reach:
    """The agreed scores that lies of the validators at these places can give, whatever they cost: one step."""
    numbers = np.arange(column.trials + 1)
    whole = len(numbers) ** len(places) * len(column.passed) <= most
    if whole:
        states = _product(column.passed, places, [numbers] * len(places))
    else:
        states = np.repeat(column.passed[None, :], len(numbers), axis=0)
        states[:, list(places)] = numbers[:, None]
    scores = column.judged(states)
    steps = _steps(np.zeros(len(states), np.int64), states, scores)
    return Reach(steps, whole, (int(scores.min()), int(scores.max())), bool((scores < 0).any()))


def _product(passed: Ints, places: Sequence[int], choices: Sequence[Ints]) -> Ints:
    """Every combination of the choices at the places."""
    states = np.repeat(passed[None, :], prod(len(choice) for choice in choices), axis=0)
    for place, values in zip(places, np.meshgrid(*choices, indexing="ij"), strict=True):
        states[:, place] = values.ravel()
    return states


def _some(passed: Ints, cells: Sequence[OpenCell]) -> Ints:
    """As it is; one cell with every number; all cells with their least, and with their most."""
    rows = [passed, passed.copy(), passed.copy()]
    for cell in cells:
        rows[1][cell.place], rows[2][cell.place] = cell.passed, cell.passed + cell.missing
        for count in range(cell.passed, cell.passed + cell.missing + 1):
            row = passed.copy()
            row[cell.place] = count
            rows.append(row)
    return np.array(rows)


def _steps(cost: Ints, states: Ints, scores: Ints) -> tuple[ReachStep, ...]:
    steps = []
    for limit in np.unique(cost).tolist():
        here = np.flatnonzero(cost <= limit)
        low, high = here[scores[here].argmin()], here[scores[here].argmax()]
        steps.append(ReachStep(limit, int(scores[low]), int(scores[high]), states[low], states[high]))
    return tuple(steps)
