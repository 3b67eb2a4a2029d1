"""The stages that look at the evidence: is it all of it, and did its validators sign it. SPEC 3.0, 6."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInput, Refused
from assay.ledger import batch, bundle, check, evidence, keys
from assay.ledger.batch import BatchStatement
from assay.ledger.check import Receipt
from assay.ledger.evidence import Held
from assay.ledger.standing import Judged
from assay.ledger.verify import batches, unlike
from assay.ledger.verify.material import Material
from assay.ledger.verify.report import Verified, or_null, several, stage

__all__ = ["bound", "held", "signed"]


def bound(path: Path, one: Receipt, first: int, signed: Path | None = None) -> Held:
    """A file's records, which must be those that a receipt binds; `first` is the first of its epochs. Raises Refused.

    signed: the batches, by which it can be said which records are not those.
    """
    said = one.predicate
    epochs = first, said["epoch"]
    with stage("evidence"):
        found = evidence.held(path, said["evidence"]["count"])
        if len(found.seqs) != said["evidence"]["count"]:
            if of := unlike.named(path, found, signed, epochs):
                raise of
            what = f"records of the receipt of epoch {said['epoch']} are missing"
            raise Refused("evidence", what, expected=said["evidence"]["count"], found=len(found.seqs), file=path)
        if any(earlier >= later for earlier, later in itertools.pairwise(found.seqs)):
            raise Refused("evidence", "the records are not in the order of their acceptance", file=path)
        root = evidence.root(found.seqs, found.digests)
        if root != said["evidence"]["root"]:
            if of := unlike.named(path, found, signed, epochs):
                raise of
            what = f"the records are not those of the receipt of epoch {said['epoch']}"
            raise Refused("evidence", what, expected=said["evidence"]["root"], found=root, file=path)
        wrong = next((epoch for _, epoch, _ in set(found.said) if not first <= epoch <= said["epoch"]), None)
        if wrong is not None:
            raise Refused("evidence", f"there is a record of epoch {wrong}", expected=f"{first} … {said['epoch']}", file=path)
    return found


def held(given: Material, receipts: Sequence[Receipt], into: Verified) -> Held:
    """Stage `evidence`: the records of every receipt, root and count; all together, in order of acceptance."""
    whole, first = Held(), 0
    with stage("evidence"):
        for one in receipts:
            epoch = one.predicate["epoch"]
            if epoch not in given.evidence:
                raise Refused("evidence", f"there is no evidence for the receipt of epoch {epoch}", file=given.root)
            found = bound(given.evidence[epoch], one, first, given.root and given.root / bundle.BATCHES)
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


def _sorted(found: Held) -> Held:
    """In order of acceptance: evidence of a later epoch may have been accepted earlier."""
    order = np.argsort(np.array(found.seqs, np.int64), kind="stable").tolist()
    seqs = [found.seqs[at] for at in order]
    if any(earlier == later for earlier, later in itertools.pairwise(seqs)):
        raise Refused("evidence", "two records have the same seq")
    return Held(seqs, [found.digests[at] for at in order], [found.said[at] for at in order])


def signed(given: Material, found: Held, competition: str, origin: str, into: Verified) -> list[Judged]:
    """Stage `signatures`: each batch is signed by its validator for this log, and is of these records; each record is in a batch.

    A batch of version 1 names no log; how many are such is told.
    """
    assert given.root is not None
    path = given.root / bundle.BATCHES
    seqs = np.array(found.seqs, np.int64)
    covered = np.zeros(len(seqs), np.bool_)
    judged: list[Judged] = []
    known: set[bytes] = set()
    first = 0
    with stage("signatures"):
        for place, line in batches.rows(path):
            envelope, members = batches.split(line, place)
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
                judged.append(Judged(stated.task_set, members))
            except check.Refused as refused:
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
    envelope: bytes, said: BatchStatement, members: list[list[int]], found: Held, seqs: NDArray[np.int64], covered: NDArray[Any]
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
