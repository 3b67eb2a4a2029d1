"""Store everything that was accepted and settled, append-only, in SQLite or PostgreSQL. SPEC 3.0, 6.

    with store.open("ledger.db") as ledger:
        with ledger.writing() as tx:
            tx.add_batch(batch)
        with ledger.reading() as view:
            for seq, digest, body in view.records(first_epoch=12, last_epoch=12):
                ...

There is one writer at a time and any number of readers, each with its own snapshot. The rows that a block wrote are durable when
the block ends; if the block raises, nothing of it is stored.
"""

from __future__ import annotations

import builtins
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, MetaData, Table, inspect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from assay.errors import AssayError, BadInput
from assay.folder.files import check_locks
from assay.ledger.batch import StoredRecord
from assay.ledger.store import copying, parts, rights, schema
from assay.ledger.store.archives import PLACE
from assay.ledger.store.copying import CopiedTable
from assay.ledger.store.engine import (
    CACHE_KIB,
    RESTORE,
    WAIT,
    Archived,
    Damaged,
    DatabaseBusy,
    DatabaseUnreachable,
    Elsewhere,
    Forbidden,
    Full,
    NotALedger,
    OtherVersion,
    ReadOnly,
    StoreError,
    began,
    make_engine,
    shown,
    translated,
)
from assay.ledger.store.tables import (
    Accepted,
    Conflict,
    Meta,
    RecordRow,
    StoredArchived,
    StoredBatch,
    StoredCheckpoint,
    StoredReceipt,
    StoredSettlement,
    Submission,
)
from assay.ledger.store.view import View
from assay.ledger.store.writer import Writer

__all__ = [
    "NO_TABLES",
    "Accepted",
    "Archived",
    "Conflict",
    "CopiedTable",
    "Damaged",
    "DatabaseBusy",
    "DatabaseUnreachable",
    "Elsewhere",
    "Forbidden",
    "Full",
    "Meta",
    "NotALedger",
    "OtherVersion",
    "ReadOnly",
    "RecordRow",
    "Store",
    "StoreError",
    "StoredArchived",
    "StoredBatch",
    "StoredCheckpoint",
    "StoredReceipt",
    "StoredRecord",
    "StoredSettlement",
    "Submission",
    "View",
    "Writer",
    "create",
    "fill",
    "migrate",
    "open",
    "shown",
]

NO_TABLES = MetaData()
"""No tables but the ledger's."""
Result = TypeVar("Result")
PAUSE = 0.5
"""Seconds in which others go on before a migration tries again."""


