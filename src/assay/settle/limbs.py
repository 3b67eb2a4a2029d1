"""Sums of stake, and of stake times score, that are exact however large the stakes are. SPEC 1, 3.

A stake has up to 63 bits and a score 30, so neither sums of stakes nor products of the two fit into 64 bits. Stakes are cut up:

- into two words of 32 bits to be added: sums are int64 [2, …], the low word below 2^32, the high word whatever is left;
- into four limbs of 16 bits to be multiplied: Σ limb × score is int64 [4, …], one row for each place of 2^16, not carried.

The dot products run in float64, which is the fastest way on a processor, on integers only: every term and every partial sum
is an integer below 2^53, which a float64 holds exactly, so neither order nor fused multiplication can change a bit. The bounds:

- words: (2^32 − 1)·ROWS of 2^20 rows at a time < 2^52;
- limbs: (2^16 − 1)·10^9·PRODUCTS of 128 rows at a time < 2^53. Each chunk is then added as int64, which is safe for 2^17 rows and
  more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.exact import half_even
from assay.settle.inputs import Bools, Ints

__all__ = ["BITS", "Stakes", "at_least", "carried", "integers", "quotients", "split", "tally", "twice", "weighted", "wide"]

Floats = NDArray[np.float64]

BITS = 32
MASK = 2**BITS - 1
LIMB = 16
ROWS = 2**20
PRODUCTS = 128

# A quotient of sums taken in float64 has at most eight roundings of 2^-53; at most 10^9 < 2^30, it is off by less than 2^-19.
_PLACES = 2.0 ** (LIMB * np.arange(4))
_WORDS = 2.0 ** (BITS * np.arange(2))
_DOUBT = 2.0**-18


@dataclass(frozen=True, eq=False)
class Stakes:
    """The stakes of V validators, cut up."""

    words: Ints
    """[2, V], lowest first."""
    tallied: Floats
    """[3, V], integers: 1 to count by, and the words to add up."""
    limbs: Floats
    """[4, V], integers, lowest first."""


def split(stakes: Sequence[int]) -> Stakes:
    """Stakes (0 … 2^63 − 1) cut up."""
    whole = np.array(stakes, "<i8")
    words = whole.view("<u4").reshape(-1, 2).T
    limbs = whole.view("<u2").reshape(-1, 4).T
    tallied = np.ones((3, len(whole)))
    tallied[1:] = words
    return Stakes(words.astype(np.int64), tallied, limbs.astype(np.float64))


def weighted(stakes: Stakes, values: Ints) -> Ints:
    """Σ stake × value over the rows, values [V, P] being nanos: sums [4, P], not carried."""
    return _dot(stakes.limbs, values.astype(np.float64), PRODUCTS)


def tally(stakes: Stakes, mask: Bools) -> tuple[Ints, Ints]:
    """The number of rows that the mask [V, P] marks, [P], and Σ stake over them: sums [2, P]."""
    sums = _dot(stakes.tallied, mask.astype(np.float64), ROWS)
    return sums[0], carried(sums[1:])


def carried(sums: Ints) -> Ints:
    """The same sums [2, …] with the low word below 2^32; `sums` itself is changed."""
    sums[1] += sums[0] >> BITS
    sums[0] &= MASK
    return sums


def twice(sums: Ints) -> Ints:
    """2 × sums [2, …]."""
    return carried(sums * 2)


def wide(numbers: Sequence[int]) -> Ints:
    """Integers of at least 0 and below 2^95 as sums [2, len(numbers)]."""
    return np.array([[n & MASK for n in numbers], [n >> BITS for n in numbers]], np.int64)


def at_least(left: Ints, right: Ints) -> Bools:
    """left ≥ right, element by element, of two arrays of sums [2, …] that broadcast."""
    result: Bools = (left[1] > right[1]) | ((left[1] == right[1]) & (left[0] >= right[0]))
    return result


def integers(sums: Ints) -> list[int]:
    """Sums [2, P] or [4, P] as Python integers; [1, P] are Python integers already."""
    if len(sums) == 1:
        return list(sums[0])
    bits = BITS if len(sums) == 2 else LIMB
    *lower, numbers = sums.tolist()
    for row in reversed(lower):
        numbers = [(number << bits) + part for number, part in zip(numbers, row, strict=True)]
    return list(numbers)


def quotients(numerators: Ints, denominators: Ints) -> Ints:
    """Sums [4, P] / sums [2, P], or both [1, P], half to even; every quotient at most 10^9, no denominator 0. SPEC 1.

    float64 decides those that are far from a half, where its error cannot matter; Python integers decide the others.
    """
    if len(numerators) == 1:
        exact = zip(integers(numerators), integers(denominators), strict=True)
        return np.array([half_even(numerator, denominator) for numerator, denominator in exact], np.int64)
    near = (_PLACES @ numerators) / (_WORDS @ denominators)
    rounded = np.rint(near)
    result = rounded.astype(np.int64)
    doubtful = np.flatnonzero(np.abs(near - rounded) >= 0.5 - _DOUBT)
    if doubtful.size:
        exact = zip(integers(numerators[:, doubtful]), integers(denominators[:, doubtful]), strict=True)
        result[doubtful] = [half_even(numerator, denominator) for numerator, denominator in exact]
    return result


def _dot(places: Floats, values: Floats, rows: int) -> Ints:
    if len(values) <= rows:
        return (places @ values).astype(np.int64)
    starts = range(0, len(values), rows)
    return sum(
        ((places[:, start : start + rows] @ values[start : start + rows]).astype(np.int64) for start in starts),
        start=np.zeros((len(places), values.shape[1]), np.int64),
    )
