"""Backups of a ledger: taken while others write, checked by digest, put back where nothing is, and adopted before they sign."""

import json
import os
import re
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, make_url

import ledger_kit
import postgres
import store_kit as kit
from assay.errors import AssayError, BadInput
from assay.ledger import config, keys, settling, store
from assay.ledger.audit import audit, audit_receipts
from assay.ledger.backup import back_up, restore
from assay.ledger.store import schema
from cli_kit import output, refused
from disks import mounted
from ledger_kit import SIGNER

NOW = "2026-11-22T17:00:00Z"


@pytest.fixture
def place(tmp_path: Path, database: str) -> Path:
    """A competition with two receipts on either database, and evidence of a third epoch."""
    folder = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    for epoch in (3, 4):
        ledger_kit.add(folder, ledger_kit.records(epoch=epoch, trial=epoch - 2))
        with ledger_kit.opened(folder) as ledger:
            settling.settle(ledger, SIGNER, epoch)
    ledger_kit.add(folder, ledger_kit.records(epoch=5, trial=3))
    return folder


def free(place: Path, cluster: Callable[[], postgres.Cluster]) -> None:
    """Make room for another database: the old one is moved away, or ledger.toml names a new one."""
    settings = config.read(place)
    if "://" in settings.database:
        text = (place / "ledger.toml").read_text().replace(json.dumps(settings.database), json.dumps(cluster().database()))
        (place / "ledger.toml").write_text(text)
    else:
        Path(settings.place).rename(f"{settings.place}.old")


