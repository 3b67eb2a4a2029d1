"""The scripted model: scripts are read strictly, and the server does as they say. SPEC 2.3."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from assay.errors import BadInput, Unreachable
from assay.judge.rubric.conversation import ModelSettings
from assay.judge.rubric.judgement import Judgement
from assay.judge.rubric.scripted import FAULT_KINDS, Script, read_request, read_script
from assay.judge.rubric.scripted_server import scripted_model
from assay.judge.rubric.solution import Solution
from cli_kit import refused
from rubric_kit import ADD, QUICK, asked, asked_all, called, make_case, make_course, script

PAGE = Path(__file__).parents[3] / "docs" / "rubric.md"
GOOD = '[[solutions]]\nchecks = { C1 = "return a + b" }\n'


def _post(url: str, data: bytes) -> Any:
    with urlopen(Request(f"{url}/chat/completions", data, {"Content-Type": "application/json"}), timeout=60) as answer:
        return json.load(answer)


def _status(url: str, data: bytes | None = None) -> int:
    try:
        with urlopen(Request(url, data), timeout=60) as answer:
            status: int = answer.status
    except HTTPError as error:
        error.close()
        return error.code
    return status


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("[[solution]]\n", 1, "solution"),
        ('[[solutions]]\nverdict = "SUPERB"\n', 2, "solutions[0].verdict"),
        ('[[solutions]]\ndigest = "sha256:12"\n', 2, "solutions[0].digest"),
        ("[[solutions]]\nchecks = { C1 = true }\n", 2, "solutions[0].checks.C1"),
        (f'{GOOD}[[faults]]\nkind = "nothing"\n', 3, "faults[0]"),
        (f'{GOOD}[[faults]]\nkind = "200"\n', 3, "faults[0]"),
        (f'{GOOD}[[faults]]\nkind = "slow"\nseconds = -1\n', 5, "faults[0].seconds"),
        ("[[solutions]\n", 1, ""),
    ],
)
def test_a_script_that_is_none(text: str, line: int, field: str, tmp_path: Path) -> None:
    file = tmp_path / "script.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as refusal:
        read_script(file)
    assert (refusal.value.file, refusal.value.line, refusal.value.field) == (file, line, field)


def test_the_first_that_fits_is_answered(tmp_path: Path) -> None:
    case = make_case(tmp_path)
    other = Solution({"add.py": ADD, "notes.md": "the second, surely"})
    third = Solution({"add.py": ADD, "notes.md": "the third"})
    replies = [
        {"digest": case.solution.digest, "verdict": "ELEGANT", "reasons": {"verdict": "well done"}},
        {"contains": "the second", "verdict": "FLAWED", "checks": {"C2": "the second, surely"}, "baseline": {}},
        {"contains": "the third", "baseline": {"B3": "spam"}},
    ]
    with scripted_model(Script.model_validate({"solutions": replies})) as server:
        judgements = asked_all(case, [case.solution, other, third], server.url)
        with pytest.raises(Unreachable, match=r"big \(status-400: the script has no answer to this.*small \(status-400: "):
            asked(make_case(tmp_path, {"a.py": "nobody wrote an answer to this"}), server.url)
    answers = {digest: judgement.answers for digest, judgement in judgements.items() if isinstance(judgement, Judgement)}
    assert answers[case.solution.digest]["verdict"] == "ELEGANT"
    assert answers[other.digest]["checks"] == {"C1": False, "C2": True}
    assert answers[third.digest]["baseline"] == {"B1": True, "B2": True, "B3": False, "B4": True}


def test_faults_are_counted(tmp_path: Path) -> None:
    case = make_case(tmp_path)
    faults = [
        {"kind": "503", "after": 1, "times": 1},
        {"kind": "prose", "phase": "verdict", "times": 1, "solution": "any"},
        {"kind": "429", "model": "other"},
        {"kind": "429", "solution": "other"},
    ]
    with scripted_model(script(name="any", faults=faults)) as server:
        judgement = asked(case, server.url)
    assert [exchange.fault for exchange in judgement.exchanges] == [None, None, "not-json", None]
    assert server.statuses == {200: 4, 503: 1}


def test_what_is_no_question_of_ours_is_refused(tmp_path: Path) -> None:
    case = make_case(tmp_path)
    with scripted_model(script()) as server:
        assert _status(f"{server.url}/models") == 200
        assert _status(server.url) == 404
        assert _status(f"{server.url}/completions", b"{}") == 404
        for data in (b"", b"{", b"[]", b"{}", b'{"messages": []}', b'{"messages": 5, "response_format": {}}'):
            assert _status(f"{server.url}/chat/completions", data) in (400, 413)
        body = case.baseline().body("big", "json_schema", {})
        assert _post(server.url, json.dumps(body).encode())["model"] == "scripted/big"


def test_a_request_is_seen_as_it_was_made(tmp_path: Path) -> None:
    case = make_case(tmp_path, {"add.py": ADD, 'a "quoted" ⟫.md': "x\n⟪y⟫\n\n"})
    course = make_course(case, ModelSettings(called("big"), called("small"), 1))
    seen = read_request(next(course.steps()).body)
    assert (seen.model, seen.phase, seen.ids) == ("big", "baseline", ("B1", "B2", "B3", "B4"))
    assert seen.submission == case.solution.digest
    assert list(seen.frames) == ["problem", "solution"]
    assert list(seen.frames["solution"].items.values()) == ["x\n⟦U+27EA⟧y⟦U+27EB⟧\n", ADD.rstrip("\n")]
    assert "return" not in seen.outside
    assert seen.outside.strip().startswith("Question: the baseline.")


def test_the_page_names_every_fault() -> None:
    page = PAGE.read_text(encoding="utf-8").replace("#", " ")
    listed = page.split("a status; or ")[1].split("\nsolution =")[0]
    assert {word.strip() for word in listed.split(",")} == set(FAULT_KINDS)


def test_as_a_program(tmp_path: Path) -> None:
    file = tmp_path / "script.toml"
    file.write_text(GOOD, encoding="utf-8")
    command = [sys.executable, "-m", "assay", "model", "scripted", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            url = program.stdout.readline().split()[1]
            assert program.stdout.readline() == f"answers    {file}: 1 solution, 0 faults; no model\n"
            assert asked(make_case(tmp_path / "bounty"), url, limits=QUICK).checks == {"C1": True, "C2": False}
            program.send_signal(signal.SIGINT)
            rest = program.communicate(timeout=60)
        finally:
            program.kill()
    assert rest == ("stopped\n", "")
    assert program.returncode == 0


def test_a_port_that_is_taken_and_a_script_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "script.toml"
    file.write_text(GOOD, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} cannot be listened on" in refused("model", "scripted", file, "--port", str(port))
    assert "no such file" in refused("model", "scripted", tmp_path / "nothing.toml")
