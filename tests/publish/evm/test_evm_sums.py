"""The contracts pay what `settle` pays, to the last wei; and what goes in comes out, whatever order things happen in."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest
from eth_utils.abi import collapse_if_tuple
from web3 import Web3

from assay.exact import BPS, NANO
from assay.publish.evm.contracts import ORACLE
from assay.scheme.model import Payout, Tier
from assay.settle.reward import Payouts, pay
from depth import depth
from evm_kit import BOUNTY, ETHER, HOUR, NOBODY, REFUSALS, START, AnvilChain, world

CASES = depth(1_000, 10_000)
TIERS = Payout.model_fields["tiers"].default


def cases(seed: int, largest: int = 2**256 - 1) -> Iterator[tuple[Payout, list[int]]]:
    """Rules and scores (BPS, the best first): everyday ones, edges of every kind, and numbers as large as they come."""
    draw = random.Random(seed)
    while True:
        deposit = draw.choice(
            [draw.randint(1, 300), draw.randint(1, 10**18), ETHER, largest, draw.randint(1, largest), draw.randint(1, 20_000)]
        )
        threshold = draw.choice([draw.randint(1, BPS), 7000, 1, BPS, 3333])
        tiers = TIERS if draw.random() < 0.6 else _tiers(draw)
        rules = Payout(
            deposit=str(deposit),  # type: ignore[arg-type]  # as a file has it
            threshold_bps=threshold,
            split=_split(draw),
            fee_bps=draw.choice([0, 0, 250, BPS, draw.randint(0, BPS)]),
            tiers=tiers,
        )
        edges = [min(BPS, max(0, threshold * tier.reach_bps // BPS + draw.choice([-1, 0, 1]))) for tier in tiers]
        scores = [draw.choice([*edges, draw.randint(0, BPS), 0, BPS]) for _ in range(draw.randint(0, 6))]
        yield rules, sorted(scores, reverse=True)


def _split(draw: random.Random) -> tuple[int, ...]:
    cuts = sorted(draw.sample(range(1, BPS), draw.choice([0, 0, 1, 2, 3, 31])))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, BPS], strict=True))


def _tiers(draw: random.Random) -> tuple[Tier, ...]:
    count = draw.randint(1, 5)
    reaches = sorted(draw.sample(range(1, BPS + 1), count), reverse=True)
    releases = sorted((draw.randint(0, BPS) for _ in range(count)), reverse=True)
    return tuple(Tier(reach_bps=a, release_bps=b) for a, b in zip(reaches, releases, strict=True))


def settled(rules: Payout, scores: Sequence[int]) -> Payouts:
    return pay([score * (NANO // BPS) for score in scores], rules)


def terms_of(rules: Payout, **changes: Any) -> dict[str, Any]:
    return {
        "deposit": rules.deposit,
        "thresholdBps": rules.threshold_bps,
        "feeBps": rules.fee_bps,
        "tiers": [(tier.reach_bps, tier.release_bps) for tier in rules.tiers],
        "split": list(rules.split),
    } | changes


def test_the_largest_amounts_come_out_to_the_wei(chain: AnvilChain) -> None:
    """The arithmetic alone, where a deposit is as large as a number can be."""
    ask = asking(chain, chain.deploy("Sums"), "pay")
    all_cases = cases(5)
    seen = set()
    for _ in range(10):
        some = list(islice(all_cases, 200))
        rules = [tuple(terms_of(payout).values()) for payout, _ in some]
        answers = ask(rules, [scores for _, scores in some])
        for (payout, scores), (tier, released, places, fees, refund) in zip(some, answers, strict=True):
            expected = settled(payout, scores)
            assert (tier, released, fees, refund) == (expected.tier_bps, expected.released, expected.fees, expected.refund)
            assert [tuple(row) for row in places] == [(row.gross, row.fee) for row in expected.rows], (payout, scores)
            assert sum(gross - fee for gross, fee in places) + fees + refund == payout.deposit
            seen.add((tier, len(places)))
    assert len(seen) > 100


def asking(chain: AnvilChain, contract: Any, name: str) -> Callable[..., Any]:
    """A function that is asked with a great deal: past the layers of web3 that look at each value several times."""
    (function,) = (entry for entry in contract.abi if entry.get("name") == name)
    inputs, (output,) = (
        [collapse_if_tuple(field) for field in function["inputs"]],
        [collapse_if_tuple(field) for field in function["outputs"]],
    )
    selector = Web3.keccak(text=f"{name}({','.join(inputs)})")[:4]

    def ask(*values: Any) -> Any:
        data = selector + chain.w3.codec.encode(inputs, values)
        answer = chain.ask("eth_call", {"to": contract.address, "data": Web3.to_hex(data), "gas": hex(2**40)}, "latest")
        return chain.w3.codec.decode([output], bytes.fromhex(answer[2:]))[0]

    return ask


def test_thousands_of_rounds_come_out_to_the_wei(chain: AnvilChain) -> None:
    """Whole rounds: made, funded, committed to. Those who tie do so to the second, so that the address decides."""
    chain.make(ORACLE)
    stage = chain.deploy("Rehearsal")
    chain.send(stage.functions.grow(6))
    chain.ask("anvil_setBalance", stage.address, hex(2**200))
    hands = [str(stage.functions.hands(number).call()) for number in range(6)]
    ask = asking(chain, stage, "rehearse")
    all_cases, draw = cases(6, largest=2**190), random.Random(6)
    nothing = Payout.model_validate({"deposit": "0"})
    fixed = {"bounty": BOUNTY, "sponsor": chain.accounts[1], "token": NOBODY, "deposit": 0, "scorer": chain.accounts[2]}
    fixed |= {"feeRecipient": chain.accounts[3], "feeBps": 0, "thresholdBps": 0}
    fixed |= {"commitUntil": START + 300 * 24 * HOUR, "scoreUntil": START + 301 * 24 * HOUR} | terms_of(nothing)
    for _ in range(CASES // 50):
        some = list(islice(all_cases, 50))
        shuffled = [draw.sample(scores, len(scores)) for _, scores in some]
        terms = [tuple((fixed | terms_of(payout)).values()) for payout, _ in some]
        answers = ask(list(zip(terms, shuffled, strict=True)))
        for (payout, scores), given, (tier, released, places, fees, refund) in zip(some, shuffled, answers, strict=True):
            expected = settled(payout, scores)
            assert (tier, released, fees, refund) == (expected.tier_bps, expected.released, expected.fees, expected.refund)
            ranking = sorted(zip(given, hands, strict=False), key=lambda row: (-row[0], row[1].lower()))
            assert [(Web3.to_checksum_address(agent), *row) for agent, *row in places] == [
                (agent, bps, row.gross, row.fee) for (bps, agent), row in zip(ranking, expected.rows, strict=False)
            ]


class RoundRun:
    """A round in which things happen in some order, some of them refused; what it should hold is kept count of beside it."""

    def __init__(self, chain: AnvilChain, draw: random.Random) -> None:
        self.world, self.draw = world(chain), draw
        if draw.random() < 0.3:
            self.world.token = chain.deploy("GoodToken")
        rules, _ = next(cases(draw.randrange(2**32), largest=10**23))
        self.rules = rules
        self.world.make(**terms_of(rules, tiers=[(tier.reach_bps, tier.release_bps) for tier in rules.tiers]))
        self.committed: dict[str, int] = {}
        self.scores: dict[str, int] | None = None
        self.settled = False
        self.funded = 0
        self.paid: dict[str, int] = {}

    def step(self) -> None:
        action = self.draw.choice(
            [self.fund, self.commit, self.commit, self.commit, self.wait, self.submit, self.settle, self.claim]
        )
        with suppress(*REFUSALS):  # a step out of order is refused, and changes nothing
            action()
        self.check()

    def fund(self) -> None:
        self.world.fund()
        self.funded = self.world.terms["deposit"]

    def commit(self) -> None:
        agent = self.draw.choice(self.world.agents[:6])
        self.world.commit(agent)
        self.committed[agent] = self.world.chain.now

    def wait(self) -> None:
        self.world.chain.at(self.world.chain.now + self.draw.choice([60, HOUR // 2, HOUR]))

    def submit(self) -> None:
        if self.draw.random() < 0.5 and self.funded and self.world.chain.now <= self.world.terms["commitUntil"]:
            self.world.close()
        judged = {agent: self.draw.choice([0, BPS, 5000, 7000, self.draw.randint(0, BPS)]) for agent in self.committed}
        judged = {agent: bps for agent, bps in judged.items() if self.draw.random() < 0.8}
        self.world.submit(list(judged.items()))
        self.scores = judged

    def settle(self) -> None:
        self.world.settle()
        self.settled = True
        # What is owed is what `settle` of this package says.
        ranking = sorted((self.scores or {}).items(), key=lambda row: (-row[1], self.committed[row[0]], row[0].lower()))
        expected = settled(self.rules, [bps for _, bps in ranking])
        owed: dict[str, int] = {}
        for (agent, _), row in zip(ranking, expected.rows, strict=False):
            owed[agent] = owed.get(agent, 0) + row.net
        for account, amount in ((self.world.collector, expected.fees), (self.world.sponsor, expected.refund)):
            owed[account] = owed.get(account, 0) + amount
        assert {account: self.world.owed(account) for account in owed} == owed

    def claim(self) -> None:
        account = self.draw.choice([self.world.sponsor, self.world.collector, *self.world.agents[:6]])
        self.paid[account] = self.paid.get(account, 0) + self.world.claim(account)

    def check(self) -> None:
        held = self.world.chain.balance(self.world.round.address, self.world.token)
        assert held == self.world.round.functions.held().call() == self.funded - sum(self.paid.values())
        if self.settled:
            everybody = [self.world.sponsor, self.world.collector, *self.world.agents[:6]]
            assert sum(map(self.world.owed, everybody)) == held

    def finish(self) -> None:
        """Whatever happened, a round that was funded gives all of it back in the end."""
        if not self.funded:
            return
        if not self.settled:
            if self.world.chain.now <= self.world.terms["scoreUntil"]:
                self.world.expire()
            self.settle()
        for account in [self.world.sponsor, self.world.collector, *self.world.agents[:6]]:
            if self.world.owed(account):
                self.paid[account] = self.paid.get(account, 0) + self.world.claim(account)
        self.check()
        assert sum(self.paid.values()) == self.funded


def runs(chain: AnvilChain, count: int, steps: int, seed: int) -> None:
    settled = 0
    for number in range(count):
        begun = chain.ask("evm_snapshot")
        run = RoundRun(chain, random.Random(seed + number))
        for _ in range(steps):
            run.step()
        run.finish()
        settled += run.settled
        chain.ask("evm_revert", begun)
    assert settled > count // 3


@pytest.mark.full
def test_what_goes_in_comes_out_in_whatever_order(chain: AnvilChain) -> None:
    runs(chain, depth(4, 12), steps=25, seed=100)


@pytest.mark.full
def test_what_goes_in_comes_out_for_long(chain: AnvilChain) -> None:
    runs(chain, 400, steps=30, seed=1000)


def test_addresses_are_ordered_as_their_keys_are() -> None:
    """Ties go by key (SPEC 2.1): where the key is the address in lower case, that is the order of the contract."""
    draw = random.Random(1)
    addresses = [Web3.to_checksum_address(draw.randbytes(20)) for _ in range(1000)]
    assert sorted(addresses, key=lambda address: address.lower().encode()) == sorted(
        addresses, key=lambda address: int(address, 16)
    )
