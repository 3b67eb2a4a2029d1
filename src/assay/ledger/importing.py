"""An exported epoch into another copy of its ledger: the same records and seqs, the same receipt, the same log. SPEC 6.

The bundle is verified first, whole. Epochs are imported in their order, since each receipt names the one before.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.places import Place
from assay.folder.text import load
from assay.ledger import batch, bundle, check, evidence, inputs, lines
from assay.ledger.batch import Batch
from assay.ledger.check import RECEIPT_BYTES
from assay.ledger.opened import Ledger
from assay.ledger.store import Receipt, Settled, Writer
from assay.ledger.verify import batches, verify
from assay.ledger.verify.material import document

__all__ = ["Imported", "import_bundle"]


@dataclass(frozen=True)
class Imported:
    """What an import added; nothing, if the epoch was there already, which `new` says: an epoch may have no new evidence."""

    epoch: int
    records: int
    batches: int
    new: bool = True


def import_bundle(ledger: Ledger, source: Path) -> Imported:
    """Add the last epoch of a bundle to a ledger that has all before it; what is there already adds nothing.

    Raises Refused if the bundle does not verify by the log's key, BadInput if it does not go on from what the ledger has, and
    StoreError.
    """
    verify(source, key=str(ledger.key))
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
            return Imported(epoch, 0, 0, new=False)
        if len(known) < len(receipts) - 1:
            what = f"the ledger has {len(known)} of the {len(receipts) - 1} epochs before it"
            raise BadInput(what, file=source, hint="import the epochs before it first, the earliest before the others")
        first = known[-1].epoch + 1 if known else 0
        bodies = _bodies(source, epoch)
        _check_free(tx, first, epoch, bodies, source)
        count = _add_batches(tx, source, bodies)
        settled, document_of_inputs = document(source / bundle.SETTLEMENT), document(source / bundle.INPUTS)
        row = Settled(epoch, settled["digest"], inputs.digest_of(document_of_inputs), canonical(settled))
        envelope = canonical(json.loads(paths[-1].read_bytes())["envelope"])
        last = receipts[-1]
        made = Receipt(epoch, last.proof.index, f"sha256:{last.digest.hex()}", envelope, last.proof.checkpoint)
        tx.add_settled(row, canonical(document_of_inputs), made)
    ledger.bring_up()
    return Imported(epoch, len(bodies), count)


def _bodies(source: Path, epoch: int) -> dict[int, bytes]:
    """The records of the last receipt, by seq."""
    path = evidence.files(source / bundle.EVIDENCE)[epoch]
    return {seq: body for part in evidence.parts(path) for seq, body in zip(part.seqs, part.bodies, strict=True)}


def _check_free(tx: Writer, first: int, epoch: int, bodies: dict[int, bytes], source: Path) -> None:
    """Refuse to mix the bundle's evidence with other evidence that the ledger took in itself."""
    taken = [one.seq for one in tx.records(first) if one.seq in bodies]
    if taken or tx.count(first, epoch):
        what = f"the ledger has evidence of its own of epoch {epoch} or before, or under the same seqs"
        raise BadInput(what, file=source, hint="import into a copy of the ledger that takes no evidence in itself")


def _add_batches(tx: Writer, source: Path, bodies: dict[int, bytes]) -> int:
    """Keep the batches that are not there yet, in their order; how many there were."""
    count = 0
    path = source / bundle.BATCHES
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            envelope, members = batches.split(line, Place(path, number))
            payload, said = batch.stated(envelope)
            seqs = [seq for first, last in members for seq in range(first, last + 1)]
            if not all(seq in bodies for seq in seqs):
                continue
            rows = sorted((hashlib.sha256(bodies[seq]).digest(), bodies[seq], seq) for seq in seqs)
            found = tuple(body for _, body, _ in rows)
            records = tuple(lines.read(found, said.kind, path, number))
            one = Batch(envelope, payload, said, records, found, tuple(digest for digest, _, _ in rows))
            tx.add_batch(one, [seq for _, _, seq in rows])
            count += 1
    return count
