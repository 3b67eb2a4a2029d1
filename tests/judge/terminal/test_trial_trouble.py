"""Trials in which something breaks, or the model does: errors, never fails. SPEC 2.1."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput
from assay.judge import tree
from assay.judge.sandbox import Box, Image, InfrastructureError, Limits
from assay.judge.sandbox.bubblewrap import Bubblewrap
from assay.judge.service import ModelAccess
from assay.judge.terminal import agent as agents
from assay.judge.terminal.trial import TrialResult, TrialSetup, image_of, run_trial
from judge_kit import bubblewrap, make_agent, make_task, outcome, sh, try_
from proxy_kit import KEY, QUICK, say, service

# InfrastructureError


def trouble(tried: TrialResult) -> str:
    assert (tried.verdict.outcome, tried.verdict.reason) == ("error", "trouble")
    assert tried.message
    return tried.message


def children() -> set[int]:
    pids: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            pids |= {int(word) for word in (task / "children").read_text().split()}
        except OSError:
            continue
    return pids


@pytest.mark.parametrize("whose", ["agent", "tests"])
def test_a_sandbox_that_is_killed_is_an_error(tmp_path: Path, whose: str) -> None:
    wait = "echo begun; sleep 3000\n"
    task = make_task(tmp_path / "t", tests=wait if whose == "tests" else "exit 0\n")
    before, out, done = children(), tmp_path / "trial" / whose / "stdout.txt", threading.Event()

    def kill() -> None:
        while not (out.exists() and out.read_bytes()):
            if done.wait(0.02):
                return
        for pid in children() - before:
            with suppress(OSError):  # others come and go
                if b"bwrap" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        tried = try_(tmp_path, task, sh(wait if whose == "agent" else "true"))
    finally:
        done.set()
        thread.join()
    trouble(tried)


def test_a_full_disk_of_the_host_is_an_error(tmp_path: Path) -> None:
    bubblewrap()
    judge = TrialSetup(Bubblewrap(spare=1 << 62))
    task = make_task(tmp_path / "t", tests="exit 0\n")
    place = tmp_path / "trial"
    place.mkdir()
    tried = run_trial(judge, task, sh("head -c 5000000 /dev/urandom > x; sleep 3000"), image_of(bubblewrap(), task), place)
    trouble(tried)


def test_an_image_that_is_gone_is_an_error(tmp_path: Path) -> None:
    dockerfile = f"FROM debian:12\nWORKDIR /app\n# {time.time_ns()} {os.getpid()}\n"  # nobody else's
    task = make_task(tmp_path / "t", dockerfile=dockerfile)
    judge = TrialSetup(bubblewrap())
    image: Any = image_of(judge.sandbox, task)
    place = tmp_path / "trial"
    place.mkdir()
    tree.remove(image.tree.parent)
    trouble(run_trial(judge, task, agents.BUILT_IN["oracle"], image, place))
    again = image_of(judge.sandbox, task)  # it is built anew
    assert again.digest == image.digest
    second = tmp_path / "second"
    second.mkdir()
    assert outcome(run_trial(judge, task, agents.BUILT_IN["oracle"], again, second)) == ("pass", "passed")
    tree.remove(image.tree.parent)


@dataclass
class Breaking:
    """The real sandbox, except that one step of a box does not come off."""

    step: str
    error: Exception
    name: str = "bubblewrap"

    def __post_init__(self) -> None:
        self.real = bubblewrap()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    @contextmanager
    def open(self, image: Image, limits: Limits) -> Iterator[Box]:
        if self.step == "open":
            raise self.error
        with self.real.open(image, limits) as box:

            def broken(*_args: object, **_named: object) -> None:
                raise self.error

            if self.step != "freeze":
                setattr(box, self.step, broken)
            yield box

    @contextmanager
    def freeze(self, box: Box) -> Iterator[Image]:
        if self.step == "freeze":
            raise self.error
        with self.real.freeze(box) as image:
            yield image


@pytest.mark.parametrize("step", ["open", "put", "fresh", "run", "take", "freeze"])
@pytest.mark.parametrize("error", [InfrastructureError("it broke"), OSError(28, "No space left on device")])
def test_whatever_breaks_is_an_error(tmp_path: Path, step: str, error: Exception) -> None:
    task = make_task(tmp_path / "t", mode="snapshot", tests="exit 0\n")
    sandbox: Any = Breaking(step, error)
    tried = try_(tmp_path, task, sh("true"), TrialSetup(sandbox))
    assert ("it broke" if isinstance(error, InfrastructureError) else "No space left") in trouble(tried)


# The model

ASK = r"""exec 3<>/dev/tcp/127.0.0.1/8080 || exit 1
printf 'POST /chat/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}' >&3; cat <&3; env"""


def asking(folder: Path, more: str = "") -> agents.Agent:
    return make_agent(folder, ASK + more, more='network = "model"\n')


def test_a_model_behind_the_proxy(tmp_path: Path) -> None:
    with service(say(body=b"use hello")) as behind:
        judge = TrialSetup(bubblewrap(), model=ModelAccess(behind.url, KEY))
        agent = asking(tmp_path / "asker", "\necho hello > out.txt")
        tried = try_(tmp_path, make_task(tmp_path / "t"), agent, judge)
    assert outcome(tried) == ("pass", "passed")
    printed = (tmp_path / "trial" / "agent" / "stdout.txt").read_text()
    assert "use hello" in printed
    assert "ASSAY_MODEL_URL=http://127.0.0.1:8080" in printed
    assert KEY not in printed
    assert behind.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    assert tried.model is not None
    assert (tried.model.requests, tried.model.troubles) == (1, [])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("status", [500, 503, 429, 401])
def test_a_model_that_fails_makes_an_error_of_what_did_not_pass(tmp_path: Path, status: int) -> None:
    with service(say(status)) as behind:
        judge = TrialSetup(bubblewrap(), model=ModelAccess(behind.url, KEY))
        tried = try_(tmp_path, make_task(tmp_path / "t"), asking(tmp_path / "asker"), judge)
        assert str(status) in trouble(tried)
        passed = try_(tmp_path, make_task(tmp_path / "u"), asking(tmp_path / "b", "\necho hello > out.txt"), judge, name="second")
    assert outcome(passed) == ("pass", "passed")


@pytest.mark.parametrize("status", [403, 429, 500])
def test_a_refusal_that_an_agent_brings_about_buys_no_error(tmp_path: Path, status: int) -> None:
    """The service refuses what the agent asks, and nothing else: the agent's fail, since it has not solved the task."""
    with service(say()) as behind:

        def answer(handler: BaseHTTPRequestHandler) -> None:
            say(status if behind.asked[-1].body == b"{}" else 200)(handler)

        behind.answer = answer
        judge = TrialSetup(bubblewrap(), model=ModelAccess(behind.url, KEY), proxy=QUICK)
        tried = try_(tmp_path, make_task(tmp_path / "t"), asking(tmp_path / "asker"), judge)
    assert outcome(tried) == ("fail", "tests-failed")
    assert tried.model is not None
    assert (tried.model.troubles, tried.model.own) == ([], [f"POST: status {status}"])


def test_a_model_that_answers_makes_no_error(tmp_path: Path) -> None:
    with service(say(404)) as behind:
        judge = TrialSetup(bubblewrap(), model=ModelAccess(behind.url, KEY))
        tried = try_(tmp_path, make_task(tmp_path / "t"), asking(tmp_path / "asker"), judge)
    assert outcome(tried) == ("fail", "tests-failed")


def test_no_model_for_those_who_did_not_ask_or_where_there_is_none(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t")
    with service(say()) as behind:
        judge = TrialSetup(bubblewrap(), model=ModelAccess(behind.url, KEY))
        tried = try_(tmp_path, task, sh(ASK), judge)
        assert outcome(tried) == ("fail", "tests-failed")
        assert behind.asked == []
    assert "Connection refused" in (tmp_path / "trial" / "agent" / "stderr.txt").read_text()
    with pytest.raises(BadInput, match="needs a model"):
        try_(tmp_path, task, asking(tmp_path / "asker"), name="second")
