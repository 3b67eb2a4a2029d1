"""The risk-limiting audit in fractions, as docs/auditing.md says it: nothing is rounded. It shares nothing with `assay.rules`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from fractions import Fraction

GAMMA = Fraction(11, 10)


def bound(effect: Fraction, margins: Sequence[int]) -> Fraction:
    """By which part of the smallest of these margins (nanos) a trial can overstate it."""
    return max(effect / margin for margin in margins)


def draw(sizes: Sequence[int], randomness: bytes, receipt: bytes) -> Iterator[int]:
    """The index that each draw takes: a walk along the sizes."""
    seed = hashlib.sha256(b"assay-audit/1" + bytes(1) + randomness + receipt).digest()
    number = 0
    while True:
        number += 1
        h = int(hashlib.sha256(seed + number.to_bytes(8, "big")).hexdigest(), 16)
        point = Fraction(h * sum(sizes), 2**256)
        for index, size in enumerate(sizes):
            if point < size:
                yield index
                break
            point -= size


def martingale(bounds: Sequence[Fraction], drawn: Sequence[int], wrong: Sequence[bool]) -> list[Fraction]:
    """Its exact value after each draw, by the exact bounds: 1 over the P-value of Kaplan and Markov."""
    total, value, values = GAMMA * sum(bounds), Fraction(1), []
    for index in drawn:
        taint = 1 / GAMMA if wrong[index] else Fraction(0)
        value *= (1 - taint) / (1 - 1 / total)
        values.append(value)
    return values
