"""Writing, within one transaction that excludes every other writer: all of it is kept, or nothing. SPEC 3.0, 6."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from hashlib import sha256
from typing import TYPE_CHECKING

from sqlalchemy import Table, func, select

from assay.ledger.store.rows import Accepted, Receipt, Settled, Submission
from assay.ledger.store.slots import Candidate, candidates, same, slot_of
from assay.ledger.store.tables import MARK, attempts, batches, checked, inputs, receipts, records, settlements, submissions
from assay.ledger.store.view import View
from assay.records import Evidence

if TYPE_CHECKING:
    from assay.ledger.batch import Batch

__all__ = ["Writer"]


class Writer(View):
    """A view that can also add. What it adds is there for its own reading at once, for others when the block ends."""

    def add_batch(
        self, batch: Batch, numbers: Sequence[int] | None = None, counts: Callable[[int], bool] = lambda _: True
    ) -> Accepted:
        """Keep a batch and those of its records that are new; a batch that is there already adds nothing.

        Checks nothing of what it says: that is for `intake.accept`. numbers: the seqs of its records, in the same order, where
        they come from another copy of the ledger. counts: whether the batch of a number does; what only one has that does not is
        as if it were not there.
        """
        if any(counts(number) for number in self._numbers(batch.digest)):
            return Accepted(new=0, known=len(batch.digests))
        last_batch, before = self._state()
        slots = list(map(slot_of, batch.records))
        there = {slot: [one for one in some if counts(one.batch)] for slot, some in candidates(self._connection, slots).items()}
        said = batch.statement
        seqs: list[int] = []
        new: list[tuple[int, bytes, int, int, bytes, bool, bytes]] = []
        conflicting = 0
        rows = zip(batch.records, slots, batch.digests, batch.bodies, strict=True)
        for at, (one, slot, digest, body) in enumerate(rows):
            earlier = there.setdefault(slot, [])
            seq = next((old.seq for old in earlier if old.digest == digest), None)
            if seq is None:
                seq = before + len(new) + 1 if numbers is None else numbers[at]
                conflict = _differs(one, earlier)
                conflicting += conflict
                earlier.append(Candidate(seq, digest, body, last_batch + 1))
                new.append((seq, digest, last_batch + 1, said.epoch, slot, conflict, body))
            seqs.append(seq)
        first, last = (min(row[0] for row in new), max(row[0] for row in new)) if new else (None, None)
        members = json.dumps(_ranges(seqs), separators=(",", ":"))
        row = (batch.digest, said.validator, said.epoch, said.count, said.root, batch.envelope, members, first, last)
        self._add(batches, (last_batch + 1, *row))
        self._add(records, *new)
        return Accepted(len(new), len(seqs) - len(new), conflicting, first, last)

    def add_submission(self, submission: Submission) -> None:
        """Keep what a participant handed in; it is its latest from now on."""
        last = self._connection.scalar(select(func.max(submissions.c.id))) or 0
        self._add(submissions, (last + 1, *astuple(submission)))

    def add_settled(self, settled: Settled, document: bytes, receipt: Receipt) -> None:
        """Keep a settlement, the document of its inputs, and its receipt."""
        if self.inputs(settled.inputs) is None:
            self._add(inputs, (settled.inputs, document))
        self._add(settlements, astuple(settled))
        self._add(receipts, astuple(receipt))

    def add_checked(self, count: int, envelope: bytes) -> None:
        """Keep what the log's key signed of the first so many batches, whose signatures were looked at."""
        self._add(checked, (f"sha256:{sha256(envelope).hexdigest()}", count, envelope))

    def add_attempts(self, target: str, *entries: bytes) -> None:
        """Keep what is about to be sent to a target, or what became of it, after what is there."""
        last = self._connection.scalar(select(func.max(attempts.c.number)).where(attempts.c.target == target)) or 0
        self._add(attempts, *((target, number, entry) for number, entry in enumerate(entries, start=last + 1)))

    def _numbers(self, digest: str) -> list[int]:
        """The numbers of the batches of a digest."""
        mark = MARK[self._connection.dialect.name]
        return list(self._connection.exec_driver_sql(f"SELECT id FROM batches WHERE digest = {mark}", (digest,)).scalars())

    def _state(self) -> tuple[int, int]:
        """The last batch and the last record, 0 if there are none."""
        query = "SELECT (SELECT coalesce(max(id), 0) FROM batches), (SELECT coalesce(max(seq), 0) FROM records)"
        last_batch, before = self._connection.exec_driver_sql(query).one()
        return last_batch, before

    def _add(self, table: Table, *rows: tuple[object, ...]) -> None:
        """New rows of a table, with a value for each column."""
        if rows:
            names = ", ".join(table.c.keys())
            marks = ", ".join([MARK[self._connection.dialect.name]] * len(table.c))
            self._connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", list(rows))


def _differs(one: Evidence, there: Iterable[Candidate]) -> bool:
    """Whether the first accepted of the record's slot says something else."""
    first = same(one, there)
    return first is not None and first.content != one.content


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """The numbers, ascending and each once, as ranges with both ends."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found
