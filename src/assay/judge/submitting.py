"""Making something the current submission of a participant: participants.csv says whose it is, and since when. SPEC 2, 7.

If the competition has a ledger, the submission is recorded there first. If the rest then fails, submitting it again completes it.
"""

from __future__ import annotations

import csv
import io
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import BadInput, suggest
from assay.folder import csvs, registry
from assay.folder.files import MOST_PARTICIPANTS, Place, alone, decode, flush_folder, load, lock, write_text
from assay.judge import tree
from assay.judge.run_files import short
from assay.records import Participant
from assay.scheme.fields import instant, instant_text
from assay.scheme.load import read as read_scheme
from assay.scheme.reading import present
from assay.settle.inputs import arrived

if TYPE_CHECKING:
    from assay.ledger.store import Store, Submission

__all__ = [
    "ParticipantRow",
    "add_participant",
    "check_participant",
    "find",
    "flush",
    "is_staged",
    "placed",
    "rename_participant",
    "staging",
    "with_open_ledger",
]

STAGED = ".staged"
"""The folder of a competition for files that are handed in and not yet placed."""
_KNOWN: ContextVar[tuple[Path, Store] | None] = ContextVar("known", default=None)
"""A competition whose ledger is open already, and its database."""


@dataclass(frozen=True)
class ParticipantRow:
    """A participant's row, as it stands in participants.csv, among the others."""

    competition: Path
    participant: str
    header: list[str]
    rows: list[dict[str, str]]
    row: dict[str, str]

    @property
    def submission(self) -> str:
        """The participant's submission; empty if there is none."""
        return self.row.get("submission", "").strip()

    def is_duplicate(self, submission: str, others: Mapping[str, str]) -> bool:
        """Whether another participant has this submission, and had it earlier. SPEC 2, 2.1.

        others: participant → the submission that a ledger has, for those whose row names none.
        """
        same = []
        for row in self.rows:
            key, since = row.get("key", "").strip(), row.get("submitted_at", "").strip()
            theirs = row.get("submission", "").strip()
            if submission == (theirs or others.get(key, "")):
                same.append(Participant(key, submission=submission, submitted_at=instant(since) if theirs and since else None))
        return bool(same) and min(same, key=arrived).key != self.participant

    def enter(self, submission: str, *, at: datetime | None = None, epoch: int | None = None, exact: bool = False) -> int | None:
        """Makes a digest the submission; returns the epoch in which a ledger has it as accepted. Raises BadInput, StoreError.

        epoch: in which it is accepted, for a competition with a ledger; None is the latest that is open. The same submission
        once more changes nothing, and keeps its time: it ranks ties. exact: `at` with its fraction of a second.
        """
        then = at or datetime.now(UTC)
        when = instant_text(then if exact else then.replace(microsecond=0))
        changed = self.submission != submission
        if not changed:
            when = self.row.get("submitted_at", "")
        accepted = _handed_in(self.competition, self.participant, submission, epoch, when)
        if changed:
            latest = find(self.competition, self.participant)  # a service may have added rows meanwhile
            latest._write(submission, when if accepted is None else accepted.submitted_at)
            self.row.update(latest.row)
        return None if accepted is None else accepted.epoch

    def _write(self, submission: str, when: str) -> None:
        for name in ("submission", "submitted_at"):
            if name not in self.header:
                self.header.append(name)
        if "accepted_epoch" in self.header:
            self.row["accepted_epoch"] = ""  # that was the earlier one's
        self.row["submission"], self.row["submitted_at"] = submission, when
        _write_rows(self.competition, self.header, self.rows)


def find(competition: Path, participant: str) -> ParticipantRow:
    """The row of a participant; raises BadInput if there is none."""
    file = competition / csvs.PARTICIPANTS.name
    header, rows = _rows(file)
    for row in rows:
        if row.get("key", "").strip() == participant:
            return ParticipantRow(competition, participant, header, rows, row)
    keys = [row.get("key", "") for row in rows]
    hint = suggest(participant, keys, "add a row for it first", then="otherwise add a row for it first")
    raise BadInput(f"there is no participant {participant[:80]!r}", file=file, hint=hint)


def check_participant(competition: Path, key: str, *, name: str = "", address: str = "") -> dict[str, str]:
    """The row of a new participant of participants.csv, column → cell. Raises BadInput for a cell that it may not have."""
    file = competition / csvs.PARTICIPANTS.name
    added = {column: cell for column, cell in {"key": key, "name": name, "address": address}.items() if cell}
    rows = csvs.parse(csvs.dumped(list(added), [added]), csvs.PARTICIPANTS, file)
    registry.participants(rows, Place(file), read_scheme(competition / "scheme.toml"))
    return added


