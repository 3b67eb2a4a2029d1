"""Opens the entries of a tree one folder at a time, each through its open parent folder, and never follows a link.

A program may change the tree while it is read. A folder that was swapped for a link cannot lead the reader somewhere else.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.errors import AssayError, check_linux

Kind = Literal["file", "exec", "folder", "link", "fifo", "socket", "device"]

DEPTH = 128
"""The depth to which folders may be nested, so that a walk holds a limited number of descriptors."""


class TreeError(AssayError):
    """A tree cannot be read, copied or removed as asked."""


class TooMuch(TreeError):
    """A tree has more bytes, entries or levels than its limits allow."""


class Missing(TreeError):
    """Nothing is at this path, or only a link leads there."""


class NotPlain(TreeError):
    """The entry has another type than the caller needs."""


@dataclass(frozen=True)
class Bounds:
    """The limits of a tree's size."""

    bytes: int
    """Of data in files. Written zeros count; holes do not. A copy keeps hard links, so it counts such a file once. A digest
    counts it once per name unless `once` is set: the digest of a set of files must not depend on how they are stored."""
    files: int
    """Entries of any kind."""
    depth: int = DEPTH


OURS = Bounds(bytes=64 << 30, files=1_000_000)
"""The limits for trees that a user of Assay wrote, such as task sets and agents."""


@dataclass(frozen=True)
class Entry:
    """One file, folder, link or other entry of a tree."""

    path: str
    """Relative to the top, with slashes; `.` is the top itself. Bytes that are not UTF-8 are surrogate escapes."""
    kind: Kind
    size: int
    mode: int
    """Permission bits."""
    target: str = ""
    """The target of a link."""


@dataclass
class WalkUsage:
    """The part of its limits that a walk has used so far."""

    bounds: Bounds
    files: int = 0
    bytes: int = 0

    def entry(self, depth: int) -> None:
        """Counts an entry. Raises TooMuch."""
        self.files += 1
        if self.files > self.bounds.files:
            raise TooMuch(f"has more than {self.bounds.files} files and folders")
        if depth > self.bounds.depth:
            raise TooMuch(f"has folders more than {self.bounds.depth} deep")

    def data(self, count: int) -> None:
        """Counts bytes of data. Raises TooMuch."""
        self.bytes += count
        if self.bytes > self.bounds.bytes:
            raise TooMuch(f"has more than {self.bounds.bytes} bytes in its files")


def _flags(*names: str) -> int:
    """The sum of these flags. A flag that the system lacks counts as 0; `holding` refuses to work on such a system."""
    return sum(getattr(os, name, 0) for name in names)


