"""What a chain says no to, said before anything is sent: each rule by its own name, in the chain's order."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import subnet_kit as kit
from assay.publish.bittensor.refusals import preflight, refusal
from assay.publish.bittensor.subnet import SubnetState
from assay.publish.outcome import Outcome, Refusal, TooEarly
from subnet_kit import ME


def code(outcome: Outcome | None) -> str | None:
    if outcome is None:
        return None
    return outcome.code if isinstance(outcome, Refusal) else outcome.state


def looked(
    there: SubnetState, uids: tuple[int, ...] = (0, 2), values: tuple[int, ...] = (65535, 1), version: int = 0
) -> str | None:
    return code(preflight(there, ME, uids, values, version))


Mend = Callable[[SubnetState, dict[str, Any]], SubnetState]
# Everything is wrong at once; each is put right in the chain's order, and only then the next is seen.
PLAIN: list[tuple[str, Mend]] = [
    ("CanNotSetRootNetworkWeights", lambda subnet, _: replace(subnet, netuid=7)),
    ("WeightVecNotEqualSize", lambda subnet, call: call.update(values=(65535, 1, 1, 1)) or subnet),
    ("MechanismDoesNotExist", lambda subnet, _: replace(subnet, mechanism=0)),
    ("UidsLengthExceedUidsInSubNet", lambda subnet, call: call.update(uids=(9, 9), values=(65535, 1)) or subnet),
    ("HotKeyNotRegisteredInSubNet", lambda subnet, _: replace(subnet, neurons=(*subnet.neurons, kit.neuron(1, ME, stake=1)))),
    ("NotEnoughStakeToSetWeights", lambda subnet, _: kit.with_me(subnet, stake=1000, permit=False, last_update=950)),
    ("IncorrectWeightVersionKey", lambda subnet, call: call.update(version=12) or subnet),
    ("too-early", lambda subnet, _: kit.with_me(subnet, last_update=900)),
    ("NeuronNoValidatorPermit", lambda subnet, _: kit.with_me(subnet, permit=True)),
    ("DuplicateUids", lambda subnet, call: call.update(uids=(2, 9)) or subnet),
    ("UidVecContainInvalidOne", lambda subnet, call: call.update(uids=(0, 2)) or subnet),
    ("WeightVecLengthIsLow", lambda subnet, _: replace(subnet, min_allowed=2)),
    ("MaxWeightExceeded", lambda subnet, call: call.update(values=(65535, 65535)) or subnet),
]
ALL_WRONG = {"netuid": 0, "mechanism": 1, "version_key": 12, "min_allowed": 3, "max_limit": 40_000}


def strangers() -> SubnetState:
    subnet = kit.subnet("a", **ALL_WRONG)
    return replace(subnet, neurons=tuple(neuron for neuron in subnet.neurons if neuron.hotkey != ME))


def test_plain_weights_are_refused_in_the_order_of_the_chain() -> None:
    there = strangers()
    call: dict[str, Any] = {"uids": (9, 9, 9, 9), "values": (1, 1, 1), "version": 11}
    for wanted, mend in PLAIN:
        assert looked(there, **call) == wanted
        there = mend(there, call)
    assert looked(there, **call) is None


COMMIT: list[tuple[str, Mend]] = [
    ("NotEnoughStakeToSetWeights", lambda subnet, _: kit.with_me(subnet, stake=1000)),
    ("MechanismDoesNotExist", lambda subnet, _: replace(subnet, mechanism=0)),
    ("IncorrectCommitRevealVersion", lambda subnet, _: replace(subnet, commit_version=4)),
    ("too-early", lambda subnet, _: kit.with_me(subnet, last_update=900)),
    ("TooManyUnrevealedCommits", lambda subnet, _: replace(subnet, unrevealed={ME: 9, "a": 10})),
    # What is applied when it is revealed.
    ("CanNotSetRootNetworkWeights", lambda subnet, _: replace(subnet, netuid=7)),
    ("WeightVecNotEqualSize", lambda subnet, call: call.update(values=(65535, 1, 1, 1)) or subnet),
    ("UidsLengthExceedUidsInSubNet", lambda subnet, call: call.update(uids=(9, 9), values=(65535, 1)) or subnet),
    ("IncorrectWeightVersionKey", lambda subnet, call: call.update(version=12) or subnet),
    ("NeuronNoValidatorPermit", lambda subnet, _: kit.with_me(subnet, permit=True)),
    ("DuplicateUids", lambda subnet, call: call.update(uids=(2, 9)) or subnet),
    ("UidVecContainInvalidOne", lambda subnet, call: call.update(uids=(0, 2)) or subnet),
    ("WeightVecLengthIsLow", lambda subnet, _: replace(subnet, min_allowed=2)),
    ("MaxWeightExceeded", lambda subnet, call: call.update(values=(65535, 65535)) or subnet),
]


def test_commitments_are_refused_in_the_order_of_the_chain_and_then_by_what_a_reveal_asks() -> None:
    there = kit.subnet("a", **ALL_WRONG, commit_reveal=True, commit_version=5, unrevealed={ME: 10})
    there = kit.with_me(there, stake=999, last_update=950, permit=False)
    call: dict[str, Any] = {"uids": (9, 9, 9, 9), "values": (1, 1, 1), "version": 11}
    for wanted, mend in COMMIT:
        assert looked(there, **call) == wanted
        there = mend(there, call)
    assert looked(there, **call) is None


def test_a_commitment_of_a_stranger() -> None:
    assert looked(replace(strangers(), mechanism=0, commit_reveal=True)) == "HotKeyNotRegisteredInSubNet"


@pytest.mark.parametrize(("last", "may"), [(0, None), (1, None), (899, None), (900, None), (901, 1001), (1000, 1100)])
def test_when_it_may_be_sent_again(last: int, may: int | None) -> None:
    """The newest block is 1000."""
    outcome = preflight(kit.with_me(kit.subnet("a"), last_update=last), ME, (0,), (65535,), 0)
    assert outcome is None if may is None else isinstance(outcome, TooEarly) and (outcome.at, outcome.unit) == (may, "block")


@pytest.mark.parametrize(("asked", "given", "fine"), [(0, 0, True), (0, 5, True), (5, 5, True), (5, 6, True), (5, 4, False)])
def test_version_keys(asked: int, given: int, fine: bool) -> None:
    assert (looked(kit.subnet("a", version_key=asked), version=given) is None) == fine


def test_the_owner_needs_neither_stake_nor_permit() -> None:
    there = kit.with_me(kit.subnet("a", owner_hotkey=ME), stake=0, permit=False)
    assert looked(there) is None


def test_a_hotkey_may_always_weight_itself() -> None:
    there = kit.with_me(kit.subnet("a", min_allowed=3, max_limit=1), permit=False)
    assert looked(there, (1,), (65535,)) is None
    assert looked(there, (2,), (65535,)) == "NeuronNoValidatorPermit"


def test_a_small_subnet_asks_for_no_more_weights_than_it_has_uids() -> None:
    there = kit.subnet("a", min_allowed=50)
    assert looked(there, (0, 1, 2), (1, 1, 65535)) is None
    assert looked(there, (0, 2), (1, 65535)) == "WeightVecLengthIsLow"


def test_a_limit_is_of_the_sum() -> None:
    there = kit.subnet("a", max_limit=32_767)
    assert looked(there, (0, 2), (65535, 65535)) == "MaxWeightExceeded"
    assert looked(replace(there, max_limit=32_768), (0, 2), (65535, 65535)) is None
    assert looked(replace(there, max_limit=21_845), (0, 1, 2), (65535, 65535, 65535)) is None  # a third, to the digit


def test_a_refusal_says_what_to_do() -> None:
    outcome = preflight(kit.with_me(kit.subnet("a"), stake=1), ME, (0,), (65535,), 0)
    assert isinstance(outcome, Refusal)
    assert outcome.what.endswith("(its stake weight is 1, but 1000 is required)")
    assert "get more stake" in outcome.hint
    for name, _ in (*PLAIN, *COMMIT):
        assert name == "too-early" or refusal(name).hint, name
    assert refusal("SomethingNew").code == "SomethingNew"


def test_the_operators_page_says_what_to_do_about_each() -> None:
    page = (Path(__file__).parents[3] / "docs" / "bittensor.md").read_text(encoding="utf-8")
    ours = ("all-moved", "burn-uid-not-owner", "clock", "no-epochs", "overwritten", "reveal-failed", "runtime")
    further = ("reveal-period", "superseded", "coldkey-swap", "signature", "payment", "nonce")
    for name in (*(name for name, _ in (*PLAIN, *COMMIT)), *ours, *further, "under-way", "wrong-chain", "wrong-registry"):
        assert name == "too-early" or f"`{name}`" in page, name
