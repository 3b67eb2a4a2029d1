"""Writing, within one transaction that excludes every other writer: all of it is kept, or nothing. SPEC 3.0, 6."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select

from assay.ledger.store.rows import Accepted, Receipt, Settled, Submission
from assay.ledger.store.slots import Candidate, candidates, same, slot_of
from assay.ledger.store.tables import batches, inputs, receipts, records, settlements, submissions
from assay.ledger.store.view import View
from assay.records import Evidence

if TYPE_CHECKING:
    from assay.ledger.batch import Batch

__all__ = ["Writer"]

_Row = tuple[int, bytes, int, int, bytes, bool, bytes]
"""A row of `records`."""


class Writer(View):
    """A view that can also add. What it adds is there for its own reading at once, for others when the block ends."""

    def add_batch(self, batch: Batch) -> Accepted:
        """Keep a batch and those of its records that are new; a batch that is there already adds nothing.

        Checks nothing of what it says: that is for `intake.accept`.
        """
        if self.batch(batch.digest) is not None:
            return Accepted(new=0, known=len(batch.digests))
        slots = list(map(slot_of, batch.records))
        there = candidates(self._connection, dict.fromkeys(slots))
        before = self.last_seq()
        number = (self._connection.scalar(select(func.max(batches.c.id))) or 0) + 1
        epoch = batch.statement.epoch
        seqs: list[int] = []
        new: list[_Row] = []
        conflicting = 0
        for one, slot, digest, body in zip(batch.records, slots, batch.digests, batch.bodies, strict=True):
            earlier = there.get(slot, ())
            seq = next((old.seq for old in earlier if old.digest == digest), None)
            if seq is None:
                seq = before + len(new) + 1
                conflict = bool(earlier) and _differs(one, earlier)
                conflicting += conflict
                there.setdefault(slot, []).append(Candidate(seq, digest, body))
                new.append((seq, digest, number, epoch, slot, conflict, body))
            seqs.append(seq)
        first, last = (before + 1, before + len(new)) if new else (None, None)
        self._connection.execute(
            insert(batches),
            {
                "id": number,
                "digest": batch.digest,
                "validator": batch.statement.validator,
                "epoch": epoch,
                "count": batch.statement.count,
                "root": batch.statement.root,
                "envelope": batch.envelope,
                "members": json.dumps(_ranges(seqs), separators=(",", ":")),
                "first_seq": first,
                "last_seq": last,
            },
        )
        self._insert_records(new)
        return Accepted(len(new), len(seqs) - len(new), conflicting, first, last)

    def _insert_records(self, rows: list[_Row]) -> None:
        """In as few statements as the driver knows; past SQLAlchemy's own layer, which would cost more than the database."""
        if rows:
            mark = "%s" if self._connection.dialect.name == "postgresql" else "?"
            names = ", ".join(records.c.keys())
            marks = ", ".join([mark] * len(records.c))
            self._connection.exec_driver_sql(f"INSERT INTO records ({names}) VALUES ({marks})", rows)

    def add_submission(self, submission: Submission) -> None:
        """Keep what a participant handed in; it is its latest from now on."""
        number = (self._connection.scalar(select(func.max(submissions.c.id))) or 0) + 1
        self._connection.execute(insert(submissions).values((number, *_values(submission))))

    def add_settled(self, settled: Settled, document: bytes, receipt: Receipt) -> None:
        """Keep a settlement, the document of its inputs, and its receipt."""
        if self.inputs(settled.inputs) is None:
            self._connection.execute(insert(inputs).values((settled.inputs, document)))
        self._connection.execute(insert(settlements).values(_values(settled)))
        self._connection.execute(insert(receipts).values(_values(receipt)))


def _differs(one: Evidence, there: Iterable[Candidate]) -> bool:
    """Whether the first accepted of the record's slot says something else."""
    first = same(one, there)
    return first is not None and first.content != one.content


def _values(row: object) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in type(row).__slots__)  # type: ignore[attr-defined]


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """The numbers, ascending and each once, as ranges with both ends."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found
