"""Evidence of one validator about one participant into its score. SPEC 2."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from assay.conformance.kinds.kind import kind
from assay.errors import BadInput
from assay.exact import text
from assay.folder import tasks as task_sets
from assay.folder.places import Place
from assay.records import Count, Workflow, record
from assay.scheme.bounty import Format
from assay.scheme.fields import Key, Section
from assay.scheme.model import PointsScore, RubricScore, WorkflowScore
from assay.settle.score import points as by_points
from assay.settle.score import rubric as by_rubric
from assay.settle.score import tests as by_tests
from assay.settle.score import workflow as by_workflow

__all__ = ["points", "rubric", "rubric_answer", "task_set", "tests", "workflow"]

Json = dict[str, Any]
HEAD = {"epoch": 0, "validator": "v", "participant": "p", "submission": "s", "observed_at": "2026-01-01T00:00:00Z"}
"""What a record carries that its score does not depend on."""


class _Tests(Section):
    passed: Count
    trials: Annotated[int, Field(ge=1, le=10**9)]


@kind(_Tests)
def tests(given: _Tests) -> Json:
    """Trials passed, of all trials of the task set (tasks × trials), into the score. SPEC 2.1."""
    if given.passed > given.trials:
        raise BadInput("more trials are passed than there are", field="passed", hint="correct one of the two")
    return {"score": text(by_tests.score_of(given.passed, given.trials))}


class _Workflow(Section):
    score: WorkflowScore
    task: dict[str, Any]


@kind(_Workflow)
def workflow(given: _Workflow) -> Json:
    """One task of a workflow, by the scheme's [score] section: the four parts and S, each half to even. SPEC 2.2."""
    found = record({"kind": "workflow", "task": "t", **HEAD, **given.task})
    if not isinstance(found, Workflow) or found.outcome == "service-error":
        raise BadInput("a task that a service error took out has no score", field="task.outcome", hint='use "ran" or "invalid"')
    parts = by_workflow.task(found, given.score)
    return {name: text(getattr(parts, name)) for name in ("success", "cost", "latency", "reliability", "score")}


class _RubricAnswer(Section):
    format: Format
    content: str


@kind(_RubricAnswer)
def rubric_answer(given: _RubricAnswer) -> Json:
    """What is left of what a model answered, to be read as one JSON object, once a fence or a thought is taken off. SPEC 2.3."""
    return {"text": by_rubric.answer_text(given.content, given.format)}


class _Rubric(Section):
    score: RubricScore
    baseline: Any = None
    checks: Any = None
    verdict: Any = None


@kind(_Rubric)
def rubric(given: _Rubric) -> Json:
    """One judgement, by the [score] section: how its BPS came about; or that it is malformed, which is not 0. SPEC 2.3."""
    found = by_rubric.judge(given.baseline, given.checks, given.verdict, given.score)
    if found is None:
        return {"malformed": True}
    return {name: getattr(found, name) for name in ("base", "missed_skippable", "verdict", "gate", "capped", "bps")}


class _Points(Section):
    score: PointsScore
    valid: dict[Key, Count]
    invalid: Count
    starred: Count


@kind(_Points)
def points(given: _Points) -> Json:
    """Valid issues by repository, invalid ones, starred repositories, by the [score] section: points and score. SPEC 2.4."""
    unknown = sorted(given.valid.keys() - given.score.repositories.keys())
    if unknown:
        raise BadInput(f"{unknown[0]!r} is not in the table", field="valid", hint="issues elsewhere are not counted")
    found = by_points.points(given.valid, given.invalid, given.starred, given.score)
    return {"valid": found.valid, "points": text(found.points), "score": text(found.score)}


class _TaskSet(Section):
    lines: Annotated[tuple[str, ...], Field(strict=False)]


@kind(_TaskSet)
def task_set(given: _TaskSet) -> Json:
    """The lines of tasks.txt into the task ids, in their order, and the digest of the set. SPEC 2.1, 6."""
    text = "\n".join(given.lines).encode()
    found = task_sets.parse(task_sets.lines(text, "tasks.txt"), 1, Place("tasks.txt"))
    return {"ids": list(found.ids), "digest": found.digest}
