"""Schemes, records, and whole settlements. SPEC 2–7."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from assay import folder
from assay.conformance.kinds.kind import kind, whole_input
from assay.folder import strict
from assay.records import record as read_record
from assay.scheme.fields import Rao, Section, Share
from assay.scheme.model import Scheme
from assay.scheme.reading import validate
from assay.scheme.subnet import Subnet
from assay.settle import settle as settled
from assay.settle.emission import part, split

__all__ = ["emission", "record", "scheme", "settle"]

Json = dict[str, Any]


class _Scheme(Section):
    scheme: Any


@kind(_Scheme)
def scheme(given: _Scheme) -> Json:
    """A scheme (its TOML as JSON) with defaults filled in and fractions normalised, and its digest. SPEC 6, 7."""
    found = validate(Scheme, given.scheme)
    return {"document": found.document(), "digest": found.digest}


class _Record(Section):
    record: Any


@kind(_Record)
def record(given: _Record) -> Json:
    """A record of evidence with defaults filled in and fractions normalised, without `seq`, and its digest. SPEC 6, 7."""
    strict.check(given.record)
    found = read_record(given.record)
    return {"document": found.document(), "digest": found.digest}


@whole_input
def settle(given: Any) -> Json:
    """Scheme, registry and evidence of one epoch into the settlement, digest included. SPEC 2–7."""
    return settled(folder.parse_case(given)).document


class _Competition(Section):
    share: Share
    case: dict[str, Any]


class _Subnet(Section):
    encoding: Literal["round", "exact-sum", "max-upscale"] = "round"
    burn_uid: Annotated[int, Field(ge=0, le=65_535)] = 0
    emission: Rao | None = None
    unearned: Literal["burn", "others"] = "burn"


class _Emission(Section):
    subnet: _Subnet
    competitions: Annotated[tuple[_Competition, ...], Field(strict=False, min_length=1)]


@kind(_Emission)
def emission(given: _Emission) -> Json:
    """The rules of a subnet file and the case of each of its competitions into the emission split, digest included. SPEC 4."""
    plain = given.model_dump(mode="json", exclude_none=True)
    members = [{"path": str(place), "share": one["share"]} for place, one in enumerate(plain["competitions"])]
    rules = validate(Subnet, {**plain["subnet"], "competitions": members})
    return split(rules, [part(settled(folder.parse_case(one.case))) for one in given.competitions]).document
