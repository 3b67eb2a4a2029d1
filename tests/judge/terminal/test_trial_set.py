"""`assay trial` on a folder of tasks: a score by the rules of single trials, errors that are no failures, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.cli.judging.trial import TrialSet
from judge_kit import bubblewrap, make_agent, make_task

RUNNER = CliRunner()


def run(*words: str | Path, columns: int = 100, code: int = 0) -> Any:
    result = RUNNER.invoke(app, [str(word) for word in words], env={"COLUMNS": str(columns)}, prog_name="assay")
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Three tasks: two ask for hello, one for something else."""
    bubblewrap()
    make_task(tmp_path / "tasks" / "a")
    make_task(tmp_path / "tasks" / "b")
    make_task(tmp_path / "tasks" / "c", tests="grep -q bye out.txt\n", solution="echo bye > out.txt\n")
    make_agent(tmp_path / "good", "echo hello > out.txt\n")
    return tmp_path / "tasks"


@pytest.mark.full
def test_a_set_ends_with_a_score(tasks: Path, tmp_path: Path) -> None:
    shown = run("trial", tasks, tmp_path / "good", "--jobs", "2", "--output", tmp_path / "kept", code=1)
    assert "Score 0.666666667: 2 of 3 tasks passed (95 % interval 20.8–93.9 %)." in shown.stdout
    assert [line.split()[:2] for line in shown.stdout.splitlines()[2:5]] == [["a", "pass"], ["b", "pass"], ["c", "fail"]]
    assert sorted(line.partition(" ")[2] for line in shown.stderr.splitlines()) == ["a: pass", "b: pass", "c: fail"]
    assert (tmp_path / "kept" / "c" / "agent" / "stdout.txt").is_file()
    document = json.loads(run("trial", tasks, "oracle", "--json").stdout)
    assert (document["score"], document["passed"], document["missing"], document["stopped"]) == ("1", 3, [], False)
    assert [trial["task"] for trial in document["trials"]] == ["a", "b", "c"]


def test_one_trial_as_json(tasks: Path, tmp_path: Path) -> None:
    document = json.loads(run("trial", tasks / "a", tmp_path / "good", "--json").stdout)
    assert (document["task"], document["outcome"], document["reason"]) == ("a", "pass", "passed")
    assert json.loads(run("trial", tasks / "a", "true", "--json", code=1).stdout)["outcome"] == "fail"


@pytest.mark.full
def test_a_task_that_judges_wrongly_leaves_the_score_open(tasks: Path, tmp_path: Path) -> None:
    (tasks / "c" / "solution" / "solve.sh").write_text("echo no > out.txt\n")
    document = json.loads(run("trial", tasks, tmp_path / "good", "--json", code=1).stdout)
    assert (document["score"], document["passed"], document["errors"], document["missing"]) == (None, 2, 1, ["c"])
    assert "the reference solution fails here" in document["trials"][2]["message"]
    printed = run("trial", tasks, tmp_path / "good", code=1).stdout
    assert "No score: 1 of 3 tasks has no result, and errors are never failures. Of the 2 with one, 2 passed." in " ".join(
        printed.split()
    )


def test_what_cannot_be_tried_is_refused_before_anything_runs(tasks: Path, tmp_path: Path) -> None:
    (tasks / "b" / "tests" / "test.sh").unlink()
    refused = run("trial", tasks, tmp_path / "good", code=2)
    assert "tests/test.sh" in refused.stderr
    assert refused.stdout == ""
    (tmp_path / "empty").mkdir()
    message = run("trial", tmp_path / "empty", tmp_path / "good", code=2).stderr
    assert "has no tasks" in " ".join(message.split())  # where the line is broken depends on the length of the folder's name


@pytest.mark.full
def test_ctrl_c_ends_with_what_there_is(tasks: Path, tmp_path: Path) -> None:
    make_agent(tmp_path / "slow", 'case "$(cat /instruction.md)" in *slowly*) sleep 300;; esac; echo hello > out.txt\n')
    make_task(tasks / "b", instruction="Say hello slowly.\n")
    words = [sys.executable, "-m", "assay", "trial", str(tasks), str(tmp_path / "slow")]
    env = os.environ | {"COLUMNS": "100"}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stderr is not None
    assert process.stderr.readline() == "1/3 a: pass\n"
    time.sleep(3)  # into the second trial; earlier is as good
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Stopped, so there is no score yet: 2 of 3 tasks have no result" in " ".join(out.split())
    assert "Of the 1 with one, 1 passed." in " ".join(out.split())


def test_what_is_missing_is_told() -> None:
    trial_set = TrialSet("me", ("a", "b"), {"a": {"task": "a", "outcome": "timeout"}})
    assert (trial_set.score, trial_set.judged, trial_set.document()["missing"]) == (None, 1, ["b"])
    trial_set.trials["b"] = {"task": "b", "outcome": "pass"}
    assert trial_set.score == "0.5"
