"""Weights onto a simulated subnet: what is sent, that it is there, and every way in which it does not get there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import weights_kit as kit
from assay.errors import BadInput, Unreachable
from assay.publish.bittensor.extrinsics import BittensorAttempt
from assay.publish.evm.transactions import EvmAttempt
from assay.publish.outcome import Confirmed, Refusal, TooEarly, Unknown
from assay.publish.publishers import Pulse
from subtensor import Simulator
from weights_kit import EPOCH, ME, NETUID, WEIGHTS, PassingBlocks

pytestmark = pytest.mark.usefixtures("shared")


@pytest.fixture
def chain(shared: Path) -> Iterator[Simulator]:
    with kit.subnet() as simulator:
        yield simulator


@pytest.fixture
def place(tmp_path: Path, chain: Simulator) -> Path:
    return kit.publish_toml(kit.competition(tmp_path / "c"), chain)


def test_weights_are_set_and_read_back(place: Path, chain: Simulator) -> None:
    time = PassingBlocks(chain)
    before = kit.opened(place, time).compare(kit.planned(place))
    assert (before.held, before.outcome) == ({}, None)
    assert [(line.account, line.value) for line in before.lines or ()] == [
        ("uid 2", "65535"),
        ("uid 3", "32768"),
        ("uid 4", "10923"),
        ("uid 0", "0"),
    ]
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Confirmed), outcome
    assert chain.weights(NETUID, ME) == WEIGHTS
    ((block, extrinsic),) = chain.included()
    assert block.number == outcome.block <= chain.chain.finalized
    assert extrinsic["call"]["call_function"] == "set_weights"
    assert extrinsic["nonce"] == 0
    assert kit.states(place) == ["planned", "sent", "confirmed"]
    after = kit.opened(place, time).compare(kit.planned(place))
    assert after.held == {f"uid {uid}": str(value) for uid, value in WEIGHTS.items()}
    assert after.outcome == outcome == kit.opened(place, time).confirm(kit.planned(place))
    # Done again, nothing is sent.
    assert kit.sent(place, time) == outcome
    assert len(chain.included()) == 1


def test_the_next_epoch_is_another_publication_though_the_weights_be_the_same(place: Path, chain: Simulator) -> None:
    time = PassingBlocks(chain)
    first = kit.sent(place, time)
    kit.settle(place, kit.SCORES, EPOCH + 1)
    early = kit.sent(place, time, EPOCH + 1)
    assert isinstance(first, Confirmed)
    assert isinstance(early, TooEarly)
    assert (early.at, early.unit) == (first.block + 100, "block")
    assert early.what == f"weights were last set in block {first.block}, and may be set every 100 blocks"
    chain.step(first.block + 100 - chain.chain.head.number)
    second = kit.sent(place, time, EPOCH + 1)
    assert isinstance(second, Confirmed)
    assert second.block == first.block + 101
    assert [extrinsic["nonce"] for _, extrinsic in chain.included()] == [0, 1]
    # The first is not published over it.
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Refusal)
    assert (outcome.code, f"from block {first.block} on, but those of epoch {EPOCH + 1}" in outcome.what) == ("superseded", True)
    kit.settle(place, kit.SCORES, EPOCH + 2)
    chain.step(100)
    assert isinstance(kit.sent(place, time, EPOCH + 2), Confirmed)


def test_another_hotkey_sets_its_own(place: Path, chain: Simulator) -> None:
    """After a change of the key the first one's publication is nothing to the second."""
    chain.register(NETUID, "//Val2", alpha=10**12, permit=True)
    chain.set("WeightsSetRateLimit", NETUID, value=0)
    assert isinstance(kit.sent(place, PassingBlocks(chain)), Confirmed)
    (place / "hotkey").write_text(kit.secret("//Val2"))
    assert kit.opened(place).compare(kit.planned(place)).outcome is None
    assert isinstance(kit.sent(place, PassingBlocks(chain)), Confirmed)
    assert chain.weights(NETUID, 5) == WEIGHTS
    assert [attempt.account for attempt in kit.tried(place)] == [kit.hotkey("//Val"), kit.hotkey("//Val2")]
    (place / "hotkey").write_text(kit.secret("//Val"))
    assert isinstance(kit.sent(place, PassingBlocks(chain)), Confirmed)
    assert len(chain.included()) == 2


