"""Open a database by its path or URL, and turn what goes wrong with it into errors, named by what to do about them.

SQLite runs in WAL mode and flushes every commit. PostgreSQL is reached through psycopg 3, with a bounded pool: the URL may say
how many connections it has (`?pool_size=8`).

AssayError
├── StoreError               the database failed, and nothing of the transaction was kept: exit code 1
│   ├── DatabaseBusy         another writer held it for too long
│   ├── Full                 no space left
│   ├── ReadOnly             it can be read and not written
│   ├── Archived             the records are in an archive, and it cannot be read
│   ├── Damaged              what it holds is not what was written: restore it; nothing is settled over it
│   └── DatabaseUnreachable  it cannot be opened, or the connection broke
└── BadInput
    ├── NotALedger           there is no database, or it is not a ledger
    ├── OtherVersion         a newer or an older Assay made it
    ├── Forbidden            the database does not let us in
    └── Elsewhere            it is a copy, or was restored: the ledger lives elsewhere
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Dialect, Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from assay.errors import AssayError, BadInput

KEPT = "nothing of this was stored"


class StoreError(AssayError):
    """The database failed; nothing of the transaction was kept: exit code 1."""


class DatabaseBusy(StoreError):
    """Another writer held the database for too long."""


class Full(StoreError):
    """The disk has no space left."""


class ReadOnly(StoreError):
    """The database can be read and not written."""


class Damaged(StoreError):
    """The database holds other content than was written."""


class Archived(StoreError):
    """The records are not in the database any more but in an archive, which cannot be read."""


class DatabaseUnreachable(StoreError):
    """The database cannot be opened, or the connection to it broke."""


class NotALedger(BadInput):
    """There is no database, or it is not a ledger."""


class OtherVersion(BadInput):
    """The database was made by a newer or an older Assay."""


class Forbidden(BadInput):
    """The database does not let us in."""


class Elsewhere(BadInput):
    """The database is a copy of a ledger that lives elsewhere, or was restored and not adopted: it may only be read."""


RESTORE = "restore it from a copy, then `assay ledger check`"
_AGAIN = "try again; what was acknowledged before is safe"
_SQLITE: tuple[tuple[str, type[AssayError], str, str], ...] = (
    ("SQLITE_BUSY", DatabaseBusy, f"another program kept it locked, {KEPT}", "try again when that program is done"),
    ("SQLITE_LOCKED", DatabaseBusy, f"another program kept it locked, {KEPT}", "try again when that program is done"),
    ("SQLITE_FULL", Full, f"the disk is full, {KEPT}", "free some space, then try again"),
    ("SQLITE_READONLY", ReadOnly, f"it cannot be written, {KEPT}", "check its permissions, those of its folder, and the mount"),
    ("SQLITE_CORRUPT", Damaged, "it is damaged", RESTORE),
    ("SQLITE_NOTADB", NotALedger, "is not a database", "is this the right file? If it was a ledger, restore it from a copy"),
    (
        "SQLITE_CANTOPEN",
        DatabaseUnreachable,
        "it cannot be opened",
        "check that it exists, its permissions and those of its folder",
    ),
    ("SQLITE_IOERR", DatabaseUnreachable, f"the disk failed, {KEPT}", "check the disk and its space, then try again"),
    ("SQLITE_PERM", Forbidden, "access is refused", "check its permissions"),
)
"""Beginning of SQLite's name for an error → our error, what is wrong, what to do."""
OTHERS_ROWS = (
    "this user of the database may write only its own validator's evidence and leases",
    "use the user that the operator made for this validator, or send the batches: `assay evidence sign`",
)
"""The error, and what to do, where the policy of a validator's user refuses a row: see `assay.ledger.store.rights`."""
_STATES: tuple[tuple[str, type[AssayError], str, str], ...] = (
    ("28", Forbidden, "the server does not accept this user and password", "correct the URL, or PGPASSWORD or ~/.pgpass"),
    ("3D000", NotALedger, "there is no such database", "make it with `createdb`"),
    ("42501 assay_only", Forbidden, *OTHERS_ROWS),
    (
        "42501",
        Forbidden,
        "the user may not do this",
        "the operator lets a user add evidence: `assay ledger grant`",
    ),
    ("53100", Full, f"the server's disk is full, {KEPT}", "free some space, then try again"),
    (
        "53300",
        DatabaseUnreachable,
        f"the server has no connection left, {KEPT}",
        "end idle programs, put a smaller ?pool_size= into the URL of each, or raise max_connections of the server",
    ),
    ("25P03", DatabaseUnreachable, f"we held the turn to write for too long without a word, {KEPT}", _AGAIN),
    ("25006", ReadOnly, f"the server is read-only (a standby?), {KEPT}", "use the URL of the primary"),
    ("55P03", DatabaseBusy, f"another program kept it locked, {KEPT}", "try again when that program is done"),
    ("XX001", Damaged, "it is damaged", RESTORE),
    ("XX002", Damaged, "it is damaged", RESTORE),
)
"""Beginning of PostgreSQL's SQLSTATE → our error, what is wrong, what to do."""
_PASSWORD = ("password authentication failed", "no password supplied", "pg_hba.conf", "Peer authentication failed")
"""Texts of the server for a refused login: without a connection there is no SQLSTATE."""
_NO_SLOT = ("too many clients already", "remaining connection slots", "too many connections for")
_NOT_YET = ("is starting up", "is shutting down", "in recovery mode", "not yet accepting connections")
"""Texts of a server that may let us in soon."""


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Raise the database's errors in the block as ours, with the name of the database (without a password)."""
    try:
        yield
    except (Elsewhere, StoreError) as error:
        error.at(file=name)
        raise
    except DBAPIError as error:
        raise _ours(error, name) from None
    except PoolTimeoutError:
        raise DatabaseBusy(f"too many at once, {KEPT}", file=name, hint="try again, or use fewer threads") from None


