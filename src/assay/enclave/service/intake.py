"""Takes or rejects commitments and sealed solutions. It handles one call at a time; what it accepted is on the disk.

- A participant of participants.csv commits once, until `commitments_until` (if left out: as long as solutions are accepted).
- Then the participant hands in the committed solution, until `submissions_until`. The time that counts is that of the enclave's
  clock when the request had arrived whole.
- A repeated request gets the first answer, even late, so that a participant who lost an answer may ask again.
- Two rejections are final, because no other solution fits the commitment: it is too large, or it is not a solution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from assay.enclave import sealing
from assay.enclave.messages import ENVELOPE_BYTES, Rejected, RejectionCode
from assay.enclave.sealing import OpenedSolution
from assay.enclave.service.state import EnclaveState, Identity, TakenCommitment, TakenSubmission, id_of
from assay.errors import BadInput
from assay.folder import csvs
from assay.judge.rubric.questions import check_size
from assay.scheme.bounty import Bounty
from assay.scheme.fields import instant_text


@dataclass(frozen=True)
class Deadlines:
    """The three deadlines of a bounty."""

    commitments: datetime
    solutions: datetime
    scores: datetime

    @classmethod
    def of(cls, bounty: Bounty) -> Deadlines:
        """A bounty's deadlines; raises BadInput if one is missing: an enclave needs all of them before it starts."""
        terms, payout = bounty.terms, bounty.scheme.payout
        if terms.submissions_until is None:
            hint = "results are published after it: submissions_until = 2026-12-01T00:00:00Z"
            raise BadInput("is missing, and an enclave needs it", file=bounty.file, field="bounty.submissions_until", hint=hint)
        if payout is None or payout.scoring_deadline is None:
            hint = "a solution that cannot be judged by then is left out: scoring_deadline = 2026-12-02T00:00:00Z"
            raise BadInput("is missing, and an enclave needs it", file=bounty.file, field="payout.scoring_deadline", hint=hint)
        return cls(terms.commitments_until or terms.submissions_until, terms.submissions_until, payout.scoring_deadline)


def sealed_limit(bounty: Bounty) -> int:
    """The most bytes of a valid sealed solution: JSON makes at most six bytes of one, and base64, applied twice, 16/9."""
    return 12 * bounty.judge.solution_tokens + 1_000_000


