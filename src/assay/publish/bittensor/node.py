"""Asks a node of a subtensor chain about blocks and the chain's state, and decodes the answers by the runtime's metadata.

Addresses are SS58. A block hash is `0x` and 64 hex digits; where None is given for one, the head of the chain is used. An
impossible answer raises Unreachable.

The runtime of the previous block wrote a block's state. So that runtime decodes it, even if the block brings a new runtime.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeGuard, TypeVar

from assay.errors import Unreachable
from assay.publish.bittensor.runtime import Runtime, StorageItem, core
from assay.publish.rpc import RpcError, WebSocketRpc

SPEC_NAME = "node-subtensor"
"""The name in the chain's runtimes."""
KEYS = 500
"""Most storage keys in one question."""
ROWS = 20_000
"""Most rows of one map."""
RUNTIMES = 4
"""Most runtimes in memory; an upgrade needs two."""
BLOCKS = 64
"""Most headers in memory; headers do not change."""
_V15 = "0x0f000000"
_HEX = re.compile("0x[0-9a-fA-F]*")  # without a group, which would need memory for each repetition
_HASH = re.compile("0x[0-9a-fA-F]{64}")
T = TypeVar("T")
K = TypeVar("K")
Item = tuple[str, str, Sequence[Any]]
"""An item of the chain's storage: pallet, name, and the keys of a map."""


@dataclass(frozen=True, slots=True)
class BlockId:
    """A block: its number, and its hash as `0x` and 64 hex digits."""

    number: int
    hash: str


