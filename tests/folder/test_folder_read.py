"""A folder and a JSON case of the same competition are read into the same value."""

import copy
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import small_folder
from assay import folder
from assay.errors import BadInput, CannotSettle
from assay.exact import digest
from assay.folder import strict
from assay.records import Evidence, History, Participant, Validator
from assay.settle.inputs import Clock, Inputs, Own, Previous, Scored
from small_folder import settlement

KINDS = sorted(small_folder.SCHEMES)
CASE: Mapping[str, Any] = {
    "scheme": {"scheme": {"name": "small"}, "score": {"kind": "tests"}},
    "participants": [
        {"key": "m1", "uid": 1, "name": "", "submission": "s1", "submitted_at": "2026-11-02T09:00:00Z", "address": ""},
        {"key": "m2", "uid": 2, "name": None, "submission": "s2", "submitted_at": None},
    ],
    "validators": [{"key": "v1", "stake": "100"}, {"key": "v2", "stake": "200"}, {"key": "v3", "stake": "300"}],
    "tasks": ["t1", "t2"],
    "evidence": [small_folder.record(validator=validator) for validator in ("v1", "v2", "v3")],
}


def case(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(dict(CASE)) | changes


def parts(inputs: Inputs) -> dict[str, Any]:
    return {name: getattr(inputs, name) for name in Inputs.__dataclass_fields__}


def records(inputs: Inputs) -> Sequence[Evidence]:
    assert not isinstance(inputs.evidence, Scored)
    return inputs.evidence


def test_a_folder(tmp_path: Path) -> None:
    inputs = folder.read(small_folder.make(tmp_path))
    assert inputs.epoch == 3
    assert inputs.participants[0] == Participant(
        key="m1", uid=1, submission="s1", submitted_at=datetime(2026, 11, 2, 9, tzinfo=UTC)
    )
    assert inputs.validators[2] == Validator("v3", 300)
    assert inputs.tasks == ("t1", "t2")
    assert inputs.task_set == digest(["t1", "t2"])
    assert len(records(inputs)) == 3
    assert (inputs.history, dict(inputs.randomness), inputs.previous) == ((), {}, None)


def test_a_case_is_the_same(tmp_path: Path) -> None:
    assert parts(folder.parse_case(case())) == parts(folder.read(small_folder.make(tmp_path)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(tmp_path: Path, kind: str) -> None:
    inputs = folder.read(small_folder.make(tmp_path, kind))
    assert {record.kind for record in records(inputs)} == {kind}
    assert (inputs.task_set is None) == (kind != "tests")


def test_everything_that_may_be_there(tmp_path: Path) -> None:
    address = "0x" + "Ab" * 20
    inputs = folder.read(
        small_folder.make(
            tmp_path,
            participants_csv="\ufeffaddress,key,accepted_epoch,last_reset_epoch,name\r\n"
            f'{address},m1,2,1,"a, ""b"""\r\n\r\n ,  m2 ,,,\r\n',
            history_csv="epoch,top_score,submission,task_set\n2,0.75,s0,\n1,0.5,,one\n",
            randomness_csv=f"epoch,hex\n2,{'0f' * 32}\n",
            tasks_txt=f"# the set\n\nt2\tsha256:{'a' * 64}   shared\n  t1 snapshot\n",
            evidence=small_folder.lines([small_folder.record(), small_folder.record(epoch=4)]) + "\n  \n",
        ),
        epoch=3,
    )
    assert inputs.participants == (
        Participant("m1", name='a, "b"', last_reset_epoch=1, accepted_epoch=2, address=address),
        Participant("m2"),
    )
    assert inputs.history == (History(1, 500_000_000, "", "one"), History(2, 750_000_000, "s0", ""))
    assert inputs.randomness == {2: b"\x0f" * 32}
    assert inputs.tasks == ("t2", "t1")
    assert inputs.task_set == digest(["t1 snapshot", f"t2 sha256:{'a' * 64} shared"])
    assert [record.epoch for record in records(inputs)] == [3]


def test_the_task_set_does_not_depend_on_order_or_spaces(tmp_path: Path) -> None:
    inputs = folder.read(small_folder.make(tmp_path / "1", tasks_txt="b shared\na\n"))
    other = folder.read(small_folder.make(tmp_path / "2", tasks_txt="#x\na\r\nb   shared"))
    assert inputs.task_set == other.task_set
    assert inputs.task_set != folder.read(small_folder.make(tmp_path / "3", tasks_txt="a\nb")).task_set


def test_no_evidence(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, evidence=None)
    with pytest.raises(CannotSettle, match="evidence: there is no evidence, so there is no epoch to settle"):
        folder.read(place)
    assert folder.read(place, epoch=7).evidence == ()
    (place / "evidence").rmdir()
    assert folder.read(place, epoch=7).evidence == ()
    with pytest.raises(CannotSettle):
        folder.parse_case(case(evidence=[]))
    assert folder.parse_case(case(evidence=None, epoch=0)).epoch == 0


def test_the_first_accepted_record_needs_a_seq(tmp_path: Path) -> None:
    first, second = small_folder.record(seq=1), small_folder.record(outcome="fail", seq=2)
    assert len(records(folder.parse_case(case(evidence=[first, second])))) == 2
    same = small_folder.record(participant="m2")  # who is named is no part of it
    assert len(records(folder.parse_case(case(evidence=[small_folder.record(), same])))) == 2
    for other in (small_folder.record(outcome="fail"), small_folder.record(outcome="fail", seq=1)):
        with pytest.raises(BadInput, match=r"evidence\[1\]: differs from the record of the same key at evidence\[0\]"):
            folder.parse_case(case(evidence=[first, other]))
    later = small_folder.record(outcome="fail", epoch=9)
    assert len(records(folder.parse_case(case(evidence=[small_folder.record(), later], epoch=3)))) == 1


def test_too_old_to_be_in_conflict() -> None:
    evidence = [small_folder.record(epoch=1), small_folder.record(epoch=3, outcome="fail")]
    aged = {"scheme": {"name": "small"}, "score": {"kind": "tests"}, "consensus": {"max_age_epochs": 1}}
    assert len(records(folder.parse_case(case(evidence=evidence, scheme=aged)))) == 2


def assigned(**changes: Any) -> dict[str, Any]:
    return case(scheme={"scheme": {"name": "small"}, "score": {"kind": "tests"}, "consensus": {"assign": 2}}, **changes)


def test_randomness_of_the_epoch_of_acceptance() -> None:
    rows = [{"epoch": 3, "hex": "00" * 32}]
    assert folder.parse_case(assigned(randomness=rows)).randomness == {3: bytes(32)}
    with pytest.raises(BadInput, match=r"randomness\.epoch: there is no randomness of epoch 3, .* 'm1' \(participants\[0\]\)"):
        folder.parse_case(assigned())
    accepted = case()["participants"]
    accepted[1]["accepted_epoch"] = 2
    with pytest.raises(BadInput, match="no randomness of epoch 2"):
        folder.parse_case(assigned(randomness=rows, participants=accepted))


def test_an_earlier_settlement(tmp_path: Path) -> None:
    expected = Previous("small", 2, None, Clock(500_000_000, 1, "s0", {"m1": Own("s0", 250_000_000, 2)}))
    assert folder.previous_of(settlement()) == expected
    path = tmp_path / "2.json"
    path.write_text(json.dumps(settlement()))
    assert folder.read(small_folder.make(tmp_path), previous=path).previous == expected
    assert folder.parse_case(case(previous=settlement())).previous == expected


WRONG: list[tuple[dict[str, Any], str]] = [
    (settlement() | {"schema": "assay.settlement/2"}, "schema: is not a settlement"),
    (settlement() | {"epoch": 1}, "digest: the settlement was changed after it was made"),
    (settlement(epoch=1.5), "epoch: is 1.5; it must be a whole number"),
    (settlement(task_set="t"), "task_set: 't': "),
    (settlement(clock={"record": "1.5"}), "clock.record: '1.5' is more than 1"),
    (settlement(clock={"record": 0.5}), "clock.record: a JSON float"),
    (settlement(clock=settlement()["clock"] | {"last": None}), "clock: record and last must be given together"),
    (settlement(clock=settlement()["clock"] | {"last": 3}), "clock: has a reset after its own epoch"),
    (
        settlement(clock=settlement()["clock"] | {"participants": settlement()["clock"]["participants"] * 2}),
        "names a participant twice",
    ),
    (
        settlement(scheme=settlement()["scheme"] | {"name": "large"}),
        "scheme.name: is a settlement of 'large'",
    ),
    (settlement(epoch=3), "epoch: is a settlement of epoch 3, and epoch 3 is being settled"),
    (settlement(anything=["else"]), "there is no field 'anything' here"),
    (settlement(clock=settlement()["clock"] | {"more": 1}), "clock.more: there is no field 'more' here"),
    (settlement(agreed=[{}]), "agreed[0].participant: is missing"),
    *((settlement(**{name: ...}), f"{name}: is missing") for name in settlement() if name not in ("schema", "digest")),
]


@pytest.mark.parametrize(("document", "message"), WRONG)
def test_an_earlier_settlement_that_does_not_fit(tmp_path: Path, document: dict[str, Any], message: str) -> None:
    path = tmp_path / "2.json"
    path.write_text(json.dumps(document))
    with pytest.raises(BadInput) as error:
        folder.read(small_folder.make(tmp_path), previous=path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    with pytest.raises(BadInput) as error:
        folder.parse_case(case(previous=document))
    assert str(error.value).startswith("previous")
    assert message in str(error.value)


def test_an_earlier_settlement_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.json: no such file; give the file that an earlier"):
        folder.read(small_folder.make(tmp_path), previous=tmp_path / "none.json")


def test_strict_json_that_did_not_come_through_the_parser() -> None:
    for value in (float("nan"), 2**53, "\ud800", {"\ud800": 1}, {1: 2}, {1}, b""):
        with pytest.raises(BadInput) as error:
            strict.check({"a": [value]})
        assert error.value.field == "a[0]"
    deep: list[Any] = []
    for _ in range(40):
        deep = [deep]
    with pytest.raises(BadInput, match="is nested too deeply"):
        strict.check(deep)
    strict.check({"a": [1.5, None, True, -(2**53 - 1), "é"]})
