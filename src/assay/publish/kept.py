"""Where a target's journal is kept: in the ledger of its folder, or in a file where the folder has none.

A folder that has a ledger uses it always, whichever command it is: a target never has two journals. A file from before there was
a ledger is taken into it with the first line that is added, and put aside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from assay.errors import BadInput
from assay.folder.text import opened
from assay.folder.write import check_locks, flush_folder, lock
from assay.ledger import config
from assay.ledger.config import Config
from assay.ledger.opened import open_store
from assay.ledger.store import Store, View
from assay.ledger.store.engine import shown
from assay.publish.journal import Journal, goes_on

__all__ = ["BYTES", "InFile", "InLedger", "journal_of"]

BYTES = 64_000_000
"""Bytes of a file that is read."""
JOURNALS = "published"
"""The folder of the files, beside publish.toml."""


class InFile:
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
        data = file.read(BYTES + 1)
        if len(data) > BYTES:
            raise BadInput(f"is larger than {BYTES} bytes", file=self.name, hint="move it away when nothing is under way")
        return data.split(b"\n")[:-1]


class InLedger:
    """A target's rows in a ledger. The database is opened for each look: a watch lives longer than a connection.

    before: the file where they were while there was no ledger.
    """

    def __init__(self, ledger: Config, target: str, before: InFile) -> None:
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
    file = InFile(folder / JOURNALS / f"{target}.jsonl")
    return Journal(InLedger(config.read(folder), target, file) if config.exists(folder) else file)
