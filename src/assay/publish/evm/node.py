"""A node, as far as it is needed here: what it knows of blocks, accounts and transactions, and what contracts answer.

A node that answers a question with an error (too many of them, a method that it does not have) is Unreachable: nothing follows
from it. Only where a no is an answer (`call`, `gas`, `send`) does it stay one: Reverted, where a contract said it, or RpcError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assay.errors import Unreachable
from assay.publish.evm.contracts import Reverted, artifact
from assay.publish.evm.libraries import checksum, web3
from assay.publish.rpc import HttpRpc, RpcError

_HEX = re.compile(r"0x[0-9a-fA-F]*")
_HASH = re.compile(r"0x[0-9a-fA-F]{64}")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
COUNT = 2**53
"""Blocks, seconds and transactions of an account are fewer, on any chain: what is written down stays a number of JSON's."""


_OTHER_NODE = "do this again later, or name another node"


@dataclass(frozen=True, slots=True)
class Block:
    """A block: number, hash, time (seconds since 1970), and what a unit of gas costs at least (wei; None before EIP-1559)."""

    number: int
    hash: str
    time: int
    base_fee: int | None


@dataclass(frozen=True, slots=True)
class Mined:
    """Where a transaction is, and whether it did what it should."""

    block: int
    block_hash: str
    fine: bool
    contract: str | None


@dataclass(frozen=True, slots=True)
class EventLog:
    """Where an event is: its block, and the transaction that it came of."""

    block: int
    transaction: str


class EvmNode:
    """A node at an address. What it answers that cannot be right is no answer: Unreachable."""

    def __init__(self, url: str, *, seconds: float = 20.0) -> None:
        self.http = HttpRpc(url, seconds=seconds)

    @cached_property
    def codec(self) -> Any:
        """How values are put into bytes, and taken out."""
        return web3()().codec

    def chain_id(self) -> int:
        """Which chain it is of."""
        return self._number(self._read("eth_chainId"))

    def block(self, at: int | str = "latest") -> Block | None:
        """A block by its number, or the latest; None if there is none yet."""
        found = self._read("eth_getBlockByNumber", at if isinstance(at, str) else hex(at), False)
        if found is None:
            return None
        found = self._object(found)
        fee = found.get("baseFeePerGas")
        number, time = self._count(found.get("number")), self._count(found.get("timestamp"))
        return Block(number, self._text(found.get("hash"), _HASH), time, None if fee is None else self._number(fee))

    def head(self) -> Block:
        """The latest block."""
        found = self.block()
        if found is None:
            raise self._nonsense()
        return found

    def code(self, address: str) -> bytes:
        """The code at an address; empty where there is no contract."""
        return self._bytes(self._read("eth_getCode", address, "latest"))

    def balance(self, address: str) -> int:
        """What an account has of the chain's own coin, in wei."""
        return self._number(self._read("eth_getBalance", address, "latest"))

    def count(self, account: str, at: int | str = "latest") -> int:
        """How many transactions of an account there are up to a block: the next one's nonce."""
        return self._count(self._read("eth_getTransactionCount", account, at if isinstance(at, str) else hex(at)))

    def mined(self, transaction: str) -> Mined | None:
        """Where a transaction is; None if it is in no block, as far as the node knows."""
        found = self._read("eth_getTransactionReceipt", transaction)
        if found is None or self._object(found).get("blockNumber") is None:
            return None
        made = found.get("contractAddress")
        return Mined(
            self._count(found["blockNumber"]),
            self._text(found.get("blockHash"), _HASH),
            self._number(found.get("status")) == 1,
            None if made is None else checksum(self._text(made, _ADDRESS)),
        )

    def knows(self, transaction: str) -> bool:
        """Whether the node has a transaction, mined or waiting."""
        return self._read("eth_getTransactionByHash", transaction) is not None

    def tip(self) -> int:
        """What the node would give a miner for a unit of gas, in wei; 0 if it has no opinion."""
        try:
            return self._number(self.http.ask("eth_maxPriorityFeePerGas"))
        except RpcError:
            return 0

    def gas(self, sender: str, to: str | None, data: bytes, value: int) -> int:
        """How much gas a call would take now; raises Reverted, and RpcError where the node says something else."""
        return self._number(self._asked("eth_estimateGas", _call(sender, to, data, value)))

    def call(self, to: str | None, data: bytes, *, sender: str | None = None, value: int = 0, at: int | str = "latest") -> bytes:
        """What a call would return, made by nobody and changing nothing; raises Reverted and RpcError."""
        block = at if isinstance(at, str) else hex(at)
        return self._bytes(self._asked("eth_call", _call(sender, to, data, value), block))

    def send(self, raw: bytes) -> None:
        """Hand a signed transaction over; raises RpcError."""
        self.http.ask("eth_sendRawTransaction", f"0x{raw.hex()}")

    def logs(self, address: str, topics: Sequence[str | None], first: int = 0) -> list[EventLog]:
        """The events of a contract, in order."""
        asked = {"address": address, "topics": list(topics), "fromBlock": hex(first), "toBlock": "latest"}
        found = self._read("eth_getLogs", asked)
        if not isinstance(found, list):
            raise self._nonsense()
        rows = [self._object(one) for one in found]
        return [EventLog(self._count(row.get("blockNumber")), self._text(row.get("transactionHash"), _HASH)) for row in rows]

    def _read(self, method: str, *params: Any) -> Any:
        """What a question with an answer is answered with."""
        try:
            return self.http.ask(method, *params)
        except RpcError as error:
            raise Unreachable(f"{self.http.host} does not answer {method}: {error.message}", hint=_OTHER_NODE) from None

    def _asked(self, method: str, *params: Any) -> Any:
        try:
            return self.http.ask(method, *params)
        except RpcError as error:
            data = _revert_data(error.data)
            if data is not None or "revert" in error.message.lower():
                raise Reverted(data or b"", error.message) from None
            raise

    def _number(self, value: object) -> int:
        if isinstance(value, str) and re.fullmatch("0x[0-9a-fA-F]{1,64}", value):
            return int(value, 16)
        raise self._nonsense()

    def _count(self, value: object) -> int:
        found = self._number(value)
        if found >= COUNT:
            raise self._nonsense()
        return found

    def _bytes(self, value: object) -> bytes:
        text = self._text(value)
        if len(text) % 2:
            raise self._nonsense()
        return bytes.fromhex(text[2:])

    def _text(self, value: object, shape: re.Pattern[str] = _HEX) -> str:
        if isinstance(value, str) and shape.fullmatch(value):
            return value
        raise self._nonsense()

    def _object(self, value: object) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        raise self._nonsense()

    def _nonsense(self) -> Unreachable:
        return Unreachable(f"{self.http.host} answers what cannot be", hint="is it a node of an Ethereum chain?")


