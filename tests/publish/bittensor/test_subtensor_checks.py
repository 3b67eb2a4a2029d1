"""What the simulated subtensor node refuses: each check of the chain in its order, and what its pool turns away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from subtensor import RpcFault, Simulator
from subtensor_kit import CallSigner, RpcLine, events, line, metadata, outcome

__all__ = ["metadata"]
pytestmark = pytest.mark.usefixtures("metadata")

Change = tuple[str, Callable[[Simulator, dict[str, Any]], None]]
OPEN = {"CommitRevealWeightsEnabled": False, "WeightsSetRateLimit": 0}


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator.with_subnet(1, "//Alice", "//Bob", settings=OPEN) as chain:
        yield chain


@pytest.fixture
def asked(simulator: Simulator) -> Iterator[RpcLine]:
    with line(simulator.url) as wire:
        yield wire


def put(item: str, value: Any, *keys: Any) -> Callable[[Simulator, dict[str, Any]], None]:
    """A change of the chain's state."""
    return lambda simulator, _: simulator.set(item, *(keys or (1,)), value=value)


def say(**args: Any) -> Callable[[Simulator, dict[str, Any]], None]:
    """A change of the call; `signer` is who signs it."""
    return lambda _, call: call.update(args)


# What is wrong at first, and what mends the first of it, the next …: the chain's own order.
SETTING: list[Change] = [
    ("CommitRevealEnabled", put("CommitRevealWeightsEnabled", False, 0)),
    ("CanNotSetRootNetworkWeights", say(netuid=1)),
    ("WeightVecNotEqualSize", say(weights=[9, 9, 9, 9])),
    ("MechanismDoesNotExist", say(mecid=0)),
    ("UidsLengthExceedUidsInSubNet", say(dests=[0, 0, 9], weights=[9, 9, 9])),
    ("HotKeyNotRegisteredInSubNet", say(signer="//Alice")),
    ("NotEnoughStakeToSetWeights", lambda s, _: s.set("StakeThreshold", value=10**12)),
    ("IncorrectWeightVersionKey", say(version_key=7)),
    ("SettingWeightsTooFast", put("WeightsSetRateLimit", 0)),
    ("NeuronNoValidatorPermit", put("ValidatorPermit", [False, True, False])),
    ("DuplicateUids", say(dests=[0, 9], weights=[1, 2])),
    ("UidVecContainInvalidOne", say(dests=[0, 2])),
    ("WeightVecLengthIsLow", put("MinAllowedWeights", 2)),
    ("MaxWeightExceeded", put("MaxWeightsLimit", 65535)),
]
COMMITTING: list[Change] = [
    ("MechanismDoesNotExist", say(mecid=0)),
    ("CommitRevealDisabled", put("CommitRevealWeightsEnabled", True)),
    ("IncorrectCommitRevealVersion", say(commit_reveal_version=4)),
    ("HotKeyNotRegisteredInSubNet", say(signer="//Alice")),
    ("CommittingWeightsTooFast", put("WeightsSetRateLimit", 0)),
    ("TooManyUnrevealedCommits", lambda s, _: s.set("TimelockedWeightCommits", 1, 0, value=[])),
]


def refusals(simulator: Simulator, function: str, args: dict[str, Any], changes: list[Change]) -> list[str]:
    """What becomes of a call before each of the changes, and after the last."""
    outcomes = []
    for _, change in [*changes, ("", say())]:
        signer = CallSigner(simulator, args["signer"])
        simulator.chain.pool.submit(bytes.fromhex(signer.signed(function, {k: v for k, v in args.items() if k != "signer"})[2:]))
        simulator.step()
        outcomes.append(outcome(simulator))
        change(simulator, args)
    return outcomes


def test_set_weights_is_checked_in_the_order_of_the_chain(simulator: Simulator) -> None:
    simulator.guards(False)
    simulator.fund("//Eve")
    for item, value in (
        ("MinAllowedWeights", 3),
        ("MaxWeightsLimit", 40_000),
        ("WeightsSetRateLimit", 1000),
        ("WeightsVersionKey", 7),
    ):
        simulator.set(item, 1, value=value)
    simulator.set("CommitRevealWeightsEnabled", 0, value=True)
    simulator.set("LastUpdate", 1, value=[1, 1, 1])
    simulator.set("ValidatorPermit", 1, value=[False] * 3)
    simulator.set("StakeThreshold", value=10**12 + 1)
    args = {"signer": "//Eve", "netuid": 0, "mecid": 1, "dests": [0, 0, 9, 1], "weights": [9], "version_key": 6}
    wanted = [*(name for name, _ in SETTING), "ExtrinsicSuccess"]
    assert refusals(simulator, "set_mechanism_weights", args, SETTING) == wanted
    assert simulator.weights(1, 1) == {0: 32768, 2: 65535}
    assert events(simulator, simulator.chain.head.number) == [("WeightsSet", (1, 1))]


