"""Where a ledger lives: in which file, or in which database of which server. A copy of it lives elsewhere, and is only read.

`meta` says it under the key `home`, since the ledger was made:

    {"file":"/srv/c/ledger.db","inode":"1234"}                    SQLite
    {"database":"ledger","number":"16384","server":"7391…","timeline":"00000001"}  PostgreSQL

- The copy of a file has another path or another inode number; a dump that was read in again is another database, or of another
  server; a server that was restored, or a standby that took over, is on another timeline.
- A ledger that `restore` put back has no home: {"restored":"2026-11-22T17:00:00Z"}; `former_home` says where it lived before.
- A ledger of before this was written down has none either, and is at home wherever it is.

What is not at home takes nothing in and signs nothing, until it is told that it is the ledger now, and the only one.

Who may do what in a shared PostgreSQL: the owner all, a validator's user read all and add evidence, others nothing.

Writers take turns by locking the table `assay_turn`, which has no columns and no rows. PostgreSQL lets only those lock it who
have the right to change it, so that whoever may not write cannot hold up those who may. An advisory lock any role may take; a
database that does not have the table yet is written under one, until `grant` or a migration makes it.

A user who may add evidence can keep its turn for as long as its transaction lasts. `grant` bounds that by time limits for the
user in this database, which end what hangs. A session can set them otherwise for itself, so what holds against a user who wants
to stop the others is `revoke`: it waits for no turn, and then the user's sessions are ended.

The version of the tables: made, checked on opening, and brought forward. A database of another version is refused by name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, bindparam, delete, func, inspect, select, text, update
from sqlalchemy.exc import DBAPIError

from assay.errors import BadInput, brief
from assay.ledger.store.engine import RESTORE, Damaged, Elsewhere, NotALedger, OtherVersion
from assay.ledger.store.tables import SCHEMA, Meta, append_only, attempts, batches, checked, fitting, meta, records, triggers

Home = dict[str, str]
HOME = "home"
FORMER_HOME = "former_home"
"""In `meta` of a ledger that was restored and not adopted yet: where it lived before."""
_HINT = "work where the ledger lives; or, if this is the only one now: assay ledger adopt"
_SERVER = (
    "SELECT current_database(), (SELECT oid::text FROM pg_database WHERE datname = current_database()),"
    " (SELECT system_identifier::text FROM pg_control_system()), CASE WHEN pg_is_in_recovery()"
    " THEN (SELECT lpad(upper(to_hex(timeline_id)), 8, '0') FROM pg_control_checkpoint())"
    " ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"
)
_SHAPES = ({"file", "inode"}, {"database", "number", "server", "timeline"}, {"restored"})


def present_home(connection: Connection) -> Home:
    """Where this database is; raises OSError if its file is gone."""
    if connection.dialect.name == "sqlite":
        path = os.path.realpath(str(connection.engine.url.database))
        return {"file": path, "inode": str(os.stat(path).st_ino)}
    found = connection.exec_driver_sql(_SERVER).one()
    return dict(zip(("database", "number", "server", "timeline"), map(str, found), strict=True))


def noted_home(connection: Connection, key: str = HOME) -> Home:
    """What the database says of where it lives, or of where it lived; empty if it says nothing. Raises Damaged."""
    said = connection.scalar(select(meta.c.value).where(meta.c.key == key))
    if said is None:
        return {}
    try:
        home: Home = json.loads(said)
    except ValueError:
        home = {}
    if not isinstance(home, dict) or set(home) not in _SHAPES:
        raise Damaged("its table `meta` does not say where the ledger lives", hint=RESTORE)
    return home


def check_home(connection: Connection) -> None:
    """Refuse a database that does not live here; raises Elsewhere."""
    home = noted_home(connection)
    if "restored" in home:
        what = f"was restored on {home['restored']}, and takes in and signs nothing until the ledger before it is stopped"
        raise Elsewhere(what, hint="stop that one, then: assay ledger adopt")
    if home and _without_name(home) != _without_name(present_home(connection)):
        raise Elsewhere(f"is a copy of the ledger {_home_words(home, present_home(connection))}, so it is only read", hint=_HINT)


def settle_in(connection: Connection) -> None:
    """Write down that the database lives here."""
    _write_home(connection, present_home(connection))
    connection.execute(delete(meta).where(meta.c.key == FORMER_HOME))


def forget_home(connection: Connection, when: str) -> None:
    """Write down that the database was restored at a time (RFC 3339), and lives nowhere yet; and where it lived before."""
    home = former_home(connection)
    _write_home(connection, {"restored": when})
    if home:
        _write_home(connection, home, FORMER_HOME)


def former_home(connection: Connection) -> Home:
    """Where the ledger lived before this copy of it, or before it was restored; empty if that is not known. Raises Damaged."""
    home = noted_home(connection)
    return noted_home(connection, FORMER_HOME) if "restored" in home else home


def check_file_unused(connection: Connection, home: Home) -> None:
    """Refuse a former home that is a file of this machine which is still there, or open in a program; raises BadInput."""
    file = Path(home["file"])
    if present_home(connection).get("inode") == home["inode"]:
        return  # the file itself was moved
    if file.exists() and str(file.stat().st_ino) == home["inode"]:
        raise BadInput(f"the ledger still is in {file}, and this is a copy of it", hint="move that file away first")
    process = _process_with(file, int(home["inode"]))
    if process is not None:
        what = f"the ledger that was in {file} is still open in process {process}"
        raise BadInput(what, hint="stop that program first: it would go on with the old ledger")


def _process_with(file: Path, inode: int) -> str | None:
    """A process of this machine that has the file open, moved or removed though it is; as far as we may see that."""
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
                    # The number of a file that was removed may be given to another; a database begins with these words.
                    if (status.st_dev, status.st_ino) == (device, inode) and opened.read_bytes()[:15] == b"SQLite format 3":
                        return process
    return None


def former_database(connection: Connection, home: Home) -> str | None:
    """The name of the database of this server that is a former home, if it is on this server, still there and another one."""
    if connection.dialect.name != "postgresql" or home["server"] != present_home(connection)["server"]:
        return None
    name = connection.exec_driver_sql("SELECT datname FROM pg_database WHERE oid::text = %s", (home["number"],)).scalar()
    return None if name == present_home(connection)["database"] else name


def _write_home(connection: Connection, home: Home, key: str = HOME) -> None:
    connection.execute(delete(meta).where(meta.c.key == key))
    connection.execute(meta.insert(), {"key": key, "value": json.dumps(home, sort_keys=True, separators=(",", ":"))})


def _without_name(home: Home) -> Home:
    """A home without the name of the database, which may be changed."""
    return {name: value for name, value in home.items() if name != "database"}


def _home_words(home: Home, now: Home) -> str:
    if "file" in home:
        same = home["file"] == now.get("file")
        return f"that was in this file, number {home['inode']}, before" if same else f"in {home['file']}"
    if home["server"] == now.get("server") and home["number"] == now.get("number"):
        return f"that was on timeline {home['timeline']} of this server, which was restored or took over since"
    return f"in the database {home['database']!r} of {'this' if home['server'] == now.get('server') else 'another'} server"


TURN = "assay_turn"
EVIDENCE = (batches, records)
"""Where a validator's evidence is put: what its user may insert into."""
LIMITS = {"idle_in_transaction_session_timeout": "2min", "statement_timeout": "10min"}
"""PostgreSQL's settings for a validator's user: for how long a transaction may do nothing, and a statement may take."""
_REFUSED = "42501"
"""PostgreSQL's SQLSTATE for what a user may not do."""
_ROLE = text(
    "SELECT r.rolsuper, pg_has_role(r.rolname, c.relowner, 'MEMBER') FROM pg_roles r, pg_class c"
    " WHERE r.rolname = :role AND c.oid = to_regclass('batches')"
).bindparams(bindparam("role"))
_OWNER = text("SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = to_regclass('batches')")


