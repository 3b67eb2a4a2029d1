"""Whether a store holds what was accepted: the database looked over, every digest taken anew, every batch put together. SPEC 6.

Nothing is trusted that can be computed: the digest, slot and order of each record, which record of a slot was first, what each
batch's envelope states, and the Merkle root over its records. Whose signatures they are is for `verify`, which has the keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from assay.errors import BadInput
from assay.ledger.batch import root_of, stated
from assay.ledger.check import Refused
from assay.ledger.store import Damaged, KeptBatch, Row, Store
from assay.ledger.store.slots import Candidate, same, slot_of
from assay.records import Evidence, record

__all__ = ["Audited", "audit"]

SIZE = 32
"""Bytes of a digest."""


@dataclass(frozen=True)
class Audited:
    """How much was looked at."""

    records: int
    batches: int
    conflicts: int


def audit(store: Store) -> Audited:
    """Look at everything; raises Damaged, which names the first thing that is wrong, and StoreError."""
    store.check_integrity()
    digests = bytearray()
    flagged = 0
    try:
        with store.reading() as view:
            batches = {one.id: one for one in view.batches()}
            for one in view.rows():
                _expect(f"the number of record {one.seq}", len(digests) // SIZE + 1, one.seq)
                _check_record(one, batches)
                flagged += one.conflict
                digests += one.digest
            for number, found in enumerate(batches.values(), start=1):
                _expect(f"the number of batch {found.id}", number, found.id)
                _check_batch(found, digests)
            new = (one.last_seq - one.first_seq + 1 for one in batches.values() if one.first_seq and one.last_seq)
            _expect("the count of records", sum(new), len(digests) // SIZE)
            _expect("the count of conflicts", sum(map(_conflicts, view.contested())), flagged)
    except Damaged as error:
        error.at(file=store.name)
        raise
    return Audited(len(digests) // SIZE, len(batches), flagged)


def _expect(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise Damaged(
            f"{what} is not what it was: {expected} was expected, {found} is there",
            hint="restore the database from a copy; nothing is settled over it",
        )


def _check_record(one: Row, batches: Mapping[int, KeptBatch]) -> None:
    name = f"record {one.seq}"
    _expect(f"the form of {name}", (bytes, bytes, bytes), (type(one.digest), type(one.slot), type(one.body)))
    _expect(f"the digest of {name}", sha256(one.body).hexdigest(), one.digest.hex())
    parsed, home = _parsed(one.body, name), batches[one.batch]
    _expect(f"the slot of {name}", slot_of(parsed).hex(), one.slot.hex())
    _expect(f"the epoch of {name}", (parsed.epoch, parsed.epoch), (one.epoch, home.epoch))
    _expect(f"the validator of {name}", parsed.validator, home.validator)
    _expect(f"the batch of {name}", True, (home.first_seq or 0) <= one.seq <= (home.last_seq or 0))


def _parsed(body: bytes, name: str) -> Evidence:
    try:
        return record(json.loads(body))
    except (BadInput, ValueError) as error:
        raise Damaged(f"{name} is no record of evidence ({error})", hint="restore the database from a copy") from None


def _check_batch(found: KeptBatch, digests: bytearray) -> None:
    name = f"batch {found.id}"
    _expect(f"the form of {name}", bytes, type(found.envelope))
    try:
        payload, said = stated(found.envelope)
    except Refused as error:
        raise Damaged(f"the envelope of {name} is none ({error})", hint="restore the database from a copy") from None
    _expect(f"the digest of {name}", f"sha256:{sha256(payload).hexdigest()}", found.digest)
    columns = (found.validator, found.epoch, found.count, found.root)
    _expect(f"what {name} states", (said.validator, said.epoch, said.count, said.root), columns)
    members = sorted(
        bytes(digests[SIZE * (seq - 1) : SIZE * seq]) for first, last in found.members for seq in range(first, last + 1)
    )
    _expect(f"the count of {name}", said.count, len(members))
    _expect(f"the root of {name}", said.root, root_of(members))


def _conflicts(rows: Sequence[Row]) -> int:
    """How many of the records with the same 16 bytes, in order of acceptance, differ from the first of their slot."""
    for number, one in enumerate(rows):
        parsed = record(json.loads(one.body))
        first = same(parsed, [Candidate(row.seq, row.digest, row.body) for row in rows[:number]])
        _expect(f"the flag of record {one.seq}", first is not None and first.content != parsed.content, one.conflict)
    return sum(one.conflict for one in rows)
