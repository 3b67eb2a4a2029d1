"""Copy the tables of one database to another in pieces, and digest both sides, so that a copy can be compared row by row.

The digest of a table is SHA-256 over its rows in the order of the primary key, texts by their UTF-8 bytes. A row is its values in
the order of the columns:

    n            NULL
    i12;         a number; a truth value is 1 or 0
    t3:abc       a text: how many bytes its UTF-8 has, then these
    b3:…         bytes: how many, then these

So two rows have the same bytes only if they are equal, on SQLite and PostgreSQL alike. The ledger's home in `meta` is left out:
it differs wherever a ledger is copied to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, MetaData, Table, Text, func, inspect, select

from assay.exact import canonical
from assay.ledger.store import schema
from assay.ledger.store.engine import Damaged, StoreError, shown, translated
from assay.ledger.store.tables import APPEND_ONLY, ROW, SCHEMA, meta, records

__all__ = [
    "CopiedTable",
    "check_same",
    "check_unchanged",
    "copy_tables",
    "digest_of",
    "digest_tables",
    "tables_of",
    "vacuum_into",
]

COPY_ROWS, COPY_BYTES = 10_000, 8_000_000
"""Rows, and bytes of texts and blobs in them, that are inserted at once."""
READ_ROWS, READ_DOCUMENTS = 64, 4
"""Rows that are read at once; where each is a whole document, fewer."""
STOP = "stop every program that uses this ledger, then copy again"
Progress = Callable[[str, int], None]
"""Called with a table's name and how many of its rows are done."""
Row = Sequence[Any]


@dataclass(frozen=True)
class CopiedTable:
    """The number of a table's rows, and their digest."""

    rows: int
    digest: str


def vacuum_into(source: Connection, path: Path) -> None:
    """Copy an SQLite database to a new file while others write; the connection must not be in a transaction."""
    source.exec_driver_sql("VACUUM INTO ?", (str(path),))


def tables_of(source: Connection, beside: MetaData, *, readable: bool = False) -> list[Table]:
    """The ledger's tables, then those of `beside` that the source has.

    readable: those that we may not read are left out; a validator's user makes a backup without them.
    """
    there = inspect(source).get_table_names()
    others = (table for table in beside.sorted_tables if table.name in there)
    return [*SCHEMA.sorted_tables, *(table for table in others if not readable or schema.may_read(source, table.name))]


def copy_tables(
    source: Connection,
    target: Connection,
    name: str,
    beside: MetaData,
    *,
    readable: bool = False,
    progress: Progress = lambda *_: None,
) -> dict[str, CopiedTable]:
    """Copy tables (as `tables_of` has them) from one transaction to another; memory does not grow with their rows.

    Returns what was read. Raises NotALedger if the target has one of the tables already.
    """
    tables = tables_of(source, beside, readable=readable)
    schema.check_empty(target, name, (*SCHEMA.tables, *beside.tables))
    copied = {}
    for table in tables:
        table.create(target, checkfirst=False)
        digest = _Digest(table, progress)
        columns = table.columns.keys()
        with closing(_rows(source, table)) as rows:  # an error's traceback would keep the cursor open
            for piece in _pieces(digest.each(rows)):
                target.execute(table.insert(), [dict(zip(columns, row, strict=True)) for row in piece])
        copied[table.name] = digest.result()
        numbered = table.autoincrement_column
        if numbered is not None and target.dialect.name == "postgresql":  # new rows get numbers after those that were copied
            sequence = func.pg_get_serial_sequence(table.name, numbered.name)
            target.execute(select(func.setval(sequence, func.max(numbered))))
    schema.make_triggers(target)
    return copied


def digest_tables(
    connection: Connection, tables: Iterable[Table], progress: Progress = lambda *_: None
) -> dict[str, CopiedTable]:
    """Table → its rows and their digest, within one transaction."""
    digests = {}
    for table in tables:
        digest = _Digest(table, progress)
        with closing(_rows(connection, table)) as rows:
            for _ in digest.each(rows):
                pass
        digests[table.name] = digest.result()
    return digests


