"""A bounty with an enclave, for tests: its folder, participants with keys, solutions."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from assay.enclave import sealing
from assay.enclave.attest import Attestation, Collateral, EnclaveStatement, JudgementStatement, report_data
from assay.enclave.develop.machine import Authority, Machine
from assay.enclave.dstack import DstackError
from assay.enclave.messages import SignedStatement
from assay.enclave.sealing import CommitmentSecret, OpenedSolution, SealedFile
from assay.enclave.service.judging import RetryPauses
from assay.enclave.service.lifecycle import Service, ServiceOptions
from assay.enclave.service.state import Identity, derive_identity
from assay.exact import canonical
from assay.judge.rubric.judgement import Judgement, TokenUsage
from assay.judge.rubric.judgement import JudgingCost as Took
from assay.judge.rubric.solution import Solution
from assay.ledger import keys
from assay.ledger import log as note
from assay.ledger.keys import PrivateKey, PublicKey
from assay.scheme.bounty import Bounty, Measurements, read_bounty

LOG = keys.read(b"77" * 32)
"""Signs the log's receipts."""
SPONSOR = keys.read(b"99" * 32, kind=keys.X25519)
PEOPLE: Mapping[str, PrivateKey] = {
    key.public.raw.hex(): key for key in (keys.read(f"{number:02}".encode() * 32) for number in (1, 2, 3, 4))
}
P1, P2, P3, P4 = PEOPLE
T = TypeVar("T")
BEFORE = datetime(2029, 12, 31, 23, 59, 59, tzinfo=UTC)
BETWEEN = datetime(2030, 1, 1, 12, tzinfo=UTC)
CLOSED = datetime(2030, 1, 2, 0, 0, 1, tzinfo=UTC)
OVER = datetime(2030, 1, 3, 0, 0, 1, tzinfo=UTC)
COMMIT_UNTIL, SUBMIT_UNTIL, SCORE_UNTIL = "2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z", "2030-01-03T00:00:00Z"

SCHEME = """
[scheme]
name = "sorting"
version = "1.0.0"
[score]
kind = "rubric"
[consensus]
min_validators = 1
min_stake = "0%"
[reward]
kind = "payout"
"""
BOUNTY = """
problem = "Write down how to sort a list."
[bounty]
name = "sorting"
title = "Sorting"
sponsor = "{sponsor}"
log = "{log}"
commitments_until = {commit}
submissions_until = {submit}
[[checks]]
id = "C1"
label = "It sorts"
weight = 6000
skippable = false
[[checks]]
id = "C2"
label = "It says how quick it is"
weight = 4000
skippable = true
[payout]
deposit = "1000"
threshold_bps = 7000
split = [6000, 4000]
fee_bps = 250
scoring_deadline = {score}
[judge]
solution_tokens = {tokens}
[judge.model]
name = "primary"
names = ["scripted/primary"]
[judge.fallback]
name = "second"
names = ["scripted/second"]
"""


def bounty_folder(place: Path, *, tokens: int = 1000, more: str = "", changes: Mapping[str, str] | None = None) -> Path:
    """A bounty's folder: scheme, bounty, registries. changes: in place of what the text of bounty.toml has."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "scheme.toml").write_text(SCHEME)
    log = str(note.log_key("example.org/sorting", LOG.public))
    values = {"sponsor": SPONSOR.public.id, "log": log, "commit": COMMIT_UNTIL, "submit": SUBMIT_UNTIL, "score": SCORE_UNTIL}
    text = BOUNTY.format(**values, tokens=tokens)
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    (place / "bounty.toml").write_text(text + more)
    (place / "participants.csv").write_text("key,name\n" + "".join(f"{key},p{n}\n" for n, key in enumerate(PEOPLE, start=1)))
    (place / "validators.csv").write_text("key,stake,name\n")
    return place


def bounty_in(place: Path) -> Bounty:
    """The bounty of a folder made here."""
    return read_bounty(bounty_folder(place))


def solution(text: str = "Merge sort, in n log n.") -> Solution:
    """A solution of one file."""
    return Solution({"answer.md": text})


def committed(bounty: Bounty, participant: str, what: Solution) -> tuple[CommitmentSecret, SignedStatement]:
    """A participant's secret and his signed commitment."""
    secret = sealing.new_secret(bounty.digest, participant, what.digest)
    return secret, sealing.sign_commitment(secret, PEOPLE[participant])


def handed(bounty: Bounty, participant: str, what: Solution, to: PublicKey) -> tuple[SignedStatement, SealedFile]:
    """A participant's signed commitment and his sealed solution."""
    secret, signed = committed(bounty, participant, what)
    return signed, sealing.seal_solution(bounty, secret, what, to)


def sealed_anyway(bounty: Bounty, secret: CommitmentSecret, data: bytes, to: PublicKey) -> SealedFile:
    """Bytes sealed as a solution, which `seal_solution` might refuse."""
    plain = canonical({"salt": secret.salt, "solution": base64.b64encode(data).decode()})
    return sealing.seal_bytes("solution", plain, to, bounty=bounty.digest, participant=secret.participant)


