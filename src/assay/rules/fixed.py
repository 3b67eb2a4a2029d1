"""Numbers with 32 bits after the point, as Bittensor's chain computes with them (I32F32). SPEC 1: no binary float.

A number is the integer of its bits: 1 is 2^32. Products and conversions are rounded down, quotients toward zero, as the chain's
type does it; everything saturates at 2^31. Matrices are lists of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["BITS", "ONE", "U16", "Row", "columns", "divided", "exp", "normalized", "of_ratio", "proportion", "times"]

BITS = 32
ONE = 1 << BITS
U16 = 65_535
MOST, LEAST = (1 << 63) - 1, -(1 << 63)
Row = list[int]


def _clamped(value: int) -> int:
    return min(MOST, max(LEAST, value))


def of_ratio(above: int, below: int) -> int:
    """The number above / below, rounded toward zero; 0 if below is 0."""
    if below == 0:
        return 0
    sign = -1 if (above < 0) != (below < 0) else 1
    return _clamped(sign * (abs(above) << BITS) // abs(below)) if sign > 0 else _clamped(-((abs(above) << BITS) // abs(below)))


def times(first: int, second: int) -> int:
    """A product, rounded down."""
    return _clamped(first * second >> BITS)


def divided(above: int, below: int) -> int:
    """A quotient, rounded toward zero; 0 if the divisor is 0."""
    return of_ratio(above, below)


def proportion(value: int) -> int:
    """A number from 0 to 1 as a part of 65535, rounded down."""
    return min(U16, max(0, times(value, U16 << BITS) >> BITS))


def normalized(row: Sequence[int]) -> Row:
    """The numbers divided by their sum; as they are if that is 0."""
    whole = sum(row)
    return [divided(value, whole) for value in row] if whole else list(row)


def columns(matrix: Sequence[Sequence[int]]) -> list[Row]:
    """The transposed matrix."""
    return [list(column) for column in zip(*matrix, strict=True)]


def exp(value: int) -> int:
    """e to a number of at most 20, to the last bit but one: by powers of halves and a series with 96 bits."""
    limit = 20 << BITS
    value = min(limit, max(-limit, value))
    wide = 96
    part, halvings = value << (wide - BITS), 12
    part >>= halvings
    term = total = 1 << wide
    for count in range(1, 20):
        term = (term * part >> wide) // count
        total += term
    for _ in range(halvings):
        total = total * total >> wide
    return _clamped(total >> (wide - BITS))
