"""What judging on Ray costs beside judging on one machine, and how it scales: `python -m bench engine`.

    overhead   a trial through the engine, one at a time, less one of a local run; beside Ray's empty task and a durable insert
    speed-up   from one worker to two, trials that compute; beside plain processes that compute the same
    memory     the driver's, with a thousand trials that wait for their turn, and with a million

One node on loopback. Every pair is measured in turns in the same run, since other programs take time of the machine too.
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
from assay.judge.terminal.run import run
from bench import small

sys.path.append(str(Path(__file__).parents[1] / "tests" / "kits"))
from ray_kit import Cluster, cluster

TURNS, TRIALS = 3, 10
COMPUTED, LOOPS = 8, 6_000_000
FEW, MANY, SEEN = 1_000, 1_000_000, 40
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
    local, far, tasks, inserts = list[float](), list[float](), list[float](), list[float]()
    for turn in range(TURNS):
        local.append(_per_trial(place / f"local-{turn}", None))
        far.append(_per_trial(place / f"far-{turn}", engine))
        tasks.append(_mean(lambda: ray.get(empty.remote()), 50))
        inserts.append(_mean(lambda: append(place / "durable" / "lines.jsonl", b"x" * 300 + b"\n"), 50))
    cost, base = statistics.median(far) - statistics.median(local), statistics.median(tasks) + statistics.median(inserts)
    print(f"a trial, one at a time: {statistics.median(local) * 1e3:.1f} ms here, {statistics.median(far) * 1e3:.1f} ms on Ray")
    print(f"Ray's empty task {statistics.median(tasks) * 1e3:.1f} ms, a durable insert {statistics.median(inserts) * 1e3:.1f} ms")
    print(f"overhead {cost * 1e3:.1f} ms, {cost / base:.2f} × both together (at most {AIM})\n")
    return "" if cost <= AIM * base else "overhead"


def _nothing() -> None: ...


def _mean(what: Callable[[], object], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        what()
    return (time.perf_counter() - began) / times


def _per_trial(folder: Path, engine: RayEngine | None) -> float:
    """Seconds from one result to the next, in the middle of a run: what is slow to start has started."""
    small.competition(folder, tasks=2, trials=TRIALS)
    ends: list[float] = []

    def heard(event: RunEvent) -> None:
        if event.kind == "ended":
            ends.append(time.perf_counter())

    run(folder, small.VALIDATOR, RunOptions(engine=engine), heard)
    gaps = [after - before for before, after in itertools.pairwise(ends[5:])]
    return statistics.median(gaps)


def _speed_up(place: Path, engine: RayEngine) -> str:
    plain: dict[int, list[float]] = {1: [], 2: []}
    far: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(TURNS):
        for workers in (1, 2):
            with ThreadPoolExecutor(workers) as pool:  # each computation is a process, as a trial's is
                began = time.perf_counter()
                list(pool.map(_compute, range(COMPUTED)))
                plain[workers].append(time.perf_counter() - began)
            engine._most = workers
            far[workers].append(_computed(place / f"computed-{turn}-{workers}", engine))
    gain, gained = (statistics.median(one[1]) / statistics.median(one[2]) for one in (plain, far))
    print(f"{COMPUTED} computations by 1 and by 2 workers: plain processes {gain:.2f} times as fast, trials on Ray {gained:.2f}")
    print(f"{gained / gain:.2f} of plain processes' speed-up (at least {SPEED_AIM})\n")
    return "" if gained >= SPEED_AIM * gain else "speed-up"


def _compute(_number: int) -> None:
    subprocess.run(["bash", "-c", _LOOP], check=True)


def _computed(folder: Path, engine: RayEngine) -> float:
    """Seconds for so many trials that compute, from when the first two had ended."""
    small.AGENT = _LOOP + "echo hello > out.txt\n"
    try:
        small.competition(folder, tasks=1, trials=COMPUTED + 2)
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
    for count in (FEW, MANY):
        folder = small.competition(place / f"queued-{count}", tasks=50, trials=count // 100)
        env = nodes.env(nodes.nodes[0] + "-driver", "driver") | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        line = [sys.executable, "-m", "bench.engine", str(folder), nodes.address]
        said = subprocess.run(line, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
        peaks[count] = json.loads(said.splitlines()[-1])
    mib = {count: peak / 1024 for count, peak in peaks.items()}
    print(f"driver's peak memory: {mib[FEW]:.0f} MiB with {FEW:,} trials queued, {mib[MANY]:.0f} MiB with {MANY:,}")
    print(f"{mib[MANY] / mib[FEW]:.2f} × (at most {FLAT})")
    return "" if mib[MANY] <= FLAT * mib[FEW] else "memory"


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
