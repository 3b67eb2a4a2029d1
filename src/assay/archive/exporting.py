"""Write the settled epochs of a ledger and their audits to an archive: each once, and only what is not there yet."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assay.archive.listing import RECEIPT, epoch_folder, listed
from assay.errors import BadInput, CannotSettle
from assay.folder.files import load
from assay.folder.places import MOST_DEPTH, ArchivePlace, StoredFile, open_place
from assay.ledger import audit_log, bundle, check

if TYPE_CHECKING:
    from assay.ledger.access import Ledger
    from assay.ledger.store import StoredReceipt

__all__ = ["ExportedEpochs", "export_epochs", "folder_name"]

_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}")


class ExportedEpochs(NamedTuple):
    """The competition's folder in the archive, the epochs that are new and those that were there, and the new audits' paths."""

    folder: str
    new: list[int]
    there: list[int]
    audits: list[str]


def folder_name(name: str) -> str:
    """The folder of a competition in an archive: a path of plain names. Raises BadInput for another, and for `epoch-…`."""
    parts = name.split("/")
    plain = all(_NAME.fullmatch(part) and not part.lower().startswith("epoch-") for part in parts)
    if not plain or len(parts) > MOST_DEPTH - 4:
        hint = "name it with --as NAME: letters, digits, `.`, `_`, `-` and `/`, not beginning with epoch-"
        raise BadInput(f"{name[:80]!r} cannot be a competition's folder in an archive", field="--as", hint=hint)
    return name


def export_epochs(
    ledger: Ledger,
    where: str,
    name: str | None = None,
    *,
    as_parquet: bool = False,
    last: int | None = None,
    progress: Callable[[int], None] = lambda epoch: None,
) -> ExportedEpochs:
    """Add the settled epochs that an archive does not have, and the audits of all its epochs that it does not have.

    name: the competition's folder; otherwise the name in the ledger. last: epochs after this one are left out. Each epoch is
    there whole or not at all, and each audit, so this may be stopped at any moment, and done again. Raises BadInput if the
    archive has epochs of another log, or the evidence cannot be Parquet; CannotSettle if no epoch is settled; Unreachable;
    StoreError.
    """
    with ledger.store.reading() as view:
        receipts = [receipt for receipt in view.receipts() if last is None or receipt.epoch <= last]
    if not receipts:
        raise CannotSettle("no epoch is settled yet", file=ledger.store.name, hint="`assay settle` makes a receipt")
    folder = folder_name(name or ledger.store.meta.competition)
    place = open_place(where)
    listing = listed(place, folder)
    for error in listing.faults.values():
        raise BadInput(error.what, file=error.file, hint="move it away, or export to another archive")
    there = listing.competitions.get(folder, {})
    new, old = [], []
    with tempfile.TemporaryDirectory(prefix="assay-archive-") as cache:
        for receipt in receipts:
            files = there.get(receipt.epoch)
            if files is not None and RECEIPT in files.files:
                _same(place, files.files[RECEIPT], receipt, Path(cache))
                old.append(receipt.epoch)
                continue
            progress(receipt.epoch)
            with place.new_epoch(epoch_folder(folder, receipt.epoch), f"epoch-{receipt.epoch}.receipt") as beside:
                bundle.write_epoch(ledger, receipt, beside, as_parquet=as_parquet)
            new.append(receipt.epoch)
    there_already = {file.path for files in there.values() for file in files.audits.values()}
    added = []
    for path, data in _audits(ledger, receipts, folder):
        if path not in there_already:
            place.add(path, data)
            added.append(path)
    return ExportedEpochs(folder, new, old, added)


def _audits(ledger: Ledger, receipts: Sequence[StoredReceipt], folder: str) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of each audit in the ledger's folder that belongs to an archive of these receipts.

    It stands with the epoch that was audited. If that is not among them, it stands with the first whose validators.csv names it.
    """
    from assay.ledger.access import stored_settlement

    audits = audit_log.present(ledger.folder)
    epochs = {receipt.digest: receipt.epoch for receipt in receipts}
    homes = {audit.digest: epochs[audit.predicate["receipt"]] for audit in audits if audit.predicate["receipt"] in epochs}
    if strays := {audit.digest for audit in audits} - homes.keys():
        with ledger.store.reading() as view:
            for receipt in receipts:
                for digest in strays & audit_log.marks(stored_settlement(view, receipt.epoch)[1]):
                    homes.setdefault(digest, receipt.epoch)
    for audit in audits:
        if audit.digest in homes:
            yield f"{epoch_folder(folder, homes[audit.digest])}/{bundle.AUDITS}/{audit.path.name}", audit.path.read_bytes()


def _same(place: ArchivePlace, file: StoredFile, receipt: StoredReceipt, cache: Path) -> None:
    """Refuse to go on if the archive's receipt of an epoch is another one. Raises BadInput."""
    try:
        there = check.Receipt.parse(load(place.fetch(file, cache), check.RECEIPT_BYTES, hint="")).digest.hex()
    except check.CheckError as error:
        raise BadInput(f"is not a receipt: {error.what}", file=file.path, hint="export to another archive") from None
    if f"sha256:{there}" != receipt.digest:
        what = f"it is not the ledger's receipt of epoch {receipt.epoch}: the archive has another competition under this name"
        raise BadInput(what, file=file.path, hint="name the competition's folder with --as NAME")
