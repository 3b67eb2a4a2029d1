"""The effect of a rule about outliers on honest validators, and on one that lies, at so many trials. SPEC 3.2.

Honest validators that run the same agent differ by chance: each sees a binomial number of the trials pass. Here the kernel itself
(`settle.consensus.agree`) is asked about thousands of such participants. The seed decides every draw; the shares are for the
reader, and are binary floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from assay.exact import NANO
from assay.scheme.model import Consensus
from assay.settle.consensus import Votes, agree
from assay.settle.inputs import Ints
from assay.settle.score.trials import score_of

__all__ = ["LIES", "RATES", "SAMPLES", "VALIDATORS", "Exclusions", "exclusions", "noisy", "power"]

RATES = (0.5, 0.6, 0.7, 0.8, 0.9)
"""The pass rates of the agents that are tried."""
VALIDATORS = (3, 5, 8, 12, 20)
LIES = (2, 3, 4, 5, 6)
"""The lies, in standard errors that a liar adds to what it saw."""
SAMPLES = 20_000
"""Participants that are tried at each rate."""


@dataclass(frozen=True, slots=True)
class Exclusions:
    """Of so many participant-epochs at a pass rate, in how many at least one honest validator is left out."""

    rate: float
    samples: int
    lost: int

    @property
    def share(self) -> float:
        """The part of the participant-epochs."""
        return self.lost / self.samples


def exclusions(
    rules: Consensus, trials: int, validators: int, *, seed: int = 0, rates: Sequence[float] = RATES, samples: int = SAMPLES
) -> list[Exclusions]:
    """The participant-epochs in which an honest validator is left out, at each pass rate. trials: tasks × trials of each."""
    rows = []
    for number, rate in enumerate(rates):
        passed = _passed(trials, rate, (validators, samples), seed + number)
        lost = _excluded(rules, passed, trials).any(axis=0)
        rows.append(Exclusions(rate, samples, int(lost.sum())))
    return rows


def power(
    rules: Consensus, trials: int, *, seed: int = 0, rate: float = 0.6, samples: int = SAMPLES // 4
) -> dict[tuple[int, int], float]:
    """(validators, standard errors) → how often a liar is left out that adds so many standard errors to what it saw.

    All others are honest, and all have the same stake.
    """
    shares = {}
    for validators in VALIDATORS:
        honest = _passed(trials, rate, (validators, samples), seed + validators)
        for lie in LIES:
            passed = honest.copy()
            passed[0] = np.minimum(trials, passed[0] + round(lie * sqrt(rate * (1 - rate) * trials)))
            shares[validators, lie] = float(_excluded(rules, passed, trials)[0].mean())
    return shares


def noisy(rules: Consensus, scale: bool) -> Consensus:
    """The same rules with `scale = "noise"`, or by the seeds' literal rule."""
    outliers = {"method": "modified-z", "scale": "noise" if scale else None}
    return rules.model_copy(update={"outliers": rules.outliers.model_copy(update=outliers)})


def _passed(trials: int, rate: float, shape: tuple[int, int], seed: int) -> Ints:
    """The number of trials that pass: binomial, drawn by the seed."""
    whole = lgamma(trials + 1)
    logs = [
        whole - lgamma(count + 1) - lgamma(trials - count + 1) + count * log(rate) + (trials - count) * log1p(-rate)
        for count in range(trials + 1)
    ]
    steps = np.cumsum([exp(value) for value in logs])
    bits: NDArray[np.uint64] = np.random.PCG64(seed).random_raw(shape[0] * shape[1])
    drawn = np.searchsorted(steps, (bits >> np.uint64(11)) / 2**53, side="right")
    return np.minimum(trials, drawn).astype(np.int64).reshape(shape)


def _excluded(rules: Consensus, passed: Ints, trials: int) -> NDArray[np.bool_]:
    """The scores left out, as a mask, [validators, participants]: all stakes are the same, and every quorum is reached."""
    scores = np.array([score_of(count, trials) for count in range(trials + 1)], np.int64)[passed]
    easy = {"min_validators": 1, "min_stake": 0, "min_validator_stake": 0, "recheck": False, "assign": None}
    everyone = np.ones(passed.shape, np.bool_)
    votes = Votes(scores, everyone, stakes=(NANO,) * len(passed), totals=NANO * len(passed), trials=trials)
    return agree(votes, rules.model_copy(update=easy)).excluded
