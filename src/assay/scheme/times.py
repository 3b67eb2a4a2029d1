"""Times as instants: RFC 3339 with a time zone. SPEC 1, 7."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from assay.errors import BadInput, brief
from assay.scheme.fields import refused

__all__ = ["Instant", "instant", "instant_text"]

_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"  # what RFC 3339 allows; each version of Python takes something else
_RFC3339 = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)[Tt ]({_CLOCK}):([0-5]\d)(?:\.(\d{{1,9}}))?(?:[Zz]|([+-])({_CLOCK}))", re.ASCII)


def instant(value: object) -> datetime:
    """The instant of an RFC 3339 time such as "2026-11-02T09:00:00Z", in UTC, to the microsecond; raises BadInput."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    hint = 'write it as in "2026-11-02T09:00:00Z"'
    found = _RFC3339.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise BadInput(f"{brief(value)} is not a time with a time zone", hint=hint)
    year, month, day, clock, second, digits, sign, offset = found.groups()
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


Instant = Annotated[datetime, BeforeValidator(_read), PlainSerializer(instant_text, return_type=str)]
"""A field that holds an instant."""
