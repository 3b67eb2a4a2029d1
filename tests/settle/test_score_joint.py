"""A task that passes by all validators: one score of all who count, by exact shares. SPEC 3.0."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.exact import NANO
from assay.folder import parse_case
from assay.kind import find
from assay.scheme.model import TestsScore
from assay.settle import settle
from assay.settle.score import score
from assay.settle.score.trials import jointly
from score_kit import axes, make

VALIDATORS, PEOPLE = ("v1", "v2", "v3"), ("ann", "bob")


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, int, dict[tuple[str, str, int, int], str]]:
    """Tasks, trials, and the outcome of some trials: validator, participant, task, trial → outcome."""
    tasks, trials = draw(st.integers(1, 17)), draw(st.integers(1, 2))
    outcomes = st.sampled_from(["pass", "pass", "pass", "fail", "error"])
    cells = product(VALIDATORS, PEOPLE, range(tasks), range(1, trials + 1))
    return tasks, trials, {cell: draw(outcomes) for cell in cells if draw(st.integers(0, 40))}


@pytest.mark.no_cover
@given(runs(), st.lists(st.booleans(), min_size=6, max_size=6))
def test_the_score_is_the_share_of_tasks_that_all_who_count_saw_pass(drawn: Any, seated: list[bool]) -> None:
    tasks, trials, outcomes = drawn
    rules = TestsScore(kind="tests", trials=trials, passed_by="all")
    frame = axes(PEOPLE, VALIDATORS, tasks=[f"t{task}" for task in range(tasks)])
    records = [make("tests", v, p, task=f"t{t}", trial=k, outcome=outcome) for (v, p, t, k), outcome in outcomes.items()]
    scored = score(records, frame, rules)
    counting = scored.counting & np.array(seated).reshape(3, 2)
    joint = jointly(scored, counting, tasks)
    for column, person in enumerate(PEOPLE):
        count = [validator for row, validator in enumerate(VALIDATORS) if counting[row, column]]
        passed = sum(
            all(outcomes[v, person, task, k] == "pass" for v, k in product(count, range(1, trials + 1))) for task in range(tasks)
        )
        for row in range(3):
            expected = round(Fraction(passed, tasks) * NANO) if counting[row, column] else scored.scores[row, column]
            assert joint.scores[row, column] == expected
    assert joint.work == scored.work


def test_sums_are_enough_only_where_each_validator_has_its_score() -> None:
    kind = find("tests")
    assert kind.tallied(TestsScore(kind="tests"))
    assert not kind.tallied(TestsScore(kind="tests", passed_by="all"))
    assert not find("given").tallied(None)


def points(**rules: Any) -> Any:
    head = {"kind": "points", "epoch": 1, "validator": "v", "submission": "", "observed_at": "2026-11-02T09:00:00Z"}
    return {
        "scheme": {
            "scheme": {"name": "s"},
            "score": {"kind": "points", "repositories": {"o/r": "5"}} | rules,
            "consensus": {"min_validators": 1},
        },
        "epoch": 1,
        "participants": [{"key": "a", "uid": 1}],
        "validators": [{"key": "v", "stake": "1"}],
        "evidence": [head | {"participant": "a", "repository": "o/r", "valid": 3, "invalid": 1, "starred": True}],
    }


def test_a_story_of_points_says_which_rules_were_chosen() -> None:
    sentences = settle(parse_case(points(invalid="subtract", stars_alone=True))).explain("a")["evidence"].text
    assert sentences[1:] == (
        "An invalid issue takes the points of its repository away.",
        "Stars count without a valid issue too.",
    )
    assert len(settle(parse_case(points())).explain("a")["evidence"].text) == 1
