"""The inputs of a settlement as a document: the folder and the document say the same, whatever the order and the spelling."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_folder
from assay import folder
from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.evidence import Gathered, Registry
from assay.folder.files import Place
from assay.ledger import eligible
from assay.settle import settle
from assay.settle.inputs import Inputs

Json = dict[str, Any]
KEYS = ("m1", "m2", "ζ", "🦆")


def gathered(known: Registry) -> Gathered:
    """Every validator's evidence about s1."""
    kind = known.kind
    records = [small_folder.record(kind, validator=key, participant="m1") for key in sorted(known.validators)]
    return folder.evidence.gather(records, Place(), known)


def again(document: Mapping[str, Any], epoch: int = 3) -> Inputs:
    return eligible.settled_from(json.loads(canonical(document)), epoch=epoch, evidence=gathered, previous=None)


@st.composite
def cases(draw: st.DrawFn) -> Json:
    kind = draw(st.sampled_from(sorted(small_folder.SCHEMES)))
    scheme: Json = {"scheme": {"name": "small"}, "score": {"kind": kind}}
    if kind == "rubric":
        scheme["score"]["checks"] = [{"id": "c1", "weight": 10000, "skippable": draw(st.booleans())}]
    if kind == "points":
        scheme["score"]["repositories"] = {"o/r": "5.0", "a/b": "1"}
    if draw(st.booleans()):
        scheme["reward"] = {"cap": draw(st.sampled_from(["50%", "0.50", "1"])), "strategy": "softmax"}
    people = [
        {
            "key": key,
            "uid": draw(st.sampled_from([None, number + 1])),
            "name": draw(st.sampled_from(["", "Ann"])),
            "submission": draw(st.sampled_from(["", f"s{number + 1}", "s1"])),
            "submitted_at": draw(st.sampled_from([None, "2026-11-02T09:00:00Z", "2026-11-02T10:00:00.500+01:00"])),
            "last_reset_epoch": draw(st.sampled_from([None, 2])),
            "accepted_epoch": draw(st.sampled_from([None, 1])),
            "address": draw(st.sampled_from([None, "0x" + "Ab" * 20])),
        }
        for number, key in enumerate(KEYS)
    ]
    return {
        "scheme": scheme,
        "participants": people,
        "validators": [{"key": f"v{number}", "stake": f"{number}00"} for number in (3, 1, 2)],
        "tasks": draw(st.sampled_from([["t2  snapshot", "t1"], [f"t1 sha256:{'0' * 64}"]])) if kind == "tests" else [],
        "history": draw(st.sampled_from([[], [{"epoch": 2, "top_score": "0.50"}, {"epoch": 1, "top_score": "0"}]])),
        "randomness": draw(st.sampled_from([[], [{"epoch": 2, "hex": "AB" * 32}, {"epoch": 1, "hex": "00" * 32}]])),
    }


@given(cases(), st.randoms(use_true_random=False))
def test_the_document_gives_the_same_inputs_and_the_same_settlement(case: Json, order: random.Random) -> None:
    first = folder.parse_case({**case, "epoch": 3}, evidence=gathered)
    document = eligible.inputs_document(first)
    second = again(document)
    assert eligible.inputs_document(second) == document
    assert settle(second).digest == settle(first).digest
    assert second.manifest == first.manifest
    assert second.task_set == first.task_set
    for table in ("participants", "validators", "tasks", "history", "randomness"):
        order.shuffle(case[table])
    third = folder.parse_case({**case, "epoch": 3}, evidence=gathered)
    assert canonical(eligible.inputs_document(third)) == canonical(document)
    assert eligible.inputs_digest(eligible.inputs_document(third)) == eligible.inputs_digest(document)


@pytest.mark.parametrize("kind", sorted(small_folder.SCHEMES))
def test_a_folder_and_its_document_settle_alike(kind: str, tmp_path: Path) -> None:
    read = folder.read(small_folder.make(tmp_path, kind), epoch=3)
    document = eligible.inputs_document(read)
    assert set(document) == set(eligible.INPUTS_FIELDS) - {"registry"}
    assert settle(again(document)).digest == settle(folder.read(tmp_path, epoch=3, evidence=gathered)).digest
    assert eligible.inputs_document(again(document)) == document


def test_what_is_in_the_document_moves_its_digest(tmp_path: Path) -> None:
    document = eligible.inputs_document(folder.read(small_folder.make(tmp_path)))
    digest = eligible.inputs_digest(document)
    small_folder.make(tmp_path, validators_csv="key,stake\nv2,200\nv3,300\nv1,101\n")
    assert eligible.inputs_digest(eligible.inputs_document(folder.read(tmp_path))) != digest
    small_folder.make(tmp_path, validators_csv='stake,key\n200,v2\n300,"v3"\n100,v1\n', tasks_txt="# two\nt2\nt1\n")
    assert eligible.inputs_digest(eligible.inputs_document(folder.read(tmp_path))) == digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"extra": 1}, "there is no field 'extra'"),
        ({"evidence": []}, "there is no field 'evidence'"),
        ({"epoch": 4}, "there is no field 'epoch'"),
        ({"scheme": None}, "scheme"),
        ({"participants": []}, "no participant"),
        ({"history": [{"epoch": 1}]}, "top_score"),
        ({"history": float("nan")}, "not a JSON number"),
    ],
)
def test_a_wrong_document_is_refused(change: Json, words: str, tmp_path: Path) -> None:
    document = eligible.inputs_document(folder.read(small_folder.make(tmp_path)))
    with pytest.raises(BadInput, match=words):
        eligible.settled_from(document | change, epoch=3, evidence=gathered, previous=None)
