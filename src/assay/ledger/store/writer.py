"""Write to the store in one transaction that excludes other writers. SPEC 3.0, 6."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import cache
from hashlib import sha256
from itertools import chain, repeat
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, func, select

from assay.ledger.batch import Batch
from assay.ledger.store.engine import rows_of
from assay.ledger.store.slots import Candidate, candidates, contradicts
from assay.ledger.store.tables import (
    MARK,
    Accepted,
    StoredCheckpoint,
    StoredReceipt,
    StoredSettlement,
    Submission,
    attempts,
    batches,
    checked,
    inputs,
    ranges_of,
    receipts,
    records,
    settlements,
    submissions,
    witnessed,
)
from assay.ledger.store.view import View

__all__ = ["Writer"]

AT_ONCE = 50
"""Rows that SQLite inserts with one statement: a statement that a trigger may stop costs something by itself."""


_HEAD = "(SELECT coalesce(max(id), 0) FROM batches), (SELECT coalesce(max(seq), 0) FROM records)"


class Writer(View):
    """A view that can also add rows. It sees them at once; others see them when the block ends."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._head: tuple[int, int] | None = None
        """The numbers of the last batch and the last record, while this writer alone adds any."""
        self._named: dict[str, list[int]] = {}
        """The numbers of the batches with some digests, those that this writer added among them."""

    def look(self, digests: Sequence[str]) -> int | None:
        """Look up together what is asked of each batch of these digests. Returns the last settled epoch."""
        ((settled, *head),) = rows_of(self._connection, f"SELECT (SELECT max(epoch) FROM receipts), {_HEAD}")
        self._head = head[0], head[1]
        self._named = {digest: [] for digest in digests}
        marks = ", ".join([MARK[self._connection.dialect.name]] * len(self._named))
        query = f"SELECT digest, id FROM batches WHERE digest IN ({marks}) ORDER BY id"
        for digest, number in rows_of(self._connection, query, (*self._named,)):
            self._named[digest].append(number)
        return None if settled is None else int(settled)

    def numbers_named(self, digest: str) -> list[int]:
        """The numbers of the batches with this digest, in order of acceptance."""
        known = self._named.get(digest)
        return super().numbers_named(digest) if known is None else known

    def add_batch(
        self,
        batch: Batch,
        numbers: Sequence[int] | None = None,
        counts: Callable[[int], bool] = lambda _: True,
        age: int | None = None,
    ) -> Accepted:
        """Store a batch and those of its records that are new; a batch that is there already adds nothing.

        The batch is not checked here: `intake.accept` does that. numbers: the seqs of its records, in the same order, if they
        come from another copy of the ledger. counts: whether the batch of a number counts. Batches that do not count, and their
        records, are ignored. age: the scheme's `max_age_epochs`, which decides what is told as a conflict.
        """
        if any(counts(number) for number in self.numbers_named(batch.digest)):
            return Accepted(new=0, known=len(batch.digests))
        last_batch, before = self._state() if self._head is None else self._head
        wanted = range(before + 1, before + 1 + len(batch.digests)) if numbers is None else numbers
        stored = {
            slot: [candidate for candidate in some if counts(candidate.batch)]
            for slot, some in candidates(self._connection, batch.slots).items()
        }
        seqs, new = _placed(batch, last_batch + 1, wanted, stored)
        first, last = (min(new.seqs), max(new.seqs)) if new.seqs else (None, None)
        members = json.dumps(ranges_of(seqs), separators=(",", ":"))
        statement = batch.statement
        row = (
            batch.digest,
            statement.validator,
            statement.epoch,
            statement.count,
            statement.root,
            batch.envelope,
            members,
            first,
            last,
        )
        self._add(batches, (last_batch + 1, *row))
        self._add_records(last_batch + 1, statement.epoch, new)
        self._head = last_batch + 1, max(before, last or 0)
        if batch.digest in self._named:
            self._named[batch.digest].append(last_batch + 1)
        conflicting = sum(new.conflicts)
        if conflicting and first and last:  # of those with a flag, the ones that count on the same task set
            conflicting, _ = self.conflicts_among(first, last, 0, counts, age)
        return Accepted(len(new.seqs), len(seqs) - len(new.seqs), conflicting, first, last)

    def add_submission(self, submission: Submission) -> None:
        """Store what a participant handed in, as their latest submission."""
        last = self._connection.scalar(select(func.max(submissions.c.id))) or 0
        self._add(submissions, (last + 1, *astuple(submission)))

    def add_settled(self, settled: StoredSettlement, document: bytes, receipt: StoredReceipt) -> None:
        """Store a settlement, the document of its inputs, and its receipt."""
        if self.inputs(settled.inputs) is None:
            self._add(inputs, (settled.inputs, document))
        self._add(settlements, astuple(settled))
        self._add(receipts, astuple(receipt))

    def add_checked(self, count: int, envelope: bytes) -> None:
        """Store the verdict that the log's key signed on the first `count` batches."""
        self._add(checked, (f"sha256:{sha256(envelope).hexdigest()}", count, envelope))

    def add_witnessed(self, cosigned: StoredCheckpoint) -> None:
        """Store a checkpoint that witnesses have cosigned."""
        self._add(witnessed, astuple(cosigned))

    def add_attempts(self, target: str, *entries: bytes) -> None:
        """Store attempts to send to a target, or their outcomes, after those that are there."""
        last = self._connection.scalar(select(func.max(attempts.c.number)).where(attempts.c.target == target)) or 0
        self._add(attempts, *((target, number, entry) for number, entry in enumerate(entries, start=last + 1)))

    def _state(self) -> tuple[int, int]:
        """The numbers of the last batch and the last record; 0 if there are none."""
        ((last_batch, before),) = rows_of(self._connection, f"SELECT {_HEAD}")
        return last_batch, before

    def _add(self, table: Table, *rows: tuple[object, ...]) -> None:
        """Insert rows into a table, with a value for each column."""
        names, dialect = ", ".join(table.c.keys()), self._connection.dialect.name
        statement = f"INSERT INTO {table.name} ({names}) VALUES ({', '.join([MARK[dialect]] * len(table.c))})"
        if dialect == "postgresql" and rows:
            self._connection.exec_driver_sql(statement, list(rows))
        for row in rows if dialect == "sqlite" else ():
            rows_of(self._connection, statement, row)

    def _add_records(self, number: int, epoch: int, new: NewRecords) -> None:
        """Insert the records of a batch, whose number and epoch these are."""
        if self._connection.dialect.name == "postgresql" or not new.seqs:
            columns = new.seqs, new.digests, repeat(number), repeat(epoch), new.slots, map(bool, new.conflicts), new.bodies
            self._add(records, *zip(*columns, strict=False))
            return
        blobs = (map(bytearray, column) for column in (new.digests, new.slots, new.bodies))  # bound at once, unlike bytes
        values = [*chain.from_iterable(zip(new.seqs, new.conflicts, *blobs, strict=True))]
        width = len(values) // len(new.seqs)
        for at in range(0, len(values), AT_ONCE * width):
            some = values[at : at + AT_ONCE * width]
            rows_of(self._connection, _insertion(len(some) // width), [number, epoch, *some])


@cache
def _insertion(count: int) -> str:
    """The statement with which SQLite inserts so many records of one batch."""
    rows = (f"(?{at}, ?{at + 2}, ?1, ?2, ?{at + 3}, ?{at + 1}, ?{at + 4})" for at in range(3, 3 + 5 * count, 5))
    return f"INSERT INTO records (seq, digest, batch, epoch, slot, conflict, body) VALUES {', '.join(rows)}"


class NewRecords(NamedTuple):
    """The records of a batch that are new, as parallel columns. conflicts: 1 where a record contradicts the first of its slot."""

    seqs: Any
    digests: Any
    slots: Any
    conflicts: Any
    bodies: Any


def _placed(
    batch: Batch, number: int, wanted: Sequence[int], stored: dict[bytes, list[Candidate]]
) -> tuple[Sequence[int], NewRecords]:
    """The seq of each record of a batch, and those that are new.

    number: the batch's. wanted: the seqs that its new records get: in a row if they are a range, else each its own. stored: the
    records that are there in its slots.
    """
    if not stored and len(set(batch.slots)) == len(batch.slots):  # nothing to compare with
        return wanted, NewRecords(wanted, batch.digests, batch.slots, [0] * len(wanted), batch.bodies)
    seqs, new = list[int](), NewRecords([], [], [], [], [])
    rows = zip(batch.records, batch.slots, batch.digests, batch.bodies, strict=True)
    for at, (item, slot, digest, body) in enumerate(rows):
        earlier = stored.setdefault(slot, [])
        seq = next((old.seq for old in earlier if old.digest == digest), None)
        if seq is None:
            seq = wanted[len(new.seqs) if isinstance(wanted, range) else at]
            row = (seq, digest, slot, int(contradicts(item, earlier) is True), body)
            for column, value in zip(new, row, strict=True):
                column.append(value)
            earlier.append(Candidate(seq, digest, body, number))
        seqs.append(seq)
    return seqs, new
