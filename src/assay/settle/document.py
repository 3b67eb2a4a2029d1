"""The settlement as a document: closed, versioned, every number an integer or a decimal string. SPEC 6, 7.

The fields in `SETTLEMENT` are its only description. The document is made from them; its JSON schema, its Arrow tables, its CSV
and the reading of an earlier settlement follow from them. A new field is one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.exact import digest, share_text, text
from assay.scheme.model import Consensus
from assay.settle.consensus import Agreement, Reason, Status
from assay.settle.inputs import Clock
from assay.tables import ABSENT, Field, Holds

if TYPE_CHECKING:
    from assay.settle.settlement import Settlement, Warmth, Weight

__all__ = ["BURNT", "PAYOUTS", "SCHEMA", "SETTLEMENT", "VALIDATORS", "WEIGHTS", "document"]

SCHEMA = "assay.settlement/1"

Json = dict[str, Any]


def document(settlement: Settlement) -> Json:
    """Everything about one epoch, lists in ranking order, with the digest over all the rest. SPEC 6, 7."""
    content = {"schema": SCHEMA} | _row(SETTLEMENT, settlement)
    return content | {"digest": digest(content)}


def _row(columns: Iterable[Field], about: Any) -> Json:
    return {column.name: value for column in columns if (value := column.value(about)) is not ABSENT}


def _maybe(count: int | None) -> str | None:
    return None if count is None else text(count)


class _AgreedRow(NamedTuple):
    """A participant by column, as its row in `agreed` describes it."""

    settlement: Settlement
    column: int
    key: str
    duplicate: str | None
    status: Status

    @property
    def agreement(self) -> Agreement:
        return self.settlement.agreement

    @property
    def reason(self) -> str | None:
        if self.duplicate is not None:
            return "same-submission"
        return None if self.agreed else Reason(int(self.agreement.reason[self.column])).code

    @property
    def agreed(self) -> bool:
        return self.status is Status.AGREED

    @property
    def bps(self) -> int | None:
        bps = self.agreement.bps
        return int(bps[self.column]) if self.agreed and bps is not None else None

    @property
    def votes(self) -> list[Json]:
        """The votes that count, a row each."""
        rows = self.agreement.votes.counting[:, self.column].nonzero()[0].tolist()
        return [_row(VALIDATORS, _VoteRow(self.settlement, row, self.column)) for row in rows]

    @property
    def not_counted(self) -> list[Json]:
        """The validators whose evidence does not count, and why."""
        rows = [] if self.duplicate is not None else _not_counted(self.settlement, self.column)
        return [_row(_NOT_COUNTED, row) for row in rows]


class _VoteRow(NamedTuple):
    """A validator's (row) vote about a participant (column)."""

    settlement: Settlement
    row: int
    column: int

    @property
    def work(self) -> Json:
        return {
            name: _plain(self.settlement, name, values[self.row, self.column])
            for name, values in self.settlement.scored.work.items()
        }


class _Weighed(NamedTuple):
    """A participant's weight, at its place in the ranking."""

    settlement: Settlement
    place: int
    weight: Weight

    def warm(self, value: Callable[[Warmth], Any]) -> Any:
        """The value that warm-up adds to a row; ABSENT if the scheme has no warm-up."""
        return ABSENT if self.settlement.warmth is None else value(self.settlement.warmth)


def _agreed(settlement: Settlement) -> list[Json]:
    """A row for each participant: status, agreed score, and votes. SPEC 3."""
    keys, rows = settlement.frame.participants, []
    others = sorted(set(range(len(keys))).difference(settlement.order), key=lambda column: keys[column].encode())
    for column in (*settlement.order, *others):
        duplicate = settlement.frame.duplicate_of.get(keys[column])
        status = Status.DUPLICATE if duplicate is not None else Status(int(settlement.agreement.status[column]))
        rows.append(_row(_AGREED, _AgreedRow(settlement, column, keys[column], duplicate, status)))
    return rows


