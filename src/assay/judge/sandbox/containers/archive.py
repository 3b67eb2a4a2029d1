"""Packs files into tar archives for a container, and unpacks archives from it, of which every member is checked first.

- Into a container go only plain files, folders and links, with plain permissions. A folder is sent first as a file and then as a
  folder: that makes any engine remove whatever was there, and follow no link.
- Out of a container, each entry is made inside an open folder that Assay itself made. Links are made last and never followed;
  hard links stay hard links; devices, FIFOs and sockets are skipped.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from assay.judge import tree
from assay.judge.sandbox import InfrastructureError

__all__ = ["Incoming", "clear_folder", "finish", "pack", "pack_entries", "plain_file", "unpack", "unpack_root"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 16
"""Bytes that are written at once; if all are zeros, they become a hole."""
_ZEROS = bytes(_CHUNK)


def plain_file(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    """Adds a plain file that belongs to root."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    archive.addfile(member, io.BytesIO(data))


def clear_folder(archive: tarfile.TarFile, name: str, mode: int = 0o755, time: float = 0) -> None:
    """Adds an empty folder that replaces whatever is there."""
    plain_file(archive, name, b"")
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.mtime = tarfile.DIRTYPE, mode, time
    archive.addfile(member)


def finish(archive: tarfile.TarFile, file: IO[bytes]) -> None:
    """Ends an archive right after its two final blocks, without Python's padding.

    Podman's unpacking process may stop at those blocks, and writing the padding would then fail with a broken pipe.
    """
    archive.close()
    file.truncate(archive.offset)


def pack(archive: tarfile.TarFile, source: Path, name: str, mode: int | None = None) -> None:
    """Adds a file or folder of the host under this name, to replace whatever is there. Raises tree.TreeError and OSError.

    mode: other permissions for the file or folder itself. A file with several names is sent once.
    """
    pack_entries(archive, source, tree.walk(source), name, mode, links={})


def pack_entries(
    archive: tarfile.TarFile,
    source: Path,
    entries: Iterator[tree.Entry],
    name: str = "",
    mode: int | None = None,
    *,
    links: dict[tuple[int, int], str] | None = None,
) -> None:
    """Adds entries of a tree of the host, as `tree.walk` gives them.

    links: filled with files that have several names, which then stay hard links; None: each name becomes a file of its own.
    """
    for entry in entries:
        top = entry.path == "."
        member = tarfile.TarInfo(name if top else f"{name}/{entry.path}" if name else entry.path)
        member.mode = (entry.mode if mode is None or not top else mode) & 0o777
        place = source if top else source / entry.path
        if entry.kind == "folder":
            member.mtime = os.lstat(place).st_mtime
            if top:
                clear_folder(archive, member.name, member.mode, member.mtime)
            else:
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
        elif entry.kind == "link":
            member.type, member.linkname = tarfile.SYMTYPE, entry.target
            archive.addfile(member)
        elif entry.kind in ("file", "exec"):
            number = os.open(place, _READ)
            with os.fdopen(number, "rb") as file:
                info = os.fstat(number)
                if not stat.S_ISREG(info.st_mode):
                    raise tree.NotPlain("changed into something else while it was packed", file=place)
                member.mtime = info.st_mtime
                if links is not None and info.st_nlink > 1:
                    first = links.setdefault((info.st_dev, info.st_ino), member.name)
                    if first != member.name:
                        member.type, member.linkname = tarfile.LNKTYPE, first
                        archive.addfile(member)
                        continue
                member.size = info.st_size
                archive.addfile(member, file)


