"""Where a ledger lives: in which file, or in which database of which server. A copy of it lives elsewhere, and is only read.

`meta` says it under the key `home`, since the ledger was made:

    {"file":"/srv/c/ledger.db","inode":"1234"}                    SQLite
    {"database":"ledger","number":"16384","server":"7391…","timeline":"00000001"}  PostgreSQL

- The copy of a file has another path or another inode number; a dump that was read in again is another database, or of another
  server; a server that was restored, or a standby that took over, is on another timeline.
- A ledger that `restore` put back has no home: {"restored":"2026-11-22T17:00:00Z"}.
- A ledger of before this was written down has none either, and is at home wherever it is.

What is not at home takes nothing in and signs nothing, until it is told that it is the ledger now, and the only one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from sqlalchemy import Connection, delete, select

from assay.ledger.store.errors import RESTORE, Damaged, Elsewhere
from assay.ledger.store.tables import meta

__all__ = ["check", "forget", "here", "settle_in", "still_there"]

Home = dict[str, str]
KEY = "home"
_HINT = "work where the ledger lives; or, if this is the only one now: assay ledger adopt"
_SERVER = (
    "SELECT current_database(), (SELECT oid::text FROM pg_database WHERE datname = current_database()),"
    " (SELECT system_identifier::text FROM pg_control_system()), CASE WHEN pg_is_in_recovery()"
    " THEN (SELECT lpad(upper(to_hex(timeline_id)), 8, '0') FROM pg_control_checkpoint())"
    " ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"
)
_SHAPES = ({"file", "inode"}, {"database", "number", "server", "timeline"}, {"restored"})


def here(connection: Connection) -> Home:
    """Where this database is; raises OSError if its file is gone."""
    if connection.dialect.name == "sqlite":
        path = os.path.realpath(str(connection.engine.url.database))
        return {"file": path, "inode": str(os.stat(path).st_ino)}
    found = connection.exec_driver_sql(_SERVER).one()
    return dict(zip(("database", "number", "server", "timeline"), map(str, found), strict=True))


def noted(connection: Connection) -> Home:
    """What the database says of where it lives; empty if it says nothing. Raises Damaged."""
    said = connection.scalar(select(meta.c.value).where(meta.c.key == KEY))
    if said is None:
        return {}
    try:
        home: Home = json.loads(said)
    except ValueError:
        home = {}
    if not isinstance(home, dict) or set(home) not in _SHAPES:
        raise Damaged("its table `meta` does not say where the ledger lives", hint=RESTORE)
    return home


def check(connection: Connection) -> None:
    """Refuse a database that does not live here; raises Elsewhere."""
    home = noted(connection)
    if "restored" in home:
        what = f"was restored on {home['restored']}, and takes in and signs nothing until the ledger before it is stopped"
        raise Elsewhere(what, hint="stop that one, then: assay ledger adopt")
    if home and _place(home) != _place(here(connection)):
        raise Elsewhere(f"is a copy of the ledger {_told(home, here(connection))}, so it is only read", hint=_HINT)


def settle_in(connection: Connection) -> None:
    """Write down that the database lives here."""
    _write(connection, here(connection))


def forget(connection: Connection, when: str) -> None:
    """Write down that the database was restored at a time (RFC 3339), and lives nowhere yet."""
    _write(connection, {"restored": when})


def still_there(connection: Connection) -> str | None:
    """The file in which the ledger lived, if it is still there beside this copy."""
    home = noted(connection)
    if "file" not in home or home == here(connection):
        return None
    file = Path(home["file"])
    return str(file) if file.exists() and str(file.stat().st_ino) == home["inode"] else None


def _write(connection: Connection, home: Home) -> None:
    connection.execute(delete(meta).where(meta.c.key == KEY))
    connection.execute(meta.insert(), {"key": KEY, "value": json.dumps(home, sort_keys=True, separators=(",", ":"))})


def _place(home: Home) -> Home:
    """A home without the name of the database, which may be changed."""
    return {name: value for name, value in home.items() if name != "database"}


def _told(home: Home, now: Home) -> str:
    if "file" in home:
        same = home["file"] == now.get("file")
        return f"that was in this file, number {home['inode']}, before" if same else f"in {home['file']}"
    if home["server"] == now.get("server") and home["number"] == now.get("number"):
        return f"that was on timeline {home['timeline']} of this server, which was restored or took over since"
    return f"in the database {home['database']!r} of {'this' if home['server'] == now.get('server') else 'another'} server"
