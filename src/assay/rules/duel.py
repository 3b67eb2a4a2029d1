"""A duel: a challenger against a king, pair by pair, until it is certain enough who is better. SPEC 7, `[duel]`.

A pair is one trial of one task, judged for both. There are N pairs. With d = (challenger passed) − (king passed), the challenger
is better if the sum of d over all N pairs is above margin × N. The order of the pairs is drawn from the last receipt, so nobody
knew it before. Two sides bet along it; the wealth of each is a martingale:

- The challenger's bets say that it is better. If it is not, the mean of the pairs that are left is at most
  μ = (margin × N − S) / R, with S the sum so far and R the pairs left: pairs are drawn without replacement. A bet of λ multiplies
  its wealth by 1 + λ(d − μ), whose expectation is then at most 1. So it ever reaches 1/α with a chance of at most α (Ville).
- The king's bets say that the challenger is not better: 1 + λ(ν − d), with ν = (G − S) / R and G the least sum that wins.

Each side spreads its wealth over three bets, λ = 1/4, 1/2, 3/4. A bet never risks more than 3/4 of its wealth, so λ is at most
(3/4) / (1 + μ), or (3/4) / (1 − ν). Wealth is an integer, 10^18 for each bet at the beginning. It is rounded down for the
challenger and up for the king: against the challenger.

The duel ends, whichever comes first:

- by certainty: no outcome of the pairs that are left can change the full count. This is looked at before each pair, so a mean
  outside −1 … 1 is never bet on. A mean exactly at its bound is: then there is nothing to risk, and λ has no limit but its own.
- by wealth: a side has at least 1/α times the wealth that it began with. Several challengers of one king share α: each begins
  with its part of the wealth, so it must reach (number of challengers) / α.

A pair without both outcomes is waited for. An error delays a duel, and never decides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from assay.exact import NANO, digest, text
from assay.scheme.model import Duel, Scheme

__all__ = ["BETS", "SCALE", "SCHEMA", "Contest", "Course", "Pair", "Side", "Step", "decide", "document", "order", "outcomes"]

Pair = tuple[str, int]
"""A task, and the number of a trial."""
Winner = Literal["challenger", "king"]
SCHEMA = "assay.duel/1"
BETS = (1, 2, 3)
"""λ of each bet, in quarters."""
RISK = 3
"""The most of its wealth that a bet risks, in quarters."""
SCALE = 10**18
"""The value that each bet begins with."""


def order(tasks: Sequence[str], trials: int, seed: bytes, challenger: str, king: str) -> list[Pair]:
    """All pairs in the order of the duel: by SHA-256(seed ‖ 0 ‖ challenger ‖ 0 ‖ king ‖ 0 ‖ task ‖ 0 ‖ trial).

    seed: the 32 bytes of the last receipt's digest. challenger, king: the digests of their submissions. Texts are UTF-8.
    """
    head = b"\0".join((seed, challenger.encode(), king.encode(), b""))

    def place(pair: Pair) -> bytes:
        return sha256(head + b"\0".join((pair[0].encode(), str(pair[1]).encode()))).digest()

    return sorted(((task, trial) for task in tasks for trial in range(1, trials + 1)), key=place)


@dataclass(frozen=True, slots=True)
class Step:
    """One pair: what both did, the sum of d so far, and the wealth of each side over its three bets, in 10^-18."""

    challenger: bool
    king: bool
    sum: int
    challenger_wealth: int
    king_wealth: int


@dataclass
class Course:
    """A duel under way. pairs: N. challengers: how many share α. `take` goes one pair further, until there is a `winner`."""

    pairs: int
    rules: Duel
    challengers: int = 1
    steps: list[Step] = field(default_factory=list)
    winner: Winner | None = None
    by: Literal["certainty", "wealth"] | None = None

    def __post_init__(self) -> None:
        self._least = self.rules.margin * self.pairs // NANO + 1
        self._sum = 0
        self._up, self._down = [SCALE] * len(BETS), [SCALE] * len(BETS)
        self._certain()

    def take(self, challenger: bool, king: bool) -> None:
        """Bet on the next pair. Raises ValueError if the duel is decided."""
        if self.winner is not None:
            raise ValueError("the duel is decided")
        d, left = int(challenger) - int(king), self.pairs - len(self.steps)
        self._bet(d, left)
        self._sum += d
        self.steps.append(Step(challenger, king, self._sum, sum(self._up), sum(self._down)))
        enough = len(BETS) * SCALE * NANO
        if sum(self._up) * self.rules.alpha >= enough * self.challengers:
            self.winner, self.by = "challenger", "wealth"
        elif sum(self._down) * self.rules.alpha >= enough:
            self.winner, self.by = "king", "wealth"
        else:
            self._certain()

    def _bet(self, d: int, left: int) -> None:
        """Multiply every wealth. Over `whole`, 1 + μ is `above` and d − μ `gain`; over `left`, 1 − ν is `below`, ν − d `loss`."""
        whole, margin = left * NANO, self.rules.margin * self.pairs - self._sum * NANO
        above, gain = whole + margin, d * whole - margin
        below, loss = left - (self._least - self._sum), self._least - self._sum - d * left
        for at, quarters in enumerate(BETS):
            if quarters * above <= RISK * whole:
                self._up[at] = self._up[at] * (4 * whole + quarters * gain) // (4 * whole)
            else:
                self._up[at] = self._up[at] * (4 * above + RISK * gain) // (4 * above)
            if quarters * below <= RISK * left:
                self._down[at] = -(-self._down[at] * (4 * left + quarters * loss) // (4 * left))
            else:
                self._down[at] = -(-self._down[at] * (4 * below + RISK * loss) // (4 * below))

    def _certain(self) -> None:
        left = self.pairs - len(self.steps)
        if self._sum - left >= self._least:
            self.winner, self.by = "challenger", "certainty"
        elif self._sum + left < self._least:
            self.winner, self.by = "king", "certainty"


def decide(pairs: int, outcomes: Iterable[tuple[bool, bool] | None], rules: Duel, challengers: int = 1) -> Course:
    """The duel as far as outcomes (challenger's and king's, in the duel's order) go; None, or their end, is waited for."""
    course = Course(pairs, rules, challengers)
    for outcome in outcomes:
        if course.winner is not None or outcome is None:
            break
        course.take(*outcome)
    return course


def outcomes(along: Sequence[Pair], challenger: Mapping[Pair, bool], king: Mapping[Pair, bool]) -> list[tuple[bool, bool] | None]:
    """The outcomes of both along an order: whether a trial passed, None where one of the two has none."""
    return [(challenger[pair], king[pair]) if pair in challenger and pair in king else None for pair in along]


def document(along: Sequence[Pair], course: Course) -> dict[str, Any]:
    """The path of a duel, who won and by what, or the pair that is waited for; wealth as strings of digits."""
    waits = None if course.winner is not None else along[len(course.steps)]
    return {
        "pairs": course.pairs,
        "path": _path(along, course),
        "winner": course.winner,
        "by": course.by,
        "waits_for": None if waits is None else {"task": waits[0], "trial": waits[1]},
    }


def _path(along: Sequence[Pair], course: Course) -> list[dict[str, Any]]:
    return [
        {
            "task": task,
            "trial": trial,
            "challenger": step.challenger,
            "king": step.king,
            "sum": step.sum,
            "challenger_wealth": str(step.challenger_wealth),
            "king_wealth": str(step.king_wealth),
        }
        for (task, trial), step in zip(along, course.steps, strict=False)
    ]


@dataclass(frozen=True, slots=True)
class Side:
    """A participant of a duel, and its submission."""

    participant: str
    submission: str


@dataclass(frozen=True)
class Contest:
    """A duel with everything that it follows from but the outcomes of trials."""

    scheme: Scheme
    epoch: int
    """Of the evidence."""
    validator: str
    """The validator whose evidence decides."""
    challenger: Side
    king: Side
    receipt: tuple[int, str]
    """Epoch and digest of the receipt that the order is drawn from."""
    tasks: tuple[str, ...]
    task_set: str
    challengers: int = 1

    @property
    def along(self) -> list[Pair]:
        """All pairs in their order."""
        seed, trials = bytes.fromhex(self.receipt[1].removeprefix("sha256:")), self.scheme.kind.trials(self.scheme.score)
        assert trials is not None  # a scheme with a duel has trials
        return order(self.tasks, trials, seed, self.challenger.submission, self.king.submission)

    def fought(self, challenger: Mapping[Pair, bool], king: Mapping[Pair, bool]) -> dict[str, Any]:
        """The document `assay.duel/1` of what the trials of both came to, its digest included."""
        assert self.scheme.duel is not None
        along, rules = self.along, self.scheme.duel
        course = decide(len(along), outcomes(along, challenger, king), rules, self.challengers)
        sides = {"challenger": self.challenger, "king": self.king}
        content = {
            "schema": SCHEMA,
            "competition": self.scheme.name,
            "epoch": self.epoch,
            "validator": self.validator,
            **{name: {"participant": side.participant, "submission": side.submission} for name, side in sides.items()},
            "challengers": self.challengers,
            "receipt": {"epoch": self.receipt[0], "digest": self.receipt[1]},
            "scheme": self.scheme.digest,
            "task_set": self.task_set,
            "margin": text(rules.margin),
            "alpha": text(rules.alpha),
            **document(along, course),
        }
        return content | {"digest": digest(content)}