def test_what_another_hotkey_sent_is_not_newer(place: Path, chain: Simulator) -> None:
    chain.register(NETUID, "//Val2", alpha=10**12, permit=True)
    chain.set("WeightsSetRateLimit", NETUID, value=0)
    kit.settle(place, kit.SCORES, EPOCH + 1)
    assert isinstance(kit.sent(place, PassingBlocks(chain), EPOCH + 1), Confirmed)
    (place / "hotkey").write_text(kit.secret("//Val2"))
    assert isinstance(kit.sent(place, PassingBlocks(chain)), Confirmed)


def test_older_weights_do_not_replace_newer_ones(place: Path, chain: Simulator) -> None:
    time = PassingBlocks(chain)
    kit.settle(place, kit.SCORES, EPOCH + 1)
    assert isinstance(kit.sent(place, time, EPOCH + 1), Confirmed)
    chain.step(100)
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Refusal)
    assert outcome.code == "superseded"
    assert len(chain.included()) == 1


def test_a_uid_that_changed_hands_burns(place: Path, chain: Simulator) -> None:
    chain.register(NETUID, "//Stranger", uid=2)
    time = PassingBlocks(chain)
    looked = kit.opened(place, time).compare(kit.planned(place))
    shown = {line.account: line.value for line in looked.lines or ()}
    assert shown == {"uid 0": "65535", "uid 2": "0", "uid 3": "32768", "uid 4": "10923"}
    assert (
        f"{kit.hotkey('//M1')} gets nothing and its weight burns: uid 2 has the hotkey {kit.hotkey('//Stranger')} now"
        in looked.notes
    )
    assert isinstance(kit.sent(place, time), Confirmed)
    assert chain.weights(NETUID, ME) == {0: 65535, 3: 32768, 4: 10923}


def test_a_hotkey_may_be_spelled_with_another_prefix(tmp_path: Path, chain: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "hotkey", kit.other_prefix)
    place = kit.publish_toml(kit.competition(tmp_path / "c"), chain)
    assert not any("burns" in note for note in kit.opened(place).compare(kit.planned(place)).notes)
    assert isinstance(kit.sent(place, PassingBlocks(chain)), Confirmed)
    assert chain.weights(NETUID, ME) == WEIGHTS


def test_what_burns_goes_to_nobody_but_the_owner(tmp_path: Path) -> None:
    with kit.subnet() as chain:
        chain.register(NETUID, "//Somebody", uid=0)
        chain.step(3)
        place = kit.publish_toml(kit.competition(tmp_path / "c", uids={"//M1": 2, "//M2": 3}), chain)
        time = PassingBlocks(chain)
        outcome = kit.sent(place, time)
        assert isinstance(outcome, Refusal)
        assert outcome.code == "burn-uid-not-owner"
        assert kit.hotkey("//Somebody") in outcome.what
        assert chain.included() == []
        kit.publish_toml(place, chain, force_burn=True)
        assert any("force_burn allows it" in note for note in kit.opened(place, time).compare(kit.planned(place)).notes)
        assert isinstance(kit.sent(place, time), Confirmed)
        assert chain.weights(NETUID, ME) == {0: 10923, 2: 65535, 3: 32768}


def test_where_nothing_burns_nobody_asks_whose_the_burn_uid_is(place: Path, chain: Simulator) -> None:
    chain.register(NETUID, "//Somebody", uid=0)
    assert isinstance(kit.sent(place, PassingBlocks(chain)), Confirmed)


def test_everything_burns(tmp_path: Path, chain: Simulator) -> None:
    place = kit.publish_toml(kit.competition(tmp_path / "c", dict.fromkeys(kit.SCORES, "0")), chain)
    assert isinstance(kit.sent(place, PassingBlocks(chain)), Confirmed)
    assert chain.weights(NETUID, ME) == {0: 65535}


def test_any_hotkey_of_the_owners_coldkey_takes_what_burns(tmp_path: Path, chain: Simulator) -> None:
    chain.register(NETUID, "//Owner2", coldkey="//Owner//cold", uid=0)
    place = kit.publish_toml(kit.competition(tmp_path / "c", dict.fromkeys(kit.SCORES, "0")), chain)
    assert isinstance(kit.sent(place, PassingBlocks(chain)), Confirmed)


REFUSED = [
    ("NotEnoughStakeToSetWeights", "StakeThreshold", 10**15),
    ("IncorrectWeightVersionKey", "WeightsVersionKey", 5),
    ("WeightVecLengthIsLow", "MinAllowedWeights", 4),
    ("NeuronNoValidatorPermit", "ValidatorPermit", [True, False, False, False, False]),
]
GLOBAL = ("StakeThreshold", "CommitRevealWeightsVersion")


