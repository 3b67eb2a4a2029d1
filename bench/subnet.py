"""Scores → consensus → linear shares → cap → decay → u16: exact integers against float64, and how time grows. SPEC 3, 4.

Both sides start from arrays of scores and end with u16 weights. Assay's side includes its checks of the input and everything
that it keeps for an explanation. The sides take turns, so that a busy machine slows both; medians are shown.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from assay.exact import NANO
from assay.scheme.model import Consensus, Decay, Reward
from assay.settle import reward
from assay.settle.consensus import Agreement, Votes, agree_many
from assay.settle.inputs import Bools, Ints
from bench import plain

EPOCH = 30
VALIDATORS, PARTICIPANTS, SUBNETS = 64, 256, 128
GROWTH = (1_000, 10_000, 100_000, 1_000_000)
GROWTH_VALIDATORS = 16

CONSENSUS, REWARD, DECAY = Consensus(), Reward(), Decay()


@dataclass(frozen=True)
class Subnets:
    """Made-up subnets: honest validators within about 0.01 of each other, three in 64 at random, stakes of about 48 bits."""

    scores: Ints
    counting: Bools
    stakes: Ints
    lasts: Ints

    @classmethod
    def drawn(cls, subnets: int, validators: int, participants: int, missing: float) -> Subnets:
        draw = np.random.default_rng(64256)
        scores = draw.normal(draw.uniform(0.05, 0.95, (subnets, 1, participants)), 0.01, (subnets, validators, participants))
        careless = max(1, validators * 3 // 64)
        scores[:, :careless] = draw.uniform(0, 1, (subnets, careless, participants))
        return cls(
            scores=np.rint(np.clip(scores, 0, 1) * NANO).astype(np.int64),
            counting=draw.random(scores.shape) >= missing if missing else np.ones(scores.shape, np.bool_),
            stakes=np.exp(draw.normal(33, 1.5, (subnets, validators))).astype(np.int64),
            lasts=draw.integers(0, EPOCH + 1, (subnets, participants)),
        )


def exact(subnets: Subnets) -> Callable[[], list[reward.Allotment]]:
    """Assay's side, ready to run: one allotment a subnet."""
    stakes = [tuple(row) for row in subnets.stakes.tolist()]
    lasts = subnets.lasts.tolist()

    def run() -> list[reward.Allotment]:
        panels = [
            Votes(scores, counting, stake, sum(stake))
            for scores, counting, stake in zip(subnets.scores, subnets.counting, stakes, strict=True)
        ]
        return [_allot(agreement, last) for agreement, last in zip(agree_many(panels, CONSENSUS), lasts, strict=True)]

    return run


def _allot(agreement: Agreement, lasts: list[int]) -> reward.Allotment:
    kept = {last: NANO - reward.burnt(last, EPOCH, DECAY)[1] for last in set(lasts)}
    scores = np.maximum(agreement.score, 0).tolist()
    return reward.allot(scores, REWARD, [kept[last] for last in lasts], [True] * len(lasts))


def floating(subnets: Subnets, agree: plain.Agree) -> Callable[[], Ints]:
    """The opponent's side, ready to run: u16 of every subnet, burn last."""
    stakes = subnets.stakes.astype(np.float64)
    totals = stakes.sum(axis=1)
    return partial(plain.settle, agree, subnets.scores / NANO, subnets.counting, stakes, totals, subnets.lasts, EPOCH)


def medians(sides: list[Callable[[], Any]], repetitions: int) -> list[float]:
    """Seconds of each side: the median over repetitions in which the sides take turns, after one that is not counted."""
    taken: list[list[float]] = [[] for _ in sides]
    for repetition in range(repetitions + 1):
        for seconds, side in zip(taken, sides, strict=True):
            start = time.perf_counter()
            side()
            if repetition:
                seconds.append(time.perf_counter() - start)
    return [median(seconds) for seconds in taken]


def differing(subnets: Subnets) -> int:
    """The number of u16 weights on which the exact and the floating side differ."""
    left = np.array([[*allotment.u16, allotment.burn_u16] for allotment in exact(subnets)()])
    return int((left != floating(subnets, plain.tuned)()).sum())


def compare() -> None:
    """The table of ratios."""
    print(f"{'scores → u16':42}{'exact':>11}{'float64':>11}{'ratio':>7}{'tuned':>11}{'ratio':>7}{'u16 that differ':>17}")
    for count, missing, repetitions in ((1, 0.0, 400), (1, 0.05, 400), (SUBNETS, 0.0, 9), (SUBNETS, 0.05, 5)):
        subnets = Subnets.drawn(count, VALIDATORS, PARTICIPANTS, missing)
        sides = [exact(subnets), floating(subnets, plain.plain), floating(subnets, plain.tuned)]
        mine, usual, fast = medians(sides, repetitions)
        what = f"{count} × {VALIDATORS} × {PARTICIPANTS}" + (f", {missing:.0%} not evaluated" if missing else "")
        print(
            f"{what:42}{mine * 1e3:8.2f} ms{usual * 1e3:8.2f} ms{mine / usual:7.2f}"
            f"{fast * 1e3:8.2f} ms{mine / fast:7.2f}{differing(subnets):>17}"
        )


def grow() -> None:
    """The table of growth."""
    print(f"\n{f'participants, by {GROWTH_VALIDATORS} validators':42}{'consensus':>12}{'to u16':>12}{'for each':>12}")
    for participants in GROWTH:
        subnets = Subnets.drawn(1, GROWTH_VALIDATORS, participants, 0.05)
        stake = tuple(subnets.stakes[0].tolist())

        def consensus(subnets: Subnets = subnets, stake: tuple[int, ...] = stake) -> list[Agreement]:
            return agree_many([Votes(subnets.scores[0], subnets.counting[0], stake, sum(stake))], CONSENSUS)

        first, whole = medians([consensus, exact(subnets)], 3 if participants > 10**5 else 9)
        each = whole / participants
        print(f"{participants:<42,}{first * 1e3:9.1f} ms{whole * 1e3:9.1f} ms{each * 1e6:9.2f} µs")


def main() -> None:
    """Both tables."""
    print(f"subnet: Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}")
    print("float64 is plain NumPy (np.median); tuned is rewritten for speed. Medians of runs in turns.\n")
    compare()
    grow()
