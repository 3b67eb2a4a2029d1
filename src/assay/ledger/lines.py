"""Records as lines of canonical JSON, many at once: read without a doubt about any byte, at a few microseconds a record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.evidence import parse
from assay.folder.limits import LINE_BYTES
from assay.folder.places import Place
from assay.records import KINDS, Evidence, record

__all__ = ["bodies", "plain", "read"]

plain = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
"""The canonical JSON (RFC 8785) of what holds no fractions and no keys beyond ASCII, by Python's own encoder."""


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
    documents = _adapter(kind).dump_python(list(records), mode="json", exclude_none=True, exclude={"__all__": {"seq"}})
    return [plain(one).encode() for one in documents]


def read(lines: Sequence[bytes], kind: str, file: Path | str | None, first: int) -> list[Evidence]:
    """The records on lines of canonical JSON, of one kind; `first` is the number of the first line.

    Raises BadInput with the line for one that is too long, no record of the kind, or not written in its canonical form.
    """
    longest = max(range(len(lines)), key=lambda at: len(lines[at]), default=0)
    if lines and len(lines[longest]) > LINE_BYTES:
        raise BadInput(
            f"the line is longer than {LINE_BYTES} bytes", file=file, line=first + longest, hint="write one record a line"
        )
    if kind != "rubric":
        try:
            records = _adapter(kind).validate_json(b"[" + b",".join(lines) + b"]")
        except ValidationError:
            records = []  # which line it is, and why, is found below
        if len(records) == len(lines) and bodies(records, kind) == list(lines):  # line by line: a line can end within a record
            return records
    return [_one(line, kind, Place(file, number)) for number, line in enumerate(lines, first)]


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
