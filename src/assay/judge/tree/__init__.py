"""Digests, copies, measures and removes folders that untrusted programs wrote.

- No link is followed: each step down opens a name in a folder that is already open, and opening a link fails.
- Only plain files, folders and links are read or copied. A device, FIFO or socket is never opened.
- A file with holes costs as much as its data, not as much as its size. An all-zero block counts as a hole.
- A file with several names (hard links) is read and copied once, and the copy keeps the names.
- Everything has a limit (`TooMuch`), except removal, which must always work.

OSError passes through: it is an error of the host, and callers distinguish it from what the tree did.

The digest of a tree is the SHA-256 over one line per entry: `KIND CONTENT PATH`. Folders come before their entries, and names in
a folder are sorted by their bytes. KIND is `file`, `exec` (the owner may run it), `folder`, `link`, `fifo`, `socket` or `device`.
CONTENT is the SHA-256 of a file's bytes or of a link's target, else `-`. PATH is percent-encoded; the top is `.`.

If a file has all-zero blocks of 64 KiB, its hash leaves them out. `:SIZE:` follows, and then the SHA-256 of the lines
`OFFSET LENGTH LF`, one for each run of such blocks. So a terabyte of zeros costs nothing.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import itertools
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote_from_bytes

from assay.judge.tree.handles import (
    DEPTH,
    FOLDER,
    GONE,
    NEW,
    OURS,
    PLAIN,
    Bounds,
    Entry,
    Kind,
    Missing,
    NotPlain,
    TooMuch,
    TreeError,
    WalkUsage,
    blocks,
    data_of,
    holding,
    kind_of,
    mended,
    names,
    opened,
    parts_of,
    reached,
    read,
    visit,
)

__all__ = [
    "DEPTH",
    "OURS",
    "Bounds",
    "Copied",
    "DiskUsage",
    "Entry",
    "Kind",
    "Links",
    "Missing",
    "NotPlain",
    "Room",
    "TooMuch",
    "TreeError",
    "WalkUsage",
    "copy",
    "digest",
    "measure",
    "peek",
    "prune",
    "remove",
    "room",
    "stays_inside",
    "walk",
]


def digest(root: Path, beneath: str = "", *, bounds: Bounds = OURS, once: bool = False) -> str:
    """The digest of a file or folder, as the docstring of this module defines it. Raises Missing, TooMuch and OSError.

    root: opened as given. beneath: a path below root, reached through real folders only. A file with several names is read once.
    once: such a file also counts once for the limits.
    """
    seen: dict[tuple[int, int], tuple[str, int]] = {}
    total, used = hashlib.sha256(), WalkUsage(bounds)
    with holding(root, beneath) as (parent, name), closing(visit(parent, name, used)) as visited:
        for path, holder, last, info in visited:
            kind = kind_of(info)
            content = "-"
            if kind in ("file", "exec"):
                key, before = (info.st_dev, info.st_ino), used.bytes
                if info.st_nlink > 1 and key in seen:
                    content, count = seen[key]
                    used.data(0 if once else count)
                else:
                    with opened(last, PLAIN, holder) as number:
                        content = _hash(number, used)
                    if info.st_nlink > 1:
                        seen[key] = content, used.bytes - before
            elif kind == "link":
                content = hashlib.sha256(os.fsencode(os.readlink(last, dir_fd=holder))).hexdigest()
            total.update(f"{kind} {content} {quote_from_bytes(os.fsencode(path))}\n".encode())
    return f"sha256:{total.hexdigest()}"


def _hash(number: int, used: WalkUsage) -> str:
    size = os.fstat(number).st_size
    content, gaps, end, whole = hashlib.sha256(), hashlib.sha256(), 0, True
    for offset, block in itertools.chain(blocks(number, size, used), ((size, b""),)):
        if offset > end:
            gaps.update(f"{end} {offset - end}\n".encode())
            whole = False
        content.update(block)
        end = offset + len(block)
    return content.hexdigest() if whole else f"{content.hexdigest()}:{size}:{gaps.hexdigest()}"


@dataclass(frozen=True)
class DiskUsage:
    """The disk space and the number of entries that a tree uses."""

    bytes: int
    """On the disk; a file with several names counts once."""
    files: int


@dataclass(frozen=True)
class Room:
    """The free space of a file system."""

    bytes: int
    files: int | None
    """None where the file system does not count them."""


def walk(root: Path, beneath: str = "", *, bounds: Bounds = OURS) -> Iterator[Entry]:
    """Every entry of a tree: the top first, and each folder before its entries. Raises the same errors as `digest`."""
    with holding(root, beneath) as (parent, name), closing(visit(parent, name, WalkUsage(bounds))) as visited:
        for path, holder, last, info in visited:
            kind = kind_of(info)
            target = os.readlink(last, dir_fd=holder) if kind == "link" else ""
            yield Entry(path, kind, info.st_size, stat.S_IMODE(info.st_mode), target)


def peek(root: Path, beneath: str = "", *, most: int) -> bytes | None:
    """The bytes of a plain file, or None without one. Raises NotPlain for other entries, TooMuch above `most`, OSError."""
    try:
        with holding(root, beneath) as (parent, name):
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISREG(info.st_mode):
                raise NotPlain(f"is a {kind_of(info)}, not a plain file", file=root / beneath)
            with opened(name, PLAIN, parent) as number:
                data = read(number, most + 1, 0)
    except (Missing, *GONE):
        return None
    if len(data) > most:
        raise TooMuch(f"is larger than {most} bytes", file=root / beneath)
    return data


def measure(root: Path, *, bounds: Bounds = OURS) -> DiskUsage:
    """Measure the usage of a tree that programs may still change. Raises TooMuch for entries and depth, and OSError."""
    used = WalkUsage(bounds)
    seen: set[tuple[int, int]] = set()
    taken = 0
    with (
        suppress(Missing, *GONE),
        holding(root, "") as (parent, name),
        closing(visit(parent, name, used, live=True)) as visited,
    ):
        for _path, _holder, _last, info in visited:
            inode = (info.st_dev, info.st_ino)
            if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
                if inode in seen:
                    continue
                seen.add(inode)
            taken += info.st_blocks * 512
    return DiskUsage(taken, used.files)


def room(path: Path) -> Room:
    """The free space of a path's file system. Raises OSError."""
    status = os.statvfs(path)
    return Room(status.f_bavail * status.f_frsize, status.f_favail if status.f_files else None)


