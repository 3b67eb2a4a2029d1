"""What goes wrong with the simulated subtensor node when it is told to: each fault does what it says, as often as asked."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from subtensor import NODE, WIRE, RpcFault, Simulator
from subtensor_kit import CallSigner, RpcLine, line, metadata, outcome

__all__ = ["metadata"]
pytestmark = pytest.mark.usefixtures("metadata")

SUBMIT, WATCH = "author_submitExtrinsic", "author_submitAndWatchExtrinsic"


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    settings = {"CommitRevealWeightsEnabled": False, "WeightsSetRateLimit": 0}
    with Simulator.with_subnet(1, "//Alice", "//Bob", settings=settings, finality=4) as chain:
        yield chain


@pytest.fixture
def asked(simulator: Simulator) -> Iterator[RpcLine]:
    with line(simulator.url) as wire:
        yield wire


@pytest.fixture
def signed(simulator: Simulator) -> str:
    return CallSigner(simulator, "//Alice").weights([0], [1])


def waiting(simulator: Simulator) -> int:
    """How many wait in the pool."""
    return len(simulator.chain.pool.waiting)


@pytest.mark.parametrize(("kind", "left"), [("drop-before", 0), ("drop-after", 1)])
def test_a_connection_is_dropped_before_or_after_it_is_done(simulator: Simulator, signed: str, kind: str, left: int) -> None:
    simulator.fault(kind, SUBMIT)
    with line(simulator.url) as asked:
        assert asked.ask("system_chain") == "simulated"
        asked.send(SUBMIT, signed)
        with pytest.raises(ConnectionClosed):
            asked.receive()
    assert waiting(simulator) == left
    with line(simulator.url) as again:
        assert again.ask("system_chain") == "simulated"


@pytest.mark.parametrize(("kind", "left"), [("silent", 0), ("silent-after", 1)])
def test_a_question_is_never_answered(simulator: Simulator, asked: RpcLine, signed: str, kind: str, left: int) -> None:
    simulator.fault(kind, SUBMIT)
    asked.send(SUBMIT, signed)
    assert asked.silent()
    assert waiting(simulator) == left
    assert asked.ask("system_chain") == "simulated"


def test_an_answer_comes_late_twice_or_as_something_else(simulator: Simulator, asked: RpcLine) -> None:
    simulator.fault("slow", "system_chain", seconds=0.01)
    assert asked.ask("system_chain") == "simulated"
    simulator.fault("duplicate")
    first = asked.ask("system_chain")
    assert (first, asked.receive()["result"]) == ("simulated", "simulated")
    simulator.fault("wrong-id")
    asked.send("system_chain")
    assert asked.receive() == {"jsonrpc": "2.0", "id": "nobody", "result": None}
    simulator.fault("stray", result="lie")
    asked.send("system_chain")
    assert [asked.receive()["result"], asked.receive()["result"]] == ["lie", "simulated"]
    simulator.fault("garbage")
    asked.send("system_chain")
    with pytest.raises(ValueError, match="Unterminated string"):
        asked.receive()
    simulator.fault("huge", bytes=2**21)
    assert len(asked.ask("system_chain")) == 2**21 + 2
    simulator.fault("error", code=-32000, message="busy", data="later")
    with pytest.raises(RpcFault, match="-32000 busy: later"):
        asked.ask("system_chain")


def test_a_fault_happens_as_often_as_asked_or_until_it_is_cleared(simulator: Simulator, asked: RpcLine) -> None:
    def fails() -> bool:
        try:
            asked.ask("system_chain")
        except RpcFault:
            return True
        return False

    simulator.fault("error", "system_chain", times=2, code=1, message="no")
    assert asked.ask("system_name") == "subtensor simulator"
    assert [fails(), fails(), fails()] == [True, True, False]
    simulator.fault("error", times=None, code=1, message="no")
    assert [fails(), fails(), fails()] == [True, True, True]
    simulator.clear()
    assert not fails()


def test_a_half_open_node_takes_connections_and_answers_nothing(simulator: Simulator, asked: RpcLine) -> None:
    simulator.fault("half-open", times=None)
    asked.send("system_chain")
    assert asked.silent()
    with line(simulator.url) as other:
        other.send("system_chain")
        assert other.silent()
    simulator.clear()
    assert asked.ask("system_chain") == "simulated"


def test_a_mute_node_does_not_even_greet(simulator: Simulator) -> None:
    simulator.fault("mute", times=None)
    with pytest.raises(TimeoutError):
        connect(simulator.url, open_timeout=0.2)
    simulator.clear()
    with line(simulator.url) as asked:
        assert asked.ask("system_chain") == "simulated"


def test_a_node_that_is_gone_refuses_connections_and_may_come_back(simulator: Simulator) -> None:
    other = simulator.another()
    port = int(other.url.rpartition(":")[2])
    with line(other.url) as asked:
        assert asked.ask("system_chain") == "simulated"
        other.close()
        with pytest.raises(ConnectionClosed):
            asked.receive()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))
    with line(simulator.another(port=port).url) as asked:
        assert asked.ask("system_chain") == "simulated"


def test_every_connection_is_dropped_at_once(simulator: Simulator, asked: RpcLine, signed: str) -> None:
    asked.ask(WATCH, signed)
    simulator.step()
    assert [asked.status(), list(asked.status())] == ["ready", ["inBlock"]]
    simulator.drop()
    with pytest.raises(ConnectionClosed):
        asked.receive()
    with line(simulator.url) as again:
        assert again.ask("system_chain") == "simulated"


def test_a_node_says_a_wrong_nonce(simulator: Simulator, asked: RpcLine) -> None:
    alice = CallSigner(simulator, "//Alice").key.ss58_address
    simulator.fault("nonce", offset=3)
    assert asked.ask("system_accountNextIndex", alice) == 3
    assert asked.ask("system_accountNextIndex", alice) == 0


def test_a_node_lies_about_inclusion(simulator: Simulator, asked: RpcLine, signed: str) -> None:
    simulator.fault("lie", WATCH)
    asked.ask(WATCH, signed)
    head = asked.ask("chain_getBlockHash")
    assert [asked.status(), asked.status(), asked.status()] == ["ready", {"inBlock": head}, {"finalized": head}]
    simulator.step(6)
    assert (simulator.included(), simulator.weights(1, 1)) == ([], {})


@pytest.mark.parametrize("method", [SUBMIT, WATCH])
def test_a_pool_forgets(simulator: Simulator, asked: RpcLine, signed: str, method: str) -> None:
    simulator.fault("forget", method)
    assert asked.ask(method, signed)
    simulator.step(6)
    assert (simulator.included(), waiting(simulator)) == ([], 0)
    asked.ask(SUBMIT, signed)  # it is not banned: it was never in a block
    simulator.step()
    assert outcome(simulator) == "ExtrinsicSuccess"


def test_one_of_two_nodes_lags(simulator: Simulator, asked: RpcLine, signed: str) -> None:
    other = simulator.another()
    other.faults.add("stale", times=None, blocks=3)
    asked.ask(SUBMIT, signed)
    simulator.step()
    key = "0x" + simulator.state.key("Weights", 1, 1).hex()
    with line(other.url) as late:
        assert int(late.ask("chain_getHeader")["number"], 16) == simulator.chain.head.number - 3
        assert (late.ask("state_getStorage", key), asked.ask("state_getStorage", key)) == (None, "0x040000ffff")
        assert late.ask("chain_getHeader", asked.ask("chain_getBlockHash")) is None
        assert late.ask("chain_getBlockHash", simulator.chain.head.number) is None
        simulator.step(3)
        assert late.ask("state_getStorage", key) == "0x040000ffff"


def test_finality_stalls_and_goes_on(simulator: Simulator, asked: RpcLine, signed: str) -> None:
    simulator.finality(True)
    asked.ask(WATCH, signed)
    before = asked.ask("chain_getFinalizedHead")
    simulator.step(20)
    assert [asked.status(), list(asked.status())] == ["ready", ["inBlock"]]
    assert asked.ask("chain_getFinalizedHead") == before
    assert asked.silent()
    simulator.finality(False)
    assert list(asked.status()) == ["finalized"]
    assert asked.ask("chain_getFinalizedHead") == "0x" + simulator.chain.blocks[21].hash.hex()


@pytest.mark.parametrize("keep", [True, False])
def test_a_reorganisation_takes_blocks_back(simulator: Simulator, asked: RpcLine, keep: bool) -> None:
    asked.ask(WATCH, CallSigner(simulator, "//Alice").weights([0], [1]))
    simulator.step(2)
    ready, included = asked.status(), asked.status()
    assert (ready, asked.ask("chain_getHeader", included["inBlock"])["number"]) == ("ready", "0x6")
    simulator.reorg(2, keep=keep)
    assert (simulator.chain.head.number, simulator.weights(1, 1), waiting(simulator)) == (7, {}, int(keep))
    assert asked.ask("chain_getHeader", included["inBlock"]) is None
    assert CallSigner(simulator, "//Alice").nonce == 0
    assert list(asked.status()) == ["retracted"]
    assert asked.status() == ("ready" if keep else "dropped")
    simulator.step()
    assert simulator.weights(1, 1) == ({0: 65535} if keep else {})
    if keep:
        assert asked.status() == {"inBlock": "0x" + simulator.chain.head.hash.hex()}
    with pytest.raises(ValueError, match="not final"):
        simulator.reorg(8)


def test_what_was_signed_upon_a_block_that_is_gone_is_signed_for_nothing(simulator: Simulator, asked: RpcLine) -> None:
    simulator.step(2)
    upon_head = CallSigner(simulator, "//Alice").weights([0], [1], period=4, at=simulator.chain.head.number - 1)
    simulator.reorg(3)
    with pytest.raises(RpcFault, match="bad signature"):
        asked.ask(SUBMIT, upon_head)


def test_news_of_heads_come_after_the_name_of_their_subscription(simulator: Simulator, asked: RpcLine) -> None:
    asked.send("chain_subscribeNewHeads")
    name = asked.receive()["result"]
    first = asked.receive()["params"]
    assert (first["subscription"], first["result"]["number"]) == (name, "0x5")
    simulator.step(2)
    assert [asked.status()["number"], asked.status()["number"]] == ["0x6", "0x7"]
    assert asked.ask("chain_unsubscribeNewHeads", name) is True
    simulator.step()
    assert asked.silent()
    asked.ask("chain_subscribeFinalizedHeads")
    assert asked.status()["number"] == "0x4"


def test_blocks_come_by_themselves(metadata: None) -> None:
    with Simulator(block_time=0.01) as chain, line(chain.url) as asked:
        asked.ask("chain_subscribeNewHeads")
        numbers = [int(asked.status()["number"], 16) for _ in range(3)]
        assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]


def test_every_fault_is_known_by_its_name(simulator: Simulator) -> None:
    tested: dict[str, Any] = WIRE | NODE
    for kind in tested:
        simulator.fault(kind, "nothing_like_it")
    with pytest.raises(ValueError, match="there is no fault 'flood'"):
        simulator.fault("flood")