@pytest.mark.parametrize(("code", "setting", "value"), REFUSED)
def test_what_the_chain_would_refuse_is_not_sent(place: Path, chain: Simulator, code: str, setting: str, value: object) -> None:
    chain.set(setting, *(() if setting in GLOBAL else (NETUID,)), value=value)
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Refusal), outcome
    assert (outcome.code, chain.included(), kit.states(place)) == (code, [], ["refused"])


def test_a_stranger_sets_no_weights(place: Path, chain: Simulator) -> None:
    chain.register(NETUID, "//Other", uid=ME)
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Refusal)
    assert outcome.code == "HotKeyNotRegisteredInSubNet"


def test_another_chain_or_subnet_is_refused(place: Path, chain: Simulator) -> None:
    for changes, code in (
        ({"chain": "0x" + "11" * 32}, "wrong-chain"),
        ({"chain": "finney"}, "wrong-chain"),
        ({"netuid": 9}, "SubnetNotExists"),
        ({"mechanism": 1}, "MechanismDoesNotExist"),
    ):
        kit.publish_toml(place, chain, **changes)
        for outcome in (kit.sent(place, PassingBlocks(chain)), kit.opened(place).compare(kit.planned(place)).outcome):
            assert isinstance(outcome, Refusal), outcome
            assert outcome.code == code


def test_the_uids_of_another_subnet_are_not_sent(place: Path, chain: Simulator) -> None:
    """Its registry was pulled from one subnet, by the receipt, and publish.toml names another."""
    kit.registry_of(place, chain, netuid=9)
    kit.settle(place, kit.SCORES, EPOCH + 1)
    plan, time = kit.planned(place, EPOCH + 1), PassingBlocks(chain)
    for outcome in (kit.sent(place, time, EPOCH + 1), kit.opened(place).compare(plan).outcome, kit.opened(place).confirm(plan)):
        assert isinstance(outcome, Refusal), outcome
        assert outcome.code == "wrong-registry"
        assert "the uids of subnet 9, mechanism 0" in outcome.what
    assert chain.included() == []
    kit.registry_of(place, chain)
    kit.settle(place, kit.SCORES, EPOCH + 2)
    assert "registries" not in kit.planned(place, EPOCH + 2).content
    assert isinstance(kit.sent(place, time, EPOCH + 2), Confirmed)


def test_a_node_that_is_behind_the_registry_is_not_asked_who_has_which_uid(place: Path, chain: Simulator) -> None:
    """To it somebody who registered lately has no uid, and would get nothing."""
    ahead = chain.chain.head.number + 3
    kit.registry_of(place, chain, block=ahead)
    kit.settle(place, kit.SCORES, EPOCH + 1)
    outcome = kit.sent(place, PassingBlocks(chain), EPOCH + 1)
    assert isinstance(outcome, Unknown)
    assert f"is at block {ahead - 3}, but the uids are of block {ahead}" in outcome.what
    with pytest.raises(Unreachable, match="the uids are of block"):
        kit.opened(place).compare(kit.planned(place, EPOCH + 1))
    assert chain.included() == []
    chain.step(3)
    assert isinstance(kit.sent(place, PassingBlocks(chain), EPOCH + 1), Confirmed)


def test_that_every_uid_has_changed_hands_is_not_meant(place: Path, chain: Simulator) -> None:
    for uid in (2, 3):
        chain.register(NETUID, f"//Stranger{uid}", uid=uid)
    assert kit.opened(place).compare(kit.planned(place)).outcome is None
    chain.register(NETUID, "//Stranger4", uid=4)
    kit.publish_toml(place, chain, force_burn=True)
    for outcome in (kit.sent(place, PassingBlocks(chain)), kit.opened(place).compare(kit.planned(place)).outcome):
        assert isinstance(outcome, Refusal), outcome
        assert outcome.code == "all-moved"
    assert chain.included() == []


def test_a_version_key_is_sent(place: Path, chain: Simulator) -> None:
    chain.set("WeightsVersionKey", NETUID, value=5)
    kit.publish_toml(place, chain, version_key=7)
    assert isinstance(kit.sent(place, PassingBlocks(chain)), Confirmed)
    ((_, extrinsic),) = chain.included()
    assert {arg["name"]: arg["value"] for arg in extrinsic["call"]["call_args"]}["version_key"] == 7


