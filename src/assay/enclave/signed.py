"""Statements that a participant or the enclave signs: DSSE around in-toto, each with one spelling. SPEC 6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.errors import BadInput
from assay.exact import canonical
from assay.ledger import check
from assay.ledger.envelope import sign as sign_envelope
from assay.ledger.keys import PrivateKey, PublicKey

__all__ = ["ENVELOPE_BYTES", "Kind", "Signed"]

ENVELOPE_BYTES = check.ENVELOPE_BYTES
"""Bytes of one."""


@dataclass(frozen=True)
class Kind:
    """A kind of statement: `predicateType`, the name of its one subject, and the shape of its predicate (see `check.misfit`)."""

    type: str
    subject: str
    shape: Any
    most: int = ENVELOPE_BYTES

    def make(self, digest: str, predicate: dict[str, Any], signer: PrivateKey) -> Signed:
        """A statement about what has this digest (`sha256:…`), signed."""
        document = {
            "_type": check.STATEMENT,
            "subject": [{"name": self.subject, "digest": {"sha256": digest.removeprefix("sha256:")}}],
            "predicateType": self.type,
            "predicate": predicate,
        }
        return Signed(canonical(sign_envelope(canonical(document), signer)), digest, predicate)

    def read(self, data: bytes) -> Signed:
        """The statement in the bytes of an envelope, whoever signed it; raises `check.Refused` for anything else."""
        found = check.parse_json(data, self.subject, self.most)
        payload = check.Envelope.parse(found, self.subject).payload
        said = check.parse_json(payload, self.subject, self.most)
        shape = {
            "_type": check.STATEMENT.replace(".", r"\."),
            "subject": [{"name": self.subject, "digest": {"sha256": "[0-9a-f]{64}"}}],
            "predicateType": self.type,
            "predicate": self.shape,
        }
        bad = check.misfit(said, shape)
        if bad or len(said["subject"]) != 1:
            raise check.Refused(self.subject, "it does not state what it should", found=f"another {bad or 'subject'}")
        if canonical(said) != payload:
            raise check.Refused(self.subject, "the statement is not in its canonical form")
        return Signed(canonical(found), f"sha256:{said['subject'][0]['digest']['sha256']}", said["predicate"])


@dataclass(frozen=True)
class Signed:
    """A signed statement: the envelope (canonical JSON), the digest of its subject, and what it says of it."""

    envelope: bytes
    digest: str
    predicate: dict[str, Any]

    def check_by(self, key: PublicKey, stage: str) -> None:
        """Refuse it unless this key signed it; raises `check.Refused`, and BadInput for a key that takes a missing extra."""
        found = check.Envelope.parse(check.parse_json(self.envelope, stage, 2 * ENVELOPE_BYTES), stage)
        check.check_envelope(found, [key], stage)

    def is_by(self, key: PublicKey) -> bool:
        """Whether this key signed it."""
        try:
            self.check_by(key, "statement")
        except (check.Refused, BadInput):
            return False
        return True
