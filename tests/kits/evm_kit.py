"""A chain for tests: anvil, the contracts on it, and a world of a bounty with its people.

Anvil and the contracts of the tests are there by `tools/contracts`, which this calls: quick where nothing has changed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from web3 import HTTPProvider, Web3
from web3.exceptions import ContractCustomError, ContractLogicError, Web3RPCError
from web3.logs import DISCARD
from web3.types import RPCEndpoint

from assay.publish.evm.contracts import DEPLOYER, ORACLE, ROUND, address_of, making

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "contracts"
CHAIN_ID = 31337
START = 1_900_000_000
"""The time of the first block; the chain's clock runs on from it."""
HOUR = 3600
ETHER = 10**18
NOBODY = "0x" + "00" * 20
BOUNTY = b"\xb0" * 32
RECEIPT = b"\xec" * 32
FREE: dict[str, Any] = {"maxFeePerGas": 0, "maxPriorityFeePerGas": 0}
"""Gas costs nothing, so that amounts come out even."""
OPTIONS = ("--block-base-fee-per-gas", "0", "--disable-min-priority-fee", "--enable-tx-gas-limit", "--accounts", "24")
"""Of a node where gas is free, and a transaction has the gas that chains allow."""
REFUSALS = (ContractCustomError, ContractLogicError, Web3RPCError)
"""The exceptions of web3 for a contract that refuses."""
TIERS = ((10_000, 10_000), (8_000, 5_000), (5_000, 2_500))


