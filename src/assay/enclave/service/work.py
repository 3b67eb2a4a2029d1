"""Judging what was taken, as it comes, until the scoring deadline. SPEC 2.3, 5.

- A solution is judged once. Where several participants handed in the same one, it is judged for whoever committed first of those
  that are there; whose it counts for is settled by the time of the commitment.
- Each judgement is attested by a quote; without one it does not count.
- What the world does (no model, no dstack, no disk) keeps a solution waiting, with growing pauses, during which it takes up
  nobody's place. It is never an answer. At the scoring deadline who still waits is left unjudged.
- Of a trouble only its kind is told: what a service answers may repeat what it was asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from assay.enclave.attest import Attestation, JudgementStatement
from assay.enclave.dstack import Trouble
from assay.enclave.sealed import Opened
from assay.enclave.service.desk import Desk
from assay.enclave.service.judged import Judged, keep, opened
from assay.errors import AssayError, BadInput, Unreachable
from assay.judge.rubric.judgement import Judgement

__all__ = ["NoProblem", "Pauses", "Work", "kind_of"]

T = TypeVar("T")


class NoProblem(AssayError):
    """The sealed problem is not there yet, or does not open, or is another."""


@dataclass(frozen=True)
class Pauses:
    """Seconds between tries: doubled from the first to the longest. tick: how often the clock is looked at."""

    first: float = 2.0
    longest: float = 120.0
    tick: float = 1.0


@dataclass
class Work:
    """The solutions under way. judge: asks the model. attest: asks dstack; it may block. tell: one line for the operator."""

    desk: Desk
    judge: Callable[[Opened], Awaitable[Judgement]]
    attest: Callable[[JudgementStatement], Attestation]
    clock: Callable[[], datetime]
    tell: Callable[[str], None]
    epoch: int = 1
    jobs: int = 4
    pauses: Pauses = field(default_factory=Pauses)
    done: dict[str, Judged] = field(default_factory=dict)
    """Judgements by ID, attested or not yet."""
    troubles: dict[str, str] = field(default_factory=dict)
    """What keeps an ID waiting."""
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.jobs)
        state = self.desk.state
        for name, held in state.judgements.items():
            self.done[name] = opened(held.sealed, state.identity)

    def groups(self) -> Iterator[list[str]]:
        """The IDs of each solution that was handed in, who committed first before the others."""
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
        """Whether it is judged, and that is proven."""
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
        made, sealed = keep(found, self.desk.identity, participant=whose, salt=given.salt, epoch=self.epoch, at=at)
        state.judge(name, sealed, at)
        self.done[name] = made
        self.tell(f"judged {name}: {found.outcome}")

    async def _attest(self, name: str, statement: JudgementStatement) -> None:
        found = await asyncio.to_thread(self.attest, statement)
        self.desk.state.quote(name, found.data)

    async def _patiently(self, name: str, act: Callable[[], Awaitable[T]]) -> T:
        """What `act` comes to, tried until it comes to something."""
        pause = self.pauses.first
        while True:
            try:
                async with self._slots:
                    found = await act()
            except Exception as error:  # noqa: BLE001  (whatever it is, it must not become a participant's loss)
                trouble = kind_of(error)
                if self.troubles.get(name) != trouble:
                    self.tell(f"waiting with {name}: {trouble}")
                self.troubles[name] = trouble
            else:
                self.troubles.pop(name, None)
                return found
            await asyncio.sleep(pause)
            pause = min(2 * pause, self.pauses.longest)


def kind_of(error: Exception) -> str:
    """What sort of trouble it is, in words of ours alone."""
    if isinstance(error, Unreachable | Trouble | NoProblem):
        return str(error)
    return "something here is not as it should be" if isinstance(error, BadInput) else f"internal: {type(error).__name__}"
