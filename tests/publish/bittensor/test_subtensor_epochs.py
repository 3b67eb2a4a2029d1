"""Epochs and timelocked commits on the simulated subtensor node: what is revealed when, and what never is."""

from __future__ import annotations

import time
from collections.abc import Iterator

import bittensor_core
import pytest

from subtensor import Simulator
from subtensor_kit import CallSigner, events, metadata, outcome

__all__ = ["metadata"]
pytestmark = pytest.mark.usefixtures("metadata")

TEMPO = 10
ROUND = 1000  # of drand's quicknet, and its public signature
SIGNATURE = "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39"


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    settings = {"Tempo": TEMPO, "WeightsSetRateLimit": 0}
    with Simulator.with_subnet(1, "//Alice", "//Bob", settings=settings) as chain:
        yield chain


def commit(simulator: Simulator, uri: str = "//Alice", commit: bytes = b"\1", **args: int) -> int:
    """A commit in a block of its own; its number."""
    called = {"netuid": 1, "mecid": 0, "commit": commit, "reveal_round": 10**6, "commit_reveal_version": 4} | args
    signed = CallSigner(simulator, uri).signed("commit_timelocked_mechanism_weights", called)
    simulator.chain.pool.submit(bytes.fromhex(signed[2:]))
    simulator.step()
    assert outcome(simulator) == "ExtrinsicSuccess"
    return simulator.chain.head.number


def test_epochs_run_by_the_state_of_their_schedule(simulator: Simulator) -> None:
    assert (simulator.get("LastEpochBlock", 1), simulator.get("SubnetEpochIndex", 1)) == (0, 0)
    simulator.step(TEMPO - 5)
    assert (simulator.get("LastEpochBlock", 1), simulator.get("SubnetEpochIndex", 1)) == (10, 1)
    simulator.set("PendingEpochAt", 1, value=13)
    simulator.step(4)
    assert (simulator.get("LastEpochBlock", 1), simulator.get("SubnetEpochIndex", 1)) == (13, 2)
    assert (simulator.get("PendingEpochAt", 1), simulator.get("BlocksSinceLastStep", 1)) == (0, 1)
    simulator.set("Tempo", 1, value=0)
    simulator.step(50)
    assert simulator.get("SubnetEpochIndex", 1) == 2


@pytest.mark.full
def test_the_plain_runtime_counts_epochs_by_the_number_of_the_block() -> None:
    with Simulator.with_subnet(1, "//Alice", settings={"Tempo": TEMPO}, extended=False) as chain:
        chain.step(4)
        assert chain.get("LastMechansimStepBlock", 1) == 8  # 8 + 1 + 1 leaves 10 when it is divided by 11
        chain.step(11)
        assert chain.get("LastMechansimStepBlock", 1) == 19


def test_a_commit_is_revealed_in_the_epoch_after_its_own(simulator: Simulator) -> None:
    number = commit(simulator)
    assert events(simulator, number)[0][0] == "TimelockedWeightsCommitted"
    assert events(simulator, number)[0][1][3] == 10**6
    assert simulator.get("LastUpdate", 1)[1] == number
    simulator.opens("//Alice", {0: 1, 2: 3})
    simulator.step(TEMPO + 2 - number)
    assert simulator.weights(1, 1) == {}
    simulator.step()
    assert simulator.weights(1, 1) == {0: 21845, 2: 65535}
    alice = CallSigner(simulator, "//Alice").key.ss58_address
    assert events(simulator, TEMPO + 3) == [("WeightsSet", (1, 1)), ("TimelockedWeightsRevealed", (1, alice))]
    assert simulator.get("LastUpdate", 1)[1] == number  # a reveal is no update
    assert simulator.get("TimelockedWeightCommits", 1, 0) == []


def test_a_commit_in_the_block_of_an_epoch_belongs_to_the_epoch_that_begins(simulator: Simulator) -> None:
    simulator.step(TEMPO - 6)
    assert commit(simulator) == TEMPO
    assert len(simulator.get("TimelockedWeightCommits", 1, 1)) == 1
    simulator.opens("//Alice", {0: 1})
    simulator.step(TEMPO + 2)
    assert simulator.weights(1, 1) == {}
    simulator.step()
    assert simulator.weights(1, 1) == {0: 65535}


def test_a_pulse_that_is_there_opens_a_commit_in_the_block_of_the_epoch_itself(simulator: Simulator) -> None:
    simulator.pulses(True, late=0)
    simulator.opens("//Alice", {0: 1})
    commit(simulator)
    simulator.step(TEMPO - simulator.chain.head.number)
    assert simulator.weights(1, 1) == {0: 65535}


def test_what_does_not_decrypt_leaves_neither_weights_nor_an_event(simulator: Simulator) -> None:
    for uri in ("//Alice", "//Bob"):
        commit(simulator, uri)
    simulator.opens("//Alice", None)  # of Bob's nothing is said
    simulator.step(TEMPO)
    assert (simulator.weights(1, 1), simulator.weights(1, 2)) == ({}, {})
    assert [event for number in range(8, 16) for event in events(simulator, number)] == []
    assert simulator.get("TimelockedWeightCommits", 1, 0) == []


def test_what_the_chain_refuses_to_store_leaves_no_event(simulator: Simulator) -> None:
    simulator.set("WeightsVersionKey", 1, value=5)
    commit(simulator)
    simulator.opens("//Alice", {0: 1}, version_key=4)
    simulator.step(TEMPO)
    assert simulator.weights(1, 1) == {}
    assert [event for number in range(8, 16) for event in events(simulator, number)] == []