def _ours(error: DBAPIError, name: str) -> AssayError:
    original = error.orig
    message = " ".join(str(original).split())[:300]
    if isinstance(original, sqlite3.Error):
        code, table = getattr(original, "sqlite_errorname", None) or "", _SQLITE
    else:
        code, table = getattr(original, "sqlstate", None) or "", _STATES
        if not code:
            code = "28" if any(part in message for part in _PASSWORD) else "3D000" if message.endswith("does not exist") else ""
            code = "53300" if any(part in message for part in _NO_SLOT) else code
        if code == "42501" and "assay_only_" in message:  # the name of the policy, in any language
            code = "42501 assay_only"
    if code.startswith("SQLITE_CANTOPEN") and Path(name).is_file() and not os.access(Path(name).parent, os.W_OK):
        code = "SQLITE_READONLY"  # even a reader writes files beside it
    for begin, kind, what, hint in table:
        if code.startswith(begin):
            return kind(f"{what} ({message})", file=name, hint=hint)
    if error.connection_invalidated or (table is _STATES and code[:2] in ("", "08", "57")):
        return DatabaseUnreachable(f"the server does not answer, or ended the connection ({message})", file=name, hint=_AGAIN)
    return StoreError(
        f"the database refused it, {KEPT} ({message})", file=name, hint="look for the cause with `assay ledger check`"
    )


WAIT = 60.0
"""Seconds that a writer waits for another one."""
CACHE_KIB = 65_536
"""KiB of an SQLite database that one connection keeps in memory."""
CONNECT_SECONDS = 30
_SILENT = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 30_000}
"""The keepalives that give up a server whose host or network went away silently: in a minute; the kernel takes two hours."""
RETRY_SECONDS = 20.0
"""The seconds for which a connection is asked for again, if the server has none left, or is starting or stopping."""
POOL, KEPT_OPEN = 15, 5
"""Connections of one pool to PostgreSQL, unless the URL has `pool_size`; those of them that stay open."""
LEAST_POOL = 4
"""The least `pool_size`: settling holds its turn while it reads two snapshots, and asks who holds a turn that it waits for."""
TURN_IDLE = "10min"
"""PostgreSQL gives the turn to write to the next one if its holder says nothing for so long: its machine may hang."""
POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
SECRET = ("password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret")
"""Query parameters of a URL that no message may show."""
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cell_size_check = ON",
)
LOCK = 0x6173736179
"""The advisory lock that writers hold in a PostgreSQL without the table `assay_turn`: see `assay.ledger.store.schema`."""


