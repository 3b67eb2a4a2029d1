"""A settled competition whose participants are hotkeys of a simulated subnet, and its weights on the way there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bittensor_core
import pytest

import ledger_kit
import small_folder
from assay.folder import csvs, registry
from assay.folder.files import Place
from assay.ledger import settling
from assay.ledger.keys import SR25519, PrivateKey, PublicKey
from assay.publish import publishers, settled_epoch
from assay.publish.bittensor.extrinsics import BittensorAttempt
from assay.publish.bittensor.node import BittensorNode
from assay.publish.bittensor.publisher import BittensorPublisher, open_publisher
from assay.publish.bittensor.weights import Vector, set_call, signed
from assay.publish.outcome import Confirmed, Outcome
from assay.publish.publishers import PublishPlan
from assay.publish.sender import SystemClock
from assay.records import Pulled
from assay.scheme.load import read as read_scheme
from ledger_kit import SIGNER, V1
from subtensor import Simulator, files

NETUID, ME, EPOCH = 1, 1, 3
"""The validator is //Val, with uid 1; the owner has uid 0, the miners those from 2 on."""
OTHERS = {0: 65535}
SCORES = {"//M1": "0.6", "//M2": "0.3", "//M3": "0.1"}
WEIGHTS = {2: 65535, 3: 32768, 4: 10923}
SCHEME = """[scheme]
name = "small"
[score]
kind = "given"
[consensus]
min_validators = 1
min_stake = "0"
[reward]
cap = "1"
[decay]
curve = "none"
"""


def hotkey(uri: str) -> str:
    return str(bittensor_core.Keypair.from_uri(uri).ss58_address)


def other_prefix(uri: str) -> str:
    """The same hotkey in another spelling of SS58: of prefix 0."""
    return str(bittensor_core.ss58_encode(public_key(uri), 0))


def public_key(uri: str) -> bytes:
    return bytes(bittensor_core.Keypair.from_uri(uri).public_key)


def secret(uri: str) -> str:
    """A hotkey as the text of its key file."""
    return bytes(bittensor_core.serialized_keypair_to_keyfile_data(bittensor_core.Keypair.from_uri(uri))).decode()


@contextmanager
def subnet(*, commit: bool = False, **options: Any) -> Iterator[Simulator]:
    """Our validator and three miners. Skipped where there is no description of a runtime beside the repository."""
    try:
        files()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    settings = {"CommitRevealWeightsEnabled": commit, "WeightsSetRateLimit": 100, "Tempo": 20} | options.pop("settings", {})
    with Simulator.with_subnet(NETUID, "//Val", *SCORES, settings=settings, **options) as chain:
        yield chain


def competition(
    place: Path, scores: Mapping[str, str] = SCORES, *, uids: Mapping[str, int] | None = None, name: str = "small"
) -> Path:
    """Its participants are these hotkeys, with the uids that they have; epoch 3 is settled."""
    uids = uids or {uri: number for number, uri in enumerate(scores, start=ME + 1)}
    rows = [f"{hotkey(uri)},{uids.get(uri, '')},s{uri.strip('/')}" for uri in scores]
    people = "key,uid,submission\n" + "\n".join(rows) + "\n"
    place.parent.mkdir(exist_ok=True)
    scheme, origin = SCHEME.replace("small", name), ledger_kit.ORIGIN.replace("small", name)

    def make(template: Path) -> None:
        ledger_kit.ledger_folder(template, "given", scheme_toml=scheme, participants_csv=people, tasks_txt=None, origin=origin)
        settle(template, scores, EPOCH)

    return ledger_kit.once(place, ("given", scheme, people, origin, *scores.items()), make)


def settle(place: Path, scores: Mapping[str, str], epoch: int) -> None:
    """Another epoch."""
    shared = {"validator": V1, "epoch": epoch}
    rows = [
        small_folder.record("given", **shared, participant=hotkey(uri), submission=f"s{uri.strip('/')}", score=score)
        for uri, score in scores.items()
    ]
    ledger_kit.add(place, rows)
    with ledger_kit.opened(place) as ledger:
        assert settling.settle(ledger, SIGNER, epoch, skip=True, without_scores=True).receipt is not None