class Incoming(io.RawIOBase):
    """Makes a readable file of an answer that comes in pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fills the buffer from the next piece."""
        room = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece)
        count = min(len(room), len(self._piece))
        room[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count


def unpack(file: IO[bytes] | BinaryIO, target: Path, *, name: str, inside: str, bounds: tree.Bounds) -> bool:
    """Unpacks an archive to a path that must not exist; False if the archive has neither a file nor a folder.

    name: the name of the top in the archive. inside: its absolute path in the box; absolute links below that path are kept.
    Raises tree.TooMuch above the limits, InfrastructureError for a malformed archive, and OSError; then nothing is left.
    """
    job = _Unpack(target, name, inside, bounds)
    try:
        with tarfile.open(fileobj=file, mode="r|", errorlevel=2, errors="surrogateescape") as archive:
            for member in archive:
                job.member(archive, member)
        job.finish()
    except tarfile.TarError as error:
        tree.remove(target)
        raise InfrastructureError(f"the engine sent an archive that cannot be read: {error}") from error
    except BaseException:
        tree.remove(target)
        raise
    return os.path.lexists(target)


def unpack_root(file: IO[bytes] | BinaryIO, target: Path, *, bounds: tree.Bounds) -> None:
    """Unpacks an archive of a whole root file system, as `podman export` writes it, to a folder that must not exist.

    Owners, and permissions beyond rwx, are lost; devices are skipped. Raises as `unpack` does; then nothing is left.
    """
    target.mkdir(mode=0o755)
    job = _UnpackRoot(target, "", "/", bounds)
    try:
        with tarfile.open(fileobj=file, mode="r|*", errorlevel=2, errors="surrogateescape") as archive:
            for member in archive:
                if member.name.strip("./"):  # the top exists already
                    job.member(archive, member)
        job.finish()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        tree.remove(target)
        raise InfrastructureError(f"is not an archive that Assay can read: {error}") from error
    except BaseException:
        tree.remove(target)
        raise


class _Unpack:
    """Unpacks one archive, member by member."""

    def __init__(self, target: Path, name: str, inside: str, bounds: tree.Bounds) -> None:
        self.target, self.name, self.inside, self.bounds = target, name, inside, bounds
        self.files = self.bytes = 0
        self.folders: list[tuple[tuple[str, ...], int, float]] = []
        """Their permissions and times, which are set when all their entries exist."""
        self.links: list[tuple[tuple[str, ...], str]] = []
        self.targets: dict[tuple[str, ...], str] = {}

    def member(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = self.path(member.name)
        self.files += 1
        if self.files > self.bounds.files:
            raise tree.TooMuch(f"has more than {self.bounds.files} files and folders")
        if len(path) > self.bounds.depth:
            raise tree.TooMuch(f"has folders more than {self.bounds.depth} deep")
        if member.isdir():
            with self.holder(path) as (folder, last):
                os.mkdir(last, 0o700, dir_fd=folder)
            self.folders.append((path, member.mode, member.mtime))
        elif member.isreg():
            self.size(member.size)
            content = archive.extractfile(member)
            assert content is not None
            with content:
                self.file(path, content, member)
        elif member.islnk():
            self.hard_link(path, member)
        elif member.issym() and path and tree.stays_inside(member.linkname, len(path) - 1, self.inside):
            self.links.append((path, member.linkname))
            self.targets[path] = member.linkname

    def hard_link(self, path: tuple[str, ...], member: tarfile.TarInfo) -> None:
        """Makes a further name of an earlier member; nothing if that was skipped. Raises InfrastructureError."""
        first = self.path(member.linkname)
        if first in self.targets:
            if tree.stays_inside(self.targets[first], len(path) - 1, self.inside):
                self.links.append((path, self.targets[first]))
            return
        with suppress(FileNotFoundError), self.holder(first) as (source, name), self.holder(path) as (folder, last):
            info = os.stat(name, dir_fd=source, follow_symlinks=False)
            if not stat.S_ISREG(info.st_mode):
                raise InfrastructureError("the engine sent a hard link to something that is not a file")
            try:
                os.link(name, last, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                if error.errno != errno.EMLINK:
                    raise
                self.size(info.st_size)
                with os.fdopen(os.open(name, _READ, dir_fd=source), "rb") as content:
                    self.file(path, content, member)

    def path(self, name: str) -> tuple[str, ...]:
        """The names from the top to a member; none for the top itself."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or not parts or parts[0] != self.name or ".." in parts:
            raise InfrastructureError(f"the engine sent a file that was not asked for: {name[:200]!r}")
        return tuple(parts[1:])

    @contextmanager
    def holder(self, path: tuple[str, ...]) -> Iterator[tuple[int, str]]:
        """The open folder in which an entry is made, and the entry's name in it."""
        whole = (self.target.name, *path)
        number = os.open(self.target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in whole[:-1]:
                inner = os.open(name, _FOLDER, dir_fd=number)
                os.close(number)
                number = inner
            yield number, whole[-1]
        finally:
            os.close(number)

    def file(self, path: tuple[str, ...], source: IO[bytes], member: tarfile.TarInfo) -> None:
        with self.holder(path) as (folder, last):
            number = os.open(last, _NEW, 0o600, dir_fd=folder)
        with os.fdopen(number, "wb") as target:
            while data := source.read(_CHUNK):
                if data == _ZEROS[: len(data)]:
                    target.seek(len(data), os.SEEK_CUR)
                else:
                    target.write(data)
            target.truncate()
            os.fchmod(number, member.mode & 0o777 | 0o400)
            os.utime(number, (member.mtime, member.mtime))

    def size(self, count: int) -> None:
        self.bytes += count
        if self.bytes > self.bounds.bytes:
            raise tree.TooMuch(f"has more than {self.bounds.bytes} bytes in its files")

    def finish(self) -> None:
        for path, target in self.links:
            with self.holder(path) as (folder, last):
                os.symlink(target, last, dir_fd=folder)
        for path, mode, time in reversed(self.folders):
            with self.holder(path) as (folder, last):
                number = os.open(last, _FOLDER, dir_fd=folder)
            try:
                os.fchmod(number, mode & 0o777 | 0o500)
                os.utime(number, (time, time))
            finally:
                os.close(number)


class _UnpackRoot(_Unpack):
    """Unpacks a root file system, whose top has no name. A hard link to a link becomes a copy of that link."""

    def path(self, name: str) -> tuple[str, ...]:
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if not parts or ".." in parts:
            raise InfrastructureError(f"the archive has a name that leads out of it: {name[:200]!r}")
        return tuple(parts)

    def member(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        target = dict(self.links).get(self.path(member.linkname)) if member.islnk() else None
        if target is not None:
            self.links.append((self.path(member.name), target))
        else:
            super().member(archive, member)
