"""Where a ledger lives: a copy of it says that it is one, and takes nothing in; one that was moved is told so."""

import json
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import ledger_kit
import postgres
import store_kit as kit
from assay.errors import BadInput
from assay.ledger import keys, settling, store
from assay.ledger.store import Store
from cli_kit import output, refused, run
from ledger_kit import SIGNER


def add(ledger: Store, *tasks: int) -> None:
    with ledger.writing() as tx:
        tx.add_batch(kit.signed(*kit.trials(tasks)))


def test_a_copy_of_a_file_is_only_read(tmp_path: Path) -> None:
    place, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    with store.create(place, kit.META) as ledger:
        add(ledger, 1)
        assert ledger.elsewhere() is None
    shutil.copy(place, copy)
    with store.open(copy) as ledger:
        with pytest.raises(store.Elsewhere, match=f"copy.db: is a copy of the ledger in {place}, so it may only be read"):
            add(ledger, 2)
        with ledger.reading() as view:
            assert view.count() == 1
        assert "assay ledger adopt" in str(ledger.elsewhere())
        with pytest.raises(BadInput, match=f"the ledger is still in {place}, and this is a copy of it; move that file away"):
            ledger.adopt()
    with store.open(place) as ledger:  # it lives where it lived
        add(ledger, 2)


def test_a_file_that_was_put_in_the_place_of_another(tmp_path: Path) -> None:
    place, kept = tmp_path / "ledger.db", tmp_path / "kept.db"
    store.create(place, kit.META).close()
    shutil.copy(place, kept)
    kept.replace(place)
    with store.open(place) as ledger:
        with pytest.raises(store.Elsewhere, match=r"is a copy of the ledger that was in this file before, with the inode [0-9]+"):
            add(ledger, 1)
        ledger.adopt()
        add(ledger, 1)


