"""The uncertainty of a leaderboard: confidence intervals and paired tests *beside* the scores, only for the reader.

Nothing here reaches a score, a weight or a payout. So this module, unlike the settlement, may use binary floats.

One observation is a **task**, not a run. Several validators run the same agent on the same tasks, each perhaps several times.
These runs are not independent: a hard task is hard for every agent. If each run were an observation, twenty validators would make
any small difference look certain without asking one more task. So:

- *Interval.* Wilson's score interval of the mean over tasks of (passed / runs), with n = the number of tasks, not of runs. An
  outcome between 0 and 1 with mean p varies by at most p(1 − p), as a single pass or fail would (Bhatia and Davis, 2000), so the
  interval is rather too wide than too narrow. It is about tasks like these: about another set of the same kind.
- *Pairs.* Two participants are compared task by task, on the (validator, trial) runs that both have. The majority of these runs
  is the task's outcome for each. A task whose runs split evenly for one of them is `undecided` and left out. The tasks that only
  one of the two passes go into McNemar's exact test.

Copying every run changes no interval and no p-value. The price is power: a small advantage on every task that never turns a
majority is not seen. "Not shown to differ" is not "equal".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInput
from assay.exact import NANO
from assay.records import Tests
from assay.settle.inputs import Scored
from assay.settle.score import accepted, holding

if TYPE_CHECKING:
    from assay.settle import Settlement

__all__ = [
    "Cells",
    "Interval",
    "Pairing",
    "Run",
    "Runs",
    "Standing",
    "cells",
    "leaderboard",
    "paired",
    "separation",
    "standings",
    "wilson",
]

Run = tuple[str, str, int]
"""One counted run: validator, task, trial."""

Runs = Mapping[Run, bool]
"""The outcomes of one participant: true = passed. It has only runs of validators that count."""

Cells = Mapping[str, Runs]
"""The outcomes of all participants, by key."""

_Bools = NDArray[np.bool_]
_Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A range of pass rates, 0 ≤ low ≤ high ≤ 1."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Pairing:
    """Shared tasks by who passed them, and the two-sided exact p-value of McNemar's test (None: no shared task).

    `undecided` tasks, where the runs of one of the two split evenly, are in none of the other four counts.
    """

    both: int
    only_a: int
    only_b: int
    neither: int
    p_value: float | None
    undecided: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """One row of a leaderboard: what was counted, the interval of the pass rate, and the comparison with the row below.

    `passed` of `trials` runs on `tasks` tasks; `rate` is the mean over tasks and lies in low … high; without a run these three
    are None. `p_next` is None in the last row and where the two share no task. `tied_with_next` (shown as ≈) says that the
    data do not show the order of the two to be more than chance; it is false in the last row.

    `step_from` is set in few rows. Going down, the first row that the data show to be worse than rank 1 names rank 1. The next
    row shown to be worse than that row names that row, and so on. In all other rows it is None.
    """

    participant: str
    passed: int
    trials: int
    tasks: int
    rate: float | None
    low: float | None
    high: float | None
    p_next: float | None
    tied_with_next: bool
    step_from: str | None = None


def wilson(passed: int, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of the rate passed / trials of independent trials.

    Raises BadInput unless 0 ≤ passed ≤ trials, trials ≥ 1 and 0 < confidence < 1.
    """
    if trials < 1:
        raise BadInput(f"{trials} trials have no pass rate", field="trials", hint="leave out the interval where nothing was run")
    if not 0 <= passed <= trials:
        raise BadInput(f"{passed} passed of {trials} trials", field="passed", hint="give a count from 0 to the number of trials")
    return _wilson(passed / trials, trials, _quantile(confidence))


def paired(a: Runs, b: Runs) -> Pairing:
    """McNemar's exact test of two participants over the tasks they share (the module says what a pair is).

    Swapping a and b swaps `only_a` and `only_b` and nothing else.
    """
    table = _RunTable([a, b])
    return table.pairings(slice(0, 1), slice(1, 2))[0]


