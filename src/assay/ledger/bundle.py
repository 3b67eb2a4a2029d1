"""Export a settled epoch as a bundle: files with which anyone can derive the settlement again and check every signature. SPEC 6.

    inputs.json               the inputs document: all that the settlement needs beside the evidence
    previous.json             the settlement before, if there is one
    settlement.json
    evidence/epoch-N.jsonl    the records of each receipt, with their seq; or .parquet
    batches.jsonl             the signed envelope of each batch, and the seqs of its records
    receipts/epoch-N.receipt  every receipt up to this one
    log/                      checkpoint and tiles, as they were with this receipt
    audits/                   not from the database: the signed audits of this epoch, and those that the inputs mark

A bundle depends only on the database and on the audits: two exports of an epoch are the same, unless its checkpoint was cosigned
or the epoch audited between them. It is written to a temporary folder, flushed to the disk and renamed: it is complete, or not
there at all.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.files import new_folder, write_bytes
from assay.kind import find
from assay.ledger import check, evidence, log, statements
from assay.ledger.merkle import Tree

if TYPE_CHECKING:
    from assay.ledger.access import Ledger
    from assay.ledger.store import StoredReceipt, View

__all__ = [
    "AUDITS",
    "BATCHES",
    "COMPETITIONS",
    "EARLIER",
    "EMISSION",
    "EVIDENCE",
    "INPUTS",
    "LOG",
    "PREVIOUS",
    "RECEIPTS",
    "SETTLEMENT",
    "SPLIT",
    "carry_audits",
    "export",
    "log_files",
    "receipt_now",
    "write_epoch",
]

INPUTS, PREVIOUS, SETTLEMENT, BATCHES = "inputs.json", "previous.json", "settlement.json", "batches.jsonl"
EVIDENCE, RECEIPTS, LOG, AUDITS = "evidence", "receipts", "log", "audits"
SPLIT, EARLIER, COMPETITIONS = "emission.receipt", "earlier.jsonl", "competitions"
"""Files of a subnet's export: see `assay.ledger.subnet_bundle`."""
EMISSION = "emission.json"
"""The file by which a subnet's export of an earlier version is recognised; nobody signed those."""


def export(ledger: Ledger, epoch: int, target: Path, *, as_parquet: bool = False) -> Path:
    """Write the bundle of a settled epoch to a new folder, and return its path.

    Raises CannotSettle if the epoch is not settled; BadInput if the folder exists or cannot be written, or if Parquet is asked
    for and the evidence cannot be Parquet or the extra `bulk` is missing; StoreError.
    """
    last = ledger.receipt(epoch)
    if as_parquet:
        _check_parquet(ledger, last)
    with new_folder(target) as beside:
        (beside / EVIDENCE).mkdir()
        (beside / RECEIPTS).mkdir()
        with ledger.counted() as view:
            _write(view, last, beside, as_parquet=as_parquet)
        _put_audits(ledger, last, beside)
    return target


def carry_audits(ledger: Ledger, exported: Path) -> list[Path]:
    """Add to the bundles `epoch-N` in a folder the audits of these epochs that came after the export; return the new files."""
    new = []
    for audit in sorted((ledger.folder / AUDITS).glob("epoch-*-*.audit")):
        place = exported / audit.name.rpartition("-")[0]
        named = re.fullmatch(r"epoch-([0-9]{1,19})", place.name)
        if named and place.is_dir() and not (place / AUDITS / audit.name).exists():
            new += _put_audits(ledger, ledger.receipt(int(named[1])), place)
    return new


def _put_audits(ledger: Ledger, receipt: StoredReceipt, place: Path) -> list[Path]:
    """Write the audits that the bundle of an epoch carries, as far as they are not there, and return the new files."""
    from assay.ledger.access import stored_settlement
    from assay.ledger.audit_log import carried

    with ledger.store.reading() as view:
        inputs = stored_settlement(view, receipt.epoch)[1]
    new = []
    for name, data in carried(ledger.folder, receipt.digest, inputs).items():
        path = place / AUDITS / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_bytes(path, data)
            new.append(path)
    return new


def write_epoch(ledger: Ledger, last: StoredReceipt, place: Path, *, as_parquet: bool = False) -> None:
    """Write what an archive has of one settled epoch into an empty folder: only what is not of an earlier epoch.

    The names are those of a bundle, all in this folder: epoch-N.receipt, epoch-N.jsonl or .parquet, batches.jsonl, inputs.json,
    settlement.json. Raises as `export` does.
    """
    from assay.ledger.access import stored_settlement

    if as_parquet:
        _check_parquet(ledger, last)
    with ledger.counted() as view:
        receipts = [receipt for receipt in view.receipts() if receipt.position <= last.position]
        settled, inputs = stored_settlement(view, last.epoch)
        first = receipts[-2].epoch + 1 if len(receipts) > 1 else 0
        _put(place / SETTLEMENT, [settled.document, b"\n"])
        _put(place / INPUTS, [inputs, b"\n"])
        _put_evidence(view, place, last, first, as_parquet=as_parquet)
        _put(place / BATCHES, _lines(view, [last], first))
        _put_receipt(view, place, last, Tree([check.leaf_hash(_entry(receipt)) for receipt in receipts]))


