"""The score of workflows: success, cost, latency and reliability of each task, averaged over a window of tasks. SPEC 2.2.

- S = 0.50·success + 0.25·cost + 0.15·latency + 0.10·reliability; cost and latency count only if success is above the gate.
- The score is the mean of the last `window` tasks, by epoch and task. Each task is rounded, then the mean.
- If a validator's service failed in a task, the task is left out for every participant that this validator judged in it.
- quality 1, 3 of 4 steps, cost 0.01 of 0.05, 2 s of 10 s, one hard failure → 0.5·0.75 + 0.25·0.8 + 0.15·0.8 + 0.1·0.5 = 0.745.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.exact import NANO, half_even
from assay.records import Workflow
from assay.scheme.model import WorkflowScore
from assay.settle.columns import COMMON, Columns, StandingRecords, choice, count, half_even_all, key, nanos, together
from assay.settle.inputs import Bools, Frame, Ints, Scored
from assay.settle.score import accepted

__all__ = [
    "CLOSE",
    "COLUMNS",
    "NEEDED",
    "SCORE",
    "TaskScore",
    "averaged",
    "counted",
    "succeeded",
    "task",
    "task_scores",
    "windows",
    "wrong",
]


@dataclass(frozen=True, slots=True)
class TaskScore:
    """The score of one task: the four parts and S, all nanos, half to even; S is taken from the exact parts. SPEC 2.2."""

    success: int
    cost: int
    latency: int
    reliability: int
    score: int


def task(record: Workflow, rules: WorkflowScore) -> TaskScore:
    """The parts and the score of one task; all 0 for an invalid plan. Service errors were left out before. SPEC 2.2."""
    if record.outcome != "ran":
        return TaskScore(0, 0, 0, 0, 0)
    weights, penalties = rules.weights, rules.penalties
    steps, budget, limit = record.steps_total, record.budget, record.max_seconds
    success = record.quality * record.steps_completed  # over `steps`, in nanos
    passed = succeeded(record, rules)
    spared = max(0, budget - record.cost) if passed else 0  # over `budget`
    early = max(0, limit - record.seconds) if passed else 0  # over `limit`
    unplanned = max(0, record.retries - min(record.declared_retries, rules.max_retries_per_step * steps))
    trouble = (
        penalties.unplanned_retry * unplanned
        + penalties.timeout * record.timeouts
        + penalties.hard_failure * record.hard_failures
    )
    reliability = max(0, NANO - trouble)
    # The four parts over one denominator, so that nothing is rounded before the end.
    whole = steps * budget * limit
    exact = (
        weights.success * success * budget * limit
        + weights.cost * spared * NANO * steps * limit
        + weights.latency * early * NANO * steps * budget
        + weights.reliability * reliability * whole
    )
    return TaskScore(
        success=half_even(success, steps),
        cost=half_even(spared * NANO, budget),
        latency=half_even(early * NANO, limit),
        reliability=reliability,
        score=half_even(exact, whole * NANO),
    )


def succeeded(record: Workflow, rules: WorkflowScore) -> bool:
    """Whether success is above the gate, so that cost and latency count. SPEC 2.2."""
    return record.outcome == "ran" and record.quality * record.steps_completed > rules.gate * record.steps_total


def windows(
    records: Sequence[Workflow], frame: Frame, rules: WorkflowScore, left_out: Collection[tuple[str, int, str]] = ()
) -> dict[tuple[int, int], list[Workflow]]:
    """(validator, participant) → the tasks of its window, in order; none if all were left out for service errors. SPEC 2.2.

    left_out: `Scored.left_out`, where the records are only those about one participant.
    """
    standing = accepted(records, frame)
    failed = {(record.validator, record.epoch, record.task) for record in standing if record.outcome == "service-error"}
    failed |= set(left_out)
    by_cell: dict[tuple[int, int], list[Workflow]] = {}
    for record in standing:
        column = frame.column[record.participant]
        if record.submission == frame.submissions[column] and record.participant not in frame.duplicate_of:
            tasks = by_cell.setdefault((frame.row[record.validator], column), [])
            if (record.validator, record.epoch, record.task) not in failed:
                tasks.append(record)
    return {cell: sorted(tasks, key=_place)[-rules.window :] for cell, tasks in by_cell.items()}


def _place(record: Workflow) -> tuple[int, bytes]:
    return record.epoch, record.task.encode()


UNITS = 10**9 * NANO - 1
"""The most nanos of a cost, a budget or a time."""
NEEDED = ("quality", "steps_completed", "steps_total", "cost", "budget", "seconds", "max_seconds")
"""Fields that a task that ran must have; a task that did not may leave them out."""
_NUMBERS = ("retries", "declared_retries", "timeouts", "hard_failures")
COLUMNS = (
    *COMMON,
    key("task"),
    choice("outcome", "ran", "invalid", "service-error"),
    nanos("quality", NANO),
    *(count(name) for name in ("steps_completed", "steps_total")),
    *(nanos(name, UNITS) for name in ("cost", "budget", "seconds", "max_seconds")),
    *(count(name) for name in _NUMBERS),
)
"""The columns of a record. SPEC 7."""
RAN, SERVICE_ERROR = 0, 2
SCORE = "score"
"""A column of S, instead of those that it follows from, where what read the records has computed it."""


def wrong(columns: Columns, present: Mapping[str, Bools]) -> Bools:
    """The records whose fields do not fit each other, as a mask; `present`: field → the records that have it. SPEC 2.2."""
    ran = columns["outcome"] == RAN
    bad = columns["steps_completed"] > columns["steps_total"]
    for name in NEEDED:
        if name in present:
            bad |= ran & ~present[name]
    for name in ("steps_total", "budget", "max_seconds"):
        bad |= ran & (columns[name] == 0)
    return bad


CLOSE = 2.0**-16
"""Nanos: nearer than this to a half, the float is not trusted. It is wrong by less than 2^-18."""


AT_ONCE = 2**14
"""Tasks that are scored together: few enough that all their numbers stay in the processor's cache."""


