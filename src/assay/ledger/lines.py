"""Records as lines of canonical JSON, many at once: read without a doubt about any byte, at a few microseconds a record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.evidence import parse
from assay.folder.limits import LINE_BYTES
from assay.folder.places import Place
from assay.records import KINDS, Evidence, record

__all__ = ["Kept", "bodies", "plain", "read"]

plain = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
"""The canonical JSON (RFC 8785) of what holds no fractions and no keys beyond ASCII, by Python's own encoder."""


class Kept(NamedTuple):
    """A record: its place in the order of acceptance (from 1), its digest (32 bytes), its canonical JSON without `seq`."""

    seq: int
    digest: bytes
    body: bytes


@cache
def _adapter(kind: str) -> TypeAdapter[list[Evidence]]:
    known: Any = KINDS
    return TypeAdapter(list[known[kind]])


def bodies(records: Sequence[Evidence], kind: str) -> list[bytes]:
    """The canonical JSON (RFC 8785) of records of one kind.

    Only what a rubric's judge said can hold numbers or keys that Python's own encoder writes otherwise.
    """
    if kind == "rubric":
        return [canonical(one.document()) for one in records]
    return [plain(one).encode() for one in _documents(records, kind)]


def _documents(records: Sequence[Evidence], kind: str) -> Any:
    return _adapter(kind).dump_python(list(records), mode="json", exclude_none=True, exclude={"__all__": {"seq"}})


def read(lines: Sequence[bytes], kind: str, file: Path | str | None, first: int) -> list[Evidence]:
    """The records on lines of canonical JSON, of one kind; `first` is the number of the first line.

    Raises BadInput with the line for one that is too long, no record of the kind, or not written in its canonical form.
    """
    longest = max(map(len, lines), default=0)
    if longest > LINE_BYTES:
        at = next(number for number, line in enumerate(lines, first) if len(line) == longest)
        raise BadInput(f"the line is longer than {LINE_BYTES} bytes", file=file, line=at, hint="write one record a line")
    return _together(lines, kind) or [_one(line, kind, Place(file, number)) for number, line in enumerate(lines, first)]


def _together(lines: Sequence[bytes], kind: str) -> list[Evidence]:
    """The records on lines, read and compared as one text; none if they must be looked at one by one.

    Of a kind that has no objects inside its records, "},{" stands between two of them. Where no line has it, the commas that join
    as many lines as there are records are those between the records: no line ends within one.
    """
    if kind == "rubric" or b"},{" in b"\n".join(lines):
        return []
    text = b"[" + b",".join(lines) + b"]"
    try:
        records = _adapter(kind).validate_json(text)
    except ValidationError:
        return []
    return records if len(records) == len(lines) and plain(_documents(records, kind)).encode() == text else []


def _one(line: bytes, kind: str, place: Place) -> Evidence:
    value = parse(line, place)
    found = value.get("kind") if isinstance(value, dict) else None
    if found != kind:
        raise place.refuse(f"is not of the kind {kind!r}", field="kind", hint="a batch has records of one kind")
    try:
        one = record(value)
    except BadInput as error:
        raise place.put(error) from None
    if canonical(one.document()) != line:
        raise place.refuse("is not in its canonical form", hint="sign the evidence again: assay evidence sign")
    return one
