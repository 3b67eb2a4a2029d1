"""Calibration: a task that does not judge right here judges nobody, and says why. SPEC 2.1."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.errors import BadInput
from assay.judge.kind_options import TaskOptions
from assay.judge.running import RunEvent, RunOptions
from assay.judge.sandbox import Image, InfrastructureError, images, root
from assay.judge.terminal import calibration
from assay.judge.terminal.calibration import Uncalibrated, calibrate
from assay.judge.terminal.pool import Worker, WorkerPool
from assay.judge.terminal.run import run
from assay.judge.terminal.tasks import Task
from assay.judge.terminal.trial import KEEPING, image_of
from assay.judge.terminal.worker import Job
from judge_kit import bubblewrap, make_agent, make_competition, make_task
from run_kit import NOOP, ORACLE, QUICK, competition, lines, outcomes

UVX = """#!/bin/bash
# As Terminal-Bench 2 writes them.
source $HOME/.local/bin/env

uvx -p 3.13 -w pytest==8.4.1 pytest /tests/test_outputs.py -rA

if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was tried here before."""
    monkeypatch.setenv("ASSAY_STATE", str(tmp_path / "state"))


def tried(task: Task, times: int = 1) -> tuple[calibration.Calibration, bool]:
    return calibrate(bubblewrap(), task, image_of(bubblewrap(), task), times=times)


def terminal_bench(folder: Path, base: str) -> Path:
    """A competition with an unmodified task, which "ann" solves, and with one that is calibrated."""
    dockerfile = "FROM ubuntu:24.04\nWORKDIR /app\n"
    make_task(folder / "tasks" / "published", tests=UVX, dockerfile=dockerfile, base=base)
    make_task(folder / "tasks" / "right")
    return make_competition(folder, {"ann": ORACLE, "bob": NOOP})


def test_a_published_task_whose_image_is_not_here_judges_nobody(tmp_path: Path) -> None:
    folder = terminal_bench(tmp_path / "c", "")
    events: list[RunEvent] = []
    summary = run(folder, "val-1", QUICK, events.append)
    assert outcomes(folder) == {("ann", "right", 1): "pass", ("bob", "right", 1): "fail"}
    assert [cell.parts["task"] for cell, _ in summary.errors] == ["published", "published"]
    assert {"bubblewrap has no root file system of the image 'ubuntu:24.04'" in why for _, why in summary.errors} == {True}
    first = next(number for number, event in enumerate(events) if event.kind == "began")
    calibrated = [event for event in events[:first] if event.kind == "calibrated" and event.why]
    assert [event.phase for event in calibrated] == ["published"]
    assert "assay sandbox base add ubuntu:24.04" in calibrated[0].hint
    assert "again" not in {event.kind for event in events}, "to try it again would not help"


def test_a_correct_agent_is_never_failed_because_the_tests_tool_is_missing(tmp_path: Path) -> None:
    folder = terminal_bench(tmp_path / "c", '[metadata.assay]\nbase = "any"\n')
    summary = run(folder, "val-1", QUICK)
    assert summary.outcomes == Counter({"pass": 1, "fail": 1})
    assert {why for _, why in summary.errors} == {"the reference solution fails here: uvx: command not found"}
    assert {line["task"] for line in lines(folder)} == {"right"}
    assert any(remark.startswith("Judged nobody, because they do not judge right here: published.") for remark in summary.remarks)
    kept = json.loads(next((folder / "trials").glob("*/ann@*/published/1/result.json")).read_text())
    assert (kept["outcome"], kept["message"]) == ("error", "the reference solution fails here: uvx: command not found")


def test_what_passes_whatever_was_done_judges_nobody(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", tests="grep -q hello /app/out.txt || true; echo 1 > /logs/verifier/reward.txt\n")
    with pytest.raises(Uncalibrated, match="doing nothing passes its tests"):
        tried(task)
    assert not (images.state() / "calibrations").exists()


def test_it_is_tried_once_for_all_who_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task(tmp_path / "t")
    calibrated, known = tried(task)
    assert (known, calibrated.solution, calibrated.times, calibrated.mode) == (False, True, 1, "separate")
    with monkeypatch.context() as patch:
        patch.setattr(calibration, "run_trial", lambda *_args: pytest.fail("it was tried again"))
        assert tried(task) == (calibrated, True)
        elsewhere = make_task(tmp_path / "other" / "t")
        assert tried(elsewhere)[1]
    assert tried(task, times=2)[0].times == 2
    assert tried(task, times=1) == (calibrated.model_copy(update={"times": 2}), True)


@pytest.mark.full
def test_what_is_kept_is_of_the_same_only(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t")
    tried(task)
    assert not tried(make_task(tmp_path / "mode", mode="snapshot"))[1]
    assert not tried(make_task(tmp_path / "image", dockerfile="FROM debian:12\nWORKDIR /app\nRUN touch x\n"))[1]
    small = calibrate(bubblewrap(), task, image_of(bubblewrap(), task), keeping=type(KEEPING)(processes=500))
    assert not small[1], "other bounds"
    for file in (images.state() / "calibrations").iterdir():
        file.write_text("{")
    assert not tried(task)[1], "what cannot be read is nothing"
    assert tried(task)[1]


def test_a_program_that_is_gone_from_the_host_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No list of packages has it: uvx, for one, is put into /usr/local/bin by hand."""
    task, place = make_task(tmp_path / "t"), tmp_path / "bin"
    place.mkdir()
    tool = place / "uvx"
    tool.write_text("#!/bin/sh\n")
    with monkeypatch.context() as patch:
        patch.setattr(root, "PATH", f"{root.PATH}:{place}")
        assert (tried(task)[1], tried(task)[1]) == (False, True)
        tool.unlink()
        assert not tried(task)[1]
    assert root.programs(Image("sha256:x")) == ""


