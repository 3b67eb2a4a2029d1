"""The three phases, without a network: what is asked next, what ends it, and what makes it unjudged. SPEC 2.3."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput
from assay.judge.rubric import prompts
from assay.judge.rubric.conversation import AskedQuestion, Conversation, ServiceFailure
from assay.judge.rubric.judgement import CHECKS_AT_ONCE, Judgement
from assay.judge.rubric.questions import RubricCase
from assay.judge.rubric.reply import Reply
from assay.judge.rubric.solution import Solution
from rubric_kit import ADD, SETTINGS, called, make_bounty, make_case, make_course, says

QUOTE = "return a + b"


def _good(asked: AskedQuestion, **changed: Any) -> Reply:
    """A good answer to any question."""
    if asked.question.phase == "verdict":
        return says(json.dumps({"reason": "fine", "verdict": "ELEGANT"}))
    answers: dict[str, Any] = {}
    for name in asked.question.form["properties"]:
        answers[name] = {"reason": "fine", "answer": "YES"}
        if asked.question.phase == "checks":
            answers[name]["quote"] = QUOTE
        answers[name] |= changed.get(name, {})
    return says(json.dumps(answers))


def _led(
    course: Conversation, answer: Callable[[AskedQuestion], Reply | ServiceFailure]
) -> tuple[list[AskedQuestion], Judgement | None]:
    """All that was asked, and the end."""
    steps, asked = course.steps(), []
    try:
        asked.append(next(steps))
        while True:
            asked.append(steps.send(answer(asked[-1])))
    except StopIteration as end:
        judgement: Judgement | None = end.value
    return asked, judgement


def _path(asked: Sequence[AskedQuestion]) -> list[tuple[str, str, int, int]]:
    return [(step.role, step.question.phase, step.question.part, step.attempt) for step in asked]


def test_three_questions_lead_to_a_judgement(tmp_path: Path) -> None:
    case = make_case(tmp_path)
    asked, judgement = _led(make_course(case), lambda asked: _good(asked, C2={"answer": "NO", "quote": ""}))
    assert _path(asked) == [("primary", "baseline", 1, 1), ("primary", "checks", 1, 1), ("primary", "verdict", 1, 1)]
    assert judgement is not None
    assert judgement.answers == {
        "outcome": "judged",
        "baseline": {"B1": True, "B2": True, "B3": True, "B4": True},
        "checks": {"C1": True, "C2": False},
        "verdict": "ELEGANT",
    }
    assert (judgement.quotes, judgement.model, judgement.reason) == ({"C1": QUOTE}, "primary", None)
    assert judgement.reasons["baseline.B1"] == judgement.reasons["checks.C2"] == judgement.reasons["verdict"] == "fine"
    assert [(exchange.asked, exchange.answered, exchange.fingerprint, exchange.fault) for exchange in judgement.exchanges] == [
        ("primary", "m", "f1", None)
    ] * 3


def test_where_the_baseline_is_not_met_it_ends_there(tmp_path: Path) -> None:
    asked, judgement = _led(make_course(make_case(tmp_path)), lambda asked: _good(asked, B3={"answer": "NO", "reason": "spam"}))
    assert len(asked) == 1
    assert judgement is not None
    assert (judgement.outcome, judgement.checks, judgement.verdict, judgement.quotes) == ("judged", None, None, {})
    assert judgement.baseline == {"B1": True, "B2": True, "B3": False, "B4": True}
    assert judgement.reasons["baseline.B3"] == "spam"


def test_a_malformed_answer_is_asked_for_again_with_what_was_wrong(tmp_path: Path) -> None:
    case = make_case(tmp_path)
    asked, judgement = _led(
        make_course(case), lambda step: _good(step, **({"C1": {"quote": "SECRET, nowhere"}} if step.attempt == 1 else {}))
    )
    assert [step.attempt for step in asked] == [1, 1, 2, 1]
    assert asked[2].question.parts[:-1] == asked[1].question.parts
    reminder = asked[2].question.parts[-1]
    assert reminder.startswith("Your last answer to this question was not accepted:\n- item 1 of 2: the quote was not found")
    assert "SECRET" not in reminder
    assert judgement is not None
    assert [exchange.fault for exchange in judgement.exchanges] == [None, "quote-not-found", None, None]


def test_after_three_malformed_answers_the_fallback_is_asked_from_the_start(tmp_path: Path) -> None:
    def answer(asked: AskedQuestion) -> Reply:
        bad = asked.role == "primary" and asked.question.phase == "verdict"
        return says("no") if bad else _good(asked)

    asked, judgement = _led(make_course(make_case(tmp_path)), answer)
    assert _path(asked)[2:] == [
        *(("primary", "verdict", 1, attempt) for attempt in (1, 2, 3)),
        *(("fallback", phase, 1, 1) for phase in ("baseline", "checks", "verdict")),
    ]
    assert judgement is not None
    assert (judgement.outcome, judgement.model) == ("judged", "fallback")
    assert {exchange.asked for exchange in judgement.exchanges[-3:]} == {"fallback"}


def test_where_both_stay_malformed_it_is_unjudged_and_never_zero(tmp_path: Path) -> None:
    asked, judgement = _led(make_course(make_case(tmp_path)), lambda asked: says(""))
    assert len(asked) == 6
    assert judgement is not None
    assert judgement.answers == {"outcome": "unjudged", "baseline": None, "checks": None, "verdict": None}
    assert (judgement.reason, judgement.model, judgement.quotes, judgement.reasons) == ("empty", None, {}, {})


def test_what_one_model_answered_is_not_mixed_with_another(tmp_path: Path) -> None:
    def answer(asked: AskedQuestion) -> Reply:
        return (
            says("no")
            if asked.role == "primary" and asked.question.phase == "checks"
            else _good(asked, B3={"answer": "NO"} if asked.role == "fallback" else {})
        )

    _, judgement = _led(make_course(make_case(tmp_path)), answer)
    assert judgement is not None
    assert judgement.checks is None
    assert judgement.baseline is not None
    assert not judgement.baseline["B3"]


@pytest.mark.parametrize("failing", ["primary", "fallback", "both"])
def test_where_the_service_failed_there_is_no_unjudged(failing: str, tmp_path: Path) -> None:
    """A model that could not be asked has not answered badly: the submission stays missing."""
    asked, judgement = _led(
        make_course(make_case(tmp_path)), lambda asked: ServiceFailure("timeout") if failing in ("both", asked.role) else says("")
    )
    assert judgement is None
    assert asked[-1].role == "fallback"


def test_a_primary_that_fails_leaves_it_to_the_fallback(tmp_path: Path) -> None:
    asked, judgement = _led(
        make_course(make_case(tmp_path)), lambda asked: ServiceFailure("status-404") if asked.role == "primary" else _good(asked)
    )
    assert [step.role for step in asked] == ["primary", "fallback", "fallback", "fallback"]
    assert judgement is not None
    assert (judgement.model, judgement.exchanges[0].fault, judgement.exchanges[0].answered) == ("fallback", "status-404", None)


def test_one_model_is_asked_once(tmp_path: Path) -> None:
    settings = type(SETTINGS)(called("same"), called("same"), 2)
    asked, judgement = _led(make_course(make_case(tmp_path), settings), lambda asked: says(""))
    assert len(asked) == 2
    assert judgement is not None
    assert judgement.outcome == "unjudged"


def test_many_checks_are_asked_in_several_questions(tmp_path: Path) -> None:
    count = 2 * CHECKS_AT_ONCE + 1
    checks = [{"id": f"C{n}", "label": "l", "weight": 10000 - 100 * (count - 1) if n == 0 else 100} for n in range(count)]
    case = make_case(tmp_path, checks=checks)
    asked, judgement = _led(make_course(case), _good)
    assert [step.question.part for step in asked if step.question.phase == "checks"] == [1, 2, 3]
    assert [len(step.question.form["properties"]) for step in asked] == [4, CHECKS_AT_ONCE, CHECKS_AT_ONCE, 1, 2]
    assert judgement is not None
    assert list(judgement.checks or {}) == [f"C{n}" for n in range(count)]


def test_long_checks_are_asked_in_several_questions(tmp_path: Path) -> None:
    checks = [{"id": f"C{n}", "description": "x" * 4000, "weight": 1000} for n in range(10)]
    assert [len(chunk) for chunk in make_case(tmp_path, checks=checks).chunks] == [8, 2]


def test_a_request_is_as_it_must_be(tmp_path: Path) -> None:
    case = make_case(tmp_path, {"add.py": ADD})
    asked, _ = _led(make_course(case), _good)
    for step in asked:
        body = step.body
        assert (body["temperature"], body["seed"], body["max_tokens"], body["model"]) == (0, 42, 1000, "primary")
        system, user = body["messages"]
        assert (system["role"], user["role"]) == ("system", "user")
        assert "return a + b" not in system["content"]
        assert "test it" not in system["content"]
        form = body["response_format"]["json_schema"]
        assert form["strict"] is True
        assert form["schema"]["additionalProperties"] is False
        assert form["schema"]["required"] == list(form["schema"]["properties"])
        json.dumps(body)
    shared = asked[0].question.parts[:2]
    assert all(step.question.parts[:2] == shared for step in asked), "what a service has read once it can keep"
    assert asked[1].question.form["properties"]["C1"]["properties"]["answer"]["enum"] == ["YES", "NO"]
    assert re.search(r"\n[0-9a-f]{8} 1\|answered YES\n[0-9a-f]{8} 2\|It adds\n", asked[2].question.parts[2])


def test_the_same_case_makes_the_same_bytes(tmp_path: Path) -> None:
    first, second = (_led(make_course(make_case(tmp_path / name)), _good) for name in "ab")
    assert [step.body for step in first[0]] == [step.body for step in second[0]]
    assert first[1] == second[1]


def test_weights_are_not_the_models_business(tmp_path: Path) -> None:
    asked, _ = _led(make_course(make_case(tmp_path)), _good)
    assert not any("6000" in json.dumps(step.body) or "skippable" in json.dumps(step.body) for step in asked)


def test_a_problem_that_is_not_the_bountys_is_refused(tmp_path: Path) -> None:
    bounty = make_bounty(tmp_path)
    with pytest.raises(BadInput, match="the problem has digest"):
        RubricCase(bounty, "Something else.", Solution({"add.py": ADD}))


def test_a_problem_and_checks_that_are_too_long_as_shown_are_refused(tmp_path: Path) -> None:
    checks = [{"id": f"C{n}", "label": "\u200b" * 4000, "weight": 1000} for n in range(10)]
    with pytest.raises(BadInput, match=r"the problem and the checks have [0-9]+ bytes as a model is shown them") as refusal:
        make_case(tmp_path, checks=checks)
    assert refusal.value.file == tmp_path / "bounty.toml"


def test_prompts_are_versioned_by_their_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = prompts.digest()
    prompts.digest.cache_clear()
    monkeypatch.setattr(prompts, "_text", lambda name: name)
    assert prompts.digest() != before
    monkeypatch.undo()
    prompts.digest.cache_clear()
    assert prompts.digest() == before


def test_a_prompt_with_a_place_that_is_not_filled_is_our_mistake() -> None:
    with pytest.raises(KeyError):
        prompts.filled("system")
