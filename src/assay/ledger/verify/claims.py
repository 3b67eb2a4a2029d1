"""Which of a receipt's records are not those that were signed: for a message that says whose they are. SPEC 6.

A receipt binds its records by one root, which only tells that something is another. The batches beside them tell more, since each
has a root that its validator signed: the first one whose records differ is named, or the first record that is in none.

The stages that look at the evidence: is it all of it, and did its validators sign it. SPEC 3.0, 6.

The stages that need no evidence: the receipt, its place in the log, earlier checkpoints, the receipts before. SPEC 6.
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
"""Participants, submissions or ranges that are named; of the others it is said how many they are."""
Ranges = Sequence[Sequence[int]]


def name_difference(path: Path, found: BoundRecords, signed: Path | None, epochs: tuple[int, int]) -> Refused | None:
    """What is refused of the records in a file; None if all are as they were signed, or nothing says how that was.

    signed: the batches. epochs: the first and the last of the receipt's.
    """
    here = dict(zip(found.seqs, zip(found.digests, found.said, strict=True), strict=True))
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
    what = f"nobody signed the record with seq {seq}, which is said to be of {here[seq][1][2]}"
    return Refused("evidence", what, participant=_participants(path, [[seq, seq]]), file=path)


def _batches(signed: Path | None, epochs: tuple[int, int]) -> Iterator[tuple[BatchStatement, Ranges]]:
    """Those of the epochs that can be read and are signed; the others are refused at their own stage. Raises BadInput."""
    for place, line in [] if signed is None else report.batch_lines(signed):
        with suppress(BadInput, check.CheckError):
            envelope, members = report.split_batch_line(line, place)
            stated = batch.stated(envelope)[1]
            batch.check_envelope(envelope, keys.public(stated.validator))
            count = sum(last - first + 1 for first, last in members)
            whole = stated.count == count <= batch.RECORDS and all(first <= last for first, last in members)
            if whole and epochs[0] <= stated.epoch <= epochs[1]:
                yield stated, members


def _other(path: Path, stated: BatchStatement, members: Ranges, missing: int, root: str) -> Refused:
    """What is refused of a batch's records, of which so many are missing, and the others have this root."""
    seqs = _few([str(first) if first == last else f"{first} … {last}" for first, last in members])
    about = _few([one for one in stated.submissions if one])
    of = f"of the records with seq {seqs} that {stated.validator} signed{about and f' about {about}'}"
    whose = _participants(path, members)
    if missing:
        return Refused("evidence", f"{of}, {missing} {'is' if missing == 1 else 'are'} missing", participant=whose, file=path)
    what = f"{of}, at least one was changed"
    return Refused("evidence", what, participant=whose, expected=stated.root, found=root, file=path)


def _participants(path: Path, members: Ranges) -> str:
    """Whom the records in these ranges are about, as they are now."""
    seqs = {seq for first, last in members for seq in range(first, last + 1)}
    bodies = itertools.chain.from_iterable(zip(part.seqs, part.bodies, strict=True) for part in evidence.evidence_parts(path))
    return _few(sorted({json.loads(body)["participant"] for seq, body in bodies if seq in seqs}))


def _few(names: Sequence[str]) -> str:
    """The first of them as they are, and how many more there are."""
    more = len(names) - NAMES
    return ", ".join(names[:NAMES]) + (f" and {more} more" if more > 0 else "")


def check_bound(path: Path, one: Receipt, first: int, signed: Path | None = None) -> BoundRecords:
    """A file's records, which must be those that a receipt binds; `first` is the first of its epochs. Raises Refused.

    signed: the batches, by which it can be said which records are not those.
    """
    said = one.predicate
    epochs = first, said["epoch"]
    with stage("evidence"):
        found = evidence.read_evidence(path, said["evidence"]["count"])
        if len(found.seqs) != said["evidence"]["count"]:
            if of := name_difference(path, found, signed, epochs):
                raise of
            what = f"records of the receipt of epoch {said['epoch']} are missing"
            raise Refused("evidence", what, expected=said["evidence"]["count"], found=len(found.seqs), file=path)
        if any(earlier >= later for earlier, later in itertools.pairwise(found.seqs)):
            raise Refused("evidence", "the records are not in the order of their acceptance", file=path)
        root = evidence.evidence_root(found.seqs, found.digests)
        if root != said["evidence"]["root"]:
            if of := name_difference(path, found, signed, epochs):
                raise of
            what = f"the records are not those of the receipt of epoch {said['epoch']}"
            raise Refused("evidence", what, expected=said["evidence"]["root"], found=root, file=path)
        wrong = next((epoch for _, epoch, _ in set(found.said) if not first <= epoch <= said["epoch"]), None)
        if wrong is not None:
            raise Refused("evidence", f"there is a record of epoch {wrong}", expected=f"{first} … {said['epoch']}", file=path)
    return found


