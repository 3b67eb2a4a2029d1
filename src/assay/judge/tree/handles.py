"""Getting at things through folders that are held open, never through links."""

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
"""Folders inside one another, so that a walk holds a bounded number of descriptors."""


class TreeError(AssayError):
    """A tree is not what was asked for."""


class TooMuch(TreeError):
    """A tree is over its bounds on bytes, entries or depth."""


class Missing(TreeError):
    """There is nothing at that place, or it could only be reached through a link."""


class NotPlain(TreeError):
    """A plain file was asked for, and something else is there."""


@dataclass(frozen=True)
class Bounds:
    """How large a tree may be."""

    bytes: int
    """Of data in files, written zeros too; holes do not count. A file with several names counts once for a copy, which keeps
    them, and each time for a digest, unless that is told `once`: what a set of files is must not hang on how it is stored."""
    files: int
    """Entries of any kind."""
    depth: int = DEPTH


OURS = Bounds(bytes=64 << 30, files=1_000_000)
"""For trees that a user of Assay wrote: task sets, agents."""


@dataclass(frozen=True)
class Entry:
    """One thing in a tree."""

    path: str
    """From the top, with slashes; `.` is the top itself. Bytes that are not UTF-8 stand as surrogates."""
    kind: Kind
    size: int
    mode: int
    """Permission bits."""
    target: str = ""
    """Where a link points."""


@dataclass
class Budget:
    """What a walk has used of its bounds."""

    bounds: Bounds
    files: int = 0
    bytes: int = 0

    def entry(self, depth: int) -> None:
        """Counts an entry; raises TooMuch."""
        self.files += 1
        if self.files > self.bounds.files:
            raise TooMuch(f"has more than {self.bounds.files} files and folders")
        if depth > self.bounds.depth:
            raise TooMuch(f"has folders more than {self.bounds.depth} deep")

    def data(self, count: int) -> None:
        """Counts bytes of data; raises TooMuch."""
        self.bytes += count
        if self.bytes > self.bounds.bytes:
            raise TooMuch(f"has more than {self.bounds.bytes} bytes in its files")


def _flags(*names: str) -> int:
    """The flags of these names; nothing for one that the system does not have: `holding` refuses to begin there."""
    return sum(getattr(os, name, 0) for name in names)


BLOCK = 65_536
"""Bytes; a file is read in blocks, and an all-zero block counts as a hole."""
FOLDER = os.O_RDONLY | _flags("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
"""Flags that open folders only."""
PLAIN = os.O_RDONLY | _flags("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC")
"""Flags for reading what was seen to be a plain file."""
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _flags("O_NOFOLLOW", "O_CLOEXEC")
"""Flags that make a new plain file."""
GONE = (FileNotFoundError, NotADirectoryError)
"""What is raised when something is no longer there."""
_ZEROS = bytes(BLOCK)
_LONG = 3_800
"""Bytes of a path that the kernel takes at once, with room to spare."""
_KINDS: dict[int, Kind] = {stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}


def parts_of(path: str) -> list[str]:
    """The names in a path, without empty ones and dots."""
    return [part for part in path.split("/") if part not in ("", ".")]


@contextmanager
def holding(root: Path, beneath: str) -> Iterator[tuple[int, str]]:
    """The folder that holds an entry, open, and its name in it; raises Missing where the way is not made of folders.

    Raises BadInput where there is no Linux.
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
    """The descriptor of a name in an open folder, closed afterwards; raises OSError, NotPlain if PLAIN opened anything else."""
    number = os.open(name, flags, mode, dir_fd=folder)
    try:
        if flags == PLAIN and not stat.S_ISREG(os.fstat(number).st_mode):
            raise NotPlain(f"{name[:80]!r} changed into something else while it was opened")
        yield number
    finally:
        os.close(number)


@contextmanager
def reached(top: Path, parts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The folder of an entry in a tree that we made ourselves, open, and its name; for a path of any length. Raises OSError."""
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
    """As `opened`, of what its owner may have closed to himself: permissions are set through its own descriptor."""
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


def names(folder: int, budget: Budget) -> list[tuple[str, os.stat_result]]:
    """The entries of an open folder, sorted by their bytes; no more are listed than the budget has left."""
    most = budget.bounds.files - budget.files
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in itertools.islice(entries, most + 1)]
    if len(found) > most:
        raise TooMuch(f"has more than {budget.bounds.files} files and folders")
    return sorted(found, key=lambda one: os.fsencode(one[0]))


Visit = tuple[str, int, str, os.stat_result]


def visit(parent: int, name: str, budget: Budget, *, live: bool = False) -> Generator[Visit, None, None]:
    """Path, open folder, name and status of every entry. live: what vanishes meanwhile is passed over."""
    yield from _inside(".", parent, name, os.stat(name, dir_fd=parent, follow_symlinks=False), budget, 0, live)


def _inside(
    path: str, parent: int, name: str, info: os.stat_result, budget: Budget, depth: int, live: bool
) -> Generator[Visit, None, None]:
    budget.entry(depth)
    yield path, parent, name, info
    if not stat.S_ISDIR(info.st_mode):
        return
    try:
        with opened(name, FOLDER, parent) as folder:
            for last, status in _live_names(folder, budget) if live else names(folder, budget):
                below = last if path == "." else f"{path}/{last}"
                yield from _inside(below, folder, last, status, budget, depth + 1, live)
    except OSError as error:
        if not (live and error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)):
            raise


def _live_names(folder: int, budget: Budget) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in itertools.islice(entries, budget.bounds.files - budget.files + 1)]
    for name in names:
        with suppress(*GONE):
            yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)


def kind_of(info: os.stat_result) -> Kind:
    """What an entry is."""
    mode = info.st_mode
    if stat.S_ISREG(mode):
        return "exec" if mode & 0o100 else "file"
    return _KINDS.get(stat.S_IFMT(mode), "device")


def blocks(number: int, size: int, budget: Budget) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of the blocks of a file that are not all zero; zeros that had to be read count for the budget as well."""
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
        budget.data(len(block))
        if block != _ZEROS[: len(block)]:
            yield at, block
        at += BLOCK


def data_of(number: int, size: int, budget: Budget) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of what a file holds, without its holes and its zeros; only what the file system keeps is counted."""
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
            budget.data(len(block))
            if block != _ZEROS[: len(block)]:
                yield at, block
            at += len(block)


def read(number: int, count: int, offset: int) -> bytes:
    """Bytes of an open file from an offset, fewer at its end."""
    parts: list[bytes] = []
    while count > 0 and (part := os.pread(number, count, offset)):
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return b"".join(parts)
