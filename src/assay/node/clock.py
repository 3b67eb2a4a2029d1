"""The time of day as an operator's node believes it, and its notes of epochs that ended; `scheme/clock.py` says when they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.files import write_bytes
from assay.folder.strict import load_note
from assay.node import CLOCK, FOLDER

__all__ = ["SteadyClock", "change_note", "read_note", "write_note"]

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
        """The seconds by which the time of day differs from the one that is told."""

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


def write_note(folder: Path, **changes: Any) -> None:
    """Note at which block which epoch ended (if it is lost, the receipt has its registry's block), or by which clock."""
    with suppress(BadInput, OSError):
        change_note(folder, **changes)


def change_note(folder: Path, **changes: Any) -> None:
    """Change fields of what the clock notes. Raises BadInput, OSError."""
    (folder / FOLDER).mkdir(exist_ok=True)
    write_bytes(folder / FOLDER / CLOCK, canonical(read_note(folder) | changes) + b"\n")


def read_note(folder: Path) -> dict[str, Any]:
    """The block at which each epoch was closed, and the clock; empty if it is not known."""
    return load_note(folder / FOLDER / CLOCK)
