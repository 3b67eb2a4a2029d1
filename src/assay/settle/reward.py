"""The arithmetic of rewards: scores into shares, weights and payouts, all of it exact. SPEC 4, 5.

    scores ─share_out─▶ shares ─cap─▶ decay ─▶ warm-up ─▶ registration ─encode─▶ u16      (`allot` does all of these)
    scores ─pay─▶ payouts                                                                 Σ net + Σ fee + refund = deposit

- Shares are integers over one denominator for each stage, so nothing is rounded before it is encoded. Equal scores that decay
  alike get equal weights under `linear`, `quadratic` and `softmax`.
- Every division of a payout rounds down; the remainder is refunded.

The cap. SPEC 4 describes it as a repetition: fix every share above α at α, scale the others to take what is left, and repeat
until no share is above α. Here one pass over the parts in descending order does it. With the c largest fixed, the others are
scaled by λ(c) = (total − c·α) / (sum of the others). Fixing one more that λ(c) puts above α takes out less than its scaled share,
so λ grows. Hence a share above α stays above it, fixing one at a time finds the same c as fixing many at a time, and equal parts
are fixed together. At the end the fixed shares are α, and the others divide what is left by their parts, so the denominators
stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Literal

import numpy as np

from assay.exact import BPS, NANO, U16, apportion, half_even, softmax
from assay.scheme.model import Decay, Payout, Reward


@dataclass(frozen=True, slots=True)
class Shares:
    """parts[i] / denominator for every participant, in ranking order; the denominator need not be the lowest. SPEC 4."""

    parts: list[int]
    denominator: int

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> Fraction:
        return Fraction(self.parts[index], self.denominator)

    @property
    def total(self) -> Fraction:
        """Their sum: at most 1."""
        return Fraction(sum(self.parts), self.denominator)

    def nanos(self) -> list[int]:
        """Every share in nanos, half to even: for the reader only. SPEC 1."""
        denominator, twice = self.denominator, 2 * self.denominator
        rounded = []
        for part in self.parts:
            # Halves up first, and down again by one where it was a tie and that made the count odd.
            count, rest = divmod(2 * NANO * part + denominator, twice)
            rounded.append(count - 1 if not rest and count & 1 else count)
        return rounded


Scores = Sequence[int]
Parts = tuple[list[int], int]


def _linear(scores: Scores, rules: Reward) -> Parts:
    return list(scores), sum(scores)


def _direct(scores: Scores, rules: Reward) -> Parts:
    return list(scores), max(NANO, sum(scores))


def _quadratic(scores: Scores, rules: Reward) -> Parts:
    squares = [score * score for score in scores]
    return squares, sum(squares)


def _softmax(scores: Scores, rules: Reward) -> Parts:
    powers = softmax(scores, rules.temperature)
    return powers, sum(powers)


def _winner_takes_all(scores: Scores, rules: Reward) -> Parts:
    winners = min(rules.top, len(scores))
    return [1] * winners + [0] * (len(scores) - winners), winners


def _ranked(scores: Scores, rules: Reward) -> Parts:
    count = len(scores)
    return list(range(count, 0, -1)), count * (count + 1) // 2


STRATEGIES: Mapping[str, Callable[[Scores, Reward], Parts]] = {
    "linear": _linear,
    "direct": _direct,
    "quadratic": _quadratic,
    "softmax": _softmax,
    "winner-takes-all": _winner_takes_all,
    "ranked": _ranked,
}
"""The name in `[reward] strategy` → a function of scores (nanos, ranking order, all above 0) to parts and their denominator.

