"""A store that is open: its transactions. How it is made, opened, and brought to another version."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine, inspect

from assay.errors import BadInput
from assay.folder.write import check_locks
from assay.ledger.store import copying, home, rights, schema
from assay.ledger.store.engine import WAIT, engine, shown
from assay.ledger.store.errors import RESTORE, Damaged, Elsewhere, NotALedger, Unreachable, translated
from assay.ledger.store.rows import Meta
from assay.ledger.store.view import View
from assay.ledger.store.writer import Writer

__all__ = ["Store", "create", "fill", "migrate", "open"]


class Store:
    """A ledger's database. Threads may share it, processes open their own. `name` is its path or URL, without a password."""

    def __init__(self, engine: Engine, name: str, meta: Meta) -> None:
        self.name, self.meta = name, meta
        self._engine = engine

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """One transaction, exclusive among writers; raises StoreError, and then nothing of the block is kept.

        Raises Elsewhere for a database that is not where the ledger lives.
        """
        with transaction(self._engine, self.name, writing=True) as connection:
            home.check(connection)
            yield Writer(connection)

    @contextmanager
    def reading(self) -> Iterator[View]:
        """One snapshot; raises StoreError."""
        with transaction(self._engine, self.name, writing=False) as connection:
            yield View(connection)

    def check_home(self) -> None:
        """Refuse a database that is only read, since the ledger lives elsewhere; raises Elsewhere."""
        with transaction(self._engine, self.name, writing=False) as connection:
            home.check(connection)

    def elsewhere(self) -> Elsewhere | None:
        """Why this database is only read, if the ledger lives elsewhere."""
        try:
            self.check_home()
        except Elsewhere as error:
            return error
        return None

    def adopt(self) -> None:
        """Make this the place where the ledger lives: of a copy that is the only one now. Raises BadInput if it is not."""
        with transaction(self._engine, self.name, writing=True) as connection:
            former = home.still_there(connection)
            if former is not None:
                raise BadInput(
                    f"the ledger still is in {former}, and this is a copy of it", file=self.name, hint="move that file away first"
                )
            home.settle_in(connection)

    def forget_home(self, when: str) -> None:
        """Write down that this database was restored at a time, so that it is to be adopted."""
        with transaction(self._engine, self.name, writing=True) as connection:
            home.forget(connection, when)

    def grant(self, role: str, *, nothing: bool = False) -> None:
        """Let a user of the PostgreSQL server read all and add evidence, or nothing; raises BadInput, StoreError."""
        with transaction(self._engine, self.name, writing=True) as connection:
            (rights.revoke if nothing else rights.grant)(connection, role)

    def copy_to(self, path: Path) -> None:
        """Write one snapshot of the database to a new SQLite file, while others write; raises StoreError."""
        if self._engine.dialect.name == "sqlite":
            with translated(self.name), self._engine.connect() as connection:
                copying.vacuum(connection.execution_options(isolation_level="AUTOCOMMIT"), path)
            return
        copy = engine(path, create=True)
        try:
            with (
                transaction(self._engine, self.name, writing=False) as source,
                transaction(copy, str(path), writing=True) as target,
            ):
                copying.pour(source, target, str(path))
        finally:
            copy.dispose()

    def check_integrity(self) -> None:
        """Let the database look itself over; raises Damaged. PostgreSQL does so with every page that it reads."""
        with transaction(self._engine, self.name, writing=False) as connection:
            if connection.dialect.name == "sqlite":
                said = list(connection.exec_driver_sql("PRAGMA integrity_check").scalars())
                lost = connection.exec_driver_sql("PRAGMA foreign_key_check").scalars().all()
                said = [one for one in said if one != "ok"] + [f"a row of {table} lost what it refers to" for table in lost]
                if said:
                    raise Damaged(f"it is damaged ({'; '.join(said[:3])})", file=self.name, hint=RESTORE)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@contextmanager
def transaction(engine: Engine, name: str, *, writing: bool) -> Iterator[Connection]:
    """A transaction of the store at the level below tables; raises BadInput for one that writes where there are no file locks."""
    if writing:
        check_locks()
    options: dict[str, Any] = {"writing": writing}
    if engine.dialect.name == "postgresql":
        options["isolation_level"] = "READ COMMITTED" if writing else "REPEATABLE READ"
    with translated(name), engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def create(place: str | Path, meta: Meta) -> Store:
    """A new store, in a file that is not there yet or an empty database; raises NotALedger if something is, and StoreError.

    A file without any table is what somebody left who died while making a store; it is taken up.
    """
    name, made = shown(place), engine(place, create=True)
    file = None if made.url.database is None or made.dialect.name != "sqlite" else Path(made.url.database)
    ours = file is not None and _reserve(file, name)
    try:
        with transaction(made, name, writing=True) as connection:
            if file is not None and not ours and inspect(connection).get_table_names():
                raise NotALedger("is there already", file=name, hint="use another path, or remove it if nothing needs it")
            schema.make(connection, meta, name)
    except BaseException as error:
        made.dispose()
        if file is not None and ours and not isinstance(error, NotALedger):
            for rest in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
                rest.unlink(missing_ok=True)
        raise
    return Store(made, name, meta)


def _reserve(file: Path, name: str) -> bool:
    """Make a file; False if there is one."""
    try:
        with builtins.open(file, "xb"):
            return True
    except FileExistsError:
        return False
    except OSError as error:
        raise Unreachable(
            f"cannot be made ({error.strerror})", file=name, hint="check that the folder exists, its permissions and its space"
        ) from None


def open(place: str | Path, *, wait: float = WAIT) -> Store:
    """The store at a path or URL. `wait`: seconds that a writer waits for another one.

    Raises NotALedger if there is none, OtherVersion, Forbidden, and StoreError.
    """
    name, found = shown(place), engine(place, wait=wait)
    try:
        _there(found, name)
        with transaction(found, name, writing=False) as connection:
            version, meta = schema.read(connection, name)
        schema.check(version, name)
    except BaseException:
        found.dispose()
        raise
    return Store(found, name, meta)


def migrate(place: str | Path) -> tuple[int, int]:
    """Bring the store at a path or URL to this program's version: that before, and that after. Raises as `open` does."""
    name, found = shown(place), engine(place)
    try:
        _there(found, name)
        with transaction(found, name, writing=True) as connection:
            return schema.migrate(connection, name)
    finally:
        found.dispose()


def fill(place: str | Path, copy: Path) -> None:
    """Put what `copy_to` wrote into an empty database, whole or not at all; raises NotALedger if it is not empty, StoreError."""
    name, target, source = shown(place), engine(place), engine(copy)
    try:
        with transaction(source, str(copy), writing=False) as read, transaction(target, name, writing=True) as written:
            copying.pour(read, written, name)
    finally:
        source.dispose()
        target.dispose()


def _there(found: Engine, name: str) -> None:
    if found.dialect.name == "sqlite" and found.url.database is not None and not Path(found.url.database).exists():
        raise NotALedger("there is no such file", file=name, hint="`assay ledger init` makes a ledger")
