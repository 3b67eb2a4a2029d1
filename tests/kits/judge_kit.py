"""Fixtures for tests of the judge: small tasks, agents and competitions; and the real sandbox, where this machine has it."""

from __future__ import annotations

import csv
import time
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from assay.judge.judge_run import JudgeRun
from assay.judge.running import Judged
from assay.judge.sandbox import InfrastructureError, Sandbox, choose
from assay.judge.terminal import agent as agents
from assay.judge.terminal.agent import Agent
from assay.judge.terminal.competition import EveryTrial, TrialCell
from assay.judge.terminal.tasks import Task, read_task
from assay.judge.terminal.trial import TrialResult, TrialSetup, image_of, run_trial
from assay.records import Participant

SCHEME = """[scheme]
name = "small"
[score]
kind = "tests"
agent_timeout = "{agent_timeout}"
trials = {trials}
[consensus]
min_validators = 1
min_stake = "0"
"""

PLAIN = "grep -qx hello /app/out.txt || exit 1\necho 1 > /logs/verifier/reward.txt\n"
"""Tests that ask for /app/out.txt with the one line hello."""
SOLUTION = "echo hello > /app/out.txt\n"


@cache
def bubblewrap() -> Sandbox:
    """The sandbox; a test that needs it is skipped where it cannot be had."""
    try:
        return choose("bubblewrap")
    except InfrastructureError as error:
        pytest.skip(f"no bubblewrap here: {error}")


def make_task(
    folder: Path,
    *,
    tests: str = PLAIN,
    solution: str | None = SOLUTION,
    mode: str = "separate",
    dockerfile: str = "FROM debian:12\nWORKDIR /app\n",
    instruction: str = "Write hello into out.txt.\n",
    agent_seconds: float = 300,
    tests_seconds: float = 300,
    memory: str = "512M",
    storage: str = "256M",
    toml: str = "",
    base: str = '[metadata.assay]\nbase = "any"\n',
    files: Mapping[str, str] | None = None,
) -> Task:
    """A task in a new folder; `files`: more of them, by path. Times are far from what anything here takes.

    base: says that the host's root file system will do, whatever image the Dockerfile names.
    """
    for name in ("environment", "tests", "solution"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "task.toml").write_text(
        f'schema_version = "1.0"\n[agent]\ntimeout_sec = {float(agent_seconds)}\n'
        f"[verifier]\ntimeout_sec = {float(tests_seconds)}\n"
        f'environment_mode = "{mode}"\n[environment]\nmemory = "{memory}"\nstorage = "{storage}"\n{toml}\n{base}',
        encoding="utf-8",
    )
    (folder / "instruction.md").write_text(instruction, encoding="utf-8")
    (folder / "environment" / "Dockerfile").write_text(dockerfile, encoding="utf-8")
    (folder / "tests" / "test.sh").write_text(tests, encoding="utf-8")
    if solution is not None:
        (folder / "solution" / "solve.sh").write_text(solution, encoding="utf-8")
    for name, text in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return read_task(folder)


def sh(script: str) -> Agent:
    """An agent that is a shell script."""
    return agents.command_line(["bash", "-c", script], name="script")


def make_agent(folder: Path, script: str, *, more: str = "") -> Agent:
    """An agent in a folder, whose command is a script in it."""
    folder.mkdir(parents=True)
    (folder / "agent.toml").write_text(f'name = "{folder.name}"\ncommand = ["bash", "/agent/run.sh"]\n{more}', encoding="utf-8")
    (folder / "run.sh").write_text(script, encoding="utf-8")
    return agents.load_agent(folder)


def try_(
    folder: Path, task: Task, agent: Agent, judge: TrialSetup | None = None, *, agent_timeout: str = "fail", name: str = "trial"
) -> TrialResult:
    """One trial in the real sandbox; what is kept of it is in `folder/name`."""
    judge = judge or TrialSetup(bubblewrap(), "verify" if agent_timeout == "verify" else "fail")
    place = folder / name
    place.mkdir()
    return run_trial(judge, task, agent, image_of(judge.sandbox, task), place)


def outcome(tried: TrialResult) -> tuple[str, str]:
    """The outcome of a trial that ended without an error, and the reason."""
    assert tried.verdict.outcome != "error", tried.message
    return tried.verdict.outcome, tried.verdict.reason


def make_competition(
    folder: Path,
    participants: Mapping[str, str],
    *,
    validators: Sequence[str] = ("val-1",),
    trials: int = 1,
    agent_timeout: str = "fail",
) -> Path:
    """A competition's folder with these participants (key → submission), whose tasks are in tasks/ already."""
    from assay.judge.terminal import competition
    from assay.judge.terminal.tasks import read_tasks

    folder.mkdir(exist_ok=True)
    (folder / "scheme.toml").write_text(SCHEME.format(trials=trials, agent_timeout=agent_timeout), encoding="utf-8")
    with (folder / "participants.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["key", "uid", "submission", "submitted_at"])
        for number, (key, submission) in enumerate(participants.items(), start=1):
            rows.writerow([key, number, submission, f"2026-01-01T00:00:0{number}Z" if submission else ""])
    (folder / "validators.csv").write_text("key,stake\n" + "".join(f"{name},100\n" for name in validators), encoding="utf-8")
    competition.write_manifest(competition.pin_tasks(read_tasks(folder / "tasks")), folder / "tasks.txt")
    return folder


class Scripted(JudgeRun[TrialCell, Judged]):
    """A run without agents: each participant passes its part of the trials, always the same ones; keeps what it was asked for.

    rates: participant → that part. seconds: a trial takes so long. broken: trials that fail with an infrastructure error.
    """

    def __init__(
        self, *args: Any, rates: Mapping[str, float], seconds: float = 0.0, broken: Collection[TrialCell] = (), **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.rates, self.seconds, self.broken = rates, seconds, broken
        self.asked: list[TrialCell] = []

    def cells(self, wanted: Sequence[Participant]) -> EveryTrial:
        tasks = tuple((self.competition / "tasks.txt").read_text(encoding="utf-8").split())
        return EveryTrial(wanted, tasks, self.seen.scheme.score.trials)  # type: ignore[attr-defined]

    def judge(self, cell: TrialCell) -> Judged:
        self.asked.append(cell)
        time.sleep(self.seconds)
        if cell in self.broken:
            raise InfrastructureError("the disk is full")
        passes = Random(str(cell.key)).random() < self.rates[cell.participant]
        own = {"task": cell.task, "trial": cell.trial, "outcome": "pass" if passes else "fail"}
        return Judged(str(own["outcome"]), evidence=self.evidence(cell, cell.submission, **own))
