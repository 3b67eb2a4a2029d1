"""A participant's own proof: its result is in the receipt, and all records that it rests on are in its evidence. SPEC 6.

The result binds count and root of its records, so that a proof from which one was left out is refused. A proof of version 1, of a
receipt of version 1, does not say whether its records are all: that is told as not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from assay.errors import BadInput, Refused
from assay.exact import canonical
from assay.folder import strict
from assay.folder.text import decode
from assay.ledger import check, evidence
from assay.ledger.check import LogKey, Receipt
from assay.ledger.receipt import FIRST, PROOF
from assay.ledger.verify import receipts
from assay.ledger.verify.report import Verified, several, stage
from assay.records import record

__all__ = ["is_proof", "own"]

Json = Mapping[str, Any]
_PLACE = {"index": int, "size": int, "hashes": ["[0-9a-f]{64}"]}
_RECORDS = {"root": check.DIGEST, "count": int}
_SHAPE = {
    "schema": f"{PROOF}|{FIRST}",
    "receipt": object,
    "result": {
        "participant": check.WORD,
        "rank": (None, int),
        "agreed": object,
        "weight": object,
        "payouts": [object],
        "records?": _RECORDS,
    },
    "result_proof": _PLACE,
    "records": [{"epoch": int, "seq": int, "record": object, "proof": _PLACE}],
    "receipts": [object],
}


def is_proof(data: bytes) -> bool:
    """Whether the bytes are those of a participant's proof rather than of a receipt."""
    return b"assay.proof/" in data[:4096] or b'"result_proof"' in data


def own(data: bytes, key: LogKey | None, path: Path, into: Verified) -> tuple[Receipt, LogKey, check.Checkpoint]:
    """Check a proof: the receipts in it, the result, and every record. Raises Refused."""
    with stage("receipt"):
        try:
            found = strict.parse(decode(data, path))
        except BadInput as error:
            raise error.at(file=path) from None
        if bad := check.misfit(found, _SHAPE):
            raise Refused("receipt", f"it is not a participant's proof: {bad} does not fit", file=path)
    one, known = receipts.read(canonical(found["receipt"]), key, path)
    now = receipts.receipt(one, known, path, into, own=key is None)
    said, mine = one.predicate, found["result"]
    for what, there in (("proof", found["schema"] == FIRST), ("result", "records" not in mine)):
        if there != (one.version == 1):
            raise Refused("receipt", f"the {what} is of another version than the receipt", expected=one.version, file=path)
    with stage("results"):
        leaf = check.leaf_hash(canonical(mine))
        _included(found["result_proof"], said["results"], leaf, "results")
    rank = "no rank" if mine["rank"] is None else f"rank {mine['rank']}"
    into.right("results", f"the result of {mine['participant']} ({rank}) is one of {said['results']['count']}")
    bound = {said["epoch"]: said["evidence"]}
    with stage("chain"):
        for other in found["receipts"]:
            earlier = _earlier(other, said, now, known, path)
            bound[earlier.predicate["epoch"]] = earlier.predicate["evidence"]
    if found["receipts"]:
        into.right("chain", f"{several(len(found['receipts']), 'earlier receipt')}, signed and in the log")
    with stage("evidence"):
        for row in found["records"]:
            _record(row, bound, mine)
        if one.version > 1:
            _all_of_them(found["records"], mine["records"])
    count, every = several(len(found["records"]), "record"), "all " if one.version > 1 else ""
    into.right("evidence", f"{every}{count} that it rests on, each under the evidence root of a receipt")
    if one.version == 1:
        what = "whether these are all records: the receipt is of version 1, whose results do not say which they rest on"
        into.not_looked_at("evidence", what)
    into.not_looked_at("settlement", "what is not in a participant's proof: the others; the bundle of the epoch has them")
    return one, known, now


def _earlier(document: Any, here: Json, now: check.Checkpoint, key: LogKey, path: Path) -> Receipt:
    """A receipt from before, proven in the same checkpoint: one of a forked log could have other records."""
    found, _ = receipts.read(canonical(document), key, path, "chain")
    try:
        then = receipts.checked(found, key, path)
    except Refused as refused:
        raise Refused("chain", refused.what, expected=refused.expected, found=refused.found, file=path) from None
    if then != now:
        what = "an earlier receipt is not proven by the same checkpoint as the participant's"
        raise Refused("chain", what, expected=now.root.hex(), found=then.root.hex(), file=path)
    said = found.predicate
    if said["competition"] != here["competition"] or said["epoch"] >= here["epoch"]:
        raise Refused("chain", "a receipt is of another competition, or of no earlier epoch", file=path)
    return found


def _record(row: Mapping[str, Any], bound: Mapping[int, Any], mine: Mapping[str, Any]) -> None:
    """Refuse a record that is not under the root of its receipt, or is about somebody else."""
    one = record(row["record"])
    root = bound.get(row["epoch"])
    if root is None:
        raise Refused("evidence", f"there is no receipt of epoch {row['epoch']} for the record with seq {row['seq']}")
    leaf = evidence.leaf(row["seq"], bytes.fromhex(one.digest.removeprefix("sha256:")))
    _included(row["proof"], root, leaf, "evidence")
    if json.dumps(row["record"], sort_keys=True) != json.dumps(one.document(), sort_keys=True):
        raise Refused("evidence", f"the record with seq {row['seq']} is not in its canonical form")
    submission = mine["agreed"].get("submission") if isinstance(mine["agreed"], dict) else None
    if one.participant != mine["participant"] and (not one.submission or one.submission != submission):
        raise Refused("evidence", f"the record with seq {row['seq']} is about somebody else", found=one.participant)


def _all_of_them(rows: Sequence[Json], said: Json) -> None:
    """Refuse records that are not those which the result binds, in order of acceptance."""
    seqs = [row["seq"] for row in rows]
    if len(rows) != said["count"]:
        raise Refused("evidence", "the result rests on another number of records", expected=said["count"], found=len(rows))
    root = evidence.root(seqs, [sha256(canonical(row["record"])).digest() for row in rows])
    if root != said["root"]:
        raise Refused("evidence", "the records are not those that the result rests on", expected=said["root"], found=root)


def _included(place: Mapping[str, Any], under: Mapping[str, Any], leaf: bytes, name: str) -> None:
    if place["size"] != under["count"]:
        raise Refused(name, "the proof is of a tree of another size", expected=under["count"], found=place["size"])
    hashes = [bytes.fromhex(one) for one in place["hashes"]]
    root = bytes.fromhex(under["root"].removeprefix("sha256:"))
    check.check_inclusion(root, under["count"], place["index"], leaf, hashes, name)
