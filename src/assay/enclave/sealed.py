"""Files that are sealed, `assay.sealed/1`: what for, to whom, and the sealed bytes. RFC 9180, SPEC 6.

Canonical JSON, closed: `kind`, `bounty`, `participant` (of a solution), `to` (the X25519 key) and `data` (base64). HPKE's info is
the tag `assay/sealed/v1`, kind, bounty and participant, each after its length: with another head a file does not open.

solution   the participant's: {"salt": hex, "solution": base64 of the solution's bytes}, to the enclave
problem    the sponsor's text, to the enclave
results    what was judged, to the sponsor
release    the winners' solutions, to the sponsor
judged     the enclave's own, to itself
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.enclave.binding import bound
from assay.enclave.commitment import SALT, Secret, commitment
from assay.enclave.rejected import Code, Rejected
from assay.errors import BadInput, brief
from assay.exact import canonical
from assay.folder import strict
from assay.folder.text import decode
from assay.judge.rubric import solution as solutions
from assay.judge.rubric.questions import check_size
from assay.judge.rubric.solution import Solution
from assay.ledger.keys import PrivateKey, PublicKey, sealing
from assay.ledger.keys.seal import open_sealed, seal
from assay.scheme.bounty import Bounty
from assay.scheme.fields import Key, Section
from assay.scheme.reading import validate

__all__ = [
    "SCHEMA",
    "SEALED_BYTES",
    "Opened",
    "Sealed",
    "check_committed",
    "open_solution",
    "parse",
    "seal_as",
    "seal_solution",
]

SCHEMA = "assay.sealed/1"
TAG = "assay/sealed/v1"
SEALED_BYTES = 256 * 2**20
"""Bytes of one file: of a release, that of every winner's transcript."""
Kind = Literal["solution", "problem", "results", "release", "judged"]
_Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
_SealKey = Annotated[str, Field(pattern="^x25519:[0-9a-f]{64}$")]
_Base64 = Annotated[str, Field(max_length=SEALED_BYTES, repr=False)]


class Sealed(Section):
    """What is in such a file. That it opens is not known yet."""

    kind: Kind
    bounty: _Digest
    participant: Key | None = None
    to: _SealKey
    data: _Base64

    @property
    def info(self) -> bytes:
        """What it is bound to."""
        return _info(self.kind, self.bounty, self.participant)

    def document(self) -> dict[str, Any]:
        """The file as JSON."""
        return {"schema": SCHEMA} | self.model_dump(mode="json", exclude_none=True)

    @property
    def file(self) -> bytes:
        """The bytes of the file."""
        return canonical(self.document()) + b"\n"

    def open(self, key: PrivateKey) -> bytes:
        """What was sealed; raises BadInput if this key does not open it."""
        try:
            data = base64.b64decode(self.data, validate=True)
        except ValueError:
            raise BadInput("is not base64", field="data", hint="take it from a copy") from None
        return open_sealed(data, key, self.info)


def seal_as(kind: Kind, data: bytes, to: PublicKey, *, bounty: str, participant: str | None = None) -> Sealed:
    """Bytes sealed to a key as one of the kinds; raises BadInput for a key that signs."""
    found = base64.b64encode(seal(data, to, _info(kind, bounty, participant))).decode()
    return Sealed(kind=kind, bounty=bounty, participant=participant, to=to.id, data=found)


def _info(kind: Kind, bounty: str, participant: str | None) -> bytes:
    return bound(TAG, kind, bounty, participant or "")


def parse(data: bytes, *, most: int = SEALED_BYTES) -> Sealed:
    """The sealed file in these bytes; raises BadInput with the field that is wrong."""
    if len(data) > most:
        raise BadInput(f"is larger than {most} bytes", hint="is this the right file?")
    found = strict.parse(decode(data, None))
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        said = brief(found.get("schema")) if isinstance(found, dict) else "no object"
        raise BadInput(f"is not a sealed file (schema: {said})", hint=f"its schema is {SCHEMA}")
    made = validate(Sealed, {name: value for name, value in found.items() if name != "schema"})
    if (made.kind == "solution") != (made.participant is not None):
        raise BadInput("goes with a solution, and with nothing else", field="participant", hint="seal it again: `assay seal`")
    sealing(made.to)
    return made


def check_committed(bounty: Bounty, secret: Secret, solution: Solution) -> None:
    """Raise BadInput unless this salt commits to this solution of this bounty."""
    if secret.bounty != bounty.digest:
        what = f"was committed to for another bounty, {secret.bounty}, than this, {bounty.digest}"
        raise BadInput(what, hint="is it the right folder, or was bounty.toml or scheme.toml changed since?")
    if secret.submission != solution.digest:
        raise BadInput(
            f"the solution {solution.digest} is not the one that was committed to, {secret.submission}",
            hint="a participant commits once; seal that solution",
        )


def seal_solution(bounty: Bounty, secret: Secret, solution: Solution, to: PublicKey) -> Sealed:
    """A solution sealed with the salt that opens its commitment; raises BadInput if it is another, or too large."""
    check_size(bounty, solution)
    check_committed(bounty, secret, solution)
    plain = canonical({"salt": secret.salt, "solution": base64.b64encode(solution.data).decode()})
    return seal_as("solution", plain, to, bounty=bounty.digest, participant=secret.participant)


@dataclass(frozen=True, repr=False)
class Opened:
    """A participant's salt and solution; it does not show itself."""

    salt: bytes
    solution: Solution


def open_solution(found: Sealed, key: PrivateKey, committed: str) -> Opened:
    """What a participant sealed, which must be what he committed to; raises Rejected, which says nothing of what is in it.

    Whether it is a solution at all is said only once salt and digest are those of the commitment.
    """
    try:
        plain = found.open(key)
    except BadInput:
        hint = "seal it to the key of this enclave's attestation, for this bounty, as this participant"
        raise Rejected(Code.NOT_OPENED, "the sealed solution does not open here", hint=hint) from None
    wrong = Rejected(Code.NOT_COMMITTED, "what was sealed is not what was committed to", hint="seal the same solution and salt")
    try:
        said = strict.parse(decode(plain, None))
        salt, data = bytes.fromhex(said["salt"]), base64.b64decode(said["solution"], validate=True)
    except (BadInput, KeyError, TypeError, ValueError):
        raise wrong from None
    submission = f"sha256:{sha256(data).hexdigest()}"
    if len(salt) != SALT or commitment(found.bounty, found.participant or "", salt, submission) != committed:
        raise wrong
    try:
        return Opened(salt, solutions.parse(data))
    except BadInput:
        raise Rejected(Code.NO_SOLUTION, "what was committed to and sealed is not a solution") from None