class Store:
    """A ledger's database. Threads may share it, processes open their own. `name` is its path or URL, without a password."""

    def __init__(self, engine: Engine, name: str, meta: Meta) -> None:
        self.name, self.meta = name, meta
        self._engine = engine
        self._watching = Lock()
        self._watch: Any = None

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """One transaction, exclusive among writers; if it raises StoreError, nothing of the block is stored.

        Raises Elsewhere for a database that is not where the ledger lives, and OtherVersion if it was migrated meanwhile.
        """
        with transaction(self._engine, self.name, writing=True) as connection:
            schema.check_usable(connection, self.name)
            yield Writer(connection)

    @contextmanager
    def reading(self) -> Iterator[View]:
        """One snapshot; raises StoreError."""
        with transaction(self._engine, self.name, writing=False) as connection:
            yield View(connection)

    def commits(self) -> int | None:
        """A number that changes when anybody commits to the database; None where it cannot be known at once (PostgreSQL).

        It costs microseconds and waits for nobody. It says nothing in another process, or in another Store.
        """
        if self._engine.dialect.name != "sqlite":
            return None
        with self._watching:
            try:
                if self._watch is None:  # data_version tells only of other connections' commits, so this one never writes
                    pooled = self._engine.raw_connection()
                    pooled.detach()
                    self._watch = pooled.dbapi_connection
                    self._watch.execute("PRAGMA busy_timeout = 0")
                return int(self._watch.execute("PRAGMA data_version").fetchone()[0])
            except (sqlite3.Error, DBAPIError):
                self._unwatch()
                return None

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def check_home(self) -> None:
        """Raise Elsewhere if this database may only be read, because the ledger lives elsewhere."""
        with transaction(self._engine, self.name, writing=False) as connection:
            schema.check_home(connection)

    def elsewhere(self) -> Elsewhere | None:
        """The error that says why this database may only be read; None if the ledger lives here."""
        try:
            self.check_home()
        except Elsewhere as error:
            return error
        return None

    def adopt(self) -> str:
        """Make this copy or restored database the place where the ledger lives; it must be the only one now.

        The former place is checked as far as possible. Raises BadInput if the ledger there is still in use, or has more than this
        one. Returns what could not be checked.
        """
        with transaction(self._engine, self.name, writing=False) as connection:
            former = schema.former_home(connection)
            if not former:
                unseen = "It is not known where the ledger was before, so nothing was checked there."
            elif "file" in former:
                schema.check_file_unused(connection, former)
                unseen = f"No program of this machine has {former['file']} open; other machines were not checked."
            else:
                name = schema.former_database(connection, former)
                if name is None:
                    unseen = f"The database {former['database']!r} is on another server, gone, or this one; it was not checked."
                else:
                    unseen = self._check_former(name, View(connection))
        with transaction(self._engine, self.name, writing=True) as connection:
            schema.settle_in(connection)
        return unseen

    def _check_former(self, name: str, ours: View) -> str:
        """Raise BadInput if the ledger's former database on this server is being written, or has more than this one.

        Returns what could not be checked.
        """
        hint = "stop the programs that use it; restore a new backup of it, or drop it if you can lose what is newer"
        place = self._engine.url.set(database=name).render_as_string(hide_password=False)
        try:
            with open(place, wait=0.2) as old, transaction(old._engine, old.name, writing=True) as connection:
                theirs = View(connection)
                newer = theirs.last_batch() - ours.last_batch(), len(theirs.settled_epochs()) - len(ours.settled_epochs())
        except DatabaseBusy as error:
            raise BadInput(f"the ledger is still being written in the database {name!r} ({error.what})", hint=hint) from None
        except AssayError as error:
            return f"The database {name!r} could not be checked ({error.what})."
        batches, receipts = (max(0, count) for count in newer)
        if batches or receipts:
            what = f"the ledger in the database {name!r} has {batches} batches and {receipts} receipts more than this one"
            raise BadInput(what, file=self.name, hint=hint)
        return f"The database {name!r} has nothing newer, and nobody was writing to it; other servers were not checked."

    def forget_home(self, when: str) -> None:
        """Note that this database was restored at a time, so it must be adopted before it is used."""
        with transaction(self._engine, self.name, writing=True) as connection:
            schema.forget_home(connection, when)

    def grant(self, user: str, role: str = "evidence", validator: str | None = None, beside: Sequence[Table] = ()) -> bool:
        """Give a user of the PostgreSQL server a role, one of `rights.ROLES`; raises BadInput, StoreError.

        validator: whose evidence alone it may add, for the role `validator`. beside: the tables of the service. Returns whether
        its time limits were set too: `rights.LIMITS`.
        """
        with transaction(self._engine, self.name, writing=True) as connection:
            return rights.grant(connection, user, role, validator, beside)

    def granted(self, beside: Sequence[Table] = ()) -> list[rights.Granted]:
        """The rights of each user of the database; raises BadInput, StoreError."""
        with transaction(self._engine, self.name, writing=False) as connection:
            return rights.granted(connection, beside)

    def check_author(self, validator: str) -> None:
        """Raise Forbidden if the user of this store may add evidence of another validator only."""
        with transaction(self._engine, self.name, writing=False) as connection:
            rights.check_author(connection, validator)

    def revoke(self, user: str, beside: Sequence[Table] = ()) -> tuple[int, int]:
        """Take every right from a user, and end its sessions; raises BadInput, StoreError.

        Does not wait for its turn to write, since the user may hold that. Returns how many sessions were ended, and how many we
        may not end. Its policies stay if somebody uses the tables; they bind nobody without rights.
        """
        with transaction(self._engine, self.name, writing=False, isolation="READ COMMITTED") as connection:
            rights.revoke(connection, user, beside)
        with transaction(self._engine, self.name, writing=False) as connection:
            ended = rights.end_sessions(connection, user)
        with (
            suppress(DatabaseBusy),
            transaction(self._engine, self.name, writing=False, isolation="READ COMMITTED") as connection,
        ):
            rights.unbind(connection, user)
        return ended

    def make_parts(self, settled: int) -> list[int]:
        """Make the parts of the epochs after a settled one (`parts`); returns their epochs. Never fails: parts only save time."""
        try:
            with transaction(self._engine, self.name, writing=True) as connection:
                return parts.make(connection, settled)
        except (Forbidden, StoreError):
            return []

    def drop(self, entry: StoredArchived, keep: Sequence[Sequence[int]], wait: float = WAIT) -> int:
        """Drop the bodies of archived epochs but those in `keep` (ranges of seqs), all or nothing; returns how many are gone.

        Tries again for `wait` seconds while others use the table. Raises Elsewhere, Forbidden and StoreError.
        """

        def do(connection: Connection) -> int:
            schema.check_usable(connection, self.name)
            return parts.drop(connection, entry, keep)

        return _in_turn(self._engine, self.name, wait, "drop", do)

    def copy_to(self, path: Path, beside: MetaData = NO_TABLES) -> None:
        """Write one snapshot of the database to a new SQLite file, while others write; raises StoreError.

        beside: tables that are not the ledger's, and are copied with it. A copy of a file has everything in any case.
        """
        if self._engine.dialect.name == "sqlite":
            with translated(self.name), self._engine.connect() as connection:
                copying.vacuum_into(connection.execution_options(isolation_level="AUTOCOMMIT"), path)
            return
        copy = make_engine(path, create=True)
        try:
            with (
                transaction(self._engine, self.name, writing=False) as source,
                transaction(copy, str(path), writing=True) as target,
            ):
                copying.copy_tables(source, target, str(path), beside, readable=True)
        finally:
            copy.dispose()

    @contextmanager
    def copied_whole(
        self, place: str | Path, when: str, beside: MetaData, progress: copying.Progress, check: Callable[[View], None]
    ) -> Iterator[dict[str, CopiedTable]]:
        """Copy one snapshot of the ledger to a new file or an empty PostgreSQL database, all or nothing.

        The copy must be adopted. when: the time (RFC 3339) that it notes. progress: called as it goes on. check: called with the
        whole copy before it is committed. Gives what each table has: the copy was read again, and has the same digests. From
        before the copy is committed to the end of the block, nobody can write to this database, so nothing that was acknowledged
        is missing in the copy.

        Raises Elsewhere for a database that is not where the ledger lives, NotALedger for a target that is not empty, StoreError
        if somebody wrote meanwhile, and Damaged for a copy that differs.
        """
        target, name = make_engine(place, create=True), shown(place)
        with transaction(self._engine, self.name, writing=False) as source:
            schema.check_usable(source, self.name)
        with ExitStack() as turn:
            try:
                with transaction(target, name, writing=True) as copy:
                    with transaction(self._engine, self.name, writing=False) as source, translated(name):
                        copied = copying.copy_tables(source, copy, name, beside, progress=progress)
                    copying.check_same(copy, name, beside, copied, progress)
                    schema.forget_home(copy, when)
                    check(View(copy))
                    now = turn.enter_context(transaction(self._engine, self.name, writing=True))
                    copying.check_unchanged(now, beside, copied)
            finally:
                target.dispose()
            yield copied

    def check_integrity(self) -> None:
        """Let SQLite check its database; raises Damaged. PostgreSQL checks every page when it reads it."""
        with transaction(self._engine, self.name, writing=False) as connection:
            if connection.dialect.name == "sqlite":
                problems = list(connection.exec_driver_sql("PRAGMA integrity_check").scalars())
                lost = connection.exec_driver_sql("PRAGMA foreign_key_check").scalars().all()
                problems = [problem for problem in problems if problem != "ok"] + [
                    f"a row of {table} refers to a row that is gone" for table in lost
                ]
                if problems:
                    raise Damaged(f"it is damaged ({'; '.join(problems[:3])})", file=self.name, hint=RESTORE)

    def close(self) -> None:
        """Close every connection."""
        with self._watching:
            self._unwatch()
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@contextmanager
def transaction(engine: Engine, name: str, *, writing: bool, isolation: str = "REPEATABLE READ") -> Iterator[Connection]:
    """A database transaction of the store; raises BadInput for one that writes on a system without file locks.

    isolation: PostgreSQL's, for a transaction that does not wait for its turn to write.
    """
    if writing:
        check_locks()
    try:
        with translated(name), began(engine, writing=writing, isolation=isolation) as connection:
            yield connection
    except DatabaseBusy as error:
        said_by_server = engine.dialect.name == "postgresql" and isinstance(error.__context__, DBAPIError)  # not by our own pool
        holder = _holder(engine) if said_by_server else None
        if holder is None:
            raise
        hint = f"{error.hint}; or the operator ends that session: `assay ledger grant DIR USER --revoke`, then grants again"
        raise DatabaseBusy(f"{error.what}; {holder} holds it", file=error.file, hint=hint) from None


