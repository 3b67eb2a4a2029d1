"""Whole runs: how many trials a second by two judges at a time, and how much memory the runner has after so many.

A run is a process of its own here, so that nothing else is in its memory: `python -m bench.runs FOLDER JOBS MARK…`.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from assay.judge.running import RunEvent, RunOptions
from assay.judge.terminal.run import run
from bench import small

SHARE = 0.8
TASKS = 10
_IMPORTED = "import bench.runs, assay.judge.sandbox.bubblewrap, assay.judge.terminal.worker"


@dataclass(frozen=True)
class Mark:
    """The state when so many trials were done. Seconds since the run was called; bytes in memory."""

    done: int
    seconds: float
    began: float
    """The time when a judge had the first trial's agent begin."""
    runner: int
    judges: int
    """Of the largest of its processes."""


def judged(folder: Path, *, trials: int, jobs: int, marks: list[int]) -> tuple[list[Mark], float]:
    """Judges a new competition of so many trials; how it stood at each mark, and the processor's seconds of all of it.

    The time of a box's first process is not in them: nobody waits for that one but the system.
    """
    small.competition(folder, tasks=TASKS, trials=trials // (2 * TASKS))
    command = [sys.executable, "-m", "bench.runs", str(folder), str(jobs), *map(str, marks)]
    # Compiled modules are kept, as everywhere unless somebody forbids it: else every judge compiles all that it imports.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(small.BUILD / "compiled")
    where = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", _IMPORTED], check=True, env=env, cwd=where)
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env, cwd=where).stdout
    *rows, busy = map(json.loads, printed.splitlines())
    return [Mark(*row) for row in rows], busy


def _child(folder: Path, jobs: int, marks: set[int]) -> None:
    start = time.perf_counter()
    done, began = 0, 0.0

    def heard(event: RunEvent) -> None:
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

    summary = run(folder, small.VALIDATOR, RunOptions(jobs=jobs), heard)
    assert summary.outcomes["pass"] == summary.outcomes["fail"] == summary.planned // 2, summary
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps(sum(usage.ru_utime + usage.ru_stime for usage in used)), flush=True)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _memory(pid: int) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Turn:
    """One run of so many trials, beside what was measured in the same seconds."""

    end: Mark
    busy: float
    """Seconds of the processor that the run took."""
    trial: float
    """Seconds of one trial alone."""
    overhead: float
    """Of it, what is not the scripts."""
    alone: float
    """Seconds of one trial in a run by one judge, from its first trial's begin."""
    machine: float
    """The share of itself that a bare bubblewrap has, where others go on at the same time: what is not for us to lose."""


def at_once(action: Callable[[int], object], jobs: int, times: int) -> float:
    """The share of its own speed alone that something has which goes on in so many threads at a time; it gets their number."""

    def repeat(number: int) -> None:
        for _ in range(times):
            action(number)

    def taken(threads: int) -> float:
        began = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            for going in [pool.submit(repeat, number) for number in range(threads)]:
                going.result()
        return time.perf_counter() - began

    return taken(1) / taken(jobs)


def throughput(turns: list[Turn], *, trials: int, jobs: int) -> None:
    """The table of trials a second: medians, and the shares of the least and the most of the turns."""

    def row(what: str, seconds: Callable[[Turn], float], *ideals: Callable[[Turn], float]) -> None:
        took = statistics.median(map(seconds, turns))
        line = f"{what:52}{took:9.2f} s{trials / took:11.1f}"
        for ideal in ideals:
            shares = sorted(trials * ideal(turn) / jobs / seconds(turn) for turn in turns)
            line += f"{statistics.median(shares):8.2f} ({shares[0]:.2f}–{shares[-1]:.2f})"
        print(line)

    def trial(turn: Turn) -> float:
        return turn.trial

    def overhead(turn: Turn) -> float:
        return turn.overhead

    heading = f"{trials} trivial trials, --jobs {jobs}, medians of {len(turns)} runs"
    print(f"\n{heading:52}{'seconds':>11}{'a second':>11}{'share':>8}{'by overhead':>24}")
    row("the whole run, the start of its judges within", lambda turn: turn.end.seconds, trial, overhead)
    row("from the first trial's begin", lambda turn: turn.end.seconds - turn.end.began, trial, overhead)
    row("ideal: one trial alone, in each job", lambda turn: trials * turn.trial / jobs)
    row("ideal: the overhead of one trial alone, in each job", lambda turn: trials * turn.overhead / jobs)

    def share(what: str, of: Callable[[Turn], float]) -> None:
        shares = sorted(map(of, turns))
        print(f"{what:52}{'':22}{statistics.median(shares):8.2f} ({shares[0]:.2f}–{shares[-1]:.2f})")

    def each(turn: Turn) -> float:
        return (turn.end.seconds - turn.end.began) / trials

    share("of as many runs with --jobs 1, from the first trial", lambda turn: turn.alone / jobs / each(turn))
    share(f"two bare bwrap, {jobs} at a time: what the machine gives", lambda turn: turn.machine)
    share("of what the machine gives, from the first trial", lambda turn: turn.trial / jobs / each(turn) / turn.machine)
    print(f"share: of the first ideal; by overhead: of the second   (aim: at least {SHARE})")
    most = statistics.median(turn.overhead / turn.trial for turn in turns)
    print(f"the second leaves the scripts out, and the run carries them out, so it cannot pass{most:11.2f}")
    busy = statistics.median(turn.busy for turn in turns) / trials
    print(f"{'processor time of the whole run, a trial':52}{busy * 1e3:8.1f} ms", flush=True)


def memory(folder: Path, *, marks: list[int], jobs: int) -> None:
    """The table of resident memory."""
    measured, _busy = judged(folder, trials=marks[-1], jobs=jobs, marks=marks)
    print(f"\n{'resident memory after':52}{'runner':>12}{'each judge':>13}{'seconds':>11}")
    for mark in measured:
        print(f"{f'{mark.done:,} trials':52}{mark.runner / 2**20:8.1f} MiB{mark.judges / 2**20:9.1f} MiB{mark.seconds:9.1f} s")
    first, last = measured[0], measured[-1]
    each = (last.runner - first.runner) / (last.done - first.done) if last.done > first.done else 0
    print(f"{'growth of the runner, bytes a trial':52}{each:8.0f}", flush=True)


if __name__ == "__main__":
    _child(Path(sys.argv[1]), int(sys.argv[2]), {int(mark) for mark in sys.argv[3:]})