def leaderboard(ranking: Sequence[str], cells: Cells, *, confidence: float = 0.95, alpha: float = 0.05) -> list[Standing]:
    """A row for every participant of the ranking, in its order, each compared with the next.

    Neighbours are tied unless the exact p-value is at most `alpha` and the upper one is the one that passes more of the tasks.
    The p-values are not corrected for the number of rows. A participant without runs gets a row without an interval.
    Raises BadInput for a participant ranked twice or a level outside 0 … 1.
    """
    if len(set(ranking)) != len(ranking):
        raise BadInput("a participant is ranked twice", field="ranking", hint="give every participant once")
    if not 0 < alpha < 1:
        raise BadInput(f"the significance level {alpha} is not between 0 and 1", field="alpha", hint="give a number such as 0.05")
    z = _quantile(confidence)
    if not ranking:
        return []
    table = _RunTable([cells.get(participant, {}) for participant in ranking])
    pairs = table.pairings(slice(0, -1), slice(1, None))
    tied = [not _separated(pair, alpha) for pair in pairs]
    steps = _steps(table, len(ranking), alpha)
    passed, runs = table.per_task()
    standings = []
    for row, participant in enumerate(ranking):
        tasks = runs[row] > 0
        count = int(tasks.sum())
        rate = math.fsum(passed[row, tasks] / runs[row, tasks]) / count if count else None
        interval = None if rate is None else _wilson(rate, count, z)
        low, high = (interval.low, interval.high) if interval else (None, None)
        p_next, tied_with_next = (pairs[row].p_value, tied[row]) if row < len(pairs) else (None, False)
        totals = int(passed[row].sum()), int(runs[row].sum())
        step_from = ranking[steps[row]] if row in steps else None
        standings.append(Standing(participant, *totals, count, rate, low, high, p_next, tied_with_next, step_from))
    return standings


def _separated(pair: Pairing, alpha: float) -> bool:
    """Whether the data show that the first of a pair passes more of the tasks."""
    return pair.p_value is not None and pair.p_value <= alpha and pair.only_a > pair.only_b


def _steps(table: _RunTable, rows: int, alpha: float) -> dict[int, int]:
    """Row → the row above that it is the first to be separated from; that row is the first one, or itself such a row."""
    steps: dict[int, int] = {}
    above, start, width = 0, 1, 1
    while start < rows:
        pairs = table.pairings(slice(above, above + 1), slice(start, start + width))
        apart = next((at for at, pair in enumerate(pairs) if _separated(pair, alpha)), None)
        if apart is None:
            start, width = start + width, min(2 * width, 64)  # a long look ahead is wasted where the next row is a step
        else:
            steps[start + apart] = above
            above, start, width = start + apart, start + apart + 1, 1
    return steps


def separation(rates: Sequence[Sequence[int]]) -> list[float | None]:
    """The separation of the participants by each task: the correlation of its pass rate with the rest of the score, −1 … 1.

    rates: pass rates in nanos, shape [participants, tasks]. The rest of a participant's score is the mean of its other tasks, so
    a task is not compared with itself. If every rate is 0 or 1, this is test theory's item–rest (point-biserial) correlation.
    None where it is not defined: fewer than three participants or two tasks, or nobody differs on the task or on the rest.
    Raises BadInput if the rows differ in length or a rate is outside 0 … 1.
    """
    if len({len(row) for row in rates}) > 1 or any(not 0 <= rate <= NANO for row in rates for rate in row):
        raise BadInput("not a table of pass rates", field="rates", hint="give nanos from 0 to 1, the same tasks for everybody")
    count, tasks = len(rates), len(rates[0]) if rates else 0
    if count < 3 or tasks < 2:
        return [None] * tasks
    table: _Ints = np.array(rates, dtype=np.int64)
    rest = table.sum(axis=1, keepdims=True) - table
    own, other = (count * part - part.sum(axis=0) for part in (table, rest))  # exact, so equal rates have no variance at all
    own_f, other_f = own.astype(np.float64), other.astype(np.float64)
    spread = np.sqrt((own_f * own_f).sum(axis=0) * (other_f * other_f).sum(axis=0))
    both = (own_f * other_f).sum(axis=0)
    defined = own.any(axis=0) & other.any(axis=0)
    return [max(-1.0, min(1.0, float(both[at] / spread[at]))) if defined[at] else None for at in range(tasks)]


