"""Signing a statement: a DSSE envelope around its bytes. SPEC 6."""

from __future__ import annotations

import base64
from typing import Any

from assay.ledger.check import IN_TOTO, pae
from assay.ledger.keys import PrivateKey

__all__ = ["sign"]


def sign(payload: bytes, signer: PrivateKey) -> dict[str, Any]:
    """The envelope, as a JSON object, around the bytes of an in-toto statement."""
    signature = signer.sign(pae(IN_TOTO, payload))
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": IN_TOTO,
        "signatures": [{"keyid": signer.public.id, "sig": base64.b64encode(signature).decode()}],
    }
