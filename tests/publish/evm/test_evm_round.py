"""A bounty's contract, every path of it, on a real node."""

from typing import Any

import pytest
from web3 import Web3

from assay.publish.evm.contracts import oracle_address
from evm_kit import ETHER, FREE, HOUR, NOBODY, RECEIPT, AnvilChain, EvmWorld, events, refused, scored


def test_a_bounty_from_deposit_to_claims(world: EvmWorld) -> None:
    a, b, c, d = world.agents[:4]
    world.open()
    world.commit(a, b, c, d)
    world.close()
    world.submit([(a, 6000), (b, 9000), (c, 3400), (d, 5600)])
    receipt = world.settle()

    # The best reaches the threshold: all is released. c is below half of it: his place, had he one, would not be paid.
    gross = {b: ETHER * 6 // 10, a: ETHER * 3 // 10, d: ETHER // 10}
    placed = events(world.round, "Placed", receipt)
    assert [(row["place"], row["agent"], row["bps"], row["gross"]) for row in placed] == [
        (1, b, 9000, gross[b]),
        (2, a, 6000, gross[a]),
        (3, d, 5600, gross[d]),
    ]
    fees = {agent: amount * 250 // 10_000 for agent, amount in gross.items()}
    assert {agent: world.claim(agent) for agent in gross} == {agent: gross[agent] - fees[agent] for agent in gross}
    assert world.claim(world.collector) == sum(fees.values())
    assert world.owed(world.sponsor) == world.owed(c) == 0
    assert world.chain.balance(world.round.address) == world.round.functions.held().call() == 0


def test_what_is_in_the_terms_is_what_the_round_says(world: EvmWorld) -> None:
    contract = world.make()
    for name, value in world.terms.items():
        answer = getattr(contract.functions, name)().call()
        assert answer == ([tuple(tier) for tier in value] if name == "tiers" else value), name


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bounty", bytes(32)),
        ("sponsor", NOBODY),
        ("token", "0x" + "11" * 20),
        ("deposit", 0),
        ("feeBps", 10_001),
        ("feeRecipient", NOBODY),
        ("thresholdBps", 0),
        ("thresholdBps", 10_001),
        ("scorer", NOBODY),
        ("tiers", []),
        ("tiers", [(10_000 - i, 5_000) for i in range(17)]),
        ("tiers", [(0, 5_000)]),
        ("tiers", [(10_001, 5_000)]),
        ("tiers", [(9_000, 10_001)]),
        ("tiers", [(8_000, 5_000), (8_000, 2_500)]),
        ("tiers", [(8_000, 5_000), (9_000, 2_500)]),
        ("tiers", [(8_000, 5_000), (7_000, 5_001)]),
        ("split", []),
        ("split", [9_999]),
        ("split", [10_001]),
        ("split", [10_000, 0]),
        ("split", [300] * 33 + [100]),
    ],
)
def test_terms_that_make_no_sense_make_no_round(world: EvmWorld, field: str, value: Any) -> None:
    with refused("BadTerms", field):
        world.make(**{field: value})


@pytest.mark.parametrize(
    ("commit", "score", "field"),
    [(0, HOUR, "commitUntil"), (HOUR, HOUR, "scoreUntil"), (HOUR, HOUR - 1, "scoreUntil"), (HOUR, 732 * 24 * HOUR, "scoreUntil")],
)
def test_deadlines_come_in_order_and_are_not_ages_away(world: EvmWorld, commit: int, score: int, field: str) -> None:
    now = world.chain.now
    with refused("BadTerms", field):
        world.make(commitUntil=now + commit, scoreUntil=now + score)


def test_the_oracle_is_the_one_that_ships_and_has_to_be_there(world: EvmWorld, chain: AnvilChain) -> None:
    """No argument names it: the round knows its address from its code."""
    assert world.make().functions.oracle().call() == oracle_address() == world.oracle.address
    chain.ask("anvil_setCode", world.oracle.address, "0x")
    with refused("BadTerms", "oracle"):
        world.make(thresholdBps=1)


def test_without_a_fee_there_need_be_nobody_to_take_it(world: EvmWorld) -> None:
    world.open(feeBps=0, feeRecipient=NOBODY, split=[10_000])
    world.commit(world.agents[0])
    world.close()
    world.submit([(world.agents[0], 7000)])
    world.settle()
    assert world.claim(world.agents[0]) == ETHER
    assert world.owed(NOBODY) == 0


# Funding


def test_the_deposit_is_exact_and_put_in_once(world: EvmWorld) -> None:
    fund = world.make().functions.fund()
    for wrong in (0, ETHER - 1, ETHER + 1):
        with refused("WrongValue", ETHER, wrong):
            world.chain.send(fund, world.sponsor, wrong)
    world.chain.send(fund, world.sponsor, ETHER)
    with refused("AlreadyFunded"):
        world.chain.send(fund, world.sponsor, ETHER)
    assert world.chain.balance(world.round.address) == world.round.functions.held().call() == ETHER


