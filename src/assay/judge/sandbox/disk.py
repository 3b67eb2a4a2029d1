"""The bound on what a command writes: its box is measured before, and again and again while it runs.

- Counted are blocks on the disk and entries, of what is in the box and of what only an open descriptor still holds.
- A look costs time that grows with the box, so looks are spaced by what the last one took, unless the disk is seen to fill up.
- A disk of the host that fills up is Trouble, not the command's fault.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from assay.judge.sandbox.box import Limits, Trouble
from assay.judge.sandbox.inside import View
from assay.judge.tree import DEPTH

__all__ = ["SPARE", "Watch"]

SPARE = 128 << 20
"""Bytes that have to stay free on the disk that boxes are on."""
SPARE_FILES = 1_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PACE = 5
"""A look may take one part in so many of the time."""
_EVERY = 0.05
_LONG = 10.0
"""Seconds for a look at everything that a box holds open, when the disk lost more than is explained."""


class Watch:
    """What a box's files take up since a command began."""

    def __init__(self, root: Path, limits: Limits, *, mend: bool, spare: int = SPARE) -> None:
        """root: the box's, on the host. mend: open what its owner closed to himself, which is needed unless we are root."""
        self._root, self._mend, self._spare = root, mend, spare
        self._device = os.stat(root).st_dev
        self._free = self._had = self._room()
        self._took = 0.0
        self._next = time.monotonic() + _EVERY
        self.held: tuple[int, int] | None = None
        """Bytes and entries in the box when it was last measured; None if that could not be brought to its end."""
        before = self._measure(1 << 62, 1 << 62)
        # Folders so deep that they cannot be measured were made by an earlier command: no more may be written then.
        self._most = (0, 0) if before is None else (before[0] + limits.disk, before[1] + limits.files)
        self._left = self._may = limits.disk

    @property
    def most_bytes(self) -> int:
        """What the box may take up in all."""
        return self._most[0]

    def look(self, view: View) -> bool:
        """Whether the command has written too much. Looks only when it is time. Raises Trouble."""
        now = time.monotonic()
        free = self._room()
        if now < self._next and self._free - free < (self._left >> 1):
            return False
        over = self.over(view)
        self._next = time.monotonic() + max(_EVERY * 0.8, _PACE * self._took)
        return over

    def over(self, view: View | None = None) -> bool:
        """Whether the command has written too much, now; without a view all of the box's processes are dead. Raises Trouble."""
        began = time.monotonic()
        self._free = self._room()
        found = self.held = self._measure(*self._most)
        if found is None:
            return True
        self._left, whole = self._most[0] - found[0], True
        if view is not None:
            unnamed, _ = view.unnamed(self._device)
            # What the disk has lost, less what is seen here, may be others'; or it is hidden behind very many descriptors.
            if self._had - self._free - (self._may - self._left + unnamed) > self._may:
                unnamed, whole = view.unnamed(self._device, seconds=_LONG)
            self._left -= unnamed
        self._took = time.monotonic() - began
        return self._left < 0 or not whole

    def _room(self) -> int:
        found = os.statvfs(self._root)
        free = found.f_bavail * found.f_frsize
        if free < self._spare or (found.f_files and found.f_favail < SPARE_FILES):
            raise Trouble("the disk that boxes are on is full", file=self._root, hint="free some space, or set ASSAY_SCRATCH")
        return free

    def _measure(self, most_bytes: int, most_files: int) -> tuple[int, int] | None:
        """Bytes and entries; None over the bounds, or where folders are so deep that something could be hidden in them."""
        count = _Count(most_bytes, most_files, self._mend)
        number = os.open(self._root, _FOLDER)
        try:
            count.folder(number, 0)
        except _Over:
            return None
        finally:
            os.close(number)
        return count.bytes, count.files


class _Over(Exception):
    pass


class _Count:
    def __init__(self, most_bytes: int, most_files: int, mend: bool) -> None:
        self.bytes = self.files = 0
        self._most_bytes, self._most_files, self._mend = most_bytes, most_files, mend
        self._seen: set[int] = set()

    def folder(self, number: int, depth: int) -> None:
        with os.scandir(number) as entries:
            for entry in entries:
                try:
                    info = entry.stat(follow_symlinks=False)
                except OSError:  # gone meanwhile
                    continue
                self.files += 1
                if info.st_nlink == 1 or stat.S_ISDIR(info.st_mode):
                    self.bytes += info.st_blocks * 512
                elif info.st_ino not in self._seen:
                    self._seen.add(info.st_ino)
                    self.bytes += info.st_blocks * 512
                if self.bytes > self._most_bytes or self.files > self._most_files or depth > DEPTH:
                    raise _Over
                if stat.S_ISDIR(info.st_mode):
                    self._enter(entry.name, number, depth)

    def _enter(self, name: str, parent: int, depth: int) -> None:
        try:
            number = os.open(name, _FOLDER, dir_fd=parent)
        except OSError as error:
            if error.errno != errno.EACCES or not self._mend or not _mend(name, parent):
                return
            try:
                number = os.open(name, _FOLDER, dir_fd=parent)
            except OSError:
                return
        try:
            self.folder(number, depth + 1)
        finally:
            os.close(number)


def _mend(name: str, parent: int) -> bool:
    """Lets the owner of a folder, who is us, into it, without following a link that it may just have become."""
    with suppress(OSError):
        number = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            info = os.fstat(number)
            if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid():
                os.chmod(f"/proc/self/fd/{number}", stat.S_IMODE(info.st_mode) | 0o700)
                return True
        finally:
            os.close(number)
    return False
