"""Verify a subnet's export: the signed split, each competition by the key that the split names, the split itself. SPEC 4, 6."""

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
from assay.ledger.verify import claims, witnesses
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
    """Whether a path is a subnet's export or signed split, not a competition's bundle or receipt."""
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
    policy: Path | None = None,
) -> None:
    """Check the signed split and every competition's bundle, and that the split follows from the bundles. SPEC 4, 6.

    keys: the subnet's, and perhaps those of competitions; each must be of a log that is checked. Without keys, the split is
    checked with the key that it names itself. announced: a subnet file that it must follow. Raises Refused at the first stage
    that fails.
    """
    root = path if path.is_dir() else None
    file = path if root is None else root / SPLIT
    if not os.path.lexists(file):
        what = "nobody signed this split: an earlier version exported it, and it proves nothing"
        raise Refused("receipt", what, file=path / EMISSION)
    split, key = read(load(file, check.RECEIPT_BYTES, hint=HINT), keys, file)
    now = claims.check_receipt(split, key, file)
    predicate = split.predicate
    _after(split, file)
    whose = f"the subnet's key {key}" if keys else f"{key.id}, which the split names itself: compare it with the subnet's"
    into.right("receipt", f"{predicate['subnet']} epoch {predicate['epoch']}, signed by {whose}")
    into.right("log", f"entry {split.proof.index} of {now.size} in {now.origin}, by a signed checkpoint")
    _logs(root, key, now, into, split, checkpoint=checkpoint, log=log)
    witnesses.verify_witnesses(policy, checkpoint, key, split.proof.checkpoint, into)
    if announced is not None:
        rules = subnet.read(announced)
        follows(split, rules, str(announced))
        unnamed = (
            "" if all(member.log for member in rules.competitions) else "; this file does not name the log of every competition"
        )
        into.right(NAME, f"divided as {announced} says{unnamed}")
    if root is None:
        into.not_looked_at(NAME, "it was not computed again: that needs the folder that `assay export emission` writes")
    else:
        _computed(root, split, verify, into)
    into.emission = {"subnet": predicate["subnet"], "epoch": predicate["epoch"], "statement": f"sha256:{split.digest.hex()}"}
    into.emission |= {name: predicate["split"][name] for name in ("digest", "receipts")}


def read(data: bytes, keys: Sequence[LogKey], file: Path) -> tuple[Split, LogKey]:
    """The signed split in bytes, and the key to check it with: the one that the split names, which must be among those given.

    Raises Refused for anything but a signed split, for a given key of a log that the split does not name, and for a competition
    with the subnet's own log.
    """
    try:
        split = Split.parse(data)
        named = claims.key_of(split)
    except check.CheckError as refused:
        where = "log" if refused.stage == "log" else "receipt"
        raise Refused(where, refused.what, expected=refused.expected, found=refused.found, file=file) from None
    if keys and named not in keys:
        given = ", ".join(map(str, keys))
        raise Refused("receipt", "it is not signed by the key", expected=given, found=str(named), file=file)
    logs = split.logs
    if named in logs:
        raise Refused("receipt", "a competition has the subnet's own log", found=str(named), file=file)
    for supplied in keys:
        if supplied != named and supplied not in logs:
            what = "a key was given for a log that the split does not name"
            raise Refused("receipt", what, expected=", ".join(map(str, [named, *logs])), found=str(supplied), file=file)
    return split, named


def _after(split: Split, file: Path) -> None:
    """Raise Refused for a split that cannot follow the one before it in the log, such as one of the same epoch."""
    previous, epoch = split.predicate["previous"], split.predicate["epoch"]
    if (previous is None) != (split.proof.index == 0):
        what = "it does not name the split before it in the log"
        raise Refused("log", what, found=f"entry {split.proof.index}, previous {or_null(previous)}", file=file)
    if previous is not None and previous["epoch"] >= epoch:
        what = "the split before it is not of an earlier epoch"
        raise Refused("log", what, expected=f"below {epoch}", found=previous["epoch"], file=file)


def _logs(
    root: Path | None, key: LogKey, now: Checkpoint, into: Verified, split: Split, *, checkpoint: Path | None, log: Path | None
) -> None:
    """Stages `log` and `consistency`, of the subnet's log, and that `found` is the only split of its epoch so far."""
    tiles = None
    if root is not None:
        tiles = claims.log_of(root / LOG, key, now, into, whole=True)
        previous = split.predicate["previous"]
        with stage("log"):
            entries = list(islice(tiles.entries(0), split.proof.index))
        if previous is not None and (before := f"sha256:{entries[-1].hex()}") != previous["receipt"]:
            what = "the split that it names is not the entry before it"
            raise Refused("log", what, expected=before, found=previous["receipt"], file=root / SPLIT)
        if entries:
            _earlier(root / EARLIER, entries, key, split)
        into.right(
            "log", f"the only split of epoch {split.predicate['epoch']} of the {several(len(entries) + 1, 'split')} up to it"
        )
    if log is not None:
        tiles = claims.log_of(log, key, now, into, whole=False)
    if checkpoint is not None:
        claims.consistency(checkpoint, key, now, tiles, into)


