"""The columns of a settlement of tests: what each validator saw of each participant, and in which trials. SPEC 2.1, 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInput
from assay.exact import BPS, NANO
from assay.rules.column import ABSENT, ScoreColumn
from assay.rules.completions import OpenCell
from assay.scheme.model import Scheme
from assay.settle import Settlement
from assay.settle.columns import Columns, RecordTable
from assay.settle.inputs import Scored, arrived
from assay.settle.score import of_kind, stand
from assay.settle.score.trials import ERROR, PASS

__all__ = ["TrialBoard", "check_trials", "knows_outcomes", "marks", "outcomes", "trial_board"]

LARGEST_BOARD = 10**8
"""Trials of a board whose single records are looked at, one byte each."""


@dataclass(frozen=True)
class TrialBoard:
    """A settlement of tests, column by column. rows: of each column, the validators (rows of the settlement) it has."""

    settlement: Settlement
    rows: Mapping[int, tuple[int, ...]]
    columns: Mapping[int, ScoreColumn]
    """By participant: the validators that count; those that miss trials are `ABSENT`, and after the others."""
    cells: Mapping[int, tuple[OpenCell, ...]]
    """By participant: what its incomplete validators miss. Empty where single records are not known."""
    unknown: frozenset[int]
    """Participants with incomplete validators of which it is not known how many trials passed."""

    @cached_property
    def place(self) -> dict[int, int]:
        """Participant → its place when sorted by submission time, then key: who comes first if scores are equal."""
        inputs = self.settlement.inputs.participants
        order = sorted(range(len(inputs)), key=lambda column: arrived(inputs[column]))
        return {column: at for at, column in enumerate(order)}

    def tied(self, above: int, below: int) -> int:
        """1 if `above` is the first of the two when their scores are equal, otherwise 0."""
        return int(self.place[above] < self.place[below])

    @cached_property
    def _outcomes(self) -> NDArray[np.int8] | None:
        return outcomes(self.settlement)

    def named(self, at: int, row: int, before: int, after: int) -> tuple[tuple[str, int], ...]:
        """Trials that a change from so many to so many passed flips: the first ones, task and number; empty if not known."""
        table = self._outcomes
        if table is None or before == after:
            return ()
        per, tasks = (
            self.settlement.inputs.scheme.kind.trials(self.settlement.inputs.scheme.score) or 1,
            self.settlement.frame.tasks,
        )
        places = np.flatnonzero(table[row, at] == int(after < before))[: abs(after - before)]
        return tuple((tasks[place // per], place % per + 1) for place in places.tolist())


def trial_board(settlement: Settlement) -> TrialBoard:
    """The columns of a settlement. Raises BadInput unless it is of kind tests, each validator by itself."""
    inputs, scored, axes = settlement.inputs, settlement.scored, settlement.frame
    check_trials(inputs.scheme, "has a margin")
    known = outcomes(settlement) if scored.incomplete is not None and scored.incomplete.any() else None
    passed, agreement = scored.work["passed"], settlement.agreement
    stakes, rows, columns, cells, unknown = settlement.seats.stakes, {}, {}, {}, set[int]()
    trials = len(inputs.tasks) * (inputs.scheme.kind.trials(inputs.scheme.score) or 1)
    for column in np.flatnonzero(axes.unique).tolist():
        counting = np.flatnonzero(agreement.votes.counting[:, column]).tolist()
        mask = agreement.votes.incomplete
        partial = [] if mask is None else np.flatnonzero(mask[:, column]).tolist()
        if partial and known is None:
            unknown.add(column)
            partial = []
        rows[column] = (*counting, *partial)
        state = np.array([*(int(passed[row, column]) for row in counting), *(ABSENT for _ in partial)], np.int64)
        columns[column] = ScoreColumn(
            state, tuple(stakes[row] for row in rows[column]), settlement.seats.totals[column], trials, inputs.scheme.consensus
        )
        cells[column] = tuple(
            OpenCell(len(counting) + at, int((known[row, column] == 1).sum()), int((known[row, column] < 0).sum()))
            for at, row in enumerate(partial)
            if known is not None
        )
    return TrialBoard(settlement, rows, columns, cells, frozenset(unknown))


def check_trials(scheme: Scheme, can: str) -> None:
    """Refuse evidence without trials, and trials that do not count by themselves; can: the end of a hint. Raises BadInput."""
    if scheme.kind.trials(scheme.score) is None:
        what = f"evidence of kind {scheme.score.kind!r} has no trials"
        raise BadInput(what, field="score.kind", hint=f"only kind tests {can}")
    if scheme.score.scores_jointly():
        what = "a task that counts only where all validators saw it pass joins their trials"
        raise BadInput(what, field="score.passed_by", hint=f'only passed_by = "each" {can}')


def knows_outcomes(settlement: Settlement) -> bool:
    """Whether each trial is known by itself, and there are not too many to look at."""
    inputs, axes = settlement.inputs, settlement.frame
    cells = axes.shape[0] * axes.shape[1] * len(axes.tasks) * (inputs.scheme.kind.trials(inputs.scheme.score) or 1)
    return not isinstance(inputs.evidence, Scored) and cells <= LARGEST_BOARD


def outcomes(settlement: Settlement) -> NDArray[np.int8] | None:
    """1 passed, 0 did not, −1 missing, [validators, participants, tasks × trials]; None if single records are not known."""
    inputs, axes = settlement.inputs, settlement.frame
    evidence, kind = inputs.evidence, inputs.scheme.kind
    if not knows_outcomes(settlement):
        return None
    assert not isinstance(evidence, Scored)
    if not isinstance(evidence, RecordTable):
        same = of_kind(evidence, kind.record)
        evidence = RecordTable(
            Columns.of(same, kind.columns(inputs.scheme.score)), lambda at: [same[index] for index in at.tolist()]
        )
    columns, (rows, cols) = stand(evidence, axes, kind.record).counting()
    trials = kind.trials(inputs.scheme.score) or 1
    task = columns.lookup("task", {name: at for at, name in enumerate(axes.tasks)})
    ran = (task >= 0) & (columns["trial"] <= trials) & (columns["outcome"] != ERROR)
    table = np.full((*axes.shape, len(axes.tasks) * trials), -1, np.int8)
    table[rows[ran], cols[ran], task[ran] * trials + columns["trial"][ran] - 1] = (columns["outcome"] == PASS)[ran]
    return table


def marks(settlement: Settlement) -> tuple[int | None, int | None]:
    """The best score's mark: nanos from which its tier is reached, and from which the next one is; None where there is none."""
    payout, order = settlement.inputs.scheme.payout, settlement.order
    assert payout is not None
    best = int(settlement.agreement.score[order[0]]) if order else -1
    tiers: dict[int, int] = {}
    for tier in payout.tiers:
        mark = -(-tier.reach_bps * payout.threshold_bps * NANO // BPS**2)
        if mark <= NANO:
            tiers[mark] = tier.release_bps
    now = settlement.payouts.tier_bps if settlement.payouts is not None else 0
    reached = [mark for mark, release in tiers.items() if mark <= best and release == now > 0]
    missed = [mark for mark, release in tiers.items() if mark > best and release > now]
    return min(reached, default=None), min(missed, default=None)
