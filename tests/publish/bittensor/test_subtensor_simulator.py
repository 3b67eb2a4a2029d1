"""The simulated subtensor node, as the real client library sees it: it connects, reads, signs, submits and sees inclusion."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bittensor_core
import pytest
from async_substrate_interface.errors import SubstrateRequestException
from async_substrate_interface.sync_substrate import SubstrateInterface

from subtensor import RpcFault, Simulator, files
from subtensor_kit import line, metadata

__all__ = ["metadata"]
pytestmark = pytest.mark.usefixtures("metadata")

OPEN = {"CommitRevealWeightsEnabled": False, "WeightsSetRateLimit": 5}
ALICE = bittensor_core.Keypair.create_from_uri("//Alice")


class LibraryKey:
    """A key as the client library wants it: it hands a bytearray over to be signed."""

    def __init__(self, uri: str) -> None:
        self.key = bittensor_core.Keypair.create_from_uri(uri)
        self.public_key, self.ss58_address, self.ss58_format = self.key.public_key, self.key.ss58_address, 42
        self.crypto_type = bittensor_core.CRYPTO_SR25519

    def sign(self, data: bytearray) -> bytes:
        return bytes(self.key.sign(bytes(data)))


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator.with_subnet(1, "//Alice", "//Bob", settings=OPEN, fast=True, finality=0) as chain:
        yield chain


@pytest.fixture
def client(simulator: Simulator) -> Iterator[Any]:
    with SubstrateInterface(simulator.url, ss58_format=42) as substrate:
        yield substrate


def test_the_client_reads_values_and_maps(client: Any, simulator: Simulator) -> None:
    assert client.query("SubtensorModule", "Tempo", [1]).value == 360
    assert client.query("SubtensorModule", "Uids", [1, ALICE.ss58_address]).value == 1
    hotkeys = dict(client.query_map("SubtensorModule", "Keys", [1]))
    assert hotkeys[1] == ALICE.ss58_address
    assert list(hotkeys) == [0, 1, 2]
    assert client.query("SubtensorModule", "CommitRevealWeightsVersion").value == 4
    assert client.get_block_number(client.get_chain_head()) == simulator.chain.head.number


def test_the_client_reads_what_was_at_an_earlier_block(client: Any, simulator: Simulator) -> None:
    before = client.get_chain_head()
    simulator.step()
    simulator.set("Tempo", 1, value=99)
    assert client.query("SubtensorModule", "Tempo", [1], block_hash=before).value == 360
    assert client.query("SubtensorModule", "Tempo", [1]).value == 99


def test_the_client_calls_a_function_of_the_runtime(client: Any, simulator: Simulator) -> None:
    simulator.register(1, "//Carol", alpha=7, tao=2**40)
    state = client.runtime_call("SubnetInfoRuntimeApi", "get_subnet_state", [1])
    weight = int(simulator.get("TaoWeight"))
    assert state["hotkeys"][1] == ALICE.ss58_address
    assert state["validator_permit"] == [True, True, True, False]
    assert (state["alpha_stake"][3], state["tao_stake"][3]) == (7, 2**40)
    assert state["total_stake"][3] == 7 + 2**40 * weight // 2**64
    assert client.runtime_call("SubnetInfoRuntimeApi", "get_subnet_state", [2]) is None


def test_the_client_signs_submits_and_sees_the_weights(client: Any, simulator: Simulator) -> None:
    args = {"netuid": 1, "dests": [0, 2], "weights": [100, 200], "version_key": 0}
    call = client.compose_call("SubtensorModule", "set_weights", args)
    signed = client.create_signed_extrinsic(call, keypair=LibraryKey("//Alice"), era={"period": 64})
    receipt = client.submit_extrinsic(signed, wait_for_finalization=True)
    assert receipt.is_success
    assert ("SubtensorModule", "WeightsSet") in [
        (triggered_event["event"]["module_id"], triggered_event["event"]["event_id"])
        for triggered_event in receipt.triggered_events
    ]
    assert client.query("SubtensorModule", "Weights", [1, 1]).value == [(0, 32768), (2, 65535)]
    assert client.query("SubtensorModule", "LastUpdate", [1]).value[1] == client.get_block_number(receipt.block_hash)
    assert client.get_account_next_index(ALICE.ss58_address) == 1


def test_the_client_sees_what_a_module_refused(client: Any) -> None:
    args = {"netuid": 1, "dests": [0, 0], "weights": [1, 1], "version_key": 0}
    call = client.compose_call("SubtensorModule", "set_weights", args)
    signed = client.create_signed_extrinsic(call, keypair=LibraryKey("//Alice"), era={"period": 64})
    receipt = client.submit_extrinsic(signed, wait_for_inclusion=True)
    assert not receipt.is_success
    assert receipt.error_message["name"] == "DuplicateUids"


@pytest.mark.full
def test_the_client_sees_what_the_pool_refused(client: Any) -> None:
    args = {"netuid": 1, "dests": [0], "weights": [1], "version_key": 0}
    call = client.compose_call("SubtensorModule", "set_weights", args)
    for _ in range(2):
        signed = client.create_signed_extrinsic(call, keypair=LibraryKey("//Bob"), era={"period": 64})
        if _ == 0:
            client.submit_extrinsic(signed, wait_for_inclusion=True)
    with pytest.raises(SubstrateRequestException, match="Custom error: 6"):
        client.submit_extrinsic(signed, wait_for_inclusion=True)


def test_the_plain_runtime_has_neither_mechanisms_nor_timelocks() -> None:
    with Simulator.with_subnet(1, "//Alice", settings=OPEN, extended=False, fast=True) as chain:
        assert not chain.state.has("TimelockedWeightCommits")
        assert chain.state.has("WeightsMinStake")
        with SubstrateInterface(chain.url, ss58_format=42) as client:
            assert client.runtime.runtime_version == 218
            args = {"netuid": 1, "dests": [0], "weights": [9], "version_key": 0}
            call = client.compose_call("SubtensorModule", "set_weights", args)
            signed = client.create_signed_extrinsic(call, keypair=LibraryKey("//Alice"), era={"period": 64})
            assert client.submit_extrinsic(signed, wait_for_inclusion=True).is_success
            state = client.query("SubtensorModule", "Weights", [1, 1]).value
        assert state == [(0, 65535)]


@pytest.mark.full
def test_a_node_may_have_the_older_metadata_only() -> None:
    with Simulator.with_subnet(1, "//Alice", paths=files()[:1]) as chain, line(chain.url) as asked:
        assert asked.ask("state_call", "Metadata_metadata_at_version", "0x0f000000") == "0x00"
        assert bytes.fromhex(asked.ask("state_getMetadata")[2:]) == chain.state.metadata.versions[14]


@pytest.mark.full
def test_metadata_that_has_it_all_is_left_as_it_is(tmp_path: Path) -> None:
    with Simulator() as chain:
        raw = chain.state.metadata.versions[15]
        file = tmp_path / "newer.scale"
        file.write_bytes(b"\1" + chain.state.encode("Compact<u32>", len(raw)) + raw)
    with Simulator.with_subnet(1, "//Alice", paths=(file,)) as again, line(again.url) as asked:
        assert again.state.metadata.versions == {15: raw}
        assert asked.ask("state_getRuntimeVersion")["specVersion"] == 1218
        with pytest.raises(RpcFault, match="no metadata of version 14"):
            asked.ask("state_getMetadata")


@pytest.mark.full
def test_a_whole_subnet_fits() -> None:
    with Simulator(fast=True) as chain:
        chain.subnet(1, Tempo=20)
        for uid in range(256):
            assert chain.register(1, f"//{uid}", alpha=uid) == uid
        chain.step(100)
        with SubstrateInterface(chain.url, ss58_format=42) as client:
            state = client.runtime_call("SubnetInfoRuntimeApi", "get_subnet_state", [1])
            keys = list(client.query_map("SubtensorModule", "Keys", [1], page_size=100))
        assert state["total_stake"] == list(range(256))
        assert [uid for uid, _ in keys] == list(range(256))


def test_two_names_are_two_chains() -> None:
    with Simulator(name="one") as first, Simulator(name="two") as two:
        assert first.chain.genesis != two.chain.genesis


def test_what_a_node_does_not_know_it_says(simulator: Simulator) -> None:
    with line(simulator.url) as asked:
        for method, params, code in (
            ("grandpa_roundState", (), -32601),
            ("chain_getHeader", (1, 2, 3), -32602),
            ("state_getStorage", ("0x00", "0x" + "11" * 32), 4003),
            ("state_call", ("Nothing_at_all", "0x"), 4003),
            ("state_getKeysPaged", ("0x", 1001), 4002),
        ):
            asked.send(method, *params)
            assert asked.receive()["error"]["code"] == code
        assert asked.ask("chain_getHeader", "0x" + "11" * 32) is None
        asked.socket.send("{")
        assert asked.receive()["error"]["code"] == -32700
        asked.socket.send('[{"id": 1, "method": "system_chain"}, {"id": 2, "method": "nothing"}]')
        first, second = asked.receive()
        assert (first["result"], second["error"]["code"]) == ("simulated", -32601)


def test_in_a_process_of_its_own_it_is_driven_over_its_socket() -> None:
    root = Path(__file__).parents[3]
    command = [
        sys.executable,
        "-m",
        "tests.subtensor",
        "--control",
        "--block-time",
        "0",
        "--hotkey",
        "//Alice",
        "--setting",
        "Tempo=7",
    ]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONWARNINGS": "error"})
    try:
        assert process.stdout is not None
        with line(process.stdout.readline().strip()) as asked:
            assert asked.ask("simulator_step", blocks=3) == 8
            assert asked.ask("simulator_register", netuid=1, hotkey="//Dave", alpha=5) == 2
            asked.ask("simulator_set", {"item": "WeightsVersionKey", "keys": [1], "value": 12})
            assert asked.ask("simulator_get", {"item": "WeightsVersionKey", "keys": [1]}) == 12
            assert asked.ask("simulator_get", {"item": "Tempo", "keys": [1]}) == 7
            dumped = asked.ask("simulator_dump", netuid=1)
            assert (dumped["head"], dumped["finalized"], len(dumped["hotkeys"])) == (8, 6, 3)
            asked.send("simulator_fault", kind="nonsense")
            assert "there is no fault 'nonsense'" in asked.receive()["error"]["data"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def test_without_control_nobody_drives_it(simulator: Simulator) -> None:
    with line(simulator.url) as asked:
        asked.send("simulator_step")
        assert asked.receive()["error"]["code"] == -32601


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "no.scale").write_bytes(b"nothing")
    command = [sys.executable, "-m", "tests.subtensor", "--metadata", str(tmp_path / "no.scale")]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: this is no runtime metadata: it holds no `meta` at its start\n"
