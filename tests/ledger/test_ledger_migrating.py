"""A migration while others use the ledger: readers end first, writers wait, and a program of before writes no more.

In the last test, processes of version 3 of the schema send batches and read while the database is migrated, then continue as
the newest version. Nothing is lost and nothing is there twice, on both databases.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event, Semaphore

import pytest
from sqlalchemy import Connection

import postgres
import store_kit as kit
from assay.ledger import intake, store
from assay.ledger.audit import audit
from assay.ledger.store import schema
from assay.ledger.store.tables import BODY
from ledger_kit import VALIDATORS, processes
from test_ledger_versions import LAST, stored

WRITERS, SIZE, OLD, LATER, MOST = 3, 5, 3, 2, 2000
"""Writers, records of a batch, the version that is migrated; batches that each writer sends after it, and sends at most."""
WAIT = 120
"""Seconds, on a slow and busy machine."""


def another(connection: Connection) -> None:
    """A migration that needs a table for itself, as a later version might have it."""
    connection.exec_driver_sql("ALTER TABLE batches ADD COLUMN received_at TEXT")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The next version of Assay, until it is undone."""
    with monkeypatch.context() as patched:
        yield patched


def upgrade(later: pytest.MonkeyPatch) -> None:
    later.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, another))


def add(ledger: store.Store, task: str) -> None:
    with ledger.writing() as tx:
        tx.add_batch(kit.signed(kit.trial_record(task=task)))


def test_a_program_that_has_it_open_writes_no_more(database: str, later: pytest.MonkeyPatch) -> None:
    with store.create(database, kit.META) as ledger:
        add(ledger, "t1")
        upgrade(later)
        assert store.migrate(database) == (LAST, LAST + 1)
        later.undo()
        newer = f"made by a newer Assay: its schema is version {LAST + 1}, this one knows {LAST}; upgrade"
        with pytest.raises(store.OtherVersion, match=newer):
            add(ledger, "t2")
        with ledger.reading() as view:
            assert len(list(view.records())) == 1
        upgrade(later)
        add(ledger, "t2")


def test_readers_end_first_and_others_write_meanwhile(postgresql: postgres.Cluster, later: pytest.MonkeyPatch) -> None:
    place, pauses = postgresql.database(), list[float]()
    with store.create(place, kit.META) as ledger:
        reading = ledger.reading()
        assert list(reading.__enter__().batches()) == []

        def go_on(seconds: float) -> None:
            pauses.append(seconds)
            later.undo()
            add(ledger, f"t{len(pauses)}")
            if len(pauses) == 2:
                reading.__exit__(None, None, None)
            prepare()

        def prepare() -> None:
            upgrade(later)
            later.setattr(schema, "LOCK_MS", 20)
            later.setattr(store, "sleep", go_on)

        prepare()
        assert store.migrate(place) == (LAST, LAST + 1)
        assert len(pauses) == 2
        assert audit(ledger).batches == 2


def test_a_migration_that_readers_do_not_let_in_changes_nothing(postgresql: postgres.Cluster, later: pytest.MonkeyPatch) -> None:
    place = postgresql.database()
    with store.create(place, kit.META) as ledger, ledger.reading() as view:
        assert list(view.batches()) == []
        upgrade(later)
        with pytest.raises(store.DatabaseBusy, match=r"another program kept it locked.* end what reads or writes for long"):
            store.migrate(place, wait=schema.LOCK_MS / 2000)
        later.undo()
        add(ledger, "t1")


def migrate_and_die(database: str) -> None:
    """A migration whose machine stops when the tables are changed, before it ends."""

    def dying(connection: Connection) -> None:
        another(connection)
        os.kill(os.getpid(), signal.SIGKILL)

    schema.MIGRATIONS = (*schema.MIGRATIONS, dying)
    store.migrate(database)


