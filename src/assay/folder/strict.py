"""Parses JSON strictly: it refuses everything that two readers could understand differently. SPEC 1.

- An object must not have a key twice.
- NaN and Infinity are not JSON, and a number must not be too large for a float.
- Integers stay within ±(2^53 − 1), as in canonical JSON; larger ones are written as strings.
- A lone surrogate is not text.
- Objects and lists are nested at most `files.DEPTH` deep.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from assay.errors import BadInput
from assay.exact import LARGEST
from assay.folder.files import DEPTH, decode, load

__all__ = ["NOTE_BYTES", "check", "load_note", "parse", "unique"]

Numbers = tuple[Callable[[str], Any], Callable[[str], Any]]
"""The functions that read the text of an integer, and of a fraction."""
NOTE_BYTES = 10_000_000
"""Bytes of a note: the largest is a node's status, with a line for each alarm and each missing result."""


def parse(text: str, numbers: Numbers | None = None) -> Any:
    """The value of a JSON text. Raises BadInput without a place: the caller knows it.

    numbers: read integers and fractions, instead of as int and float within the bounds above.
    """
    try:
        value = (_DECODER if numbers is None else _decoder(*numbers)).decode(text)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
            if error.lineno > 1
            else f"is not JSON: {error.msg} (column {error.colno})",
            hint="correct it there; if the end is missing, write the file again",
        ) from None
    except RecursionError:
        raise _too_deep("") from None
    if "\\u" in text or text.count("{") + text.count("[") > DEPTH:
        check(value, numbers=numbers is None)
    return value


def load_note(path: Path, most: int = NOTE_BYTES) -> dict[str, Any]:
    """Read a JSON object that a process noted for itself; empty if it is missing, larger than `most` bytes, or not an object.

    Only for a note that may be lost: whoever reads it works it out anew, or goes on without it.
    """
    try:
        note = parse(decode(load(path, most, hint=""), path))
    except BadInput:
        return {}
    return note if isinstance(note, dict) else {}


def check(value: Any, field: str = "", depth: int = 0, *, numbers: bool = True) -> None:
    """Refuse a value that `parse` would refuse, if it was not parsed here. Raises BadInput with the field.

    numbers: whether numbers are checked too.
    """
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise BadInput("contains a lone surrogate", field=field, hint="write whole characters, as UTF-8 or as a pair of \\u")
    elif isinstance(value, dict | list):
        if depth == DEPTH:
            raise _too_deep(field)
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            if isinstance(value, dict):
                if not isinstance(key, str):
                    raise BadInput(f"the key {key!r} is not a string", field=field, hint="keys of JSON objects are strings")
                check(key, field, depth + 1, numbers=numbers)
                check(inner, f"{field}.{key}" if field else key, depth + 1, numbers=numbers)
            else:
                check(inner, f"{field}[{key}]", depth + 1, numbers=numbers)
    elif isinstance(value, int | Decimal) and not numbers:
        return
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise BadInput(f"{value} is not a JSON number", field=field, hint="leave it out, or correct what wrote it")
    elif isinstance(value, int):
        if abs(value) > LARGEST:
            raise _too_large(field)
    elif value is not None:
        raise BadInput(
            f"a {type(value).__name__} is not JSON", field=field, hint="use strings, numbers, booleans, lists, objects"
        )


def _too_deep(field: str) -> BadInput:
    outermost = field.partition(".")[0].partition("[")[0]
    return BadInput("is nested too deeply", field=outermost, hint=f"objects and lists may be {DEPTH} deep")


def _too_large(field: str = "") -> BadInput:
    return BadInput(f"an integer is beyond ±{LARGEST}", field=field, hint="write large amounts as strings of digits")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object from its pairs. Raises BadInput for a key that occurs twice."""
    document = dict(pairs)
    if len(document) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise BadInput(f"has the key {twice[:80]!r} twice in one object", hint="keep one of the two")
    return document


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) <= 17 else LARGEST + 1
    if abs(value) > LARGEST:
        raise _too_large()
    return value


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise BadInput(f"{digits[:40]} is too large for a number", hint="write fractions as decimal strings")
    return value


def _constant(name: str) -> NoReturn:
    raise BadInput(f"{name} is not JSON", hint="leave it out, or correct what wrote it")


def _decoder(integer: Callable[[str], Any], fraction: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=unique, parse_int=integer, parse_float=fraction, parse_constant=_constant)


_DECODER = _decoder(_integer, _float)
