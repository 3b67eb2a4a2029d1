"""A subtensor node read: what it says is decoded, checked and put together as a subnet; what cannot be right is no answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bittensor_core")
pytest.importorskip("websockets")

import bittensor_core

from assay.errors import BadInput, Unreachable
from assay.publish.bittensor import node as nodes
from assay.publish.bittensor import settings
from assay.publish.bittensor import subnet as read
from assay.publish.bittensor.node import BittensorNode, BlockId
from assay.publish.bittensor.subnet import SubnetState
from assay.publish.outcome import Refusal
from subtensor import Simulator

ALICE, BOB = (bittensor_core.Keypair.from_uri(uri).ss58_address for uri in ("//Alice", "//Bob"))
OWNER = bittensor_core.Keypair.from_uri("//Owner").ss58_address
TAO = 10**9
Params = Sequence[Any]


@pytest.fixture
def chain(shared: Path) -> Iterator[Simulator]:
    """A chain with subnet 5: the owner's hotkey, Alice and Bob."""
    with Simulator.with_subnet(5, "//Alice", "//Bob") as simulator:
        yield simulator


@pytest.fixture
def there(chain: Simulator) -> Iterator[BittensorNode]:
    node = BittensorNode(chain.url)
    yield node
    node.close()


class Twisted(BittensorNode):
    """A node whose answers are changed on the way."""

    def __init__(self, url: str, twist: Callable[[str, Params, Any], Any]) -> None:
        super().__init__(url)
        self.twist = twist

    def ask(self, method: str, *params: Any) -> Any:
        return self.twist(method, params, super().ask(method, *params))


def subnet(there: BittensorNode, at: BlockId | None = None, mechanism: int = 0) -> SubnetState:
    state = read.read_subnet(there, 5, mechanism, at or there.finalized())
    assert isinstance(state, SubnetState)
    return state


def test_blocks_have_a_place_and_a_parent(chain: Simulator, there: BittensorNode) -> None:
    head, final = there.head(), there.finalized()
    assert (head.number, final.number) == (5, 3)
    assert there.block_hash(5) == head.hash
    assert there.block_hash(6) is None
    assert there.block_hash(0) == there.genesis() == f"0x{chain.chain.genesis.hex()}"
    assert there.header(head.hash)["parentHash"] == there.block_hash(4)
    assert len(there.extrinsics(head.hash)) == 1
    assert there.events(head.hash)[0]["event_id"] == "ExtrinsicSuccess"
    with pytest.raises(Unreachable, match="has no block"):
        there.header("0x" + "ab" * 32)
    with pytest.raises(Unreachable, match="has no block"):
        there.extrinsics("0x" + "ab" * 32)


def test_what_is_stored_is_read_and_what_is_not_is_the_default(chain: Simulator, there: BittensorNode) -> None:
    assert there.query("SubtensorModule", "Tempo", [5]) == 360
    assert there.query("SubtensorModule", "Tempo", [77]) == 30  # the runtime's own default
    assert there.query("SubtensorModule", "Uids", [5, ALICE]) == 1
    assert there.query("SubtensorModule", "Uids", [77, ALICE]) is None
    many = there.query_many([("SubtensorModule", "Keys", [5, 1]), ("SubtensorModule", "Tempo", [77]), ("System", "Number", [])])
    assert many == [ALICE, 30, 5]
    assert there.query_many([]) == []
    assert there.map("SubtensorModule", "Keys", [5]) == [(0, OWNER), (1, ALICE), (2, BOB)]
    assert there.map("SubtensorModule", "Keys", [77]) == []
    assert there.has("SubtensorModule", "Tempo")
    assert not there.has("SubtensorModule", "Nothing")
    assert not there.has("Nothing", "Tempo")
    with pytest.raises(KeyError):
        there.query("SubtensorModule", "Nothing")
    assert there.nonce(ALICE) == there.nonce(bytes(bittensor_core.decode_ss58(ALICE))) == 0


def test_each_block_has_its_own_state(chain: Simulator, there: BittensorNode) -> None:
    before = there.head()
    chain.step()
    chain.set("Tempo", 5, value=77)
    assert there.query("SubtensorModule", "Tempo", [5]) == 77
    assert there.query("SubtensorModule", "Tempo", [5], before.hash) == 360