def shown(place: str | Path) -> str:
    """The path or URL as an error may show it: without a password."""
    text = str(place)
    if "://" not in text:
        return text
    url = _url(text).difference_update_query(SECRET)
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def make_engine(place: str | Path, *, create: bool = False, wait: float = WAIT, cache: int = CACHE_KIB) -> Engine:
    """The engine for a path or URL. A transaction with the option `writing` excludes other writers; others read one snapshot.

    cache: KiB of an SQLite database that each connection keeps in memory.

    Nothing is opened yet. Raises BadInput for a wrong URL, and if psycopg is missing.
    """
    text = str(place)
    url = _url(text) if "://" in text else URL.create("sqlite", database=text)
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            raise BadInput("names no file", file=text, hint="write the path of the database")
        return _sqlite(Path(url.database), create=create, wait=wait, cache=cache)
    return _postgresql(url, wait=wait)


def _url(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise BadInput("is not a URL of a database", hint="write postgresql://USER@HOST/DATABASE, or a path") from None
    if url.drivername in POSTGRESQL:
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite":
        return url
    raise BadInput(
        f"a ledger cannot be in a database of {url.drivername!r}", hint="use a path (SQLite) or postgresql://USER@HOST/DATABASE"
    )


def _sqlite(path: Path, *, create: bool, wait: float, cache: int) -> Engine:
    address = f"file:{quote(str(path.absolute()))}?mode={'rwc' if create else 'rw'}"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=wait, check_same_thread=False)
        try:
            for pragma in (*_PRAGMAS, f"PRAGMA cache_size = -{cache}"):
                connection.execute(pragma)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    pool = {"pool_size": KEPT_OPEN, "max_overflow": POOL + 1 - KEPT_OPEN}  # one is the writer's
    engine = create_engine(URL.create("sqlite", database=str(path)), creator=connect, **pool)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if not _writing(connection) and connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN")

    @event.listens_for(engine, "engine_disposed")
    def _disposed(engine: Engine) -> None:
        kept: list[Connection] = engine.get_execution_options()[_WRITER]
        while kept:
            with kept.pop() as connection:
                connection.invalidate()

    engine.update_execution_options(**{_WRITER: []})
    return engine


_WRITER = "assay_writer"
"""The option of an engine of SQLite that keeps a connection for the next writer, in a list of at most one.

To take one from SQLAlchemy's pool, and to give it back, costs as much as the statements of a small transaction.
"""


@contextmanager
def began(engine: Engine, *, writing: bool, isolation: str) -> Iterator[Connection]:
    """A connection with a transaction, which is committed at the end. isolation: PostgreSQL's, for one that does not write."""
    if engine.dialect.name == "sqlite" and writing:
        with _sqlite_writer(engine) as connection:
            yield connection
        return
    options: dict[str, Any] = {"writing": writing}
    if engine.dialect.name == "postgresql":
        options["isolation_level"] = "READ COMMITTED" if writing else isolation
    with engine.connect().execution_options(**options) as connection, connection.begin(), closing_cursors(connection):
        yield connection


@contextmanager
def _sqlite_writer(engine: Engine) -> Iterator[Connection]:
    """A connection that writes to SQLite: in a transaction of the driver, which SQLAlchemy joins when it is asked for more."""
    kept: list[Connection] = engine.get_execution_options()[_WRITER]
    try:
        connection = kept.pop()
    except IndexError:  # another thread has it, or there was none yet
        connection = engine.connect().execution_options(writing=True)
    try:
        rows_of(connection, "BEGIN IMMEDIATE")
        yield connection
        if connection.in_transaction():
            connection.commit()
        else:
            rows_of(connection, "COMMIT")
    except BaseException:
        connection.invalidate()  # so nothing of it is left, whatever failed
        connection.close()
        raise
    if kept:
        connection.close()
    else:
        kept.append(connection)


