"""When an epoch ends: by the time of day, or by the blocks of a chain. SPEC 6 (Epochs), 7 (`[epoch]`).

By the time, epoch N ends at start + N · every, so everybody who reads the scheme knows when. By a chain, an epoch ends `tempo`
blocks after the one before, whatever the chain's own epochs do: chains have changed that rule several times, and may put an epoch
off. In both ways the next epoch ends when it would have ended anyway, so after a day away all of them are closed in their order.

An epoch that has ended waits for its validators, for `grace`: a tenth of an epoch, if the scheme does not say.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from assay.scheme.fields import instant_text
from assay.scheme.model import EpochClock

__all__ = ["BLOCK_SECONDS", "EpochEnd", "SteadyClock", "by_blocks", "by_time"]

BLOCK_SECONDS = 12
"""Seconds of a block, by which a grace time is counted in blocks."""
_PART = 10


@dataclass(frozen=True)
class EpochEnd:
    """When an epoch ends, and until when it then waits: seconds since 1970, or block numbers."""

    epoch: int
    at: int
    until: int
    unit: Literal["time", "block"]

    @property
    def text(self) -> str:
        """When it ends, as people read it."""
        return instant_text(datetime.fromtimestamp(self.at, UTC)) if self.unit == "time" else f"block {self.at}"


def by_time(clock: EpochClock, epoch: int) -> EpochEnd:
    """The end of an epoch of a scheme with `every` and `start`."""
    assert clock.every is not None  # the scheme has both, or neither
    assert clock.start is not None
    at = int(clock.start.timestamp()) + epoch * clock.every
    grace = clock.every // _PART if clock.grace is None else clock.grace
    return EpochEnd(epoch, at, at + grace, "time")


def by_blocks(clock: EpochClock, epoch: int, after: int) -> EpochEnd:
    """The end of an epoch of a scheme with `tempo`. after: the block at which the epoch before ended."""
    assert clock.tempo is not None
    at = after + clock.tempo
    grace = clock.tempo // _PART if clock.grace is None else -(-clock.grace // BLOCK_SECONDS)
    return EpochEnd(epoch, at, at + grace, "block")


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
