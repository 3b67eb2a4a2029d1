"""Runs in which something breaks, that are stopped, or that are killed. SPEC 2.1."""

from __future__ import annotations

import fcntl
import io
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.judge import run_files
from assay.judge.kind_options import TaskOptions
from assay.judge.running import RunEvent, RunOptions, RunSummary
from assay.judge.sandbox import InfrastructureError
from assay.judge.service import ModelAccess
from assay.judge.terminal import agent as agents
from assay.judge.terminal import worker
from assay.judge.terminal.competition import TrialCell, submit_agent
from assay.judge.terminal.record import TrialReason, TrialRecord, TrialStore, TrialVerdict
from assay.judge.terminal.run import run
from assay.judge.terminal.task_settings import Mode
from assay.judge.terminal.tasks import read_task
from assay.judge.terminal.trial import TrialResult
from assay.judge.terminal.worker import Job, WorkerSettings
from disks import filled, mounted
from judge_kit import make_agent, make_competition, make_task
from proxy_kit import KEY, say, service
from run_kit import NOOP, ORACLE, QUICK, competition, everything, lines, outcomes

# Errors


def test_errors_are_tried_again_and_leave_no_evidence(tmp_path: Path) -> None:
    folder = competition(tmp_path / "c", tasks=1)
    task = folder / "tasks" / "t0"
    (task / "environment" / "Dockerfile").write_text("FROM debian:12\nWORKDIR /app\nRUN exit 3\n")
    from assay.judge.terminal.competition import pin_tasks, write_manifest
    from assay.judge.terminal.tasks import read_tasks

    write_manifest(pin_tasks(read_tasks(folder / "tasks")), folder / "tasks.txt")
    events: list[RunEvent] = []
    summary = run(folder, "val-1", RunOptions(attempts=3, delay=0.01, participants=["ann"]), events.append)
    kinds = [event.kind for event in events if event.kind != "phase"]
    assert kinds == ["planned", "calibrating", "calibrated", *["began", "again"] * 2, "began", "ended"]
    assert [event.seconds for event in events if event.kind == "again"] == [0.01, 0.04]
    assert (summary.judged, [cell.parts["task"] for cell, _ in summary.errors]) == (0, ["t0"])
    assert "exit code 3" in summary.errors[0][1]
    assert lines(folder) == []
    kept = TrialStore(folder, "val-1").result("ann", ORACLE, "t0", 1)
    assert kept is not None
    assert (kept.outcome, kept.attempt, len(kept.earlier)) == ("error", 3, 2)
    assert kept.evidence() is None


ASKS = r"""exec 3<>/dev/tcp/127.0.0.1/8080 || exit 1
printf 'POST /chat/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}' >&3; grep -q ' 200 ' <&3 && echo hello > out.txt; exit 0
"""


@pytest.mark.full
def test_an_error_gives_way_to_what_comes_after(tmp_path: Path) -> None:
    """A judge's process that is killed in the middle of a trial: an error, tried again, and nothing else is touched."""
    folder = competition(tmp_path / "c", tasks=1)
    make_agent(tmp_path / "asks", ASKS, more='network = "model"\n')
    submit_agent(folder, "bob", str(tmp_path / "asks"))
    killed: list[int] = []
    events: list[RunEvent] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        """What the agent waits for: so its trial is in the middle when it asks for the first time."""
        if killed:
            say(200)(handler)
        for pid in [] if killed else Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
            if b"assay.judge.terminal.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                killed.append(int(pid))
                os.kill(int(pid), signal.SIGKILL)

    with service(answer) as behind:
        summary = run(folder, "val-1", replace(QUICK, own=TaskOptions(model=ModelAccess(behind.url, KEY))), events.append)
    assert len(killed) == 1
    again = [event for event in events if event.kind == "again"]
    assert len(again) == 1
    assert again[0].record is not None
    assert "ended by signal 9" in again[0].record.message
    assert (summary.errors, summary.outcomes) == ([], Counter({"pass": 2}))
    kept = TrialStore(folder, "val-1").result("bob", agents.load_agent(tmp_path / "asks").digest, "t0", 1)
    assert kept is not None
    assert (kept.outcome, kept.attempt, len(kept.earlier)) == ("pass", 2, 1)


def test_judges_that_do_nothing_but_die_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = competition(tmp_path / "c", tasks=1)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(InfrastructureError, match="the judge's process ended with 1"):
        run(folder, "val-1", QUICK)
    monkeypatch.undo()
    assert run(folder, "val-1", QUICK).judged == 2


def test_a_judge_that_cannot_begin_says_why() -> None:
    """While it is still listened for more: its input is open, and is being read."""
    lock = os.open(os.devnull, os.O_RDONLY)
    command = [sys.executable, "-m", "assay.judge.terminal.worker", str(lock)]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, pass_fds=[lock], env=env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        os.close(lock)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(WorkerSettings("none", "fail").to_json())
        process.stdin.flush()
        printed = process.stderr.read().decode()
        assert (process.wait(), printed.count("\n")) == (2, 1), printed
    assert "there is no sandbox 'none'" in printed


