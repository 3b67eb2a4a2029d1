"""Manage a ledger's database beside its rows: where the ledger lives, whose turn it is to write, and the version of its tables.

**Home.** `meta` says under the key `home` where the ledger lives, so that a copy can be recognised:

    {"file":"/srv/c/ledger.db","inode":"1234"}                    SQLite
    {"database":"ledger","number":"16384","server":"7391…","timeline":"00000001"}  PostgreSQL

- The copy of a file has another path or inode. A dump that was loaded again is another database, or on another server. A server
  that was restored, or a standby that took over, is on another timeline.
- A restored ledger has no home: {"restored":"2026-11-22T17:00:00Z"}; `former_home` says where it lived before.
- A ledger from before the home was noted has none, and may be used wherever it is.

A database that is not at home accepts and signs nothing, until the operator says that it is the only one (`settle_in`).

**Turns.** Writers of a shared PostgreSQL take turns by locking the table `assay_turn`, which has no columns and no rows. The
server lets only those lock it who may change it, so a user who may not write cannot delay the others. Any role may take an
advisory lock; a database without the table is written under one, until `grant` or a migration makes the table. Rights of users:
see `rights`.

**Version.** The tables are made, checked on opening, and migrated. A database of another version is refused by name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from sqlalchemy import Connection, delete, func, inspect, select, update

from assay.errors import BadInput
from assay.ledger.store import parts
from assay.ledger.store.engine import RESTORE, Damaged, Elsewhere, NotALedger, OtherVersion, rows_of
from assay.ledger.store.tables import (
    SCHEMA,
    Meta,
    append_only,
    archived,
    attempts,
    batches,
    checked,
    fitting,
    meta,
    records,
    standing,
    triggers,
    witnessed,
)

Home = dict[str, str]
HOME = "home"
FORMER_HOME = "former_home"
"""The key in `meta` for where a ledger lived before it was restored, until it is adopted."""
_HINT = "use the ledger where it lives; or, if this is the only one now: assay ledger adopt"
_SERVER = (
    "SELECT current_database(), (SELECT oid::text FROM pg_database WHERE datname = current_database()),"
    " (SELECT system_identifier::text FROM pg_control_system()), CASE WHEN pg_is_in_recovery()"
    " THEN (SELECT lpad(upper(to_hex(timeline_id)), 8, '0') FROM pg_control_checkpoint())"
    " ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"
)
_SHAPES = ({"file", "inode"}, {"database", "number", "server", "timeline"}, {"restored"})


def present_home(connection: Connection) -> Home:
    """The place of this database now; raises OSError if its file is gone."""
    if connection.dialect.name == "sqlite":
        path = str(connection.engine.url.database)
        status = os.stat(path)
        return {"file": _real_path(path, status.st_dev, status.st_ino), "inode": str(status.st_ino)}
    place = connection.exec_driver_sql(_SERVER).one()
    return dict(zip(("database", "number", "server", "timeline"), map(str, place), strict=True))


@lru_cache(maxsize=256)
def _real_path(path: str, device: int, inode: int) -> str:
    """The path of a file without links. It is looked for once: the file under a path is the same while its inode is."""
    return os.path.realpath(path)


def noted_home(connection: Connection, key: str = HOME) -> Home:
    """The home, or former home, that the database notes; empty if it notes none. Raises Damaged."""
    return _home_of(connection.scalar(select(meta.c.value).where(meta.c.key == key)))


def _home_of(noted: str | None) -> Home:
    """The home that a row of `meta` notes; empty without a row. Raises Damaged."""
    if noted is None:
        return {}
    try:
        home: Home = json.loads(noted)
    except ValueError:
        home = {}
    if not isinstance(home, dict) or set(home) not in _SHAPES:
        raise Damaged("its table `meta` does not say where the ledger lives", hint=RESTORE)
    return home


def check_home(connection: Connection) -> None:
    """Raise Elsewhere for a database that does not live here."""
    _check_home(connection, noted_home(connection))


def _check_home(connection: Connection, home: Home) -> None:
    if "restored" in home:
        what = f"was restored on {home['restored']}, and accepts and signs nothing until it is adopted"
        raise Elsewhere(what, hint="stop the ledger that it replaces, then: assay ledger adopt")
    if home and _without_name(home) != _without_name(present_home(connection)):
        raise Elsewhere(
            f"is a copy of the ledger {_home_words(home, present_home(connection))}, so it may only be read", hint=_HINT
        )


def settle_in(connection: Connection) -> None:
    """Note that the ledger lives here."""
    _write_home(connection, present_home(connection))
    connection.execute(delete(meta).where(meta.c.key == FORMER_HOME))


def forget_home(connection: Connection, when: str) -> None:
    """Note that the database was restored at a time (RFC 3339) and has no home yet, and where it lived before."""
    home = former_home(connection)
    _write_home(connection, {"restored": when})
    if home:
        _write_home(connection, home, FORMER_HOME)


def former_home(connection: Connection) -> Home:
    """The place of the ledger before it was copied or restored; empty if that is unknown. Raises Damaged."""
    home = noted_home(connection)
    return noted_home(connection, FORMER_HOME) if "restored" in home else home


def check_file_unused(connection: Connection, home: Home) -> None:
    """Raise BadInput if the former home is a file of this machine that still exists, or that a program has open."""
    file = Path(home["file"])
    if present_home(connection).get("inode") == home["inode"]:
        return  # the file itself was moved
    if file.exists() and str(file.stat().st_ino) == home["inode"]:
        raise BadInput(f"the ledger is still in {file}, and this is a copy of it", hint="move that file away first")
    process = _process_with(file, int(home["inode"]))
    if process is not None:
        what = f"the ledger that was in {file} is still open in process {process}"
        raise BadInput(what, hint="stop that program first: it would continue with the old ledger")


def _process_with(file: Path, inode: int) -> str | None:
    """A process of this machine that has the file open, even if it was moved or removed; as far as we may see."""
    try:
        device = file.parent.stat().st_dev
        processes = [name for name in os.listdir("/proc") if re.fullmatch("[0-9]+", name) and name != str(os.getpid())]
    except OSError:
        return None  # the folder is not of this machine, or the system has no /proc
    for process in processes:
        with suppress(OSError):
            for number in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    opened = Path(f"/proc/{process}/fd/{number}")
                    status = opened.stat()
                    # The inode of a removed file may be used again; a database begins with these words.
                    if (status.st_dev, status.st_ino) == (device, inode) and opened.read_bytes()[:15] == b"SQLite format 3":
                        return process
    return None


def former_database(connection: Connection, home: Home) -> str | None:
    """The name of the former database, if it is another one on this server that still exists; else None."""
    if connection.dialect.name != "postgresql" or home["server"] != present_home(connection)["server"]:
        return None
    name = connection.exec_driver_sql("SELECT datname FROM pg_database WHERE oid::text = %s", (home["number"],)).scalar()
    return None if name == present_home(connection)["database"] else name


def _write_home(connection: Connection, home: Home, key: str = HOME) -> None:
    connection.execute(delete(meta).where(meta.c.key == key))
    connection.execute(meta.insert(), {"key": key, "value": _home_text(home)})


_home_text = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def _without_name(home: Home) -> Home:
    """A home without the name of the database, because a database may be renamed."""
    return {name: value for name, value in home.items() if name != "database"}


def _home_words(home: Home, now: Home) -> str:
    if "file" in home:
        same = home["file"] == now.get("file")
        return f"that was in this file before, with the inode {home['inode']}" if same else f"in {home['file']}"
    if home["server"] == now.get("server") and home["number"] == now.get("number"):
        return f"that was on timeline {home['timeline']} of this server, which was restored or has taken over since"
    return f"in the database {home['database']!r} of {'this' if home['server'] == now.get('server') else 'another'} server"


TURN = "assay_turn"


def make_turn(connection: Connection) -> None:
    """Make the table by which writers take turns, if it is missing."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {TURN} ()")


