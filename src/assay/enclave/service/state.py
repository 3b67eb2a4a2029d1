"""The enclave's keys, and the files that the service stores in `enclave/` beside bounty.toml. SPEC 6.

    commitments/ID.json    {"commitment": the participant's envelope, "taken": the enclave's statement}
    submissions/ID.json    {"sealed": the sealed solution as it arrived, "taken": the enclave's statement}
    judgements/ID.json     {"sealed": the judgement, sealed to the enclave, "taken": the enclave's statement}
    quotes/ID.json         the attestation of that judgement
    results.json           the published results

Every file is public, or sealed to the enclave itself. ID is the beginning of the SHA-256 of the participant's public key. `taken`
is a statement that the enclave signs: what it is, of which participant, since when, and its digest. An attacker who can write to
the disk can therefore delete, but cannot change or add. A file is complete and on the disk before its request is answered.

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
        """The statement that its quote binds."""
        return EnclaveStatement(bounty=self.bounty, seal=self.seal.public.id, signer=self.signer.public.id)

    def judged(self, judgement: str) -> JudgementStatement:
        """The statement that the quote of a judgement binds; judgement: the digest of its document."""
        return JudgementStatement(bounty=self.bounty, judgement=judgement, signer=self.signer.public.id)


def derive_identity(dstack: Attester, bounty: str) -> Identity:
    """The keys for a bounty (its digest): the same after a restart, and on another machine if dstack is configured so.

    Each key has a path of its own, since dstack's keys depend on nothing else, and goes through HKDF, since dstack shows the
    public part of its derived keys to others. Raises dstack's Trouble.
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
"""The enclave's statement about a thing that it took; the subject is the digest of the commitment or of the sealed file."""
_FOLDERS = ("commitments", "submissions", "judgements", "quotes")


