"""The margin of a verdict by brute force: every state of every column, and every combination of their scores. SPEC 2.1, 3, 5.

A column's states are all numbers of passed trials of its validators. What matters of a state is the score that they agree on, and
what it costs; of the states with one score, only the cheapest. Then every combination of scores of all participants is ranked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import combinations, product
from typing import Any

from .consensus import agree
from .defaults import filled
from .numbers import nanos
from .payout import tier
from .score.verdict import Verdict

Doc = dict[str, Any]
Scores = dict[Fraction | None, int]
"""The agreed score of a column → the least that it costs."""


class Brute:
    """A board: scheme, trials, validators, and what each of them saw of each participant."""

    def __init__(self, given: Doc) -> None:
        scheme = {"scheme": {"name": "margin"}, "score": {"kind": "tests"}, "consensus": given.get("consensus", {})}
        if "payout" in given:
            scheme |= {"payout": given["payout"], "reward": {"kind": "payout"}}
        self.rules = filled(scheme)
        self.pays = "payout" in given
        self.trials: int = given["trials"]
        self.validators: list[Doc] = given["validators"]
        self.stakes = {row["key"]: int(row["stake"]) for row in self.validators}
        self.seen: list[Doc] = [row["seen"] for row in given["participants"]]
        self.keys: list[str] = [row["key"] for row in given["participants"]]
        self._agreed: dict[tuple[tuple[str, int | None], ...], Fraction | None] = {}

    def agreed(self, passed: Mapping[str, int | None]) -> Fraction | None:
        """What these numbers of passed trials agree on; None: the validator misses some."""
        key = tuple(sorted(passed.items()))
        if key not in self._agreed:
            verdicts = {
                name: Verdict(why_not="incomplete", missing=1) if count is None else Verdict(nanos(Fraction(count, self.trials)))
                for name, count in passed.items()
            }
            self._agreed[key] = agree(verdicts, None, self.validators, self.rules, self.trials)[1]
        return self._agreed[key]

    def now(self, seen: Doc) -> dict[str, int | None]:
        """What each validator saw pass, None where it misses a trial."""
        return {name: None if row.get("missing") else row["passed"] for name, row in seen.items()}

    def flipped(self, seen: Doc) -> Scores:
        """By flips of trials that count."""
        now = self.now(seen)
        counting = [name for name, count in now.items() if count is not None]
        costs: Scores = {}
        for counts in product(range(self.trials + 1), repeat=len(counting)):
            cost = sum(abs(count - (now[name] or 0)) for name, count in zip(counting, counts, strict=True))
            _offer(costs, self.agreed(now | dict(zip(counting, counts, strict=True))), cost)
        return costs

    def decided(self, seen: Doc) -> Scores:
        """By missing trials."""
        now = self.now(seen)
        open_ = [name for name, count in now.items() if count is None]
        choices = [[None, *range(seen[name]["passed"], seen[name]["passed"] + seen[name]["missing"] + 1)] for name in open_]
        costs: Scores = {}
        for counts in product(*choices):
            cost = sum(seen[name]["missing"] for name, count in zip(open_, counts, strict=True) if count is not None)
            _offer(costs, self.agreed(now | dict(zip(open_, counts, strict=True))), cost)
        return costs

    def lied(self, seen: Doc, coalition: tuple[str, ...]) -> Scores:
        """By lies of a coalition, which cost nothing."""
        now = self.now(seen)
        members = [name for name in coalition if now.get(name) is not None]
        costs: Scores = {}
        for counts in product(range(self.trials + 1), repeat=len(members)):
            _offer(costs, self.agreed(now | dict(zip(members, counts, strict=True))), 0)
        return costs

    def verdicts(self, scores: tuple[Fraction | None, ...]) -> Doc:
        """Of agreed scores, in the order of submission."""
        ranked = sorted((at for at, score in enumerate(scores) if score is not None), key=lambda at: (-(scores[at] or 0), at))
        verdicts: Doc = {"winner": self.keys[ranked[0]] if ranked else None, "order": [self.keys[at] for at in ranked]}
        if self.pays:
            best = max((score for score in scores if score is not None), default=None)
            verdicts["tier"] = (
                0 if best is None else tier(10_000 * best / 10**9 if best > 1 else 10_000 * best, self.rules["payout"])
            )
        return verdicts

    def before(self) -> Doc:
        """The verdicts as they are."""
        return self.verdicts(tuple(self.agreed(self.now(seen)) for seen in self.seen))

    def least(self, columns: list[Scores]) -> Doc:
        """The least that each verdict costs, or None."""
        before = self.before()
        costs: Doc = dict.fromkeys(before)
        for combination in product(*(column.items() for column in columns)):
            cost = sum(cost for _, cost in combination)
            after = self.verdicts(tuple(score for score, _ in combination))
            for name in before:
                if after[name] != before[name] and (costs[name] is None or cost < costs[name]):
                    costs[name] = cost
        return costs

    def coalitions(self) -> Iterator[tuple[str, ...]]:
        """Every set of validators, by ascending stake."""
        names = sorted(self.stakes)
        every = [group for size in range(1, len(names) + 1) for group in combinations(names, size)]
        yield from sorted(every, key=self.stake)

    def stake(self, coalition: tuple[str, ...]) -> int:
        """What a coalition holds."""
        return sum(self.stakes[name] for name in coalition)


def _offer(costs: Scores, score: Fraction | None, cost: int) -> None:
    costs[score] = min(cost, costs.get(score, cost))


def margin(given: Doc) -> Doc:
    """The answer to a case of kind margin: by verdict and way, the least that changes it; null if nothing does."""
    board = Brute(given)
    flips = board.least([board.flipped(seen) for seen in board.seen])
    missing = board.least([board.decided(seen) for seen in board.seen])
    stake: Doc = dict.fromkeys(flips)
    for coalition in board.coalitions():
        done = board.least([board.lied(seen, coalition) for seen in board.seen])
        for name, cost in done.items():
            if cost is not None and stake[name] is None:
                stake[name] = board.stake(coalition)
    rows = {
        name: {"flips": flips[name], "missing": missing[name], "stake": None if stake[name] is None else str(stake[name])}
        for name in flips
    }
    return {"verdicts": rows}