def turn_holder(connection: Connection) -> str | None:
    """The user who holds the turn to write, with the process of the session; None if nobody holds it."""
    query = (
        "SELECT a.usename, a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        f" WHERE l.relation = to_regclass('{TURN}') AND l.granted AND l.database ="
        " (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 1"
    )
    holder = connection.exec_driver_sql(query).first()
    return None if holder is None else f"{holder.usename} (process {holder.pid} of the server)"


def may_read(connection: Connection, table: str) -> bool:
    """Whether we may read a table that is not the ledger's: a validator's user may not."""
    if connection.dialect.name != "postgresql":
        return True
    return bool(connection.exec_driver_sql("SELECT has_table_privilege(%s, 'SELECT')", (table,)).scalar())


UNNAMED = "unnamed_batches"
"""The key in `meta` for the last batch that may be of version 1, which names no log; 0 in a new ledger."""


def _with_attempts(connection: Connection) -> None:
    """Version 2: the ledger stores what was sent to chains."""
    attempts.create(connection)
    for statement in append_only(attempts, connection.dialect.name):
        connection.exec_driver_sql(statement)


def _with_checked(connection: Connection) -> None:
    """Version 3: the ledger stores the verdicts on batches, and up to which batch some may name no log."""
    checked.create(connection)
    for statement in append_only(checked, connection.dialect.name):
        connection.exec_driver_sql(statement)
    last = connection.scalar(select(func.coalesce(func.max(batches.c.id), 0)))
    connection.execute(meta.insert(), {"key": UNNAMED, "value": str(last)})


