"""Write receipts in the forms of COSE and SCITT, for programs that read these, signed by the log's key.

A COSE receipt (RFC 9942) proves that an entry is in the log, with an inclusion proof of RFC 9162 and a signature over the root. A
SCITT transparent statement is the receipt's in-toto statement, signed, with that COSE receipt in it. The entry is the log's own:
SHA-256 of the statement. So no digest and no entry is another than that of the receipt itself. docs/formats.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from assay.errors import BadInput
from assay.ledger import check
from assay.ledger.access import Ledger, proven_in
from assay.ledger.keys import PrivateKey
from assay.ledger.merkle import Tree

__all__ = ["cose_receipt", "scitt_statement"]

SIGN1 = 18
"""The CBOR tag of a COSE_Sign1."""
ALG, CONTENT_TYPE, KID, CWT_CLAIMS = 1, 3, 4, 15
RECEIPTS, VDS, VDP = 394, 395, 396
"""Header parameters of RFC 9942: receipts, the verifiable data structure, its proofs."""
EDDSA, RFC9162_SHA256, INCLUSION = -8, 1, -1
ISSUER, SUBJECT = 1, 2


def cose_receipt(ledger: Ledger, epoch: int, signer: PrivateKey) -> bytes:
    """The COSE receipt of a settled epoch: a COSE_Sign1 over the log's root, which is detached.

    The root is that of the checkpoint in which the receipt is proven: with witnesses, one that they cosigned. Raises CannotSettle
    if the epoch is not settled, BadInput for another key than the log's or a missing extra, StoreError.
    """
    return _receipt(ledger, epoch, signer)[0]


def scitt_statement(ledger: Ledger, epoch: int, signer: PrivateKey) -> bytes:
    """The receipt of a settled epoch as a SCITT transparent statement: its in-toto statement, signed, with the COSE receipt.

    Raises as `cose_receipt` does.
    """
    receipt, statement = _receipt(ledger, epoch, signer)
    headers = _headers(ledger, statement) | {CONTENT_TYPE: check.IN_TOTO}
    return _signed(headers, {RECEIPTS: [receipt]}, statement, signer, detached=False)


def _receipt(ledger: Ledger, epoch: int, signer: PrivateKey) -> tuple[bytes, bytes]:
    """The COSE receipt, and the statement that is proven."""
    ledger.check_signer(signer)
    stored = ledger.receipt(epoch)
    statement = check.Envelope.parse(json.loads(stored.envelope), "receipt").payload
    with ledger.store.reading() as view:
        then = proven_in(view, stored)
        entries = [
            bytes.fromhex(receipt.digest.removeprefix("sha256:")) for receipt in view.receipts() if receipt.position < then.size
        ]
    tree = Tree([check.leaf_hash(entry) for entry in entries])
    if _stated(then.checkpoint, ledger) != (tree.size, tree.root()) or entries[stored.position] != sha256(statement).digest():
        # The log's key signs no root that is not one which it has signed already.
        what = f"has other receipts than its checkpoint of {then.size} entries"
        raise BadInput(what, file=ledger.store.name, hint="`assay ledger check` finds where they differ")
    proof = tree.inclusion(stored.position)
    place = _encoded([proof.size, proof.index, list(proof.hashes)])
    headers = _headers(ledger, statement) | {VDS: RFC9162_SHA256}
    return _signed(headers, {VDP: {INCLUSION: [place]}}, tree.root(), signer, detached=True), statement


def _stated(checkpoint: bytes, ledger: Ledger) -> tuple[int, bytes] | None:
    """Size and root of a checkpoint that the log's key signed; None if it did not."""
    try:
        stated = check.check_checkpoint(checkpoint, [ledger.key])
    except check.CheckError:
        return None
    return stated.size, stated.root


def _headers(ledger: Ledger, statement: bytes) -> dict[int, Any]:
    """The headers signed beside a payload: algorithm, the log's public key, and of whom and what it is (CWT claims, RFC 9597)."""
    subject = json.loads(statement)["subject"][0]["name"]
    return {ALG: EDDSA, KID: str(ledger.key).encode(), CWT_CLAIMS: {ISSUER: ledger.key.name, SUBJECT: subject}}


def _signed(headers: Mapping[int, Any], open_: Mapping[int, Any], payload: bytes, signer: PrivateKey, *, detached: bool) -> bytes:
    """A COSE_Sign1 (RFC 9052, 4.2). open_: headers that are not signed."""
    protected = _encoded(headers)
    signature = signer.sign(_encoded(["Signature1", protected, b"", payload]))
    return _encoded([protected, open_, None if detached else payload, signature], tag=SIGN1)


def _encoded(value: Any, tag: int | None = None) -> bytes:
    """Deterministic CBOR (RFC 8949, 4.2)."""
    try:
        import cbor2
    except ImportError:
        raise BadInput("COSE is written with cbor2, which is not installed", hint="pip install 'assay[cose]'") from None
    return bytes(cbor2.dumps(value if tag is None else cbor2.CBORTag(tag, value), canonical=True))
