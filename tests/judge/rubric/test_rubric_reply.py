"""What a model answers is read strictly: anything that could be taken two ways is a fault. SPEC 2.3."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.rubric.questions import escape
from assay.judge.rubric.reply import FAULTS, Faulty, Reply, read_baseline, read_checks, read_verdict
from assay.judge.rubric.scripted import CONTENT_FAULTS, spoil_answer
from rubric_kit import says

TEXTS = ("def add(a, b):\n    return a + b\n", "x=1")
GOOD = {
    "C1": {"reason": "it adds", "quote": "def add(a, b):\r\n    return", "answer": "YES"},
    "C2": {"reason": "none", "quote": "", "answer": "NO"},
}
BASELINE = {name: {"reason": "fine", "answer": "YES"} for name in ("B1", "B2", "B3", "B4")}


def _checks(answer: Any) -> Any:
    return read_checks(says(answer if isinstance(answer, str) else json.dumps(answer)), ("C1", "C2"), TEXTS)


def _code(answer: Any) -> str:
    with pytest.raises(Faulty) as fault:
        _checks(answer)
    assert fault.value.sentences
    return fault.value.code


def _with(**more: Any) -> dict[str, Any]:
    return {**GOOD, "C1": {**GOOD["C1"], **more}}


def test_good_answers() -> None:
    checks = _checks(GOOD)
    assert checks.answers == {"C1": True, "C2": False}
    assert checks.quotes == {"C1": "def add(a, b):\n    return"}
    assert checks.reasons == {"C1": "it adds", "C2": "none"}
    assert _checks(f"\n {json.dumps(GOOD, indent=2)} \n").answers == checks.answers
    baseline = read_baseline(says(json.dumps({**BASELINE, "B3": {"reason": "spam", "answer": "NO"}})))
    assert baseline.answers == {"B1": True, "B2": True, "B3": False, "B4": True}
    verdict = read_verdict(says('{"reason": "a\\u001b[31m\\u202eb", "verdict": "ELEGANT"}'))
    assert (verdict.verdict, verdict.reason) == ("ELEGANT", "a\\x1b[31m\\u202eb")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("", "empty"),
        (" \n", "empty"),
        (f"Sure: {json.dumps(GOOD)}", "not-json"),
        (f"{json.dumps(GOOD)} {json.dumps(GOOD)}", "not-json"),
        (f"```json\n{json.dumps(GOOD)}\n```", "not-json"),
        (f"[{json.dumps(GOOD)}]", "not-json"),
        ("null", "not-json"),
        ("NaN", "not-json"),
        ("[" * 100_000, "not-json"),
        ('{"C1": ' * 100 + "1" + "}" * 100, "not-json"),
        (json.dumps(GOOD).replace('"C2"', '"C1"'), "not-json"),
        (json.dumps(GOOD).replace('"it adds"', '"it adds", "answer": "NO"'), "not-json"),
        (json.dumps(GOOD).replace("it adds", "\\ud800"), "not-json"),
        (json.dumps(GOOD).replace("it adds", "\\ud800").encode().decode("unicode_escape"), "not-json"),
        ('{"C1": ' + "9" * 5000 + "}", "not-json"),
        (json.dumps(_with(reason="x" * 300_000)), "too-long"),
        (json.dumps(_with(reason="x" * 2001)), "long-reason"),
        ({"C1": GOOD["C1"]}, "wrong-form"),
        ({**GOOD, "C3": GOOD["C2"]}, "wrong-form"),
        ({**GOOD, "score": 10000}, "wrong-form"),
        ({"checks": GOOD}, "wrong-form"),
        ({**GOOD, "C2": "NO"}, "wrong-form"),
        ({**GOOD, "C2": None}, "wrong-form"),
        (_with(answer=True), "wrong-form"),
        (_with(answer=1), "wrong-form"),
        (_with(answer=None), "wrong-form"),
        (_with(quote=None), "wrong-form"),
        (_with(quote=["def add"]), "wrong-form"),
        (_with(weight="1"), "wrong-form"),
        (_with(answer="yes"), "no-answer"),
        (_with(answer="YES "), "no-answer"),
        (_with(answer="true"), "no-answer"),
        (_with(answer=""), "no-answer"),
        (_with(answer="NO"), "contradiction"),
        (_with(quote=""), "no-quote"),
        (_with(quote=" \n\t "), "no-quote"),
        (_with(quote="def add(a,b):"), "quote-not-found"),
        (_with(quote="Def add(a, b):"), "quote-not-found"),
        (_with(quote="return a + b\nx=1"), "quote-not-found"),
        (_with(quote="add(a"), "short-quote"),
        (_with(quote="a" * 2001), "long-quote"),
    ],
)
def test_what_is_no_answer(answer: Any, code: str) -> None:
    assert _code(answer) == code


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(json.dumps(BASELINE), None, "length", None, None), "cut-off"),
        (Reply(json.dumps(BASELINE), None, None, None, None), "cut-off"),
        (Reply(json.dumps(BASELINE), None, "tool_calls", None, None), "cut-off"),
        (Reply(json.dumps(BASELINE), None, "content_filter", None, None), "refused"),
        (Reply(json.dumps(BASELINE), "I would rather not.", "stop", None, None), "refused"),
        (Reply(None, "I would rather not.", "stop", None, None), "refused"),
        (Reply(None, None, "stop", None, None), "empty"),
    ],
)
def test_what_did_not_end_well(reply: Reply, code: str) -> None:
    with pytest.raises(Faulty) as fault:
        read_baseline(reply)
    assert fault.value.code == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"reason": "", "verdict": "SUPERB"}', "no-verdict"),
        ('{"reason": "", "verdict": "elegant"}', "no-verdict"),
        ('{"reason": "", "verdict": true}', "wrong-form"),
        ('{"verdict": "ELEGANT"}', "wrong-form"),
        (json.dumps({"reason": "x" * 2001, "verdict": "ELEGANT"}), "long-reason"),
    ],
)
def test_what_is_no_verdict(text: str, code: str) -> None:
    with pytest.raises(Faulty) as fault:
        read_verdict(says(text))
    assert fault.value.code == code


def test_a_text_that_is_shorter_than_a_quote_may_be_quoted_whole() -> None:
    assert _checks(_with(quote="x=1")).quotes == {"C1": "x=1"}
    assert _code(_with(quote="x=")) == "short-quote"


def test_a_quote_may_have_the_character_for_its_escape() -> None:
    texts = (escape("a = '<s>'\u202e  # the beginning"),)
    for quote in ("a = '<s>'\u202e  #", "a = '⟦U+003C⟧s>'⟦U+202E⟧  #"):
        reply = json.dumps({"C1": {"reason": "", "quote": quote, "answer": "YES"}})
        assert read_checks(says(reply), ("C1",), texts).quotes == {"C1": "a = '⟦U+003C⟧s>'⟦U+202E⟧  #"}


def test_all_faults_are_told_at_once_by_their_place_and_nothing_else_is_said_again() -> None:
    answers = {"C1": {**GOOD["C1"], "quote": "SECRET QUOTE"}, "C2": {**GOOD["C2"], "answer": "SECRET ANSWER", "reason": "SECRET"}}
    with pytest.raises(Faulty) as fault:
        _checks(answers)
    sentences = "\n".join(fault.value.sentences)
    assert fault.value.sentences == (f"item 1 of 2: {FAULTS['quote-not-found']}", f"item 2 of 2: {FAULTS['no-answer']}")
    assert "SECRET" not in sentences
    assert "C1" not in sentences


@pytest.mark.parametrize("kind", CONTENT_FAULTS)
def test_every_fault_that_the_scripted_model_has_is_one(kind: str) -> None:
    if kind == "no-verdict":
        with pytest.raises(Faulty):
            read_verdict(says(spoil_answer(kind, {"reason": "", "verdict": "ELEGANT"})))
    else:
        assert _code(spoil_answer(kind, GOOD))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["C1", "C2", "answer", "quote", "reason"]), inner),
        max_leaves=12,
    )
)
def test_any_other_json_is_a_fault(document: Any) -> None:
    with pytest.raises(Faulty) as fault:
        _checks(json.dumps(document))
    assert fault.value.code in FAULTS


@given(st.text(max_size=40))
def test_any_other_text_is_a_fault(text: str) -> None:
    with pytest.raises(Faulty):
        _checks(text)


@pytest.mark.parametrize(
    ("quote", "kept"),
    [
        ("def add(a, b):\n    return a + b", "def add(a, b):\n    return a + b"),
        ("0a1b2c3d 1|def add(a, b):\n0a1b2c3d 2|    return a + b", "def add(a, b):\n    return a + b"),
        ("add(a, b):\n0a1b2c3d 2|    return", "add(a, b):\n    return"),
        ("0a1b2c3d 9|# 0a1b2c3d 3|", "# 0a1b2c3d 3|"),
        ("0a1b2c3d 3|x = 1 # of its own", "0a1b2c3d 3|x = 1 # of its own"),
    ],
)
def test_a_quote_may_have_gutters(quote: str, kept: str) -> None:
    texts = ("def add(a, b):\n    return a + b\n# 0a1b2c3d 3|\n", "0a1b2c3d 3|x = 1 # of its own")
    reply = json.dumps({"C1": {"reason": "", "quote": quote, "answer": "YES"}})
    assert read_checks(says(reply), ("C1",), texts, "0a1b2c3d").quotes == {"C1": kept}


@pytest.mark.parametrize(("quote", "code"), [("0a1b2c3d 1|", "no-quote"), ("ffffffff 1|def add(a, b):", "quote-not-found")])
def test_a_gutter_is_no_quote(quote: str, code: str) -> None:
    reply = json.dumps({"C1": {"reason": "", "quote": quote, "answer": "YES"}})
    with pytest.raises(Faulty) as fault:
        read_checks(says(reply), ("C1",), ("def add(a, b):\n",), "0a1b2c3d")
    assert fault.value.code == code
