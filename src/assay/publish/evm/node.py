"""Asks a node of an Ethereum chain about blocks, accounts and transactions, and calls contracts through it.

An error of the node (rate limit, unknown method) raises Unreachable, because it says nothing about the chain. Only for `call`,
`gas` and `send` an error is an answer: Reverted if a contract gave it, otherwise RpcError.
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
"""Numbers of blocks, seconds and transactions are below this on any chain, so they are exact in JSON."""


_OTHER_NODE = "run this command again later, or name another node"


@dataclass(frozen=True, slots=True)
class Block:
    """A block: number, hash, time (seconds since 1970), and base fee (wei per gas; None before EIP-1559)."""

    number: int
    hash: str
    time: int
    base_fee: int | None


@dataclass(frozen=True, slots=True)
class Mined:
    """The block of a transaction, whether the transaction succeeded, and the contract that it created."""

    block: int
    block_hash: str
    succeeded: bool
    contract: str | None


@dataclass(frozen=True, slots=True)
class EventLog:
    """The block and the transaction of an event."""

    block: int
    transaction: str


class EvmNode:
    """A node at an address. An impossible answer raises Unreachable."""

    def __init__(self, url: str, *, seconds: float = 20.0) -> None:
        self.http = HttpRpc(url, seconds=seconds)

    @cached_property
    def codec(self) -> Any:
        """Encodes and decodes values by their ABI types."""
        return web3()().codec

    def chain_id(self) -> int:
        """The id of the node's chain."""
        return self._number(self._read("eth_chainId"))

    def block(self, at: int | str = "latest") -> Block | None:
        """A block by its number, or the latest; None if it does not exist yet."""
        answer = self._read("eth_getBlockByNumber", at if isinstance(at, str) else hex(at), False)
        if answer is None:
            return None
        block = self._object(answer)
        fee = block.get("baseFeePerGas")
        number, time = self._count(block.get("number")), self._count(block.get("timestamp"))
        return Block(number, self._text(block.get("hash"), _HASH), time, None if fee is None else self._number(fee))

    def head(self) -> Block:
        """The latest block."""
        block = self.block()
        if block is None:
            raise self._impossible()
        return block

    def code(self, address: str) -> bytes:
        """The code at an address; empty if there is no contract."""
        return self._bytes(self._read("eth_getCode", address, "latest"))

    def balance(self, address: str) -> int:
        """The balance of an account in the chain's own coin, in wei."""
        return self._number(self._read("eth_getBalance", address, "latest"))

    def count(self, account: str, at: int | str = "latest") -> int:
        """The number of an account's transactions up to a block, which is its next nonce."""
        return self._count(self._read("eth_getTransactionCount", account, at if isinstance(at, str) else hex(at)))

    def mined(self, transaction: str) -> Mined | None:
        """The block of a transaction; None if the node knows of none."""
        receipt = self._read("eth_getTransactionReceipt", transaction)
        if receipt is None or self._object(receipt).get("blockNumber") is None:
            return None
        contract = receipt.get("contractAddress")
        return Mined(
            self._count(receipt["blockNumber"]),
            self._text(receipt.get("blockHash"), _HASH),
            self._number(receipt.get("status")) == 1,
            None if contract is None else checksum(self._text(contract, _ADDRESS)),
        )

    def knows(self, transaction: str) -> bool:
        """Whether the node has a transaction, mined or waiting."""
        return self._read("eth_getTransactionByHash", transaction) is not None

    def tip(self) -> int:
        """The tip per gas that the node suggests, in wei; 0 if it suggests none."""
        try:
            return self._number(self.http.ask("eth_maxPriorityFeePerGas"))
        except RpcError:
            return 0

    def gas(self, sender: str, to: str | None, data: bytes, value: int) -> int:
        """The gas that a call would need now. Raises Reverted, and RpcError for any other error of the node."""
        return self._number(self._asked("eth_estimateGas", _call(sender, to, data, value)))

    def call(self, to: str | None, data: bytes, *, sender: str | None = None, value: int = 0, at: int | str = "latest") -> bytes:
        """The result of a call that is only simulated. Raises Reverted and RpcError."""
        block = at if isinstance(at, str) else hex(at)
        return self._bytes(self._asked("eth_call", _call(sender, to, data, value), block))

    def send(self, raw: bytes) -> None:
        """Give a signed transaction to the node. Raises RpcError."""
        self.http.ask("eth_sendRawTransaction", f"0x{raw.hex()}")

    def logs(self, address: str, topics: Sequence[str | None], first: int = 0) -> list[EventLog]:
        """The events of a contract, in order."""
        asked = {"address": address, "topics": list(topics), "fromBlock": hex(first), "toBlock": "latest"}
        answer = self._read("eth_getLogs", asked)
        if not isinstance(answer, list):
            raise self._impossible()
        rows = [self._object(row) for row in answer]
        return [EventLog(self._count(row.get("blockNumber")), self._text(row.get("transactionHash"), _HASH)) for row in rows]

    def _read(self, method: str, *params: Any) -> Any:
        """The answer to a question to which an error is no answer."""
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
        raise self._impossible()

    def _count(self, value: object) -> int:
        number = self._number(value)
        if number >= COUNT:
            raise self._impossible()
        return number

    def _bytes(self, value: object) -> bytes:
        text = self._text(value)
        if len(text) % 2:
            raise self._impossible()
        return bytes.fromhex(text[2:])

    def _text(self, value: object, shape: re.Pattern[str] = _HEX) -> str:
        if isinstance(value, str) and shape.fullmatch(value):
            return value
        raise self._impossible()

    def _object(self, value: object) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        raise self._impossible()

    def _impossible(self) -> Unreachable:
        return Unreachable(f"{self.http.host} sent an impossible answer", hint="is it a node of an Ethereum chain?")