# Crashes


def test_judges_whose_run_is_gone_end_whatever_they_are_at(tmp_path: Path) -> None:
    folder = competition(tmp_path / "c", tasks=1)
    task = read_task(folder / "tasks" / "t0")
    with ExitStack() as stack:
        lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
        stack.callback(os.close, lock)
        judges = []
        for number in range(6):
            (tmp_path / str(number)).mkdir()
            job = Job(
                number=1, validator="val-1", participant="ann", submission=ORACLE, task=str(task.folder), task_id="t0",
                task_digest=task.digest, trial=1, agent="oracle", folder=str(tmp_path / str(number)), epoch=1,
            )  # fmt: skip
            line = [sys.executable, "-m", "assay.judge.terminal.worker", str(lock)]
            judge = subprocess.Popen(
                line,
                pass_fds=[lock],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            stack.enter_context(judge)
            stack.callback(judge.kill)
            assert judge.stdin is not None
            judge.stdin.write(WorkerSettings("bubblewrap", "fail").to_json() + job.to_json())
            judge.stdin.flush()
            judges.append(judge)
        for judge in judges:
            assert judge.stdin is not None
            assert judge.stdout is not None
            judge.stdin.close()
            judge.stdout.close()
            time.sleep(0.1)
        for judge in judges:
            assert judge.stderr is not None
            assert (judge.wait(60), judge.stderr.read()) == (0, b"")
    assert not any((tmp_path / str(number) / ".scratch").exists() for number in range(6))


@pytest.mark.parametrize("ends", [True, False])
def test_whoever_worked_for_a_dead_run_is_waited_for_though_nobody_reaped_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    monkeypatch.setattr(run_files, "PATIENCE", 60.0 if ends else 0.2)
    with subprocess.Popen(["true"]) as dead, (tmp_path / ".lock").open("w") as worker:
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        worker.write(str(dead.pid))
        worker.flush()
        fcntl.flock(worker, fcntl.LOCK_EX)
        if ends:
            later = threading.Timer(0.3, fcntl.flock, (worker, fcntl.LOCK_UN))
            later.start()
            with run_files.held(tmp_path, "val-1"):
                assert (tmp_path / ".lock").read_text() == str(os.getpid())
            later.join()
        else:
            with pytest.raises(run_files.RunBusy), run_files.held(tmp_path, "val-1"):
                pass


def test_a_torn_line_is_taken_away_and_a_whole_one_is_ended(tmp_path: Path) -> None:
    folder = competition(tmp_path / "c")
    run(folder, "val-1", QUICK)
    file = TrialStore(folder, "val-1").evidence
    whole = file.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    expected = sorted(line for line in whole.splitlines())
    for cut in (1, 20, len(last) - 1):
        file.write_bytes(whole[:-cut])
        events: list[RunEvent] = []
        summary = run(folder, "val-1", QUICK, events.append)
        assert summary.planned == 0  # the trial's own folder says how it ended
        assert [event.count for event in events if event.kind == "kept"] == ([] if cut == 1 else [1])
        assert sorted(file.read_bytes().splitlines()) == expected
        assert file.read_bytes().endswith(b"\n")


@pytest.mark.full
def test_evidence_that_was_not_written_yet_is_taken_from_the_trials(tmp_path: Path) -> None:
    folder = competition(tmp_path / "c")
    run(folder, "val-1", QUICK)
    file = TrialStore(folder, "val-1").evidence
    expected = sorted(file.read_bytes().splitlines())
    file.unlink()
    assert run(folder, "val-1", QUICK).planned == 0
    assert sorted(file.read_bytes().splitlines()) == expected
    file.unlink()
    results = sorted((folder / "trials").rglob("result.json"))
    results[0].write_text("{")
    results[1].write_text(results[1].read_text().replace('"trial": 1', '"trial": 2'))
    assert run(folder, "val-1", QUICK).planned == 2  # what cannot be read, or is of something else, is judged again
    assert outcomes(folder) == everything()


@pytest.mark.full
def test_what_is_recovered_is_only_of_the_same_task(tmp_path: Path) -> None:
    folder = competition(tmp_path / "c", tasks=1)
    run(folder, "val-1", QUICK)
    TrialStore(folder, "val-1").evidence.unlink()
    make_task(folder / "tasks" / "t0", tests="grep -q hello /app/out.txt\n")
    make_competition(folder, {"ann": ORACLE, "bob": NOOP})
    assert run(folder, "val-1", QUICK).outcomes == Counter({"pass": 1, "fail": 1})


def test_a_trial_that_is_too_old_to_count_is_judged_again(tmp_path: Path) -> None:
    folder = competition(tmp_path / "c", tasks=1)
    scheme = folder / "scheme.toml"
    scheme.write_text(scheme.read_text().replace("[consensus]\n", "[consensus]\nmax_age_epochs = 1\n"))
    run(folder, "val-1", QUICK)
    for epoch, planned in ((2, 0), (3, 2)):
        TrialStore(folder, "val-1").evidence.unlink()  # its evidence would be written again from the trial's own folder
        assert run(folder, "val-1", replace(QUICK, epoch=epoch)).planned == planned
    assert {row["epoch"] for row in map(json.loads, TrialStore(folder, "val-1").evidence.read_text().splitlines())} == {3}


def test_a_full_disk_while_keeping_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = competition(tmp_path / "c", tasks=1)
    calls: list[int] = []
    real = TrialStore.append

    def full(self: TrialStore, record: TrialRecord) -> bool:
        calls.append(1)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        return real(self, record)

    monkeypatch.setattr(TrialStore, "append", full)
    events: list[RunEvent] = []
    summary = run(folder, "val-1", QUICK, events.append)
    assert summary.errors == []
    assert outcomes(folder) == everything(tasks=1)
    (again,) = [event for event in events if event.kind == "again"]
    assert again.record is not None
    assert "No space left" in again.record.message


def test_a_run_does_not_begin_on_a_full_disk(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "1m") as disk:
        store = TrialStore(disk, "val-1")
        with store.lock():
            pass
        with filled(disk), pytest.raises(BadInput, match="cannot be written"), store.lock():
            pass


def test_a_trial_that_its_judge_cannot_write_down_is_an_error(tmp_path: Path) -> None:
    job = Job(
        number=7, validator="val-1", participant="bob", submission="sha256:00", task="t0", task_id="t0", task_digest="sha256:11",
        trial=1, agent="noop", folder=str(tmp_path / "gone"), epoch=1,
    )  # fmt: skip

    out = io.BytesIO()

    class Judge(worker._TrialWorker):
        def run(self, job: Job) -> tuple[TrialResult, tuple[str, str, Mode]]:
            return replace(TrialResult.failed(""), verdict=TrialVerdict("pass", TrialReason.PASSED)), ("noop", "1", "separate")

    Judge(WorkerSettings("bubblewrap", "fail"), out).carry_out(job)
    reply = json.loads(out.getvalue())
    assert (reply["final"], reply["record"]["outcome"], reply["record"]["reason"]) == (False, "error", "trouble")
    assert "could not be kept" in reply["record"]["message"]


CHILD = """
import sys
from pathlib import Path
from assay.judge.running import RunOptions
from assay.judge.terminal.run import run
def tell(event):
    print(event.kind, event.phase, flush=True)
summary = run(Path(sys.argv[1]), "val-1", RunOptions(jobs=2, delay=0.01), tell)
print("stopped" if summary.stopped else "whole", flush=True)
"""


def child(folder: Path) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    return subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True, env=env)


