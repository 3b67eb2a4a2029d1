"""The journal of a target: an append-only list of what was sent and with which outcome; each line names the digest of the last.

A line is canonical JSON. Everything is written here, on the disk, before it is sent, so after a crash at any point the chain can
be asked about it. Every entry has `state`, `subject` (what was sent), `plan` (the digest of what was sent) and `at` (when it was
written). Its other fields belong to the publisher.

If a folder has a ledger, its journals are in the ledger; otherwise each is a file. So a target never has two journals. A file
that is older than the ledger is copied into it when the next line is added, and then renamed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from assay.errors import AssayError, BadInput
from assay.exact import canonical
from assay.folder import strict
from assay.folder.files import check_locks, flush_folder, lock
from assay.ledger import config
from assay.ledger.access import open_store
from assay.ledger.config import Config
from assay.ledger.store import Store, View
from assay.ledger.store.engine import shown
from assay.publish.outcome import Outcome, document
from assay.scheme.fields import instant_text
from assay.scheme.reading import opened

JournalEntry = dict[str, Any]
EPOCH = "epoch "
"""The subject of an epoch begins with this."""
_END = b"\n"


class Overtaken(AssayError):
    """Another process wrote to the journal after it was read. Nothing was sent. Exit code 1."""


class JournalLines(Protocol):
    """The storage of a journal's lines. Lines come without their line ends, and a line is stored completely or not at all."""

    @property
    def name(self) -> Path | str:
        """The location, for people."""

    def after(self, count: int) -> list[bytes]:
        """All lines after the first `count`. Raises BadInput and StoreError if they cannot be read."""

    def add(self, line: bytes, count: int, last: str) -> bool:
        """Append a line, on the disk. False if there are not `count` lines whose last one has the digest `last`.

        Raises BadInput and StoreError if it cannot be written.
        """


class Journal:
    """The journal of a target. `entries` are those at the last reading or writing."""

    def __init__(self, lines: JournalLines) -> None:
        self.entries: list[JournalEntry] = []
        self._lines, self._last = lines, ""
        self.read()

    def read(self) -> list[JournalEntry]:
        """All entries. Raises BadInput if a line was changed, and what `JournalLines.after` raises."""
        for line in self._lines.after(len(self.entries)):
            self.entries.append(self._parsed(line))
            self._last = _digest(line)
        return self.entries

    def add(self, entry: JournalEntry) -> None:
        """Append an entry, on the disk. Raises Overtaken if others were added meanwhile, and what `JournalLines.add` raises."""
        line = canonical(entry | {"previous": self._last})
        if not self._lines.add(line, len(self.entries), self._last):
            raise Overtaken(
                "something else is being sent", file=self._lines.name, hint="wait for it, then run this command again"
            )
        self.entries.append(entry)
        self._last = _digest(line)

    def note(self, subject: str, plan: str, outcome: Outcome, attempt: int | None = None) -> None:
        """Write down the outcome of a command, unless the last entry is the same. attempt: the attempt that it belongs to."""
        entry = {"subject": subject, "plan": plan} | document(outcome) | ({} if attempt is None else {"attempt": attempt})
        if "at" in entry:
            entry["from"] = entry.pop("at")
        last = self.entries[-1] if self.entries else {}
        if {name: value for name, value in last.items() if name != "at"} != entry:
            self.add(stamped(entry))

    def _parsed(self, line: bytes) -> JournalEntry:
        try:
            entry = strict.parse(line.decode())
        except (BadInput, UnicodeDecodeError):
            entry = None
        if not isinstance(entry, dict) or entry.pop("previous", None) != self._last:
            what = "was changed: this line does not continue the one before"
            hint = "restore it from a backup; it says what was sent, so do not remove it while something may be under way"
            raise BadInput(what, file=self._lines.name, line=len(self.entries) + 1, hint=hint)
        return entry


def stamped(entry: JournalEntry) -> JournalEntry:
    """The entry with the present time as `at`, to the second."""
    return entry | {"at": instant_text(datetime.now(UTC).replace(microsecond=0))}


def of_another_kind(entry: JournalEntry) -> BadInput:
    """The error for an entry that this kind of publisher cannot have written."""
    what = f"the journal belongs to another kind of target: its entry {str(entry.get('subject'))[:60]!r} does not fit this one"
    return BadInput(what, hint="give the target in publish.toml a name of its own")


def goes_on(end: list[bytes], count: int, last: str) -> bool:
    """Whether a journal has exactly `count` lines, the last with this digest. end: its lines from number `count` on."""
    return [_digest(line) for line in end] == ([last] if count else [])


def _digest(line: bytes) -> str:
    return f"sha256:{sha256(line + _END).hexdigest()}"


FILE_BYTES = 64_000_000
"""Most bytes of a journal's file."""
JOURNALS = "published"
"""The folder of journal files, beside publish.toml."""


