"""A box's folder, which can be used again if that is asked for: making some forty files for every box costs more than all else.

- By default every box has a new folder. What a file system lets its owner set is more than one list can be sure to name, so only
  a validator who trusts his agents not to speak to each other has folders used again.
- Nothing of the box before may be seen in the next. What was added is removed, then every entry is held against what it was. A
  folder in which any of them was changed is not used again; only the work directory is then made anew, because tests are given
  the agent's in its place.
- Times are set back for all entries, in one order, so that times of change, which nobody can set, tell nothing.
- What cannot be read of a file shows in its time of change. That moves in steps, so a box is given out only when a step is over.
  Of an entry whose time of change stands still, only the bytes can be others: files in memory do not tell of all that is written.
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
from assay.judge.sandbox import Image, Trouble
from assay.judge.sandbox.root import Root, locks, owner
from assay.judge.sandbox.scratch import Scratch

__all__ = ["BoxFolder", "Spares"]

_SPARE = 4
"""Folders that are kept."""
_FILES, _BYTES = 500, 1 << 20
"""The most that a box may start with, for its folder to be used again."""
_MOST_FILES, _MOST_BYTES = _FILES + 300, 1 << 26
"""The most that a command may leave in it, likewise."""
_FLAGS, _GENERATION = ((0x801C581F, 28), (0x80086601, 8)), 0x80087601
"""FS_IOC_FSGETXATTR, _GETFLAGS and _GETVERSION: what an owner can set besides permissions, times and extended attributes."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NOATIME | os.O_NONBLOCK | os.O_CLOEXEC
_STEP, _STEPS = 0.001, 50
"""Seconds, and how often, until times of change have moved on: on most machines they do every 1 to 10 ms."""
_SECOND = 1_000_000_000


@dataclass
class _Seen:
    """An entry as it was before anything ran: what can be set of it, and its bytes, its target or its names in their order."""

    info: os.stat_result
    more: object
    held: bytes
    generation: bytes = b""

    @property
    def state(self) -> tuple[object, ...]:
        """All that has to be the same of a folder that something was added to or removed from, and that holds what it held."""
        info = self.info
        return (
            info.st_dev,
            info.st_ino,
            info.st_mode,
            info.st_uid,
            info.st_gid,
            info.st_size,
            self.more,
            self.held,
            self.generation,
        )


class _Changed(tree.TreeError):
    """A box's folder is not what it was."""


