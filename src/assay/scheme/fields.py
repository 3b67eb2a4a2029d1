"""The kinds of value a scheme is made of, and how each is written in TOML. SPEC 1, 7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PlainSerializer
from pydantic_core import PydanticCustomError

from assay.characters import PATTERN, allowed
from assay.errors import BadInput, brief
from assay.exact import BPS, NANO, nanos, text, whole

__all__ = ["LINE", "Bps", "Count", "Key", "Nanos", "OneLine", "Rao", "Section", "Share", "Text", "Wei", "checked", "refused"]


class Section(BaseModel):
    """A table of a scheme: frozen, strict, and closed against keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=False)


def refused(error: BadInput) -> PydanticCustomError:
    """An error of ours as pydantic carries it; `reading.refusal` takes it apart again."""
    return PydanticCustomError("assay", "{what}; {hint}", {"what": error.what, "hint": error.hint})


def checked(read: Callable[[object], int]) -> BeforeValidator:
    """A pydantic validator out of a function that raises BadInput."""

    def parse(value: object) -> int:
        try:
            return read(value)
        except BadInput as error:
            raise refused(error) from None

    return BeforeValidator(parse)


def _fraction(value: object) -> int:
    if isinstance(value, str) and value.endswith("%"):
        scaled = nanos(value[:-1])
        if scaled % 100:
            raise BadInput(f"{value!r} is finer than nanos", hint="use at most seven fractional digits before the %")
        return scaled // 100
    return nanos(value)


def _share(value: object) -> int:
    count = _fraction(value)
    if count > NANO:
        raise BadInput(f"{value!r} is more than 1", hint='write a share of the whole, such as "30%" or "0.3"')
    return count


Nanos = Annotated[
    int,
    checked(_fraction),
    PlainSerializer(text, return_type=str),
    Field(json_schema_extra={"pattern": "^[0-9]+(\\.[0-9]{1,9})?%?$"}),
]
"""A fraction of at least 0, kept as nanos, written as "0.3" or "30%"."""

Share = Annotated[
    int,
    checked(_share),
    PlainSerializer(text, return_type=str),
    Field(json_schema_extra={"pattern": "^[0-9]+(\\.[0-9]{1,9})?%?$"}),
]
"""A fraction from 0 to 1, kept as nanos, written as "0.3" or "30%"."""

Rao = Annotated[
    int,
    checked(lambda value: whole(value, 63)),
    PlainSerializer(str, return_type=str),
    Field(json_schema_extra={"pattern": "^[0-9]+$"}),
]
"""An amount of rao, 0 … 2^63 − 1, written as a string of digits."""

Wei = Annotated[
    int,
    checked(lambda value: whole(value, 256)),
    PlainSerializer(str, return_type=str),
    Field(json_schema_extra={"pattern": "^[0-9]+$"}),
]
"""An amount of wei (or rao), 0 … 2^256 − 1, written as a string of digits."""

Bps = Annotated[int, Field(ge=0, le=BPS)]
"""Ten-thousandths of the whole, an integer from 0 to 10 000."""

Count = Annotated[int, Field(ge=0, le=10**9)]
"""A plain number of things."""


def _allowed(value: Any) -> Any:
    if isinstance(value, str) and not allowed(value):
        raise refused(BadInput(f"{brief(value)} has a character that cannot be printed", hint="write it in one line, without it"))
    return value


OneLine = BeforeValidator(_allowed)
"""Text without the characters that `assay.characters` refuses; LINE says it to the schema."""
LINE: dict[str, JsonValue] = {"not": {"pattern": PATTERN}}


Text = Annotated[str, Field(max_length=4096)]
"""Free text for the reader."""

Key = Annotated[str, Field(min_length=1, max_length=256, json_schema_extra=LINE), OneLine]
"""A name that things are joined by: 1 to 256 characters (code points) of `assay.characters`."""
