"""Build the statements that a ledger signs about a settlement or a subnet's split, and the files that carry them. SPEC 4, 6.

receipt file        assay.receipt/1            the signed statement of a settled epoch, and the proof that it is in the log
proof file          assay.proof/2              a receipt, one participant's result in it, and all records that it rests on
emission.receipt    assay.emission-receipt/1   the signed split of a subnet's emission, and the proof that it is in its log

The statement of a split, assay:emission/v1, has the whole split, the rules of the subnet file that it follows, and, for each
competition, once, the public key of its log and the digest of its receipt. Nothing here needs the store.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from assay.exact import canonical, digest
from assay.ledger import batch, check, log
from assay.ledger.check import (
    DIGEST,
    FORMAT,
    PREDICATE,
    STATEMENT,
    WORD,
    CheckError,
    Envelope,
    LogKey,
    LogProof,
    Receipt,
    leaf_hash,
)
from assay.ledger.merkle import Proof, Tree
from assay.scheme.reading import validate
from assay.scheme.subnet import SubnetFile
from assay.settle.emission import SCHEMA, Emission

Json = dict[str, Any]
PARTICIPANT_PROOF = "assay.proof/2"
FIRST_RECEIPT = "assay.proof/1"
"""The format for a receipt of version 1. Its results do not bind their records, so some may be left out of the proof."""


def results(settlement: Mapping[str, Any], records: Mapping[str, Json] | None = None) -> list[Json]:
    """Each participant's result in a settlement document, sorted by the UTF-8 bytes of the key. SPEC 6.

    records: participant → root and count of the records that the result rests on (`assay.ledger.eligible`); None: without them,
    as in a receipt of version 1.
    """
    ranks = {key: rank for rank, key in enumerate(settlement["ranking"], start=1)}
    weights = {row["participant"]: row for row in settlement["weights"]}
    payouts: dict[str, list[Json]] = {}
    for row in settlement["payouts"]:
        payouts.setdefault(row["participant"], []).append(row)
    return [
        {
            "participant": (key := row["participant"]),
            "rank": ranks.get(key),
            "agreed": row,
            "weight": weights.get(key),
            "payouts": payouts.get(key, []),
        }
        | ({} if records is None else {"records": records[key]})
        for row in sorted(settlement["agreed"], key=lambda row: row["participant"].encode())
    ]


def results_tree(rows: Sequence[Json]) -> Tree:
    """The Merkle tree over results: a leaf is the canonical JSON of one, which has no fractions in it. SPEC 6."""
    return Tree([leaf_hash(batch.plain_json(row).encode()) for row in rows])


def receipt_statement(
    settlement: Mapping[str, Any],
    *,
    inputs: str,
    evidence: tuple[str, int],
    records: Mapping[str, Json],
    previous: tuple[int, str] | None,
    version: str,
    registry: Json | None = None,
) -> bytes:
    """The payload that is signed: canonical JSON of an in-toto statement.

    inputs: the digest of their document. evidence: root and count. records: root and count for each participant's result.
    previous: epoch and payload digest of the receipt before. version: of the program that settled. registry: the block of the
    chain that the registry was pulled from, if any.
    """
    name, epoch, digest = settlement["scheme"]["name"], settlement["epoch"], settlement["digest"]
    rows = results(settlement, records)
    predicate = {
        "competition": name,
        "epoch": epoch,
        "scheme": settlement["scheme"]["digest"],
        "task_set": settlement["task_set"],
        "inputs": inputs,
        "evidence": {"root": evidence[0], "count": evidence[1]},
        "previous": None if previous is None else {"epoch": previous[0], "receipt": previous[1]},
        "results": {"root": f"sha256:{results_tree(rows).root().hex()}", "count": len(rows)},
        "settlement": digest,
        "software": {"name": "assay", "version": version},
    } | ({} if registry is None else {"registry": registry})
    subject = {"name": f"{name} epoch {epoch}", "digest": {"sha256": digest.removeprefix("sha256:")}}
    return canonical({"_type": STATEMENT, "subject": [subject], "predicateType": PREDICATE, "predicate": predicate})


def receipt_file(envelope: bytes, proof: Proof, checkpoint: bytes) -> bytes:
    """The bytes of a receipt file: the signed statement and its C2SP tlog-proof."""
    return canonical(receipt_document(envelope, proof, checkpoint)) + b"\n"


def receipt_document(envelope: bytes, proof: Proof, checkpoint: bytes) -> Json:
    """A receipt file as a JSON object."""
    return {"schema": FORMAT, "envelope": json.loads(envelope), "proof": log.proof_text(proof, checkpoint)}


def proof_document(
    receipt: Json, result: Json, place: Proof, records: Sequence[tuple[int, int, bytes, Proof]], others: Sequence[Json]
) -> Json:
    """A participant's own proof. records: (epoch of the receipt, seq, canonical JSON, proof); others: earlier receipts."""
    return {
        "schema": PARTICIPANT_PROOF if "records" in result else FIRST_RECEIPT,
        "receipt": receipt,
        "result": result,
        "result_proof": _place(place),
        "records": [
            {"epoch": epoch, "seq": seq, "record": json.loads(body), "proof": _place(proof)}
            for epoch, seq, body, proof in records
        ],
        "receipts": list(others),
    }


