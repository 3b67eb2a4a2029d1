"""Finds participants that need no more trials: no outcome of what is missing can change what is decided. SPEC 2.1, 3, 4, 5.

A cell is one validator's trials of one participant. It is open while one of them is missing. An *ending* says of every open cell,
of all participants at once, that it stays open (the validator does not count), or that its missing trials are judged, each passed
or not. A participant is decided if, whatever the others' part of the ending, its own missing trials change

    paid      no weight, no burn, no payout, no tier, no refund, and not the competition's clock
    decided   nor a rank: neither the order of the others, nor which of them are before it

- A settlement leaves a validator out that misses trials. So a participant may stay unjudged only where it gets nothing anyway:
  behind enough others (`winner-takes-all`, places of a payout), below `min_score`, below the lowest tier. Whoever may be paid is
  judged whole. Where every score has a part in every weight (`linear`, …), only a score that is certain is decided.
- Bounds of a score are the kernel's: of every ending of its cells where there are few; of the ends of each cell, where the agreed
  score rises with each validator's; else the lowest and highest that any validator may have. They may be wide, but never wrong.
- Evidence only narrows bounds, so what is decided stays decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInput
from assay.exact import BPS, NANO, digest, text
from assay.rules.column import ABSENT, ScoreColumn
from assay.rules.completions import OpenCell, completed
from assay.rules.trials import check_trials, outcomes
from assay.scheme.model import Decay
from assay.settle import Settlement
from assay.settle.consensus import Status
from assay.settle.inputs import Bools, Ints, arrived
from assay.settle.rewarding import advance, improves

__all__ = ["DECIDED_SCHEMA", "Certainty", "DecidedSeason", "OpenSeason", "Until", "decided", "spared"]

DECIDED_SCHEMA = "assay.decided/1"
Json = dict[str, Any]
Until = Literal["decided", "paid"]
Why = Literal["whole", "certain", "unscored", "behind", "below-floor", "below-tier", "placed",
              "may-be-paid", "part-of-all", "rank", "clock", "undrawn"]  # fmt: skip
SETTLED: frozenset[Why] = frozenset({"whole", "certain", "unscored", "behind", "below-floor", "below-tier", "placed"})
"""The reasons for which a participant is decided; the others say what is still open."""
REASONS: dict[Why, str] = {
    "whole": "everything is judged",
    "certain": "its score is certain",
    "unscored": "it has no score, whatever is judged",
    "behind": "enough others are surely before it",
    "below-floor": "it stays below min_score",
    "below-tier": "it stays below the lowest tier",
    "placed": "its place is certain, and only the place counts",
    "may-be-paid": "it may still be paid",
    "part-of-all": "its score has a part in every weight",
    "rank": "a rank is open",
    "clock": "its score is remembered by the clock of decay",
    "undrawn": "its validators are not drawn yet",
}
BY_PLACE = ("winner-takes-all", "ranked")
"""Strategies by which a share follows from the place alone."""
MOST = 2**17
"""Scores that the kernel judges for one participant's bounds."""


@dataclass(frozen=True, slots=True)
class Certainty:
    """A participant over all endings: its agreed score (nanos; None: it has none), its place, and whether it is decided, and why.

    missing: trials of all validators. sure: it has an agreed score in every ending.
    """

    participant: str
    missing: int
    lowest: int | None
    highest: int | None
    sure: bool
    places: tuple[int, int] | None
    """The best place and the worst among all that may have a score; None where it has none itself."""
    why: Why

    @property
    def decided(self) -> bool:
        """Whether no outcome of its missing trials changes anything."""
        return self.why in SETTLED

    @property
    def reason(self) -> str:
        """`why`, for people."""
        return REASONS[self.why]

    @property
    def document(self) -> Json:
        """As JSON."""
        shown = (None if score is None else text(score) for score in (self.lowest, self.highest))
        return {
            "participant": self.participant,
            "missing": self.missing,
            **dict(zip(("lowest", "highest"), shown, strict=True)),
            "sure": self.sure,
            "places": None if self.places is None else list(self.places),
            "decided": self.decided,
            "why": self.why,
        }