def digest_of(data: bytes) -> str:
    """`sha256:…` of bytes."""
    return f"sha256:{sha256(data).hexdigest()}"


@dataclass(frozen=True)
class Local:
    """A development machine as the service sees dstack, without a socket. It can be down."""

    machine: Machine
    down: list[str] = field(default_factory=list)

    def get_key(self, path: str, purpose: str) -> bytes:
        if self.down:
            raise DstackError(self.down[0])
        return self.machine.key(path, purpose)[0]

    def attest(self, statement: EnclaveStatement | JudgementStatement, collateral: Collateral | None = None) -> Attestation:
        if self.down:
            raise DstackError(self.down[0])
        quote = self.machine.quote(report_data(statement)).hex()
        return Attestation(statement=statement, quote=quote, event_log=self.machine.log, collateral=collateral)


def local(secret: bytes = b"the app of the tests") -> Local:
    """A machine of its own."""
    return Local(Machine(Authority(secret), b'{"services": {}}'))


def identity(bounty: Bounty, secret: bytes = b"the app of the tests") -> Identity:
    """The enclave's keys for a bounty."""
    return derive_identity(local(secret), bounty.digest)


# The service in this process


@dataclass
class SetClock:
    """A clock that a test sets."""

    now: datetime = BEFORE

    def __call__(self) -> datetime:
        return self.now


def judgement(
    bounty: Bounty, what: Solution, yes: Sequence[str] = ("C1", "C2"), verdict: str = "COHERENT", **changes: Any
) -> Judgement:
    """A judgement that quotes the solution."""
    text = next(iter(what.files.values()))
    judged = Judgement(
        bounty=bounty.digest,
        submission=what.digest,
        outcome="judged",
        baseline=dict.fromkeys(("B1", "B2", "B3", "B4"), True),
        checks={check.id: check.id in yes for check in bounty.rules.checks},
        verdict=verdict,
        quotes=dict.fromkeys(yes, text),
        reasons=dict.fromkeys(("verdict", *yes), f"because of {text}"),
        detectors=(),
        reason=None,
        model="primary",
        asked={},
        fallback=None,
        parameters={"temperature": 0},
        prompts=digest_of(b"prompts"),
        exchanges=(),
        transcript=canonical({"schema": "assay.transcript/1", "said": text}),
        measured=Took(TokenUsage(100, 10), cost=7, milliseconds=1200, tries=3),
    )
    return replace(judged, **changes)


@dataclass
class House:
    """A service, what it asks, and its messages. `script`: a solution's judgement, or what befalls it, by its text."""

    place: Path
    clock: SetClock = field(default_factory=SetClock)
    dstack: Local = field(default_factory=local)
    script: dict[str, Judgement | Exception] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    going: int = 0
    most: int = 0
    """Solutions that were judged at one time."""

    def __post_init__(self) -> None:
        self.bounty = read_bounty(self.place)

    def service(self, **setting: Any) -> Service:
        """It, as after a restart."""
        pauses = RetryPauses(first=0.001, longest=0.01, tick=0.005)
        return Service(
            self.bounty,
            lambda: nullcontext(self.dstack),
            self._judge,
            lambda service, opened: None,
            self.messages.append,
            ServiceOptions(clock=self.clock, pauses=pauses, **setting),
        )

    async def _judge(self, service: Service, opened: OpenedSolution) -> Judgement:
        (text,) = opened.solution.files.values()
        self.asked.append(text)
        self.going += 1
        self.most = max(self.most, self.going)
        await asyncio.sleep(0.002)
        self.going -= 1
        scripted = self.script.get(text) or judgement(self.bounty, opened.solution)
        if isinstance(scripted, Exception):
            raise scripted
        return scripted

    def run(self, act: Callable[[Service], Awaitable[T]], **setting: Any) -> T:
        """What `act` comes to while the service lives; it has begun when it is called."""

        async def lived() -> T:
            service = self.service(**setting)
            living = asyncio.create_task(service.live())
            try:
                await until(lambda: service.work is not None or living.done())
                if living.done():
                    await living
                return await act(service)
            finally:
                living.cancel()
                with suppress(asyncio.CancelledError):
                    await living

        return asyncio.run(lived())

    def hand_in(self, service: Service, participant: str, text: str) -> str:
        """Commit and submit; the commitment's digest."""
        to = service.ready().desk.identity.seal.public
        signed, sealed = handed(self.bounty, participant, solution(text), to)
        service.commit(signed.envelope)
        service.submit(sealed.file)
        return signed.digest


async def until(done: Callable[[], object]) -> None:
    """Wait until something is so; a minute at most."""
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.002)


def with_enclave(bounty: Bounty, machine: Machine) -> Bounty:
    """The bounty as if it pinned this machine; its digest is as it was."""
    pinned = Measurements(compose_hash=machine.compose_hash.hex(), development=True)
    copied = replace(bounty, contents=bounty.contents.model_copy(update={"enclave": pinned}))
    copied.__dict__["digest"] = bounty.digest
    return copied