def _place(proof: Proof) -> Json:
    return {"index": proof.index, "size": proof.size, "hashes": [hash_.hex() for hash_ in proof.hashes]}


SPLIT_FORMAT = "assay.emission-receipt/1"
SPLIT_PREDICATE = "assay:emission/v1"

_SHARE, _AMOUNT = r"(0|[1-9][0-9]*)(\.[0-9]{0,8}[1-9])?", "0|[1-9][0-9]*"
_ROW = {"uid": (None, int), "share": _SHARE, "u16": int, "chain_u16": int}
_PART = {"name": WORD, "share": _SHARE, "emission": (None, _AMOUNT), "settlement": DIGEST, "received?": _SHARE}
_SPLIT_STATEMENT = {
    "_type": re.escape(STATEMENT),
    "subject": [{"name": WORD, "digest": {"sha256": "[0-9a-f]{64}"}}],
    "predicateType": re.escape(SPLIT_PREDICATE),
    "predicate": {
        "subnet": WORD,
        "epoch": int,
        "rules": {"encoding": WORD, "burn_uid": int, "emission": (None, _AMOUNT), "unearned": WORD},
        "split": {
            "schema": re.escape(SCHEMA),
            "epoch": int,
            "competitions": [_PART],
            "weights": [{"participant": WORD, **_ROW}],
            "burn": _ROW,
            "receipts": [{"competition": WORD, "epoch": int, "digest": DIGEST, "log": WORD}],
            "digest": DIGEST,
        },
        "previous": (None, {"epoch": int, "receipt": DIGEST}),
        "software": {"name": WORD, "version": WORD},
    },
}


@dataclass(frozen=True)
class Split(Receipt):
    """A parsed signed split, not checked yet: like a receipt, but its statement is a split."""

    @classmethod
    def parse(cls, data: bytes, stage: str = "receipt") -> Split:
        """The signed split in the bytes of a file; raises `check.CheckError`, also if it contradicts itself."""
        document = check.parse_json(data, stage, check.RECEIPT_BYTES)
        if bad := check.misfit(document, {"schema": re.escape(SPLIT_FORMAT), "envelope": object, "proof": WORD}):
            raise CheckError(stage, f"it does not have the format {SPLIT_FORMAT}: {bad} does not fit")
        envelope = Envelope.parse(document["envelope"], stage)
        predicate = split_stated(envelope.payload, stage)
        digest = hashlib.sha256(envelope.payload).digest()
        return cls(envelope, predicate, digest, LogProof.parse(document["proof"], "log"), version=2)

    @property
    def logs(self) -> list[LogKey]:
        """The public key of each competition's log, in the order of the competitions."""
        return [LogKey.parse(row["log"]) for row in self.predicate["split"]["receipts"]]


def split_stated(payload: bytes, stage: str = "receipt") -> Json:
    """The predicate in the payload of a signed split; raises `check.CheckError`, also if it contradicts itself."""
    statement = check.parse_json(payload, stage)
    if bad := check.misfit(statement, _SPLIT_STATEMENT):
        raise CheckError(stage, f"its statement is not a signed split's: {bad} does not fit")
    predicate: Json = statement["predicate"]
    about = [_subject(predicate["subnet"], predicate["epoch"], predicate["split"]["digest"])]
    if statement["subject"] != about:
        raise CheckError(stage, "its subject is not the split in its statement", about, statement["subject"])
    _check_split(predicate, stage)
    return predicate


