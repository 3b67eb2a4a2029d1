"""The service without HTTP: it gets its keys from dstack, continues from the disk, judges, and answers requests.

It runs in one thread, in one event loop. Until dstack has given the keys, every request is answered with that fact alone. An
accepted request is on the disk before it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from assay.enclave.attest import Attestation, Collateral, JudgementStatement
from assay.enclave.messages import Rejected, RejectionCode
from assay.enclave.sealing import OpenedSolution
from assay.enclave.service import results
from assay.enclave.service.intake import Deadlines, Intake
from assay.enclave.service.judging import JudgingQueue, RetryPauses, error_kind
from assay.enclave.service.results import PublishedResults, release_solutions
from assay.enclave.service.state import Attester, EnclaveState, derive_identity
from assay.errors import AssayError, BadInput
from assay.exact import canonical
from assay.folder.files import load, write_bytes
from assay.judge.rubric.judgement import Judgement
from assay.ledger.keys import PublicKey, sealing
from assay.scheme.bounty import Bounty
from assay.scheme.fields import instant_text

_SHORTEST_PAUSE = timedelta(microseconds=1)
LONG_AGO = datetime.min.replace(tzinfo=UTC)


def now() -> datetime:
    """The enclave's clock."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class ServiceOptions:
    """The options of a service. A test shortens the pauses and sets the clock."""

    epoch: int = 1
    jobs: int = 4
    pauses: RetryPauses = field(default_factory=RetryPauses)
    collateral: Collateral | None = None
    """Added to each attestation, so that its readers need not fetch it."""
    clock: Callable[[], datetime] = now


