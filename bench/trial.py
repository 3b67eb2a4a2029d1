"""The cost of one trial over the same two scripts run bare, beside two starts of bubblewrap and of Podman; and its parts.

Rounds are interleaved, so that whatever else the machine does falls on all rows alike. Medians are shown.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

from assay.judge import tree
from assay.judge.sandbox import Image, bubblewrap, cgroups, reuse, root, scratch, usage
from assay.judge.sandbox.bubblewrap import Bubblewrap
from assay.judge.terminal import agent as agents
from assay.judge.terminal import record as records
from assay.judge.terminal.record import TrialStore
from assay.judge.terminal.trial import TrialSetup, image_of, run_trial
from assay.judge.terminal.worker import Job, TaskReader, record_of
from bench import small

AIM = 0.25
"""Of what two `podman run` cost over the scripts run bare."""
CONTAINERS = Path(__file__).parents[1] / "build" / "containers"
IMAGE = "localhost/assay-base"
SCRIPTS, TRIAL, BWRAP, PODMAN = "the two scripts, bare", "one trial", "two bare bwrap", "two podman run"
REUSING = "one trial, with --reuse-boxes"
_BWRAP = [
    "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr",
    "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
    "--proc", "/proc", "--dev", "/dev",
]  # fmt: skip


@dataclass(frozen=True)
class Costs:
    """Seconds, medians."""

    by: dict[str, float]
    parts: dict[str, float]
    """Of one trial, with the timers on."""

    @property
    def trial(self) -> float:
        return self.by[TRIAL]

    @property
    def overhead(self) -> float:
        return self.by[TRIAL] - self.by[SCRIPTS]


class CellTrials:
    """Trials of one cell, each done as a run does it: read, judged, kept, its evidence flushed to the disk."""

    def __init__(self, folder: Path, sandbox: Bubblewrap) -> None:
        self._sandbox = sandbox
        self._store = TrialStore(folder, small.VALIDATOR)
        self._tasks = TaskReader()
        self._task = self._tasks.read(folder / "tasks" / "t000")
        self._agent = agents.load_agent(next((folder / "agents").glob("*")))
        self._image: Image = image_of(sandbox, self._task)
        self._count = 0

    def measure(self) -> None:
        self._count += 1
        task = self._tasks.read(self._task.folder)
        agent = agents.load_agent(self._agent.folder or Path())
        partial = self._store.partial()
        tried = run_trial(TrialSetup(self._sandbox), task, agent, self._image, partial)
        job = Job(
            number=self._count, validator=small.VALIDATOR, participant=agent.name, submission=agent.digest, task=str(task.folder),
            task_id=task.id, task_digest=task.digest, trial=self._count, agent=str(agent.folder), folder=str(partial), epoch=1,
        )  # fmt: skip
        record = record_of(job, (agent.name, agent.version, task.mode), self._sandbox.name, tried)
        assert record.outcome == ("pass" if agent.name == small.SOLVER else "fail"), record
        records.write_record(partial, record)
        self._store.keep(partial, record)
        self._store.append(record)


def podman() -> tuple[dict[str, str], str]:
    """The environment of the Podman that tools/containers sets up, and why there is none."""
    if shutil.which("podman") is None or not (CONTAINERS / "containers.conf").is_file():
        return {}, "not here; tools/containers sets it up"
    names = {f"CONTAINERS_{name}": str(CONTAINERS / f"{file}.conf") for name, file in (("CONF", "containers"),
             ("STORAGE_CONF", "storage"), ("REGISTRIES_CONF", "registries"))}  # fmt: skip
    env = os.environ | names
    has = subprocess.run(["podman", "image", "exists", IMAGE], env=env, check=False, capture_output=True).returncode == 0
    return (env, "") if has else ({}, f"has no image {IMAGE}; tools/containers makes it")


class Rounds:
    """Rounds of every row in turns; what each took is kept."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.env, self.without = podman()
        self.taken: dict[str, list[float]] = {}
        self._work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sandbox, reusing = Bubblewrap(), Bubblewrap(reuse=True)
        stack.callback(sandbox.close)
        stack.callback(reusing.close)
        self.trials = CellTrials(small.competition(folder, tasks=1, trials=1), sandbox)
        other = folder.with_name(f"{folder.name}-reusing")
        self.reusing = CellTrials(small.competition(other, tasks=1, trials=1), reusing)
        self.measure()  # warms up
        self.taken.clear()

    def measure(self) -> None:
        """One round."""
        self._timed(SCRIPTS, self._both)
        self._timed(BWRAP, self.bare)
        self._timed(TRIAL, self.trials.measure)
        self._timed(REUSING, self.reusing.measure)
        if self.env:
            self._timed(PODMAN, self._contained)

    def costs(self, rounds: int) -> Costs:
        """Medians so far; where a trial's time goes, of further rounds."""
        return Costs({what: statistics.median(times) for what, times in self.taken.items()}, _parts(self.trials, rounds))

    def bare(self, number: int = 0) -> None:
        """Both scripts in a bare bubblewrap each, in the folder of that number."""
        self._both(*_BWRAP, "--bind", str(self._folder(number)), "/app", "--chdir", "/app", number=number)

    def _contained(self) -> None:
        bounds = ["--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--memory", "512m"]
        line = ["podman", "run", "--rm", *bounds, "--pids-limit", "512", "-v", f"{self._folder()}:/app", "-w", "/app", IMAGE]
        self._both(*line, env=self.env, stdin=subprocess.DEVNULL)

    def _folder(self, number: int = 0) -> Path:
        folder = self._work / str(number)
        if not folder.is_dir():
            folder.mkdir()
            (folder / "run.sh").write_text(small.AGENT)
            (folder / "test.sh").write_text(small.TESTS)
        return folder

    def _both(self, *before: str, number: int = 0, **more: Any) -> None:
        for script in ("run.sh", "test.sh"):
            subprocess.run([*before, "bash", script], cwd=self._folder(number), check=True, **more)

    def _timed(self, what: str, action: Callable[[], object]) -> None:
        began = time.perf_counter()
        action()
        self.taken.setdefault(what, []).append(time.perf_counter() - began)