def rows_of(connection: Connection, statement: str, values: Sequence[object] = ()) -> list[Any]:
    """The rows of a query in the driver's SQL. For SQLite it goes past SQLAlchemy, which takes more time than SQLite.

    There it may be any statement; one that is no query has no rows.
    """
    if connection.dialect.name == "postgresql":
        return [*connection.exec_driver_sql(statement, tuple(values))]
    database: Any = connection.connection.driver_connection
    try:
        return list(database.execute(statement, values))
    except sqlite3.Error as error:
        raise DBAPIError(statement, values, error) from error


def _postgresql(url: URL, *, wait: float) -> Engine:
    size, url = _pool_size(url)
    options: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, "application_name": "assay", **_SILENT}
    kept_open = min(size, KEPT_OPEN)
    try:
        engine = create_engine(
            url,
            pool_pre_ping=True,
            pool_size=kept_open,
            max_overflow=size - kept_open,
            connect_args={name: value for name, value in options.items() if name not in url.query},
        )
    except ModuleNotFoundError:
        raise BadInput(
            "PostgreSQL needs the package psycopg", hint="install Assay with it: pip install 'assay[postgres]'"
        ) from None

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Dialect, _record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        until, pause = time.monotonic() + min(wait, RETRY_SECONDS), 0.05
        while True:
            try:
                return dialect.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError as error:
                if not any(part in str(error) for part in (*_NO_SLOT, *_NOT_YET)) or time.monotonic() + pause > until:
                    raise
            time.sleep(pause * random.uniform(0.5, 1))  # several that wait do not ask at the same moment
            pause = min(2 * pause, 1.0)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if _writing(connection):
            turn = connection.exec_driver_sql(_TURN, (f"{int(wait * 1000)}ms", TURN_IDLE)).scalar()
            if turn:
                connection.exec_driver_sql("LOCK TABLE assay_turn IN EXCLUSIVE MODE")
            else:
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (LOCK,))

    @event.listens_for(engine, "after_cursor_execute")
    def _opened(connection: Connection, cursor: Any, *_: object) -> None:
        if getattr(cursor, "name", None):
            connection.info.setdefault(_CURSORS, []).append(cursor)

    @event.listens_for(engine, "handle_error")
    def _failed(context: ExceptionContext) -> None:
        if context.is_disconnect and context.execution_context is not None:
            context.execution_context.cursor.close()  # SQLAlchemy leaves it to the garbage collector

    return engine


_TURN = (
    "SELECT to_regclass('assay_turn') IS NOT NULL, set_config('lock_timeout', %s, true),"
    " set_config('synchronous_commit', CASE current_setting('synchronous_commit')"
    " WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true),"
    " set_config('idle_in_transaction_session_timeout', CASE current_setting('idle_in_transaction_session_timeout')"
    " WHEN '0' THEN %s ELSE current_setting('idle_in_transaction_session_timeout') END, true),"
    " set_config('tcp_keepalives_idle', '30', true), set_config('tcp_keepalives_interval', '10', true),"
    " set_config('tcp_keepalives_count', '3', true)"
)
"""The settings of a writer's transaction. The keepalives are the server's: whose machine is gone loses the turn in a minute."""


_CURSORS = "assay_cursors"
"""The key under which a connection keeps the cursors that it opened on the server."""


@contextmanager
def closing_cursors(connection: Connection) -> Iterator[None]:
    """Close at the end the server's cursors that the block left open: their readers stopped early, or failed."""
    try:
        yield
    finally:
        if not connection.invalidated:
            for cursor in connection.info.pop(_CURSORS, ()):
                with suppress(connection.dialect.loaded_dbapi.Error):
                    cursor.close()


def _pool_size(url: URL) -> tuple[int, URL]:
    """The connections that a pool may open, and the URL without that parameter; raises BadInput."""
    wanted = url.query.get("pool_size")
    if wanted is None:
        return POOL, url
    if not isinstance(wanted, str) or not wanted.isascii() or not wanted.isdigit() or not LEAST_POOL <= int(wanted[:9]) <= 1000:
        raise BadInput(
            f"pool_size is not a number from {LEAST_POOL} to 1000", hint="write postgresql://USER@HOST/DATABASE?pool_size=8"
        )
    return int(wanted), url.difference_update_query(["pool_size"])


def _writing(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("writing"))
