"""A rubric: gate, checks, verdict, cap. SPEC 2.3."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.records import Evidence, PanelAnswer
from assay.scheme.model import Check, RubricScore
from assay.settle.score import accepted, score
from assay.settle.score.rubric import VERDICTS, Grade, after_verdict, answer_text, decide, judge
from score_kit import axes, make, vectors

MET = {"B1": True, "B2": True, "B3": True, "B4": True}
TWO = RubricScore(kind="rubric", checks=(Check(id="C1", weight=7001, skippable=False), Check(id="C2", weight=2999)))
BOTH = {"C1": True, "C2": True}


def test_vectors(shared: Path) -> None:
    content = vectors(shared, "rubric")
    rules = RubricScore(kind="rubric", checks=tuple(Check.model_validate(check) for check in content["rubric"]))
    assert content["cases"]
    for case in content["cases"]:
        baseline = {name: name not in case.get("baseline_failed", ()) for name in MET}
        checks = {check.id: check.id not in case["failed"] for check in rules.checks}
        for verdict, final in case["final"].items():
            grade = judge(baseline, checks, verdict, rules)
            assert grade is not None
            assert grade.bps == final


@st.composite
def judgements(draw: st.DrawFn) -> tuple[RubricScore, dict[str, bool], str]:
    cuts = sorted(draw(st.sets(st.integers(1, 9999), max_size=6)))
    weights = [high - low for low, high in zip([0, *cuts], [*cuts, 10_000], strict=True)]
    checks = tuple(Check(id=f"C{n}", weight=w, skippable=draw(st.booleans())) for n, w in enumerate(weights))
    answers = {check.id: draw(st.booleans()) for check in checks}
    return RubricScore(kind="rubric", checks=checks), answers, draw(st.sampled_from(VERDICTS))


@given(judgements())
def test_against_the_rules_written_out(drawn: tuple[RubricScore, dict[str, bool], str]) -> None:
    rules, answers, verdict = drawn
    final = base = sum(check.weight for check in rules.checks if answers[check.id])
    lost = sum(check.weight for check in rules.checks if check.skippable) - sum(
        check.weight for check in rules.checks if check.skippable and answers[check.id]
    )
    if verdict in ("EXCEPTIONAL", "ELEGANT"):
        final += lost if verdict == "EXCEPTIONAL" else lost // 2
    elif verdict in ("MINOR_ISSUES", "FLAWED"):
        final -= math.floor(base * Fraction({"MINOR_ISSUES": 1, "FLAWED": 2}[verdict], 10))
    elif verdict == "FUNDAMENTALLY_BROKEN" and base > 2000:
        final = 2000
    capped = not all(answers[check.id] for check in rules.checks if not check.skippable)
    if capped and final > 2000:
        final = 2000
    assert 0 <= final <= 10_000
    assert judge(MET, answers, verdict, rules) == Grade(base, lost, verdict, gate=True, capped=capped, bps=final)


@pytest.mark.parametrize(("verdict", "bps"), [("MINOR_ISSUES", 2700), ("FLAWED", 2400), ("ELEGANT", 6499), ("COHERENT", 2999)])
def test_what_a_verdict_takes_or_gives_is_floored(verdict: str, bps: int) -> None:
    assert after_verdict(verdict, 2999, 7001) == bps


@pytest.mark.parametrize("failed", sorted(MET))
def test_a_failed_baseline_is_zero_whatever_else_there_is(failed: str) -> None:
    nothing = Grade(base=0, missed_skippable=0, verdict=None, gate=False, capped=False, bps=0)
    baseline = {**MET, failed: False}
    assert judge(baseline, None, None, TWO) == nothing
    assert judge(baseline, {"C1": 7}, "SUPERB", TWO) == nothing
    assert judge(baseline, BOTH, "COHERENT", TWO) == nothing


@pytest.mark.parametrize(
    ("baseline", "checks", "verdict"),
    [
        (None, BOTH, "COHERENT"),
        ([True, True, True, True], BOTH, "COHERENT"),
        ({"B1": False, "B2": True, "B3": True}, BOTH, "COHERENT"),
        ({**MET, "B2": 1}, BOTH, "COHERENT"),
        ({**MET, "B2": "false"}, BOTH, "COHERENT"),
        (MET, None, "COHERENT"),
        (MET, {"C1": True}, "COHERENT"),
        (MET, {**BOTH, "C2": None}, "COHERENT"),
        (MET, {**BOTH, "C2": "NO"}, "COHERENT"),
        (MET, BOTH, None),
        (MET, BOTH, "coherent"),
        (MET, BOTH, ["COHERENT"]),
        (MET, BOTH, {}),
    ],
)
def test_a_malformed_judgement_is_none_never_zero(baseline: Any, checks: Any, verdict: Any) -> None:
    assert judge(baseline, checks, verdict, TWO) is None
    scored = score([make("rubric", baseline=baseline, checks=checks, verdict=verdict)], axes(), TWO)
    assert scored.unjudged is not None
    assert scored.unjudged.tolist() == [[True, False], [False, False]]
    assert not scored.counting.any()


def test_answers_to_questions_nobody_asked_change_nothing() -> None:
    grade = judge({**MET, "B5": False}, {**BOTH, "C9": False}, "COHERENT", TWO)
    assert grade is not None
    assert grade.bps == 10_000


def test_scores_and_work() -> None:
    records: list[Evidence] = [
        make("rubric", baseline=MET, checks={"C1": True, "C2": False}, verdict="ELEGANT"),
        make("rubric", "v2", baseline=MET, checks={"C1": False, "C2": True}, verdict="COHERENT"),
        make("rubric", "v1", "bob", baseline={**MET, "B3": False}),
        make("rubric", "v2", "bob", baseline=MET, checks=BOTH, verdict="COHERENT", outcome="unjudged"),
        make("rubric", "v2", "bob", submission="older", baseline=MET, checks=BOTH, verdict="COHERENT"),
    ]
    scored = score(records, axes(), TWO)
    assert scored.scores.tolist() == [[850_000_000, 0], [200_000_000, 0]]  # 7001 + ⌊2999 / 2⌋ = 8500; capped
    assert scored.counting.tolist() == [[True, True], [True, False]]
    assert scored.unjudged is not None
    assert scored.unjudged.tolist() == [[False, False], [False, True]]
    assert scored.work["base"].tolist() == [[7001, 0], [2999, 0]]
    assert scored.work["missed_skippable"].tolist() == [[2999, 0], [0, 0]]
    assert scored.work["verdict"].tolist() == [["ELEGANT", None], ["COHERENT", None]]
    assert scored.work["gate"].tolist() == [[True, False], [True, False]]
    assert scored.work["capped"].tolist() == [[False, False], [True, False]]
    assert scored.work["bps"].tolist() == [[8500, 0], [2000, 0]]
    assert scored.first == {"ann": 1, "bob": 1}


def test_a_suspected_injection_counts_unless_the_scheme_says_otherwise() -> None:
    whole: dict[str, Any] = {"baseline": MET, "checks": BOTH, "verdict": "COHERENT"}
    records: list[Evidence] = [
        make("rubric", **whole, injection_suspected=True),
        make("rubric", "v2", **whole, injection_suspected=False),
        make("rubric", "v1", "bob", **whole | {"verdict": None}, injection_suspected=True),
        make("rubric", "v2", "bob", **whole),
    ]
    noted = score(records, axes(), TWO)
    assert noted.counting.tolist() == [[True, False], [True, True]]
    assert noted.suspected is not None
    assert not noted.suspected.any()
    wary = score(records, axes(), TWO.model_copy(update={"injection": "unjudged"}))
    assert wary.counting.tolist() == [[False, False], [True, True]]
    assert wary.scores.tolist() == [[0, 0], [1_000_000_000, 1_000_000_000]]
    assert wary.unjudged is not None
    assert wary.unjudged.tolist() == [[True, True], [False, False]]
    assert wary.suspected is not None
    assert wary.suspected.tolist() == [[True, False], [False, False]]  # bob's is malformed, whatever is suspected


def test_a_scheme_that_says_nothing_of_injections_has_the_digest_that_it_had() -> None:
    assert "injection" not in TWO.model_dump(mode="json", exclude_none=True)


@pytest.mark.parametrize("odd", [1, 1.0, 0, "true", None])
def test_a_malformed_judgement_is_not_the_same_as_one_that_python_finds_equal_to_it(odd: object) -> None:
    whole = make("rubric", baseline=MET, checks=BOTH, verdict="COHERENT")
    other = make("rubric", baseline=MET | {"B1": odd}, checks=BOTH, verdict="COHERENT")
    for records in ([whole, other], [other, whole]):
        with pytest.raises(BadInput, match="two different records for one key"):
            accepted(records, axes())
    assert accepted([whole, whole.model_copy()], axes()) == [whole]


@pytest.mark.parametrize(
    ("content", "bare"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ('```\n{"a": 1}\n```', '{"a": 1}'),
        (' \n```json \t\r\n{\n"a": 1\n}\r\n  ``` \n', '{\n"a": 1\n}\r'),
        ('<think>a {"b": 2}\n</think>\n\n{"a": 1}', '\n\n{"a": 1}'),
        ("\n<think></think>{}", "{}"),
    ],
)
def test_a_fence_or_a_thought_is_taken_off(content: str, bare: str) -> None:
    assert answer_text(content, "text") == bare
    assert answer_text(content, "json_object") == bare
    assert answer_text(content, "json_schema") == content


@pytest.mark.parametrize(
    "content",
    [
        "",
        "```json\n{}",
        "```json {}\n```",
        "```JSON\n{}\n```",
        "```python\n{}\n```",
        "~~~\n{}\n~~~",
        "Here it is:\n```json\n{}\n```",
        "```json\n{}\n```\nThat is all.",
        "<think>no end {}",
        "<thinking>{}</thinking>{}",
        "{}<think></think>",
        "\u00a0```json\n{}\n```",
    ],
)
def test_nothing_else_is_taken_off(content: str) -> None:
    assert answer_text(content, "text") == content


@pytest.mark.parametrize(
    ("content", "left"),
    [
        ("```json\n```\n{}\n```\n```", "```\n{}\n```"),
        ("<think>1</think><think>2</think>{}", "<think>2</think>{}"),
        ("<think>1</think>\n```json\n{}\n```", "\n```json\n{}\n```"),
        ('<think>1</think>{"a": 1}</think>{"a": 2}', '{"a": 1}</think>{"a": 2}'),
    ],
)
def test_one_of_them_is_taken_off_once(content: str, left: str) -> None:
    assert answer_text(content, "text") == left


PANEL = {"kind": "rubric", "checks": [{"id": "C.1", "weight": 6000}, {"id": "C2", "weight": 4000}], "panel": {"answers": 3}}


def vote(judge: str, first: bool, second: bool, verdict: str = "COHERENT") -> dict[str, object]:
    return {"judge": judge, "baseline": MET, "checks": {"C.1": first, "C2": second}, "verdict": verdict}


def test_flips_are_counted_by_question_and_by_judge() -> None:
    rules = RubricScore.model_validate(PANEL)
    answers = [vote("a", True, True), vote("b", False, True), vote("a", True, False, "FLAWED")]
    decision = decide([PanelAnswer.model_validate(answer) for answer in answers], rules)
    assert (decision.why, decision.checks, decision.verdict) == (None, {"C.1": True, "C2": True}, "COHERENT")
    assert {rate.name: str(rate) for rate in decision.questions if rate.flips} == {"C.1": "1/3", "C2": "1/3", "verdict": "1/3"}
    assert [str(rate) for rate in decision.judges] == ["0/7", "1/7", "2/7"]


@given(st.permutations(range(5)), st.lists(st.sampled_from(VERDICTS), min_size=5, max_size=5), st.integers(0, 5))
def test_the_order_of_a_panel_decides_nothing(order: list[int], words: list[str], no: int) -> None:
    rules = RubricScore.model_validate(PANEL | {"panel": {"answers": 5, "max_disagreement": "2/5"}})
    answers = [PanelAnswer.model_validate(vote("a", at >= no, True, word)) for at, word in enumerate(words)]
    decision, turned = decide(answers, rules), decide([answers[at] for at in order], rules)
    assert (decision.why, decision.checks, decision.verdict, decision.questions) == (
        turned.why,
        turned.checks,
        turned.verdict,
        turned.questions,
    )


def test_without_a_panel_schemes_and_records_are_what_they_were() -> None:
    rules = RubricScore.model_validate({name: value for name, value in PANEL.items() if name != "panel"})
    assert "panel" not in rules.model_dump(mode="json", exclude_none=True)
    assert "panel" not in make("rubric", baseline=MET, checks={"C.1": True, "C2": True}, verdict="COHERENT").document()
