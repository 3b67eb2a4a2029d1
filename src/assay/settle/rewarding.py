"""The reward of an epoch, from its agreed scores: ranking, clocks, decay, then weights or payouts, or neither. SPEC 2.1, 4, 5.

`rewarded` needs only the inputs and the agreement. So a story computes in the same way what another agreed score would bring.

The clocks of decay say when each participant, and when the competition, last improved:

- Both kinds are always kept, whichever the scheme reads, so that a scheme can change its mind between epochs.
- They continue from the previous settlement. Only without one do `last_reset_epoch` and history.csv count.
- A new task set restarts them. A task set that is not known (None) is taken to be the previous one.
- A participant without an agreed score keeps its clock, even one that has left the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from assay.exact import BPS, NANO
from assay.records import History, Participant
from assay.scheme.model import Decay, Scheme
from assay.settle import reward
from assay.settle.consensus import Agreement, Status
from assay.settle.inputs import Bools, Clock, Frame, Inputs, Ints, Own, Scored, arrived


@dataclass(frozen=True, slots=True)
class AgreedScore:
    """A participant with an agreed score (nanos) at the epoch being settled. SPEC 4."""

    key: str
    submission: str
    score: int
    last_reset_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class _State:
    """The competition clock between two steps."""

    record: int | None = None
    last: int | None = None
    submission: str | None = None
    task_set: str | None = None


def advance(
    *,
    before: Clock | None,
    previous_task_set: str | None,
    task_set: str | None,
    epoch: int,
    agreed: Sequence[AgreedScore],
    history: Sequence[History],
    rules: Decay,
) -> Clock:
    """Both clocks after `epoch`. SPEC 4, Decay.

    before, previous_task_set: of the previous settlement; before is None if there is none.
    agreed: in ranking order. history: in any order; rows from `epoch` on do not count, and none does after a settlement.
    """
    if before is None:
        own: Mapping[str, Own] = {}
        state = _replayed(history, epoch, rules)
    else:
        own = {} if _restarted(previous_task_set, task_set) else before.participants
        state = _State(before.record, before.last, before.submission, previous_task_set)
    clocks = dict(own)
    for score in agreed:
        clocks[score.key] = _own(own.get(score.key), score, before is None, epoch, rules)

    def new(agreed: AgreedScore, record: str | None) -> bool:
        had = own.get(agreed.key)
        return not agreed.submission or (agreed.submission != record and (had is None or agreed.submission != had.submission))

    state = _step(state, epoch, agreed, task_set, new, rules)
    return Clock(state.record, state.last, state.submission, clocks)


def _restarted(before: str | None, now: str | None) -> bool:
    return before is not None and now is not None and before != now


def _own(had: Own | None, agreed: AgreedScore, genesis: bool, epoch: int, rules: Decay) -> Own:
    if had is None:
        known = agreed.last_reset_epoch if genesis else None
        return Own(agreed.submission, agreed.score, epoch if known is None else known)
    new = not agreed.submission or agreed.submission != had.submission
    resets = new and (rules.reset == "update" or agreed.score > had.best)
    return Own(agreed.submission, max(had.best, agreed.score), epoch if resets else had.last)


def _replayed(history: Sequence[History], epoch: int, rules: Decay) -> _State:
    """The competition clock after the rows of history.csv; each row is the top score of its epoch."""
    state = _State()
    for row in sorted(history, key=lambda row: row.epoch):
        if row.epoch < epoch:
            top = AgreedScore("", row.submission, row.top_score)
            state = _step(state, row.epoch, [top], row.task_set or None, _unlike_record, rules)
    return state


def _unlike_record(agreed: AgreedScore, record: str | None) -> bool:
    return not agreed.submission or agreed.submission != record


def _step(
    state: _State,
    epoch: int,
    ranked: Sequence[AgreedScore],
    task_set: str | None,
    new: Callable[[AgreedScore, str | None], bool],
    rules: Decay,
) -> _State:
    if _restarted(state.task_set, task_set):
        state = _State()
    known = task_set or state.task_set
    if state.record is None:
        best = next((top for top in ranked[:1] if top.score), None)
    else:
        best = next((agreed for agreed in ranked if new(agreed, state.submission)), None)
        if best is not None and not improves(best.score, state.record, rules):
            best = None
    if best is None:
        return _State(state.record, state.last, state.submission, known)
    return _State(best.score, epoch, best.submission, known)


def improves(score: int, record: int, rules: Decay) -> bool:
    """Whether a score (nanos) is at least θ above the record, or 1 for the first time. SPEC 4, Decay."""
    if score == NANO and record < NANO:
        return True
    if rules.improvement_mode == "relative":
        return score * NANO >= record * (NANO + rules.improvement)
    return score >= record + rules.improvement


@dataclass(frozen=True)
class Decayed:
    """By place in the ranking: the epoch of the last reset, the stale epochs τ, and the share kept, 1 − B, in nanos. SPEC 4."""

    last: tuple[int | None, ...]
    stale: tuple[int, ...]
    kept: tuple[int, ...]


@dataclass(frozen=True)
class Warmth:
    """By place in the ranking: in how many tasks each was seen; `whole` tasks give a whole share. SPEC 2.2."""

    seen: tuple[int, ...]
    whole: int

    def kept(self, place: int) -> Fraction:
        """The part of a share that is kept: min(1, seen / whole)."""
        return Fraction(min(self.seen[place], self.whole), self.whole)


@dataclass(frozen=True)
class Rewarded:
    """The ranking, clocks and reward that follow from the agreed scores of an epoch. SPEC 4, 5."""

    order: tuple[int, ...]
    """The ranking, as columns."""
    clock: Clock
    """Both clocks after this epoch."""
    decayed: Decayed | None
    allotment: reward.Allotment | None
    """None where the scheme pays out instead, or only ranks."""
    payouts: reward.Payouts | None
    warmth: Warmth | None
    """None where the scheme has no warm-up."""


def rewarded(inputs: Inputs, axes: Frame, scored: Scored, agreement: Agreement) -> Rewarded:
    """Ranking, clocks and reward of an epoch with these agreed scores. SPEC 2.1, 4, 5."""
    scheme = inputs.scheme
    order = rank(agreement, axes.unique, _arrivals(inputs.participants))
    after = _advance(inputs, agreement, order)
    ranked = [inputs.participants[column] for column in order]
    decayed = None if scheme.decay is None else _decayed(scheme.decay, inputs.epoch, after, ranked)
    warmth = _warmth(scheme, agreement, scored, order)
    return Rewarded(
        order=tuple(order),
        clock=after,
        decayed=decayed,
        allotment=None if scheme.reward.kind != "weights" else _allot(scheme, agreement, order, ranked, decayed, warmth),
        warmth=warmth,
        payouts=None if scheme.payout is None else reward.pay(_paid_by(agreement, order), scheme.payout),
    )


def rank(agreement: Agreement, unique: Bools, arrivals: Ints) -> list[int]:
    """The columns with an agreed score, best first: score (BPS for a rubric), then earlier submission, then key. SPEC 2.1."""
    values = agreement.score if agreement.bps is None else agreement.bps
    columns = np.flatnonzero((agreement.status == Status.AGREED) & unique)
    order: list[int] = columns[np.lexsort((arrivals[columns], -values[columns]))].tolist()
    return order


def _arrivals(participants: tuple[Participant, ...]) -> Ints:
    """The place of each column when sorted by submission time, then key. SPEC 2.1."""
    places = np.empty(len(participants), dtype=np.int64)
    places[sorted(range(len(participants)), key=lambda column: arrived(participants[column]))] = np.arange(len(participants))
    return places


def _advance(inputs: Inputs, agreement: Agreement, order: list[int]) -> Clock:
    """Both clocks after this epoch. SPEC 4, Decay."""
    previous = inputs.previous
    standings = [
        AgreedScore(
            key=(participant := inputs.participants[column]).key,
            submission=participant.submission,
            score=int(agreement.score[column]),
            last_reset_epoch=participant.last_reset_epoch,
        )
        for column in order
    ]
    return advance(
        before=None if previous is None else previous.clock,
        previous_task_set=None if previous is None else previous.task_set,
        task_set=inputs.task_set,
        epoch=inputs.epoch,
        agreed=standings,
        history=inputs.history,
        rules=inputs.scheme.decay or Decay(),
    )


def _decayed(rules: Decay, epoch: int, after: Clock, ranked: list[Participant]) -> Decayed:
    """The staleness of each ranked participant, and the part (nanos) of its share that is kept. SPEC 4, Decay."""
    whole = rules.clock == "competition"
    lasts = [after.last if whole else after.participants[participant.key].last for participant in ranked]
    burnt = reward.each(lasts, epoch, rules)
    return Decayed(last=tuple(lasts), stale=tuple(stale for stale, _ in burnt), kept=tuple(NANO - lost for _, lost in burnt))


def _allot(
    scheme: Scheme,
    agreement: Agreement,
    order: list[int],
    ranked: list[Participant],
    decayed: Decayed | None,
    warmth: Warmth | None,
) -> reward.Allotment:
    kept = (NANO,) * len(order) if decayed is None else decayed.kept
    registered = [participant.uid is not None for participant in ranked]
    scores = agreement.score[order].tolist()
    if warmth is None:
        return reward.allot(scores, scheme.reward, kept, registered)
    return reward.allot(scores, scheme.reward, kept, registered, warmth.seen, warmth.whole)


def _warmth(scheme: Scheme, agreement: Agreement, scored: Scored, order: list[int]) -> Warmth | None:
    """The number of tasks in which each was seen: the lower median over the validators whose scores count."""
    whole = scheme.score.whole_share_from()
    if whole is None:
        return None
    tasks, count = scored.work["tasks"], agreement.votes.counting & ~agreement.excluded
    seen = [sorted(tasks[count[:, column], column].tolist()) for column in order]
    return Warmth(tuple(int(counts[(len(counts) - 1) // 2]) for counts in seen), whole)


def _paid_by(agreement: Agreement, order: list[int]) -> list[int]:
    """The nanos that payouts go by: a rubric's are its agreed BPS, exactly. SPEC 2.3, 5."""
    if agreement.bps is not None:
        return [int(bps) * (NANO // BPS) for bps in agreement.bps[order]]
    scores: list[int] = agreement.score[order].tolist()
    return scores
