"""A competition whose bounty is on a chain: its folder with ledger and publish.toml, the keys of its people, time to let pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount

import ledger_kit
import small_folder
from assay.ledger import settling
from assay.publish import publishers, settled_epoch
from assay.publish.evm.publisher import EvmPublisher, open_publisher
from assay.publish.evm.signers import LocalSigner, TransactionRequest
from assay.publish.outcome import Outcome
from assay.publish.publishers import PublishPlan
from assay.publish.sender import SystemClock
from evm_kit import CHAIN_ID, ETHER, EvmWorld
from ledger_kit import SIGNER, V1

EPOCH = 3
CHECKS = {"c1": 4000, "c2": 3000, "c3": 2000, "c4": 1000}
SCHEME = """[scheme]
name = "small"
[score]
kind = "rubric"
checks = [
  {{id = "c1", weight = 4000}}, {{id = "c2", weight = 3000}}, {{id = "c3", weight = 2000}}, {{id = "c4", weight = 1000}}
]
[consensus]
min_validators = 1
min_stake = "0"
[reward]
kind = "payout"
[payout]
deposit = "{deposit}"
threshold_bps = 7000
split = [6000, 3000, 1000]
fee_bps = 250
"""
MNEMONIC = "test test test test test test test test test test test junk"
"""Anvil's own: its accounts are the same everywhere."""


@cache  # to derive it from the words takes hundredths of a second
def key_of(number: int) -> LocalAccount:
    Account.enable_unaudited_hdwallet_features()
    account: LocalAccount = Account.from_mnemonic(MNEMONIC, account_path=f"m/44'/60'/0'/0/{number}")
    return account


def rubric(bps: int | None, **changes: Any) -> dict[str, Any]:
    """A judgement that comes to so many thousands of BPS; None: it could not be judged."""
    checks = {}
    left = bps or 0
    for name, weight in CHECKS.items():
        checks[name] = left >= weight
        left -= weight if checks[name] else 0
    assert left == 0, bps
    more = {"outcome": "unjudged"} if bps is None else {}
    return small_folder.record("rubric", **{"checks": checks, "verdict": "COHERENT", "validator": V1} | more | changes)


def competition(place: Path, world: EvmWorld, scores: Mapping[str, int | None], **changes: Any) -> Path:
    """Participants of these names, agents of the chain in that order, judged; the epoch is settled, with a receipt."""
    rows = [
        f"{name},,,s-{name},2030-03-17T18:{number:02}:00Z,,{changes.get(name, world.agents[number])}"
        for number, name in enumerate(scores)
    ]
    people = "key,uid,name,submission,submitted_at,last_reset_epoch,address\n" + "\n".join(rows) + "\n"
    scheme = SCHEME.format(deposit=changes.get("deposit", ETHER))

    def make(template: Path) -> None:
        ledger_kit.ledger_folder(template, "rubric", scheme_toml=scheme, participants_csv=people, tasks_txt=None)
        judged(template, scores, EPOCH)

    return ledger_kit.once(place, ("rubric", scheme, people, *scores.items()), make)


def judged(place: Path, scores: Mapping[str, int | None], epoch: int, **changes: Any) -> None:
    """Record a validator's scores of their submissions in an epoch, and settle it."""
    proofs = {name: f"sha256:{number:02x}{'ab' * 31}" for number, name in enumerate(scores)}
    records = [
        rubric(bps, epoch=epoch, participant=name, submission=f"s-{name}", attestation=proofs[name])
        for name, bps in scores.items()
    ]
    ledger_kit.add(place, records)
    with ledger_kit.opened(place) as ledger:
        assert settling.settle(ledger, SIGNER, epoch, skip=True, without_scores=True).receipt is not None


def publish_toml(place: Path, world: EvmWorld | None, **changes: Any) -> Path:
    """The target `local`: the world's oracle and round, the scorer's key from the environment."""
    fields: dict[str, Any] = {"kind": "evm", "chain_id": CHAIN_ID, "key": "scorer", "confirmations": 1}
    if world is not None:
        fields |= {"rpc": world.chain.url, "oracle": world.oracle.address}
        fields |= {} if world.round is None else {"round": world.round.address}
    fields |= changes
    rows = [f"{name} = {json.dumps(value)}" for name, value in fields.items() if value is not None]
    keys = "".join(f'[keys.{name}]\nenv = "KEY_{name.upper()}"\n' for name in ("scorer", "sponsor", "relayer", "agent"))
    (place / "publish.toml").write_text("[targets.local]\n" + "\n".join(rows) + "\n" + keys)
    return place


@pytest.fixture
def with_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of publish.toml, in the environment: anvil's accounts 2, 1, 3 and its lowest agent."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


def environment() -> dict[str, str]:
    numbers = {"scorer": 2, "sponsor": 1, "relayer": 3, "agent": lowest_agent()}
    return {f"KEY_{name.upper()}": f"0x{bytes(key_of(number).key).hex()}" for name, number in numbers.items()}


def lowest_agent() -> int:
    return min(range(4, 24), key=lambda number: str(key_of(number).address).lower())


class PassingTime:
    """Time that passes only while somebody waits: each wait is a second, and calls what is set for it."""

    def __init__(self, *then: Callable[[], object]) -> None:
        self.seconds, self.then, self.messages = 0.0, list(then), list[str]()

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        if self.then:
            self.then.pop(0)()

    @property
    def clock(self) -> SystemClock:
        return SystemClock(now=lambda: self.seconds, sleep=self.sleep)

    def tell(self, what: str) -> None:
        self.messages.append(what)


def opened(place: Path, time: PassingTime | None = None, name: str = "local") -> EvmPublisher:
    return open_publisher(publishers.read_target(place, name), clock=(time or PassingTime()).clock)


def planned(place: Path, epoch: int = EPOCH) -> PublishPlan:
    with ledger_kit.opened(place) as ledger:
        return opened(place).plan(settled_epoch.read(ledger, epoch))


def sent(place: Path, time: PassingTime | None = None, epoch: int = EPOCH) -> Outcome:
    time = time or PassingTime()
    return opened(place, time).send(planned(place, epoch), time.tell)


def journal(place: Path) -> list[dict[str, Any]]:
    return publishers.read_target(place, "local").journal().entries


def states(place: Path) -> list[str]:
    return [entry["state"] for entry in journal(place)]


def nonce(world: EvmWorld, account: str) -> int:
    return int(world.chain.w3.eth.get_transaction_count(account))


def signers_raw(account: LocalAccount, request: TransactionRequest) -> str:
    """A transaction as a signer gives it back."""
    return "0x" + LocalSigner(account).transaction(request).hex()
