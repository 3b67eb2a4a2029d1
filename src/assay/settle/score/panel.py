"""A panel's judgement: k answers about one solution become one, by a majority of each question. SPEC 2.3, docs/rubric.md.

- A vote is an answer that would be a judgement by itself. An answer that is malformed, unjudged or not there takes no side.
- B1 … B4 and each check: the side that more than half of the k answers take. An answer by which the baseline is not met has no
  checks and no verdict, so it takes no side there.
- The verdict: the one that more than half of the k answers give or surpass, and more than half give or stay below.
- So a question is decided if the answers that are missing could not change it, and a tie decides nothing.
- A flip is a vote that differs from the panel's answer to that question. Its rate is a fraction: flips / votes.
- With at most k/2 votes the panel is unjudged. With more it is split if a question that is needed is undecided, or if the rate of
  one of them is above `max_disagreement`. The checks and the verdict are needed if the baseline is met.

Everything is computed for several panels at once, in integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay.settle.columns import Columns, RecordColumn
from assay.settle.inputs import Bools, Ints

if TYPE_CHECKING:
    from assay.records import PanelAnswer
    from assay.scheme.model import RubricScore

__all__ = ["Decided", "FlipRate", "PanelVotes", "decide", "vote_columns"]


@dataclass(frozen=True)
class FlipRate:
    """How often the votes on a question, or those of one judge, differ from the panel's answers: flips of so many votes."""

    name: str
    flips: int
    votes: int

    def __str__(self) -> str:
        return f"{self.flips}/{self.votes}"


@dataclass(frozen=True)
class Decided:
    """What one panel decides, and how far its answers differ."""

    baseline: Mapping[str, bool] | None
    checks: Mapping[str, bool] | None
    """None also where the baseline is not met."""
    verdict: str | None
    why: Literal["unjudged", "panel-split"] | None
    """Why it has no judgement; None if it has one, and only then there are answers."""
    undecided: tuple[str, ...]
    """The questions that are needed and undecided."""
    questions: tuple[FlipRate, ...]
    """Of each decided question that is needed."""
    judges: tuple[FlipRate, ...]
    """Of each answer, by the name of who gave it, over the same questions."""


@dataclass(frozen=True)
class PanelVotes:
    """The votes of N panels of k answers: arrays, −1 where there is none. B is 4, C the number of checks. SPEC 2.3."""

    judged: Bools
    """The answer says that it is a judgement, [k, N]."""
    baseline: Ints
    """1 for YES, 0 for NO, [k, B, N]."""
    checks: Ints
    """[k, C, N]."""
    verdict: Ints
    """Place in `VERDICTS`, [k, N]."""
    surplus: Bools
    """The panel has more than k answers, [N]: then none is a vote."""

    @staticmethod
    def of_columns(given: Columns, rules: RubricScore, names: Sequence[str]) -> PanelVotes:
        """The votes in the columns of `vote_columns`. names: B1 … B4."""
        assert rules.panel is not None  # its columns are there
        seats, ids = range(rules.panel.answers), [check.id for check in rules.checks]
        return PanelVotes(
            judged=np.stack([given[f"panel.{at}.outcome"] == 0 for at in seats]),
            baseline=np.stack([np.stack([given[f"panel.{at}.baseline.{name}"] for name in names]) for at in seats]),
            checks=np.stack([np.stack([given[f"panel.{at}.checks.{name}"] for name in ids]) for at in seats]),
            verdict=np.stack([given[f"panel.{at}.verdict"] for at in seats]),
            surplus=given[f"panel.{len(seats)}.outcome"] >= 0,
        )


def vote_columns(rules: RubricScore, names: Sequence[str], verdicts: tuple[str, ...]) -> tuple[RecordColumn, ...]:
    """The columns of a record's votes; the outcome after the last says whether there are too many. names: B1 … B4.

    Without a panel in the rules that is the only one: a record may have answers that nobody looks at.
    """
    k, columns = 0 if rules.panel is None else rules.panel.answers, []
    for at in range(k):
        columns.append(RecordColumn(f"panel.{at}.outcome", "vote", -1, words=("judged", "unjudged")))
        columns += [RecordColumn(f"panel.{at}.baseline.{name}", "vote", -1) for name in names]
        columns += [RecordColumn(f"panel.{at}.checks.{check.id}", "vote", -1) for check in rules.checks]
        columns.append(RecordColumn(f"panel.{at}.verdict", "vote", -1, words=verdicts))
    return (*columns, RecordColumn(f"panel.{k}.outcome", "vote", -1, words=("judged", "unjudged")))


@dataclass(frozen=True)
class PanelTally:
    """What N panels decide. Q questions: B1 … B4, the checks, the verdict; −1 where a question is undecided."""

    answers: Ints
    """[Q, N]: 1 for YES, 0 for NO; of the verdict its place."""
    needed: Bools
    """[Q, N]."""
    flips: Bools
    """[k, Q, N]: a vote on a question that is needed and decided, which differs."""
    votes: Bools
    """[k, Q, N]: a vote on a question that is needed and decided."""
    enough: Bools
    """[N]: more than k/2 votes."""
    split: Bools
    """[N]."""

    @property
    def differing(self) -> dict[str, Bools]:
        """What a settlement says of it: votes and flips, each [k, Q, N]."""
        return {"votes": self.votes, "flips": self.flips}

    @property
    def whole(self) -> Bools:
        """Which panels have a judgement, [N]."""
        return self.enough & ~self.split

    @property
    def met(self) -> Bools:
        """Which have a baseline that is met, [N]."""
        return np.asarray((self.answers[:4] == 1).all(axis=0), np.bool_)