def task_scores(columns: Columns, rules: WorkflowScore) -> Ints:
    """S of each task in nanos, half to even, as `task` gives it. SPEC 2.2.

    Floats settle all that are clearly above or below a half; the others are compared exactly.
    """
    names = ("outcome", *NEEDED, *_NUMBERS)
    scores = np.empty(len(columns), np.int64)
    for begin in range(0, len(columns), AT_ONCE):
        some = slice(begin, begin + AT_ONCE)
        scores[some] = _task_scores({name: columns.numbers[name][some].astype(np.int64, copy=False) for name in names}, rules)
    return scores


def _task_scores(columns: Mapping[str, Ints], rules: WorkflowScore) -> Ints:
    weights, penalties = rules.weights, rules.penalties
    steps, budget, limit = (columns[name] for name in ("steps_total", "budget", "max_seconds"))
    ran = columns["outcome"] == RAN
    if not ran.all():
        steps, budget, limit = (np.where(ran, values, 1) for values in (steps, budget, limit))
    success = columns["quality"] * columns["steps_completed"]
    passed = success > rules.gate * steps
    spared = np.where(passed, np.maximum(0, budget - columns["cost"]), 0)
    early = np.where(passed, np.maximum(0, limit - columns["seconds"]), 0)
    unplanned = np.maximum(0, columns["retries"] - np.minimum(columns["declared_retries"], rules.max_retries_per_step * steps))
    reliability = np.full(len(ran), NANO, np.int64)
    for penalty, many in (
        (penalties.unplanned_retry, unplanned),
        (penalties.timeout, columns["timeouts"]),
        (penalties.hard_failure, columns["hard_failures"]),
    ):  # at most 10^18 is taken each time
        reliability = np.maximum(0, reliability - penalty * many)
    # w·a/b of each part, in nanos; the float is right to 10^-6 of a nano
    share = np.array([weights.success, weights.cost, weights.latency, weights.reliability]) / NANO
    estimate = share[0] * (success / steps) + share[1] * (spared / budget * NANO)
    estimate += share[2] * (early / limit * NANO) + share[3] * reliability
    scores = np.rint(estimate).astype(np.int64)
    close = np.flatnonzero(np.abs(np.abs(estimate - scores) - 0.5) < CLOSE)
    if len(close):
        parts = (success, spared, early, reliability, steps, budget, limit)
        scores[close] = _settled(np.floor(estimate[close]).astype(np.int64), tuple(part[close] for part in parts), rules)
    return np.where(ran, scores, 0)


