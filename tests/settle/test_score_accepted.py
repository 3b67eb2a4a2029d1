"""Which records stand, and for whom they count. SPEC 2, 3.0."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.kind import names
from assay.records import Evidence, Tests, Workflow
from assay.scheme.model import GivenScore
from assay.settle.score import accepted, first_epochs, holding, of_kind, score
from score_kit import axes, make


def trial(outcome: str, **fields: Any) -> Evidence:
    return make("tests", task="t", outcome=outcome, **fields)


def test_the_lowest_seq_of_a_key_counts_in_whatever_order_they_come() -> None:
    records = [trial("fail", seq=9), trial("pass", seq=2), trial("timeout", seq=4)]
    assert accepted(records, axes()) == [records[1]]
    assert accepted(records[::-1], axes()) == [records[1]]


@given(st.permutations([("fail", 9), ("pass", 2), ("pass", 3), ("timeout", 4)]))
def test_the_order_of_the_records_changes_nothing(pairs: list[tuple[str, int]]) -> None:
    [record] = accepted([trial(outcome, seq=seq) for outcome, seq in pairs], axes())
    assert isinstance(record, Tests)
    assert (record.outcome, record.seq) == ("pass", 2)


@pytest.mark.parametrize(
    ("kind", "first", "other"),
    [
        ("workflow", {"outcome": "invalid"}, {"outcome": "service-error"}),
        ("points", {"valid": 1}, {"valid": 2}),
    ],
)
def test_where_the_key_names_the_participant_a_submission_makes_no_other_record(kind: str, first: Any, other: Any) -> None:
    thing = {"task": "t"} if kind == "workflow" else {"repository": "o/r"}
    records = [make(kind, submission="", seq=1, **thing, **first), make(kind, submission="s", seq=2, **thing, **other)]
    assert accepted(records, axes()) == records[:1]
    with pytest.raises(BadInput, match="two different records"):
        accepted([make(kind, submission=name, **thing, **first) for name in ("", "s")], axes())


def test_different_records_of_one_key_without_seq_are_refused() -> None:
    with pytest.raises(BadInput, match="two different records for one key") as caught:
        accepted([trial("fail"), trial("pass")], axes())
    assert "seq" in caught.value.hint
    with pytest.raises(BadInput, match="two different records"):
        accepted([trial("fail", seq=1), trial("pass")], axes())
    with pytest.raises(BadInput, match="two different records"):
        accepted([trial("fail", seq=1), trial("pass", seq=1)], axes())
    with pytest.raises(BadInput, match="two different records"):  # the two equal ones do not hide the third
        accepted([trial("pass"), trial("pass", seq=1), trial("fail", seq=2)], axes())


def test_the_same_record_twice_is_one_record() -> None:
    assert len(accepted([trial("pass"), trial("pass"), trial("pass", seq=3)], axes())) == 1


def test_a_participant_is_no_part_of_the_key_where_the_submission_is() -> None:
    same = [make("tests", task="t", outcome="pass", submission="s", participant=who) for who in ("ann", "bob")]
    assert len(accepted(same, axes())) == 1
    workflows = [make("workflow", participant=who, task="t", submission="s", outcome="invalid") for who in ("ann", "bob")]
    assert len(accepted(workflows, axes())) == 2


def test_without_a_submission_the_participant_is_part_of_the_key() -> None:
    records = [make("given", participant=who, submission="", score=score) for who, score in (("ann", "0.1"), ("bob", "0.2"))]
    assert accepted(records, axes()) == records


def test_a_different_trial_validator_or_task_is_another_key() -> None:
    records = [trial("pass"), trial("fail", trial=2), trial("fail", validator="v2"), make("tests", task="u", outcome="fail")]
    assert accepted(records, axes()) == records


def test_epochs_outside_the_window_are_as_if_absent() -> None:
    early, late, now = trial("fail", epoch=1, seq=1), trial("pass", epoch=6, seq=2), trial("timeout", epoch=5, seq=3)
    assert accepted([early, late, now], axes(epoch=5)) == [early]
    assert accepted([early, late, now], axes(epoch=5, oldest=2)) == [now]  # it is judged again once the first is too old
    assert accepted([trial("fail", epoch=6), trial("pass", epoch=7)], axes(epoch=5)) == []


@pytest.mark.parametrize(("field", "file"), [("validator", "validators.csv"), ("participant", "participants.csv")])
def test_strangers_are_refused(field: str, file: str) -> None:
    with pytest.raises(BadInput, match=f"there is no {field} 'eve'") as caught:
        accepted([trial("pass"), trial("pass", **{field: "eve", "submission": "s"})], axes())
    assert file in caught.value.hint


def test_a_record_of_another_kind_is_refused() -> None:
    records = [make("given", score="1"), make("workflow", task="t", outcome="invalid")]
    assert of_kind(records[1:], Workflow) == records[1:]
    with pytest.raises(BadInput, match="a record of kind 'given' by 'v1' in a competition of kind 'workflow'"):
        of_kind(records, Workflow)


def test_a_record_counts_for_whoever_holds_the_submission() -> None:
    frame = axes(
        ("ann", "bob", "cat", "dan"),
        submissions=("s-ann", "s-ann", "", "s-dan"),
        duplicate_of={"bob": "ann"},
    )
    of = holding(frame)
    assert of(make("given", participant="bob", submission="s-ann", score="1")) == 0
    assert of(make("given", participant="dan", submission="s-ann", score="1")) == 0
    assert of(make("given", participant="dan", submission="older", score="1")) is None
    assert of(make("given", participant="cat", submission="", score="1")) == 2
    assert of(make("given", participant="dan", submission="", score="1")) is None


def test_first_epochs_are_of_any_evidence_about_the_submission() -> None:
    frame = axes(("ann", "bob", "cat"), submissions=("s-ann", "s-ann", ""), duplicate_of={"bob": "ann"}, epoch=5, oldest=4)
    records = [
        trial("pass", epoch=3, seq=1),
        trial("fail", epoch=2, seq=2, participant="bob", submission="s-ann"),
        trial("fail", epoch=1, submission="older"),
        trial("fail", epoch=6, submission="", participant="cat"),
        trial("fail", epoch=4, submission="old", participant="cat"),
    ]
    assert first_epochs(records, frame) == {"ann": 2, "cat": 4}
    assert first_epochs(records[:1], axes(("ann", "bob"))) == {"ann": 3}
    assert first_epochs([], frame) == {}


def test_first_epochs_of_points_are_of_the_participant() -> None:
    records = [make("points", repository="a/b", epoch=epoch, submission=f"s{epoch}") for epoch in (4, 3)]
    assert first_epochs(records, axes()) == {"ann": 3}


def test_every_kind_has_a_scorer() -> None:
    assert list(names()) == ["given", "points", "rubric", "tests", "workflow"]
    assert score([make("given", score="0.5")], axes(), GivenScore(kind="given")).scores.tolist() == [[500_000_000, 0], [0, 0]]
