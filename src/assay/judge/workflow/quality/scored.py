"""How good a plan's output is, and how that was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from assay.exact import NANO, half_even

__all__ = ["NOTHING", "Scored", "share"]


@dataclass(frozen=True)
class Scored:
    """Quality in nanos, 0 … 1; `how`: what it was found with and from, for the evidence: JSON without floats. SPEC 2.2."""

    nanos: int
    how: dict[str, Any] = field(default_factory=dict)


NOTHING = Scored(0, {"output": "none"})
"""Of a plan that came to no output."""


def share(part: int, whole: int) -> int:
    """part / whole as nanos, half to even."""
    return half_even(part * NANO, whole)