def _plain(settlement: Settlement, name: str, value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return text(value) if name in settlement.inputs.scheme.kind.fractions else value


def _not_counted(settlement: Settlement, column: int) -> list[tuple[str, str, int]]:
    """Validators with evidence that does not count for this participant, and the first reason why. SPEC 3.0, 3.1."""
    scored, seats, rows = settlement.scored, settlement.seats, []
    masks = {
        "injection-suspected": scored.suspected,
        "panel-split": scored.split,
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
            own.insert(0, _no_seat(seats.stakes[row], settlement.inputs.scheme.consensus))
        if own:
            missing = int(scored.missing[row, column]) if own[0] == "incomplete" and scored.missing is not None else 0
            rows.append((settlement.frame.validators[row], own[0], missing))
    return rows


def _no_seat(stake: int, rules: Consensus) -> str:
    """Why a validator may not count for anybody. stake: rao."""
    if stake >= max(1, rules.min_validator_stake):
        return "audit-failed"
    return "stake-below-minimum" if stake else "no-stake"


def _weights(settlement: Settlement) -> list[Json]:
    """A row for each participant with an agreed score. SPEC 4."""
    if settlement.decayed is None:
        return []
    weights = settlement.weights.values()
    return [_row(WEIGHTS, _Weighed(settlement, place, weight)) for place, weight in enumerate(weights)]


def _payouts(settlement: Settlement) -> list[Json]:
    """The places that are paid, in wei. SPEC 5."""
    payouts = settlement.payouts
    return [] if payouts is None else [_row(PAYOUTS, (settlement, paid)) for paid in payouts.rows]


def _clocks(clock: Clock) -> list[Json]:
    return [_row(_OWN, pair) for pair in sorted(clock.participants.items(), key=lambda pair: pair[0].encode())]


VALIDATORS = (
    Field("validator", Holds.KEY, lambda at: at.settlement.frame.validators[at.row]),
    Field("score", Holds.SHARE, lambda at: text(int(at.settlement.scored.scores[at.row, at.column]))),
    Field("stake", Holds.STAKE, lambda at: str(at.settlement.seats.stakes[at.row])),
    Field("flagged", Holds.FLAG, lambda at: bool(at.settlement.agreement.flagged[at.row, at.column])),
    Field("excluded", Holds.FLAG, lambda at: bool(at.settlement.agreement.excluded[at.row, at.column])),
    Field("modified_z", Holds.FRACTION, lambda at: _maybe(at.settlement.agreement.modified_z(at.row, at.column)), null=True),
    Field("z_squared", Holds.FRACTION, lambda at: _maybe(at.settlement.agreement.z_squared(at.row, at.column)), null=True),
    Field("work", Holds.WORK, lambda at: at.work),
)
"""A vote that counts. SPEC 3."""
_NOT_COUNTED = (
    Field("validator", Holds.KEY, lambda row: row[0]),
    Field(
        "reason",
        Holds.WORD,
        lambda row: row[1],
        words=(
            "not-assigned",
            "no-stake",
            "stake-below-minimum",
            "audit-failed",
            "injection-suspected",
            "panel-split",
            "unjudged",
            "incomplete",
            "no-tasks",
        ),
    ),
    Field("missing", Holds.COUNT, lambda row: row[2]),
)
_AGREED = (
    Field("participant", Holds.KEY, lambda at: at.key),
    Field("submission", Holds.SUBMISSION, lambda at: at.settlement.frame.submissions[at.column]),
    Field("score", Holds.SCORE, lambda at: text(int(at.agreement.score[at.column])) if at.agreed else None, null=True),
    Field("bps", Holds.BPS, lambda at: at.bps, null=True),
    Field("status", Holds.WORD, lambda at: at.status.code, words=tuple(status.code for status in Status)),
    Field("reason", Holds.WORD, lambda at: at.reason, words=tuple(reason.code for reason in Reason)),
    Field("duplicate_of", Holds.KEY, lambda at: at.duplicate, null=True),
    Field("stake", Holds.STAKE, lambda at: str(at.agreement.stake[at.column])),
    Field("needed_stake_of", Holds.STAKE, lambda at: str(at.settlement.seats.totals[at.column])),
    Field("median", Holds.SHARE, lambda at: _maybe(at.agreement.median(at.column)), null=True),
    Field("mad", Holds.SHARE, lambda at: _maybe(at.agreement.mad(at.column)), null=True),
    Field("mean", Holds.SHARE, lambda at: _maybe(at.agreement.mean(at.column)), null=True),
    Field("flagged_majority", Holds.FLAG, lambda at: bool(at.agreement.flagged_majority[at.column])),
    Field("validators", Holds.ROWS, lambda at: at.votes, columns=VALIDATORS),
    Field("not_counted", Holds.ROWS, lambda at: at.not_counted, columns=_NOT_COUNTED),
)
"""A participant's agreed score, or why there is none. SPEC 3."""

WEIGHTS = (
    Field("participant", Holds.KEY, lambda at: at.weight.participant),
    Field("uid", Holds.U16, lambda at: at.weight.uid, null=True),
    Field("score", Holds.SHARE, lambda at: text(at.weight.score)),
    Field("strategy", Holds.SHARE, lambda at: share_text(at.weight.strategy)),
    Field("capped", Holds.SHARE, lambda at: share_text(at.weight.capped)),
    Field("last", Holds.EPOCH, lambda at: at.settlement.decayed.last[at.place], null=True),
    Field("stale", Holds.COUNT, lambda at: at.settlement.decayed.stale[at.place]),
    Field("kept", Holds.SHARE, lambda at: text(at.weight.kept)),
    Field("share", Holds.SHARE, lambda at: share_text(at.weight.share)),
    Field("u16", Holds.U16, lambda at: at.weight.u16),
    Field("chain_u16", Holds.U16, lambda at: at.weight.chain_u16),
    Field("tasks_seen", Holds.COUNT, lambda at: at.warm(lambda warmth: warmth.seen[at.place]), optional=True),
    Field("warm", Holds.SHARE, lambda at: at.warm(lambda warmth: share_text(warmth.kept(at.place))), optional=True),
)
"""A participant's weight after each step; the last two only where the scheme has warm-up. SPEC 4."""

_BURN = (
    Field("uid", Holds.U16, lambda at: at.inputs.scheme.decay.burn_uid),
    Field("share", Holds.SHARE, lambda at: share_text(at.allotment.burn)),
    Field("u16", Holds.U16, lambda at: at.allotment.burn_u16),
    Field("chain_u16", Holds.U16, lambda at: at.allotment.burn_chain_u16),
    Field("strategy", Holds.SHARE, lambda at: share_text(at.allotment.burn_strategy)),
    Field("cap", Holds.SHARE, lambda at: share_text(at.allotment.burn_cap)),
    Field("decay", Holds.SHARE, lambda at: share_text(at.allotment.burn_decay)),
    Field("unregistered", Holds.SHARE, lambda at: share_text(at.allotment.burn_unregistered)),
    Field(
        "warm_up", Holds.SHARE, lambda at: ABSENT if at.warmth is None else share_text(at.allotment.burn_warm_up), optional=True
    ),
)
"""The burn of an epoch, and the part of it that each step burnt. SPEC 4."""

PAYOUTS = (
    Field("participant", Holds.KEY, lambda at: at[0].ranking[at[1].place - 1]),
    Field("address", Holds.TEXT, lambda at: at[0].inputs.participants[at[0].order[at[1].place - 1]].address, null=True),
    Field("place", Holds.PLACE, lambda at: at[1].place),
    Field("gross", Holds.AMOUNT, lambda at: str(at[1].gross)),
    Field("fee", Holds.AMOUNT, lambda at: str(at[1].fee)),
    Field("net", Holds.AMOUNT, lambda at: str(at[1].net)),
)
"""A place that is paid. SPEC 5."""

_OWN = (
    Field("participant", Holds.KEY, lambda pair: pair[0]),
    Field("submission", Holds.SUBMISSION, lambda pair: pair[1].submission),
    Field("best", Holds.SCORE, lambda pair: text(pair[1].best)),
    Field("last", Holds.EPOCH, lambda pair: pair[1].last),
)
_CLOCK = (
    Field("record", Holds.SCORE, lambda clock: _maybe(clock.record), null=True),
    Field("last", Holds.EPOCH, lambda clock: clock.last, null=True),
    Field("submission", Holds.SUBMISSION, lambda clock: clock.submission, null=True),
    Field("participants", Holds.ROWS, _clocks, columns=_OWN),
)
"""Both clocks of decay after this epoch. SPEC 4."""

_SCHEME = (
    Field("name", Holds.KEY, lambda scheme: scheme.name),
    Field("version", Holds.KEY, lambda scheme: scheme.scheme.version),
    Field("digest", Holds.DIGEST, lambda scheme: scheme.digest),
)

SETTLEMENT = (
    Field("scheme", Holds.OBJECT, lambda at: _row(_SCHEME, at.inputs.scheme), columns=_SCHEME),
    Field("epoch", Holds.EPOCH, lambda at: at.epoch),
    Field("task_set", Holds.DIGEST, lambda at: at.inputs.task_set, null=True),
    Field("total_stake", Holds.STAKE, lambda at: str(at.seats.total_stake)),
    Field("agreed", Holds.ROWS, _agreed, columns=_AGREED),
    Field("ranking", Holds.KEYS, lambda at: at.ranking),
    Field("clock", Holds.OBJECT, lambda at: _row(_CLOCK, at.clock), columns=_CLOCK),
    Field("weights", Holds.ROWS, _weights, columns=WEIGHTS),
    Field("burn", Holds.OBJECT, lambda at: None if at.allotment is None else _row(_BURN, at), null=True, columns=_BURN),
    Field("unallocated", Holds.SHARE, lambda at: "0" if at.allotment is None else share_text(at.allotment.unallocated)),
    Field("released", Holds.AMOUNT, lambda at: None if at.payouts is None else str(at.payouts.released), null=True),
    Field("tier_bps", Holds.BPS, lambda at: None if at.payouts is None else at.payouts.tier_bps, null=True),
    Field("payouts", Holds.ROWS, _payouts, columns=PAYOUTS),
    Field("fees", Holds.AMOUNT, lambda at: None if at.payouts is None else str(at.payouts.fees), null=True),
    Field("refund", Holds.AMOUNT, lambda at: None if at.payouts is None else str(at.payouts.refund), null=True),
)
"""The whole document, but for `schema`, which comes before, and `digest`, which is over all of it."""

BURNT = ("uid", "share", "u16", "chain_u16")
"""Fields of the burn as a row of weights: it has no score and no clock."""