BLOCK = 65_536
"""Bytes. A file is read in blocks of this size, and an all-zero block counts as a hole."""
FOLDER = os.O_RDONLY | _flags("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
"""Flags that open a folder and nothing else."""
PLAIN = os.O_RDONLY | _flags("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC")
"""Flags that open an entry for reading that a stat call showed to be a plain file."""
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _flags("O_NOFOLLOW", "O_CLOEXEC")
"""Flags that create a new plain file."""
GONE = (FileNotFoundError, NotADirectoryError)
"""The errors that are raised when an entry no longer exists."""
_ZEROS = bytes(BLOCK)
_LONG = 3_800
"""Bytes of a path that the kernel accepts in one call, with a margin."""
_KINDS: dict[int, Kind] = {stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}


def parts_of(path: str) -> list[str]:
    """The names in a path, without empty names and dots."""
    return [part for part in path.split("/") if part not in ("", ".")]


@contextmanager
def holding(root: Path, beneath: str) -> Iterator[tuple[int, str]]:
    """The open parent folder of an entry, and the entry's name in it.

    Raises Missing if a name on the way is not a folder, and BadInput on a system that is not Linux.
    """
    check_linux("looking at a folder that an agent may have written")
    parent, name = os.path.split(os.path.abspath(root))
    names = parts_of(beneath)
    if ".." in names or "\0" in beneath:
        raise ValueError(f"{beneath!r} is not a path beneath a folder")
    names = [name or ".", *names]
    try:
        number = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except GONE:
        raise Missing("no such folder", file=parent) from None
    try:
        for name in names[:-1]:
            inner = _enter(name, number, root / beneath)
            os.close(number)
            number = inner
        try:
            os.stat(names[-1], dir_fd=number, follow_symlinks=False)
        except FileNotFoundError:
            raise Missing("there is nothing there", file=root / beneath) from None
        yield number, names[-1]
    finally:
        os.close(number)


def _enter(name: str, folder: int, place: Path) -> int:
    try:
        return os.open(name, FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise Missing(f"{name!r} is not a folder on the way there", file=place) from None
        raise


@contextmanager
def opened(name: str, flags: int, folder: int, mode: int = 0o600) -> Iterator[int]:
    """Opens a name in an open folder, and closes it afterwards. Raises OSError, and NotPlain if PLAIN opened something else."""
    number = os.open(name, flags, mode, dir_fd=folder)
    try:
        if flags == PLAIN and not stat.S_ISREG(os.fstat(number).st_mode):
            raise NotPlain(f"{name[:80]!r} changed into something else while it was opened")
        yield number
    finally:
        os.close(number)


@contextmanager
def reached(top: Path, parts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The open parent folder and the name of an entry in a tree that Assay made; the path may be very long. Raises OSError."""
    number = os.open(top, FOLDER)
    try:
        left = list(parts[:-1])
        while left:
            some = [left.pop(0)]
            while left and len(os.fsencode("/".join((*some, left[0])))) < _LONG:
                some.append(left.pop(0))
            inner = os.open("/".join(some), FOLDER, dir_fd=number)
            os.close(number)
            number = inner
        yield number, parts[-1]
    finally:
        os.close(number)


@contextmanager
def mended(name: str, flags: int, folder: int, wanted: int) -> Iterator[int]:
    """Like `opened`, but first adds permissions that the owner may have removed, through a descriptor of the entry itself."""
    number = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        info = os.fstat(number)
        ours = stat.S_ISDIR(info.st_mode) if flags == FOLDER else stat.S_ISREG(info.st_mode)
        if ours and info.st_mode & wanted != wanted:
            os.chmod(f"/proc/self/fd/{number}", stat.S_IMODE(info.st_mode) | wanted)
    finally:
        os.close(number)
    with opened(name, flags, folder) as number:
        yield number


def names(folder: int, used: WalkUsage) -> list[tuple[str, os.stat_result]]:
    """The entries of an open folder, sorted by the bytes of their names. Raises TooMuch for more entries than are left."""
    most = used.bounds.files - used.files
    with os.scandir(folder) as entries:
        listed = [(entry.name, entry.stat(follow_symlinks=False)) for entry in itertools.islice(entries, most + 1)]
    if len(listed) > most:
        raise TooMuch(f"has more than {used.bounds.files} files and folders")
    return sorted(listed, key=lambda pair: os.fsencode(pair[0]))


Visit = tuple[str, int, str, os.stat_result]


def visit(parent: int, name: str, used: WalkUsage, *, live: bool = False) -> Generator[Visit, None, None]:
    """Path, open parent folder, name and status of every entry. live: skip entries that vanish during the walk."""
    yield from _inside(".", parent, name, os.stat(name, dir_fd=parent, follow_symlinks=False), used, 0, live)


def _inside(
    path: str, parent: int, name: str, info: os.stat_result, used: WalkUsage, depth: int, live: bool
) -> Generator[Visit, None, None]:
    used.entry(depth)
    yield path, parent, name, info
    if not stat.S_ISDIR(info.st_mode):
        return
    try:
        with opened(name, FOLDER, parent) as folder:
            for last, status in _live_names(folder, used) if live else names(folder, used):
                below = last if path == "." else f"{path}/{last}"
                yield from _inside(below, folder, last, status, used, depth + 1, live)
    except OSError as error:
        if not (live and error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)):
            raise


def _live_names(folder: int, used: WalkUsage) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in itertools.islice(entries, used.bounds.files - used.files + 1)]
    for name in names:
        with suppress(*GONE):
            yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)


def kind_of(info: os.stat_result) -> Kind:
    """The kind of an entry."""
    mode = info.st_mode
    if stat.S_ISREG(mode):
        return "exec" if mode & 0o100 else "file"
    return _KINDS.get(stat.S_IFMT(mode), "device")


def blocks(number: int, size: int, used: WalkUsage) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each block of a file that is not all zero. Zeros that had to be read count against the limits too."""
    at = 0
    while at < size:
        try:
            data = os.lseek(number, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            data = at
        at = data - data % BLOCK
        block = read(number, min(BLOCK, size - at), at)
        used.data(len(block))
        if block != _ZEROS[: len(block)]:
            yield at, block
        at += BLOCK


def data_of(number: int, size: int, used: WalkUsage) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of a file's data, without holes and zero blocks. Only data that the file system stores is counted."""
    at = 0
    while at < size:
        try:
            at = os.lseek(number, at, os.SEEK_DATA)
            end = os.lseek(number, at, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            end = size
        end = min(end, size)
        while at < end:
            block = read(number, min(BLOCK - at % BLOCK, end - at), at)
            if not block:
                return
            used.data(len(block))
            if block != _ZEROS[: len(block)]:
                yield at, block
            at += len(block)


def read(number: int, count: int, offset: int) -> bytes:
    """Reads bytes of an open file from an offset; fewer than asked for at the end of the file."""
    parts: list[bytes] = []
    while count > 0 and (part := os.pread(number, count, offset)):
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return b"".join(parts)
