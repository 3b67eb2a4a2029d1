"""SPEC 5: tiers, places, fees, refund."""

from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

Doc = dict[str, Any]


@dataclass
class RankedPlace:
    """A ranked participant with its exact score in BPS."""

    participant: str
    address: str | None
    bps: Fraction


def tier(bps: Fraction, payout: Doc) -> int:
    """What the highest tier reached releases, in BPS; 0 below the lowest. SPEC 5."""
    for step in sorted(payout["tiers"], key=lambda step: -int(step["reach_bps"])):
        if 10_000 * bps >= step["reach_bps"] * payout["threshold_bps"]:
            return int(step["release_bps"])
    return 0


def lowest_reached(bps: Fraction, payout: Doc) -> bool:
    """Whether a place's own score reaches the lowest tier. SPEC 5."""
    lowest = min(step["reach_bps"] for step in payout["tiers"])
    return bool(10_000 * bps >= lowest * payout["threshold_bps"])


def pay(ranked: list[RankedPlace], payout: Doc) -> Doc:
    """What the places get and what is refunded. SPEC 5."""
    deposit = int(payout["deposit"])
    tier_bps = tier(ranked[0].bps, payout) if ranked else 0
    released = floor(Fraction(deposit * tier_bps, 10_000))
    rows = []
    paid = fees = 0
    for i, (place, split) in enumerate(zip(ranked, payout["split"], strict=False)):
        gross = released * split // 10_000 if lowest_reached(place.bps, payout) else 0
        fee = gross * payout["fee_bps"] // 10_000
        net = gross - fee
        paid += net
        fees += fee
        row = {"participant": place.participant, "address": place.address, "place": i + 1}
        rows.append(row | {"gross": str(gross), "fee": str(fee), "net": str(net)})
    return {
        "released": str(released),
        "tier_bps": tier_bps,
        "payouts": rows,
        "fees": str(fees),
        "refund": str(deposit - paid - fees),
    }
