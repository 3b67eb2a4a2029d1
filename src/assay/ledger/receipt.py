"""A receipt: what it states of a settlement, the file that carries it, and a participant's own proof. SPEC 6.

receipt file    assay.receipt/1   the signed statement, and the proof that it is in the log
proof file      assay.proof/2     a receipt, one participant's result in it, and all records that it rests on
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.exact import canonical
from assay.ledger import lines, note
from assay.ledger.check import FORMAT, PREDICATE, STATEMENT, leaf_hash
from assay.ledger.merkle import Proof, Tree

__all__ = ["FIRST", "PROOF", "file_of", "proof_document", "results", "results_tree", "statement"]

Json = dict[str, Any]
PROOF = "assay.proof/2"
FIRST = "assay.proof/1"
"""Of a receipt of version 1, whose results do not say which records they rest on: some may have been left out."""


def results(settlement: Mapping[str, Any], records: Mapping[str, Json] | None = None) -> list[Json]:
    """Each participant's result in a settlement document, by the UTF-8 bytes of the key. SPEC 6.

    records: participant → root and count of the records that the result rests on (`assay.ledger.resting`); None: as a receipt of
    version 1 has it, without them.
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


def results_tree(found: Sequence[Json]) -> Tree:
    """The Merkle tree over results: a leaf is the canonical JSON of one, which has no fractions in it. SPEC 6."""
    return Tree([leaf_hash(lines.plain(one).encode()) for one in found])


def statement(
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

    inputs: the digest of their document. evidence: root and count. records: the same of each participant's result.
    previous: epoch and payload digest of the receipt before. version: of the program that
    settled. registry: of which block of a chain the registry is, if it is of one.
    """
    name, epoch, digest = settlement["scheme"]["name"], settlement["epoch"], settlement["digest"]
    found = results(settlement, records)
    predicate = {
        "competition": name,
        "epoch": epoch,
        "scheme": settlement["scheme"]["digest"],
        "task_set": settlement["task_set"],
        "inputs": inputs,
        "evidence": {"root": evidence[0], "count": evidence[1]},
        "previous": None if previous is None else {"epoch": previous[0], "receipt": previous[1]},
        "results": {"root": f"sha256:{results_tree(found).root().hex()}", "count": len(found)},
        "settlement": digest,
        "software": {"name": "assay", "version": version},
    } | ({} if registry is None else {"registry": registry})
    subject = {"name": f"{name} epoch {epoch}", "digest": {"sha256": digest.removeprefix("sha256:")}}
    return canonical({"_type": STATEMENT, "subject": [subject], "predicateType": PREDICATE, "predicate": predicate})


def file_of(envelope: bytes, proof: Proof, checkpoint: bytes) -> bytes:
    """The bytes of a receipt file: the signed statement and its C2SP tlog-proof."""
    return canonical(document_of(envelope, proof, checkpoint)) + b"\n"


def document_of(envelope: bytes, proof: Proof, checkpoint: bytes) -> Json:
    """The same as a JSON object."""
    return {"schema": FORMAT, "envelope": json.loads(envelope), "proof": note.proof_text(proof, checkpoint)}


def proof_document(
    receipt: Json, result: Json, place: Proof, records: Sequence[tuple[int, int, bytes, Proof]], others: Sequence[Json]
) -> Json:
    """A participant's own proof. records: (epoch of the receipt, seq, canonical JSON, place); others: the receipts of those."""
    return {
        "schema": PROOF if "records" in result else FIRST,
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
    return {"index": proof.index, "size": proof.size, "hashes": [one.hex() for one in proof.hashes]}
