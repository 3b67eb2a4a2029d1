"""The cost of judging on Ray beside judging on one machine, and how it scales: `python -m bench engine`.

    overhead   the time beside a trial when they come one at a time, through the engine and in a local run; their difference
               beside Ray's empty task and a durable insert, each after a pause as long as a trial, as the engine's come.
               Those without a pause are shown too: they find their processes awake, which a trial's task never does. Then
               with what the trial itself takes longer there: on a machine that has other work, most of that is chance
    speed-up   from one worker to two, trials that compute, and trials that wait; beside plain processes that do the same
    memory     the driver's, with a thousand trials that wait for their turn, a hundred thousand, and a million

One node on loopback. Every pair is measured in turns in the same run, since other programs take time of the machine too. For that
reason a trial's time is the first quartile of all: what is slower is so because of others.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assay.engine.ray_engine import RayEngine
from assay.judge.run_files import append
from assay.judge.running import RunEvent, RunOptions
from assay.judge.terminal.record import TrialRecord
from assay.judge.terminal.run import run
from bench import small

sys.path.append(str(Path(__file__).parents[1] / "tests" / "kits"))
from ray_kit import Cluster, cluster

TURNS, TRIALS = 6, 12
WORKED, LOOPS, SLEEP = 8, 6_000_000, 1.0
QUEUED, SEEN = (1_000, 100_000, 1_000_000), 40
AIM, SPEED_AIM, FLAT = 2.0, 0.85, 1.1
_LOOP = f"i=0; while [ $i -lt {LOOPS // 20} ]; do i=$((i+1)); done\n"


def main() -> None:
    with small.place() as place, cluster(cpus=2, nodes=1) as nodes:
        os.environ |= {name: value for name, value in nodes.env("bench", "node-0").items() if name.startswith("ASSAY_S")}
        engine = RayEngine(nodes.address, most=1)
        failed = [_overhead(place, engine), _speed_up(place, engine)]
        engine.close()
        failed.append(_memory(place, nodes))
    if any(failed):
        raise SystemExit("an aim was missed: " + ", ".join(filter(None, failed)))


def _overhead(place: Path, engine: RayEngine) -> str:
    import ray

    empty = ray.remote(max_retries=0)(_nothing)
    for _ in range(5):
        ray.get(empty.remote())
    insert = lambda: append(place / "durable" / "lines.jsonl", b"x" * 300 + b"\n")  # noqa: E731
    spent: dict[str, list[float]] = {
        name: [] for name in ("local trial", "far trial", "local", "far", "task", "insert", "hot task", "hot insert")
    }
    for turn in range(TURNS):
        for name, where in (("local", None), ("far", engine)):
            own, others = _per_trial(place / f"{name}-{turn}", where)
            spent[f"{name} trial"] += own
            spent[name] += others
        rhythm = _quartile(spent["local trial"])
        spent["task"] += _each(lambda: ray.get(empty.remote()), 20, rhythm)
        spent["insert"] += _each(insert, 20, rhythm)
        spent["hot task"] += _each(lambda: ray.get(empty.remote()), 50)
        spent["hot insert"] += _each(insert, 50)
    for what, of in (("first quartiles", _quartile), ("medians", statistics.median)):
        ms = {name: f"{of(values) * 1e3:.1f}" for name, values in spent.items()}
        print(f"ms, {what}: a trial itself {ms['local trial']} here, {ms['far trial']} on Ray", end="; ")
        print(f"beside it {ms['local']} here, {ms['far']} on Ray")
        print(f"    as often as a trial: Ray's empty task {ms['task']}, a durable insert {ms['insert']}", end="; ")
        print(f"without a pause: {ms['hot task']}, {ms['hot insert']}")
    quartiles = {name: _quartile(values) for name, values in spent.items()}
    base, hot = quartiles["task"] + quartiles["insert"], quartiles["hot task"] + quartiles["hot insert"]
    beside = quartiles["far"] - quartiles["local"]
    whole = beside + quartiles["far trial"] - quartiles["local trial"]
    for name, cost in (("beside a trial", beside), ("with what the trial itself takes longer", whole)):
        print(f"overhead {name}: {cost * 1e3:.1f} ms, {cost / base:.2f} × an empty task and an insert", end="; ")
        print(f"{cost / hot:.2f} × those without a pause")
    print(f"(at most {AIM} × those as often as a trial, with what the trial itself takes longer)\n")
    return "" if whole <= AIM * base else "overhead"


def _quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0]


def _nothing() -> None: ...


def _each(what: Callable[[], object], times: int, pause: float = 0.0) -> list[float]:
    """Seconds that each takes; pause: seconds before each."""
    spent = []
    for _ in range(times):
        time.sleep(pause)
        began = time.perf_counter()
        what()
        spent.append(time.perf_counter() - began)
    return spent


def _per_trial(folder: Path, engine: RayEngine | None) -> tuple[list[float], list[float]]:
    """Seconds of each trial itself, and those beside it from one result to the next.

    Both are of the middle of a run: what is slow to start has started.
    """
    small.competition(folder, tasks=2, trials=TRIALS)
    ends: list[tuple[float, float]] = []

    def heard(event: RunEvent) -> None:
        if event.kind == "ended":
            assert isinstance(event.record, TrialRecord)
            own = event.record.finished_at - event.record.started_at
            ends.append((time.perf_counter(), own.total_seconds()))

    run(folder, small.VALIDATOR, RunOptions(engine=engine, participants=(small.SOLVER,)), heard)
    beside = [after - before - own for (before, _), (after, own) in itertools.pairwise(ends[5:])]
    return [own for _, own in ends[6:]], beside


def _speed_up(place: Path, engine: RayEngine) -> str:
    """From one worker to two: of trials that compute, where two cores are all there is, and of trials that wait for a model."""
    failed = [_speed_up_of(place, engine, "compute", _LOOP), _speed_up_of(place, engine, "wait", f"sleep {SLEEP}\n")]
    return " and ".join(filter(None, failed))


def _speed_up_of(place: Path, engine: RayEngine, what: str, script: str) -> str:
    plain: dict[int, list[float]] = {1: [], 2: []}
    far: dict[int, list[float]] = {1: [], 2: []}

    def work(_number: int) -> None:
        subprocess.run(["bash", "-c", script], check=True)  # each piece of work is a process, as a trial's is

    for turn in range(TURNS // 2):
        for workers in (1, 2):
            with ThreadPoolExecutor(workers) as pool:
                began = time.perf_counter()
                list(pool.map(work, range(WORKED)))
                plain[workers].append(time.perf_counter() - began)
            engine._most = workers
            far[workers].append(_worked(place / f"{what}-{turn}-{workers}", engine, script))
    gain, gained = (statistics.median(times[1]) / statistics.median(times[2]) for times in (plain, far))
    print(f"{WORKED} that {what}, by 1 and by 2 workers: plain processes {gain:.2f} times as fast, trials on Ray {gained:.2f}")
    print(f"{gained / gain:.2f} of plain processes' speed-up (at least {SPEED_AIM})\n")
    return "" if gained >= SPEED_AIM * gain else f"speed-up of trials that {what}"


def _worked(folder: Path, engine: RayEngine, script: str) -> float:
    """Seconds for so many trials whose agent runs a script, from when the first two had ended."""
    small.AGENT = script + "echo hello > out.txt\n"
    try:
        small.competition(folder, tasks=1, trials=WORKED + 2)
    finally:
        small.AGENT = "echo hello > out.txt\n"
    ends: list[float] = []

    def heard(event: RunEvent) -> None:
        if event.kind == "ended":
            ends.append(time.perf_counter())

    run(folder, small.VALIDATOR, RunOptions(engine=engine, participants=(small.SOLVER,)), heard)
    return ends[-1] - ends[1]


def _memory(place: Path, nodes: Cluster) -> str:
    peaks = {}
    for count in QUEUED:
        folder = small.competition(place / f"queued-{count}", tasks=50, trials=count // 100)
        env = nodes.env(nodes.nodes[0] + "-driver", "driver") | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        line = [sys.executable, "-m", "bench.engine", str(folder), nodes.address]
        printed = subprocess.run(line, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
        peaks[count] = json.loads(printed.splitlines()[-1])
    few, most = peaks[QUEUED[0]], max(peaks.values())
    printed = ", ".join(f"{peak / 1024:.0f} MiB with {count:,}" for count, peak in peaks.items())
    print(f"driver's peak memory by trials that are queued: {printed}")
    print(f"{most / few:.2f} × (at most {FLAT})")
    return "" if most <= FLAT * few else "memory"


def _driver(folder: Path, address: str) -> None:
    """Judge a few of many trials, and print this process's peak memory in KiB."""
    engine, seen = RayEngine(address), 0

    def heard(event: RunEvent) -> None:
        nonlocal seen
        seen += event.kind == "ended"
        if seen == SEEN:
            os.kill(os.getpid(), signal.SIGINT)

    run(folder, small.VALIDATOR, RunOptions(engine=engine), heard)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    engine.close()


if __name__ == "__main__":
    _driver(Path(sys.argv[1]), sys.argv[2])
