"""Reads and writes the files of a competition within bounds, and names the place of an error in them. SPEC 1, 7.

A file or a folder is written whole or not at all: a reader sees the old content or the new one, even after a crash. A file above
its bound is refused before it is read whole.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from assay.errors import BadInput
from assay.scheme.reading import check_file, opened, present

__all__ = [
    "DEPTH",
    "EVIDENCE_FILES",
    "EVIDENCE_RECORDS",
    "LINE_BYTES",
    "LISTED_ROWS",
    "LONGEST_TASK",
    "MOST_PAIRS",
    "MOST_PARTICIPANTS",
    "MOST_TASKS",
    "MOST_UIDS",
    "MOST_VALIDATORS",
    "NODE_FOLDER",
    "NODE_STATUS",
    "SETTLEMENT_BYTES",
    "TABLE_BYTES",
    "TRIALS_IN_ALL",
    "Place",
    "TableRow",
    "alone",
    "check_file",
    "check_locks",
    "clear",
    "decode",
    "flush_folder",
    "load",
    "lock",
    "new_folder",
    "opened",
    "present",
    "stamp",
    "unreadable",
    "write_all",
    "write_bytes",
    "write_text",
]


TABLE_BYTES = 64_000_000
"""Bytes of one CSV file, or of tasks.txt."""
LINE_BYTES = 1_000_000
"""Bytes of one line of evidence: one record."""
SETTLEMENT_BYTES = 512_000_000
"""Bytes of an earlier settlement."""
DEPTH = 32
"""Nesting of objects and lists in JSON."""
MOST_PARTICIPANTS = 65_536
"""Rows of participants.csv."""
MOST_VALIDATORS = 4_096
"""Rows of validators.csv."""
MOST_PAIRS = 20_000_000
"""Validators × participants: the most elements of a settlement's arrays."""
LONGEST_TASK = 256
"""Characters of a task id."""
MOST_TASKS = 100_000
"""Lines of tasks.txt."""
TRIALS_IN_ALL = 10_000_000
"""Tasks × trials."""
LISTED_ROWS = 1_000_000
"""Rows of history.csv and of randomness.csv."""
EVIDENCE_FILES = 10_000
"""Files in evidence/."""
EVIDENCE_RECORDS = 5_000_000
"""Records in all .jsonl files together. Parquet files have no such bound."""
MOST_UIDS = 65_536
"""A uid is below this number: the chain stores it in 16 bits."""
NODE_FOLDER = "node"
"""In a competition's folder: what a node remembers, and what it says."""
NODE_STATUS = f"{NODE_FOLDER}/status.json"
"""In a competition's folder: what a node says of itself, which the service counts too."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file: the file, a line (from 1) and a field, each if it is known."""

    file: Path | str | None = None
    line: int | None = None
    field: str = ""

    def refuse(self, what: str, *, field: str = "", hint: str = "") -> BadInput:
        """The error about this place, to be raised."""
        whole = ".".join(part for part in (self.field, field) if part)
        return BadInput(what, file=self.file, line=self.line, field=whole, hint=hint)

    def put(self, error: BadInput) -> BadInput:
        """The error, with this place filled in if it had none."""
        error.at(file=self.file, line=self.line, field=self.field)
        return error

    def inside(self, field: str | int) -> Place:
        """The place of a field inside this one, or of an element by its number."""
        if isinstance(field, int):
            return replace(self, field=f"{self.field}[{field}]")
        return replace(self, field=f"{self.field}.{field}" if self.field else field)

    def __str__(self) -> str:
        return BadInput("", file=self.file, line=self.line, field=self.field).where


class TableRow(NamedTuple):
    """The fields of one row by name, and its place."""

    fields: dict[str, Any]
    place: Place


PIECE = 1_000_000
BOM = b"\xef\xbb\xbf"


def load(path: Path, most: int, *, hint: str) -> bytes:
    """The bytes of a file. Raises BadInput if it is missing (with `hint`), cannot be read, or has more than `most` bytes."""
    try:
        with opened(path) as file:
            data = b"".join(_pieces(file, most + 1))
    except FileNotFoundError:
        raise BadInput("no such file", file=path, hint=hint) from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if len(data) > most:
        raise BadInput(f"is larger than {most} bytes", file=path, hint="is this the right file?")
    return data