PLACES: tuple[tuple[str, tuple[tuple[Any, tuple[str, ...]], ...]], ...] = (
    ("boxes' folders made ready", ((root.Root, ("__init__", "prepare", "fresh")), (reuse._Start, ("passed",)))),
    ("boxes' folders made as they were", ((reuse._Start, ("restore",)), (scratch._RunFolder, ("remove",)))),
    ("control groups made, looked at, removed",
     ((cgroups.Groups, ("make",)), (cgroups._V1Group, ("early", "add", "look", "cpu_seconds", "peak", "close")),
      (cgroups._V2Group, ("early", "add", "look", "cpu_seconds", "peak", "close")))),
    ("what the boxes hold on disk, measured", ((usage.DiskWatch, ("__init__", "look", "over")),)),
    ("bubblewrap started, the commands, the end of both", ((bubblewrap, ("supervise",)),)),
    ("files copied in and out", ((tree, ("copy", "peek")),)),
    ("digests of task, agent and work", ((tree, ("digest",)),)),
    ("flushed to the disk (fsync)", ((os, ("fsync",)),)),
)  # fmt: skip
REST = "the rest: reading the task, the record, renaming"


def _parts(trials: CellTrials, rounds: int) -> dict[str, float]:
    """Medians of the seconds in each place, without those of places within it, which are counted there."""
    rows: dict[str, list[float]] = {name: [] for name in (*(name for name, _ in PLACES), REST)}
    for _round in range(rounds):
        spent = dict.fromkeys(rows, 0.0)
        with _timers(spent):
            began = time.perf_counter()
            trials.measure()
            spent[REST] = time.perf_counter() - began - sum(spent.values())
        for name, seconds in spent.items():
            rows[name].append(seconds)
    return {name: statistics.median(times) for name, times in rows.items()}


@contextmanager
def _timers(spent: dict[str, float]) -> Iterator[None]:
    """Adds what this thread spends in each place; other threads remove boxes, and nobody waits for them."""
    thread, inner = threading.get_ident(), [0.0]

    def timed(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return real(*args, **kwargs)
            inner.append(0.0)
            began = time.perf_counter()
            try:
                return real(*args, **kwargs)
            finally:
                took = time.perf_counter() - began
                spent[name] += took - inner.pop()
                inner[-1] += took

        return call

    changed = [(owner, each, getattr(owner, each)) for _, owners in PLACES for owner, names in owners for each in names]
    try:
        for name, owners in PLACES:
            for owner, names in owners:
                for each in names:
                    setattr(owner, each, timed(name, getattr(owner, each)))
        yield
    finally:
        for owner, each, real in changed:
            setattr(owner, each, real)


def show(costs: Costs, without: str, rounds: int) -> None:
    """Both tables."""
    base = costs.by[SCRIPTS]
    print(f"{f'medians of {rounds} rounds':52}{'whole':>11}{'over bare':>11}")
    for what, seconds in costs.by.items():
        print(f"{what:52}{seconds * 1e3:8.1f} ms" + (f"{(seconds - base) * 1e3:8.1f} ms" if what != SCRIPTS else ""))
    if PODMAN in costs.by:
        ratio = costs.overhead / (costs.by[PODMAN] - base)
        print(f"{'a trial over two podman run, both over bare':52}{ratio:8.2f}      (aim: at most {AIM})")
    else:
        print(f"{PODMAN:52}{without}")
    print(f"\n{'where one trial goes, with timers on':52}")
    whole = sum(costs.parts.values())
    for what, seconds in sorted(costs.parts.items(), key=lambda part: -part[1]):
        print(f"  {what:50}{seconds * 1e3:8.1f} ms{seconds / whole:11.0%}")
    print(f"  {'together':50}{whole * 1e3:8.1f} ms")
    sys.stdout.flush()
