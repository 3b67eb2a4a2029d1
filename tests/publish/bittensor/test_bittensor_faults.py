"""Weights to a subnet while node, chain and network do what they should not: never twice, never lost, and always known."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weights_kit as kit
from assay.publish.bittensor.weights import PERIOD
from assay.publish.outcome import Confirmed, Outcome, Refusal, Sent, TooEarly, Unknown
from subtensor import Simulator
from weights_kit import EPOCH, ME, NETUID, WEIGHTS, PassingBlocks

METHODS = (
    *("chain_getBlock", "chain_getBlockHash", "chain_getFinalizedHead", "chain_getHeader", "state_queryStorageAt"),
    *("state_getRuntimeVersion", "author_submitExtrinsic", "author_pendingExtrinsics", "state_call"),
)


@pytest.fixture
def chain(shared: Path) -> Iterator[Simulator]:
    with kit.subnet() as simulator:
        yield simulator


@pytest.fixture
def place(tmp_path: Path, chain: Simulator) -> Path:
    return kit.publish_toml(kit.competition(tmp_path / "c"), chain)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["drop-before", "drop-after"])
def test_a_connection_that_drops_in_the_middle(place: Path, chain: Simulator, kind: str, method: str) -> None:
    """Seven times, each at that question, answered or not: reads are asked again; a transaction is looked for first."""
    chain.fault(kind, method, times=7)
    time = PassingBlocks(chain)
    outcome: Outcome = Unknown("nothing yet")
    for _ in range(5):
        if isinstance(outcome, Unknown):
            outcome = kit.sent(place, time)
    kit.once(place, chain, outcome)
    assert len(kit.tried(place)) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["duplicate", "garbage", "wrong-id", "stray", "silent-after"])
def test_answers_that_are_none(place: Path, chain: Simulator, kind: str) -> None:
    kit.publish_toml(place, chain, rpc_seconds=1)
    time = PassingBlocks(chain)
    chain.fault(kind, "author_submitExtrinsic")
    chain.fault(kind, "chain_getBlock")
    kit.once(place, chain, kit.sent(place, time))


def test_a_node_that_is_not_there(place: Path, chain: Simulator) -> None:
    kit.publish_toml(place, chain, rpc_seconds=1)
    chain.fault("half-open", times=None)
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Unknown)
    assert kit.states(place) == ["unknown"]
    chain.clear()
    kit.once(place, chain, kit.sent(place, PassingBlocks(chain)))


def test_a_transaction_that_may_have_arrived_is_looked_for(place: Path, chain: Simulator) -> None:
    chain.fault("drop-after", "author_submitExtrinsic")
    time = PassingBlocks(chain)
    kit.once(place, chain, kit.sent(place, time))
    assert len(kit.tried(place)) == 1


@pytest.mark.parametrize("keep", [True, False], ids=["its extrinsics wait again", "its extrinsics are lost"])
def test_a_reorganisation(place: Path, chain: Simulator, keep: bool) -> None:
    """The block that has it is replaced, twice; what is not final is not believed."""
    time = PassingBlocks(chain, lambda: None, lambda: chain.reorg(1, keep=keep), lambda: None, lambda: chain.reorg(1, keep=keep))
    kit.once(place, chain, kit.sent(place, time))
    assert len(kit.tried(place)) == 1


def test_finality_that_is_late(place: Path, chain: Simulator) -> None:
    kit.publish_toml(place, chain, wait_seconds=5)
    chain.finality(stalled=True)
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Sent)
    assert chain.weights(NETUID, ME) == WEIGHTS
    again = kit.sent(place, PassingBlocks(chain))
    assert again == outcome == kit.opened(place).compare(kit.planned(place)).outcome
    chain.finality(stalled=False)
    kit.once(place, chain, kit.sent(place, PassingBlocks(chain)))


def test_nothing_begins_while_nothing_becomes_final(place: Path, chain: Simulator) -> None:
    chain.finality(stalled=True)
    chain.step(PERIOD)
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Unknown)
    assert "is final" in outcome.what
    assert kit.tried(place) == []


def test_a_wrong_count_of_nonces_is_not_asked_for(place: Path, chain: Simulator) -> None:
    chain.fault("nonce", times=None, offset=5)
    kit.once(place, chain, kit.sent(place, PassingBlocks(chain)))


@pytest.mark.parametrize("kind", ["forget", "lie"])
def test_a_node_that_takes_it_and_does_not(place: Path, chain: Simulator, kind: str) -> None:
    """It says that it has it; it is handed over again until it is in a block."""
    chain.fault(kind, times=None)
    kit.publish_toml(place, chain, wait_seconds=4)
    time = PassingBlocks(chain)
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Sent), "nothing is confirmed that no final block has"
    assert chain.included() == []
    chain.clear()
    kit.once(place, chain, kit.sent(place, time))
    assert len(kit.tried(place)) == 1


def test_what_no_block_took_in_its_time_is_begun_anew(place: Path, chain: Simulator) -> None:
    kit.publish_toml(place, chain, wait_seconds=4)
    chain.fault("forget", times=None)
    time = PassingBlocks(chain)
    kit.sent(place, time)
    chain.step(PERIOD + 3)
    chain.clear()
    kit.once(place, chain, kit.sent(place, time))
    first, second = kit.tried(place)
    assert (first.state, second.state) == ("expired", "confirmed")
    assert first.signed.nonce == second.signed.nonce
    assert first.signed.death < second.signed.birth


def test_what_would_pay_a_stranger_by_now_is_not_handed_over(place: Path, chain: Simulator) -> None:
    """It was signed, and no node has it; then a uid changes hands: it is left to end, and another is made."""
    kit.publish_toml(place, chain, wait_seconds=4)
    chain.fault("forget", times=None)
    time = PassingBlocks(chain)
    kit.sent(place, time)
    chain.clear()
    chain.register(NETUID, "//Stranger", uid=2)
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Unknown)
    (attempt,) = kit.tried(place)
    assert (
        f"a uid has changed hands since it was signed; it is not handed over, and expires with block {attempt.signed.death}"
        in outcome.what
    )
    assert chain.included() == []
    chain.step(PERIOD)
    assert isinstance(kit.sent(place, time), Confirmed)
    assert chain.weights(NETUID, ME) == {0: 65535, 3: 32768, 4: 10923}
    assert [attempt.state for attempt in kit.tried(place)] == ["expired", "confirmed"]


def test_what_the_chain_would_not_take_by_now_is_not_handed_over(place: Path, chain: Simulator) -> None:
    chain.fault("forget", times=None)
    kit.publish_toml(place, chain, wait_seconds=4)
    time = PassingBlocks(chain)
    kit.sent(place, time)
    chain.clear()
    was = chain.get("LastUpdate", NETUID)
    chain.set("LastUpdate", NETUID, value=[0, chain.chain.head.number, 0, 0, 0])
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Unknown)
    assert "weights were last set in block" in outcome.what
    chain.set("LastUpdate", NETUID, value=was)
    for uid in (2, 3, 4):
        chain.register(NETUID, f"//Stranger{uid}", uid=uid)
    refused = kit.sent(place, time)
    assert isinstance(refused, Refusal)
    assert (refused.code, chain.included()) == ("all-moved", [])


def test_before_its_time_is_over_no_other_is_made(place: Path, chain: Simulator) -> None:
    kit.publish_toml(place, chain, wait_seconds=4)
    chain.fault("forget", times=None)
    time = PassingBlocks(chain)
    kit.sent(place, time)
    (attempt,) = kit.tried(place)
    while chain.chain.finalized < attempt.signed.death - 6:
        chain.step()
    assert isinstance(kit.sent(place, time), Sent)
    assert len(kit.tried(place)) == 1


def test_a_node_that_lags(place: Path, chain: Simulator) -> None:
    """One of several behind an address shows what was some blocks ago."""
    time = PassingBlocks(chain, *[lambda: chain.fault("stale", times=None, blocks=4), lambda: None, chain.clear] * 4)
    kit.once(place, chain, kit.sent(place, time))
    assert len(kit.tried(place)) == 1


def test_the_nonce_was_used_by_something_else(place: Path, chain: Simulator) -> None:
    chain.set("WeightsSetRateLimit", NETUID, value=0)
    chain.fault("error", "author_submitExtrinsic", code=1016, message="Immediately Dropped")
    time = PassingBlocks(chain, lambda: kit.elsewhere(chain, 0))
    kit.once(place, chain, kit.sent(place, time))
    assert [(attempt.state, attempt.signed.nonce) for attempt in kit.tried(place)] == [("lost", 0), ("confirmed", 1)]


def test_the_nonce_was_used_and_now_it_is_too_early(place: Path, chain: Simulator) -> None:
    chain.fault("error", "author_submitExtrinsic", code=1016, message="Immediately Dropped")
    outcome = kit.sent(place, PassingBlocks(chain, lambda: kit.elsewhere(chain, 0)))
    assert isinstance(outcome, TooEarly)
    assert [attempt.state for attempt in kit.tried(place)] == ["lost"]


def test_what_waits_in_the_pool_goes_first(place: Path, chain: Simulator) -> None:
    chain.set("WeightsSetRateLimit", NETUID, value=0)
    kit.elsewhere(chain, 0)
    kit.once(place, chain, kit.sent(place, PassingBlocks(chain)))
    assert [attempt.signed.nonce for attempt in kit.tried(place)] == [1]


def test_weights_that_something_else_has_replaced(place: Path, chain: Simulator) -> None:
    chain.set("WeightsSetRateLimit", NETUID, value=0)
    chain.finality(stalled=True)
    time = PassingBlocks(
        chain, lambda: None, lambda: kit.elsewhere(chain, 1), lambda: None, lambda: chain.finality(stalled=False)
    )
    outcome = kit.sent(place, time)
    assert isinstance(outcome, Refusal), outcome
    assert outcome.code == "overwritten"
    assert kit.states(place)[-2:] == ["overwritten", "refused"]


def test_weights_that_something_else_has_replaced_since(place: Path, chain: Simulator) -> None:
    """Told when it is looked at again, and set anew when it is done again."""
    chain.set("WeightsSetRateLimit", NETUID, value=0)
    first = kit.sent(place, PassingBlocks(chain))
    kit.elsewhere(chain, 1)
    chain.step(3)
    for outcome in (kit.opened(place).confirm(kit.planned(place)), kit.sent(place, PassingBlocks(chain))):
        assert isinstance(outcome, Refusal), outcome
        assert outcome.code == "overwritten"
    again = kit.sent(place, PassingBlocks(chain))
    assert isinstance(again, Confirmed)
    assert again != first
    assert [attempt.state for attempt in kit.tried(place)] == ["overwritten", "confirmed"]
    assert chain.weights(NETUID, ME) == WEIGHTS


POOL: list[tuple[int, str, str | None, type[Outcome], str]] = [
    (1010, "Invalid Transaction", "Transaction has a bad signature", Refusal, "signature"),
    (1010, "Invalid Transaction", "Transaction will be valid in the future", Refusal, "nonce"),
    (1010, "Invalid Transaction", "Inability to pay some fees (e.g. account balance too low)", Refusal, "payment"),
    (1010, "Invalid Transaction", "Transaction would exhaust the block limits", Refusal, "limits"),
    (1010, "Invalid Transaction", "Custom error: 1", Refusal, "NotEnoughStakeToSetWeights"),
    (1010, "Invalid Transaction", "Custom error: 15", Refusal, "InvalidRevealRound"),
    (1010, "Invalid Transaction", "Custom error: 19", Refusal, "HotKeyNotRegisteredInSubNet"),
    (1010, "Invalid Transaction", "Custom error: 21", Refusal, "coldkey-swap"),
    (1010, "Invalid Transaction", "Custom error: 255", Refusal, "custom"),
    (1010, "Invalid Transaction", "Invalid signing address", Refusal, "invalid"),
    (1002, "Verification Error", None, Refusal, "node"),
    (1011, "Unknown Transaction Validity", None, Unknown, "cannot say yet"),
    (1012, "Transaction is temporarily banned", None, Unknown, "banned"),
    (1014, "Priority is too low: (0 vs 0)", "The transaction has too low priority", Unknown, "another extrinsic"),
    (1016, "Immediately Dropped", "The transaction couldn't enter the pool because of the limit", Unknown, "full"),
    (1013, "Transaction Already Imported", "[0xab]", Sent, ""),
    (1010, "Invalid Transaction", "Transaction is outdated", Sent, ""),
    (1010, "Invalid Transaction", "Transaction has an ancient birth block", Sent, ""),
    (1010, '{"invalid":{"stale":null}}', None, Sent, ""),  # as chopsticks says it
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("code", "message", "data", "kind", "words"), POOL)
def test_what_a_pool_says(
    place: Path, chain: Simulator, code: int, message: str, data: str | None, kind: type[Outcome], words: str
) -> None:
    """Each is told for what it is; none ends the extrinsic, which is handed over again the next time."""
    kit.publish_toml(place, chain, wait_seconds=0)
    chain.fault("error", "author_submitExtrinsic", code=code, message=message, data=data)
    time = PassingBlocks(chain)
    outcome = kit.sent(place, time)
    assert isinstance(outcome, kind), outcome
    untyped: Any = outcome
    if isinstance(outcome, Refusal):
        assert outcome.code == words
    elif isinstance(outcome, Unknown):
        assert words in untyped.what
    kit.publish_toml(place, chain)
    kit.once(place, chain, kit.sent(place, time))
    assert len(kit.tried(place)) == 1


def test_half_a_character_in_what_a_node_says_can_be_written_down(place: Path, chain: Simulator) -> None:
    chain.fault("error", "author_submitExtrinsic", code=1010, message="no \ud800 way", data="nor \udfff")
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Refusal)
    assert "no ? way nor ?" in outcome.what
    assert kit.states(place) == ["planned", "refused"]


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("LastUpdate", [0, 2**63, 0, 0, 0]),
        ("WeightsSetRateLimit", 2**64 - 1),
        ("BlocksSinceLastStep", 2**64 - 1),
        ("RevealPeriodEpochs", 2**64 - 1),
    ],
)
def test_a_number_that_cannot_be_is_no_answer(place: Path, chain: Simulator, item: str, value: object) -> None:
    chain.set(item, NETUID, value=value)
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Unknown)
    assert f"sent an impossible answer ({item})" in outcome.what
    assert kit.states(place) == ["unknown"]


def test_an_earlier_epoch_under_way_comes_first_and_is_not_pressed(place: Path, chain: Simulator) -> None:
    kit.publish_toml(place, chain, wait_seconds=4)
    chain.fault("forget", times=None)
    time = PassingBlocks(chain)
    kit.sent(place, time)
    chain.clear()
    kit.settle(place, kit.SCORES, EPOCH + 1)
    outcome = kit.sent(place, time, EPOCH + 1)
    assert isinstance(outcome, Unknown)
    assert outcome.what.startswith("epoch 3 is under way, and comes first")
    assert chain.included() == []
    chain.step(PERIOD)
    assert isinstance(kit.sent(place, time, EPOCH + 1), Confirmed)
    assert [attempt.state for attempt in kit.tried(place)] == ["expired", "confirmed"]


def test_what_another_key_has_under_way_is_seen_through_with_that_key(place: Path, chain: Simulator) -> None:
    kit.publish_toml(place, chain, wait_seconds=1)
    chain.fault("forget", times=None)
    kit.sent(place, PassingBlocks(chain))
    chain.clear()
    (place / "hotkey").write_text(kit.secret("//M1"))
    outcome = kit.sent(place, PassingBlocks(chain))
    assert isinstance(outcome, Refusal)
    assert (outcome.code, chain.included()) == ("under-way", [])
