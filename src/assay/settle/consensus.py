"""Consensus: the validators' scores of each participant become one agreed score. SPEC 3.

    Votes ─standing─▶ quorum ─▶ fences ─▶ flagged, excluded ─▶ combination ─▶ Agreement

- Nothing is rounded before the end: medians are kept doubled, MADs fourfold, stakes in limbs, the combination as a ratio.
- Whatever the method, an outlier is a score outside two whole numbers of nanos, the fences `low … high` of the participant.
- Participants are worked through in blocks, so that memory stays small and time grows with their number.

The fences are whole numbers because both sides of each test are:

    modified z: 0.6745·|x − median| / scale > t. With X = |2x − 2·median|, S = 4·scale and t in nanos: 1 349 000 000·X > t·S.
    noise:      scale = 0.6745·√(m(1 − m)/n) with the median m and n trials: X > t·√(2·median·(2 − 2·median)/n). SPEC 3.2.
    z:          |x − mean| / σ > t. With n scores, Σ their sum and W = n·Σx² − Σ² = (n·σ)²: |n·x − Σ| > t·√W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInput
from assay.exact import BPS, NANO, half_even
from assay.scheme.model import Consensus, Outliers
from assay.settle import limbs
from assay.settle.combining import COMBINE, Ratio, nothing
from assay.settle.inputs import Bools, Ints
from assay.settle.limbs import Stakes


@dataclass(frozen=True, eq=False)
class Votes:
    """Scores of V validators for P participants, and whose count. Raises BadInput if shapes or ranges are wrong. SPEC 3.

    `counting`, `incomplete` and `unjudged` leave out validators that were not assigned.
    """

    scores: Ints
    """Nanos, [V, P]; whatever is in range where the validator does not count."""
    counting: Bools
    """The validator has a whole score of this participant, [V, P]."""
    stakes: tuple[int, ...]
    """Rao, 0 … 2^63 − 1, [V]."""
    totals: int | tuple[int, ...]
    """The stake that the quorum is a share of: the registry's, or per participant that of the assigned, [P]."""
    incomplete: Bools | None = None
    """The validator has evidence but misses a trial, [V, P]. SPEC 2.1."""
    unjudged: Bools | None = None
    """The validator's judgement is malformed or says unjudged, [V, P]. SPEC 2.3."""
    trials: int | None = None
    """Of how many trials each score is the share that passed; None where the scores are of another kind. SPEC 2.1."""

    def __post_init__(self) -> None:
        V, P = shape = self.scores.shape
        masks = [mask for mask in (self.counting, self.incomplete, self.unjudged) if mask is not None]
        if any(mask.shape != shape for mask in masks) or len(self.stakes) != V:
            raise BadInput(
                f"scores are {V} × {P}, but the stakes or a mask have another shape", hint="give one row for each validator"
            )
        totals = (self.totals,) if isinstance(self.totals, int) else self.totals
        if len(totals) not in {1, P} or min(totals, default=0) < 0 or max(totals, default=0) >> 94:
            raise BadInput(
                "the total stake is neither one amount nor one for each participant", hint="give an integer of at least 0"
            )
        if min(self.stakes, default=0) < 0 or max(self.stakes, default=0) >> 63:
            raise BadInput("a stake is out of range", hint="stakes are rao, from 0 to 2^63 − 1")
        if self.trials is not None and self.trials < 1:
            raise BadInput("the scores are of no trials", hint="give the number of tasks times trials, at least 1")
        if self.scores.size and (self.scores.min() < 0 or self.scores.max() > NANO):
            raise BadInput("a score is out of range", hint="scores are nanos, from 0 to 1000000000")


LEAST = 3
"""With fewer scores no score is an outlier."""
UNIT = 6745 * 2 * NANO // 10_000
"""|M| in nanos is UNIT·|2x − 2·median| / (4·scale)."""


def medians(scores: Ints, counting: Bools, counts: Ints) -> tuple[Ints, Ints]:
    """2 × median and 4 × MAD in nanos, [P], of the counting scores of each column [V, P]; V ≥ 1, counts are theirs.

    In int32, which sorts twice as fast: scores are at most 10^9, 2·score and |2·score − 2·median| at most 2·10^9 < 2^31.
    A score that does not count becomes the largest possible value, and so comes after those that do.
    """
    whole = bool(counting.all())
    values = (scores if whole else np.where(counting, scores, NANO)).astype(np.int32)
    ordered = np.ascontiguousarray(values.T)
    ordered.sort(axis=1)
    median2 = _middle(ordered, counts, whole)
    ordered *= 2
    ordered -= median2.astype(np.int32)[:, None]
    np.abs(ordered, out=ordered)
    if not whole:
        np.copyto(ordered, 2 * NANO, where=np.arange(len(scores)) >= counts[:, None])
    ordered.sort(axis=1)
    return median2, _middle(ordered, counts, whole)


