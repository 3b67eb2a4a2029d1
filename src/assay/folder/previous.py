"""An earlier settlement, as far as the next one needs it: who it was for, its epoch, its task set, its clocks. SPEC 4, 6."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from assay.errors import BadInput
from assay.exact import digest
from assay.folder import strict
from assay.folder.limits import SETTLEMENT_BYTES
from assay.folder.text import decode, load
from assay.records import Epoch, Fraction, Submission
from assay.scheme.fields import Key, Section
from assay.scheme.model import Scheme
from assay.scheme.reading import refusal
from assay.settle.inputs import Clock, Own, Previous

__all__ = ["check_follows", "previous_of", "read"]

SCHEMA = "assay.settlement/1"
Sha256 = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
Number = Annotated[str, Field(pattern=r"^[0-9]{1,90}(\.[0-9]{1,9})?$")]
Whole = Annotated[int, Field(ge=0, le=2**53 - 1)]


class _Own(Section):
    participant: Key
    submission: Submission
    best: Fraction
    last: Epoch


class _Clock(Section):
    record: Fraction | None
    last: Epoch | None
    submission: Submission | None
    participants: Annotated[tuple[_Own, ...], Field(strict=False)]


class _Scheme(Section):
    name: Key
    version: Key
    digest: Sha256


class _Vote(Section):
    validator: Key
    score: Number
    stake: Number
    flagged: bool
    excluded: bool
    modified_z: Number | None
    z_squared: Number | None
    work: dict[str, Number | Whole | bool | str | None]


class _NotCounted(Section):
    validator: Key
    reason: str
    missing: Whole


class _Agreed(Section):
    participant: Key
    submission: Submission
    score: Fraction | None
    bps: Whole | None
    status: str
    reason: str | None
    duplicate_of: Key | None
    stake: Number
    needed_stake_of: Number
    median: Number | None
    mad: Number | None
    mean: Number | None
    flagged_majority: bool
    validators: Annotated[tuple[_Vote, ...], Field(strict=False)]
    not_counted: Annotated[tuple[_NotCounted, ...], Field(strict=False)]


class _Weight(Section):
    participant: Key
    uid: Whole | None
    score: Number
    strategy: Number
    capped: Number
    last: Epoch | None
    stale: Whole
    kept: Number
    share: Number
    u16: Whole
    chain_u16: Whole
    tasks_seen: Whole = 0
    warm: Number = "0"


class _Burn(Section):
    uid: Whole
    share: Number
    u16: Whole
    chain_u16: Whole
    strategy: Number
    cap: Number
    decay: Number
    unregistered: Number
    warm_up: Number = "0"


class _Paid(Section):
    participant: Key
    address: str | None
    place: Whole
    gross: Number
    fee: Number
    net: Number


class _Settlement(Section):
    """All of a settlement, and nothing else: what is not looked at could not be relied on. SPEC 6."""

    kind: Literal["assay.settlement/1"] = Field(alias="schema")
    scheme: _Scheme
    epoch: Epoch
    task_set: Sha256 | None
    total_stake: Number
    agreed: Annotated[tuple[_Agreed, ...], Field(strict=False)]
    ranking: Annotated[tuple[Key, ...], Field(strict=False)]
    weights: Annotated[tuple[_Weight, ...], Field(strict=False)]
    burn: _Burn | None
    unallocated: Number
    released: Number | None
    tier_bps: Whole | None
    payouts: Annotated[tuple[_Paid, ...], Field(strict=False)]
    fees: Number | None
    refund: Number | None
    clock: _Clock
    digest: Sha256


def read(path: Path) -> Previous:
    """What the settlement in a JSON file hands on; raises BadInput as `previous_of` does, and for what is not JSON."""
    text = decode(load(path, SETTLEMENT_BYTES, hint="give the file that an earlier `assay settle --json` wrote"), path)
    try:
        return previous_of(strict.parse(text))
    except BadInput as error:
        error.at(file=path)
        raise


def previous_of(document: Any) -> Previous:
    """What a settlement document hands on.

    Raises BadInput if it is none, has a field too many or too few, or if its digest or its clocks are wrong. SPEC 6.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BadInput(f"is not a settlement ({SCHEMA})", field="schema", hint="give the file that `assay settle --json` wrote")
    strict.check(document)
    try:
        head = _Settlement.model_validate(document)
    except ValidationError as error:
        raise refusal(error, _Settlement) from None
    found = digest({key: value for key, value in document.items() if key != "digest"})
    if found != head.digest:
        raise BadInput(
            f"the settlement was changed after it was made: its digest is {found}", field="digest", hint="take the file as it was"
        )
    _makes_sense(head)
    own = {one.participant: Own(one.submission, one.best, one.last) for one in head.clock.participants}
    clock = Clock(head.clock.record, head.clock.last, head.clock.submission, own)
    return Previous(head.scheme.name, head.epoch, head.task_set, clock)


def _makes_sense(head: _Settlement) -> None:
    clock = head.clock
    if (clock.record is None) != (clock.last is None):
        raise BadInput("record and last must be given together", field="clock", hint="take the file as it was")
    if len({one.participant for one in clock.participants}) != len(clock.participants):
        raise BadInput("names a participant twice", field="clock.participants", hint="take the file as it was")
    if max([clock.last or 0, *(one.last for one in clock.participants)]) > head.epoch:
        raise BadInput("has a reset after its own epoch", field="clock", hint="take the file as it was")


def check_follows(previous: Previous, scheme: Scheme, epoch: int) -> None:
    """Refuse a settlement of another competition, or one that is not of an earlier epoch; raises BadInput. SPEC 4."""
    if previous.scheme != scheme.name:
        raise BadInput(
            f"is a settlement of {previous.scheme!r}, this competition is {scheme.name!r}",
            field="scheme.name",
            hint="give an earlier settlement of this competition",
        )
    if previous.epoch >= epoch:
        raise BadInput(
            f"is a settlement of epoch {previous.epoch}, and epoch {epoch} is being settled",
            field="epoch",
            hint="give the settlement of an earlier epoch",
        )
