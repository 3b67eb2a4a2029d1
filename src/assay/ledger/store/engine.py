"""Opening a database by its path or URL: SQLite in WAL mode with every commit flushed, or PostgreSQL through psycopg 3."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from assay.errors import BadInput

__all__ = ["WAIT", "engine", "shown"]

WAIT = 60.0
"""Seconds that a writer waits for another one."""
CACHE_KIB = 65_536
"""What one connection keeps of an SQLite database in memory."""
CONNECT_SECONDS = 30
POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
SECRET = ("password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret")
"""Parts of a URL's query that no message may show."""
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cell_size_check = ON",
    f"PRAGMA cache_size = -{CACHE_KIB}",
)
LOCK = 0x6173736179
"""The advisory lock that writers hold in a PostgreSQL without the table `assay_turn`: see `assay.ledger.store.rights`."""


def shown(place: str | Path) -> str:
    """The path or URL as an error may name it: as one writes it, and without a password."""
    text = str(place)
    if "://" not in text:
        return text
    url = _url(text).difference_update_query(SECRET)
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def engine(place: str | Path, *, create: bool = False, wait: float = WAIT) -> Engine:
    """The engine for a path or URL. With option `writing` a transaction excludes other writers; else it reads one snapshot.

    Nothing is opened yet. Raises BadInput for a URL that is none, and where psycopg is missing.
    """
    text = str(place)
    url = _url(text) if "://" in text else URL.create("sqlite", database=text)
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            raise BadInput("names no file", file=text, hint="write the path of the database")
        return _sqlite(Path(url.database), create=create, wait=wait)
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
        f"{url.drivername!r} is no database for a ledger", hint="use a path (SQLite) or postgresql://USER@HOST/DATABASE"
    )


def _sqlite(path: Path, *, create: bool, wait: float) -> Engine:
    address = f"file:{quote(str(path.absolute()))}?mode={'rwc' if create else 'rw'}"

    def connect() -> sqlite3.Connection:
        one = sqlite3.connect(address, uri=True, isolation_level=None, timeout=wait, check_same_thread=False)
        try:
            for pragma in _PRAGMAS:
                one.execute(pragma)
        except sqlite3.Error:
            one.close()
            raise
        return one

    made = create_engine(URL.create("sqlite", database=str(path)), creator=connect)

    @event.listens_for(made, "begin")
    def _begin(connection: Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE" if _writing(connection) else "BEGIN")

    return made


def _postgresql(url: URL, *, wait: float) -> Engine:
    options: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, "application_name": "assay"}
    try:
        made = create_engine(
            url, pool_pre_ping=True, connect_args={name: value for name, value in options.items() if name not in url.query}
        )
    except ModuleNotFoundError:
        raise BadInput(
            "PostgreSQL needs the package psycopg", hint="install Assay with it: pip install 'assay[postgres]'"
        ) from None

    @event.listens_for(made, "begin")
    def _begin(connection: Connection) -> None:
        if _writing(connection):
            turn = connection.exec_driver_sql(
                "SELECT to_regclass('assay_turn') IS NOT NULL, set_config('lock_timeout', %s, true),"
                " set_config('synchronous_commit', CASE current_setting('synchronous_commit')"
                " WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)",
                (f"{int(wait * 1000)}ms",),
            ).scalar()
            if turn:
                connection.exec_driver_sql("LOCK TABLE assay_turn IN EXCLUSIVE MODE")
            else:
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (LOCK,))

    return made


def _writing(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("writing"))
