"""Keeps an agent's finished work, so that the tests of its trial can run again. SPEC 2.1, 7 (`[evidence] keep = "work"`).

    trials/<validator>/<participant>@<digest12>/<task>/<n>/work.tar.gz

The archive holds what the tests get from the agent's box in `separate` mode: 0, 1, … are the task's kept paths, in order. The
record of evidence names the archive by its SHA-256, so nobody can replace it later. The archive comes from a validator that
may lie: it is unpacked within the task's limits, no link is followed, and nothing is made outside of its folder.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from assay.judge import tree
from assay.judge.sandbox import InfrastructureError
from assay.judge.terminal.record import WORK_FILE

__all__ = ["WORK_FILE", "OtherWork", "check_work", "pack_work", "unpack_work"]

_LEVEL = 6


class OtherWork(tree.TreeError):
    """The kept work is not there, is another, or cannot be unpacked: the trial cannot be judged again."""


def pack_work(sources: Sequence[Path], target: Path, most: int) -> str:
    """Write the archive of these trees (those that exist), and return its digest, `sha256:…`. The same trees give the same bytes.

    most: bytes of the archive. Raises tree.TreeError, with nothing left, if it would have more; and OSError.
    """
    try:
        with (
            target.open("xb") as file,
            gzip.GzipFile("", "wb", _LEVEL, fileobj=_Bounded(file, most), mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            for number, source in enumerate(sources):
                if source.exists() or source.is_symlink():
                    _add(archive, source, str(number))
        with target.open("rb") as written:
            return f"sha256:{hashlib.file_digest(written, 'sha256').hexdigest()}"
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _add(archive: tarfile.TarFile, source: Path, name: str) -> None:
    from assay.judge.sandbox.containers.archive import pack_entries  # late: it can only be imported on Linux

    top, *rest = tree.walk(source)
    if top.kind == "folder":
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.mtime = tarfile.DIRTYPE, top.mode & 0o777, int(source.lstat().st_mtime)
        archive.addfile(member)
        pack_entries(archive, source, iter(rest), name, links={})
    else:
        pack_entries(archive, source, iter([top]), name)


class _Bounded:
    """A file that refuses to become longer."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file, self._left, self._most = file, most, most

    def write(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise tree.TooMuch(f"the compressed work has more than {self._most} bytes")
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def check_work(file: Path, digest: str) -> None:
    """Raise OtherWork unless the file is there, and is the one with this digest."""
    try:
        with file.open("rb") as opened:
            seen = f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"
    except OSError as error:
        raise OtherWork(f"the work is not here ({error.strerror})", file=file) from None
    if seen != digest:
        raise OtherWork("the work is another than the record names", file=file)


@contextmanager
def unpack_work(file: Path, digest: str, place: Path, bounds: tree.Bounds) -> Iterator[Path]:
    """The unpacked work in a new folder at `place`, which is removed when the block ends. Raises OtherWork, and OSError."""
    from assay.judge.sandbox.containers.archive import unpack_root

    check_work(file, digest)
    try:
        try:
            with file.open("rb") as opened:
                unpack_root(opened, place, bounds=bounds)
        except (InfrastructureError, tree.TreeError, ValueError) as error:
            raise OtherWork(f"the work cannot be unpacked: {error}", file=file) from None
        yield place
    finally:
        with suppress(tree.Missing):
            tree.remove(place)