def id_of(participant: str) -> str:
    """The name of a participant's files; raises BadInput if it is no public key. Two spellings of one key have one name."""
    return sha256(sealing.signing_key(participant).id.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class TakenCommitment:
    """A commitment that was taken."""

    said: SignedCommitment
    at: datetime
    taken: SignedStatement = field(repr=False)


@dataclass(frozen=True)
class TakenSubmission:
    """A sealed solution that was taken, or, for good, refused: then `code` says why."""

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
class State:
    """The folder, and what is in it by ID. Every change is on the disk first."""

    folder: Path
    identity: Identity
    commitments: dict[str, TakenCommitment] = field(default_factory=dict)
    submissions: dict[str, TakenSubmission] = field(default_factory=dict)
    judgements: dict[str, SealedJudgement] = field(default_factory=dict)
    quotes: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def load(cls, competition: Path, identity: Identity) -> State:
        """The stored state, empty if there is none; raises BadInput for a changed or foreign file."""
        found = cls(competition / STATE_FOLDER, identity)
        try:
            for name in _FOLDERS:
                (found.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
                clear(found.folder / name)
            clear(found.folder)
        except OSError as error:
            raise BadInput(f"cannot be made ({error.strerror})", file=found.folder, hint="check its permissions") from None
        for path in sorted((found.folder / "commitments").glob("*.json")):
            found.commitments[path.stem] = found._commitment(path)
        for path in sorted((found.folder / "submissions").glob("*.json")):
            found.submissions[path.stem] = found._submission(path)
        for path in sorted((found.folder / "judgements").glob("*.json")):
            found.judgements[path.stem] = found._judgement(path)
        for path in sorted((found.folder / "quotes").glob("*.json")):
            found.quotes[path.stem] = load(path, ENTRY_BYTES, hint="")
        return found

    def commit(self, name: str, said: SignedCommitment, at: datetime) -> TakenCommitment:
        """Keep a commitment."""
        taken = self._taken("commitment", said.digest, said.participant, at)
        self._write("commitments", name, {"commitment": _document(said.envelope), "taken": _document(taken.envelope)})
        made = self.commitments[name] = TakenCommitment(said, at, taken)
        return made

    def submit(self, name: str, found: SealedFile, at: datetime, *, refused: bool = False) -> TakenSubmission:
        """Keep a sealed solution; refused: it can never be judged."""
        assert found.participant is not None  # it is a solution
        taken = self._taken("refused" if refused else "submission", digest(found.document()), found.participant, at)
        self._write("submissions", name, {"sealed": found.document(), "taken": _document(taken.envelope)})
        made = self.submissions[name] = TakenSubmission(found, at, taken, refused)
        return made

    def judge(self, name: str, found: SealedFile, at: datetime) -> SealedJudgement:
        """Keep a judgement, which must be the only one of its solution."""
        if name in self.judgements:
            raise ValueError("it is judged already")
        whose = self.commitments[name].said.participant
        taken = self._taken("judgement", digest(found.document()), whose, at)
        self._write("judgements", name, {"sealed": found.document(), "taken": _document(taken.envelope)})
        made = self.judgements[name] = SealedJudgement(found, at)
        return made

    def quote(self, name: str, attestation: bytes) -> None:
        """Keep the attestation of a judgement."""
        write_bytes(self.folder / "quotes" / f"{name}.json", attestation)
        self.quotes[name] = attestation

    def _taken(self, what: str, about: str, participant: str, at: datetime) -> SignedStatement:
        said = {"what": what, "bounty": self.identity.bounty, "participant": participant, "at": instant_text(at)}
        return TAKEN_STATEMENT.make(about, said, self.identity.signer)

    def _write(self, kind: str, name: str, document: dict[str, Any]) -> None:
        write_bytes(self.folder / kind / f"{name}.json", canonical(document) + b"\n")

    def _commitment(self, path: Path) -> TakenCommitment:
        found, taken = self._read(path, "commitment", "commitment")
        try:
            said = sealing.read_commitment(canonical(found))
        except Rejected as error:
            raise _changed_file(path, error) from None
        at = self._check(path, taken, ("commitment",), said.digest, said.participant)
        if path.stem != id_of(said.participant):
            raise _changed_file(path)
        return TakenCommitment(said, at, taken)

    def _submission(self, path: Path) -> TakenSubmission:
        found, taken = self._read(path, "sealed", "submission")
        one = self._sealed(path, found, "solution")
        at = self._check(path, taken, ("submission", "refused"), digest(one.document()), one.participant or "")
        if path.stem not in self.commitments or path.stem != id_of(one.participant or ""):
            raise _changed_file(path)
        return TakenSubmission(one, at, taken, taken.predicate["what"] == "refused")

    def _judgement(self, path: Path) -> SealedJudgement:
        found, taken = self._read(path, "sealed", "judgement")
        one = self._sealed(path, found, "judged")
        if path.stem not in self.submissions:
            raise _changed_file(path)
        whose = self.commitments[path.stem].said.participant
        return SealedJudgement(one, self._check(path, taken, ("judgement",), digest(one.document()), whose))

    def _read(self, path: Path, name: str, what: str) -> tuple[Any, SignedStatement]:
        data = load(path, ENTRY_BYTES, hint="")
        try:
            found = strict.parse(decode(data, path))
            if not isinstance(found, dict) or found.keys() != {name, "taken"}:
                raise _changed_file(path)
            return found[name], TAKEN_STATEMENT.read(canonical(found["taken"]))
        except (BadInput, check.CheckError) as error:
            raise _changed_file(path, error) from None

    def _sealed(self, path: Path, found: Any, kind: str) -> SealedFile:
        try:
            one = sealing.parse_sealed(canonical(found))
        except BadInput as error:
            raise _changed_file(path, error) from None
        if one.kind != kind or one.bounty != self.identity.bounty:
            raise _changed_file(path)
        return one

    def _check(self, path: Path, taken: SignedStatement, what: tuple[str, ...], about: str, participant: str) -> datetime:
        """The time at which it was taken; raises BadInput unless this enclave signed that, for this very file."""
        said = taken.predicate
        if not taken.is_by(self.identity.signer.public):
            told = f"is not signed by this enclave, {self.identity.signer.public}"
            raise BadInput(told, file=path, hint="another app, or another dstack, wrote it: dstack gives each keys of its own")
        if (said["bounty"], said["participant"], taken.digest) != (self.identity.bounty, participant, about):
            raise _changed_file(path)
        if said["what"] not in what:
            raise _changed_file(path)
        return instant(said["at"])


def _changed_file(path: Path, why: AssayError | check.CheckError | None = None) -> BadInput:
    told = "" if why is None else f" ({why.what})"
    return BadInput(f"is not as the enclave wrote it{told}", file=path, hint="restore it from a copy, or take it away")


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
