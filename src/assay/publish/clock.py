"""Time as it passes, for tests to let pass as they like."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Clock"]


@dataclass(frozen=True)
class Clock:
    """Seconds between two looks at a chain, how to wait, and what time it is: since whenever, and since 1970."""

    poll: float = 1.0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    wall: Callable[[], float] = time.time