def check_held(given: Material, receipts: Sequence[Receipt], into: Verified) -> BoundRecords:
    """Stage `evidence`: the records of every receipt, root and count; all together, in order of acceptance."""
    whole, first = BoundRecords(), 0
    with stage("evidence"):
        for one in receipts:
            epoch = one.predicate["epoch"]
            if epoch not in given.evidence:
                raise Refused("evidence", f"there is no evidence for the receipt of epoch {epoch}", file=given.root)
            found = check_bound(given.evidence[epoch], one, first, given.root and given.root / bundle.BATCHES)
            for mine, theirs in ((whole.seqs, found.seqs), (whole.digests, found.digests), (whole.said, found.said)):
                mine.extend(theirs)  # type: ignore[arg-type]
            first = epoch + 1
        others = sorted(set(given.evidence) - {one.predicate["epoch"] for one in receipts})
        if others:
            raise Refused("evidence", f"there is evidence of epoch {others[0]}, of which there is no receipt", file=given.root)
        if any(earlier >= later for earlier, later in itertools.pairwise(whole.seqs)):
            whole = _sorted(whole)
    into.right("evidence", f"{several(len(whole.seqs), 'record')} under {several(len(receipts), 'evidence root')}")
    return whole


def _sorted(found: BoundRecords) -> BoundRecords:
    """In order of acceptance: evidence of a later epoch may have been accepted earlier."""
    order = np.argsort(np.array(found.seqs, np.int64), kind="stable").tolist()
    seqs = [found.seqs[at] for at in order]
    if any(earlier == later for earlier, later in itertools.pairwise(seqs)):
        raise Refused("evidence", "two records have the same seq")
    return BoundRecords(seqs, [found.digests[at] for at in order], [found.said[at] for at in order])


def check_signed(given: Material, found: BoundRecords, competition: str, origin: str, into: Verified) -> list[BatchTaskSet]:
    """Stage `signatures`: each batch is signed by its validator for this log, and is of these records; each record is in a batch.

    A batch of version 1 names no log; how many are such is told.
    """
    assert given.root is not None
    path = given.root / bundle.BATCHES
    seqs = np.array(found.seqs, np.int64)
    covered = np.zeros(len(seqs), np.bool_)
    judged: list[BatchTaskSet] = []
    known: set[bytes] = set()
    first = 0
    with stage("signatures"):
        for place, line in report.batch_lines(path):
            envelope, members = report.split_batch_line(line, place)
            try:
                payload, stated = batch.stated(envelope)
                if payload in known:  # to check one again and again would have no end
                    raise Refused("signatures", "the batch is there twice")
                known.add(payload)
                if stated.competition != competition:
                    what = "the batch is of another competition"
                    raise Refused("signatures", what, expected=competition, found=stated.competition)
                if stated.version > 1 and stated.origin != origin:
                    raise Refused("signatures", "the batch is for another log", expected=origin, found=or_null(stated.origin))
                first += stated.version == 1
                _batch(envelope, stated, members, found, seqs, covered)
                judged.append(BatchTaskSet(stated.task_set, members))
            except check.CheckError as refused:
                raise Refused(
                    "signatures", refused.what, expected=refused.expected, found=refused.found, file=path, line=place.line
                ) from None
            except (Refused, BadInput) as error:
                raise error.at(file=path, line=place.line) from None
        if not covered.all():
            at = int(np.flatnonzero(~covered)[0])
            kind, epoch, validator = found.said[at]
            what = f"nobody signed the record with seq {found.seqs[at]}, of kind {kind} and epoch {epoch}"
            raise Refused("signatures", what, expected=f"a batch of {validator}", file=path)
    unnamed = f"; {several(first, 'batch', 'batches')} of version 1, which names no log" if first else ""
    validators = several(len({who for _, _, who in set(found.said)}), "validator")
    into.right("signatures", f"{several(len(judged), 'batch', 'batches')} by {validators}{unnamed}")
    return judged