def test_commits_are_checked_in_the_order_of_the_chain(simulator: Simulator) -> None:
    simulator.guards(False)
    simulator.fund("//Eve")
    simulator.set("WeightsSetRateLimit", 1, value=1000)
    simulator.set("LastUpdate", 1, value=[1, 1, 1])
    alice = CallSigner(simulator, "//Alice").key.public_key
    simulator.set("TimelockedWeightCommits", 1, 0, value=[(alice, 1, b"x", 5)] * 10)
    args = {"signer": "//Eve", "netuid": 1, "mecid": 1, "commit": b"\1", "reveal_round": 10**6, "commit_reveal_version": 3}
    wanted = [*(name for name, _ in COMMITTING), "ExtrinsicSuccess"]
    assert refusals(simulator, "commit_timelocked_mechanism_weights", args, COMMITTING) == wanted
    assert [commit[0] for commit in simulator.get("TimelockedWeightCommits", 1, 0)] == [
        CallSigner(simulator, "//Alice").key.ss58_address
    ]


def test_owners_and_those_who_weigh_themselves_need_no_permit(simulator: Simulator) -> None:
    simulator.set("ValidatorPermit", 1, value=[False] * 3)
    simulator.set("MinAllowedWeights", 1, value=3)
    simulator.set("StakeThreshold", value=10**13)
    simulator.guards(False)
    for uri, uids, wanted in (
        ("//Owner", [0, 1, 2], "ExtrinsicSuccess"),
        ("//Alice", [1], "NotEnoughStakeToSetWeights"),
    ):
        simulator.chain.pool.submit(bytes.fromhex(CallSigner(simulator, uri).weights(uids, [1] * len(uids))[2:]))
        simulator.step()
        assert outcome(simulator) == wanted
    simulator.set("StakeThreshold", value=0)
    simulator.chain.pool.submit(bytes.fromhex(CallSigner(simulator, "//Alice").weights([1], [1])[2:]))
    simulator.step()
    assert outcome(simulator) == "ExtrinsicSuccess"


def test_zeros_are_stored_as_they_are(simulator: Simulator, asked: RpcLine) -> None:
    asked.ask("author_submitExtrinsic", CallSigner(simulator, "//Alice").weights([0, 1, 2], [0, 1, 3]))
    simulator.step()
    assert simulator.weights(1, 1) == {0: 0, 1: 21845, 2: 65535}


def test_a_uid_that_changes_hands_leaves_nothing_behind(simulator: Simulator, asked: RpcLine) -> None:
    for uri, uids in (("//Alice", [1, 2]), ("//Bob", [1, 2])):
        asked.ask("author_submitExtrinsic", CallSigner(simulator, uri).weights(uids, [1, 1]))
    simulator.step()
    simulator.register(1, "//New", uid=1)
    assert simulator.weights(1, 1) == {}
    assert simulator.weights(1, 2) == {1: 0, 2: 65535}
    assert simulator.get("LastUpdate", 1)[1] == simulator.chain.head.number
    assert simulator.get("Uids", 1, CallSigner(simulator, "//Alice").key.public_key) is None
    with pytest.raises(ValueError, match="the next uid of subnet 1 is 3"):
        simulator.register(1, "//Other", uid=4)


def refused(asked: RpcLine, raw: str, code: int, data: str | None = None) -> None:
    """See a submission refused with this code, and this in its data."""
    with pytest.raises(RpcFault) as caught:
        asked.ask("author_submitExtrinsic", raw)
    assert caught.value.code == code
    assert data is None or data in str(caught.value.data)


def test_the_pool_turns_away_what_the_runtime_does_not_want(simulator: Simulator, asked: RpcLine) -> None:
    alice = CallSigner(simulator, "//Alice")
    simulator.set("StakeThreshold", value=10**13)
    refused(asked, alice.weights([0], [1]), 1010, "Custom error: 1")
    asked.ask("author_submitExtrinsic", CallSigner(simulator, "//Owner").weights([0], [1]))  # the owner needs no stake
    simulator.set("StakeThreshold", value=0)
    simulator.set("WeightsSetRateLimit", 1, value=100)
    simulator.set("LastUpdate", 1, value=[1, 1, 1])
    refused(asked, alice.weights([0], [1]), 1010, "Custom error: 6")
    simulator.set("CommitRevealWeightsEnabled", 1, value=True)
    refused(asked, alice.commit(), 1010, "Custom error: 6")
    simulator.set("WeightsSetRateLimit", 1, value=0)
    simulator.set("Drand.LastStoredRound", value=10**6 + 1)
    refused(asked, alice.commit(), 1010, "Custom error: 15")


