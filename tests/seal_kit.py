"""A bounty with an enclave, for tests: its folder, participants with keys, solutions."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from assay.enclave.dstack import Trouble

from assay.enclave import commitment, sealed
from assay.enclave.attest import Attestation, Collateral, EnclaveStatement, JudgementStatement, report_data
from assay.enclave.commitment import Secret
from assay.enclave.develop.authority import Authority
from assay.enclave.develop.machine import Machine
from assay.enclave.sealed import Sealed
from assay.enclave.service.identity import Identity, derive
from assay.enclave.signed import Signed
from assay.exact import canonical
from assay.judge.rubric.solution import Solution
from assay.ledger import keys, note
from assay.ledger.keys import PrivateKey, PublicKey
from assay.scheme.bounty import Bounty, read_bounty

LOG = keys.read(b"77" * 32)
"""Signs the log's receipts."""
SPONSOR = keys.read(b"99" * 32, kind=keys.X25519)
PEOPLE: Mapping[str, PrivateKey] = {
    key.public.raw.hex(): key for key in (keys.read(f"{number:02}".encode() * 32) for number in (1, 2, 3, 4))
}
P1, P2, P3, P4 = PEOPLE
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
model = "primary"
fallback = "second"
solution_tokens = {tokens}
"""


def made(place: Path, *, tokens: int = 1000, more: str = "", **changes: str) -> Path:
    """A bounty's folder: scheme, bounty, registries. changes: in place of what the text of bounty.toml has."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "scheme.toml").write_text(SCHEME)
    log = str(note.log_key("example.org/sorting", LOG.public))
    values = {"sponsor": SPONSOR.public.id, "log": log, "commit": COMMIT_UNTIL, "submit": SUBMIT_UNTIL, "score": SCORE_UNTIL}
    text = BOUNTY.format(**values, tokens=tokens)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (place / "bounty.toml").write_text(text + more)
    (place / "participants.csv").write_text("key,name\n" + "".join(f"{key},p{n}\n" for n, key in enumerate(PEOPLE, start=1)))
    (place / "validators.csv").write_text("key,stake,name\n")
    return place


def bounty_in(place: Path) -> Bounty:
    """The bounty of a folder made here."""
    return read_bounty(made(place))


def solution(text: str = "Merge sort, in n log n.") -> Solution:
    """A solution of one file."""
    return Solution({"answer.md": text})


def committed(bounty: Bounty, participant: str, what: Solution) -> tuple[Secret, Signed]:
    """A participant's secret and his signed commitment."""
    secret = commitment.commit(bounty.digest, participant, what.digest)
    return secret, commitment.sign(secret, PEOPLE[participant])


def handed(bounty: Bounty, participant: str, what: Solution, to: PublicKey) -> tuple[Signed, Sealed]:
    """A participant's signed commitment and his sealed solution."""
    secret, signed = committed(bounty, participant, what)
    return signed, sealed.seal_solution(bounty, secret, what, to)


def sealed_anyway(bounty: Bounty, secret: Secret, data: bytes, to: PublicKey) -> Sealed:
    """Bytes sealed as a solution, which `seal_solution` might refuse."""
    plain = canonical({"salt": secret.salt, "solution": base64.b64encode(data).decode()})
    return sealed.seal_as("solution", plain, to, bounty=bounty.digest, participant=secret.participant)


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
            raise Trouble(self.down[0])
        return self.machine.key(path, purpose)[0]

    def attest(self, statement: EnclaveStatement | JudgementStatement, collateral: Collateral | None = None) -> Attestation:
        if self.down:
            raise Trouble(self.down[0])
        quote = self.machine.quote(report_data(statement)).hex()
        return Attestation(statement=statement, quote=quote, event_log=self.machine.log, collateral=collateral)


def local(secret: bytes = b"the app of the tests") -> Local:
    """A machine of its own."""
    return Local(Machine(Authority(secret), b'{"services": {}}'))


def identity(bounty: Bounty, secret: bytes = b"the app of the tests") -> Identity:
    """The enclave's keys for a bounty."""
    return derive(local(secret), bounty.digest)
