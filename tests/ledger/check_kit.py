"""Keys, entries, checkpoints and receipts for the tests of the stand-alone checks, signed by the oracle and not by Assay."""

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay.ledger import check
from assay.ledger.check import LogKey, Receipt
from oracle import envelopes, trees

ONE, TWO, THREE = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2, 3))
NAME = "example.org/log"
KEY = LogKey.parse(trees.vkey(NAME, ONE))
OTHER = LogKey.parse(trees.vkey(NAME, TWO))
DIGEST = "sha256:" + "cd" * 32
ENTRIES = [bytes([number]) for number in range(40)]
LEAVES = [trees.leaf(entry) for entry in ENTRIES]


def public(key: Ed25519PrivateKey) -> check.Ed25519Key:
    return check.Ed25519Key(key.public_key().public_bytes_raw())


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def checkpoint(size: int = 3, key: Ed25519PrivateKey = ONE, name: str = NAME) -> str:
    return trees.note(name, size, trees.tree_of(LEAVES[:size]), key)


def receipts(count: int = 5, **changes: Any) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The envelopes of some receipts and their entries in the log."""
    pairs = [envelopes.receipt("term", epoch, DIGEST, ONE, **changes) for epoch in range(count)]
    return [envelope for envelope, _ in pairs], [entry for _, entry in pairs]


def file_of(index: int, size: int, envelope: Any = None, key: Ed25519PrivateKey = ONE) -> dict[str, Any]:
    """The receipt of an entry as a document, in a log of that size."""
    envelopes, entries = receipts()
    hashes = [trees.leaf(entry) for entry in entries[:size]]
    signed = trees.note(NAME, size, trees.tree_of(hashes), key)
    proof = trees.proof(index, trees.inclusion(index, hashes), signed)
    return {"schema": "assay.receipt/1", "envelope": envelopes[index] if envelope is None else envelope, "proof": proof}


def parsed(document: Any) -> Receipt:
    return Receipt.parse(json.dumps(document).encode())