def test_the_pool_turns_away_what_is_not_signed_as_it_must_be(simulator: Simulator, asked: RpcLine) -> None:
    alice = CallSigner(simulator, "//Alice")
    simulator.step(9)
    good = alice.weights([0], [1])
    refused(asked, good[:-2] + "01", 1010, "bad signature")  # another version key than was signed
    refused(asked, alice.weights([0], [1], genesis=bytes(32)), 1010, "bad signature")
    # Its era is over: the hash of the next one's first block is not what was signed.
    refused(asked, alice.weights([0], [1], period=4, at=4), 1010, "bad signature")
    refused(asked, CallSigner(simulator, "//Nobody").weights([0], [1]), 1010, "Inability to pay")
    refused(asked, "0x0400", 1002)
    asked.ask("author_submitExtrinsic", alice.weights([0], [1], period=None))
    simulator.step()
    assert outcome(simulator) == "ExtrinsicSuccess"
    refused(asked, alice.weights([0], [1], nonce=0), 1010, "outdated")


def test_a_birth_that_is_longer_ago_than_hashes_are_kept_is_ancient(simulator: Simulator, asked: RpcLine) -> None:
    signed = CallSigner(simulator, "//Alice").weights([0], [1], period=4096)
    simulator.step(2450)
    refused(asked, signed, 1010, "ancient birth block")


def test_a_commit_that_is_too_long_does_not_decode(simulator: Simulator, asked: RpcLine) -> None:
    simulator.set("CommitRevealWeightsEnabled", 1, value=True)
    refused(asked, CallSigner(simulator, "//Alice").commit(bytes(5001)), 1002)
    asked.ask("author_submitExtrinsic", CallSigner(simulator, "//Alice").commit(bytes([200]) * 5000))


def test_one_of_two_with_the_same_nonce_stays(simulator: Simulator, asked: RpcLine) -> None:
    alice = CallSigner(simulator, "//Alice")
    first = alice.weights([0], [1])
    watched = asked.ask("author_submitAndWatchExtrinsic", first)
    assert (bool(watched), asked.status()) == (True, "ready")
    refused(asked, first, 1013)
    refused(asked, alice.weights([0], [2]), 1014, "too low priority")
    better = alice.weights([0], [2], tip=5)
    replaced = asked.ask("author_submitExtrinsic", better)
    assert asked.status() == {"usurped": replaced}
    simulator.step()
    refused(asked, better, 1012)  # it was in a block


def test_two_commits_that_share_a_rate_limit_share_a_place_in_the_pool(simulator: Simulator, asked: RpcLine) -> None:
    simulator.set("CommitRevealWeightsEnabled", 1, value=True)
    simulator.set("WeightsSetRateLimit", 1, value=10)
    alice = CallSigner(simulator, "//Alice")
    asked.ask("author_submitExtrinsic", alice.commit())
    refused(asked, alice.commit(b"\2", nonce=1), 1014)


def test_a_full_pool_takes_no_more(simulator: Simulator, asked: RpcLine) -> None:
    simulator.chain.pool.limit = 1
    asked.ask("author_submitExtrinsic", CallSigner(simulator, "//Alice").weights([0], [1]))
    refused(asked, CallSigner(simulator, "//Bob").weights([0], [1]), 1016)


def test_a_nonce_ahead_waits_until_its_turn(simulator: Simulator, asked: RpcLine) -> None:
    alice = CallSigner(simulator, "//Alice")
    asked.ask("author_submitAndWatchExtrinsic", alice.weights([0], [1], nonce=1))
    assert asked.status() == "future"
    simulator.step()
    assert len(asked.ask("author_pendingExtrinsics")) == 1
    assert asked.ask("system_accountNextIndex", alice.key.ss58_address) == 0
    asked.ask("author_submitExtrinsic", alice.weights([0], [2]))
    assert asked.status() == "ready"
    assert asked.ask("system_accountNextIndex", alice.key.ss58_address) == 2
    simulator.step()
    assert list(asked.status()) == ["inBlock"]
    assert (alice.nonce, asked.ask("author_pendingExtrinsics")) == (2, [])


def test_what_waits_beyond_its_era_is_put_out(simulator: Simulator, asked: RpcLine) -> None:
    asked.ask("author_submitAndWatchExtrinsic", CallSigner(simulator, "//Alice").weights([0], [1], nonce=1, period=8))
    assert asked.status() == "future"
    simulator.step(8)
    assert asked.status() == "invalid"
    assert asked.ask("author_pendingExtrinsics") == []


def test_what_has_become_too_early_by_the_time_of_its_block_is_put_out(simulator: Simulator, asked: RpcLine) -> None:
    asked.ask("author_submitAndWatchExtrinsic", CallSigner(simulator, "//Alice").weights([0], [1]))
    simulator.set("WeightsSetRateLimit", 1, value=100)
    simulator.set("LastUpdate", 1, value=[1, 1, 1])
    simulator.step()
    assert [asked.status(), asked.status()] == ["ready", "invalid"]
    assert simulator.included() == []
