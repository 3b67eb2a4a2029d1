"""Evidence in, settlement out: the stages of SPEC 2–5 in their order, each keeping everything it computed.

    evidence → score → (standing, assignment) → consensus → ranking → clocks → reward, payout or nothing more

Pure: no file, no clock, no random number. Raises BadInput only for what the stages refuse.
"""

from __future__ import annotations

import numpy as np

from assay.exact import BPS, NANO
from assay.records import Participant
from assay.scheme.model import Decay, Scheme
from assay.settle import clock as clocks
from assay.settle import decay, payout, reward
from assay.settle.assign import drawn, may_count
from assay.settle.consensus import Agreement, Status, Votes, agree
from assay.settle.inputs import Bools, Clock, Frame, Inputs, Ints, Scored, arrived, frame
from assay.settle.score import score
from assay.settle.settlement import Decayed, Seats, Settlement, Warmth

__all__ = ["rank", "settle"]


def settle(inputs: Inputs) -> Settlement:
    """The settlement of one epoch, with every intermediate value. SPEC 2–6."""
    scheme, axes = inputs.scheme, frame(inputs)
    evidence = inputs.evidence
    scored = evidence if isinstance(evidence, Scored) else score(evidence, axes, scheme.score)
    seats = _seats(inputs, axes, scored)
    agreement = agree(_votes(seats, axes, scored), scheme.consensus, bps=scheme.score.kind == "rubric")
    order = rank(agreement, _alive(axes), _arrivals(inputs.participants))
    after = _advance(inputs, agreement, order)
    ranked = [inputs.participants[column] for column in order]
    decayed = None if scheme.decay is None else _decayed(inputs, after, ranked)
    warmth = _warmth(scheme, agreement, scored, order)
    return Settlement(
        inputs=inputs,
        frame=axes,
        scored=scored,
        seats=seats,
        agreement=agreement,
        order=tuple(order),
        clock=after,
        decayed=decayed,
        allotment=None if scheme.reward.kind != "weights" else _allot(scheme, agreement, order, ranked, decayed, warmth),
        warmth=warmth,
        payouts=None if scheme.payout is None else payout.pay(_paid_by(agreement, order), scheme.payout),
    )


def _seats(inputs: Inputs, axes: Frame, scored: Scored) -> Seats:
    """Who may count for whom: stake, assignment. SPEC 3.0, 3.1."""
    rules = inputs.scheme.consensus
    stake = {validator.key: validator.stake for validator in inputs.validators}
    stakes = tuple(stake[key] for key in axes.validators)
    may = may_count(stakes, rules)
    total = sum(stakes)
    if rules.assign is None:
        return Seats(stakes=stakes, may_count=may, total_stake=total, drawn=None, totals=(total,) * len(axes.participants))
    chosen = np.zeros(axes.shape, dtype=np.bool_)
    totals = []
    for column, participant in enumerate(inputs.participants):
        rows = _drawn(inputs, axes, scored, participant, may)
        chosen[rows, column] = True
        totals.append(total if participant.key in axes.duplicate_of else sum(stakes[row] for row in rows))
    return Seats(stakes=stakes, may_count=may, total_stake=total, drawn=chosen, totals=tuple(totals))


def _drawn(inputs: Inputs, axes: Frame, scored: Scored, participant: Participant, may: tuple[bool, ...]) -> list[int]:
    """The rows of the validators drawn for a submission when it was accepted; none if nobody knows when that was. SPEC 3.0."""
    epoch = participant.accepted_epoch
    epoch = scored.first.get(participant.key) if epoch is None else epoch
    if epoch is None:
        return []
    return drawn(participant, epoch, axes.validators, may, inputs.scheme.consensus, inputs.randomness)


def _alive(axes: Frame) -> Bools:
    return np.fromiter((key not in axes.duplicate_of for key in axes.participants), dtype=np.bool_, count=len(axes.participants))


def _votes(seats: Seats, axes: Frame, scored: Scored) -> Votes:
    """The scores that enter consensus: of validators that may count, are assigned, and for submissions that are nobody else's."""
    seated = np.asarray(seats.may_count, dtype=np.bool_)[:, None] & _alive(axes)[None, :]
    if seats.drawn is not None:
        seated &= seats.drawn
    return Votes(
        scores=scored.scores,
        counting=scored.counting & seated,
        stakes=seats.stakes,
        totals=seats.totals,
        incomplete=None if scored.incomplete is None else scored.incomplete & seated,
        unjudged=None if scored.unjudged is None else scored.unjudged & seated,
    )


def _arrivals(participants: tuple[Participant, ...]) -> Ints:
    """The place of each column when sorted by submission time, then key. SPEC 2.1."""
    places = np.empty(len(participants), dtype=np.int64)
    places[sorted(range(len(participants)), key=lambda column: arrived(participants[column]))] = np.arange(len(participants))
    return places


def rank(agreement: Agreement, alive: Bools, arrivals: Ints) -> list[int]:
    """The columns with an agreed score, best first: score (BPS for a rubric), then earlier submission, then key. SPEC 2.1."""
    values = agreement.score if agreement.bps is None else agreement.bps
    columns = np.flatnonzero((agreement.status == Status.AGREED) & alive)
    order: list[int] = columns[np.lexsort((arrivals[columns], -values[columns]))].tolist()
    return order


def _advance(inputs: Inputs, agreement: Agreement, order: list[int]) -> Clock:
    """Both clocks after this epoch. SPEC 4, Decay."""
    previous = inputs.previous
    standings = [
        clocks.Standing(
            key=(participant := inputs.participants[column]).key,
            submission=participant.submission,
            score=int(agreement.score[column]),
            last_reset_epoch=participant.last_reset_epoch,
        )
        for column in order
    ]
    return clocks.advance(
        before=None if previous is None else previous.clock,
        previous_task_set=None if previous is None else previous.task_set,
        task_set=inputs.task_set,
        epoch=inputs.epoch,
        agreed=standings,
        history=inputs.history,
        rules=inputs.scheme.decay or Decay(),
    )


def _decayed(inputs: Inputs, after: Clock, ranked: list[Participant]) -> Decayed:
    """How stale each ranked participant is, and what share (nanos) of it is kept. SPEC 4, Decay."""
    rules = inputs.scheme.decay
    if rules is None:  # pragma: no cover  (the caller asks only where there is decay)
        raise ValueError("no decay")
    whole = rules.clock == "competition"
    lasts = [after.last if whole else after.participants[participant.key].last for participant in ranked]
    burnt = {last: decay.burnt(last, inputs.epoch, rules) for last in set(lasts)}
    return Decayed(
        last=tuple(lasts), stale=tuple(burnt[last][0] for last in lasts), kept=tuple(NANO - burnt[last][1] for last in lasts)
    )


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
    """In how many tasks each was seen: the lower median of what the validators say whose scores count."""
    rules = scheme.score
    if rules.kind != "workflow" or rules.warm_up is None:
        return None
    tasks, count = scored.work["tasks"], agreement.votes.counting & ~agreement.excluded
    said = [sorted(tasks[count[:, column], column].tolist()) for column in order]
    return Warmth(tuple(int(one[(len(one) - 1) // 2]) for one in said), rules.warm_up)


def _paid_by(agreement: Agreement, order: list[int]) -> list[int]:
    """The nanos that payouts go by: a rubric's are its agreed BPS, exactly. SPEC 2.3, 5."""
    if agreement.bps is not None:
        return [int(bps) * (NANO // BPS) for bps in agreement.bps[order]]
    scores: list[int] = agreement.score[order].tolist()
    return scores
