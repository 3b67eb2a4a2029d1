"""Sign the split of a subnet's emission into the subnet's own log, check it, and export it. SPEC 4, 6.

NAME.ledger.toml beside the subnet file NAME.toml says where the subnet's ledger is: a database and a log like a competition's,
with signed splits in the place of settlements.

An exported epoch has:

emission.receipt        the signed split, and the proof that it is in the subnet's log earlier.jsonl           the signed
statements of all earlier splits in the log, which show that this is the only split of its epoch log/                    the
subnet's log, as it was with this split competitions/1, 2, …    the bundle of each competition, in the order of the split
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInput, CannotSettle
from assay.exact import canonical, digest
from assay.folder.files import new_folder, write_bytes
from assay.ledger import bundle, check, config, settling, statements
from assay.ledger.access import Ledger, open_ledger, proven_in
from assay.ledger.bundle import COMPETITIONS, EARLIER, LOG, SPLIT
from assay.ledger.keys import PrivateKey
from assay.ledger.statements import Split
from assay.ledger.store import Damaged, StoredReceipt, StoredSettlement, View
from assay.ledger.store.engine import RESTORE
from assay.scheme import subnet
from assay.scheme.subnet import SubnetFile
from assay.settle import emission
from assay.settle.emission import Emission

__all__ = ["SignedSplit", "audit", "export", "last_epoch", "replay", "settled", "sign", "signed", "signed_epoch"]


@dataclass(frozen=True)
class SignedSplit:
    """A signed split and its place in the subnet's log. `new`: this call signed it."""

    emission: Emission
    receipt: StoredReceipt
    new: bool


def last_epoch(folders: Sequence[Path]) -> int | None:
    """The highest epoch that has a receipt in the ledgers of all these competitions; None if there is none."""
    epochs: list[set[int]] = []
    for folder in folders:
        with open_ledger(folder) as ledger, ledger.store.reading() as view:
            epochs.append({receipt.epoch for receipt in view.receipts()})
    return max(set.intersection(*epochs), default=None) if epochs else None


def settled(path: Path, epoch: int | None = None) -> tuple[SubnetFile, Emission]:
    """A subnet file, and its split of an epoch (None: the last that the ledgers of all its competitions have settled).

    Raises CannotSettle if a competition has not settled the epoch; BadInput if one has no ledger or another log than the file
    names, or if the settlements do not fit together; StoreError.
    """
    rules = subnet.read(path)
    folders = [path.parent / member.path for member in rules.competitions]
    epoch = last_epoch(folders) if epoch is None else epoch
    if epoch is None:
        raise CannotSettle(
            "there is no epoch that all competitions have settled", file=path, hint="`assay settle` makes receipts"
        )
    parts = []
    for number, (folder, member) in enumerate(zip(folders, rules.competitions, strict=True)):
        with open_ledger(folder) as ledger:
            if member.log not in (None, str(ledger.key)):
                what = f"is {member.log}, but the competition's log is {ledger.key}"
                raise BadInput(what, file=path, field=f"competitions[{number}].log", hint="correct the subnet file")
            receipt = ledger.receipt(epoch)
            settling.check_receipt(ledger, receipt)
            with ledger.counted() as view:
                parts.append(emission.split_input(settling.again(view, receipt), receipt.digest, str(ledger.key)))
    try:
        return rules, emission.split(rules, parts)
    except BadInput as error:
        error.at(file=path)
        raise


def sign(path: Path, signer: PrivateKey, epoch: int | None = None) -> SignedSplit:
    """Sign the split of an epoch (None: the last that all competitions have settled), and add it to the subnet's log.

    An epoch is signed once. Asked again, the split is computed again and must be the same. Raises as `settled` does; BadInput for
    a signer that is not the log's, and for an epoch before the last signed one; CannotSettle for an epoch that was signed with
    another split.
    """
    with _opened(path) as ledger:
        ledger.check_signer(signer)
        rules, split = settled(path, epoch)
        if str(ledger.key) in [part.log for part in split.competitions]:
            raise BadInput("a competition has the same log as the subnet", file=path, hint="give the subnet a log of its own")
        while True:
            with ledger.store.reading() as view:
                receipt, last = view.receipt(split.epoch), view.last_receipt()
            ledger.bring_up()
            if receipt is not None:
                _same(split, signed(ledger, receipt))
                return SignedSplit(split, receipt, new=False)
            if last is not None and split.epoch < last.epoch:
                what = f"epoch {split.epoch} was skipped: the last one signed is {last.epoch}"
                raise BadInput(what, file=path, hint="what was signed stays; sign a later epoch")
            ledger.log.check_end()
            if last is not None:
                signed(ledger, last)
            payload = statements.split_statement(path.stem, rules, split, None if last is None else (last.epoch, last.digest))
            with ledger.store.writing() as tx:
                if tx.last_receipt() != last:
                    continue
                new_receipt = ledger.signed(tx, payload, split.epoch, signer)
                given = rules.model_dump(mode="json", exclude_none=True)
                document = canonical(split.document)
                tx.add_settled(
                    StoredSettlement(new_receipt.epoch, split.digest, digest(given), document), canonical(given), new_receipt
                )
            ledger.bring_up()
            return SignedSplit(split, new_receipt, new=True)


