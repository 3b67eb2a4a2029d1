"""A duel in exact fractions, from SPEC 7 and docs/formats.md: bets that are rounded to 10^-18 once a step."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from math import ceil, floor
from typing import Any

from .numbers import fraction

Doc = dict[str, Any]
UNIT = 10**18


def order(given: Doc) -> list[tuple[str, int]]:
    """Every task and trial, by the hash."""
    seed = bytes.fromhex(given["receipt"].split(":")[1])

    def place(pair: tuple[str, int]) -> bytes:
        words = [given["challenger"], given["king"], pair[0], str(pair[1])]
        return hashlib.sha256(b"\0".join([seed, *(word.encode() for word in words)])).digest()

    return sorted([(task, trial) for task in given["tasks"] for trial in range(1, given.get("trials", 1) + 1)], key=place)


def bet(wealth: int, stake: Fraction, room: Fraction, gain: Fraction) -> Fraction:
    """The wealth after a bet: never more than three quarters of it are risked."""
    most = stake if room == 0 else min(stake, Fraction(3, 4) / room)
    return wealth * (1 + most * gain)


def duel(given: Doc) -> Doc:
    """The answer to a case of kind duel."""
    rules = {"margin": "0", "alpha": "5%"} | given["duel"]
    margin, alpha = fraction(rules["margin"]), fraction(rules["alpha"])
    pairs = order(given)
    count, least = len(pairs), floor(margin * len(pairs)) + 1
    seen = {(row["task"], row.get("trial", 1)): (row.get("challenger"), row.get("king")) for row in given.get("results", [])}
    bets = [Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)]
    up, down, total, path = [UNIT] * 3, [UNIT] * 3, 0, list[Doc]()
    winner = by = None
    for number, pair in enumerate([*pairs, None]):
        left = count - number
        if winner is None and total - left >= least:
            winner, by = "challenger", "certainty"
        if winner is None and total + left < least:
            winner, by = "king", "certainty"
        if winner is not None or pair is None:
            break
        outcomes = seen.get(pair, (None, None))
        if None in outcomes or "error" in outcomes:
            break
        challenger, king = (outcome == "pass" for outcome in outcomes)
        d = challenger - king
        mu, nu = (margin * count - total) / left, Fraction(least - total, left)
        up = [floor(bet(wealth, stake, 1 + mu, d - mu)) for wealth, stake in zip(up, bets, strict=True)]
        down = [ceil(bet(wealth, stake, 1 - nu, nu - d)) for wealth, stake in zip(down, bets, strict=True)]
        total += d
        row = {"task": pair[0], "trial": pair[1], "challenger": challenger, "king": king, "sum": total}
        path.append(row | {"challenger_wealth": str(sum(up)), "king_wealth": str(sum(down))})
        if sum(up) * alpha >= 3 * UNIT * given.get("challengers", 1):
            winner, by = "challenger", "wealth"
        elif sum(down) * alpha >= 3 * UNIT:
            winner, by = "king", "wealth"
    waits = None if winner else {"task": pairs[len(path)][0], "trial": pairs[len(path)][1]}
    return {"pairs": count, "path": path, "winner": winner, "by": by, "waits_for": waits}
