"""The types of value in a scheme, and how each is written in TOML. SPEC 1, 7."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from assay.characters import PATTERN, allowed
from assay.errors import BadInput, brief
from assay.exact import BPS, LARGEST, NANO, nanos, text, whole

__all__ = [
    "LINE",
    "Bps",
    "Count",
    "Digest",
    "Duration",
    "Epoch",
    "Hex32",
    "Instant",
    "Key",
    "Nanos",
    "OneLine",
    "Rao",
    "SealKey",
    "Section",
    "Share",
    "Text",
    "Wei",
    "Whole",
    "checked",
    "instant",
    "instant_text",
    "refused",
]


class Section(BaseModel):
    """A table of a scheme: frozen, strict, and closed against keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=False)


def refused(error: BadInput) -> PydanticCustomError:
    """A BadInput as an error that pydantic can carry; `reading.refusal` makes it a BadInput again."""
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
"""A number of things."""

Whole = Annotated[int, Field(ge=0, le=LARGEST)]
"""A whole number without a tighter limit: of blocks, bytes, steps."""

Epoch = Whole
"""The number of an epoch."""

Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
"""The SHA-256 digest of bytes, as `sha256:` and 64 hexadecimal digits."""

Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""32 bytes as 64 hexadecimal digits."""

SealKey = Annotated[str, Field(pattern="^x25519:[0-9a-f]{64}$")]
"""A public key to which something is sealed."""


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
"""An identifier: 1 to 256 characters (code points) that `assay.characters` allows."""


_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"  # what RFC 3339 allows; each version of Python takes something else
_RFC3339 = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)[Tt ]({_CLOCK}):([0-5]\d)(?:\.(\d{{1,9}}))?(?:[Zz]|([+-])({_CLOCK}))", re.ASCII)


def instant(value: object) -> datetime:
    """The instant of an RFC 3339 time such as "2026-11-02T09:00:00Z", in UTC, to the microsecond; raises BadInput."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    hint = 'write it as in "2026-11-02T09:00:00Z"'
    match = _RFC3339.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise BadInput(f"{brief(value)} is not a time with a time zone", hint=hint)
    year, month, day, clock, second, digits, sign, offset = match.groups()
    if (digits or "")[6:].strip("0"):
        raise BadInput(f"{value!r} is finer than microseconds", hint="use at most six digits after the seconds")
    try:
        minutes = (-1 if sign == "-" else 1) * _minutes(offset) if offset else 0
        hour, minute = divmod(_minutes(clock), 60)
        fraction = int((digits or "")[:6].ljust(6, "0"))
        local = datetime(int(year), int(month), int(day), hour, minute, int(second), fraction, UTC)
        return local - timedelta(minutes=minutes)
    except (ValueError, OverflowError):
        raise BadInput(f"{value!r} is not a time", hint=hint) from None


def _minutes(clock: str) -> int:
    return 60 * int(clock[:2]) + int(clock[3:])


def instant_text(value: datetime) -> str:
    """The instant as canonical RFC 3339 in UTC, without a fraction where it is zero."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _read(value: object) -> datetime:
    try:
        return instant(value)
    except BadInput as error:
        raise refused(error) from None


READ_INSTANT = BeforeValidator(_read)
CANONICAL_INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{6})?Z$"
"""What `instant_text` writes: pydantic reads it as we do."""
Instant = Annotated[datetime, READ_INSTANT, PlainSerializer(instant_text, return_type=str)]
"""A field that holds an instant."""


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhd])", re.ASCII)


def _duration(value: object) -> int:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        hint = 'write a whole number with its unit, such as "90s", "72m", "24h" or "7d"'
        raise BadInput(f"{brief(value)} is not a duration", hint=hint)
    return int(match[1]) * _UNITS[match[2]]


Duration = Annotated[
    int,
    checked(_duration),
    PlainSerializer(lambda value: f"{value}s", return_type=str),
    WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]{0,8}[smhd]$"}),
]
"""A duration of at least a second, kept as whole seconds, written as "90s", "72m", "24h" or "7d"."""