class FileLines:
    """A journal in a file, which need not exist yet.

    A line without its end is from a crash. Nothing was sent because of it, and the next line overwrites it.
    """

    def __init__(self, path: Path) -> None:
        self.name = path

    def after(self, count: int) -> list[bytes]:
        """See `JournalLines.after`."""
        try:
            with opened(self.name) as file:
                return self._whole(file)[count:]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(f"cannot be read ({error.strerror})", file=self.name, hint="check its permissions") from None

    def add(self, line: bytes, count: int, last: str) -> bool:
        """See `JournalLines.add`."""
        check_locks()
        try:
            self.name.parent.mkdir(mode=0o700, exist_ok=True)
            with self._locked() as file:
                lines = self._whole(file)
                if not goes_on(lines[max(0, count - 1) :], count, last):
                    return False
                end = sum(len(stored) + 1 for stored in lines)
                file.truncate(end)
                file.seek(end)
                file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())
            flush_folder(self.name.parent)
        except OSError as error:
            what = f"cannot be written ({error.strerror}), so nothing was sent"
            raise BadInput(what, file=self.name, hint="check the folder, its permissions and its space") from None
        return True

    def put_aside(self) -> None:
        """Rename the file, if it exists. If that fails, it stays; the ledger has its lines."""
        with suppress(OSError):
            self.name.rename(self.name.with_name(f"{self.name.name}.in-ledger"))

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        number = os.open(self.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "r+b") as file:
            lock(number)
            yield file

    def _whole(self, file: BinaryIO) -> list[bytes]:
        """The lines of the file that have an end."""
        data = file.read(FILE_BYTES + 1)
        if len(data) > FILE_BYTES:
            raise BadInput(f"is larger than {FILE_BYTES} bytes", file=self.name, hint="move it away when nothing is under way")
        return data.split(b"\n")[:-1]


class LedgerLines:
    """A journal in a ledger. The database is opened for every use, because a watch lives longer than a connection.

    before: the journal's file from the time when there was no ledger.
    """

    def __init__(self, ledger: Config, target: str, before: FileLines) -> None:
        self._ledger, self._target, self._before = ledger, target, before
        self.name = f"{shown(ledger.place)}: {target}"

    def after(self, count: int) -> list[bytes]:
        """See `JournalLines.after`."""
        with open_store(self._ledger) as database, database.reading() as view:
            return self._not_yet(database, view)[count:] or view.attempts(self._target, count)

    def add(self, line: bytes, count: int, last: str) -> bool:
        """See `JournalLines.add`."""
        with open_store(self._ledger) as database, database.writing() as tx:
            before, known = self._not_yet(database, tx), max(0, count - 1)
            if not goes_on(before[known:] or tx.attempts(self._target, known), count, last):
                return False
            tx.add_attempts(self._target, *before, line)
        self._before.put_aside()
        return True

    def _not_yet(self, database: Store, view: View) -> list[bytes]:
        """The file's lines, if the ledger has none. Raises BadInput if file and ledger have different lines."""
        lines = self._before.after(0)
        stored = view.attempts(self._target) if lines else []
        if stored[: len(lines)] == lines:
            return []
        if stored:
            what = f"was written after the ledger {database.name} had taken over what is sent to {self._target!r}"
            hint = "find out what was sent by it, and move it away when nothing of that is under way"
            raise BadInput(what, file=self._before.name, hint=hint)
        return lines


def journal_of(folder: Path, target: str) -> Journal:
    """The journal of a target of publish.toml. Raises BadInput and StoreError if it cannot be read or was changed."""
    file = FileLines(folder / JOURNALS / f"{target}.jsonl")
    return Journal(LedgerLines(config.read(folder), target, file) if config.exists(folder) else file)


@dataclass
class SendHistory:
    """The history of one subject and plan: its states in order without repetition, its first entry and its last."""

    subject: str
    first: JournalEntry
    last: JournalEntry
    states: list[str] = field(default_factory=list)

    @property
    def epoch(self) -> int | None:
        """The epoch; None if the subject is not an epoch."""
        number = self.subject.removeprefix(EPOCH)
        return int(number) if number != self.subject and number.isdecimal() else None

    @property
    def state(self) -> str:
        """The last state."""
        return self.states[-1]

    @property
    def transaction(self) -> str:
        """The transaction of the last entry; empty if it has none."""
        return str(self.last.get("hash") or self.last.get("transaction") or "")

    @property
    def why(self) -> str:
        """The reason in the last entry; empty if it has none."""
        return str(self.last.get("what") or self.last.get("why") or "")

    def document(self) -> dict[str, Any]:
        """The last entry with all states, as JSON."""
        last = {name: value for name, value in self.last.items() if name != "raw"}
        return last | {"subject": self.subject, "states": self.states, "since": self.first.get("at")}


def history(entries: Iterable[JournalEntry]) -> list[SendHistory]:
    """The entries grouped by subject and plan (two claims are one subject), in the order in which they began.

    The outcome of a command that belongs to no attempt changes nothing about what is confirmed: its node did not answer, say.
    """
    histories: dict[tuple[str, str], SendHistory] = {}
    for entry in entries:
        subject, plan, state = (str(entry.get(name, "")) for name in ("subject", "plan", "state"))
        sent = histories.setdefault((subject, plan), SendHistory(subject, entry, entry))
        if sent.states[-1:] == ["confirmed"] and entry.get("attempt") is None:
            continue
        sent.last = entry
        if sent.states[-1:] != [state]:
            sent.states.append(state)
    return list(histories.values())


def last_published(histories: Iterable[SendHistory]) -> int | None:
    """The last epoch that the chain has."""
    return max((sent.epoch for sent in histories if sent.epoch is not None and sent.state == "confirmed"), default=None)
