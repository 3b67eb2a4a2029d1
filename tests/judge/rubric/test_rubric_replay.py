"""A transcript replayed: the same answers make the same judgement, and one that was touched is refused. SPEC 2.3, 6."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput, Refused
from assay.exact import canonical, digest
from assay.judge.rubric.asking import Price
from assay.judge.rubric.judgement import Judgement, make_record, quote_digest
from assay.judge.rubric.questions import RubricCase
from assay.judge.rubric.replay import ChangedAnswer, compare_judgements, replay_transcript
from assay.judge.rubric.scripted_server import scripted_model
from assay.settle.score import rubric
from rubric_kit import ADD, asked, make_bounty, make_case, script

FAULTS = [
    {"kind": "429", "times": 1},
    {"kind": "foreign-quote", "times": 1, "phase": "checks"},
    {"kind": "prose", "model": "big", "phase": "verdict"},
]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> RubricCase:
    return make_case(tmp_path_factory.mktemp("bounty"))


@pytest.fixture(scope="module")
def judged(case: RubricCase) -> Judgement:
    """One that took a lot: pauses, a malformed answer, and the fallback."""
    with scripted_model(script(faults=FAULTS)) as server:
        return asked(case, server.url, prices={"big": Price(1, 1), "small": Price(2, 2)})


def _replayed(case: RubricCase, transcript: bytes) -> Judgement:
    return replay_transcript(transcript, case.bounty, case.problem, case.solution)


def _changed(judged: Judgement, change: Callable[[dict[str, Any]], object]) -> bytes:
    transcript = json.loads(judged.transcript)
    change(transcript)
    return canonical(transcript)


def test_the_same_answers_make_the_same_judgement(case: RubricCase, judged: Judgement) -> None:
    replayed = _replayed(case, judged.transcript)
    assert replayed == replace(judged, measured=None)
    assert compare_judgements(judged, replayed) == []
    assert replayed.model == "small"
    assert len(replayed.exchanges) == 9


@pytest.mark.parametrize("kind", ["empty", "missing"])
def test_an_unjudged_one_can_be_replayed(kind: str, case: RubricCase) -> None:
    with scripted_model(script(faults=[{"kind": kind, "phase": "baseline"}])) as server:
        unjudged = asked(case, server.url)
    assert unjudged.outcome == "unjudged"
    assert _replayed(case, unjudged.transcript) == replace(unjudged, measured=None)


def test_times_and_costs_are_not_in_the_transcript(case: RubricCase, judged: Judgement) -> None:
    with scripted_model(script(faults=FAULTS)) as server:
        again = asked(case, server.url, prices={})
    assert again.measured != judged.measured
    assert again.transcript == judged.transcript


def test_a_transcript_has_all_that_was_asked_and_answered(judged: Judgement) -> None:
    transcript = json.loads(judged.transcript)
    assert sum("|def add(a, b):\n" in text for text in transcript["texts"].values()) == 1, "what is said often is kept once"
    first = transcript["exchanges"][0]
    assert first["reply"]["content"].startswith('{"B1"')
    assert {first["system"], *first["user"]} <= set(transcript["texts"])
    assert first["reply"]["model"] == "scripted/big"


def _other_answer(transcript: dict[str, Any]) -> None:
    reply = transcript["exchanges"][-1]["reply"]
    reply["content"] = reply["content"].replace("COHERENT", "SUPERB")


def _other_quote(transcript: dict[str, Any]) -> None:
    reply = transcript["exchanges"][-2]["reply"]
    reply["content"] = reply["content"].replace("return a + b", "return a * b")


def _other_text(transcript: dict[str, Any]) -> None:
    first = next(iter(transcript["texts"]))
    transcript["texts"][first] += "!"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda transcript: transcript["exchanges"][0].update(model="gpt"), "exchange 1: model"),
        (lambda transcript: transcript["exchanges"][3].update(phase="checks"), "exchange 4: phase"),
        (lambda transcript: transcript["exchanges"][2]["user"].pop(), "exchange 3: user"),
        (lambda transcript: transcript["exchanges"][2]["form"].update(type="array"), "exchange 3: form"),
        (lambda transcript: transcript["exchanges"][1].update(fault=None), "exchange 2: fault"),
        (lambda transcript: transcript["exchanges"].pop(), "its replies do not lead to a judgement"),
        (
            lambda transcript: transcript["exchanges"].append(transcript["exchanges"][-1]),
            "its replies do not lead to a judgement",
        ),
        (lambda transcript: transcript["exchanges"].pop(1), "exchange 2"),
        (lambda transcript: transcript.update(attempts=2), "exchange 6: model"),
        (lambda transcript: transcript["texts"].update({f"sha256:{'0' * 64}": "more"}), "texts that no request contains"),
        (_other_text, "texts that no request contains"),
        (_other_answer, "exchange 9: fault"),
        (_other_quote, "exchange 8: fault"),
        (lambda transcript: transcript.update(bounty=f"sha256:{'0' * 64}"), "another bounty"),
        (lambda transcript: transcript.update(submission=f"sha256:{'0' * 64}"), "another submission"),
        (lambda transcript: transcript.update(prompts=f"sha256:{'0' * 64}"), "prompts are not those of this version"),
    ],
)
def test_a_transcript_that_was_touched_is_refused(
    change: Callable[[dict[str, Any]], object], what: str, case: RubricCase, judged: Judgement
) -> None:
    with pytest.raises(Refused, match=r"^transcript: ") as refusal:
        _replayed(case, _changed(judged, change))
    assert what in str(refusal.value)


def test_one_in_which_the_service_failed_leads_to_no_judgement(case: RubricCase, judged: Judgement) -> None:
    """The primary answered badly, and the fallback could not be asked."""

    def cut(transcript: dict[str, Any]) -> None:
        del transcript["exchanges"][7:]
        transcript["exchanges"][6] |= {"reply": None, "fault": "timeout"}
        used = {name for exchange in transcript["exchanges"] for name in (exchange["system"], *exchange["user"])}
        transcript["texts"] = {name: text for name, text in transcript["texts"].items() if name in used}

    with pytest.raises(Refused, match="the service failed in it"):
        _replayed(case, _changed(judged, cut))


def _same_answers_otherwise(transcript: dict[str, Any]) -> None:
    reply = transcript["exchanges"][-1]["reply"]
    reply["content"] = reply["content"].replace("COHERENT", "EXCEPTIONAL")


def test_an_answer_that_was_exchanged_for_a_good_one_has_another_digest(case: RubricCase, judged: Judgement) -> None:
    """The transcript alone cannot tell; the judgement names the digest of the one it came of."""
    touched = _changed(judged, _same_answers_otherwise)
    replayed = _replayed(case, touched)
    assert compare_judgements(judged, replayed) == [ChangedAnswer("verdict", "COHERENT", "EXCEPTIONAL", "verdict")]
    assert replayed.transcript_digest != judged.transcript_digest == judged.document()["transcript"]


@pytest.mark.parametrize(
    "change",
    [
        lambda transcript: transcript.update(schema="assay.transcript/1"),
        lambda transcript: transcript.update(more=1),
        lambda transcript: transcript.update(attempts=0),
        lambda transcript: transcript.update(attempts=True),
        lambda transcript: transcript["parameters"].update(temperature=1),
        lambda transcript: transcript["parameters"].update(seed=43),
        lambda transcript: transcript["exchanges"][0].update(part="1"),
        lambda transcript: transcript["exchanges"][0]["reply"].update(content=5),
        lambda transcript: transcript["exchanges"].clear(),
    ],
)
def test_what_is_no_transcript_is_refused(
    change: Callable[[dict[str, Any]], object], case: RubricCase, judged: Judgement
) -> None:
    with pytest.raises(BadInput, match="this is not a transcript"):
        _replayed(case, _changed(judged, change))


@pytest.mark.parametrize("data", [b"", b"{}", b"null", b"[" * 100_000, b"\xff", b'{"schema": "assay.transcript/2"}'])
def test_bytes_that_are_no_transcript_are_refused(data: bytes, case: RubricCase) -> None:
    with pytest.raises(BadInput, match="this is not a transcript"):
        _replayed(case, data)


def test_a_transcript_that_is_not_canonical_or_too_large_is_refused(
    case: RubricCase, judged: Judgement, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match="not canonical"):
        _replayed(case, judged.transcript + b"\n")
    monkeypatch.setattr("assay.judge.rubric.replay.TRANSCRIPT_BYTES", 1000)
    with pytest.raises(BadInput, match="larger than 1000"):
        _replayed(case, judged.transcript)


def test_a_transcript_is_of_one_solution_and_one_bounty(case: RubricCase, judged: Judgement, tmp_path: Path) -> None:
    other = make_case(tmp_path, {"add.py": ADD + "# more\n"})
    with pytest.raises(Refused, match="another submission"):
        replay_transcript(judged.transcript, case.bounty, case.problem, other.solution)
    bounty = make_bounty(tmp_path / "other", name="other")
    with pytest.raises(Refused, match="another bounty"):
        replay_transcript(judged.transcript, bounty, case.problem, case.solution)


def test_every_changed_answer_is_told(judged: Judgement) -> None:
    assert judged.baseline is not None
    assert judged.checks is not None
    other = replace(judged, baseline={**judged.baseline, "B3": False}, checks={**judged.checks, "C1": False}, verdict="FLAWED")
    assert [(change.name, change.before, change.after) for change in compare_judgements(judged, other)] == [
        ("B3", True, False),
        ("C1", True, False),
        ("verdict", "COHERENT", "FLAWED"),
    ]
    gone = replace(judged, outcome="unjudged", baseline=None, checks=None, verdict=None)
    assert len(compare_judgements(judged, gone)) == 8
    assert compare_judgements(gone, gone) == []


def test_the_document_has_no_text_of_anybody(judged: Judgement) -> None:
    document = judged.document(b"salt")
    text = canonical(document).decode()
    assert "return a + b" not in text
    assert "as the script says" not in text
    assert document["quotes"] == {"C1": quote_digest("return a + b", b"salt")}
    assert document["measured"]["tries"] == 10
    assert document["measured"]["cost"] >= 0
    assert document["schema"] == "assay.judgement/2"
    assert sorted(document) == [
        *("asked", "baseline", "bounty", "checks", "detectors", "exchanges", "fallback", "injection_suspected"),
        *("measured", "model", "outcome"),
        *("parameters", "prompts", "quotes", "reason", "schema", "submission", "transcript", "verdict"),
    ]
    assert sorted(document["exchanges"][0]) == ["answered", "asked", "fault", "fingerprint", "part", "phase"]
    assert judged.digest(b"salt") == digest(document) != judged.digest(b"pepper")


def test_a_quotes_digest_is_of_its_blind_and_its_text_apart() -> None:
    assert len({quote_digest("ab", b""), quote_digest("b", b"a"), quote_digest("", b"ab"), quote_digest("ab", b"\x00")}) == 4


def test_the_record_is_evidence_that_settles(case: RubricCase, judged: Judgement) -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    record = make_record(judged, epoch=3, validator="enclave", participant="p", observed_at=when, blind=b"salt")
    assert record.document() == {
        "kind": "rubric",
        "epoch": 3,
        "validator": "enclave",
        "participant": "p",
        "submission": case.solution.digest,
        "observed_at": "2026-01-01T00:00:00Z",
        "baseline": {"B1": True, "B2": True, "B3": True, "B4": True},
        "checks": {"C1": True, "C2": False},
        "verdict": "COHERENT",
        "outcome": "judged",
        "injection_suspected": False,
        "attestation": judged.digest(b"salt"),
        "quotes": {"C1": quote_digest("return a + b", b"salt")},
    }
    grade = rubric.judge(record.baseline, record.checks, record.verdict, case.bounty.rules)
    assert grade is not None
    assert grade.bps == 6000
