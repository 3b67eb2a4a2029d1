"""What was tried, in order: lines that are only ever added, each one canonical JSON that names the line before it.

What is about to be sent stands here, on the disk, before it is sent. So after a crash at any point the chain can be asked what
became of it. Entries of every publisher have `state`, `subject` (what it is about), `plan` (the digest of what is sent) and `at`
(when it was written); what else they have is the publisher's own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from assay.errors import AssayError, BadInput
from assay.exact import canonical
from assay.folder import strict
from assay.publish.outcome import Outcome, document
from assay.scheme.times import instant_text

__all__ = ["Entry", "Journal", "Lines", "Overtaken", "goes_on", "of_another_kind"]

Entry = dict[str, Any]
_END = b"\n"


class Overtaken(AssayError):
    """Somebody else wrote to the journal since it was read: exit code 1; nothing was sent."""


class Lines(Protocol):
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

    def __init__(self, lines: Lines) -> None:
        self.entries: list[Entry] = []
        self._lines, self._last = lines, ""
        self.read()

    def read(self) -> list[Entry]:
        """All entries; raises BadInput if a line is not as it was written, and what `Lines.after` raises."""
        for line in self._lines.after(len(self.entries)):
            self.entries.append(self._parsed(line))
            self._last = _digest(line)
        return self.entries

    def add(self, entry: Entry) -> None:
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
            self.add(said | {"at": instant_text(datetime.now(UTC).replace(microsecond=0))})

    def _parsed(self, line: bytes) -> Entry:
        try:
            found = strict.parse(line.decode())
        except (BadInput, UnicodeDecodeError):
            found = None
        if not isinstance(found, dict) or found.pop("previous", None) != self._last:
            what = "is not as it was written: this line does not go on from the one before"
            hint = "bring it back from a copy; it says what was sent, so do not remove it while something may be under way"
            raise BadInput(what, file=self._lines.name, line=len(self.entries) + 1, hint=hint)
        return found


def of_another_kind(entry: Entry) -> BadInput:
    """What to say of an entry that a publisher cannot have made."""
    what = f"the journal is of another kind of target: its entry on {str(entry.get('subject'))[:60]!r} is not of this one"
    return BadInput(what, hint="give the target in publish.toml a name of its own")


def goes_on(end: list[bytes], count: int, last: str) -> bool:
    """Whether a journal goes on from its first `count` lines: `end` is what it has from the last of them on."""
    return [_digest(line) for line in end] == ([last] if count else [])


def _digest(line: bytes) -> str:
    return f"sha256:{sha256(line + _END).hexdigest()}"