def test_without_a_solution_only_doing_nothing_is_tried(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    make_task(folder / "tasks" / "t0", solution=None)
    make_competition(folder, {"bob": NOOP})
    summary = run(folder, "val-1", QUICK)
    assert summary.outcomes == Counter({"fail": 1})
    assert summary.remarks == ["Without a reference solution, so that only doing nothing was tried: t0."]
    board = CliRunner().invoke(app, ["settle", str(folder)], prog_name="assay", env={"COLUMNS": "160"}).stdout
    assert "Not shown to be solvable: 1 of 1 task has no reference solution (t0)." in board


def test_trouble_is_not_a_verdict_on_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task(tmp_path / "t")
    image = image_of(bubblewrap(), task)
    monkeypatch.setattr(calibration, "TemporaryDirectory", lambda **_names: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(InfrastructureError, match="oracle could not be tried: No space left"):
        calibrate(bubblewrap(), task, image)


def test_a_judge_that_dies_while_it_calibrates_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "c"
    make_task(folder / "tasks" / "right", solution="sleep 2; echo hello > /app/out.txt\n")
    make_task(folder / "tasks" / "wrong", solution="sleep 2\n")
    make_competition(folder, {"bob": NOOP})
    killed: list[int] = []
    give = WorkerPool.give

    def kill(worker: Worker) -> None:
        while not worker.ready:
            time.sleep(0.01)
        os.kill(worker.process.pid, signal.SIGKILL)

    def give_and_kill(self: WorkerPool, worker: Worker, job: Job, seconds: float) -> None:
        give(self, worker, job, seconds)
        if job.calibrate:
            killed.append(job.number)
            threading.Thread(target=kill, args=(worker,), daemon=True).start()

    monkeypatch.setattr(WorkerPool, "give", give_and_kill)
    summary = run(folder, "val-1", QUICK)
    assert (len(killed), summary.outcomes) == (2, Counter({"fail": 1}))
    assert [(cell.parts["task"], why.partition(":")[0]) for cell, why in summary.errors] == [
        ("wrong", "the reference solution fails here")  # found out before its trial, by the judge that had it
    ]


@pytest.mark.full
def test_a_run_can_be_stopped_while_it_calibrates(tmp_path: Path) -> None:
    folder = competition(tmp_path / "c")

    def stop(event: RunEvent) -> None:
        if event.kind == "calibrating":
            os.kill(os.getpid(), signal.SIGINT)

    summary = run(folder, "val-1", QUICK, stop)
    assert (summary.stopped, summary.judged) == (True, 0)
    assert run(folder, "val-1", QUICK).judged == 4


def test_the_command_says_at_its_beginning_what_judges_nobody_and_what_to_do(tmp_path: Path) -> None:
    folder = terminal_bench(tmp_path / "c", "")
    done = CliRunner().invoke(app, ["run", str(folder), "--validator", "val-1"], prog_name="assay", env={"COLUMNS": "400"})
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "calibrating 2 tasks: the solution has to pass here, and doing nothing to fail"
    first = next(number for number, line in enumerate(lines) if line.startswith(("pass", "fail")))
    named = [line for line in lines[:first] if line.startswith("not calibrated  published")]
    assert len(named) == 1
    assert "has no root file system of the image 'ubuntu:24.04'; add it: assay sandbox base add ubuntu:24.04" in named[0]


def test_one_trial_is_an_error_too(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", tests=UVX)

    def trial(agent: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["trial", str(task.folder), agent], prog_name="assay", env={"COLUMNS": "400"})
        return done.exit_code, done.output

    code, printed = trial("bash -c 'echo hello > out.txt'")
    assert code == 1
    assert "ERROR (trouble)" in printed
    assert "the reference solution fails here: uvx: command not found; to see it: assay trial" in printed
    code, printed = trial("oracle")  # which is how its author looks for what is wrong
    assert code == 1
    assert "uvx: command not found" in printed
    assert "FAIL" in printed


@pytest.mark.parametrize("times", [0, 101])
def test_how_often_is_checked(tmp_path: Path, times: int) -> None:
    with pytest.raises(BadInput, match="is not a number of times"):
        run(tmp_path, "val-1", RunOptions(own=TaskOptions(calibrate=times)))


@pytest.mark.parametrize(
    ("out", "err", "line"),
    [
        ("", "/tests/test.sh: line 5: uvx: command not found\n", "uvx: command not found"),
        ("collected 1 item\nFAILED test_x.py::test_y - assert 1 == 2\n=====\n", "", "FAILED test_x.py::test_y - assert 1 == 2"),
        ("E: Unable to locate package x\nInstalling\n", "done\n", "E: Unable to locate package x"),
        ("\n---\nonly this\n\n", "", "only this"),
        ("", "", ""),
        ("x" * 5000 + " error\n", "", "x" * 300),
    ],
)
def test_the_line_that_tells_of_the_trouble(tmp_path: Path, out: str, err: str, line: str) -> None:
    (tmp_path / "stdout.txt").write_text(out)
    (tmp_path / "stderr.txt").write_text(err)
    assert calibration.last_line(tmp_path) == line


def test_a_solution_that_fails_itself_says_so(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", solution="apt-got install hello\n")
    with pytest.raises(
        Uncalibrated,
        match=r"fails here: grep: .*No such file or directory; solve\.sh itself ended with 127: apt-got: command not found",
    ):
        tried(task)


def test_a_bound_is_named(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", tests="sleep 3000\n", tests_seconds=1)
    with pytest.raises(Uncalibrated, match="the reference solution fails here: tests-time"):
        tried(task)


def test_agents_are_not_given_to_a_calibration(tmp_path: Path) -> None:
    """What the run gives agents, such as variables, changes nothing of a calibration."""
    folder = tmp_path / "c"
    make_task(folder / "tasks" / "t0")
    make_competition(folder, {"ann": ""})
    agent = make_agent(tmp_path / "ann", "echo hello > out.txt\n", more='env = ["WORD"]\n')
    make_competition(folder, {"ann": agent.digest})
    from assay.judge.terminal.competition import submit_agent

    submit_agent(folder, "ann", str(tmp_path / "ann"))
    assert run(folder, "val-1", RunOptions(delay=0.01, own=TaskOptions(env={"WORD": "x"}))).outcomes == Counter({"pass": 1})
