"""A participant's side: the commitment and its salt, kept beside the bounty until the solution is sealed and handed in.

    sealing/ID/salt.json         for the participant alone (0600); without it the commitment is good for nothing
    sealing/ID/commitment.json   what is handed in first
    sealing/ID/solution.sealed   what is handed in then
    sealing/ID/*.taken.json      what the enclave signed of either

Doing either again does no harm: the same commitment is made again, and the enclave answers as it did.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from assay.enclave import sealing
from assay.enclave.messages import SignedStatement
from assay.enclave.sealing import CommitmentSecret, SealedFile, seal_bytes
from assay.enclave.service.state import TAKEN_STATEMENT, id_of
from assay.errors import BadInput, Refused, brief
from assay.folder import csvs
from assay.folder.files import load, write_bytes
from assay.judge.rubric.questions import check_size
from assay.judge.rubric.solution import Solution
from assay.judge.rubric.stored import private_folder
from assay.ledger import check
from assay.ledger.keys import PrivateKey, PublicKey, public
from assay.scheme.bounty import PROBLEM_BYTES, Bounty

SEALING_FOLDER = "sealing"


@dataclass(frozen=True)
class ParticipantFiles:
    """The paths of a participant's own files."""

    folder: Path

    @property
    def salt(self) -> Path:
        """The salt, and what it is for."""
        return self.folder / "salt.json"

    @property
    def commitment(self) -> Path:
        """The signed commitment."""
        return self.folder / "commitment.json"

    @property
    def solution(self) -> Path:
        """The sealed solution."""
        return self.folder / "solution.sealed"

    def taken(self, path: Path) -> Path:
        """The enclave's signed statement about one of them."""
        return path.with_name(f"{path.stem}.taken.json")

    def secret(self) -> CommitmentSecret | None:
        """The stored salt; None if there is none. Raises BadInput."""
        if not self.salt.exists():
            return None
        try:
            return sealing.read_secret(load(self.salt, sealing.SECRET_BYTES, hint="`assay commit` makes it"))
        except BadInput as error:
            raise error.at(file=self.salt) from None


def files_of(bounty: Bounty, participant: str) -> ParticipantFiles:
    """A participant's files; raises BadInput if the participant is only a name."""
    return ParticipantFiles(bounty.file.parent / SEALING_FOLDER / id_of(participant)[:12])


def participant_of(bounty: Bounty, key: PublicKey) -> str:
    """The key as participants.csv spells it, where there is one and it is there; else its digits."""
    file = bounty.file.with_name(csvs.PARTICIPANTS.name)
    rows = csvs.read(file, csvs.PARTICIPANTS) if file.exists() else []
    spelt = (row.fields["key"] for row in rows if _is_key(key, row.fields["key"]))
    return next(spelt, key.raw.hex() if key.kind == "ed25519" else key.id)


def _is_key(key: PublicKey, text: str) -> bool:
    try:
        return public(text) == key
    except BadInput:
        return False


def only_participant(bounty: Bounty) -> str:
    """The participant that committed from here; raises BadInput if there is none, or several."""
    folder = bounty.file.parent / SEALING_FOLDER
    found = [
        secret.participant for place in sorted(folder.glob("*/")) if (secret := ParticipantFiles(place).secret()) is not None
    ]
    if len(found) != 1:
        what = "several participants committed from here" if found else "nothing was committed to from here"
        raise BadInput(what, file=folder, hint="name one with --participant" if found else "`assay commit` comes first")
    return found[0]