def _check_ranges(members: list[list[int]], count: int) -> None:
    """Refuse ranges that are not one after another, each seq in one, as many as the statement counts."""
    if any(first > last for first, last in members) or any(
        one[1] >= following[0] for one, following in itertools.pairwise(members)
    ):
        raise Refused("signatures", "the ranges of its records do not ascend")
    if (found := sum(last - first + 1 for first, last in members)) != count:
        raise Refused("signatures", "the records are not those that were signed", expected=f"{count} records", found=found)


def _batch(
    envelope: bytes,
    said: BatchStatement,
    members: list[list[int]],
    found: BoundRecords,
    seqs: NDArray[np.int64],
    covered: NDArray[Any],
) -> None:
    _check_ranges(members, said.count)
    batch.check_envelope(envelope, keys.public(said.validator))
    digests: list[bytes] = []
    wanted = (said.kind, said.epoch, said.validator)
    for first, last in members:
        begin, end = int(np.searchsorted(seqs, first)), int(np.searchsorted(seqs, last, side="right"))
        if end - begin != last - first + 1:
            raise Refused(
                "signatures", "a record of the batch is missing", expected=f"seq {first} … {last}", found=f"{end - begin} of them"
            )
        mine = found.said[begin:end]
        if mine.count(wanted) != len(mine):
            told = ["{}, epoch {}, of {}".format(*one) for one in (wanted, next(one for one in mine if one != wanted))]
            what = "a record is of another validator, epoch or kind than its batch"
            raise Refused("signatures", what, expected=told[0], found=told[1])
        digests += found.digests[begin:end]
        covered[begin:end] = True
    digests.sort()
    if len(digests) != said.count or batch.root_of(digests) != said.root:
        raise Refused(
            "signatures", "the records are not those that were signed", expected=said.root, found=batch.root_of(digests)
        )


@dataclass(frozen=True)
class ReceiptChain:
    """The receipts from the first to the one that is verified, and what the settlement before it hands on."""

    receipts: tuple[Receipt, ...]
    previous: Previous | None


def read_receipt(data: bytes, key: LogKey | None, path: Path, name: str = "receipt") -> tuple[Receipt, LogKey]:
    """The receipt in bytes, and the key it is to be checked by: the one given, or else the one that it names itself."""
    try:
        found = Receipt.parse(data)
        return found, key or key_of(found)
    except check.CheckError as refused:
        where = "log" if (name, refused.stage) == ("receipt", "log") else name
        raise Refused(where, refused.what, expected=refused.expected, found=refused.found, file=path) from None


def key_of(found: Receipt) -> LogKey:
    """The key that a receipt says it is signed with, under the name that its checkpoint has; anybody can make one such."""
    name, digits = found.proof.checkpoint.partition(b"\n")[0].decode(), found.envelope.signatures[0][0].removeprefix("ed25519:")
    try:
        return LogKey(bytes.fromhex(digits), name)
    except ValueError:
        raise check.CheckError("receipt", "it does not name the key that it is signed with", "ed25519:…", digits[:100]) from None


def check_receipt_file(found: Receipt, key: LogKey, path: Path, into: Verified, *, own: bool) -> Checkpoint:
    """Stages `receipt` and `log`: the signature of the statement, the checkpoint's, and the proof from the one to the other."""
    now = check_receipt(found, key, path)
    into.receipt = found.predicate
    whose = f"{key.id}, which the receipt names itself: compare it with the log's" if own else f"the log's key {key}"
    said = found.predicate
    into.right("receipt", f"{said['competition']} epoch {said['epoch']}, signed by {whose}")
    into.right("log", f"entry {found.proof.index} of {now.size} in {now.origin}, by a signed checkpoint")
    return now


def check_receipt(found: Receipt, key: LogKey, path: Path) -> Checkpoint:
    """The checkpoint that a receipt is in; raises Refused unless the key signed it, as it says itself, and it is in the log."""
    try:
        now = check.check_receipt(found, [key])
    except check.CheckError as refused:
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


def check_chain(given: Material, last: Receipt, key: LogKey, now: Checkpoint, into: Verified) -> ReceiptChain:
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
                one, _ = read_receipt(data, key, path)
                check_receipt(one, key, path)
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
    return ReceiptChain(tuple(receipts), before)


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
    content = read_document(path)
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
