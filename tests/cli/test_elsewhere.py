"""Windows and macOS: what only reads works there; what needs Linux says so in one line. elsewhere.py shows how they are had."""

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import elsewhere
import ledger_kit
from assay.ledger import keys
from cli_kit import commands, run
from depth import depth

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLES = ROOT / "examples"
SYSTEMS = ("windows", "macos")


READING = {
    "settle": "settle {examples}/season --json",
    "settle to a file": "settle {examples}/season --csv --output {place}/season.csv",
    "settle by rubric": "settle {examples}/verdicts",
    "settle by issues": "settle {examples}/bounty-challenge",
    "settle the preset": "settle {place}/new",
    "explain": "explain {examples}/season atlas --json",
    "explain from a ledger": "explain {place}/small m1",
    "emission": "emission {examples}/platform/my-subnet.toml",
    "scheme list": "scheme list",
    "scheme check": "scheme check {examples}/season/scheme.toml",
    "scheme honest": "scheme honest {examples}/season --json",
    "simulate": "simulate term-challenge --epochs 5 --participants 4 --validators 3 --json",
    "attack": "attack agonaut --json",
    "backtest": "backtest {examples}/season --scheme term-challenge --json",
    "scheme show": "scheme show cswon",
    "scheme schema": "scheme schema",
    "conformance": "conformance run {conformance}/cap.json",
    "conformance, receipts": "conformance run {conformance}/verify.json",
    "conformance, a log": "conformance run {conformance}/tiled-log.json",
    "trials": "trials {examples}/season",
    "bounty check": "bounty check {examples}/agonaut",
    "keys new": "keys new somebody",
    "keys list": "keys list",
    "verify": "verify {place}/epoch --key {key} --json",
    "ledger check": "ledger check {place}/small",
    "ledger replay": "ledger replay {place}/small",
    "witness key": "witness key --name example.org/w --key somebody",
    "ledger consistency": "ledger consistency {place}/small 0",
    "evidence list": "evidence list {place}/small --json",
    "receipt": "receipt {place}/small 3",
    "export": "export epoch {place}/small 3 --output {place}/again",
    "settle again": "settle {place}/small",
    "compose hash": "enclave compose-hash {examples}/agonaut/app-compose.json",
}
"""What works on every system, after `assay init`."""
LINUX = {
    "tasks list": "tasks list {examples}/term-challenge/tasks",
    "run": "run {examples}/term-challenge --validator elm",
    "trial": "trial {examples}/term-challenge/tasks/count-errors {examples}/term-challenge/agents/all-rounder",
    "sandbox": "sandbox check",
    "submit": "submit {examples}/season atlas {examples}/term-challenge/agents/all-rounder",
}
WRITING = {
    "ledger init": "ledger init {place}/new --origin example.org/new --key small-log",
    "settle with a ledger": "settle {place}/open --key small-log",
    "import epoch": "import epoch {place}/empty {place}/epoch",
}
"""They write in turns with other processes: not on Windows."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, tuple[int | str, str, str]]]:
    """By system and name of a command: how it ended, and what it printed."""
    return {system: _answers(system, tmp_path_factory.mktemp(system)) for system in SYSTEMS}


def _answers(system: str, place: Path) -> dict[str, tuple[int | str, str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_KEYS", str(place / "keys"))
        patch.setenv("ASSAY_STATE", str(place / "state"))
        keys.save("small-log", ledger_kit.SIGNER)
        for name in ("small", "open"):
            ledger_kit.add(ledger_kit.ledger_folder(place / name), ledger_kit.records())
        ledger_kit.ledger_folder(place / "empty")
        run("settle", place / "small", "--key", "small-log")
        run("export", "epoch", place / "small", "3", "--output", place / "epoch")
        words = {"init": ["init", "--preset", "term-challenge", str(place / "new")]}
        named = {"examples": EXAMPLES, "conformance": ROOT / "conformance", "place": place, "key": ledger_kit.KEY}
        for name, line in (READING | LINUX | WRITING).items():
            words[name] = [word.format_map(named) for word in line.split()]
        for path in list(commands())[:: depth(6, 1)]:
            words["help of " + " ".join(path)] = [*path, "--help"]
        ran = subprocess.run(
            [sys.executable, HERE / "elsewhere.py", system],
            input=json.dumps([*words.values()]),
            text=True,
            stdout=subprocess.PIPE,
            check=True,
        )
    return {name: tuple(answer) for name, answer in zip(words, json.loads(ran.stdout), strict=True)}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_help_of_every_command_is_there(answers: Any, system: str) -> None:
    helps = {name: answer for name, answer in answers[system].items() if name.startswith("help of ")}
    assert len(helps) > depth(10, 60)
    assert {name: answer for name, answer in helps.items() if answer[0] != 0} == {}


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_only_reads_works(answers: Any, system: str) -> None:
    wrong = {name: answers[system][name] for name in ("init", *READING) if answers[system][name][0] != 0}
    assert wrong == {}
    digest = json.loads((run("settle", EXAMPLES / "season", "--json")).stdout)["digest"]
    assert json.loads(answers[system]["settle"][1])["digest"] == digest
    assert json.loads(answers[system]["verify"][1])["verified"] is True


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_needs_linux_says_so_in_one_line(answers: Any, system: str) -> None:
    for name in LINUX:
        code, out, error = answers[system][name]
        assert (code, out, error.count("\n")) == (2, "", 1), name
        assert "needs Linux (" in error, name


def test_a_ledger_is_written_on_macos_and_not_on_windows(answers: Any) -> None:
    for name in WRITING:
        code, out, error = answers["windows"][name]
        assert (code, out, error.count("error:")) == (2, "", 1), name
        assert "it has no POSIX file locks" in error.splitlines()[-1]
        assert answers["macos"][name][0] == 0, answers["macos"][name]


def test_the_systems_are_without_what_they_do_not_have() -> None:
    """Or this file would show nothing."""
    code = "import elsewhere, os; elsewhere.{}(); print(hasattr(os, 'fork'), hasattr(os, 'O_PATH')); import fcntl"
    ran = {
        system: subprocess.run([sys.executable, "-c", code.format(system)], cwd=HERE, text=True, capture_output=True, check=False)
        for system in SYSTEMS
    }
    assert (ran["macos"].stdout, ran["macos"].returncode) == ("True False\n", 0)
    assert (ran["windows"].stdout, ran["windows"].returncode) == ("False False\n", 1)
    assert "No module named 'fcntl'" in ran["windows"].stderr
    assert {"fcntl", "pwd", "resource"} <= elsewhere.MODULES


@pytest.mark.full
@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_console_of_another_encoding_shows_what_it_can(encoding: str) -> None:
    shown = _season(encoding)
    assert shown.stderr == b""
    assert b"atlas" in shown.stdout
    assert _season(encoding, "--json").stdout == _season("utf-8", "--json").stdout


@cache
def _season(encoding: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """What a process says of the example on a console of this encoding."""
    return subprocess.run(
        [sys.executable, "-m", "assay", "settle", EXAMPLES / "season", *words],
        env=os.environ | {"PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )


@pytest.mark.full
def test_no_file_is_written_with_the_line_ends_of_the_system() -> None:
    """A file has the same bytes on every system: text is written as bytes, or with newline="\\n"."""
    wrong = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        if "sandbox" in path.parts:  # they are on Linux
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                modes = any(isinstance(inner, ast.Constant) and inner.value in ("w", "a", "x", "w+") for inner in ast.walk(node))
                writes = (name == "write_text" and isinstance(node.func, ast.Attribute)) or (name in ("open", "fdopen") and modes)
                if writes and not any(word.arg == "newline" for word in node.keywords):
                    wrong.append(f"{path.name}:{node.lineno}")
    assert wrong == []
