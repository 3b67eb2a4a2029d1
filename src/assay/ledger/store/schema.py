"""The version of the tables: made, checked on opening, and brought forward. A database of another version is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, func, inspect, select, update

from assay.ledger.store import home, rights
from assay.ledger.store.errors import NotALedger, OtherVersion
from assay.ledger.store.rows import Meta
from assay.ledger.store.tables import SCHEMA, append_only, attempts, batches, checked, fitting, meta, records, triggers

__all__ = ["MIGRATIONS", "UNNAMED", "check", "make", "migrate", "read", "version"]

UNNAMED = "unnamed_batches"
"""In `meta`: the last batch that may be of version 1 of its format, which names no log; 0 in a new ledger."""


def _with_attempts(connection: Connection) -> None:
    """Version 2: what was sent to chains is kept in the ledger."""
    attempts.create(connection)
    for statement in append_only(attempts, connection.dialect.name):
        connection.exec_driver_sql(statement)


def _with_checked(connection: Connection) -> None:
    """Version 3: which signatures were looked at, and up to which batch there are some that name no log."""
    checked.create(connection)
    for statement in append_only(checked, connection.dialect.name):
        connection.exec_driver_sql(statement)
    last = connection.scalar(select(func.coalesce(func.max(batches.c.id), 0)))
    connection.execute(meta.insert(), {"key": UNNAMED, "value": str(last)})


def _with_others(connection: Connection) -> None:
    """Version 4: what somebody forged may stand beside the true batch or record, and must fit what is there.

    SQLite takes no constraint from a table, so both are written anew.
    """
    dialect = connection.dialect.name
    if dialect == "postgresql":
        for statement in (
            "ALTER TABLE batches DROP CONSTRAINT batches_digest_key",
            "ALTER TABLE records DROP CONSTRAINT records_slot_digest_key",
            "CREATE INDEX ix_batches_digest ON batches (digest)",
            "CREATE INDEX records_slot ON records (slot, digest)",
        ):
            connection.exec_driver_sql(statement)
    else:
        for index in ("ix_batches_epoch", "records_conflicting"):
            connection.exec_driver_sql(f"DROP INDEX {index}")
        for table in (batches, records):
            connection.exec_driver_sql(f"ALTER TABLE {table.name} RENAME TO old_{table.name}")
        for table, order in ((batches, "id"), (records, "seq")):
            table.create(connection)
            connection.exec_driver_sql(f"INSERT INTO {table.name} SELECT * FROM old_{table.name} ORDER BY {order}")
        for table in (records, batches):
            connection.exec_driver_sql(f"DROP TABLE old_{table.name}")
            for statement in append_only(table, dialect):
                connection.exec_driver_sql(statement)
    for table in (batches, records):
        for statement in fitting(table, dialect):
            connection.exec_driver_sql(statement)


MIGRATIONS: Sequence[Callable[[Connection], None]] = (_with_attempts, _with_checked, _with_others)
"""MIGRATIONS[n − 1] brings a database of version n to n + 1; `tables` says what the last version is."""


def version() -> int:
    """The version that this program makes and reads."""
    return 1 + len(MIGRATIONS)


def check_empty(connection: Connection, name: str) -> None:
    """Refuse a database that has one of our tables; raises NotALedger."""
    here = set(inspect(connection).get_table_names()) & set(SCHEMA.tables)
    if here:
        raise NotALedger(
            f"there is a table {min(here)!r} already", file=name, hint="use an empty database, or the ledger that is in it"
        )


def make(connection: Connection, whose: Meta, name: str) -> None:
    """All tables, in a database that has none of them; raises NotALedger if it has."""
    check_empty(connection, name)
    SCHEMA.create_all(connection, checkfirst=False)
    for statement in triggers(connection.dialect.name):
        connection.exec_driver_sql(statement)
    values = {"competition": whose.competition, "key": whose.key, "origin": whose.origin, "schema_version": str(version())}
    values[UNNAMED] = "0"  # so that nobody who may only insert can put it there
    connection.execute(meta.insert(), [{"key": key, "value": value} for key, value in values.items()])
    home.settle_in(connection)
    rights.make_turn(connection)


def read(connection: Connection, name: str) -> tuple[int, Meta]:
    """The version of a database, and whose it is; raises NotALedger."""
    if not inspect(connection).has_table("meta"):
        raise NotALedger("is not a ledger", file=name, hint="`assay ledger init` makes one")
    found: dict[str, str] = {row.key: row.value for row in connection.execute(select(meta))}
    if not {"competition", "key", "origin", "schema_version"} <= found.keys() or not re.fullmatch(
        "[0-9]{1,9}", found["schema_version"]
    ):
        raise NotALedger("is not a ledger", file=name, hint="its table `meta` is somebody else's; use another database")
    return int(found["schema_version"]), Meta(found["competition"], found["origin"], found["key"])


def check(found: int, name: str) -> None:
    """Refuse a database of another version; raises OtherVersion."""
    ours = version()
    if found > ours:
        raise OtherVersion(
            f"was made by a newer Assay: its schema is version {found}, this one knows {ours}", file=name, hint="upgrade Assay"
        )
    if found < ours:
        raise OtherVersion(
            f"was made by an older Assay: its schema is version {found}, this one needs {ours}",
            file=name,
            hint="keep a copy, then `assay ledger migrate`",
        )


def migrate(connection: Connection, name: str) -> tuple[int, int]:
    """Bring a database forward to this program's version, within the transaction; the versions before and after."""
    before, _ = read(connection, name)
    for step in MIGRATIONS[before - 1 :]:
        step(connection)
    if before < version():
        connection.execute(update(meta).where(meta.c.key == "schema_version").values(value=str(version())))
        if not home.noted(connection):
            home.settle_in(connection)
        rights.make_turn(connection)
    check(max(before, version()), name)
    return before, version()
