"""The time of day as an operator's node believes it. `scheme/clock.py` says when an epoch ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["SteadyClock"]

JUMP_SECONDS = 60.0
"""A difference between two clocks that no correction by the network makes in a second."""
HELD_SECONDS = 600.0
"""For so long a clock that jumped is not believed."""


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass
class SteadyClock:
    """The time of day, seconds since 1970, in spite of a jump: an epoch that is closed too early cannot be opened again.

    A jump of more than a minute, compared with the seconds since the machine started, is believed after ten minutes; by then it
    was put right, or it is right. It must be asked every few seconds.
    """

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = _since_boot

    def __post_init__(self) -> None:
        self._offset = self.wall() - self.steady()
        self._since: float | None = None
        self.jumped = 0.0
        """By how many seconds the time of day differs from the one that is told."""

    def __call__(self) -> float:
        """The time now."""
        now = self.steady()
        offset = self.wall() - now
        self.jumped = offset - self._offset
        if abs(self.jumped) <= JUMP_SECONDS:
            self._offset, self._since, self.jumped = offset, None, 0.0
        elif self._since is None:
            self._since = now
        elif now - self._since >= HELD_SECONDS:
            self._offset, self._since, self.jumped = offset, None, 0.0
        return now + self._offset
