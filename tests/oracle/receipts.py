"""What a receipt binds, and the receipts of a log, written from SPEC 6: roots, inputs, statements, bundles."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from oracle import envelopes, trees
from oracle.envelopes import LOG, plain

__all__ = [
    "batch_line",
    "digest",
    "evidence_leaf",
    "evidence_root",
    "inputs",
    "own_proof",
    "receipts",
    "rests",
    "results",
    "results_root",
    "statement",
]

Doc = dict[str, Any]


def digest(value: Any) -> str:
    """`sha256:…` over RFC 8785."""
    return f"sha256:{hashlib.sha256(rfc8785.dumps(value)).hexdigest()}"


def _bare(record: Mapping[str, Any]) -> bytes:
    return plain({name: value for name, value in record.items() if name != "seq"})


def evidence_leaf(record: Mapping[str, Any]) -> bytes:
    """RFC 6962 leaf over seq, 8 bytes big endian, and the digest of the record without it."""
    return trees.leaf(record["seq"].to_bytes(8, "big") + hashlib.sha256(_bare(record)).digest())


def _root(leaves: Sequence[bytes]) -> Doc:
    return {"root": f"sha256:{trees.tree_of(leaves).hex()}", "count": len(leaves)}


def evidence_root(records: Sequence[Mapping[str, Any]]) -> Doc:
    """What a receipt states of its evidence: records in canonical form, in order of acceptance."""
    return _root([evidence_leaf(record) for record in records])


def inputs(case: Mapping[str, Any], scheme: Doc) -> Doc:
    """The document of a case whose values are in normal form; `scheme` is its scheme with every default."""

    def rows(name: str, by: str) -> list[Doc]:
        filled = [{key: value for key, value in row.items() if value not in (None, "")} for row in case.get(name) or []]
        return sorted(filled, key=lambda row: row[by].encode() if isinstance(row[by], str) else row[by])

    document: Doc = {"scheme": scheme, "tasks": sorted(case.get("tasks") or [], key=str.encode)}
    document |= {name: rows(name, "key") for name in ("participants", "validators")}
    return document | {name: rows(name, "epoch") for name in ("history", "randomness")}


def rests_on(settlement: Doc, held: Sequence[Doc]) -> dict[str, list[Doc]]:
    """Participant → the records that the result rests on, of one kind, by validators of the registry: the first of each slot."""
    by_participant: dict[str, list[Doc]] = {}
    for row in settlement["agreed"]:
        firsts: dict[tuple[object, ...], Doc] = {}
        for record in sorted(held, key=lambda record: record["seq"]):
            about = ("submission", row["submission"]) if row["submission"] else ("participant", row["participant"])
            if row["duplicate_of"] is None and record[about[0]] == about[1] and (row["submission"] or not record["submission"]):
                epoch = record["epoch"] if record["kind"] == "given" else None
                firsts.setdefault((record["validator"], epoch, record.get("task"), record.get("trial")), record)
        by_participant[row["participant"]] = list(firsts.values())
    return by_participant


def rests(settlement: Doc, held: Sequence[Doc]) -> Doc:
    """Participant → their root and count."""
    return {name: evidence_root(mine) for name, mine in rests_on(settlement, held).items()}


def results(settlement: Doc, held: Sequence[Doc] | None = None) -> list[Doc]:
    """The result of each participant, in the order of the bytes of the keys; held: all evidence; None: as version 1 had it."""
    rows: list[Doc] = []
    rested = None if held is None else rests(settlement, held)
    for key in sorted((row["participant"] for row in settlement["agreed"]), key=str.encode):
        (agreed,) = (row for row in settlement["agreed"] if row["participant"] == key)
        weights = [row for row in settlement["weights"] if row["participant"] == key]
        rank = settlement["ranking"].index(key) + 1 if key in settlement["ranking"] else None
        paid = [row for row in settlement["payouts"] if row["participant"] == key]
        row = {"participant": key, "rank": rank, "agreed": agreed, "weight": weights[0] if weights else None, "payouts": paid}
        rows.append(row if rested is None else row | {"records": rested[key]})
    return rows


def results_root(settlement: Doc, held: Sequence[Doc] | None = None) -> Doc:
    """What a receipt states of its results."""
    return _root([trees.leaf(plain(result)) for result in results(settlement, held)])


def statement(
    settlement: Doc, inputs: Doc, records: Sequence[Doc], previous: tuple[int, bytes] | None, held: Sequence[Doc] | None
) -> Doc:
    """The predicate of a receipt, as far as `envelopes.receipt` does not have it; previous: epoch and entry of the one before.

    records: those of its own; held: all up to its epoch; None: as version 1 had it.
    """
    return {
        "scheme": settlement["scheme"]["digest"],
        "task_set": settlement["task_set"],
        "inputs": digest(inputs),
        "evidence": evidence_root(records),
        "previous": None if previous is None else {"epoch": previous[0], "receipt": f"sha256:{previous[1].hex()}"},
        "results": results_root(settlement, held),
    }


def receipts(signed: Sequence[tuple[Doc, bytes]], name: str, key: Ed25519PrivateKey, size: int | None = None) -> list[Doc]:
    """Receipt files: envelope and entry of each, proven in the log as it was with it, or of `size` entries."""
    leaves, files = [trees.leaf(entry) for _, entry in signed], []
    for at, (envelope, _) in enumerate(signed):
        then = leaves[: max(at + 1, size or 0)]
        checkpoint = trees.note(name, len(then), trees.tree_of(then), key)
        files.append(
            {"schema": "assay.receipt/1", "envelope": envelope, "proof": trees.proof(at, trees.inclusion(at, then), checkpoint)}
        )
    return files


def _place(at: int, leaves: Sequence[bytes]) -> Doc:
    return {"index": at, "size": len(leaves), "hashes": [sibling.hex() for sibling in trees.inclusion(at, leaves)]}


def own_proof(
    participant: str,
    settlement: Doc,
    receipt: Doc,
    evidence: Mapping[int, Sequence[Doc]],
    others: Sequence[Doc] = (),
    *,
    first: bool = False,
) -> Doc:
    """A participant's own proof: evidence by the epoch of its receipt; those records that its result rests on are in it."""
    held = None if first else [record for records in evidence.values() for record in records]
    rows = results(settlement, held)
    at = [row["participant"] for row in rows].index(participant)
    mine = [
        {
            "epoch": epoch,
            "seq": record["seq"],
            "record": {name: value for name, value in record.items() if name != "seq"},
            "proof": _place(index, [evidence_leaf(each) for each in records]),
        }
        for epoch, records in sorted(evidence.items())
        for index, record in enumerate(records)
        if record["participant"] == participant
    ]
    return {
        "schema": "assay.proof/1" if first else "assay.proof/2",
        "receipt": receipt,
        "result": rows[at],
        "result_proof": _place(at, [trees.leaf(plain(row)) for row in rows]),
        "records": mine,
        "receipts": list(others),
    }


def batch_line(
    records: Sequence[Doc], key: Ed25519PrivateKey, competition: str, task_set: str | None, *, log: str = LOG, version: int = 2
) -> Doc:
    """A line of batches.jsonl: one validator's records of one epoch, each with its seq."""
    bare = [{name: value for name, value in record.items() if name != "seq"} for record in records]
    stated, _ = envelopes.statement_of(bare, competition, task_set, log)
    stated = stated if version > 1 else envelopes.first_version(stated)
    members: list[list[int]] = []
    for seq in sorted(record["seq"] for record in records):
        if members and members[-1][1] == seq - 1:
            members[-1][1] = seq
        else:
            members.append([seq, seq])
    return {"envelope": envelopes.dsse(plain(stated), key), "members": members}
