"""Read the lines of a batch's records as columns, without a Python object for each record. SPEC 6, 7.

    the kind's model ─▶ a pattern of its canonical lines ─▶ the fields that the intake needs, of all lines at once

Canonical JSON spells each value in one way. So a regular expression can say what a right line is: the fields in their order, each
in its one spelling and within its bounds. The pattern is made from the schema with which pydantic checks records. It takes
nothing that the model refuses, and no other spelling. It leaves out what is right and rare, for example a number with as many
digits as its bound, or an escape. Lines that it does not take are read one by one, which names what is wrong with them.

Where a model has a rule that no pattern can say (`Workflow`: a task that ran has steps), the pattern says only that the lines are
canonical, and the model reads them too. A model with anything that is unknown here has no pattern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from assay.characters import allowed
from assay.exact import LARGEST, canonical, text
from assay.kind import find
from assay.records import READ_AMOUNT, READ_FRACTION, Evidence
from assay.scheme.fields import READ_INSTANT, OneLine, instant_text

__all__ = ["RecordColumns", "columns_of", "decides", "matched"]


class RecordColumns(NamedTuple):
    """The fields of records of one kind that the intake compares, as parallel columns of UTF-8."""

    epochs: Sequence[bytes]
    validators: Sequence[bytes]
    participants: Sequence[bytes]
    submissions: Sequence[bytes]
    parts: tuple[Sequence[bytes], ...]
    """The fields that `Record.parts` names."""


_NAMES = ("epoch", "validator", "participant", "submission")


def columns_of(records: Sequence[Evidence]) -> RecordColumns:
    """The columns of records of one kind."""
    parts = type(records[0]).parts if records else ()
    columns = [[str(value).encode() for value in map(attrgetter(name), records)] for name in (*_NAMES, *parts)]
    epochs, validators, participants, submissions, *others = columns
    return RecordColumns(epochs, validators, participants, submissions, tuple(others))


def matched(lines: Sequence[bytes], kind: str) -> RecordColumns | None:
    """The columns of lines that are canonical records of a kind, by its pattern; None if one is not, or there is no pattern.

    If `decides(kind)`, the model takes each of these lines; otherwise it may still refuse one.
    """
    pattern = _line_pattern(kind)
    if pattern is None:
        return None
    text = b"\n".join(lines)
    rows = pattern.lines.findall(text) if text.count(b"\n") == len(lines) - 1 else []
    if len(rows) != len(lines) or not rows or not _one_line_texts(text):  # as many matches as lines: each is a line
        return None
    columns = list(zip(*rows, strict=True))
    if not all(map(_is_date, {day for at in pattern.days for day in columns[at]})):
        return None
    epochs, validators, participants, submissions, *parts = (columns[at] for at in pattern.wanted)
    return RecordColumns(epochs, validators, participants, submissions, tuple(parts))


def decides(kind: str) -> bool:
    """Whether the pattern of a kind says everything that its model does."""
    pattern = _line_pattern(kind)
    return pattern is not None and pattern.decides


def _one_line_texts(text: bytes) -> bool:
    """Whether lines have no escape, and only characters that `assay.characters` takes."""
    if text.translate(None, _PLAIN):
        return False
    if text.isascii():
        return True
    try:
        return allowed(text.decode("utf-8").replace("\n", ""))
    except UnicodeDecodeError:
        return False


def _is_date(day: bytes) -> bool:
    try:
        date(int(day[:4]), int(day[5:7]), int(day[8:]))
    except ValueError:
        return False
    return True


class _LinePattern(NamedTuple):
    """The pattern of the lines of a kind; the places of its groups with the fields of `RecordColumns`, and with dates."""

    lines: re.Pattern[bytes]
    decides: bool
    wanted: tuple[int, ...]
    days: tuple[int, ...]


class _Value(NamedTuple):
    """The pattern of a value within its quotes, if it has any; and its form: a text, an integer, a day (a group), or other."""

    inner: bytes
    form: str
    quotes: bytes = b""


Json = Mapping[str, Any]
_CONFIG = {"extra_fields_behavior": "forbid", "strict": True, "validate_default": False}
"""The configuration of a model whose fields say everything."""
_TEXT = b'[^"]'
"""A byte of a text, in lines that `_one_line_texts` takes. A character has one byte or more, so no text has more of them."""
_PLAIN = bytes({*range(0x20, 0x100), 0x0A} - {0x7F, 0x5C})
"""All bytes but control characters and the backslash, which begins an escape."""
_INSTANT = rb"([0-9]{4}-[0-9]{2}-[0-9]{2})T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.(?!000000)[0-9]{6})?Z"
_WRITTEN: Mapping[Any, tuple[Any, _Value]] = {
    READ_INSTANT.func: (instant_text, _Value(_INSTANT, "day", b'"')),
    READ_FRACTION.func: (text, _Value(rb"(?:0|1|0\.[0-9]{0,8}[1-9])", "other", b'"')),
    READ_AMOUNT.func: (text, _Value(rb"(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{0,8}[1-9])?", "other", b'"')),
}
"""Reader of a value from a text → its writer, and the pattern of what the writer gives."""


@cache
def _line_pattern(kind: str) -> _LinePattern | None:
    """The pattern of the canonical lines of a kind; None if its model has something that is unknown here."""
    rules = find(kind)
    fields, decides_ = _fields_of(rules.record.__pydantic_core_schema__)
    if not decides_ and not rules.in_bulk:  # a record of a kind in bulk is what its columns say, whatever the model adds
        return None
    wanted = (*_NAMES, *rules.record.parts)
    pieces, optional, groups, days = dict[str, bytes](), set[str](), list[str](), list[int]()
    for name in sorted(fields.keys() - {"seq"}):
        schema = fields[name]["schema"] if fields[name].keys() <= {"type", "schema", "metadata"} else {}
        value = _value(schema)
        if value is None:
            return None
        inner = re.escape(kind.encode()) if name == "kind" else value.inner
        if schema["type"] == "default" and schema["default"] is None:
            optional.add(name)
        if name in wanted:
            if name in optional or value.form not in ("text", "integer"):
                return None  # a slot has another text of it
            inner = b"(%b)" % inner
        if value.form == "day":
            days.append(len(groups))
        if name in wanted or value.form == "day":
            groups.append(name)
        pieces[name] = b'"%b":%b%b%b' % (name.encode(), value.quotes, inner, value.quotes)
    if not pieces.keys() >= {*wanted}:
        return None
    lines = re.compile(b"^%b$" % _object(pieces, optional), re.MULTILINE)
    return _LinePattern(lines, decides_, tuple(map(groups.index, wanted)), tuple(days))


def _object(pieces: Mapping[str, bytes], optional: set[str]) -> bytes:
    """The pattern of an object with these fields in their order, some of which may be missing."""
    last = max(pieces.keys() - optional)
    before = [b"(?:%b,)?" % pieces[name] if name in optional else b"%b," % pieces[name] for name in sorted(pieces) if name < last]
    after = [b"(?:,%b)?" % pieces[name] for name in sorted(pieces) if name > last]
    return rb"\{%b%b%b\}" % (b"".join(before), pieces[last], b"".join(after))


def _fields_of(schema: Json) -> tuple[Json, bool]:
    """The fields of a model by its schema, and whether they say everything; none if the schema has what is unknown here."""
    whole = schema["type"] != "function-after"
    if not whole:
        schema = schema["schema"]
    config = {name: value for name, value in schema.get("config", {}).items() if name != "title"}
    known = {"type", "cls", "schema", "config", "custom_init", "root_model", "metadata", "ref"}
    if schema["type"] != "model" or not schema.keys() <= known or config != _CONFIG or schema.get("custom_init"):
        return {}, whole
    inner = schema["schema"]
    if not inner.keys() <= {"type", "fields", "model_name", "computed_fields"} or inner.get("computed_fields"):
        return {}, whole
    return inner["fields"], whole


def _value(schema: Json) -> _Value | None:
    """The pattern of the values that a schema takes, as canonical JSON writes them; None if something in it is unknown here."""
    kind, names = schema.get("type"), schema.keys() - {"type", "metadata"}
    if kind in ("default", "nullable") and names <= {"schema", "default"}:
        return _value(schema["schema"])
    if kind == "function-before" and names <= {"function", "schema", "serialization"}:
        function = schema["function"]["function"]
        if function is OneLine.func and "serialization" not in schema:
            return _value(schema["schema"])
        writes, value = _WRITTEN.get(function, (None, None))
        return value if schema.get("serialization", {}).get("function") is writes else None
    least, most = schema.get("min_length", 0), schema.get("max_length", 0)
    if kind == "str" and names <= {"min_length", "max_length"} and least <= 1 <= most:
        return _Value(b"%b{%d,%d}" % (_TEXT, least, most), "text", b'"')
    if kind == "int" and names <= {"ge", "le"} and schema.get("ge", 0) in (0, 1) and 10 <= schema.get("le", 0) <= LARGEST:
        positive = b"[1-9][0-9]{0,%d}" % (len(str(schema["le"])) - 2)
        return _Value(positive if schema.get("ge") else b"(?:0|%b)" % positive, "integer")
    if kind == "bool" and not names:
        return _Value(b"(?:true|false)", "other")
    if kind == "literal" and names == {"expected"} and all(isinstance(word, str) for word in schema["expected"]):
        words = b"|".join(re.escape(canonical(word)[1:-1]) for word in schema["expected"])
        return _Value(b"(?:%b)" % words, "text", b'"')  # a word with an escape matches no line that is taken
    return None
