"""Makes and opens commitments and sealed files: a participant commits to a solution, then seals it. RFC 9180, SPEC 6.

    commitment = SHA-256(8 ‖ tag ‖ 8 ‖ bounty ‖ 8 ‖ participant ‖ 8 ‖ salt ‖ 8 ‖ submission)

Here 8 is the length of the next part, in eight bytes. The tag is `assay/commitment/v1`; bounty and submission
are digests as text, `sha256:…`; participant is the key as participants.csv spells it; the salt is 32 random bytes. A commitment
therefore opens in one way only, for one bounty and one participant. Without the salt nobody can test solutions against it. The
participant signs it: an in-toto statement, predicate `assay:commitment/v1`, that names bounty and participant.

A sealed file is `assay.sealed/1`, canonical JSON, closed: `kind`, `bounty`, `participant` (of a solution), `to` (the X25519 key)
and `data` (base64). HPKE's info is the tag `assay/sealed/v1`, kind, bounty and participant, each after its length: a file whose
head was changed does not open.

solution   from a participant to the enclave: {"salt": hex, "solution": base64 of the solution's bytes}
problem    from the sponsor to the enclave: the problem's text
results    from the enclave to the sponsor: judgements, and their cost
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

from assay.enclave.messages import Rejected, RejectionCode, SignedStatement, StatementKind, join_parts
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
    """The secret in the bytes of its file. Raises BadInput; its message does not reveal the secret."""
    document = _read_json(data)
    if not isinstance(document, dict) or document.pop("schema", None) != SECRET_SCHEMA:
        raise BadInput("does not hold the salt of a commitment", hint="give the file that `assay commit` wrote")
    try:
        return validate(CommitmentSecret, document)
    except BadInput as error:
        raise BadInput("was changed after `assay commit` wrote it", field=error.field, hint="restore it from a copy") from None


def _read_json(data: bytes) -> Any:
    try:
        return strict.parse(decode(data, None))
    except BadInput:
        return None


@dataclass(frozen=True)
class SignedCommitment:
    """A commitment with a valid signature of its participant."""

    bounty: str
    participant: str
    digest: str
    envelope: bytes = field(repr=False)


def new_secret(bounty: str, participant: str, submission: str) -> CommitmentSecret:
    """The secret of a new commitment, with a new salt. Raises BadInput if the participant is only a name."""
    signing_key(participant)
    return CommitmentSecret(bounty=bounty, participant=participant, submission=submission, salt=secrets.token_hex(SALT_BYTES))


def sign_commitment(secret: CommitmentSecret, signer: PrivateKey) -> SignedStatement:
    """The signed commitment, to be handed in; raises BadInput if the signer is not the participant."""
    if signing_key(secret.participant) != signer.public:
        what = f"{brief(secret.participant)} is not the key that signs, {signer.public}"
        raise BadInput(what, hint="sign with the participant's own key")
    predicate = {"bounty": secret.bounty, "participant": secret.participant}
    return COMMITMENT_STATEMENT.make(secret.commitment, predicate, signer)


def signing_key(participant: str) -> PublicKey:
    """A participant's public key; raises BadInput if the participant is only a name, which cannot sign."""
    try:
        return public(participant)
    except BadInput as error:
        raise BadInput(
            f"the participant {brief(participant)} cannot commit, since nobody can sign for it: {error.what}",
            hint="in participants.csv, its key must be the public key that `assay keys show` prints",
        ) from None


def read_commitment(data: bytes) -> SignedCommitment:
    """The commitment in the bytes of an envelope, its signature checked; raises Rejected."""
    try:
        statement = COMMITMENT_STATEMENT.read(data)
    except check.CheckError as refused:
        raise Rejected(
            RejectionCode.MALFORMED, f"this is not a commitment: {refused.what}", hint="`assay commit` makes one"
        ) from None
    participant = statement.predicate["participant"]
    try:
        key = signing_key(participant)
    except BadInput as error:
        raise Rejected(RejectionCode.NO_KEY, error.what, hint=error.hint) from None
    if not statement.is_by(key):
        raise Rejected(RejectionCode.BAD_SIGNATURE, "the participant did not sign it", hint="sign with the participant's own key")
    return SignedCommitment(statement.predicate["bounty"], participant, statement.digest, statement.envelope)


SEALED_SCHEMA = "assay.sealed/1"
SEALED_TAG = "assay/sealed/v1"
SEALED_BYTES = 256 * 2**20
"""Bytes of one file. The largest is a release, which has the transcript of every winner."""
SealedKind = Literal["solution", "problem", "results", "release", "judged"]
_Base64 = Annotated[str, Field(max_length=SEALED_BYTES, repr=False)]