def sealed(simulator: Simulator, hotkey: str, uids: list[int], values: list[int], version_key: int = 0) -> bytes:
    """A commit as the chain opens it, locked to a round of the past whose signature everybody knows."""
    payload = (bytes(CallSigner(simulator, hotkey).key.public_key), uids, values, version_key)
    encrypted, _ = bittensor_core.encrypt_at_round(simulator.state.encode("(Vec<u8>, Vec<u16>, Vec<u16>, u64)", payload), ROUND)
    return bytes(encrypted)[2:-8]  # without its length before it and the round behind it


@pytest.mark.parametrize(
    ("hotkey", "version_key", "signature", "stored"),
    [
        ("//Alice", 5, "", {0: 13107, 2: 65535}),
        ("//Alice", 4, "", {}),  # the version key in it is checked when it is opened
        ("//Bob", 5, "", {}),  # another's commit, sent again
        ("//Alice", 5, "a" * 96, {}),  # no signature of that round
    ],
)
def test_with_the_beacons_signature_a_commit_is_decrypted(
    simulator: Simulator, hotkey: str, version_key: int, signature: str, stored: dict[int, int]
) -> None:
    simulator.signature(ROUND, signature or SIGNATURE)
    simulator.set("WeightsVersionKey", 1, value=5)
    commit(simulator, commit=sealed(simulator, hotkey, [0, 2], [1, 5], version_key), reveal_round=ROUND)
    simulator.step(TEMPO)
    assert simulator.weights(1, 1) == stored


def test_of_two_commits_each_may_be_opened_by_its_bytes(simulator: Simulator) -> None:
    commit(simulator, commit=b"\1")
    commit(simulator, commit=b"\2")
    simulator.opens("//Alice", {0: 1}, commit=b"\1")
    simulator.opens("//Alice", {2: 1}, commit=b"\2")
    simulator.step(TEMPO)
    assert simulator.weights(1, 1) == {2: 65535}
    assert [name for name, _ in events(simulator, TEMPO + 3)] == ["WeightsSet", "TimelockedWeightsRevealed"] * 2


def test_without_the_beacon_a_commit_waits_through_its_epoch_and_no_longer(simulator: Simulator) -> None:
    commit(simulator)
    commit(simulator, "//Bob")
    simulator.opens("//Alice", {0: 1})
    simulator.pulses(False)
    simulator.step(TEMPO)
    assert (simulator.weights(1, 1), len(simulator.get("TimelockedWeightCommits", 1, 0))) == ({}, 2)
    simulator.pulses(True)
    simulator.step()
    assert simulator.weights(1, 1) == {0: 65535}
    commit(simulator)
    simulator.pulses(False)
    simulator.step(2 * TEMPO)
    simulator.pulses(True)
    simulator.step(TEMPO)
    assert simulator.state.under("TimelockedWeightCommits", 1) == []


def test_mechanisms_have_weights_and_updates_of_their_own(simulator: Simulator) -> None:
    simulator.mechanisms(1, 2)
    number = commit(simulator, mecid=1)
    simulator.opens("//Alice", {2: 9})
    assert (simulator.get("LastUpdate", 1)[1], simulator.get("LastUpdate", 4097)[1]) == (0, number)
    simulator.step(TEMPO)
    assert (simulator.weights(1, 1), simulator.weights(1, 1, mechanism=1)) == ({}, {2: 65535})


@pytest.mark.parametrize(("before", "pending"), [(0, 0), (3, 0), (4, 0), (5, 0), (6, 0), (0, 8), (0, 6), (17, 0)])
def test_clients_reckon_with_the_block_in_which_a_commit_is_revealed(simulator: Simulator, before: int, pending: int) -> None:
    simulator.step(before)
    simulator.set("PendingEpochAt", 1, value=pending)
    encrypted, reckoned = client_commit(simulator)
    commit(simulator, commit=encrypted)
    simulator.opens("//Alice", {0: 1})
    while not simulator.weights(1, 1):
        simulator.step()
    assert simulator.chain.head.number == reckoned


def client_commit(simulator: Simulator) -> tuple[bytes, int]:
    """A commit as the client library makes it from the chain's state, and the block it is to be revealed in.

    The library says the beacon's round by its clock; with 3,000 seconds a block it is 1,000 rounds for each.
    """
    head = simulator.chain.head.number
    asked = {"uids": list(range(256)), "weights": [65535] * 256, "version_key": 0, "current_block": head, "block_time": 3000.0}
    key = bytes(CallSigner(simulator, "//Alice").key.public_key)
    state = {
        "last_epoch_block": simulator.get("LastEpochBlock", 1),
        "pending_epoch_at": simulator.get("PendingEpochAt", 1),
        "subnet_epoch_index": simulator.get("SubnetEpochIndex", 1),
        "tempo": simulator.get("Tempo", 1),
        "blocks_since_last_step": simulator.get("BlocksSinceLastStep", 1),
        "subnet_reveal_period_epochs": simulator.get("RevealPeriodEpochs", 1),
    }
    encrypted, round_ = bittensor_core.get_encrypted_commit_v2(**asked, **state, hotkey=key)
    now = (time.time() - 1_692_803_367) / 3  # the beacon: its first round and its period
    return bytes(encrypted), head + round((round_ - now) / 1000)


def test_a_reorganisation_takes_a_reveal_back_and_does_it_again(simulator: Simulator) -> None:
    commit(simulator)
    simulator.opens("//Alice", {0: 1})
    simulator.finality(True)
    simulator.step(TEMPO + 3 - simulator.chain.head.number)
    before = simulator.chain.head.hash
    assert simulator.weights(1, 1) == {0: 65535}
    simulator.reorg(1)
    assert simulator.chain.head.hash != before
    assert simulator.weights(1, 1) == {0: 65535}
