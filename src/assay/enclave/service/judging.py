"""Judges the solutions as they come in, until the scoring deadline. SPEC 2.3, 5.

- A solution is judged once. If several participants hand in the same solution, it is judged for the participant who committed
  first.
- A quote attests each judgement; a judgement without a quote does not count.
- Infrastructure errors (no model, no dstack, no disk) make a solution wait, with growing pauses. A waiting solution holds no
  worker slot. An error is never an answer. A solution that still waits at the scoring deadline is left unjudged.
- Only the kind of an error is reported: the message of a service may repeat what it was asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from assay.enclave.attest import Attestation, JudgementStatement
from assay.enclave.dstack import DstackError
from assay.enclave.sealing import OpenedSolution, SealedFile, seal_bytes
from assay.enclave.service.intake import Intake
from assay.enclave.service.state import Identity
from assay.errors import AssayError, BadInput, Unreachable
from assay.exact import canonical, digest
from assay.folder import strict
from assay.judge.rubric.judgement import Judgement
from assay.judge.rubric.judgement import make_record as record_of
from assay.records import Rubric, record

JUDGED_SCHEMA = "assay.judged/1"


@dataclass(frozen=True)
class JudgedSolution:
    """A judged solution: its record, the judgement's document, and the private texts."""

    record: Rubric
    document: Mapping[str, Any]
    quotes: Mapping[str, str] = field(repr=False)
    reasons: Mapping[str, str] = field(repr=False)
    transcript: str = field(repr=False)

    @property
    def digest(self) -> str:
        """`sha256:…` of the document: the record's `attestation`."""
        return digest(self.document)


def seal_judgement(
    judgement: Judgement, identity: Identity, *, participant: str, salt: bytes, epoch: int, at: datetime
) -> tuple[JudgedSolution, SealedFile]:
    """A judgement with its record, and the same sealed to the enclave itself. The salt hides the quotes' digests."""
    record = record_of(judgement, epoch=epoch, validator=identity.validator, participant=participant, observed_at=at, blind=salt)
    judged = JudgedSolution(
        record, judgement.document(salt), dict(judgement.quotes), dict(judgement.reasons), judgement.transcript.decode()
    )
    plain = {
        "schema": JUDGED_SCHEMA,
        "record": judged.record.document(),
        "judgement": judged.document,
        "quotes": judged.quotes,
        "reasons": judged.reasons,
        "transcript": judged.transcript,
    }
    return judged, seal_bytes("judged", canonical(plain), identity.seal.public, bounty=identity.bounty)


def open_judgement(sealed: SealedFile, identity: Identity) -> JudgedSolution:
    """Open what `seal_judgement` sealed. Raises BadInput for anything else."""
    content = strict.parse(sealed.open(identity.seal).decode())
    if not isinstance(content, dict) or content.get("schema") != JUDGED_SCHEMA:
        raise BadInput("is not a judgement", hint="another version of the enclave wrote it")
    evidence = record(content["record"])
    assert isinstance(evidence, Rubric)  # this enclave wrote and signed it
    return JudgedSolution(evidence, content["judgement"], content["quotes"], content["reasons"], content["transcript"])


T = TypeVar("T")


class ProblemMissing(AssayError):
    """The sealed problem is missing, does not open, or is another one."""


@dataclass(frozen=True)
class RetryPauses:
    """Seconds between tries: doubled from `first` to `longest`. tick: between two looks at the clock."""

    first: float = 2.0
    longest: float = 120.0
    tick: float = 1.0


@dataclass
class JudgingQueue:
    """The solutions that are being judged. judge: asks the model. attest: asks dstack, may block. tell: shows a line."""

    desk: Intake
    judge: Callable[[OpenedSolution], Awaitable[Judgement]]
    attest: Callable[[JudgementStatement], Attestation]
    clock: Callable[[], datetime]
    tell: Callable[[str], None]
    epoch: int = 1
    jobs: int = 4
    pauses: RetryPauses = field(default_factory=RetryPauses)
    done: dict[str, JudgedSolution] = field(default_factory=dict)
    """Judgements by ID, attested or not yet."""
    troubles: dict[str, str] = field(default_factory=dict)
    """The error that makes an ID wait."""
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.jobs)
        state = self.desk.state
        for name, judgement in state.judgements.items():
            self.done[name] = open_judgement(judgement.sealed, state.identity)

    def groups(self) -> Iterator[list[str]]:
        """For each solution, the IDs of those who handed it in, earliest commitment first."""
        commitments = self.desk.state.commitments
        by_digest: dict[str, list[str]] = {}
        ordered = sorted(self.desk.opened, key=lambda name: (commitments[name].at, commitments[name].signed.participant.encode()))
        for name in ordered:
            by_digest.setdefault(self.desk.opened[name].solution.digest, []).append(name)
        yield from by_digest.values()

    def judged(self, group: list[str]) -> str | None:
        """The ID under which a group's solution was judged; None if it was not."""
        return next((name for name in group if name in self.done), None)

    def attested(self, group: list[str]) -> bool:
        """Whether a group's solution is judged and attested."""
        name = self.judged(group)
        return name is not None and name in self.desk.state.quotes

    @property
    def finished(self) -> bool:
        """Whether every solution is judged and attested."""
        return all(map(self.attested, self.groups()))

    def begin(self) -> None:
        """Start judging each solution that is not judged and not being judged."""
        for group in self.groups():
            name = self.judged(group) or next((other for other in group if other in self._tasks), group[0])
            if not self.attested(group) and name not in self._tasks:
                self._tasks[name] = asyncio.create_task(self._judge_solution(name))

    async def stop(self) -> None:
        """Cancel everything that is being judged."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def _judge_solution(self, name: str) -> None:
        if name not in self.done:
            judgement = await self._patiently(name, lambda: self.judge(self.desk.opened[name]))
            await self._patiently(name, lambda: self._keep(name, judgement))
        statement = self.desk.identity.judged(self.done[name].digest)
        await self._patiently(name, lambda: self._attest(name, statement))
        self._tasks.pop(name, None)

    async def _keep(self, name: str, judgement: Judgement) -> None:
        opened, state, at = self.desk.opened[name], self.desk.state, self.clock()
        participant = state.commitments[name].signed.participant
        judged, sealed = seal_judgement(
            judgement, self.desk.identity, participant=participant, salt=opened.salt, epoch=self.epoch, at=at
        )
        state.judge(name, sealed, at)
        self.done[name] = judged
        self.tell(f"judged {name}: {judgement.outcome}")

    async def _attest(self, name: str, statement: JudgementStatement) -> None:
        attestation = await asyncio.to_thread(self.attest, statement)
        self.desk.state.quote(name, attestation.data)

    async def _patiently(self, name: str, act: Callable[[], Awaitable[T]]) -> T:
        """The result of `act`, retried until it succeeds."""
        pause = self.pauses.first
        while True:
            try:
                async with self._slots:
                    result = await act()
            except Exception as error:  # noqa: BLE001  (no error may become a participant's loss)
                trouble = error_kind(error)
                if self.troubles.get(name) != trouble:
                    self.tell(f"waiting with {name}: {trouble}")
                self.troubles[name] = trouble
            else:
                self.troubles.pop(name, None)
                return result
            await asyncio.sleep(pause)
            pause = min(2 * pause, self.pauses.longest)


def error_kind(error: Exception) -> str:
    """The kind of an error, in our own words."""
    if isinstance(error, Unreachable | DstackError | ProblemMissing):
        return str(error)
    return "something here is not as it should be" if isinstance(error, BadInput) else f"internal: {type(error).__name__}"
