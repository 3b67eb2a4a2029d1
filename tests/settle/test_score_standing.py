"""What is remembered of records that were counted, and the scores from it. SPEC 2, 3.0."""

from typing import Any

import pytest

from assay.errors import BadInput
from assay.exact import NANO
from assay.scheme.model import TestsScore, WorkflowScore
from assay.settle.score import standing
from assay.settle.score.standing import given_lasting, workflow_lasting, workflow_spoilt
from score_kit import axes

Json = dict[str, Any]
TWICE = TestsScore(kind="tests", trials=2)


@pytest.mark.parametrize(
    ("outcome", "trial", "task", "counts"),
    [
        ("pass", 1, "t1", (1, 1, 1)),
        ("pass", 2, "t2", (1, 1, 1)),
        ("fail", 1, "t1", (1, 0, 1)),
        ("timeout", 2, "t1", (1, 0, 1)),
        ("error", 1, "t1", (1, 0, 0)),
        ("pass", 3, "t1", (1, 0, 0)),
        ("pass", 1, "t9", (1, 0, 0)),
        ("error", 3, "t9", (1, 0, 0)),
    ],
)
def test_a_trial_counts_as_a_record_as_passed_and_as_run(
    outcome: str, trial: int, task: str, counts: tuple[int, int, int]
) -> None:
    assert standing.tests_counts({"outcome": outcome, "trial": trial, "task": task}, {"t1", "t2"}, TWICE) == counts


def test_sums_of_counts_are_scored_as_the_trials_are() -> None:
    cells = {
        (0, 0): [4, 3, 4],  # three of four passed
        (0, 1): [4, 2, 3],  # one trial is missing
        (1, 1): [2, 0, 0],  # there are records, and no trial ran
    }
    scored = standing.tests_scored(cells, axes(tasks=("t1", "t2")), TWICE, {"ann": 3})
    assert scored.scores.tolist() == [[750_000_000, 0], [0, 0]]
    assert scored.counting.tolist() == [[True, False], [False, False]]
    assert scored.incomplete is not None
    assert scored.incomplete.tolist() == [[False, True], [False, True]]
    assert scored.missing is not None
    assert scored.missing.tolist() == [[0, 1], [0, 4]]
    assert scored.work["passed"].tolist() == [[3, 0], [0, 0]]
    assert scored.first == {"ann": 3}


def test_without_records_nothing_is_scored_and_nothing_missing() -> None:
    scored = standing.tests_scored({}, axes(tasks=("t1",)), TWICE, {})
    assert scored.scores.tolist() == [[0, 0], [0, 0]]
    assert scored.missing is not None
    assert not scored.missing.any()
    with pytest.raises(BadInput, match="the task set is empty"):
        standing.tests_scored({}, axes(), TWICE, {})


def test_every_trial_passed_is_the_whole_score() -> None:
    scored = standing.tests_scored({(1, 0): [1, 1, 1]}, axes(tasks=("t1",)), TestsScore(kind="tests"), {})
    assert scored.scores.tolist() == [[0, 0], [NANO, 0]]


def run(seq: int, task: str, epoch: int, outcome: str = "ran", validator: str = "v1", submission: str = "s") -> Json:
    return {"seq": seq, "task": task, "epoch": epoch, "outcome": outcome, "validator": validator, "submission": submission}


def kept(values: list[Json], window: int, spoilt: set[tuple[str, int, str]] | None = None) -> list[int]:
    """The seq of the records that `workflow_lasting` keeps, ascending."""
    rules = WorkflowScore(kind="workflow", window=window)
    return sorted(value["seq"] for value in workflow_lasting(values, rules, spoilt or set()))


def test_a_service_error_alone_takes_a_task_out() -> None:
    assert workflow_spoilt(run(1, "t1", 4, "service-error")) == ("v1", 4, "t1")
    assert workflow_spoilt(run(1, "t1", 4)) is None
    assert workflow_spoilt(run(1, "t1", 4, "invalid")) is None


def test_the_window_is_of_the_last_epochs_and_in_an_epoch_of_the_last_names() -> None:
    values = [run(1, "a", 1), run(2, "b", 3), run(3, "zz", 2), run(4, "c", 3), run(5, "d", 2)]
    assert kept(values, 1) == [1, 4]  # the first record says when the submission was accepted
    assert kept(values, 2) == [1, 2, 4]
    assert kept(values, 3) == [1, 2, 3, 4]
    assert kept(values, 9) == [1, 2, 3, 4, 5]


def test_names_of_tasks_are_in_the_order_of_their_bytes() -> None:
    values = [run(1, "a", 1), run(2, "z", 2), run(3, "é", 2)]
    assert kept(values, 1) == [1, 3]


def test_each_validator_and_each_submission_has_a_window() -> None:
    values = [run(1, "a", 1), run(2, "b", 2), run(3, "b", 2, validator="v2"), run(4, "b", 2, submission="other")]
    assert kept(values, 1) == [1, 2, 3, 4]


def test_a_task_that_may_be_left_out_takes_no_place_of_the_window() -> None:
    values = [run(1, "a", 1), run(2, "b", 2), run(3, "c", 3), run(4, "d", 4)]
    assert kept(values, 1, {("v1", 4, "d")}) == [1, 3, 4]
    assert kept(values, 1, {("v1", 3, "d"), ("v2", 4, "d"), ("v1", 4, "c")}) == [1, 4]


def test_a_service_error_is_kept_where_the_window_does_not_reach() -> None:
    values = [run(1, "a", 1), run(2, "b", 2, "service-error"), run(3, "c", 3, "invalid"), run(4, "d", 4)]
    assert kept(values, 1, {("v1", 2, "b")}) == [1, 2, 4]


def test_the_record_that_says_when_a_submission_was_accepted_is_the_lowest_seq_of_the_lowest_epoch() -> None:
    values = [run(7, "a", 2), run(8, "b", 1), run(5, "c", 1, validator="v2"), run(9, "d", 5), run(1, "e", 5, validator="v2")]
    assert kept(values, 1) == [1, 5, 9]
    assert kept(values[::-1], 1) == [1, 5, 9]


def test_a_record_is_kept_once() -> None:
    assert kept([run(1, "a", 1)], 3) == [1]


def test_of_each_validator_the_score_of_the_latest_epoch_is_kept() -> None:
    values = [
        {"validator": "v1", "epoch": 2, "score": "0.2"},
        {"validator": "v2", "epoch": 1, "score": "0.3"},
        {"validator": "v1", "epoch": 5, "score": "0.5"},
        {"validator": "v1", "epoch": 4, "score": "0.4"},
    ]
    assert given_lasting(values) == [values[2], values[1]]
    assert given_lasting([]) == []