def make_turn(connection: Connection) -> None:
    """The table by which writers take turns, if it is not there."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {TURN} ()")


def grant(connection: Connection, role: str) -> bool:
    """Let a user of the server read the ledger and add evidence, and nothing else; raises BadInput.

    Returns whether its time limits were set: that takes a superuser, or an owner with CREATEROLE.
    """
    name = _checked_role(connection, role)
    _run(connection, _revoking(connection, name))
    make_turn(connection)
    database, schema = (_quoted(connection, one) for one in _database_names(connection))
    _run(
        connection,
        (
            f"GRANT CONNECT ON DATABASE {database} TO {name}",
            f"GRANT USAGE ON SCHEMA {schema} TO {name}",
            f"GRANT SELECT ON {_listed(SCHEMA.tables)} TO {name}",
            f"GRANT INSERT ON {_listed(table.name for table in EVIDENCE)} TO {name}",
            f"GRANT UPDATE ON {TURN} TO {name}",
        ),
    )
    return _permitted(connection, _limits(connection, name, [f"SET {setting} = '{value}'" for setting, value in LIMITS.items()]))


def revoke(connection: Connection, role: str) -> None:
    """Take every right in the ledger from a user of the server; raises BadInput. Its sessions go on: see `end_sessions`."""
    name = _checked_role(connection, role)
    _run(connection, _revoking(connection, name))
    _permitted(connection, _limits(connection, name, [f"RESET {setting}" for setting in LIMITS]))


def end_sessions(connection: Connection, role: str) -> tuple[int, int]:
    """End a user's sessions in this database: how many were ended, and how many there are that we may not end."""
    query = text("SELECT pid FROM pg_stat_activity WHERE usename = :role AND datname = current_database()")
    sessions = connection.scalars(query, {"role": role}).all()
    ended = sum(_permitted(connection, [f"SELECT pg_terminate_backend({pid}, 5000)"]) for pid in sessions)
    return ended, len(sessions) - ended


def turn_holder(connection: Connection) -> str | None:
    """The user who has the turn among the writers, with the process of its session; None if nobody has it."""
    query = (
        "SELECT a.usename, a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        f" WHERE l.relation = to_regclass('{TURN}') AND l.granted AND l.database ="
        " (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 1"
    )
    found = connection.exec_driver_sql(query).first()
    return None if found is None else f"{found.usename} (process {found.pid} of the server)"


