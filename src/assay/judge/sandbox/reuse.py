"""Restores the folder of a box so that a later box can reuse it; making the forty files of a new folder is slow.

- By default every box has a new folder. No list is sure to name everything that a file system lets an owner set. So folders are
  reused only if the validator asks for it, and trusts the agents not to pass messages to each other.
- A box must not see anything of the box before it. Added entries are removed, then every entry is compared with its start. A
  folder with a changed entry is not reused. Only the work directory is made anew: the tests get the agent's files in its place.
- Times are set back for all entries in one order, so that ctimes, which nobody can set, reveal nothing.
- If a file's content cannot be read, a changed ctime reveals that it was modified. The ctime advances in steps, so a box is given
  out only after a step is over. If the ctime did not change, the bytes are still compared: files that are mapped in memory do
  not report every write.
- A folder keeps its uid as long as it is kept. Folders with much data are removed, not reused.
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
from assay.judge.sandbox import Image, InfrastructureError
from assay.judge.sandbox.root import Root, locks, owner
from assay.judge.sandbox.scratch import Scratch

__all__ = ["BoxFolder", "Spares"]

_SPARE = 4
"""The number of folders that are kept for later boxes."""
_FILES, _BYTES = 500, 1 << 20
"""The most that a box may hold at the start, if its folder is to be reused."""
_MOST_FILES, _MOST_BYTES = _FILES + 300, 1 << 26
"""The most that a command may leave in the box, if its folder is to be reused."""
_FLAGS, _GENERATION = ((0x801C581F, 28), (0x80086601, 8)), 0x80087601
"""FS_IOC_FSGETXATTR, _GETFLAGS and _GETVERSION: what an owner can change besides permissions, times and extended attributes."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NOATIME | os.O_NONBLOCK | os.O_CLOEXEC
_STEP, _STEPS = 0.001, 50
"""Seconds of a wait, and how many waits, until the ctime of the file system has advanced; it does every 1 to 10 ms."""
_SECOND = 1_000_000_000


@dataclass
class _Snapshot:
    """An entry before anything ran: all that its owner can change."""

    info: os.stat_result
    more: object
    """Extended attributes and flags."""
    held: bytes
    """A file's bytes, a link's target, or a folder's names in their order."""
    generation: bytes = b""

    @property
    def state(self) -> tuple[object, ...]:
        """The properties that a folder must have again after the entries that were added to it are removed."""
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
    """A box's folder differs from its start."""


class _Start:
    """The files of a box before anything runs in it, and how to restore them."""

    def __init__(self, top: Path, work: str) -> None:
        """work: the work directory in the box. Raises `tree.TooMuch` if the box is too large to remember, and OSError."""
        self._top, self._place = top, str(top)
        self._work = work.strip("/")
        self._seen: dict[str, _Snapshot] = {}
        total = 0
        for entry in tree.walk(top, bounds=tree.Bounds(_BYTES, _FILES)):
            name = "" if entry.path == "." else entry.path
            self._seen[name] = self._now(name)
            if entry.kind != "folder" and self._seen[name].info.st_nlink > 1:
                raise tree.TooMuch("has a file with several names, which could not be restored one by one", file=top)
            total += len(self._seen[name].held)
            if total > _BYTES:
                raise tree.TooMuch("is too large to be remembered", file=top)

    def passed(self) -> bool:
        """Wait, for less than a second, until every later change shows in a ctime; False if it may not. Raises OSError."""
        newest = max(seen.info.st_ctime_ns for seen in self._seen.values())
        for _ in range(_STEPS):
            if self._set_back("").st_ctime_ns > newest:
                return True
            if newest % _SECOND == 0:
                return False
            time.sleep(_STEP)
        return False

    def restore(self) -> None:
        """Restores the box, in which nothing runs. Raises OSError and `tree.TreeError`; then the folder must not be reused."""
        remake = False
        for name, seen in self._seen.items():  # folders come before their entries
            if not (remake and self._at_work(name)) and not self._same(name, seen):
                if not self._at_work(name):
                    raise _Changed("was changed", file=self._at(name))
                remake = True
        if remake:
            tree.remove(self._top, self._work)
            for name in filter(self._at_work, self._seen):
                self._remake(name, self._seen[name])
            for name in filter(self._at_work, self._seen):
                now = self._now(name)  # the kernel chose a new generation number
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

    def _now(self, name: str) -> _Snapshot:
        place = self._at(name)
        info = os.lstat(place)
        if stat.S_ISLNK(info.st_mode):
            return _Snapshot(info, None, os.fsencode(os.readlink(place)))
        folder = stat.S_ISDIR(info.st_mode)
        number = os.open(place, _FOLDER if folder else _PLAIN)
        try:
            content = self._names(name, number) if folder else _bytes(number)
            return _Snapshot(os.fstat(number), _attributes(number), content, _ioctl(number, _GENERATION, 8))
        finally:
            os.close(number)

    def _names(self, name: str, number: int) -> bytes:
        """The names in a folder in their order, without the work directory, which may move. The order can show removals."""
        below = f"{name}/" if name else ""
        return b"\0".join(os.fsencode(last) for last in os.listdir(number) if below + last != self._work)

    def _same(self, name: str, seen: _Snapshot) -> bool:
        """Whether an entry is unchanged after the entries that were added to it are removed."""
        place, then = self._at(name), seen.info
        try:
            info = os.lstat(place)
        except FileNotFoundError:
            return False
        if (info.st_dev, info.st_ino, info.st_mode) != (then.st_dev, then.st_ino, then.st_mode):
            return False
        if info.st_ctime_ns == then.st_ctime_ns:
            return not stat.S_ISREG(info.st_mode) or _content(place) == seen.held
        if not stat.S_ISDIR(info.st_mode):
            return False
        below = f"{name}/" if name else ""
        for last in os.listdir(place):
            if below + last not in self._seen:
                tree.remove(self._top, below + last)
        return self._now(name).state == seen.state

    def _remake(self, name: str, seen: _Snapshot) -> None:
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
        new = self._now(name)
        if (new.more, new.info.st_mode) != (seen.more, mode) or (new.held != seen.held and not stat.S_ISDIR(mode)):
            raise _Changed("cannot be restored", file=place)


