"""Who a box runs as on the host: somebody without any right, and where we are root, somebody else for every box.

- As root: a user number of a range that nobody has, so that the host refuses whatever bubblewrap would let through, and boxes
  cannot touch each other. A number is taken by locking a file; the lock goes with the process, however that ends.
- Otherwise: ourselves, in a user namespace of the box's own.
"""

from __future__ import annotations

import fcntl
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assay.judge.sandbox.box import Trouble

__all__ = ["BOXES", "INSIDE", "Owner", "first_number", "locks", "owner"]

INSIDE = 1000
"""The user and group that a box's processes see themselves as."""
BOXES = 1024
"""Boxes at one time on one machine."""
_FIRST = (2_000_000_000, 60_200)
"""Where the range may begin; the second is for hosts that have only 65,536 users, as containers do."""

_LOCKS = Path("/run/assay/users")
"""Only root may write there, and only root takes numbers."""


@dataclass(frozen=True)
class Owner:
    """The user and group of the host that a box's processes and files belong to."""

    uid: int
    gid: int
    switched: bool
    """Whether that is somebody else than us: files have to be given to them, processes started as them."""

    @property
    def chown(self) -> tuple[int, int] | None:
        """What files in the box have to be given to; None if they are theirs anyway."""
        return (self.uid, self.gid) if self.switched else None


@cache
def first_number() -> int:
    """Where the range of boxes' user numbers begins on this host. Raises Trouble."""
    mapped = _mapped(Path("/proc/self/uid_map")) & _mapped(Path("/proc/self/gid_map"))
    for first in _FIRST:
        if mapped.holds(first, BOXES) and not _known(first):
            return first
    raise Trouble("no user numbers are free for boxes on this machine", hint="run Assay as a user that is not root")


def locks(otherwise: Path) -> Path:
    """Where user numbers are locked: one place for all of this machine, wherever boxes are kept; if that cannot be had, there.

    With a place for each folder, boxes of two folders would be one user's, who has one bound on processes for both.
    """
    try:
        _LOCKS.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return otherwise
    return _LOCKS if os.access(_LOCKS, os.W_OK) else otherwise


@contextmanager
def owner(folder: Path) -> Iterator[Owner]:
    """An owner for one box, until the context ends; folder: where the locks are. Raises Trouble."""
    if os.geteuid() != 0:
        yield Owner(os.geteuid(), os.getegid(), False)
        return
    first = first_number()
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(BOXES):
        lock = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            try:
                yield Owner(first + number, first + number, True)
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough while another thread is starting a program
            return
        finally:
            os.close(lock)
    raise Trouble(f"{BOXES} boxes are open on this machine, and there are no more", hint="use fewer jobs")


@dataclass(frozen=True)
class _Ranges:
    spans: tuple[tuple[int, int], ...]

    def holds(self, first: int, count: int) -> bool:
        return any(begin <= first and first + count <= end for begin, end in self.spans)

    def __and__(self, other: _Ranges) -> _Ranges:
        return _Ranges(tuple((max(a, c), min(b, d)) for a, b in self.spans for c, d in other.spans if max(a, c) < min(b, d)))


def _mapped(file: Path) -> _Ranges:
    rows = [line.split() for line in file.read_text().splitlines()]
    return _Ranges(tuple((int(row[0]), int(row[0]) + int(row[2])) for row in rows))


def _known(number: int) -> bool:
    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True
