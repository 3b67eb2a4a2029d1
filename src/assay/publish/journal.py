"""What was tried, in order: a file that is only ever added to, one canonical JSON object a line, each naming the one before it.

What is about to be sent stands here, on the disk, before it is sent. So after a crash at any point the chain can be asked what
became of it. A line that a crash cut short was never acted upon, and goes with the next one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from assay.errors import AssayError, BadInput
from assay.exact import canonical
from assay.folder import strict
from assay.folder.write import flush_folder

__all__ = ["BYTES", "Entry", "Journal", "Overtaken"]

Entry = dict[str, Any]
BYTES = 64_000_000
"""Bytes of a journal that is read."""


class Overtaken(AssayError):
    """Somebody else wrote to the journal since it was read: exit code 1; nothing was sent."""


class Journal:
    """The journal in a file, which need not be there yet. `entries` is what it said when it was last read or written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self._last = ""
        self.read()

    def read(self) -> list[Entry]:
        """All entries; raises BadInput if a line is not as it was written, and if the file cannot be read."""
        try:
            with self.path.open("rb") as file:
                self._take(file)
        except FileNotFoundError:
            self.entries, self._last = [], ""
        except OSError as error:
            raise BadInput(f"cannot be read ({error.strerror})", file=self.path, hint="check its permissions") from None
        return self.entries

    def add(self, entry: Entry) -> None:
        """Put an entry at the end, and on the disk.

        Raises Overtaken if the file has more than `entries`, and BadInput if it cannot be written.
        """
        line = canonical(entry | {"previous": self._last}) + b"\n"
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            with self._locked() as file:
                known = self._last
                whole = self._take(file)
                if self._last != known:
                    raise Overtaken("something else is being sent", file=self.path, hint="wait for it, then do this again")
                file.truncate(whole)
                file.seek(whole)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            flush_folder(self.path.parent)
        except OSError as error:
            what = f"cannot be written ({error.strerror}), so nothing was sent"
            raise BadInput(what, file=self.path, hint="check the folder, its permissions and its space") from None
        self.entries.append(entry)
        self._last = _digest(line)

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        number = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "r+b") as file:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield file

    def _take(self, file: BinaryIO) -> int:
        """Read the file; returns how many bytes of it are whole lines."""
        data = file.read(BYTES + 1)
        if len(data) > BYTES:
            raise BadInput(f"is larger than {BYTES} bytes", file=self.path, hint="move it away when nothing is under way")
        whole = data.rfind(b"\n") + 1
        entries, last = [], ""
        for number, line in enumerate(data[:whole].splitlines(keepends=True), start=1):
            entries.append(self._parsed(line, number, last))
            last = _digest(line)
        self.entries, self._last = entries, last
        return whole

    def _parsed(self, line: bytes, number: int, last: str) -> Entry:
        try:
            found = strict.parse(line.decode())
        except (BadInput, UnicodeDecodeError):
            found = None
        if not isinstance(found, dict) or found.pop("previous", None) != last:
            what = "is not as it was written: this line does not go on from the one before"
            hint = "bring it back from a copy; it says what was sent, so do not remove it while something may be under way"
            raise BadInput(what, file=self.path, line=number, hint=hint)
        return found


def _digest(line: bytes) -> str:
    return f"sha256:{sha256(line).hexdigest()}"
