"""Whether a store holds what was accepted: the database looked over, every digest taken anew, every batch put together. SPEC 6.

Nothing is trusted that can be computed: the digest, slot and order of each record, which record of a slot was first, what each
batch's envelope states, and the Merkle root over its records; then each receipt, up to the log. Whose signatures the batches
carry, `assay.ledger.counting` says: what its validator did not sign is set aside.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain

from assay.errors import BadInput
from assay.exact import digest
from assay.ledger import check, evidence
from assay.ledger.access import Ledger
from assay.ledger.check import CheckError, LogKey
from assay.ledger.counting import CountedView, check_members, check_row, expect
from assay.ledger.statements import receipt_file
from assay.ledger.store import Damaged, RecordRow, Store, StoredBatch, StoredReceipt, View
from assay.ledger.store.engine import RESTORE
from assay.ledger.store.tables import Candidate, contradictions, first_of_slot, slot_of
from assay.records import Evidence, record

__all__ = ["Audited", "audit", "audit_receipts"]

SIZE = 32
"""Bytes of a digest."""


@dataclass(frozen=True)
class Audited:
    """How much was looked at."""

    records: int
    batches: int
    conflicts: int


def audit(store: Store, key: LogKey | None = None) -> Audited:
    """Look at everything; raises Damaged, which names the first thing that is wrong, and StoreError.

    key: the log's. With it, what does not count is left out: whoever may insert can put anything beside the ledger's own.
    """
    store.check_integrity()
    seqs, digests = array("q"), bytearray()
    flagged = conflicts = 0
    try:
        with store.reading() as whole:
            view = whole if key is None else CountedView(whole, key)
            aside = {one.batch.id for one in view.aside} if isinstance(view, CountedView) else set[int]()
            batches = {one.id: one for one in view.batches()}
            brought = _brought(batches.values())
            expected = chain.from_iterable(brought)
            for one in view.rows():
                _check_record(one, batches)
                expect(f"the number of record {one.seq}", next(expected, None), one.seq)
                flagged += one.conflict
                seqs.append(one.seq)
                digests += one.digest
            for number, identity in enumerate(sorted({*batches, *aside}), start=1):
                expect(f"the number of batch {identity}", number, identity)
            for found in batches.values():
                _check_batch(found, seqs, digests)
            expect("the count of records", sum(one.stop - one.start for one in brought), len(seqs))
            for rows in view.contested():
                flagged -= _check_flags(rows)
                conflicts += sum(1 for _ in contradictions(rows))
            expect("the count of conflicts", 0, flagged)
            for target in view.targets():
                view.attempts(target)
    except Damaged as error:
        error.at(file=store.name)
        raise
    return Audited(len(seqs), len(batches), conflicts)


def _brought(batches: Iterable[StoredBatch]) -> list[range]:
    """The seqs of the records that were new with a batch: from 1 without a gap, but where not all epochs were imported yet."""
    ends = ((one.first_seq, one.last_seq) for one in batches)
    return sorted((range(first, last + 1) for first, last in ends if first and last), key=lambda one: one.start)


def audit_receipts(ledger: Ledger) -> int:
    """Look at every tile of the log, and every receipt: who signed it, its place in the log, all that it states; how many.

    Raises Damaged for the first that is wrong, BadInput for a tile, and StoreError. Nothing is settled again: that is `replay`.
    """
    ledger.log.check()
    count, before = 0, None
    try:
        with ledger.counted() as view:
            for one in view.receipts():
                expect(f"the place of the receipt of epoch {one.epoch}", count, one.position)
                _check_receipt(ledger, view, one, before)
                count, before = count + 1, one
    except Damaged as error:
        error.at(file=ledger.store.name)
        raise
    return count


def _check_receipt(ledger: Ledger, view: View, one: StoredReceipt, before: StoredReceipt | None) -> None:
    name = f"epoch {one.epoch}"
    proof = ledger.log.inclusion(one.position, one.position + 1)
    try:
        found = check.Receipt.parse(receipt_file(one.envelope, proof, one.checkpoint))
        check.check_receipt(found, [ledger.key])
    except (CheckError, TypeError, ValueError) as error:
        raise Damaged(f"the receipt of {name} is not whole ({error})", hint=RESTORE) from None
    said, settled = found.predicate, view.settlement(one.epoch)
    inputs = None if settled is None else view.inputs(settled.inputs)
    if settled is None or inputs is None:
        raise Damaged(f"{name} has a receipt, and what it was settled from or to is gone", hint=RESTORE)
    expect(f"the receipt of {name}", (one.epoch, f"sha256:{found.digest.hex()}"), (said["epoch"], one.digest))
    expect(
        f"the settlement of {name}",
        (said["settlement"], said["settlement"]),
        (settled.digest, _settlement_digest(settled.document)),
    )
    previous = None if before is None else {"epoch": before.epoch, "receipt": before.digest}
    expect(f"the receipt before {name}", said["previous"], previous)
    rows = [(seq, digest) for seq, digest, _ in view.records(0 if before is None else before.epoch + 1, one.epoch)]
    bound = {"root": evidence.evidence_root([seq for seq, _ in rows], [digest for _, digest in rows]), "count": len(rows)}
    expect(f"the evidence of {name}", said["evidence"], bound)
    expect(f"the inputs of {name}", (said["inputs"], said["inputs"]), (settled.inputs, f"sha256:{sha256(inputs).hexdigest()}"))
    expect(f"the registry of {name}", said.get("registry"), json.loads(inputs).get("registry"))


def _settlement_digest(document: bytes) -> object:
    """The digest of a settlement document, taken anew; None if it is none."""
    try:
        content = json.loads(document)
        content.pop("digest")
        return digest(content)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _check_record(one: RecordRow, batches: Mapping[int, StoredBatch]) -> None:
    name = f"record {one.seq}"
    expect(f"the form of {name}", (bytes, bytes, bytes), (type(one.digest), type(one.slot), type(one.body)))
    expect(f"the digest of {name}", sha256(one.body).hexdigest(), one.digest.hex())
    parsed, home = _parsed(one.body, name), batches[one.batch]
    expect(f"the slot of {name}", slot_of(parsed).hex(), one.slot.hex())
    expect(f"the epoch of {name}", (parsed.epoch, parsed.epoch), (one.epoch, home.epoch))
    expect(f"the validator of {name}", parsed.validator, home.validator)
    expect(f"the batch of {name}", True, (home.first_seq or 0) <= one.seq <= (home.last_seq or 0))


def _parsed(body: bytes, name: str) -> Evidence:
    try:
        return record(json.loads(body))
    except (BadInput, ValueError) as error:
        raise Damaged(f"{name} is no record of evidence ({error})", hint=RESTORE) from None


def _check_batch(found: StoredBatch, seqs: Sequence[int], digests: bytearray) -> None:
    said = check_row(found)
    members: list[bytes] = []
    for first, last in found.members:
        begin, end = bisect_left(seqs, first), bisect_right(seqs, last)
        members += (bytes(digests[SIZE * at : SIZE * (at + 1)]) for at in range(begin, end))
    check_members(found, said, members)


def _check_flags(rows: Sequence[RecordRow]) -> int:
    """How many of the records with the same 16 bytes are flagged: those that differ from the first that was there of their slot.

    They came in the order of their batches, which is another than that of their seqs where epochs were imported.
    """
    there: list[RecordRow] = []
    for one in sorted(rows, key=lambda row: (row.batch, row.seq)):
        parsed = _parsed(one.body, f"record {one.seq}")
        first = first_of_slot(
            parsed, [Candidate(row.seq, row.digest, row.body, row.batch) for row in sorted(there, key=lambda row: row.seq)]
        )
        expect(f"the flag of record {one.seq}", first is not None and first.content != parsed.content, one.conflict)
        there.append(one)
    return sum(one.conflict for one in rows)