Only `direct` may leave a rest, which burns.
"""


def share_out(scores: Scores, rules: Reward) -> Shares:
    """The shares of scores (nanos, ranking order) after floor and strategy; what they leave of 1 burns. SPEC 4."""
    floor = max(1, rules.min_score)
    taking = [score for score in scores if score >= floor]
    if not taking:
        return Shares([0] * len(scores), 1)
    parts, denominator = STRATEGIES[rules.strategy](taking, rules)
    if len(taking) < len(scores):
        following = iter(parts)
        parts = [next(following) if score >= floor else 0 for score in scores]
    return Shares(parts, denominator)


@dataclass(frozen=True, slots=True)
class Capped:
    """Shares under the cap; what burns and what stays unallocated, as parts over the denominator of the shares. SPEC 4."""

    shares: Shares
    burnt: int = 0
    unallocated: int = 0


def cap(shares: Shares, rules: Reward) -> Capped:
    """The shares with none above α; the excess is redistributed, dropped or burnt. SPEC 4."""
    common = gcd(rules.cap, NANO)
    limit, whole = rules.cap // common, NANO // common  # α = limit / whole
    if max(shares.parts, default=0) * whole <= limit * shares.denominator:
        return Capped(shares)
    if rules.excess == "redistribute":
        return _redistributed(shares, limit, whole)
    most = limit * shares.denominator
    parts = [min(part * whole, most) for part in shares.parts]
    excess = sum(shares.parts) * whole - sum(parts)
    under_cap = Shares(parts, shares.denominator * whole)
    return Capped(under_cap, burnt=excess) if rules.excess == "burn" else Capped(under_cap, unallocated=excess)


def _redistributed(shares: Shares, limit: int, whole: int) -> Capped:
    total, per = Fraction(sum(shares.parts), shares.denominator).as_integer_ratio()  # what there is: total / per
    falling = sorted(shares.parts, reverse=True)
    others, fixed = sum(falling), 0
    # Scaled, a part is part · (total·whole − fixed·limit·per) / (others·whole·per): above α = limit/whole?
    left, step = total * whole, limit * per
    while fixed < len(falling) and falling[fixed] * left > step * others:
        others -= falling[fixed]
        left -= step
        fixed += 1
    if not others:  # no share is left to take it: each of the fixed has α, the rest burns
        parts = [step if part else 0 for part in shares.parts]
        return Capped(Shares(parts, whole * per), burnt=left)
    highest = falling[fixed]
    most = step * others
    parts = [most if part > highest else part * left for part in shares.parts]
    return Capped(Shares(parts, whole * per * others))


SHORT = 64
"""Up to this many epochs the power is computed in full."""


def burnt(last: int | None, epoch: int, rules: Decay) -> tuple[int, int]:
    """(τ, B): epochs stale beyond the grace, and the burnt fraction (nanos, half to even); `last` None: (0, 0). SPEC 4."""
    if last is None or rules.curve == "none":
        return 0, 0
    stale = max(0, epoch - last - rules.grace_epochs)
    lost = rules.rate * stale if rules.curve == "linear" else _exponential(rules.rate, stale)
    # B_max is whole nanos, so the lesser of the two may be taken after rounding.
    return stale, min(lost, rules.max_burn)


def each(lasts: Sequence[int | None], epoch: int, rules: Decay) -> list[tuple[int, int]]:
    """`burnt` of every `last`, computed once for equal ones."""
    known = {last: burnt(last, epoch, rules) for last in set(lasts)}
    return [known[last] for last in lasts]


def _exponential(rate: int, stale: int) -> int:
    """1 − (1 − ρ)^τ in nanos, half to even, however large τ is.

    A long power is enclosed between two integers over 2^bits. Rounding is monotone, so where both ends round to the same count,
    the exact value rounds to it too; otherwise more bits are taken. The search ends: in lowest terms 1 − ρ is a/b, and a^τ/b^τ
    lies halfway between two counts only if b^τ divides 2·10^9, which b ≥ 2 cannot do for τ > 31.
    """
    kept = NANO - rate
    if not stale or not rate or not kept:
        return rate if stale else 0
    if stale <= SHORT:
        whole = NANO**stale
        return half_even((whole - kept**stale) * NANO, whole)
    bits = 64 + 2 * stale.bit_length()
    while True:
        low, high = _power(kept, stale, bits)
        most, least = (half_even(((1 << bits) - end) * NANO, 1 << bits) for end in (low, high))
        if most == least:
            return most
        bits *= 2


def _power(kept: int, times: int, bits: int) -> tuple[int, int]:
    """Integers over 2^bits that enclose (kept / NANO)^times: one not above it, one not below it."""
    low = high = 1 << bits
    base_low, base_high = (kept << bits) // NANO, -((-kept << bits) // NANO)
    while times:
        if times & 1:
            low, high = low * base_low >> bits, -(-high * base_high >> bits)
        base_low, base_high = base_low * base_low >> bits, -(-base_high * base_high >> bits)
        times >>= 1
    return low, high


Encoding = Literal["round", "exact-sum", "max-upscale"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Weights as `encoding` says and as the chain stores them (max-upscaled), and the burn UID's two. SPEC 4."""

    u16: list[int]
    chain_u16: list[int]
    burn_u16: int
    burn_chain_u16: int


def encode(parts: Sequence[int], burn: int, denominator: int, encoding: Encoding) -> Encoded:
    """Parts and burn over their denominator (ranking order) as u16.

    `exact-sum` needs them to sum to the denominator (ValueError); at least one is above 0. SPEC 4, Encoding.
    """
    everyone = [*parts, burn]
    chain = _rounded(everyone, max(everyone))
    if encoding == "exact-sum":
        weights = apportion(U16, everyone, denominator)
    else:
        weights = chain[:] if encoding == "max-upscale" else _rounded(everyone, denominator)
    burn_u16, burn_chain_u16 = weights.pop(), chain.pop()
    return Encoded(weights, chain, burn_u16, burn_chain_u16)