def _opened(path: Path) -> Ledger:
    """The subnet's ledger; raises BadInput if it has none."""
    if not config.exists(path):
        what = "there is no such file, so the subnet has no log for its split"
        raise BadInput(what, file=config.file_of(path), hint=f"`assay ledger init {path} --origin NAME --key NAME` makes it")
    return open_ledger(path)


def signed(ledger: Ledger, receipt: StoredReceipt) -> Split:
    """A stored split of a subnet's ledger; raises Damaged unless it is as it was signed, and in the log."""
    proof = ledger.log.inclusion(receipt.position, receipt.position + 1)
    try:
        split = Split.parse(canonical(statements.split_document(receipt.envelope, proof, receipt.checkpoint)))
        check.check_receipt(split, [ledger.key])
    except (check.CheckError, TypeError, ValueError) as error:
        what = f"the split of epoch {receipt.epoch} is not as it was signed ({error})"
        raise Damaged(what, file=ledger.store.name, hint=RESTORE) from None
    predicate = split.predicate
    with ledger.store.reading() as view:
        stored = view.settlement(receipt.epoch)
    stated = predicate["epoch"], f"sha256:{split.digest.hex()}", canonical(predicate["split"])
    if stored is None or stated != (receipt.epoch, receipt.digest, stored.document):
        what = f"the split that is stored for epoch {receipt.epoch} is not the one that was signed"
        raise Damaged(what, file=ledger.store.name, hint=RESTORE)
    return split


def signed_epoch(path: Path, epoch: int | None = None) -> tuple[Emission, StoredReceipt]:
    """The split of an epoch (None: the last signed one), computed again, and its receipt in the subnet's log.

    Raises CannotSettle if it was not signed, or if it is another split now; otherwise as `settled` does.
    """
    with _opened(path) as ledger:
        receipt = _receipt(ledger, epoch)
        stated = signed(ledger, receipt)
    _, split = settled(path, receipt.epoch)
    _same(split, stated)
    return split, receipt


def _receipt(ledger: Ledger, epoch: int | None) -> StoredReceipt:
    with ledger.store.reading() as view:
        last = view.last_receipt()
        receipt = last if epoch is None else view.receipt(epoch)
    if receipt is None:
        what = "nothing of the subnet is signed yet" if last is None else f"the split of epoch {epoch} is not signed"
        raise CannotSettle(what, file=ledger.store.name, hint="`assay emission SUBNET.toml --sign` signs it")
    return receipt


def _same(split: Emission, stated: Split) -> None:
    """Raise CannotSettle for a split that is not the one that was signed."""
    earlier = stated.predicate["split"]
    if split.document != earlier:
        raise CannotSettle(
            f"the split of epoch {split.epoch} was signed as {earlier['digest']}, but the competitions now give {split.digest}",
            hint="the subnet file or a ledger was changed since; compare with a copy of it",
        )


def audit(ledger: Ledger) -> int:
    """Check every tile of a subnet's log and every split in it; returns how many. Raises Damaged for the first that is wrong."""
    ledger.log.check()
    with ledger.store.reading() as view:
        rows = list(view.receipts())
    before: StoredReceipt | None = None
    for position, receipt in enumerate(rows):
        predicate = signed(ledger, receipt).predicate
        previous = None if before is None else {"epoch": before.epoch, "receipt": before.digest}
        if (receipt.position, predicate["previous"]) != (position, previous):
            what = f"the split of epoch {receipt.epoch} does not follow the one before it"
            raise Damaged(what, file=ledger.store.name, hint=RESTORE)
        before = receipt
    return len(rows)


def replay(path: Path) -> Iterator[Emission]:
    """Every split of a subnet's log, computed again; raises CannotSettle at the first that differs."""
    with _opened(path) as ledger, ledger.store.reading() as view:
        epochs = [receipt.epoch for receipt in view.receipts()]
    for epoch in epochs:
        split, _ = signed_epoch(path, epoch)
        yield split


def export(path: Path, epoch: int, target: Path) -> Emission:
    """Write a signed split, with the bundles that it was computed from, to a new folder, and return the split.

    Raises CannotSettle if the epoch is not signed, or has another split now; BadInput if the folder exists or cannot be written;
    otherwise as `settled` does.
    """
    split, receipt = signed_epoch(path, epoch)
    rules = subnet.read(path)
    with new_folder(target) as beside:
        (beside / COMPETITIONS).mkdir()
        for number, member in enumerate(rules.competitions, start=1):
            with open_ledger(path.parent / member.path) as ledger:
                bundle.export(ledger, receipt.epoch, beside / COMPETITIONS / str(number))
        with _opened(path) as ledger, ledger.store.reading() as view:
            _write(ledger, view, receipt, beside)
    return split


def _write(ledger: Ledger, view: View, receipt: StoredReceipt, place: Path) -> None:
    proof, then = ledger.log.inclusion(receipt.position, receipt.position + 1), proven_in(view, receipt, exact=True)
    write_bytes(place / SPLIT, canonical(statements.split_document(receipt.envelope, proof, then.checkpoint)) + b"\n")
    rows = [earlier for earlier in view.receipts() if earlier.position <= receipt.position]
    if rows[:-1]:
        write_bytes(place / EARLIER, b"".join(earlier.envelope + b"\n" for earlier in rows[:-1]))
    entries = [bytes.fromhex(earlier.digest.removeprefix("sha256:")) for earlier in rows]
    for name, data in bundle.log_files(entries, then.checkpoint).items():
        (place / LOG / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(place / LOG / name, data)