class _RunTable:
    """The runs of some participants as boolean arrays, shape [participants, runs], the runs of one task side by side."""

    def __init__(self, outcomes: Sequence[Runs]) -> None:
        runs = sorted(set().union(*outcomes), key=lambda run: run[1])
        place = {run: at for at, run in enumerate(runs)}
        self.present: _Bools = np.zeros((len(outcomes), len(runs)), dtype=np.bool_)
        self.passed: _Bools = np.zeros_like(self.present)
        for row, own in enumerate(outcomes):
            at = np.fromiter(map(place.__getitem__, own), dtype=np.int64, count=len(own))
            self.present[row, at] = True
            self.passed[row, at] = np.fromiter(own.values(), dtype=np.bool_, count=len(own))
        self._starts = _starts(run[1] for run in runs)

    def _by_task(self, runs: _Bools) -> _Ints:
        """The number of true runs of each task, shape [rows, tasks]."""
        if not len(self._starts):  # reduceat refuses an empty axis
            return np.zeros((len(runs), 0), dtype=np.int64)
        counts: _Ints = np.add.reduceat(runs, self._starts, axis=1, dtype=np.int64)
        return counts

    def per_task(self) -> tuple[_Ints, _Ints]:
        """Passed runs and all runs, both shape [participants, tasks]."""
        return self._by_task(self.passed), self._by_task(self.present)

    def pairings(self, above: slice, below: slice) -> list[Pairing]:
        """Each of some rows against each of others, in order; a single row stands against all of the others."""
        shared = self.present[above] & self.present[below]
        runs = self._by_task(shared)
        upper = 2 * self._by_task(self.passed[above] & shared) - runs  # > 0: most runs passed; 0: split evenly, or no run at all
        lower = 2 * self._by_task(self.passed[below] & shared) - runs
        counts = (
            (upper > 0) & (lower > 0),
            (upper > 0) & (lower < 0),
            (upper < 0) & (lower > 0),
            (upper < 0) & (lower < 0),
            (runs > 0) & ((upper == 0) | (lower == 0)),
        )
        return [_pairing(*tasks) for tasks in zip(*(tasks.sum(axis=1, dtype=np.int64).tolist() for tasks in counts), strict=True)]


def _starts(tasks: Iterable[str]) -> _Ints:
    """The index at which each task begins, in a sequence of tasks that keeps equal ones together."""
    starts, last = [], None
    for at, task in enumerate(tasks):
        if task != last:
            starts.append(at)
            last = task
    return np.array(starts, dtype=np.int64)


def _pairing(both: int, only_a: int, only_b: int, neither: int, undecided: int) -> Pairing:
    """The counts with their p-value, which is None if there is nothing to compare."""
    shared = both + only_a + only_b + neither + undecided
    return Pairing(both, only_a, only_b, neither, _mcnemar(only_a, only_b) if shared else None, undecided)


def _mcnemar(only_a: int, only_b: int) -> float:
    """The two-sided exact binomial p-value of the discordant pairs, each as likely to fall either way; 1 if there are none.

    It is twice P(at most `fewer` of all n, each with chance 1/2) = Σ C(n, k) / 2ⁿ over k ≤ fewer, correct to about 14 digits.
    The sum begins at its largest term and ends where a term no longer changes it.
    """
    fewer, n = min(only_a, only_b), only_a + only_b
    total = term = 1.0  # in units of the largest term, C(n, fewer) / 2ⁿ
    for k in range(fewer, 0, -1):
        term *= k / (n - k + 1)
        if total + term == total:
            break
        total += term
    return min(1.0, 2 * total * (math.comb(n, fewer) / (1 << n)))


def _quantile(confidence: float) -> float:
    """The normal quantile z that leaves (1 − confidence) / 2 on either side."""
    if not 0 < confidence < 1:
        raise BadInput(
            f"the confidence {confidence} is not between 0 and 1", field="confidence", hint="give a number such as 0.95"
        )
    return -NormalDist().inv_cdf((1 - confidence) / 2)  # the lower tail, where a double has more room near 1


def _wilson(rate: float, n: int, z: float) -> Interval:
    """Wilson's interval of a mean `rate` over n outcomes in 0 … 1; rounding never pushes the rate itself out."""
    centre = rate + z * z / (2 * n)
    reach = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low, high = (centre - reach) / scale, (centre + reach) / scale
    return Interval(max(0.0, min(low, rate)), min(1.0, max(high, rate)))


MOST = 2_000_000
"""With more records a board has no intervals, so that it stays quick."""


def standings(settlement: Settlement) -> dict[str, Standing] | None:
    """Participant → its interval, and whether the next one is clearly behind; None if that cannot be computed."""
    counted = cells(settlement)
    if counted is None:
        return None
    return {row.participant: row for row in leaderboard(settlement.ranking, counted)}


def cells(settlement: Settlement) -> Cells | None:
    """The runs of every ranked participant by validators whose score counts; None without single records."""
    inputs, axes, agreement = settlement.inputs, settlement.frame, settlement.agreement
    if isinstance(inputs.evidence, Scored) or len(inputs.evidence) > MOST:
        return None
    counts = (agreement.votes.counting & ~agreement.excluded).tolist()
    trials = getattr(inputs.scheme.score, "trials", 1)
    tasks, column_of = frozenset(inputs.tasks), holding(axes)
    runs: dict[str, dict[Run, bool]] = {key: {} for key in settlement.ranking}
    for record in accepted([record for record in inputs.evidence if isinstance(record, Tests)], axes):
        column = column_of(record)
        if column is None or record.task not in tasks or record.trial > trials or not counts[axes.row[record.validator]][column]:
            continue
        own = runs.get(axes.participants[column])
        if own is not None:
            own[record.validator, record.task, record.trial] = record.outcome == "pass"
    return runs
