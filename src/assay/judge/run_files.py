"""The files of a validator's run: its lock, its file of evidence, and names that are safe in a path.

- One run of a validator goes on at a time: it holds a lock, and so do the processes that work for it.
- A line of evidence is on the disk before it counts. A line that a crash cut off is taken away before the next one is written.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from assay.errors import AssayError, BadInput
from assay.folder import strict
from assay.folder.files import LINE_BYTES, check_locks, flush_folder, lock

__all__ = ["RunBusy", "append", "evidence_file", "held", "mend", "segment", "short"]

_SAFE = re.compile(rb"[A-Za-z0-9_+=,-]", re.ASCII)
LONGEST = 120
PATIENCE = 60.0
"""Seconds that a run waits for those who worked for an earlier one, which was killed, to clear up."""


class RunBusy(AssayError):
    """Another run of the same validator is going on."""


@lru_cache(maxsize=4096)
def segment(name: str) -> str:
    """A name as one folder name: safe bytes as they are, others percent-encoded; a long one is cut and ends in its hash."""
    parts = []
    for place, byte in enumerate(name.encode()):
        char = bytes([byte])
        plain = _SAFE.fullmatch(char) or (char == b"." and place > 0)
        parts.append(char.decode() if plain else f"%{byte:02X}")
    whole = "".join(parts)
    if len(whole) <= LONGEST:
        return whole
    return f"{whole[: LONGEST - 17]}~{sha256(name.encode()).hexdigest()[:16]}"


def short(digest: str) -> str:
    """The first twelve characters of a digest, without what kind it is."""
    return segment(digest.rpartition(":")[2][:12])


def evidence_file(competition: Path, validator: str) -> Path:
    """The file into which the runs of a validator write their evidence."""
    return competition / "evidence" / f"run-{segment(validator)}.jsonl"


@contextmanager
def held(root: Path, validator: str) -> Iterator[int]:
    """Holds the lock of a validator's own folder, which is made, and gives the lock's descriptor for those who work for it.

    Raises RunBusy if another run has it, and BadInput where nothing can be written. Waits for those who worked for a dead run.
    """
    check_locks()
    try:
        root.mkdir(parents=True, exist_ok=True)
        number = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _cannot_write(root, error) from None
    try:
        until = time.monotonic() + PATIENCE
        while not _locked(number):
            if _alive(number) or time.monotonic() > until:
                hint = "wait for that run to end, or stop it; it can be continued"
                raise RunBusy(f"validator {validator!r} is judging already", file=root, hint=hint)
            time.sleep(0.05)
        try:
            os.ftruncate(number, 0)
            os.pwrite(number, str(os.getpid()).encode(), 0)
        except OSError as error:
            raise _cannot_write(root, error) from None
        try:
            yield number
        finally:
            os.ftruncate(number, 0)
    finally:
        os.close(number)


def _cannot_write(root: Path, error: OSError) -> BadInput:
    return BadInput(f"cannot be written ({error.strerror})", file=root, hint="check its permissions and space")


def append(file: Path, line: bytes) -> None:
    """Adds a line, with its end, to a file of evidence and flushes it to the disk, or leaves all as it was. Raises OSError."""
    new = not file.exists()
    file.parent.mkdir(exist_ok=True)
    number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        before = os.fstat(number).st_size
        try:
            if os.write(number, line) != len(line):
                raise OSError(28, "No space left on device")
            os.fsync(number)
        except OSError:
            os.ftruncate(number, before)
            raise
    finally:
        os.close(number)
    if new:
        flush_folder(file.parent)


def mend(file: Path) -> bool:
    """Mends the end of a file of evidence, if need be: a whole record gets its line end, half of one is taken away."""
    try:
        number = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        size = os.fstat(number).st_size
        start = max(0, size - LINE_BYTES - 1)
        tail = os.pread(number, size - start, start)
        if not tail or tail.endswith(b"\n"):
            return False
        last = tail.rpartition(b"\n")[2]
        if _is_record(last):
            os.pwrite(number, b"\n", size)
        else:
            os.ftruncate(number, size - len(last))
        os.fsync(number)
        return True
    finally:
        os.close(number)


def _is_record(line: bytes) -> bool:
    from assay.records import record  # late: a judge's process needs no records

    try:
        return record(strict.parse(line.decode("utf-8"))) is not None
    except (BadInput, UnicodeDecodeError):
        return False


def _locked(number: int) -> bool:
    try:
        lock(number, wait=False)
    except OSError:
        return False
    return True


def _alive(number: int) -> bool:
    """True if the run that wrote its process number into the lock lives; without a number it does, or is about to begin.

    A dead process that nobody has reaped yet still has its number.
    """
    number_text = os.pread(number, 20, 0)
    if not number_text.isdigit():
        return True
    try:
        return Path(f"/proc/{int(number_text)}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
