"""The search for attacks on a scheme, and what its knobs cost. SPEC 9.

Nothing is tried from a list of known attacks: for each coalition every common number is told, about the attacker and about each
rival, and silence; early and late. Participants search over the number of keys, and over how and when an improvement is released.
Each attack that is found is played by `assay.rules.attack`, which decides what it comes to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assay.exact import BPS, NANO, digest, half_even, text
from assay.rules.attack import ATTACKER, RATES, Arena, Attack, Played, play, scenario
from assay.rules.lies import NO_SCORE, Coalition, Jury, coalitions
from assay.rules.seasons import DrawnSeason
from assay.rules.simulate import knobs, simulate
from assay.scheme.model import Scheme

__all__ = ["KnobCost", "SearchResult", "costs", "field_of", "search"]

STAKES = tuple(range(500, 8001, 500))
"""Bounds of the coalitions' stake that are tried, BPS."""
THIRD = 3000
"""The coalition that figures are shown for, BPS."""
TAKEN = 9 * NANO // 10
"""An agreed score from which a coalition has broken the consensus."""
WORTH = NANO // 100
"""The least profit of an attack that counts: one part of a hundred of what is given out."""
KEYS = 16
STEPS = (1, 2, 3, 4, 5, 8)
ITEMS = {"tests": (80, False), "workflow": (100, False), "rubric": (8, False), "points": (20, True)}
"""The number of items that validators judge of a participant, by kind, and whether they are counted: then all see the same."""
OTHER_ITEMS = (80, False)
"""Of any other kind."""


def field_of(scheme: Scheme, *, validators: int = 0, stakes: Sequence[int] = (), items: int = 0, seed: int = 0) -> Arena:
    """The field on which a scheme is attacked. 0 and (): as the scheme suggests; validators hold the same stake.

    Points are counted, so that honest validators see the same; a scheme that needs one judge has one.
    """
    count = validators or (1 if scheme.consensus.min_validators == 1 else 20)
    holdings = tuple(stakes) or (max(10**9, scheme.consensus.min_validator_stake),) * count
    usual, counted = ITEMS.get(scheme.score.kind, OTHER_ITEMS)
    jury = Jury(scheme, holdings, items or usual, counted, seed)
    return Arena(jury, RATES, ATTACKER)


@dataclass(frozen=True)
class ByStake:
    """The attacks that a coalition can make, by its stake."""

    stake: int
    """Nanos of all."""
    members: int
    shift_blind: int
    """The largest rise of the attacker's agreed score, nanos, on average."""
    shift_last: int
    best: Played