class Contract:
    """A contract of ours at an address: encodes calls of its functions, and decodes their results."""

    def __init__(self, node: EvmNode, name: str, address: str) -> None:
        self.node, self.name, self.address, self._artifact = node, name, checksum(address), artifact(name)

    def is_ours(self) -> bool:
        """Whether the code at the address is the shipped code."""
        return self._artifact.is_at(self.node.code(self.address))

    def data(self, function: str, *values: Any) -> bytes:
        """The encoded call of a function."""
        return encoded(self._artifact.abi, function, values, self.node.codec)

    def ask(self, function: str, *values: Any, at: int | str = "latest", sender: str | None = None) -> Any:
        """The result of a function: one value, or a tuple of several. Raises Unreachable, even if the function reverts."""
        try:
            data = self.node.call(self.address, self.data(function, *values), at=at, sender=sender)
        except (Reverted, RpcError) as error:
            what = f"{self.node.http.host} does not answer {function} of {self.address}: {error}"
            raise Unreachable(what, hint=_OTHER_NODE) from None
        types = [_abi_type(output) for output in _entry(self._artifact.abi, function)["outputs"]]
        from eth_abi.exceptions import DecodingError

        try:
            decoded = self.node.codec.decode(types, data)
        except (DecodingError, OverflowError):
            what = f"{self.address} sent an impossible answer to {function}"
            raise Unreachable(what, hint="is it the right address, on this chain?") from None
        return decoded[0] if len(decoded) == 1 else decoded

    def refusal(self, function: str, *values: Any) -> Reverted | None:
        """The error of a function that only checks; None if it succeeds. Raises Unreachable."""
        try:
            self.node.call(self.address, self.data(function, *values))
        except Reverted as error:
            return error
        except RpcError as error:
            what = f"{self.node.http.host} does not answer {function} of {self.address}: {error}"
            raise Unreachable(what, hint=_OTHER_NODE) from None
        return None


def encoded(abi: Sequence[dict[str, Any]], function: str, values: Sequence[Any], codec: Any) -> bytes:
    """The encoded call of a function; for the constructor (""), only its encoded arguments."""
    entry = _entry(abi, function)
    types = [_abi_type(argument) for argument in entry["inputs"]]
    selector = web3().keccak(text=f"{function}({','.join(types)})")[:4] if function else b""
    return bytes(selector) + bytes(codec.encode(types, list(values)))


def _entry(abi: Sequence[dict[str, Any]], function: str) -> dict[str, Any]:
    if not function:
        return next(entry for entry in abi if entry["type"] == "constructor")
    return next(entry for entry in abi if entry["type"] == "function" and entry["name"] == function)


def _abi_type(field: dict[str, Any]) -> str:
    """The type of a field as in a function's signature, where a struct is the tuple of its parts."""
    if not field["type"].startswith("tuple"):
        return str(field["type"])
    inner = ",".join(map(_abi_type, field["components"]))
    return f"({inner}){field['type'].removeprefix('tuple')}"


def _call(sender: str | None, to: str | None, data: bytes, value: int) -> dict[str, str]:
    call = {"data": f"0x{data.hex()}", "value": hex(value)}
    return call | ({} if sender is None else {"from": sender}) | ({} if to is None else {"to": to})


def _revert_data(data: object) -> bytes | None:
    """A contract's error data, taken out of the error of a node; every kind of node wraps it differently."""
    if isinstance(data, dict):
        data = data.get("data") or data.get("result")
    match = _HEX.search(data) if isinstance(data, str) else None
    if match is None or len(match[0]) % 2 or len(match[0]) < 10:
        return None
    return bytes.fromhex(match[0][2:])
