"""A database copied whole, from one snapshot: into a new SQLite file, and from such a file into an empty PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, select

from assay.ledger.store import rights, schema
from assay.ledger.store.tables import SCHEMA, triggers

__all__ = ["pour", "vacuum"]

PIECE = 10_000
"""Rows that are in memory at once."""


def vacuum(source: Connection, path: Path) -> None:
    """Copy an SQLite database into a new file; the connection is in no transaction. Others may write meanwhile."""
    source.exec_driver_sql("VACUUM INTO ?", (str(path),))


def pour(source: Connection, target: Connection, name: str) -> None:
    """Copy all tables from one transaction into another, which has none of them; raises NotALedger if it has."""
    schema.check_empty(target, name)
    SCHEMA.create_all(target, checkfirst=False)
    for table in SCHEMA.sorted_tables:
        query = select(table).order_by(*table.primary_key.columns).execution_options(yield_per=PIECE)
        for rows in source.execute(query).partitions():
            target.execute(table.insert(), [row._asdict() for row in rows])
    for statement in triggers(target.dialect.name):
        target.exec_driver_sql(statement)
    rights.make_turn(target)
