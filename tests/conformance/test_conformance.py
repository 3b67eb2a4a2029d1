"""The cases of conformance/: Assay passes them, make.py writes them, they show every rule; and the runner sees faults. SPEC 6."""

import importlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.conformance import KINDS, answer, cases, differences, files, read, run, runner, serve
from assay.conformance.cases import ABSENT, Difference
from assay.errors import BadInput, Refused

Doc = dict[str, Any]

FOLDER = Path(__file__).parents[2] / "conformance"
NAMES = sorted(path.name for path in FOLDER.glob("*.json") if not path.name.endswith(".schema.json"))


@cache
def drafted(name: str) -> Any:
    """A case file as it is."""
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def all_of(kind: str) -> Iterator[Doc]:
    """Every case of a kind."""
    for name in NAMES:
        if drafted(name)["kind"] == kind:
            yield from drafted(name)["cases"]


# The cases themselves.


@pytest.mark.parametrize("name", NAMES)
def test_assay_passes(name: str, tmp_path: Path) -> None:
    shutil.copy(FOLDER / name, tmp_path)
    report = run(tmp_path)
    assert report.good, "\n".join(report.lines())
    assert report.cases == len(drafted(name)["cases"])


def test_every_kind_has_cases_that_pass_and_cases_that_are_refused() -> None:
    pairs = {(drafted(name)["kind"], "refused" in case) for name in NAMES for case in drafted(name)["cases"]}
    never = {(kind, True) for kind in ("clock", "weights")}  # a malformed input is no case
    assert pairs | never == {(kind, refused) for kind in KINDS for refused in (True, False)}


PROVING = {"merkle-tree", "inclusion", "consistency", "checkpoint", "log-proof", "dsse", "tile-path", "tiled-log", "batch"}
PROVING |= {"witnessed", "fork", "evidence-root", "inputs", "results-root", "receipt", "proof", "verify"}


def test_the_names_of_the_ledger_say_what_is_refused() -> None:
    by_kind = {kind: [(case["name"].endswith("_fail"), "refused" in case) for case in all_of(kind)] for kind in PROVING}
    assert [kind for kind, pairs in by_kind.items() if any(named != refused for named, refused in pairs)] == []


def test_an_epoch_is_refused_at_the_stage_that_its_case_names() -> None:
    for case in all_of("verify"):
        if "refused" in case:
            with pytest.raises(Refused) as refused:
                answer("verify", case["input"])
            assert case["why"].startswith(f"{refused.value.stage}: "), case["name"]
    stages = {case["why"].partition(":")[0] for case in all_of("verify") if "refused" in case}
    assert stages == {"receipt", "log", "chain", "evidence", "signatures", "inputs", "settlement", "results"}


def test_there_are_many_and_they_are_small() -> None:
    assert sum(len(drafted(name)["cases"]) for name in NAMES) > 900
    assert sum((FOLDER / name).stat().st_size for name in NAMES) < 9_000_000


