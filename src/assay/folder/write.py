"""Writing a file, or a folder, whole or not at all: a reader sees the old content or the new, whatever happens in between."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from assay.errors import BadInput

try:
    import fcntl

    LOCKS = True
except ModuleNotFoundError:  # Windows
    LOCKS = False

__all__ = ["alone", "check_locks", "clear", "flush_folder", "lock", "new_folder", "write_all", "write_bytes", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Put UTF-8 text in a file, as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes, *, private: bool = False) -> None:
    """Put bytes in a file: written beside it, flushed to the disk, then renamed over it; raises BadInput if that fails.

    private: for its owner alone (0600), at no moment for others; else it keeps the mode that it had. A device or a pipe stays
    one, and is written into.
    """
    write_all([(path, data)], private=private)


def write_all(files: Sequence[tuple[Path, bytes]], *, private: bool = False) -> None:
    """Put bytes in several files, as `write_bytes` does; the first is renamed when all of them are on the disk.

    A crash between two renames leaves the later files as they were.
    """
    beside: list[tuple[Path, Path, Path]] = []
    try:
        for path, data in files:
            with _told(path):
                if path.is_char_device() or path.is_fifo():  # renamed over, /dev/null would be a file from then on
                    path.write_bytes(data)
                    continue
                target = Path(os.path.realpath(path))
                beside.append((path, target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp"), target))
                _write(beside[-1][1], data, target, private=private)
        for path, new, target in beside:
            with _told(path):
                new.replace(target)
    except BaseException:
        for _, new, _ in beside:
            with suppress(OSError):  # what was wrong first is told
                new.unlink(missing_ok=True)
        raise
    for path, _, target in beside:
        with _told(path):
            flush_folder(target.parent)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"cannot be written ({error.strerror})", file=path, hint="check that the folder exists, its permissions and its space"
        ) from None


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder that is not there yet: what is put into the one that is given, flushed to the disk, then renamed to it.

    Raises BadInput if it is there, or cannot be written; nothing is left of one that was not finished.
    """
    if os.path.lexists(target):
        raise BadInput("is there already", file=target, hint="give a folder that is not there yet")
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
    """Remove what writers that died have left in a folder: for a place where nobody else writes now."""
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)


def check_locks() -> None:
    """Refuse to write what several processes write in turns, where there are no file locks to take turns by; raises BadInput."""
    if not LOCKS:
        hint = "write on Linux or macOS; anything that only reads works here"
        raise BadInput(
            f"ledgers and journals cannot be written on this system ({sys.platform}): it has no POSIX file locks", hint=hint
        )


def lock(number: int, *, wait: bool = True) -> None:
    """Hold an open file alone until it is closed; raises BlockingIOError if another process holds it and `wait` is False."""
    check_locks()
    fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder alone: one process at a time adds to it."""
    check_locks()
    number = os.open(folder, os.O_RDONLY)
    try:
        lock(number)
        yield
    finally:
        os.close(number)


def flush_folder(folder: Path) -> None:
    """Make what was put in a folder, or taken from it, outlast a power cut; raises OSError.

    Windows cannot open a folder, and has no call for this: there it does nothing.
    """
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
