"""Scores record by record, in plain Python: the oracle of the scorers over arrays. SPEC 2, 3.0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from assay.exact import BPS, NANO, half_even
from assay.records import Evidence, Given, Points, Rubric, Tests, Workflow
from assay.scheme.model import GivenScore, PointsScore, RubricScore, TestsScore, WorkflowScore
from assay.settle.inputs import Frame, Ints, Scored
from assay.settle.score import accepted, first_epochs, holding, of_kind
from assay.settle.score.points import Tally, points
from assay.settle.score.rubric import judge
from assay.settle.score.trials import tally
from assay.settle.score.workflow import task, windows


def by_tests(records: Sequence[Evidence], frame: Frame, rules: TestsScore) -> Scored:
    """Each validator's pass rate of each participant's submission; raises BadInput as `accepted` and `tally` do. SPEC 2.1."""
    mine = of_kind(records, Tests)
    width = len(frame.participants)
    seen: list[
        int
    ] = []  # the cell, validator · width + participant, of each record; then of each trial that ran, and that passed
    run: list[int] = []
    passed: list[int] = []
    tasks, trials = frozenset(frame.tasks), rules.trials
    times: dict[tuple[int, str], int] = {}  # how many trials of a task passed, by cell
    row, column_of = frame.row, holding(frame)
    for record in accepted(mine, frame):
        column = column_of(record)
        if column is None:
            continue
        cell = row[record.validator] * width + column
        seen.append(cell)
        if record.outcome != "error" and record.trial <= trials and record.task in tasks:
            run.append(cell)
            if record.outcome == "pass":
                passed.append(cell)
                times[cell, record.task] = times.get((cell, record.task), 0) + 1

    def counted(cells: list[int]) -> Ints:
        return np.bincount(np.array(cells, np.int64), minlength=frame.shape[0] * width).reshape(frame.shape)

    scored = tally(
        counted(passed),
        len(tasks) * trials - counted(run),
        counted(seen) > 0,
        frame,
        rules,
        first_epochs(mine, frame),
    )
    if rules.passed_by != "all":
        return scored
    whole = [[times.get((cell, task), 0) == trials for task in frame.tasks] for cell in range(frame.shape[0] * frame.shape[1])]
    bits = np.packbits(np.array(whole, np.bool_), axis=1)
    return replace(scored, passes=bits.reshape(*frame.shape, -1))


def by_workflow(records: Sequence[Evidence], frame: Frame, rules: WorkflowScore) -> Scored:
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


def by_rubric(records: Sequence[Evidence], frame: Frame, rules: RubricScore) -> Scored:
    """Each validator's BPS of each submission, as nanos; raises BadInput as `accepted` does. SPEC 2.3."""
    mine = of_kind(records, Rubric)
    scores = np.zeros(frame.shape, np.int64)
    counting, unjudged, suspected = (np.zeros(frame.shape, np.bool_) for _ in range(3))
    numbers = {name: np.zeros(frame.shape, np.int64) for name in ("base", "missed_skippable", "bps")}
    flags = {name: np.zeros(frame.shape, np.bool_) for name in ("gate", "capped")}
    verdicts = np.full(frame.shape, None, np.object_)
    column_of = holding(frame)
    for record in accepted(mine, frame):
        column = column_of(record)
        if column is None:
            continue
        cell = (frame.row[record.validator], column)
        grade = judge(record.baseline, record.checks, record.verdict, rules) if record.outcome == "judged" else None
        if grade is None:
            unjudged[cell] = True
            continue
        if record.injection_suspected and rules.injection is not None:
            unjudged[cell] = suspected[cell] = True
            continue
        counting[cell] = True
        scores[cell] = grade.bps * (NANO // BPS)
        verdicts[cell] = grade.verdict
        for name, number in numbers.items():
            number[cell] = getattr(grade, name)
        for name, flag in flags.items():
            flag[cell] = getattr(grade, name)
    work: dict[str, Any] = {**numbers, "verdict": verdicts, **flags}
    first = first_epochs(mine, frame)
    return Scored(scores=scores, counting=counting, unjudged=unjudged, suspected=suspected, work=work, first=first)


def by_given(records: Sequence[Evidence], frame: Frame, rules: GivenScore) -> Scored:
    """Each validator's latest score of each submission; raises BadInput as `accepted` does. SPEC 2.5."""
    mine = of_kind(records, Given)
    latest: dict[tuple[int, int], Given] = {}
    column_of = holding(frame)
    for record in accepted(mine, frame):
        column = column_of(record)
        if column is not None:
            cell = (frame.row[record.validator], column)
            latest[cell] = max(latest.get(cell, record), record, key=lambda given: given.epoch)
    scores, epochs = np.zeros(frame.shape, np.int64), np.zeros(frame.shape, np.int64)
    counting = np.zeros(frame.shape, np.bool_)
    for cell, record in latest.items():
        counting[cell], scores[cell], epochs[cell] = True, record.score, record.epoch
    return Scored(scores=scores, counting=counting, work={"epoch": epochs}, first=first_epochs(mine, frame))


def by_points(records: Sequence[Evidence], frame: Frame, rules: PointsScore) -> Scored:
    """Each validator's count of each participant's issues, as a score; raises BadInput as `accepted` does. SPEC 2.4."""
    mine = of_kind(records, Points)
    start = frame.oldest if rules.window_epochs is None else max(frame.oldest, frame.epoch - rules.window_epochs + 1)
    cells: dict[tuple[int, int], dict[str, list[Points]]] = {}
    for record in accepted(mine, frame):
        if record.repository in rules.repositories:
            cell = (frame.row[record.validator], frame.column[record.participant])
            cells.setdefault(cell, {}).setdefault(record.repository, []).append(record)
    counting = np.zeros(frame.shape, np.bool_)
    # Object arrays hold Python integers: a table may value an issue beyond 64 bits of nanos.
    arrays = {name: np.full(frame.shape, 0, np.object_) for name in ("valid", "invalid", "starred", "points", "score")}
    for cell, repositories in cells.items():
        if any(record.epoch >= start for of_repository in repositories.values() for record in of_repository):
            counting[cell] = True
            tally = _tally(repositories, start, rules)
            for name, array in arrays.items():
                array[cell] = getattr(tally, name)
    scores = arrays.pop("score").astype(np.int64)
    return Scored(scores=scores, counting=counting, work=arrays, first=first_epochs(mine, frame))


def _tally(repositories: Mapping[str, Sequence[Points]], start: int, rules: PointsScore) -> Tally:
    """The sums since `start`; stars as the latest record of any epoch says."""
    valid, invalid = dict[str, int](), dict[str, int]()
    starred = 0
    for repository, of_repository in repositories.items():
        recent = [record for record in of_repository if record.epoch >= start]
        valid[repository] = max(0, sum(record.valid - record.revoked_valid for record in recent))
        invalid[repository] = max(0, sum(record.invalid - record.revoked_invalid for record in recent))
        starred += max(of_repository, key=lambda record: record.epoch).starred
    return points(valid, invalid, starred, rules)


SCORERS: dict[str, Callable[..., Scored]] = {
    "tests": by_tests,
    "workflow": by_workflow,
    "rubric": by_rubric,
    "given": by_given,
    "points": by_points,
}


def assert_same(scored: Scored, other: Scored) -> None:
    """Fail unless two scorings are equal in every number, except which tasks were left out."""
    for name in ("scores", "counting", "incomplete", "unjudged", "suspected", "emptied", "missing", "passes"):
        np.testing.assert_array_equal(getattr(scored, name), getattr(other, name), name)
    assert scored.first == other.first
    assert scored.work.keys() == other.work.keys()
    for name, values in scored.work.items():
        np.testing.assert_array_equal(values, other.work[name], name)
