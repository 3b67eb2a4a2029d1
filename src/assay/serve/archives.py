"""Packs what a participant hands in: a .tar.gz that is the same for the same files; and how large an archive may be.

`unpacking` unpacks what a stranger handed in, in a box.
"""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from assay.characters import PATTERN
from assay.errors import BadInput
from assay.judge import tree
from assay.judge.tree.handles import FOLDER, PLAIN, holding, names, opened
from assay.serve.unpacker import EntryNames, RefusedEntry

__all__ = ["ARCHIVE", "BOUNDS", "SEALED", "ArchiveBounds", "pack"]

ARCHIVE = "application/gzip"
"""The media type of an archive; any other than SEALED means an archive too."""
SEALED = "application/vnd.assay.sealed"
"""The media type of a sealed solution, and of the commitment to one."""


@dataclass(frozen=True)
class ArchiveBounds:
    """The limits on the size of an archive and of its content."""

    packed: int = 64_000_000
    """Bytes of the archive itself."""
    bytes: int = 256_000_000
    """Bytes of all files together."""
    files: int = 20_000
    """Files and folders, with folders that are only named in a file's path."""
    depth: int = 32
    """Names in a path."""
    name: int = 255
    """Bytes of one name."""
    path: int = 1000
    """Bytes of a path."""
    ratio: int = 200
    """The largest ratio of content to archive, once the content is larger than 10 MB."""


BOUNDS = ArchiveBounds()
"""The bounds where nothing else is said."""


def pack(source: Path, target: IO[bytes], *, bounds: ArchiveBounds = BOUNDS, compressed: bool = True) -> None:
    """Writes a folder, or one file, as a .tar.gz: sorted names, no times, no owners, permissions 644 or 755.

    The same files give the same bytes; as a plain tar (compressed=False) on every machine, whatever its zlib. Raises BadInput for
    links and devices, for too many files, and for files that change meanwhile.
    """
    entries = EntryNames(bounds, PATTERN)
    try:
        gz = (
            gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0, compresslevel=6) if compressed else nullcontext(target)
        )
        with (
            gz as packed,
            closing(tarfile.open(fileobj=packed, mode="w:", format=tarfile.PAX_FORMAT, encoding="utf-8")) as tar,
            holding(source, "") as (parent, name),
        ):
            _pack_entry(tar, parent, name, "" if source.is_dir() else source.name, entries, source)
    except RefusedEntry as error:
        raise BadInput(error.what, file=source, hint=error.hint) from None
    except tree.TreeError as error:
        raise BadInput(error.what, file=source, hint="name the folder or the file to hand in") from None
    except OSError as error:
        raise BadInput(
            f"cannot be packed ({error.strerror or error})", file=error.filename or source, hint="try it again"
        ) from None


def _pack_entry(tar: tarfile.TarFile, parent: int, name: str, path: str, entries: EntryNames, source: Path) -> None:
    """Adds one entry and everything below it. path: its name in the archive; empty for the top."""
    info = os.stat(name, dir_fd=parent, follow_symlinks=False)
    entry = tarfile.TarInfo(path)
    if stat.S_ISREG(info.st_mode):
        entries.add(path, folder=False, size=info.st_size)
        with opened(name, PLAIN, parent) as number, open(number, "rb", closefd=False) as file:
            entry.size, entry.mode = os.fstat(number).st_size, 0o755 if info.st_mode & 0o100 else 0o644
            tar.addfile(entry, file)
        return
    if not stat.S_ISDIR(info.st_mode):
        raise BadInput("is a link or a device", file=source / path, hint="hand in plain files and folders only")
    if path:
        entries.add(path, folder=True)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(entry)
    with opened(name, FOLDER, parent) as folder:
        most = tree.WalkUsage(tree.Bounds(bytes=entries.bounds.bytes, files=entries.bounds.files))
        for last, _status in names(folder, most):
            _pack_entry(tar, folder, last, f"{path}/{last}" if path else last, entries, source)
