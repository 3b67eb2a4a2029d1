"""The settlement as a document: closed, versioned, every number an integer or a decimal string. SPEC 6, 7."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.exact import NANO, digest, half_even, text
from assay.settle.consensus import Reason, Status
from assay.settle.inputs import Clock

if TYPE_CHECKING:
    from assay.settle.settlement import Settlement

__all__ = ["SCHEMA", "document"]

SCHEMA = "assay.settlement/1"

Json = dict[str, Any]


def document(settlement: Settlement) -> Json:
    """Everything about one epoch, lists in ranking order, with the digest over all the rest. SPEC 6, 7."""
    scheme = settlement.inputs.scheme
    others = sorted(
        set(range(len(settlement.frame.participants))).difference(settlement.order), key=lambda c: _key(settlement, c).encode()
    )
    content = {
        "schema": SCHEMA,
        "scheme": {"name": scheme.name, "version": scheme.scheme.version, "digest": scheme.digest},
        "epoch": settlement.epoch,
        "task_set": settlement.inputs.task_set,
        "total_stake": str(settlement.seats.total_stake),
        "agreed": [_agreed(settlement, column) for column in (*settlement.order, *others)],
        "ranking": settlement.ranking,
        "clock": _clock(settlement.clock),
        **_weights(settlement),
        **_payouts(settlement),
    }
    return content | {"digest": digest(content)}


def _key(settlement: Settlement, column: int) -> str:
    return settlement.frame.participants[column]


def shown(value: Fraction) -> str:
    """An exact share, as nanos for the reader, half to even. SPEC 1."""
    return text(half_even(value.numerator * NANO, value.denominator))


def _maybe(count: int | None) -> str | None:
    return None if count is None else text(count)


def _agreed(settlement: Settlement, column: int) -> Json:
    """A participant's row: status, agreed score, and what each validator said. SPEC 3."""
    agreement, key = settlement.agreement, _key(settlement, column)
    duplicate = settlement.frame.duplicate_of.get(key)
    status = Status.DUPLICATE if duplicate is not None else Status(int(agreement.status[column]))
    agreed = status is Status.AGREED
    reason = None if agreed else "same-submission" if duplicate is not None else Reason(int(agreement.reason[column])).code
    return {
        "participant": key,
        "submission": settlement.frame.submissions[column],
        "score": text(int(agreement.score[column])) if agreed else None,
        "bps": int(agreement.bps[column]) if agreed and agreement.bps is not None else None,
        "status": status.code,
        "reason": reason,
        "duplicate_of": duplicate,
        "stake": str(agreement.stake[column]),
        "needed_stake_of": str(settlement.seats.totals[column]),
        "median": _maybe(agreement.median(column)),
        "mad": _maybe(agreement.mad(column)),
        "mean": _maybe(agreement.mean(column)),
        "flagged_majority": bool(agreement.flagged_majority[column]),
        "validators": [_vote(settlement, row, column) for row in agreement.votes.counting[:, column].nonzero()[0].tolist()],
        "not_counted": [] if duplicate is not None else _not_counted(settlement, column),
    }


def _vote(settlement: Settlement, row: int, column: int) -> Json:
    agreement = settlement.agreement
    return {
        "validator": settlement.frame.validators[row],
        "score": text(int(settlement.scored.scores[row, column])),
        "stake": str(settlement.seats.stakes[row]),
        "flagged": bool(agreement.flagged[row, column]),
        "excluded": bool(agreement.excluded[row, column]),
        "modified_z": _maybe(agreement.modified_z(row, column)),
        "z_squared": _maybe(agreement.z_squared(row, column)),
        "work": {name: _plain(name, values[row, column]) for name, values in settlement.scored.work.items()},
    }