def _rounded(parts: list[int], denominator: int) -> list[int]:
    # Halves up: ⌊part·65535/denominator + 1/2⌋.
    twice, times = 2 * denominator, 2 * U16
    if (times + 1) * denominator < 2**63:  # no part is above the denominator: int64 will do, and is faster
        rounded: list[int] = ((np.array(parts, np.int64) * times + denominator) // twice).tolist()
        return rounded
    return [(times * part + denominator) // twice for part in parts]


@dataclass(frozen=True, slots=True)
class Allotment:
    """The shares after every stage, in ranking order. Shares, burn and unallocated are exact and sum to 1. SPEC 4."""

    strategy: Shares
    capped: Shares
    share: Shares
    """The share after cap, decay, warm-up and registration: it is what is encoded."""
    burn_strategy: Fraction
    burn_cap: Fraction
    burn_decay: Fraction
    burn_warm_up: Fraction
    burn_unregistered: Fraction
    burn: Fraction
    """All of them together."""
    unallocated: Fraction
    u16: list[int]
    chain_u16: list[int]
    burn_u16: int
    burn_chain_u16: int


def allot(
    scores: Sequence[int],
    rules: Reward,
    kept: Sequence[int],
    registered: Sequence[bool],
    seen: Sequence[int] | None = None,
    warm_up: int = 1,
) -> Allotment:
    """The weights of agreed scores. SPEC 4.

    scores: nanos, ranking order. kept: 1 − B of each, nanos. registered: whether each has a uid. seen: in how many tasks each
    was seen; `warm_up` tasks give a whole share; None where there is no warm-up.
    Raises ValueError if they differ in length.
    """
    if not len(scores) == len(kept) == len(registered) == len(scores if seen is None else seen):
        raise ValueError("scores, kept, registered and seen differ in length")
    strategy = share_out(scores, rules)
    capped = cap(strategy, rules)
    decayed, by_decay = _scaled(capped.shares, kept, NANO)
    warmed, by_warmth = _scaled(
        decayed, [warm_up] * len(scores) if seen is None else [min(tasks, warm_up) for tasks in seen], warm_up
    )
    share = warmed
    if not all(registered):
        parts = [part if has_uid else 0 for part, has_uid in zip(warmed.parts, registered, strict=True)]
        share = Shares(parts, warmed.denominator)

    denominator, times = share.denominator, by_decay * by_warmth
    before, after = sum(capped.shares.parts) * times, sum(decayed.parts) * by_warmth
    warm, final = sum(warmed.parts), sum(share.parts)
    unallocated = capped.unallocated * times
    burn = denominator - final - unallocated
    encoded = encode(share.parts, burn, denominator, rules.encoding)
    return Allotment(
        strategy=strategy,
        capped=capped.shares,
        share=share,
        burn_strategy=Fraction(strategy.denominator - sum(strategy.parts), strategy.denominator),
        burn_cap=Fraction(capped.burnt, capped.shares.denominator),
        burn_decay=Fraction(before - after, denominator),
        burn_warm_up=Fraction(after - warm, denominator),
        burn_unregistered=Fraction(warm - final, denominator),
        burn=Fraction(burn, denominator),
        unallocated=Fraction(unallocated, denominator),
        u16=encoded.u16,
        chain_u16=encoded.chain_u16,
        burn_u16=encoded.burn_u16,
        burn_chain_u16=encoded.burn_chain_u16,
    )


def _scaled(shares: Shares, kept: Sequence[int], whole: int) -> tuple[Shares, int]:
    """Every share times its kept part of the whole, and by how much the denominator grew: as little as the parts allow."""
    distinct = set(kept)
    common = gcd(whole, *distinct)
    times = whole // common
    if times == 1 and distinct <= {whole}:
        return shares, 1
    factor = {value: value // common for value in distinct}
    parts = [part * factor[value] for part, value in zip(shares.parts, kept, strict=True)]
    return Shares(parts, shares.denominator * times), times


@dataclass(frozen=True, slots=True)
class Paid:
    """One place (from 1) in the unit of the deposit: gross, the fee taken from it, and net = gross − fee. SPEC 5."""

    place: int
    gross: int
    fee: int
    net: int


@dataclass(frozen=True, slots=True)
class Payouts:
    """The parts of a deposit: the tier reached (BPS released), the amount released, the places, all fees, the refund. SPEC 5."""

    tier_bps: int
    released: int
    rows: list[Paid]
    fees: int
    refund: int


def pay(scores: Sequence[int], rules: Payout) -> Payouts:
    """The payouts of agreed scores (nanos, ranking order; BPS × 100 000 for a rubric). SPEC 5.

    There is a row for every place of the split that a participant holds, with gross 0 if its own score is below the lowest tier.
    """
    tier_bps = max((tier.release_bps for tier in rules.tiers if scores and _reaches(scores[0], tier.reach_bps, rules)), default=0)
    released = rules.deposit * tier_bps // BPS
    rows = []
    for place, (score, part) in enumerate(zip(scores, rules.split, strict=False), start=1):
        gross = released * part // BPS if _reaches(score, rules.tiers[-1].reach_bps, rules) else 0
        fee = gross * rules.fee_bps // BPS
        rows.append(Paid(place, gross, fee, gross - fee))
    return Payouts(
        tier_bps=tier_bps,
        released=released,
        rows=rows,
        fees=sum(row.fee for row in rows),
        refund=rules.deposit - sum(row.gross for row in rows),
    )


def _reaches(score: int, reach_bps: int, rules: Payout) -> bool:
    # score / NANO ≥ (threshold / BPS) · (reach / BPS), multiplied out.
    return score * BPS * BPS >= reach_bps * rules.threshold_bps * NANO
