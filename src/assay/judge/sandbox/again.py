"""A box's folder used again: making some forty files for every box, and removing them, costs more than all else that a box is.

- Nothing of the box before may be seen in the next. Whatever was changed in any way is removed and made anew, what was added is
  removed, and times are set back. What is kept has the same inode and the same time of change, which nobody can set.
- That time moves in steps, so nothing runs in a box before the step in which its files were looked at is over.
- A folder keeps its user number for as long as it is kept. Folders that hold much are not used again, but removed.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from assay.judge import tree
from assay.judge.sandbox.box import Image, Trouble
from assay.judge.sandbox.owner import locks, owner
from assay.judge.sandbox.root import Root
from assay.judge.sandbox.scratch import Scratch

__all__ = ["Place", "Spares"]

_SPARE = 4
"""Folders that are kept."""
_FILES, _BYTES = 500, 1 << 20
"""The most that a box may start with, for its folder to be used again."""
_MOST_FILES, _MOST_BYTES = _FILES + 300, 1 << 26
"""The most that a command may leave in it, likewise."""
_FLAGS = 0x801C581F
"""FS_IOC_FSGETXATTR: what an owner can set of an inode besides permissions, times and extended attributes."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NOATIME | os.O_CLOEXEC
_COARSE = 5
"""CLOCK_REALTIME_COARSE, which times of change are never behind."""
_STEP = 0.001


@dataclass
class _Seen:
    """An entry as it was before anything ran: what can be set of it, and its bytes or its target."""

    info: os.stat_result
    more: object
    held: bytes


class _Start:
    """What a box's files are before anything runs in it."""

    def __init__(self, top: Path) -> None:
        """Raises `tree.TooMuch` for what is too large to be remembered, and OSError."""
        self._top, self._place = top, str(top)
        self._seen: dict[str, _Seen] = {}
        for entry in tree.walk(top, bounds=tree.Bounds(_BYTES, _FILES)):
            name = "" if entry.path == "." else entry.path
            self._seen[name] = _Seen(*self._now(name))
            if sum(len(seen.held) for seen in self._seen.values()) > _BYTES:
                raise tree.TooMuch("is too large to be remembered", file=top)

    def passed(self) -> bool:
        """Whether any change from now on shows; waits for that, but not if the clock was set back."""
        newest = max(seen.info.st_ctime_ns for seen in self._seen.values())
        for _ in range(100):
            if time.clock_gettime_ns(_COARSE) > newest:
                return True
            time.sleep(_STEP)
        return False

    def restore(self) -> None:
        """Makes everything as it was. Nothing runs in the box. Raises OSError and `tree.TreeError`; then it is as it may be."""
        for name, seen in self._seen.items():  # folders come before what is in them
            if not self._same(name, seen):
                self._remake(name, seen)
        for name, seen in self._seen.items():
            place, times = self._at(name), (seen.info.st_atime_ns, seen.info.st_mtime_ns)
            info = os.lstat(place)
            if (info.st_atime_ns, info.st_mtime_ns) != times:
                os.utime(place, ns=times, follow_symlinks=False)
                info = os.lstat(place)
            seen.info = info

    def _at(self, name: str) -> str:
        return f"{self._place}/{name}" if name else self._place

    def _now(self, name: str) -> tuple[os.stat_result, object, bytes]:
        place = self._at(name)
        info = os.lstat(place)
        if stat.S_ISLNK(info.st_mode):
            return info, None, os.fsencode(os.readlink(place))
        if stat.S_ISDIR(info.st_mode):
            number = os.open(place, _FOLDER)
            try:
                return info, _more(number), b""
            finally:
                os.close(number)
        return info, None, _bytes(place)

    def _same(self, name: str, seen: _Seen) -> bool:
        """Whether an entry is as it was; a folder is if only what was added has to go."""
        place, before = self._at(name), seen.info
        try:
            info = os.lstat(place)
        except FileNotFoundError:
            return False
        unchanged = _identity(info) == _identity(before) and info.st_ctime_ns == before.st_ctime_ns
        if not stat.S_ISDIR(before.st_mode):
            # Files in memory can be written without a change of their times.
            return unchanged and (stat.S_ISLNK(before.st_mode) or _bytes(place) == seen.held)
        if unchanged:
            return True
        if _identity(info) != _identity(before):
            return False
        number = os.open(place, _FOLDER)
        try:
            if _more(number) != seen.more:
                return False
            below = f"{name}/" if name else ""
            for last in os.listdir(number):
                if below + last not in self._seen:
                    tree.remove(self._top, below + last)
            return True
        finally:
            os.close(number)

    def _remake(self, name: str, seen: _Seen) -> None:
        if not name:
            raise tree.TreeError("is not the folder that it was", file=self._top)
        tree.remove(self._top, name)
        place, mode = self._at(name), seen.info.st_mode
        if stat.S_ISLNK(mode):
            os.symlink(seen.held, os.fsencode(place))
        elif stat.S_ISDIR(mode):
            os.mkdir(place, 0o700)
        else:
            number = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(number, "wb") as file:
                file.write(seen.held)
        os.chown(place, seen.info.st_uid, seen.info.st_gid, follow_symlinks=False)
        if not stat.S_ISLNK(mode):
            os.chmod(place, stat.S_IMODE(mode))
        _info, more, _held = self._now(name)
        if more != seen.more:
            raise tree.TreeError("cannot be made as it was", file=place)
        times = seen.info.st_atime_ns, seen.info.st_mtime_ns
        os.utime(place, ns=times, follow_symlinks=False)
        seen.info = os.lstat(place)


