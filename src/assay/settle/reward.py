"""Agreed scores into weights: floor, strategy, cap, decay, warm-up, registration, encoding, in this order. SPEC 4.

Shares are integers over one denominator per stage, so nothing is rounded before it is encoded, and equal scores that
decay alike get equal weights under `linear`, `quadratic` and `softmax`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from assay.exact import NANO
from assay.scheme.model import Reward
from assay.settle.cap import cap
from assay.settle.encoding import encode
from assay.settle.shares import Shares
from assay.settle.strategy import share_out

__all__ = ["Allotment", "Shares", "allot"]


@dataclass(frozen=True, slots=True)
class Allotment:
    """What every stage made of the scores, in ranking order. Shares, burn and unallocated are exact and sum to 1. SPEC 4."""

    strategy: Shares
    capped: Shares
    share: Shares
    """What is left after cap, decay, warm-up and registration: what is encoded."""
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
    was seen, of `warm_up` that it takes for a whole share; None where there is no warm-up.
    Raises ValueError if they differ in length.
    """
    if not len(scores) == len(kept) == len(registered) == len(scores if seen is None else seen):
        raise ValueError("scores, kept, registered and seen differ in length")
    strategy = share_out(scores, rules)
    capped = cap(strategy, rules)
    decayed, by_decay = _scaled(capped.shares, kept, NANO)
    warmed, by_warmth = _scaled(
        decayed, [warm_up] * len(scores) if seen is None else [min(one, warm_up) for one in seen], warm_up
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
