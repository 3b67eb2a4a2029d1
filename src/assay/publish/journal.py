"""What was sent to a target, and what became of it: lines that are only ever added, each one names the line before it.

A line is canonical JSON. What is about to be sent stands here, on the disk, before it is sent. So after a crash at any point the
chain can be asked what became of it. Entries of every publisher have `state`, `subject` (what it is about), `plan` (the digest of
what is sent) and `at` (when it was written); what else they have is the publisher's own.

A folder that has a ledger keeps its journals there, always, whichever command it is: a target never has two journals. A folder
without one keeps a file. A file from before there was a ledger is taken into it with the first line that is added, and put aside.
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
"""How the subject of an epoch begins."""
_END = b"\n"


class Overtaken(AssayError):
    """Somebody else wrote to the journal since it was read: exit code 1; nothing was sent."""


class JournalLines(Protocol):
    """Where the lines of a journal are kept: without their ends, and whole or not at all."""

    @property
    def name(self) -> Path | str:
        """Where that is, for people."""

    def after(self, count: int) -> list[bytes]:
        """All lines but the first so many; raises BadInput and StoreError if they cannot be read."""

    def add(self, line: bytes, count: int, last: str) -> bool:
        """Put a line at the end, and on the disk; False if there are not so many lines, the last with this digest.

        Raises BadInput and StoreError if it cannot be written.
        """


class Journal:
    """The journal of a target. `entries` is what it said when it was last read or written to."""

    def __init__(self, lines: JournalLines) -> None:
        self.entries: list[JournalEntry] = []
        self._lines, self._last = lines, ""
        self.read()

    def read(self) -> list[JournalEntry]:
        """All entries; raises BadInput if a line is not as it was written, and what `Lines.after` raises."""
        for line in self._lines.after(len(self.entries)):
            self.entries.append(self._parsed(line))
            self._last = _digest(line)
        return self.entries

    def add(self, entry: JournalEntry) -> None:
        """Put an entry at the end, and on the disk; raises Overtaken if there are others since, and what `Lines.add` raises."""
        line = canonical(entry | {"previous": self._last})
        if not self._lines.add(line, len(self.entries), self._last):
            raise Overtaken("something else is being sent", file=self._lines.name, hint="wait for it, then do this again")
        self.entries.append(entry)
        self._last = _digest(line)

    def note(self, subject: str, plan: str, outcome: Outcome, attempt: int | None = None) -> None:
        """Write down what a command ended with; not a second time, if nothing has happened since. attempt: if it is of that."""
        said = {"subject": subject, "plan": plan} | document(outcome) | ({} if attempt is None else {"attempt": attempt})
        if "at" in said:
            said["from"] = said.pop("at")
        last = self.entries[-1] if self.entries else {}
        if {name: value for name, value in last.items() if name != "at"} != said:
            self.add(stamped(said))

    def _parsed(self, line: bytes) -> JournalEntry:
        try:
            found = strict.parse(line.decode())
        except (BadInput, UnicodeDecodeError):
            found = None
        if not isinstance(found, dict) or found.pop("previous", None) != self._last:
            what = "is not as it was written: this line does not go on from the one before"
            hint = "bring it back from a copy; it says what was sent, so do not remove it while something may be under way"
            raise BadInput(what, file=self._lines.name, line=len(self.entries) + 1, hint=hint)
        return found


def stamped(entry: JournalEntry) -> JournalEntry:
    """The entry with the time at which it is written, to the second."""
    return entry | {"at": instant_text(datetime.now(UTC).replace(microsecond=0))}


def of_another_kind(entry: JournalEntry) -> BadInput:
    """What to say of an entry that a publisher cannot have made."""
    what = f"the journal is of another kind of target: its entry on {str(entry.get('subject'))[:60]!r} is not of this one"
    return BadInput(what, hint="give the target in publish.toml a name of its own")


def goes_on(end: list[bytes], count: int, last: str) -> bool:
    """Whether a journal goes on from its first `count` lines: `end` is what it has from the last of them on."""
    return [_digest(line) for line in end] == ([last] if count else [])


def _digest(line: bytes) -> str:
    return f"sha256:{sha256(line + _END).hexdigest()}"


FILE_BYTES = 64_000_000
"""Bytes of a file that is read."""
JOURNALS = "published"
"""The folder of the files, beside publish.toml."""


class FileLines:
    """A file, which need not be there yet. A line that a crash cut short was never acted upon, and goes with the next one."""

    def __init__(self, path: Path) -> None:
        self.name = path

    def after(self, count: int) -> list[bytes]:
        """See `Lines.after`."""
        try:
            with opened(self.name) as file:
                return self._whole(file)[count:]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(f"cannot be read ({error.strerror})", file=self.name, hint="check its permissions") from None

    def add(self, line: bytes, count: int, last: str) -> bool:
        """See `Lines.add`."""
        check_locks()
        try:
            self.name.parent.mkdir(mode=0o700, exist_ok=True)
            with self._locked() as file:
                there = self._whole(file)
                if not goes_on(there[max(0, count - 1) :], count, last):
                    return False
                end = sum(len(one) + 1 for one in there)
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
        """Give it another name, if it is there; where that cannot be, it stays: what it says is known."""
        with suppress(OSError):
            self.name.rename(self.name.with_name(f"{self.name.name}.in-ledger"))

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        number = os.open(self.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "r+b") as file:
            lock(number)
            yield file

    def _whole(self, file: BinaryIO) -> list[bytes]:
        """The lines that have an end."""
        data = file.read(FILE_BYTES + 1)
        if len(data) > FILE_BYTES:
            raise BadInput(f"is larger than {FILE_BYTES} bytes", file=self.name, hint="move it away when nothing is under way")
        return data.split(b"\n")[:-1]


class LedgerLines:
    """A target's rows in a ledger. The database is opened for each look: a watch lives longer than a connection.

    before: the file where they were while there was no ledger.
    """

    def __init__(self, ledger: Config, target: str, before: FileLines) -> None:
        self._ledger, self._target, self._before = ledger, target, before
        self.name = f"{shown(ledger.place)}: {target}"

    def after(self, count: int) -> list[bytes]:
        """See `Lines.after`."""
        with open_store(self._ledger) as database, database.reading() as view:
            return self._not_yet(database, view)[count:] or view.attempts(self._target, count)

    def add(self, line: bytes, count: int, last: str) -> bool:
        """See `Lines.add`."""
        with open_store(self._ledger) as database, database.writing() as tx:
            before, known = self._not_yet(database, tx), max(0, count - 1)
            if not goes_on(before[known:] or tx.attempts(self._target, known), count, last):
                return False
            tx.add_attempts(self._target, *before, line)
        self._before.put_aside()
        return True

    def _not_yet(self, database: Store, view: View) -> list[bytes]:
        """What the file says that the ledger does not have; raises BadInput if each says something that the other does not."""
        lines = self._before.after(0)
        kept = view.attempts(self._target) if lines else []
        if kept[: len(lines)] == lines:
            return []
        if kept:
            what = f"was written after the ledger {database.name} had taken over what is sent to {self._target!r}"
            hint = "find out what it says was sent, and move it away when nothing of that is under way"
            raise BadInput(what, file=self._before.name, hint=hint)
        return lines


def journal_of(folder: Path, target: str) -> Journal:
    """The journal of a target of publish.toml; raises BadInput and StoreError if it cannot be read, or was changed."""
    file = FileLines(folder / JOURNALS / f"{target}.jsonl")
    return Journal(LedgerLines(config.read(folder), target, file) if config.exists(folder) else file)


@dataclass
class SendHistory:
    """One thing: `states` in order, each once in a row; the first entry about it, and the last."""

    subject: str
    first: JournalEntry
    last: JournalEntry
    states: list[str] = field(default_factory=list)

    @property
    def epoch(self) -> int | None:
        """Which epoch it is, if it is one."""
        number = self.subject.removeprefix(EPOCH)
        return int(number) if number != self.subject and number.isdecimal() else None

    @property
    def state(self) -> str:
        """What became of it."""
        return self.states[-1]

    @property
    def transaction(self) -> str:
        """The transaction that the last entry is about; empty if it is about none."""
        return str(self.last.get("hash") or self.last.get("transaction") or "")

    @property
    def why(self) -> str:
        """What the last entry says of a reason."""
        return str(self.last.get("what") or self.last.get("why") or "")

    def document(self) -> dict[str, Any]:
        """As JSON: the last entry, and how it came there."""
        last = {name: value for name, value in self.last.items() if name != "raw"}
        return last | {"subject": self.subject, "states": self.states, "since": self.first.get("at")}


def history(entries: Iterable[JournalEntry]) -> list[SendHistory]:
    """By subject and plan (two claims are one subject), in the order in which they were begun.

    What a command ended with, which is of no attempt, takes nothing away from what the chain has: its node was away, say.
    """
    found: dict[tuple[str, str], SendHistory] = {}
    for entry in entries:
        subject, plan, state = (str(entry.get(name, "")) for name in ("subject", "plan", "state"))
        one = found.setdefault((subject, plan), SendHistory(subject, entry, entry))
        if one.states[-1:] == ["confirmed"] and entry.get("attempt") is None:
            continue
        one.last = entry
        if one.states[-1:] != [state]:
            one.states.append(state)
    return list(found.values())


def last_published(tried: Iterable[SendHistory]) -> int | None:
    """The last epoch that the chain has."""
    return max((one.epoch for one in tried if one.epoch is not None and one.state == "confirmed"), default=None)
