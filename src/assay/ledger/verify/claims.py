"""Run the stages that check what was signed: receipt, log, chain of receipts, evidence and its batches. SPEC 3.0, 6.

A receipt binds its records by one root, which only shows that something differs. The batches show more, because each has a root
that its validator signed. So an error names the first batch whose records differ, or the first record that is in no batch.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInput, Refused
from assay.folder.files import load, unreadable
from assay.folder.previous import previous_of
from assay.ledger import batch, bundle, check, evidence, keys, merkle
from assay.ledger.batch import BatchStatement
from assay.ledger.check import Checkpoint, LogKey, Receipt
from assay.ledger.eligible import BatchTaskSet
from assay.ledger.evidence import BoundRecords
from assay.ledger.log import Log
from assay.ledger.verify import report
from assay.ledger.verify.report import Material, Verified, or_null, read_document, several, stage
from assay.settle.inputs import Previous

NAMES = 3
"""The number of participants, submissions or ranges that a message names; the others are counted."""
Ranges = Sequence[Sequence[int]]


def name_difference(path: Path, records: BoundRecords, signed: Path | None, epochs: tuple[int, int]) -> Refused | None:
    """The error that names which records in a file differ from the signed ones; None if the batches do not show a difference.

    signed: the file of batches. epochs: the first and the last epoch of the receipt.
    """
    here = dict(zip(records.seqs, zip(records.digests, records.heads, strict=True), strict=True))
    left = set(here)
    try:
        for stated, members in _batches(signed, epochs):
            wanted = {seq for first, last in members for seq in range(first, last + 1)}
            left -= wanted
            mine = sorted(here[seq][0] for seq in wanted if seq in here)
            if len(mine) != len(wanted) or batch.root_of(mine) != stated.root:
                return _other(path, stated, members, len(wanted) - len(mine), batch.root_of(mine))
    except BadInput:
        return None
    if signed is None or not left:
        return None
    seq = min(left)
    what = f"nobody signed the record with seq {seq}, which names {here[seq][1][2]} as its validator"
    return Refused("evidence", what, participant=_participants(path, [[seq, seq]]), file=path)


def _batches(signed: Path | None, epochs: tuple[int, int]) -> Iterator[tuple[BatchStatement, Ranges]]:
    """The readable and signed batches of the epochs; others are refused in the stage `signatures`. Raises BadInput."""
    for place, line in [] if signed is None else report.batch_lines(signed):
        with suppress(BadInput, check.CheckError):
            envelope, members = report.split_batch_line(line, place)
            decoded, stated = batch.stated(envelope)
            batch.check_envelope(decoded, keys.public(stated.validator))
            count = sum(last - first + 1 for first, last in members)
            whole = stated.count == count <= batch.RECORDS and all(first <= last for first, last in members)
            if whole and epochs[0] <= stated.epoch <= epochs[1]:
                yield stated, members


def _other(path: Path, stated: BatchStatement, members: Ranges, missing: int, root: str) -> Refused:
    """The error for a batch's records: how many are missing; or, if none, that their root is another."""
    seqs = _few([str(first) if first == last else f"{first} … {last}" for first, last in members])
    whose = _participants(path, members)
    if missing:
        verb = "is" if missing == 1 else "are"
        what = f"{missing} of the records with seq {seqs} {verb} missing; {stated.validator} signed them"
        return Refused("evidence", what, participant=whose, file=path)
    what = f"at least one record with seq {seqs} was changed after {stated.validator} signed it"
    return Refused("evidence", what, participant=whose, expected=stated.root, found=root, file=path)


def _participants(path: Path, members: Ranges) -> str:
    """The participants in the records with these seqs, as the file has them now."""
    seqs = {seq for first, last in members for seq in range(first, last + 1)}
    bodies = itertools.chain.from_iterable(zip(part.seqs, part.bodies, strict=True) for part in evidence.evidence_parts(path))
    return _few(sorted({json.loads(body)["participant"] for seq, body in bodies if seq in seqs}))


