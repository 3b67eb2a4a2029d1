"""A transaction seen through: blocks that do not take it, blocks that go again, nonces that are gone, and ends of every kind."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import publish_kit as kit
from assay.publish.evm.publisher import EvmPublisher
from assay.publish.evm.transactions import EvmAttempt
from assay.publish.journal import Overtaken
from assay.publish.outcome import Confirmed, Outcome, Refusal, Sent, Unknown
from assay.publish.sender import under_way
from evm_kit import FREE, RECEIPT, EvmWorld, scored
from publish_kit import PassingTime, with_keys

__all__ = ["with_keys"]  # a fixture

SCORES = {"m1": 9000, "m2": 6000}
GWEI = 10**9
pytestmark = pytest.mark.usefixtures("with_keys")


@pytest.fixture
def place(world: EvmWorld, tmp_path: Path) -> Path:
    """Ready to be published; blocks come when a test says so."""
    world.open()
    world.commit(*world.agents[:2])
    world.close()
    world.chain.ask("evm_setAutomine", False)
    return kit.publish_toml(kit.competition(tmp_path / "small", world, SCORES), world, bump_seconds=10, wait_seconds=60)


def mine(world: EvmWorld, count: int = 1) -> Callable[[], object]:
    return lambda: world.chain.ask("anvil_mine", hex(count))


def nothing() -> None:
    pass


def scores(world: EvmWorld) -> int:
    return len(world.scores()[1])


def whole(world: EvmWorld, place: Path, outcome: Outcome) -> None:
    """It is there once, and everything says so."""
    assert isinstance(outcome, Confirmed), outcome
    assert scores(world) == 2
    assert kit.nonce(world, world.scorer) == 1
    assert under_way(EvmAttempt.read(kit.journal(place))) is None


def test_it_waits_for_its_block(place: Path, world: EvmWorld) -> None:
    time = PassingTime(nothing, nothing, mine(world))
    whole(world, place, kit.sent(place, time))
    assert kit.states(place) == ["planned", "sent", "confirmed"]


def test_it_waits_until_enough_blocks_are_on_its_own(place: Path, world: EvmWorld) -> None:
    kit.publish_toml(place, world, confirmations=4)
    time = PassingTime(mine(world), mine(world), mine(world), nothing, mine(world))
    whole(world, place, kit.sent(place, time))
    assert time.seconds >= 5
    confirmed = kit.journal(place)[-1]
    assert world.chain.w3.eth.get_block(confirmed["block"])["hash"].to_0x_hex() == confirmed["block_hash"]


def test_what_no_block_takes_is_given_up_for_now_and_seen_through_later(place: Path, world: EvmWorld) -> None:
    kit.publish_toml(place, world, wait_seconds=5)
    outcome = kit.sent(place)
    assert isinstance(outcome, Sent)
    assert scores(world) == 0
    again = kit.sent(place, PassingTime(mine(world)))
    whole(world, place, again)
    assert isinstance(again, Confirmed)
    assert again.transaction == outcome.transaction
    assert kit.states(place) == ["planned", "sent", "sent", "confirmed"]


def test_what_no_block_takes_is_replaced_by_what_pays_more_within_the_bounds(place: Path, world: EvmWorld) -> None:
    settings: dict[str, Any] = {"bump_seconds": 10, "wait_seconds": 300, "max_fee_gwei": "20", "max_tip_gwei": "2"}
    kit.publish_toml(place, world, **settings)
    time = PassingTime(*[nothing] * 200, mine(world))
    whole(world, place, kit.sent(place, time))
    (attempt,) = EvmAttempt.read(kit.journal(place))
    assert len(attempt.transactions) > 3
    offers = [(each.fees.most, each.fees.tip) for each in attempt.transactions]
    for old, new in pairwise(offers):
        assert all(8 * b >= 9 * a for a, b in zip(old, new, strict=True)), offers
    assert offers[-1][0] <= 20 * GWEI
    assert offers[-1][1] <= 2 * GWEI
    assert any("the most that max_fee_gwei and max_tip_gwei allow" in message for message in time.messages)
    assert attempt.ending["hash"] == attempt.transactions[-1].hash
    assert len({each.hash for each in attempt.transactions}) == len(attempt.transactions)


def test_the_first_of_several_may_be_the_one_that_is_taken(place: Path, world: EvmWorld) -> None:
    """A replacement came too late: what counts is that one of them is there."""
    time = PassingTime(*[nothing] * 25)
    kit.publish_toml(place, world, bump_seconds=10, wait_seconds=15)
    assert isinstance(kit.sent(place, time), Sent)
    (attempt,) = EvmAttempt.read(kit.journal(place))
    assert len(attempt.transactions) == 2
    first = attempt.transactions[0]
    world.chain.ask("anvil_dropTransaction", attempt.transactions[1].hash)
    world.chain.ask("eth_sendRawTransaction", f"0x{first.raw.hex()}")
    mine(world)()
    outcome = kit.sent(place)
    whole(world, place, outcome)
    assert isinstance(outcome, Confirmed)
    assert outcome.transaction == first.hash


def test_what_a_node_forgot_is_given_to_it_again(place: Path, world: EvmWorld) -> None:
    def drop() -> None:
        world.chain.ask("anvil_dropTransaction", kit.journal(place)[0]["hash"])

    whole(world, place, kit.sent(place, PassingTime(nothing, drop, nothing, mine(world))))
    assert kit.states(place) == ["planned", "sent", "confirmed"]


def test_a_dearer_chain_is_answered_with_a_dearer_transaction(place: Path, world: EvmWorld) -> None:
    """By the time it is sent the base fee is above all that it offered."""
    kit.publish_toml(place, world, wait_seconds=0)
    assert isinstance(kit.sent(place), Sent)
    (attempt,) = EvmAttempt.read(kit.journal(place))
    world.chain.ask("anvil_dropTransaction", attempt.transactions[0].hash)
    world.chain.ask("anvil_setNextBlockBaseFeePerGas", hex(30 * GWEI))
    mine(world)()
    kit.publish_toml(place, world, wait_seconds=60, bump_seconds=10)
    whole(world, place, kit.sent(place, PassingTime(*[nothing] * 12, mine(world), mine(world))))
    (attempt,) = EvmAttempt.read(kit.journal(place))
    assert attempt.transactions[-1].fees.most > 30 * GWEI


def test_a_block_that_goes_takes_it_along_and_it_goes_on(place: Path, world: EvmWorld) -> None:
    """A reorganisation of two blocks: the transaction is in none of the new ones, and no node has it any more."""
    kit.publish_toml(place, world, confirmations=3, bump_seconds=100)

    def reorganise() -> None:
        assert scores(world) == 2
        world.chain.ask("anvil_reorg", 2, [])
        assert scores(world) == 0
        for attempt in EvmAttempt.read(kit.journal(place)):
            for each in attempt.transactions:
                world.chain.ask("anvil_dropTransaction", each.hash)

    time = PassingTime(mine(world), mine(world), reorganise, nothing, mine(world), mine(world), mine(world), mine(world))
    whole(world, place, kit.sent(place, time))


def test_a_block_that_goes_and_another_that_has_it(place: Path, world: EvmWorld) -> None:
    kit.publish_toml(place, world, confirmations=3)

    def reorganise() -> None:
        raw = kit.journal(place)[0]["raw"]
        world.chain.ask("anvil_reorg", 1, [[raw, 0]])

    outcome = kit.sent(place, PassingTime(mine(world), reorganise, mine(world), mine(world)))
    whole(world, place, outcome)
    confirmed = kit.journal(place)[-1]
    assert world.chain.w3.eth.get_block(confirmed["block"])["hash"].to_0x_hex() == confirmed["block_hash"]


def test_a_nonce_that_somebody_else_used_is_noticed_and_its_owner_says_so(place: Path, world: EvmWorld) -> None:
    """What a node says of it is not enough to sign another: it could have both taken."""
    kit.publish_toml(place, world, wait_seconds=0)
    assert isinstance(kit.sent(place), Sent)
    world.chain.ask("anvil_dropTransaction", kit.journal(place)[0]["hash"])
    world.chain.w3.eth.send_transaction({"from": world.scorer, "to": world.admin, "value": 1, "nonce": 0, **FREE})
    mine(world)()
    kit.publish_toml(place, world)
    for _ in range(2):
        outcome = kit.sent(place, PassingTime(nothing, nothing, mine(world)))
        assert isinstance(outcome, Refusal)
        assert (outcome.code, outcome.hint[-36:]) == ("nonce", "write used_nonce = 0 in publish.toml")
    kit.publish_toml(place, world, used_nonce=0)
    outcome = kit.sent(place, PassingTime(nothing, nothing, mine(world)))
    assert isinstance(outcome, Confirmed)
    assert (scores(world), kit.nonce(world, world.scorer)) == (2, 2)
    first, second = EvmAttempt.read(kit.journal(place))
    assert (first.state, second.state) == ("lost", "confirmed")
    assert second.nonce == 1


def test_what_others_of_the_account_have_waiting_comes_first(place: Path, world: EvmWorld) -> None:
    world.chain.w3.eth.send_transaction({"from": world.scorer, "to": world.admin, "value": 1, "nonce": 0, **FREE})
    outcome = kit.sent(place, PassingTime(mine(world)))
    assert isinstance(outcome, Confirmed)
    assert EvmAttempt.read(kit.journal(place))[0].nonce == 1


def test_what_a_block_took_and_the_contract_refused_has_its_reason(place: Path, world: EvmWorld) -> None:
    """The scores of another receipt come into the same block, before it."""
    begun = world.submission([(world.agents[0], 1)])
    begun.transact({"from": world.scorer, "nonce": 1, "gas": 500_000, **FREE})  # waits for nonce 0
    world.chain.ask("anvil_dropAllTransactions")

    def first() -> None:
        fast = {"maxFeePerGas": 50 * GWEI, "maxPriorityFeePerGas": 50 * GWEI}
        other_scores(world).transact({"from": world.admin, "gas": 500_000, **fast})
        mine(world)()

    outcome = kit.sent(place, PassingTime(first))
    assert isinstance(outcome, Refusal)
    assert outcome.code == "already-submitted"
    assert "had no effect" in outcome.what
    assert kit.journal(place)[-2]["state"] == "reverted"
    again = kit.sent(place)
    assert isinstance(again, Refusal)
    assert again.code == "already-submitted"
    assert kit.nonce(world, world.scorer) == 1


def other_scores(world: EvmWorld) -> Any:
    """Scores of another receipt, which the scorer has signed and anybody can send."""
    rows, until = scored([(world.agents[0], 1)]), world.terms["scoreUntil"]
    digest = world.oracle.functions.digestOf(world.round.address, RECEIPT, rows, 0, until).call()
    signature = bytes(kit.key_of(2).unsafe_sign_hash(digest).signature)
    return world.oracle.functions.submitSigned(world.scorer, world.round.address, RECEIPT, rows, 0, until, signature)


def test_what_was_never_given_to_a_node_and_would_be_refused_now_is_dropped(place: Path, world: EvmWorld) -> None:
    """Killed before it was sent; then the deadline passed. It is not sent for nothing."""
    publisher = kit.opened(place)
    _without_sending(publisher)
    with pytest.raises(_Stopped):
        publisher.send(kit.planned(place), print)
    world.expire()
    outcome = kit.sent(place)
    assert isinstance(outcome, Refusal)
    assert outcome.code == "too-late"
    assert kit.states(place) == ["planned", "dropped", "refused"]
    assert kit.nonce(world, world.scorer) == 0


class _Stopped(BaseException):
    pass


def _without_sending(publisher: EvmPublisher) -> None:
    def stop(raw: bytes) -> None:
        raise _Stopped

    publisher._chain.node.send = stop  # type: ignore[method-assign]


def test_what_was_planned_and_not_sent_is_sent_as_it_was_planned(place: Path, world: EvmWorld) -> None:
    publisher = kit.opened(place)
    _without_sending(publisher)
    with pytest.raises(_Stopped):
        publisher.send(kit.planned(place), print)
    (planned,) = kit.journal(place)
    outcome = kit.sent(place, PassingTime(mine(world)))
    whole(world, place, outcome)
    assert isinstance(outcome, Confirmed)
    assert outcome.transaction == planned["hash"]


def test_one_thing_after_the_other(place: Path, world: EvmWorld, tmp_path: Path) -> None:
    """Another epoch's transaction is under way: it is seen to its end first, with its own key."""
    kit.publish_toml(place, world, wait_seconds=0)
    assert isinstance(kit.sent(place), Sent)
    kit.judged(place, SCORES, 4)
    waiting = kit.sent(place, epoch=4)
    assert isinstance(waiting, Unknown)
    assert "epoch 3 is under way, and comes first" in waiting.what
    kit.publish_toml(place, world, key="relayer")
    other = kit.sent(place, epoch=4)
    assert isinstance(other, Refusal)
    assert other.code == "under-way"
    kit.publish_toml(place, world)
    last = kit.sent(place, PassingTime(mine(world)), epoch=4)
    assert isinstance(last, Refusal)
    assert last.code == "already-submitted"
    whole(world, place, kit.sent(place))


def test_two_programs_do_not_both_send(place: Path, world: EvmWorld) -> None:
    """Each reads the journal before the other writes to it: the second one's line does not go on from what it read."""
    first, second = kit.opened(place), kit.opened(place)
    assert second._chain.journal.read() == []
    _without_sending(first)
    with pytest.raises(_Stopped):
        first.send(kit.planned(place), print)
    signer = second._chain.signer()
    ready = second._call(kit.planned(place), signer, signer)
    with pytest.raises(Overtaken, match="something else is being sent; wait for it"):
        second._chain.sender(signer, print)._begin("epoch 3", "sha256:other", lambda: ready, [])
    assert [attempt.plan for attempt in EvmAttempt.read(kit.journal(place))] == [kit.planned(place).digest]


def test_an_end_without_an_attempt_is_nothing_under_way() -> None:
    assert under_way(EvmAttempt.read([{"state": "refused", "subject": "epoch 3", "plan": "", "code": "fees"}])) is None
