"""Move the records of closed epochs from a ledger to an archive: written, read back, verified, and only then dropped.

A kill at any moment leaves the ledger as it was, or with the row that says where the records are; the archive has them in both
cases. Nothing is dropped that the archive does not give back as the receipt binds it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from assay.archive.exporting import export_epochs
from assay.archive.listing import EVIDENCE, RECEIPT, EpochFiles, Listing, listed
from assay.archive.shards import EpochVerdict, VerifyShard, verify_epoch
from assay.errors import BadInput, CannotSettle, Refused
from assay.folder.places import STAGE, ArchivePlace, open_place
from assay.ledger import archiving
from assay.ledger.bundle import BATCHES, INPUTS, SETTLEMENT
from assay.ledger.store.archives import ArchivedEpoch, ArchivedFile, entries, file_digest

if TYPE_CHECKING:
    from assay.ledger.access import Ledger
    from assay.ledger.keys import PrivateKey
    from assay.ledger.store import StoredReceipt

__all__ = ["ArchivedRun", "archive_epochs"]

Progress = Callable[[str, int], None]
"""Called with what is done now, and with which epoch."""


@dataclass
class ArchivedRun:
    """The archive and its folder of the competition; which epochs it has and were verified; epoch → how many bodies are gone."""

    place: str
    folder: str
    verified: list[int] = field(default_factory=list)
    dropped: dict[int, int] = field(default_factory=dict)
    before: list[int] = field(default_factory=list)
    """The epochs that were dropped before."""


def archive_epochs(
    ledger: Ledger,
    where: str,
    name: str | None = None,
    *,
    epoch: int | None = None,
    before: int | None = None,
    as_parquet: bool = False,
    signer: PrivateKey | None = None,
    progress: Progress = lambda what, epoch: None,
) -> ArchivedRun:
    """Archive a settled epoch, or those before one, and drop their records from the ledger if there is a signer: the log's key.

    The archive gets every epoch up to the last of them, since an epoch rests on those before it. name: as `export_epochs` has it.
    Raises what `export_epochs` raises; Refused if the archive does not give back what was written; BadInput for an epoch that the
    ledger still needs.
    """
    chosen = _chosen(ledger, epoch, before)
    with ledger.store.reading() as view:
        gone = {entry.epoch for entry in entries(view._connection)}
    if signer is not None:
        ledger.check_signer(signer)
        ledger.store.check_home()
        with ledger.counted() as view:
            for receipt in chosen:
                archiving.check_droppable(ledger, view, receipt)
    where = where if "://" in where else str(Path(where).absolute())
    last = chosen[-1].epoch
    exported = export_epochs(ledger, where, name, as_parquet=as_parquet, last=last, progress=lambda of: progress("writing", of))
    run = ArchivedRun(where, exported.folder, before=[receipt.epoch for receipt in chosen if receipt.epoch in gone])
    for receipt in chosen:
        if receipt.epoch not in gone:
            progress("reading back", receipt.epoch)
            _move(ledger, receipt, run, signer)
    return run


def _chosen(ledger: Ledger, epoch: int | None, before: int | None) -> list[StoredReceipt]:
    """The receipts of the epochs that were asked for, in their order."""
    if (epoch is None) == (before is None):
        raise BadInput("name the epoch, or the first that stays", hint="use --epoch N or --before N")
    if epoch is not None:
        return [ledger.receipt(epoch)]
    with ledger.store.reading() as view:
        chosen = [receipt for receipt in view.receipts() if receipt.epoch < (before or 0)]
    if not chosen:
        raise CannotSettle(f"no epoch before {before} is settled", file=ledger.store.name, hint="`assay settle` makes a receipt")
    return chosen


def _move(ledger: Ledger, receipt: StoredReceipt, run: ArchivedRun, signer: PrivateKey | None) -> None:
    """Read an epoch back from the archive, verify it, and drop its records if there is a signer."""
    place = open_place(run.place)
    listing = listed(place, run.folder)
    with tempfile.TemporaryDirectory(prefix="assay-archive-") as cache:
        verdict = _verified(ledger, receipt, run, listing, Path(cache))
        run.verified.append(receipt.epoch)
        if signer is None:
            return
        files = listing.competitions[run.folder][receipt.epoch]
        named = tuple(_digested(place, files, Path(cache)))
    with ledger.counted() as view:
        receipts = [*view.receipts()]
        first = receipts[receipt.position - 1].epoch + 1 if receipt.position else 0
        keep = archiving.needed(view)
    with ledger.store.reading() as every:
        keep += archiving.uncovered([seq for seq, _ in every.pairs(first, receipt.epoch)], verdict.seqs)
    checkpoint = receipt.checkpoint.decode()
    entry = ArchivedEpoch(first, receipt.epoch, receipt.digest, checkpoint, verdict.records, run.place, named)
    run.dropped[receipt.epoch] = ledger.store.drop(archiving.signed(ledger, entry, signer), keep)


def _verified(ledger: Ledger, receipt: StoredReceipt, run: ArchivedRun, listing: Listing, cache: Path) -> EpochVerdict:
    """The verdict on an epoch of the archive; raises Refused unless it is the ledger's, whole and right."""
    epochs = listing.up_to(run.folder, receipt.epoch)
    verdict = verify_epoch(VerifyShard(run.place, str(cache), epochs, (str(ledger.key),)))
    if verdict.fault is not None:
        what = f"epoch {receipt.epoch} cannot be read back from the archive ({verdict.fault}), so nothing of it was dropped"
        raise Refused(STAGE, what, file=verdict.fault.file)
    return verdict


def _digested(place: ArchivePlace, files: EpochFiles, cache: Path) -> Iterable[ArchivedFile]:
    """The files of an epoch in the archive, as they are read there."""
    for role in (RECEIPT, EVIDENCE, BATCHES, INPUTS, SETTLEMENT):
        file = files.files[role]
        yield ArchivedFile(file.path, file.size, file_digest(place.fetch(file, cache)))