def ours(folder: Path) -> list[int]:
    """Processes that judge for a child of this test: they name the competition's folder, or are what a box of it runs."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in line or MARK.encode() in line:
                pids.append(int(entry.name))
    return pids


MARK = f"3000.{secrets.randbelow(10**15):015}"
"""Seconds that the slow agent sleeps: how it is known among all processes."""


def slow(tmp_path: Path) -> Path:
    folder = competition(tmp_path / "c", tasks=2)
    make_agent(tmp_path / "slow", f"echo begun; sleep {MARK}\n")
    submit_agent(folder, "bob", str(tmp_path / "slow"))
    return folder


def wait_until_nothing_is_left(folder: Path) -> None:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        if not ours(folder):
            return
        time.sleep(0.1)
    pytest.fail(f"still there: {ours(folder)}")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    folder = slow(tmp_path)
    with child(folder) as process:
        assert process.stdout is not None
        phases = 0
        for line in process.stdout:
            phases += line == "phase agent\n"
            if phases == 4:  # both of ann's are through, both of bob's sleep
                process.send_signal(number)
                break
        rest = process.stdout.read()
        assert process.wait() == 0
    assert rest.split() == [*rest.split()[:-2], "stopping", "stopped"]
    wait_until_nothing_is_left(folder)
    assert outcomes(folder) == {("ann", "t0", 1): "pass", ("ann", "t1", 1): "pass"}
    assert not list((folder / "trials").rglob(".partial/*"))


def test_killed_and_gone_on_with(tmp_path: Path) -> None:
    folder = slow(tmp_path)
    with child(folder) as process:
        assert process.stdout is not None
        phases = 0
        for line in process.stdout:
            phases += line == "phase agent\n"
            if phases == 4:
                process.kill()
                break
        process.stdout.read()
        process.wait()
    wait_until_nothing_is_left(folder)  # the judges see that nobody listens any more
    submit_agent(folder, "bob", "noop")
    summary: RunSummary = run(folder, "val-1", QUICK)
    assert summary.judged >= 2
    assert outcomes(folder) == everything()
    assert not list((folder / "trials").rglob(".partial/*"))


def test_cells_are_about_submissions() -> None:
    assert TrialCell("ann", "s", "t", 2).key == ("s", "t", 2)
