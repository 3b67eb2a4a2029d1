"""The margin of a verdict: how little would have to be different for another winner, payout tier or order. SPEC 2.1–5.

Three verdicts of a settlement of tests: `winner`, who is first; `tier`, what a payout releases; `order`, the whole ranking. Three
ways to change one, each counted by itself:

    flips     trials that counted, with the other outcome
    missing   trials that nobody decided yet, decided somehow
    stake     validators that lie about any trial of theirs, by their stake

- Columns do not depend on each other, so another winner or order needs one pair only: the winner and one other, or two neighbours
  of the ranking. A permutation other than the ranking turns around two neighbours at least.
- A tier falls if all who reach it fall, and rises if one rises.
- The kernel judges every change that is shown, and the whole settlement with it is settled again by `pipeline.settle`.
- `at_least` is proved, `at_most` was done. Where they differ, the truth is between them; the search ran out of effort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from assay.exact import BPS, NANO, digest, text
from assay.rules.column import ABSENT, DOWN, UP
from assay.rules.completions import completed
from assay.rules.flips import Effort, FewestFlips, FlipSearch
from assay.rules.joint import JointBoard
from assay.rules.liars import LyingSearch
from assay.rules.missing import MissingSearch
from assay.rules.trials import TrialBoard, marks, trial_board
from assay.scheme.model import TestsScore
from assay.settle import Settlement, pipeline
from assay.settle.inputs import Ints
from assay.settle.score.trials import tally
from assay.settle.story.telling import part, person, plural

__all__ = ["SCHEMA", "LeastChange", "Margins", "ScoreRange", "TrialChange", "margins", "resettled", "subject"]

SCHEMA = "assay.margin/1"
Json = dict[str, Any]
VerdictName = Literal["winner", "tier", "order"]
Way = Literal["flips", "missing", "stake"]
VERDICTS: tuple[VerdictName, ...] = ("winner", "tier", "order")
WAYS: tuple[Way, ...] = ("flips", "missing", "stake")


@dataclass(frozen=True, slots=True)
class TrialChange:
    """One validator's changed report about one participant: trials passed, before and after. None: it did not count."""

    participant: str
    validator: str
    before: int | None
    after: int
    trials: tuple[tuple[str, int], ...] = ()
    """The trials that get another outcome, task and number, where single records are known; others like them would do as well."""


