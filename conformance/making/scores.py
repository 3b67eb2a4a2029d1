"""Cases of scores: evidence of one validator about one participant. SPEC 2."""

from __future__ import annotations

from typing import Any

from . import choices
from .case import CaseDraft, File, case, refused

Doc = dict[str, Any]


def rate(passed: int, trials: int, score: str, note: str = "") -> CaseDraft:
    return case(note or f"{passed} of {trials}", {"passed": passed, "trials": trials}, {"score": score})


TESTS = [
    rate(73, 91, "0.802197802"),
    rate(8, 10, "0.8"),
    rate(0, 80, "0"),
    rate(80, 80, "1"),
    rate(1, 3, "0.333333333"),
    rate(2, 3, "0.666666667"),
    rate(1, 7, "0.142857143"),
    rate(1, 1024, "0.000976562", "1 of 1024 is a tie at the tenth digit: to the even one, below"),
    rate(3, 1024, "0.002929688", "3 of 1024 is a tie at the tenth digit: to the even one, above"),
    rate(1, 1_000_000_000, "0.000000001", "one of a thousand million"),
    rate(273, 455, "0.6", "five trials of 91 tasks"),
    refused("more passed than run", {"passed": 4, "trials": 3}, "a rate is at most 1"),
    refused("no trial at all", {"passed": 0, "trials": 0}, "a task set has a task"),
]

RAN: Doc = {
    "quality": "1",
    "steps_completed": 4,
    "steps_total": 4,
    "cost": "0",
    "budget": "0.05",
    "seconds": "0",
    "max_seconds": "10",
}


def ran(name: str, score: str, expect: Doc | None = None, rules: Doc | None = None, **task: Any) -> CaseDraft:
    given = {"score": {"kind": "workflow", **(rules or {})}, "task": RAN | task}
    return case(name, given, {"score": score} | (expect or {}))


def not_run(name: str, why: str, rules: Doc | None = None, **task: Any) -> CaseDraft:
    return refused(name, {"score": {"kind": "workflow", **(rules or {})}, "task": RAN | task}, why)


ALL_SUCCESS = {"weights": {"success": "1", "cost": "0", "latency": "0", "reliability": "0"}}
PARTS = {"success": "0.75", "cost": "0.8", "latency": "0.8", "reliability": "0.5"}

WORKFLOW = [
    ran("three of four steps and a hard failure", "0.745", PARTS, steps_completed=3, cost="0.01", seconds="2", hard_failures=1),
    ran("the gate is strict: 0.7 is not enough", "0.45", {"cost": "0", "latency": "0"}, quality="0.7"),
    ran("a nano above the gate", "0.85", {"cost": "1", "latency": "1"}, quality="0.700000001"),
    ran("all well", "1"),
    ran("one retry more than declared", "0.99", {"reliability": "0.9"}, retries=3, declared_retries=2),
    ran("retries as declared cost nothing", "1", {"reliability": "1"}, retries=2, declared_retries=2),
    ran("fewer retries than declared are no credit", "1", {"reliability": "1"}, retries=0, declared_retries=2),
    ran("declared retries are bounded per step", "0.95", {"reliability": "0.5"}, retries=25, declared_retries=25),
    ran("no retry may be declared", "0.98", {"reliability": "0.8"}, {"max_retries_per_step": 0}, retries=2, declared_retries=9),
    ran("a timeout", "0.98", {"reliability": "0.8"}, timeouts=1),
    ran("two hard failures leave no reliability", "0.9", {"reliability": "0"}, hard_failures=2),
    ran("reliability does not go below 0", "0.9", {"reliability": "0"}, hard_failures=5, timeouts=9),
    ran("reliability counts below the gate", "0.1", {"success": "0", "reliability": "1"}, quality="0"),
    ran("cost at the budget", "0.75", {"cost": "0"}, cost="0.05"),
    ran("cost above the budget is no less than 0", "0.75", {"cost": "0"}, cost="7"),
    ran("time at the limit", "0.85", {"latency": "0"}, seconds="10"),
    ran("time above the limit is no less than 0", "0.85", {"latency": "0"}, seconds="99.5"),
    ran("no step done", "0.1", {"success": "0"}, steps_completed=0),
    ran(
        "a third: rounded once, at the end",
        "0.266666667",
        {"success": "0.333333333"},
        quality="1",
        steps_completed=1,
        steps_total=3,
    ),
    ran(
        "a tie goes to the even nano",
        "0.000000002",
        {"success": "0.000000002"},
        ALL_SUCCESS,
        quality="0.000000005",
        steps_completed=1,
        steps_total=2,
    ),
    ran(
        "another tie, upwards",
        "0.000000004",
        {"success": "0.000000004"},
        ALL_SUCCESS,
        quality="0.000000007",
        steps_completed=1,
        steps_total=2,
    ),
    ran("another gate", "0.92", None, {"gate": "0.8"}, quality="0.84"),
    ran("a gate of 1 lets nothing through", "0.6", {"cost": "0", "latency": "0"}, {"gate": "1"}),
    ran("weights of the scheme", "0.75", None, ALL_SUCCESS, steps_completed=3, cost="9"),
    ran("penalties of the scheme", "0.97", {"reliability": "0.7"}, {"penalties": {"timeout": "0.3"}}, timeouts=1),
    ran("an invalid plan is 0", "0", {"success": "0", "reliability": "0"}, outcome="invalid"),
    not_run("a service error has no score", "it is taken out before", outcome="service-error"),
    not_run("a budget of 0", "the budget is more than 0", budget="0"),
    not_run("a limit of 0 seconds", "max_seconds is more than 0", max_seconds="0"),
    not_run("no steps at all", "steps_total is more than 0", steps_total=0, steps_completed=0),
    not_run("more steps completed than there are", "steps_completed is at most steps_total", steps_completed=5),
    not_run("quality above 1", "quality is from 0 to 1", quality="1.1"),
    not_run("a cost that is a JSON float", "amounts are decimal strings", cost=0.01),
    not_run("weights that do not sum to 1", "the four weights sum to 1", {"weights": {"success": "0.6"}}),
]