def test_a_long_map_comes_in_pages_and_has_a_bound(chain: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        chain.set("Tempo", 100 + number, value=number)
    chain.step()
    monkeypatch.setattr(nodes, "KEYS", 3)
    here = BittensorNode(chain.url)
    tempos = dict(here.map("SubtensorModule", "Tempo"))
    assert {netuid - 100: tempo for netuid, tempo in tempos.items() if netuid >= 100} == {number: number for number in range(7)}
    assert here.query_many([("SubtensorModule", "Tempo", [100 + number]) for number in range(7)]) == list(range(7))
    monkeypatch.setattr(nodes, "ROWS", 5)
    with pytest.raises(Unreachable, match="more than 5 rows"):
        here.map("SubtensorModule", "Tempo")
    here.close()


def test_functions_of_the_runtime_are_asked_by_its_own_description(chain: Simulator, there: BittensorNode) -> None:
    state = there.call("SubnetInfoRuntimeApi", "get_subnet_state", [5])
    assert state["hotkeys"] == [OWNER, ALICE, BOB]
    assert there.call("SubnetInfoRuntimeApi", "get_subnet_state", [6]) is None
    assert there.call("SubnetInfoRuntimeApi", "get_nothing", [6]) is None
    assert there.call("AccountNonceApi", "account_nonce", [ALICE]) == 0
    with pytest.raises(Unreachable, match=r"refuses state_call: .*not found"):
        there.call("AuraApi", "slot_duration")


@pytest.mark.full
@pytest.mark.parametrize(("extended", "spec"), [(True, 1218), (False, 218)])
@pytest.mark.parametrize("versions", [(14,), (15,), (14, 15)], ids=str)
def test_metadata_of_either_version_is_enough(shared: Path, versions: tuple[int, ...], extended: bool, spec: int) -> None:
    files = [shared / f"data/subtensor/metadata-v{version}-spec218.scale" for version in versions]
    with (
        Simulator.with_subnet(5, "//Alice", extended=extended) as whole,
        Simulator(paths=tuple(files), extended=extended) as simulator,
    ):
        assert whole.chain.state.runtime.spec_version == spec
        here = BittensorNode(simulator.url)
        if versions == (15,):
            with pytest.raises(Unreachable):  # the old method, which asks for version 14
                here._read("state_getMetadata", here.head().hash)
        assert here.runtime().spec_version == spec
        assert here.runtime().is_v15 == (15 in versions)
        assert here.query("SubtensorModule", "Tempo", [77]) == 30
        here.close()


def test_another_chain_is_no_subtensor(chain: Simulator) -> None:
    def other(method: str, params: Params, answer: Any) -> Any:
        return answer | {"specName": "polkadot"} if method == "state_getRuntimeVersion" else answer

    with pytest.raises(Unreachable, match="is not a node of a subtensor chain") as caught:
        Twisted(chain.url, other).runtime()
    assert caught.value.final


def test_the_state_of_a_block_that_brings_a_new_runtime_is_of_the_old_one(chain: Simulator) -> None:
    def upgraded(method: str, params: Params, answer: Any) -> Any:
        if method == "state_getRuntimeVersion" and params == (head.hash,):
            return answer | {"specVersion": 9999}
        return "0x0100" if method == "state_call" and params[-1] == head.hash else answer  # metadata nobody understands

    head = BittensorNode(chain.url).head()
    here = Twisted(chain.url, upgraded)
    assert here.query("SubtensorModule", "Tempo", [5], head.hash) == 360
    with pytest.raises(Unreachable, match="metadata"):  # what signs for the next block goes by the new one
        here.runtime(head.hash)
    here.close()


def test_a_subnet_is_read_whole(chain: Simulator, there: BittensorNode) -> None:
    chain.register(5, "//Charlie", tao=100 * TAO, alpha=5 * TAO)
    chain.set("TaoWeight", value=2**63)  # a half
    chain.set("WeightsVersionKey", 5, value=2**64 - 1)
    chain.set("LastUpdate", 5, value=[0, 4])  # shorter than the subnet
    chain.step(3)
    state = subnet(there)
    assert [(neuron.uid, neuron.stake, neuron.permit, neuron.last_update) for neuron in state.neurons] == [
        (0, 1000 * TAO, True, 0),
        (1, 1000 * TAO, True, 4),
        (2, 1000 * TAO, True, 0),
        (3, 55 * TAO, False, 0),  # alpha and half of the TAO: no sum of stake
    ]
    assert state.by_hotkey[ALICE].registered_at == 0
    assert state.by_uid[3].registered_at == 5
    assert state.owner_hotkeys == {OWNER}
    assert state.owner_hotkey == OWNER
    assert (state.commit_reveal, state.commit_version, state.reveal_epochs) == (True, 4, 1)
    assert (state.version_key, state.rate_limit, state.min_allowed, state.max_limit) == (2**64 - 1, 100, 1, 65_535)
    assert (state.mechanisms, state.tempo, state.epoch_index, state.pending_epoch) == (1, 360, 0, 0)
    assert state.block == there.finalized()


def test_below_the_threshold_stake_is_nothing_but_for_the_owners_hotkey(chain: Simulator, there: BittensorNode) -> None:
    chain.set("StakeThreshold", value=1001 * TAO)
    chain.set("ValidatorPermit", 5, value=[False, True, False])
    chain.step(3)
    state = subnet(there)
    assert [(neuron.stake, neuron.permit) for neuron in state.neurons] == [(1000 * TAO, True), (0, True), (0, False)]
    assert state.min_stake == 1001 * TAO


def test_every_hotkey_of_the_owners_coldkey_is_the_owners(chain: Simulator, there: BittensorNode) -> None:
    chain.register(5, "//Owner2", "//Owner//cold")
    chain.set("SubnetOwnerHotkey", 5, value=bytes(bittensor_core.Keypair.from_uri("//Elsewhere").public_key))
    chain.step(3)
    state = subnet(there)
    assert state.owner_hotkeys == {OWNER, bittensor_core.Keypair.from_uri("//Owner2").ss58_address}
    assert state.owner_hotkey is None


def test_mechanisms_are_apart(chain: Simulator, there: BittensorNode) -> None:
    chain.mechanisms(5, 2)
    chain.set("Weights", 5, 1, value=[(2, 65535)])
    chain.set("Weights", 5 + 4096, 1, value=[(0, 7), (2, 65535)])
    chain.set("LastUpdate", 5 + 4096, value=[0, 9, 0])
    chain.set("TimelockedWeightCommits", 5 + 4096, 0, value=[(ALICE, 3, [1, 2], 9), (ALICE, 4, [1, 2], 9), (BOB, 4, [1], 9)])
    chain.step(3)
    first, second = subnet(there), subnet(there, mechanism=1)
    assert first.mechanisms == 2
    assert (first.neurons[1].last_update, second.neurons[1].last_update) == (0, 9)
    assert (dict(first.unrevealed), dict(second.unrevealed)) == ({}, {ALICE: 2, BOB: 1})
    assert read.weights_of(there, first, 1, first.block) == {2: 65535}
    assert read.weights_of(there, second, 1, second.block) == {0: 7, 2: 65535}
    assert read.weights_of(there, second, 0, second.block) == {}


def test_what_is_not_there_is_refused_by_the_chains_name(there: BittensorNode) -> None:
    at = there.finalized()
    for netuid, mechanism, code in ((6, 0, "SubnetNotExists"), (5, 1, "MechanismDoesNotExist")):
        refusal = read.read_subnet(there, netuid, mechanism, at)
        assert isinstance(refusal, Refusal)
        assert refusal.code == code


@pytest.mark.full
def test_an_old_runtime_has_no_mechanisms_and_no_schedule(shared: Path) -> None:
    with Simulator.with_subnet(5, "//Alice", "//Bob", extended=False) as old:
        old.set("StakeWeight", 5, value=[1, 40_000, 25_534])
        old.set("MaxWeightsLimit", 5, value=655)
        old.step(3)
        here = BittensorNode(old.url)
        state = subnet(here)
        here.close()
    assert [neuron.stake for neuron in state.neurons] == [1, 40_000, 25_534]
    assert (state.mechanisms, state.commit_version, state.max_limit, state.min_stake) == (1, 0, 655, 0)
    assert (state.epoch_index, state.last_epoch, state.pending_epoch, dict(state.unrevealed)) == (None, None, None, {})


def test_a_subnet_of_256_is_one_block(shared: Path) -> None:
    with Simulator.with_subnet(5) as full:
        for number in range(255):
            full.register(5, f"//n{number}", alpha=number * TAO, permit=number >= 191)
        full.step(3)
        here = BittensorNode(full.url)
        asked: list[str] = []
        ask = here.wire.ask
        here.wire.ask = lambda method, *params, **more: asked.append(method) or ask(method, *params, **more)  # type: ignore[method-assign, func-returns-value]
        state = subnet(here)
        here.close()
    assert len(state.neurons) == 256
    assert sum(neuron.permit for neuron in state.neurons) == 65  # the owner's too
    assert len(asked) < 20


FAULTS = ["drop-before", "drop-after", "garbage", "duplicate", "stray"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", ["state_queryStorageAt", "state_call", "chain_getFinalizedHead"])
def test_one_fault_on_the_wire_is_got_over(chain: Simulator, there: BittensorNode, fault: str, method: str) -> None:
    right = subnet(there)
    chain.fault(fault, method)
    assert subnet(BittensorNode(chain.url)) == right


@pytest.mark.parametrize("fault", ["silent", "wrong-id", "half-open", "drop-before", "garbage"])
def test_a_fault_that_stays_is_no_answer(chain: Simulator, fault: str) -> None:
    chain.fault(fault, times=None)
    here = BittensorNode(chain.url, seconds=0.3)
    with pytest.raises(Unreachable, match="does not answer chain_getFinalizedHead"):
        here.finalized()
    here.close()
    chain.clear()
    again = BittensorNode(chain.url)
    assert again.finalized().number == 3
    again.close()


def test_an_answer_that_is_too_large_is_none(chain: Simulator, there: BittensorNode) -> None:
    chain.fault("huge", "chain_getFinalizedHead", times=None, bytes=40_000_000)
    with pytest.raises(Unreachable, match="does not answer"):
        there.finalized()


def test_a_node_that_lags_is_read_at_its_own_block(chain: Simulator, there: BittensorNode) -> None:
    chain.fault("stale", times=None, blocks=4)
    assert there.head().number == there.finalized().number == 1
    assert subnet(there).block.number == 1


def test_a_transaction_is_handed_over_once(chain: Simulator, there: BittensorNode) -> None:
    there.head()
    chain.fault("drop-before", "author_submitExtrinsic")
    with pytest.raises(Unreachable, match="does not answer author_submitExtrinsic"):
        there.submit(b"\x00")
    assert there.pending() == []
    from assay.publish.rpc import RpcError

    with pytest.raises(RpcError):  # the fault was for one: this one arrives
        there.submit(b"\x00")


def _storage(change: Callable[[list[Any]], None]) -> Callable[[str, Params, Any], Any]:
    def twist(method: str, params: Params, answer: Any) -> Any:
        if method == "state_queryStorageAt":
            change(answer)
        return answer

    return twist


def _answers(method: str, value: Any) -> Callable[[str, Params, Any], Any]:
    return lambda asked, params, answer: value if asked == method else answer


HOSTILE: dict[str, Callable[[str, Params, Any], Any]] = {
    "no list": _answers("state_queryStorageAt", "0x00"),
    "another block": _storage(lambda answer: answer[0].update(block="0x" + "00" * 32)),
    "a key left out": _storage(lambda answer: answer[0]["changes"].pop()),
    "a key too many": _storage(lambda answer: answer[0]["changes"].append(["0x00", "0x00"])),
    "a key twice": _storage(lambda answer: answer[0]["changes"].append(answer[0]["changes"][0])),
    "no pairs": _storage(lambda answer: answer[0]["changes"].append("0x00")),
    "not hex": _storage(lambda answer: answer[0]["changes"][0].__setitem__(1, "0xzz")),
    "bytes left over": _storage(lambda answer: answer[0]["changes"][0].__setitem__(1, "0x" + "01" * 40)),
    "bytes missing": _storage(lambda answer: answer[0]["changes"][-1].__setitem__(1, "0x")),
    "no hash": _answers("chain_getFinalizedHead", "0x12\n"),
    "no header": _answers("chain_getHeader", [1]),
    "no number": lambda asked, params, answer: answer | {"number": "7"} if asked == "chain_getHeader" else answer,
    "no version": _answers("state_getRuntimeVersion", {"specName": "node-subtensor", "specVersion": "1"}),
    "no metadata": _answers("state_call", "0x0108abcd"),
    "metadata cut off": lambda asked, params, answer: answer[:9000] if "Metadata_metadata_at_version" in params else answer,
    "control characters": _answers("chain_getFinalizedHead", "\x1b[2J"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_is_no_answer(chain: Simulator, name: str) -> None:
    here = Twisted(chain.url, HOSTILE[name])
    with pytest.raises(Unreachable, match=r"sent an impossible answer|has no block") as caught:
        subnet(here)
    assert str(caught.value).isprintable()
    here.close()


class Retold(BittensorNode):
    """A node whose state was changed: item → value, whatever the keys."""

    def __init__(self, url: str, values: dict[str, Any], state: dict[str, Any] | None = None) -> None:
        super().__init__(url)
        self.values, self.state = values, state

    def query_many(self, items: Any, at: str | None = None) -> list[Any]:
        asked = list(items)
        pairs = zip(asked, super().query_many(asked, at), strict=True)
        return [self.values.get(name, value) for (_, name, _), value in pairs]

    def call(self, api: str, method: str, args: Any = (), at: str | None = None) -> Any:
        return super().call(api, method, args, at) | (self.state or {})


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("values", "state", "why"),
    [
        ({"Keys": ALICE}, {}, f"the hotkey {ALICE} has several uids of subnet 5"),
        ({}, {"total_stake": [1, 2]}, "get_subnet_state"),
        ({}, {"total_stake": [1, 2, 2**64 - 1]}, "get_subnet_state"),
        ({}, {"total_stake": [1, 2, "3"]}, "get_subnet_state"),
        ({}, {"hotkeys": [OWNER, BOB, ALICE]}, "get_subnet_state"),
        ({"Tempo": "x"}, {}, "Tempo"),
        ({"Active": 7}, {}, "Active"),
        ({"TimelockedWeightCommits": [7]}, {}, "TimelockedWeightCommits"),
    ],
)
def test_a_subnet_that_cannot_be_is_no_answer(chain: Simulator, values: Any, state: Any, why: str) -> None:
    here = Retold(chain.url, values, state)
    with pytest.raises(Unreachable, match=why):
        subnet(here)
    here.close()


@pytest.mark.parametrize("weights", [7, [(1, 2), (1, 3)], [(1,)], [("a", "b")]])
def test_weights_that_cannot_be_are_no_answer(chain: Simulator, weights: Any) -> None:
    here = Retold(chain.url, {"Weights": weights})
    with pytest.raises(Unreachable, match="Weights"):
        read.weights_of(here, subnet(here), 1, here.head())
    here.close()


def test_keys_of_a_map_that_do_not_rise_are_no_answer(chain: Simulator) -> None:
    for change in (lambda page: page[::-1], lambda page: [*page, page[-1]], lambda page: ["0x00", *page], lambda page: 7):
        here = Twisted(chain.url, lambda asked, params, answer, change=change: change(answer) if "Keys" in asked else answer)  # type: ignore[misc]
        with pytest.raises(Unreachable, match="state_getKeysPaged"):
            here.map("SubtensorModule", "Keys", [5])
        here.close()


def test_a_node_of_another_chain_is_not_listened_to(chain: Simulator, there: BittensorNode) -> None:
    assert settings.checked(there, there.genesis()) is there
    with pytest.raises(BadInput, match=r"is a node of the chain 0x.*, not of finney"):
        settings.checked(there, settings.CHAINS["finney"])


@pytest.mark.parametrize(
    ("url", "is_open"),
    [
        ("ws://127.0.0.1:9944", False),
        ("ws://[::1]:9944", False),
        ("ws://localhost", False),
        ("wss://example.org", False),
        ("ws://example.org", True),
        ("ws://10.0.0.7:9944", True),
    ],
)
def test_what_others_can_read_and_change_is_known(url: str, is_open: bool) -> None:
    assert settings.open_to_anybody(url) == is_open


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from assay.publish import rpc
    from assay.publish.bittensor import runtime

    for name, use in (("bittensor_core", runtime.core), ("websockets.sync.client", rpc.connector)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(BadInput, match=r"Bittensor needs the package .* pip install 'assay\[bittensor\]'"):
            use()


# a real endpoint

URL = os.environ.get("ASSAY_SUBTENSOR_URL", "")


@pytest.mark.skipif(not URL, reason="ASSAY_SUBTENSOR_URL names no endpoint")
def test_a_real_chain_is_read() -> None:
    here = BittensorNode(URL)
    at = here.finalized()
    state = read.read_subnet(here, int(os.environ.get("ASSAY_SUBTENSOR_NETUID", "1")), 0, at)
    assert isinstance(state, SubnetState)
    assert [neuron.uid for neuron in state.neurons] == list(range(len(state.neurons)))
    assert any(neuron.permit and neuron.stake for neuron in state.neurons)
    assert state.neurons[0].registered_at <= at.number
    assert all(0 <= neuron.stake < 2**63 for neuron in state.neurons)
    uid = next(neuron.uid for neuron in state.neurons if neuron.permit)
    assert all(0 <= weight <= 65535 for weight in read.weights_of(here, state, uid, at).values())
    assert here.block_hash(at.number) == at.hash
    here.close()
