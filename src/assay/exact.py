"""Integers that stand for fractions. SPEC 1.

- A score is a count of nanos: 0 … 1 000 000 000 stands for 0 … 1. A BPS is a count of ten-thousandths.
- A fraction is written as a decimal string without sign or exponent and with at most nine fractional digits.
- A stage rounds once, when it ends: half to even unless a rule says floor or halves up. Shares stay ratios of integers.
- An amount that must be given out whole is apportioned by largest remainder.

Nothing here uses a binary float.
"""

from __future__ import annotations

import decimal
import hashlib
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import rfc8785

from assay.errors import BadInput, brief

__all__ = [
    "BPS",
    "LARGEST",
    "NANO",
    "RAO",
    "U16",
    "WEI",
    "apportion",
    "canonical",
    "coins",
    "digest",
    "half_even",
    "half_up",
    "nanos",
    "share_text",
    "softmax",
    "text",
    "whole",
]

NANO = 1_000_000_000
BPS = 10_000
U16 = 65_535
LARGEST = 2**53 - 1
"""The largest integer that canonical JSON (RFC 8785) writes; what counts things or epochs stays within it."""
RAO, WEI = 9, 18
"""Decimals of TAO and of ether."""
DIGITS = 9
INTEGER_DIGITS = 78
"""Enough for 2^256 − 1, the largest amount of wei."""

_DECIMAL = re.compile(r"([0-9]+)(?:\.([0-9]+))?", re.ASCII)
_TRAPS = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow]


def _context(digits: int) -> decimal.Context:
    """Nothing in it comes from decimal.DefaultContext, which a program may have changed."""
    emin, emax = decimal.MIN_EMIN, decimal.MAX_EMAX
    return decimal.Context(digits, decimal.ROUND_HALF_EVEN, emin, emax, capitals=1, clamp=0, flags=[], traps=_TRAPS)


_EXP, _SHIFT = _context(50), _context(400)


def nanos(value: object) -> int:
    """The nanos of a decimal string such as "0.8"; raises BadInput for anything else, a JSON number included. SPEC 1."""
    if not isinstance(value, str):
        raise BadInput(f"{_named(value)} is not a decimal string", hint='write the number in quotes, for example "0.8"')
    match = _DECIMAL.fullmatch(value) if len(value) <= INTEGER_DIGITS + DIGITS + 1 else None
    if match is None:
        raise BadInput(
            f"{brief(value)} is not a decimal number", hint='use digits and at most one point, no sign or exponent: "0.8"'
        )
    integer, fraction = match[1], match[2] or ""
    if len(fraction) > DIGITS:
        raise BadInput(f"{brief(value)} has more than nine fractional digits", hint="round it to nanos, 0.000000001")
    return int(integer) * NANO + int(fraction.ljust(DIGITS, "0"))


def whole(value: object, bits: int) -> int:
    """The integer of digits such as "100", below 2^bits: stake has 63 bits, wei 256; raises BadInput. SPEC 1."""
    if not isinstance(value, str):
        raise BadInput(f"{_named(value)} is not a string of digits", hint='write the integer in quotes, for example "100"')
    if len(value) > INTEGER_DIGITS or re.fullmatch("[0-9]+", value, re.ASCII) is None:
        raise BadInput(
            f"{brief(value)} is not a whole number of at least 0", hint="use digits only: no sign, point, comma or exponent"
        )
    if int(value) >> bits:
        raise BadInput(f"{brief(value)} is too large", hint=f"the largest is {2**bits - 1}")
    return int(value)


def text(count: int, digits: int = DIGITS) -> str:
    """The normalised decimal string of a count of nanos (or another power of ten): 800000000 → "0.8"; undoes `nanos`."""
    integer, fraction = divmod(count, 10**digits)
    return f"{integer}.{fraction:0{digits}d}".rstrip("0") if fraction else str(integer)


def coins(amount: str | int, decimals: int) -> str:
    """An amount of a chain's smallest unit in its coin, exactly: wei in ether (18 decimals), rao in TAO (9)."""
    return text(int(amount), decimals)


def half_even(numerator: int, denominator: int) -> int:
    """numerator / denominator (at least 0, above 0), rounded to an integer, halves to the even one. SPEC 1."""
    quotient, rest = divmod(numerator, denominator)
    twice = 2 * rest
    return quotient + (twice > denominator or (twice == denominator and quotient % 2))


def share_text(share: Fraction) -> str:
    """An exact share as a decimal string: nanos, half to even. SPEC 1."""
    return text(half_even(share.numerator * NANO, share.denominator))


def half_up(numerator: int, denominator: int) -> int:
    """numerator / denominator (at least 0, above 0), rounded to an integer, halves up. SPEC 4, Encoding."""
    return (2 * numerator + denominator) // (2 * denominator)


def apportion(amount: int, parts: Sequence[int], denominator: int) -> list[int]:
    """`amount` given out whole over parts / denominator, which sum to 1: largest remainder, ties to the earlier. SPEC 1.

    Raises ValueError if the parts do not sum to the denominator: then there is no whole to give out.
    """
    if sum(parts) != denominator:
        raise ValueError("the parts do not sum to the whole")
    floors, rests = [], []
    for part in parts:
        quotient, rest = divmod(amount * part, denominator)
        floors.append(quotient)
        rests.append(rest)
    for index in sorted(range(len(parts)), key=lambda i: -rests[i])[: amount - sum(floors)]:
        floors[index] += 1
    return floors


def softmax(scores: Sequence[int], temperature: int) -> list[int]:
    """Integers in the exact ratio of e^((s − s_max)/T): scores and T in nanos, exp in 50 significant digits. SPEC 1, 4.

    T is at least 0.01, so that no exponent is below −100 and none of the integers is 0. No scores: none.
    """
    top = max(scores, default=0)
    powers = {s: _EXP.exp(_EXP.divide(decimal.Decimal(s - top), decimal.Decimal(temperature))) for s in set(scores)}
    shift = -min((exponent for p in powers.values() if isinstance(exponent := p.as_tuple().exponent, int)), default=0)
    integers = {s: int(p.scaleb(shift, context=_SHIFT)) for s, p in powers.items()}
    return [integers[s] for s in scores]


def canonical(document: Any) -> bytes:
    """The canonical JSON of a document (RFC 8785). SPEC 6."""
    return rfc8785.dumps(document)


def digest(document: Any) -> str:
    """`sha256:` and the SHA-256 of the canonical JSON. SPEC 6."""
    return f"sha256:{hashlib.sha256(canonical(document)).hexdigest()}"


def _named(value: object) -> str:
    kinds = {
        bool: "a boolean",
        int: "a JSON integer",
        float: "a JSON float",
        type(None): "null",
        list: "a list",
        dict: "an object",
    }
    kind = kinds.get(type(value), type(value).__name__)
    return f"{kind} ({brief(value)})" if isinstance(value, int | float) and not isinstance(value, bool) else kind