def _with_others(connection: Connection) -> None:
    """Version 4: a forged batch or record may exist beside the true one, and new rows must follow the last ones.

    SQLite cannot drop a constraint from a table, so both tables are written again.
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


def _with_witnessed(connection: Connection) -> None:
    """Version 5: the ledger stores the checkpoints that witnesses have cosigned."""
    witnessed.create(connection)
    for statement in append_only(witnessed, connection.dialect.name):
        connection.exec_driver_sql(statement)


def _with_standing(connection: Connection) -> None:
    """Version 6: the ledger stores what follows from its evidence; the next receipt fills the table."""
    standing.create(connection)


def _with_archived(connection: Connection) -> None:
    """Version 7: the ledger says which epochs are in archives; bodies of PostgreSQL may be in parts. Rights follow."""
    from assay.ledger.store import rights  # it imports this module

    archived.create(connection)
    for statement in append_only(archived, connection.dialect.name):
        connection.exec_driver_sql(statement)
    if connection.dialect.name == "postgresql":
        for statement in parts.statements():
            connection.exec_driver_sql(statement)
        rights.renew(connection)


MIGRATIONS: Sequence[Callable[[Connection], None]] = (
    _with_attempts,
    _with_checked,
    _with_others,
    _with_witnessed,
    _with_standing,
    _with_archived,
)
"""MIGRATIONS[n − 1] brings a database of version n to n + 1; `tables` has the tables of the last version."""
LOCK_MS = 500
"""Milliseconds that a migration waits at once for those who read a table."""


def schema_version() -> int:
    """The version of the tables that this program makes and reads."""
    return 1 + len(MIGRATIONS)


def check_empty(connection: Connection, name: str, tables: Iterable[str] = tuple(SCHEMA.tables)) -> None:
    """Raise NotALedger for a database that has one of these tables."""
    here = set(inspect(connection).get_table_names()) & set(tables)
    if here:
        raise NotALedger(
            f"there is a table {min(here)!r} already", file=name, hint="use an empty database, or the ledger that is in it"
        )


def make_triggers(connection: Connection) -> None:
    """Make what a ledger's tables have beside their rows."""
    for statement in triggers(connection.dialect.name):
        connection.exec_driver_sql(statement)
    if connection.dialect.name == "postgresql":
        for statement in parts.statements():
            connection.exec_driver_sql(statement)
        make_turn(connection)


def make_tables(connection: Connection, whose: Meta, name: str) -> None:
    """Make all tables; raises NotALedger for a database that has one of them already."""
    check_empty(connection, name)
    SCHEMA.create_all(connection, checkfirst=False)
    make_triggers(connection)
    values = {"competition": whose.competition, "key": whose.key, "origin": whose.origin, "schema_version": str(schema_version())}
    values[UNNAMED] = "0"  # a user who may only insert cannot set it later
    connection.execute(meta.insert(), [{"key": key, "value": value} for key, value in values.items()])
    settle_in(connection)


def read_meta(connection: Connection, name: str) -> tuple[int, Meta]:
    """The version of a database, and whose ledger it is; raises NotALedger."""
    if not inspect(connection).has_table("meta"):
        raise NotALedger("is not a ledger", file=name, hint="`assay ledger init` makes one")
    values: dict[str, str] = {row.key: row.value for row in connection.execute(select(meta))}
    if not {"competition", "key", "origin", "schema_version"} <= values.keys() or not re.fullmatch(
        "[0-9]{1,9}", values["schema_version"]
    ):
        raise NotALedger("is not a ledger", file=name, hint="its table `meta` is somebody else's; use another database")
    return int(values["schema_version"]), Meta(values["competition"], values["origin"], values["key"])


def check_version(version: int, name: str) -> None:
    """Raise OtherVersion for a database of another version."""
    ours = schema_version()
    if version > ours:
        raise OtherVersion(
            f"was made by a newer Assay: its schema is version {version}, this one knows {ours}", file=name, hint="upgrade Assay"
        )
    if version < ours:
        raise OtherVersion(
            f"was made by an older Assay: its schema is version {version}, this one needs {ours}",
            file=name,
            hint="keep a copy, then `assay ledger migrate`",
        )


def check_usable(connection: Connection, name: str) -> None:
    """Raise OtherVersion for a database that was migrated since it was opened, and Elsewhere for one that does not live here."""
    noted = dict(rows_of(connection, "SELECT key, value FROM meta"))  # it has some ten rows
    if noted.get("schema_version") != str(schema_version()):
        check_version(read_meta(connection, name)[0], name)
    if connection.dialect.name != "sqlite" or noted.get(HOME) != _home_text(present_home(connection)):
        _check_home(connection, _home_of(noted.get(HOME)))


def migrate_tables(connection: Connection, name: str) -> tuple[int, int]:
    """Migrate a database to this program's version, within the transaction; returns the versions before and after.

    Raises DatabaseBusy if a table is read for longer than `LOCK_MS`. A reader that comes meanwhile waits behind us, so we do not
    wait long, and less than PostgreSQL's `deadlock_timeout`, which would end a reader's transaction instead of ours.
    """
    before, _ = read_meta(connection, name)
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_MS}ms'")
    for step in MIGRATIONS[before - 1 :]:
        step(connection)
    if before < schema_version():
        connection.execute(update(meta).where(meta.c.key == "schema_version").values(value=str(schema_version())))
        if not noted_home(connection):
            settle_in(connection)
        make_turn(connection)
    check_version(max(before, schema_version()), name)
    return before, schema_version()