def test_anybody_may_fund_and_the_refund_is_the_sponsors(world: EvmWorld) -> None:
    world.make()
    world.fund(by=world.agents[0])
    world.expire()
    world.settle()
    assert world.claim(world.sponsor) == ETHER


def test_a_round_cannot_be_funded_when_nobody_could_commit_any_more(world: EvmWorld) -> None:
    world.make()
    world.close()
    with refused("CommitmentsClosed", world.terms["commitUntil"]):
        world.fund()


def test_coin_that_is_merely_sent_is_not_taken(world: EvmWorld) -> None:
    world.open()
    with pytest.raises(Exception, match="revert"):
        world.chain.w3.eth.send_transaction({"from": world.sponsor, "to": world.round.address, "value": 1, **FREE})


# Committing


def test_a_commitment_is_for_good(world: EvmWorld) -> None:
    a, b = world.agents[:2]
    world.open()
    world.commit(a)
    time = world.round.functions.committedAt(a).call()
    assert time == world.chain.now
    with refused("AlreadyCommitted", a):
        world.chain.send(world.round.functions.commit(b"\1" * 32), a)
    with refused("NoCommitment"):
        world.chain.send(world.round.functions.commit(bytes(32)), b)
    assert world.round.functions.commitmentOf(a).call() == Web3.keccak(text=a)
    assert (world.round.functions.committedAt(a).call(), world.round.functions.committedAt(b).call()) == (time, 0)
    assert world.round.functions.committedAtAll([b, a]).call() == [0, time]
    assert world.round.functions.commitments().call() == 1


def test_a_commitment_that_somebody_copied_keeps_nobody_out(world: EvmWorld) -> None:
    """The thief sees it waiting, and is there first. It is the victim's name that it hashes: the thief cannot open it."""
    victim, thief = world.agents[:2]
    world.open()
    same = b"\7" * 32
    world.chain.send(world.round.functions.commit(same), thief)
    world.chain.send(world.round.functions.commit(same), victim)
    assert [world.round.functions.commitmentOf(agent).call() for agent in (victim, thief)] == [same, same]


def test_commitments_need_the_deposit_and_end_in_time(world: EvmWorld) -> None:
    a, b = world.agents[:2]
    world.make()
    with refused("NotOpen"):
        world.commit(a)
    world.fund()
    world.chain.ask("evm_setNextBlockTimestamp", world.terms["commitUntil"])
    world.commit(a)
    with refused("CommitmentsClosed", world.terms["commitUntil"]):
        world.chain.at(world.terms["commitUntil"] + 1)
        world.commit(b)


# Settling


def test_it_is_settled_by_scores_or_by_their_deadline(world: EvmWorld) -> None:
    a = world.agents[0]
    with refused("NotOpen"):
        world.make().functions.settle().call()
    world.fund()
    world.commit(a)
    world.chain.at(world.terms["commitUntil"])
    with refused("CommitmentsOpen", world.terms["commitUntil"]):
        world.round.functions.settle().call()
    world.close()
    with refused("NotYet", world.terms["scoreUntil"]):
        world.settle()
    world.chain.at(world.terms["scoreUntil"])
    with refused("NotYet", world.terms["scoreUntil"]):
        world.round.functions.settle().call()
    world.expire()
    (event,) = events(world.round, "Settled", world.settle())
    assert event == {"receipt": bytes(32), "tierBps": 0, "released": 0, "fees": 0, "refund": ETHER}
    assert world.claim(world.sponsor) == ETHER
    with refused("NotOpen"):
        world.settle()


def test_where_nobody_committed_the_sponsor_does_not_wait_for_scores(world: EvmWorld) -> None:
    world.open()
    with refused("CommitmentsOpen"):
        world.settle()
    world.close()
    world.settle()
    assert world.claim(world.sponsor) == ETHER


def test_scores_in_time_count_however_late_it_is_settled(world: EvmWorld) -> None:
    a = world.agents[0]
    world.open(split=[10_000], feeBps=0)
    world.commit(a)
    world.close()
    world.submit([(a, 7000)])
    world.chain.at(world.terms["scoreUntil"] + 365 * 24 * HOUR)
    (event,) = events(world.round, "Settled", world.settle())
    assert event["receipt"] == RECEIPT
    assert world.claim(a) == ETHER


def test_no_score_at_all_is_a_result(world: EvmWorld) -> None:
    """Everybody is unjudged, or below the baseline: the sponsor has it back at once."""
    world.open()
    world.commit(world.agents[0])
    world.close()
    world.submit([])
    world.settle()
    assert world.claim(world.sponsor) == ETHER


