"""What the world does to a ledger's files: full and read-only disks, damage. It is named, and nothing is settled over it."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import cli_kit
import ledger_kit
import small_folder
from assay.errors import AssayError, BadInput
from assay.ledger import access, bundle, config, settling
from assay.ledger.config import Config
from assay.ledger.log import Log
from assay.ledger.store import Damaged
from assay.ledger.verify import verify
from disks import filled, mounted, remount
from ledger_kit import KEY, ORIGIN, SIGNER

FULL, READ_ONLY = "No space left on device", "Read-only file system"


def settle(place: Path, epoch: int) -> settling.EpochResult:
    with ledger_kit.opened(place) as ledger:
        return settling.settle(ledger, SIGNER, epoch)


def settled(place: Path) -> list[int]:
    """The epochs that are."""
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        return [receipt.epoch for receipt in view.receipts()]


def refused(kind: type[AssayError], file: Path, *words: str) -> Callable[[Callable[[], object]], str]:
    """That something ends with an error that names the file, says these words, and what to do."""

    def check(does: Callable[[], object]) -> str:
        with pytest.raises(kind) as error:
            does()
        assert Path(str(error.value.file)) == file
        assert error.value.hint
        for word in words:
            assert word in str(error.value)
        return str(error.value)

    return check


# Full disks, and those that can only be read


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "2m") as mount:
        yield mount


@pytest.fixture
def apart(disk: Path, tmp_path: Path) -> Path:
    """A ledger with evidence of one epoch, whose log is on the small disk."""
    place = ledger_kit.ledger_folder(tmp_path / "small")
    shutil.move(place / "log", disk / "log")
    config.write(Config(place, ORIGIN, str(KEY), log=str(disk / "log")))
    ledger_kit.add(place, ledger_kit.records())
    return place


def test_a_log_without_room_is_made_up_for(apart: Path, disk: Path) -> None:
    with filled(disk):
        first = disk / "log/tile/entries/000.p/1"
        refusal_of = refused(BadInput, first, FULL, "epoch 3 is settled", "only the log lacks it")
        assert "`assay ledger check`" in refusal_of(lambda: settle(apart, 3))
        refused(BadInput, first, FULL)(lambda: settled(apart))
        whole = Log(disk / "log", KEY)
        whole.check()
        assert whole.size == 0
    assert not list((disk / "log").rglob(".*"))
    assert "1 receipt in the log" in cli_kit.output("ledger", "check", apart)
    assert Log(disk / "log", KEY).size == 1
    assert not settle(apart, 3).new


def test_nothing_is_settled_while_the_log_can_only_be_read(apart: Path, disk: Path) -> None:
    remount(disk, "ro")
    refused(BadInput, disk / "log", "cannot be written", "permissions")(lambda: settle(apart, 3))
    assert settled(apart) == []
    remount(disk, "rw")
    assert settle(apart, 3).new


def test_no_receipt_where_the_database_has_no_room(disk: Path) -> None:
    place = ledger_kit.ledger_folder(disk / "small")
    ledger_kit.add(place, ledger_kit.records())
    with ledger_kit.opened(place) as ledger:
        with filled(disk), pytest.raises(AssayError, match="nothing of this was stored"):
            settling.settle(ledger, SIGNER, 3)
        assert ledger.log.size == 0
        with ledger.store.reading() as view:
            assert view.last_receipt() is None
            assert view.settlement(3) is None
        assert settling.settle(ledger, SIGNER, 3).new
    assert "1 receipt in the log" in cli_kit.output("ledger", "check", place)


@pytest.mark.parametrize("as_parquet", [False, True])
def test_an_export_without_room_leaves_nothing(as_parquet: bool, apart: Path, disk: Path) -> None:
    settle(apart, 3)
    target = disk / "epoch-3"

    def export() -> None:
        with ledger_kit.opened(apart) as ledger:
            bundle.export(ledger, 3, target, as_parquet=as_parquet)

    with filled(disk):
        refused(BadInput, target, FULL)(export)
        assert sorted(path.name for path in disk.iterdir()) == ["filler", "log"]
    remount(disk, "ro")
    refused(BadInput, target, READ_ONLY)(export)
    remount(disk, "rw")
    assert [path.name for path in disk.iterdir()] == ["log"]
    export()
    assert verify(target, key=str(KEY)).recomputed


def test_ledger_toml_without_room_is_written_next_time(disk: Path, tmp_path: Path) -> None:
    place = small_folder.make(disk / "small", validators_csv=ledger_kit.NAMES, evidence=None)
    before = cli_kit.files_under(place)

    def make() -> None:
        access.make_ledger(place, ORIGIN, SIGNER, database=str(tmp_path / "ledger.db"), log=str(tmp_path / "log"))

    with filled(disk):
        refused(BadInput, place / "ledger.toml", FULL)(make)
        assert cli_kit.files_under(place) == before
    remount(disk, "ro")
    refused(BadInput, place / "ledger.toml", READ_ONLY)(make)
    remount(disk, "rw")
    assert cli_kit.files_under(place) == before
    make()
    ledger_kit.add(place, ledger_kit.records())
    assert settle(place, 3).new


# Damage


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three settled epochs, and evidence of a fourth."""
    place = ledger_kit.ledger_folder(tmp_path_factory.mktemp("three") / "small")
    for epoch in (3, 4, 5):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch))
        settle(place, epoch)
    ledger_kit.add(place, ledger_kit.records(epoch=6))
    return place


