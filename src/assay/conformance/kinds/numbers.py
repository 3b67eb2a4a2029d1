"""Numbers, times and canonical JSON. SPEC 1, 6."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

import rfc8785
from pydantic import Field, TypeAdapter, ValidationError

from assay import exact
from assay.conformance.kinds.kind import Ratio, kind
from assay.errors import BadInput
from assay.folder import strict
from assay.records import Amount, Fraction
from assay.scheme import times
from assay.scheme.fields import Nanos, Section, Share, Wei
from assay.scheme.reading import refusal

__all__ = ["apportion", "canonical", "decimal", "instant"]

Json = dict[str, Any]


class _Decimal(Section):
    value: Any
    read_as: Annotated[Literal["score", "amount", "fraction", "share", "stake", "wei"], Field(alias="as")]


def _of(adapter: TypeAdapter[int], value: object) -> int:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise refusal(error, Section) from None


_READERS: Mapping[str, Any] = {
    "score": partial(_of, TypeAdapter(Fraction)),
    "amount": partial(_of, TypeAdapter(Amount)),
    "fraction": partial(_of, TypeAdapter(Nanos)),
    "share": partial(_of, TypeAdapter(Share)),
    "stake": lambda value: exact.whole(value, 63),
    "wei": lambda value: exact.whole(value, 256),
}


@kind(_Decimal)
def decimal(given: _Decimal) -> Json:
    """A number as it may be written: a score (0 to 1), an amount (money, seconds), a fraction or a share of a scheme (with or
    without %), stake in rao, wei; read into a count (nanos, rao, wei), and written again as the normalised text."""
    count = _READERS[given.read_as](given.value)
    return {"text": str(count) if given.read_as in ("stake", "wei") else exact.text(count), "count": str(count)}


class _Instant(Section):
    text: Any


@kind(_Instant)
def instant(given: _Instant) -> Json:
    """An RFC 3339 time as the instant in UTC, written canonically."""
    return {"utc": times.instant_text(times.instant(given.text))}


class _Canonical(Section):
    json_: Annotated[str, Field(alias="json", max_length=1_000_000)]


@kind(_Canonical)
def canonical(given: _Canonical) -> Json:
    """A JSON text into its canonical form (RFC 8785) and its digest; what two readers could take differently is refused."""
    document = strict.parse(given.json_)
    strict.check(document)
    try:
        return {"text": exact.canonical(document).decode(), "digest": exact.digest(document)}
    except rfc8785.CanonicalizationError as error:
        raise BadInput(f"has no canonical form ({error})", hint="write it as a string") from None


class _Apportion(Section):
    amount: Wei
    parts: Annotated[tuple[Ratio, ...], Field(strict=False, min_length=1)]


@kind(_Apportion)
def apportion(given: _Apportion) -> Json:
    """An amount given out whole over parts that sum to 1, by largest remainder, ties to the earlier."""
    if sum(given.parts) != 1:
        raise BadInput("the parts do not sum to 1", field="parts", hint="say where the rest goes")
    whole = 1
    for part in given.parts:
        whole *= part.denominator
    return {"amounts": [str(each) for each in exact.apportion(given.amount, [int(part * whole) for part in given.parts], whole)]}
