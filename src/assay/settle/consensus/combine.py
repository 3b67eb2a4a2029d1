"""The remaining scores of a participant → one, as an exact ratio. SPEC 3.3."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from assay.exact import NANO
from assay.settle import limbs
from assay.settle.inputs import Bools, Ints
from assay.settle.limbs import Stakes

__all__ = ["COMBINE", "Ratio"]

Ratio = tuple[Ints, Ints]
"""Numerators in nanos, in limbs, [4, P], and denominators, in words, [2, P]."""


def stake_mean(scores: Ints, kept: Bools, stakes: Stakes, counts: Ints, stake: Ints) -> Ratio:
    """Σ stake·score / Σ stake over the kept; counts [P] and stake [2, P] are theirs, here and below."""
    return limbs.weighted(stakes, scores * kept), stake


def stake_median(scores: Ints, kept: Bools, stakes: Stakes, counts: Ints, stake: Ints) -> Ratio:
    """The smallest score at which the stake of those at or below it is half of what the kept hold, over 1."""
    order = np.argsort(np.where(kept, scores, NANO + 1), axis=0, kind="stable")
    share = np.take_along_axis(stakes.words[:, :, None] * kept, order[None], axis=1)
    enough = limbs.at_least(limbs.twice(limbs.carried(share.cumsum(axis=1))), stake[:, None])
    first = np.take_along_axis(order, enough.argmax(axis=0)[None], axis=0)
    score = np.take_along_axis(scores, first, axis=0)[0]
    return _padded(score, 4), _padded(np.ones_like(score), 2)


def mean(scores: Ints, kept: Bools, stakes: Stakes, counts: Ints, stake: Ints) -> Ratio:
    """Σ score / count over the kept."""
    return _padded((scores * kept).sum(axis=0), 4), _padded(counts, 2)


COMBINE: dict[str, Callable[[Ints, Bools, Stakes, Ints, Ints], Ratio]] = {
    "stake-mean": stake_mean,
    "stake-median": stake_median,
    "mean": mean,
}


def _padded(numbers: Ints, places: int) -> Ints:
    sums = np.zeros((places, len(numbers)), np.int64)
    sums[0] = numbers
    return sums