CHECKPOINT, TILE, ENTRIES = "checkpoint", "tile/0/000.p/3", "tile/entries/000.p/3"


def flip(path: Path, place: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path, place: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: Path, place: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path, place: Path) -> None:
    path.unlink()


def put_back(path: Path, place: Path) -> None:
    """The tile of one entry less."""
    shutil.copy(path.with_name("2"), path)


DAMAGE = [
    *((name, how) for name in (CHECKPOINT, TILE, ENTRIES) for how in (flip, cut, empty, remove)),
    (TILE, put_back),
    (ENTRIES, put_back),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "how"), DAMAGE, ids=[f"{name}-{how.__name__}" for name, how in DAMAGE])
def test_damage_to_the_log_is_named_and_mended_from_the_database(
    name: str, how: Callable[[Path, Path], None], three: Path, tmp_path: Path
) -> None:
    place = ledger_kit.copied(three, tmp_path / "small")
    log, whole = place / "log", cli_kit.files_under(place / "log")
    how(log / name, place)
    damaged = cli_kit.files_under(log)
    refused(BadInput, log / name)(lambda: settle(place, 6))
    refusal = cli_kit.refused("ledger", "check", place)
    assert refusal.startswith(str(log / name))
    assert "move the log's folder away" in refusal
    assert cli_kit.files_under(log) == damaged
    with closing(sqlite3.connect(place / "ledger.db")) as database:
        assert database.execute("SELECT count(*) FROM receipts").fetchone() == (3,)
    log.rename(tmp_path / "away")
    assert "3 receipts in the log. Everything is intact." in cli_kit.output("ledger", "check", place)
    anew = cli_kit.files_under(log)
    assert anew == {path: whole[path] for path in anew}
    assert set(anew) == {CHECKPOINT, TILE, ENTRIES}
    assert settle(place, 6).new


def test_an_older_checkpoint_put_back_is_as_after_a_crash(three: Path, tmp_path: Path) -> None:
    place = ledger_kit.copied(three, tmp_path / "small")
    old = (place / "log/checkpoint").read_bytes()
    settle(place, 6)
    new = (place / "log/checkpoint").read_bytes()
    (place / "log/checkpoint").write_bytes(old)
    assert "4 receipts in the log" in cli_kit.output("ledger", "check", place)
    assert (place / "log/checkpoint").read_bytes() == new


def test_a_log_whose_folder_is_empty_is_not_taken_for_one_that_is_gone(three: Path, tmp_path: Path) -> None:
    place = ledger_kit.copied(three, tmp_path / "small")
    shutil.rmtree(place / "log")
    (place / "log").mkdir()  # as where a disk is not mounted
    refusal = cli_kit.refused("ledger", "check", place)
    assert refusal.startswith(f"{place / 'log/checkpoint'}: no such file")
    (place / "log").rmdir()
    (place / "log").symlink_to(tmp_path / "nowhere")
    assert "no such file" in cli_kit.refused("ledger", "check", place)


