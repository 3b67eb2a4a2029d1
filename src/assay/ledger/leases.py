"""Leases of cells, for several machines that judge for one validator and share a ledger.

    claim ─▶ ours ─▶ judged ─▶ signed ─▶ in the ledger ─▶ the lease goes
             held: another driver has it, and is alive    done: the ledger has its record

- A lease stands for `LEASE` seconds unless its driver renews it. So the cells of a driver that died are free again soon, and the
  ones of a driver that lives are judged by nobody else.
- What another driver has is not claimed again and again: one look in a while at all leases shows which of them have gone.
- A driver in the same folder on the same machine is the same holder: whoever goes on there has its leases at once.
- A lease is taken before the ledger is asked, and goes only after its record came there. So a cell is never judged again after
  its record could be seen.

Leases save work; no number rests on them. The ledger's rule for evidence makes a cell count once: the first record of a key
counts, and an equal one is the same record (SPEC 3.0). So the rows need not outlast a power failure, and may be removed: they are
in a file of their own beside an SQLite ledger (`ledger.db.leases`), or in a table of their own in PostgreSQL. While the database
does not answer, such as during its restart, it is asked again for `PATIENCE` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

from sqlalchemy import BigInteger, Connection, cast, delete, extract, func, inspect, select, update
from sqlalchemy.dialects import postgresql, sqlite

from assay.exact import canonical
from assay.folder import strict
from assay.ledger.access import open_store
from assay.ledger.config import Config
from assay.ledger.store import DatabaseUnreachable, transaction
from assay.ledger.store.engine import LOCK, make_engine, shown
from assay.ledger.store.tables import LEASES
from assay.ledger.store.tables import leases as leases_table
from assay.records import record as read_record

__all__ = ["LEASE", "CellLeases", "patiently"]

LEASE = 60
"""Seconds that a lease stands unless it is renewed."""
PATIENCE = 60.0
"""Seconds for which a database that does not answer is asked again."""
_PAUSE = 0.5
_RENEW = LEASE / 4
_MARGIN = 5.0
"""Seconds before its end from which on a driver does not trust its own lease without a look."""
_MAKING = LOCK + 2
"""The advisory lock of a process that makes the table in PostgreSQL."""
Key = tuple[object, ...]
T = TypeVar("T")


def patiently(ask: Callable[[], T], seconds: float = PATIENCE) -> T:
    """The result of `ask`; while the database does not answer, it is called again for so many seconds. Raises what it raises."""
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except DatabaseUnreachable:
            if time.monotonic() > until:
                raise
        time.sleep(_PAUSE)


class CellLeases:
    """A driver's `judge.stations.Leases`: a context manager. Raises StoreError."""

    def __init__(self, settings: Config, validator: str, holder: str, *, lease: int = LEASE, oldest: int = 0) -> None:
        """settings: of the ledger. holder: this driver, by a name that it has again when it goes on in the same folder.

        oldest: the first epoch whose records still count; a cell with older ones alone is not done.
        """
        self._store = open_store(settings)
        self._validator, self._holder, self._lease, self._oldest = validator, holder, lease, oldest
        place = str(settings.place)
        self._place = place if "://" in place else str(Path(f"{place}.leases"))
        self._engine = make_engine(self._place, create=True)
        self._mine: set[str] = set()
        self._theirs: set[str] = set()
        """The cells that other drivers had at the last look."""
        self._done: set[str] = set()
        self._last_batch = 0
        self._renewed = time.monotonic()
        with self._changing() as connection:
            _make_table(connection)
        self._look()
        self.held(())

    def __enter__(self) -> CellLeases:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def claim(self, key: Key) -> Literal["ours", "held", "done"]:
        """See `judge.stations.Leases.claim`."""
        cell = _text(key)
        return "held" if cell in self._theirs else patiently(lambda: self._claim(cell))

    def _claim(self, cell: str) -> Literal["ours", "held", "done"]:
        with self._changing() as connection:
            now = _now(connection)
            insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
            row = insert(leases_table).values(validator=self._validator, cell=cell, holder=self._holder, until=now + self._lease)
            free = (leases_table.c.holder == self._holder) | (leases_table.c.until < now)
            taken = {"holder": row.excluded.holder, "until": row.excluded.until}
            upsert = row.on_conflict_do_update(index_elements=["validator", "cell"], set_=taken, where=free)
            ours = connection.execute(upsert.returning(leases_table.c.cell)).first() is not None
        if ours:
            self._mine.add(cell)
        self._look()
        if cell in self._done:
            return "done"
        return "ours" if ours else "held"

    def held(self, keys: Collection[Key]) -> set[Key]:
        """See `judge.stations.Leases.held`."""
        patiently(self._look_at_others)
        return {key for key in keys if _text(key) in self._theirs}

    def _look_at_others(self) -> None:
        with self._changing() as connection:
            theirs = (leases_table.c.validator == self._validator) & (leases_table.c.holder != self._holder)
            alive = leases_table.c.until >= _now(connection)
            self._theirs = set(connection.scalars(select(leases_table.c.cell).where(theirs & alive)))

    def renew(self) -> None:
        """See `judge.stations.Leases.renew`."""
        if time.monotonic() - self._renewed >= min(_RENEW, self._lease / 4):
            patiently(self._look)
            patiently(self._keep)

    def holds(self, key: Key) -> bool:
        """See `judge.stations.Leases.holds`."""
        if time.monotonic() - self._renewed > self._lease - _MARGIN:
            patiently(self._keep)
        return _text(key) in self._mine

    def release(self, key: Key) -> None:
        """See `judge.stations.Leases.release`."""
        patiently(lambda: self._forget([_text(key)]))

    def close(self) -> None:
        """Give up all leases, and close the databases: what was judged is in the ledger now, or nobody waits for it."""
        try:
            patiently(self._give_up)
        finally:
            self._engine.dispose()
            self._store.close()

    def _give_up(self) -> None:
        with self._changing() as connection:
            connection.execute(delete(leases_table).where(self._ours))

    @property
    def _ours(self) -> Any:
        return (leases_table.c.validator == self._validator) & (leases_table.c.holder == self._holder)

    def _changing(self) -> Any:
        writing = self._engine.dialect.name == "sqlite"  # PostgreSQL's ledger has one writer at a time, and leases need not wait
        return transaction(self._engine, shown(self._place), writing=writing, isolation="READ COMMITTED")

    def _keep(self) -> None:
        """Renew all leases that still are this driver's, and forget the others."""
        began = time.monotonic()
        with self._changing() as connection:
            now = _now(connection)
            connection.execute(update(leases_table).where(self._ours).values(until=now + self._lease))
            ours = set(connection.scalars(select(leases_table.c.cell).where(self._ours)))
        self._mine &= ours
        self._renewed = began

    def _look(self) -> None:
        """Note the cells whose records came to the ledger since the last look; their leases go."""
        with self._store.reading() as view:
            for batch in view.of_validator(self._validator, self._last_batch):
                if batch.first_seq is not None and batch.last_seq is not None:
                    rows = view.between(batch.first_seq, batch.last_seq)
                    for row in (row for row in rows if row.epoch >= self._oldest):
                        self._done.add(_text(read_record(strict.parse(row.body.decode())).key[2:]))
                self._last_batch = batch.id
        self._forget(self._mine & self._done)

    def _forget(self, cells: Iterable[str]) -> None:
        cells = list(cells)
        if not cells:
            return
        self._mine.difference_update(cells)
        with self._changing() as connection:
            for cell in cells:
                connection.execute(delete(leases_table).where(self._ours, leases_table.c.cell == cell))


def _text(key: Key) -> str:
    """A cell's key as text."""
    return canonical(list(key)).decode()


def _now(connection: Connection) -> int:
    """Seconds by the clock that all drivers share: PostgreSQL's, or this machine's."""
    if connection.dialect.name == "sqlite":
        return int(time.time())
    return int(connection.execute(select(cast(extract("epoch", func.clock_timestamp()), BigInteger))).scalar_one())


def _make_table(connection: Connection) -> None:
    """Make the table if it is missing. Of several processes that start at once, one makes it and the others wait for it."""
    if connection.dialect.name == "postgresql":
        if leases_table.name in inspect(connection).get_table_names():
            return
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
    LEASES.create_all(connection)
