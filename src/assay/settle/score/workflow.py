"""The score of workflows: success, cost, latency and reliability of each task, averaged over a window of tasks. SPEC 2.2.

- S = 0.50·success + 0.25·cost + 0.15·latency + 0.10·reliability; cost and latency count only if success is above the gate.
- The score is the mean of the last `window` tasks, by epoch and task. Each task is rounded, then the mean.
- If a validator's service failed in a task, the task is left out for every participant that this validator judged in it.
- quality 1, 3 of 4 steps, cost 0.01 of 0.05, 2 s of 10 s, one hard failure → 0.5·0.75 + 0.25·0.8 + 0.15·0.8 + 0.1·0.5 = 0.745.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.exact import NANO, half_even
from assay.records import Evidence, Workflow
from assay.scheme.model import WorkflowScore
from assay.settle.inputs import Frame, Scored
from assay.settle.score import accepted, first_epochs, of_kind

__all__ = ["TaskScore", "score", "succeeded", "task", "windows"]


@dataclass(frozen=True, slots=True)
class TaskScore:
    """How one task went: the four parts and S, all nanos, half to even; S is taken from the exact parts. SPEC 2.2."""

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


def windows(records: Sequence[Workflow], frame: Frame, rules: WorkflowScore) -> dict[tuple[int, int], list[Workflow]]:
    """(validator, participant) → the tasks of its window, in order; none if all were left out for service errors. SPEC 2.2."""
    standing = accepted(records, frame)
    failed = {(record.validator, record.epoch, record.task) for record in standing if record.outcome == "service-error"}
    kept: dict[tuple[int, int], list[Workflow]] = {}
    for record in standing:
        column = frame.column[record.participant]
        if record.submission == frame.submissions[column] and record.participant not in frame.duplicate_of:
            tasks = kept.setdefault((frame.row[record.validator], column), [])
            if (record.validator, record.epoch, record.task) not in failed:
                tasks.append(record)
    return {cell: sorted(tasks, key=_place)[-rules.window :] for cell, tasks in kept.items()}


def _place(record: Workflow) -> tuple[int, bytes]:
    return record.epoch, record.task.encode()


def score(records: Sequence[Evidence], frame: Frame, rules: WorkflowScore) -> Scored:
    """Each validator's mean over the window of each participant's tasks; raises BadInput as `accepted` does. SPEC 2.2."""
    mine = of_kind(records, Workflow)
    scores, count = np.zeros(frame.shape, np.int64), np.zeros(frame.shape, np.int64)
    emptied = np.zeros(frame.shape, np.bool_)
    for cell, window in windows(mine, frame, rules).items():
        emptied[cell] = not window
        if window:
            count[cell] = len(window)
            scores[cell] = half_even(sum(task(record, rules).score for record in window), len(window))
    return Scored(scores=scores, counting=count > 0, emptied=emptied, work={"tasks": count}, first=first_epochs(mine, frame))
