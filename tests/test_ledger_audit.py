"""`audit` finds whatever was changed in a database behind the triggers' back, and names it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import store_kit as kit
from assay.ledger import store
from assay.ledger.audit import Audited, audit
from assay.ledger.store import Damaged, Meta

TRIGGERS = "SELECT group_concat('DROP TRIGGER ' || name, ';') || ';' FROM sqlite_master WHERE type = 'trigger'"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A ledger with two batches, which share a record, and a conflict; its triggers are gone."""
    file = tmp_path / "ledger.db"
    with store.create(file, kit.META) as ledger, ledger.writing() as tx:
        tx.add_batch(kit.signed(*kit.trials(range(1, 4))))
        tx.add_batch(kit.signed(*kit.trials([3, 4], outcome="fail"), *kit.trials([2, 5])))
        tx.add_batch(kit.signed(*kit.trials([7], epoch=4)))
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
    "the last record less": ("DELETE FROM records WHERE seq = 7;", "the root of batch 3"),
    "the first batch moved": ("UPDATE batches SET id = 9 WHERE id = 1; UPDATE records SET batch = 9 WHERE batch = 1;", "batch 2"),
    "the last batch less": ("DELETE FROM records WHERE batch = 3; UPDATE batches SET id = 9 WHERE id = 3;", "batch 9"),
    "an envelope": ("UPDATE batches SET envelope = x'7b7d' WHERE id = 1;", "the envelope of batch 1 is none"),
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
    "members that are none": ("UPDATE batches SET members = '[[1' WHERE id = 1;", "the members of batch 1"),
    "members of another shape": ("UPDATE batches SET members = '[1]' WHERE id = 1;", "the members of batch 1"),
    "a range without an end": ("UPDATE batches SET last_seq = NULL WHERE id = 1;", "the batch of record 1"),
    "what is no record": (f"UPDATE records SET body = x'00', digest = x'{NOTHING}' WHERE seq = 2;", "record 2 is no record"),
    "a batch that is gone": ("PRAGMA foreign_keys = OFF; DELETE FROM batches WHERE id = 3;", "lost what it refers to"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found(place: Path, change: str) -> None:
    statements, said = CHANGES[change]
    assert said in damage(place, statements)