MET = {"B1": True, "B2": True, "B3": True, "B4": True}
SEED = [
    {"id": name, "weight": weight, "skippable": name not in ("C1", "C2", "C4")}
    for name, weight in zip(
        ["C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8"], [2000, 1500, 1000, 1500, 1000, 1000, 1000, 1000], strict=True
    )
]
VERDICTS = ["EXCEPTIONAL", "ELEGANT", "COHERENT", "MINOR_ISSUES", "FLAWED", "FUNDAMENTALLY_BROKEN"]
TABLE: list[tuple[str, list[str], list[int]]] = [
    ("C6 and C8 missed", ["C6", "C8"], [10000, 9000, 8000, 7200, 6400, 2000]),
    ("every skippable check missed", ["C3", "C5", "C6", "C7", "C8"], [10000, 7500, 5000, 4500, 4000, 2000]),
    ("an unskippable check missed", ["C1"], [2000, 2000, 2000, 2000, 2000, 2000]),
    ("all but C8 missed", ["C1", "C2", "C3", "C4", "C5", "C6", "C7"], [2000, 2000, 1000, 900, 800, 1000]),
    ("nothing missed", [], [10000, 10000, 10000, 9000, 8000, 2000]),
]


def judged(name: str, expect: Doc, rubric: Any = SEED, *, failed: list[str] | None = None, **judgement: Any) -> CaseDraft:
    answers = {check["id"]: check["id"] not in (failed or []) for check in rubric}
    given = {"score": {"kind": "rubric", "checks": rubric}, "baseline": MET, "checks": answers, "verdict": "COHERENT"}
    return case(name, given | judgement, expect)


def malformed(name: str, **judgement: Any) -> CaseDraft:
    return judged(name, {"malformed": True}, **judgement)


def no_rubric(name: str, checks: list[Doc], why: str) -> CaseDraft:
    given = {"score": {"kind": "rubric", "checks": checks}, "baseline": MET, "checks": {}, "verdict": "COHERENT"}
    return refused(name, given, why)


ODD = [{"id": "C1", "weight": 7001, "unskippable": True}, {"id": "C2", "weight": 2999}]
ANSWERED = {check["id"]: True for check in SEED}

