"""Judges that keep to a core each, when there is one for each and no task may use more; and what a judge need not load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.judge.running import RunEvent
from assay.judge.terminal import agent as agents
from assay.judge.terminal.pool import WorkerPool
from assay.judge.terminal.record import TrialStore
from assay.judge.terminal.run import run
from judge_kit import bubblewrap, make_agent, make_competition, make_task
from run_kit import NOOP, QUICK, outcomes

WHERE = "grep Cpus_allowed_list /proc/self/status; echo hello > out.txt\n"


@pytest.fixture
def cores() -> Iterator[list[int]]:
    """The cores that the run may use: two of this machine's, or its only one."""
    before = os.sched_getaffinity(0)
    chosen = sorted(before)[:2]
    os.sched_setaffinity(0, chosen)
    try:
        yield chosen
    finally:
        os.sched_setaffinity(0, before)


@pytest.fixture
def crews(monkeypatch: pytest.MonkeyPatch) -> list[WorkerPool]:
    """The judges of every run that begins."""
    pools: list[WorkerPool] = []

    def hired(*args: Any, **named: Any) -> WorkerPool:
        pools.append(WorkerPool(*args, **named))
        return pools[-1]

    monkeypatch.setattr("assay.judge.terminal.run.WorkerPool", hired)
    return pools


def places_of(crew: WorkerPool) -> list[set[int]]:
    """The cores that each judge who is alive may use."""
    alive = [worker.process for worker in crew._workers if worker.process.poll() is None]
    return sorted((os.sched_getaffinity(process.pid) for process in alive), key=min)


def competition(folder: Path, *, cpus: float) -> Path:
    bubblewrap()
    for number in range(2):
        make_task(folder / "tasks" / f"t{number}", toml=f"cpus = {cpus if number else 1}\n")
    ann = make_agent(folder / "agents" / "ann", WHERE)
    return make_competition(folder, {"ann": ann.digest, "bob": NOOP}, trials=2)


def places(folder: Path) -> list[str]:
    """The cores that each trial of ann's could use."""
    digest = agents.load_agent(folder / "agents" / "ann").digest
    store = TrialStore(folder, "val-1")
    kept = [store.place("ann", digest, task, trial) for task in ("t0", "t1") for trial in (1, 2)]
    return [(place / "agent" / "stdout.txt").read_text().split(":")[1].strip() for place in kept]


@pytest.mark.full
def test_each_keeps_to_its_own_and_so_does_who_takes_its_place(tmp_path: Path, cores: list[int], crews: list[WorkerPool]) -> None:
    folder = competition(tmp_path / "c", cpus=0.5)
    seen: list[list[set[int]]] = []
    killed: list[int] = []

    def heard(event: RunEvent) -> None:
        if event.kind == "began":
            seen.append(places_of(crews[0]))
        if event.kind == "phase" and not killed:
            killed.append(next(worker.process.pid for worker in crews[0].busy() if worker.ready))
            os.kill(killed[0], signal.SIGKILL)

    summary = run(folder, "val-1", replace(QUICK, jobs=len(cores)), heard)
    assert (summary.errors, len(outcomes(folder)), len(killed)) == ([], 8, 1)
    full = [{core} for core in cores]
    assert (seen[0], seen[-1], len(seen)) == (full, full, 9)
    assert all(
        crew_cores == full or len(crew_cores) < len(full) for crew_cores in seen
    )  # fewer: between a death and its being noticed
    assert set(places(folder)) <= {str(core) for core in cores}


@pytest.mark.full
@pytest.mark.parametrize(("cpus", "more"), [(1.5, 0), (1, 1)])
def test_they_do_not_where_a_core_each_is_not_all_there_is_to_have(
    tmp_path: Path, cores: list[int], crews: list[WorkerPool], cpus: float, more: int
) -> None:
    folder = competition(tmp_path / "c", cpus=cpus)
    seen: list[set[int]] = []

    def heard(event: RunEvent) -> None:
        if event.kind == "began":
            seen.extend(places_of(crews[0]))

    run(folder, "val-1", replace(QUICK, jobs=len(cores) + more), heard)
    assert seen
    assert all(allowed == set(cores) for allowed in seen)
    assert len(set(places(folder))) == 1


def test_a_judge_does_not_load_what_only_others_need() -> None:
    """Every judge of a run begins with it, and no trial before it has: schemes, evidence, tables and servers are not its own."""
    code = "import sys, assay.judge.terminal.worker; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert not {"assay.scheme.model", "assay.records", "assay.settle", "http.server", "ssl", "numpy"} & set(modules)
