"""JSON with nothing left to chance: what two readers could take differently is refused. SPEC 1.

- One object does not have one key twice.
- NaN and Infinity are not JSON, and a number too large for a float is no number.
- Integers stay within ±(2^53 − 1), as canonical JSON has them; larger ones are written as strings.
- A lone surrogate is not text.
- Objects and lists are inside one another at most `limits.DEPTH` deep.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NoReturn

from assay.errors import BadInput
from assay.exact import LARGEST
from assay.folder.files import DEPTH

__all__ = ["check", "parse", "unique"]

Numbers = tuple[Callable[[str], Any], Callable[[str], Any]]
"""How the text of an integer and that of a fraction are read."""


def parse(text: str, numbers: Numbers | None = None) -> Any:
    """The value that a JSON text stands for; raises BadInput without a place (a line of evidence has its own).

    numbers: how an integer and a fraction are read, if not as int and float within the bounds above.
    """
    try:
        value = (_DECODER if numbers is None else _decoder(*numbers)).decode(text)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
            if error.lineno > 1
            else f"is not JSON: {error.msg} (column {error.colno})",
            hint="if it is cut off, write it again whole",
        ) from None
    except RecursionError:
        raise _too_deep("") from None
    if "\\u" in text or text.count("{") + text.count("[") > DEPTH:
        check(value, numbers=numbers is None)
    return value


def check(value: Any, field: str = "", depth: int = 0, *, numbers: bool = True) -> None:
    """Refuse what `parse` would refuse in a value that did not come through it; raises BadInput with the field.

    numbers: also what it would refuse of numbers.
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
    """A JSON object out of its pairs; raises BadInput for a key that is there twice."""
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