def _attributes(number: int) -> object:
    """Extended attributes and flags of an open file or folder."""
    attributes: list[object] = []
    for call, size in _FLAGS:
        flags = _ioctl(number, call, size)
        attributes.append(flags[:8] + flags[12:] if size == 28 else flags)  # without the number of its extents on the disk
    with suppress(OSError):
        attributes.append([(name, os.getxattr(number, name)) for name in os.listxattr(number)])
    return attributes


def _ioctl(number: int, call: int, size: int) -> bytes:
    """The answer of a file system about an open file or folder; zeros if it does not support the call."""
    answer = bytearray(size)
    with suppress(OSError):
        fcntl.ioctl(number, call, answer)
    return bytes(answer)


def _content(place: str) -> bytes:
    number = os.open(place, _PLAIN)
    try:
        return _bytes(number)
    finally:
        os.close(number)


def _bytes(number: int) -> bytes:
    with open(number, "rb", closefd=False) as file:
        return file.read(_BYTES + 1)


class BoxFolder:
    """The folder of a box, and the user to whom it belongs."""

    def __init__(self, scratch: Scratch, image: Image, *, again: bool = False) -> None:
        """again: remember its start, so that a later box can reuse it. Raises InfrastructureError."""
        self.image = image
        self.process = os.getpid()
        with ExitStack() as stack:
            self.owner = stack.enter_context(owner(locks(scratch.folder / "users")))
            self.folder = stack.enter_context(scratch.box())
            try:
                self.root = Root(self.folder / "root", image, self.owner)
            except (OSError, tree.TreeError) as error:
                raise InfrastructureError(f"the box's files could not be made: {error}") from error
            self._start: _Start | None = None
            with suppress(OSError, tree.TreeError):
                if again:
                    self._start = _Start(self.root.path, image.workdir)
            self._stack = stack.pop_all()

    def begin(self) -> None:
        """Call this before a file is put into the box and before a command runs in it."""
        with suppress(OSError):
            if self._start is not None and self._start.passed():
                return
        self._start = None

    def ended(self, usage: tuple[int, int] | None) -> None:
        """Call this after a command, with the bytes and entries in the box; None: too many to be counted."""
        if usage is None or usage[0] > _MOST_BYTES or usage[1] > _MOST_FILES:
            self._start = None

    def renew(self) -> bool:
        """Restores the folder, in which nothing runs any more; False if it cannot be reused."""
        if self._start is None:
            return False
        try:
            self._start.restore()
        except (OSError, tree.TreeError):
            return False
        return True

    def close(self) -> None:
        """Removes the folder and frees the uid. Raises InfrastructureError."""
        self._stack.close()


class Spares:
    """The folders that wait for a later box, if folders are reused."""

    def __init__(self, scratch: Scratch, *, again: bool) -> None:
        self._scratch, self._again = scratch, again
        self._kept: list[BoxFolder] = []
        self._lock = Lock()

    def take(self, image: Image) -> BoxFolder:
        """A folder for a box that starts from this image. Raises InfrastructureError."""
        with self._lock:
            for folder in self._kept:
                if folder.image == image and folder.process == os.getpid():
                    self._kept.remove(folder)
                    return folder
        return BoxFolder(self._scratch, image, again=self._again)

    def give(self, folder: BoxFolder) -> None:
        """Takes back a folder in which nothing runs any more. Raises InfrastructureError."""
        if not folder.renew():
            folder.close()
            return
        with self._lock:
            self._kept.append(folder)
            over = self._kept.pop(0) if len(self._kept) > _SPARE else None
        if over is not None:
            over.close()

    def close(self) -> None:
        """Removes all waiting folders."""
        with self._lock:
            waiting, self._kept = self._kept, []
        for folder in waiting:
            if folder.process == os.getpid():
                with suppress(InfrastructureError):  # the folder may have gone with the folder of the run
                    folder.close()
