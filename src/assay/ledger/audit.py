"""Check that a ledger still holds what was accepted: every digest, every batch, every receipt up to the log. SPEC 6.

Everything that can be computed is computed again: the digest, slot and order of each record, which record of a slot was first,
the statement in each batch's envelope, and the Merkle root over its records; then each receipt, up to the log.
`assay.ledger.counting` checks the signatures of batches, and sets aside those that their validators did not sign.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain

from assay.errors import BadInput
from assay.exact import digest
from assay.ledger import check, evidence, standing
from assay.ledger.access import Ledger, stored_settlement
from assay.ledger.batch import slot_of
from assay.ledger.check import CheckError, LogKey
from assay.ledger.counting import CountedView, check_members, check_row, expect
from assay.ledger.statements import receipt_file
from assay.ledger.store import Damaged, RecordRow, Store, StoredBatch, StoredReceipt, View, archives
from assay.ledger.store.engine import RESTORE
from assay.ledger.store.slots import Candidate, contradicts
from assay.records import Evidence, record

__all__ = ["Audited", "audit", "audit_receipts", "audit_standing"]

SIZE = 32
"""Bytes of a digest."""


@dataclass(frozen=True)
class Audited:
    """The number of records, batches and conflicts that were checked."""

    records: int
    batches: int
    conflicts: int
    archived: int = 0
    """Records whose bodies are in archives, and were not read."""


def audit(store: Store, key: LogKey | None = None, *, deep: bool = False) -> Audited:
    """Check the whole database; raises Damaged, which names the first thing that is wrong, and StoreError.

    deep: bodies that are in archives are read there, and checked too. key: the log's. With it, batches that do not count are left
    out: whoever may insert can put anything beside the ledger's own.
    """
    store.check_integrity()
    seqs, digests = array("q"), bytearray()
    flagged = away = 0
    try:
        with store.reading() as whole:
            view = whole if key is None else CountedView(whole, key)
            aside = {entry.batch.id for entry in view.aside} if isinstance(view, CountedView) else set[int]()
            batches = {batch.id: batch for batch in view.batches()}
            brought = _brought(batches.values())
            expected = chain.from_iterable(brought)
            dropped = _dropped(view)
            for row in view.rows():
                if not row.body and deep:
                    row = view.filled(row)
                if row.body or row.epoch not in dropped:
                    _check_record(row, batches)
                else:
                    away += 1
                expect(f"the number of record {row.seq}", next(expected, None), row.seq)
                flagged += row.conflict
                seqs.append(row.seq)
                digests += row.digest
            for number, identity in enumerate(sorted({*batches, *aside}), start=1):
                expect(f"the number of batch {identity}", number, identity)
            for batch in batches.values():
                _check_batch(batch, seqs, digests)
            expect("the count of records", sum(span.stop - span.start for span in brought), len(seqs))
            for rows in view.contested():
                flagged -= _check_flags([view.filled(row) if deep else row for row in rows], dropped)
            expect("the count of conflicts", 0, flagged)
            conflicts = sum(view.conflicting().values())
            for target in view.targets():
                view.attempts(target)
    except Damaged as error:
        error.at(file=store.name)
        raise
    return Audited(len(seqs), len(batches), conflicts, away)


def _dropped(view: View) -> set[int]:
    """The epochs whose records are in archives; raises Damaged for a row about them that does not fit its receipt."""
    epochs, before = set[int](), {receipt.epoch: receipt for receipt in view.receipts()}
    ends = sorted(before)
    for entry in archives.entries(view._connection):
        at = ends.index(entry.epoch) if entry.epoch in before else 0
        receipt = before.get(entry.epoch)
        first = ends[at - 1] + 1 if at else 0
        expect(f"the receipt of the archived epoch {entry.epoch}", entry.receipt, None if receipt is None else receipt.digest)
        expect(f"the first epoch in the archive of epoch {entry.epoch}", first, entry.first)
        epochs |= {epoch for epoch in view.epochs() if entry.first <= epoch <= entry.epoch}
    return epochs


def _brought(batches: Iterable[StoredBatch]) -> list[range]:
    """The seqs of the records that each batch brought: from 1 without a gap, unless some epochs are not imported yet."""
    ends = ((batch.first_seq, batch.last_seq) for batch in batches)
    return sorted((range(first, last + 1) for first, last in ends if first and last), key=lambda seqs: seqs.start)


def audit_receipts(ledger: Ledger) -> int:
    """Check every tile of the log and every receipt: its signature, its place in the log, its statement. Returns how many.

    Raises Damaged for the first that is wrong, BadInput for a tile, and StoreError. Nothing is settled again: `replay` does that.
    """
    ledger.log.check()
    count, before = 0, None
    try:
        with ledger.counted() as view:
            for receipt in view.receipts():
                expect(f"the place of the receipt of epoch {receipt.epoch}", count, receipt.position)
                _check_receipt(ledger, view, receipt, before)
                count, before = count + 1, receipt
            _check_witnessed(ledger, view)
    except Damaged as error:
        error.at(file=ledger.store.name)
        raise
    return count


def audit_standing(ledger: Ledger, *, deep: bool = False) -> int | None:
    """Compare what is stored about closed epochs with the evidence; returns how many rows there are.

    None: they were not compared. They are not if they are not used, and if records are in archives, unless `deep`.

    Raises Damaged for a row that is wrong, and StoreError.
    """
    try:
        with ledger.counted() as view:
            there = standing.stored(view)
            if there is None or (archives.entries(view._connection) and not deep):
                return None
            epoch, rows = there
            document = json.loads(stored_settlement(view, epoch)[1])
            expected = standing.fresh(view, document, epoch).documents()
            for about in sorted({*rows, *expected}):
                if rows.get(about) != expected.get(about):
                    what = f"what is stored about {about!r} does not follow from the evidence of epochs up to {epoch}"
                    raise Damaged(what, hint=standing.REBUILD)
            return len(rows)
    except Damaged as error:
        error.at(file=ledger.store.name)
        raise


def _check_witnessed(ledger: Ledger, view: View) -> None:
    """Raise Damaged for a cosigned checkpoint that is not one of the log."""
    cosigned = view.witnessed(0)
    while cosigned is not None:
        name = f"the cosigned checkpoint of {cosigned.size} receipts"
        try:
            note = cosigned.checkpoint if type(cosigned.checkpoint) is bytes else b""
            parsed = check.check_checkpoint(note, [ledger.key])
            expect(name, (parsed.size, parsed.root), (cosigned.size, ledger.log.root(cosigned.size)))
        except (CheckError, ValueError) as error:
            raise Damaged(f"{name} is damaged ({error})", hint=RESTORE) from None
        cosigned = view.witnessed(cosigned.size + 1)


def _check_receipt(ledger: Ledger, view: View, receipt: StoredReceipt, before: StoredReceipt | None) -> None:
    name = f"epoch {receipt.epoch}"
    proof = ledger.log.inclusion(receipt.position, receipt.position + 1)
    try:
        parsed = check.Receipt.parse(receipt_file(receipt.envelope, proof, receipt.checkpoint))
        check.check_receipt(parsed, [ledger.key])
    except (CheckError, TypeError, ValueError) as error:
        raise Damaged(f"the receipt of {name} is damaged ({error})", hint=RESTORE) from None
    predicate, settled = parsed.predicate, view.settlement(receipt.epoch)
    inputs = None if settled is None else view.inputs(settled.inputs)
    if settled is None or inputs is None:
        raise Damaged(f"{name} has a receipt, but its settlement or its inputs are gone", hint=RESTORE)
    expect(f"the receipt of {name}", (receipt.epoch, f"sha256:{parsed.digest.hex()}"), (predicate["epoch"], receipt.digest))
    expect(
        f"the settlement of {name}",
        (predicate["settlement"], predicate["settlement"]),
        (settled.digest, _settlement_digest(settled.document)),
    )
    previous = None if before is None else {"epoch": before.epoch, "receipt": before.digest}
    expect(f"the receipt before {name}", predicate["previous"], previous)
    rows = list(view.pairs(0 if before is None else before.epoch + 1, receipt.epoch))
    bound = {"root": evidence.evidence_root([seq for seq, _ in rows], [digest for _, digest in rows]), "count": len(rows)}
    expect(f"the evidence of {name}", predicate["evidence"], bound)
    expect(
        f"the inputs of {name}",
        (predicate["inputs"], predicate["inputs"]),
        (settled.inputs, f"sha256:{sha256(inputs).hexdigest()}"),
    )
    expect(f"the registry of {name}", predicate.get("registry"), json.loads(inputs).get("registry"))


def _settlement_digest(document: bytes) -> object:
    """The digest of a settlement document, computed again; None if it is not such a document."""
    try:
        content = json.loads(document)
        content.pop("digest")
        return digest(content)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _check_record(row: RecordRow, batches: Mapping[int, StoredBatch]) -> None:
    name = f"record {row.seq}"
    expect(f"the form of {name}", (bytes, bytes, bytes), (type(row.digest), type(row.slot), type(row.body)))
    expect(f"the digest of {name}", sha256(row.body).hexdigest(), row.digest.hex())
    parsed, home = _parsed(row.body, name), batches[row.batch]
    expect(f"the slot of {name}", slot_of(parsed).hex(), row.slot.hex())
    expect(f"the epoch of {name}", (parsed.epoch, parsed.epoch), (row.epoch, home.epoch))
    expect(f"the validator of {name}", parsed.validator, home.validator)
    expect(f"the batch of {name}", True, (home.first_seq or 0) <= row.seq <= (home.last_seq or 0))


def _parsed(body: bytes, name: str) -> Evidence:
    try:
        return record(json.loads(body))
    except (BadInput, ValueError) as error:
        raise Damaged(f"{name} is not a record of evidence ({error})", hint=RESTORE) from None


def _check_batch(batch: StoredBatch, seqs: Sequence[int], digests: bytearray) -> None:
    statement = check_row(batch)
    members: list[bytes] = []
    for first, last in batch.members:
        begin, end = bisect_left(seqs, first), bisect_right(seqs, last)
        members += (bytes(digests[SIZE * at : SIZE * (at + 1)]) for at in range(begin, end))
    check_members(batch, statement, members)


def _check_flags(rows: Sequence[RecordRow], dropped: Collection[int]) -> int:
    """The number of flagged records among those with the same 16 slot bytes: those that differ from the first one of their slot.

    They came in the order of their batches. That order is not the one of their seqs where epochs were imported.
    """
    earlier: list[RecordRow] = []
    for current in sorted(rows, key=lambda row: (row.batch, row.seq)):
        if current.body or current.epoch not in dropped:  # without its body, nothing can be said of an archived one
            parsed = _parsed(current.body, f"record {current.seq}")
            stored = [Candidate(row.seq, row.digest, row.body, row.batch) for row in sorted(earlier, key=lambda row: row.seq)]
            expect(f"the flag of record {current.seq}", contradicts(parsed, stored) is True, current.conflict)
        earlier.append(current)
    return sum(row.conflict for row in rows)