class _Start:
    """What a box's files are before anything runs in it."""

    def __init__(self, top: Path, work: str) -> None:
        """work: the work directory in the box. Raises `tree.TooMuch` for what is too large to be remembered, and OSError."""
        self._top, self._place = top, str(top)
        self._work = work.strip("/")
        self._seen: dict[str, _Seen] = {}
        held = 0
        for entry in tree.walk(top, bounds=tree.Bounds(_BYTES, _FILES)):
            name = "" if entry.path == "." else entry.path
            self._seen[name] = self._now(name)
            if entry.kind != "folder" and self._seen[name].info.st_nlink > 1:
                raise tree.TooMuch("has a file with several names, which would have to be made anew together", file=top)
            held += len(self._seen[name].held)
            if held > _BYTES:
                raise tree.TooMuch("is too large to be remembered", file=top)

    def passed(self) -> bool:
        """Whether any change from now on shows in times of change; waits for that, but not for whole seconds. Raises OSError."""
        newest = max(seen.info.st_ctime_ns for seen in self._seen.values())
        for _ in range(_STEPS):
            if self._set_back("").st_ctime_ns > newest:
                return True
            if newest % _SECOND == 0:
                return False
            time.sleep(_STEP)
        return False

    def restore(self) -> None:
        """Makes everything as it was. Nothing runs in the box. Raises OSError and `tree.TreeError`; then it is as it may be."""
        remake = False
        for name, seen in self._seen.items():  # folders come before what is in them
            if not (remake and self._at_work(name)) and not self._same(name, seen):
                if not self._at_work(name):
                    raise _Changed("was changed", file=self._at(name))
                remake = True
        if remake:
            tree.remove(self._top, self._work)
            for name in filter(self._at_work, self._seen):
                self._remake(name, self._seen[name])
            for name in filter(self._at_work, self._seen):
                now = self._now(name)  # with a generation that the kernel has drawn
                self._seen[name].held, self._seen[name].generation = now.held, now.generation
        for name, seen in self._seen.items():
            seen.info = self._set_back(name)

    def _at_work(self, name: str) -> bool:
        return bool(self._work) and f"{name}/".startswith(f"{self._work}/")

    def _set_back(self, name: str) -> os.stat_result:
        place, info = self._at(name), self._seen[name].info
        os.utime(place, ns=(info.st_atime_ns, info.st_mtime_ns), follow_symlinks=False)
        return os.lstat(place)

    def _at(self, name: str) -> str:
        return f"{self._place}/{name}" if name else self._place

    def _now(self, name: str) -> _Seen:
        place = self._at(name)
        info = os.lstat(place)
        if stat.S_ISLNK(info.st_mode):
            return _Seen(info, None, os.fsencode(os.readlink(place)))
        folder = stat.S_ISDIR(info.st_mode)
        number = os.open(place, _FOLDER if folder else _PLAIN)
        try:
            held = self._names(name, number) if folder else _bytes(number)
            return _Seen(os.fstat(number), _more(number), held, _asked(number, _GENERATION, 8))
        finally:
            os.close(number)

    def _names(self, name: str, number: int) -> bytes:
        """What a folder lists, in its order, which tells on some file systems what was away; the work directory may move."""
        below = f"{name}/" if name else ""
        return b"\0".join(os.fsencode(last) for last in os.listdir(number) if below + last != self._work)

    def _same(self, name: str, seen: _Seen) -> bool:
        """Whether an entry is as it was, once what was added to it is removed."""
        place, then = self._at(name), seen.info
        try:
            info = os.lstat(place)
        except FileNotFoundError:
            return False
        if (info.st_dev, info.st_ino, info.st_mode) != (then.st_dev, then.st_ino, then.st_mode):
            return False
        if info.st_ctime_ns == then.st_ctime_ns:
            return not stat.S_ISREG(info.st_mode) or _held(place) == seen.held
        if not stat.S_ISDIR(info.st_mode):
            return False
        below = f"{name}/" if name else ""
        for last in os.listdir(place):
            if below + last not in self._seen:
                tree.remove(self._top, below + last)
        return self._now(name).state == seen.state

    def _remake(self, name: str, seen: _Seen) -> None:
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
        made = self._now(name)
        if (made.more, made.info.st_mode) != (seen.more, mode) or (made.held != seen.held and not stat.S_ISDIR(mode)):
            raise _Changed("cannot be made as it was", file=place)


def _more(number: int) -> object:
    """Extended attributes and flags of an open file or folder."""
    found: list[object] = []
    for call, size in _FLAGS:
        flags = _asked(number, call, size)
        found.append(flags[:8] + flags[12:] if size == 28 else flags)  # without how many pieces it is in on the disk
    with suppress(OSError):
        found.append([(name, os.getxattr(number, name)) for name in os.listxattr(number)])
    return found


def _asked(number: int, call: int, size: int) -> bytes:
    """What a file system says of an open file or folder; zeros if it does not know the question."""
    said = bytearray(size)
    with suppress(OSError):
        fcntl.ioctl(number, call, said)
    return bytes(said)


def _held(place: str) -> bytes:
    number = os.open(place, _PLAIN)
    try:
        return _bytes(number)
    finally:
        os.close(number)


def _bytes(number: int) -> bytes:
    with open(number, "rb", closefd=False) as file:
        return file.read(_BYTES + 1)


class BoxFolder:
    """A folder that a box is in, and the user that it belongs to."""

    def __init__(self, scratch: Scratch, image: Image, *, again: bool = False) -> None:
        """again: remember what is needed to use it for another box. Raises Trouble."""
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
                if again:
                    self._start = _Start(self.root.path, image.workdir)
            self._stack = stack.pop_all()

    def begin(self) -> None:
        """To be called before anything is put into it or runs in it."""
        with suppress(OSError):
            if self._start is not None and self._start.passed():
                return
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
    """Folders that wait for the next box, if any are to."""

    def __init__(self, scratch: Scratch, *, again: bool) -> None:
        self._scratch, self._again = scratch, again
        self._kept: list[BoxFolder] = []
        self._lock = Lock()

    def take(self, image: Image) -> BoxFolder:
        """One for a box of that image. Raises Trouble."""
        with self._lock:
            for place in self._kept:
                if place.image == image and place.process == os.getpid():
                    self._kept.remove(place)
                    return place
        return BoxFolder(self._scratch, image, again=self._again)

    def give(self, place: BoxFolder) -> None:
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
