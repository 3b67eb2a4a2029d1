"""Make a participant's own proof, and import an exported epoch into another copy of its ledger. SPEC 6.

A proof has the participant's result, the records that it rests on, and the proofs that both are under receipts in the log. Of
other participants it has only hashes, so the participant can show it to anybody, and anybody can check it with `assay verify`.

An imported epoch gives the same records and seqs, the same receipt and the same log, and the audits that its bundle carries. Its
bundle is verified completely first. Epochs are imported in their order, because each receipt names the one before.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.files import Place, load
from assay.ledger import audit_log, batch, bundle, check, eligible, evidence, settling, standing
from assay.ledger.access import Ledger, receipt_version, stored_settlement
from assay.ledger.audit_log import SignedAudit
from assay.ledger.batch import Batch
from assay.ledger.check import RECEIPT_BYTES
from assay.ledger.merkle import Tree
from assay.ledger.statements import proof_document, results, results_tree
from assay.ledger.store import StoredReceipt, StoredRecord, StoredSettlement, View, Writer
from assay.ledger.verify import report, verify
from assay.ledger.verify.report import read_document
from assay.records import Participant

Json = dict[str, Any]


def proof_for(ledger: Ledger, participant: str, epoch: int | None = None) -> Json:
    """The proof of a participant's result in an epoch (None: the last settled).

    Raises BadInput for a participant who is not in it, and CannotSettle.
    """
    with ledger.counted() as view:
        last = view.last_receipt() if epoch is None else None
        receipt = ledger.receipt(last.epoch if last is not None else epoch or 0)
        settled, inputs = stored_settlement(view, receipt.epoch)
        settlement, document = json.loads(settled.document), json.loads(inputs)
        bound = None
        if receipt_version(receipt) > 1:
            standing_evidence = standing.find(view, document, receipt.epoch)
            bound = settling.rests(view, document, settlement, standing_evidence)
        rows = results(settlement, bound)
        at = next((index for index, row in enumerate(rows) if row["participant"] == participant), None)
        if at is None:
            what = f"there is no participant {participant[:80]!r} in the settlement of epoch {receipt.epoch}"
            raise BadInput(what, hint="give the whole key")
        receipts = [earlier for earlier in view.receipts() if earlier.position <= receipt.position]
        about = list(settling.about(view, document, settlement, participant))
        proofs = _batch_proofs(view, receipts, about)
    used = {place for place, _, _, _ in proofs} - {receipt.epoch}
    others = [ledger.document(earlier, receipt) for earlier in receipts if earlier.epoch in used]
    return proof_document(ledger.document(receipt), rows[at], results_tree(rows).inclusion(at), proofs, others)


def _batch_proofs(
    view: View, receipts: list[StoredReceipt], about: list[tuple[int, StoredRecord]]
) -> list[tuple[int, int, bytes, Any]]:
    """(epoch of its receipt, seq, record, proof under the evidence root) of each record."""
    proofs, first = [], 0
    for receipt in receipts:
        mine = [row for epoch, row in about if first <= epoch <= receipt.epoch]
        if mine:
            pairs = list(view.pairs(first, receipt.epoch))
            tree = Tree([evidence.evidence_leaf(*pair) for pair in pairs])
            places = {seq: at for at, (seq, _) in enumerate(pairs)}
            proofs += [(receipt.epoch, row.seq, row.body, tree.inclusion(places[row.seq])) for row in mine]
        first = receipt.epoch + 1
    return proofs


def participants_of(ledger: Ledger, epoch: int) -> list[Participant]:
    """The participants of a settled epoch, key and name, as its inputs have them; raises CannotSettle if it is not settled."""
    ledger.receipt(epoch)
    with ledger.store.reading() as view:
        inputs = json.loads(stored_settlement(view, epoch)[1])
    return [Participant(key=row["key"], name=row.get("name", "")) for row in inputs["participants"]]


@dataclass(frozen=True)
class ImportedEpoch:
    """The counts of an import. `new`: the epoch was not there before; a new epoch may also have no new evidence."""

    epoch: int
    records: int
    batches: int
    new: bool = True
    audits: tuple[SignedAudit, ...] = ()
    """The audits that the ledger did not have. There may be some although it has the epoch."""


def import_bundle(ledger: Ledger, source: Path) -> ImportedEpoch:
    """Add the last epoch of a bundle, and its audits, to a ledger that has all epochs before it; what is there adds nothing.

    Raises Refused if the bundle does not verify by the log's key, BadInput if it does not continue what the ledger has, and
    StoreError.
    """
    verify(source, key=str(ledger.key))
    imported = _import_epoch(ledger, source)
    return replace(imported, audits=tuple(audit_log.take_in(ledger.folder, source / bundle.AUDITS)))


def _import_epoch(ledger: Ledger, source: Path) -> ImportedEpoch:
    paths = sorted((source / bundle.RECEIPTS).iterdir(), key=lambda path: int(path.name[6:-8]))
    receipts = [check.Receipt.parse(load(path, RECEIPT_BYTES, hint="")) for path in paths]
    stated = receipts[-1].predicate
    epoch = stated["epoch"]
    with ledger.store.writing() as tx:
        known = list(tx.receipts())
        for mine, theirs in zip(known, receipts, strict=False):
            if mine.digest != f"sha256:{theirs.digest.hex()}":
                what = f"its receipt of epoch {theirs.predicate['epoch']} is not the ledger's"
                raise BadInput(what, file=source, hint="it is an export of another ledger")
        if len(known) >= len(receipts):
            return ImportedEpoch(epoch, 0, 0, new=False)
        if len(known) < len(receipts) - 1:
            what = f"the ledger has {len(known)} of the {len(receipts) - 1} epochs before it"
            raise BadInput(what, file=source, hint="import the epochs before it first, the earliest before the others")
        first = known[-1].epoch + 1 if known else 0
        bodies = _bodies(source, epoch)
        _check_free(tx, first, epoch, bodies, source)
        count = _add_batches(tx, source, bodies)
        settled, document_of_inputs = read_document(source / bundle.SETTLEMENT), read_document(source / bundle.INPUTS)
        row = StoredSettlement(epoch, settled["digest"], eligible.inputs_digest(document_of_inputs), canonical(settled))
        envelope = canonical(json.loads(paths[-1].read_bytes())["envelope"])
        last = receipts[-1]
        receipt = StoredReceipt(epoch, last.proof.index, f"sha256:{last.digest.hex()}", envelope, last.proof.checkpoint)
        tx.add_settled(row, canonical(document_of_inputs), receipt)
    ledger.bring_up()
    return ImportedEpoch(epoch, len(bodies), count)


def _bodies(source: Path, epoch: int) -> dict[int, bytes]:
    """The records of the last receipt, by seq."""
    path = evidence.evidence_files(source / bundle.EVIDENCE)[epoch]
    return {seq: body for part in evidence.evidence_parts(path) for seq, body in zip(part.seqs, part.bodies, strict=True)}


def _check_free(tx: Writer, first: int, epoch: int, bodies: dict[int, bytes], source: Path) -> None:
    """Raise BadInput if the bundle's evidence would mix with evidence that the ledger accepted itself."""
    taken = [seq for seq, _ in tx.pairs(first) if seq in bodies]
    if taken or tx.count(first, epoch):
        what = f"the ledger has evidence of its own of epoch {epoch} or before, or under the same seqs"
        raise BadInput(what, file=source, hint="import into a copy of the ledger that accepts no evidence itself")


def _add_batches(tx: Writer, source: Path, bodies: dict[int, bytes]) -> int:
    """Store the batches that are not there yet, in their order; returns how many."""
    count = 0
    path = source / bundle.BATCHES
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            envelope, members = report.split_batch_line(line, Place(path, number))
            signed, statement = batch.stated(envelope)
            seqs = [seq for first, last in members for seq in range(first, last + 1)]
            if not all(seq in bodies for seq in seqs):
                continue
            rows = sorted((hashlib.sha256(bodies[seq]).digest(), bodies[seq], seq) for seq in seqs)
            digests, ordered = tuple(digest for digest, _, _ in rows), tuple(body for _, body, _ in rows)
            columns = batch.read_columns(ordered, statement.kind, path, number)
            imported = Batch(envelope, signed, statement, ordered, digests, columns)
            tx.add_batch(imported, [seq for _, _, seq in rows])
            count += 1
    return count