@cache
def built() -> Path:
    """The folder with every contract, those of the tests too; anvil is installed with them."""
    done = subprocess.run(
        ["bash", str(ROOT / "tools" / "contracts")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, f"tools/contracts failed:\n{done.stdout}"
    return BUILT


@cache
def compiled(name: str) -> dict[str, Any]:
    artifact: dict[str, Any] = json.loads((built() / "tested" / f"{name}.json").read_text())
    return artifact


def anvil_program() -> str:
    built()
    ours = ROOT / "contracts" / "node_modules" / "@foundry-rs" / "anvil-linux-amd64" / "bin" / "anvil"
    program = str(ours) if ours.exists() else shutil.which("anvil")
    assert program, "anvil is neither in contracts/node_modules nor on the PATH"
    return program


class Anvil:
    """A node of our own, at a port that was free."""

    def __init__(self, folder: Path, *options: str, chain_id: int = CHAIN_ID) -> None:
        self.log = folder / f"anvil-{os.getpid()}-{chain_id}-{time.monotonic_ns()}.log"
        words = [anvil_program(), "--port", "0", "--chain-id", str(chain_id), "--timestamp", str(START), "--balance", "1000000"]
        if shutil.which("setpriv"):  # it does not outlive a test run that was killed
            words = ["setpriv", "--pdeathsig", "KILL", *words]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*words, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.url = f"http://127.0.0.1:{self._port()}"

    def _port(self) -> int:
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            match = re.search(r"Listening on 127\.0\.0\.1:(\d+)", self.log.read_text(errors="replace"))
            if match:
                return int(match[1])
            time.sleep(0.02)
        raise AssertionError(f"anvil did not start:\n{self.log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def anvil(folder: Path, *options: str, chain_id: int = CHAIN_ID) -> Iterator[Anvil]:
    node = Anvil(folder, *options, chain_id=chain_id)
    try:
        yield node
    finally:
        node.stop()


class AnvilChain:
    """A node that tests drive: its accounts are unlocked, each transaction is a block."""

    def __init__(self, url: str) -> None:
        self.url = url
        # web3 asks for the chain before and after each call, which is more than half of all requests: it is asked once.
        provider = HTTPProvider(
            url, request_kwargs={"timeout": 60}, cache_allowed_requests=True, cacheable_requests={RPCEndpoint("eth_chainId")}
        )
        self.w3: Any = Web3(provider)
        self.accounts: list[str] = [str(account) for account in self.w3.eth.accounts[:24]]
        self.gas_used = 0
        """The gas of the transaction that made the last contract."""

    def ask(self, method: str, *params: Any) -> Any:
        answer = self.w3.provider.make_request(RPCEndpoint(method), list(params))
        assert "error" not in answer, answer
        return answer["result"]

    @property
    def now(self) -> int:
        return int(self.w3.eth.get_block("latest")["timestamp"])

    def at(self, time: int) -> None:
        """A block with this time."""
        self.ask("evm_setNextBlockTimestamp", time)
        self.ask("evm_mine")

    def contract(self, name: str, address: str) -> Any:
        return self.w3.eth.contract(address=Web3.to_checksum_address(address), abi=compiled(name)["abi"])

    def deploy(self, name: str, *args: Any, by: str | None = None) -> Any:
        artifact = compiled(name)
        factory = self.w3.eth.contract(abi=artifact["abi"], bytecode=artifact["bytecode"])
        receipt = self.send(factory.constructor(*args), by)
        return self.contract(name, receipt["contractAddress"])

    def make(self, name: str, *args: Any, by: str | None = None) -> Any:
        """The contract at the address that follows from its code, as ours are made."""
        artifact = compiled(name)
        data = self.w3.eth.contract(abi=artifact["abi"], bytecode=artifact["bytecode"]).constructor(*args).data_in_transaction
        code = bytes.fromhex(str(data).removeprefix("0x"))
        sender = {"from": by or self.accounts[0], **FREE}
        self.w3.eth.call(sender | {"data": data})  # the deployer does not say what a constructor refused with
        self.gas_used = 0
        if not self.w3.eth.get_code(address_of(code)):
            hashed = self.w3.eth.send_transaction(sender | {"to": DEPLOYER, "data": making(code)})
            receipt = self.w3.eth.wait_for_transaction_receipt(hashed, timeout=60, poll_latency=0.01)
            assert receipt["status"] == 1
            self.gas_used = int(receipt["gasUsed"])
        return self.contract(name, address_of(code))

    def send(self, call: Any, by: str | None = None, value: int = 0, **more: Any) -> Any:
        """The receipt; raises what the contract raised."""
        hashed = call.transact({"from": by or self.accounts[0], "value": value, **FREE, **more})
        receipt = self.w3.eth.wait_for_transaction_receipt(hashed, timeout=60, poll_latency=0.01)
        if receipt["status"] != 1:
            raise ContractLogicError("it was refused when it was mined, and not when it was tried: the clock had gone on")
        return receipt

    def balance(self, account: str, token: Any = None) -> int:
        return int(self.w3.eth.get_balance(account) if token is None else token.functions.balanceOf(account).call())


def events(contract: Any, name: str, receipt: Any) -> list[dict[str, Any]]:
    """The values of a contract's events of this name in a transaction."""
    return [dict(event["args"]) for event in contract.events[name]().process_receipt(receipt, errors=DISCARD)]


@cache
def errors() -> dict[str, dict[str, Any]]:
    """Selector → the error of any contract."""
    by_selector = {}
    for path in sorted((built() / "tested").glob("*.json")):
        for load in json.loads(path.read_text())["abi"]:
            if load["type"] == "error":
                signature = f"{load['name']}({','.join(part['type'] for part in load['inputs'])})"
                by_selector["0x" + Web3.keccak(text=signature)[:4].hex()] = load
    return by_selector


@contextmanager
def refused(name: str, *args: Any) -> Iterator[None]:
    """The contract raises this error; with these values, if any are given."""
    with pytest.raises(REFUSALS) as caught:
        yield
    data = getattr(caught.value, "data", None)
    assert isinstance(data, str), caught.value
    known = errors().get(data[:10])
    assert known is not None, f"an unknown error {data}"
    assert known["name"] == name, f"{known['name']} rather than {name}"
    if args:
        types = [part["type"] for part in known["inputs"]]
        values = Web3().codec.decode(types, bytes.fromhex(data[10:]))
        assert tuple(value.lower() if isinstance(value, str) else value for value in values) == tuple(
            arg.lower() if isinstance(arg, str) else arg for arg in args
        )


@dataclass
class EvmWorld:
    """The oracle, a round of a sponsor with its scorer, and agents."""

    chain: AnvilChain
    oracle: Any
    round: Any = None
    token: Any = None
    terms: dict[str, Any] = field(default_factory=dict)

    @property
    def admin(self) -> str:
        return self.chain.accounts[0]

    @property
    def sponsor(self) -> str:
        return self.chain.accounts[1]

    @property
    def scorer(self) -> str:
        return self.chain.accounts[2]

    @property
    def collector(self) -> str:
        return self.chain.accounts[3]

    @property
    def agents(self) -> list[str]:
        """By address, as the oracle takes them."""
        return sorted(self.chain.accounts[4:], key=str.lower)

    def make(self, **changes: Any) -> Any:
        """A round with these terms, not funded yet."""
        now = self.chain.now
        self.terms = {
            "bounty": BOUNTY,
            "sponsor": self.sponsor,
            "token": NOBODY if self.token is None else self.token.address,
            "deposit": ETHER,
            "scorer": self.scorer,
            "feeRecipient": self.collector,
            "feeBps": 250,
            "thresholdBps": 7000,
            "commitUntil": now + HOUR,
            "scoreUntil": now + 2 * HOUR,
            "tiers": TIERS,
            "split": [6000, 3000, 1000],
        } | changes
        self.round = self.chain.make(ROUND, tuple(self.terms.values()), by=self.sponsor)
        return self.round

    def fund(self, by: str | None = None) -> None:
        by = by or self.sponsor
        if self.token is None:
            self.chain.send(self.round.functions.fund(), by, self.terms["deposit"])
        else:
            self.chain.send(self.token.functions.mint(by, self.terms["deposit"]), by)
            self.chain.send(self.token.functions.approve(self.round.address, self.terms["deposit"]), by)
            self.chain.send(self.round.functions.fund(), by)

    def open(self, **changes: Any) -> Any:
        self.make(**changes)
        self.fund()
        return self.round

    def commit(self, *agents: str) -> None:
        for agent in agents:
            self.chain.send(self.round.functions.commit(Web3.keccak(text=agent)), agent)

    def close(self) -> None:
        """On to where scores are taken."""
        self.chain.at(self.terms["commitUntil"] + 1)

    def expire(self) -> None:
        """On to where they are not taken any more."""
        self.chain.at(self.terms["scoreUntil"] + 1)

    def submit(self, scores: Sequence[tuple[str, int]], by: str | None = None) -> Any:
        return self.chain.send(self.submission(scores), by or self.scorer)

    def submission(self, scores: Sequence[tuple[str, int]], receipt: bytes = RECEIPT) -> Any:
        return self.oracle.functions.submit(self.round.address, receipt, scored(scores))

    def scores(self, scorer: str | None = None) -> Any:
        """Receipt and rows, as the oracle has them of the round's scorer."""
        return self.oracle.functions.scoresOf(self.round.address, scorer or self.terms["scorer"]).call()

    def settle(self) -> Any:
        return self.chain.send(self.round.functions.settle())

    def owed(self, account: str) -> int:
        return int(self.round.functions.owed(account).call())

    def claim(self, account: str, to: str | None = None) -> int:
        """The amount that the receiver has more after a claim."""
        to = to or account
        before = self.chain.balance(to, self.token)
        receipt = self.chain.send(self.round.functions.claim(to), account)
        assert receipt["effectiveGasPrice"] == 0
        return self.chain.balance(to, self.token) - before


def scored(scores: Sequence[tuple[str, int]], attestation: bytes = bytes(32)) -> list[tuple[str, int, bytes]]:
    return [(agent, bps, attestation) for agent, bps in sorted(scores, key=lambda pair: pair[0].lower())]


def world(chain: AnvilChain) -> EvmWorld:
    return EvmWorld(chain, chain.make(ORACLE))
