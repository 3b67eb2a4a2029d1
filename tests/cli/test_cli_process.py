"""The command as a program of its own: exit codes, streams, pipes that close, and odd terminals."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli_kit import from_preset

ASSAY = [sys.executable, "-m", "assay"]


def program(*words: str | Path, env: Mapping[str, str] | None = None) -> Any:
    clean = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "FORCE_COLOR", "NO_COLOR"}}
    return subprocess.run([*ASSAY, *map(str, words)], capture_output=True, env=clean | dict(env or {}), check=False)


@pytest.fixture(scope="module")
def competition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return from_preset(tmp_path_factory.mktemp("process") / "season")


def test_it_runs_and_says_its_version() -> None:
    completed = program("--version")
    assert completed.returncode == 0
    assert completed.stdout.startswith(b"assay ")


def test_bad_input_is_one_line_on_stderr_and_code_2(tmp_path: Path) -> None:
    completed = program("settle", tmp_path)
    assert (completed.returncode, completed.stdout) == (2, b"")
    assert completed.stderr.decode() == (
        f"error: {tmp_path / 'scheme.toml'}: no such file; `assay init --preset NAME DIR` makes a competition to start from\n"
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_errors_have_a_colour_on_a_terminal_unless_nobody_wants_one(tmp_path: Path, env: dict[str, str], coloured: bool) -> None:
    shown, terminal = os.openpty()
    clean = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    subprocess.run([*ASSAY, "settle", tmp_path], stderr=terminal, env=clean | env, check=False)
    os.close(terminal)
    with open(shown, "rb", buffering=0) as reader:
        assert (b"\x1b[" in reader.read(4096)) == coloured


def test_what_the_system_refuses_is_one_line_too() -> None:
    completed = program("scheme", "check", "x" * 300)  # no file may be called so
    assert (completed.returncode, completed.stdout) == (2, b"")
    assert completed.stderr.decode() == (
        f"error: {'x' * 300}: cannot be used (File name too long); check permissions, and that there is room\n"
    )


def test_no_settlement_is_code_1(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "season")
    (place / "evidence/sample.jsonl").unlink()
    completed = program("settle", place)
    assert (completed.returncode, completed.stdout) == (1, b"")
    assert completed.stderr.startswith(b"error: ")


@pytest.mark.full
def test_piped_boards_have_no_colour_and_whole_keys(competition: Path) -> None:
    completed = program("settle", competition)
    assert completed.returncode == 0
    assert b"\x1b" not in completed.stdout
    assert completed.stderr == b""


@pytest.mark.full
@pytest.mark.parametrize("columns", ["0", "-5", "wide"])
def test_a_width_that_is_none_hides_nothing(competition: Path, columns: str) -> None:
    completed = program("settle", competition, env={"COLUMNS": columns})
    assert completed.returncode == 0
    assert b"burn" in completed.stdout


def test_a_reader_that_has_seen_enough_ends_it_quietly(competition: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    completed = subprocess.run([*ASSAY, "settle", str(competition)], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (completed.returncode, completed.stderr) == (141, b"")


@pytest.mark.full
def test_a_terminal_without_unicode_gets_what_it_can_show(competition: Path) -> None:
    completed = program("settle", competition, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"})
    assert completed.returncode == 0
    assert b"miner-a" in completed.stdout
    shown = program("settle", competition, "--json", env={"PYTHONIOENCODING": "ascii"})
    assert shown.stdout == program("settle", competition, "--json").stdout