def _few(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - NAMES
    return ", ".join(names[:NAMES]) + (f" and {more} more" if more > 0 else "")


def check_bound(path: Path, receipt: Receipt, first: int, signed: Path | None = None) -> BoundRecords:
    """The records of a file, which must be those that a receipt binds; `first` is the first of its epochs. Raises Refused.

    signed: the file of batches, which can show which records differ.
    """
    predicate = receipt.predicate
    epochs = first, predicate["epoch"]
    with stage("evidence"):
        records = evidence.read_evidence(path, predicate["evidence"]["count"])
        if len(records.seqs) != predicate["evidence"]["count"]:
            if of := name_difference(path, records, signed, epochs):
                raise of
            what = f"records of the receipt of epoch {predicate['epoch']} are missing"
            raise Refused("evidence", what, expected=predicate["evidence"]["count"], found=len(records.seqs), file=path)
        if any(earlier >= later for earlier, later in itertools.pairwise(records.seqs)):
            raise Refused("evidence", "the records are not in the order of their acceptance", file=path)
        root = evidence.evidence_root(records.seqs, records.digests)
        if root != predicate["evidence"]["root"]:
            if of := name_difference(path, records, signed, epochs):
                raise of
            what = f"the records are not those of the receipt of epoch {predicate['epoch']}"
            raise Refused("evidence", what, expected=predicate["evidence"]["root"], found=root, file=path)
        wrong = next((epoch for _, epoch, _ in set(records.heads) if not first <= epoch <= predicate["epoch"]), None)
        if wrong is not None:
            raise Refused(
                "evidence", f"there is a record of epoch {wrong}", expected=f"{first} … {predicate['epoch']}", file=path
            )
    return records


def check_held(given: Material, receipts: Sequence[Receipt], into: Verified) -> BoundRecords:
    """Stage `evidence`: the records of every receipt, root and count; all together, in order of acceptance."""
    whole, first = BoundRecords(), 0
    with stage("evidence"):
        for receipt in receipts:
            epoch = receipt.predicate["epoch"]
            if epoch not in given.evidence:
                raise Refused("evidence", f"there is no evidence for the receipt of epoch {epoch}", file=given.root)
            records = check_bound(given.evidence[epoch], receipt, first, given.root and given.root / bundle.BATCHES)
            for mine, theirs in ((whole.seqs, records.seqs), (whole.digests, records.digests), (whole.heads, records.heads)):
                mine.extend(theirs)  # type: ignore[arg-type]
            first = epoch + 1
        others = sorted(set(given.evidence) - {receipt.predicate["epoch"] for receipt in receipts})
        if others:
            raise Refused("evidence", f"there is evidence of epoch {others[0]}, but no receipt of that epoch", file=given.root)
        if any(earlier >= later for earlier, later in itertools.pairwise(whole.seqs)):
            whole = _sorted(whole)
    into.right("evidence", f"{several(len(whole.seqs), 'record')} under {several(len(receipts), 'evidence root')}")
    return whole


def _sorted(records: BoundRecords) -> BoundRecords:
    """The records in order of acceptance: evidence of a later epoch may have been accepted earlier."""
    order = np.argsort(np.array(records.seqs, np.int64), kind="stable").tolist()
    seqs = [records.seqs[at] for at in order]
    if any(earlier == later for earlier, later in itertools.pairwise(seqs)):
        raise Refused("evidence", "two records have the same seq")
    return BoundRecords(seqs, [records.digests[at] for at in order], [records.heads[at] for at in order])


def check_signed(given: Material, records: BoundRecords, competition: str, origin: str, into: Verified) -> list[BatchTaskSet]:
    """Stage `signatures`: each batch is signed by its validator for this log and fits the records; each record is in a batch.

    A batch of version 1 names no log; the report says how many there are.
    """
    assert given.root is not None
    path = given.root / bundle.BATCHES
    seqs = np.array(records.seqs, np.int64)
    covered = np.zeros(len(seqs), np.bool_)
    judged: list[BatchTaskSet] = []
    known: set[bytes] = set()
    first = 0
    with stage("signatures"):
        for place, line in report.batch_lines(path):
            envelope, members = report.split_batch_line(line, place)
            try:
                decoded, stated = batch.stated(envelope)
                if decoded.payload in known:  # checking copies of a batch again and again could take forever
                    raise Refused("signatures", "the batch occurs twice")
                known.add(decoded.payload)
                if stated.competition != competition:
                    what = "the batch is of another competition"
                    raise Refused("signatures", what, expected=competition, found=stated.competition)
                if stated.version > 1 and stated.origin != origin:
                    raise Refused("signatures", "the batch is for another log", expected=origin, found=or_null(stated.origin))
                first += stated.version == 1
                _batch(decoded, stated, members, records, seqs, covered)
                judged.append(BatchTaskSet(stated.task_set, members))
            except check.CheckError as refused:
                raise Refused(
                    "signatures", refused.what, expected=refused.expected, found=refused.found, file=path, line=place.line
                ) from None
            except (Refused, BadInput) as error:
                raise error.at(file=path, line=place.line) from None
        if not covered.all():
            at = int(np.flatnonzero(~covered)[0])
            kind, epoch, validator = records.heads[at]
            what = f"nobody signed the record with seq {records.seqs[at]}, of kind {kind} and epoch {epoch}"
            raise Refused("signatures", what, expected=f"a batch of {validator}", file=path)
    unnamed = f"; {several(first, 'batch', 'batches')} of version 1, which names no log" if first else ""
    validators = several(len({who for _, _, who in set(records.heads)}), "validator")
    into.right("signatures", f"{several(len(judged), 'batch', 'batches')} by {validators}{unnamed}")
    return judged


def _check_ranges(members: list[list[int]], count: int) -> None:
    """Raise Refused unless the ranges ascend without overlap, and have as many seqs as the statement counts."""
    if any(first > last for first, last in members) or any(
        previous[1] >= following[0] for previous, following in itertools.pairwise(members)
    ):
        raise Refused("signatures", "the ranges of its records do not ascend")
    if (total := sum(last - first + 1 for first, last in members)) != count:
        raise Refused("signatures", "the records are not those that were signed", expected=f"{count} records", found=total)


def _batch(
    envelope: check.Envelope,
    statement: BatchStatement,
    members: list[list[int]],
    records: BoundRecords,
    seqs: NDArray[np.int64],
    covered: NDArray[Any],
) -> None:
    _check_ranges(members, statement.count)
    batch.check_envelope(envelope, keys.public(statement.validator))
    digests: list[bytes] = []
    wanted = (statement.kind, statement.epoch, statement.validator)
    for first, last in members:
        begin, end = int(np.searchsorted(seqs, first)), int(np.searchsorted(seqs, last, side="right"))
        if end - begin != last - first + 1:
            raise Refused(
                "signatures", "a record of the batch is missing", expected=f"seq {first} … {last}", found=f"{end - begin} of them"
            )
        mine = records.heads[begin:end]
        if mine.count(wanted) != len(mine):
            texts = ["{}, epoch {}, by {}".format(*claim) for claim in (wanted, next(claim for claim in mine if claim != wanted))]
            what = "a record is of another validator, epoch or kind than its batch"
            raise Refused("signatures", what, expected=texts[0], found=texts[1])
        digests += records.digests[begin:end]
        covered[begin:end] = True
    digests.sort()
    if len(digests) != statement.count or batch.root_of(digests) != statement.root:
        raise Refused(
            "signatures", "the records are not those that were signed", expected=statement.root, found=batch.root_of(digests)
        )


@dataclass(frozen=True)
class ReceiptChain:
    """The receipts from the first to the one that is verified, and the settlement before it, as far as it is needed."""

    receipts: tuple[Receipt, ...]
    previous: Previous | None


def read_receipt(data: bytes, key: LogKey | None, path: Path, name: str = "receipt") -> tuple[Receipt, LogKey]:
    """The receipt in bytes, and the key to check it with: the given one, or else the one that the receipt names."""
    try:
        receipt = Receipt.parse(data)
        return receipt, key or key_of(receipt)
    except check.CheckError as refused:
        where = "log" if (name, refused.stage) == ("receipt", "log") else name
        raise Refused(where, refused.what, expected=refused.expected, found=refused.found, file=path) from None


def key_of(receipt: Receipt) -> LogKey:
    """The key that a receipt itself names, with the log's name in its checkpoint; anybody can make such a key."""
    name, digits = (
        receipt.proof.checkpoint.partition(b"\n")[0].decode(),
        receipt.envelope.signatures[0][0].removeprefix("ed25519:"),
    )
    try:
        return LogKey(bytes.fromhex(digits), name)
    except ValueError:
        raise check.CheckError("receipt", "it does not name the key that signed it", "ed25519:…", digits[:100]) from None


def check_receipt_file(receipt: Receipt, key: LogKey, path: Path, into: Verified, *, own: bool) -> Checkpoint:
    """Stages `receipt` and `log`: the signatures of statement and checkpoint, and the proof between them.

    own: the key is the one that the receipt itself names.
    """
    now = check_receipt(receipt, key, path)
    into.receipt = receipt.predicate
    whose = f"{key.id}, which the receipt names itself: compare it with the log's" if own else f"the log's key {key}"
    predicate = receipt.predicate
    into.right("receipt", f"{predicate['competition']} epoch {predicate['epoch']}, signed by {whose}")
    into.right("log", f"entry {receipt.proof.index} of {now.size} in {now.origin}, by a signed checkpoint")
    return now


def check_receipt(receipt: Receipt, key: LogKey, path: Path) -> Checkpoint:
    """The checkpoint that a receipt is in; raises Refused unless its key and keyids are right, and the log has it."""
    try:
        now = check.check_receipt(receipt, [key])
    except check.CheckError as refused:
        raise Refused(refused.stage, refused.what, expected=refused.expected, found=refused.found, file=path) from None
    for name, _ in receipt.envelope.signatures:
        if name != key.id:
            raise Refused("receipt", "the signature names another key", expected=key.id, found=name, file=path)
    return now


def log_of(folder: Path, key: LogKey, now: Checkpoint, into: Verified, *, whole: bool) -> Log:
    """Stage `log`, for a folder of tiles: they lead to their checkpoint and continue the receipt's. `whole`: check every tile."""
    with stage("log"):
        log = Log(folder, key)
        log.check_against(now)
        if whole:
            log.check()
    into.right("log", f"the tiles of {folder} lead to a signed checkpoint of {several(log.size, 'entry', 'entries')}")
    return log


def consistency(file: Path, key: LogKey, now: Checkpoint, log: Log | None, into: Verified) -> None:
    """Stage `consistency`: a checkpoint that was seen before is of the same log, whose entries were not changed since."""
    seen_note = load(file, check.NOTE_BYTES, hint="give a checkpoint that was kept earlier")
    with stage("consistency"):
        seen = check.check_checkpoint(seen_note, [key], "consistency")
        if log is not None:
            log.check_against(seen)
        elif seen != now:
            what = "nothing proves that one checkpoint continues the other; give the folder of the log's tiles with --log"
            raise Refused("consistency", what, expected=f"size {seen.size}", found=f"size {now.size}")
    into.right(
        "consistency", f"the log continues the checkpoint of {several(seen.size, 'entry', 'entries')} that was seen before"
    )


def check_chain(given: Material, last: Receipt, key: LogKey, now: Checkpoint, into: Verified) -> ReceiptChain:
    """Stage `chain`: every receipt from the first on is signed, in the log, and names the one before; none is left out."""
    assert given.root is not None
    receipts: list[Receipt] = []
    proven: list[tuple[Path, Checkpoint]] = []
    with stage("chain"):
        folder = given.root / bundle.RECEIPTS
        try:
            paths = sorted(folder.iterdir(), key=_by_epoch)
        except OSError as error:
            raise unreadable(folder, error) from None
        for path in paths:
            data = load(path, check.RECEIPT_BYTES, hint="")
            try:
                receipt, _ = read_receipt(data, key, path)
                proven.append((path, check_receipt(receipt, key, path)))
            except Refused as refused:
                raise Refused("chain", refused.what, expected=refused.expected, found=refused.found, file=path) from None
            _follows(receipts, receipt, path)
            receipts.append(receipt)
        if not receipts or receipts[-1].digest != last.digest:
            raise Refused("chain", "the last of the receipts is not the one that is verified", file=folder)
        if merkle.root([check.leaf_hash(receipt.digest) for receipt in receipts]) != now.root:
            raise Refused("chain", "the receipts are not all that the log has up to this one", file=folder)
        _check_grown(receipts, proven)
        before = _previous(given.root / bundle.PREVIOUS, receipts)
    into.right("chain", f"{several(len(receipts), 'receipt')} from the first to this one, each naming the one before")
    return ReceiptChain(tuple(receipts), before)


def _check_grown(receipts: list[Receipt], proven: list[tuple[Path, Checkpoint]]) -> None:
    """Raise Refused unless each receipt is proven in the log of which it is the last entry, so in one and the same history."""
    log = merkle.Frontier()
    for receipt, (path, then) in zip(receipts, proven, strict=True):
        log.add(check.leaf_hash(receipt.digest))
        if then.size != log.count:
            what = "its proof is not for the log in which it is the last entry"
            raise Refused("chain", what, expected=f"size {log.count}", found=f"size {then.size}", file=path)
        if then.root != log.root():
            what = "its proof is for a log of another history"
            raise Refused("chain", what, expected=log.root().hex(), found=then.root.hex(), file=path)


def _follows(before: list[Receipt], receipt: Receipt, path: Path) -> None:
    """Raise Refused for a receipt that does not come next. Epochs ascend by the sorted file names."""
    predicate = receipt.predicate
    last = before[-1] if before else None
    expected: Any = None
    if last is not None:
        expected = {"epoch": last.predicate["epoch"], "receipt": f"sha256:{last.digest.hex()}"}
    for what, wanted, given in (
        ("it is not in its place in the log", len(before), receipt.proof.index),
        ("it does not name the receipt before it", expected, predicate["previous"]),
        ("it is of another competition", (last or receipt).predicate["competition"], predicate["competition"]),
        ("the file is not named after its epoch", f"epoch-{predicate['epoch']}.receipt", path.name),
    ):
        if wanted != given:
            raise Refused("chain", what, expected=or_null(wanted), found=or_null(given), file=path)


def _previous(path: Path, receipts: list[Receipt]) -> Previous | None:
    """The settlement before, as far as it is needed; raises Refused unless the receipt before names it."""
    if len(receipts) == 1:
        if path.exists():
            raise Refused("chain", "there is a settlement before the first one", file=path)
        return None
    content = read_document(path)
    try:
        previous = previous_of(content)
    except BadInput as error:
        raise error.at(file=path) from None
    wanted = receipts[-2].predicate["settlement"]
    if content["digest"] != wanted:
        what = "it is not the settlement that the receipt before names"
        raise Refused("chain", what, expected=wanted, found=content["digest"], file=path)
    return previous


def _by_epoch(path: Path) -> tuple[int, str]:
    digits = path.name.removeprefix("epoch-").removesuffix(".receipt")
    return (int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 17 else -1, path.name)
