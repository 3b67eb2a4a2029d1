"""What one validator says of one participant."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any


@dataclass
class Verdict:
    """A score (a fraction of whole nanos) with the work behind it, or why there is none.

    `why_not` is "unjudged", "injection-suspected", "incomplete" or "no-tasks"; None with no score: nothing that counts, nothing
    to report.
    """

    score: Fraction | None = None
    work: dict[str, Any] = field(default_factory=dict)
    why_not: str | None = None
    missing: int = 0
    whole: set[str] = field(default_factory=set)
    """tests: the tasks of which every trial passed."""