@pytest.fixture
def room(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return lambda place: free(place, lambda: request.getfixturevalue("postgresql"))


@pytest.mark.no_cover
def test_a_backup_is_put_back_read_and_adopted(place: Path, room: Callable[[Path], None], tmp_path: Path) -> None:
    file = tmp_path / "backup.zip"
    about = back_up(place, file, now=NOW)
    assert (about.taken, about.held.records, about.held.batches, about.held.receipts) == (NOW, 36, 9, 2)
    with ledger_kit.opened(place) as ledger:
        assert about.held.checkpoint == ledger.log.note.decode()
        with ledger.store.reading() as view:
            rows, receipts = list(view.rows()), list(view.receipts())
    room(place)
    assert restore(place, file, now=NOW) == about
    with ledger_kit.opened(place) as ledger:
        assert (audit(ledger.store).records, audit_receipts(ledger)) == (36, 2)
        with ledger.store.reading() as view:
            assert (list(view.rows()), list(view.receipts())) == (rows, receipts)
        with pytest.raises(store.Elsewhere, match=f"was restored on {NOW}, and accepts and signs nothing until"):
            settling.settle(ledger, SIGNER, 5)
        ledger.store.adopt()
        assert settling.settle(ledger, SIGNER, 5).new
    with pytest.raises(AssayError, match="append-only"), ledger_kit.opened(place) as ledger, ledger.store.writing() as tx:
        tx._connection.exec_driver_sql("DELETE FROM records")


@pytest.mark.full
@pytest.mark.no_cover
def test_a_backup_beside_busy_writers_is_of_one_moment(database: str, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    done, added = threading.Event(), list[int]()

    def write(of: int) -> None:
        with store.open(config.read(place).place) as mine:
            number = 0
            while not done.is_set():
                number += 1
                with mine.writing() as tx:
                    tx.add_batch(kit.signed(*kit.trials([of + 10_000 * number + at for at in range(20)])))
                added.append(20)

    writers = [threading.Thread(target=write, args=(1000 * of,)) for of in range(2)]
    for writer in writers:
        writer.start()
    try:
        for number in range(4):
            while len(added) < 10 * (number + 1):  # they are at it
                done.wait(0.01)
            before = sum(added)
            about = back_up(place, tmp_path / f"{number}.zip", now=NOW)
            assert before <= about.held.records
            with zipfile.ZipFile(tmp_path / f"{number}.zip") as archive:
                archive.extract("ledger.db", tmp_path / str(number))
            with store.open(tmp_path / str(number) / "ledger.db") as copy:
                assert audit(copy).records == about.held.records == 20 * about.held.batches
    finally:
        done.set()
        for writer in writers:
            writer.join()
    with store.open(config.read(place).place) as ledger:
        assert audit(ledger).records == sum(added)


def test_nothing_is_put_over_what_is_there(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.zip"
    back_up(place, file, now=NOW)
    with pytest.raises(BadInput, match=r"backup.zip: exists, and nothing is written over it; a backup never replaces another"):
        back_up(place, file, now=NOW)
    with pytest.raises(BadInput, match=r"exists, and nothing is written over it; move away|there is a table 'archived' already"):
        restore(place, file, now=NOW)
    settings = config.read(place)
    if "://" not in settings.place:
        Path(settings.place).unlink()
        Path(f"{settings.place}-wal").touch()  # SQLite would take it for the new one's
        with pytest.raises(BadInput, match=r"ledger.db-wal: exists"):
            restore(place, file, now=NOW)
    assert {path.name for path in tmp_path.iterdir()} <= {"backup.zip", "small", "ledger.db", "ledger.db-wal"}
    assert not list(place.glob(".*"))


# What is refused; the database is SQLite


@pytest.fixture
def taken(tmp_path: Path) -> tuple[Path, Path]:
    """A competition without its database, and a backup of that."""
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(folder, ledger_kit.records())
    with ledger_kit.opened(folder) as ledger:
        settling.settle(ledger, SIGNER, 3)
    back_up(folder, tmp_path / "backup.zip", now=NOW)
    (folder / "ledger.db").rename(tmp_path / "old.db")
    return folder, tmp_path / "backup.zip"


def changed(file: Path, name: str, change: Callable[[bytes], bytes]) -> Path:
    """The backup with another content of one of its parts."""
    with zipfile.ZipFile(file) as archive:
        parts = {member: archive.read(member) for member in archive.namelist()}
    target = file.with_name("changed.zip")
    with zipfile.ZipFile(target, "w") as archive:
        for member, data in parts.items():
            archive.writestr(member, change(data) if member == name else data)
    return target


def saying(**values: Any) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        document = json.loads(data)
        return json.dumps(document | {"held": document["held"] | values.pop("held", {})} | values).encode()

    return change


@pytest.mark.parametrize(
    ("part", "change", "why"),
    [
        (
            "ledger.db",
            lambda data: data[:-1] + bytes([data[-1] ^ 1]),
            "has a database with the digest sha256:.*, not sha256:.* as it says",
        ),
        ("ledger.db", lambda data: data[:4096], "has a database with the digest"),
        ("about.json", lambda data: data[:-5], "its about.json is not that of a backup"),
        ("about.json", lambda data: b"\xff", "its about.json is not that of a backup"),
        ("about.json", saying(schema="assay.backup/2"), "its about.json is not that of a backup; .*or upgrade Assay"),
        ("about.json", saying(key="example.org/other+1a2b3c4d+Ab"), "is of the log example.org/other"),
        ("about.json", saying(held={"records": 1}), "the database in this backup was changed, or belongs to another ledger"),
        (
            "about.json",
            saying(held={"checkpoint": None}),
            "the database in this backup was changed, or belongs to another ledger",
        ),
    ],
)
def test_what_is_not_as_it_was_taken_is_refused(
    taken: tuple[Path, Path], part: str, change: Callable[[bytes], bytes], why: str
) -> None:
    place, file = taken
    with pytest.raises(AssayError, match=why):
        restore(place, changed(file, part, change), now=NOW)
    assert sorted(path.name for path in place.iterdir() if "ledger" in path.name or path.name[0] == ".") == ["ledger.toml"]


def test_what_is_no_backup_is_refused(taken: tuple[Path, Path], tmp_path: Path) -> None:
    place, file = taken
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    for name, content in (("flipped", bytes(data)), ("cut", bytes(data[:-100])), ("empty", b""), ("other", b"SQLite format 3\0")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadInput, match="is not a backup of a ledger, or is damaged"):
            restore(place, tmp_path / name, now=NOW)
    with zipfile.ZipFile(tmp_path / "lacking", "w") as archive:
        archive.writestr("about.json", "{}")
    with pytest.raises(BadInput, match=r"its about.json is not that of a backup"):
        restore(place, tmp_path / "lacking", now=NOW)
    with pytest.raises(BadInput, match=r"nowhere: cannot be read, or cannot be unpacked to .*No such file"):
        restore(place, tmp_path / "nowhere", now=NOW)
    assert not (place / "ledger.db").exists()


def test_a_checkpoint_that_is_not_the_logs_is_refused(taken: tuple[Path, Path], tmp_path: Path) -> None:
    place, file = taken
    for text, why in (
        ("another", "its checkpoint is not one of the log"),
        (None, "its checkpoint is of 1 receipts, but it has 2"),
    ):
        (place / "ledger.db").unlink(missing_ok=True)
        shutil.copy(tmp_path / "old.db", place / "ledger.db")
        kit.sql(place / "ledger.db", "DELETE FROM meta WHERE key = 'home'")
        with store.open(place / "ledger.db") as ledger, ledger.writing() as tx:
            settled, document, receipt = kit.settled(9, 1)
            last = tx.last_receipt()
            assert last is not None
            note = last.checkpoint if text is None else text.encode()
            tx.add_settled(settled, document, store.StoredReceipt(9, 1, receipt.digest, receipt.envelope, note))
        odd = tmp_path / f"{text}.zip"
        back_up(place, odd, now=NOW)
        (place / "ledger.db").unlink()
        with pytest.raises(store.Damaged, match=why):
            restore(place, odd, now=NOW)
    restore(place, file, now=NOW)


def test_what_is_older_than_the_folder_knows_is_refused_unless_told(taken: tuple[Path, Path], tmp_path: Path) -> None:
    place, file = taken
    shutil.copy(tmp_path / "old.db", place / "ledger.db")
    kit.sql(place / "ledger.db", "DELETE FROM meta WHERE key = 'home'")
    ledger_kit.add(place, ledger_kit.records(epoch=4, trial=2))
    (place / "ledger.db").rename(tmp_path / "later.db")
    with pytest.raises(BadInput, match=r"is older than .*acknowledged.jsonl:4: batch sha256:.* the ledger no longer has it"):
        restore(place, file, now=NOW)
    restore(place, file, now=NOW, older=True)
    (place / "ledger.db").unlink()

    shutil.copy(tmp_path / "later.db", place / "ledger.db")
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER, 4)
    (place / "ledger.db").unlink()
    (place / "acknowledged.jsonl").unlink()
    with pytest.raises(BadInput, match=r"is older than the log in .*/log: it has 1 receipts, the log 2; use a later backup"):
        restore(place, file, now=NOW)
    restore(place, file, now=NOW, older=True)
    with pytest.raises(BadInput, match=r"has 2 entries, and the database .* has 1 receipts"):  # until the epoch is brought back
        ledger_kit.opened(place).__enter__()


def test_what_is_of_another_history_than_the_log_is_refused(taken: tuple[Path, Path], tmp_path: Path) -> None:
    place, file = taken
    other = ledger_kit.ledger_folder(tmp_path / "other")
    ledger_kit.add(other, ledger_kit.records(outcome="fail"))
    with ledger_kit.opened(other) as ledger:
        settling.settle(ledger, SIGNER, 3)
    shutil.rmtree(place / "log")
    shutil.copytree(other / "log", place / "log")
    with pytest.raises(BadInput, match=r"has other receipts than the log in .*/log; one of the two was changed"):
        restore(place, file, now=NOW, older=True)
    shutil.rmtree(place / "log")
    restore(place, file, now=NOW)  # a log that is gone is made anew
    assert "1 receipt in the log" in output("ledger", "check", place)


def test_a_backup_of_an_earlier_version_is_brought_forward(taken: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def later(connection: Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE visits (id INTEGER PRIMARY KEY)")

    place, file = taken
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, later))
    restore(place, file, now=NOW)
    with ledger_kit.opened(place) as ledger:
        assert audit(ledger.store).records == 12
        assert ledger.store.elsewhere() is not None


def test_a_full_disk_leaves_no_half_of_a_backup(taken: tuple[Path, Path], tmp_path: Path) -> None:
    place, file = taken
    shutil.copy(tmp_path / "old.db", place / "ledger.db")
    with mounted(tmp_path / "disk", "60k") as disk:
        with pytest.raises(AssayError, match=r"disk is full|No space left"):
            back_up(place, disk / "backup.zip", now=NOW)
        assert os.listdir(disk) == []
    (place / "ledger.db").unlink()
    (place / "ledger.toml").write_text(
        (place / "ledger.toml").read_text().replace('"ledger.db"', f'"{tmp_path}/other/ledger.db"')
    )
    with mounted(tmp_path / "other", "60k") as disk:
        with pytest.raises(AssayError, match="No space left"):
            restore(place, file, now=NOW)
        assert os.listdir(disk) == []


@pytest.mark.no_cover
def test_the_commands(taken: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    keys.save("log", SIGNER)
    place, file = taken
    assert "put a backup there: `assay ledger restore`" in refused("ledger", "check", place)
    printed = " ".join(output("ledger", "restore", place, file).split())
    assert f"The ledger was restored of {NOW}: 12 records in 3 batches, 1 receipt. Its database is sha256:" in printed
    assert f"Stop the old ledger, then: assay ledger adopt {place} --old-is-stopped" in printed
    assert "Everything is intact." in output("ledger", "check", place)
    assert "was restored on 20" in refused("submit", place, "m1", "oracle")
    printed = " ".join(output("ledger", "adopt", place, "--old-is-stopped").split())
    assert printed.startswith("The ledger lives here from now on. No program of this machine has /")
    assert printed.endswith("ledger.db open; other machines were not checked.")
    printed = json.loads(output("ledger", "backup", place, tmp_path / "again.zip", "--json"))
    assert (printed["schema"], printed["held"]["receipts"]) == ("assay.backup/1", 1)
    printed = " ".join(output("ledger", "backup", place, tmp_path / "more.zip").split())
    assert "more.zip has the ledger of 20" in printed


def test_a_ledger_goes_from_postgresql_to_sqlite(tmp_path: Path, postgresql: postgres.Cluster) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=postgresql.database())
    ledger_kit.add(place, ledger_kit.records())
    back_up(place, tmp_path / "backup.zip", now=NOW)
    text = (place / "ledger.toml").read_text().replace(config.read(place).database, "ledger.db")
    (place / "ledger.toml").write_text(text)
    restore(place, tmp_path / "backup.zip", now=NOW)
    with ledger_kit.opened(place) as ledger:
        assert audit(ledger.store).records == 12
        unseen = ledger.store.adopt()  # there is no server to ask
        assert re.fullmatch("The database 'ledger[0-9]+' is on another server, gone, or this one; it was not checked.", unseen)
        assert ledger.store.elsewhere() is None


def test_a_restored_ledger_that_never_said_where_it_lived_is_adopted_unseen(taken: tuple[Path, Path], tmp_path: Path) -> None:
    place, _ = taken
    (tmp_path / "old.db").rename(place / "ledger.db")
    kit.sql(place / "ledger.db", "DELETE FROM meta WHERE key = 'home'")  # as a ledger of before this was written down
    back_up(place, tmp_path / "homeless.zip", now=NOW)
    (place / "ledger.db").unlink()
    restore(place, tmp_path / "homeless.zip", now=NOW)
    assert kit.sql(place / "ledger.db", "SELECT value FROM meta WHERE key LIKE '%home'") == f'{{"restored":"{NOW}"}}'
    with ledger_kit.opened(place) as ledger:
        assert "was restored on" in str(ledger.store.elsewhere())
        assert ledger.store.adopt() == "It is not known where the ledger was before, so nothing was checked there."
        assert ledger.store.elsewhere() is None


def test_a_file_that_is_still_there_or_open_is_not_the_old_one(taken: tuple[Path, Path], tmp_path: Path) -> None:
    place, file = taken
    (tmp_path / "old.db").rename(place / "ledger.db")
    moved = ledger_kit.copied(place, tmp_path / "moved")
    (moved / "ledger.db").unlink()
    restore(moved, file, now=NOW)
    why = f"the ledger is still in {place / 'ledger.db'}, and this is a copy of it; move that file away first"
    assert why in refused("ledger", "adopt", moved, "--old-is-stopped")
    with (
        (place / "ledger.db").open("rb") as opened,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[opened.fileno()]) as node,
    ):
        (place / "ledger.db").rename(place / "away.db")
        why = f"the ledger that was in {place / 'ledger.db'} is still open in process {node.pid}; stop that program first"
        assert why in refused("ledger", "adopt", moved, "--old-is-stopped")
        node.communicate()
    assert "lives here from now on" in output("ledger", "adopt", moved, "--old-is-stopped")
    with ledger_kit.opened(moved) as ledger:
        assert ledger.store.elsewhere() is None
    assert kit.sql(moved / "ledger.db", "SELECT count(*) FROM meta WHERE key = 'former_home'") == "0"


def test_a_database_that_is_still_written_is_not_the_old_one(tmp_path: Path, postgresql: postgres.Cluster) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=postgresql.database())
    old = config.read(place).place
    ledger_kit.add(place, ledger_kit.records())
    back_up(place, tmp_path / "backup.zip", now=NOW)
    moved = ledger_kit.copied(place, tmp_path / "moved")
    free(moved, lambda: postgresql)
    restore(moved, tmp_path / "backup.zip", now=NOW)
    words = ("ledger", "adopt", moved, "--old-is-stopped")
    with store.open(old) as theirs, theirs.writing():
        assert "the ledger is still being written in the database 'ledger" in refused(*words)
    ledger_kit.add(place, ledger_kit.records(epoch=4, trial=2))
    assert "has 3 batches and 0 receipts more than this one; stop the programs that use it" in refused(*words)
    postgresql.sql("postgres", f"DROP DATABASE {make_url(old).database} WITH (FORCE)")
    assert "is on another server, gone, or this one; it was not checked." in " ".join(output(*words).split())


