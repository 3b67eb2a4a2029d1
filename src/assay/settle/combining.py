"""Ways to combine the scores that remain after outliers into one exact ratio. SPEC 3.3.

Each function takes scores in nanos [V, P], which of them are kept [V, P], the stakes, how many are kept [P] and what these hold
together, in words [2, P]. It returns numerators in nanos and denominators: nothing is rounded here. Columns without a quorum may
have any value, as long as the denominator is not 0.

    clip      a score above the highest one that validators with κ of the stake reach counts as that one; then the mean by stake
    trimmed   stake lies on a line in the order of the scores; the part `trim` at each end is cut off; the mean of what is left
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from assay.exact import NANO
from assay.scheme.model import Consensus
from assay.settle import limbs
from assay.settle.inputs import Bools, Ints
from assay.settle.limbs import Stakes

__all__ = ["COMBINE", "Ratio", "nothing"]

Ratio = tuple[Ints, Ints]
"""Numerators in nanos, in limbs, [4, P], and denominators, in words, [2, P]; of `trimmed`, both as Python integers, [1, P]."""
Combine = Callable[[Ints, Bools, Stakes, Ints, Ints, Consensus], Ratio]


def stake_mean(scores: Ints, kept: Bools, stakes: Stakes, counts: Ints, stake: Ints, rules: Consensus) -> Ratio:
    """Σ stake·score / Σ stake over the kept."""
    return limbs.weighted(stakes, scores * kept), stake


def stake_median(scores: Ints, kept: Bools, stakes: Stakes, counts: Ints, stake: Ints, rules: Consensus) -> Ratio:
    """The smallest score at which the stake of those at or below it is half of what the kept hold, over 1."""
    order, heaped = _heaped(scores, kept, stakes)
    enough = limbs.at_least(limbs.twice(heaped), stake[:, None])
    score = _at(scores, order, enough.argmax(axis=0))
    return _padded(score, 4), _padded(np.ones_like(score), 2)


def mean(scores: Ints, kept: Bools, stakes: Stakes, counts: Ints, stake: Ints, rules: Consensus) -> Ratio:
    """Σ score / count over the kept."""
    return _padded((scores * kept).sum(axis=0), 4), _padded(counts, 2)


def clip(scores: Ints, kept: Bools, stakes: Stakes, counts: Ints, stake: Ints, rules: Consensus) -> Ratio:
    """The mean by stake of scores that are lowered to the largest one that κ of the stake reaches.

    Stake at or above a score is the whole less the stake below it. So the ceiling is the last score in ascending order with at
    most (1 − κ) of the stake before it.
    """
    order, heaped = _heaped(scores, kept, stakes)
    before = np.zeros_like(heaped)
    before[:, 1:] = heaped[:, :-1]
    assert rules.kappa is not None
    spare = limbs.wide([(NANO - rules.kappa) * whole // NANO for whole in limbs.integers(stake)])
    places = np.arange(len(scores))[:, None]
    reached = limbs.at_least(spare[:, None], before) & (places < counts)
    ceiling = _at(scores, order, np.where(reached, places, 0).max(axis=0))
    return limbs.weighted(stakes, np.minimum(scores, ceiling) * kept), stake


def trimmed(scores: Ints, kept: Bools, stakes: Stakes, counts: Ints, stake: Ints, rules: Consensus) -> Ratio:
    """The mean of what lies between `trim` and 1 − `trim` of the kept stake, in the order of the scores.

    With stake in units of 1/NANO rao both cuts are whole numbers, low and high. Two validators, first and last, hold what is next
    to the cuts; those between them count with all of their stake.
    """
    order, heaped = _heaped(scores, kept, stakes)
    assert rules.trim is not None
    wholes = limbs.integers(stake)
    lows = [rules.trim * whole for whole in wholes]
    highs = [(NANO - rules.trim) * whole for whole in wholes]
    first = limbs.at_least(heaped, limbs.wide([low // NANO + 1 for low in lows])[:, None]).argmax(axis=0)
    last = limbs.at_least(heaped, limbs.wide([-(-high // NANO) for high in highs])[:, None]).argmax(axis=0)
    places = np.arange(len(scores))[:, None]
    inside = np.zeros_like(kept)
    np.put_along_axis(inside, order, (first < places) & (places < last), axis=0)
    sums = limbs.integers(limbs.weighted(stakes, scores * inside))
    ends = _at(scores, order, first).tolist(), _at(scores, order, last).tolist()
    upto = limbs.integers(np.take_along_axis(heaped, first[None, None], axis=1)[:, 0])
    before = limbs.integers(np.take_along_axis(heaped, np.maximum(last - 1, 0)[None, None], axis=1)[:, 0])
    above, below = [], []
    for p, (low, high) in enumerate(zip(lows, highs, strict=True)):
        if first[p] == last[p]:
            above.append((high - low) * ends[0][p])
        else:
            edges = (NANO * upto[p] - low) * ends[0][p] + (high - NANO * before[p]) * ends[1][p]
            above.append(NANO * sums[p] + edges)
        below.append(max(1, high - low))
    return np.array([above], np.object_), np.array([below], np.object_)


COMBINE: dict[str, Combine] = {
    "stake-mean": stake_mean,
    "stake-median": stake_median,
    "mean": mean,
    "clip": clip,
    "trimmed": trimmed,
}


def nothing(rules: Consensus, columns: int) -> Ratio:
    """0 over 1 for each column, in the form that the combination has."""
    if rules.combine == "trimmed":
        return np.full((1, columns), 0, np.object_), np.full((1, columns), 1, np.object_)
    return _padded(np.zeros(columns, np.int64), 4), _padded(np.ones(columns, np.int64), 2)


def _heaped(scores: Ints, kept: Bools, stakes: Stakes) -> tuple[Ints, Ints]:
    """Rows in the order of each column's scores, those that are not kept last, [V, P]; the stake up to each, [2, V, P]."""
    order = np.argsort(np.where(kept, scores, NANO + 1), axis=0, kind="stable")
    share = np.take_along_axis(stakes.words[:, :, None] * kept, order[None], axis=1)
    return order, limbs.carried(share.cumsum(axis=1))


def _at(scores: Ints, order: Ints, places: Ints) -> Ints:
    """The score of each column at a place of the order, [P]."""
    rows = np.take_along_axis(order, places[None], axis=0)
    return np.asarray(np.take_along_axis(scores, rows, axis=0)[0], np.int64)


def _padded(numbers: Ints, places: int) -> Ints:
    sums = np.zeros((places, len(numbers)), np.int64)
    sums[0] = numbers
    return sums
