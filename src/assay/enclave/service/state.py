"""Derives the enclave's keys, and stores the service's files in `enclave/` beside bounty.toml. SPEC 6.

    commitments/ID.json    {"commitment": the participant's envelope, "taken": the enclave's statement}
    submissions/ID.json    {"sealed": the sealed solution as it arrived, "taken": the enclave's statement}
    judgements/ID.json     {"sealed": the judgement, sealed to the enclave, "taken": the enclave's statement}
    quotes/ID.json         the attestation of that judgement
    results.json           the published results

Every file is public, or sealed to the enclave itself. ID is the beginning of the SHA-256 of the participant's public key. `taken`
is a signed statement of the enclave: what was taken, from which participant, when, and its digest. So an attacker who can write
to the disk can delete files, but cannot change or add them. A file is complete and on the disk before its request is answered.

dstack derives the keys, so they are the same after a restart of the same app. One process at a time serves a folder (`locked`).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from assay.enclave import sealing
from assay.enclave.attest import Attestation, Collateral, EnclaveStatement, JudgementStatement
from assay.enclave.messages import Rejected, SignedStatement, StatementKind, join_parts
from assay.enclave.sealing import SealedFile, SignedCommitment
from assay.errors import AssayError, BadInput
from assay.exact import canonical, digest
from assay.folder import strict
from assay.folder.files import clear, decode, load, write_bytes
from assay.ledger import check
from assay.ledger.keys import ED25519, X25519, PrivateKey, from_seed
from assay.scheme.fields import instant, instant_text

KEY_TAG = "assay/enclave-key/v1"


class Attester(Protocol):
    """The part of dstack that the service uses; see `assay.enclave.dstack`."""

    def get_key(self, path: str, purpose: str) -> bytes:
        """32 bytes that depend on app and path."""

    def attest(self, statement: EnclaveStatement | JudgementStatement, collateral: Collateral | None = None) -> Attestation:
        """The attestation of a statement."""


@dataclass(frozen=True)
class Identity:
    """The keys of one bounty's enclave: solutions are sealed to `seal`, and `signer` signs the results."""

    bounty: str
    seal: PrivateKey
    signer: PrivateKey

    @property
    def validator(self) -> str:
        """Its key as validators.csv spells it."""
        return self.signer.public.raw.hex()

    @property
    def statement(self) -> EnclaveStatement:
        """The statement that its quote binds."""
        return EnclaveStatement(bounty=self.bounty, seal=self.seal.public.id, signer=self.signer.public.id)

    def judged(self, judgement: str) -> JudgementStatement:
        """The statement that the quote of a judgement binds; judgement: the digest of its document."""
        return JudgementStatement(bounty=self.bounty, judgement=judgement, signer=self.signer.public.id)


def derive_identity(dstack: Attester, bounty: str) -> Identity:
    """The keys for a bounty (its digest): the same after a restart, and on another machine if dstack is configured so.

    Each key has its own path, because dstack's keys depend on nothing else. It goes through HKDF, because dstack shows others
    the public part of its derived keys. Raises DstackError.
    """
    return Identity(bounty, _derived_key(dstack, bounty, X25519), _derived_key(dstack, bounty, ED25519))


def _derived_key(dstack: Attester, bounty: str, kind: str) -> PrivateKey:
    raw = dstack.get_key(f"assay/{bounty.removeprefix('sha256:')}/{kind}", kind)
    return from_seed(HKDF(SHA256(), 32, None, join_parts(KEY_TAG, kind, bounty)).derive(raw), kind)


STATE_FOLDER = "enclave"
ENTRY_BYTES = sealing.SEALED_BYTES + 2**20
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z"
TAKEN_STATEMENT = StatementKind(
    "assay:taken/v1",
    "taken",
    {"what": "commitment|submission|refused|judgement", "bounty": check.DIGEST, "participant": check.WORD, "at": _TIME},
)
"""The enclave's statement about what it took; the subject is the digest of the commitment or of the sealed file."""
_FOLDERS = ("commitments", "submissions", "judgements", "quotes")