def _earlier(file: Path, entries: Sequence[bytes], key: LogKey, split: Split) -> None:
    """Raise Refused unless all earlier splits of the log are shown, signed, and of ascending epochs."""

    def refuse(number: int, what: str, expected: object = None, given: object = None) -> Refused:
        return Refused("log", f"split {number} of the log: {what}", expected=or_null(expected), found=or_null(given), file=file)

    if not os.path.lexists(file):
        what = f"earlier splits of the log are missing ({len(entries)}), so it may not be the only split of its epoch"
        raise Refused("log", what, file=file)
    lines = load(file, check.RECEIPT_BYTES * len(entries), hint=HINT).removesuffix(b"\n").split(b"\n")
    if len(lines) != len(entries):
        raise Refused("log", "the file does not have every earlier split", expected=len(entries), found=len(lines), file=file)
    before: dict[str, object] | None = None
    for number, (line, entry) in enumerate(zip(lines, entries, strict=True), start=1):
        try:
            envelope = check.Envelope.parse(check.parse_json(line, "log", check.RECEIPT_BYTES), "log")
            check.check_envelope(envelope, [key], "log")
            predicate = statements.split_stated(envelope.payload, "log")
        except check.CheckError as refused:
            raise refuse(number, refused.what, refused.expected, refused.found) from None
        digest = sha256(envelope.payload).hexdigest()
        if digest != entry.hex():
            raise refuse(number, "it is not the entry of the log", entry.hex(), digest)
        if predicate["previous"] != before:
            raise refuse(number, "it does not follow the one before it", before, predicate["previous"])
        if before is not None and predicate["epoch"] <= before["epoch"]:
            raise refuse(number, "it is not of a later epoch than the one before it", None, predicate["epoch"])
        before = {"epoch": predicate["epoch"], "receipt": f"sha256:{digest}"}
    if split.predicate["previous"] != before:
        raise refuse(len(entries) + 1, "it does not follow the one before it", before, split.predicate["previous"])


def follows(split: Split, rules: SubnetFile, name: str) -> None:
    """Raise Refused for a split whose rules are not those of the subnet file of this name."""
    with stage(NAME):
        for field, wanted, stated in statements.split_differences(rules, split.predicate):
            raise Refused(NAME, f"{field} is not that of {name}", expected=or_null(wanted), found=or_null(stated))


def bound(split: Split, at: int, receipt: Receipt, place: Path) -> str:
    """The digest of a receipt, which must be the one that the split names for competition `at`; raises Refused."""
    row, digest = split.predicate["split"]["receipts"][at], f"sha256:{receipt.digest.hex()}"
    for what, wanted, given in (
        ("its receipt is not the one that the split names", row["digest"], digest),
        ("it is of another competition than the split names", row["competition"], receipt.predicate["competition"]),
    ):
        if wanted != given:
            raise Refused(NAME, what, expected=wanted, found=given, file=place)
    return digest


def same(split: Split, settled: Sequence[SplitInput], file: Path) -> None:
    """Raise Refused for a split that does not follow, by its own rules, from the settlements of its competitions."""
    with stage(NAME):
        ours = emission.split(statements.split_rules_of(split.predicate), settled).document
        other = differs(ours, split.predicate["split"])
        if other is not None:
            field, participant, wanted, given = other
            what = f"{field} differs"
            raise Refused(NAME, what, participant=participant, expected=or_null(wanted), found=or_null(given), file=file)


def _computed(root: Path, split: Split, verify: Callable[[Path, LogKey], Verified], into: Verified) -> None:
    """Verify each competition's bundle with the key that the split names, then the split from their settlements."""
    stated = split.predicate["split"]
    numbers = [str(number) for number in range(1, len(stated["receipts"]) + 1)]
    folders = sorted(os.listdir(root / COMPETITIONS)) if (root / COMPETITIONS).is_dir() else []
    if folders != sorted(numbers):
        what = "the competitions are not those that the split names"
        raise Refused(NAME, what, expected=", ".join(numbers), found=", ".join(folders), file=root / COMPETITIONS)
    settled: list[SplitInput] = []
    for at, (row, key) in enumerate(zip(stated["receipts"], split.logs, strict=True)):
        place, name = root / COMPETITIONS / numbers[at], row["competition"]
        if is_joint(place) or not place.is_dir():
            raise Refused(NAME, "it is not the bundle of a competition", file=place)
        try:
            report = verify(place, key)
        except BadInput as error:
            raise Refused(NAME, f"{name}: {error.what}", file=error.file or place) from None
        digest = bound(split, at, Receipt.parse(gather_material(place, None).data), place)
        assert report.settlement is not None
        settled.append(emission.split_input(report.settlement, digest, str(key)))
        into.checked += [StageResult(each.stage, f"{name}: {each.what}", each.done) for each in report.checked]
    same(split, settled, root / SPLIT)
    into.right(NAME, f"of {several(len(settled), 'competition')}, computed again to the bit: {stated['digest']}")
