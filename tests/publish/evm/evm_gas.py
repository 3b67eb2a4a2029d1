"""What each call of a bounty's contracts costs in gas, measured on a node of our own: the table of docs/evm.md.

PYTHONPATH=tests/kits python tests/publish/evm/evm_gas.py      write it again
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from web3 import Web3

import evm_kit
from assay.publish.evm.contracts import ORACLE, ROUND
from evm_kit import ETHER, FREE, NOBODY, START, TIERS, AnvilChain, EvmWorld

PAGE = evm_kit.ROOT / "docs" / "evm.md"
MARKS = re.compile(r"(<!-- gas: .* -->\n).*?(<!-- /gas -->)", re.DOTALL)
DAY = 86_400
FULL = b"\xab" * 32
"""A digest without a zero byte: these would be cheaper."""


class Measured:
    """Rounds of one size each, at times of their own, so that every run costs the same."""

    def __init__(self, chain: AnvilChain) -> None:
        self.chain, self.day = chain, 1
        oracle = chain.make(ORACLE)
        self.oracle_gas = chain.gas_used
        self.world = EvmWorld(chain, oracle)

    def round(self, split: list[int], token: Any = None) -> int:
        """A new one, not funded; the gas."""
        self.day += 10
        self.chain.at(START + self.day * DAY)
        self.world.token = token
        times = {"commitUntil": START + (self.day + 1) * DAY, "scoreUntil": START + (self.day + 2) * DAY}
        accounts = self.chain.accounts
        fields = {"bounty": FULL, "sponsor": accounts[1], "token": NOBODY if token is None else token.address, "deposit": ETHER}
        fields |= {"scorer": accounts[2], "feeRecipient": accounts[3], "feeBps": 250}
        self.world.terms = fields | {"thresholdBps": 7000} | times | {"tiers": TIERS, "split": split}
        self.world.round = self.chain.make(ROUND, tuple(self.world.terms.values()), by=accounts[1])
        return self.chain.gas_used

    def call(self, name: str, *values: Any, by: int = 1, value: int = 0) -> int:
        return int(self.chain.send(self.world.round.functions[name](*values), self.chain.accounts[by], value)["gasUsed"])

    def fund(self) -> int:
        token, accounts = self.world.token, self.chain.accounts
        if token is None:
            return self.call("fund", value=ETHER)
        self.chain.send(token.functions.mint(accounts[1], 2 * ETHER))
        self.chain.send(token.functions.approve(self.world.round.address, 2 * ETHER), accounts[1])
        return self.call("fund")

    def commit(self, agents: list[str]) -> int:
        """The gas of the last."""
        gas = 0
        for agent in agents:
            self.chain.ask("anvil_impersonateAccount", agent)
            receipt = self.chain.send(self.world.round.functions.commit(FULL), agent, gas=100_000)
            self.chain.ask("anvil_stopImpersonatingAccount", agent)
            gas = int(receipt["gasUsed"])
        return gas

    def submit(self, agents: list[str]) -> int:
        self.world.close()
        rows = [(agent, 5000 + number, FULL) for number, agent in enumerate(agents)]
        call = self.world.oracle.functions.submit(self.world.round.address, FULL, rows)
        return int(self.chain.send(call, self.chain.accounts[2])["gasUsed"])

    def settle(self) -> int:
        return self.call("settle")


def agents(count: int) -> list[str]:
    return sorted((Web3.to_checksum_address(Web3.keccak(text=str(number))[:20]) for number in range(count)), key=str.lower)


def rows(chain: AnvilChain) -> Iterator[tuple[str, str, int]]:
    """What, how much of it, and the gas."""
    measured = Measured(chain)
    yield "make an oracle", "", measured.oracle_gas
    yield "`create`", "1 place", measured.round([10_000])
    yield "`fund`", "the chain's own coin", measured.fund()
    few = [*agents(9), chain.accounts[10]]
    few.sort(key=str.lower)
    yield "`commit`", "", measured.commit(few)
    yield "publish", "10 agents", measured.submit(few)
    yield "`settle`", "10 agents, 1 place", measured.settle()
    winner = few[-1]
    chain.ask("anvil_impersonateAccount", winner)
    receipt = chain.send(measured.world.round.functions.claim(winner), winner)
    chain.ask("anvil_stopImpersonatingAccount", winner)
    yield "`claim`", "the chain's own coin", int(receipt["gasUsed"])
    token = chain.deploy("GoodToken")
    measured.round([10_000], token)
    yield "`fund`", "a token, after its `approve`", measured.fund()
    measured.world.close()
    yield "`settle`", "nobody committed: a refund", measured.settle()
    yield "`claim`", "a token", measured.call("claim", chain.accounts[1])
    many = agents(200)
    yield "`create`", "32 places", measured.round([312] * 31 + [10_000 - 31 * 312])
    measured.fund()
    chain.ask("evm_setAutomine", False)
    for each in many:
        chain.ask("anvil_impersonateAccount", each)
        measured.world.round.functions.commit(FULL).transact({"from": each, "gas": 100_000, **FREE})
        chain.ask("anvil_stopImpersonatingAccount", each)
    chain.ask("evm_mine")
    chain.ask("evm_setAutomine", True)
    yield "publish", "200 agents", measured.submit(many)
    yield "`settle`", "200 agents, 32 places", measured.settle()


def table(chain: AnvilChain) -> str:
    lines = ["| call | of what size | gas |", "|---|---|--:|"]
    return "\n".join([*lines, *(f"| {what} | {size} | {gas:,} |" for what, size, gas in rows(chain))]) + "\n"


def filled(text: str, chain: AnvilChain) -> str:
    """The page with the table as it is now."""
    assert MARKS.search(text)
    return MARKS.sub(lambda match: match[1] + table(chain) + match[2], text)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, evm_kit.anvil(Path(folder), *evm_kit.OPTIONS) as node:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), AnvilChain(node.url)), encoding="utf-8")


if __name__ == "__main__":
    main()
