"""The number of trials that a season takes until it is decided, and what the decisions cost.

    python -m bench until         every agent of Terminal-Bench in one season, and a drawn season of 64 participants × 400 trials

The trials are those of the data folder beside the repository; where it is absent, only the drawn season is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, get_args

from assay.judge.cell_queue import CellQueue
from assay.judge.terminal.competition import EveryTrial, TrialCell
from assay.judge.until import UntilDecided
from assay.records import Participant, Validator
from assay.rules.decided import OpenSeason, Until
from assay.scheme.model import Scheme
from assay.settle import pipeline
from assay.settle.inputs import Inputs
from bench.duel import DATA, real_trials

Outcome = Callable[[TrialCell], bool]
START = datetime(2026, 1, 1, tzinfo=UTC)
REWARDS: dict[str, dict[str, Any]] = {
    "winner-takes-all": {"strategy": "winner-takes-all", "cap": "100%"},
    "the best three": {"strategy": "winner-takes-all", "top": 3, "cap": "100%"},
    "linear from 50 %": {"strategy": "linear", "min_score": "50%"},
}


def main() -> None:
    """Print both."""
    if DATA.exists():
        real = real_trials()
        tasks = tuple(sorted({task for task, _ in next(iter(real.values()))}))
        print(f"{len(real)} agents, {len(tasks)} tasks × 5 trials of Terminal-Bench, one validator:")
        for name in REWARDS:
            _told(name, lambda cell: real[cell.submission][cell.task, cell.trial], list(real), tasks, 5)
    r = Random(1)
    rates = {f"p{number}": r.random() for number in range(64)}
    drawn = Random(2)
    print("64 participants of drawn skill × 400 trials, one validator:")
    tasks = tuple(f"t{number}" for number in range(400))
    _told("winner-takes-all", lambda cell: drawn.random() < rates[cell.submission], list(rates), tasks, 1)


def _told(name: str, passes: Outcome, participants: list[str], tasks: tuple[str, ...], trials: int) -> None:
    for until in get_args(Until):
        judged, total, seconds = _season(REWARDS[name], until, passes, participants, tasks, trials)
        cost = f"{1000 * seconds / judged:.2f} ms of the processor for each"
        print(f"  {name}, --until {until}: {judged} of {total} trials judged ({judged / total:.1%}); {cost}")


def _season(
    reward: dict[str, Any], until: Until, passes: Outcome, participants: list[str], tasks: tuple[str, ...], trials: int
) -> tuple[int, int, float]:
    """Trials judged, all trials, and the seconds of the processor that choosing them took."""
    sections = {"scheme": {"name": "until"}, "score": {"kind": "tests", "trials": trials}, "reward": reward}
    scheme = Scheme.model_validate(sections | {"consensus": {"min_validators": 1, "min_stake": "0"}, "decay": {"curve": "none"}})
    people = tuple(
        Participant(key=key, uid=at + 1, name="", submission=key, submitted_at=START + timedelta(seconds=at))
        for at, key in enumerate(participants)
    )
    inputs = Inputs(scheme, 1, people, (Validator(key="val-1", stake=1, name=""),), tasks=tasks)
    cells = EveryTrial(people, tasks, trials)
    began = time.process_time()
    choice = UntilDecided(OpenSeason(pipeline.settle(inputs), until), "val-1")
    queue, judged = CellQueue(choice.chosen(cells)), 0
    while not choice.enough and (attempt := queue.take()) is not None:
        judged += 1
        choice.saw(attempt.cell.key, "pass" if passes(attempt.cell) else "fail")
    return judged, len(cells), time.process_time() - began


if __name__ == "__main__":
    main()
