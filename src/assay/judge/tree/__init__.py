"""The nouns of trees: bounds, entries, and what can be wrong.

One digest for a whole tree.

It is the SHA-256 over one line per entry, folders before what is in them, names in a folder sorted by their bytes:
`KIND CONTENT PATH`, with KIND `file`, `exec` (its owner may run it), `folder`, `link`, `fifo`, `socket` or `device`. CONTENT is
the SHA-256 of a file's bytes or of a link's target, else `-`. PATH is percent-encoded; of the top it is `.`.

If a file has all-zero blocks of 64 KiB, they are left out of its hash, and `:SIZE:` and the SHA-256 of the lines
`OFFSET LENGTH LF`, one per run of such blocks, follow. So a terabyte of nothing costs nothing.

Looking at a tree: its entries, a file in it, what it takes up.

Removing a tree, or what matches patterns in one, whatever its permissions and depth.

Copying a tree: plain files, folders, and links that stay inside. A file with several names is copied once and keeps them.

Folders as values: a digest, a copy, a clean removal, of trees that untrusted programs wrote.

- Nothing is reached through a link: every step down opens a name in a folder that is already held open, and links refuse to open.
- Only plain files, folders and links are kept. A device, FIFO or socket is never opened.
- A file with holes costs what is in it, not what its size says; an all-zero block counts as a hole, wherever it came from.
- A file with several names is read and copied once, and keeps its names.
- Everything has a bound (`TooMuch`); removal has none, because it must always work.

OSError is let through: it is the host's trouble, which callers tell apart from what the tree did.
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
    Budget,
    Entry,
    Kind,
    Missing,
    NotPlain,
    TooMuch,
    TreeError,
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
    "Budget",
    "Copied",
    "Entry",
    "Kind",
    "Links",
    "Missing",
    "NotPlain",
    "Room",
    "TooMuch",
    "TreeError",
    "Usage",
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
    """`sha256:` and the digest of a file or folder, as the head of this module says; raises Missing, TooMuch and OSError.

    root is reached as given; what is `beneath` it is reached through real folders only. A file with several names is read once.
    once: it also counts once for the bounds.
    """
    seen: dict[tuple[int, int], tuple[str, int]] = {}
    total, budget = hashlib.sha256(), Budget(bounds)
    with holding(root, beneath) as (parent, name), closing(visit(parent, name, budget)) as found:
        for path, holder, last, info in found:
            kind = kind_of(info)
            content = "-"
            if kind in ("file", "exec"):
                key, before = (info.st_dev, info.st_ino), budget.bytes
                if info.st_nlink > 1 and key in seen:
                    content, count = seen[key]
                    budget.data(0 if once else count)
                else:
                    with opened(last, PLAIN, holder) as number:
                        content = _hash(number, budget)
                    if info.st_nlink > 1:
                        seen[key] = content, budget.bytes - before
            elif kind == "link":
                content = hashlib.sha256(os.fsencode(os.readlink(last, dir_fd=holder))).hexdigest()
            total.update(f"{kind} {content} {quote_from_bytes(os.fsencode(path))}\n".encode())
    return f"sha256:{total.hexdigest()}"


def _hash(number: int, budget: Budget) -> str:
    size = os.fstat(number).st_size
    content, gaps, end, whole = hashlib.sha256(), hashlib.sha256(), 0, True
    for offset, block in itertools.chain(blocks(number, size, budget), ((size, b""),)):
        if offset > end:
            gaps.update(f"{end} {offset - end}\n".encode())
            whole = False
        content.update(block)
        end = offset + len(block)
    return content.hexdigest() if whole else f"{content.hexdigest()}:{size}:{gaps.hexdigest()}"


@dataclass(frozen=True)
class Usage:
    """What a tree takes up."""

    bytes: int
    """On the disk; a file with several names counts once."""
    files: int


@dataclass(frozen=True)
class Room:
    """What a file system still has for us."""

    bytes: int
    files: int | None
    """None where the file system does not count them."""


def walk(root: Path, beneath: str = "", *, bounds: Bounds = OURS) -> Iterator[Entry]:
    """Every entry of a tree, the top first, folders before what is in them; raises as `digest`."""
    with holding(root, beneath) as (parent, name), closing(visit(parent, name, Budget(bounds))) as found:
        for path, holder, last, info in found:
            kind = kind_of(info)
            target = os.readlink(last, dir_fd=holder) if kind == "link" else ""
            yield Entry(path, kind, info.st_size, stat.S_IMODE(info.st_mode), target)


def peek(root: Path, beneath: str = "", *, most: int) -> bytes | None:
    """The bytes of a plain file, None if nothing is there; raises NotPlain for other things, TooMuch above `most`, OSError."""
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


def measure(root: Path, *, bounds: Bounds = OURS) -> Usage:
    """What a tree takes up while programs may still change it; raises TooMuch for entries and depth, and OSError."""
    budget = Budget(bounds)
    seen: set[tuple[int, int]] = set()
    taken = 0
    with (
        suppress(Missing, *GONE),
        holding(root, "") as (parent, name),
        closing(visit(parent, name, budget, live=True)) as found,
    ):
        for _path, _holder, _last, info in found:
            one = (info.st_dev, info.st_ino)
            if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
                if one in seen:
                    continue
                seen.add(one)
            taken += info.st_blocks * 512
    return Usage(taken, budget.files)


def room(path: Path) -> Room:
    """What the file system of a path still has for us; raises OSError."""
    found = os.statvfs(path)
    return Room(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


_SHALLOW = 64
_BATCH = 10_000


def prune(root: Path, patterns: Iterable[str], beneath: str = "") -> None:
    """Removes what matches one of the patterns, as `tar --exclude` reads them; raises as `walk` and `remove`.

    A pattern is held against a path and against what is left of it after each slash; `*` goes over slashes; `./` is the top.
    """
    wanted = [re.compile(fnmatch.translate(one.rstrip("/"))) for one in patterns]
    found: list[str] = []
    for entry in walk(root, beneath):
        parts = (".", *entry.path.split("/")) if entry.path != "." else ()
        if found and entry.path.startswith(f"{found[-1]}/"):
            continue
        if any(one.match("/".join(parts[start:])) for start in range(len(parts)) for one in wanted):
            found.append(entry.path)
    for path in found:
        remove(root, f"{beneath}/{path}")


def remove(root: Path, beneath: str = "") -> None:
    """Removes a file or a tree, closed and deep ones too; nothing there is fine. Raises OSError, and TreeError for a mount."""
    try:
        with holding(root, beneath) as (parent, name):
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISDIR(info.st_mode):
                os.unlink(name, dir_fd=parent)
                return
            with mended(name, FOLDER, parent, 0o700) as top:
                # What is too deep is moved up to the top and removed from there, so that any depth needs few descriptors.
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
