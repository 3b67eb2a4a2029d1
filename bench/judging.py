"""The cost of judging: one trial, many at a time, the runner's memory, and what a `kill -9` leaves.

    python -m bench.judging                 in minutes
    python -m bench.judging --full          memory over 5,000 trials, 100 kills
    python -m bench.judging --kills 5 --only kills

Needs bubblewrap. Podman is measured too, if tools/containers has set it up.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from contextlib import ExitStack
from pathlib import Path

from bench import kills, runs, small, trial

PARTS = ("overhead", "throughput", "memory", "kills")
JOBS = 2
BARE = 30
"""The number of times that two bare bubblewraps are started by each at a time."""
MOST = 40
"""Rounds, for where a trial's time goes."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="as long as it takes to be sure")
    parser.add_argument("--rounds", type=int, help="of the overhead")
    parser.add_argument("--turns", type=int, help="of one trial alone and many at a time")
    parser.add_argument("--trials", type=int, default=200, help="of the throughput, in twenties")
    parser.add_argument("--memory", type=int, help="trials over which memory is looked at, in twenties")
    parser.add_argument("--kills", type=int, help="how often a run is killed")
    parser.add_argument("--seed", type=int, default=1, help="of the moments at which it is")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part; can be said several times")
    chosen = parser.parse_args()
    if shutil.which("bwrap") is None:
        print("bubblewrap is not installed, so nothing is measured")
        return
    wanted = chosen.only or PARTS
    full = chosen.full
    with small.place() as folder:
        if "overhead" in wanted or "throughput" in wanted:
            turns = (chosen.turns or (10 if full else 5)) if "throughput" in wanted else 1
            trials(folder, turns, chosen.rounds or (100 if full else 40), chosen.trials if "throughput" in wanted else 0)
        if "memory" in wanted:
            last = chosen.memory or (5_000 if full else 1_000)
            runs.memory(folder / "memory", marks=[*(mark for mark in (100, 1_000) if mark < last), last], jobs=JOBS)
        if "kills" in wanted and kills.kills(folder, chosen.kills or (100 if full else 20), chosen.seed):
            raise SystemExit("a killed run left something behind")


def trials(folder: Path, turns: int, rounds: int, count: int) -> None:
    """One trial alone and many at a time, in turns, because how fast a machine is may be another matter a minute later.

    rounds: of one trial alone, in all, before and after the many. count: how many at a time; none: only one alone is measured.
    """
    measured: list[runs.Turn] = []
    with ExitStack() as stack:
        alone = trial.Rounds(folder / "overhead", stack)
        each = -(-rounds // turns)
        for turn in range(turns):
            for _ in range(each // 2):
                alone.measure()
            if count:
                (end,), busy = runs.judged(folder / f"many-{turn}", trials=count, jobs=JOBS, marks=[count])
            for _ in range(each - each // 2):
                alone.measure()
            if count:
                (single,), _busy = runs.judged(folder / f"single-{turn}", trials=count, jobs=1, marks=[count])
                whole, scripts = (statistics.median(alone.taken[what][-each:]) for what in (trial.TRIAL, trial.SCRIPTS))
                machine = runs.at_once(alone.bare, JOBS, BARE)
                measured.append(runs.Turn(end, busy, whole, whole - scripts, (single.seconds - single.began) / count, machine))
        trial.show(alone.costs(min(rounds, MOST)), alone.without, each * turns)
    if measured:
        runs.throughput(measured, trials=count, jobs=JOBS)


if __name__ == "__main__":
    main()