def commit_to_file(
    bounty: Bounty, solution: Solution, participant: str, signer: PrivateKey
) -> tuple[ParticipantFiles, CommitmentSecret, SignedStatement]:
    """Commit to a solution: salt and commitment are in their files when this returns. Raises BadInput.

    The same solution again is the same commitment; another one is refused, since the enclave would refuse it.
    """
    check_size(bounty, solution)
    place = files_of(bounty, participant)
    before = place.secret()
    if before is not None and (before.bounty, before.participant, before.submission) != (
        bounty.digest,
        participant,
        solution.digest,
    ):
        what = "is of another bounty" if before.bounty != bounty.digest else "is of another solution"
        hint = "a participant commits once; if that commitment was never handed in, move the file away"
        raise BadInput(what, file=place.salt, hint=hint)
    secret = before or sealing.new_secret(bounty.digest, participant, solution.digest)
    signed = sealing.sign_commitment(secret, signer)
    private_folder(place.folder)
    if before is None:
        write_bytes(place.salt, secret.data, private=True)
    write_bytes(place.commitment, signed.envelope + b"\n")
    return place, secret, signed


def read_secret_for(bounty: Bounty, solution: Solution, participant: str) -> tuple[ParticipantFiles, CommitmentSecret]:
    """The salt that a solution was committed with; raises BadInput where it could not be sealed: it is another, or too large."""
    check_size(bounty, solution)
    place = files_of(bounty, participant)
    secret = place.secret()
    if secret is None:
        hint = "`assay commit` comes first, and makes it; it is needed here"
        raise BadInput("no such file: nothing was committed to from here", file=place.salt, hint=hint)
    if secret.participant != participant:
        raise BadInput(f"is of {brief(secret.participant)}", file=place.salt, hint="name that participant, spelt the same")
    sealing.check_committed(bounty, secret, solution)
    return place, secret


def seal_to_file(bounty: Bounty, solution: Solution, participant: str, to: PublicKey) -> tuple[ParticipantFiles, SealedFile]:
    """Seal the solution that was committed to; it is in its file when this returns. Raises BadInput."""
    place, secret = read_secret_for(bounty, solution, participant)
    made = sealing.seal_solution(bounty, secret, solution, to)
    write_bytes(place.solution, made.file)
    return place, made


def check_taken(answer: bytes, bounty: Bounty, participant: str, signer: str) -> None:
    """Refuse an answer that the enclave did not sign, or that is about something else: it is no proof. Raises Refused."""
    try:
        found = TAKEN_STATEMENT.read(answer)
        found.check_by(public(signer), "taken")
    except check.CheckError as refused:
        raise Refused("taken", f"the answer is not the enclave's: {refused.what}", expected=signer) from None
    wanted = {"what": "submission", "bounty": bounty.digest, "participant": participant}
    for name, value in wanted.items():
        if found.predicate[name] != value:
            raise Refused("taken", f"the answer is about another {name}", expected=value, found=found.predicate[name])


def problem_line(text: bytes) -> str:
    """The line of bounty.toml for a sealed problem; raises BadInput if the text cannot be a problem."""
    return f'problem = {{ sealed = "problem.sealed", digest = "{problem_digest(text)}" }}'


def seal_problem(bounty: Bounty, text: bytes, to: PublicKey) -> Path:
    """The sponsor's text sealed to the enclave, in the file that bounty.toml names; raises BadInput if it names another text."""
    if bounty.sealed is None:
        raise BadInput("does not say that it is sealed", file=bounty.file, field="problem", hint=f"write {problem_line(text)}")
    if problem_digest(text) != bounty.problem_digest:
        what = f"is the digest of another text: this one has {problem_digest(text)}"
        raise BadInput(what, file=bounty.file, field="problem.digest", hint="seal the text that the bounty was published with")
    write_bytes(bounty.sealed, seal_bytes("problem", text, to, bounty=bounty.digest).file)
    return bounty.sealed


def problem_digest(text: bytes) -> str:
    """`sha256:…` of a problem's text; raises BadInput if it cannot be one."""
    if len(text) > PROBLEM_BYTES:
        raise BadInput(f"the problem is larger than {PROBLEM_BYTES} bytes", hint="a model reads it whole")
    try:
        empty = not text.decode().strip()
    except UnicodeDecodeError:
        raise BadInput("the problem is not UTF-8", hint="save the file as UTF-8") from None
    if empty:
        raise BadInput("the problem is empty", hint="say what is asked for")
    return f"sha256:{sha256(text).hexdigest()}"
