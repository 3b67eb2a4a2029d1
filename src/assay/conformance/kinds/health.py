"""The kind of case for the health of tasks: counts of trials, and the words that follow. docs/task-health.md.

It is a file of its own, as the duel's is: the kinds of a settlement do not need the rules that only inform.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from assay.conformance.kinds.stages import kind
from assay.errors import BadInput
from assay.rules.task_health import TrialCount
from assay.rules.task_health import task_health as health_of
from assay.scheme.fields import Key, Section

__all__ = ["task_health"]

Json = dict[str, Any]


class _TaskTrials(Section):
    task: Key
    participant: Key
    outcomes: Annotated[tuple[Literal["pass", "fail", "timeout", "error"], ...], Field(strict=False, max_length=10_000)]


class _TaskHealth(Section):
    tasks: Annotated[tuple[Key, ...], Field(strict=False, min_length=1, max_length=10_000)]
    results: Annotated[tuple[_TaskTrials, ...], Field(strict=False)]


@kind(_TaskHealth)
def task_health(given: _TaskHealth) -> Json:
    """The health of each task from the outcomes of its trials: exact counts, and the words dead, flaky, never-separating and
    negative. docs/task-health.md."""
    if len(set(given.tasks)) != len(given.tasks):
        raise BadInput("a task is there twice", field="tasks", hint="keep one of the two")
    rows = {(row.task, row.participant): row.outcomes for row in given.results}
    if len(rows) != len(given.results):
        raise BadInput("a participant's trials of a task are there twice", field="results", hint="put them into one list")
    if not {task for task, _ in rows} <= set(given.tasks):
        raise BadInput("there are results of a task that is not named", field="results", hint="name every task in tasks")
    people = sorted({participant for _, participant in rows})
    counts = {task: [_count(rows.get((task, key), ())) for key in people] for task in given.tasks}
    return {"tasks": [health.document() for health in health_of(counts)]}


def _count(outcomes: tuple[str, ...]) -> TrialCount:
    passed, errors = outcomes.count("pass"), outcomes.count("error")
    return TrialCount(passed, len(outcomes) - passed - errors, errors)
