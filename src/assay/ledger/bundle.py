"""An epoch as files: everything that a stranger needs to derive its settlement again, and to check who said what. SPEC 6.

    inputs.json               what the settlement follows from beside the evidence
    previous.json             the settlement before, if there is one
    settlement.json
    evidence/epoch-N.jsonl    the records of each receipt, with their seq; or .parquet
    batches.jsonl             the signed envelope of each batch, and the seqs of its records
    receipts/epoch-N.receipt  every receipt up to this one
    log/                      checkpoint and tiles, as they were with this receipt

It depends on nothing but what the database has, so that two exports of an epoch are the same. It is written beside its place,
flushed to the disk and renamed: either it is there whole, or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.files import new_folder
from assay.kind import find
from assay.ledger import check, evidence, log, statements
from assay.ledger.merkle import Tree

if TYPE_CHECKING:
    from assay.ledger.access import Ledger
    from assay.ledger.store import StoredReceipt, View

__all__ = [
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
    "export",
    "log_files",
]

INPUTS, PREVIOUS, SETTLEMENT, BATCHES = "inputs.json", "previous.json", "settlement.json", "batches.jsonl"
EVIDENCE, RECEIPTS, LOG = "evidence", "receipts", "log"
SPLIT, EARLIER, COMPETITIONS = "emission.receipt", "earlier.jsonl", "competitions"
"""Of a subnet, whose bundles are together: see `assay.ledger.subnet_bundle`."""
EMISSION = "emission.json"
"""By it earlier versions' bundles of a subnet are known, which nobody signed."""


def export(ledger: Ledger, epoch: int, target: Path, *, as_parquet: bool = False) -> Path:
    """Write the bundle of a settled epoch to a folder that is not there yet, and return its path.

    Raises CannotSettle if the epoch is not settled, BadInput if the folder is there or cannot be written, or if Parquet is asked
    for and the evidence is not of kind tests or the extra `bulk` is missing; StoreError.
    """
    last = ledger.receipt(epoch)
    if as_parquet:
        _check_parquet(ledger, last)
    with new_folder(target) as beside:
        (beside / EVIDENCE).mkdir()
        (beside / RECEIPTS).mkdir()
        with ledger.counted() as view:
            _write(view, last, beside, as_parquet=as_parquet)
    return target


def log_files(entries: list[bytes], checkpoint: bytes) -> dict[str, bytes]:
    """The files of a log with these entries and this checkpoint: path → bytes."""
    return {"checkpoint": checkpoint} | log.log_files(entries)


def _check_parquet(ledger: Ledger, last: StoredReceipt) -> None:
    from assay.ledger.access import stored_settlement  # here, since who verifies a bundle needs its names and no database

    with ledger.store.reading() as view:
        kind = json.loads(stored_settlement(view, last.epoch)[1])["scheme"]["score"]["kind"]
    if not find(kind).in_bulk:
        raise BadInput(f"Parquet holds evidence of kind 'tests', this is {kind!r}", hint="leave out --parquet")
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise BadInput("Parquet is written with pyarrow, which is not installed", hint="pip install 'assay[bulk]'") from None


def _write(view: View, last: StoredReceipt, place: Path, *, as_parquet: bool) -> None:
    from assay.ledger.access import stored_settlement

    receipts = [one for one in view.receipts() if one.position <= last.position]
    settled, inputs = stored_settlement(view, last.epoch)
    _put(place / SETTLEMENT, [settled.document, b"\n"])
    _put(place / INPUTS, [inputs, b"\n"])
    if len(receipts) > 1:
        _put(place / PREVIOUS, [stored_settlement(view, receipts[-2].epoch)[0].document, b"\n"])
    tree = Tree([check.leaf_hash(_entry(one)) for one in receipts])
    first = 0
    for one in receipts:
        rows = ((seq, body) for seq, _, body in view.records(first, one.epoch))
        name = f"epoch-{one.epoch}"
        if as_parquet:
            evidence.write_parquet(place / EVIDENCE / f"{name}.parquet", rows)
        else:
            evidence.write_lines(place / EVIDENCE / f"{name}.jsonl", rows)
        proof = tree.inclusion(one.position, one.position + 1)
        _put(place / RECEIPTS / f"{name}.receipt", [statements.receipt_file(one.envelope, proof, one.checkpoint)])
        first = one.epoch + 1
    _put(place / BATCHES, _lines(view, receipts))
    for path, data in log_files([_entry(one) for one in receipts], last.checkpoint).items():
        (place / LOG / path).parent.mkdir(parents=True, exist_ok=True)
        _put(place / LOG / path, [data])


def _lines(view: View, receipts: Iterable[StoredReceipt]) -> Iterator[bytes]:
    """The batches, those of one receipt after those of the other, in order of acceptance."""
    first = 0
    for one in receipts:
        for found in view.batches(first, one.epoch):
            yield b'{"envelope":%b,"members":%b}\n' % (found.envelope, canonical([list(pair) for pair in found.members]))
        first = one.epoch + 1


def _put(path: Path, pieces: Iterable[bytes]) -> None:
    with path.open("xb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _entry(one: StoredReceipt) -> bytes:
    return bytes.fromhex(one.digest.removeprefix("sha256:"))
