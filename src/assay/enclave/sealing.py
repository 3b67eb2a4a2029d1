"""Commitments and sealed files: a participant commits to a solution, then seals it for the enclave. RFC 9180, SPEC 6.

    commitment = SHA-256(8 ‖ tag ‖ 8 ‖ bounty ‖ 8 ‖ participant ‖ 8 ‖ salt ‖ 8 ‖ submission)

Here 8 stands for the length, in eight bytes, of the part that follows. The tag is `assay/commitment/v1`; bounty and submission
are digests as text, `sha256:…`; participant is the key as participants.csv spells it; the salt is 32 random bytes. A commitment
therefore opens in one way only, for one bounty and participant, and without the salt nobody can test solutions against it. The
participant signs it: an in-toto statement, predicate `assay:commitment/v1`, that names bounty and participant.

A sealed file is `assay.sealed/1`, canonical JSON, closed: `kind`, `bounty`, `participant` (of a solution), `to` (the X25519 key)
and `data` (base64). HPKE's info is the tag `assay/sealed/v1`, kind, bounty and participant, each after its length: a file whose
head was changed does not open.

solution   from a participant to the enclave: {"salt": hex, "solution": base64 of the solution's bytes}
problem    from the sponsor to the enclave: the problem's text
results    from the enclave to the sponsor: judgements, and what they cost
release    from the enclave to the sponsor: the winners' solutions
judged     from the enclave to itself: a judgement
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.enclave.messages import Code, Rejected, SignedStatement, StatementKind, join_parts
from assay.errors import BadInput, brief
from assay.exact import canonical
from assay.folder import strict
from assay.folder.files import decode
from assay.judge.rubric import solution as solutions
from assay.judge.rubric.questions import check_size
from assay.judge.rubric.solution import Solution
from assay.ledger import check
from assay.ledger.keys import PrivateKey, PublicKey, open_sealed, public, seal, sealing
from assay.scheme.bounty import Bounty
from assay.scheme.fields import Digest, Key, SealKey, Section
from assay.scheme.reading import validate

COMMITMENT_TAG = "assay/commitment/v1"
SALT_BYTES = 32
"""Bytes of a salt."""
SECRET_SCHEMA = "assay.commitment-secret/1"
SECRET_BYTES = 16_384
"""Bytes of the file with the salt."""
COMMITMENT_STATEMENT = StatementKind(
    "assay:commitment/v1", "commitment", {"bounty": check.DIGEST, "participant": check.WORD}, 65_536
)


def commitment_digest(bounty: str, participant: str, salt: bytes, submission: str) -> str:
    """`sha256:…` of the commitment; raises ValueError for a salt of another length."""
    if len(salt) != SALT_BYTES:
        raise ValueError(f"a salt has {SALT_BYTES} bytes")
    return f"sha256:{sha256(join_parts(COMMITMENT_TAG, bounty, participant, salt, submission)).hexdigest()}"


class CommitmentSecret(Section):
    """The secret of a commitment until the solution is sealed; without it the commitment is worthless."""

    bounty: Digest
    participant: Key
    submission: Digest
    salt: Annotated[str, Field(pattern="^[0-9a-f]{64}$", repr=False)]

    @property
    def commitment(self) -> str:
        """`sha256:…` of the commitment that it opens."""
        return commitment_digest(self.bounty, self.participant, bytes.fromhex(self.salt), self.submission)

    @property
    def data(self) -> bytes:
        """The bytes of its file."""
        return canonical({"schema": SECRET_SCHEMA} | self.model_dump(mode="json")) + b"\n"


def read_secret(data: bytes) -> CommitmentSecret:
    """The secret in the bytes of its file; raises BadInput, which does not reveal it."""
    found = _read_json(data)
    if not isinstance(found, dict) or found.pop("schema", None) != SECRET_SCHEMA:
        raise BadInput("holds no salt of a commitment", hint="give the file that `assay commit` wrote")
    try:
        return validate(CommitmentSecret, found)
    except BadInput as error:
        raise BadInput("is not as `assay commit` wrote it", field=error.field, hint="take it from a copy") from None


def _read_json(data: bytes) -> Any:
    try:
        return strict.parse(decode(data, None))
    except BadInput:
        return None


@dataclass(frozen=True)
class SignedCommitment:
    """A commitment with a right signature by its participant."""

    bounty: str
    participant: str
    digest: str
    envelope: bytes = field(repr=False)


def new_secret(bounty: str, participant: str, submission: str) -> CommitmentSecret:
    """A new commitment's secret, with a salt of its own; raises BadInput if the participant is a name alone."""
    signing_key(participant)
    return CommitmentSecret(bounty=bounty, participant=participant, submission=submission, salt=secrets.token_hex(SALT_BYTES))


def sign_commitment(secret: CommitmentSecret, signer: PrivateKey) -> SignedStatement:
    """The signed commitment, to be handed in; raises BadInput if the signer is not the participant."""
    if signing_key(secret.participant) != signer.public:
        what = f"{brief(secret.participant)} is not the key that signs, {signer.public}"
        raise BadInput(what, hint="sign with the participant's own key")
    said = {"bounty": secret.bounty, "participant": secret.participant}
    return COMMITMENT_STATEMENT.make(secret.commitment, said, signer)


def signing_key(participant: str) -> PublicKey:
    """A participant's public key; raises BadInput if the participant is only a name, which cannot sign."""
    try:
        return public(participant)
    except BadInput as error:
        raise BadInput(
            f"the participant {brief(participant)} cannot commit, since nobody can sign for it: {error.what}",
            hint="its row in participants.csv must have as key what `assay keys show` prints",
        ) from None