@dataclass(frozen=True)
class SearchResult:
    """The result of the search."""

    field: Arena
    by_stake: tuple[ByStake, ...]
    others: tuple[Played, ...]
    """The best attack of each other kind."""
    takeover: int | None
    """The least stake tried that brings the attacker's agreed score to `TAKEN`, nanos; None: none."""
    denial: int | None
    """The least stake found whose silence leaves everybody without a quorum, nanos; None: none."""

    @property
    def cheapest(self) -> Played | None:
        """The attack that is worth it with the least stake, then the most profit; None: none is worth it."""
        worth = [played for played in (*(row.best for row in self.by_stake), *self.others) if played.profit >= WORTH]
        return min(worth, key=lambda played: (played.stake, -played.profit, played.keys), default=None)

    def at(self, stake: int) -> ByStake | None:
        """The largest coalition with at most so much stake, BPS."""
        return next((row for row in reversed(self.by_stake) if row.stake <= stake * (NANO // BPS)), None)

    def document(self) -> dict[str, Any]:
        """The whole of it as JSON, each attack as a scenario that can be replayed."""
        cheapest = self.cheapest
        content = {
            "schema": "assay.attacks/1",
            "scheme": {"name": self.field.scheme.name, "digest": self.field.scheme.digest},
            "coalitions": [
                {
                    "stake": text(row.stake),
                    "members": row.members,
                    "shift": {"blind": text(row.shift_blind), "last": text(row.shift_last)},
                    "profit": text(max(0, row.best.profit)),
                }
                for row in self.by_stake
            ],
            "takeover": None if self.takeover is None else text(self.takeover),
            "denial": None if self.denial is None else text(self.denial),
            "others": [{"kind": played.attack.kind, **played.document()} for played in self.others],
            "cheapest": None if cheapest is None else scenario(self.field, cheapest),
        }
        return content | {"digest": digest(content)}


def search(field: Arena) -> SearchResult:
    """The attacks on a scheme that pay, or come closest to it."""
    rows, takeover = [], None
    for members in coalitions(field.jury.stakes, _bounds(field, STAKES)):
        row = _by_stake(field, members)
        raised = int(field.bench(members).chosen(True, False)[1][field.attacker].mean())
        if takeover is None and raised >= TAKEN:
            takeover = row.stake
        rows.append(row)
    return SearchResult(field, tuple(rows), tuple(_others(field)), takeover, _denial(field.jury))


def _bounds(field: Arena, bounds: Sequence[int]) -> tuple[int, ...]:
    """The bounds of coalitions' stake: with one or two judges, all of them."""
    return tuple(bounds) if len(field.jury.stakes) > 2 else (*bounds, BPS)


def _denial(jury: Jury) -> int | None:
    """The least stake whose silence leaves no quorum, nanos, of the largest first and of the smallest first; None: none."""
    stakes = []
    for rows in (sorted(range(len(jury.stakes)), key=lambda row: sign * jury.stakes[row]) for sign in (1, -1)):
        silent = np.tril(np.ones((len(rows), len(rows)), np.bool_))[:, np.argsort(rows)].T
        gone = np.flatnonzero(jury.agreed(np.zeros(silent.shape, np.int64), silent) == NO_SCORE)
        if len(gone):
            stake = sum(jury.stakes[row] for row in rows[: int(gone[0]) + 1])
            stakes.append(half_even(stake * NANO, sum(jury.stakes)))
    return min(stakes, default=None)


def _by_stake(field: Arena, members: tuple[int, ...]) -> ByStake:
    """The most profitable of: lies for the attacker, about the rivals, or both; told early, or after the others."""
    bench, rate = field.bench(members), field.rates[field.attacker]
    plays = [play(field, attack) for attack in _coalition_attacks(field, bench)]
    best = max(plays, key=lambda played: (played.profit, not played.attack.last))
    return ByStake(best.stake, len(members), bench.shift(rate), bench.shift(rate, last=True), best)


def _coalition_attacks(field: Arena, bench: Coalition) -> Iterator[Attack]:
    for last in (False, True):
        up, down = (bench.chosen(way, last)[0].tolist() for way in (True, False))
        for own, rivals in ((True, False), (False, True), (True, True)):
            lies = []
            for at in range(len(field.rates)):
                mine = at == field.attacker
                column_lies = up[at] if mine and own else down[at] if not mine and rivals else [-1]
                lies.append(tuple(column_lies if last else column_lies[:1]))
            yield Attack("coalition", bench.members, last, tuple(lies))


def _others(field: Arena) -> Iterator[Played]:
    """The best attack of each kind that needs no coalition of validators, and the sponsor's of a bounty."""
    yield _best(field, (Attack("sybils", keys=keys) for keys in range(2, KEYS + 1)))
    yield _best(field, (Attack("copy", keys=keys) for keys in range(1, KEYS + 1)))
    if field.scheme.payout is None:
        yield play(field, Attack("last-block"))
        yield _best(field, _releases(field))
    else:
        yield _best(field, _sponsors(field))


def _releases(field: Arena) -> Iterator[Attack]:
    if field.scheme.decay is None or field.scheme.decay.curve == "none":  # then nothing is gained by waiting
        yield Attack("release")
        return
    grace = field.scheme.decay.grace_epochs
    for steps in STEPS:
        for gap in sorted({1, 2, 5, *(max(1, grace + more) for more in (-1, 0, 1, 2, 5))}):
            yield Attack("release", steps=steps, gap=gap)
            yield Attack("release", steps=steps, gap=gap, again=True)


def _sponsors(field: Arena) -> Iterator[Attack]:
    jury = field.jury
    for members in coalitions(jury.stakes, (*STAKES, BPS)):
        down = field.bench(members).chosen(False, False)[0]
        yield Attack("sponsor", members, lies=tuple((int(lie),) for lie in down[:, 0]))


def _best(field: Arena, attacks: Iterator[Attack]) -> Played:
    """The most profitable; of equals the one with the least stake, the fewest keys and steps."""
    plays = [play(field, attack) for attack in attacks]
    return max(plays, key=lambda played: (played.profit, -played.stake, -played.keys, -played.attack.steps, -played.attack.gap))


@dataclass(frozen=True)
class KnobCost:
    """The effect of one changed field on a coalition with `THIRD` of the stake, and on the honest."""

    field: str
    value: str
    shift: int
    """Of the attacker's agreed score, blind, nanos."""
    profit: int
    """Of the coalition's best attack, nanos."""
    keys: int
    """The gain of the attacker by sybils, nanos."""
    hurt: float
    """The part of the panels in which an honest validator is left out; of a simulated season, and a float for the reader."""
    to_skill: float
    """The part of the emission that goes to skill, likewise."""


def costs(field: Arena, season: DrawnSeason) -> list[KnobCost]:
    """The costs of the scheme, and of each that differs from it in one field; the first is the scheme itself."""
    schemes = [("as it is", "", field.scheme), *((knob.field, knob.value, knob.scheme) for knob in knobs(field.scheme))]
    members = coalitions(field.jury.stakes, _bounds(field, (THIRD,)))[-1:]
    knob_costs = []
    for name, value, scheme in schemes:
        other = Arena(replace(field.jury, scheme=scheme), field.rates, field.attacker)
        rows = [_by_stake(other, coalition) for coalition in members]
        keys = _best(other, (Attack("sybils", keys=keys) for keys in (2, 4, 8)))
        outcome = simulate(scheme, season)
        shift, profit = (rows[0].shift_blind, max(0, rows[0].best.profit)) if rows else (0, 0)
        knob_costs.append(KnobCost(name, value, shift, profit, keys.profit, outcome.panels_hurt, outcome.to_skill))
    return knob_costs