def _identity(info: os.stat_result) -> tuple[int, ...]:
    links = 0 if stat.S_ISDIR(info.st_mode) else info.st_nlink
    return info.st_dev, info.st_ino, info.st_mode, info.st_uid, info.st_gid, info.st_size, links


def _more(number: int) -> object:
    """Extended attributes and flags of an open folder."""
    flags = bytearray(28)
    with suppress(OSError):
        fcntl.ioctl(number, _FLAGS, flags)
    flags[8:12] = bytes(4)  # how many pieces it is in on the disk
    with suppress(OSError):
        return bytes(flags), [(name, os.getxattr(number, name)) for name in os.listxattr(number)]
    return bytes(flags), None


def _bytes(place: str) -> bytes:
    with open(place, "rb", opener=lambda path, _flags: os.open(path, _PLAIN)) as file:
        return file.read(_BYTES + 1)


class Place:
    """A folder that a box is in, and the user that it belongs to."""

    def __init__(self, scratch: Scratch, image: Image) -> None:
        """Raises Trouble."""
        self.image = image
        self.process = os.getpid()
        with ExitStack() as stack:
            self.owner = stack.enter_context(owner(locks(scratch.folder / "users")))
            self.folder = stack.enter_context(scratch.box())
            try:
                self.root = Root(self.folder / "root", image, self.owner)
            except (OSError, tree.TreeError) as error:
                raise Trouble(f"the box's files could not be made: {error}") from error
            self._start: _Start | None = None
            with suppress(OSError, tree.TreeError):
                self._start = _Start(self.root.path)
            self._stack = stack.pop_all()

    def begin(self) -> None:
        """To be called before anything runs in it."""
        if self._start is not None and not self._start.passed():
            self._start = None

    def ended(self, held: tuple[int, int] | None) -> None:
        """Tells the bytes and entries that are in it when all that ran is dead; None: more than could be counted."""
        if held is None or held[0] > _MOST_BYTES or held[1] > _MOST_FILES:
            self._start = None

    def renew(self) -> bool:
        """Makes it as it was, when nothing runs in it any more; False if it cannot be used again."""
        if self._start is None:
            return False
        try:
            self._start.restore()
        except (OSError, tree.TreeError):
            return False
        return True

    def close(self) -> None:
        """Lets the folder and the user go. Raises Trouble."""
        self._stack.close()


class Spares:
    """Folders that wait for the next box."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._kept: list[Place] = []
        self._lock = Lock()

    def take(self, image: Image) -> Place:
        """One for a box of that image. Raises Trouble."""
        with self._lock:
            for place in self._kept:
                if place.image == image and place.process == os.getpid():
                    self._kept.remove(place)
                    return place
        return Place(self._scratch, image)

    def give(self, place: Place) -> None:
        """Takes one back, in which nothing runs any more. Raises Trouble."""
        if not place.renew():
            place.close()
            return
        with self._lock:
            self._kept.append(place)
            over = self._kept.pop(0) if len(self._kept) > _SPARE else None
        if over is not None:
            over.close()

    def close(self) -> None:
        """Lets all of them go."""
        with self._lock:
            kept, self._kept = self._kept, []
        for place in kept:
            if place.process == os.getpid():
                with suppress(Trouble):  # their folder went with the run's
                    place.close()