def _holder(engine: Engine) -> str | None:
    """The connection that holds the turn to write, if the server says it."""
    try:
        with engine.connect() as connection:
            return schema.turn_holder(connection)
    except (DBAPIError, PoolTimeoutError):
        return None


def create(place: str | Path, meta: Meta) -> Store:
    """Make a store in a new file or an empty database; raises NotALedger if there is something already, and StoreError.

    A file without any table is left from a crash during `create`; it is used.
    """
    name, database = shown(place), make_engine(place, create=True)
    file = None if database.url.database is None or database.dialect.name != "sqlite" else Path(database.url.database)
    ours = file is not None and _reserve(file, name)
    try:
        with transaction(database, name, writing=True) as connection:
            if file is not None and not ours and inspect(connection).get_table_names():
                raise NotALedger("is there already", file=name, hint="use another path, or remove it if nothing needs it")
            schema.make_tables(connection, meta, name)
    except BaseException as error:
        database.dispose()
        if file is not None and ours and not isinstance(error, NotALedger):
            for rest in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
                rest.unlink(missing_ok=True)
        raise
    return Store(database, name, meta)


def _reserve(file: Path, name: str) -> bool:
    """Make an empty file; False if the file exists."""
    try:
        with builtins.open(file, "xb"):
            return True
    except FileExistsError:
        return False
    except OSError as error:
        raise DatabaseUnreachable(
            f"cannot be made ({error.strerror})", file=name, hint="check that the folder exists, its permissions and its space"
        ) from None


