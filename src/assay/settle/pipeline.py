"""Evidence in, settlement out: the stages of SPEC 2–5 in their order, each keeping everything it computed.

    evidence → score → (standing, assignment) → consensus → ranking → clocks → reward, payout or nothing more

Pure: no file, no clock, no random number. Raises BadInput only for what the stages refuse.
"""

from __future__ import annotations

import numpy as np

from assay.records import Participant
from assay.settle.assign import drawn, may_count
from assay.settle.consensus import Votes, agree
from assay.settle.inputs import Frame, Inputs, Scored, frame
from assay.settle.rewarding import alive, rewarded
from assay.settle.score import score
from assay.settle.settlement import Seats, Settlement

__all__ = ["settle"]


def settle(inputs: Inputs) -> Settlement:
    """The settlement of one epoch, with every intermediate value. SPEC 2–6."""
    scheme, axes = inputs.scheme, frame(inputs)
    evidence = inputs.evidence
    scored = evidence if isinstance(evidence, Scored) else score(evidence, axes, scheme.score)
    seats = _seats(inputs, axes, scored)
    agreement = agree(_votes(seats, axes, scored), scheme.consensus, bps=scheme.score.kind == "rubric")
    found = rewarded(inputs, axes, scored, agreement)
    return Settlement(
        inputs=inputs,
        frame=axes,
        scored=scored,
        seats=seats,
        agreement=agreement,
        order=found.order,
        clock=found.clock,
        decayed=found.decayed,
        allotment=found.allotment,
        warmth=found.warmth,
        payouts=found.payouts,
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


def _votes(seats: Seats, axes: Frame, scored: Scored) -> Votes:
    """The scores that enter consensus: of validators that may count, are assigned, and for submissions that are nobody else's."""
    seated = np.asarray(seats.may_count, dtype=np.bool_)[:, None] & alive(axes)[None, :]
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
