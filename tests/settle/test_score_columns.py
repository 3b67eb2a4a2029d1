"""Scores from arrays equal those of the same records one by one, to the bit; so do refusals. SPEC 2, 3.0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.exact import NANO, half_even, text
from assay.kind import find
from assay.records import Evidence
from assay.scheme.model import Check, GivenScore, PointsScore, RubricScore, TestsScore, WorkflowScore
from assay.settle.columns import Columns, RecordTable, half_even_all, repeated, together
from assay.settle.inputs import Frame, Scored
from assay.settle.score import score, workflow
from by_record import SCORERS, assert_same
from score_kit import axes, make

THIRDS = dict.fromkeys(("success", "cost", "latency"), "0.333333333") | {"reliability": "0.000000001"}
TABLE = {"o/r": "5", "o/s": "0.000000003"}
CHECKS = (Check(id="a", weight=7001, skippable=False), Check(id="b.c", weight=2999))
RULES: dict[str, list[Any]] = {
    "tests": [TestsScore(kind="tests"), TestsScore(kind="tests", trials=2), TestsScore(kind="tests", trials=2, passed_by="all")],
    "workflow": [
        WorkflowScore(kind="workflow", window=2),
        WorkflowScore.model_validate(
            {"kind": "workflow", "weights": THIRDS, "gate": "0", "penalties": {"unplanned_retry": "0.000000001"}}
        ),
    ],
    "rubric": [
        RubricScore(kind="rubric", checks=CHECKS),
        RubricScore(kind="rubric", checks=CHECKS, injection="unjudged"),
    ],
    "points": [
        PointsScore.model_validate({"kind": "points", "repositories": TABLE}),
        PointsScore.model_validate({"kind": "points", "repositories": TABLE, "window_epochs": 2}),
        PointsScore.model_validate({"kind": "points", "repositories": TABLE, "invalid": "subtract", "stars_alone": True}),
        PointsScore.model_validate({"kind": "points", "repositories": {"o/r": "99999999999999999999"}, "full_points": 3}),
    ],
    "given": [GivenScore(kind="given")],
}
FRACTION = st.sampled_from(["0", "1", "0.7", "0.5", "0.333333333", "0.000000001", "0.100000001"])
AMOUNT = st.sampled_from(["0", "1", "3", "0.05", "999999999.999999999", "0.000000007", "7.1"])
POSITIVE = st.sampled_from(["1", "3", "0.05", "999999999.999999999", "0.000000007", "7.1"])
SMALL = st.integers(0, 3) | st.just(10**9)
ANSWERS = st.sampled_from([True, True, False, None, 1, "yes"])


@st.composite
def _ran(draw: st.DrawFn) -> dict[str, Any]:
    total = draw(st.sampled_from([1, 2, 3, 7, 64, 10**9]))
    return {
        "quality": draw(FRACTION),
        "steps_completed": draw(st.integers(0, total)),
        "steps_total": total,
        "cost": draw(AMOUNT),
        "budget": draw(POSITIVE),
        "seconds": draw(AMOUNT),
        "max_seconds": draw(POSITIVE),
        "retries": draw(SMALL),
        "declared_retries": draw(SMALL),
        "timeouts": draw(SMALL),
        "hard_failures": draw(SMALL),
    }


FIELDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "tests": st.fixed_dictionaries(
        {"task": st.sampled_from(["t1", "t2", "x"]), "outcome": st.sampled_from(["pass", "fail", "timeout", "error"])},
        optional={"trial": st.integers(1, 3)},
    ),
    "workflow": st.tuples(
        st.fixed_dictionaries({"task": st.sampled_from(["t1", "t2", "é", "t10"])}),
        st.one_of(_ran(), _ran(), st.sampled_from([{"outcome": "invalid"}, {"outcome": "service-error"}])),
    ).map(lambda pair: pair[0] | pair[1]),
    "rubric": st.fixed_dictionaries(
        {
            "baseline": st.just(dict.fromkeys(["B1", "B2", "B3", "B4"], True))
            | st.fixed_dictionaries(dict.fromkeys(["B1", "B2", "B3", "B4"], ANSWERS))
            | st.sampled_from([None, [], {}]),
            "checks": st.fixed_dictionaries({"a": ANSWERS, "b.c": ANSWERS}) | st.sampled_from([None, 3, {"a": True}]),
            "verdict": st.sampled_from(
                ["EXCEPTIONAL", "ELEGANT", "COHERENT", "MINOR_ISSUES", "FLAWED", "FUNDAMENTALLY_BROKEN", "?", None]
            ),
        },
        optional={"outcome": st.sampled_from(["judged", "unjudged"]), "injection_suspected": st.booleans()},
    ),
    "points": st.fixed_dictionaries(
        {"repository": st.sampled_from(["o/r", "o/s", "o/x"])},
        optional=dict.fromkeys(["valid", "invalid", "revoked_valid", "revoked_invalid"], SMALL) | {"starred": st.booleans()},
    ),
    "given": st.fixed_dictionaries({"score": FRACTION}),
}


@st.composite
def records(draw: st.DrawFn, kind: str) -> list[Evidence]:
    common: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
        {
            "validator": st.sampled_from(["v1", "v2"]),
            "participant": st.sampled_from(["ann", "bob", "cid", "dan"]),
            "submission": st.sampled_from(["s-ann", "s-ann", "s-bob", "", "old"]),
            "epoch": st.sampled_from([1, 3, 4, 5, 5, 6]),
        },
        optional={"seq": st.integers(0, 5)},
    )
    evidence = [make(kind, **draw(common), **draw(FIELDS[kind])) for _ in range(draw(st.integers(0, 7)))]
    if draw(st.booleans()):
        evidence = [item.model_copy(update={"seq": 100 - at}) for at, item in enumerate(evidence)]
    return evidence + draw(st.lists(st.sampled_from(evidence), max_size=2)) if evidence else evidence


def outcome(of: Any, evidence: list[Evidence], frame: Frame, rules: Any) -> Scored | type[BadInput]:
    try:
        scored: Scored = of(evidence, frame, rules)
    except BadInput:
        return BadInput
    return scored


@pytest.mark.parametrize("kind", RULES)
@given(st.data())
def test_arrays_give_what_records_give(kind: str, data: st.DataObject) -> None:
    frame = axes(
        ("ann", "bob", "cid", "dan"),
        submissions=("s-ann", "s-bob", "", "s-ann"),
        duplicate_of={} if find(kind).record.by_participant else {"dan": "ann"},
        tasks=("t1", "t2"),
        oldest=data.draw(st.sampled_from([0, 3])),
    )
    rules, evidence = data.draw(st.sampled_from(RULES[kind])), data.draw(records(kind))
    ours, theirs = outcome(score, evidence, frame, rules), outcome(SCORERS[kind], evidence, frame, rules)
    if isinstance(ours, Scored) and isinstance(theirs, Scored):
        assert_same(ours, theirs)
    else:
        assert ours == theirs


@pytest.mark.parametrize("rules", RULES["workflow"])
@given(runs=st.lists(_ran(), min_size=1, max_size=20))
def test_each_task_is_rounded_exactly(rules: WorkflowScore, runs: list[dict[str, Any]]) -> None:
    tasks = [make("workflow", task="t", **fields) for fields in runs]
    exact = [workflow.task(task, rules).score for task in tasks]  # type: ignore[arg-type]
    assert workflow.task_scores(Columns.of(tasks, workflow.COLUMNS), rules).tolist() == exact


def test_a_half_goes_to_the_even_nano_without_python_integers() -> None:
    """quality × 3/4 × 1/2 of odd nanos ends in eighths: one in eight is a half, and some are just beside one."""
    rules = WorkflowScore(kind="workflow")
    fields: dict[str, Any] = {
        "steps_completed": 3,
        "steps_total": 4,
        "cost": "2",
        "budget": "1",
        "seconds": "2",
        "max_seconds": "1",
        "hard_failures": 2,
    }
    tasks = [make("workflow", task="t", quality=text(number), **fields) for number in range(1, 64)]
    exact = [half_even(3 * number, 8) for number in range(1, 64)]
    assert workflow.task_scores(Columns.of(tasks, workflow.COLUMNS), rules).tolist() == exact


@given(st.lists(st.tuples(st.integers(0, 10**18), st.integers(1, 10**9)), min_size=1))
def test_halves_go_to_the_even_number(pairs: list[tuple[int, int]]) -> None:
    tops, bottoms = (np.array(values, np.int64) for values in zip(*pairs, strict=True))
    assert half_even_all(tops, bottoms).tolist() == [half_even(*pair) for pair in pairs]


@given(st.lists(st.tuples(*[st.sampled_from([0, 1, 2**52, 2**53 - 1])] * 3), max_size=12))
def test_records_have_one_number_if_their_fields_are_equal(rows: list[tuple[int, ...]]) -> None:
    fields = [np.array(column, np.int64) for column in zip(*rows, strict=True)] or [np.empty(0, np.int64)]
    numbers = together(fields)
    assert [[number == other for other in numbers.tolist()] for number in numbers.tolist()] == [
        [a == b for b in rows] for a in rows
    ]
    assert repeated(numbers).tolist() == [at for at, row in enumerate(rows) if rows.count(row) > 1]
    dense = np.array([0, 1, 1, 5], np.int64)
    assert repeated(dense).tolist() == [1, 2]


def test_numbers_stay_below_64_bits_where_every_field_is_large() -> None:
    fields = [np.array([0, 2**62, 5], np.int64), np.array([0, 2**61, 2**61], np.int64), np.array([2**62, 0, 0], np.int64)]
    assert len(set(together(fields).tolist())) == 3
    assert len(set(together([*fields, np.array([1, 1, 2**62], np.int64)]).tolist())) == 3


def test_a_table_reads_the_records_that_somebody_looks_at() -> None:
    evidence = [
        make("given", score="0.5"),
        make("given", participant="bob", score="1"),
        make("given", validator="v2", score=text(NANO // 4)),
    ]
    asked: list[list[int]] = []

    def read(at: Any) -> list[Evidence]:
        asked.append(at.tolist())
        return [evidence[index] for index in at.tolist()]

    table = RecordTable(Columns.of(evidence, find("given").columns(RULES["given"][0])), read)
    frame = axes()
    assert_same(score(table, frame, RULES["given"][0]), SCORERS["given"](evidence, frame, RULES["given"][0]))
    assert asked == []
    assert list(table.about(frame, 0)) == [evidence[0], evidence[2]]
    assert list(table.about(axes(submissions=("", "")), 0)) == [evidence[0], evidence[2]]
    assert list(table.take(np.array([2, 1]))) == [evidence[2], evidence[1]]
    assert asked == [[0, 2], [0, 2], [2, 1]]
    assert (len(table), table[1], list(table[1:])) == (3, evidence[1], evidence[1:])


def test_records_without_a_submission_have_a_slot_of_their_participant() -> None:
    given = [
        make("given", who, whom, submission=submission, score="1")
        for who, whom, submission in (
            ("v1", "ann", ""),
            ("v1", "bob", ""),
            ("v1", "ann", "s"),
            ("v1", "bob", "s"),
            ("v2", "bob", ""),
            ("v1", "ann", ""),
        )
    ]
    columns = Columns.of(given, find("given").columns(RULES["given"][0]))
    assert columns.twice(True, ()).tolist() == [0, 2, 3, 5]
    assert Columns(columns.numbers, columns.names).twice(False, ()).tolist() == [0, 1, 2, 3, 5]
