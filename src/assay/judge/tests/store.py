"""Where a validator's trials and evidence are kept, so that a crash at any moment loses nothing and counts nothing twice.

    trials/<validator>/<participant>@<digest12>/<task>/<n>/     one folder a trial: result.json, what was printed, ctrf.json
    trials/<validator>/.lock, .partial/                          the run that is going on, and what it has not finished
    evidence/run-<validator>.jsonl                               one line for each trial that is not an ERROR

A trial's folder is made in .partial/, its record flushed by who judged it, and renamed to its place; then its line is written. A
crash in between leaves a result without a line, which the next run writes; a line that was cut off is taken away first. SPEC 2.1,
3.0.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from assay.errors import AssayError, BadInput
from assay.exact import canonical
from assay.folder import strict
from assay.folder.limits import LINE_BYTES
from assay.judge import tree
from assay.judge.tests import record as records
from assay.judge.tests.record import TrialRecord
from assay.records import record

__all__ = ["Busy", "Store", "kept", "segment", "short"]

_SAFE = re.compile(rb"[A-Za-z0-9_+=,-]", re.ASCII)
LONGEST = 120
PATIENCE = 60.0
"""Seconds that a run waits for the workers of an earlier one, which was killed, to clear up."""


class Busy(AssayError):
    """Another run of the same validator is going on."""


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


class Store:
    """What one validator keeps in a competition's folder."""

    def __init__(self, competition: Path, validator: str) -> None:
        self.validator = validator
        self.root = competition / "trials" / segment(validator)
        self.evidence = competition / "evidence" / f"run-{segment(validator)}.jsonl"
        self._partial = self.root / ".partial"

    @contextmanager
    def lock(self) -> Iterator[int]:
        """Holds the validator's lock, and gives its descriptor, which workers hold too: nobody begins before they are gone.

        Raises Busy if another run has it, and BadInput where nothing can be written. Waits for the workers of a run that is dead.
        """
        try:
            self._partial.mkdir(parents=True, exist_ok=True)
            number = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            hint = "check its permissions and space"
            raise BadInput(f"cannot be written ({error.strerror})", file=self.root, hint=hint) from None
        try:
            until = time.monotonic() + PATIENCE
            while not _locked(number):
                if _alive(number) or time.monotonic() > until:
                    hint = "wait for that run to end, or stop it; it can be continued"
                    raise Busy(f"validator {self.validator!r} is judging already", file=self.root, hint=hint)
                time.sleep(0.05)
            os.ftruncate(number, 0)
            os.pwrite(number, str(os.getpid()).encode(), 0)
            try:
                yield number
            finally:
                os.ftruncate(number, 0)
        finally:
            os.close(number)

    def place(self, participant: str, submission: str, task: str, trial: int) -> Path:
        """The folder of a trial."""
        return self.root / f"{segment(participant)}@{short(submission)}" / segment(task) / str(trial)

    def partial(self) -> Path:
        """A new folder for a trial that is going on."""
        made = self._partial / secrets.token_hex(8)
        made.mkdir(parents=True)
        return made

    def clean(self) -> int:
        """Removes what an earlier run left unfinished; returns how many trials. For the holder of the lock."""
        left = sorted(self._partial.iterdir()) if self._partial.is_dir() else []
        for one in left:
            tree.remove(one)
        return len(left)

    def keep(self, partial: Path, found: TrialRecord) -> Path:
        """Puts a trial whose record is written in its place, where an earlier error gives way to it; no crash undoes that.

        Raises OSError.
        """
        target = self.place(found.participant, found.submission, found.task, found.trial)
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target):
            aside = self._partial / secrets.token_hex(8)
            target.rename(aside)
            partial.rename(target)
            tree.remove(aside)
        else:
            partial.rename(target)
        _flush(target.parent)
        return target

    def append(self, found: TrialRecord) -> bool:
        """Adds the trial's line of evidence and flushes it to the disk; False for an error, which has none. Raises OSError."""
        evidence = found.evidence()
        if evidence is None:
            return False
        line = canonical(evidence.document()) + b"\n"
        new = not self.evidence.exists()
        self.evidence.parent.mkdir(exist_ok=True)
        number = os.open(self.evidence, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
            _flush(self.evidence.parent)
        return True

    def repair(self) -> bool:
        """Mends the end of the evidence file, if need be: a whole record gets its line end, half of one is taken away."""
        try:
            number = os.open(self.evidence, os.O_RDWR | os.O_CLOEXEC)
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

    def result(self, participant: str, submission: str, task: str, trial: int) -> TrialRecord | None:
        """The record of a trial that was judged; None if there is none that can be read."""
        try:
            return records.read(self.place(participant, submission, task, trial) / records.FILE)
        except BadInput:
            return None


def kept(competition: Path) -> Iterator[tuple[Path, TrialRecord]]:
    """Every trial that is kept in a competition's folder, and where; what cannot be read is passed over."""
    for file in sorted((competition / "trials").glob(f"[!.]*/[!.]*/*/*/{records.FILE}")):
        with suppress(BadInput):
            yield file.parent, records.read(file)


def _is_record(line: bytes) -> bool:
    try:
        return record(strict.parse(line.decode("utf-8"))) is not None
    except (BadInput, UnicodeDecodeError):
        return False


def _locked(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _alive(number: int) -> bool:
    """Whether the run that wrote its process number into the lock lives; without a number it does, or is about to begin."""
    said = os.pread(number, 20, 0)
    return not said.isdigit() or Path(f"/proc/{int(said)}").exists()


def _flush(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
