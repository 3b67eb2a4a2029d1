"""Lies of validators: what a coalition makes of an agreed score. SPEC 3.

Honest validators see so many of n items go well, by chance around a true rate; the seed draws `DRAWS` panels. Each member of a
coalition says a number instead, or says nothing. The kernel agrees on all of it at once, so every figure is exact:

    lies     what each panel agrees on if all members say x, for each x of 0 … n and for silence, [rates, n + 2, DRAWS]
    blind    the members choose one x before they see what the others say: the best on average over the panels
    last     they wait until the others have signed, and choose the best x for each panel
    refined  they need not say the same: member by member, another number is tried as long as that helps (blind)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from assay.errors import BadInput
from assay.exact import BPS, NANO
from assay.rules.seasons import Draws
from assay.scheme.model import Scheme
from assay.settle.consensus import Status, Votes, agree
from assay.settle.inputs import Bools, Ints
from assay.settle.score.trials import score_of

__all__ = ["DRAWS", "NO_SCORE", "Coalition", "Jury", "coalitions"]

DRAWS = 48
NO_SCORE = -1
"""In place of an agreed score: there is no quorum."""


@dataclass(frozen=True)
class Jury:
    """The validators of a scheme: their stakes, how many items each judges, and the seed of what they see."""

    scheme: Scheme
    stakes: tuple[int, ...]
    items: int
    """n: tasks × trials, or what takes their place in another kind; a score is a share of them."""
    same: bool
    """All honest validators see the same, such as issues that anybody can count."""
    seed: int = 0
    draws: int = DRAWS

    def __post_init__(self) -> None:
        if not 1 <= self.items <= 1000:
            raise BadInput(f"{self.items} items are out of range", field="items", hint="use 1 to 1000")
        if not 1 <= len(self.stakes) <= 256 or min(self.stakes) < 1 or max(self.stakes) >= 2**63:
            raise BadInput("the stakes are not those of 1 to 256 validators", field="stakes", hint="each is above 0 rao")

    @cached_property
    def nanos(self) -> Ints:
        """The score of each number of items, [n + 1]."""
        return np.array([score_of(count, self.items) for count in range(self.items + 1)], np.int64)

    def seen(self, rates: Sequence[int]) -> Ints:
        """The number of items that each validator sees go well, [V, rates, draws]; rates in BPS. The same whoever lies."""
        shape = (len(self.stakes), len(rates), self.draws)
        if self.same:
            return np.broadcast_to(np.array([rate * self.items // BPS for rate in rates])[None, :, None], shape)
        counts = np.empty(shape, np.int64)
        for at, rate in enumerate(rates):
            drawn = Draws(self.seed * 1_000_003 + rate).whole(32, shape[0], shape[2], self.items)
            counts[:, at] = (drawn * BPS < rate << 32).sum(axis=2)
        return counts

    def agreed(self, counts: Ints, silent: Bools | None = None) -> Ints:
        """The agreed scores, nanos, [C], of counts [V, C]; NO_SCORE without a quorum. silent: those who say nothing, [V, C]."""
        rules = self.scheme.consensus.model_copy(update={"assign": None})
        trials = self.items if self.scheme.kind.trials(self.scheme.score) is not None else None
        counting = np.ones(counts.shape, np.bool_) if silent is None else ~silent
        votes = Votes(self.nanos[counts], counting, self.stakes, sum(self.stakes), trials=trials)
        agreement = agree(votes, rules, bps=self.scheme.kind.in_bps)
        score = agreement.score if agreement.bps is None else agreement.bps * (NANO // BPS)
        return np.where(agreement.status == Status.AGREED, score, NO_SCORE)


@dataclass(frozen=True)
class Coalition:
    """A coalition of a jury, and what it can make of participants with these rates."""

    jury: Jury
    members: tuple[int, ...]
    """Rows of the jury."""
    rates: tuple[int, ...]
    """Of the participants, BPS; none twice."""

    @cached_property
    def honest(self) -> Ints:
        """The agreed scores if everybody says what it saw, nanos, [rates, draws]."""
        seen = self.jury.seen(self.rates)
        return self.jury.agreed(seen.reshape(len(seen), -1)).reshape(seen.shape[1:])

    @cached_property
    def lies(self) -> Ints:
        """The agreed scores if all members say x = 0 … n, or, last, nothing, nanos, [rates, n + 2, draws]."""
        seen = self.jury.seen(self.rates)
        V, R, D = seen.shape
        n = self.jury.items
        counts = np.repeat(seen[:, :, None], n + 2, axis=2)
        rows = list(self.members)
        counts[rows] = np.minimum(np.arange(n + 2), n)[None, None, :, None]
        silent = np.zeros(counts.shape, np.bool_)
        silent[rows, :, n + 1] = True
        return self.jury.agreed(counts.reshape(V, -1), silent.reshape(V, -1)).reshape(R, n + 2, D)

    def chosen(self, up: bool, last: bool) -> tuple[Ints, Ints]:
        """The best common lie for each rate and draw, and what is agreed then, both [rates, draws].

        up: the highest agreed score; else the lowest, and none at all is lower than any. A lie is n + 1 for silence.
        """
        lies = self.lies if up else -self.lies
        worth = lies if last else np.broadcast_to(lies.sum(axis=2, keepdims=True), lies.shape)
        best = worth.argmax(axis=1)
        return best, np.take_along_axis(self.lies, best[:, None], axis=1)[:, 0]

    def shift(self, rate: int, *, up: bool = True, last: bool = False) -> int:
        """The move of the agreed score at a rate, nanos, on average over the draws (floor); without a quorum it is 0."""
        at = self.rates.index(rate)
        moved = np.maximum(0, self.chosen(up, last)[1][at]) - np.maximum(0, self.honest[at])
        return int(moved.sum()) // len(moved)

    def refined(self, rate: int, rounds: int = 2) -> tuple[tuple[int, ...], int]:
        """The lie of each member that makes the agreed score highest on average (blind), and the score's rise, nanos."""
        at, n, D = self.rates.index(rate), self.jury.items, self.jury.draws
        seen = self.jury.seen(self.rates)[:, at]
        claimed = [min(int(self.chosen(True, False)[0][at, 0]), n)] * len(self.members)
        best = None
        for _ in range(rounds):
            before = list(claimed)
            for place, member in enumerate(self.members):
                counts = np.repeat(seen[:, None], n + 1, axis=1)
                counts[list(self.members)] = np.array(claimed)[:, None, None]
                counts[member] = np.arange(n + 1)[:, None]
                sums = self.jury.agreed(counts.reshape(len(seen), -1)).reshape(n + 1, D).sum(axis=1)
                if best is None or sums.max() > best:
                    claimed[place], best = int(sums.argmax()), int(sums.max())
            if claimed == before:
                break
        assert best is not None
        return tuple(claimed), (best - int(self.honest[at].sum())) // D


def coalitions(stakes: Sequence[int], most: Sequence[int]) -> list[tuple[int, ...]]:
    """The coalitions that are tried: for each bound in BPS of the stake, as many as fit, the largest or the smallest first.

    Ascending by their stake, none twice; those without a member are left out.
    """
    total, members = sum(stakes), set()
    for bound in most:
        for sign in (1, -1):
            rows, stake = [], 0
            for row in sorted(range(len(stakes)), key=lambda row: (-sign * stakes[row], row)):
                if (stake + stakes[row]) * BPS <= bound * total:
                    rows.append(row)
                    stake += stakes[row]
            if rows:
                members.add(tuple(sorted(rows)))
    return sorted(members, key=lambda rows: (sum(stakes[row] for row in rows), rows))
