"""What the tests of runs share: a small competition, and what is written down of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from assay.judge.running import RunOptions
from assay.judge.terminal import agent as agents
from assay.judge.terminal.record import TrialStore
from judge_kit import bubblewrap, make_competition, make_task

ORACLE, NOOP = agents.BUILT_IN["oracle"].digest, agents.BUILT_IN["noop"].digest
QUICK = RunOptions(delay=0.01)


def competition(folder: Path, *, tasks: int = 2, trials: int = 1) -> Path:
    bubblewrap()
    for number in range(tasks):
        make_task(folder / "tasks" / f"t{number}")
    return make_competition(folder, {"ann": ORACLE, "bob": NOOP, "none": ""}, validators=("val-1", "val 2/é"), trials=trials)


def lines(folder: Path, validator: str = "val-1") -> list[dict[str, Any]]:
    file = TrialStore(folder, validator).evidence
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def outcomes(folder: Path, validator: str = "val-1") -> dict[tuple[str, str, int], str]:
    by_trial = {(line["participant"], line["task"], line["trial"]): line["outcome"] for line in lines(folder, validator)}
    assert len(by_trial) == len(lines(folder, validator))  # nothing twice
    return by_trial


def everything(tasks: int = 2, trials: int = 1) -> dict[tuple[str, str, int], str]:
    return {
        (who, f"t{task}", trial): what
        for who, what in (("ann", "pass"), ("bob", "fail"))
        for task in range(tasks)
        for trial in range(1, trials + 1)
    }