def registry_of(place: Path, there: Simulator, **changes: Any) -> None:
    """Its uids and stakes are from now on those that were pulled from the simulated subnet."""
    people = registry.participants(
        csvs.read(place / "participants.csv", csvs.PARTICIPANTS), Place("participants.csv"), read_scheme(place / "scheme.toml")
    )
    judges = registry.validators(
        csvs.read(place / "validators.csv", csvs.VALIDATORS), Place("validators.csv"), columns=len(people)
    )
    where: dict[str, Any] = {"chain": "0x" + there.chain.genesis.hex(), "netuid": NETUID, "mechanism": 0, "block": 5} | changes
    pulled = Pulled(**where, hash="0x" + "11" * 32, spec_version=218, rows=registry.pulled_rows(people, judges))
    (place / "registry.json").write_bytes(registry.dump_pulled(pulled, []))


def publish_toml(place: Path, there: Simulator | None, **changes: Any) -> Path:
    """The target `sn`: the simulated subnet, or none that is there, with our validator's hotkey."""
    fields: dict[str, Any] = {
        "kind": "bittensor",
        "url": "ws://127.0.0.1:9" if there is None else there.url,
        "chain": "finney" if there is None else "0x" + there.chain.genesis.hex(),
        "netuid": NETUID,
        "key": "me",
        "wait_seconds": 60,
    } | changes
    (place / "hotkey").write_text(secret("//Val"))
    (place / "hotkey").chmod(0o600)
    rows = [f"{name} = {json.dumps(value)}" for name, value in fields.items() if value is not None]
    (place / "publish.toml").write_text("[targets.sn]\n" + "\n".join(rows) + '\n[keys.me]\nkeyfile = "hotkey"\n')
    return place


class PassingBlocks:
    """Time that passes only while somebody waits: each wait is a second and a block, after what is set for it."""

    def __init__(self, chain: Simulator | None = None, *then: Callable[[], object]) -> None:
        self.chain, self.then = chain, list(then)
        self.seconds, self.messages = 0.0, list[str]()

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        if self.then:
            self.then.pop(0)()
        if self.chain is not None:
            self.chain.step()

    def wall(self) -> float:
        return 0.0 if self.chain is None else float(self.chain.get("Timestamp.Now")) / 1000

    @property
    def clock(self) -> SystemClock:
        return SystemClock(now=lambda: self.seconds, sleep=self.sleep, wall=self.wall)


def opened(place: Path, time: PassingBlocks | None = None) -> BittensorPublisher:
    return open_publisher(publishers.read_target(place, "sn"), clock=(time or PassingBlocks()).clock)


def planned(place: Path, epoch: int = EPOCH) -> PublishPlan:
    with ledger_kit.opened(place) as ledger:
        return opened(place).plan(settled_epoch.read(ledger, epoch))


def sent(place: Path, time: PassingBlocks, epoch: int = EPOCH) -> Outcome:
    return opened(place, time).send(planned(place, epoch), time.messages.append)


def journal(place: Path) -> list[dict[str, Any]]:
    return publishers.read_target(place, "sn").journal().entries


def states(place: Path) -> list[str]:
    return [entry["state"] for entry in journal(place)]


def tried(place: Path) -> list[BittensorAttempt]:
    return BittensorAttempt.read(journal(place))


def once(place: Path, chain: Simulator, outcome: Outcome) -> None:
    """It is there, once, and the journal says so."""
    assert isinstance(outcome, Confirmed), outcome
    assert chain.weights(NETUID, ME) == WEIGHTS
    ours = {attempt.signed.hash for attempt in tried(place)}
    there = [extrinsic["extrinsic_hash"] for _, extrinsic in chain.included()]
    assert [name for name in there if name in ours] == [outcome.transaction]
    assert [attempt.state for attempt in tried(place)][-1] == "confirmed"


def elsewhere(chain: Simulator, nonce: int, weights: dict[int, int] = OTHERS) -> None:
    """Another program of ours sets other weights with the hotkey."""
    pair = bittensor_core.Keypair.from_uri("//Val")
    node = BittensorNode(chain.url)
    runtime = node.runtime()
    call = set_call(runtime, NETUID, 0, Vector(tuple(weights), tuple(weights.values()), False), 0)
    key = PrivateKey(PublicKey(SR25519, bytes(pair.public_key)), pair)
    node.submit(signed(runtime, call, key, nonce=nonce, genesis=node.genesis(), birth=node.finalized()).raw)
    node.close()
