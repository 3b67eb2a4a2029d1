"""Judging the solutions that were handed in, as they come, until the scoring deadline. SPEC 2.3, 5.

- A solution is judged once. If several participants hand in the same one, it is judged for the one among them who committed
  first; for whom it counts is decided by the time of the commitment.
- Each judgement is attested by a quote; without a quote it does not count.
- Infrastructure errors (no model, no dstack, no disk) make a solution wait, with growing pauses. A waiting solution holds no
  worker slot. An error is never an answer. A solution that still waits at the scoring deadline is left unjudged.
- Only the kind of an error is reported: the text of a service may repeat what it was asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from assay.enclave.attest import Attestation, JudgementStatement
from assay.enclave.dstack import Trouble
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
    """A judged solution: the record, the judgement's document, and the texts."""

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
    found: Judgement, identity: Identity, *, participant: str, salt: bytes, epoch: int, at: datetime
) -> tuple[JudgedSolution, SealedFile]:
    """A judgement with its record, and both sealed to the enclave itself. The salt hides the quotes' digests."""
    made = record_of(found, epoch=epoch, validator=identity.validator, participant=participant, observed_at=at, blind=salt)
    one = JudgedSolution(made, found.document(salt), dict(found.quotes), dict(found.reasons), found.transcript.decode())
    plain = {
        "schema": JUDGED_SCHEMA,
        "record": one.record.document(),
        "judgement": one.document,
        "quotes": one.quotes,
        "reasons": one.reasons,
        "transcript": one.transcript,
    }
    return one, seal_bytes("judged", canonical(plain), identity.seal.public, bounty=identity.bounty)


def open_judgement(found: SealedFile, identity: Identity) -> JudgedSolution:
    """The judgement that `seal_judgement` sealed; raises BadInput for anything else."""
    said = strict.parse(found.open(identity.seal).decode())
    if not isinstance(said, dict) or said.get("schema") != JUDGED_SCHEMA:
        raise BadInput("is no judgement", hint="another version of the enclave wrote it")
    made = record(said["record"])
    assert isinstance(made, Rubric)  # we wrote it, and signed it
    return JudgedSolution(made, said["judgement"], said["quotes"], said["reasons"], said["transcript"])


T = TypeVar("T")


class ProblemMissing(AssayError):
    """The sealed problem is not there yet, or does not open, or is another."""


@dataclass(frozen=True)
class RetryPauses:
    """Seconds between tries: doubled from the first to the longest. tick: how often the clock is looked at."""

    first: float = 2.0
    longest: float = 120.0
    tick: float = 1.0


@dataclass
class JudgingQueue:
    """The solutions under way. judge: asks the model. attest: asks dstack; it may block. tell: one line for the operator."""

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
        for name, held in state.judgements.items():
            self.done[name] = open_judgement(held.sealed, state.identity)

    def groups(self) -> Iterator[list[str]]:
        """The IDs of each solution that was handed in, earliest commitment first."""
        commitments = self.desk.state.commitments
        by_digest: dict[str, list[str]] = {}
        ordered = sorted(self.desk.opened, key=lambda name: (commitments[name].at, commitments[name].said.participant.encode()))
        for name in ordered:
            by_digest.setdefault(self.desk.opened[name].solution.digest, []).append(name)
        yield from by_digest.values()

    def judged(self, group: list[str]) -> str | None:
        """The ID under which a group's solution is judged; None if it is not yet."""
        return next((name for name in group if name in self.done), None)

    def attested(self, group: list[str]) -> bool:
        """Whether it is judged and attested."""
        name = self.judged(group)
        return name is not None and name in self.desk.state.quotes

    @property
    def finished(self) -> bool:
        """Whether nothing is to be judged at the moment."""
        return all(map(self.attested, self.groups()))

    def begin(self) -> None:
        """Begin what is to be done and is not under way."""
        for group in self.groups():
            name = self.judged(group) or next((one for one in group if one in self._tasks), group[0])
            if not self.attested(group) and name not in self._tasks:
                self._tasks[name] = asyncio.create_task(self._one(name))

    async def stop(self) -> None:
        """Give up what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def _one(self, name: str) -> None:
        if name not in self.done:
            found = await self._patiently(name, lambda: self.judge(self.desk.opened[name]))
            await self._patiently(name, lambda: self._keep(name, found))
        statement = self.desk.identity.judged(self.done[name].digest)
        await self._patiently(name, lambda: self._attest(name, statement))
        self._tasks.pop(name, None)

    async def _keep(self, name: str, found: Judgement) -> None:
        given, state, at = self.desk.opened[name], self.desk.state, self.clock()
        whose = state.commitments[name].said.participant
        made, sealed = seal_judgement(found, self.desk.identity, participant=whose, salt=given.salt, epoch=self.epoch, at=at)
        state.judge(name, sealed, at)
        self.done[name] = made
        self.tell(f"judged {name}: {found.outcome}")

    async def _attest(self, name: str, statement: JudgementStatement) -> None:
        found = await asyncio.to_thread(self.attest, statement)
        self.desk.state.quote(name, found.data)

    async def _patiently(self, name: str, act: Callable[[], Awaitable[T]]) -> T:
        """The result of `act`, retried until it succeeds."""
        pause = self.pauses.first
        while True:
            try:
                async with self._slots:
                    found = await act()
            except Exception as error:  # noqa: BLE001  (whatever it is, it must not become a participant's loss)
                trouble = error_kind(error)
                if self.troubles.get(name) != trouble:
                    self.tell(f"waiting with {name}: {trouble}")
                self.troubles[name] = trouble
            else:
                self.troubles.pop(name, None)
                return found
            await asyncio.sleep(pause)
            pause = min(2 * pause, self.pauses.longest)


def error_kind(error: Exception) -> str:
    """The kind of an error, in our own words only."""
    if isinstance(error, Unreachable | Trouble | ProblemMissing):
        return str(error)
    return "something here is not as it should be" if isinstance(error, BadInput) else f"internal: {type(error).__name__}"