def _pieces(file: BinaryIO, most: int) -> Iterator[bytes]:
    """The file in pieces, at most `most` bytes: reading all at once would allocate `most` bytes first."""
    while most > 0 and (piece := file.read(min(most, PIECE))):
        most -= len(piece)
        yield piece


def unreadable(path: Path, error: OSError | ValueError) -> BadInput:
    """The operating system's error about a file, as BadInput."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BadInput(f"cannot be read ({why})", file=path, hint="check the path, its permissions, and that it is a file")


def decode(data: bytes, file: Path | str | None) -> str:
    """The text of UTF-8 bytes, without a byte order mark. Raises BadInput with the line of the first wrong byte."""
    data = data.removeprefix(BOM)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"byte 0x{data[error.start]:02x} is not UTF-8", file=file, line=line, hint="save the file as UTF-8"
        ) from None


try:
    import fcntl

    LOCKS = True
except ModuleNotFoundError:  # Windows
    LOCKS = False


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text to a file, as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write bytes to a file: first beside it, then flushed to the disk, then renamed over it. Raises BadInput if that fails.

    private: only the owner may ever read it (0600); otherwise it keeps its mode. A device or a pipe is written into, not
    replaced.
    """
    write_all([(path, data)], private=private)


def write_all(files: Sequence[tuple[Path, bytes]], *, private: bool = False) -> None:
    """Write bytes to several files, as `write_bytes` does. The first is renamed when all of them are on the disk.

    A crash between two renames leaves the later files unchanged.
    """
    beside: list[tuple[Path, Path, Path]] = []
    try:
        for path, data in files:
            with _refused(path):
                if path.is_char_device() or path.is_fifo():  # a rename would turn /dev/null into a file
                    path.write_bytes(data)
                    continue
                target = Path(os.path.realpath(path))
                beside.append((path, target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp"), target))
                _write(beside[-1][1], data, target, private=private)
        for path, new, target in beside:
            with _refused(path):
                new.replace(target)
    except BaseException:
        for _, new, _ in beside:
            with suppress(OSError):  # the first error is the one to report
                new.unlink(missing_ok=True)
        raise
    for path, _, target in beside:
        with _refused(path):
            flush_folder(target.parent)


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"cannot be written ({error.strerror})", file=path, hint="check that the folder exists, its permissions and its space"
        ) from None


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Make a new folder: the block fills the given one, which is then flushed to the disk and renamed to `target`.

    Raises BadInput if `target` exists or cannot be written. Nothing of an unfinished folder is left.
    """
    if os.path.lexists(target):
        raise BadInput("is there already", file=target, hint="name a folder that does not exist yet")
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        try:
            beside.mkdir(parents=True)
            yield beside
            for folder in {path.parent for path in beside.rglob("*")} | {beside}:
                flush_folder(folder)
            os.rename(beside, target)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        flush_folder(target.parent)
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        raise BadInput(what, file=target, hint="check that the folder above exists, its permissions and its space") from None


def _write(beside: Path, data: bytes, target: Path, *, private: bool) -> None:
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    with os.fdopen(number, "wb") as file:
        if target.is_file() and not private and hasattr(os, "fchmod"):
            os.fchmod(number, target.stat().st_mode & 0o777)
        file.write(data)
        file.flush()
        os.fsync(number)


def clear(folder: Path) -> None:
    """Remove the files that killed writers left in a folder. Nobody else may write there now."""
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)


def check_locks() -> None:
    """Refuse to write files that several processes share, if this system has no file locks. Raises BadInput."""
    if not LOCKS:
        hint = "write on Linux or macOS; anything that only reads works here"
        raise BadInput(
            f"ledgers and journals cannot be written on this system ({sys.platform}): it has no POSIX file locks", hint=hint
        )


def lock(number: int, *, wait: bool = True) -> None:
    """Lock an open file until it is closed. Raises BlockingIOError if another process has the lock and `wait` is False."""
    check_locks()
    fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock a folder in the block: one process at a time adds files to it."""
    check_locks()
    number = os.open(folder, os.O_RDONLY)
    try:
        lock(number)
        yield
    finally:
        os.close(number)


def stamp(path: Path) -> tuple[Any, ...]:
    """Return what changes when a file does; also its name, so that stamps can be sorted."""
    try:
        status = path.stat()
    except OSError:
        return (path.name, 0, 0, 0)
    return (path.name, status.st_mtime_ns, status.st_size, status.st_ino)


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk, so that they survive a power cut. Raises OSError.

    Windows cannot open a folder, so there it does nothing.
    """
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