def _limits(connection: Connection, name: str, settings: Iterable[str]) -> list[str]:
    """The statements about a user's settings in this database."""
    database = _quoted(connection, _database_names(connection)[0])
    return [f"ALTER ROLE {name} IN DATABASE {database} {setting}" for setting in settings]


def _permitted(connection: Connection, statements: Iterable[str]) -> bool:
    """Carry out statements, all or none; False if we may not."""
    try:
        with connection.begin_nested():
            _run(connection, statements)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _REFUSED:
            return False
        raise
    return True


def _checked_role(connection: Connection, role: str) -> str:
    """A user as statements name it, who is there and whom rights bind; raises BadInput."""
    if connection.dialect.name != "postgresql":
        what = "the ledger is a file, which has no users"
        raise BadInput(what, hint="whoever may write the file may do everything; others send batches: assay evidence sign")
    if not connection.scalar(_OWNER):
        raise BadInput(
            "the tables are somebody else's", hint="grant as their owner: the user that `database` names in ledger.toml"
        )
    found = connection.execute(_ROLE, {"role": role}).first()
    if found is None:
        raise BadInput(f"there is no user {brief(role)} on the server", hint="make one: createuser --pwprompt NAME")
    if any(found):
        what = f"the user {brief(role)} is {'a superuser' if found[0] else 'the owner, or may act as it'}, whom no right binds"
        raise BadInput(what, hint="make a user for each validator: createuser --pwprompt NAME")
    return _quoted(connection, role)


def _revoking(connection: Connection, name: str) -> Iterable[str]:
    """The statements that take all rights from a user, and from everybody who has none by name."""
    _, schema = (_quoted(connection, one) for one in _database_names(connection))
    there = connection.exec_driver_sql(f"SELECT to_regclass('{TURN}') IS NOT NULL").scalar()
    tables = _listed([*SCHEMA.tables, *([TURN] if there else [])])
    yield f"REVOKE ALL ON {tables} FROM PUBLIC, {name}"
    yield f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC, {name}"


def _database_names(connection: Connection) -> tuple[str, str]:
    database, schema = connection.exec_driver_sql("SELECT current_database(), current_schema()").one()
    return str(database), str(schema)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _quoted(connection: Connection, name: str) -> str:
    return str(connection.dialect.identifier_preparer.quote_identifier(name))


def _run(connection: Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.exec_driver_sql(statement)


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


def schema_version() -> int:
    """The version that this program makes and reads."""
    return 1 + len(MIGRATIONS)


def check_empty(connection: Connection, name: str) -> None:
    """Refuse a database that has one of our tables; raises NotALedger."""
    here = set(inspect(connection).get_table_names()) & set(SCHEMA.tables)
    if here:
        raise NotALedger(
            f"there is a table {min(here)!r} already", file=name, hint="use an empty database, or the ledger that is in it"
        )


def make_tables(connection: Connection, whose: Meta, name: str) -> None:
    """All tables, in a database that has none of them; raises NotALedger if it has."""
    check_empty(connection, name)
    SCHEMA.create_all(connection, checkfirst=False)
    for statement in triggers(connection.dialect.name):
        connection.exec_driver_sql(statement)
    values = {"competition": whose.competition, "key": whose.key, "origin": whose.origin, "schema_version": str(schema_version())}
    values[UNNAMED] = "0"  # so that nobody who may only insert can put it there
    connection.execute(meta.insert(), [{"key": key, "value": value} for key, value in values.items()])
    settle_in(connection)
    make_turn(connection)


def read_meta(connection: Connection, name: str) -> tuple[int, Meta]:
    """The version of a database, and whose it is; raises NotALedger."""
    if not inspect(connection).has_table("meta"):
        raise NotALedger("is not a ledger", file=name, hint="`assay ledger init` makes one")
    found: dict[str, str] = {row.key: row.value for row in connection.execute(select(meta))}
    if not {"competition", "key", "origin", "schema_version"} <= found.keys() or not re.fullmatch(
        "[0-9]{1,9}", found["schema_version"]
    ):
        raise NotALedger("is not a ledger", file=name, hint="its table `meta` is somebody else's; use another database")
    return int(found["schema_version"]), Meta(found["competition"], found["origin"], found["key"])


def check_version(found: int, name: str) -> None:
    """Refuse a database of another version; raises OtherVersion."""
    ours = schema_version()
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


def migrate_tables(connection: Connection, name: str) -> tuple[int, int]:
    """Bring a database forward to this program's version, within the transaction; the versions before and after."""
    before, _ = read_meta(connection, name)
    for step in MIGRATIONS[before - 1 :]:
        step(connection)
    if before < schema_version():
        connection.execute(update(meta).where(meta.c.key == "schema_version").values(value=str(schema_version())))
        if not noted_home(connection):
            settle_in(connection)
        make_turn(connection)
    check_version(max(before, schema_version()), name)
    return before, schema_version()
