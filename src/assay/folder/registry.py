"""Participants, validators, history and randomness: rows checked one by one, then against each other. SPEC 1, 7."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from assay.errors import BadInput
from assay.folder.limits import LISTED_ROWS, PAIRS, PARTICIPANTS, UIDS, VALIDATORS
from assay.folder.places import Place, Row
from assay.records import Epoch, Fraction, History, Participant, Submission, Validator
from assay.scheme.fields import LINE, Key, OneLine, Rao, Section, refused
from assay.scheme.model import Scheme
from assay.scheme.reading import refusal
from assay.scheme.times import Instant

__all__ = ["ROWS", "history", "not_after", "participants", "randomness", "validators"]

S = TypeVar("S", bound=Section)


def _empty(value: object) -> object:
    return "" if value is None else value


def _absent(value: object) -> object:
    return None if value == "" else value


def _address(value: object) -> object:
    if isinstance(value, str) and re.fullmatch("0x[0-9a-fA-F]{40}", value, re.ASCII) is None:
        raise refused(BadInput(f"{value[:60]!r} is not an EVM address", hint="write 0x and 40 hex digits, or leave it empty"))
    return value


def _bytes32(value: object) -> object:
    if isinstance(value, str) and re.fullmatch("[0-9a-fA-F]{64}", value, re.ASCII) is None:
        raise refused(BadInput(f"{value[:80]!r} is not 32 bytes in hex", hint="write 64 hex digits, without 0x"))
    return value


Label = Annotated[str, Field(max_length=4096, json_schema_extra=LINE), OneLine, BeforeValidator(_empty)]
Digest = Annotated[Submission, BeforeValidator(_empty)]


class _Participant(Section):
    key: Key
    uid: Annotated[int, Field(ge=0, lt=UIDS)] | None = None
    name: Label = ""
    submission: Digest = ""
    submitted_at: Annotated[Instant | None, BeforeValidator(_absent)] = None
    last_reset_epoch: Epoch | None = None
    accepted_epoch: Epoch | None = None
    address: Annotated[Annotated[str, BeforeValidator(_address)] | None, BeforeValidator(_absent)] = None


class _Validator(Section):
    key: Key
    stake: Rao
    name: Label = ""


class _History(Section):
    epoch: Epoch
    top_score: Fraction
    submission: Digest = ""
    task_set: Digest = ""


class _Randomness(Section):
    epoch: Epoch
    hex: Annotated[str, BeforeValidator(_bytes32)]


ROWS: Mapping[str, type[Section]] = {
    "participants": _Participant,
    "validators": _Validator,
    "history": _History,
    "randomness": _Randomness,
}
"""Name of a table → what a row of it may hold."""


def participants(rows: Sequence[Row], place: Place, scheme: Scheme) -> tuple[Participant, ...]:
    """The participants in the order given; raises BadInput for no rows, a repeated key or uid, and the burn UID. SPEC 1, 4."""
    _some(rows, place, "participant", PARTICIPANTS)
    found = [_checked(row, _Participant) for row in rows]
    _unique("key", [row.key for row in found], rows)
    _unique("uid", [row.uid for row in found], rows)
    burn = None if scheme.decay is None else scheme.decay.burn_uid
    for row, given in zip(found, rows, strict=True):
        if burn is not None and row.uid == burn:
            raise given.place.refuse(
                f"{burn} is the burn UID", field="uid", hint="give the participant its own uid, or change decay.burn_uid"
            )
    return tuple(Participant(**{name: getattr(row, name) for name in _Participant.model_fields}) for row in found)


def validators(rows: Sequence[Row], place: Place, columns: int) -> tuple[Validator, ...]:
    """The validators in the order given; raises BadInput for no rows, a repeated key, and too many for `columns` participants."""
    _some(rows, place, "validator", VALIDATORS)
    if len(rows) * columns > PAIRS:
        raise place.refuse(
            f"{len(rows)} validators × {columns} participants are more than {PAIRS}", hint="make several competitions of it"
        )
    found = [_checked(row, _Validator) for row in rows]
    _unique("key", [row.key for row in found], rows)
    return tuple(Validator(row.key, row.stake, row.name) for row in found)


def history(rows: Sequence[Row], place: Place) -> tuple[History, ...]:
    """Earlier epochs, ascending; raises BadInput for an epoch that comes twice. SPEC 4, Decay."""
    _at_most(rows, place, LISTED_ROWS)
    found = [_checked(row, _History) for row in rows]
    _unique("epoch", [row.epoch for row in found], rows)
    return tuple(History(row.epoch, row.top_score, row.submission, row.task_set) for row in sorted(found, key=_epoch))


def randomness(rows: Sequence[Row], place: Place) -> Mapping[int, bytes]:
    """Epoch → its 32 public random bytes; raises BadInput for an epoch that comes twice. SPEC 3.0."""
    _at_most(rows, place, LISTED_ROWS)
    found = [_checked(row, _Randomness) for row in rows]
    _unique("epoch", [row.epoch for row in found], rows)
    return {row.epoch: bytes.fromhex(row.hex) for row in found}


def not_after(found: Sequence[Participant], rows: Sequence[Row], epoch: int) -> None:
    """Refuse a last reset that comes after the epoch being settled; raises BadInput. SPEC 1."""
    for participant, row in zip(found, rows, strict=True):
        last = participant.last_reset_epoch
        if last is not None and last > epoch:
            raise row.place.refuse(
                f"{last} is after the epoch being settled, {epoch}",
                field="last_reset_epoch",
                hint="leave it empty, or settle a later epoch",
            )


def _epoch(row: _History) -> int:
    return row.epoch


def _checked(row: Row, model: type[S]) -> S:
    try:
        return model.model_validate(row.fields)
    except ValidationError as error:
        raise row.place.put(refusal(error, model)) from None


def _some(rows: Sequence[Row], place: Place, what: str, most: int) -> None:
    if not rows:
        raise place.refuse(f"has no {what}", hint=f"there must be at least one {what}")
    _at_most(rows, place, most)


def _at_most(rows: Sequence[Row], place: Place, most: int) -> None:
    if len(rows) > most:
        raise place.refuse(f"has {len(rows)} rows; at most {most} are read", hint="make several competitions of it")


def _unique(name: str, values: Sequence[object], rows: Sequence[Row]) -> None:
    first: dict[object, Place] = {}
    for value, row in zip(values, rows, strict=True):
        if value is not None and first.setdefault(value, row.place) is not row.place:
            raise row.place.refuse(
                f"{value!r} is there twice, first at {first[value]}", field=name, hint="remove one of the two rows, or correct it"
            )