_SHALLOW = 64
_BATCH = 10_000


def prune(root: Path, patterns: Iterable[str], beneath: str = "") -> None:
    """Removes every entry that matches one of the patterns, as `tar --exclude` reads them. Raises as `walk` and `remove` do.

    A pattern may match the whole path, or the rest of it after any slash. `*` also matches slashes. `./` is the top.
    """
    expressions = [re.compile(fnmatch.translate(pattern.rstrip("/"))) for pattern in patterns]
    matched: list[str] = []
    for entry in walk(root, beneath):
        parts = (".", *entry.path.split("/")) if entry.path != "." else ()
        if matched and entry.path.startswith(f"{matched[-1]}/"):
            continue
        if any(expression.match("/".join(parts[start:])) for start in range(len(parts)) for expression in expressions):
            matched.append(entry.path)
    for path in matched:
        remove(root, f"{beneath}/{path}")


def remove(root: Path, beneath: str = "") -> None:
    """Removes a file or a tree, whatever its permissions and depth, if it is there. Raises OSError, and TreeError for a mount."""
    try:
        with holding(root, beneath) as (parent, name):
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISDIR(info.st_mode):
                os.unlink(name, dir_fd=parent)
                return
            with mended(name, FOLDER, parent, 0o700) as top:
                # Folders that are too deep are moved to the top and removed from there, so any depth needs few descriptors.
                _empty(top, top, 0, os.fstat(top).st_dev)
            os.rmdir(name, dir_fd=parent)
    except (Missing, FileNotFoundError):
        return