def open(place: str | Path, *, wait: float = WAIT, cache: int = CACHE_KIB, archive: str | None = None) -> Store:
    """Open the store at a path or URL. `wait`: seconds that a writer waits for another one; `cache`: see `make_engine`.

    archive: where the archive of dropped epochs is, if it has moved.

    Raises NotALedger if there is none, OtherVersion, Forbidden, and StoreError.
    """
    name, database = shown(place), make_engine(place, wait=wait, cache=cache)
    database.update_execution_options(**{PLACE: archive})
    try:
        _there(database, name)
        with transaction(database, name, writing=False) as connection:
            version, meta = schema.read_meta(connection, name)
        schema.check_version(version, name)
    except BaseException:
        database.dispose()
        raise
    return Store(database, name, meta)


def migrate(place: str | Path, *, wait: float = WAIT) -> tuple[int, int]:
    """Bring the store at a path or URL to this program's version; returns the version before and after. Raises as `open` does.

    Others may use the ledger meanwhile. Writers take turns with the migration. On PostgreSQL, a migration that changes a table
    needs a moment in which nobody reads it: it tries again for `wait` seconds, and gives the turn back in between.
    """
    name, database = shown(place), make_engine(place, wait=wait)
    try:
        _there(database, name)
        return _in_turn(database, name, wait, "migrate", lambda connection: schema.migrate_tables(connection, name))
    finally:
        database.dispose()


def _in_turn(database: Engine, name: str, wait: float, verb: str, do: Callable[[Connection], Result]) -> Result:
    """Change tables in a transaction that does not wait long for their readers: tried again, so that others go on in between."""
    until = monotonic() + wait
    while True:
        try:
            with transaction(database, name, writing=True) as connection:
                return do(connection)
        except DatabaseBusy as error:
            if monotonic() > until:
                hint = f"nothing was changed: end what reads or writes for long (a backup, a copy), then {verb} again"
                raise DatabaseBusy(error.what, file=error.file, hint=hint) from None
        sleep(PAUSE)


def fill(place: str | Path, copy: Path, beside: MetaData = NO_TABLES) -> None:
    """Fill an empty database from a file that `copy_to` wrote, all or nothing; raises NotALedger if not empty, StoreError.

    beside: tables that are not the ledger's, and are copied with it.
    """
    name, target, source = shown(place), make_engine(place), make_engine(copy)
    try:
        with transaction(source, str(copy), writing=False) as read, transaction(target, name, writing=True) as written:
            copying.copy_tables(read, written, name, beside)
    finally:
        source.dispose()
        target.dispose()


def _there(database: Engine, name: str) -> None:
    if database.dialect.name == "sqlite" and database.url.database is not None and not Path(database.url.database).exists():
        raise NotALedger("there is no such file", file=name, hint="`assay ledger init` makes a ledger")
