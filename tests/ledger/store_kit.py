"""What the tests of the ledger's store share: signed batches, terms that allow them, and the database past our own code."""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import postgres
import small_folder
from assay.ledger import batch, intake
from assay.ledger.batch import Batch
from assay.ledger.store import Meta, Store, StoredCheckpoint, StoredReceipt, StoredSettlement, Submission, tables
from assay.records import record
from ledger_kit import V1, VALIDATORS

META = Meta("small", "example.org/small", "example.org/small+1a2b3c4d+Ab")
PUBLIC = {name: key.public for name, key in VALIDATORS.items()}
ATTEMPTS = {"chain": [b'{"state":"planned"}', b'{"state":"sent"}'], "other": [b'{"state":"planned"}']}
"""What was sent to targets, as `fill` has it."""
TERMS = intake.IntakeRules("small", "tests", PUBLIC, frozenset({"m1", "m2"}))


def trial_record(**changes: Any) -> dict[str, Any]:
    """A record of kind tests by the first validator."""
    return small_folder.record("tests", **{"validator": V1} | changes)


def signed(
    *rows: Mapping[str, Any], competition: str = "small", task_set: str | None = None, origin: str | None = META.origin
) -> Batch:
    """The records as a batch, signed by the validator of the first."""
    validator = rows[0]["validator"]
    records = [record(dict(value)) for value in rows]
    signer = VALIDATORS[validator]
    return batch.make(records, origin=origin, competition=competition, task_set=task_set, signer=signer, validator=validator)


def trials(tasks: Iterable[int], **changes: Any) -> list[dict[str, Any]]:
    """A record for each task."""
    return [trial_record(**{"task": f"t{task}"} | changes) for task in tasks]


def settled(epoch: int, position: int = 0) -> tuple[StoredSettlement, bytes, StoredReceipt]:
    """What settling an epoch would keep."""
    digest = f"sha256:{epoch:064x}"
    receipt = StoredReceipt(epoch, position, digest, b"envelope %d" % epoch, b"checkpoint %d" % epoch)
    return StoredSettlement(epoch, digest, "sha256:inputs", b'{"epoch":%d}' % epoch), b"{}", receipt


def fill(store: Store) -> None:
    """Two batches, one of them with a conflict, what somebody handed in, a settled epoch, and what was sent of it."""
    with store.writing() as tx:
        tx.add_batch(signed(*trials(range(1, 4))))
        tx.add_batch(signed(*trials([3, 4], outcome="fail"), *trials([5])))
        tx.add_submission(Submission("m1", "s1", 3, "2026-11-02T09:00:00Z"))
        tx.add_settled(*settled(3))
        tx.add_checked(2, b"{}")
        tx.add_witnessed(StoredCheckpoint(1, b"note"))
        for target, entries in ATTEMPTS.items():
            tx.add_attempts(target, *entries)


def archive(store: Store) -> None:
    """A row that says where an epoch is; nobody signed it."""
    with store.writing() as tx:
        tx._connection.execute(tables.archived.insert(), {"epoch": 3, "first": 0, "envelope": b"{}"})


def sql(place: str | Path, statements: str, cluster: postgres.Cluster | None = None) -> str:
    """Statements carried out by the database's own means, as somebody would who goes past us."""
    if "://" in str(place):
        assert cluster is not None
        return cluster.sql(str(place), statements)
    with closing(sqlite3.connect(place, isolation_level=None)) as database:
        if statements.count(";") > 1:
            database.executescript(statements)
            return ""
        return "\n".join("|".join(map(str, row)) for row in database.execute(statements))
