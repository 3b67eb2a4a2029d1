"""What can go wrong with a database, by what one does about it.

AssayError
├── StoreError         the database failed, and nothing of the transaction was kept: exit code 1
│   ├── Busy           another writer held it for too long
│   ├── Full           no space left
│   ├── ReadOnly       it can be read and not written
│   ├── Damaged        what it holds is not what was written: restore it; nothing is settled over it
│   └── Unreachable    it cannot be opened, or the connection broke
└── BadInput
    ├── NotALedger     there is no database, or it is none of ours
    ├── OtherVersion   it was made by a newer or an older Assay
    ├── Forbidden      the database does not let us in
    └── Elsewhere      it is a copy, or was restored: the ledger lives elsewhere
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from assay.errors import AssayError, BadInput

__all__ = [
    "RESTORE",
    "Busy",
    "Damaged",
    "Elsewhere",
    "Forbidden",
    "Full",
    "NotALedger",
    "OtherVersion",
    "ReadOnly",
    "StoreError",
    "Unreachable",
    "translated",
]

KEPT = "nothing of this was kept"


class StoreError(AssayError):
    """The database failed; nothing of the transaction was kept: exit code 1."""


class Busy(StoreError):
    """Another writer held the database for too long."""


class Full(StoreError):
    """The disk has no space left."""


class ReadOnly(StoreError):
    """The database can be read and not written."""


class Damaged(StoreError):
    """What the database holds is not what was written."""


class Unreachable(StoreError):
    """The database cannot be opened, or the connection to it broke."""


class NotALedger(BadInput):
    """There is no database, or it is none of ours."""


class OtherVersion(BadInput):
    """The database was made by a newer or an older Assay."""


class Forbidden(BadInput):
    """The database does not let us in."""


class Elsewhere(BadInput):
    """The database is a copy of a ledger that lives elsewhere, or was restored and not adopted: it is only read."""


RESTORE = "restore it from a copy, then `assay ledger check`"
_AGAIN = "try again; what was acknowledged before is kept"
_SQLITE: tuple[tuple[str, type[AssayError], str, str], ...] = (
    ("SQLITE_BUSY", Busy, f"another program kept it locked, {KEPT}", "try again when that program is done"),
    ("SQLITE_LOCKED", Busy, f"another program kept it locked, {KEPT}", "try again when that program is done"),
    ("SQLITE_FULL", Full, f"the disk is full, {KEPT}", "make room, then do it again"),
    ("SQLITE_READONLY", ReadOnly, f"it cannot be written, {KEPT}", "check its permissions, those of its folder, and the mount"),
    ("SQLITE_CORRUPT", Damaged, "it is damaged", RESTORE),
    ("SQLITE_NOTADB", NotALedger, "is not a database", "is this the right file? If it was a ledger, restore it from a copy"),
    ("SQLITE_CANTOPEN", Unreachable, "it cannot be opened", "check that it exists, its permissions and those of its folder"),
    ("SQLITE_IOERR", Unreachable, f"the disk failed, {KEPT}", "check the disk and its space, then do it again"),
    ("SQLITE_PERM", Forbidden, "access is refused", "check its permissions"),
)
"""Beginning of SQLite's name for an error → ours, what is wrong, what to do."""
_STATES: tuple[tuple[str, type[AssayError], str, str], ...] = (
    ("28", Forbidden, "the server does not accept this user and password", "correct the URL, or PGPASSWORD or ~/.pgpass"),
    ("3D000", NotALedger, "there is no such database", "make it with `createdb`"),
    (
        "42501",
        Forbidden,
        "the user may not do this",
        "the operator lets a user add evidence: `assay ledger grant`",
    ),
    ("53100", Full, f"the server's disk is full, {KEPT}", "make room, then do it again"),
    ("25006", ReadOnly, f"the server is read-only (a standby?), {KEPT}", "use the URL of the primary"),
    ("55P03", Busy, f"another program kept it locked, {KEPT}", "try again when that program is done"),
    ("XX001", Damaged, "it is damaged", RESTORE),
    ("XX002", Damaged, "it is damaged", RESTORE),
)
"""Beginning of PostgreSQL's SQLSTATE → ours, what is wrong, what to do."""
_PASSWORD = ("password authentication failed", "no password supplied", "pg_hba.conf", "Peer authentication failed")
"""What the server says of who may not come in: before there is a connection, there is no SQLSTATE either."""


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Whatever the database raises in the block, as an error of ours that names the database. `name`: without a password."""
    try:
        yield
    except (Elsewhere, StoreError) as error:
        error.at(file=name)
        raise
    except DBAPIError as error:
        raise _ours(error, name) from None
    except PoolTimeoutError:
        raise Busy(f"too many at once, {KEPT}", file=name, hint="try again, or use fewer threads") from None


def _ours(error: DBAPIError, name: str) -> AssayError:
    original = error.orig
    said = " ".join(str(original).split())[:300]
    if isinstance(original, sqlite3.Error):
        code, table = getattr(original, "sqlite_errorname", None) or "", _SQLITE
    else:
        code, table = getattr(original, "sqlstate", None) or "", _STATES
        if not code:
            code = "28" if any(part in said for part in _PASSWORD) else "3D000" if said.endswith("does not exist") else ""
    if code.startswith("SQLITE_CANTOPEN") and Path(name).is_file() and not os.access(Path(name).parent, os.W_OK):
        code = "SQLITE_READONLY"  # beside the file there are others, which even a reader writes
    for begin, kind, what, hint in table:
        if code.startswith(begin):
            return kind(f"{what} ({said})", file=name, hint=hint)
    if error.connection_invalidated or (table is _STATES and code[:2] in ("", "08", "57")):
        return Unreachable(f"the server does not answer, or ended the connection ({said})", file=name, hint=_AGAIN)
    return StoreError(f"the database refused it, {KEPT} ({said})", file=name, hint="`assay ledger check` looks for why")
