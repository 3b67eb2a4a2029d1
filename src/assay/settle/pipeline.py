"""The settlement of one epoch: every stage of SPEC 2–5 in its order, and the validators that `assign` draws. SPEC 3.0.

    evidence → score → (standing, assignment) → consensus → ranking → clocks → reward, payout or neither → Settlement

The settlement keeps everything that each stage computed. This module is pure: no file, no clock, no random number; the randomness
of an assignment is an input. It raises BadInput only for what a stage refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from assay.errors import BadInput
from assay.records import Participant
from assay.scheme.model import Consensus
from assay.settle.consensus import Votes, agree, may_count
from assay.settle.inputs import Bools, Frame, Inputs, Scored, failed_audits, frame
from assay.settle.rewarding import rewarded
from assay.settle.score import score
from assay.settle.score.trials import jointly
from assay.settle.settlement import Seats, Settlement

RANDOMNESS_BYTES = 32


def drawn(
    participant: Participant,
    epoch: int,
    keys: Sequence[str],
    eligible: Sequence[bool],
    rules: Consensus,
    randomness: Mapping[int, bytes],
) -> list[int]:
    """The rows of the validators drawn for a submission that was accepted in `epoch`; all without `assign`. SPEC 3.0.

    Raises BadInput if the randomness of that epoch is not there.
    """
    if rules.assign is None:
        return list(range(len(keys)))
    if epoch not in randomness:
        raise BadInput(
            f"there is no randomness of epoch {epoch}, in which the submission of {participant.key!r} was accepted",
            hint=f"add the line {epoch},HEX to randomness.csv, where HEX is the hash of the block at which that epoch ended, "
            "64 digits without 0x; `assign` draws the validators from it",
        )
    return assigned(keys, eligible, participant.submission or participant.key, randomness[epoch], rules.assign)


def assigned(keys: Sequence[str], eligible: Sequence[bool], material: str, randomness: bytes, k: int) -> list[int]:
    """The rows drawn, ascending: the k lowest SHA-256(randomness ‖ 00 ‖ material ‖ 00 ‖ key) of those that may count. SPEC 3.0.

    `material` is the submission, or the participant's key if there is none. If fewer than k may count, all of them are drawn.
    Raises BadInput if the randomness is not 32 bytes.
    """
    if len(randomness) != RANDOMNESS_BYTES:
        raise BadInput(
            f"the randomness has {len(randomness)} bytes", hint="give the 32 bytes of the epoch's public randomness, in hex"
        )
    prefix = b"\0".join((randomness, material.encode(), b""))
    drawn = sorted(
        (hashlib.sha256(prefix + key.encode()).digest(), row)
        for row, (key, counts) in enumerate(zip(keys, eligible, strict=True))
        if counts
    )
    return sorted(row for _, row in drawn[:k])


def settle(inputs: Inputs) -> Settlement:
    """The settlement of one epoch, with every intermediate value. SPEC 2–6."""
    scheme, axes = inputs.scheme, frame(inputs)
    evidence = inputs.evidence
    scored = evidence if isinstance(evidence, Scored) else score(evidence, axes, scheme.score)
    seats = _seats(inputs, axes, scored)
    if scheme.score.scores_jointly():
        scored = jointly(scored, scored.counting & _seated(seats, axes), len(axes.tasks))
    agreement = agree(_votes(inputs, seats, axes, scored), scheme.consensus, bps=scheme.kind.in_bps)
    reward = rewarded(inputs, axes, scored, agreement)
    return Settlement(
        inputs=inputs,
        frame=axes,
        scored=scored,
        seats=seats,
        agreement=agreement,
        order=reward.order,
        clock=reward.clock,
        decayed=reward.decayed,
        allotment=reward.allotment,
        warmth=reward.warmth,
        payouts=reward.payouts,
    )


def _seats(inputs: Inputs, axes: Frame, scored: Scored) -> Seats:
    """The validators that may count (stake, failed audits), and the submissions that each is assigned. SPEC 3.0, 3.1."""
    rules = inputs.scheme.consensus
    stake = {validator.key: validator.stake for validator in inputs.validators}
    stakes = tuple(stake[key] for key in axes.validators)
    failed = failed_audits(inputs.scheme, inputs.validators)
    allowed = zip(axes.validators, may_count(stakes, rules), strict=True)
    eligible = tuple(counts and key not in failed for key, counts in allowed)
    total = sum(stakes)
    if rules.assign is None:
        return Seats(stakes=stakes, may_count=eligible, total_stake=total, drawn=None, totals=(total,) * len(axes.participants))
    chosen = np.zeros(axes.shape, dtype=np.bool_)
    totals = []
    for column, participant in enumerate(inputs.participants):
        rows = _drawn(inputs, axes, scored, participant, eligible)
        chosen[rows, column] = True
        totals.append(total if participant.key in axes.duplicate_of else sum(stakes[row] for row in rows))
    return Seats(stakes=stakes, may_count=eligible, total_stake=total, drawn=chosen, totals=tuple(totals))


def _drawn(inputs: Inputs, axes: Frame, scored: Scored, participant: Participant, eligible: tuple[bool, ...]) -> list[int]:
    """The rows of the validators drawn for a submission when it was accepted; none if that epoch is not known. SPEC 3.0."""
    epoch = participant.accepted_epoch
    epoch = scored.first.get(participant.key) if epoch is None else epoch
    if epoch is None:
        return []
    return drawn(participant, epoch, axes.validators, eligible, inputs.scheme.consensus, inputs.randomness)


def _seated(seats: Seats, axes: Frame) -> Bools:
    """The pairs that may count: validators with stake that are assigned, and submissions that are no duplicates."""
    seated = np.asarray(seats.may_count, dtype=np.bool_)[:, None] & axes.unique[None, :]
    return seated if seats.drawn is None else seated & seats.drawn


def _votes(inputs: Inputs, seats: Seats, axes: Frame, scored: Scored) -> Votes:
    """The scores that enter consensus."""
    seated = _seated(seats, axes)
    trials = inputs.scheme.kind.trials(inputs.scheme.score)
    return Votes(
        scores=scored.scores,
        counting=scored.counting & seated,
        stakes=seats.stakes,
        totals=seats.totals,
        incomplete=None if scored.incomplete is None else scored.incomplete & seated,
        unjudged=None if scored.unjudged is None else scored.unjudged & seated,
        trials=None if trials is None else trials * len(axes.tasks),
    )
