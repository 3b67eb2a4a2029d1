"""The methods of JSON-RPC: what a node answers, over the chain."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from . import runtime_api
from .chain import SimulatedBlock, SimulatedChain
from .faults import Faults
from .pool import RpcFault
from .subnets import public_key

PAGE = 1000


class Session(Protocol):
    """A connection: where news of a subscription go, and what is undone when it ends."""

    undo: dict[str, Callable[[], None]]

    def notify(self, method: str, subscription: str, result: Any) -> None:
        """Send news of a subscription."""


class Rpc:
    """What one node answers. Nodes on the same chain differ in their faults."""

    def __init__(self, chain: SimulatedChain, faults: Faults) -> None:
        self.chain, self.faults = chain, faults
        self._ids = count(1)
        self.methods: dict[str, Callable[..., Any]] = {
            name: getattr(self, name) for name in dir(type(self)) if name.partition("_")[0] in SECTIONS
        }
        self.methods |= {alias: self.methods[name] for alias, name in ALIASES.items()}

    def answer(self, session: Session, method: str, params: list[Any]) -> Any:
        """The result; RpcFault for what the node refuses."""
        called = self.methods.get(method)
        if called is None:
            raise RpcFault(-32601, "Method not found")
        with self.chain.lock:
            try:
                return called(session, *params)
            except (TypeError, ValueError, KeyError) as e:
                raise RpcFault(-32602, "Invalid params", str(e)) from None

    def head(self) -> SimulatedBlock:
        """The newest block this node knows of."""
        stale = self.faults.standing("stale")
        behind = int(stale.details.get("blocks", 1)) if stale else 0
        return self.chain.blocks[max(0, self.chain.head.number - behind)]

    def finalized(self) -> SimulatedBlock:
        """The newest final block this node knows of."""
        return self.chain.blocks[min(self.chain.finalized, self.head().number)]

    def _block(self, block_hash: str | None) -> SimulatedBlock:
        if block_hash is None:
            return self.head()
        block = self.chain.by_hash.get(bytes.fromhex(block_hash.removeprefix("0x")))
        if block is None or block.number > self.head().number:
            raise RpcFault(4003, "Client error: UnknownBlock: State already discarded for " + block_hash)
        return block

    # -- what the node is

    def system_chain(self, _: Session) -> str:
        return self.chain.name

    def system_name(self, _: Session) -> str:
        return "subtensor simulator"

    def system_version(self, _: Session) -> str:
        return "0.0.0"

    def system_properties(self, _: Session) -> dict[str, Any]:
        return {"isEthereum": False, "ss58Format": 42, "tokenDecimals": 9, "tokenSymbol": "TAO"}

    def system_health(self, _: Session) -> dict[str, Any]:
        return {"peers": 0, "isSyncing": False, "shouldHavePeers": False}

    def rpc_methods(self, _: Session) -> dict[str, Any]:
        return {"methods": sorted(self.methods)}

    def system_accountNextIndex(self, _: Session, account: str) -> int:  # noqa: N802
        off = self.faults.next(("nonce",), "system_accountNextIndex")
        return self.chain.pool.next_nonce(public_key(account)) + (int(off.details.get("offset", 1)) if off else 0)

    # -- blocks

    def chain_getHeader(self, _: Session, block_hash: str | None = None) -> Any:  # noqa: N802
        try:
            return self._block(block_hash).header
        except RpcFault:
            return None

    def chain_getBlock(self, _: Session, block_hash: str | None = None) -> Any:  # noqa: N802
        try:
            block = self._block(block_hash)
        except RpcFault:
            return None
        extrinsics = ["0x" + raw.hex() for raw in block.extrinsics]
        return {"block": {"header": block.header, "extrinsics": extrinsics}, "justifications": None}

    def chain_getBlockHash(self, _: Session, number: Any = None) -> Any:  # noqa: N802
        if isinstance(number, list):
            return [self.chain_getBlockHash(_, height) for height in number]
        if number is None:
            return "0x" + self.head().hash.hex()
        number = int(number, 16) if isinstance(number, str) else int(number)
        return "0x" + self.chain.blocks[number].hash.hex() if 0 <= number <= self.head().number else None

    def chain_getFinalizedHead(self, _: Session) -> str:  # noqa: N802
        return "0x" + self.finalized().hash.hex()

    def chain_subscribeNewHeads(self, session: Session) -> str:  # noqa: N802
        return self._subscribe(session, "new", "chain_newHead", self.head())

    def chain_subscribeFinalizedHeads(self, session: Session) -> str:  # noqa: N802
        return self._subscribe(session, "finalized", "chain_finalizedHead", self.finalized())

    def chain_unsubscribeNewHeads(self, session: Session, subscription: str) -> bool:  # noqa: N802
        undo = session.undo.pop(subscription, None)
        if undo:
            undo()
        return undo is not None

    def _subscribe(self, session: Session, kind: str, method: str, first: SimulatedBlock) -> str:
        ident = f"s{next(self._ids)}"

        def tell(what: str, block: SimulatedBlock) -> None:
            if what == kind:
                session.notify(method, ident, block.header)

        self.chain.listeners.append(tell)
        session.undo[ident] = lambda: self.chain.listeners.remove(tell)
        session.notify(method, ident, first.header)
        return ident

    # -- state

    def state_getMetadata(self, _: Session, block_hash: str | None = None) -> str:  # noqa: N802
        return "0x" + runtime_api.oldest(self.chain.state).hex()

    def state_getRuntimeVersion(self, _: Session, block_hash: str | None = None) -> Any:  # noqa: N802
        self._block(block_hash)
        version = self.chain.state.runtime.constant("System", "Version")
        names = {"apis": "apis", "spec_name": "specName", "impl_name": "implName", "authoring_version": "authoringVersion"}
        names |= {"spec_version": "specVersion", "impl_version": "implVersion", "transaction_version": "transactionVersion"}
        return {names.get(name, "stateVersion"): value for name, value in version.items()}

    def state_subscribeRuntimeVersion(self, session: Session) -> str:  # noqa: N802
        ident = f"s{next(self._ids)}"
        session.notify("state_runtimeVersion", ident, self.state_getRuntimeVersion(session))
        return ident

    def state_unsubscribeRuntimeVersion(self, session: Session, subscription: str) -> bool:  # noqa: N802
        return True

    def state_getStorage(self, _: Session, key: str, block_hash: str | None = None) -> Any:  # noqa: N802
        value = self.chain.state.raw(bytes.fromhex(key[2:]), self._block(block_hash).number)
        return None if value is None else "0x" + value.hex()

    def state_queryStorageAt(self, _: Session, keys: list[str], block_hash: str | None = None) -> Any:  # noqa: N802
        block = self._block(block_hash)
        changes = [[key, self.state_getStorage(_, key, block_hash)] for key in keys]
        return [{"block": "0x" + block.hash.hex(), "changes": changes}]

    def state_getKeysPaged(  # noqa: N802
        self, _: Session, prefix: str, size: int, start: str | None = None, block_hash: str | None = None
    ) -> list[str]:
        if size > PAGE:
            raise RpcFault(4002, "count exceeds maximum value", f"value: {size}, max: {PAGE}")
        after = bytes.fromhex((start or "0x")[2:])
        keys = self.chain.state.keys(bytes.fromhex(prefix[2:]), self._block(block_hash).number)
        return ["0x" + key.hex() for key in keys if key > after][:size]

    def state_call(self, _: Session, method: str, params: str, block_hash: str | None = None) -> str:
        raw = bytes.fromhex(params.removeprefix("0x"))
        return "0x" + runtime_api.call(self.chain, method, raw, self._block(block_hash).number).hex()

    # -- extrinsics

    def author_submitExtrinsic(self, _: Session, raw: str) -> str:  # noqa: N802
        bytes_ = bytes.fromhex(raw[2:])
        extrinsic = self.chain.pool.submit(bytes_)
        if self.faults.next(("forget", "lie"), "author_submitExtrinsic"):
            del self.chain.pool.waiting[extrinsic.hash]
        return "0x" + extrinsic.hash.hex()

    def author_submitAndWatchExtrinsic(self, session: Session, raw: str) -> str:  # noqa: N802
        ident = f"s{next(self._ids)}"

        def tell(status: Any) -> None:
            session.notify("author_extrinsicUpdate", ident, status)

        extrinsic = self.chain.pool.submit(bytes.fromhex(raw[2:]), tell)
        pooled = self.chain.pool.waiting[extrinsic.hash]
        session.undo[ident] = lambda: pooled.watchers.remove(tell)
        fault = self.faults.next(("forget", "lie"), "author_submitAndWatchExtrinsic")
        if fault:
            del self.chain.pool.waiting[extrinsic.hash]
        if fault and fault.kind == "lie":
            tell({"inBlock": "0x" + self.head().hash.hex()})
            tell({"finalized": "0x" + self.head().hash.hex()})
        return ident

    def author_pendingExtrinsics(self, _: Session) -> list[str]:  # noqa: N802
        return ["0x" + pooled.extrinsic.raw.hex() for pooled in self.chain.pool.waiting.values()]


SECTIONS = ("system", "rpc", "chain", "state", "author")
ALIASES = {
    "account_nextIndex": "system_accountNextIndex",
    "chain_getHead": "chain_getBlockHash",
    "chain_getFinalisedHead": "chain_getFinalizedHead",
    "chain_subscribeNewHead": "chain_subscribeNewHeads",
    "chain_unsubscribeNewHead": "chain_unsubscribeNewHeads",
    "chain_unsubscribeFinalizedHeads": "chain_unsubscribeNewHeads",
    "author_unwatchExtrinsic": "chain_unsubscribeNewHeads",
    "state_getStorageAt": "state_getStorage",
    "state_getRuntimeVersionAt": "state_getRuntimeVersion",
}
