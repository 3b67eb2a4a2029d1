"""What the service keeps in `enclave/` beside bounty.toml. Everything in it is public, or sealed to the enclave itself.

    commitments/ID.json    {"commitment": the participant's envelope, "taken": ours}
    submissions/ID.json    {"sealed": the sealed solution as it came, "taken": ours}
    judgements/ID.json     {"sealed": the judgement, sealed to ourselves, "taken": ours}
    quotes/ID.json         the attestation of that judgement
    results.json           what was given out, once that is certain

ID is the beginning of the SHA-256 of the participant's public key. `taken` is a statement signed by the enclave: what it is,
whose, since when, and the digest of what it is about. So whoever can write to the disk can take away, but not change or add.
A file is there whole, and on the disk, before its request is answered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from assay.enclave import commitment, sealed
from assay.enclave.commitment import Committed
from assay.enclave.rejected import Rejected
from assay.enclave.sealed import Sealed
from assay.enclave.service.identity import Identity
from assay.enclave.signed import Kind, Signed
from assay.errors import AssayError, BadInput
from assay.exact import canonical, digest
from assay.folder import strict
from assay.folder.text import decode, load
from assay.folder.write import clear, write_bytes
from assay.ledger import check
from assay.scheme.times import instant, instant_text

__all__ = ["FOLDER", "TAKEN", "Commitment", "Held", "State", "Submission", "id_of"]

FOLDER = "enclave"
ENTRY_BYTES = sealed.SEALED_BYTES + 2**20
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z"
TAKEN = Kind(
    "assay:taken/v1",
    "taken",
    {"what": "commitment|submission|refused|judgement", "bounty": check.DIGEST, "participant": check.WORD, "at": _TIME},
)
"""What the enclave says it has taken; the subject is the digest of the commitment, or of the sealed file."""
_FOLDERS = ("commitments", "submissions", "judgements", "quotes")


def id_of(participant: str) -> str:
    """The name of a participant's files; raises BadInput if it is no public key. Two spellings of one key have one name."""
    return sha256(commitment.signing_key(participant).id.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Commitment:
    """A commitment that was taken."""

    said: Committed
    at: datetime
    taken: Signed = field(repr=False)


@dataclass(frozen=True)
class Submission:
    """A sealed solution that was taken, or, for good, refused: then `code` says why."""

    sealed: Sealed = field(repr=False)
    at: datetime
    taken: Signed = field(repr=False)
    refused: bool = False


@dataclass(frozen=True)
class Held:
    """A judgement, sealed to ourselves."""

    sealed: Sealed = field(repr=False)
    at: datetime


@dataclass
class State:
    """The folder, and what is in it by ID. Every change is on the disk first."""

    folder: Path
    identity: Identity
    commitments: dict[str, Commitment] = field(default_factory=dict)
    submissions: dict[str, Submission] = field(default_factory=dict)
    judgements: dict[str, Held] = field(default_factory=dict)
    quotes: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def load(cls, competition: Path, identity: Identity) -> State:
        """What is there, made where there is nothing; raises BadInput for a file that we did not write, or that was changed."""
        found = cls(competition / FOLDER, identity)
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

    def commit(self, name: str, said: Committed, at: datetime) -> Commitment:
        """Keep a commitment."""
        taken = self._taken("commitment", said.digest, said.participant, at)
        self._write("commitments", name, {"commitment": _json(said.envelope), "taken": _json(taken.envelope)})
        made = self.commitments[name] = Commitment(said, at, taken)
        return made

    def submit(self, name: str, found: Sealed, at: datetime, *, refused: bool = False) -> Submission:
        """Keep a sealed solution; refused: it can never be judged."""
        assert found.participant is not None  # it is a solution
        taken = self._taken("refused" if refused else "submission", digest(found.document()), found.participant, at)
        self._write("submissions", name, {"sealed": found.document(), "taken": _json(taken.envelope)})
        made = self.submissions[name] = Submission(found, at, taken, refused)
        return made

    def judge(self, name: str, found: Sealed, at: datetime) -> Held:
        """Keep a judgement, which must be the only one of its solution."""
        if name in self.judgements:
            raise ValueError("it is judged already")
        whose = self.commitments[name].said.participant
        taken = self._taken("judgement", digest(found.document()), whose, at)
        self._write("judgements", name, {"sealed": found.document(), "taken": _json(taken.envelope)})
        made = self.judgements[name] = Held(found, at)
        return made

    def quote(self, name: str, attestation: bytes) -> None:
        """Keep the attestation of a judgement."""
        write_bytes(self.folder / "quotes" / f"{name}.json", attestation)
        self.quotes[name] = attestation

    def _taken(self, what: str, about: str, participant: str, at: datetime) -> Signed:
        said = {"what": what, "bounty": self.identity.bounty, "participant": participant, "at": instant_text(at)}
        return TAKEN.make(about, said, self.identity.signer)

    def _write(self, kind: str, name: str, document: dict[str, Any]) -> None:
        write_bytes(self.folder / kind / f"{name}.json", canonical(document) + b"\n")

    def _commitment(self, path: Path) -> Commitment:
        found, taken = self._read(path, "commitment", "commitment")
        try:
            said = commitment.read(canonical(found))
        except Rejected as error:
            raise _changed(path, error) from None
        at = self._check(path, taken, ("commitment",), said.digest, said.participant)
        if path.stem != id_of(said.participant):
            raise _changed(path)
        return Commitment(said, at, taken)

    def _submission(self, path: Path) -> Submission:
        found, taken = self._read(path, "sealed", "submission")
        one = self._sealed(path, found, "solution")
        at = self._check(path, taken, ("submission", "refused"), digest(one.document()), one.participant or "")
        if path.stem not in self.commitments or path.stem != id_of(one.participant or ""):
            raise _changed(path)
        return Submission(one, at, taken, taken.predicate["what"] == "refused")

    def _judgement(self, path: Path) -> Held:
        found, taken = self._read(path, "sealed", "judgement")
        one = self._sealed(path, found, "judged")
        if path.stem not in self.submissions:
            raise _changed(path)
        whose = self.commitments[path.stem].said.participant
        return Held(one, self._check(path, taken, ("judgement",), digest(one.document()), whose))

    def _read(self, path: Path, name: str, what: str) -> tuple[Any, Signed]:
        data = load(path, ENTRY_BYTES, hint="")
        try:
            found = strict.parse(decode(data, path))
            if not isinstance(found, dict) or found.keys() != {name, "taken"}:
                raise _changed(path)
            return found[name], TAKEN.read(canonical(found["taken"]))
        except (BadInput, check.Refused) as error:
            raise _changed(path, error) from None

    def _sealed(self, path: Path, found: Any, kind: str) -> Sealed:
        try:
            one = sealed.parse(canonical(found))
        except BadInput as error:
            raise _changed(path, error) from None
        if one.kind != kind or one.bounty != self.identity.bounty:
            raise _changed(path)
        return one

    def _check(self, path: Path, taken: Signed, what: tuple[str, ...], about: str, participant: str) -> datetime:
        """When it was taken; raises BadInput unless we said so, of this very thing."""
        said = taken.predicate
        if not taken.is_by(self.identity.signer.public):
            told = f"is not signed by this enclave, {self.identity.signer.public}"
            raise BadInput(told, file=path, hint="another app, or another dstack, wrote it: dstack gives each keys of its own")
        if (said["bounty"], said["participant"], taken.digest) != (self.identity.bounty, participant, about):
            raise _changed(path)
        if said["what"] not in what:
            raise _changed(path)
        return instant(said["at"])


def _changed(path: Path, why: AssayError | check.Refused | None = None) -> BadInput:
    told = "" if why is None else f" ({why.what})"
    return BadInput(f"is not as the enclave wrote it{told}", file=path, hint="restore it from a copy, or take it away")


def _json(data: bytes) -> Any:
    return strict.parse(data.decode())