class BittensorNode:
    """A node at an address, asked by one thread at a time. seconds: for one question in all."""

    def __init__(self, url: str, *, seconds: float = 20.0) -> None:
        self.wire = WebSocketRpc(url, seconds=seconds)
        self._runtimes: dict[int, Runtime] = {}
        self._headers: dict[str, dict[str, Any]] = {}
        self._specs: dict[str, int] = {}

    @property
    def host(self) -> str:
        """The part of the address that may be shown."""
        return self.wire.host

    def ask(self, method: str, *params: Any) -> Any:
        """The raw answer to a question that may be asked twice. Raises RpcError and Unreachable."""
        return self.wire.ask(method, *params)

    def close(self) -> None:
        """Drop the connection; the next question opens another."""
        self.wire.close()

    # blocks

    def genesis(self) -> str:
        """The hash of block 0, which identifies the chain."""
        genesis = self.block_hash(0)
        if genesis is None:
            raise self._impossible("chain_getBlockHash")
        return genesis

    def head(self) -> BlockId:
        """The newest block, which another block may still replace."""
        return self._block(self._hash(self._read("chain_getBlockHash"), "chain_getBlockHash"))

    def finalized(self) -> BlockId:
        """The newest final block."""
        return self._block(self._hash(self._read("chain_getFinalizedHead"), "chain_getFinalizedHead"))

    def block_hash(self, number: int) -> str | None:
        """The hash of the block with a number on the node's best chain; None if there is none yet."""
        answer = self._read("chain_getBlockHash", number)
        return None if answer is None else self._hash(answer, "chain_getBlockHash")

    def header(self, block: str) -> Mapping[str, Any]:
        """A block's header: number (an integer), parentHash, …; Unreachable if the node does not have the block."""
        if block not in self._headers:
            header = self._read("chain_getHeader", block)
            if header is None:
                raise Unreachable(f"{self.host} has no block {block}", hint="ask a node that keeps old blocks (an archive)")
            if not isinstance(header, dict):
                raise self._impossible("chain_getHeader")
            parent = self._hash(header.get("parentHash"), "chain_getHeader")
            number = self._number(header.get("number"), "chain_getHeader")
            _keep(self._headers, block, header | {"number": number, "parentHash": parent})
        return self._headers[block]

    def extrinsics(self, block: str) -> list[bytes]:
        """The transactions of a block, in order."""
        signed_block = self._read("chain_getBlock", block)
        if signed_block is None:
            raise Unreachable(f"{self.host} has no block {block}", hint="ask a node that keeps old blocks (an archive)")
        inner = signed_block.get("block") if isinstance(signed_block, dict) else None
        return self._many_bytes(inner.get("extrinsics") if isinstance(inner, dict) else None, "chain_getBlock")

    def events(self, block: str) -> list[dict[str, Any]]:
        """The chain's events of a block."""
        events = self.query("System", "Events", (), block)
        if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
            raise self._impossible("System.Events")
        return events

    # the chain's metadata

    def runtime(self, at: str | None = None) -> Runtime:
        """The runtime that makes the block after `at`, with metadata of version 15, otherwise 14."""
        block = at or self.head().hash
        runtime = self._runtimes.get(self._specs.get(block, -1))
        if runtime is None or not runtime.alive:
            version = self._read("state_getRuntimeVersion", block)
            if not isinstance(version, dict) or version.get("specName") != SPEC_NAME:
                raise Unreachable(f"{self.host} is not a node of a subtensor chain", final=True, hint="is the address right?")
            spec, transaction = version.get("specVersion"), version.get("transactionVersion")
            if not (_u32(spec) and _u32(transaction)):
                raise self._impossible("state_getRuntimeVersion")
            runtime = self._runtimes.get(spec)
            if runtime is None or not runtime.alive:
                make = partial(Runtime, self.host, self._metadata(block), spec, transaction)
                runtime = self._decoded("metadata", make)
                self._runtimes.pop(spec, None)
                _keep(self._runtimes, spec, runtime, RUNTIMES)
            _keep(self._specs, block, spec)
        return runtime

    def has(self, pallet: str, item: str, at: str | None = None) -> bool:
        """Whether the chain's storage has such an item."""
        try:
            self._writer(at or self.head().hash).storage_entry(pallet, item)
        except KeyError:
            return False
        return True

    def _metadata(self, block: str) -> bytes:
        """The metadata of a runtime, without their wrapping."""
        try:
            wrapped = self.ask("state_call", "Metadata_metadata_at_version", _V15, block)
        except RpcError:  # a runtime without metadata of version 15 does not have this function
            wrapped = None
        if wrapped is not None and self._bytes(wrapped, "state_call")[:1] != b"\x00":
            data = self._bytes(wrapped, "state_call")
        else:
            data = self._bytes(self._read("state_getMetadata", block), "state_getMetadata")
        begin = data[:16].find(b"meta")
        if begin < 0:
            raise self._impossible("metadata")
        return data[begin:]

    def _writer(self, block: str) -> Runtime:
        """The runtime that made a block and wrote its state."""
        header = self.header(block)
        return self.runtime(block if header["number"] == 0 else header["parentHash"])

    # the chain's state

    def query(self, pallet: str, item: str, params: Sequence[Any] = (), at: str | None = None) -> Any:
        """The stored value of one item, or the chain's default if nothing is stored. KeyError if there is no such item."""
        return self.query_many([(pallet, item, params)], at)[0]

    def query_many(self, items: Iterable[Item], at: str | None = None) -> list[Any]:
        """The stored values of several items, all at one block."""
        block = at or self.head().hash
        runtime = self._writer(block)
        wanted = [(runtime.storage_entry(pallet, item), pallet, item, list(params)) for pallet, item, params in items]
        named = runtime.many([("storage_key", (pallet, item, params)) for _, pallet, item, params in wanted])
        keys = [f"0x{key.hex()}" for key in named]
        raw = self._stored(keys, block)
        asked = [(entry, raw[key]) for (entry, *_), key in zip(wanted, keys, strict=True)]
        return self._decoded(", ".join(dict.fromkeys(item for _, _, item, _ in wanted)), partial(_values, runtime, asked))

    def map(self, pallet: str, item: str, params: Sequence[Any] = (), at: str | None = None) -> list[tuple[Any, Any]]:
        """The rows of a map below the first of its keys, `params`: the other key, or a tuple of them, and the value."""
        block = at or self.head().hash
        runtime = self._writer(block)
        prefix = f"0x{runtime.storage_key(pallet, item, list(params)).hex()}"
        keys: list[str] = []
        while True:
            page = self._read("state_getKeysPaged", prefix, KEYS, keys[-1] if keys else prefix, block)
            self._many_bytes(page, "state_getKeysPaged")
            rising = [*keys[-1:], *page]
            if len(page) > KEYS or any(key >= other for key, other in pairwise(rising)):
                raise self._impossible("state_getKeysPaged")
            if not all(key.startswith(prefix) and len(key) > len(prefix) for key in page):
                raise self._impossible("state_getKeysPaged")
            keys += page
            if len(keys) > ROWS:
                raise Unreachable(f"{self.host} has more than {ROWS} rows in {pallet}.{item}")
            if len(page) < KEYS:
                break
        raw = self._stored(keys, block)
        rows = [(bytes.fromhex(key[2:]), value) for key, value in raw.items() if value is not None]
        if len(rows) < len(keys):
            raise self._impossible("state_queryStorageAt")
        names, values = [key for key, _ in rows], [value for _, value in rows]
        decode = partial(runtime.decode_map_pairs, pallet, item, names, values, len(params))
        decoded: list[tuple[Any, Any]] = self._decoded("state_queryStorageAt", decode)
        return decoded

    def call(self, api: str, method: str, args: Sequence[Any] = (), at: str | None = None) -> Any:
        """The result of a function of the runtime; None if the runtime has no such function.

        Older runtimes return encoded bytes; for these the result is the bytes.
        """
        block = at or self.head().hash
        runtime = self.runtime(block)
        known = runtime.runtime_api_map().get(api, {}).get(method)
        if known is None:
            return None
        data = b"".join(runtime.encode(kind, value) for (_, kind), value in zip(known["inputs"], args, strict=True))
        raw = self._bytes(self._read("state_call", f"{api}_{method}", f"0x{data.hex()}", block), "state_call")
        if runtime.type_name_of(int(known["output"].removeprefix("scale_info::"))) == "Vec<u8>":
            return self._decoded(method, lambda: _inner(runtime, raw))
        return self._decoded(method, lambda: runtime.decode(known["output"], raw))

    def _stored(self, keys: Sequence[str], block: str) -> dict[str, bytes | None]:
        """The stored bytes of each key. The node must answer for every key."""
        stored: dict[str, bytes | None] = {}
        unique = list(dict.fromkeys(keys))
        for begin in range(0, len(unique), KEYS):
            asked = unique[begin : begin + KEYS]
            answer = self._read("state_queryStorageAt", asked, block)
            sets = [change for change in answer if isinstance(change, dict)] if isinstance(answer, list) else []
            rows = [row for change in sets if isinstance(change.get("changes"), list) for row in change["changes"]]
            if any(change.get("block") != block for change in sets) or not all(
                isinstance(row, list) and len(row) == 2 for row in rows
            ):
                raise self._impossible("state_queryStorageAt")
            there = {str(key): value for key, value in rows}
            if there.keys() != set(asked) or len(rows) != len(asked):
                raise self._impossible("state_queryStorageAt")
            for key in asked:
                stored[key] = None if there[key] is None else self._bytes(there[key], "state_queryStorageAt")
        return stored

    # accounts and transactions

    def nonce(self, account: bytes | str, at: str | None = None) -> int:
        """The number of transactions of an account (public key or address) up to a block, which is its next nonce."""
        address = account if isinstance(account, str) else core().encode_ss58(account)
        account_info = self.query("System", "Account", (address,), at)
        if not isinstance(account_info, dict) or not _u32(account_info.get("nonce")):
            raise self._impossible("System.Account")
        return int(account_info["nonce"])

    def submit(self, raw: bytes) -> str:
        """Give a signed transaction to the node, once, and return its hash.

        Raises RpcError, and Unreachable if it is not known whether the node got the transaction.
        """
        answer = self.wire.ask("author_submitExtrinsic", f"0x{raw.hex()}", twice=False)
        return self._hash(answer, "author_submitExtrinsic")

    def pending(self) -> list[bytes]:
        """The transactions in the node's pool."""
        return self._many_bytes(self._read("author_pendingExtrinsics"), "author_pendingExtrinsics")

    # answers

    def _read(self, method: str, *params: Any) -> Any:
        """The answer to a question that only reads. Raises Unreachable if the node refuses it."""
        try:
            return self.ask(method, *params)
        except RpcError as error:
            hint = "is the block too old? ask a node that keeps old state (an archive)"
            raise Unreachable(f"{self.host} refuses {method}: {error.message[:200]}", hint=hint) from None

    def _block(self, block: str) -> BlockId:
        return BlockId(int(self.header(block)["number"]), block)

    def _decoded(self, what: str, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except (ValueError, KeyError, OverflowError):
            raise self._impossible(what) from None

    def _hash(self, value: object, what: str) -> str:
        if isinstance(value, str) and _HASH.fullmatch(value):
            return value.lower()
        raise self._impossible(what)

    def _number(self, value: object, what: str) -> int:
        if isinstance(value, str) and re.fullmatch("0x0*[0-9a-fA-F]{1,13}", value):  # below 2**52
            return int(value, 16)
        raise self._impossible(what)

    def _bytes(self, value: object, what: str) -> bytes:
        if isinstance(value, str) and len(value) % 2 == 0 and _HEX.fullmatch(value):
            return bytes.fromhex(value[2:])
        raise self._impossible(what)

    def _many_bytes(self, value: object, what: str) -> list[bytes]:
        if not isinstance(value, list):
            raise self._impossible(what)
        return [self._bytes(item, what) for item in value]

    def _impossible(self, what: str) -> Unreachable:
        return Unreachable(f"{self.host} sent an impossible answer ({what})", hint="is it a node of a subtensor chain?")


def _keep(cache: dict[K, T], name: K, value: T, most: int = BLOCKS) -> None:
    """Remember a value, and forget the oldest if there are too many."""
    cache[name] = value
    while len(cache) > most:
        del cache[next(iter(cache))]


def _u32(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value < 2**32


def _values(runtime: Runtime, asked: Sequence[tuple[StorageItem, bytes | None]]) -> list[Any]:
    """The decoded value of each item, or its default if nothing is stored."""
    there = [raw is not None or entry.modifier != "Optional" for entry, raw in asked]
    calls = [
        ("decode", (entry.value_type, entry.default_bytes if raw is None else raw))
        for (entry, raw), is_there in zip(asked, there, strict=True)
        if is_there
    ]
    decoded = iter(runtime.many(calls))
    return [next(decoded) if is_there else None for is_there in there]


def _inner(runtime: Runtime, raw: bytes) -> bytes:
    """The bytes in a vector of bytes, which the library would sometimes decode as text."""
    length = runtime.decode("Compact<u32>", raw, strict=False)
    content = raw[len(raw) - length :]
    if runtime.encode("Compact<u32>", length) + content != raw:
        raise ValueError("not a vector of bytes")
    return content
