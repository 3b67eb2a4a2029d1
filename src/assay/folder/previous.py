"""Reads the parts of an earlier settlement that the next one needs: scheme, epoch, task set, clocks. SPEC 4, 6."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, create_model

from assay import tables
from assay.errors import BadInput
from assay.exact import digest
from assay.folder import strict
from assay.folder.files import SETTLEMENT_BYTES, decode, load
from assay.records import Fraction, Submission
from assay.scheme.fields import Digest, Epoch, Key, Section, Whole
from assay.scheme.model import Scheme
from assay.scheme.reading import refusal
from assay.settle.document import SCHEMA, SETTLEMENT
from assay.settle.inputs import Clock, Own, Previous
from assay.tables import Holds

__all__ = ["check_follows", "previous_of", "read"]

Number = Annotated[str, Field(pattern=r"^[0-9]{1,90}(\.[0-9]{1,9})?$")]


_HOLDS: Mapping[Holds, Any] = {
    Holds.KEY: Key,
    Holds.TEXT: str,
    Holds.SUBMISSION: Submission,
    Holds.WORD: str,
    Holds.SCORE: Fraction,
    Holds.SHARE: Number,
    Holds.FRACTION: Number,
    Holds.STAKE: Number,
    Holds.AMOUNT: Number,
    Holds.BPS: Whole,
    Holds.COUNT: Whole,
    Holds.PLACE: Whole,
    Holds.U16: Whole,
    Holds.EPOCH: Epoch,
    Holds.FLAG: bool,
    Holds.DIGEST: Digest,
    Holds.WORK: dict[str, Number | Whole | bool | str | None],
    Holds.KEYS: Annotated[tuple[Key, ...], Field(strict=False)],
}


def _model(name: str, columns: Iterable[tables.Field], **more: Any) -> Any:
    """The pydantic model of a settlement's object with exactly these columns."""
    fields: dict[str, Any] = {column.name: _field(column) for column in columns}
    return create_model(name, __base__=Section, **more, **fields)


def _field(column: tables.Field) -> tuple[Any, Any]:
    """The type and the default of a column's value, for pydantic."""
    if column.holds is Holds.ROWS:
        return GenericAlias(tuple, (_model(column.name, column.columns), ...)), Field(strict=False)
    kind = _model(column.name, column.columns) if column.holds is Holds.OBJECT else _HOLDS[column.holds]
    return kind | None if column.null or None in column.words else kind, None if column.optional else ...


_Settlement = _model("settlement", SETTLEMENT, kind=(Literal["assay.settlement/1"], Field(alias="schema")), digest=(Digest, ...))
"""The model of a whole settlement. Every field is checked, because an unchecked one could not be relied on. SPEC 6."""


def read(path: Path) -> Previous:
    """The state that the next epoch needs of the settlement in a JSON file. Raises BadInput as `previous_of`, and for no JSON."""
    text = decode(load(path, SETTLEMENT_BYTES, hint="give the file that an earlier `assay settle --json` wrote"), path)
    try:
        return previous_of(strict.parse(text))
    except BadInput as error:
        error.at(file=path)
        raise


def previous_of(document: Any) -> Previous:
    """The state that the next epoch needs of a settlement document.

    Raises BadInput if it is not a settlement, has an unknown or missing field, or a wrong digest or clock. SPEC 6.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BadInput(f"is not a settlement ({SCHEMA})", field="schema", hint="give the file that `assay settle --json` wrote")
    strict.check(document)
    try:
        head = _Settlement.model_validate(document)
    except ValidationError as error:
        raise refusal(error, _Settlement) from None
    computed = digest({key: value for key, value in document.items() if key != "digest"})
    if computed != head.digest:
        raise BadInput(
            f"the settlement was changed after it was made: its digest is {computed}",
            field="digest",
            hint="take the file as it was",
        )
    _makes_sense(head)
    own = {entry.participant: Own(entry.submission, entry.best, entry.last) for entry in head.clock.participants}
    clock = Clock(head.clock.record, head.clock.last, head.clock.submission, own)
    return Previous(head.scheme.name, head.epoch, head.task_set, clock)


def _makes_sense(head: Any) -> None:
    clock = head.clock
    if (clock.record is None) != (clock.last is None):
        raise BadInput("record and last must be given together", field="clock", hint="take the file as it was")
    if len({entry.participant for entry in clock.participants}) != len(clock.participants):
        raise BadInput("names a participant twice", field="clock.participants", hint="take the file as it was")
    if max([clock.last or 0, *(entry.last for entry in clock.participants)]) > head.epoch:
        raise BadInput("has a reset after its own epoch", field="clock", hint="take the file as it was")


def check_follows(previous: Previous, scheme: Scheme, epoch: int) -> None:
    """Refuse a settlement of another competition, or of an epoch that is not earlier. Raises BadInput. SPEC 4."""
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
