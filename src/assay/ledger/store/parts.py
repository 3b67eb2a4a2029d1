"""Keep the bodies of records in a part for each epoch, so that an archived epoch is dropped at once. Only PostgreSQL has parts.

A row of `records` is a record's place for good: its seq, digest, slot, batch and epoch. The log, duplicates and look-ups by slot
rest on it. Its body, most of its bytes, is needed until the epoch is in an archive. In PostgreSQL, a trigger moves it to the
table `bodies`, which is partitioned by epoch, if there is a part for its epoch; the row then has an empty body. Dropping a part
is DROP TABLE, which leaves nothing to vacuum. Without a part the body stays in the row, and dropping it is an UPDATE.

Only the owner makes parts. Each receipt makes those of the next epochs, in a ledger with many records. A query looks at each
part, so there are at most `MOST`: epochs beyond these have none until older ones are archived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import ColumnElement, Connection, func, or_, select

from assay.ledger.store.tables import MARK, RECORD, StoredArchived, append_only, archived, batches, records

__all__ = ["AHEAD", "BODIES", "MOST", "drop", "make", "parts", "statements"]

BODIES = "bodies"
AHEAD = 4
"""Epochs after the last settled one that get a part."""
MOST = 64
"""Parts at once: PostgreSQL plans and locks each of them in every query of records."""
AT_ONCE = 100
"""Ranges of seqs of one query."""
LOCK_MS = 500
"""Milliseconds that a change waits at once for those who use a table: who comes meanwhile waits behind it."""
_OURS = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('bodies')"
_PARTS = "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = to_regclass('bodies')"


def statements() -> Iterator[str]:
    """The statements that make the partitioned table, and the trigger that fills it.

    The trigger runs as the owner, because whoever inserts records has no rights to `bodies`. So it checks what a policy checks
    (`rights`): that the record is of its batch's validator.
    """
    columns = "epoch bigint, seq bigint, body bytea NOT NULL, PRIMARY KEY (epoch, seq)"
    yield f"CREATE TABLE bodies ({columns}) PARTITION BY RANGE (epoch)"
    yield (
        "CREATE TRIGGER bodies_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON bodies "
        "FOR EACH STATEMENT EXECUTE FUNCTION assay_append_only()"
    )
    body = (
        "BEGIN IF NEW.body <> ''''::bytea AND to_regclass(''bodies_'' || NEW.epoch) IS NOT NULL THEN"
        " IF (SELECT validator FROM batches WHERE id = NEW.batch) IS DISTINCT FROM"
        " convert_from(NEW.body, ''UTF8'')::json ->> ''validator''"
        " THEN RAISE EXCEPTION USING MESSAGE = ''assay: a record is of another validator than its batch'', ERRCODE = ''42501'';"
        " END IF;"
        " INSERT INTO bodies (epoch, seq, body) VALUES (NEW.epoch, NEW.seq, NEW.body); NEW.body := ''''::bytea; END IF;"
        " RETURN NEW; END"
    )
    yield (
        "DO $do$ BEGIN EXECUTE 'CREATE FUNCTION assay_records_part() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        f" SET search_path = ' || quote_ident(current_schema()) || ', pg_temp AS $$ {body} $$'; END $do$"
    )
    yield "CREATE TRIGGER records_part BEFORE INSERT ON records FOR EACH ROW EXECUTE FUNCTION assay_records_part()"


def parts(connection: Connection) -> set[str]:
    """The names of the parts that there are."""
    return set() if connection.dialect.name != "postgresql" else set(connection.exec_driver_sql(_PARTS).scalars())


def make(connection: Connection, settled: int) -> list[int]:
    """Make the parts of the epochs after a settled one, unless they are there; returns their epochs.

    None if we are not the owner. Attaching a part excludes neither readers nor writers.
    """
    if connection.dialect.name != "postgresql" or not connection.exec_driver_sql(_OURS).scalar():
        return []
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_MS}ms'")
    there = parts(connection)
    missing = [epoch for epoch in range(settled + 1, settled + 1 + AHEAD) if f"{BODIES}_{epoch}" not in there]
    new = missing[: max(0, MOST - len(there))]
    for epoch in new:
        name = f"{BODIES}_{epoch}"
        connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE bodies INCLUDING ALL)")
        connection.exec_driver_sql(f"ALTER TABLE bodies ATTACH PARTITION {name} FOR VALUES FROM ({epoch}) TO ({epoch + 1})")
    return new


def drop(connection: Connection, entry: StoredArchived, keep: Sequence[Sequence[int]]) -> int:
    """Drop the bodies of archived epochs, but those of some seqs, and note where they are. Returns how many are gone.

    keep: the seqs as ranges, first and last included; their bodies are in their rows afterwards.

    0 if they were dropped before. Only the owner of the tables can do this. Raises DatabaseBusy if a table is in use.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_MS}ms'")
    if connection.scalar(select(archived.c.epoch).where(archived.c.epoch == entry.epoch)) is not None:
        return 0
    epochs = batches.c.epoch.between(entry.first, entry.epoch)
    low, high = connection.execute(select(func.min(batches.c.first_seq), func.max(batches.c.last_seq)).where(epochs)).one()
    mine = records.c.seq.between(low, high) & records.c.epoch.between(entry.first, entry.epoch)
    count = connection.scalar(select(func.count()).select_from(records).where(mine)) or 0
    remaining = _bodies(connection, mine, keep)
    with _changing_records(connection):
        connection.execute(records.update().where(mine, records.c.body != b"").values(body=b""))
        for name in parts(connection):
            if entry.first <= int(name.removeprefix(f"{BODIES}_")) <= entry.epoch:
                connection.exec_driver_sql(f"DROP TABLE {name}")
        if remaining:
            mark = MARK[connection.dialect.name]
            connection.exec_driver_sql(f"UPDATE records SET body = {mark} WHERE seq = {mark}", remaining)
    connection.execute(archived.insert(), {"epoch": entry.epoch, "first": entry.first, "envelope": entry.envelope})
    return count - len(remaining)


def _bodies(connection: Connection, mine: ColumnElement[bool], keep: Sequence[Sequence[int]]) -> list[tuple[bytes, int]]:
    """(body, seq) of those of some records whose seqs are in these ranges."""
    remaining = list[tuple[bytes, int]]()
    for at in range(0, len(keep), AT_ONCE):
        ranges = or_(*(records.c.seq.between(first, last) for first, last in keep[at : at + AT_ONCE]))
        remaining += [(body, seq) for seq, _, body in connection.execute(select(*RECORD).where(mine, ranges))]
    return remaining


@contextmanager
def _changing_records(connection: Connection) -> Iterator[None]:
    """Let the block change rows of `records`, which nothing else can: the trigger is lifted meanwhile."""
    postgresql = connection.dialect.name == "postgresql"
    lift = "ALTER TABLE records DISABLE TRIGGER records_append_only" if postgresql else "DROP TRIGGER records_no_update"
    back = "ALTER TABLE records ENABLE TRIGGER records_append_only"
    connection.exec_driver_sql(lift)
    yield
    if not postgresql:
        back = next(statement for statement in append_only(records, "sqlite") if "records_no_update" in statement)
    connection.exec_driver_sql(back)