def tally(given: PanelVotes, rules: RubricScore) -> PanelTally:
    """What the panels decide. SPEC 2.3."""
    assert rules.panel is not None  # the caller asked
    k, (most, of) = rules.panel.answers, rules.panel.bound
    met = (given.baseline == 1).all(axis=1)
    whole = (given.checks >= 0).all(axis=1) & (given.verdict >= 0)
    votes = given.judged & (given.baseline >= 0).all(axis=1) & (~met | whole) & ~given.surplus
    past = votes & met
    sides = np.concatenate([given.baseline, given.checks, given.verdict[:, None]], axis=1)
    cast = np.concatenate([np.repeat((votes if at < 4 else past)[:, None], 1, 1) for at in range(sides.shape[1])], axis=1)
    answers = np.concatenate([_sides(sides[:, :-1], cast[:, :-1], k), _middle(sides[:, -1], past, k)[None]])
    gate = (answers[:4] == 1).all(axis=0)
    needed = np.concatenate([np.ones_like(answers[:4], np.bool_), np.repeat(gate[None], len(answers) - 4, 0)])
    decided = needed & (answers >= 0)
    counted = cast & decided
    flips = counted & (sides != answers)
    enough = 2 * votes.sum(axis=0) > k
    above = flips.sum(axis=0) * of > most * counted.sum(axis=0)
    return PanelTally(answers, needed, flips, counted, enough, enough & (needed & ~decided | above).any(axis=0))


def _sides(sides: Ints, cast: Bools, k: int) -> Ints:
    """The side of more than half of k, [k, Q, N] → [Q, N]."""
    yes, no = (cast & (sides == 1)).sum(axis=0), (cast & (sides == 0)).sum(axis=0)
    return np.where(2 * yes > k, 1, np.where(2 * no > k, 0, -1))


def _middle(verdicts: Ints, cast: Bools, k: int) -> Ints:
    """The verdict in the middle of k, [k, N] → [N]; places count from the best."""
    middle = np.full(verdicts.shape[1], -1, np.int64)
    for at in range(6):
        upper, lower = (cast & (verdicts <= at)).sum(axis=0), (cast & (verdicts >= at)).sum(axis=0)
        middle[(2 * upper > k) & (2 * lower > k)] = at
    return middle


def decide(panel: Sequence[PanelAnswer], rules: RubricScore, names: Sequence[str], verdicts: tuple[str, ...]) -> Decided:
    """What one panel decides. names: B1 … B4. Fewer answers than k are taken as they are; with more, none counts."""
    ids = [check.id for check in rules.checks]
    result = tally(_votes_of(panel, rules, ids, names, verdicts), rules)
    questions = (*names, *ids, "verdict")
    sides = result.answers[:, 0].tolist()
    needed = result.needed[:, 0].tolist()
    rates = [
        FlipRate(name, int(result.flips[:, at, 0].sum()), int(result.votes[:, at, 0].sum()))
        for at, name in enumerate(questions)
        if needed[at] and sides[at] >= 0
    ]
    judges = [
        FlipRate(answer.judge, int(result.flips[at, :, 0].sum()), int(result.votes[at, :, 0].sum()))
        for at, answer in enumerate(panel[: len(result.flips)])
    ]
    undecided = tuple(name for at, name in enumerate(questions) if needed[at] and sides[at] < 0)
    why: Literal["unjudged", "panel-split"] | None = None
    if not result.whole[0]:
        why = "panel-split" if result.split[0] else "unjudged"
    whole, met = why is None, bool(result.met[0])
    return Decided(
        baseline=dict(zip(names, [side == 1 for side in sides[:4]], strict=True)) if whole else None,
        checks=dict(zip(ids, [side == 1 for side in sides[4:-1]], strict=True)) if whole and met else None,
        verdict=verdicts[sides[-1]] if whole and met else None,
        why=why,
        undecided=undecided if why == "panel-split" else (),
        questions=tuple(rates),
        judges=tuple(judges),
    )


def _votes_of(
    panel: Sequence[PanelAnswer], rules: RubricScore, ids: Sequence[str], names: Sequence[str], verdicts: tuple[str, ...]
) -> PanelVotes:
    assert rules.panel is not None  # the caller asked
    seats = [panel[at] if at < len(panel) else None for at in range(rules.panel.answers)]

    def sides(answers: Sequence[Any], of: Sequence[str]) -> Ints:
        rows = [[_side(given.get(name)) if isinstance(given, Mapping) else -1 for name in of] for given in answers]
        return np.array(rows, np.int64).reshape(len(answers), len(of), 1)

    words = [None if seat is None else seat.verdict for seat in seats]
    return PanelVotes(
        judged=np.array([[seat is not None and seat.outcome == "judged"] for seat in seats]),
        baseline=sides([None if seat is None else seat.baseline for seat in seats], names),
        checks=sides([None if seat is None else seat.checks for seat in seats], ids),
        verdict=np.array([[verdicts.index(word) if isinstance(word, str) and word in verdicts else -1] for word in words]),
        surplus=np.array([len(panel) > len(seats)]),
    )


def _side(answer: object) -> int:
    return int(answer) if isinstance(answer, bool) else -1