def test_a_former_database_with_nothing_newer_is_said(tmp_path: Path, postgresql: postgres.Cluster) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=postgresql.database())
    back_up(place, tmp_path / "backup.zip", now=NOW)
    free(place, lambda: postgresql)
    restore(place, tmp_path / "backup.zip", now=NOW)
    with ledger_kit.opened(place) as ledger:
        assert "has nothing newer, and nobody was writing to it" in ledger.store.adopt()


def test_a_former_database_that_cannot_be_looked_at_is_said(tmp_path: Path, postgresql: postgres.Cluster) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=postgresql.database())
    old = config.read(place).place
    back_up(place, tmp_path / "backup.zip", now=NOW)
    free(place, lambda: postgresql)
    restore(place, tmp_path / "backup.zip", now=NOW)
    postgresql.sql(old, "UPDATE meta SET value = '99' WHERE key = 'schema_version'")  # a newer Assay went on with it
    with ledger_kit.opened(place) as ledger:
        unseen = ledger.store.adopt()
        assert ledger.store.elsewhere() is None
    assert unseen.startswith(f"The database {make_url(old).database!r} could not be checked (")
    assert "99" in unseen


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    with pytest.raises(BadInput, match=r"cannot be written \(File name too long\)"):
        back_up(place, tmp_path / ("x" * 300), now=NOW)
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def test_tables_beside_the_ledgers_come_back_with_their_numbers(
    place: Path, room: Callable[[Path], None], tmp_path: Path, database: str
) -> None:
    beside = MetaData()
    visits = Table("visits", beside, Column("id", Integer, primary_key=True), Column("name", Text))
    Table("absent", beside, Column("key", Text, primary_key=True))

    def add(name: str) -> list[tuple[int, str]]:
        with store.open(config.read(place).place) as ledger, ledger.writing() as tx:
            tx._connection.execute(visits.insert().values(name=name))
            return [tuple(row) for row in tx._connection.execute(visits.select().order_by(visits.c.id))]

    with store.open(database) as ledger, ledger.writing() as tx:
        visits.create(tx._connection)
    add("ann")
    back_up(place, tmp_path / "backup.zip", now=NOW, beside=beside)
    with pytest.raises(BadInput, match=r"exists, and nothing is written over it; move|there is a table 'archived' already"):
        restore(place, tmp_path / "backup.zip", now=NOW, beside=beside)
    room(place)
    restore(place, tmp_path / "backup.zip", now=NOW, beside=beside)
    with ledger_kit.opened(place) as restored:
        restored.store.adopt()
    assert add("bob") == [(1, "ann"), (2, "bob")]


