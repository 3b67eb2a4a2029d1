"""The number of pairs that duels take, and the rate at which they are wrong: on real trials, and at the boundary of the null.

    python -m bench duel          one order of each pair of agents, 10^4 runs at the boundary
    python bench/duel.py --full   ten orders, 10^5 runs

The trials are those of the data folder beside the repository; where it is absent, only the boundary is measured.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from random import Random

from assay.rules.duel import decide, order, outcomes
from assay.scheme.model import Duel

DATA = Path(__file__).parents[2] / "shared" / "data" / "terminal-bench-core-0.1.1.trials.csv"
POPULATIONS = ((40, 20), (100, 15))
"""Pairs, and in how many each side is better; the others are alike."""


def main() -> None:
    """Print both."""
    full = "--full" in sys.argv[1:]
    if DATA.exists():
        agents(10 if full else 1)
    boundary(50_000 if full else 5_000)


def real_trials() -> dict[str, dict[tuple[str, int], bool]]:
    """Agent → task and number of the trial → whether it passed."""
    trials: dict[str, dict[tuple[str, int], bool]] = {}
    with DATA.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            trials.setdefault(row["agent"], {})[row["task"], int(row["run"])] = row["resolved"] == "1"
    return trials


def agents(orders: int) -> None:
    """Every agent against every other one, in so many orders."""
    trials = real_trials()
    tasks = sorted({task for task, _ in next(iter(trials.values()))})
    steps: list[int] = []
    wrong = 0
    for seed in range(orders):
        for challenger, mine in trials.items():
            for king, theirs in trials.items():
                if challenger != king:
                    along = order(tasks, 5, bytes([seed]) * 32, challenger, king)
                    course = decide(len(along), outcomes(along, mine, theirs), Duel())
                    steps.append(len(course.steps))
                    wrong += (course.winner == "challenger") != (sum(mine.values()) > sum(theirs.values()))
    print(f"{len(steps)} duels of {len(trials)} agents over 400 pairs, margin 0, alpha 5 %:")
    print(f"  {sum(steps) / len(steps):.1f} pairs on average; {wrong} of {len(steps)} decided otherwise than the full count")


def boundary(runs: int) -> None:
    """Challengers that are exactly as good as the king."""
    r = Random(1)
    for pairs, half in POPULATIONS:
        population = [(True, False)] * half + [(False, True)] * half + [(True, True)] * (pairs - 2 * half)
        wins = 0
        for _ in range(runs):
            r.shuffle(population)
            wins += decide(pairs, population, Duel()).winner == "challenger"
        print(f"{runs} duels of equals ({pairs} pairs, {2 * half} of them unlike): the challenger wins {wins / runs:.2%}")


if __name__ == "__main__":
    main()
