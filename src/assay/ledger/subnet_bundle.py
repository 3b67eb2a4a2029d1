"""A subnet's ledger: the split of each epoch, signed, in the subnet's own log; and what is exported of it. SPEC 4, 6.

NAME.ledger.toml beside the subnet file NAME.toml says where it is: a database and a log as a competition has them, in which the
splits stand in the place of settlements.

What is exported of an epoch:

emission.receipt        the signed split, and the proof that it is in the subnet's log
earlier.jsonl           the signed statement of each split before it in the log, if there are some: so it is the epoch's only one
log/                    the subnet's log, as it was with this split
competitions/1, 2, …    the bundles, in the order of the split
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInput, CannotSettle
from assay.exact import canonical, digest
from assay.folder.files import new_folder, write_bytes
from assay.ledger import bundle, check, config, settling, statements
from assay.ledger.access import Ledger, open_ledger
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
    """A split and its place in the subnet's log. `new`: it was not signed before."""

    emission: Emission
    receipt: StoredReceipt
    new: bool


def last_epoch(folders: Sequence[Path]) -> int | None:
    """The highest epoch that has a receipt in the ledger of every one of these competitions; None if there is none."""
    epochs: list[set[int]] = []
    for one in folders:
        with open_ledger(one) as ledger, ledger.store.reading() as view:
            epochs.append({receipt.epoch for receipt in view.receipts()})
    return max(set.intersection(*epochs), default=None) if epochs else None


def settled(path: Path, epoch: int | None = None) -> tuple[SubnetFile, Emission]:
    """A subnet file, and its split of an epoch (None: the last) that the ledgers of all its competitions have settled.

    Raises CannotSettle if a competition has not settled it, BadInput if one has no ledger, or another log than the file names,
    or if they cannot be joined; StoreError.
    """
    rules = subnet.read(path)
    folders = [path.parent / member.path for member in rules.competitions]
    epoch = last_epoch(folders) if epoch is None else epoch
    if epoch is None:
        raise CannotSettle(
            "there is no epoch that all competitions have settled", file=path, hint="`assay settle` makes receipts"
        )
    found = []
    for number, (folder, member) in enumerate(zip(folders, rules.competitions, strict=True)):
        with open_ledger(folder) as ledger:
            if member.log not in (None, str(ledger.key)):
                what = f"is {member.log}, and the competition's log is {ledger.key}"
                raise BadInput(what, file=path, field=f"competitions[{number}].log", hint="correct the subnet file")
            there = ledger.receipt(epoch)
            settling.check_receipt(ledger, there)
            with ledger.counted() as view:
                found.append(emission.split_input(settling.again(view, there), there.digest, str(ledger.key)))
    try:
        return rules, emission.split(rules, found)
    except BadInput as error:
        error.at(file=path)
        raise


def sign(path: Path, signer: PrivateKey, epoch: int | None = None) -> SignedSplit:
    """Sign the split of an epoch (None: the last that all competitions have settled), and add it to the subnet's log.

    An epoch is signed once; asked again, the split is computed again and must be the same. Raises as `settled` does, BadInput
    for a signer that is not the log's and an epoch before the last that was signed, CannotSettle for one that was signed with
    another split.
    """
    with _opened(path) as ledger:
        ledger.check_signer(signer)
        rules, found = settled(path, epoch)
        if str(ledger.key) in [part.log for part in found.competitions]:
            raise BadInput("a competition has the same log as the subnet", file=path, hint="give the subnet a log of its own")
        while True:
            with ledger.store.reading() as view:
                there, last = view.receipt(found.epoch), view.last_receipt()
            ledger.bring_up()
            if there is not None:
                _same(found, signed(ledger, there))
                return SignedSplit(found, there, new=False)
            if last is not None and found.epoch < last.epoch:
                what = f"epoch {found.epoch} was passed: the last one signed is {last.epoch}"
                raise BadInput(what, file=path, hint="what was signed stays; sign a later epoch")
            ledger.log.check_end()
            if last is not None:
                signed(ledger, last)
            payload = statements.split_statement(path.stem, rules, found, None if last is None else (last.epoch, last.digest))
            with ledger.store.writing() as tx:
                if tx.last_receipt() != last:
                    continue
                made = ledger.signed(tx, payload, found.epoch, signer)
                given = rules.model_dump(mode="json", exclude_none=True)
                document = canonical(found.document)
                tx.add_settled(StoredSettlement(made.epoch, found.digest, digest(given), document), canonical(given), made)
            ledger.bring_up()
            return SignedSplit(found, made, new=True)


def _opened(path: Path) -> Ledger:
    """The subnet's ledger; raises BadInput if it has none."""
    if not config.exists(path):
        what = "there is no such file, so the subnet has no log in which its split could be"
        raise BadInput(what, file=config.file_of(path), hint=f"`assay ledger init {path} --origin NAME --key NAME` makes it")
    return open_ledger(path)


