"""Faults in the middle of whole runs: the trial is an error, is tried again a bounded number of times, and is never a fail."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.judge import tree
from assay.judge.kind_options import TaskOptions
from assay.judge.running import RunEvent, RunOptions
from assay.judge.sandbox.usage import SPARE
from assay.judge.service import ModelAccess
from assay.judge.terminal.competition import submit_agent
from assay.judge.terminal.record import TrialRecord, TrialStore
from assay.judge.terminal.run import run
from assay.judge.terminal.tasks import read_task
from assay.judge.terminal.trial import image_of
from boxes import needs_root
from judge_kit import bubblewrap, make_agent, make_competition, make_task
from proxy_kit import KEY, say, service
from run_kit import NOOP, ORACLE, QUICK, lines

MIB = 1 << 20


def with_agent(folder: Path, script: str, *, more: str = "") -> Path:
    """A competition of one task and one participant."""
    bubblewrap()
    make_task(folder / "c" / "tasks" / "t0")
    make_competition(folder / "c", {"ann": ""})
    make_agent(folder / "agent", script, more=more)
    submit_agent(folder / "c", "ann", str(folder / "agent"))
    return folder / "c"


def result(folder: Path) -> TrialRecord:
    (place,) = (folder / "trials").rglob("result.json")
    return TrialRecord.model_validate_json(place.read_bytes())


def children(pid: int) -> list[int]:
    pids: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                pids += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return pids


@contextmanager
def killing(mark: bytes) -> Iterator[None]:
    """Kills every bubblewrap of our workers whose command line has this in it; not those that they started themselves."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for pid in (child for worker in children(os.getpid()) for child in children(worker)):
                with suppress(OSError):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if line.split(b"\0")[0].endswith(b"bwrap") and mark in line:
                        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_sandbox_that_is_killed_again_and_again(tmp_path: Path) -> None:
    folder, events = with_agent(tmp_path, "sleep 3000\n"), list[RunEvent]()
    with killing(b"/agent/run.sh"):
        summary = run(folder, "val-1", RunOptions(attempts=2, delay=0.01), events.append)
    assert [event.kind for event in events if event.kind in ("again", "ended")] == ["again", "ended"]
    assert (summary.outcomes, len(summary.errors), lines(folder)) == (Counter(), 1, [])
    assert (result(folder).outcome, result(folder).attempt) == ("error", 2)
    assert "killed from outside" in result(folder).message


@needs_root
def test_a_disk_that_is_full_until_somebody_clears_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = with_agent(tmp_path, "echo hello > out.txt\n")
    disk = Path(f"/var/tmp/assay-test-{secrets.token_hex(8)}")
    disk.mkdir(mode=0o711)
    size = SPARE + 64 * MIB
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=711", "none", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        disk.rmdir()
        pytest.skip("nothing can be mounted here")
    try:
        monkeypatch.setenv("ASSAY_SCRATCH", str(disk))
        with (disk / "full").open("wb") as full:
            os.posix_fallocate(full.fileno(), 0, 60 * MIB + SPARE // 2)

        def clear(event: RunEvent) -> None:
            if event.kind == "again":
                (disk / "full").unlink(missing_ok=True)

        summary = run(folder, "val-1", QUICK, clear)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
        disk.rmdir()
    assert (summary.outcomes, summary.errors) == (Counter({"pass": 1}), [])
    assert (result(folder).attempt, len(result(folder).earlier)) == (2, 1)
    assert "full" in result(folder).earlier[0]


def test_an_image_that_is_removed_between_two_trials(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    make_task(folder / "tasks" / "t0", dockerfile=f"FROM debian:12\nWORKDIR /app\n# {secrets.token_hex(16)}\n")
    make_competition(folder, {"ann": ORACLE, "bob": NOOP})
    removed: list[Path] = []

    def remove(event: RunEvent) -> None:
        if event.kind == "ended" and not removed:
            image: Any = image_of(bubblewrap(), read_task(folder / "tasks" / "t0"))
            removed.append(image.tree.parent)
            tree.remove(removed[0])

    summary = run(folder, "val-1", QUICK, remove)
    assert (summary.outcomes, summary.errors, len(removed)) == (Counter({"pass": 1, "fail": 1}), [], 1)
    kept = TrialStore(folder, "val-1").result("bob", NOOP, "t0", 1)
    assert kept is not None
    assert kept.reason == "tests-failed"
    tree.remove(removed[0])


def test_a_model_that_fails_once(tmp_path: Path) -> None:
    script = r"""exec 3<>/dev/tcp/127.0.0.1/8080 || exit 1
printf 'POST /embeddings HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}' >&3; grep -q ' 200 ' <&3 && echo hello > out.txt; exit 0"""
    folder = with_agent(tmp_path, script, more='network = "model"\n')
    with service(say(500)) as behind:

        def mend(event: RunEvent) -> None:
            if event.kind == "again":
                behind.answer = say(200)

        summary = run(folder, "val-1", replace(QUICK, own=TaskOptions(model=ModelAccess(behind.url, KEY))), mend)
    assert (summary.outcomes, summary.errors) == (Counter({"pass": 1}), [])
    assert (result(folder).attempt, len(result(folder).earlier)) == (2, 1)
    assert "500" in result(folder).earlier[0]


@pytest.mark.full
def test_a_model_that_always_fails(tmp_path: Path) -> None:
    folder = with_agent(tmp_path, "exec 3<>/dev/tcp/127.0.0.1/8080; printf 'GET /models HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3\n",
                        more='network = "model"\n')  # fmt: skip
    with service(say(500)) as behind:
        summary = run(folder, "val-1", replace(QUICK, own=TaskOptions(model=ModelAccess(behind.url, KEY)), attempts=2))
    assert (summary.outcomes, len(summary.errors), len(behind.asked), lines(folder)) == (Counter(), 1, 10, [])