class SealedFile(Section):
    """The content of a sealed file, not opened yet."""

    kind: SealedKind
    bounty: Digest
    participant: Key | None = None
    to: SealKey
    data: _Base64

    @property
    def info(self) -> bytes:
        """HPKE's info, which binds the file to its head."""
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
            raise BadInput("is not base64", field="data", hint="restore it from a copy") from None
        return open_sealed(data, key, self.info)


def seal_bytes(kind: SealedKind, data: bytes, to: PublicKey, *, bounty: str, participant: str | None = None) -> SealedFile:
    """Seal bytes to a key as one of the kinds. Raises BadInput if the key is for signing."""
    encoded = base64.b64encode(seal(data, to, _hpke_info(kind, bounty, participant))).decode()
    return SealedFile(kind=kind, bounty=bounty, participant=participant, to=to.id, data=encoded)


def _hpke_info(kind: SealedKind, bounty: str, participant: str | None) -> bytes:
    return join_parts(SEALED_TAG, kind, bounty, participant or "")


def parse_sealed(data: bytes, *, most: int = SEALED_BYTES) -> SealedFile:
    """The sealed file in these bytes; raises BadInput with the field that is wrong."""
    if len(data) > most:
        raise BadInput(f"is larger than {most} bytes", hint="is this the right file?")
    document = strict.parse(decode(data, None))
    if not isinstance(document, dict) or document.get("schema") != SEALED_SCHEMA:
        schema = brief(document.get("schema")) if isinstance(document, dict) else "no object"
        raise BadInput(f"is not a sealed file (schema: {schema})", hint=f"its schema is {SEALED_SCHEMA}")
    sealed = validate(SealedFile, {name: value for name, value in document.items() if name != "schema"})
    if (sealed.kind == "solution") != (sealed.participant is not None):
        raise BadInput("belongs to a solution, and only there", field="participant", hint="seal it again: `assay seal`")
    sealing(sealed.to)
    return sealed


def check_committed(bounty: Bounty, secret: CommitmentSecret, solution: Solution) -> None:
    """Raise BadInput unless this salt commits to this solution of this bounty."""
    if secret.bounty != bounty.digest:
        what = f"was committed to for another bounty, {secret.bounty}, than this, {bounty.digest}"
        raise BadInput(what, hint="is it the right folder? was bounty.toml or scheme.toml changed since then?")
    if secret.submission != solution.digest:
        raise BadInput(
            f"the solution {solution.digest} is not the one that was committed to, {secret.submission}",
            hint="a participant commits once; seal that solution",
        )


def seal_solution(bounty: Bounty, secret: CommitmentSecret, solution: Solution, to: PublicKey) -> SealedFile:
    """Seal a solution with the salt of its commitment. Raises BadInput for another solution, or a large one."""
    check_size(bounty, solution)
    check_committed(bounty, secret, solution)
    plain = canonical({"salt": secret.salt, "solution": base64.b64encode(solution.data).decode()})
    return seal_bytes("solution", plain, to, bounty=bounty.digest, participant=secret.participant)


@dataclass(frozen=True, repr=False)
class OpenedSolution:
    """A participant's salt and solution. Its `repr` does not show them."""

    salt: bytes
    solution: Solution


def open_solution(sealed: SealedFile, key: PrivateKey, committed: str) -> OpenedSolution:
    """The solution that a participant committed to and sealed. Raises Rejected, which reveals nothing of its content.

    Whether it is a solution at all is only reported if salt and digest match the commitment.
    """
    try:
        plain = sealed.open(key)
    except BadInput:
        hint = "seal it to the key of this enclave's attestation, for this bounty, as this participant"
        raise Rejected(RejectionCode.NOT_OPENED, "the sealed solution does not open here", hint=hint) from None
    wrong = Rejected(
        RejectionCode.NOT_COMMITTED, "what was sealed is not what was committed to", hint="seal the same solution and salt"
    )
    try:
        content = strict.parse(decode(plain, None))
        salt, data = bytes.fromhex(content["salt"]), base64.b64decode(content["solution"], validate=True)
    except (BadInput, KeyError, TypeError, ValueError):
        raise wrong from None
    submission = f"sha256:{sha256(data).hexdigest()}"
    if len(salt) != SALT_BYTES or commitment_digest(sealed.bounty, sealed.participant or "", salt, submission) != committed:
        raise wrong
    try:
        return OpenedSolution(salt, solutions.parse_solution(data))
    except BadInput:
        raise Rejected(RejectionCode.NO_SOLUTION, "what was committed to and sealed is not a solution") from None