def _settled(floors: Ints, parts: tuple[Ints, ...], rules: WorkflowScore) -> Ints:
    """The scores of tasks that are within CLOSE of floor + 1/2, compared exactly.

    The four parts come over one denominator D. 2·numerator − (2·floor + 1)·D is computed modulo 2^64; its size is at most
    2·CLOSE·D, so it is exact where D is below 2^76. Elsewhere Python's integers decide.
    """
    success, spared, early, reliability, *wholes = parts
    weights = rules.weights
    common = math.gcd(weights.success, weights.cost, weights.latency, weights.reliability, NANO)
    over_success, over_cost, over_latency, over_reliability = (
        weight // common for weight in (weights.success, weights.cost, weights.latency, weights.reliability)
    )
    tops, bottoms = list[Ints](), list[Ints]()
    for top, whole in zip((success, spared, early), wholes, strict=True):
        factor = np.gcd(top, whole)
        tops.append(top // factor)
        bottoms.append(whole // factor)
    (first, second, third), scale = bottoms, NANO // common

    def terms(tops: Sequence[Any], first: Any, second: Any, third: Any, reliability: Any) -> tuple[Any, Any]:
        """The numerator and D: of arrays modulo 2^64, of Python's integers exactly."""
        whole = first * second * third
        numerator = over_success * tops[0] * second * third + over_cost * NANO * tops[1] * first * third
        numerator = numerator + over_latency * NANO * tops[2] * first * second + over_reliability * reliability * whole
        return numerator, scale * whole

    numerators, wholes_ = terms(tops, first, second, third, reliability)
    over = 2 * numerators - (2 * floors + 1) * wholes_
    scores: Ints = floors + ((over > 0) | ((over == 0) & (floors % 2 == 1)))
    for at in np.flatnonzero(scale * first.astype(np.float64) * second * third >= 2.0**75).tolist():
        scores[at] = half_even(*terms([int(top[at]) for top in tops], *(int(part[at]) for part in (*bottoms, reliability))))
    return scores


def counted(standing: StandingRecords, frame: Frame, rules: WorkflowScore) -> Scored:
    """Each validator's mean over the window of each participant's tasks. SPEC 2.2."""
    columns, failed = standing.columns, np.flatnonzero(standing.columns["outcome"] == SERVICE_ERROR)
    use = standing.cols >= 0
    width = frame.shape[1]
    seen = np.zeros(frame.shape[0] * width, np.bool_)
    cells = standing.rows * width + standing.cols
    seen[cells[use]] = True
    left_out = frozenset[tuple[str, int, str]]()
    if len(failed):
        places = together([columns[name] for name in ("validator", "epoch", "task")])
        use &= ~np.isin(places, places[failed])
        who, when, what = (columns[name][failed].tolist() for name in ("validator", "epoch", "task"))
        named, asked = columns.names["validator"], columns.names["task"]
        left_out = frozenset((named[row], epoch, asked[task]) for row, epoch, task in zip(who, when, what, strict=True))
    if not use.all():
        columns, cells = columns.take(use), cells[use]
    counts = np.bincount(cells, minlength=len(seen))
    if counts.max(initial=0) > rules.window:
        last = _last(columns, cells, counts, rules.window)
        columns, cells = columns.take(last), cells[last]
        counts = np.minimum(counts, rules.window)
    sums = np.zeros(len(seen), np.int64)
    np.add.at(sums, cells, columns[SCORE] if SCORE in columns.numbers else task_scores(columns, rules))
    return averaged(sums, counts.astype(np.int64), frame, standing.first, seen=seen, left_out=left_out)


def averaged(
    sums: Ints,
    counts: Ints,
    frame: Frame,
    first: Mapping[str, int],
    *,
    seen: Bools | None = None,
    left_out: frozenset[tuple[str, int, str]] = frozenset(),
) -> Scored:
    """The scores from sums of S over each window and how many tasks it has. SPEC 2.2.

    Arrays have one element for each cell: row · participants + column. seen: whether there is any record, where some were left
    out for service errors. `first`, `left_out`: as in `Scored`.
    """
    scores, tasks = half_even_all(sums, np.maximum(1, counts)), counts.reshape(frame.shape)
    return Scored(
        scores=scores.reshape(frame.shape),
        counting=tasks > 0,
        emptied=(tasks > 0 if seen is None else seen.reshape(frame.shape)) & (tasks == 0),
        work={"tasks": tasks},
        first=first,
        left_out=left_out,
    )


def _last(columns: Columns, cells: Ints, counts: Ints, window: int) -> Ints:
    """The places of the last `window` tasks of each cell, by (epoch, task)."""
    order = np.lexsort((columns.ranks("task"), columns["epoch"], cells))
    ends = np.cumsum(counts)[cells[order]]
    return order[np.arange(len(order)) >= ends - window]