class OpenSeason:
    """A settlement of tests with what is missing in it. `took` adds the outcome of a trial. Rows and columns are its frame's."""

    def __init__(self, settlement: Settlement, until: Until, most: int = MOST) -> None:
        """Raises BadInput for another kind, for `passed_by = "all"`, and for `paid` where the scheme pays nobody."""
        self.settlement, self.until, self._most = settlement, until, most
        inputs, frame = settlement.inputs, settlement.frame
        self._rules = inputs.scheme
        check_trials(self._rules, "is judged until it is decided")
        if until == "paid" and self._rules.reward.kind == "ranking":
            raise BadInput("a ranking pays nobody", field="reward.kind", hint="use --until decided")
        self.trials = len(inputs.tasks) * (self._rules.kind.trials(self._rules.score) or 1)
        self._known = outcomes(settlement)
        self.passed, self.missing = _counts(settlement, self.trials, self._known)
        seated = _seated(settlement)
        silent = np.array([not submission for submission in frame.submissions], np.bool_) & (self.missing >= self.trials).all(0)
        seated &= ~silent[None, :]  # nobody judges a participant that handed in nothing
        self.seated = seated
        self._rows = [np.flatnonzero(seated[:, at]).tolist() for at in range(frame.shape[1])]
        # By `assign` it is not known yet who judges these: the epoch that accepts a submission draws, and no evidence says which.
        self.undrawn: Bools = frame.unique & ~silent & ~seated.any(axis=0) & (self._rules.consensus.assign is not None)
        order = sorted(range(frame.shape[1]), key=lambda at: arrived(inputs.participants[at]))
        self._place = np.argsort(np.array(order, np.int64)) if order else np.zeros(0, np.int64)
        self._columns: dict[int, ScoreColumn] = {}
        self.low, self.high = np.full(frame.shape[1], -1, np.int64), np.full(frame.shape[1], -1, np.int64)
        self.sure = np.zeros(frame.shape[1], np.bool_)
        for at in range(frame.shape[1]):
            self._bound(at)

    @property
    def cautions(self) -> list[str]:
        """Sentences on rules by which hardly any trial is spared."""
        reward, decay = self._rules.reward, self._rules.decay
        if reward.kind != "weights":
            return []
        sentences = []
        if decay is not None and decay.curve != "none" and decay.clock == "participant":
            what = "a participant's clock of decay starts with its first score, so only a score that is certain is spared"
            sentences.append(f'{what}; [decay] clock = "competition" or curve = "none" spares more')
        if reward.strategy not in BY_PLACE and not reward.min_score:
            what = f"with {reward.strategy!r} every score has a part in every weight, so only a score that is certain is spared"
            sentences.append(f"{what}; winner-takes-all or min_score spares more")
        return sentences

    def took(self, row: int, at: int, *, passed: bool) -> None:
        """Add the outcome of one of the missing trials of a validator and a participant."""
        if not self.missing[row, at]:
            raise ValueError("no trial is missing there")
        self.passed[row, at] += passed
        self.missing[row, at] -= 1
        if not self.missing[row, at]:
            self._columns.pop(at, None)
        self._bound(at)

    def judged(self, row: int, at: int) -> list[int]:
        """The numbers of the trials (task × trials of a task) that are known to be judged, as the settlement has them."""
        return [] if self._known is None else np.flatnonzero(self._known[row, at] >= 0).tolist()

    @property
    def by_trial(self) -> tuple[Ints, Ints]:
        """Two counts for each trial, [tasks × trials], over all validators: how often it passed, and how often it was judged."""
        if self._known is None:
            return np.zeros(self.trials, np.int64), np.zeros(self.trials, np.int64)
        return (self._known == 1).sum(axis=(0, 1), dtype=np.int64), (self._known >= 0).sum(axis=(0, 1), dtype=np.int64)

    def _column(self, at: int) -> ScoreColumn:
        """The validators of one participant; those that miss trials do not count."""
        if at not in self._columns:
            rows, seats = self._rows[at], self.settlement.seats
            state = np.where(self.missing[rows, at] > 0, ABSENT, self.passed[rows, at])
            stakes = tuple(seats.stakes[row] for row in rows)
            self._columns[at] = ScoreColumn(state, stakes, seats.totals[at], self.trials, self._rules.consensus)
        return self._columns[at]

    def _bound(self, at: int) -> None:
        """The bounds of a participant's agreed score over all endings, and whether it surely has one."""
        if self.undrawn[at]:
            self.low[at], self.high[at] = 0, NANO
            return
        if not self._rows[at]:
            return
        column = self._column(at)
        cells = [
            OpenCell(place, int(self.passed[row, at]), int(self.missing[row, at]))
            for place, row in enumerate(self._rows[at])
            if self.missing[row, at]
        ]
        reach = completed(column, cells, self._most)
        self.low[at], self.high[at] = reach.outer
        # More validators keep a quorum; only outliers that are left out can cost one afterwards.
        keeps = not self._rules.consensus.recheck or self._rules.consensus.outliers.method == "none"
        self.sure[at] = not reach.bare if reach.whole else keeps and column.agreed >= 0

    def _before(self, at: int) -> Bools:
        """The participants that are before this one wherever both have a place, [participants]."""
        before: Bools = (self.low > self.high[at]) | ((self.low == self.high[at]) & (self._place < self._place[at]))
        return before

    def _behind(self, at: int) -> Bools:
        """The participants that are behind this one wherever both have a place, [participants]."""
        behind: Bools = (self.high < self.low[at]) | ((self.high == self.low[at]) & (self._place > self._place[at]))
        return behind

    def why(self, at: int) -> Why:
        """The reason why a participant is decided, or why it is still open."""
        if self.undrawn[at]:
            return "undrawn"
        if not self.missing[self._rows[at], at].any():
            return "whole"
        if self.high[at] < 0:
            return "unscored"
        if self.sure[at] and self.low[at] == self.high[at]:
            return "certain"
        before = self._before(at)
        is_placed = self._is_placed(at, before)
        if self.until == "decided" and not is_placed:
            return "rank"
        ahead = before & self.sure
        reason = self._unpaid(at, ahead)
        if reason not in SETTLED and is_placed and self.sure[at] and self._is_paid_alike(at):
            reason = "placed"
        return reason if reason not in SETTLED or self._keeps_clock(at, ahead) else "clock"

    def decides(self, at: int) -> bool:
        """Whether no outcome of a participant's missing trials changes anything."""
        return self.why(at) in SETTLED

    def _is_placed(self, at: int, before: Bools) -> bool:
        placed = before | self._behind(at) | (self.high < 0)
        placed[at] = True
        return bool(placed.all())

    def _unpaid(self, at: int, ahead: Bools) -> Why:
        """The reason why a participant gets nothing in any ending, and so takes nothing from others. ahead: surely before it."""
        rules, payout, high = self._rules.reward, self._rules.payout, int(self.high[at])
        if rules.kind == "ranking":
            return "placed"
        if payout is not None:
            if high < min(self._marks):
                return "below-tier"
            return "behind" if int(ahead.sum()) >= len(payout.split) else "may-be-paid"
        (floor,) = self._marks
        if high < floor:
            return "below-floor"
        if rules.strategy != "winner-takes-all":
            return "part-of-all"
        return "behind" if int(ahead.sum()) >= rules.top else "may-be-paid"  # they are above the floor, because this one may be

    @cached_property
    def _marks(self) -> tuple[int, ...]:
        """The scores (nanos) at which something begins: a tier of the payout, or a share. SPEC 4, 5."""
        payout = self._rules.payout
        if payout is None:
            return (max(1, self._rules.reward.min_score),)
        return tuple(-(-tier.reach_bps * payout.threshold_bps * NANO // BPS**2) for tier in payout.tiers)

    def _is_paid_alike(self, at: int) -> bool:
        """Whether a participant that surely has a score, and a place, gets the same in every ending: only the place counts."""
        by_place = self._rules.payout is not None or self._rules.reward.strategy in BY_PLACE
        return by_place and all((self.low[at] >= mark) == (self.high[at] >= mark) for mark in self._marks)

    def _keeps_clock(self, at: int, ahead: Bools) -> bool:
        """Whether a participant without a share leaves the clock of decay as it is. SPEC 4, Decay.

        The first score sets the record, and so does a new submission that is better by enough. A participant's own clock starts
        with its first agreed score, whatever that is.
        """
        decay = self._rules.decay
        if self._rules.reward.kind != "weights" or decay is None or decay.curve == "none":
            return True
        if decay.clock == "participant":
            return False
        if self._record is None:
            return bool((ahead & (self.low > 0)).any())
        return not improves(int(self.high[at]), self._record, decay)

    @cached_property
    def _record(self) -> int | None:
        """The competition's record before this epoch's scores, nanos."""
        inputs = self.settlement.inputs
        previous = inputs.previous
        clock = advance(
            before=None if previous is None else previous.clock,
            previous_task_set=None if previous is None else previous.task_set,
            task_set=inputs.task_set,
            epoch=inputs.epoch,
            agreed=(),
            history=inputs.history,
            rules=self._rules.decay or Decay(),
        )
        return clock.record

    def standing(self, at: int) -> Certainty:
        """Everything about one participant."""
        low, high = int(self.low[at]), int(self.high[at])
        rows = self._rows[at]
        there = self.high >= 0
        others = np.arange(len(self.high)) != at
        best = 1 + int((there & others & self._before(at)).sum())
        worst = 1 + int((there & others & ~self._behind(at)).sum())
        return Certainty(
            participant=self.settlement.frame.participants[at],
            missing=int(self.missing[rows, at].sum()),
            lowest=None if low < 0 else low,
            highest=None if high < 0 else high,
            sure=bool(self.sure[at]),
            places=None if high < 0 else (best, worst),
            why=self.why(at),
        )


def _counts(settlement: Settlement, trials: int, known: NDArray[np.int8] | None) -> tuple[Ints, Ints]:
    """Trials passed and trials missing, [validators, participants].

    Where single records are not known, any number of an incomplete validator's trials may have passed.
    """
    if known is not None:
        return (known == 1).sum(axis=2, dtype=np.int64), (known < 0).sum(axis=2, dtype=np.int64)
    scored = settlement.scored
    return np.where(scored.counting, scored.work["passed"], 0).astype(np.int64), np.where(scored.counting, 0, trials)


def _seated(settlement: Settlement) -> Bools:
    """The validators that may count for each participant: by stake and audits, drawn; no duplicates. SPEC 2, 3.0, 3.1."""
    seated: Bools = np.asarray(settlement.seats.may_count, np.bool_)[:, None] & settlement.frame.unique[None, :]
    return seated if settlement.seats.drawn is None else seated & settlement.seats.drawn


@dataclass(frozen=True)
class DecidedSeason:
    """Whether an epoch is decided: nothing that is missing in it changes anything; and each participant over all endings."""

    settlement: Settlement
    until: Until
    standings: tuple[Certainty, ...]

    @property
    def whole(self) -> bool:
        """Whether every participant is decided."""
        return all(standing.decided for standing in self.standings)

    @property
    def missing(self) -> int:
        """The number of missing trials."""
        return sum(standing.missing for standing in self.standings)

    @property
    def document(self) -> Json:
        """`assay.decided/1`, its digest included."""
        content = {
            "schema": DECIDED_SCHEMA,
            "epoch": self.settlement.epoch,
            "settlement": self.settlement.digest,
            "until": self.until,
            "decided": self.whole,
            "missing": self.missing,
            "participants": [standing.document for standing in self.standings],
        }
        return content | {"digest": digest(content)}

    @property
    def digest(self) -> str:
        """Of the document."""
        stated: str = self.document["digest"]
        return stated


def decided(settlement: Settlement, until: Until) -> DecidedSeason:
    """The participants of a settlement of tests, decided or still open. Raises BadInput as `OpenSeason` does."""
    season = OpenSeason(settlement, until)
    columns: Iterable[int] = np.flatnonzero(settlement.frame.unique).tolist()
    return DecidedSeason(settlement, until, tuple(season.standing(at) for at in columns))


def spared(settlement: Settlement) -> dict[str, str]:
    """Incomplete participant → why its missing trials can change nothing; only those of which that is so. Raises BadInput.

    A settlement does not say whether a run left them out, or something failed: what is missing is missing either way. SPEC 2.1.
    """
    agreement = settlement.agreement
    keys = settlement.frame.participants
    open_ = [at for at in np.flatnonzero(agreement.status == Status.INCOMPLETE).tolist() if settlement.frame.unique[at]]
    words: dict[str, str] = {}
    untils: tuple[Until, ...] = ("decided",) if settlement.inputs.scheme.reward.kind == "ranking" else ("decided", "paid")
    for until in untils if open_ else ():
        season = OpenSeason(settlement, until)
        for at in open_:
            standing = season.standing(at)
            if keys[at] in words or not standing.decided or standing.why == "unscored":
                continue
            place = dict.fromkeys(standing.places or ())
            sentence = "Its missing trials cannot change what anybody is paid"
            if until == "decided" and len(place) == 1:
                sentence = f"The place is certain ({next(iter(place))}) whatever its missing trials come to"
            words[keys[at]] = f"{sentence}: {standing.reason}."
    return words