def id_of(participant: str) -> str:
    """The name of a participant's files, the same for each spelling of a key. Raises BadInput if it is not a public key."""
    return sha256(sealing.signing_key(participant).id.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class TakenCommitment:
    """A commitment that the enclave accepted."""

    signed: SignedCommitment
    at: datetime
    taken: SignedStatement = field(repr=False)


@dataclass(frozen=True)
class TakenSubmission:
    """A sealed solution that the enclave accepted; or, if `refused`, one that it can never accept."""

    sealed: SealedFile = field(repr=False)
    at: datetime
    taken: SignedStatement = field(repr=False)
    refused: bool = False


@dataclass(frozen=True)
class SealedJudgement:
    """A judgement, sealed to the enclave itself."""

    sealed: SealedFile = field(repr=False)
    at: datetime


@dataclass
class EnclaveState:
    """The content of the folder, by ID. Every change is written to the disk first."""

    folder: Path
    identity: Identity
    commitments: dict[str, TakenCommitment] = field(default_factory=dict)
    submissions: dict[str, TakenSubmission] = field(default_factory=dict)
    judgements: dict[str, SealedJudgement] = field(default_factory=dict)
    quotes: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def load(cls, competition: Path, identity: Identity) -> EnclaveState:
        """The stored state, empty if there is none; raises BadInput for a changed or foreign file."""
        state = cls(competition / STATE_FOLDER, identity)
        try:
            for name in _FOLDERS:
                (state.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
                clear(state.folder / name)
            clear(state.folder)
        except OSError as error:
            raise BadInput(f"cannot be made ({error.strerror})", file=state.folder, hint="check its permissions") from None
        for path in sorted((state.folder / "commitments").glob("*.json")):
            state.commitments[path.stem] = state._commitment(path)
        for path in sorted((state.folder / "submissions").glob("*.json")):
            state.submissions[path.stem] = state._submission(path)
        for path in sorted((state.folder / "judgements").glob("*.json")):
            state.judgements[path.stem] = state._judgement(path)
        for path in sorted((state.folder / "quotes").glob("*.json")):
            state.quotes[path.stem] = load(path, ENTRY_BYTES, hint="")
        return state

    def commit(self, name: str, commitment: SignedCommitment, at: datetime) -> TakenCommitment:
        """Store a commitment."""
        taken = self._taken("commitment", commitment.digest, commitment.participant, at)
        self._write("commitments", name, {"commitment": _document(commitment.envelope), "taken": _document(taken.envelope)})
        accepted = self.commitments[name] = TakenCommitment(commitment, at, taken)
        return accepted

    def submit(self, name: str, sealed: SealedFile, at: datetime, *, refused: bool = False) -> TakenSubmission:
        """Store a sealed solution. refused: it can never be judged."""
        assert sealed.participant is not None  # it is a solution
        taken = self._taken("refused" if refused else "submission", digest(sealed.document()), sealed.participant, at)
        self._write("submissions", name, {"sealed": sealed.document(), "taken": _document(taken.envelope)})
        accepted = self.submissions[name] = TakenSubmission(sealed, at, taken, refused)
        return accepted

    def judge(self, name: str, sealed: SealedFile, at: datetime) -> SealedJudgement:
        """Store a judgement. Raises ValueError if its solution has one already."""
        if name in self.judgements:
            raise ValueError("it is judged already")
        participant = self.commitments[name].signed.participant
        taken = self._taken("judgement", digest(sealed.document()), participant, at)
        self._write("judgements", name, {"sealed": sealed.document(), "taken": _document(taken.envelope)})
        judgement = self.judgements[name] = SealedJudgement(sealed, at)
        return judgement

    def quote(self, name: str, attestation: bytes) -> None:
        """Store the attestation of a judgement."""
        write_bytes(self.folder / "quotes" / f"{name}.json", attestation)
        self.quotes[name] = attestation

    def _taken(self, what: str, about: str, participant: str, at: datetime) -> SignedStatement:
        predicate = {"what": what, "bounty": self.identity.bounty, "participant": participant, "at": instant_text(at)}
        return TAKEN_STATEMENT.make(about, predicate, self.identity.signer)

    def _write(self, kind: str, name: str, document: dict[str, Any]) -> None:
        write_bytes(self.folder / kind / f"{name}.json", canonical(document) + b"\n")

    def _commitment(self, path: Path) -> TakenCommitment:
        envelope, taken = self._read(path, "commitment", "commitment")
        try:
            commitment = sealing.read_commitment(canonical(envelope))
        except Rejected as error:
            raise _changed_file(path, error) from None
        at = self._check(path, taken, ("commitment",), commitment.digest, commitment.participant)
        if path.stem != id_of(commitment.participant):
            raise _changed_file(path)
        return TakenCommitment(commitment, at, taken)

    def _submission(self, path: Path) -> TakenSubmission:
        document, taken = self._read(path, "sealed", "submission")
        sealed = self._sealed(path, document, "solution")
        at = self._check(path, taken, ("submission", "refused"), digest(sealed.document()), sealed.participant or "")
        if path.stem not in self.commitments or path.stem != id_of(sealed.participant or ""):
            raise _changed_file(path)
        return TakenSubmission(sealed, at, taken, taken.predicate["what"] == "refused")

    def _judgement(self, path: Path) -> SealedJudgement:
        document, taken = self._read(path, "sealed", "judgement")
        sealed = self._sealed(path, document, "judged")
        if path.stem not in self.submissions:
            raise _changed_file(path)
        participant = self.commitments[path.stem].signed.participant
        return SealedJudgement(sealed, self._check(path, taken, ("judgement",), digest(sealed.document()), participant))

    def _read(self, path: Path, name: str, what: str) -> tuple[Any, SignedStatement]:
        data = load(path, ENTRY_BYTES, hint="")
        try:
            entry = strict.parse(decode(data, path))
            if not isinstance(entry, dict) or entry.keys() != {name, "taken"}:
                raise _changed_file(path)
            return entry[name], TAKEN_STATEMENT.read(canonical(entry["taken"]))
        except (BadInput, check.CheckError) as error:
            raise _changed_file(path, error) from None

    def _sealed(self, path: Path, document: Any, kind: str) -> SealedFile:
        try:
            sealed = sealing.parse_sealed(canonical(document))
        except BadInput as error:
            raise _changed_file(path, error) from None
        if sealed.kind != kind or sealed.bounty != self.identity.bounty:
            raise _changed_file(path)
        return sealed

    def _check(self, path: Path, taken: SignedStatement, what: tuple[str, ...], about: str, participant: str) -> datetime:
        """The time at which it was taken. Raises BadInput unless this enclave signed a statement about this very file."""
        predicate = taken.predicate
        if not taken.is_by(self.identity.signer.public):
            problem = f"is not signed by this enclave, {self.identity.signer.public}"
            raise BadInput(problem, file=path, hint="another app or another dstack wrote it: each has its own keys")
        if (predicate["bounty"], predicate["participant"], taken.digest) != (self.identity.bounty, participant, about):
            raise _changed_file(path)
        if predicate["what"] not in what:
            raise _changed_file(path)
        return instant(predicate["at"])


def _changed_file(path: Path, why: AssayError | check.CheckError | None = None) -> BadInput:
    reason = "" if why is None else f" ({why.what})"
    return BadInput(f"was changed after the enclave wrote it{reason}", file=path, hint="restore it from a copy, or remove it")


def _document(data: bytes) -> Any:
    return strict.parse(data.decode())


@contextmanager
def locked(competition: Path) -> Iterator[None]:
    """Hold the lock of this competition's service in the block; raises BadInput if another process holds it."""
    path = competition / STATE_FOLDER / ".lock"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=path, hint="check the folder and its permissions") from None
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput("is being served already", file=path.parent, hint="one enclave at a time judges a bounty") from None
        yield
    finally:
        os.close(number)