def receipt_now(view: View, epoch: int) -> bytes:
    """The file of a settled epoch's receipt, proven in the first checkpoint with it that witnesses cosigned; else in its own."""
    from assay.ledger.access import proven_in

    receipt = view.receipt(epoch)
    assert receipt is not None
    then = proven_in(view, receipt)
    leaves = [check.leaf_hash(_entry(other)) for other in view.receipts() if other.position < then.size]
    return statements.receipt_file(receipt.envelope, Tree(leaves).inclusion(receipt.position, then.size), then.checkpoint)


def log_files(entries: list[bytes], checkpoint: bytes) -> dict[str, bytes]:
    """The files of a log with these entries and this checkpoint: path → bytes."""
    return {"checkpoint": checkpoint} | log.log_files(entries)


def _check_parquet(ledger: Ledger, last: StoredReceipt) -> None:
    from assay.ledger.access import stored_settlement  # not at the top: verifying needs the names above, but no database

    with ledger.store.reading() as view:
        kind = json.loads(stored_settlement(view, last.epoch)[1])["scheme"]["score"]["kind"]
    if not find(kind).in_bulk:
        raise BadInput(f"evidence of the kind {kind!r} cannot be Parquet", hint="leave out --parquet")
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise BadInput("Parquet is written with pyarrow, which is not installed", hint="pip install 'assay[bulk]'") from None


def _write(view: View, last: StoredReceipt, place: Path, *, as_parquet: bool) -> None:
    from assay.ledger.access import proven_in, stored_settlement

    receipts = [receipt for receipt in view.receipts() if receipt.position <= last.position]
    settled, inputs = stored_settlement(view, last.epoch)
    _put(place / SETTLEMENT, [settled.document, b"\n"])
    _put(place / INPUTS, [inputs, b"\n"])
    if len(receipts) > 1:
        _put(place / PREVIOUS, [stored_settlement(view, receipts[-2].epoch)[0].document, b"\n"])
    tree = Tree([check.leaf_hash(_entry(receipt)) for receipt in receipts])
    first = 0
    for receipt in receipts:
        _put_evidence(view, place / EVIDENCE, receipt, first, as_parquet=as_parquet)
        _put_receipt(view, place / RECEIPTS, receipt, tree)
        first = receipt.epoch + 1
    _put(place / BATCHES, _lines(view, receipts))
    then = proven_in(view, last, exact=True)
    for path, data in log_files([_entry(receipt) for receipt in receipts], then.checkpoint).items():
        (place / LOG / path).parent.mkdir(parents=True, exist_ok=True)
        _put(place / LOG / path, [data])


def _put_evidence(view: View, folder: Path, receipt: StoredReceipt, first: int, *, as_parquet: bool) -> None:
    """Write the records of a receipt; first: the first of its epochs."""
    rows = ((seq, body) for seq, _, body in view.records(first, receipt.epoch))
    if as_parquet:
        evidence.write_parquet(folder / f"epoch-{receipt.epoch}.parquet", rows)
    else:
        evidence.write_lines(folder / f"epoch-{receipt.epoch}.jsonl", rows)


def _put_receipt(view: View, folder: Path, receipt: StoredReceipt, tree: Tree) -> None:
    """Write a receipt's file, proven in the log as it was with this receipt; tree: of the entries up to it at least."""
    from assay.ledger.access import proven_in

    proof, then = tree.inclusion(receipt.position, receipt.position + 1), proven_in(view, receipt, exact=True)
    path = folder / f"epoch-{receipt.epoch}.receipt"
    _put(path, [statements.receipt_file(receipt.envelope, proof, then.checkpoint)])


def _lines(view: View, receipts: Iterable[StoredReceipt], first: int = 0) -> Iterator[bytes]:
    """The lines of batches.jsonl: receipt by receipt, in order of acceptance; first: the first epoch of the first receipt."""
    for receipt in receipts:
        for batch in view.batches(first, receipt.epoch):
            yield b'{"envelope":%b,"members":%b}\n' % (batch.envelope, canonical([list(pair) for pair in batch.members]))
        first = receipt.epoch + 1


def _put(path: Path, pieces: Iterable[bytes]) -> None:
    with path.open("xb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _entry(receipt: StoredReceipt) -> bytes:
    return bytes.fromhex(receipt.digest.removeprefix("sha256:"))