RUBRIC = [
    *(
        judged(f"{name}, {verdict}", {"bps": bps}, failed=failed, verdict=verdict)
        for name, failed, finals in TABLE
        for verdict, bps in zip(VERDICTS, finals, strict=True)
    ),
    judged(
        "half of the missed points is floored",
        {"base": 7001, "missed_skippable": 2999, "bps": 8500},
        ODD,
        failed=["C2"],
        verdict="ELEGANT",
    ),
    judged("a tenth of the base is floored", {"base": 7001, "bps": 6301}, ODD, failed=["C2"], verdict="MINOR_ISSUES"),
    judged("a fifth of the base is floored", {"base": 7001, "bps": 5601}, ODD, failed=["C2"], verdict="FLAWED"),
    judged("both spellings of skippable", {"capped": True, "base": 2999, "bps": 2000}, ODD, failed=["C1"]),
    judged(
        "points missed on unskippable checks do not come back",
        {"base": 8000, "missed_skippable": 0, "bps": 2000},
        failed=["C1"],
        verdict="EXCEPTIONAL",
    ),
    *(
        judged(
            f"the baseline is not met, {verdict}",
            {"gate": False, "bps": 0, "verdict": None},
            baseline=MET | {"B3": False},
            verdict=verdict,
        )
        for verdict in VERDICTS
    ),
    judged(
        "below the baseline checks and verdict may be absent",
        {"gate": False, "bps": 0},
        baseline=MET | {"B1": False},
        checks=None,
        verdict=None,
    ),
    judged("answers to checks that are not asked are ignored", {"bps": 10000}, checks=ANSWERED | {"C99": False}),
    malformed("an answer is missing", checks={name: True for name in ANSWERED if name != "C5"}),
    malformed("an answer is a string", checks=ANSWERED | {"C5": "yes"}),
    malformed("an answer is 1", checks=ANSWERED | {"C5": 1}),
    malformed("an answer is null", checks=ANSWERED | {"C5": None}),
    malformed("a baseline answer is missing", baseline={"B1": True, "B2": True, "B3": True}),
    malformed("a baseline answer is missing and another is false", baseline={"B1": False, "B2": True, "B3": True}),
    malformed("an unknown verdict", verdict="GOOD"),
    malformed("a verdict in small letters", verdict="coherent"),
    malformed("no verdict", verdict=None),
    malformed("no checks", checks=None),
    malformed("checks as a list", checks=["C1", "C2"]),
    malformed("no baseline", baseline=None),
    no_rubric("weights that sum to less", [{"id": "C1", "weight": 9999}], "weights sum to 10 000"),
    no_rubric("weights that sum to more", [{"id": "C1", "weight": 6000}, {"id": "C2", "weight": 4001}], "weights sum to 10 000"),
    no_rubric("a weight of 0", [{"id": "C1", "weight": 10000}, {"id": "C2", "weight": 0}], "weights are positive"),
    no_rubric("one id twice", [{"id": "C1", "weight": 5000}, {"id": "C1", "weight": 5000}], "each check has its own id"),
    no_rubric("no checks in the rubric", [], "a rubric has checks"),
    no_rubric(
        "both spellings at once", [{"id": "C1", "weight": 10000, "skippable": True, "unskippable": False}], "one of the two"
    ),
]

ONE = {"org/one": "5"}
TWO = {"org/one": "5", "org/two": "0.5"}
FIVE = {f"org/{n}": "5" for n in "abcdef"}


def issues(
    name: str, points: str, score: str, valid: Doc, invalid: int = 0, starred: int = 0, table: Doc | None = None, **rules: Any
) -> CaseDraft:
    section = {"kind": "points", "repositories": table or ONE, **rules}
    given = {"score": section, "valid": valid, "invalid": invalid, "starred": starred}
    return case(name, given, {"points": points, "score": score})


POINTS = [
    issues("twenty valid issues are 100 %", "100", "1", {"org/one": 20}),
    issues("more is still 100 %", "105", "1", {"org/one": 21}),
    issues("nine valid issues and a star", "45.25", "0.4525", {"org/one": 9}, starred=1),
    issues("stars count at most 1.25", "6.25", "0.0625", {"org/a": 1}, starred=6, table=FIVE),
    issues("five stars are 1.25", "6.25", "0.0625", {"org/a": 1}, starred=5, table=FIVE),
    issues("stars alone are nothing", "0", "0", {"org/a": 0}, starred=5, table=FIVE),
    issues("as many invalid as valid", "25", "0.25", {"org/one": 5}, invalid=5),
    issues("more invalid than valid", "0", "0", {"org/one": 5}, invalid=6, starred=1),
    issues("a table of different worth", "16", "0.16", {"org/one": 3, "org/two": 2}, table=TWO),
    issues("invalid ones are compared with all valid ones", "10.5", "0.105", {"org/one": 2, "org/two": 1}, invalid=3, table=TWO),
    issues("nothing at all", "0", "0", {}),
    issues("a third of 7, half to even", "5", "0.714285714", {"org/one": 1}, full_points=7),
    issues("star points of the scheme", "7", "0.07", {"org/one": 1}, starred=1, star_points="2", star_max="9"),
    refused(
        "a repository outside the table",
        {"score": {"kind": "points", "repositories": ONE}, "valid": {"org/two": 1}, "invalid": 0, "starred": 0},
        "issues elsewhere are not counted",
    ),
    refused(
        "a negative count",
        {"score": {"kind": "points", "repositories": ONE}, "valid": {"org/one": -1}, "invalid": 0, "starred": 0},
        "counts are at least 0",
    ),
    refused(
        "no table",
        {"score": {"kind": "points", "repositories": {}}, "valid": {}, "invalid": 0, "starred": 0},
        "a table has a repository",
    ),
]

