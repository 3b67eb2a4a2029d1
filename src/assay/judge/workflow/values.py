"""Parses, compares and writes the JSON of services, with exact numbers.

A number is a Python int or Decimal, never a float, so 0.1 is 0.1. JSON that two readers could understand differently is refused.
Two values are equal if they have the same structure, strings and numbers. The order of keys and the spelling of numbers do not
matter: 1.0 equals 1, but `true` does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from hashlib import sha256
from typing import Any

from assay.errors import BadInput
from assay.folder import strict
from assay.judge.workflow.limits import NUMBER

__all__ = ["at", "digest", "dumps", "equal", "leaves", "parse", "shown"]

Path = tuple[str | int, ...]


def parse(data: bytes) -> Any:
    """The value in UTF-8 JSON. Raises BadInput for other bytes, a repeated key, a NaN, a huge number, and too much depth."""
    try:
        return strict.parse(data.decode("utf-8"), (_integer, _fraction))
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8") from None
    except BadInput as error:  # without its hint, which is for the author of a file
        raise BadInput(error.what) from None


def dumps(value: Any) -> bytes:
    """The value as JSON on one line, with sorted keys, and numbers as they were written."""
    return "".join(_pieces(value)).encode()


def digest(data: bytes) -> str:
    """`sha256:…` of bytes."""
    return f"sha256:{sha256(data).hexdigest()}"


def shown(value: Any) -> str:
    """The value as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else dumps(value).decode()


def equal(value: Any, other: Any) -> bool:
    """Whether two values have the same structure, strings, booleans and numbers."""
    return dict(leaves(value)) == dict(leaves(other))


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, tuple[str, Any]]]:
    """Every field without fields in it, including empty lists and objects: its path, and (kind, value)."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path, _leaf(value)


def at(value: Any, path: tuple[str, ...]) -> Any:
    """The value at a path of keys and list indices. Raises LookupError with the part that does not exist."""
    for place, part in enumerate(path):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(value):
            value = value[int(part)]
        else:
            raise LookupError(".".join(path[: place + 1]))
    return value


def _leaf(value: Any) -> tuple[str, Any]:
    if isinstance(value, bool) or value is None:
        return str(value), None
    if isinstance(value, int | Decimal):
        return "number", value
    return type(value).__name__, value if isinstance(value, str) else None


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield "{"
        for place, key in enumerate(sorted(value)):
            yield f"{',' if place else ''}{_string(key)}:"
            yield from _pieces(value[key])
        yield "}"
    elif isinstance(value, list):
        yield "["
        for place, inner in enumerate(value):
            if place:
                yield ","
            yield from _pieces(inner)
        yield "]"
    elif isinstance(value, str):
        yield _string(value)
    elif value is None or isinstance(value, bool):
        yield "null" if value is None else "true" if value else "false"
    else:
        yield str(value)


def _string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _integer(digits: str) -> int:
    if len(digits) > NUMBER:
        raise BadInput(f"has a number of {len(digits)} characters, the most are {NUMBER}")
    return int(digits)


def _fraction(digits: str) -> Decimal:
    exponent = digits.lower().partition("e")[2].lstrip("+-").lstrip("0")
    if len(digits) > NUMBER or len(exponent) > 3 or int(exponent or 0) > NUMBER:
        raise BadInput(f"has a number with more than {NUMBER} characters or powers of ten")
    return Decimal(digits)
