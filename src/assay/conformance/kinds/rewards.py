"""Kinds of case from agreed scores to weights or payouts: strategy, cap, decay, clock, encoding, payout. SPEC 4, 5."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.conformance.kinds.stages import Ratio, kind, ratio
from assay.errors import BadInput
from assay.exact import NANO, share_text, text
from assay.records import Fraction as Nanos
from assay.records import History, Submission
from assay.scheme.fields import Epoch, Key, Section
from assay.scheme.model import Decay, Payout, Reward
from assay.settle import reward as decays
from assay.settle import rewarding as clocks
from assay.settle.inputs import Clock, Own
from assay.settle.reward import Shares, allot, encode, pay, share_out
from assay.settle.reward import cap as capped

__all__ = ["cap", "clock", "decay", "encoding", "payout", "strategy", "weights"]

Json = dict[str, Any]
Scores = Annotated[tuple[Nanos, ...], Field(strict=False)]
Ratios = Annotated[tuple[Ratio, ...], Field(strict=False)]


class _Strategy(Section):
    reward: Reward
    scores: Scores


@kind(_Strategy)
def strategy(given: _Strategy) -> Json:
    """Agreed scores in ranking order, by the scheme's [reward] section: exact shares after floor and strategy; the rest burns."""
    shares = share_out(given.scores, given.reward)
    return {"shares": _ratios(shares), "burn": ratio(1 - shares.total)}


class _Cap(Section):
    reward: Reward
    shares: Ratios


@kind(_Cap)
def cap(given: _Cap) -> Json:
    """Exact shares in ranking order, by the scheme's [reward] section: those under the cap, what the cap burns, what it drops."""
    under_cap = capped(_shares(given.shares), given.reward)
    whole = under_cap.shares.denominator
    burnt, dropped = Fraction(under_cap.burnt, whole), Fraction(under_cap.unallocated, whole)
    return {"shares": _ratios(under_cap.shares), "burn": ratio(burnt), "unallocated": ratio(dropped)}


class _Encoding(Section):
    encoding: Literal["round", "exact-sum", "max-upscale"]
    shares: Ratios
    burn: Ratio


@kind(_Encoding)
def encoding(given: _Encoding) -> Json:
    """Exact shares in ranking order and the burn into u16, and into what the chain stores. `exact-sum` needs them to sum to 1."""
    total = sum(given.shares, given.burn)
    if not total or total > 1 or (given.encoding == "exact-sum" and total != 1):
        raise BadInput("the shares and the burn do not sum to 1", field="shares", hint="say where the rest goes")
    both = _shares((*given.shares, given.burn))
    *parts, burn = both.parts
    encoded = encode(parts, burn, both.denominator, given.encoding)
    return {
        "u16": encoded.u16,
        "chain_u16": encoded.chain_u16,
        "burn_u16": encoded.burn_u16,
        "burn_chain_u16": encoded.burn_chain_u16,
    }


class _Candidate(Section):
    score: Nanos
    kept: Nanos = NANO
    registered: bool = True


class _Weights(Section):
    reward: Reward
    participants: Annotated[tuple[_Candidate, ...], Field(strict=False)]


@kind(_Weights)
def weights(given: _Weights) -> Json:
    """Agreed scores in ranking order, what decay keeps of each, who is registered, by the [reward] section: rows and burn."""
    everyone = given.participants
    allotment = allot(
        [participant.score for participant in everyone],
        given.reward,
        [participant.kept for participant in everyone],
        [participant.registered for participant in everyone],
    )
    burnt = {name: share_text(getattr(allotment, f"burn_{name}")) for name in ("strategy", "cap", "decay", "unregistered")}
    return {
        "weights": [
            {
                "strategy": share_text(allotment.strategy[place]),
                "capped": share_text(allotment.capped[place]),
                "share": share_text(allotment.share[place]),
                "u16": allotment.u16[place],
                "chain_u16": allotment.chain_u16[place],
            }
            for place in range(len(everyone))
        ],
        "burn": {"share": share_text(allotment.burn), "u16": allotment.burn_u16, "chain_u16": allotment.burn_chain_u16, **burnt},
        "unallocated": share_text(allotment.unallocated),
    }


