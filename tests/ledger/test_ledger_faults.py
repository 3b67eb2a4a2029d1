"""What the world does to a database: locks, full disks, damaged pages, servers gone. One clear error, no partial state."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

import postgres
import store_kit as kit
from assay.errors import AssayError, BadInput
from assay.ledger import store
from assay.ledger.audit import audit
from assay.ledger.store import Store
from disks import mounted, remount

PAGE = 4096


def add(ledger: Store, *tasks: int) -> None:
    with ledger.writing() as tx:
        tx.add_batch(kit.signed(*kit.trials(tasks)))


def tasks_in(place: str | Path) -> int:
    with store.open(place) as again, again.reading() as view:
        return len(list(view.records()))


def refused(error: AssayError, kind: type[AssayError], *words: str) -> None:
    """The error says what is wrong, where, and what to do; in one line, and without a password."""
    assert type(error) is kind
    text = str(error)
    for word in words:
        assert word in text
    assert error.hint
    assert error.file
    assert "\n" not in text
    assert postgres.PASSWORD not in text
    assert "psycopg" not in text


def test_a_locked_database_is_waited_for_and_then_named(tmp_path: Path) -> None:
    place = tmp_path / "ledger.db"
    store.create(place, kit.META).close()
    with store.open(place, wait=0.05) as ledger, closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(store.DatabaseBusy) as error:
            add(ledger, 1)
        refused(error.value, store.DatabaseBusy, "another program kept it locked, nothing of this was stored", "try again")
        with ledger.reading() as view:  # readers do not wait
            assert view.count() == 0
        other.execute("ROLLBACK")
        add(ledger, 1)
    assert tasks_in(place) == 1


def test_a_writer_of_postgresql_waits_as_long(postgresql: postgres.Cluster) -> None:
    place = postgresql.database()
    with store.create(place, kit.META) as first, store.open(place, wait=0.05) as second, first.writing() as tx:
        tx.add_batch(kit.signed(kit.trial_record()))
        with pytest.raises(store.DatabaseBusy) as error:
            add(second, 2)
        refused(error.value, store.DatabaseBusy, "another program kept it locked, nothing of this was stored")
        with second.reading() as view:
            assert view.count() == 0


def test_more_threads_than_connections_are_told(tmp_path: Path) -> None:
    with store.create(tmp_path / "ledger.db", kit.META) as ledger:
        ledger._engine.pool._timeout = 0.01  # type: ignore[attr-defined]
        open_ones = [ledger.reading() for _ in range(15)]
        for open_one in open_ones:
            open_one.__enter__()
        with pytest.raises(store.DatabaseBusy) as error, ledger.reading():
            pass
        refused(error.value, store.DatabaseBusy, "too many at once")
        for open_one in open_ones:
            open_one.__exit__(None, None, None)


def test_a_full_disk_keeps_what_was_acknowledged_and_nothing_else(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "1m") as disk:
        place, acknowledged = disk / "ledger.db", list[int]()
        with store.create(place, kit.META) as ledger:
            with pytest.raises(store.StoreError) as error:
                _fill_up(ledger, acknowledged)
            refused(error.value, store.Full, "the disk is full, nothing of this was stored", "free some space")
            with ledger.reading() as view:
                assert view.count() == len(list(view.records())) == sum(acknowledged) > 0
        remount(disk, "size=16m")
        with store.open(place) as again:
            assert audit(again).records == sum(acknowledged)
            add(again, 10**6)
        assert tasks_in(place) == sum(acknowledged) + 1


def _fill_up(ledger: Store, acknowledged: list[int]) -> None:
    while True:
        begin = sum(acknowledged)
        add(ledger, *range(begin, begin + 100))
        acknowledged.append(100)


def test_a_ledger_is_not_half_made_on_a_full_disk(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "40k") as disk:
        with pytest.raises(store.StoreError) as error:
            store.create(disk / "ledger.db", kit.META)
        assert type(error.value) in (store.Full, store.DatabaseUnreachable)
        assert list(disk.iterdir()) == []


def test_a_read_only_disk_is_named(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "16m") as disk:
        place = disk / "ledger.db"
        with store.create(place, kit.META) as ledger:
            add(ledger, 1)
        remount(disk, "ro")
        with pytest.raises(store.ReadOnly) as error:
            store.open(place)
        refused(error.value, store.ReadOnly, "it cannot be written", "the mount")
        with pytest.raises(store.DatabaseUnreachable) as refusal:
            store.create(disk / "new.db", kit.META)
        refused(refusal.value, store.DatabaseUnreachable, "cannot be made (Read-only file system)")
        remount(disk, "rw")
        assert tasks_in(place) == 1


@pytest.mark.parametrize("content", [b"not a database at all" * 500, b"\x00" * 8192], ids=["text", "zeros"])
def test_what_is_no_database_is_named(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "ledger.db"
    place.write_bytes(content)
    with pytest.raises(store.NotALedger) as error:
        store.open(place)
    refused(error.value, store.NotALedger, "is not a")


def test_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(store.DatabaseUnreachable) as error:
        store.open(tmp_path)
    refused(error.value, store.DatabaseUnreachable, "it cannot be opened")


def _large(place: Path) -> None:
    with store.create(place, kit.META) as ledger:
        for run in range(5):
            add(ledger, *range(100 * run, 100 * run + 100))
    with closing(sqlite3.connect(place)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_a_damaged_page_is_found(tmp_path: Path) -> None:
    place = tmp_path / "ledger.db"
    _large(place)
    whole = place.read_bytes()
    pages = len(whole) // PAGE
    seen: set[type[AssayError]] = set()
    for page in range(1, pages):
        copy = tmp_path / f"page-{page}.db"
        with copy.open("wb") as file:
            file.write(whole[: page * PAGE] + bytes([0xA5]) * PAGE + whole[(page + 1) * PAGE :])
        with pytest.raises(AssayError) as error, store.open(copy) as ledger:
            audit(ledger)
        refused(error.value, store.Damaged, "damaged")
        seen.add(type(error.value))
        copy.unlink()
    assert pages > 20
    assert seen == {store.Damaged}


def test_a_damaged_page_is_named_where_it_is_read(tmp_path: Path) -> None:
    place = tmp_path / "ledger.db"
    _large(place)
    with closing(sqlite3.connect(place)) as database:
        root = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'records'").fetchone()[0]
    with place.open("r+b") as file:
        file.seek((root - 1) * PAGE)
        file.write(b"\xa5" * PAGE)
    with store.open(place) as ledger:
        with pytest.raises(store.Damaged) as error, ledger.reading() as view:
            list(view.records())
        refused(error.value, store.Damaged, "it is damaged", "restore it from a copy")
        with pytest.raises(store.Damaged):
            add(ledger, 10**6)


def test_a_file_cut_short_is_found(tmp_path: Path) -> None:
    place = tmp_path / "ledger.db"
    _large(place)
    os.truncate(place, place.stat().st_size // 2 // PAGE * PAGE)
    with pytest.raises(store.Damaged) as error, store.open(place) as ledger:
        audit(ledger)
    refused(error.value, store.Damaged, "damaged")


# PostgreSQL


@pytest.fixture
def server() -> Iterator[postgres.Cluster]:
    """A server for one test alone, which may stop it."""
    with postgres.cluster() as cluster:
        yield cluster


@pytest.mark.sampled(1)
@pytest.mark.no_cover
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
def test_a_restart_in_mid_transaction(server: postgres.Cluster, number: int) -> None:
    place = server.database()
    with store.create(place, kit.META) as ledger:
        add(ledger, 1)
        with pytest.raises(store.DatabaseUnreachable) as error:
            _write_while(ledger, lambda: server.restart(number))
        refused(error.value, store.DatabaseUnreachable, "the server does not answer, or ended the connection", "try again")
        with ledger.reading() as view:  # the same store goes on
            assert (view.count(), len(list(view.batches()))) == (1, 1)
        add(ledger, 2, 3)
        assert audit(ledger).records == 3


def _write_while(ledger: Store, happens: Callable[[], None]) -> None:
    with ledger.writing() as tx:
        tx.add_batch(kit.signed(*kit.trials(range(100, 110))))
        happens()


@pytest.mark.no_cover
def test_a_server_that_is_gone(server: postgres.Cluster) -> None:
    place = server.database()
    with store.create(place, kit.META) as ledger:
        server.stop()
        for use in (lambda: add(ledger, 1), lambda: store.open(place)):
            with pytest.raises(store.DatabaseUnreachable) as error:
                use()
            refused(error.value, store.DatabaseUnreachable, "does not answer")
        server.start()
        add(ledger, 1)


def test_a_server_without_connections_is_asked_again_and_then_named(
    server: postgres.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = server.database()
    store.create(place, kit.META).close()
    server.sql("postgres", f"CREATE ROLE few LOGIN CONNECTION LIMIT 1 PASSWORD '{postgres.PASSWORD}'")
    server.sql(place, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO few")
    theirs = place.replace("//assay:", "//few:")
    monkeypatch.setattr("assay.ledger.store.engine.RETRY_SECONDS", 0.2)
    with psycopg.connect(theirs) as taken:
        with pytest.raises(store.DatabaseUnreachable) as error:
            store.open(theirs)
        refused(error.value, store.DatabaseUnreachable, "the server has no connection left", "?pool_size=", "max_connections")
        monkeypatch.setattr("assay.ledger.store.engine.RETRY_SECONDS", 60.0)
        freed = list[float]()

        def sleep(seconds: float) -> None:
            freed.append(seconds)
            taken.close()  # somebody else is done
            time_sleep(seconds)

        time_sleep = time.sleep
        monkeypatch.setattr("assay.ledger.store.engine.time.sleep", sleep)
        with store.open(theirs) as ledger, ledger.reading() as view:
            assert view.count() == 0
        assert freed


def test_a_pool_opens_no_more_connections_than_its_url_says(postgresql: postgres.Cluster) -> None:
    place = postgresql.database()
    store.create(place, kit.META).close()
    with store.open(f"{place}&pool_size=4") as ledger, ExitStack() as readers:
        ledger._engine.pool._timeout = 0.01  # type: ignore[attr-defined]
        for _ in range(4):
            readers.enter_context(ledger.reading())
        with pytest.raises(store.DatabaseBusy) as error, ledger.reading():
            pass
        refused(error.value, store.DatabaseBusy, "too many at once")
    for wrong in ("3", "1001", "x", "9&pool_size=9"):
        with pytest.raises(BadInput, match=r"pool_size is not a number from 4 to 1000; write postgresql://"):
            store.open(f"{place}&pool_size={wrong}")


def test_who_may_not_come_in(postgresql: postgres.Cluster) -> None:
    place = postgresql.database()
    with pytest.raises(store.Forbidden) as error:
        store.open(place.replace(postgres.PASSWORD, "wrong-one"))
    refused(error.value, store.Forbidden, "does not accept this user and password", "~/.pgpass")
    assert "wrong-one" not in str(error.value)
    with pytest.raises(store.NotALedger) as missing:
        store.open(place.replace("/ledger", "/nowhere"))
    refused(missing.value, store.NotALedger, "there is no such database", "createdb")


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("postgresql://me:not-a-secret@/nowhere?host=/nowhere", "postgresql://me:***@/nowhere?host=%2Fnowhere"),
        ("postgres://me@/nowhere?password=not-a-secret&host=/nowhere", "postgresql://me@/nowhere?host=%2Fnowhere"),
        ("postgresql+psycopg://me@/nowhere?sslpassword=not-a-secret&host=/nowhere", "postgresql://me@/nowhere?host=%2Fnowhere"),
    ],
)
def test_errors_name_a_url_as_it_is_written_without_its_passwords(place: str, named: str) -> None:
    with pytest.raises(store.DatabaseUnreachable) as error:
        store.open(place)
    refused(error.value, store.DatabaseUnreachable, named)


def test_who_may_only_read(postgresql: postgres.Cluster) -> None:
    place = postgresql.database()
    with store.create(place, kit.META) as ledger:
        add(ledger, 1)
    postgresql.sql(
        place, f"CREATE ROLE reader LOGIN PASSWORD '{postgres.PASSWORD}'; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"
    )
    try:
        with store.open(place.replace("//assay:", "//reader:")) as theirs:
            with theirs.reading() as view:
                assert view.count() == 1
            with pytest.raises(store.Forbidden) as error:
                add(theirs, 2)
            refused(error.value, store.Forbidden, "the user may not do this")
    finally:
        postgresql.sql(place, "DROP OWNED BY reader; DROP ROLE reader")


@pytest.mark.full
@pytest.mark.no_cover
def test_a_server_that_only_reads(server: postgres.Cluster) -> None:
    place = server.database()
    with store.create(place, kit.META) as ledger:
        add(ledger, 1)
    server.stop()
    (server.data / "standby.signal").touch()
    server.start()
    with store.open(place) as ledger:
        with pytest.raises(store.ReadOnly) as error:
            add(ledger, 2)
        refused(error.value, store.ReadOnly, "the server is read-only")
        assert ledger.elsewhere() is None
        with ledger.reading() as view:
            assert view.count() == 1


@pytest.mark.full
def test_a_damaged_page_of_postgresql_is_named(server: postgres.Cluster) -> None:
    place = server.database()
    with store.create(place, kit.META) as ledger:
        add(ledger, *range(300))
    file = server.sql(place, "CHECKPOINT; SELECT pg_relation_filepath('records')").strip()
    server.stop()
    with (server.data / file).open("r+b") as page:
        page.seek(8192)
        page.write(b"\xa5" * 4096)
    server.start()
    with store.open(place) as ledger:
        with pytest.raises(store.Damaged) as error:
            audit(ledger)
        refused(error.value, store.Damaged, "it is damaged", "restore it")