def _plain(name: str, value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return text(value) if name == "points" else value


def _not_counted(settlement: Settlement, column: int) -> list[Json]:
    """Validators with evidence that does not count for this participant, and the first reason why. SPEC 3.0, 3.1."""
    scored, seats, rows = settlement.scored, settlement.seats, []
    masks = {
        "injection-suspected": scored.suspected,
        "unjudged": scored.unjudged,
        "incomplete": scored.incomplete,
        "no-tasks": scored.emptied,
    }
    flags = {name: mask for name, mask in masks.items() if mask is not None}
    heard = np.logical_or.reduce([scored.counting[:, column], *(mask[:, column] for mask in flags.values())])
    for row in heard.nonzero()[0].tolist():
        own = [name for name, mask in flags.items() if mask[row, column]]
        if seats.drawn is not None and not seats.drawn[row, column]:
            own.insert(0, "not-assigned")
        elif not seats.may_count[row]:
            own.insert(0, "stake-below-minimum" if seats.stakes[row] else "no-stake")
        if own:
            missing = int(scored.missing[row, column]) if own[0] == "incomplete" and scored.missing is not None else 0
            rows.append({"validator": settlement.frame.validators[row], "reason": own[0], "missing": missing})
    return rows


def _clock(clock: Clock) -> Json:
    return {
        "record": _maybe(clock.record),
        "last": clock.last,
        "submission": clock.submission,
        "participants": [
            {"participant": key, "submission": own.submission, "best": text(own.best), "last": own.last}
            for key, own in sorted(clock.participants.items(), key=lambda item: item[0].encode())
        ],
    }


def _weights(settlement: Settlement) -> Json:
    """Rows of weights, the burn and what stays unallocated. SPEC 4."""
    found, decay, decayed = settlement.allotment, settlement.inputs.scheme.decay, settlement.decayed
    if found is None or decay is None or decayed is None:
        return {"weights": [], "burn": None, "unallocated": "0"}
    rows = [
        {
            "participant": weight.participant,
            "uid": weight.uid,
            "score": text(weight.score),
            "strategy": shown(weight.strategy),
            "capped": shown(weight.capped),
            "last": decayed.last[place],
            "stale": decayed.stale[place],
            "kept": text(weight.kept),
            "share": shown(weight.share),
            "u16": weight.u16,
            "chain_u16": weight.chain_u16,
            **_warm(settlement, place),
        }
        for place, weight in enumerate(settlement.weights.values())
    ]
    burn = {
        "uid": decay.burn_uid,
        "share": shown(found.burn),
        "u16": found.burn_u16,
        "chain_u16": found.burn_chain_u16,
        "strategy": shown(found.burn_strategy),
        "cap": shown(found.burn_cap),
        "decay": shown(found.burn_decay),
        "unregistered": shown(found.burn_unregistered),
    }
    if settlement.warmth is not None:
        burn["warm_up"] = shown(found.burn_warm_up)
    return {"weights": rows, "burn": burn, "unallocated": shown(found.unallocated)}


def _warm(settlement: Settlement, place: int) -> Json:
    """What warm-up adds to a row, where the scheme has it."""
    warmth = settlement.warmth
    return {} if warmth is None else {"tasks_seen": warmth.seen[place], "warm": shown(warmth.kept(place))}


def _payouts(settlement: Settlement) -> Json:
    """The places that are paid, the fees and the refund, in wei. SPEC 5."""
    found = settlement.payouts
    if found is None:
        return {"released": None, "tier_bps": None, "payouts": [], "fees": None, "refund": None}
    rows = [
        {
            "participant": settlement.ranking[paid.place - 1],
            "address": settlement.inputs.participants[settlement.order[paid.place - 1]].address,
            "place": paid.place,
            "gross": str(paid.gross),
            "fee": str(paid.fee),
            "net": str(paid.net),
        }
        for paid in found.rows
    ]
    released = {"released": str(found.released), "tier_bps": found.tier_bps, "payouts": rows}
    return released | {"fees": str(found.fees), "refund": str(found.refund)}