def _middle(ordered: NDArray[np.int32], counts: Ints, whole: bool) -> Ints:
    """Twice the median of the first `counts` of each sorted row."""
    if whole:
        V = ordered.shape[1]
        return ordered[:, (V - 1) // 2].astype(np.int64) + ordered[:, V // 2]
    rows = np.arange(len(ordered))
    return ordered[rows, (counts - 1) // 2].astype(np.int64) + ordered[rows, counts // 2]


def modified(median2: Ints, mad4: Ints, rules: Outliers, trials: int | None = None) -> tuple[Ints, Ints]:
    """The fences `low` and `high` in nanos, [P], by the modified z-score; trials: n of `scale = "noise"`. SPEC 3.2.

    X may be at most ⌊t·S/UNIT⌋ = q·S + ⌊r·S/UNIT⌋ with t = q·UNIT + r. S ≤ 4·10^9, so r·S < 2^63; no X exceeds 2·10^9, so a
    larger q says no more than that, and q·S ≤ 8·10^18 < 2^63. A scale of 0 flags no score. The largest of several scales has the
    widest fences.
    """
    scale4 = np.maximum(mad4, 4 * rules.mad_floor)
    q, r = divmod(rules.threshold, UNIT)
    reach = min(q, 2 * NANO) * scale4 + r * scale4 // UNIT
    none = scale4 == 0
    if trials is not None:
        noise = np.array([noise_reach(median, rules.threshold, trials) for median in median2.tolist()], np.int64)
        reach, none = np.maximum(reach, noise), none & (spread(median2) == 0)
    reach[none] = 2 * NANO
    return -((reach - median2) >> 1), (median2 + reach) >> 1


def spread(median2: Ints) -> Ints:
    """4·m(1 − m) in nanos squared, at most 10^18, of a doubled median."""
    return median2 * (2 * NANO - median2)


def noise_reach(median2: int, threshold: int, trials: int) -> int:
    """The largest X = |2x − 2·median| that is within t binomial standard errors: X²·n·10^18 ≤ t²·4·m(1 − m). SPEC 3.2."""
    return min(2 * NANO, isqrt(threshold * threshold * (median2 * (2 * NANO - median2)) // (trials * NANO * NANO)))


def moments(scores: Sequence[int]) -> tuple[int, int]:
    """The sum of n scores, and n²·σ² = n·Σx² − (Σx)²."""
    total = sum(scores)
    return total, len(scores) * sum(score * score for score in scores) - total * total


def plain(scores: Ints, counting: Bools, judged: Bools, threshold: int) -> tuple[Ints, Ints]:
    """The fences `low` and `high` in nanos, [P], by the z-score of the judged columns. SPEC 3.2.

    |n·x − Σ| is an integer, so it exceeds t·√W exactly if it exceeds ⌊√⌊t²·W⌋⌋.
    In Python integers: W has more than 63 bits from four scores on.
    """
    low, high = np.zeros(scores.shape[1], np.int64), np.full(scores.shape[1], NANO)
    for p in np.flatnonzero(judged).tolist():
        column = scores[counting[:, p], p].tolist()
        total, spread = moments(column)
        reach = isqrt(threshold * threshold * spread // (NANO * NANO))
        low[p] = max(0, -((reach - total) // len(column)))
        high[p] = min(NANO, (total + reach) // len(column))
    return low, high


class Status(IntEnum):
    """The outcome of a participant. SPEC 3."""

    AGREED = 0
    NO_QUORUM = 1
    INCOMPLETE = 2
    UNJUDGED = 3
    DUPLICATE = 4

    @property
    def code(self) -> str:
        """The word in the settlement."""
        return self.name.lower().replace("_", "-")


class Reason(IntEnum):
    """The reason that there is no agreed score. SPEC 3, 6."""

    NONE = 0
    SAME_SUBMISSION = 1
    MALFORMED_OR_UNJUDGED = 2
    MISSING_TRIALS = 3
    NO_EVIDENCE = 4
    TOO_FEW_VALIDATORS = 5
    TOO_LITTLE_STAKE = 6
    STAKE_AFTER_OUTLIERS = 7

    @property
    def code(self) -> str | None:
        """The word in the settlement; None where the score is agreed."""
        return self.name.lower().replace("_", "-") if self else None


@dataclass(frozen=True, eq=False)
class Agreement:
    """The agreed score of each of P participants by V validators, and how it came about. SPEC 3.

    Without a quorum no score is flagged, and there is neither median nor combination.
    """

    votes: Votes
    """As given, but for validators with too little stake to count: they are left out of every mask."""
    rules: Consensus
    participating: Ints
    """Stake of the counting validators before any is excluded, in words, [2, P]."""
    quorum: Bools
    """Enough validators and enough stake before any is excluded, [P]."""
    status: NDArray[np.int8]
    """`Status`, [P]; never DUPLICATE: duplicates do not get here."""
    reason: NDArray[np.int8]
    """`Reason`, [P]."""
    flagged: Bools
    """Too far from the others, [V, P]."""
    excluded: Bools
    """Flagged and left out of the combination, [V, P]."""
    flagged_majority: Bools
    """The flagged hold half or more of the participating stake, so no score is excluded, [P]."""
    median2: Ints
    """Twice the median in nanos, [P]; 0 where it was not computed."""
    mad4: Ints
    """Four times the MAD in nanos, [P]; 0 where it was not computed."""
    above: Ints
    """Numerator of the exact combination in nanos, as `combining.Ratio` has it; 0 where there is none."""
    below: Ints
    """Its denominator, likewise; 1 where there is none."""
    score: Ints
    """Nanos, [P]; −1 where there is no agreed score."""
    bps: Ints | None = None
    """⌊10 000 × the exact combination⌋, if asked for, [P]; −1 where there is no agreed score. SPEC 2.3."""

    @cached_property
    def stake(self) -> list[int]:
        """Stake of the counting validators before any is excluded, rao, [P]."""
        return limbs.integers(self.participating)

    @cached_property
    def numerator(self) -> list[int]:
        """Numerator of the exact combination in nanos, [P]; 0 where there is none."""
        return limbs.integers(self.above)

    @cached_property
    def denominator(self) -> list[int]:
        """Denominator of the exact combination, [P]; 1 where there is none."""
        return limbs.integers(self.below)

    @cached_property
    def counts(self) -> Ints:
        """The number of validators that count, before any is excluded, [P]."""
        counts: Ints = np.count_nonzero(self.votes.counting, axis=0)
        return counts

    def median(self, p: int) -> int | None:
        """The median in nanos, half to even; None unless the method is modified-z and judged at least three scores."""
        return half_even(int(self.median2[p]), 2) if self._judged(p, "modified-z") else None

    def mad(self, p: int) -> int | None:
        """The median absolute deviation in nanos, half to even, before its floor; None as for `median`."""
        return half_even(int(self.mad4[p]), 4) if self._judged(p, "modified-z") else None

    def mean(self, p: int) -> int | None:
        """The plain mean in nanos, half to even; None unless the method is z and judged at least three scores."""
        if not self._judged(p, "z"):
            return None
        return half_even(self._moments[p][0], int(self.counts[p]))

    def modified_z(self, v: int, p: int) -> int | None:
        """|M| in nanos, half to even; None where it is undefined, or a root, or the validator does not count. SPEC 3.2."""
        if self.rules.outliers.scale is not None:
            return None
        scale4 = max(int(self.mad4[p]), 4 * self.rules.outliers.mad_floor)
        if not self._judged(p, "modified-z") or not self.votes.counting[v, p] or not scale4:
            return None
        return half_even(UNIT * abs(2 * int(self.votes.scores[v, p]) - int(self.median2[p])), scale4)

    def z_squared(self, v: int, p: int) -> int | None:
        """((x − mean)/σ)² in nanos, half to even; with `scale = "noise"` M². None where it is undefined. SPEC 3.2."""
        if not self.votes.counting[v, p]:
            return None
        if self.rules.outliers.scale is not None:
            return self._m_squared(v, p)
        if not self._judged(p, "z"):
            return None
        total, spread = self._moments[p]
        away = int(self.counts[p]) * int(self.votes.scores[v, p]) - total
        return half_even(away * away * NANO, spread) if spread else None

    def _m_squared(self, v: int, p: int) -> int | None:
        """M² in nanos: the smaller of those by the two scales, because the larger scale counts."""
        if not self._judged(p, "modified-z"):
            return None
        assert self.votes.trials is not None
        median2, scale4 = int(self.median2[p]), max(int(self.mad4[p]), 4 * self.rules.outliers.mad_floor)
        away = (2 * int(self.votes.scores[v, p]) - median2) ** 2
        variance4 = median2 * (2 * NANO - median2)
        ratios = []
        if scale4:
            ratios.append(Fraction(UNIT * UNIT * away, NANO * NANO * scale4 * scale4))
        if variance4:
            ratios.append(Fraction(away * self.votes.trials, variance4))
        if not ratios:
            return None
        least = min(ratios)
        return half_even(least.numerator * NANO, least.denominator)

    def _judged(self, p: int, method: str) -> bool:
        return self.rules.outliers.method == method and bool(self.quorum[p]) and int(self.counts[p]) >= LEAST

    @cached_property
    def _moments(self) -> list[tuple[int, int]]:
        scores, counting = self.votes.scores, self.votes.counting
        return [moments(scores[counting[:, p], p].tolist()) for p in range(scores.shape[1])]


def may_count(stakes: Sequence[int], rules: Consensus) -> list[bool]:
    """Whether validators with these stakes (rao) may count at all: above 0 and at least min_validator_stake. SPEC 3.1."""
    least = max(1, rules.min_validator_stake)
    return [stake >= least for stake in stakes]


def standing(votes: Votes, rules: Consensus) -> Votes:
    """The votes without those of validators that may not count."""
    allowed = may_count(votes.stakes, rules)
    if all(allowed):
        return votes
    rows = np.array(allowed)[:, None]
    return replace(
        votes,
        counting=votes.counting & rows,
        incomplete=None if votes.incomplete is None else votes.incomplete & rows,
        unjudged=None if votes.unjudged is None else votes.unjudged & rows,
    )


def needed(votes: Votes, rules: Consensus) -> Ints:
    """The least stake that is min_stake of the total, in words, [2, 1] or [2, P]."""
    totals = (votes.totals,) if isinstance(votes.totals, int) else votes.totals
    if len(set(totals)) == 1:
        totals = totals[:1]
    return limbs.wide([-(-rules.min_stake * total // NANO) for total in totals])


def reached(counts: Ints, stake: Ints, need: Ints, rules: Consensus) -> Bools:
    """Enough counting validators, [P], and enough stake in words, [2, P]. SPEC 3.1."""
    quorum: Bools = (counts >= rules.min_validators) & limbs.at_least(stake, need)
    return quorum


BLOCK = 2**16
"""Scores in a block: few enough to stay in a processor's cache, many enough that the calls do not matter."""


class Panel(NamedTuple):
    """The results for a block of participants: the fields of `Agreement` of the same names."""

    participating: Ints
    quorum: Bools
    status: NDArray[np.int8]
    reason: NDArray[np.int8]
    flagged: Bools
    excluded: Bools
    flagged_majority: Bools
    median2: Ints
    mad4: Ints
    above: Ints
    below: Ints
    score: Ints


class Support(NamedTuple):
    """The number of validators, [P], and the stake that they hold together, in words, [2, P]."""

    counts: Ints
    stake: Ints


def agree(votes: Votes, rules: Consensus, *, bps: bool = False) -> Agreement:
    """One agreed score per participant; `bps` asks for ⌊10 000 × the exact combination⌋ as well. SPEC 3.

    Raises BadInput if `scale = "noise"` is asked of scores without a number of trials.
    """
    if rules.outliers.scale is not None and votes.trials is None:
        raise BadInput("it is not known of how many trials the scores are", field="trials", hint="give tasks times trials")
    votes = standing(votes, rules)
    V, P = votes.scores.shape
    stakes = limbs.split(votes.stakes)
    need = needed(votes, rules)
    width = max(1, BLOCK // max(1, V))
    panels = [_panel(votes, slice(start, start + width), stakes, need, rules) for start in range(0, max(1, P), width)]
    whole = panels[0] if len(panels) == 1 else Panel(*(np.concatenate(parts, axis=-1) for parts in zip(*panels, strict=True)))
    return Agreement(votes, rules, *whole, bps=_bps(whole) if bps else None)


def agree_many(panels: Sequence[Votes], rules: Consensus, *, bps: bool = False) -> list[Agreement]:
    """The agreements of several competitions under the same rules; each is worked through while it is in the cache. SPEC 3."""
    return [agree(votes, rules, bps=bps) for votes in panels]


def _panel(votes: Votes, columns: slice, stakes: Stakes, need: Ints, rules: Consensus) -> Panel:
    scores, counting = votes.scores[:, columns], votes.counting[:, columns]
    need = need if need.shape[1] == 1 else need[:, columns]
    everyone = Support(*limbs.tally(stakes, counting))
    quorum = reached(*everyone, need, rules)

    judged = quorum & (everyone.counts >= LEAST)
    median2, mad4, low, high = _fences(votes, columns, everyone.counts, judged, rules)
    flagged = ((scores < low) | (scores > high)) & counting
    excluded, majority, rest = _excluded(flagged, counting, stakes, everyone)

    agreed = quorum & limbs.at_least(rest.stake, need) if rules.recheck else quorum
    above, below = _combined(scores, counting & ~excluded, stakes, rest, quorum, rules)
    score = np.where(agreed, limbs.quotients(above, below), -1)
    status, reason = _why(votes, columns, stakes, need, rules, everyone.counts, quorum, agreed)
    return Panel(everyone.stake, quorum, status, reason, flagged, excluded, majority, median2, mad4, above, below, score)


def _fences(votes: Votes, columns: slice, counts: Ints, judged: Bools, rules: Consensus) -> tuple[Ints, Ints, Ints, Ints]:
    """2 × median, 4 × MAD, and the fences: a score below or above them is an outlier, [P]; wide open where not judged."""
    method, scores, counting = rules.outliers.method, votes.scores[:, columns], votes.counting[:, columns]
    median2 = mad4 = np.zeros(len(judged), np.int64)
    if method == "none" or not judged.any():
        return median2, mad4, median2, median2 + NANO
    if method == "z":
        return median2, mad4, *plain(scores, counting, judged, rules.outliers.threshold)
    median2, mad4 = medians(scores, counting, counts)
    low, high = modified(median2, mad4, rules.outliers, None if rules.outliers.scale is None else votes.trials)
    if not judged.all():
        median2, mad4, low, high = median2 * judged, mad4 * judged, low * judged, np.where(judged, high, NANO)
    return median2, mad4, low, high


def _excluded(flagged: Bools, counting: Bools, stakes: Stakes, everyone: Support) -> tuple[Bools, Bools, Support]:
    """The scores that are excluded, [V, P]; whether the flagged hold half of the stake, [P]; the rest's support. SPEC 3.2."""
    hit = np.logical_or.reduce(flagged, axis=0)
    if not hit.any():
        return flagged, hit, everyone
    rest = Support(*limbs.tally(stakes, counting & ~flagged))
    majority: Bools = hit & limbs.at_least(everyone.stake, limbs.twice(rest.stake))
    if not majority.any():
        return flagged, majority, rest
    return flagged & ~majority, majority, Support(*(np.where(majority, *pair) for pair in zip(everyone, rest, strict=True)))


def _combined(scores: Ints, kept: Bools, stakes: Stakes, rest: Support, quorum: Bools, rules: Consensus) -> Ratio:
    """The exact combination as a ratio; 0 over 1 without a quorum. SPEC 3.3."""
    if not quorum.any():
        return nothing(rules, len(quorum))
    above, below = COMBINE[rules.combine](scores, kept, stakes, *rest, rules)
    if quorum.all():
        return above, below
    none = nothing(rules, len(quorum))
    return np.where(quorum, above, none[0]), np.where(quorum, below, none[1])


def _why(
    votes: Votes, columns: slice, stakes: Stakes, need: Ints, rules: Consensus, counts: Ints, quorum: Bools, agreed: Bools
) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Status and reason, [P]: the first that applies of unjudged, incomplete, no quorum. SPEC 3."""
    status, reason = np.zeros(len(agreed), np.int8), np.zeros(len(agreed), np.int8)
    if agreed.all():
        return status, reason
    status[~agreed] = Status.NO_QUORUM
    short = np.where(counts < rules.min_validators, Reason.TOO_FEW_VALIDATORS, Reason.TOO_LITTLE_STAKE)
    short = np.where(counts == 0, Reason.NO_EVIDENCE, short)
    reason[~agreed] = np.where(quorum, Reason.STAKE_AFTER_OUTLIERS, short)[~agreed]
    for mask, state, cause in (
        (votes.incomplete, Status.INCOMPLETE, Reason.MISSING_TRIALS),
        (votes.unjudged, Status.UNJUDGED, Reason.MALFORMED_OR_UNJUDGED),
    ):
        if mask is not None:
            more = votes.counting[:, columns] | mask[:, columns]
            could = ~quorum & reached(*limbs.tally(stakes, more), need, rules)
            status[could], reason[could] = state, cause
    return status, reason


def _bps(panel: Panel) -> Ints:
    exact = zip(limbs.integers(panel.above), limbs.integers(panel.below), panel.score.tolist(), strict=True)
    return np.array([-1 if score < 0 else BPS * above // (below * NANO) for above, below, score in exact], np.int64)
