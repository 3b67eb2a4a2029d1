"""What a unit of gas may cost: by EIP-1559, never above the bounds of the target.

All in wei per gas. `most` is the most that is paid, base fee included; `tip` what the block's maker gets of it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RISE", "Bounds", "Fees", "bumped", "quote"]

RISE = 8
"""A transaction replaces another if it pays an eighth more: nodes ask for a tenth."""


@dataclass(frozen=True, slots=True)
class Fees:
    """What one transaction offers."""

    most: int
    tip: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What it may offer at most."""

    most: int
    tip: int


def quote(base: int, tip: int, bounds: Bounds) -> Fees | None:
    """What to offer: room for the base fee to double. None if the bound does not even cover what it costs now."""
    tip = min(tip, bounds.tip, bounds.most)
    if base + tip > bounds.most:
        return None
    return Fees(min(2 * base + tip, bounds.most), tip)


def bumped(old: Fees, base: int, tip: int, bounds: Bounds) -> Fees | None:
    """What to offer instead of `old`, so that nodes take it in its place; None if the bounds leave no room for that."""
    wanted = Fees(max(2 * base + tip, _more(old.most)), max(tip, _more(old.tip)))
    found = Fees(min(wanted.most, bounds.most), min(wanted.tip, bounds.tip, bounds.most))
    return found if found.most >= _more(old.most) and found.tip >= _more(old.tip) else None


def _more(value: int) -> int:
    return value + -(-value // RISE)
