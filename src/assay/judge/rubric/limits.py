"""Every bound of the rubric judge, in one place. Sizes are refused above them, waits end with them. SPEC 2.3."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]

CHECKS_AT_ONCE = 20
"""Checks of one question; more are asked in several."""
CHECKS_BYTES = 32_000
"""Bytes of the checks of one question as they are shown; one check alone may have more."""
REQUEST_BYTES = 400_000
"""Bytes of a question's messages beside the solution: our prompts, the problem, the checks."""
ANSWER_BYTES = 256_000
"""Bytes of what a model answers."""
BODY_BYTES = 1_000_000
"""Bytes of a body that the service sends."""
NAME_CHARACTERS = 200
"""Characters of what a service calls a model, and of its fingerprint."""
QUOTE_CHARACTERS = 2_000
"""Most characters of a quote."""
QUOTE_LEAST = 8
"""Least characters of a quote that are not white space, unless the file in which it is found has fewer."""
REASON_CHARACTERS = 2_000
"""Most characters of a reason."""
WORDS_CHARACTERS = 300
"""Most characters of a service's own words that are shown."""
TRANSCRIPT_BYTES = 64_000_000
"""Bytes of a transcript that is read."""


@dataclass(frozen=True)
class Limits:
    """How often and how long a model is asked; seconds. A test may shorten what a user need not change."""

    attempts: int = 3
    """Answers of one model to one question; when the last is malformed too, the other model is asked from the start."""
    seconds: float = 3600.0
    """Of one request, from its first byte to the last of the reply; a bounty sets less for each model (300)."""
    tries: int = 6
    """Requests for one answer that the service may fail otherwise than by 429: no connection, a time-out, 5xx, no completion."""
    patience: float = 900.0
    """Of pauses in all for one answer; 429 ends with it alone."""
    first_pause: float = 1.0
    """Doubled with each failure."""
    longest_pause: float = 60.0
    """Of one pause, `Retry-After` included."""


LIMITS = Limits()