def test_a_folder_that_was_moved_is_adopted(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(place, ledger_kit.records())
    moved = place.rename(tmp_path / "moved")
    with ledger_kit.opened(moved) as ledger:
        with pytest.raises(store.Elsewhere, match=r"is a copy of the ledger in"):
            settling.settle(ledger, SIGNER)
        ledger.store.adopt()
        assert settling.settle(ledger, SIGNER).new
        ledger.store.adopt()  # once more does no harm


def test_a_ledger_of_before_is_at_home_wherever_it_is(tmp_path: Path) -> None:
    place, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    store.create(place, kit.META).close()
    kit.sql(place, "DELETE FROM meta WHERE key = 'home'")
    shutil.copy(place, copy)
    with store.open(copy) as ledger:
        add(ledger, 1)
        assert ledger.elsewhere() is None


@pytest.mark.parametrize("home", ["", "[]", "7", '{"file":"x"}', '{"restored":"x","file":"y"}'])
def test_a_home_that_is_none_is_damage(tmp_path: Path, home: str) -> None:
    place = tmp_path / "ledger.db"
    with store.create(place, kit.META) as ledger:
        kit.sql(place, f"UPDATE meta SET value = '{home}' WHERE key = 'home'")
        with pytest.raises(store.Damaged, match=r"ledger\.db: its table `meta` does not say where the ledger lives"):
            add(ledger, 1)


def test_a_ledger_that_is_brought_forward_is_at_home(tmp_path: Path) -> None:
    place = tmp_path / "ledger.db"
    with closing(sqlite3.connect(place)) as database:
        database.executescript((Path(__file__).parent / "ledger-v2/sqlite.sql").read_text())
    store.migrate(place)
    shutil.copy(place, tmp_path / "copy.db")
    with store.open(place) as ledger, store.open(tmp_path / "copy.db") as copy:
        assert ledger.elsewhere() is None
        assert copy.elsewhere() is not None


# PostgreSQL


@pytest.fixture
def server() -> Iterator[postgres.Cluster]:
    """A server for one test alone, which may stop it."""
    with postgres.cluster() as cluster:
        yield cluster


def test_another_database_is_another_home(postgresql: postgres.Cluster) -> None:
    place, copy = postgresql.database(), postgresql.database()
    store.create(place, kit.META).close()
    store.create(copy, kit.META).close()
    home = postgresql.sql(place, "SELECT value FROM meta WHERE key = 'home'").strip()
    postgresql.sql(copy, f"UPDATE meta SET value = '{home}' WHERE key = 'home'")  # as a dump has it
    with store.open(copy) as ledger:
        with pytest.raises(store.Elsewhere, match=r"is a copy of the ledger in the database 'ledger[0-9]+' of this server"):
            add(ledger, 1)
        ledger.adopt()
        add(ledger, 1)
    other = home.replace('"server":"', '"server":"1')
    postgresql.sql(copy, f"UPDATE meta SET value = '{other}' WHERE key = 'home'")
    with store.open(copy) as ledger:
        with pytest.raises(store.Elsewhere, match=r"in the database 'ledger[0-9]+' of another server"):
            add(ledger, 2)
        assert "is on another server, gone, or this one; it was not checked." in ledger.adopt()
        add(ledger, 2)


def test_a_server_that_was_restored_is_another_home(server: postgres.Cluster) -> None:
    place = server.database()
    with store.create(place, kit.META) as ledger:
        add(ledger, 1)
    server.stop(signal.SIGINT)
    (server.data / "recovery.signal").touch()  # as one does with the files of a copy
    with (server.data / "postgresql.conf").open("a") as file:
        file.write("restore_command = 'false'\nrecovery_target_timeline = 'latest'\n")
    server.start()
    while server.sql(place, "SELECT pg_is_in_recovery()") == "t\n":  # it answers before it has taken over
        time.sleep(0.05)
    with store.open(place) as ledger:
        with pytest.raises(
            store.Elsewhere, match="on timeline 00000001 of this server, which was restored or has taken over since"
        ):
            add(ledger, 2)
        ledger.adopt()
        add(ledger, 2)


def test_who_may_only_read_sees_that_it_is_a_copy(postgresql: postgres.Cluster) -> None:
    place = postgresql.database()
    store.create(place, kit.META).close()
    postgresql.sql(
        place, f"CREATE ROLE looker LOGIN PASSWORD '{postgres.PASSWORD}'; GRANT SELECT ON ALL TABLES IN SCHEMA public TO looker"
    )
    try:
        with store.open(place.replace("//assay:", "//looker:")) as ledger:
            assert ledger.elsewhere() is None
    finally:
        postgresql.sql(place, "DROP OWNED BY looker; DROP ROLE looker")


# The commands


def test_a_copied_folder_is_not_settled_and_takes_nothing_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    keys.save("log", SIGNER)
    place, copy = ledger_kit.ledger_folder(tmp_path / "small"), tmp_path / "copy"
    ledger_kit.add(place, ledger_kit.records())
    shutil.copytree(place, copy)
    batch = tmp_path / "one.batch"
    batch.write_bytes(next(ledger_kit.batches(place, ledger_kit.records(epoch=4))).data)
    before = (copy / "ledger.db").read_bytes()
    for words in (
        ("settle", copy, "--key", "log"),
        ("evidence", "add", copy, batch),
        ("submit", copy, "m1", "oracle"),
        ("ledger", "adopt", copy),
    ):
        assert f"copy/ledger.db: is a copy of the ledger in {place}/ledger.db, so it may only be read; " in refused(*words)
    assert (copy / "ledger.db").read_bytes() == before
    assert "u16" in output("settle", copy, "--dry-run")
    checked = run("ledger", "check", copy, columns=10_000)
    assert "Everything is intact." in checked.stdout
    assert f"copy/ledger.db: is a copy of the ledger in {place}/ledger.db, so it may only be read" in checked.stderr
    assert json.loads(output("ledger", "check", copy, "--json"))["elsewhere"].startswith("is a copy of the ledger in ")
    assert json.loads(output("ledger", "check", place, "--json"))["elsewhere"] is None
    assert "the ledger is still in" in refused("ledger", "adopt", copy, "--old-is-stopped")
    assert output("ledger", "adopt", place) == "The ledger lives here already; nothing was changed.\n"
    shutil.rmtree(place)
    assert "add --old-is-stopped" in refused("ledger", "adopt", copy)
    assert output("ledger", "adopt", copy, "--old-is-stopped").startswith("The ledger lives here from now on. No program of")
    assert "Receipt sha256:" in output("settle", copy, "--key", "log")