def add_participant(competition: Path, added: dict[str, str]) -> None:
    """Adds a row to participants.csv, unless its key has one. One process at a time may do so: see `folder.files.alone`.

    added: from `check_participant`. Raises BadInput if there are too many participants; nothing is written then.
    """
    file = competition / csvs.PARTICIPANTS.name
    header, rows = _rows(file)
    if any(row.get("key", "") == added["key"] for row in rows):
        return
    if len(rows) >= MOST_PARTICIPANTS:
        raise BadInput(f"has {MOST_PARTICIPANTS} participants, and no more are possible", file=file, hint="remove some")
    header += [column for column in added if column not in header]
    _write_rows(competition, header, [*rows, added])


@contextmanager
def staging(competition: Path) -> Iterator[Path]:
    """A new folder in the competition for files that nobody else has: `placed` moves them instead of copying them.

    It is gone afterwards; what a killed process left of its own is removed too. Raises BadInput.
    """
    top = competition / STAGED
    try:
        top.mkdir(mode=0o700, exist_ok=True)
        with alone(top):
            for left in top.iterdir():
                _clear(left)
            folder = top / secrets.token_hex(8)
            folder.mkdir(mode=0o700)
            number = os.open(folder, os.O_RDONLY)
            lock(number)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=top, hint="check permissions and space") from None
    try:
        yield folder
    finally:
        with suppress(OSError):
            tree.remove(folder)
        os.close(number)


def _clear(folder: Path) -> None:
    """Removes a staging folder whose process is dead. Raises OSError."""
    with suppress(FileNotFoundError, BlockingIOError):
        number = os.open(folder, os.O_RDONLY)
        try:
            lock(number, wait=False)
            tree.remove(folder)
        finally:
            os.close(number)


@contextmanager
def with_open_ledger(competition: Path, store: Store) -> Iterator[None]:
    """In the block, what is submitted to a competition is told to its ledger through this open database."""
    token = _KNOWN.set((competition, store))
    try:
        yield
    finally:
        _KNOWN.reset(token)


def is_staged(competition: Path, source: Path) -> bool:
    """Whether files are in a folder of `staging`."""
    return source.parent.parent == competition / STAGED


def rename_participant(competition: Path, participant: str, name: str) -> None:
    """Gives a participant another name in participants.csv, under the conditions of `add_participant`. Raises BadInput."""
    registered = find(competition, participant)
    check_participant(competition, participant, name=name, address=registered.row.get("address", ""))
    if "name" not in registered.header:
        registered.header.append("name")
    registered.row["name"] = name
    _write_rows(competition, registered.header, registered.rows)


def placed(
    place: Path, source: Path, digest: str, digest_of: Callable[[Path], str], *, bounds: tree.Bounds, refused: str
) -> Path:
    """Files under their digest in a folder of the competition, there whole or not at all; returns where they are.

    They are copied, or moved if they are staged.

    digest_of: reads such files. refused: what to do about a file of a kind that cannot be submitted. Raises BadInput.
    """
    target = place / short(digest)
    if target.is_dir() and digest_of(target) == digest:
        return target
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        place.mkdir(exist_ok=True)
        try:
            if is_staged(place.parent, source):
                beside = source
            else:
                copied = tree.copy(source, beside, bounds=bounds)
                if copied.left:
                    raise BadInput(f"{', '.join(copied.names)} cannot be submitted", file=source, hint=refused)
            flush(beside)
            tree.remove(target)
            os.rename(beside, target)
            flush_folder(place)
        finally:
            tree.remove(beside)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=target, hint="check permissions and space") from None
    return target


def flush(folder: Path) -> None:
    """Flushes a tree to the disk, so that it survives a power cut. Raises OSError."""
    for place, _folders, files in os.walk(folder, topdown=False):
        for name in files:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    os.fsync(number)
                finally:
                    os.close(number)
        flush_folder(Path(place))


def _handed_in(competition: Path, participant: str, submission: str, epoch: int | None, when: str) -> Submission | None:
    """Record the submission in the competition's ledger, and return its entry; None if there is no ledger."""
    if not present(competition / "ledger.toml"):
        if epoch is not None:
            raise BadInput("the competition has no ledger to say it to", field="epoch", hint="leave it out")
        return None
    from assay.ledger import config
    from assay.ledger.access import open_store
    from assay.ledger.intake import hand_in

    if (known := _KNOWN.get()) is not None and known[0] == competition:
        return hand_in(known[1], participant, submission, epoch=epoch, submitted_at=when)
    with open_store(config.read(competition)) as database:
        return hand_in(database, participant, submission, epoch=epoch, submitted_at=when)


def _write_rows(competition: Path, header: list[str], rows: list[dict[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(competition / csvs.PARTICIPANTS.name, text.getvalue())


def _rows(file: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and rows as they are, after they were read as the competition reads them. Raises BadInput."""
    csvs.read(file, csvs.PARTICIPANTS)
    text = decode(load(file, 64_000_000, hint="make it first"), file)
    rows = [[cell.strip(" \t") for cell in row] for row in csv.reader(io.StringIO(text, newline="")) if any(row)]
    header = rows[0]
    return header, [dict(zip(header, row, strict=True)) for row in rows[1:]]
