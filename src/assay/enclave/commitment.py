"""Committing to a solution before anybody sees it: what the hash is over, and who says so. SPEC 6.

    commitment = SHA-256(8 ‖ tag ‖ 8 ‖ bounty ‖ 8 ‖ participant ‖ 8 ‖ salt ‖ 8 ‖ submission)

where 8 stands for the length, in eight bytes, of what follows. tag is `assay/commitment/v1`; bounty and submission are digests as
text, `sha256:…`; participant is the key as participants.csv has it; the salt is 32 random bytes. So a commitment opens in one way
only, for one bounty and participant, and without the salt nobody can try solutions against it.

The participant signs it: an in-toto statement, predicate `assay:commitment/v1`, that names bounty and participant.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Any

from pydantic import Field

from assay.enclave.binding import bound
from assay.enclave.rejected import Code, Rejected
from assay.enclave.signed import Kind, Signed
from assay.errors import BadInput, brief
from assay.exact import canonical
from assay.folder import strict
from assay.folder.text import decode
from assay.ledger import check
from assay.ledger.keys import PrivateKey, PublicKey, public
from assay.scheme.fields import Key, Section
from assay.scheme.reading import validate

__all__ = [
    "COMMITMENT",
    "SALT",
    "SECRET_BYTES",
    "Committed",
    "Secret",
    "commit",
    "commitment",
    "read",
    "read_secret",
    "sign",
    "signing_key",
]

TAG = "assay/commitment/v1"
SALT = 32
"""Bytes of a salt."""
SECRET = "assay.commitment-secret/1"
SECRET_BYTES = 16_384
"""Bytes of the file with the salt."""
COMMITMENT = Kind("assay:commitment/v1", "commitment", {"bounty": check.DIGEST, "participant": check.WORD}, 65_536)
_Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]


def commitment(bounty: str, participant: str, salt: bytes, submission: str) -> str:
    """`sha256:…` of the commitment; raises ValueError for a salt of another length."""
    if len(salt) != SALT:
        raise ValueError(f"a salt has {SALT} bytes")
    return f"sha256:{sha256(bound(TAG, bounty, participant, salt, submission)).hexdigest()}"


class Secret(Section):
    """What a participant keeps to itself until it seals the solution; lost, the commitment is good for nothing."""

    bounty: _Digest
    participant: Key
    submission: _Digest
    salt: Annotated[str, Field(pattern="^[0-9a-f]{64}$", repr=False)]

    @property
    def commitment(self) -> str:
        """`sha256:…` of the commitment that it opens."""
        return commitment(self.bounty, self.participant, bytes.fromhex(self.salt), self.submission)

    @property
    def data(self) -> bytes:
        """The bytes of its file."""
        return canonical({"schema": SECRET} | self.model_dump(mode="json")) + b"\n"


def read_secret(data: bytes) -> Secret:
    """The secret in the bytes of its file; raises BadInput, which shows nothing of it."""
    found = _json(data)
    if not isinstance(found, dict) or found.pop("schema", None) != SECRET:
        raise BadInput("holds no salt of a commitment", hint="give the file that `assay commit` wrote")
    try:
        return validate(Secret, found)
    except BadInput as error:
        raise BadInput("is not as `assay commit` wrote it", field=error.field, hint="take it from a copy") from None


def _json(data: bytes) -> Any:
    try:
        return strict.parse(decode(data, None))
    except BadInput:
        return None


@dataclass(frozen=True)
class Committed:
    """A commitment with a right signature by its participant."""

    bounty: str
    participant: str
    digest: str
    envelope: bytes = field(repr=False)


def commit(bounty: str, participant: str, submission: str) -> Secret:
    """A new commitment's secret, with a salt of its own; raises BadInput if the participant is a name alone."""
    signing_key(participant)
    return Secret(bounty=bounty, participant=participant, submission=submission, salt=secrets.token_hex(SALT))


def sign(secret: Secret, signer: PrivateKey) -> Signed:
    """What is handed in of a commitment; raises BadInput if the signer is not the participant."""
    if signing_key(secret.participant) != signer.public:
        what = f"{brief(secret.participant)} is not the key that signs, {signer.public}"
        raise BadInput(what, hint="sign with the participant's own key")
    said = {"bounty": secret.bounty, "participant": secret.participant}
    return COMMITMENT.make(secret.commitment, said, signer)


def signing_key(participant: str) -> PublicKey:
    """The public key that a participant is; raises BadInput if it is a name alone, which nobody can sign for."""
    try:
        return public(participant)
    except BadInput as error:
        raise BadInput(
            f"the participant {brief(participant)} cannot commit, since nobody can sign for it: {error.what}",
            hint="its row in participants.csv must have as key what `assay keys show` prints",
        ) from None


def read(data: bytes) -> Committed:
    """The commitment in the bytes of an envelope, its signature checked; raises Rejected."""
    try:
        found = COMMITMENT.read(data)
    except check.Refused as refused:
        raise Rejected(Code.MALFORMED, f"this is no commitment: {refused.what}", hint="`assay commit` makes one") from None
    participant = found.predicate["participant"]
    try:
        key = signing_key(participant)
    except BadInput as error:
        raise Rejected(Code.NO_KEY, error.what, hint=error.hint) from None
    if not found.is_by(key):
        raise Rejected(Code.BAD_SIGNATURE, "the participant did not sign it", hint="sign with the participant's own key")
    return Committed(found.predicate["bounty"], participant, found.digest, found.envelope)
