"""Quality of an output by the four measures, exactly, and against references that were worked out by hand. SPEC 2.2."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.exact import NANO
from assay.judge.workflow import limits, quality, values
from assay.judge.workflow.quality import CodeRules, library
from assay.scheme.reading import validate
from judge_kit import bubblewrap

RUFF = quality._version(quality._ruff() or Path("ruff"))


def nanos(part: int, whole: int) -> int:
    return round(Fraction(part * NANO, whole))


# rag


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("reference", "output", "common", "tokens"),
    [
        ("the cat sat on the mat", "the cat sat on the mat", 6, 12),
        ("the cat sat on the mat", "The CAT, sat: on... the mat!", 6, 12),
        ("the cat sat on the mat", "the mat sat on the cat", 4, 12),
        ("police killed the gunman", "police kill the gunman", 3, 8),
        ("police killed the gunman", "the gunman kill police", 2, 8),
        ("a b c", "x y z", 0, 6),
        ("a b c", "", 0, 3),
        ("a", "a " * 99, 1, 100),
    ],
)
def test_rouge_l_is_made_of_integers(reference: str, output: str, common: int, tokens: int) -> None:
    score = quality.score_rag(reference, output)
    assert score.nanos == nanos(2 * common, tokens)
    assert (score.how["measure"], score.how["use_stemmer"], score.how["tool"][:12]) == ("rougeL", False, "rouge-score ")


def subsequence(first: list[str], other: list[str]) -> int:
    """The length of the longest common subsequence, slowly."""
    rows = [[0] * (len(other) + 1)]
    for word in first:
        row = [0]
        for place, against in enumerate(other):
            row.append(rows[-1][place] + 1 if word == against else max(row[-1], rows[-1][place + 1]))
        rows.append(row)
    return rows[-1][-1]


words = st.lists(st.sampled_from(["a", "b", "c", "d1", "E"]), min_size=1, max_size=30)


@given(words, words)
def test_rouge_l_is_that_of_an_oracle(first: list[str], other: list[str]) -> None:
    common = subsequence([word.lower() for word in first], [word.lower() for word in other])
    assert quality.score_rag(" ".join(first), " ".join(other)).nanos == nanos(2 * common, len(first) + len(other))


@given(st.text() | st.text("aZ0 -_é\n"))
def test_tokens_are_those_of_the_librarys_default_tokenizer(text: str) -> None:
    assert quality.tokens(text) == library("rouge_score.tokenizers").DefaultTokenizer(use_stemmer=False).tokenize(text)


def test_an_output_of_another_kind_is_taken_as_its_json_and_a_long_one_is_worth_nothing() -> None:
    assert quality.score_rag("k 1", {"k": 1}).nanos == NANO
    assert quality.score_rag("a", "a " * (limits.ROUGE_OUTPUT + 1)).nanos == 0
    for reference in ("", "…", "a " * (limits.ROUGE_REFERENCE + 1)):
        with pytest.raises(BadInput, match="tokens; it must have from 1 to 1000"):
            quality.check_reference(reference)


# agent


def checklist(*checks: dict[str, Any]) -> tuple[Any, ...]:
    kinds: dict[str, Any] = {"keyword": quality.Keyword, "json_key": quality.JsonKey, "regex": quality.Regex}
    return tuple(validate(kinds[check["kind"]], check) for check in checks)


def test_a_checklist_is_a_share() -> None:
    checks = checklist(
        {"kind": "keyword", "text": "Leave THE building"},
        {"kind": "json_key", "path": "result.0.priority"},
        {"kind": "json_key", "path": "result.0.priority", "equals": "P1"},
        {"kind": "json_key", "path": "result.0.count", "equals": 1},
        {"kind": "json_key", "path": "result.0.sure", "equals": True},
        {"kind": "json_key", "path": "result.1"},
        {"kind": "regex", "pattern": "(?i)fire (brigade|department)"},
        {"kind": "regex", "pattern": "^never$"},
    )
    output = {"result": [{"priority": "P1", "count": 1, "sure": True}], "say": "leave the building, FIRE Brigade"}
    score = quality.score_checklist(checks, output)
    assert score.nanos == 6 * NANO // 8
    assert score.how["met"] == ["yes", "yes", "yes", "yes", "yes", "no", "yes", "no"]
    assert quality.score_checklist(checks, json.dumps(output)).nanos == score.nanos
    assert quality.score_checklist(checks, "not JSON").nanos == 0


@pytest.mark.parametrize(("equals", "met"), [(1, "no"), (True, "yes"), (None, "no")])
def test_true_is_not_one(equals: Any, met: str) -> None:
    assert quality.score_checklist(checklist({"kind": "json_key", "path": "k", "equals": equals}), {"k": True}).how["met"] == [
        met
    ]


@pytest.mark.full
def test_a_slow_expression_is_not_met_and_does_not_hold_anybody_up() -> None:
    began = time.monotonic()
    score = quality.score_checklist(checklist({"kind": "regex", "pattern": "(a|aa)+$"}), "a" * 100 + "b")
    assert (score.nanos, score.how["met"]) == (0, ["too slow"])
    assert time.monotonic() - began < 60


def test_an_expression_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="is not a regular expression"):
        checklist({"kind": "regex", "pattern": "("})


# data_transform


@pytest.mark.parametrize(
    ("reference", "output", "part", "whole"),
    [
        ('{"a": 1.0, "b": [true, null]}', '{"b": [true, null], "a": 1}', 1, 1),
        ('{"a": 1, "b": 2}', '{"a": 1, "b": 3}', 1, 2),
        ('{"a": 1, "b": 2}', '{"a": 1}', 1, 2),
        ('{"a": 1}', '{"a": 1, "b": 2, "c": 3}', 1, 3),
        ("[1, 2, 3]", "[1, 3, 2]", 1, 3),
        ("[]", "[]", 1, 1),
        ("[]", "{}", 0, 1),
        ('{"a": 0.1}', '{"a": 0.10000000000000001}', 0, 1),
        ('{"a": 0.30}', '{"a": 0.3}', 1, 1),
        ('{"a": "1"}', '{"a": 1}', 0, 1),
        ('"text"', '"text"', 1, 1),
        ('{"a": {"b": 1, "c": 2}}', '{"a": 1}', 0, 3),
    ],
)
def test_data_is_compared_field_by_field(reference: str, output: str, part: int, whole: int) -> None:
    wanted, actual = values.parse(reference.encode()), values.parse(output.encode())
    assert quality.score_data(wanted, None, actual).nanos == nanos(part, whole)
    if not isinstance(wanted, str):
        assert quality.score_data(wanted, None, output).nanos == nanos(part, whole)


def test_a_text_that_is_no_json_is_worth_nothing() -> None:
    assert quality.score_data({"a": 1}, None, "a: 1").nanos == 0


SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number", "multipleOf": values.parse(b"0.01")},
        "code": {"pattern": "^[A-Z]+$"},
        "tags": {"uniqueItems": True},
    },
}


@pytest.mark.parametrize(
    ("output", "fits"),
    [
        (b'{"id": 1, "price": 0.10, "code": "AB", "tags": [1, "1", true]}', True),
        (b'{"id": 1.0}', True),
        (b'{"id": 1.5}', False),
        (b'{"id": true}', False),
        (b'{"price": 1}', False),
        (b'{"id": 1, "price": 0.105}', False),
        (b'{"id": 1, "code": "ab"}', False),
        (b'{"id": 1, "tags": [{"a": 1}, {"a": 1.0}]}', False),
    ],
)
def test_a_schema_decides_whether_an_output_is_worth_anything(output: bytes, fits: bool) -> None:
    value = values.parse(output)
    assert (quality.fits(SCHEMA, value) == "") is fits
    score = quality.score_data({"id": 1, "other": 2}, SCHEMA, value)
    assert (score.nanos > 0) is fits
    assert score.how["tool"].startswith("jsonschema ")


@pytest.mark.full
def test_a_schema_cannot_hold_anybody_up() -> None:
    slow = {"properties": {"code": {"pattern": "(a|aa)+$"}}}
    assert quality.fits(slow, {"code": "a" * 100 + "b"}) == "a pattern took too long"
    many = {"properties": {"tags": {"uniqueItems": True}}}
    assert quality.fits(many, {"tags": [{"n": place} for place in range(20_000)]}) == ""
    assert quality.fits({"$ref": "#/$defs/gone"}, {}) != ""


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "nothing"}, "is not a JSON Schema"),
        ([], "is not a JSON object"),
        ({"$ref": "https://example.com/schema"}, "cannot be used here"),
        ({"properties": {"a": {"patternProperties": {}}}}, "cannot be used here"),
        ({"required": ["b"]}, "the reference does not fit it: $: 'b' is a required property"),
    ],
)
def test_a_schema_that_is_none_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        quality.check_schema(schema, {"a": 1})
    assert message in str(refused.value)


# code


@pytest.mark.parametrize(
    ("passed", "tests", "findings", "wanted"),
    [(1, 1, 0, "1"), (0, 1, 0, "0.3"), (0, 1, 20, "0"), (0, 1, 100, "0"), (2, 3, 1, "0.751666667"), (1, 3, 19, "0.248333333")],
)
def test_code_is_seven_parts_tests_and_three_parts_lint(passed: int, tests: int, findings: int, wanted: str) -> None:
    assert quality.code_quality(passed, tests, findings) == round(Fraction(wanted) * NANO)


@given(st.integers(1, 200), st.integers(0, 30), st.data())
def test_the_quality_of_code_is_rounded_once(tests: int, findings: int, more: st.DataObject) -> None:
    passed = more.draw(st.integers(0, tests))
    exact = Fraction(7, 10) * Fraction(passed, tests) + Fraction(3, 10) * max(Fraction(0), 1 - Fraction(findings, 20))
    assert quality.code_quality(passed, tests, findings) == round(exact * NANO)


def rules(*cases: dict[str, Any], **more: Any) -> CodeRules:
    whole = [{"name": str(place), "command": ["python3", "solution.py"]} | case for place, case in enumerate(cases)]
    return validate(CodeRules, {"lint": {"ruff": RUFF}, "cases": whole} | more)


SQUARE = {"stdin": "3\n", "stdout": "9"}


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("program", "case", "outcome", "findings"),
    [
        ("print(int(input()) ** 2)\n", SQUARE, "passed", 0),
        ("import os, sys\nprint(int(input()) ** 2)\n", SQUARE, "passed", 3),  # two of them unused, on one line
        ("import os  # noqa\nprint(9)\n", SQUARE, "passed", 1),
        ("# ruff: noqa\nimport os\nprint(9)\n", SQUARE, "passed", 1),
        ("print(8)\n", SQUARE, "another output", 0),
        ("import sys\n\nsys.exit(0)\n", SQUARE, "another output", 0),
        ("print(9)\nraise SystemExit(1)\n", SQUARE, "exit code 1", 0),
        ("print(", SQUARE, "exit code 1", None),
        ("while True:\n    pass\n", SQUARE | {"seconds": "1"}, "bound on time", 0),
        ("import socket\n\nsocket.create_connection(('127.0.0.1', 80))\n", SQUARE, "exit code 1", 0),
    ],
)
def test_code_is_tried_and_linted_in_a_box(program: str, case: dict[str, Any], outcome: str, findings: int | None) -> None:
    score = quality.score_code(rules(case), None, program, bubblewrap())
    assert score.how["cases"] == {"0": outcome}
    if findings is not None:
        assert score.how["findings"] == findings
        assert score.nanos == quality.code_quality(outcome == "passed", 1, findings)
    assert score.how["tool"] == f"ruff {RUFF}"


def test_code_may_be_several_files_and_tests_may_bring_their_own(tmp_path: Path) -> None:
    (tmp_path / "drive.py").write_text(
        "import sys\nsys.path.insert(0, '/app')\nfrom pkg.a import f\nprint(f(2))\n", encoding="utf-8"
    )
    files = {"pkg/a.py": "from pkg.b import g\n\n\ndef f(n):\n    return g(n)\n", "pkg/b.py": "def g(n):\n    return n * 21\n"}
    score = quality.score_code(
        rules({"command": ["python3", "/tests/drive.py"], "stdout": "42\n"}), tmp_path, files, bubblewrap()
    )
    assert (score.nanos, score.how["findings"]) == (NANO, 0)


@pytest.mark.parametrize(
    "output",
    [
        None,
        5,
        [],
        {},
        {"a.py": 1},
        {"../a.py": ""},
        {"/a.py": ""},
        {"a/./b": ""},
        {"a//b": ""},
        {"a": "", "a/b": ""},
        {"x/a": "", "x/a/b": ""},
        {"-c": ""},
    ],
)
def test_what_stands_for_no_files_is_worth_nothing(output: Any) -> None:
    assert quality.score_code(rules(SQUARE), None, output, bubblewrap()).nanos == 0


def test_another_ruff_is_not_used() -> None:
    with pytest.raises(BadInput, match=r"the task wants ruff 0\.0\.1, and .* is installed; pip install ruff==0\.0\.1"):
        quality.check_ruff(quality.Lint(ruff="0.0.1"))
