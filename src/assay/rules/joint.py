"""Margins where a task counts only if every validator saw it pass (`passed_by = "all"`): how little changes a verdict. SPEC 3.0.

Then all counting validators have one score: the share of the tasks in which every trial of every one of them passed. Nobody is an
outlier, and any combination gives this score. So the least is counted, and needs no search:

- One flip takes a task away: any trial of a task that passed.
- A task is gained by flipping all of its trials that failed, at all validators. The tasks with the fewest come first.
- One validator that lies takes all tasks away. It gives those that all the others saw pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInput
from assay.rules.liars import ascending
from assay.rules.trials import marks, outcomes
from assay.scheme.model import TestsScore
from assay.settle import Settlement, pipeline
from assay.settle.inputs import Ints, arrived
from assay.settle.score.trials import score_of, tally

__all__ = ["JointBoard", "JointChange"]

COALITIONS = 4096
"""Sets of validators that are looked at, at most; one validator is nearly always enough."""
Outcomes = NDArray[np.int8]


class JointChange(NamedTuple):
    """A change: its cost in flips or rao (None, None: there is none), and the outcomes after it by participant, [V, trials]."""

    at_least: int | None
    at_most: int | None
    states: Mapping[int, Outcomes]


class _JointStep(NamedTuple):
    """A number of tasks that one participant can have, what that costs, and the outcomes that give it."""

    tasks: int
    cost: int
    state: Outcomes


@dataclass(eq=False)
class JointBoard:
    """A settlement of tests with `passed_by = "all"`. Raises BadInput if its single records are not known."""

    settlement: Settlement

    def __post_init__(self) -> None:
        known = outcomes(self.settlement)
        if known is None:
            hint = "it needs each trial, and there are too many, or only their sums are known"
            raise BadInput("the trials of this settlement are not known one by one", field="score.passed_by", hint=hint)
        self.known, self.order = known, self.settlement.order
        self.counting = self.settlement.agreement.votes.counting
        self.tasks = len(self.settlement.frame.tasks)
        inputs = self.settlement.inputs.participants
        order = sorted(range(len(inputs)), key=lambda column: arrived(inputs[column]))
        self.place = {column: at for at, column in enumerate(order)}

    def least(self, verdict: str, way: str) -> JointChange:
        """The least change of a verdict by `flips` or by `stake`."""
        if not self.order:
            return JointChange(None, None, {})
        if way == "stake":
            return self._least_stake(verdict)
        best = min(self._changes(verdict, None), key=lambda change: change[0], default=None)
        return JointChange(None, None, {}) if best is None else JointChange(best[0], best[0], best[1])

    def _least_stake(self, verdict: str) -> JointChange:
        stakes = self.settlement.seats.stakes
        rows = np.flatnonzero(self.counting[:, list(self.order)].any(axis=1)).tolist()
        rows.sort(key=lambda row: (stakes[row], row))
        stake = 0
        coalitions = ascending(rows, stakes)
        for coalition in islice(coalitions, COALITIONS):
            stake = sum(stakes[row] for row in coalition)
            states = next((states for _, states in self._changes(verdict, coalition)), None)
            if states is not None:
                return JointChange(stake, stake, states)
        return JointChange(None, None, {}) if next(coalitions, None) is None else JointChange(stake, None, {})

    def _changes(self, verdict: str, coalition: Sequence[int] | None) -> Iterator[tuple[int, dict[int, Outcomes]]]:
        """Changes that give another verdict, each with its cost; the least is among them. coalition: who lies; None: flips."""
        if verdict == "tier":
            yield from self._tiers(coalition)
            return
        pairs = pairwise(self.order) if verdict == "order" else ((self.order[0], other) for other in self.order[1:])
        for above, below in pairs:
            tied = int(self.place[above] < self.place[below])
            falls = [*self._steps(above, -1, coalition)]
            for rise in self._steps(below, 1, coalition):
                fall = next((step for step in falls if step.tasks + tied <= rise.tasks), None)
                if fall is not None:
                    yield fall.cost + rise.cost, {above: fall.state, below: rise.state}

    def _tiers(self, coalition: Sequence[int] | None) -> Iterator[tuple[int, dict[int, Outcomes]]]:
        reached, next_mark = marks(self.settlement)
        if next_mark is not None:
            for at in self.order:
                rises = (step for step in self._steps(at, 1, coalition) if score_of(step.tasks, self.tasks) >= next_mark)
                yield from ((step.cost, {at: step.state}) for step in rises)
        if reached is not None:
            held = [at for at in self.order if self.settlement.agreement.score[at] >= reached]
            falls = [self._below(at, reached, coalition) for at in held]
            if all(step is not None for step in falls):
                steps = [step for step in falls if step is not None]
                yield sum(step.cost for step in steps), {at: step.state for at, step in zip(held, steps, strict=True)}

    def _below(self, at: int, mark: int, coalition: Sequence[int] | None) -> _JointStep | None:
        return next((step for step in self._steps(at, -1, coalition) if score_of(step.tasks, self.tasks) < mark), None)

    def _steps(self, at: int, way: int, coalition: Sequence[int] | None) -> Iterator[_JointStep]:
        """Fewer tasks (way −1) or more, one at a time by flips, at once by lies; the first costs nothing."""
        state, rows = self.known[:, at].copy(), np.flatnonzero(self.counting[:, at])
        by_task = state.reshape(len(state), self.tasks, -1)
        failed = (by_task[rows] == 0).sum(axis=(0, 2))
        tasks, cost = int((failed == 0).sum()), 0
        yield _JointStep(tasks, cost, state.copy())
        if coalition is not None:
            liars = np.intersect1d(rows, np.array(coalition, np.int64))
            if len(liars):
                by_task[liars] = int(way > 0)
                yield _JointStep(int(((by_task[rows] == 0).sum(axis=(0, 2)) == 0).sum()), 0, state)
            return
        if way < 0:
            for task in np.flatnonzero(failed == 0).tolist():
                by_task[rows[0], task, 0] = 0
                tasks, cost = tasks - 1, cost + 1
                yield _JointStep(tasks, cost, state.copy())
            return
        for task in sorted(np.flatnonzero(failed).tolist(), key=lambda number: (failed[number], number)):
            by_task[rows, task] = 1
            tasks, cost = tasks + 1, cost + int(failed[task])
            yield _JointStep(tasks, cost, state.copy())

    def changed(self, states: Mapping[int, Outcomes]) -> Iterable[tuple[int, int, Ints]]:
        """Participant, validator, and the numbers of the trials that have another outcome in these states."""
        for at, state in sorted(states.items()):
            for row in np.flatnonzero((state != self.known[:, at]).any(axis=1)).tolist():
                yield at, row, np.flatnonzero(state[row] != self.known[row, at])

    def resettled(self, states: Mapping[int, Outcomes]) -> Settlement:
        """The settlement with these outcomes."""
        settlement, scored = self.settlement, self.settlement.scored
        assert scored.missing is not None
        assert scored.incomplete is not None
        assert scored.passes is not None
        passed, passes = scored.work["passed"].astype(np.int64), scored.passes.copy()
        for at, row, _ in self.changed(states):
            state = states[at][row]
            passed[row, at] = (state == 1).sum()
            passes[row, at] = np.packbits((state.reshape(self.tasks, -1) == 1).all(axis=1))
        rules = settlement.inputs.scheme.score
        assert isinstance(rules, TestsScore)
        seen = scored.counting | scored.incomplete
        tallied = tally(passed, scored.missing, seen, settlement.frame, rules, scored.first)
        return pipeline.settle(replace(settlement.inputs, evidence=replace(tallied, passes=passes)))
