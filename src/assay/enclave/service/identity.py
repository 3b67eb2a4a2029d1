"""The enclave's two keys, one that opens and one that signs, out of what dstack derives for this bounty. Never written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from assay.enclave.attest import Attestation, Collateral, EnclaveStatement, JudgementStatement
from assay.enclave.binding import bound
from assay.ledger.keys import ED25519, X25519, PrivateKey, from_seed

__all__ = ["Attester", "Identity", "derive"]

TAG = "assay/enclave-key/v1"


class Attester(Protocol):
    """What the service asks of dstack; see `assay.enclave.dstack`."""

    def get_key(self, path: str, purpose: str) -> bytes:
        """32 bytes that depend on app and path."""

    def attest(self, statement: EnclaveStatement | JudgementStatement, collateral: Collateral | None = None) -> Attestation:
        """The attestation of a statement."""


@dataclass(frozen=True)
class Identity:
    """The enclave of one bounty: solutions are sealed to `seal`, results are signed by `signer`."""

    bounty: str
    seal: PrivateKey
    signer: PrivateKey

    @property
    def validator(self) -> str:
        """Its key as validators.csv spells it."""
        return self.signer.public.raw.hex()

    @property
    def statement(self) -> EnclaveStatement:
        """What its quote binds."""
        return EnclaveStatement(bounty=self.bounty, seal=self.seal.public.id, signer=self.signer.public.id)

    def judged(self, judgement: str) -> JudgementStatement:
        """What the quote of a judgement binds; judgement: the digest of its document."""
        return JudgementStatement(bounty=self.bounty, judgement=judgement, signer=self.signer.public.id)


def derive(dstack: Attester, bounty: str) -> Identity:
    """The keys for a bounty (its digest), the same after a restart, and on another machine if dstack is told so.

    Each has a path of its own, since dstack's keys depend on nothing else, and goes through HKDF, since dstack shows the public
    part of what it derives to others. Raises the trouble that dstack has.
    """
    return Identity(bounty, _key(dstack, bounty, X25519), _key(dstack, bounty, ED25519))


def _key(dstack: Attester, bounty: str, kind: str) -> PrivateKey:
    raw = dstack.get_key(f"assay/{bounty.removeprefix('sha256:')}/{kind}", kind)
    return from_seed(HKDF(SHA256(), 32, None, bound(TAG, kind, bounty)).derive(raw), kind)
