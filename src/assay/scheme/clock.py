"""The end of an epoch: by the time of day, or by the blocks of a chain. SPEC 6 (Epochs), 7 (`[epoch]`). It is pure.

By the time, epoch N ends at start + N · every, so everybody who reads the scheme knows when. By a chain, an epoch ends `tempo`
blocks after the one before, whatever the chain's own epochs do: chains have changed that rule several times, and may put an epoch
off. In both ways the next epoch ends when it would have ended anyway, so after a day away all of them are closed in their order.

An epoch that has ended waits for its validators, for `grace`: a tenth of an epoch, if the scheme does not say.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from assay.scheme.fields import instant_text
from assay.scheme.model import EpochClock

__all__ = ["BLOCK_SECONDS", "EpochEnd", "by_blocks", "by_time", "ends_late", "waits_too_long"]

BLOCK_SECONDS = 12
"""Seconds of a block, by which a grace time is counted in blocks."""
_PART = 10
_LATE = 2
_CALENDAR = int(datetime.max.replace(tzinfo=UTC).timestamp()) - 1


@dataclass(frozen=True)
class EpochEnd:
    """The end of an epoch, and the end of the grace after it: seconds since 1970, or block numbers."""

    epoch: int
    at: int
    until: int
    unit: Literal["time", "block"]

    @property
    def moment(self) -> datetime:
        """The end by a clock of time; the end of the calendar for an epoch that is too far away."""
        return datetime.fromtimestamp(min(self.at, _CALENDAR), UTC)

    @property
    def text(self) -> str:
        """The end as people read it."""
        return instant_text(self.moment) if self.unit == "time" else f"block {self.at}"


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


def ends_late(clock: EpochClock, epoch: int, now: datetime) -> str:
    """Say that the open epoch ends more than two epochs from now, and what to write; empty if it does not, or blocks say it.

    It is so when `[epoch]` is added to a season that has closed epochs before.
    """
    if clock.every is None:
        return ""
    end = by_time(clock, epoch)
    if (end.moment - now).total_seconds() <= _LATE * clock.every:
        return ""
    first = datetime.fromtimestamp(max(0, int(now.timestamp()) + clock.every - epoch * clock.every), UTC)
    return (
        f"epoch {epoch} is open and ends at {end.text}, more than {_LATE} epochs from now: epoch N ends at start + N · every; "
        f'with start = "{instant_text(first)}" it ends in one epoch'
    )


def waits_too_long(clock: EpochClock) -> str:
    """Say that the grace time is as long as an epoch; empty if it is not."""
    if clock.grace is None:
        return ""
    if clock.every is not None and clock.grace >= clock.every:
        longer = f"epoch.every = {clock.every} seconds"
    elif clock.tempo is not None and clock.grace >= clock.tempo * BLOCK_SECONDS:
        longer = f"epoch.tempo = {clock.tempo} blocks of {BLOCK_SECONDS} seconds"
    else:
        return ""
    return (
        f"epoch.grace = {clock.grace} seconds is not shorter than {longer}: each epoch may close after the next one ended, "
        "so the season can lag for ever"
    )