class _Decay(Section):
    decay: Decay
    last: Epoch | None
    epoch: Epoch


@kind(_Decay)
def decay(given: _Decay) -> Json:
    """The epoch of the last reset and the one being settled, by the scheme's [decay] section: epochs stale, burned, kept."""
    if given.last is not None and given.last > given.epoch:
        raise BadInput("the last reset is after the epoch", field="last", hint="settle a later epoch")
    stale, burnt = decays.burnt(given.last, given.epoch, given.decay)
    return {"stale": stale, "burned": text(burnt), "kept": text(NANO - burnt)}


class _Own(Section):
    participant: Key
    submission: Submission
    best: Nanos
    last: Epoch


class _Before(Section):
    task_set: str | None
    record: Nanos | None
    last: Epoch | None
    submission: Submission | None
    participants: Annotated[tuple[_Own, ...], Field(strict=False)]


class _Agreed(Section):
    participant: Key
    submission: Submission
    score: Nanos
    last_reset_epoch: Epoch | None = None


class _History(Section):
    epoch: Epoch
    top_score: Nanos
    submission: Submission = ""
    task_set: str = ""


class _Clock(Section):
    decay: Decay
    epoch: Epoch
    task_set: str | None = None
    previous: _Before | None = None
    history: Annotated[tuple[_History, ...], Field(strict=False)] = ()
    agreed: Annotated[tuple[_Agreed, ...], Field(strict=False)]


@kind(_Clock)
def clock(given: _Clock) -> Json:
    """Agreed participants in ranking order, the clocks of the settlement before (or history.csv): the clocks after the epoch."""
    before = given.previous
    after = clocks.advance(
        before=None if before is None else _earlier(before),
        previous_task_set=None if before is None else before.task_set,
        task_set=given.task_set,
        epoch=given.epoch,
        agreed=[clocks.AgreedScore(row.participant, row.submission, row.score, row.last_reset_epoch) for row in given.agreed],
        history=[History(row.epoch, row.top_score, row.submission, row.task_set) for row in given.history],
        rules=given.decay,
    )
    record = None if after.record is None else text(after.record)
    own = sorted(after.participants.items(), key=lambda item: item[0].encode())
    rows = [
        {"participant": key, "submission": state.submission, "best": text(state.best), "last": state.last} for key, state in own
    ]
    return {"record": record, "last": after.last, "submission": after.submission, "participants": rows}


def _earlier(before: _Before) -> Clock:
    own = {
        participant.participant: Own(participant.submission, participant.best, participant.last)
        for participant in before.participants
    }
    return Clock(before.record, before.last, before.submission, own)


class _Payout(Section):
    payout: Payout
    scores: Scores


@kind(_Payout)
def payout(given: _Payout) -> Json:
    """Agreed scores in ranking order (BPS / 10 000 for a rubric), by the [payout] section: tier, places, fees, refund."""
    payments = pay(given.scores, given.payout)
    rows = [{"place": row.place, "gross": str(row.gross), "fee": str(row.fee), "net": str(row.net)} for row in payments.rows]
    whole = {"tier_bps": payments.tier_bps, "released": str(payments.released), "places": rows}
    return whole | {"fees": str(payments.fees), "refund": str(payments.refund)}


def _shares(values: Sequence[Fraction]) -> Shares:
    if sum(values) > 1:
        raise BadInput("the shares sum to more than 1", field="shares", hint="correct them")
    whole = lcm(*(value.denominator for value in values))
    return Shares([int(value * whole) for value in values], whole)


def _ratios(shares: Shares) -> list[str]:
    return [ratio(shares[place]) for place in range(len(shares))]