class Contract:
    """A contract of ours at an address: its functions as bytes to send, and what it answers."""

    def __init__(self, node: EvmNode, name: str, address: str) -> None:
        self.node, self.name, self.address, self._artifact = node, name, checksum(address), artifact(name)

    def is_ours(self) -> bool:
        """Whether the code there is that which ships."""
        return self._artifact.is_at(self.node.code(self.address))

    def data(self, function: str, *values: Any) -> bytes:
        """The bytes of a call."""
        return encoded(self._artifact.abi, function, values, self.node.codec)

    def ask(self, function: str, *values: Any, at: int | str = "latest", sender: str | None = None) -> Any:
        """What a function returns: one value, or a tuple of several; raises Unreachable, also where it is said to refuse."""
        try:
            said = self.node.call(self.address, self.data(function, *values), at=at, sender=sender)
        except (Reverted, RpcError) as error:
            what = f"{self.node.http.host} does not tell {function} of {self.address}: {error}"
            raise Unreachable(what, hint=_OTHER_NODE) from None
        kinds = [_kind(one) for one in _entry(self._artifact.abi, function)["outputs"]]
        from eth_abi.exceptions import DecodingError

        try:
            found = self.node.codec.decode(kinds, said)
        except (DecodingError, OverflowError):
            raise Unreachable(f"{self.address} answers what it cannot", hint="is it the right address, on this chain?") from None
        return found[0] if len(found) == 1 else found

    def refusal(self, function: str, *values: Any) -> Reverted | None:
        """What a function that only checks refuses with; None if it does not. Raises Unreachable."""
        try:
            self.node.call(self.address, self.data(function, *values))
        except Reverted as error:
            return error
        except RpcError as error:
            what = f"{self.node.http.host} does not tell {function} of {self.address}: {error}"
            raise Unreachable(what, hint=_OTHER_NODE) from None
        return None


def encoded(abi: Sequence[dict[str, Any]], function: str, values: Sequence[Any], codec: Any) -> bytes:
    """The bytes of a call of a function; of a constructor (""), of its values alone."""
    entry = _entry(abi, function)
    kinds = [_kind(one) for one in entry["inputs"]]
    selector = web3().keccak(text=f"{function}({','.join(kinds)})")[:4] if function else b""
    return bytes(selector) + bytes(codec.encode(kinds, list(values)))


def _entry(abi: Sequence[dict[str, Any]], function: str) -> dict[str, Any]:
    if not function:
        return next(one for one in abi if one["type"] == "constructor")
    return next(one for one in abi if one["type"] == "function" and one["name"] == function)


def _kind(field: dict[str, Any]) -> str:
    """A field's type as signatures have it: a struct as its parts."""
    if not field["type"].startswith("tuple"):
        return str(field["type"])
    inner = ",".join(map(_kind, field["components"]))
    return f"({inner}){field['type'].removeprefix('tuple')}"


def _call(sender: str | None, to: str | None, data: bytes, value: int) -> dict[str, str]:
    said = {"data": f"0x{data.hex()}", "value": hex(value)}
    return said | ({} if sender is None else {"from": sender}) | ({} if to is None else {"to": to})


def _revert_data(data: object) -> bytes | None:
    """What a contract said, out of what a node made of it: every kind of node wraps it otherwise."""
    if isinstance(data, dict):
        data = data.get("data") or data.get("result")
    found = _HEX.search(data) if isinstance(data, str) else None
    if found is None or len(found[0]) % 2 or len(found[0]) < 10:
        return None
    return bytes.fromhex(found[0][2:])