@dataclass(frozen=True)
class LeastChange:
    """The least change of one way that changes one verdict. None as `at_least`: no such change exists. In trials, or rao.

    changes: one that takes `at_most`. then: what the verdict is with it. proof: rows that show why less than `at_least` is not
    enough; empty where it needs none, or where every smaller change was judged.
    """

    verdict: VerdictName
    way: Way
    at_least: int | None
    at_most: int | None
    changes: tuple[TrialChange, ...] = ()
    then: Any = None
    proof: tuple[Json, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the least is known."""
        return self.at_least == self.at_most

    @property
    def document(self) -> Json:
        """As JSON; stake as a string of digits."""
        shown = (lambda number: None if number is None else str(number)) if self.way == "stake" else (lambda number: number)
        changes = [
            {"participant": change.participant, "validator": change.validator, "passed": change.before, "then": change.after}
            | {"trials": [{"task": task, "trial": trial} for task, trial in change.trials]}
            for change in self.changes
        ]
        return {
            "at_least": shown(self.at_least),
            "at_most": shown(self.at_most),
            "exact": self.exact,
            "changes": changes,
            "then": self.then,
            "proof": list(self.proof),
        }


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """Between which agreed scores (nanos) every outcome of a participant's missing trials leads; None: it may have none.

    exact: both are reached. Otherwise they are the least and the highest that any validator may see.
    """

    participant: str
    score: int | None
    lowest: int | None
    highest: int | None
    exact: bool
    missing: int


@dataclass(frozen=True)
class Margins:
    """The margins of one settlement, and the range of every score."""

    settlement: Settlement
    found: tuple[LeastChange, ...]
    ranges: tuple[ScoreRange, ...]

    def of(self, verdict: VerdictName, way: Way) -> LeastChange | None:
        """One of them; None if it was not asked for."""
        return next((least for least in self.found if (least.verdict, least.way) == (verdict, way)), None)

    @property
    def holds(self) -> dict[VerdictName, str]:
        """By verdict, how little would change it: "unless 2 trials are wrong"."""
        by_verdict = {name: [row for row in self.found if row.verdict == name] for name in VERDICTS}
        return {name: _unless(self.settlement, rows) for name, rows in by_verdict.items() if rows}

    @property
    def sentences(self) -> list[str]:
        """A sentence for each verdict: how little would change it."""
        return [f"{subject(self.settlement, verdict)} {holds}." for verdict, holds in self.holds.items()]

    @property
    def document(self) -> Json:
        """`assay.margin/1`, its digest included."""
        verdicts = {
            name: {"now": verdict_of(self.settlement, name)}
            | {least.way: least.document for least in self.found if least.verdict == name}
            for name in VERDICTS
            if any(least.verdict == name for least in self.found)
        }
        ranges = [
            {
                "participant": interval.participant,
                "score": _text(interval.score),
                "lowest": _text(interval.lowest),
                "highest": _text(interval.highest),
                "exact": interval.exact,
                "missing": interval.missing,
            }
            for interval in self.ranges
        ]
        content = {
            "schema": SCHEMA,
            "epoch": self.settlement.epoch,
            "settlement": self.settlement.digest,
            "verdicts": verdicts,
            "scores": ranges,
        }
        return content | {"digest": digest(content)}


def subject(settlement: Settlement, verdict: VerdictName, name: Callable[[str], str] | None = None) -> str:
    """What is said to hold: "atlas stays first". name: participant → what it is called; otherwise as in other sentences."""
    people = [settlement.inputs.participants[at] for at in settlement.order]
    names = [person(participant) if name is None else name(participant.key) for participant in people]
    if verdict == "winner":
        return f"{names[0]} stays first" if names else "Nobody wins"
    if verdict == "tier":
        tier = settlement.payouts.tier_bps if settlement.payouts is not None else 0
        return f"The released part of the deposit stays {part(tier, BPS)}"
    if len(names) == 1:
        return f"{names[0]} stays the only participant with a score"
    return f"The order of the {plural(len(settlement.order), 'participant')} with a score stays the same"


def _unless(settlement: Settlement, rows: Sequence[LeastChange]) -> str:
    """ "unless 7 trials are wrong, or validators with 12 % of the stake lie"."""
    conditions = [text for row in rows if (text := _condition(settlement, row))]
    return f"unless {', or '.join(conditions)}" if conditions else "whatever any trial says"


def _condition(settlement: Settlement, row: LeastChange) -> str:
    if row.at_least is None:
        return ""
    many = "" if row.exact else "at least "
    enough = "" if row.exact or row.at_most is None else f" ({_amount(settlement, row.way, row.at_most)} are enough)"
    if row.way == "stake" and not settlement.inputs.scheme.stakes:
        return _runs(settlement, row, many)
    if row.way == "stake":
        return f"validators with {many}{_amount(settlement, row.way, row.at_least)} of the stake lie{enough.replace('are', 'is')}"
    is_one = row.at_least == 1
    if row.way == "flips":
        return f"{many}{plural(row.at_least, 'trial')} {'is' if is_one else 'are'} wrong{enough}"
    return f"{many}{plural(row.at_least, 'missing trial')} {'is' if is_one else 'are'} judged{enough}"


def _runs(settlement: Settlement, row: LeastChange, many: str) -> str:
    """The same in a ranking of runs that count alike, which nobody stakes on: how many runs; "" where they do not weigh alike."""
    stakes = set(settlement.seats.stakes)
    if len(stakes) != 1 or row.at_least is None:
        return ""
    each = stakes.pop()
    runs = -(-row.at_least // each)
    enough = "" if row.exact or row.at_most is None else f" ({-(-row.at_most // each)} are enough)"
    return f"{many}{plural(runs, 'whole run')} {'is' if runs == 1 else 'are'} wrong{enough}"


def _amount(settlement: Settlement, way: Way, number: int) -> str:
    return part(number, max(1, settlement.seats.total_stake)) if way == "stake" else str(number)


def _text(score: int | None) -> str | None:
    return None if score is None else text(score)


def verdict_of(settlement: Settlement, verdict: VerdictName) -> Any:
    """The winner's key (None without one), the tier in BPS (None without a payout), or the ranking."""
    if verdict == "tier":
        return None if settlement.payouts is None else settlement.payouts.tier_bps
    return settlement.ranking if verdict == "order" else next(iter(settlement.ranking), None)


def margins(
    settlement: Settlement,
    *,
    verdicts: Sequence[VerdictName] = VERDICTS,
    ways: Sequence[Way] = WAYS,
    effort: Effort | None = None,
) -> Margins:
    """The least changes of a settlement of tests. Raises BadInput for another kind.

    A tier is left out where the scheme has no payout, and missing trials with `passed_by = "all"`. effort: None is the usual one.
    """
    asked = [name for name in VERDICTS if name in verdicts and (name != "tier" or settlement.payouts is not None)]
    if settlement.inputs.scheme.score.scores_jointly():
        joint = JointBoard(settlement)
        joint_changes = [_joint_change(joint, name, way) for way in WAYS if way in ways and way != "missing" for name in asked]
        return Margins(settlement, tuple(joint_changes), ())
    board, effort = trial_board(settlement), effort or Effort()
    least_changes = []
    for way in (way for way in WAYS if way in ways):
        search: _Flips | MissingSearch | LyingSearch
        if way == "flips":
            search = _Flips(board, effort)
        else:
            search = MissingSearch(board, effort) if way == "missing" else LyingSearch(board, effort)
        least_changes += [_least_change(board, name, way, search.least(name)) for name in asked]
    ranges = tuple(_range(board, column, effort) for column in _listed(settlement)) if "missing" in ways else ()
    return Margins(settlement, tuple(least_changes), ranges)


def _listed(settlement: Settlement) -> Iterable[int]:
    ranked = set(settlement.order)
    return [*settlement.order, *(at for at in np.flatnonzero(settlement.frame.unique).tolist() if at not in ranked)]


def _range(board: TrialBoard, column: int, effort: Effort) -> ScoreRange:
    key, now = board.settlement.frame.participants[column], board.columns[column].agreed
    score = None if now < 0 else now
    cells = board.cells[column]
    missing = sum(cell.missing for cell in cells)
    if column in board.unknown:
        counts = board.settlement.scored.missing
        total = 0 if counts is None else int(counts[:, column].sum())
        return ScoreRange(key, score, None if score is None else 0, NANO, exact=False, missing=total)
    if not cells:
        return ScoreRange(key, score, score, score, exact=True, missing=0)
    reach = completed(board.columns[column], cells, effort.ball)
    low, high = (None if end < 0 else end for end in reach.outer)
    return ScoreRange(key, score, None if score is None and reach.bare else low, high, reach.whole, missing)


class _Flips:
    """The least flips for each verdict."""

    def __init__(self, board: TrialBoard, effort: Effort) -> None:
        self.board = board
        self.search = FlipSearch(board.columns, effort)
        self.order = board.settlement.order
        rules = board.settlement.inputs.scheme.consensus
        ranked = set(self.order)
        self.entering = [at for at, column in board.columns.items() if at not in ranked and (column.passed >= 0).any()]
        self.entering = self.entering if rules.recheck else []
        self.leaving = rules.recheck

    def least(self, verdict: VerdictName) -> FewestFlips | None:
        """None: no number of flips changes it."""
        if not self.order and not self.entering:
            return None
        return {"winner": self._winner, "order": self._order, "tier": self._tier}[verdict]()

    def _winner(self) -> FewestFlips | None:
        if not self.order:
            return _fewest(self._entries())
        first = self.order[0]
        pairs = [(first, other) for other in (*self.order[1:], *self.entering)]
        return _fewest((*self._leaves(first), *self._pairs(pairs)))

    def _order(self) -> FewestFlips | None:
        last = self.order[-1:]
        return _fewest(
            (*self._entries(), *(leave for at in last for leave in self._leaves(at)), *self._pairs([*pairwise(self.order)]))
        )

    def _entries(self) -> Iterator[FewestFlips]:
        yield from (self.search.mark(at, 0, UP) for at in self.entering)

    def _leaves(self, at: int) -> Iterator[FewestFlips]:
        if self.leaving:
            yield self.search.mark(at, ABSENT, DOWN)

    def _pairs(self, pairs: Sequence[tuple[int, int]]) -> Iterator[FewestFlips]:
        """The closest first; the others need not be looked at beyond what is known by then."""
        agreed = self.board.columns
        limit: int | None = None
        for above, below in sorted(pairs, key=lambda pair: agreed[pair[0]].agreed - agreed[pair[1]].agreed):
            fewest = self.search.pair(above, below, self.board.tied(above, below), limit)
            if fewest.at_most is not None:
                limit = fewest.at_most
            yield fewest

    def _tier(self) -> FewestFlips | None:
        reached, above = marks(self.board.settlement)
        ups, limit = list[FewestFlips](), None
        for at in (*self.order, *self.entering) if above is not None else ():
            ups.append(self.search.mark(at, above or 0, UP, limit))
            limit = ups[-1].at_most or limit
        if reached is None:
            return _fewest(ups)
        parts = [self.search.mark(at, reached - 1, DOWN) for at in self.order if self.board.columns[at].agreed >= reached]
        return _fewest([*ups, _together(parts)])


def _fewest(fewest: Iterable[FewestFlips]) -> FewestFlips | None:
    """The least of several: proved of all, done by one."""
    rows = list(fewest)
    open_ = [row for row in rows if not row.never]
    if not open_:
        return None
    best = min((row for row in open_ if row.at_most is not None), key=lambda row: row.at_most or 0, default=None)
    least = min(row.at_least for row in open_)
    if best is None:
        return FewestFlips(least, None)
    assert best.at_most is not None
    least = min(least, best.at_most)
    proof = dict.fromkeys(entry for row in rows for entry in row.proof)
    return FewestFlips(least, best.at_most, best.states, tuple(proof))


def _together(parts: Sequence[FewestFlips]) -> FewestFlips:
    """All of them."""
    most = [part.at_most for part in parts]
    total = None if None in most else sum(number or 0 for number in most)
    states = {at: state for part in parts for at, state in part.states.items()}
    proof = tuple(row for part in parts for row in part.proof)
    return FewestFlips(sum(part.at_least for part in parts), total, states, proof, never=any(part.never for part in parts))


def _least_change(board: TrialBoard, verdict: VerdictName, way: Way, fewest: FewestFlips | None) -> LeastChange:
    """With names, and with the verdict of the settlement that the changes make."""
    if fewest is None:
        return LeastChange(verdict, way, None, None)
    keys, settlement = board.settlement.frame, board.settlement
    changes = [
        TrialChange(
            keys.participants[at],
            keys.validators[row],
            None if before < 0 else before,
            after,
            _trials(board, way, at, row, before, after),
        )
        for at, state in sorted(fewest.states.items())
        for row, before, after in zip(board.rows[at], board.columns[at].passed.tolist(), state.tolist(), strict=True)
        if before != after
    ]
    proof = [
        {
            "participant": keys.participants[row.participant],
            "flips": row.flips,
            "stays": row.stays,
            "score": _edge(row.score),
            "by": row.by,
        }
        for row in fewest.proof
    ]
    then = None
    if fewest.at_most is not None:
        then = verdict_of(resettled(board, fewest.states), verdict)
        assert then != verdict_of(settlement, verdict)
    return LeastChange(verdict, way, fewest.at_least, fewest.at_most, tuple(changes), then, tuple(proof))


def _joint_change(board: JointBoard, verdict: VerdictName, way: Way) -> LeastChange:
    """The same where tasks pass by all validators."""
    settlement, frame = board.settlement, board.settlement.frame
    least = board.least(verdict, way)
    per = board.known.shape[2] // max(1, board.tasks)
    changes = []
    for at, row, places in board.changed(least.states):
        before, after = (int((state[row] == 1).sum()) for state in (board.known[:, at], least.states[at]))
        trials = tuple((frame.tasks[place // per], place % per + 1) for place in places.tolist())
        changes.append(TrialChange(frame.participants[at], frame.validators[row], before, after, trials))
    then = verdict_of(board.resettled(least.states), verdict) if least.at_most is not None else None
    assert least.at_most is None or then != verdict_of(settlement, verdict)
    return LeastChange(verdict, way, least.at_least, least.at_most, tuple(changes), then)


def _trials(board: TrialBoard, way: Way, at: int, row: int, before: int, after: int) -> tuple[tuple[str, int], ...]:
    return () if way == "missing" else board.named(at, row, before, after)


def _edge(score: int) -> str:
    return f"-{text(-score)}" if score < 0 else text(score)


def resettled(board: TrialBoard, states: Mapping[int, Ints]) -> Settlement:
    """The settlement, as it would be with other numbers of passed trials: participant (column) → state."""
    settlement, scored = board.settlement, board.settlement.scored
    assert scored.missing is not None
    assert scored.incomplete is not None
    passed, missing = scored.work["passed"].astype(np.int64), scored.missing.copy()
    for at, state in states.items():
        for row, count in zip(board.rows[at], state.tolist(), strict=True):
            if count != ABSENT:
                passed[row, at], missing[row, at] = count, 0
    rules = settlement.inputs.scheme.score
    assert isinstance(rules, TestsScore)
    changed = tally(passed, missing, scored.counting | scored.incomplete, settlement.frame, rules, scored.first)
    return pipeline.settle(replace(settlement.inputs, evidence=changed))