def read_commitment(data: bytes) -> SignedCommitment:
    """The commitment in the bytes of an envelope, its signature checked; raises Rejected."""
    try:
        found = COMMITMENT_STATEMENT.read(data)
    except check.CheckError as refused:
        raise Rejected(Code.MALFORMED, f"this is no commitment: {refused.what}", hint="`assay commit` makes one") from None
    participant = found.predicate["participant"]
    try:
        key = signing_key(participant)
    except BadInput as error:
        raise Rejected(Code.NO_KEY, error.what, hint=error.hint) from None
    if not found.is_by(key):
        raise Rejected(Code.BAD_SIGNATURE, "the participant did not sign it", hint="sign with the participant's own key")
    return SignedCommitment(found.predicate["bounty"], participant, found.digest, found.envelope)


SEALED_SCHEMA = "assay.sealed/1"
SEALED_TAG = "assay/sealed/v1"
SEALED_BYTES = 256 * 2**20
"""Bytes of one file: of a release, that of every winner's transcript."""
SealedKind = Literal["solution", "problem", "results", "release", "judged"]
_Base64 = Annotated[str, Field(max_length=SEALED_BYTES, repr=False)]


class SealedFile(Section):
    """The content of a sealed file. Whether it opens is not known yet."""

    kind: SealedKind
    bounty: Digest
    participant: Key | None = None
    to: SealKey
    data: _Base64

    @property
    def info(self) -> bytes:
        """HPKE's info: the head that the file is bound to."""
        return _hpke_info(self.kind, self.bounty, self.participant)

    def document(self) -> dict[str, Any]:
        """The file as JSON."""
        return {"schema": SEALED_SCHEMA} | self.model_dump(mode="json", exclude_none=True)

    @property
    def file(self) -> bytes:
        """The bytes of the file."""
        return canonical(self.document()) + b"\n"

    def open(self, key: PrivateKey) -> bytes:
        """The plaintext; raises BadInput if this key does not open it."""
        try:
            data = base64.b64decode(self.data, validate=True)
        except ValueError:
            raise BadInput("is not base64", field="data", hint="take it from a copy") from None
        return open_sealed(data, key, self.info)


def seal_bytes(kind: SealedKind, data: bytes, to: PublicKey, *, bounty: str, participant: str | None = None) -> SealedFile:
    """Bytes sealed to a key as one of the kinds; raises BadInput for a key that signs."""
    found = base64.b64encode(seal(data, to, _hpke_info(kind, bounty, participant))).decode()
    return SealedFile(kind=kind, bounty=bounty, participant=participant, to=to.id, data=found)


def _hpke_info(kind: SealedKind, bounty: str, participant: str | None) -> bytes:
    return join_parts(SEALED_TAG, kind, bounty, participant or "")


def parse_sealed(data: bytes, *, most: int = SEALED_BYTES) -> SealedFile:
    """The sealed file in these bytes; raises BadInput with the field that is wrong."""
    if len(data) > most:
        raise BadInput(f"is larger than {most} bytes", hint="is this the right file?")
    found = strict.parse(decode(data, None))
    if not isinstance(found, dict) or found.get("schema") != SEALED_SCHEMA:
        said = brief(found.get("schema")) if isinstance(found, dict) else "no object"
        raise BadInput(f"is not a sealed file (schema: {said})", hint=f"its schema is {SEALED_SCHEMA}")
    made = validate(SealedFile, {name: value for name, value in found.items() if name != "schema"})
    if (made.kind == "solution") != (made.participant is not None):
        raise BadInput("goes with a solution, and with nothing else", field="participant", hint="seal it again: `assay seal`")
    sealing(made.to)
    return made


def check_committed(bounty: Bounty, secret: CommitmentSecret, solution: Solution) -> None:
    """Raise BadInput unless this salt commits to this solution of this bounty."""
    if secret.bounty != bounty.digest:
        what = f"was committed to for another bounty, {secret.bounty}, than this, {bounty.digest}"
        raise BadInput(what, hint="is it the right folder, or was bounty.toml or scheme.toml changed since?")
    if secret.submission != solution.digest:
        raise BadInput(
            f"the solution {solution.digest} is not the one that was committed to, {secret.submission}",
            hint="a participant commits once; seal that solution",
        )


def seal_solution(bounty: Bounty, secret: CommitmentSecret, solution: Solution, to: PublicKey) -> SealedFile:
    """A solution sealed with the salt that opens its commitment; raises BadInput if it is another, or too large."""
    check_size(bounty, solution)
    check_committed(bounty, secret, solution)
    plain = canonical({"salt": secret.salt, "solution": base64.b64encode(solution.data).decode()})
    return seal_bytes("solution", plain, to, bounty=bounty.digest, participant=secret.participant)


@dataclass(frozen=True, repr=False)
class OpenedSolution:
    """A participant's salt and solution; it does not show itself."""

    salt: bytes
    solution: Solution


def open_solution(found: SealedFile, key: PrivateKey, committed: str) -> OpenedSolution:
    """The solution that a participant sealed and committed to; raises Rejected, which reveals nothing of its content.

    Whether it is a solution at all is only reported if salt and digest match the commitment.
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
    if len(salt) != SALT_BYTES or commitment_digest(found.bounty, found.participant or "", salt, submission) != committed:
        raise wrong
    try:
        return OpenedSolution(salt, solutions.parse_solution(data))
    except BadInput:
        raise Rejected(Code.NO_SOLUTION, "what was committed to and sealed is not a solution") from None
