"""The judge's commands, as somebody types them, in the real sandbox."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay.cli import app
from judge_kit import bubblewrap, make_agent, make_competition, make_task

RUNNER = CliRunner()


def run(*words: str | Path, code: int = 0) -> Any:
    result = RUNNER.invoke(app, [str(word) for word in words], env={"COLUMNS": "500"}, prog_name="assay")
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bubblewrap()
    for number in range(2):
        make_task(tmp_path / "c" / "tasks" / f"t{number}")
    place = make_competition(tmp_path / "c", {"ann": "", "bob": ""})
    make_agent(tmp_path / "good", "echo working; echo hello > out.txt\n")
    return place


def test_from_submitting_to_the_leaderboard(folder: Path, tmp_path: Path) -> None:
    assert "is the submission of ann" in run("submit", folder, "ann", tmp_path / "good").stdout
    assert "is already the submission of ann" in run("submit", folder, "ann", tmp_path / "good").stdout
    assert "The command 'sh -c god' is the submission of bob" in run("submit", folder, "bob", "sh -c god").stdout
    assert "noop 1 is the submission of bob" in run("submit", folder, "bob", "noop").stdout
    completed = run("run", folder, "--validator", "val-1")
    assert "4 trials judged (2 fail, 2 pass)." in completed.stdout
    assert "2 of 2 participants have an agreed score." in completed.stdout
    assert len([line for line in completed.stderr.splitlines() if line.startswith(("pass", "fail"))]) == 4
    assert "Nothing is missing" in run("run", folder, "--validator", "val-1", "-q").stdout

    assert "4 trials: 2 fail, 2 pass." in run("trials", folder).stdout
    lines = run("trials", folder, "--participant", "ann", "--task", "t0", "--outcome", "pass", "--json").stdout.splitlines()
    assert len(lines) == 1
    place = json.loads(lines[0])["folder"]
    logs = run("logs", place).stdout
    assert "ann on t0, trial 1, by val-1: pass" in logs
    assert "working" in logs
    assert "There are no such trials." in run("trials", folder, "--outcome", "error").stdout
    assert f"assay trials {folder} --participant ann" in run("explain", folder, "ann").stdout

    assert "4 trials." in run("export", "harbor", folder, tmp_path / "jobs").stdout
    assert (tmp_path / "jobs" / "0001-val-1" / "result.json").is_file()


def test_what_is_missing_shows_in_the_exit_code(folder: Path) -> None:
    dockerfile = folder / "tasks" / "t0" / "environment" / "Dockerfile"
    dockerfile.write_text("FROM debian:12\nWORKDIR /app\nRUN exit 3\n")
    run("tasks", "pin", folder)
    run("submit", folder, "ann", "oracle")
    completed = run("run", folder, "--validator", "val-1", "--attempts", "1", code=1)
    assert "1 trial judged (1 pass), 1 left." in completed.stdout
    assert "Errors, which are nobody's fails" in completed.stdout
    assert "exit code 3" in " ".join(completed.stdout.split())  # a long path wraps


def test_one_trial(folder: Path, tmp_path: Path) -> None:
    completed = run("trial", folder / "tasks" / "t0", tmp_path / "good", "--output", tmp_path / "kept")
    assert completed.stdout.startswith("working\nPASS")
    assert (tmp_path / "kept" / "agent" / "stdout.txt").read_text() == "working\n"
    completed = run("trial", folder / "tasks" / "t0", r"printf 'a\033[31mb'", code=1)
    assert completed.stdout.startswith("a\\x1b[31mb\nFAIL (tests-failed)")  # what moves a cursor is written out
    refused = run("trial", folder / "tasks" / "t0", "oracle", "--output", tmp_path / "kept", code=2)
    assert "cannot be made (File exists)" in refused.stderr


def test_a_trial_that_cannot_be_is_refused_before_it_begins(folder: Path, tmp_path: Path) -> None:
    make_agent(tmp_path / "asker", "true\n", more='network = "model"\n')
    refused = run("trial", folder / "tasks" / "t0", tmp_path / "asker", code=2)
    assert "the agent 'asker' needs a model; set ASSAY_MODEL_URL" in refused.stderr
    (folder / "tasks" / "t0" / "solution" / "solve.sh").unlink()
    assert "has no solution for the oracle" in (also := run("trial", folder / "tasks" / "t0", "oracle", code=2)).stderr
    assert "set-up" not in refused.stderr + also.stderr


def test_a_model_service_without_names_is_warned_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("submit", folder, "ann", "oracle")
    words = ("run", folder, "--validator", "val-1", "-q")
    monkeypatch.setenv("ASSAY_MODEL_URL", "http://127.0.0.1:9/v1")
    assert "agents may name any model of the service" in " ".join(run(*words).stderr.split())
    monkeypatch.setenv("ASSAY_MODEL_NAMES", "small")
    assert "agents may name" not in run(*words).stderr
    monkeypatch.delenv("ASSAY_MODEL_NAMES")
    monkeypatch.delenv("ASSAY_MODEL_URL")
    assert "agents may name" not in run(*words).stderr


def test_task_sets(folder: Path) -> None:
    assert run("tasks", "check", folder / "tasks").stdout.endswith("6 warnings\n")
    (folder / "tasks" / "t1" / "tests" / "test.sh").unlink()
    assert "1 refused" in run("tasks", "check", folder / "tasks", code=1).stdout
    messages = [json.loads(line) for line in run("tasks", "check", folder / "tasks", "--json", code=1).stdout.splitlines()]
    assert [message["task"] for message in messages if message["level"] == "refused"] == ["t1"]
    make_task(folder / "tasks" / "t1", tests="grep -q hello out.txt\n", mode="shared")
    assert "2 tasks." in run("tasks", "list", folder / "tasks").stdout
    rows = [json.loads(line) for line in run("tasks", "list", folder / "tasks", "--json").stdout.splitlines()]
    assert [(row["id"], row["mode"]) for row in rows] == [("t0", "separate"), ("t1", "shared")]
    printed = run("tasks", "pin", folder).stdout
    assert "changed: t1" in printed
    assert "verified in another way: t1" in printed
    run("submit", folder, "ann", "oracle")
    board = run("run", folder, "--validator", "val-1", "-q").stdout
    assert "Weaker scores: 1 of 2 tasks is verified in the agent's own files (shared: t1)." in board
    make_task(folder / "tasks" / "t1", tests="exit 1\n")
    assert "there is evidence about the set" in run("tasks", "pin", folder, code=2).stderr
    assert "changed: t1" in run("tasks", "pin", folder, "--change").stdout


def test_what_is_refused(folder: Path) -> None:
    run("submit", folder, "ann", "oracle")
    for words, says in (
        (("run", folder, "--validator", "val-2"), "there is no validator 'val-2'; did you mean 'val-1'?"),
        (("run", folder, "--validator", "val-1", "--env", "ASSAY_NOT_SET"), "ASSAY_NOT_SET is not set"),
        (("submit", folder, "eve", "oracle"), "there is no participant 'eve'"),
        (("trial", folder, "oracle"), "has no tasks; the tasks of a competition are in"),
        (("trials", folder / "no"), "no such folder"),
        (("logs", folder), "result.json: no such file"),
        (("export", "harbor", folder, folder / "jobs"), "no evidence to export"),
    ):
        result = run(*words, code=2)
        assert says in result.stderr
        assert result.stderr.startswith("error: ")
        assert "Traceback" not in result.output


def test_progress_on_a_terminal(folder: Path) -> None:
    """A real terminal, and Ctrl-C typed into it while an agent sleeps."""
    run("submit", folder, "ann", "oracle")
    run("submit", folder, "bob", "sleep 3000")
    root, child = pty.openpty()
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "100"}
    words = [sys.executable, "-m", "assay", "run", str(folder), "--validator", "val-1"]
    with subprocess.Popen(words, stdin=child, stdout=subprocess.PIPE, stderr=child, env=env, start_new_session=True) as process:
        os.close(child)
        screen = b""
        while b"2/4" not in screen or b"bob" not in screen:
            part = os.read(root, 65_536)
            assert part, screen
            screen += part
        process.send_signal(signal.SIGINT)
        try:
            while part := os.read(root, 65_536):
                screen += part
        except OSError:  # the other end is closed
            pass
        out, _ = process.communicate()
        assert process.returncode == 130, screen
    os.close(root)
    assert b"2 pass" in screen
    assert b"stopping" in screen
    assert b"2 trials judged (2 pass), 2 left." in out