@pytest.mark.no_cover
def test_a_migration_that_is_killed_changes_nothing(database: str, later: pytest.MonkeyPatch) -> None:
    with store.create(database, kit.META) as ledger:
        add(ledger, "t1")
        process = processes().Process(target=migrate_and_die, args=(database,))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        add(ledger, "t2")
        upgrade(later)
        assert store.migrate(database) == (LAST, LAST + 1)
        assert audit(ledger).records == 2


def old() -> Sequence[Callable[[Connection], None]]:
    """This process is a program of the old version, which knows no parts of PostgreSQL. Returns what it must know to be new."""
    newest, schema.MIGRATIONS = schema.MIGRATIONS, schema.MIGRATIONS[: OLD - 1]
    BODY["postgresql"] = BODY["sqlite"]
    return newest


def send(database: str, writer: int, begins: Barrier, sent: Semaphore, answers: "Queue[str]") -> None:
    """A validator's program: an old one until it is refused, then the newest one."""
    body, newest = BODY["postgresql"], old()
    validator, run, end = list(VALIDATORS)[writer % len(VALIDATORS)], 0, None
    ledger = store.open(database)
    begins.wait(WAIT)
    while run != end:
        assert run < MOST, "an old program goes on writing"
        trials = kit.trials(range(SIZE), validator=validator, submission=f"s-{writer}-{run}", epoch=4)
        batch = kit.signed(*trials)
        try:
            accepted = intake.accept(ledger, batch, kit.TERMS)
        except store.OtherVersion:
            assert end is None
            ledger.close()
            schema.MIGRATIONS, BODY["postgresql"], end = newest, body, run + LATER
            ledger = store.open(database)
            continue
        assert accepted.new == SIZE
        answers.put(batch.digest)
        sent.release()
        run += 1
    ledger.close()


def read(database: str, begins: Barrier, ends: Event, snapshots: "Queue[int]") -> None:
    """An old program that reads all the time; each snapshot is whole."""
    old()
    count = 0
    with store.open(database) as ledger:
        begins.wait(WAIT)
        while not ends.is_set():
            with ledger.reading() as view:
                brought = [(batch.first_seq or 0, batch.last_seq or 0) for batch in view.batches()]
                assert len(list(view.records())) == sum(last - first + 1 for first, last in brought if first)
            count += 1
    snapshots.put(count)


@pytest.mark.no_cover
def test_nothing_is_lost_or_doubled_while_others_write_and_read(database: str, postgresql: postgres.Cluster) -> None:
    kit.sql(database, stored(database, OLD), postgresql)
    context = processes()
    sent, ends, answers, snapshots = context.Semaphore(0), context.Event(), context.Queue(), context.Queue()
    begins = context.Barrier(WRITERS + 2)  # everybody has it open before it is migrated
    writers = [context.Process(target=send, args=(database, at, begins, sent, answers)) for at in range(WRITERS)]
    reader = context.Process(target=read, args=(database, begins, ends, snapshots))
    try:
        for process in (*writers, reader):
            process.start()
        begins.wait(WAIT)
        for _ in range(2 * WRITERS):
            assert sent.acquire(timeout=WAIT)
        assert store.migrate(database) == (OLD, LAST)
        acknowledged = []
        while any(process.is_alive() for process in writers) or not answers.empty():
            while not answers.empty():
                acknowledged.append(answers.get())
            for process in writers:
                process.join(0.1)
        ends.set()
        reader.join()
        assert [process.exitcode for process in (*writers, reader)] == [0] * (WRITERS + 1)
        assert snapshots.get() > 0
    finally:
        for process in (*writers, reader):
            process.kill()
    assert len(acknowledged) >= (2 + LATER) * WRITERS
    with store.open(database) as ledger:
        assert audit(ledger).records == 6 + SIZE * len(acknowledged)
        with ledger.reading() as view:
            assert sorted(batch.digest for batch in view.batches(4)) == sorted(acknowledged)