def _check_split(predicate: Json, stage: str) -> None:
    """Raise CheckError unless a split has its epoch and digest, and names log and receipt of each competition once."""
    split = predicate["split"]
    computed = digest({name: value for name, value in split.items() if name != "digest"})
    names = [row["name"] for row in split["competitions"]]
    for what, wanted, stated in (
        ("the split does not have the digest that it states", computed, split["digest"]),
        ("the split is of another epoch", predicate["epoch"], split["epoch"]),
        ("it names no competition", True, bool(names)),
        ("it does not name a receipt of each competition", names, [row["competition"] for row in split["receipts"]]),
        ("a receipt is of another epoch", [predicate["epoch"]] * len(names), [row["epoch"] for row in split["receipts"]]),
    ):
        if wanted != stated:
            raise CheckError(stage, what, wanted, stated)
    for field in ("log", "digest"):
        rows = [row[field] for row in split["receipts"]]
        twice = next((value for value in rows if rows.count(value) > 1), None)
        if twice is not None:
            name = "receipt" if field == "digest" else field
            raise CheckError(stage, f"two competitions have the same {name}", f"each {name} once", twice)
    for row in split["receipts"]:
        LogKey.parse(row["log"])


def _subject(subnet: str, epoch: int, split: str) -> Json:
    return {"name": f"{subnet} epoch {epoch}", "digest": {"sha256": split.removeprefix("sha256:")}}


def split_rules(subnet: SubnetFile) -> Json:
    """The rules of the subnet file in a signed split's statement, without each competition's share."""
    emission = None if subnet.emission is None else str(subnet.emission)
    return {"encoding": subnet.encoding, "burn_uid": subnet.burn_uid, "emission": emission, "unearned": subnet.unearned}


def split_rules_of(predicate: Mapping[str, Any]) -> SubnetFile:
    """The subnet rules that a signed split states; the paths in them are numbers from 1. Raises BadInput."""
    split = predicate["split"]
    rows = zip(split["competitions"], split["receipts"], strict=True)
    members = [{"path": str(at), "share": row["share"], "log": receipt["log"]} for at, (row, receipt) in enumerate(rows, start=1)]
    given = {name: value for name, value in predicate["rules"].items() if value is not None}
    return validate(SubnetFile, {**given, "competitions": members})


def split_statement(name: str, subnet: SubnetFile, emission: Emission, previous: tuple[int, str] | None) -> bytes:
    """The payload that is signed: canonical JSON of an in-toto statement. previous: epoch and digest of the one before."""
    predicate = {
        "subnet": name,
        "epoch": emission.epoch,
        "rules": split_rules(subnet),
        "split": emission.document,
        "previous": None if previous is None else {"epoch": previous[0], "receipt": previous[1]},
        "software": {"name": "assay", "version": version("assay")},
    }
    subject = [_subject(name, emission.epoch, emission.digest)]
    return canonical({"_type": STATEMENT, "subject": subject, "predicateType": SPLIT_PREDICATE, "predicate": predicate})


def split_document(envelope: bytes, proof: Proof, checkpoint: bytes) -> Json:
    """The file of a signed split as a JSON object: the statement and its C2SP tlog-proof."""
    return {"schema": SPLIT_FORMAT, "envelope": json.loads(envelope), "proof": log.proof_text(proof, checkpoint)}


def split_differences(subnet: SubnetFile, predicate: Mapping[str, Any]) -> Sequence[tuple[str, object, object]]:
    """(field, in the subnet file, in the signed split) of each rule that differs, in the order of the file."""
    stated = split_rules_of(predicate)
    ours, theirs = split_rules(subnet), split_rules(stated)
    differing: list[tuple[str, object, object]] = [
        (name, ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]
    ]
    if len(subnet.competitions) != len(stated.competitions):
        return [*differing, ("competitions", len(subnet.competitions), len(stated.competitions))]
    for at, (member, other) in enumerate(zip(subnet.competitions, stated.competitions, strict=True)):
        for field in ("share", "log"):
            mine, other_one = (each.model_dump(mode="json")[field] for each in (member, other))
            if mine is not None and mine != other_one:
                differing.append((f"competitions[{at}].{field}", mine, other_one))
    return differing