def _empty(folder: int, top: int, depth: int, device: int) -> None:
    while True:
        with os.scandir(folder) as entries:
            batch = list(itertools.islice(entries, _BATCH))
        if not batch:
            return
        for entry in batch:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
                continue
            with mended(entry.name, FOLDER, folder, 0o700) as inner:
                if os.fstat(inner).st_dev != device:
                    raise TreeError(f"{entry.name[:80]!r} is a mount, which is not removed", hint="unmount it first")
                if depth < _SHALLOW:
                    _empty(inner, top, depth + 1, device)
            if depth < _SHALLOW:
                os.rmdir(entry.name, dir_fd=folder)
            else:
                os.rename(entry.name, f".{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=top)


_NO_MORE_NAMES = (errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP)
"""The errors of a file system when a file can have no further name."""
NAMED = 20
"""The number of skipped entries that `Copied` names."""


@dataclass(frozen=True)
class Copied:
    """The content of a copy, and the entries that it skipped."""

    files: int
    bytes: int
    left: int = 0
    """The number of skipped entries: devices, FIFOs, sockets, and links that lead out of the tree."""
    names: tuple[str, ...] = ()
    """The paths of the first skipped entries."""


@dataclass
class Links:
    """The copies of files with several names, by which their further names become hard links again."""

    top: Path
    """The folder that holds the copies. Several copies into one folder may share one `Links`."""
    known: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)
    """By device and inode of the source: the copy's path below `top`."""

    def make(self, info: os.stat_result, target_folder: int, new: str, path: tuple[str, ...]) -> bool:
        """Makes `new` in the target folder a hard link to an earlier copy; False if there is none or it can have no more names.

        path: the new name's path below `top`. Raises OSError.
        """
        key = (info.st_dev, info.st_ino)
        if info.st_nlink > 1 and key in self.known:
            with reached(self.top, self.known[key]) as (folder, name):
                try:
                    os.link(name, new, src_dir_fd=folder, dst_dir_fd=target_folder, follow_symlinks=False)
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
    """Copies a file or folder to a path that must not exist. Raises Missing, NotPlain, TooMuch, OSError, and then leaves nothing.

    The copy keeps bytes, holes, hard links, links that stay inside the tree, times of files and folders, and permissions without
    set-uid, set-gid and sticky. The limits count data that the file system stores, and a file with several names once.
    inside: the absolute path of the tree as programs in the box see it; absolute links below it are kept. If empty, none are.
    owner: uid and gid of the copies. mend: make entries of the source readable if their owner made them unreadable.
    links: from earlier copies into the same folder, if hard links lead from one copy to another.
    """
    job = _TreeCopy(WalkUsage(bounds), inside, owner, mend, target.name, links or Links(target.parent))
    with holding(root, beneath) as (source, name):
        target_folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            info = os.stat(name, dir_fd=source, follow_symlinks=False)
            if kind_of(info) not in ("file", "exec", "folder"):
                raise NotPlain(f"is a {kind_of(info)}, neither a file nor a folder", file=root / beneath)
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
            try:
                job.entry(source, name, info, target_folder, target.name, ())
            except BaseException:
                remove(target)
                raise
        finally:
            os.close(target_folder)
    return Copied(job.used.files, job.used.bytes, job.left, tuple(job.first))


@dataclass
class _TreeCopy:
    used: WalkUsage
    inside: str
    owner: tuple[int, int] | None
    mend: bool
    top: str
    links: Links
    left: int = 0
    first: list[str] = field(default_factory=list)

    def entry(self, source: int, name: str, info: os.stat_result, target_folder: int, new: str, path: tuple[str, ...]) -> None:
        """Copies `name` in folder `source` to `new` in the target folder. path: the names below the top."""
        self.used.entry(len(path))
        if stat.S_ISDIR(info.st_mode):
            self.folder(source, name, info, target_folder, new, path)
        elif stat.S_ISREG(info.st_mode):
            if not self.links.make(info, target_folder, new, (self.top, *path)):
                self.file(source, name, info, target_folder, new)
        elif stat.S_ISLNK(info.st_mode) and stays_inside(target := os.readlink(name, dir_fd=source), len(path) - 1, self.inside):
            self.link(target, info, target_folder, new, path)
        else:
            self.left += 1
            if self.left <= NAMED:
                self.first.append("/".join(path))

    def open(self, folder: int, name: str, flags: int) -> AbstractContextManager[int]:
        if not self.mend:
            return opened(name, flags, folder)
        return mended(name, flags, folder, 0o500 if flags == FOLDER else 0o400)

    def folder(self, source: int, name: str, info: os.stat_result, target_folder: int, new: str, path: tuple[str, ...]) -> None:
        with self.open(source, name, FOLDER) as here:
            os.mkdir(new, 0o700, dir_fd=target_folder)
            with opened(new, FOLDER, target_folder) as there:
                for last, status in names(here, self.used):
                    self.entry(here, last, status, there, last, (*path, last))
                self.finish(there, info)

    def link(self, target: str, info: os.stat_result, target_folder: int, new: str, path: tuple[str, ...]) -> None:
        if self.links.make(info, target_folder, new, (self.top, *path)):
            return
        os.symlink(target, new, dir_fd=target_folder)
        if self.owner is not None:
            os.chown(new, *self.owner, dir_fd=target_folder, follow_symlinks=False)

    def file(self, source: int, name: str, info: os.stat_result, target_folder: int, new: str) -> None:
        with self.open(source, name, PLAIN) as here, opened(new, NEW, target_folder, 0o600) as there:
            size = os.fstat(here).st_size
            for offset, block in data_of(here, size, self.used):
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
    """True if a link cannot lead out of a tree. depth: the number of folders between the top and the link. inside: as for `copy`.

    `..` may stand only at the beginning: after a name, it would start from wherever another link leads.
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
