"""Verifying a subnet's epoch: the signed split, each competition by the key it names, the split computed again. SPEC 4, 6."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path

from assay.errors import BadInput, Refused
from assay.folder.files import load
from assay.ledger import check, statements
from assay.ledger.bundle import COMPETITIONS, EARLIER, EMISSION, LOG, SPLIT
from assay.ledger.check import Checkpoint, LogKey, Receipt
from assay.ledger.statements import Split
from assay.ledger.verify import claims
from assay.ledger.verify.recompute import differs
from assay.ledger.verify.report import StageResult, Verified, gather_material, or_null, several, stage
from assay.scheme import subnet
from assay.scheme.subnet import SubnetFile
from assay.settle import emission
from assay.settle.emission import SplitInput

__all__ = ["bound", "follows", "is_joint", "read", "same", "verified"]

NAME = "emission"
"""The last stage."""
HINT = "give the folder that `assay export emission` wrote, or its emission.receipt"


def is_joint(path: Path) -> bool:
    """Whether a path is of a subnet rather than of one competition: what was exported, or a signed split by itself."""
    if os.path.isdir(path):
        return any(os.path.lexists(path / name) for name in (SPLIT, EMISSION))
    return os.path.isfile(path) and statements.SPLIT_FORMAT.encode() in load(path, check.RECEIPT_BYTES, hint=HINT)


def verified(
    path: Path,
    keys: Sequence[LogKey],
    verify: Callable[[Path, LogKey], Verified],
    into: Verified,
    *,
    announced: Path | None = None,
    checkpoint: Path | None = None,
    log: Path | None = None,
) -> None:
    """Checks the signed split, every competition's bundle, and that the one follows from the others. SPEC 4, 6.

    keys: the subnet's, and perhaps those of competitions; each must be of a log that is checked. None: the split is checked by
    the key that it names itself. announced: a subnet file that it must follow. Raises Refused at the first stage that is wrong.
    """
    root = path if path.is_dir() else None
    file = path if root is None else root / SPLIT
    if not os.path.lexists(file):
        what = "nobody signed this split: it was exported by an earlier version, and shows nothing"
        raise Refused("receipt", what, file=path / EMISSION)
    found, key = read(load(file, check.RECEIPT_BYTES, hint=HINT), keys, file)
    now = claims.check_receipt(found, key, file)
    said = found.predicate
    _after(found, file)
    whose = f"the subnet's key {key}" if keys else f"{key.id}, which the split names itself: compare it with the subnet's"
    into.right("receipt", f"{said['subnet']} epoch {said['epoch']}, signed by {whose}")
    into.right("log", f"entry {found.proof.index} of {now.size} in {now.origin}, by a signed checkpoint")
    _logs(root, key, now, into, found, checkpoint=checkpoint, log=log)
    if announced is not None:
        rules = subnet.read(announced)
        follows(found, rules, str(announced))
        unnamed = "" if all(one.log for one in rules.competitions) else "; which log has which part, it does not say of all"
        into.right(NAME, f"divided as {announced} says{unnamed}")
    if root is None:
        into.not_looked_at(NAME, "it was not computed again: that takes the folder that `assay export emission` writes")
    else:
        _computed(root, found, verify, into)
    into.emission = {"subnet": said["subnet"], "epoch": said["epoch"], "statement": f"sha256:{found.digest.hex()}"}
    into.emission |= {name: said["split"][name] for name in ("digest", "receipts")}


def read(data: bytes, keys: Sequence[LogKey], file: Path) -> tuple[Split, LogKey]:
    """The signed split in bytes, and the key to check it by: of those given the one that it says it is signed with.

    Raises Refused for what is no signed split, for a key that was given and is of no log of it, and for a competition that is
    said to have the subnet's log.
    """
    try:
        found = Split.parse(data)
        named = claims.key_of(found)
    except check.CheckError as refused:
        where = "log" if refused.stage == "log" else "receipt"
        raise Refused(where, refused.what, expected=refused.expected, found=refused.found, file=file) from None
    if keys and named not in keys:
        given = ", ".join(map(str, keys))
        raise Refused("receipt", "it is not signed by the key", expected=given, found=str(named), file=file)
    logs = found.logs
    if named in logs:
        raise Refused("receipt", "a competition is said to have the subnet's own log", found=str(named), file=file)
    for one in keys:
        if one != named and one not in logs:
            what = "a key was given that is of no log of the split"
            raise Refused("receipt", what, expected=", ".join(map(str, [named, *logs])), found=str(one), file=file)
    return found, named


def _after(found: Split, file: Path) -> None:
    """Refuse a split that cannot follow what is before it in the log: one of an epoch that was signed already, say."""
    previous, epoch = found.predicate["previous"], found.predicate["epoch"]
    if (previous is None) != (found.proof.index == 0):
        what = "it does not name the split before it in the log"
        raise Refused("log", what, found=f"entry {found.proof.index}, previous {or_null(previous)}", file=file)
    if previous is not None and previous["epoch"] >= epoch:
        what = "it follows a split of no earlier epoch"
        raise Refused("log", what, expected=f"below {epoch}", found=previous["epoch"], file=file)


def _logs(
    root: Path | None, key: LogKey, now: Checkpoint, into: Verified, found: Split, *, checkpoint: Path | None, log: Path | None
) -> None:
    """Stages `log` and `consistency`, of the subnet's log; `found` is the only split of its epoch in it, so far."""
    tiles = None
    if root is not None:
        tiles = claims.log_of(root / LOG, key, now, into, whole=True)
        previous = found.predicate["previous"]
        with stage("log"):
            entries = list(islice(tiles.entries(0), found.proof.index))
        if previous is not None and (before := f"sha256:{entries[-1].hex()}") != previous["receipt"]:
            what = "the split that it follows is not the entry before it"
            raise Refused("log", what, expected=before, found=previous["receipt"], file=root / SPLIT)
        if entries:
            _earlier(root / EARLIER, entries, key, found)
        into.right(
            "log", f"the only split of epoch {found.predicate['epoch']} of the {several(len(entries) + 1, 'split')} up to it"
        )
    if log is not None:
        tiles = claims.log_of(log, key, now, into, whole=False)
    if checkpoint is not None:
        claims.consistency(checkpoint, key, now, tiles, into)


