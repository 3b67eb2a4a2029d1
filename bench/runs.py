"""Whole runs: how many trials a second by two judges at a time, and how much memory the runner has after so many.

A run is a process of its own here, so that nothing else is in its memory: `python -m bench.runs FOLDER JOBS MARK…`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from assay.judge.running import Event, Options
from assay.judge.tests.run import run
from bench import small

SHARE = 0.8
TASKS = 10
_IMPORTED = "import bench.runs, assay.judge.sandbox.bubblewrap, assay.judge.tests.worker"


@dataclass(frozen=True)
class Mark:
    """How it stood when so many trials were done. Seconds since the run was called; bytes in memory."""

    done: int
    seconds: float
    began: float
    """When the first trial was given out and its judge had begun it."""
    runner: int
    judges: int
    """Of the largest of its processes."""


def judged(folder: Path, *, trials: int, jobs: int, marks: list[int]) -> tuple[list[Mark], float]:
    """Judges a new competition of so many trials; how it stood at each mark, and the processor's seconds of all of it.

    What a box's first process took is not in them: nobody waits for that one but the system.
    """
    small.competition(folder, tasks=TASKS, trials=trials // (2 * TASKS))
    command = [sys.executable, "-m", "bench.runs", str(folder), str(jobs), *map(str, marks)]
    # Compiled modules are kept, as everywhere unless somebody forbids it: else every judge compiles all that it imports.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(small.BUILD / "compiled")
    where = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", _IMPORTED], check=True, env=env, cwd=where)
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env, cwd=where).stdout
    *found, busy = map(json.loads, said.splitlines())
    return [Mark(*one) for one in found], busy


def _child(folder: Path, jobs: int, marks: set[int]) -> None:
    start = time.perf_counter()
    done, began = 0, 0.0

    def heard(event: Event) -> None:
        nonlocal done, began
        if event.kind == "phase" and not began:
            began = time.perf_counter() - start
        if event.kind != "ended":
            return
        done += 1
        if done in marks:
            took = time.perf_counter() - start
            judges = [_memory(int(pid)) for pid in _children(os.getpid())]
            print(json.dumps([done, took, began, _memory(os.getpid()), max(judges, default=0)]), flush=True)

    summary = run(folder, small.VALIDATOR, Options(jobs=jobs), heard)
    assert summary.outcomes["pass"] == summary.outcomes["fail"] == summary.planned // 2, summary
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps(sum(one.ru_utime + one.ru_stime for one in used)), flush=True)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _memory(pid: int) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def throughput(folder: Path, *, trials: int, jobs: int, trial: float, overhead: float) -> None:
    """The table of trials a second. trial, overhead: seconds of one trial alone, and of what of it is not the scripts."""
    (end,), busy = judged(folder, trials=trials, jobs=jobs, marks=[trials])
    rows = [
        ("the whole run, the start of its judges within", end.seconds),
        ("from the first trial's begin", end.seconds - end.began),
    ]
    print(f"\n{f'{trials} trivial trials, --jobs {jobs}':52}{'seconds':>11}{'a second':>11}{'share':>8}{'by overhead':>13}")
    for what, seconds in rows:
        rate = trials / seconds
        print(f"{what:52}{seconds:9.2f} s {rate:10.1f}{rate * trial / jobs:8.2f}{rate * overhead / jobs:13.2f}")
    print(f"{'ideal: one trial alone, in each job':52}{trials * trial / jobs:9.2f} s {jobs / trial:10.1f}")
    print(f"{'ideal: the overhead of one trial alone, in each job':52}{trials * overhead / jobs:9.2f} s {jobs / overhead:10.1f}")
    print(f"share: of the first ideal; by overhead: of the second   (aim: at least {SHARE})")
    print(f"the second leaves the scripts out, and the run carries them out, so it cannot pass{overhead / trial:11.2f}")
    print(f"{'processor time of the whole run, a trial':52}{busy / trials * 1e3:8.1f} ms", flush=True)


def memory(folder: Path, *, marks: list[int], jobs: int) -> None:
    """The table of resident memory."""
    found, _busy = judged(folder, trials=marks[-1], jobs=jobs, marks=marks)
    print(f"\n{'resident memory after':52}{'runner':>12}{'each judge':>13}{'seconds':>11}")
    for mark in found:
        print(f"{f'{mark.done:,} trials':52}{mark.runner / 2**20:8.1f} MiB{mark.judges / 2**20:9.1f} MiB{mark.seconds:9.1f} s")
    first, last = found[0], found[-1]
    each = (last.runner - first.runner) / (last.done - first.done) if last.done > first.done else 0
    print(f"{'growth of the runner, bytes a trial':52}{each:8.0f}", flush=True)


if __name__ == "__main__":
    _child(Path(sys.argv[1]), int(sys.argv[2]), {int(mark) for mark in sys.argv[3:]})
