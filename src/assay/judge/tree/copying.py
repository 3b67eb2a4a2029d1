"""Copying a tree: plain files, folders, and links that stay inside. A file with several names is copied once and keeps them."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from assay.judge.tree.held import FOLDER, NEW, PLAIN, data_of, holding, kind_of, mended, names, opened, parts_of, reached
from assay.judge.tree.model import OURS, Bounds, Budget, NotPlain, TooMuch
from assay.judge.tree.removal import remove

__all__ = ["Copied", "Links", "copy", "stays_inside"]

_NO_MORE_NAMES = (errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP)
"""What a file system says where a file has as many names as it may have, or may have one only."""
NAMED = 20
"""How many of the entries left behind are named."""


@dataclass(frozen=True)
class Copied:
    """What a copy took."""

    files: int
    bytes: int
    left: int = 0
    """Entries that were left behind: devices, FIFOs, sockets, and links that leave the tree."""
    names: tuple[str, ...] = ()
    """The first of them."""


@dataclass
class Links:
    """Where entries with several names were copied to, so that the further names become hard links, as they were."""

    top: Path
    """The folder that holds the copies; several copies into one folder may share their links."""
    known: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)
    """By device and inode of the source: the copy's path below `top`."""

    def make(self, info: os.stat_result, made: int, new: str, path: tuple[str, ...]) -> bool:
        """Makes `new` of folder `made` a name of what was copied before; False if it was not, or can have no more names.

        path: of the new name below `top`. Raises OSError.
        """
        key = (info.st_dev, info.st_ino)
        if info.st_nlink > 1 and key in self.known:
            with reached(self.top, self.known[key]) as (folder, name):
                try:
                    os.link(name, new, src_dir_fd=folder, dst_dir_fd=made, follow_symlinks=False)
                    return True
                except OSError as error:
                    if error.errno not in _NO_MORE_NAMES:
                        raise
        if info.st_nlink > 1:
            self.known[key] = path
        return False


def copy(
    root: Path,
    target: Path,
    *,
    beneath: str = "",
    bounds: Bounds = OURS,
    inside: str = "",
    owner: tuple[int, int] | None = None,
    mend: bool = False,
    links: Links | None = None,
) -> Copied:
    """Copies a file or folder to a path that does not exist yet; raises Missing, NotPlain, TooMuch and OSError, leaving nothing.

    Kept: bytes and holes, permissions but set-uid, set-gid and sticky, times of files and folders, hard links, and links that
    stay inside. The bounds count data that the file system keeps, and a file with several names once.
    inside: the absolute path of the tree for the programs in it, so that absolute links below it stay; if empty, none do.
    owner: uid and gid of everything that is made. mend: make readable what its owner made unreadable, in the source.
    links: of earlier copies into the same folder, if hard links lead from one to the other.
    """
    job = _Copy(Budget(bounds), inside, owner, mend, target.name, links or Links(target.parent))
    with holding(root, beneath) as (source, name):
        made = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            info = os.stat(name, dir_fd=source, follow_symlinks=False)
            if kind_of(info) not in ("file", "exec", "folder"):
                raise NotPlain(f"is a {kind_of(info)}, neither a file nor a folder", file=root / beneath)
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
            try:
                job.entry(source, name, info, made, target.name, ())
            except BaseException:
                remove(target)
                raise
        finally:
            os.close(made)
    return Copied(job.budget.files, job.budget.bytes, job.left, tuple(job.first))


@dataclass
class _Copy:
    budget: Budget
    inside: str
    owner: tuple[int, int] | None
    mend: bool
    top: str
    links: Links
    left: int = 0
    first: list[str] = field(default_factory=list)

    def entry(self, source: int, name: str, info: os.stat_result, made: int, new: str, path: tuple[str, ...]) -> None:
        """Copies `name` of folder `source` to `new` of folder `made`; path: the names from the top to it, none for the top."""
        self.budget.entry(len(path))
        if stat.S_ISDIR(info.st_mode):
            self.folder(source, name, info, made, new, path)
        elif stat.S_ISREG(info.st_mode):
            if not self.links.make(info, made, new, (self.top, *path)):
                self.file(source, name, info, made, new)
        elif stat.S_ISLNK(info.st_mode) and stays_inside(found := os.readlink(name, dir_fd=source), len(path) - 1, self.inside):
            self.link(found, info, made, new, path)
        else:
            self.left += 1
            if self.left <= NAMED:
                self.first.append("/".join(path))

    def open(self, folder: int, name: str, flags: int) -> AbstractContextManager[int]:
        if not self.mend:
            return opened(name, flags, folder)
        return mended(name, flags, folder, 0o500 if flags == FOLDER else 0o400)

    def folder(self, source: int, name: str, info: os.stat_result, made: int, new: str, path: tuple[str, ...]) -> None:
        with self.open(source, name, FOLDER) as here:
            os.mkdir(new, 0o700, dir_fd=made)
            with opened(new, FOLDER, made) as there:
                for last, status in names(here, self.budget):
                    self.entry(here, last, status, there, last, (*path, last))
                self.finish(there, info)

    def link(self, target: str, info: os.stat_result, made: int, new: str, path: tuple[str, ...]) -> None:
        if self.links.make(info, made, new, (self.top, *path)):
            return
        os.symlink(target, new, dir_fd=made)
        if self.owner is not None:
            os.chown(new, *self.owner, dir_fd=made, follow_symlinks=False)

    def file(self, source: int, name: str, info: os.stat_result, made: int, new: str) -> None:
        with self.open(source, name, PLAIN) as here, opened(new, NEW, made, 0o600) as there:
            size = os.fstat(here).st_size
            for offset, block in data_of(here, size, self.budget):
                _write(there, block, offset)
            try:
                os.ftruncate(there, size)
            except OSError as error:
                if error.errno in (errno.EFBIG, errno.EINVAL):
                    raise TooMuch(f"has a file of {size} bytes") from None
                raise
            self.finish(there, info)

    def finish(self, number: int, info: os.stat_result) -> None:
        if self.owner is not None:
            os.fchown(number, *self.owner)
        os.fchmod(number, stat.S_IMODE(info.st_mode) & 0o777)
        os.utime(number, ns=(info.st_mtime_ns, info.st_mtime_ns))


def stays_inside(target: str, depth: int, inside: str = "") -> bool:
    """Whether a link cannot lead out of a tree; depth: folders between the top and the link; inside: as for `copy`.

    Going up must come first: after a name, `..` would start from wherever another link led.
    """
    parts, top = parts_of(target), parts_of(inside)
    if target.startswith("/"):
        return bool(inside) and parts[: len(top)] == top and ".." not in parts
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return up <= depth and ".." not in parts[up:]


def _write(number: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(number, view, offset)
        view, offset = view[done:], offset + done
