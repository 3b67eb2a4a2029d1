"""`audit` finds whatever was changed in a database behind the triggers' back, and names it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import ledger_kit
import store_kit as kit
from assay.errors import BadInput
from assay.ledger import settling, store
from assay.ledger.audit import Audited, audit, audit_receipts
from assay.ledger.store import Damaged, Meta

TRIGGERS = "SELECT group_concat('DROP TRIGGER ' || name, ';') || ';' FROM sqlite_master WHERE type = 'trigger'"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A ledger with two batches, which share a record, a conflict, and attempts to send; its triggers are gone."""
    file = tmp_path / "ledger.db"
    with store.create(file, kit.META) as ledger, ledger.writing() as tx:
        tx.add_batch(kit.signed(*kit.trials(range(1, 4))))
        tx.add_batch(kit.signed(*kit.trials([3, 4], outcome="fail"), *kit.trials([2, 5])))
        tx.add_batch(kit.signed(*kit.trials([7], epoch=4)))
        tx.add_attempts("chain", b"{}", b"{}")
    with closing(sqlite3.connect(file)) as database:
        database.executescript(database.execute(TRIGGERS).fetchone()[0])
    return file


def damage(place: Path, statements: str) -> str:
    """What `audit` says after these statements."""
    with closing(sqlite3.connect(place)) as database:
        database.executescript(statements)
    with pytest.raises(Damaged) as error, store.open(place) as ledger:
        audit(ledger)
    assert error.value.file == str(place)
    assert error.value.hint
    return str(error.value)


def test_a_whole_ledger(place: Path) -> None:
    with store.open(place) as ledger:
        assert audit(ledger) == Audited(records=7, batches=3, conflicts=1)


def test_a_whole_ledger_on_postgresql(database: str) -> None:
    with store.create(database, Meta("small", "o", "k")) as ledger:
        kit.fill(ledger)
        assert audit(ledger) == Audited(records=6, batches=2, conflicts=1)


NOTHING = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
"""The digest of a zero byte."""
CHANGES = {
    "a word of a record": (
        "UPDATE records SET body = CAST(replace(body, 'pass', 'fail') AS BLOB) WHERE seq = 2;",
        "the digest of record 2",
    ),
    "a digest": ("UPDATE records SET digest = zeroblob(32) WHERE seq = 2;", "the digest of record 2"),
    "a slot": ("UPDATE records SET slot = zeroblob(16) WHERE seq = 2;", "the slot of record 2"),
    "an epoch": ("UPDATE records SET epoch = 4 WHERE seq = 2;", "the epoch of record 2"),
    "a batch": ("UPDATE records SET batch = 2 WHERE seq = 2;", "the batch of record 2"),
    "a flag that is not set": ("UPDATE records SET conflict = 0 WHERE conflict;", "the flag of record"),
    "a flag that is set": ("UPDATE records SET conflict = 1 WHERE seq = 1;", "the count of conflicts"),
    "a record less": ("DELETE FROM records WHERE seq = 3;", "the number of record 4"),
    "a count of records": ("UPDATE batches SET last_seq = 9 WHERE id = 3;", "the count of records"),
    "the last record less": ("DELETE FROM records WHERE seq = 7;", "the count of batch 3"),
    "the first batch moved": ("UPDATE batches SET id = 9 WHERE id = 1; UPDATE records SET batch = 9 WHERE batch = 1;", "batch 2"),
    "the last batch less": ("DELETE FROM records WHERE batch = 3; UPDATE batches SET id = 9 WHERE id = 3;", "batch 9"),
    "an envelope": ("UPDATE batches SET envelope = x'7b7d' WHERE id = 1;", "the envelope of batch 1 cannot be read"),
    "another envelope": (
        "UPDATE batches SET envelope = (SELECT envelope FROM batches WHERE id = 2) WHERE id = 1;",
        "the digest of batch 1",
    ),
    "a batch's digest": ("UPDATE batches SET digest = 'sha256:' WHERE id = 1;", "the digest of batch 1"),
    "a batch's root": ("UPDATE batches SET root = 'sha256:' WHERE id = 1;", "what batch 1 states"),
    "a batch's validator": ("UPDATE batches SET validator = 'elm' WHERE id = 1;", "the validator of record 1"),
    "members too few": ("UPDATE batches SET members = '[[1,2]]' WHERE id = 1;", "the count of batch 1"),
    "other members": ("UPDATE batches SET members = '[[1,2],[4,4]]' WHERE id = 1;", "the root of batch 1"),
    "text for bytes": ("UPDATE records SET body = CAST(body AS TEXT) WHERE seq = 2;", "the form of record 2"),
    "text for a slot": ("UPDATE records SET slot = '0123456789abcdef' WHERE seq = 2;", "the form of record 2"),
    "text for an envelope": ("UPDATE batches SET envelope = CAST(envelope AS TEXT) WHERE id = 1;", "the form of batch 1"),
    "members that are none": ("UPDATE batches SET members = '[[1' WHERE id = 1;", "the count of batch 1"),
    "members of another shape": ("UPDATE batches SET members = '[1]' WHERE id = 1;", "the count of batch 1"),
    "a range that ends too late": (f"UPDATE batches SET last_seq = {10**15} WHERE id = 3;", "the count of records"),
    "a range without an end": ("UPDATE batches SET last_seq = NULL WHERE id = 1;", "the batch of record 1"),
    "what is no record": (f"UPDATE records SET body = x'00', digest = x'{NOTHING}' WHERE seq = 2;", "record 2 is not a record"),
    "an attempt less": ("DELETE FROM attempts WHERE number = 1;", "attempts to send to 'chain' are missing"),
    "text for an attempt": ("UPDATE attempts SET entry = CAST(entry AS TEXT);", "attempts to send to 'chain' are missing"),
    "a batch that is gone": ("PRAGMA foreign_keys = OFF; DELETE FROM batches WHERE id = 3;", "refers to a row that is gone"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found(place: Path, change: str) -> None:
    statements, why = CHANGES[change]
    assert why in damage(place, statements)


# Receipts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A competition with two settled epochs; the triggers of its database are gone."""
    place = ledger_kit.ledger_folder(tmp_path / "c")
    for epoch in (3, 4):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch, trial=epoch - 2))
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER, epoch)
    with closing(sqlite3.connect(place / "ledger.db")) as database:
        database.executescript(database.execute(TRIGGERS).fetchone()[0])
    return place