ANSWER = '{"verdict": "COHERENT"}'
FENCE, THOUGHT = f"```json\n{ANSWER}\n```", f"<think>Is it?</think>{ANSWER}"


def answered(name: str, form: str, content: str, text: str | None = None) -> CaseDraft:
    return case(name, {"format": form, "content": content}, {"text": content if text is None else text})


ANSWERS = [
    *(answered(f"nothing around it, {form}", form, ANSWER) for form in ("json_schema", "json_object", "text")),
    *(answered(f"a fence, {form}", form, FENCE, ANSWER) for form in ("json_object", "text")),
    answered("a fence where there is a schema", "json_schema", FENCE),
    *(answered(f"a thought, {form}", form, THOUGHT, ANSWER) for form in ("json_object", "text")),
    answered("a thought where there is a schema", "json_schema", THOUGHT),
    answered("a fence that says no language", "text", f"```\n{ANSWER}\n```", ANSWER),
    answered("white space around a fence and after its words", "text", f" \r\n\t```json \t\r\n{ANSWER}\n \t``` \n", ANSWER),
    answered("a carriage return before the last line stays", "text", f"```json\r\n{ANSWER}\r\n```", f"{ANSWER}\r"),
    answered("a no-break space is no white space", "text", f"\u00a0{FENCE}"),
    answered("a fence of another language", "text", f"```python\n{ANSWER}\n```"),
    answered("a fence of another spelling", "text", f"```JSON\n{ANSWER}\n```"),
    answered("a fence of waves", "text", f"~~~\n{ANSWER}\n~~~"),
    answered("a fence in one line", "text", f"```{ANSWER}```"),
    answered("a fence without an end", "text", f"```json\n{ANSWER}"),
    answered("words before a fence", "text", f"Here:\n{FENCE}"),
    answered("words after a fence", "text", f"{FENCE}\nThat is all."),
    answered("two fences around it", "text", f"```\n```json\n{ANSWER}\n```\n```", FENCE),
    answered("two fences in a row", "text", f"{FENCE}\n{FENCE}", f"{ANSWER}\n```\n```json\n{ANSWER}"),
    answered("white space before a thought, and after it", "text", f"\n<think>\n</think>\n\n{ANSWER}", f"\n\n{ANSWER}"),
    answered("a thought with an answer in it", "text", f"<think>{ANSWER}</think>{ANSWER}", ANSWER),
    answered("a thought without an end", "text", f"<think>{ANSWER}"),
    answered("a thought that ends twice", "text", f"<think>1</think>{ANSWER}</think>{ANSWER}", f"{ANSWER}</think>{ANSWER}"),
    answered("two thoughts", "text", f"<think>1</think><think>2</think>{ANSWER}", f"<think>2</think>{ANSWER}"),
    answered("a thought after it", "text", f"{ANSWER}<think>1</think>"),
    answered("a thought, then a fence", "text", f"<think>1</think>\n{FENCE}", f"\n{FENCE}"),
    answered("another tag", "text", f"<thinking>1</thinking>{ANSWER}"),
    answered("a tag of another spelling", "text", f"<THINK>1</THINK>{ANSWER}"),
    answered("nothing at all", "text", ""),
    refused("no format of ours", {"format": "yaml", "content": ""}, "there are json_schema, json_object and text"),
]

FILES = [
    File("rubric-answer", "rubric-answer", "What of a model's answer is read as its JSON (SPEC 2.3).", ANSWERS),
    File("score-tests", "tests", "The share of trials passed (SPEC 2.1).", TESTS),
    File("score-workflow", "workflow", "One task of a workflow (SPEC 2.2).", WORKFLOW),
    File("score-rubric", "rubric", "One judgement by rubric, in BPS (SPEC 2.3).", RUBRIC),
    File("score-points", "points", "Points for issues and stars (SPEC 2.4).", [*POINTS, *choices.ISSUES]),
]
