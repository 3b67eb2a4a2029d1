"""Weights to a subnet with a second node that has to say the same, and with a node that has forgotten, or is on a branch."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weights_kit as kit
from assay.errors import BadInput, Unreachable
from assay.publish.bittensor import extrinsics as chainside
from assay.publish.bittensor.node import BittensorNode
from assay.publish.bittensor.weights import PERIOD
from assay.publish.outcome import Confirmed, Refusal, Sent, Unknown
from subtensor import Simulator
from weights_kit import NETUID, WEIGHTS, PassingBlocks


@pytest.fixture
def chain(shared: Path) -> Iterator[Simulator]:
    with kit.subnet() as simulator:
        yield simulator


@pytest.fixture
def place(tmp_path: Path, chain: Simulator) -> Path:
    return kit.publish_toml(kit.competition(tmp_path / "c"), chain)


# A second node


def test_a_second_node_has_to_say_the_same(place: Path, chain: Simulator) -> None:
    other = chain.another()
    kit.publish_toml(place, chain, confirm_url=other.url, wait_seconds=6)
    other.faults.add("stale", times=None, blocks=12)
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Unknown)
    assert "does not have it" in outcome.what
    assert kit.states(place) == ["planned", "sent", "unknown"]
    other.faults.clear()
    kit.once(place, chain, kit.sent(place, PassingBlocks(chain)))


def test_the_second_nodes_address_may_be_in_the_environment(
    place: Path, chain: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.publish_toml(place, chain, confirm_url_env="SECOND")
    with pytest.raises(BadInput, match="the variable SECOND is empty"):
        kit.sent(place, PassingBlocks(chain))
    monkeypatch.setenv("SECOND", "nowhere")
    with pytest.raises(BadInput, match="is not the address of a node"):
        kit.sent(place, PassingBlocks(chain))
    monkeypatch.setenv("SECOND", chain.another().url)
    kit.once(place, chain, kit.sent(place, PassingBlocks(chain)))
    kit.publish_toml(place, chain, confirm_url_env="SECOND", confirm_url=chain.url)
    with pytest.raises(BadInput, match="has both confirm_url and confirm_url_env"):
        kit.opened(place)


def test_without_the_second_node_nothing_is_confirmed(place: Path, chain: Simulator) -> None:
    other = chain.another()
    kit.publish_toml(place, chain, confirm_url=other.url, wait_seconds=6, rpc_seconds=1)
    time = PassingBlocks(chain, lambda: None, lambda: other.faults.add("half-open", times=None))
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Unknown)
    other.faults.clear()
    kit.once(place, chain, kit.sent(place, PassingBlocks(chain)))


def test_a_second_node_of_another_chain(place: Path, chain: Simulator) -> None:
    with kit.subnet(name="another") as other:
        kit.publish_toml(place, chain, confirm_url=other.url)
        outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Refusal)
    assert outcome.code == "wrong-chain"


def test_a_commitment_is_opened_when_both_nodes_say_so(tmp_path: Path, shared: Path) -> None:
    with kit.subnet(commit=True) as chain:
        other = chain.another()
        place = kit.publish_toml(kit.competition(tmp_path / "c"), chain, confirm_url=other.url)
        chain.opens("//Val", WEIGHTS)
        time = PassingBlocks(chain)
        assert isinstance(kit.sent(place, time), Sent)
        chain.step(50)
        other.faults.add("stale", times=None, blocks=49)
        outcome = kit.sent(place, time)
        assert isinstance(outcome, Unknown)
        assert "does not have these weights" in outcome.what
        other.faults.clear()
        assert isinstance(kit.sent(place, time), Confirmed)


class Branch:
    """Of several nodes behind the address one is on a branch of its own: asked by number, it names blocks that have nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, chain: Simulator) -> None:
        block_hash, extrinsics = BittensorNode.block_hash, BittensorNode.extrinsics

        def named(node: BittensorNode, number: int) -> str | None:
            return f"0xdead{number:060x}" if number and node.wire.host in chain.url else block_hash(node, number)

        def held(node: BittensorNode, block: str) -> list[bytes]:
            return [] if block.startswith("0xdead") else extrinsics(node, block)

        monkeypatch.setattr(BittensorNode, "block_hash", named)
        monkeypatch.setattr(BittensorNode, "extrinsics", held)


