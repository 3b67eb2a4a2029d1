"""The store: everything that was accepted and settled, append-only, in SQLite or PostgreSQL. SPEC 3.0, 6.

    with store.open("ledger.db") as ledger:
        with ledger.writing() as tx:
            tx.add_batch(batch)
        with ledger.reading() as view:
            for seq, digest, body in view.records(first_epoch=12, last_epoch=12):
                ...

One writer at a time, any number of readers, each with a snapshot of its own. What a block wrote is durable when it ends; if it
raises, nothing of it is kept.
"""

from assay.ledger.batch import StoredRecord
from assay.ledger.store.engine import (
    Busy,
    Damaged,
    Elsewhere,
    Forbidden,
    Full,
    NotALedger,
    OtherVersion,
    ReadOnly,
    StoreError,
    Unreachable,
    shown,
)
from assay.ledger.store.store import Store, create, fill, migrate, open
from assay.ledger.store.tables import Accepted, Conflict, Meta, Receipt, RecordRow, Settled, StoredBatch, Submission
from assay.ledger.store.view import View, Writer

__all__ = [
    "Accepted",
    "Busy",
    "Conflict",
    "Damaged",
    "Elsewhere",
    "Forbidden",
    "Full",
    "Meta",
    "NotALedger",
    "OtherVersion",
    "ReadOnly",
    "Receipt",
    "RecordRow",
    "Settled",
    "Store",
    "StoreError",
    "StoredBatch",
    "StoredRecord",
    "Submission",
    "Unreachable",
    "View",
    "Writer",
    "create",
    "fill",
    "migrate",
    "open",
    "shown",
]
