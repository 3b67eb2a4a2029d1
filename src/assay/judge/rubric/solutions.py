"""The solutions that were handed in to a competition's folder, each under its digest, readable by their keeper alone. SPEC 2, 7.

solutions/<hex>.json      the bytes of a solution (`assay.judge.rubric.solution`), whose digest is the submission
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from assay.errors import BadInput
from assay.folder.text import load
from assay.folder.write import write_bytes
from assay.judge import submitting
from assay.judge.rubric import asking
from assay.judge.rubric.solution import BYTES, Solution, parse
from assay.judge.rubric.solution import read as read_solution
from assay.records import Participant
from assay.scheme.bounty import Bounty, read_bounty
from assay.scheme.times import instant_text

__all__ = ["FOLDER", "Submitted", "find", "place", "private_folder", "submit"]

FOLDER = "solutions"
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Submitted:
    """What was done."""

    solution: Solution
    file: Path
    """Where it is kept."""
    before: str
    """The participant's submission until now; empty if there was none."""
    epoch: int | None = None
    """In which epoch the ledger has it as accepted; None without a ledger."""

    @property
    def changed(self) -> bool:
        """Whether it is another submission than before."""
        return self.before != self.solution.digest


def submit(competition: Path, participant: str, said: Path, *, at: datetime | None = None, epoch: int | None = None) -> Submitted:
    """Makes a solution (a text file, or a folder of them) the current submission of a participant.

    Raises BadInput for what is none, for one that is too large or too late, and in a bounty that takes sealed ones only; epoch
    and further errors as of `assay.judge.submitting`.
    """
    bounty, when = read_bounty(competition), at or datetime.now(UTC)
    row = submitting.find(competition, participant)
    if bounty.enclave is not None or bounty.problem is None:
        hint = "`assay commit` and `assay seal` hand in a solution that nobody else reads"
        raise BadInput("takes sealed solutions only: an enclave judges them", file=bounty.file, field="enclave", hint=hint)
    solution = _fitting(bounty, bounty.problem, said)
    before = row.submission
    until = bounty.terms.submissions_until
    if until is not None and when > until and before != solution.digest:
        what = f"no solution is taken any more: the deadline was {instant_text(until)}"
        raise BadInput(what, file=bounty.file, field="bounty.submissions_until", hint="what was handed in before stands")
    file = place(competition, solution.digest)
    private_folder(file.parent)
    write_bytes(file, solution.data, private=True)
    return Submitted(solution, file, before, row.enter(solution.digest, at=when, epoch=epoch))


def _fitting(bounty: Bounty, problem: str, said: Path) -> Solution:
    try:
        solution = read_solution(said)
        asking.check(bounty, problem, solution)
    except BadInput as error:
        raise error.at(file=said) from None
    return solution


def find(competition: Path, participant: Participant) -> Solution | None:
    """The solution that a participant handed in; None if it is not here. Raises BadInput if its file holds something else."""
    file = place(competition, participant.submission) if _DIGEST.fullmatch(participant.submission) else None
    if file is None or not file.exists():
        return None
    hint = "hand it in again, or get the file back that was handed in"
    try:
        solution = parse(load(file, 8 * BYTES, hint=hint))
    except BadInput as error:
        raise error.at(file=file) from None
    if solution.digest != participant.submission:
        raise BadInput(f"is not what {participant.key!r} handed in: its digest is {solution.digest}", file=file, hint=hint)
    return solution


def place(competition: Path, digest: str) -> Path:
    """Where the solution of a digest (`sha256:…`) is kept."""
    return competition / FOLDER / f"{digest.removeprefix('sha256:')}.json"


def private_folder(folder: Path) -> None:
    """Makes a folder that its owner alone may look into; raises BadInput if it cannot be, or if others may."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode & 0o777
    except OSError as error:
        hint = "check permissions and space"
        raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint=hint) from None
    if mode & 0o077:
        raise BadInput(f"others may look into it (mode {mode:04o})", file=folder, hint=f"make it yours alone: chmod 700 {folder}")