@dataclass
class Service:
    """The enclave of one bounty. judge: judges a solution (`assay.judge.rubric.asking`). check: refuses what it would refuse."""

    bounty: Bounty
    dstack: Callable[[], AbstractContextManager[Attester]]
    judge: Callable[[Service, OpenedSolution], Awaitable[Judgement]]
    check: Callable[[Service, OpenedSolution], None]
    tell: Callable[[str], None]
    setting: ServiceOptions = field(default_factory=ServiceOptions)
    work: JudgingQueue | None = None
    attestation: bytes = b""
    results: PublishedResults | None = None
    trouble: str = ""
    """The error that prevents its start."""
    _awake: asyncio.Event = field(default_factory=asyncio.Event)
    _seen: datetime = LONG_AGO

    def __post_init__(self) -> None:
        self.times = Deadlines.of(self.bounty)
        terms = self.bounty.terms
        self.sponsor: PublicKey | None = None if terms.sponsor is None else sealing(terms.sponsor)

    def time(self) -> datetime:
        """The time. It never goes back before a signed time, nor before the end once results are published."""
        self._seen = max(self._seen, self.setting.clock())
        return self._seen

    async def live(self) -> None:
        """Start, judge and publish, until it is cancelled. Raises BadInput if another enclave wrote the files on the disk."""
        self.work = await self._started()
        state = self.work.desk.state
        signed = (entry.at for entries in (state.commitments, state.submissions, state.judgements) for entry in entries.values())
        self._seen = max(self._seen, *signed, self.times.solutions + _SHORTEST_PAUSE if self.results else self._seen)
        work, pauses = self.work, self.setting.pauses
        try:
            while self.results is None:
                if results.results_due(work, self.time()):
                    await work.stop()
                    self.results = await self._given_out(work)
                    break
                work.begin()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pauses.tick):
                        await self._awake.wait()
                self._awake.clear()
            await asyncio.Event().wait()
        finally:
            await work.stop()

    async def _started(self) -> JudgingQueue:
        """The queue, when dstack has given the keys and a quote of them."""
        pause = self.setting.pauses.first
        while True:
            try:
                return await asyncio.to_thread(self._start)
            except BadInput:
                raise
            except AssayError as error:
                reason = error_kind(error)
                if reason != self.trouble:
                    self.tell(f"not started yet: {reason}")
                self.trouble = reason
            await asyncio.sleep(pause)
            pause = min(2 * pause, self.setting.pauses.longest)

    def _start(self) -> JudgingQueue:
        with self.dstack() as dstack:
            identity = derive_identity(dstack, self.bounty.digest)
            self.attestation = dstack.attest(identity.statement, self.setting.collateral).data
        competition = self.bounty.file.parent
        state = EnclaveState.load(competition, identity)
        desk = Intake(competition, self.bounty, identity, state, self.times, lambda opened: self.check(self, opened))
        work = JudgingQueue(
            desk,
            lambda opened: self.judge(self, opened),
            self._attest,
            self.time,
            self.tell,
            self.setting.epoch,
            self.setting.jobs,
            self.setting.pauses,
        )
        path = state.folder / "results.json"
        if path.exists():
            self.results = results.read_results(load(path, 2**30, hint=""), work)
        self.tell(f"serving bounty {self.bounty.digest} as {identity.signer.public}")
        return work

    def _attest(self, statement: JudgementStatement) -> Attestation:
        with self.dstack() as dstack:  # a new connection each time: dstack may have been restarted
            return dstack.attest(statement, self.setting.collateral)

    async def _given_out(self, work: JudgingQueue) -> PublishedResults:
        """Make the results once, and write them to the disk before anybody sees them."""
        published = results.make_results(work)
        pause = self.setting.pauses.first
        while True:
            try:
                write_bytes(work.desk.state.folder / "results.json", published.data)
            except BadInput as error:
                self.tell(f"the results cannot be written: {error.what}")
                await asyncio.sleep(pause)
                pause = min(2 * pause, self.setting.pauses.longest)
            else:
                self.tell("the results are given out")
                return published

    # Requests

    def ready(self) -> JudgingQueue:
        """The queue. Raises Rejected while there are no keys."""
        if self.work is None:
            raise Rejected(RejectionCode.STARTING, "the enclave has no keys yet", hint="try again in a minute")
        return self.work

    def commit(self, data: bytes) -> bytes:
        """Take a commitment; raises Rejected."""
        return self.ready().desk.commit(data, self.time())

    def submit(self, data: bytes) -> bytes:
        """Take a sealed solution; raises Rejected."""
        taken = self.ready().desk.submit(data, self.time())
        self._awake.set()
        return taken

    def given_out(self) -> PublishedResults:
        """The results. Raises Rejected before they are published."""
        self.ready()
        if self.results is None:
            until = f"{instant_text(self.times.solutions)}, or {instant_text(self.times.scores)} if judging takes longer"
            raise Rejected(RejectionCode.NOT_YET, f"results are published after {until}", hint="ask again then")
        return self.results

    def sponsors(self) -> PublicKey:
        """The sponsor's key; raises Rejected if the bounty names none."""
        if self.sponsor is None:
            raise Rejected(RejectionCode.NO_SPONSOR, "the bounty names no key of its sponsor", hint="[bounty] sponsor = x25519:…")
        return self.sponsor

    def sealed_results(self) -> bytes:
        """The results for the sponsor, sealed; raises Rejected."""
        self.given_out()
        return results.seal_for_sponsor(self.ready(), self.sponsors())

    def release(self, data: bytes) -> bytes:
        """The winners' solutions, sealed to the sponsor, in exchange for a receipt and its settlement. Raises Rejected."""
        self.given_out()
        return release_solutions(self.ready(), data, self.sponsors())

    def about(self, wanted: str) -> bytes:
        """The state of a participant or a commitment, without any content. Raises Rejected.

        Before the results it is committed, received, judging or refused; after them it can also be judged or unjudged.
        """
        committed, submission, name = self.ready().desk.find(wanted)
        if submission is None:
            state = "committed"
        elif submission.refused:
            state = "refused"
        elif self.results is not None:
            state = self.results.states[name]
        else:
            state = "received" if self.time() <= self.times.solutions else "judging"
        return canonical(
            {
                "participant": committed.signed.participant,
                "commitment": committed.signed.digest,
                "committed_at": instant_text(committed.at),
                "received_at": None if submission is None else instant_text(submission.at),
                "state": state,
            }
        )

    def status(self) -> bytes:
        """Counts, the errors that make solutions wait, and, once results are published, the cost of each judgement."""
        document: dict[str, Any] = {"bounty": self.bounty.digest, "now": instant_text(self.time())}
        if self.work is None:
            return canonical(document | {"state": "starting", "trouble": self.trouble})
        work, state = self.work, self.work.desk.state
        groups = list(work.groups())
        document |= {
            "state": "taking" if self.results is None else "given-out",
            "committed": len(state.commitments),
            "received": len(state.submissions),
            "refused": sum(submission.refused for submission in state.submissions.values()),
            "waiting": sum(not work.attested(group) for group in groups) if self.results is None else 0,
            "troubles": sorted(set(work.troubles.values())),
            "judgements": None,
        }
        if self.results is not None:
            document["judgements"] = [
                {"commitment": state.commitments[name].signed.digest} | (judged.document["measured"] or {})
                for name, judged in sorted(work.done.items())
            ]
        return canonical(document)
