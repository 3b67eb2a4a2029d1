"""The pool: extrinsics that wait for a block, by the rules and with the errors of a Substrate node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import weights
from .extrinsics import BadProof, Extrinsic, Undecodable, check_signature, decode
from .storage import Storage

BAN_BLOCKS = 150  # half an hour
LIMIT = 8192
# What a node says of an extrinsic that is not valid: the text in `data` of error 1010.
STALE = "Transaction is outdated"
BAD_SIGNATURE = "Transaction has a bad signature"
ANCIENT = "Transaction has an ancient birth block"
PAYMENT = "Inability to pay some fees (e.g. account balance too low)"


class RpcFault(Exception):
    """What a node answers instead of a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{code} {message}: {data}")
        self.code, self.message, self.data = code, message, data


def invalid(data: str) -> RpcFault:
    """An extrinsic that is not valid."""
    return RpcFault(1010, "Invalid Transaction", data)


@dataclass
class PooledExtrinsic:
    """An extrinsic in the pool, and who is told what becomes of it. death: the first block that may not hold it any more."""

    extrinsic: Extrinsic
    tags: frozenset[tuple[Any, ...]]
    death: int | None
    watchers: list[Callable[[Any], None]] = field(default_factory=list)

    @property
    def priority(self) -> int:
        """Which of two that exclude each other stays: what is paid decides, and the first of equals."""
        return self.extrinsic.tip

    def tell(self, status: Any) -> None:
        """Tell the watchers."""
        for watcher in list(self.watchers):
            watcher(status)


class Pool:
    """What waits for a block. guards: check what the chain's own transaction extension does; off, modules raise the errors."""

    def __init__(self, state: Storage, hash_of: Callable[[int], bytes | None]) -> None:
        self.state = state
        self.hash_of = hash_of
        self.guards = True
        self.limit = LIMIT
        self.waiting: dict[bytes, PooledExtrinsic] = {}
        self.banned: dict[bytes, int] = {}

    def submit(self, raw: bytes, watcher: Callable[[Any], None] | None = None) -> Extrinsic:
        """Take an extrinsic in; RpcFault where the node would refuse it. The watcher is told `ready` or `future` first."""
        try:
            extrinsic = decode(self.state.runtime, raw)
        except Undecodable as e:
            raise RpcFault(1002, f"Verification Error: Runtime error: Execution failed: {e}", "RuntimeApi") from None
        if not weights.fits(extrinsic.function, extrinsic.args):
            raise RpcFault(1002, "Verification Error: Runtime error: Execution failed: the commit is too long", "RuntimeApi")
        if extrinsic.hash in self.waiting:
            raise RpcFault(1013, "Transaction Already Imported", f"[0x{extrinsic.hash.hex()}]")
        if self.banned.get(extrinsic.hash, 0) > self.state.block:
            raise RpcFault(1012, "Transaction is temporarily banned")
        self.check(extrinsic, self.state.block + 1)
        self._admit(extrinsic, watcher)
        return extrinsic

    def _admit(self, extrinsic: Extrinsic, watcher: Callable[[Any], None] | None) -> None:
        pooled = PooledExtrinsic(extrinsic, self._tags(extrinsic), extrinsic.death(self.state.block + 1))
        rivals = [rival for rival in self.waiting.values() if rival.tags & pooled.tags]
        for rival in rivals:
            if rival.priority >= pooled.priority:
                text = "The transaction has too low priority to replace another transaction already in the pool."
                raise RpcFault(1014, f"Priority is too low: ({rival.priority} vs {pooled.priority})", text)
        if len(self.waiting) - len(rivals) >= self.limit:
            raise RpcFault(1016, "Immediately Dropped", "The transaction couldn't enter the pool because of the limit")
        for rival in rivals:
            del self.waiting[rival.extrinsic.hash]
            rival.tell({"usurped": "0x" + extrinsic.hash.hex()})
        self.waiting[extrinsic.hash] = pooled
        if watcher:
            pooled.watchers.append(watcher)
        waited = extrinsic.nonce > self.next_nonce(extrinsic.signer)
        pooled.tell("future" if waited else "ready")
        while not waited and (later := self.ready(extrinsic.signer, extrinsic.nonce + 1)):
            later.tell("ready")
            extrinsic = later.extrinsic

    def check(self, extrinsic: Extrinsic, block: int) -> None:
        """Whether it may stand in a block of this number; RpcFault with what the runtime says against it."""
        birth = extrinsic.birth(block)
        known = self.hash_of(birth) if birth < block else None
        if known is None:
            raise invalid(ANCIENT)
        try:
            check_signature(self.state.runtime, extrinsic, self._genesis(), known)
        except BadProof:
            raise invalid(BAD_SIGNATURE) from None
        account = self.state.get("System.Account", extrinsic.signer)
        if not account["providers"] and not account["sufficients"]:
            raise invalid(PAYMENT)
        if extrinsic.nonce < account["nonce"]:
            raise invalid(STALE)
        if self.guards:
            custom = weights.pool_check(self.state, extrinsic.signer, extrinsic.function, extrinsic.args)
            if custom is not None:
                raise invalid(f"Custom error: {custom}")

    def ready(self, who: bytes, nonce: int) -> PooledExtrinsic | None:
        """The extrinsic of an account with this nonce."""
        for pooled in self.waiting.values():
            if pooled.extrinsic.signer == who and pooled.extrinsic.nonce == nonce:
                return pooled
        return None

    def next_nonce(self, who: bytes) -> int:
        """The nonce after those of the account's state and of what waits without a gap."""
        nonce = int(self.state.get("System.Account", who)["nonce"])
        while self.ready(who, nonce):
            nonce += 1
        return nonce

    def take(self, block: int) -> list[PooledExtrinsic]:
        """What the next block may hold, by account and nonce; who no longer may is told `invalid` and put out."""
        for pooled in list(self.waiting.values()):
            if pooled.death is not None and block >= pooled.death:
                self.drop(pooled, "invalid")
        extrinsics = []
        for signer in list(dict.fromkeys(pooled.extrinsic.signer for pooled in self.waiting.values())):
            nonce = int(self.state.get("System.Account", signer)["nonce"])
            while next_one := self.ready(signer, nonce):
                extrinsics.append(next_one)
                nonce += 1
        return extrinsics

    def drop(self, pooled: PooledExtrinsic, status: Any, ban: bool = True) -> None:
        """Put an extrinsic out; the same bytes are turned away for a while."""
        self.waiting.pop(pooled.extrinsic.hash, None)
        if ban:
            self.banned[pooled.extrinsic.hash] = self.state.block + BAN_BLOCKS
        pooled.tell(status)

    def _tags(self, extrinsic: Extrinsic) -> frozenset[tuple[Any, ...]]:
        """What no two in the pool may share: the nonce; a commit to the same mechanism, where its rate is limited."""
        tags: set[tuple[Any, ...]] = {(extrinsic.signer, extrinsic.nonce)}
        if extrinsic.function in weights.COMMITS and self.state.get("WeightsSetRateLimit", extrinsic.args["netuid"]):
            tags.add((extrinsic.signer, "commit", extrinsic.args["netuid"], extrinsic.args.get("mecid", 0)))
        return frozenset(tags)

    def _genesis(self) -> bytes:
        genesis = self.hash_of(0)
        assert genesis is not None
        return genesis