def test_receipts_that_are_whole(folder: Path) -> None:
    with ledger_kit.opened(folder) as ledger:
        assert audit_receipts(ledger) == 2


RECEIPTS = {
    "a place": ("UPDATE receipts SET position = 9 WHERE epoch = 4;", "the place of the receipt of epoch 4"),
    "a digest": ("UPDATE receipts SET digest = 'sha256:' WHERE epoch = 3;", "the receipt of epoch 3 changed"),
    "another's envelope": (
        "UPDATE receipts SET envelope = (SELECT envelope FROM receipts WHERE epoch = 4) WHERE epoch = 3;",
        "the receipt of epoch 3 is damaged",
    ),
    "no envelope": ("UPDATE receipts SET envelope = x'00' WHERE epoch = 3;", "the receipt of epoch 3 is damaged"),
    "a checkpoint": ("UPDATE receipts SET checkpoint = x'00' WHERE epoch = 3;", "the receipt of epoch 3 is damaged"),
    "a settlement": (
        "UPDATE settlements SET document = CAST(replace(document, 'agreed', 'unjudged') AS BLOB) WHERE epoch = 3;",
        "the settlement of epoch 3",
    ),
    "no settlement": ("UPDATE settlements SET document = x'5b5d' WHERE epoch = 3;", "the settlement of epoch 3"),
    "inputs": (
        "UPDATE inputs SET document = CAST(replace(document, '100', '101') AS BLOB);",
        "the inputs of epoch 3 changed",
    ),
    "a settlement that is gone": ("PRAGMA foreign_keys = OFF; DELETE FROM settlements WHERE epoch = 3;", "are gone"),
    "inputs that are gone": ("PRAGMA foreign_keys = OFF; DELETE FROM inputs;", "are gone"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("change", RECEIPTS)
def test_a_change_of_a_receipt_is_found(folder: Path, change: str) -> None:
    statements, why = RECEIPTS[change]
    with ledger_kit.opened(folder) as ledger:
        kit.sql(folder / "ledger.db", statements + ";")
        with pytest.raises(Damaged) as error:
            audit_receipts(ledger)
        assert why in str(error.value)
        assert error.value.file == str(folder / "ledger.db")


@pytest.mark.no_cover
def test_a_damaged_tile_is_named(folder: Path) -> None:
    (folder / "log/tile/0/000.p/2").write_bytes(bytes(64))
    with pytest.raises(BadInput, match=r"tile/0/000.p/2"), ledger_kit.opened(folder) as ledger:
        audit_receipts(ledger)
