"""DSSE envelopes, batches of evidence and receipts, written from SPEC 6 and the formats' own texts."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from oracle import trees

__all__ = ["LOG", "batch", "dsse", "first_version", "pae", "plain", "receipt", "statement_of"]

Doc = dict[str, Any]
TYPE = "application/vnd.in-toto+json"


def plain(value: Any) -> bytes:
    """Canonical JSON of values without floats, and without keys beyond ASCII: what Python's own encoder writes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def pae(kind: str, body: bytes) -> bytes:
    """What is signed. DSSE v1."""
    return b" ".join([b"DSSEv1", str(len(kind.encode())).encode(), kind.encode(), str(len(body)).encode(), body])


def first_version(statement: Doc) -> Doc:
    """The statement of a batch as version 1 had it, which names no log."""
    predicate = {name: value for name, value in statement["predicate"].items() if name != "origin"}
    return statement | {"predicateType": "assay:evidence/v1", "predicate": predicate}


def dsse(body: bytes, *keys: Ed25519PrivateKey, kind: str = TYPE) -> Doc:
    """An envelope with a signature by each key."""
    return {
        "payload": base64.b64encode(body).decode(),
        "payloadType": kind,
        "signatures": [
            {
                "keyid": f"ed25519:{key.public_key().public_bytes_raw().hex()}",
                "sig": base64.b64encode(key.sign(pae(kind, body))).decode(),
            }
            for key in keys
        ],
    }


LOG = "example.org/log"


def statement_of(
    records: Sequence[Mapping[str, Any]], competition: str, task_set: str | None, origin: str | None = LOG
) -> tuple[Doc, list[bytes]]:
    """What a validator signs for a log, and the lines of the records: each once, in the order of their digests."""
    by_digest = {hashlib.sha256(line).digest(): line for line in map(plain, records)}
    digests = sorted(by_digest)
    names = sorted({str(record["submission"]) for record in records}, key=str.encode)
    subject = []
    for name in names:
        head, _, digits = name.partition(":")
        is_digest = head == "sha256" and len(digits) == 64 and set(digits) <= set("0123456789abcdef")
        subject.append({"name": name, "digest": {"sha256": digits if is_digest else hashlib.sha256(name.encode()).hexdigest()}})
    first = records[0]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subject,
        "predicateType": "assay:evidence/v2",
        "predicate": {
            "origin": origin,
            "competition": competition,
            "epoch": first["epoch"],
            "kind": first["kind"],
            "validator": first["validator"],
            "task_set": task_set,
            "count": len(digests),
            "root": f"sha256:{trees.root(digests).hex()}",
        },
    }, [by_digest[digest] for digest in digests]


def batch(
    records: Sequence[Mapping[str, Any]],
    key: Ed25519PrivateKey,
    competition: str = "c",
    task_set: str | None = None,
    origin: str | None = LOG,
) -> bytes:
    """A batch as a file."""
    statement, lines = statement_of(records, competition, task_set, origin)
    return b"".join(line + b"\n" for line in [plain(dsse(plain(statement), key)), *lines])


def receipt(
    name: str, number: int, digest: str, signer: Ed25519PrivateKey, /, version: int = 2, **changes: Any
) -> tuple[Doc, bytes]:
    """An envelope of a receipt, and its entry in the log: the SHA-256 of the payload."""
    some = "sha256:" + "ab" * 32
    predicate = {
        "competition": name,
        "epoch": number,
        "scheme": some,
        "task_set": None,
        "inputs": some,
        "evidence": {"root": some, "count": 3},
        "previous": None,
        "results": {"root": some, "count": 2},
        "settlement": digest,
        "software": {"name": "assay", "version": "0.1.0"},
    } | changes
    body = plain(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": f"{name} epoch {number}", "digest": {"sha256": digest.removeprefix("sha256:")}}],
            "predicateType": f"assay:receipt/v{version}",
            "predicate": predicate,
        }
    )
    return dsse(body, signer), hashlib.sha256(body).digest()
