"""A node of a subtensor chain: what it says of blocks and of the chain's state, decoded by the chain's own description of itself.

Addresses are SS58. A block hash is `0x` and 64 hex digits; where a function takes one and None is given, the head of the chain
is meant. What a node answers that cannot be right is no answer: Unreachable.

A block's state was written by the runtime of the block before; so that one decodes it, where a block brings a new runtime.
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
"""What the runtimes of the chain call themselves."""
KEYS = 500
"""Storage keys in one question."""
ROWS = 20_000
"""Rows of one map."""
RUNTIMES = 4
"""Runtimes that are remembered: two follow each other at an upgrade."""
BLOCKS = 64
"""Headers that are remembered: they do not change."""
_V15 = "0x0f000000"
_HEX = re.compile("0x[0-9a-fA-F]*")  # without a group: that would take memory for each of its turns
_HASH = re.compile("0x[0-9a-fA-F]{64}")
T = TypeVar("T")
K = TypeVar("K")
Item = tuple[str, str, Sequence[Any]]
"""A place in the chain's storage: pallet, item, and the keys of a map."""


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
        """What of the address may be shown."""
        return self.wire.host

    def ask(self, method: str, *params: Any) -> Any:
        """The answer as it comes, to a question that may be asked twice; raises RpcError and Unreachable."""
        return self.wire.ask(method, *params)

    def close(self) -> None:
        """Drop the connection; the next question opens another."""
        self.wire.close()

    # blocks

    def genesis(self) -> str:
        """The hash of block 0: which chain it is."""
        found = self.block_hash(0)
        if found is None:
            raise self._nonsense("chain_getBlockHash")
        return found

    def head(self) -> BlockId:
        """The newest block: another may take its place."""
        return self._block(self._hash(self._read("chain_getBlockHash"), "chain_getBlockHash"))

    def finalized(self) -> BlockId:
        """The newest block that stays."""
        return self._block(self._hash(self._read("chain_getFinalizedHead"), "chain_getFinalizedHead"))

    def block_hash(self, number: int) -> str | None:
        """The hash of the block of a number on the chain that the node holds for the best; None if there is none yet."""
        found = self._read("chain_getBlockHash", number)
        return None if found is None else self._hash(found, "chain_getBlockHash")

    def header(self, block: str) -> Mapping[str, Any]:
        """A block's header: number (an integer), parentHash, …; Unreachable if the node does not have the block."""
        if block not in self._headers:
            found = self._read("chain_getHeader", block)
            if found is None:
                raise Unreachable(f"{self.host} has no block {block}", hint="ask a node that keeps old blocks (an archive)")
            if not isinstance(found, dict):
                raise self._nonsense("chain_getHeader")
            parent = self._hash(found.get("parentHash"), "chain_getHeader")
            number = self._number(found.get("number"), "chain_getHeader")
            _keep(self._headers, block, found | {"number": number, "parentHash": parent})
        return self._headers[block]

    def extrinsics(self, block: str) -> list[bytes]:
        """The transactions of a block, in order."""
        found = self._read("chain_getBlock", block)
        if found is None:
            raise Unreachable(f"{self.host} has no block {block}", hint="ask a node that keeps old blocks (an archive)")
        inner = found.get("block") if isinstance(found, dict) else None
        return self._many_bytes(inner.get("extrinsics") if isinstance(inner, dict) else None, "chain_getBlock")

    def events(self, block: str) -> list[dict[str, Any]]:
        """What happened in a block, as the chain's own records."""
        found = self.query("System", "Events", (), block)
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self._nonsense("System.Events")
        return found

    # the chain's description of itself

    def runtime(self, at: str | None = None) -> Runtime:
        """The runtime that makes the block after `at`, of metadata 15 if there is any, else 14."""
        block = at or self.head().hash
        held = self._runtimes.get(self._specs.get(block, -1))
        if held is None or not held.alive:
            said = self._read("state_getRuntimeVersion", block)
            if not isinstance(said, dict) or said.get("specName") != SPEC_NAME:
                raise Unreachable(f"{self.host} is no node of a subtensor chain", final=True, hint="is the address right?")
            spec, transaction = said.get("specVersion"), said.get("transactionVersion")
            if not (_u32(spec) and _u32(transaction)):
                raise self._nonsense("state_getRuntimeVersion")
            held = self._runtimes.get(spec)
            if held is None or not held.alive:
                make = partial(Runtime, self.host, self._metadata(block), spec, transaction)
                held = self._decoded("metadata", make)
                self._runtimes.pop(spec, None)
                _keep(self._runtimes, spec, held, RUNTIMES)
            _keep(self._specs, block, spec)
        return held

    def has(self, pallet: str, item: str, at: str | None = None) -> bool:
        """Whether the chain's storage has such an item."""
        try:
            self._writer(at or self.head().hash).storage_entry(pallet, item)
        except KeyError:
            return False
        return True

    def _metadata(self, block: str) -> bytes:
        """A runtime's description, without what wraps it."""
        try:
            found = self.ask("state_call", "Metadata_metadata_at_version", _V15, block)
        except RpcError:  # runtimes before version 15 of metadata have no such function
            found = None
        if found is not None and self._bytes(found, "state_call")[:1] != b"\x00":
            data = self._bytes(found, "state_call")
        else:
            data = self._bytes(self._read("state_getMetadata", block), "state_getMetadata")
        begin = data[:16].find(b"meta")
        if begin < 0:
            raise self._nonsense("metadata")
        return data[begin:]

    def _writer(self, block: str) -> Runtime:
        """The runtime that made a block, and wrote its state."""
        header = self.header(block)
        return self.runtime(block if header["number"] == 0 else header["parentHash"])

    # the chain's state

    def query(self, pallet: str, item: str, params: Sequence[Any] = (), at: str | None = None) -> Any:
        """What is stored at one place; what the chain takes for it where nothing is. KeyError if there is no such item."""
        return self.query_many([(pallet, item, params)], at)[0]

    def query_many(self, items: Iterable[Item], at: str | None = None) -> list[Any]:
        """What is stored at several places, all at one block."""
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
            if len(page) > KEYS or any(one >= other for one, other in pairwise(rising)):
                raise self._nonsense("state_getKeysPaged")
            if not all(one.startswith(prefix) and len(one) > len(prefix) for one in page):
                raise self._nonsense("state_getKeysPaged")
            keys += page
            if len(keys) > ROWS:
                raise Unreachable(f"{self.host} has more than {ROWS} rows in {pallet}.{item}")
            if len(page) < KEYS:
                break
        raw = self._stored(keys, block)
        rows = [(bytes.fromhex(key[2:]), value) for key, value in raw.items() if value is not None]
        if len(rows) < len(keys):
            raise self._nonsense("state_queryStorageAt")
        names, values = [key for key, _ in rows], [value for _, value in rows]
        decode = partial(runtime.decode_map_pairs, pallet, item, names, values, len(params))
        found: list[tuple[Any, Any]] = self._decoded("state_queryStorageAt", decode)
        return found

    def call(self, api: str, method: str, args: Sequence[Any] = (), at: str | None = None) -> Any:
        """What a function of the runtime returns; None if the runtime describes no such function.

        Older runtimes put what they return into bytes first: of these come the bytes.
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
        """What is stored under each key; the node has to answer for every one."""
        found: dict[str, bytes | None] = {}
        unique = list(dict.fromkeys(keys))
        for begin in range(0, len(unique), KEYS):
            asked = unique[begin : begin + KEYS]
            said = self._read("state_queryStorageAt", asked, block)
            sets = [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []
            rows = [row for one in sets if isinstance(one.get("changes"), list) for row in one["changes"]]
            if any(one.get("block") != block for one in sets) or not all(isinstance(row, list) and len(row) == 2 for row in rows):
                raise self._nonsense("state_queryStorageAt")
            there = {str(key): value for key, value in rows}
            if there.keys() != set(asked) or len(rows) != len(asked):
                raise self._nonsense("state_queryStorageAt")
            for key in asked:
                found[key] = None if there[key] is None else self._bytes(there[key], "state_queryStorageAt")
        return found

    # accounts and transactions

    def nonce(self, account: bytes | str, at: str | None = None) -> int:
        """How many transactions of an account (its public key or address) there are up to a block: the next one's nonce."""
        address = account if isinstance(account, str) else core().encode_ss58(account)
        found = self.query("System", "Account", (address,), at)
        if not isinstance(found, dict) or not _u32(found.get("nonce")):
            raise self._nonsense("System.Account")
        return int(found["nonce"])

    def submit(self, raw: bytes) -> str:
        """Hand a signed transaction over, once; its hash. Raises RpcError, and Unreachable: then it may have arrived, or not."""
        found = self.wire.ask("author_submitExtrinsic", f"0x{raw.hex()}", twice=False)
        return self._hash(found, "author_submitExtrinsic")

    def pending(self) -> list[bytes]:
        """The transactions that wait in the node's pool."""
        return self._many_bytes(self._read("author_pendingExtrinsics"), "author_pendingExtrinsics")

    # answers

    def _read(self, method: str, *params: Any) -> Any:
        """An answer; a node that will not answer a question to read by gives none."""
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
            raise self._nonsense(what) from None

    def _hash(self, value: object, what: str) -> str:
        if isinstance(value, str) and _HASH.fullmatch(value):
            return value.lower()
        raise self._nonsense(what)

    def _number(self, value: object, what: str) -> int:
        if isinstance(value, str) and re.fullmatch("0x0*[0-9a-fA-F]{1,13}", value):  # below 2**52
            return int(value, 16)
        raise self._nonsense(what)

    def _bytes(self, value: object, what: str) -> bytes:
        if isinstance(value, str) and len(value) % 2 == 0 and _HEX.fullmatch(value):
            return bytes.fromhex(value[2:])
        raise self._nonsense(what)

    def _many_bytes(self, value: object, what: str) -> list[bytes]:
        if not isinstance(value, list):
            raise self._nonsense(what)
        return [self._bytes(one, what) for one in value]

    def _nonsense(self, what: str) -> Unreachable:
        return Unreachable(f"{self.host} answers what cannot be ({what})", hint="is it a node of a subtensor chain?")


def _keep(found: dict[K, T], name: K, value: T, most: int = BLOCKS) -> None:
    """Remember something, and forget the oldest."""
    found[name] = value
    while len(found) > most:
        del found[next(iter(found))]


def _u32(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value < 2**32


def _values(runtime: Runtime, asked: Sequence[tuple[StorageItem, bytes | None]]) -> list[Any]:
    """What is stored in each item, or what the chain takes for it where nothing is."""
    there = [raw is not None or entry.modifier != "Optional" for entry, raw in asked]
    calls = [
        ("decode", (entry.value_type, entry.default_bytes if raw is None else raw))
        for (entry, raw), is_there in zip(asked, there, strict=True)
        if is_there
    ]
    found = iter(runtime.many(calls))
    return [next(found) if is_there else None for is_there in there]


def _inner(runtime: Runtime, raw: bytes) -> bytes:
    """The bytes in a vector of bytes: the library would make a text of some."""
    length = runtime.decode("Compact<u32>", raw, strict=False)
    found = raw[len(raw) - length :]
    if runtime.encode("Compact<u32>", length) + found != raw:
        raise ValueError("not a vector of bytes")
    return found