@pytest.mark.parametrize("second", [True, False])
def test_a_block_is_not_taken_for_one_of_a_branch(
    place: Path, chain: Simulator, monkeypatch: pytest.MonkeyPatch, second: bool
) -> None:
    chain.set("WeightsSetRateLimit", NETUID, value=0)
    if second:
        kit.publish_toml(place, chain, confirm_url=chain.another().url)
    kit.once(place, chain, kit.sent(place, PassingBlocks(chain, lambda: Branch(monkeypatch, chain))))
    assert len(kit.tried(place)) == 1


def test_a_block_has_the_number_that_it_should(place: Path, chain: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.publish_toml(place, chain, wait_seconds=0)
    kit.sent(place, PassingBlocks(chain))
    chain.step(10)
    header = BittensorNode.header

    def other(node: BittensorNode, block: str) -> Any:
        answer = header(node, block)
        return answer if answer["number"] > chain.chain.finalized - 2 else {**answer, "number": answer["number"] - 1}

    with monkeypatch.context() as patched:
        patched.setattr(BittensorNode, "header", other)
        outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Unknown)
    assert re.search(r"says that block 0x[0-9a-f]{64} has number \d+, not \d+", outcome.what)
    kit.once(place, chain, kit.sent(place, PassingBlocks(chain)))


def test_a_block_of_long_ago_is_looked_up(place: Path, chain: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.publish_toml(place, chain, wait_seconds=0)
    kit.sent(place, PassingBlocks(chain))
    chain.step(PERIOD + 30)
    monkeypatch.setattr(chainside, "STEPS", 20)
    kit.once(place, chain, kit.sent(place, PassingBlocks(chain)))


def test_that_no_block_has_it_the_second_node_has_to_say_too(place: Path, chain: Simulator) -> None:
    """Of an extrinsic that the first node has never heard of, and whose time is over to it."""
    other = chain.another()
    kit.publish_toml(place, chain, confirm_url=other.url, wait_seconds=4)
    chain.fault("forget", times=None)
    time = PassingBlocks(chain)
    kit.sent(place, time)
    chain.step(PERIOD)
    other.faults.add("stale", times=None, blocks=PERIOD)
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Unknown)
    assert "says that no block has it" in outcome.what
    assert [attempt.state for attempt in kit.tried(place)] == ["planned"]
    other.faults.clear()
    chain.clear()
    kit.once(place, chain, kit.sent(place, time))
    assert [attempt.state for attempt in kit.tried(place)] == ["expired", "confirmed"]


# A node that has forgotten


def forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: BittensorNode, block: str) -> list[dict[str, Any]]:
        raise Unreachable(f"{self.host} refuses state_queryStorageAt: State already discarded")

    monkeypatch.setattr(BittensorNode, "events", gone)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fine", [True, False])
def test_what_became_of_it_long_ago(place: Path, chain: Simulator, monkeypatch: pytest.MonkeyPatch, fine: bool) -> None:
    """The block's events are gone: then the block in which the hotkey last set weights says it."""
    kit.publish_toml(place, chain, wait_seconds=0)
    kit.sent(place, PassingBlocks(chain))
    if not fine:
        chain.guards(False)
        chain.set("WeightsVersionKey", NETUID, value=9)
    chain.step(300)
    forgets(monkeypatch)
    outcome = kit.sent(place, PassingBlocks(chain))
    if fine:
        kit.once(place, chain, outcome)
        return
    assert isinstance(outcome, Refusal)
    assert (outcome.code, kit.tried(place)[-1].state) == ("failed", "failed")


def test_what_became_of_it_cannot_be_said_any_more(place: Path, chain: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    chain.set("WeightsSetRateLimit", NETUID, value=0)
    kit.publish_toml(place, chain, wait_seconds=0)
    kit.sent(place, PassingBlocks(chain))
    chain.step(3)
    kit.elsewhere(chain, 1)
    chain.step(10)
    forgets(monkeypatch)
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Unknown)
    assert "State already discarded" in outcome.what
