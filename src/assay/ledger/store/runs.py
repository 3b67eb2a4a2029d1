"""Read the records of some runs, slots or seqs by their index, and keep the rows of `standing`. SPEC 3.0.

A run is what one validator's records about one submission (or participant) have in common: the first 8 bytes of their slots.
Somebody can craft records of another run with the same bytes, so the caller compares what the records say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from sqlalchemy import or_, select

from assay.ledger.batch import StoredRecord
from assay.ledger.store.tables import BODY, MARK, RECORD, ROW, RecordRow, batches, records, standing
from assay.ledger.store.view import LATEST, View
from assay.ledger.store.writer import Writer

__all__ = ["authors", "keep", "of_runs", "of_seqs", "of_slots", "other_task_sets", "standing_rows"]

AT_ONCE = 500
"""Slots, ranges or runs of one query."""
_COLUMNS = {dialect: ", ".join([*(column.name for column in ROW[:-1]), body]) for dialect, body in BODY.items()}
BATCHES_AT_ONCE = 10_000
"""Batches of one query: each is a parameter twice, of which SQLite takes 32,766."""
_OF_RUNS = (
    "SELECT near.* FROM unnest(%s::bytea[], %s::bytea[]) AS run(low, high) CROSS JOIN LATERAL"
    f" (SELECT {_COLUMNS['postgresql']} FROM records WHERE slot BETWEEN low AND high AND epoch <= %s OFFSET 0) AS near"
)
"""OFFSET 0 makes PostgreSQL look each run up by the index. As a plain join, it may read all records instead: it expects that a
range of slots has a part of them that grows with the table."""
_NO_JIT = "SELECT set_config(name, 'off', true) FROM pg_settings WHERE name = 'jit'"
"""For the same reason it would compile the query first, which takes longer than the query; for the rest of the transaction."""
T = TypeVar("T")


def _parts(items: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    """Lists of so many items."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def of_runs(view: View, runs: Iterable[bytes], last_epoch: int) -> list[RecordRow]:
    """The records of these runs and of epochs up to this one, in order of acceptance."""
    connection, rows = view._connection, list[RecordRow]()
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_NO_JIT)
        for some in _parts(runs):
            ends = [run + b"\0" * 8 for run in some], [run + b"\xff" * 8 for run in some]
            rows += map(RecordRow._make, connection.exec_driver_sql(_OF_RUNS, (*ends, last_epoch)))
    else:
        query = f"SELECT {_COLUMNS['sqlite']} FROM records WHERE slot BETWEEN ? AND ? AND epoch <= ?"
        for run in runs:
            rows += map(RecordRow._make, connection.exec_driver_sql(query, (run + b"\0" * 8, run + b"\xff" * 8, last_epoch)))
    return [view.whole(row) for row in _counting(view, rows)]


def of_slots(view: View, slots: Collection[bytes], last_epoch: int) -> list[RecordRow]:
    """The records with these slots and of epochs up to this one, in order of acceptance; empty bodies are in archives."""
    connection, rows = view._connection, list[RecordRow]()
    mark = MARK[connection.dialect.name]
    for some in _parts(slots):
        marks = ", ".join([mark] * len(some))
        query = f"SELECT {_COLUMNS[connection.dialect.name]} FROM records WHERE slot IN ({marks}) AND epoch <= {mark}"
        rows += map(RecordRow._make, connection.exec_driver_sql(query, (*some, last_epoch)))
    return [view.whole(row) if row.body else row for row in _counting(view, rows)]


def _counting(view: View, rows: list[RecordRow]) -> list[RecordRow]:
    rows.sort(key=lambda row: row.seq)
    return [row for part in view._only(iter([rows]), 0, LATEST) for row in part] if rows else rows


def of_seqs(view: View, ranges: Iterable[Sequence[int]]) -> Iterator[StoredRecord]:
    """The records with these seqs, given as ranges with first and last; raises Damaged for one that was changed."""
    for some in _parts(ranges, AT_ONCE // 5):
        query = select(*RECORD).where(or_(*(records.c.seq.between(first, last) for first, last in some)))
        for row in view._rows(query):
            yield view.whole(StoredRecord._make(row))


def other_task_sets(view: View, rows: Sequence[RecordRow], task_set: str | None) -> set[int]:
    """The seqs of those of some records that are only in batches of other task sets; none if the settlement has no task set."""
    if task_set is None:
        return set()
    by_batch: dict[int, list[int]] = {}
    for row in rows:
        by_batch.setdefault(row.batch, []).append(row.seq)
    others = set[int]()
    for numbers in _parts(sorted(by_batch), BATCHES_AT_ONCE):
        task_sets = view._task_sets(numbers)
        pairs = ((number, seq) for number in numbers for seq in by_batch[number])
        others |= {seq for number, seq in pairs if (sets := task_sets.of(seq, number)) and sets.isdisjoint({None, task_set})}
    return others


def authors(view: View, last_epoch: int, last_batch: int = LATEST) -> set[str]:
    """The validators named by the batches up to this number and of epochs up to this one."""
    chosen = select(batches.c.validator).where(batches.c.epoch <= last_epoch, batches.c.id <= last_batch)
    return set(view._connection.scalars(chosen.distinct()))


def standing_rows(view: View) -> dict[str, bytes]:
    """The rows stored in `standing`; a row of another form is empty."""
    return {row.about: row.document if type(row.document) is bytes else b"" for row in view._rows(select(standing))}


def keep(tx: Writer, rows: Mapping[str, bytes], stay: Collection[str] = ()) -> None:
    """Store rows in `standing`, in place of all others but those that stay."""
    there = tx._connection.scalars(select(standing.c.about)).all()
    for some in _parts(about for about in there if about not in stay):
        tx._connection.execute(standing.delete().where(standing.c.about.in_(some)))
    tx._add(standing, *rows.items())