@dataclass
class Intake:
    """Takes or rejects commitments and solutions. `check` raises BadInput for a solution that the judge would refuse."""

    competition: Path
    bounty: Bounty
    identity: Identity
    state: EnclaveState
    times: Deadlines
    check: Callable[[OpenedSolution], None] = lambda opened: None
    opened: dict[str, OpenedSolution] = field(default_factory=dict, repr=False)
    """The opened solutions of submissions that are not refused, by ID."""

    def __post_init__(self) -> None:
        for name, submission in self.state.submissions.items():
            if not submission.refused:
                self.opened[name] = sealing.open_solution(
                    submission.sealed, self.identity.seal, self.state.commitments[name].signed.digest
                )

    def commit(self, data: bytes, now: datetime) -> bytes:
        """Take a commitment and return the enclave's signed statement; raises Rejected."""
        if len(data) > ENVELOPE_BYTES:
            raise Rejected(RejectionCode.TOO_LARGE, "this is larger than a commitment")
        commitment = sealing.read_commitment(data)
        self._same_bounty(commitment.bounty)
        name = self._known(commitment.participant)
        before = self.state.commitments.get(name)
        if before is not None and before.signed.digest == commitment.digest:
            return before.taken.envelope
        if before is not None:
            at = instant_text(before.at)
            raise Rejected(
                RejectionCode.SECOND_COMMITMENT,
                f"this participant committed at {at}",
                hint="a participant commits once to a bounty",
            )
        self._in_time(now, self.times.commitments, "commitments")
        return self.state.commit(name, commitment, now).taken.envelope

    def submit(self, data: bytes, now: datetime) -> bytes:
        """Take a sealed solution and return the enclave's signed statement. Raises Rejected, which reveals nothing of it."""
        if len(data) > sealed_limit(self.bounty):
            raise Rejected(RejectionCode.TOO_LARGE, f"this is larger than {sealed_limit(self.bounty)} bytes")
        try:
            sealed = sealing.parse_sealed(data)
        except BadInput as error:
            where = f"{error.field}: " if error.field else ""
            raise Rejected(RejectionCode.MALFORMED, f"{where}{error.what}", hint="`assay seal` makes a sealed solution") from None
        if sealed.kind != "solution" or sealed.participant is None:
            raise Rejected(
                RejectionCode.MALFORMED, f"this is sealed as {sealed.kind}, not as a solution", hint="use `assay seal`"
            )
        self._same_bounty(sealed.bounty)
        name = self._known(sealed.participant)
        committed, before = self.state.commitments.get(name), self.state.submissions.get(name)
        if committed is None or committed.signed.participant != sealed.participant:
            raise Rejected(
                RejectionCode.NO_COMMITMENT, "this participant has not committed", hint="first `assay commit`, then `assay seal`"
            )
        if before is None:
            self._in_time(now, self.times.solutions, "solutions")
        try:
            opened = sealing.open_solution(sealed, self.identity.seal, committed.signed.digest)
            self._check(opened)
        except Rejected as error:
            if error.code == RejectionCode.NOT_COMMITTED and before is not None:
                raise Rejected(RejectionCode.SECOND_SOLUTION, "this participant has handed in another solution") from None
            if error.code in (RejectionCode.NO_SOLUTION, RejectionCode.TOO_LARGE) and before is None:
                self.state.submit(name, sealed, now, refused=True)
            raise
        if before is not None:
            return before.taken.envelope
        taken = self.state.submit(name, sealed, now).taken.envelope
        self.opened[name] = opened
        return taken

    def find(self, wanted: str) -> tuple[TakenCommitment, TakenSubmission | None, str]:
        """The commitment of a participant or a digest, its submission if there is one, and its ID. Raises Rejected."""
        for name, commitment in self.state.commitments.items():
            if wanted in (commitment.signed.participant, commitment.signed.digest):
                return commitment, self.state.submissions.get(name), name
        raise Rejected(RejectionCode.UNKNOWN, "there is no such commitment")

    def _check(self, opened: OpenedSolution) -> None:
        try:
            check_size(self.bounty, opened.solution)
            self.check(opened)
        except BadInput:
            what = f"the solution is larger than the bounty's {self.bounty.judge.solution_tokens} tokens"
            raise Rejected(RejectionCode.TOO_LARGE, what, hint="what was committed to cannot be changed") from None

    def _same_bounty(self, digest: str) -> None:
        if digest != self.bounty.digest:
            what = f"this is for another bounty than {self.bounty.digest}"
            raise Rejected(
                RejectionCode.OTHER_BOUNTY, what, hint="bounty.toml and scheme.toml must be those that the enclave has"
            )

    def _known(self, participant: str) -> str:
        """The ID of a participant. participants.csv is read each time, because a bounty may gain participants."""
        rows = csvs.read(self.competition / csvs.PARTICIPANTS.name, csvs.PARTICIPANTS)
        if all(row.fields["key"] != participant for row in rows):
            hint = "ask the sponsor to enter the key, spelt the same"
            raise Rejected(RejectionCode.UNKNOWN_PARTICIPANT, "participants.csv has no such participant", hint=hint)
        try:
            return id_of(participant)
        except BadInput as error:
            raise Rejected(RejectionCode.NO_KEY, error.what, hint=error.hint) from None

    @staticmethod
    def _in_time(now: datetime, until: datetime, what: str) -> None:
        if now > until:
            sentence = f"{what} were accepted until {instant_text(until)}, and it is {instant_text(now)} here"
            raise Rejected(RejectionCode.LATE, sentence, hint="the enclave's clock counts, when the request has arrived whole")