def digest_of(copied: dict[str, CopiedTable]) -> str:
    """One digest over all tables: of the canonical JSON of {name: [rows, digest]}."""
    every = {name: [table.rows, table.digest] for name, table in copied.items()}
    return f"sha256:{hashlib.sha256(canonical(every)).hexdigest()}"


def check_same(target: Connection, name: str, beside: MetaData, copied: dict[str, CopiedTable], progress: Progress) -> None:
    """Read a copy again, and raise Damaged for a table whose rows are not those that were copied."""
    again = digest_tables(target, tables_of(target, beside), lambda table, rows: progress(f"{table}, read again", rows))
    for table in sorted({*copied, *again}):
        if copied.get(table) != again.get(table):
            what = f"the table {table!r} has other rows than were copied to it, so nothing was copied"
            raise Damaged(what, file=name, hint="check that database and its disk, then copy again")


def check_unchanged(source: Connection, beside: MetaData, copied: dict[str, CopiedTable]) -> None:
    """Raise StoreError if a table is not as it was copied.

    Rows are only counted where none can be changed or removed; other tables are digested again.
    """
    for table in tables_of(source, beside):
        before = copied.get(table.name)
        if before is not None and table in APPEND_ONLY:
            same = source.scalar(select(func.count()).select_from(table)) == before.rows
        else:
            same = digest_tables(source, [table])[table.name] == before
        if not same:
            what = f"somebody wrote to the table {table.name!r} meanwhile, so nothing was copied"
            raise StoreError(what, hint=STOP)


def _rows(connection: Connection, table: Table) -> Generator[Row]:
    """The rows of a table in the order of its primary key, read in pieces."""
    order = [
        column.collate("C") if isinstance(column.type, Text) and connection.dialect.name == "postgresql" else column
        for column in table.primary_key.columns
    ]
    at_once = READ_DOCUMENTS if "document" in table.columns else READ_ROWS
    url = connection.engine.url
    name = str(url.database) if connection.dialect.name == "sqlite" else shown(url.render_as_string(hide_password=False))
    query = select(*(ROW if table is records else table.c)).order_by(*order).execution_options(yield_per=at_once)
    with translated(name), connection.execute(query) as rows:  # two databases are at work: name the one that failed
        yield from rows


def _pieces(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Lists of rows that are inserted at once."""
    piece, size = list[Row](), 0
    for row in rows:
        piece.append(row)
        size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if len(piece) >= COPY_ROWS or size >= COPY_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


class _Digest:
    """Digests the rows of one table as they pass."""

    def __init__(self, table: Table, progress: Progress) -> None:
        self._table, self._progress = table, progress
        self._hash, self._count = hashlib.sha256(), 0

    def each(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The same rows."""
        homeless = self._table is meta
        for row in rows:
            if not (homeless and row[0] in (schema.HOME, schema.FORMER_HOME)):
                self._hash.update(b"".join(chain.from_iterable(map(_encoded, row))))
                self._count += 1
                if self._count % COPY_ROWS == 0:
                    self._progress(self._table.name, self._count)
            yield row

    def result(self) -> CopiedTable:
        """The number of rows that were copied, and their digest."""
        self._progress(self._table.name, self._count)
        return CopiedTable(self._count, f"sha256:{self._hash.hexdigest()}")


def _encoded(value: object) -> tuple[bytes, ...]:
    """A value of a row, as the digest has it."""
    if isinstance(value, bytes):
        return b"b%d:" % len(value), value
    if isinstance(value, str):
        text = value.encode()
        return b"t%d:" % len(text), text
    if isinstance(value, int):
        return (b"i%d;" % value,)
    if value is None:
        return (b"n",)
    raise TypeError(f"a ledger stores no {type(value).__name__}")
