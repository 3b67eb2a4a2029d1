"""Write to the store in one transaction that excludes other writers. SPEC 3.0, 6."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple
from hashlib import sha256
from itertools import chain, repeat

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


class Writer(View):
    """A view that can also add rows. It sees them at once; others see them when the block ends."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._head: tuple[int, int] | None = None
        """The numbers of the last batch and the last record, while this writer alone adds any."""

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
        brought = [row[0] for row in new]
        first, last = (min(brought), max(brought)) if new else (None, None)
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
        self._add(records, *new)
        self._head = last_batch + 1, max(before, last or 0)
        conflicting = sum([row[5] for row in new])
        if conflicting and first and last:  # of those with a flag, the ones that count on the same task set
            conflicting, _ = self.conflicts_among(first, last, 0, counts, age)
        return Accepted(len(new), len(seqs) - len(new), conflicting, first, last)

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
        query = "SELECT (SELECT coalesce(max(id), 0) FROM batches), (SELECT coalesce(max(seq), 0) FROM records)"
        ((last_batch, before),) = rows_of(self._connection, query)
        return last_batch, before

    def _add(self, table: Table, *rows: tuple[object, ...]) -> None:
        """Insert rows into a table, with a value for each column."""
        if not rows:
            return
        dialect = self._connection.dialect.name
        row = f"({', '.join([MARK[dialect]] * len(table.c))})"
        begin = f"INSERT INTO {table.name} ({', '.join(table.c.keys())}) VALUES "
        if dialect == "postgresql":
            self._connection.exec_driver_sql(begin + row, list(rows))
            return
        for at in range(0, len(rows), AT_ONCE):
            some = rows[at : at + AT_ONCE]
            rows_of(self._connection, begin + ", ".join([row] * len(some)), [*chain.from_iterable(some)])


NewRow = tuple[int, bytes, int, int, bytes, bool, bytes]
"""A row of `records`, as its columns stand."""


def _placed(
    batch: Batch, number: int, wanted: Sequence[int], stored: dict[bytes, list[Candidate]]
) -> tuple[list[int], list[NewRow]]:
    """The seq of each record of a batch, and the rows of those that are new.

    number: the batch's. wanted: the seqs that its new records get: in a row if they are a range, else each its own. stored: the
    records that are there in its slots.
    """
    epoch, seqs, new = batch.statement.epoch, list[int](), list[NewRow]()
    if not stored and len(set(batch.slots)) == len(batch.slots):  # nothing to compare with
        alike = repeat(number), repeat(epoch), batch.slots, repeat(False), batch.bodies
        return list(wanted), list(zip(wanted, batch.digests, *alike, strict=False))
    rows = zip(batch.records, batch.slots, batch.digests, batch.bodies, strict=True)
    for at, (item, slot, digest, body) in enumerate(rows):
        earlier = stored.setdefault(slot, [])
        seq = next((old.seq for old in earlier if old.digest == digest), None)
        if seq is None:
            seq = wanted[len(new) if isinstance(wanted, range) else at]
            new.append((seq, digest, number, epoch, slot, contradicts(item, earlier) is True, body))
            earlier.append(Candidate(seq, digest, body, number))
        seqs.append(seq)
    return seqs, new