def test_another_mechanism(place: Path, chain: Simulator) -> None:
    chain.mechanisms(NETUID, 2)
    kit.publish_toml(place, chain, mechanism=1)
    assert isinstance(kit.sent(place, PassingBlocks(chain)), Confirmed)
    ((_, extrinsic),) = chain.included()
    assert extrinsic["call"]["call_function"] == "set_mechanism_weights"
    assert (chain.weights(NETUID, ME), chain.weights(NETUID, ME, 1)) == ({}, WEIGHTS)


def test_what_only_a_block_refuses(place: Path, chain: Simulator) -> None:
    """Between looking and the block the chain has changed: the extrinsic is in a block and did nothing."""
    chain.guards(False)
    time = PassingBlocks(chain, lambda: chain.set("WeightsVersionKey", NETUID, value=99))
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Refusal)
    assert (outcome.code, kit.states(place)[-2:]) == ("IncorrectWeightVersionKey", ["failed", "refused"])
    assert "had no effect" in outcome.what
    chain.set("WeightsVersionKey", NETUID, value=0)
    assert isinstance(kit.sent(place, time), Confirmed)
    assert [extrinsic["nonce"] for _, extrinsic in chain.included()] == [0, 1]


def test_a_block_that_says_too_fast_is_too_early(place: Path, chain: Simulator) -> None:
    chain.guards(False)
    time = PassingBlocks(chain, lambda: chain.set("LastUpdate", NETUID, value=[0, chain.chain.head.number, 0, 0, 0]))
    outcome = kit.sent(place, time)
    assert isinstance(outcome, TooEarly)
    assert kit.states(place)[-2:] == ["failed", "too-early"]


def test_a_pool_that_says_too_fast_is_asked_again(place: Path, chain: Simulator) -> None:
    chain.fault("error", "author_submitExtrinsic", code=1010, message="Invalid Transaction", data="Custom error: 6")
    time = PassingBlocks(chain)
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Refusal)
    assert (outcome.code, kit.states(place)) == ("RateLimitExceeded", ["planned", "refused"])
    # It is still good: the same extrinsic is handed over again.
    assert isinstance(kit.sent(place, time), Confirmed)
    assert len(kit.tried(place)) == 1


def test_the_journal_of_another_kind_of_target_is_none(place: Path, chain: Simulator) -> None:
    kit.sent(place, PassingBlocks(chain))
    ours = next(entry for entry in kit.journal(place) if entry["state"] == "planned")
    theirs = {"state": "planned", "attempt": 1, "subject": "epoch 2", "account": "0x1", "chain_id": 1, "nonce": 0, "raw": "0x00"}
    for read, entry in ((BittensorAttempt.read, theirs), (EvmAttempt.read, ours)):
        with pytest.raises(
            BadInput, match=r"the journal belongs to another kind of target: its entry 'epoch .'.*a name of its own"
        ):
            read([entry])


def test_without_a_key_nothing_is_sent(place: Path, chain: Simulator) -> None:
    kit.publish_toml(place, chain, key=None)
    with pytest.raises(BadInput, match="name one of the keys"):
        kit.sent(place, PassingBlocks(chain))
    looked = kit.opened(place).compare(kit.planned(place))
    assert looked.outcome is None
    assert "account" in looked.notes[-1]


def test_the_pulse(place: Path, chain: Simulator) -> None:
    there = kit.opened(place).pulse()
    assert isinstance(there, Pulse)
    assert (there.now, there.last, there.tempo) == (chain.chain.head.number, None, 20)
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Confirmed)
    there = kit.opened(place).pulse()
    assert isinstance(there, Pulse)
    assert there.last == outcome.block


def test_where_the_chain_has_no_place_for_the_hotkey_there_is_no_pulse(place: Path, chain: Simulator) -> None:
    def code() -> str:
        outcome = kit.opened(place).pulse()
        assert isinstance(outcome, Refusal), outcome
        return outcome.code

    chain.register(NETUID, "//Thief", uid=ME)
    chain.step(1)
    assert code() == "HotKeyNotRegisteredInSubNet"
    kit.publish_toml(place, chain, netuid=7)
    assert code() == "SubnetNotExists"
    kit.publish_toml(place, chain, chain="finney", key=None)
    assert code() == "wrong-chain"
    kit.publish_toml(place, chain, key=None)
    assert kit.opened(place).pulse() is None  # whose it would be is not known
