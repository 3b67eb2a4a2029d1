"""A competition of trivial trials, for measuring what the judge itself costs: one line is written, one line is looked for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.judge.terminal.competition import pin_tasks, submit_agent, write_manifest
from assay.judge.terminal.tasks import read_tasks

AGENT = "echo hello > out.txt\n"
TESTS = "#!/bin/bash\ngrep -qx hello out.txt\n"
VALIDATOR, SOLVER, IDLER = "val-1", "solver", "idler"
BUILD = Path(__file__).parents[1] / "build" / "bench"

_SCHEME = """[scheme]
name = "bench"
[score]
kind = "tests"
trials = {trials}
[consensus]
min_validators = 1
min_stake = "0"
"""
_TASK = """schema_version = "1.0"
[agent]
timeout_sec = 600
[verifier]
timeout_sec = 600
[environment]
cpus = 1
memory = "512M"
storage = "256M"
[metadata.assay]
base = "any"
"""


@contextmanager
def place() -> Iterator[Path]:
    """A folder on the disk that the repository is on, gone afterwards."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="judging-", dir=BUILD) as folder:
        yield Path(folder)


def competition(folder: Path, *, tasks: int, trials: int, pause: float = 0.0) -> Path:
    """Two participants, one who solves every task and one who does nothing. pause: seconds that the solver takes."""
    for number in range(tasks):
        _task(folder / "tasks" / f"t{number:03}")
    (folder / "scheme.toml").write_text(_SCHEME.format(trials=trials))
    (folder / "participants.csv").write_text(f"key,uid,submission,submitted_at\n{SOLVER},1,,\n{IDLER},2,,\n")
    (folder / "validators.csv").write_text(f"key,stake\n{VALIDATOR},100\n")
    write_manifest(pin_tasks(read_tasks(folder / "tasks")), folder / "tasks.txt")
    for name, script in ((SOLVER, f"sleep {pause}\n{AGENT}" if pause else AGENT), (IDLER, "true\n")):
        submit_agent(folder, name, str(agent(folder / "sources" / name, script)))
    return folder


def agent(folder: Path, script: str) -> Path:
    """An agent that is a script."""
    folder.mkdir(parents=True)
    (folder / "agent.toml").write_text(f'name = "{folder.name}"\ncommand = ["bash", "/agent/run.sh"]\n')
    (folder / "run.sh").write_text(script)
    return folder


def _task(folder: Path) -> None:
    for name in ("environment", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text(_TASK)
    (folder / "instruction.md").write_text("Write hello into out.txt.\n")
    (folder / "environment" / "Dockerfile").write_text("FROM debian:12\nWORKDIR /app\n")
    (folder / "tests" / "test.sh").write_text(TESTS)
    os.chmod(folder / "tests" / "test.sh", 0o755)
