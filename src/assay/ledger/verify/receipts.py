"""The stages that need no evidence: the receipt, its place in the log, earlier checkpoints, the receipts before. SPEC 6."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import BadInput, Refused
from assay.folder.previous import previous_of
from assay.folder.text import load, unreadable
from assay.ledger import bundle, check, merkle
from assay.ledger.check import Checkpoint, LogKey, Receipt
from assay.ledger.log import Log
from assay.ledger.verify.material import Material, document
from assay.ledger.verify.report import Verified, or_null, several, stage
from assay.settle.inputs import Previous

__all__ = ["Chain", "chain", "checked", "consistency", "key_of", "log_of", "read", "receipt"]


@dataclass(frozen=True)
class Chain:
    """The receipts from the first to the one that is verified, and what the settlement before it hands on."""

    receipts: tuple[Receipt, ...]
    previous: Previous | None


def read(data: bytes, key: LogKey | None, path: Path, name: str = "receipt") -> tuple[Receipt, LogKey]:
    """The receipt in bytes, and the key it is to be checked by: the one given, or else the one that it names itself."""
    try:
        found = Receipt.parse(data)
        return found, key or key_of(found)
    except check.Refused as refused:
        where = "log" if (name, refused.stage) == ("receipt", "log") else name
        raise Refused(where, refused.what, expected=refused.expected, found=refused.found, file=path) from None


def key_of(found: Receipt) -> LogKey:
    """The key that a receipt says it is signed with, under the name that its checkpoint has; anybody can make one such."""
    name, digits = found.proof.checkpoint.partition(b"\n")[0].decode(), found.envelope.signatures[0][0].removeprefix("ed25519:")
    try:
        return LogKey(bytes.fromhex(digits), name)
    except ValueError:
        raise check.Refused("receipt", "it does not name the key that it is signed with", "ed25519:…", digits[:100]) from None


def receipt(found: Receipt, key: LogKey, path: Path, into: Verified, *, own: bool) -> Checkpoint:
    """Stages `receipt` and `log`: the signature of the statement, the checkpoint's, and the proof from the one to the other."""
    now = checked(found, key, path)
    into.receipt = found.predicate
    whose = f"{key.id}, which the receipt names itself: compare it with the log's" if own else f"the log's key {key}"
    said = found.predicate
    into.right("receipt", f"{said['competition']} epoch {said['epoch']}, signed by {whose}")
    into.right("log", f"entry {found.proof.index} of {now.size} in {now.origin}, by a signed checkpoint")
    return now


def checked(found: Receipt, key: LogKey, path: Path) -> Checkpoint:
    """The checkpoint that a receipt is in; raises Refused unless the key signed it, as it says itself, and it is in the log."""
    try:
        now = check.check_receipt(found, [key])
    except check.Refused as refused:
        raise Refused(refused.stage, refused.what, expected=refused.expected, found=refused.found, file=path) from None
    for name, _ in found.envelope.signatures:
        if name != key.id:
            raise Refused("receipt", "the signature is said to be of another key", expected=key.id, found=name, file=path)
    return now


def log_of(folder: Path, key: LogKey, now: Checkpoint, into: Verified, *, whole: bool) -> Log:
    """Stage `log`, for a folder of tiles: they lead to their checkpoint, and go on from the receipt's. `whole`: every tile."""
    with stage("log"):
        log = Log(folder, key)
        log.check_against(now)
        if whole:
            log.check()
    into.right("log", f"the tiles of {folder} lead to a signed checkpoint of {several(log.size, 'entry', 'entries')}")
    return log


def consistency(file: Path, key: LogKey, now: Checkpoint, log: Log | None, into: Verified) -> None:
    """Stage `consistency`: a checkpoint seen before is of the same log, and nothing before it has changed since."""
    seen_note = load(file, check.NOTE_BYTES, hint="give a checkpoint that was kept earlier")
    with stage("consistency"):
        seen = check.check_checkpoint(seen_note, [key], "consistency")
        if log is not None:
            log.check_against(seen)
        elif seen != now:
            what = "between the two checkpoints there is nothing to prove it by; give the folder of the log's tiles with --log"
            raise Refused("consistency", what, expected=f"size {seen.size}", found=f"size {now.size}")
    into.right(
        "consistency", f"the log goes on from the checkpoint of {several(seen.size, 'entry', 'entries')} that was seen before"
    )


def chain(given: Material, last: Receipt, key: LogKey, now: Checkpoint, into: Verified) -> Chain:
    """Stage `chain`: every receipt from the first on is signed, in the log, and names the one before; none is left out."""
    assert given.root is not None
    receipts: list[Receipt] = []
    with stage("chain"):
        folder = given.root / bundle.RECEIPTS
        try:
            paths = sorted(folder.iterdir(), key=_by_epoch)
        except OSError as error:
            raise unreadable(folder, error) from None
        for path in paths:
            data = load(path, check.RECEIPT_BYTES, hint="")
            try:
                one, _ = read(data, key, path)
                checked(one, key, path)
            except Refused as refused:
                raise Refused("chain", refused.what, expected=refused.expected, found=refused.found, file=path) from None
            _follows(receipts, one, path)
            receipts.append(one)
        if not receipts or receipts[-1].digest != last.digest:
            raise Refused("chain", "the last of the receipts is not the one that is verified", file=folder)
        if merkle.root([check.leaf_hash(one.digest) for one in receipts]) != now.root:
            raise Refused("chain", "the receipts are not all that the log has up to this one", file=folder)
        before = _previous(given.root / bundle.PREVIOUS, receipts)
    into.right("chain", f"{several(len(receipts), 'receipt')} from the first to this one, each naming the one before")
    return Chain(tuple(receipts), before)


def _follows(before: list[Receipt], one: Receipt, path: Path) -> None:
    """Refuse a receipt that does not come next. That its epoch is a later one, its file's name says, by which they are sorted."""
    said = one.predicate
    last = before[-1] if before else None
    expected: Any = None
    if last is not None:
        expected = {"epoch": last.predicate["epoch"], "receipt": f"sha256:{last.digest.hex()}"}
    for what, wanted, found in (
        ("it is not at its place in the log", len(before), one.proof.index),
        ("it does not name the receipt before it", expected, said["previous"]),
        ("it is of another competition", (last or one).predicate["competition"], said["competition"]),
        ("the file is not named after its epoch", f"epoch-{said['epoch']}.receipt", path.name),
    ):
        if wanted != found:
            raise Refused("chain", what, expected=or_null(wanted), found=or_null(found), file=path)


def _previous(path: Path, receipts: list[Receipt]) -> Previous | None:
    """What the settlement before hands on; it must be the one that the receipt before is of."""
    if len(receipts) == 1:
        if path.exists():
            raise Refused("chain", "there is a settlement before the first one", file=path)
        return None
    content = document(path)
    try:
        found = previous_of(content)
    except BadInput as error:
        raise error.at(file=path) from None
    wanted = receipts[-2].predicate["settlement"]
    if content["digest"] != wanted:
        what = "it is not the settlement that the receipt before is of"
        raise Refused("chain", what, expected=wanted, found=content["digest"], file=path)
    return found


def _by_epoch(path: Path) -> tuple[int, str]:
    digits = path.name.removeprefix("epoch-").removesuffix(".receipt")
    return (int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 17 else -1, path.name)