def test_a_log_that_is_gone_before_the_first_receipt_is_made_by_init(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    shutil.rmtree(place / "log")
    refusal = cli_kit.refused("ledger", "check", place)
    assert "no receipt from which to make it again; only the machine that settles has it" in refusal
    assert "move ledger.toml away and run `assay ledger init` again" in refusal
    (place / "ledger.toml").unlink()
    access.make_ledger(place, ORIGIN, SIGNER)
    assert "0 receipts in the log" in cli_kit.output("ledger", "check", place)


def test_a_log_without_room_to_be_made_anew(three: Path, disk: Path, tmp_path: Path) -> None:
    place = ledger_kit.copied(three, tmp_path / "small")
    shutil.rmtree(place / "log")
    config.write(Config(place, ORIGIN, str(KEY), log=str(disk / "log")))
    with filled(disk):
        assert FULL in cli_kit.refused("ledger", "check", place)
        assert [path.name for path in disk.iterdir()] == ["filler"]
    remount(disk, "ro")
    assert READ_ONLY in cli_kit.refused("ledger", "check", place)
    remount(disk, "rw")
    assert "3 receipts in the log" in cli_kit.output("ledger", "check", place)


CHANGES = {
    "a word of a record": "UPDATE records SET body = CAST(replace(body, 'pass', 'fail') AS BLOB) WHERE seq = 40",
    "its digest": "UPDATE records SET digest = zeroblob(32) WHERE seq = 40",
    "a record less": "DELETE FROM records WHERE seq = 40",
    "a record of another epoch": "UPDATE records SET epoch = 7 WHERE seq = 40",
    "text for bytes": "UPDATE records SET body = CAST(body AS TEXT) WHERE seq = 40",
    "a record of before": "DELETE FROM records WHERE seq = 3",
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_settled_over_damaged_records(change: str, three: Path, tmp_path: Path) -> None:
    place = ledger_kit.copied(three, tmp_path / "small")
    with closing(sqlite3.connect(place / "ledger.db")) as database:
        for name in ("records_no_update", "records_no_delete"):
            database.execute(f"DROP TRIGGER {name}")
        assert database.execute(CHANGES[change]).rowcount == 1
        database.commit()
    before = change == "a record of before"  # of the open epoch, what was acknowledged is missed first
    where, what = (
        ("ledger.db", "restore it from a copy") if before else ("acknowledged.jsonl", "restore the database from a copy")
    )
    refused(Damaged, place / where, what)(lambda: settle(place, 6))
    assert settled(place) == [3, 4, 5]
    assert "restore" in cli_kit.refused("ledger", "check", place, code=1)


BY_ANOTHER = "UPDATE receipts SET checkpoint = (SELECT checkpoint FROM receipts WHERE epoch = 4) WHERE epoch = 5"


@pytest.mark.parametrize("change", ["UPDATE receipts SET checkpoint = x'00' WHERE epoch = 5", BY_ANOTHER])
def test_a_damaged_checkpoint_in_the_database_is_named(change: str, three: Path, tmp_path: Path) -> None:
    place = ledger_kit.copied(three, tmp_path / "small")
    with closing(sqlite3.connect(place / "ledger.db")) as database:
        database.execute("DROP TRIGGER receipts_no_update")
        database.execute(change)
        database.commit()
    with pytest.raises(AssayError, match=r"differs from the database|a receipt's checkpoint was changed"):
        settle(place, 6)
    shutil.rmtree(place / "log")
    refused(Damaged, place / "ledger.db", "a receipt's checkpoint was changed", "restore it")(lambda: settle(place, 6))
    assert not (place / "log").exists()


# The same for whoever may not mount


def test_a_log_that_cannot_be_written_after_the_settlement(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(place, ledger_kit.records())
    (place / "log/tile").touch()
    refusal_of = refused(BadInput, place / "log/tile", "cannot be made", "epoch 3 is settled", "only the log lacks it")
    refusal_of(lambda: settle(place, 3))
    (place / "log/tile").unlink()
    assert "1 receipt in the log" in cli_kit.output("ledger", "check", place)


def test_a_log_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(place, ledger_kit.records())
    monkeypatch.setattr(os, "access", lambda *_: False)
    refused(BadInput, place / "log", "cannot be written")(lambda: settle(place, 3))
    monkeypatch.undo()
    assert settled(place) == []


def test_a_log_is_not_made_anew_over_another_folder(tmp_path: Path) -> None:
    note = ledger_kit.ledger_folder(tmp_path / "small").joinpath("log/checkpoint").read_bytes()
    (tmp_path / "log/tile").mkdir(parents=True)
    refused(BadInput, tmp_path / "log", "cannot be made (Directory not empty)")(lambda: Log.anew(tmp_path / "log", KEY, note, []))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "small"]


@pytest.mark.parametrize("left", ["", "PRAGMA journal_mode = WAL"])
def test_a_database_that_was_left_empty_is_taken_up(left: str, tmp_path: Path) -> None:
    place = small_folder.make(tmp_path / "small", validators_csv=ledger_kit.NAMES, evidence=None)
    with closing(sqlite3.connect(place / "ledger.db")) as database:
        database.execute(left)
    (place / "ledger.db").touch()
    access.make_ledger(place, ORIGIN, SIGNER)
    assert "0 records" in cli_kit.output("ledger", "check", place)


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path / "small", validators_csv=ledger_kit.NAMES, evidence=None)
    with closing(sqlite3.connect(place / "ledger.db")) as database:
        database.execute("CREATE TABLE notes (text)")
    before = cli_kit.files_under(place)["ledger.db"]
    refused(BadInput, place / "ledger.db", "is there already")(lambda: access.make_ledger(place, ORIGIN, SIGNER))
    assert len((place / "ledger.db").read_bytes()) == len(before)
    with closing(sqlite3.connect(place / "ledger.db")) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("notes",)]