def test_what_a_user_may_not_read_beside_the_ledger_is_left_out(tmp_path: Path, postgresql: postgres.Cluster) -> None:
    beside = MetaData()
    Table("visits", beside, Column("id", Integer, primary_key=True))
    place = ledger_kit.ledger_folder(tmp_path / "small", database=postgresql.database())
    url = config.read(place).place
    postgresql.sql(url, f"CREATE ROLE reader LOGIN PASSWORD '{postgres.PASSWORD}'; CREATE TABLE visits (id serial PRIMARY KEY)")
    postgresql.sql(url, "INSERT INTO visits DEFAULT VALUES")
    try:
        assert output("ledger", "grant", place, "reader")
        with store.open(url.replace("//assay:", "//reader:")) as theirs:
            theirs.copy_to(tmp_path / "theirs.db", beside)
        with store.open(url) as ours:
            ours.copy_to(tmp_path / "ours.db", beside)
    finally:
        postgresql.sql(url, "DROP OWNED BY reader; DROP ROLE reader")
    for name, count in (("theirs.db", "0"), ("ours.db", "1")):
        assert kit.sql(tmp_path / name, "SELECT count(*) FROM sqlite_master WHERE name = 'visits'") == count
    back = postgresql.database()
    store.fill(back, tmp_path / "ours.db", beside)
    assert postgresql.sql(back, "INSERT INTO visits DEFAULT VALUES RETURNING id") == "2\n"
