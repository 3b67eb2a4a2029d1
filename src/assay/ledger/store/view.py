"""Read one snapshot of the store. SPEC 3.0, 6."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import groupby
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, and_, exists, func, or_, select
from sqlalchemy import Row as Found

from assay.exact import LARGEST
from assay.ledger.batch import StoredRecord, run_of, slots_of, stated
from assay.ledger.check import CheckError
from assay.ledger.store import archives
from assay.ledger.store.engine import RESTORE, Damaged, rows_of
from assay.ledger.store.schema import UNNAMED
from assay.ledger.store.slots import TaskSets, candidates, contradictions, contradicts
from assay.ledger.store.tables import (
    MARK,
    RECORD,
    ROW,
    Conflict,
    RecordRow,
    StoredBatch,
    StoredCheckpoint,
    StoredReceipt,
    StoredSettlement,
    Submission,
    attempts,
    batches,
    checked,
    inputs,
    members_of,
    meta,
    receipts,
    records,
    settlements,
    submissions,
    witnessed,
)
from assay.records import Evidence

LATEST = LARGEST
"""The largest epoch."""
FETCH = 10_000
"""Rows that are fetched at once."""
Stored = TypeVar("Stored", StoredRecord, RecordRow)
BATCHES = 100
"""Batches that are fetched at once: a batch may have several mebibytes."""


class View:
    """One snapshot. Iterators must be used while it is open, and keep only some thousand rows in memory."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bodies: Mapping[int, bytes] = {}
        """The bodies of one archived epoch, that of the record read last; by seq."""

    # Evidence

    def filled(self, row: Stored) -> Stored:
        """A record with its body, which is read from the archive if it is there. Raises Archived, Damaged."""
        if row.body != b"":
            return row
        if row.seq not in self._bodies:
            self._bodies = archives.bodies(self._connection, row.seq)
        return row._replace(body=self._bodies.get(row.seq, b""))

    def whole(self, row: Stored) -> Stored:
        """The same, with its digest checked; raises Damaged for one that was changed."""
        if row.body == b"":
            row = self.filled(row)
        if type(row.body) is not bytes or sha256(row.body).digest() != row.digest:
            raise Damaged(f"record {row.seq} was changed: its digest differs", hint=RESTORE)
        return row

    def pairs(self, first_epoch: int = 0, last_epoch: int = LATEST) -> Iterator[tuple[int, bytes]]:
        """Seq and digest of the records of these epochs, in order of acceptance; bodies are not looked at. Raises Damaged."""
        pieces = self._pieces(first_epoch, last_epoch, select(records.c.seq, records.c.digest))
        yield from self._complete(pieces, first_epoch, last_epoch)

    def _complete(self, pieces: Generator[Any], first_epoch: int, last_epoch: int) -> Generator[Any]:
        """The rows in these pieces; raises Damaged if they are not as many as their batches have."""
        count = 0
        with closing(pieces):  # who stops early leaves no cursor open
            for rows in pieces:
                yield from rows
                count += len(rows)
        if count != (expected := self.count(first_epoch, last_epoch)):
            what = f"{count} records of epochs {first_epoch} to {last_epoch} are there, but their batches have {expected}"
            raise Damaged(what, hint=RESTORE)

    def records(self, first_epoch: int = 0, last_epoch: int = LATEST) -> Iterator[StoredRecord]:
        """The records of these epochs, first and last included, in order of acceptance; raises Damaged."""
        pieces = self._pieces(first_epoch, last_epoch, select(*RECORD))
        with closing(self._complete(pieces, first_epoch, last_epoch)) as rows:
            for row in rows:
                yield self.whole(StoredRecord._make(row))

    def page(self, epoch: int, after: int, most: int) -> list[StoredRecord]:
        """The first `most` records of an epoch whose seq is larger than `after`, in order of acceptance; raises Damaged."""
        query = select(*RECORD).where(records.c.seq > after).limit(most)
        return [self.whole(StoredRecord._make(row)) for rows in self._pieces(epoch, epoch, query, most) for row in rows]

    def last_record(self, epoch: int) -> StoredRecord | None:
        """The record of an epoch that was accepted last; None if there is none."""
        last = select(func.max(batches.c.last_seq)).where(batches.c.epoch == epoch).scalar_subquery()
        row = self._connection.execute(select(*RECORD).where(records.c.seq == last)).first()
        return None if row is None else self.whole(StoredRecord._make(row))

    def of_validator(self, validator: str, after: int) -> Iterator[StoredBatch]:
        """The batches of a validator whose number is larger than `after`, in order of acceptance."""
        query = select(batches).where(batches.c.id > after, batches.c.validator == validator).order_by(batches.c.id)
        return map(_batch, self._rows(query, BATCHES))

    def run(self, kind: str, validator: str, about: str, after: int = -1) -> Iterator[RecordRow]:
        """A validator's records about a submission (or participant: `Record.shared_key`), of epochs later than `after`.

        Somebody can craft records of another run with the same 8 bytes, so the caller compares what the records say.
        """
        run = run_of(kind, validator, about)
        first, last = run + b"\0" * 8, run + b"\xff" * 8
        query = select(*ROW).where(records.c.slot.between(first, last), records.c.epoch > after).order_by(records.c.slot)
        return (self.filled(RecordRow._make(row)) for row in self._rows(query))

    def conflicts(self, first_epoch: int = 0, last_epoch: int = LATEST, age: int | None = None) -> Iterator[Conflict]:
        """The records that contradict the first one of their slot and task set, each with that one. SPEC 3.0.

        age: the scheme's `max_age_epochs`; what is older when a later record comes is contradicted by nothing.
        """
        clashes = self._contradictions(age=age)
        pairs = ((later, first) for later, first in clashes if first_epoch <= later.epoch <= last_epoch)
        yield from map(self._conflict, sorted((later.seq, first.seq) for later, first in pairs))

    def conflicts_among(
        self,
        first_seq: int,
        last_seq: int,
        most: int,
        counts: Callable[[int], bool] = lambda _: True,
        age: int | None = None,
    ) -> tuple[int, list[Conflict]]:
        """The number of conflicts among these records, and the first `most` of them, each with the record that counts.

        Of these, the ones are left out whose first record is in an archive: an intake does not wait for one.

        counts: whether the batch of a number counts. Records that came in batches that do not count are ignored. age: as for
        `conflicts`.
        """
        other = records.alias()
        flagged = exists().where(other.c.slot == records.c.slot, other.c.conflict.is_(True))
        slots = select(records.c.slot).where(records.c.seq.between(first_seq, last_seq), flagged)
        pairs = self._contradictions(slots, counts, age)
        clashes = sorted((later.seq, first.seq, first.body) for later, first in pairs if first_seq <= later.seq <= last_seq)
        here = [(later, first) for later, first, body in clashes if body]
        return len(clashes), [*map(self._conflict, here[:most])]

    def _conflict(self, seqs: tuple[int, int]) -> Conflict:
        """The conflict of two records: the later one, and the one that counts."""
        pair = (self._connection.execute(select(*RECORD).where(records.c.seq == seq)).one() for seq in seqs)
        return Conflict(*(self.whole(StoredRecord._make(row)) for row in pair))

    def conflicting(self, age: int | None = None) -> dict[int, int]:
        """Batch → how many of its records are conflicts; batches without are left out. age: as for `conflicts`."""
        return Counter(later.batch for later, _ in self._contradictions(age=age))

    def _contradictions(
        self, slots: Select[Any] | None = None, counts: Callable[[int], bool] = lambda _: True, age: int | None = None
    ) -> Iterator[tuple[RecordRow, RecordRow]]:
        """Each record that is in conflict, and the first of its slot and task set. slots: only of these; None: of all.

        A record's flag ignores task sets: it says that the first of its slot differs. So each slot with a conflict has a flagged
        record, but not each flagged record is a conflict. An import may change the order in which this copy accepted records, and
        so which record of a slot is flagged. One of them is flagged in any order.
        """
        chosen = select(records.c.slot).where(records.c.conflict.is_(True)) if slots is None else slots
        task_sets = None
        for rows in self._sharing(chosen):
            task_sets = task_sets or self._task_sets(select(records.c.batch).where(records.c.slot.in_(chosen)))
            yield from contradictions([row for row in rows if counts(row.batch)], task_sets, age)

    def _task_sets(self, bringing: Select[Any] | Collection[int]) -> TaskSets:
        """The task sets of the records that these batches brought. A batch that brought all of its records has no other ones."""
        whose = select(batches.c.validator).where(batches.c.id.in_(bringing))
        known = or_(batches.c.first_seq.is_(None), batches.c.count != batches.c.last_seq - batches.c.first_seq + 1)
        chosen = or_(batches.c.id.in_(bringing), and_(batches.c.validator.in_(whose), known))
        brought, again = dict[int, str | None](), list[tuple[str | None, tuple[tuple[int, int], ...]]]()
        for batch in self._counting(map(_batch, self._rows(select(batches).where(chosen), BATCHES))):
            try:
                task_set = stated(batch.envelope)[1].task_set
            except CheckError:  # it was changed: `assay ledger check` says so
                task_set = None
            brought[batch.id] = task_set
            if batch.first_seq is None or batch.members != ((batch.first_seq, batch.last_seq),):
                again.append((task_set, batch.members))
        return TaskSets(brought, again)

    def _counting(self, some: Iterable[StoredBatch]) -> Iterable[StoredBatch]:
        """The batches among some that count: here all."""
        return some

    def _only(self, parts: Iterator[Any], first_epoch: int, last_epoch: int) -> Iterator[Any]:
        """Of lists of rows that begin with `seq`, those of these epochs' batches that count: here all."""
        return parts

    def rows(self) -> Iterator[RecordRow]:
        """All records with everything that is stored of them, in order of acceptance; empty bodies are in archives."""
        return map(RecordRow._make, self._rows(select(*ROW).order_by(records.c.seq)))

    def contested(self) -> Iterator[list[RecordRow]]:
        """The records that share their slot's 16 bytes with others: a list for each slot, in order of acceptance."""
        return self._sharing(select(records.c.slot).group_by(records.c.slot).having(func.count() > 1))

    def _sharing(self, slots: Select[Any]) -> Iterator[list[RecordRow]]:
        shared = self._rows(select(*ROW).where(records.c.slot.in_(slots)).order_by(records.c.slot, records.c.seq))
        for _, rows in groupby(map(RecordRow._make, shared), key=lambda row: row.slot):
            yield list(rows)

    def without_slots(self, items: Sequence[Evidence], counts: Callable[[int], bool]) -> list[Evidence]:
        """The records whose slot has no record here yet: they were never handed in.

        counts: whether the batch of a number counts. Records in batches that do not count are ignored.
        """
        slots = slots_of(items)
        stored = {
            slot: [candidate for candidate in some if counts(candidate.batch)]
            for slot, some in candidates(self._connection, slots).items()
        }
        return [item for item, slot in zip(items, slots, strict=True) if contradicts(item, stored.get(slot, ())) is None]

    def stored(self, items: Sequence[Evidence]) -> list[bool]:
        """Whether each of these very records is here, whichever batch brought it; the index of the slots finds them."""
        slots = slots_of(items)
        there = candidates(self._connection, slots)
        digests = {slot: {f"sha256:{candidate.digest.hex()}" for candidate in some} for slot, some in there.items()}
        return [item.digest in digests.get(slot, ()) for item, slot in zip(items, slots, strict=True)]

    def count(self, first_epoch: int = 0, last_epoch: int = LATEST) -> int:
        """The number of records in these epochs."""
        new = func.sum(batches.c.last_seq - batches.c.first_seq + 1)
        return int(self._connection.scalar(select(new).where(_between(batches, first_epoch, last_epoch))) or 0)

    def last_seq(self) -> int:
        """The `seq` of the last record; 0 if there is none."""
        return int(self._connection.scalar(select(func.max(records.c.seq))) or 0)

    def highest_epoch(self) -> int | None:
        """The highest epoch that has evidence."""
        epoch: int | None = self._connection.scalar(select(func.max(batches.c.epoch)))
        return epoch

    def lowest_epoch(self, first: int = 0) -> int | None:
        """The lowest epoch from this one on that has evidence."""
        epoch: int | None = self._connection.scalar(select(func.min(batches.c.epoch)).where(batches.c.epoch >= first))
        return epoch

    def epochs(self) -> list[int]:
        """The epochs that have evidence, ascending."""
        return list(self._connection.scalars(select(batches.c.epoch).distinct().order_by(batches.c.epoch)))

    def numbers_of(self, epoch: int) -> list[int]:
        """The numbers of an epoch's batches, in order of acceptance."""
        return list(self._connection.scalars(select(batches.c.id).where(batches.c.epoch == epoch).order_by(batches.c.id)))

    def batches(self, first_epoch: int = 0, last_epoch: int = LATEST) -> Iterator[StoredBatch]:
        """The batches of these epochs, in order of acceptance."""
        query = select(batches).where(_between(batches, first_epoch, last_epoch)).order_by(batches.c.id)
        return map(_batch, self._rows(query, BATCHES))

    def last_batch(self, last_epoch: int = LATEST) -> int:
        """The number of the last batch of the epochs up to this one; 0 if none. While it is the same, so is their evidence."""
        return int(self._connection.scalar(select(func.max(batches.c.id)).where(_between(batches, 0, last_epoch))) or 0)

    def named(self, digest: str) -> list[StoredBatch]:
        """The batches with this digest, in order of acceptance: at most one counts; others may have been inserted beside it."""
        query = select(batches).where(batches.c.digest == digest).order_by(batches.c.id)
        return [_batch(row) for row in self._connection.execute(query)]

    def numbers_named(self, digest: str) -> list[int]:
        """The numbers of the batches with this digest, in order of acceptance."""
        mark = MARK[self._connection.dialect.name]
        query = f"SELECT id FROM batches WHERE digest = {mark} ORDER BY id"
        return [number for (number,) in rows_of(self._connection, query, (digest,))]

    def numbered(self, number: int) -> StoredBatch:
        """The batch of this number."""
        return _batch(self._connection.execute(select(batches).where(batches.c.id == number)).one())

    def unnamed(self) -> int:
        """The number of the last batch that may be of version 1, which names no log: it was there before version 2."""
        return int(self._connection.scalar(select(meta.c.value).where(meta.c.key == UNNAMED)) or 0)

    def checked(self) -> list[tuple[int, bytes]]:
        """The stored verdicts on batches: (how many batches, envelope), the largest number first."""
        query = select(checked.c.batches, checked.c.envelope).order_by(checked.c.batches.desc(), checked.c.digest)
        return [(row.batches, row.envelope) for row in self._connection.execute(query)]

    def size(self, first: int, last: int) -> int:
        """The number of bytes of the records with these seqs, first and last included."""
        query = select(func.sum(func.length(RECORD[2]))).where(records.c.seq.between(first, last))
        return int(self._connection.scalar(query) or 0)

    def between(self, first: int, last: int) -> list[RecordRow]:
        """The records with these seqs, first and last included, with everything stored of them, in order of acceptance."""
        query = select(*ROW).where(records.c.seq.between(first, last)).order_by(records.c.seq)
        return [self.filled(RecordRow._make(row)) for row in self._connection.execute(query)]

    def competition(self) -> str:
        """The name of the ledger's competition."""
        return str(self._connection.scalar(select(meta.c.value).where(meta.c.key == "competition")))

    def submissions(self, epoch: int = LATEST) -> dict[str, Submission]:
        """Participant → what it handed in last, up to this epoch."""
        query = select(submissions).where(submissions.c.epoch <= epoch).order_by(submissions.c.id)
        return {row.participant: Submission(*tuple(row)[1:]) for row in self._rows(query)}

    def submissions_after(self, number: int) -> Iterator[tuple[int, Submission]]:
        """The submissions after a number, each with its own, in order."""
        query = select(submissions).where(submissions.c.id > number).order_by(submissions.c.id)
        return ((row.id, Submission(*tuple(row)[1:])) for row in self._rows(query))

    def submission_of(self, participant: str) -> Submission | None:
        """The last submission of a participant."""
        query = select(submissions).where(submissions.c.participant == participant).order_by(submissions.c.id.desc()).limit(1)
        row = self._connection.execute(query).first()
        return None if row is None else Submission(*tuple(row)[1:])

    # Settlements and receipts

    def settlement(self, epoch: int) -> StoredSettlement | None:
        """The settlement of an epoch."""
        row = self._connection.execute(select(settlements).where(settlements.c.epoch == epoch)).first()
        return None if row is None else StoredSettlement(*tuple(row))

    def inputs(self, digest: str) -> bytes | None:
        """The document of the inputs with this digest."""
        document: bytes | None = self._connection.scalar(select(inputs.c.document).where(inputs.c.digest == digest))
        return document

    def receipt(self, epoch: int) -> StoredReceipt | None:
        """The receipt of an epoch."""
        return _receipt(self._connection.execute(select(receipts).where(receipts.c.epoch == epoch)).first())

    def receipt_at(self, position: int) -> StoredReceipt | None:
        """The receipt at a place in the log."""
        return _receipt(self._connection.execute(select(receipts).where(receipts.c.position == position)).first())

    def last_receipt(self) -> StoredReceipt | None:
        """The receipt that was added last."""
        return _receipt(self._connection.execute(select(receipts).order_by(receipts.c.position.desc()).limit(1)).first())

    def settled_epoch(self) -> int | None:
        """The last settled epoch; only evidence of later epochs is accepted."""
        ((epoch,),) = rows_of(self._connection, "SELECT max(epoch) FROM receipts")
        return None if epoch is None else int(epoch)

    def settled_epochs(self, first: int = 0) -> list[int]:
        """The epochs from this one on that are settled, ascending."""
        return list(
            self._connection.scalars(select(receipts.c.epoch).where(receipts.c.epoch >= first).order_by(receipts.c.epoch))
        )

    def receipts(self, first: int = 0) -> Iterator[StoredReceipt]:
        """The receipts from this position of the log on, in its order."""
        query = select(receipts).where(receipts.c.position >= first).order_by(receipts.c.position)
        return (StoredReceipt(*tuple(row)) for row in self._rows(query))

    def witnessed(self, size: int | None = None) -> StoredCheckpoint | None:
        """The first cosigned checkpoint of at least so many receipts; without a size, the newest. None if there is none."""
        order = witnessed.c.size.desc() if size is None else witnessed.c.size
        query = select(witnessed).where(witnessed.c.size >= (size or 0)).order_by(order).limit(1)
        row = self._connection.execute(query).first()
        return None if row is None else StoredCheckpoint(*tuple(row))

    # Attempts and outcomes at chains

    def targets(self) -> list[str]:
        """The targets to which something was sent, or was about to be."""
        return list(self._connection.scalars(select(attempts.c.target).distinct().order_by(attempts.c.target)))

    def attempts(self, target: str, after: int = 0) -> list[bytes]:
        """The attempts noted for a target, in order, without the first `after`; raises Damaged."""
        query = select(attempts.c.number, attempts.c.entry).where(attempts.c.target == target, attempts.c.number > after)
        rows = self._connection.execute(query.order_by(attempts.c.number)).all()
        if any((row.number, type(row.entry)) != (number, bytes) for number, row in enumerate(rows, start=after + 1)):
            raise Damaged(f"attempts to send to {target!r} are missing", hint=RESTORE)
        return [row.entry for row in rows]

    def _rows(self, query: Select[Any], at_once: int = FETCH) -> Iterator[Found[Any]]:
        yield from self._connection.execute(query.execution_options(yield_per=at_once))

    def _pieces(
        self, first_epoch: int, last_epoch: int, query: Select[Any], at_once: int | None = None
    ) -> Generator[Any, None, None]:
        """Lists of rows of records: by key, between the first and the last record of these epochs' batches."""
        bounds = select(func.min(batches.c.first_seq), func.max(batches.c.last_seq))
        low, high = self._connection.execute(bounds.where(_between(batches, first_epoch, last_epoch))).one()
        if low is not None:
            query = query.where(records.c.seq.between(low, high), _between(records, first_epoch, last_epoch))
            query = query.order_by(records.c.seq).execution_options(yield_per=at_once or FETCH)
            with self._connection.execute(query) as rows:  # who stops early leaves no cursor open
                yield from rows.partitions()


def _between(table: Any, first: int, last: int) -> Any:
    return table.c.epoch.between(first, last)


def _batch(row: Found[Any]) -> StoredBatch:
    values: tuple[Any, ...] = tuple(row)  # by place, not by name: each look at all batches makes one of every row
    return StoredBatch(*(*values[:7], members_of(values[7]), *values[8:]))


def _receipt(row: Found[Any] | None) -> StoredReceipt | None:
    return None if row is None else StoredReceipt(*tuple(row))