@pytest.mark.full
@pytest.mark.slow
def test_the_files_are_what_make_writes() -> None:
    done = subprocess.run([sys.executable, str(FOLDER / "make.py"), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


SHOWN = [
    *(
        "outliers modified-z",
        "outliers z",
        "outliers none",
        "stake-mean",
        "stake-median",
        "mean",
        "assign",
        "max_age_epochs",
        "seq",
    ),
    *("agreed", "duplicate", "unjudged", "incomplete", "no-quorum", "no epoch", "excluded", "flagged majority"),
    *("same-submission", "malformed-or-unjudged", "missing-trials", "no-evidence", "too-few-validators", "too-little-stake"),
    *("stake-after-outliers", "not counted: not-assigned", "not counted: no-stake", "not counted: stake-below-minimum"),
    *("not counted: audit-failed", "not counted: unjudged", "not counted: incomplete", "not counted: no-tasks"),
    *("linear", "direct", "softmax", "winner-takes-all", "quadratic", "ranked", "round", "exact-sum", "max-upscale"),
    *("capped, redistribute", "capped, drop", "capped, burn", "unallocated", "below the floor", "nobody has a weight"),
    *("decay linear", "decay exponential", "decay none", "participant clock", "competition clock"),
    *("burnt by strategy", "burnt by cap", "burnt by decay", "burnt by unregistered"),
    *("payout", "tier 0", "tier 2500", "tier 5000", "tier 10000", "2 places"),
]


def test_the_settlements_show_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    shows = importlib.import_module("making.shows").shows

    features: set[str] = set()
    for case in all_of("settle"):
        if "output" in case:
            features |= shows(case["input"], case["output"])
    assert not set(SHOWN) - features


# A faulty implementation is seen.


def small(folder: Path, *drafts: Doc, kind: str = "tests") -> Path:
    """A folder with one case file."""
    folder.mkdir(exist_ok=True)
    document = {"schema": cases.SCHEMA, "kind": kind, "about": "A few.", "cases": list(drafts)}
    (folder / "few.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


HALF: Doc = {"name": "a half", "input": {"passed": 1, "trials": 2}, "output": {"score": "0.5"}}
THIRD: Doc = {"name": "a third", "input": {"passed": 1, "trials": 3}, "output": {"score": "0.333333333"}}
NONE: Doc = {"name": "none", "input": {"passed": 1, "trials": 0}, "refused": True, "why": "no trial"}


def test_a_wrong_number_is_reported_with_its_name_and_path(tmp_path: Path) -> None:
    altered = json.loads(json.dumps(next(case for case in all_of("settle") if case.get("output", {}).get("weights"))))
    altered["output"]["weights"][0]["u16"] += 1
    altered["output"]["zeal"] = 1
    report = run(small(tmp_path, altered, kind="settle"))
    (failure,) = report.files[0].failures
    assert not report.good
    assert failure.case == altered["name"]
    assert failure.difference is not None
    assert failure.difference.path == "weights[0].u16"
    assert (report.files[0].passed, report.failed) == (0, 1)
    assert f"  FAILED {altered['name']}: weights[0].u16: expected " in "\n".join(report.lines())


def test_what_is_refused_and_should_not_be_and_the_other_way_round(tmp_path: Path) -> None:
    wrong: list[Doc] = [
        {"name": "bad input", "input": {"passed": 3, "trials": 2}, "output": {"score": "1.5"}},
        {"name": "good input", "input": {"passed": 1, "trials": 2}, "refused": True, "why": "halves are odd"},
        NONE,
    ]
    report = run(small(tmp_path, *wrong))
    messages = [str(failure) for failure in report.files[0].failures]
    assert messages[0].startswith("bad input: it is refused (passed: more trials are passed than there are")
    assert messages[1] == "good input: it must be refused: halves are odd"
    assert len(messages) == 2
    assert report.lines()[-1] == "3 cases in 1 files: 0 outputs and 1 refusals right, 0 unsupported, 2 failed"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d | {"schema": "assay.cases/2"}, "schema"),
        (lambda d: d | {"kind": "taste"}, "there is no kind 'taste'"),
        (lambda d: d | {"cases": []}, "cases"),
        (lambda d: d | {"colour": "red"}, "colour"),
        (lambda d: d | {"cases": [HALF, HALF]}, r"cases\[1\].name: 'a half' is there twice"),
        (lambda d: d | {"cases": [HALF | {"refused": True}]}, "has an output and is refused, or neither"),
        (lambda d: d | {"cases": [{"name": "n", "input": 1}]}, "has an output and is refused, or neither"),
        (lambda d: d | {"cases": [HALF | {"refused": False}]}, "refused"),
        (lambda d: [d], "few.json"),
    ],
)
def test_a_file_that_is_no_case_file_is_refused(change: Callable[[Doc], Any], why: str, tmp_path: Path) -> None:
    small(tmp_path, HALF)
    path = tmp_path / "few.json"
    path.write_text(json.dumps(change(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")
    with pytest.raises(BadInput, match=why) as caught:
        read(path)
    assert caught.value.file == path


def test_a_folder_without_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no case files"):
        files(tmp_path)
    with pytest.raises(BadInput, match="no such folder"):
        files(tmp_path / "missing")
    (tmp_path / "few.json").write_text("{", encoding="utf-8")
    with pytest.raises(BadInput, match="is not JSON"):
        files(tmp_path)


def test_an_unknown_kind_and_a_wrong_input() -> None:
    with pytest.raises(BadInput, match="there is no kind 'taste'"):
        answer("taste", {})
    for kind in KINDS:
        wrongs: list[Any] = [{"colour": 1}, [], None, 7]
        for wrong in wrongs:
            with pytest.raises(BadInput):
                answer(kind, wrong)


# Another implementation.


def script(folder: Path, body: str) -> str:
    """A command that runs a few lines of Python."""
    path = folder / "other implementation.py"
    path.write_text(f"import json, sys, time\n{body}\n", encoding="utf-8")
    return f"'{sys.executable}' '{path}'"


def failures(folder: Path, command: str, *drafts: Doc, seconds: float = 60) -> list[str]:
    report = run(small(folder / "cases", *drafts), command, seconds=seconds)
    assert report.command == command
    return [str(failure) for file in report.files for failure in file.failures]


RIGHT = """
known = {1: {"refused": True}, 2: {"score": "0.5"}, 3: {"score": "0.333333333"}}
def right(line):
    asked = json.loads(line)
    assert asked["kind"] == "tests", asked
    print(json.dumps(known[asked["input"]["trials"] or 1]), flush=True)
"""


def test_assay_as_the_other_implementation(tmp_path: Path) -> None:
    for name in ("score-tests.json", "canonical.json", "decimal.json"):
        shutil.copy(FOLDER / name, tmp_path)
    command = script(tmp_path, "from assay.conformance import serve\nserve(sys.stdin.buffer, sys.stdout.buffer)")
    report = run(tmp_path, command)
    assert report.good, "\n".join(report.lines())
    assert len(report.files) == 3


def test_a_right_answer_from_elsewhere(tmp_path: Path) -> None:
    command = script(tmp_path, f"{RIGHT}\nfor line in sys.stdin: right(line)")
    assert failures(tmp_path, command, HALF, THIRD, NONE) == []


def test_a_wrong_answer_from_elsewhere(tmp_path: Path) -> None:
    command = script(tmp_path, 'for line in sys.stdin: print(json.dumps({"score": "0.5", "by": "me"}))')
    assert failures(tmp_path, command, HALF, THIRD, NONE) == [
        'a half: by: expected nothing, got "me"',
        'a third: by: expected nothing, got "me"',
        "none: it must be refused: no trial",
    ]


def test_it_refuses_everything(tmp_path: Path) -> None:
    command = script(tmp_path, 'for line in sys.stdin: print(json.dumps({"refused": True}))')
    assert failures(tmp_path, command, HALF, NONE) == ["a half: it is refused, and must not be"]


def test_what_it_does_not_support_is_counted_apart(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        f"""{RIGHT}
for line in sys.stdin:
    if json.loads(line)["input"]["trials"] == 3: print(json.dumps({{"unsupported": True}}), flush=True)
    else: right(line)""",
    )
    report = run(small(tmp_path / "cases", HALF, THIRD, NONE), command)
    assert report.good
    assert report.lines() == [
        "few.json: 2 of 3, 1 unsupported",
        "3 cases in 1 files: 1 outputs and 1 refusals right, 1 unsupported, 0 failed",
    ]


def test_to_refuse_everything_is_told_apart(tmp_path: Path) -> None:
    command = script(tmp_path, 'for line in sys.stdin: print(json.dumps({"refused": True}))')
    report = run(small(tmp_path / "cases", HALF, THIRD, NONE), command)
    assert report.lines()[-1] == "3 cases in 1 files: 0 outputs and 1 refusals right, 0 unsupported, 2 failed"


@pytest.mark.parametrize(("code", "right"), [("trials", True), ("passed", False), (None, True), (7, False)])
def test_a_refusal_for_another_reason_fails(tmp_path: Path, code: Any, right: bool) -> None:
    reply = {"refused": True} | ({} if code is None else {"code": code})
    command = script(tmp_path, f"for line in sys.stdin: print({json.dumps(reply)!r})")
    messages = failures(tmp_path, command, NONE | {"code": "trials"})
    assert messages == ([] if right else [f"none: it is refused for {str(code)!r}, and must be for 'trials': no trial"])


def test_an_input_is_sent_as_the_file_spells_it(tmp_path: Path) -> None:
    text = """{"schema": "assay.cases/1", "cases": [{"name": "x",
      "input" : {"b": [3.0, 1e2, -0.0, "\\u00e9 {}",
        {}], "a": "]"} , "output": {}}, {"output": {"x": 2}, "input":0.50,"name":"y"}], "kind":"tests", "about": "[]"}"""
    (tmp_path / "few.json").write_text(text.replace("\n", "\r\n"), encoding="utf-8")
    assert [case.text for case in read(tmp_path / "few.json").cases] == [
        '{"b": [3.0, 1e2, -0.0, "\\u00e9 {}",        {}], "a": "]"}',
        "0.50",
    ]
    command = script(tmp_path, "for line in sys.stdin: print(json.dumps([line.rstrip(chr(10))]))")
    first, second = (line for line in run(tmp_path / "few.json", command).lines() if "FAILED" in line)
    assert "3.0, 1e2, -0.0" in first
    assert "0.50" in second


def test_every_input_of_the_files_is_found_as_it_is() -> None:
    for name in NAMES:
        for case in read(FOLDER / name).cases:
            assert "\n" not in case.text
            assert json.loads(case.text) == case.input


def test_one_file_and_one_case(tmp_path: Path) -> None:
    small(tmp_path, HALF, HALF | {"name": "wrong", "output": {"score": "0.6"}}, NONE)
    assert run(tmp_path / "few.json").lines()[0] == "few.json: 2 of 3"
    assert run(tmp_path, case="wrong").lines() == [
        *("few.json: 0 of 1", "expected", "  {", '   "score": "0.6"', "  }", "got", "  {", '   "score": "0.5"', "  }"),
        '  FAILED wrong: score: expected "0.6", got "0.5"',
        "1 cases in 1 files: 0 outputs and 0 refusals right, 0 unsupported, 1 failed",
    ]
    assert '   "code": "trials",' in run(tmp_path, case="none").lines()
    with pytest.raises(BadInput, match="there is no case 'other'"):
        run(tmp_path, case="other")


def test_it_crashes(tmp_path: Path) -> None:
    command = script(tmp_path, f"{RIGHT}\nright(sys.stdin.readline())\nsys.exit('no more of this')")
    messages = failures(tmp_path, command, HALF, THIRD, NONE)
    assert messages == [
        "a third: it ended with exit code 1; it said: no more of this",
        "none: not asked: the command had failed before",
    ]


def test_it_ends_badly_after_the_last_answer(tmp_path: Path) -> None:
    command = script(tmp_path, f"{RIGHT}\nright(sys.stdin.readline())\nsys.exit(3)")
    assert failures(tmp_path, command, HALF) == ["(after the last case): it ended with exit code 3"]


def test_it_says_nothing(tmp_path: Path) -> None:
    command = script(tmp_path, "time.sleep(600)")
    messages = failures(tmp_path, command, HALF, THIRD, seconds=0.2)
    assert messages[0] == "a half: no answer within 0.2 s"
    assert len(messages) == 2


def test_it_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ENDING", 0.2)
    command = script(tmp_path, 'print("{}", flush=True)\ntime.sleep(600)')
    messages = failures(tmp_path, command, HALF)
    assert messages[-1] == "(after the last case): it did not end within 0.2 s after the last answer"


def test_it_closes_its_output_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ENDING", 0.2)
    command = script(tmp_path, "import os\nos.close(1)\ntime.sleep(600)")
    assert failures(tmp_path, command, HALF) == ["a half: it closed its output"]


def test_it_prints_garbage(tmp_path: Path) -> None:
    command = script(tmp_path, 'for line in sys.stdin: print("hello \\x1b[31m")')
    assert failures(tmp_path, command, HALF, THIRD) == [
        "a half: not a line of JSON: 'hello \\x1b[31m'",
        "a third: not a line of JSON: 'hello \\x1b[31m'",
    ]


def test_it_prints_bytes_that_are_no_text(tmp_path: Path) -> None:
    command = script(tmp_path, 'sys.stdin.read()\nsys.stdout.buffer.write(b"\\xff\\n")')
    (message,) = failures(tmp_path, command, HALF)
    assert message.startswith("a half: not a line of JSON: ")


def test_it_talks_without_end(tmp_path: Path) -> None:
    command = script(tmp_path, 'while True: print(json.dumps({"score": "0.5"}))')
    messages = failures(tmp_path, command, HALF)
    assert messages == ['(after the last case): it answers more than it is asked: \'{"score": "0.5"}\'']


def test_an_answer_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ANSWER_BYTES", 50)
    command = script(tmp_path, 'for line in sys.stdin: print(json.dumps("x" * 60))')
    messages = failures(tmp_path, command, HALF, THIRD)
    assert messages[0] == "a half: an answer of more than 50 bytes"
    assert len(messages) == 2


def test_it_does_not_read_what_it_is_asked(tmp_path: Path) -> None:
    long = {"name": "long", "input": {"json": json.dumps("x" * 900_000)}, "output": {}}
    command = script(tmp_path, 'print("{}")')
    report = run(small(tmp_path / "cases", long, kind="canonical"), command)
    assert report.good


def test_a_command_that_cannot_be_run(tmp_path: Path) -> None:
    folder = small(tmp_path / "cases", HALF)
    with pytest.raises(BadInput, match="cannot be run"):
        run(folder, str(tmp_path / "missing"))
    with pytest.raises(BadInput, match="the command is empty"):
        run(folder, "  ")
    with pytest.raises(BadInput, match="is not a command"):
        run(folder, "'open")


def test_serving_answers_every_line() -> None:
    lines = [
        b'{"kind": "tests", "input": {"passed": 1, "trials": 2}}',
        b"hello",
        b'{"kind": "taste", "input": 1}',
        b"\xff",
        b"[]",
    ]
    replies = io.BytesIO()
    serve(io.BytesIO(b"\n".join(lines)), replies)
    answers = [json.loads(line) for line in replies.getvalue().splitlines()]
    assert answers[0] == {"score": "0.5"}
    assert [reply["refused"] for reply in answers[1:]] == [True] * 4


# Comparing and writing.


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_nothing_differs_from_itself_and_files_say_what_was_put_in(value: Any) -> None:
    assert list(differences(value, json.loads(json.dumps(value)))) == []
    assert json.loads(cases.dumped(value)) == value


@given(JSON, JSON)
def test_unequal_values_differ_somewhere(value: Any, other: Any) -> None:
    assert bool(list(differences(value, other))) == (json.dumps(value, sort_keys=True) != json.dumps(other, sort_keys=True))


def test_differences_are_told_with_their_paths() -> None:
    changes = list(differences({"a": [1, {"b": "x"}], "c": 1}, {"a": [1, {"b": "y"}, 2], "d": None}))
    assert changes == [
        Difference("a[1].b", "x", "y"),
        Difference("a[2]", ABSENT, 2),
        Difference("c", 1, ABSENT),
        Difference("d", ABSENT, None),
    ]
    assert [str(change) for change in changes[1:3]] == ["a[2]: expected nothing, got 2", "c: expected 1, got nothing"]
    assert str(Difference("", 1, 2)) == "the whole: expected 1, got 2"
    assert len(str(Difference("", "x" * 999, 2))) < 250
    assert list(differences(1, 1.0)) == []
    assert list(differences(1, True)) == [Difference("", 1, True)]
