"""The participant's side: commits to a solution, seals it, and keeps both beside the bounty until they are handed in.

    sealing/ID/salt.json         for the participant alone (0600); without it the commitment is worthless
    sealing/ID/commitment.json   handed in first
    sealing/ID/solution.sealed   handed in second
    sealing/ID/*.taken.json      the enclave's signed statement about either

Both steps can be repeated: the commitment stays the same, and the enclave gives the same answer.
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
        """The salt, with the bounty, participant and solution that it belongs to."""
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
        """The enclave's signed statement about the commitment or the solution."""
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
    """The key as participants.csv spells it; otherwise its hex digits."""
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
    """The only participant that committed from this folder. Raises BadInput if there is none, or several."""
    folder = bounty.file.parent / SEALING_FOLDER
    participants = [
        secret.participant for place in sorted(folder.glob("*/")) if (secret := ParticipantFiles(place).secret()) is not None
    ]
    if len(participants) != 1:
        what = "several participants committed from here" if participants else "nothing was committed to from here"
        raise BadInput(what, file=folder, hint="name one with --participant" if participants else "`assay commit` comes first")
    return participants[0]


def commit_to_file(
    bounty: Bounty, solution: Solution, participant: str, signer: PrivateKey
) -> tuple[ParticipantFiles, CommitmentSecret, SignedStatement]:
    """Commit to a solution, and write salt and commitment to their files. Raises BadInput.

    The same solution gives the same commitment again. Another solution is refused, because the enclave would refuse it.
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
    """The salt of a solution's commitment. Raises BadInput for another solution, and for one that is too large."""
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
    """Seal the solution that was committed to, and write it to its file. Raises BadInput."""
    place, secret = read_secret_for(bounty, solution, participant)
    sealed = sealing.seal_solution(bounty, secret, solution, to)
    write_bytes(place.solution, sealed.file)
    return place, sealed


def check_taken(answer: bytes, bounty: Bounty, participant: str, signer: str, what: str = "submission") -> None:
    """Refuse an answer that the enclave did not sign, or that is about something else. Raises Refused.

    what: what the enclave took: a `submission` or a `commitment`.
    """
    try:
        taken = TAKEN_STATEMENT.read(answer)
        taken.check_by(public(signer), "taken")
    except check.CheckError as refused:
        raise Refused("taken", f"the answer is not the enclave's: {refused.what}", expected=signer) from None
    wanted = {"what": what, "bounty": bounty.digest, "participant": participant}
    for name, value in wanted.items():
        if taken.predicate[name] != value:
            raise Refused("taken", f"the answer is about another {name}", expected=value, found=taken.predicate[name])


def problem_line(text: bytes) -> str:
    """The line of bounty.toml for a sealed problem; raises BadInput if the text cannot be a problem."""
    return f'problem = {{ sealed = "problem.sealed", digest = "{problem_digest(text)}" }}'


def seal_problem(bounty: Bounty, text: bytes, to: PublicKey) -> Path:
    """Seal the sponsor's text to the enclave, into the file that bounty.toml names. Raises BadInput for another text."""
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
        raise BadInput("the problem is empty", hint="write what participants must solve")
    return f"sha256:{sha256(text).hexdigest()}"