def _earlier(file: Path, entries: Sequence[bytes], key: LogKey, found: Split) -> None:
    """Refuse what is before a split in its log unless all of it is shown, signed, each of a later epoch than the one before."""

    def refuse(number: int, what: str, expected: object = None, given: object = None) -> Refused:
        return Refused("log", f"split {number} of the log: {what}", expected=or_null(expected), found=or_null(given), file=file)

    if not os.path.lexists(file):
        what = f"{several(len(entries), 'split')} before it in the log not shown, so it may not be the only one of its epoch"
        raise Refused("log", what, file=file)
    lines = load(file, check.RECEIPT_BYTES * len(entries), hint=HINT).removesuffix(b"\n").split(b"\n")
    if len(lines) != len(entries):
        raise Refused("log", "it has not every split before this one", expected=len(entries), found=len(lines), file=file)
    before: dict[str, object] | None = None
    for number, (line, entry) in enumerate(zip(lines, entries, strict=True), start=1):
        try:
            envelope = check.Envelope.parse(check.parse_json(line, "log", check.RECEIPT_BYTES), "log")
            check.check_envelope(envelope, [key], "log")
            said = statements.split_stated(envelope.payload, "log")
        except check.CheckError as refused:
            raise refuse(number, refused.what, refused.expected, refused.found) from None
        digest = sha256(envelope.payload).hexdigest()
        if digest != entry.hex():
            raise refuse(number, "it is not the entry of the log", entry.hex(), digest)
        if said["previous"] != before:
            raise refuse(number, "it does not follow the one before it", before, said["previous"])
        if before is not None and said["epoch"] <= before["epoch"]:
            raise refuse(number, "it is of no later epoch than the one before it", None, said["epoch"])
        before = {"epoch": said["epoch"], "receipt": f"sha256:{digest}"}
    if found.predicate["previous"] != before:
        raise refuse(len(entries) + 1, "it does not follow the one before it", before, found.predicate["previous"])


def follows(found: Split, rules: SubnetFile, name: str) -> None:
    """Refuse a split whose rules are not those of a subnet file of this name."""
    with stage(NAME):
        for field, wanted, there in statements.split_differences(rules, found.predicate):
            raise Refused(NAME, f"{field} is not that of {name}", expected=or_null(wanted), found=or_null(there))


def bound(found: Split, at: int, receipt: Receipt, place: Path) -> str:
    """The digest of a competition's receipt; refuse one that is not the receipt that the split names of competition `at`."""
    row, digest = found.predicate["split"]["receipts"][at], f"sha256:{receipt.digest.hex()}"
    for what, wanted, given in (
        ("it is of another receipt than the split names", row["digest"], digest),
        ("it is of another competition than the split names", row["competition"], receipt.predicate["competition"]),
    ):
        if wanted != given:
            raise Refused(NAME, what, expected=wanted, found=given, file=place)
    return digest


def same(found: Split, settled: Sequence[SplitInput], file: Path) -> None:
    """Refuse a split that does not follow, by the rules that it states, from the settlements of its competitions."""
    with stage(NAME):
        ours = emission.split(statements.split_rules_of(found.predicate), settled).document
        other = differs(ours, found.predicate["split"])
        if other is not None:
            field, participant, wanted, given = other
            what = f"{field} differs"
            raise Refused(NAME, what, participant=participant, expected=or_null(wanted), found=or_null(given), file=file)


def _computed(root: Path, found: Split, verify: Callable[[Path, LogKey], Verified], into: Verified) -> None:
    """Every competition by its bundle and the key that the split names, and the split from their settlements."""
    said = found.predicate["split"]
    numbers = [str(number) for number in range(1, len(said["receipts"]) + 1)]
    there = sorted(os.listdir(root / COMPETITIONS)) if (root / COMPETITIONS).is_dir() else []
    if there != sorted(numbers):
        what = "the competitions are not those that the split names"
        raise Refused(NAME, what, expected=", ".join(numbers), found=", ".join(there), file=root / COMPETITIONS)
    settled: list[SplitInput] = []
    for at, (row, key) in enumerate(zip(said["receipts"], found.logs, strict=True)):
        place, name = root / COMPETITIONS / numbers[at], row["competition"]
        if is_joint(place) or not place.is_dir():
            raise Refused(NAME, "it is not the bundle of a competition", file=place)
        try:
            one = verify(place, key)
        except BadInput as error:
            raise Refused(NAME, f"{name}: {error.what}", file=error.file or place) from None
        digest = bound(found, at, Receipt.parse(gather_material(place, None).data), place)
        assert one.settlement is not None
        settled.append(emission.split_input(one.settlement, digest, str(key)))
        into.checked += [StageResult(each.stage, f"{name}: {each.what}", each.done) for each in one.checked]
    same(found, settled, root / SPLIT)
    into.right(NAME, f"of {several(len(settled), 'competition')}, computed again to the bit: {said['digest']}")