def signed(ledger: Ledger, there: StoredReceipt) -> Split:
    """What a subnet's ledger keeps as signed; raises Damaged unless it is as it was signed, and in the log."""
    proof = ledger.log.inclusion(there.position, there.position + 1)
    try:
        found = Split.parse(canonical(statements.split_document(there.envelope, proof, there.checkpoint)))
        check.check_receipt(found, [ledger.key])
    except (check.CheckError, TypeError, ValueError) as error:
        what = f"the split of epoch {there.epoch} is not as it was signed ({error})"
        raise Damaged(what, file=ledger.store.name, hint=RESTORE) from None
    said = found.predicate
    with ledger.store.reading() as view:
        kept = view.settlement(there.epoch)
    stated = said["epoch"], f"sha256:{found.digest.hex()}", canonical(said["split"])
    if kept is None or stated != (there.epoch, there.digest, kept.document):
        what = f"the split that is kept of epoch {there.epoch} is not the one that was signed"
        raise Damaged(what, file=ledger.store.name, hint=RESTORE)
    return found


def signed_epoch(path: Path, epoch: int | None = None) -> tuple[Emission, StoredReceipt]:
    """The split of an epoch (None: the last that was signed), computed again, and where it stands in the subnet's log.

    Raises CannotSettle if it was not signed, or gives another split now; otherwise as `settled` does.
    """
    with _opened(path) as ledger:
        there = _receipt(ledger, epoch)
        stated = signed(ledger, there)
    _, found = settled(path, there.epoch)
    _same(found, stated)
    return found, there


def _receipt(ledger: Ledger, epoch: int | None) -> StoredReceipt:
    with ledger.store.reading() as view:
        last = view.last_receipt()
        there = last if epoch is None else view.receipt(epoch)
    if there is None:
        what = "nothing of the subnet is signed yet" if last is None else f"the split of epoch {epoch} is not signed"
        raise CannotSettle(what, file=ledger.store.name, hint="`assay emission SUBNET.toml --sign` signs it")
    return there


def _same(found: Emission, stated: Split) -> None:
    """Refuse a split that is not the one that was signed."""
    said = stated.predicate["split"]
    if found.document != said:
        raise CannotSettle(
            f"the split of epoch {found.epoch} was signed as {said['digest']}, and the competitions give {found.digest} now",
            hint="the subnet file or a ledger was changed since; compare with a copy of it",
        )


def audit(ledger: Ledger) -> int:
    """Look at every tile of a subnet's log and every split in it; how many. Raises Damaged for the first that is wrong."""
    ledger.log.check()
    with ledger.store.reading() as view:
        rows = list(view.receipts())
    before: StoredReceipt | None = None
    for position, one in enumerate(rows):
        said = signed(ledger, one).predicate
        previous = None if before is None else {"epoch": before.epoch, "receipt": before.digest}
        if (one.position, said["previous"]) != (position, previous):
            what = f"the split of epoch {one.epoch} does not follow the one before it"
            raise Damaged(what, file=ledger.store.name, hint=RESTORE)
        before = one
    return len(rows)


def replay(path: Path) -> Iterator[Emission]:
    """Every split of a subnet's log, computed again; raises CannotSettle at the first that gives another."""
    with _opened(path) as ledger, ledger.store.reading() as view:
        epochs = [one.epoch for one in view.receipts()]
    for epoch in epochs:
        found, _ = signed_epoch(path, epoch)
        yield found


def export(path: Path, epoch: int, target: Path) -> Emission:
    """Write a signed split, and what it follows from, to a folder that is not there yet, and return the split.

    Raises CannotSettle if the epoch is not signed, or gives another split now; BadInput if the folder is there or cannot be
    written; otherwise as `settled` does.
    """
    found, there = signed_epoch(path, epoch)
    rules = subnet.read(path)
    with new_folder(target) as beside:
        (beside / COMPETITIONS).mkdir()
        for number, member in enumerate(rules.competitions, start=1):
            with open_ledger(path.parent / member.path) as ledger:
                bundle.export(ledger, there.epoch, beside / COMPETITIONS / str(number))
        with _opened(path) as ledger, ledger.store.reading() as view:
            _write(ledger, view, there, beside)
    return found


def _write(ledger: Ledger, view: View, there: StoredReceipt, place: Path) -> None:
    proof = ledger.log.inclusion(there.position, there.position + 1)
    write_bytes(place / SPLIT, canonical(statements.split_document(there.envelope, proof, there.checkpoint)) + b"\n")
    rows = [one for one in view.receipts() if one.position <= there.position]
    if rows[:-1]:
        write_bytes(place / EARLIER, b"".join(one.envelope + b"\n" for one in rows[:-1]))
    entries = [bytes.fromhex(one.digest.removeprefix("sha256:")) for one in rows]
    for name, data in bundle.log_files(entries, there.checkpoint).items():
        (place / LOG / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(place / LOG / name, data)
