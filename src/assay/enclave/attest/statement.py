"""What an enclave binds to a quote: the quote's 64 bytes of report data are the SHA-512 of one of these statements.

    report_data = SHA-512("assay/report-data/v1" ‖ 0x00 ‖ canonical JSON of the statement)

The tag keeps a quote that was made for anything else from being taken for one of these; `type` keeps the two kinds apart.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.exact import canonical
from assay.scheme.fields import Section

__all__ = ["TAG", "EnclaveStatement", "JudgementStatement", "Statement", "report_data"]

TAG = b"assay/report-data/v1\0"
_Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
_SealKey = Annotated[str, Field(pattern="^x25519:[0-9a-f]{64}$")]
_Signer = Annotated[str, Field(pattern="^ed25519:[0-9a-f]{64}$")]


class EnclaveStatement(Section):
    """The keys of an enclave that judges a bounty: solutions are sealed to `seal`, results are signed by `signer`."""

    type: Literal["enclave"] = "enclave"
    bounty: _Digest
    seal: _SealKey
    signer: _Signer


class JudgementStatement(Section):
    """One judgement: the digest of its document, and who signs it."""

    type: Literal["judgement"] = "judgement"
    bounty: _Digest
    judgement: _Digest
    signer: _Signer


Statement = Annotated[EnclaveStatement | JudgementStatement, Field(discriminator="type")]


def report_data(statement: EnclaveStatement | JudgementStatement) -> bytes:
    """The 64 bytes that a quote must carry to be about this statement."""
    document: dict[str, Any] = statement.model_dump(mode="json")
    return hashlib.sha512(TAG + canonical(document)).digest()
