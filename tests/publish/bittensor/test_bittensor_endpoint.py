"""What can be tried on any chain: on the simulated one, and where ASSAY_SUBTENSOR_URL names an endpoint, on that one.

ASSAY_SUBTENSOR_NETUID is the subnet (1 if it is left out). Weights are set there if ASSAY_SUBTENSOR_KEY is the file of a hotkey:
all of them burn, since the participants are nobody's hotkeys. Everything that needs power over the chain is tried on the
simulated one alone, in test_bittensor_publish and test_bittensor_faults.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import ledger_kit
import weights_kit as kit
from assay.ledger import keys
from assay.publish import publishers, settled_epoch
from assay.publish.bittensor import subnet as read
from assay.publish.bittensor.node import BittensorNode
from assay.publish.bittensor.publisher import BittensorPublisher, open_publisher
from assay.publish.bittensor.subnet import SubnetState
from assay.publish.bittensor.weights import Vector, commit_call, nonces_of, set_call, signed
from assay.publish.outcome import Confirmed, Planned, Refusal, Sent, TooEarly
from assay.publish.publishers import PublishPlan, Pulse

URL = os.environ.get("ASSAY_SUBTENSOR_URL", "")


@dataclass(frozen=True)
class Endpoint:
    """A chain, one of its subnets, and perhaps the file of a hotkey there."""

    url: str
    netuid: int
    key: Path | None


@pytest.fixture(params=["simulated", "real"])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Endpoint]:
    if request.param == "real":
        if not URL:
            pytest.skip("ASSAY_SUBTENSOR_URL names no endpoint")
        key = os.environ.get("ASSAY_SUBTENSOR_KEY", "")
        yield Endpoint(URL, int(os.environ.get("ASSAY_SUBTENSOR_NETUID", "1")), Path(key) if key else None)
        return
    request.getfixturevalue("shared")
    with kit.subnet(block_time=0.1) as chain:
        (tmp_path / "val").write_text(kit.secret("//Val"))
        (tmp_path / "val").chmod(0o600)
        yield Endpoint(chain.url, kit.NETUID, tmp_path / "val")


@pytest.fixture
def there(endpoint: Endpoint) -> Iterator[BittensorNode]:
    node = BittensorNode(endpoint.url)
    yield node
    node.close()


@pytest.fixture
def published(tmp_path: Path, endpoint: Endpoint, there: BittensorNode) -> tuple[BittensorPublisher, PublishPlan]:
    """A competition of strangers, and its publisher."""
    return published_of(tmp_path, endpoint, there, "0.7", "0.3")


@pytest.fixture
def burning(tmp_path: Path, endpoint: Endpoint, there: BittensorNode) -> tuple[BittensorPublisher, PublishPlan]:
    """The same where nobody earns anything, so that everything burns."""
    return published_of(tmp_path, endpoint, there, "0", "0")


def published_of(
    tmp_path: Path, endpoint: Endpoint, there: BittensorNode, *scores: str
) -> tuple[BittensorPublisher, PublishPlan]:
    names = ("//Nobody1", "//Nobody2")
    place = kit.competition(tmp_path / "c", dict(zip(names, scores, strict=True)), uids={"//Nobody1": 1, "//Nobody2": 2})
    kit.publish_toml(place, None, url=endpoint.url, chain=there.genesis(), netuid=endpoint.netuid)
    if endpoint.key is not None:
        shutil.copy(endpoint.key, place / "hotkey")
    publisher = open_publisher(publishers.read_target(place, "sn"))
    with ledger_kit.opened(place) as ledger:
        return publisher, publisher.plan(settled_epoch.read(ledger, kit.EPOCH))


def test_what_would_be_set(published: tuple[BittensorPublisher, PublishPlan]) -> None:
    publisher, plan = published
    comparison = publisher.compare(plan)
    assert comparison.outcome is None or isinstance(comparison.outcome, TooEarly | Refusal), comparison
    assert [(line.account, line.value) for line in comparison.lines or ()] == [("uid 1", "0"), ("uid 2", "0"), ("uid 0", "65535")]


def test_calls_are_what_the_runtime_reads(endpoint: Endpoint, there: BittensorNode) -> None:
    """They are signed by a key that is nobody's, and taken apart again; nothing is sent."""
    head, key = there.head(), keys.from_seed(b"\7" * 32, "sr25519")
    runtime = there.runtime(head.hash)
    calls = [set_call(runtime, endpoint.netuid, 0, Vector((0, 9), (65535, 1), True), 5)]
    if there.has(read.PALLET, "TimelockedWeightCommits"):
        calls.append(set_call(runtime, endpoint.netuid, 1, Vector((0, 9), (65535, 1), True), 5))
        calls.append(commit_call(runtime, endpoint.netuid, 0, b"\1" * 300, 10**8, 4))
    names = []
    for call in calls:
        extrinsic = signed(runtime, call, key, nonce=3, genesis=there.genesis(), birth=there.finalized())
        decoded = runtime.decode_extrinsic(extrinsic.raw)
        assert (decoded["nonce"], decoded["tip"], decoded["extrinsic_hash"]) == (3, 0, extrinsic.hash)
        assert nonces_of(runtime, decoded["address"], [extrinsic.raw, b"\0"]) == {3}
        names.append(decoded["call"]["call_function"])
    assert names == ["set_weights", "set_mechanism_weights", "commit_timelocked_mechanism_weights"][: len(calls)]


def test_weights_are_set(burning: tuple[BittensorPublisher, PublishPlan], endpoint: Endpoint, there: BittensorNode) -> None:
    if endpoint.key is None:
        pytest.skip("ASSAY_SUBTENSOR_KEY names no hotkey's file")
    publisher, plan = burning
    outcome = publisher.send(plan, print)
    assert isinstance(outcome, Confirmed | Sent | TooEarly), outcome
    if isinstance(outcome, Confirmed):
        assert publisher.compare(plan).held == {"uid 0": "65535"}
        subnet = read.read_subnet(there, endpoint.netuid, 0, there.head())
        assert isinstance(subnet, SubnetState)
        pulse = publisher.pulse()
        assert isinstance(pulse, Pulse)
        assert pulse.last == outcome.block
    assert not isinstance(publisher.confirm(plan), Planned)