def test_who_was_not_judged_is_left_out(world: EvmWorld) -> None:
    a, b = world.agents[:2]
    world.open(split=[6000, 4000], feeBps=0)
    world.commit(a, b)
    world.close()
    world.submit([(b, 7000)])
    world.settle()
    assert (world.owed(a), world.owed(b), world.owed(world.sponsor)) == (0, ETHER * 6 // 10, ETHER * 4 // 10)


def test_ties_go_to_the_earlier_commitment_then_to_the_lower_address(world: EvmWorld) -> None:
    a, b, c, d = world.agents[:4]
    world.open(split=[4000, 3000, 2000, 1000], feeBps=0)
    world.commit(d)
    world.chain.at(world.chain.now + 10)
    world.chain.ask("evm_setAutomine", False)
    for agent in (c, a):
        world.round.functions.commit(b"\1" * 32).transact({"from": agent, **FREE})
    world.chain.ask("evm_mine")
    world.chain.ask("evm_setAutomine", True)
    world.chain.at(world.chain.now + 10)
    world.commit(b)
    assert world.round.functions.committedAt(a).call() == world.round.functions.committedAt(c).call()
    world.close()
    world.submit([(agent, 7000) for agent in (a, b, c, d)])
    world.settle()
    assert sorted((a, b, c, d), key=world.owed, reverse=True) == [d, a, c, b]


def test_preview_is_what_settle_does(world: EvmWorld) -> None:
    a, b, c = world.agents[:3]
    world.open()
    world.commit(a, b)
    scores = [(a, 5600), (b, 4000), (c, 10_000)]
    tier, released, places, fees, refund = world.round.functions.preview(scored(scores)).call()
    assert (tier, released) == (5000, ETHER // 2)
    assert [(agent, bps) for agent, bps, _, _ in places] == [(a, 5600), (b, 4000)]
    world.close()
    world.submit([(a, 5600), (b, 4000)])
    world.settle()
    for agent, _, gross, fee in places:
        assert world.owed(agent) == gross - fee
    assert (world.owed(world.collector), world.owed(world.sponsor)) == (fees, refund)


def test_one_account_in_several_parts_is_owed_all_of_them(world: EvmWorld) -> None:
    sponsor = world.sponsor
    world.open(feeRecipient=sponsor, split=[5000, 5000])
    world.commit(sponsor)
    world.close()
    world.submit([(sponsor, 7000)])
    world.settle()
    assert world.claim(sponsor) == ETHER


# Claiming


def test_what_is_owed_is_fetched_once_and_by_nobody_else(world: EvmWorld) -> None:
    a, b = world.agents[:2]
    world.open(split=[10_000], feeBps=0)
    with refused("NothingOwed", a):
        world.chain.send(world.round.functions.claim(a), a)
    world.commit(a, b)
    world.close()
    world.submit([(a, 8000), (b, 7500)])
    world.settle()
    with refused("NothingOwed", b):
        world.chain.send(world.round.functions.claim(b), b)
    assert world.claim(a, to=world.agents[5]) == ETHER
    with refused("NothingOwed", a):
        world.chain.send(world.round.functions.claim(a), a)


def test_what_nobody_fetches_stays_there(world: EvmWorld) -> None:
    a = world.agents[0]
    world.open(split=[10_000], feeBps=0)
    world.commit(a)
    world.close()
    world.submit([(a, 7000)])
    world.settle()
    world.chain.at(world.chain.now + 50 * 365 * 24 * HOUR)
    assert world.claim(a) == ETHER


def test_it_says_nothing_that_its_events_do_not(world: EvmWorld) -> None:
    """The round's whole state, built again from its log."""
    a, b, c = world.agents[:3]
    world.open()
    world.commit(a, b, c)
    world.close()
    world.submit([(a, 9000), (b, 8000), (c, 1000)])
    world.settle()
    world.claim(b)
    log: Any = world.round.events
    committed = {get_log["args"]["agent"]: get_log["args"]["commitment"] for get_log in log.Committed().get_logs(from_block=0)}
    settled = log.Settled().get_logs(from_block=0)[0]["args"]
    owed: dict[str, int] = {world.collector: settled["fees"], world.sponsor: settled["refund"]}
    for args in (each["args"] for each in log.Placed().get_logs(from_block=0)):
        owed[args["agent"]] = owed.get(args["agent"], 0) + args["gross"] - args["fee"]
    for args in (each["args"] for each in log.Claimed().get_logs(from_block=0)):
        owed[args["account"]] -= args["amount"]
    assert committed == {agent: world.round.functions.commitmentOf(agent).call() for agent in (a, b, c)}
    assert {account: world.owed(account) for account in owed} == owed
    assert sum(owed.values()) == world.round.functions.held().call() == world.chain.balance(world.round.address)
