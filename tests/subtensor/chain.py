"""The chain: blocks, what they execute, finality behind the head, and reorganisations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from threading import RLock
from typing import Any

from . import epochs, weights
from .metadata import Metadata
from .newer import PALLET
from .pool import Pool, PooledExtrinsic, RpcFault
from .storage import Storage

BLOCK_MS = 12_000
GENESIS_MS = 1_767_225_600_000  # the chain's clock: the beginning of 2026, and 12 seconds a block, however fast blocks are made
BLOCK_HASHES = 2400  # how many blocks back a birth block's hash is known
ROUND = 1000  # the last round of the beacon that the chain has stored
INFO = {"weight": {"ref_time": 1_000_000, "proof_size": 0}, "class": "Normal", "pays_fee": "No"}


@dataclass(frozen=True, slots=True)
class SimulatedBlock:
    """A block. header: as JSON-RPC gives it."""

    number: int
    hash: bytes
    header: dict[str, Any]
    extrinsics: tuple[bytes, ...]


class SimulatedChain:
    """One chain and its pool. All that changes it holds `lock`.

    finality: how many blocks the finalized one is behind the head. stalled: finality stays where it is. beacon: when
    commits can be opened. opened: what is in them, by hotkey or by their hash.
    """

    def __init__(self, metadata: Metadata, *, finality: int = 2, name: str = "simulated", began: int = GENESIS_MS) -> None:
        self.lock = RLock()
        self.name, self.began = name, began
        self.state = Storage(metadata)
        self.finality, self.stalled = finality, False
        self.beacon = epochs.Beacon()
        self.opened: dict[bytes, epochs.Contents] = {}
        self.blocks: list[SimulatedBlock] = []
        self.by_hash: dict[bytes, SimulatedBlock] = {}
        self.finalized = 0
        self.pool = Pool(self.state, self.hash_of)
        self.listeners: list[Callable[[str, SimulatedBlock], None]] = []  # told "new" and "finalized"
        self._included: dict[int, list[PooledExtrinsic]] = {}  # not final yet, by block
        if self.state.current:
            self.state.put("Drand.LastStoredRound", value=ROUND)
        # Clients keep metadata by the genesis and the spec: other metadata is another chain.
        self._fork = blake2b(metadata.best + name.encode(), digest_size=32).digest()
        self._append(bytes(32), ())

    @property
    def head(self) -> SimulatedBlock:
        """The newest block."""
        return self.blocks[-1]

    @property
    def genesis(self) -> bytes:
        """The hash of block 0."""
        return self.blocks[0].hash

    def hash_of(self, number: int) -> bytes | None:
        """The hash of a block that the chain still knows: the genesis, or one of the last 2,400."""
        if number == 0 or (0 <= number <= self.head.number and number >= self.head.number - BLOCK_HASHES):
            return self.blocks[number].hash
        return None

    def produce(self, count: int = 1, *, empty: bool = False) -> None:
        """Make blocks, with what waits in the pool or empty."""
        for _ in range(count):
            with self.lock:
                self._produce(empty)

    def _produce(self, empty: bool) -> None:
        number = self.head.number + 1
        taken = [] if empty else self.pool.take(number)
        self.state.block = number
        events: list[tuple[Any, weights.Event]] = [("Initialization", event) for event in self._initialize(number)]
        stamp = self.state.runtime.compose_call("Timestamp", "set", {"now": self.began + number * BLOCK_MS})
        raw = [self._bare(bytes(stamp))]
        events.append(({"ApplyExtrinsic": 0}, ("System.ExtrinsicSuccess", {"dispatch_info": INFO | {"class": "Mandatory"}})))
        included = []
        for pooled in taken:
            try:
                self.pool.check(pooled.extrinsic, number)
            except RpcFault:
                self.pool.drop(pooled, "invalid")
                continue
            events += [({"ApplyExtrinsic": len(raw)}, event) for event in self._execute(pooled)]
            raw.append(pooled.extrinsic.raw)
            included.append(pooled)
        self.state.put("System.Events", value=[_record(phase, event) for phase, event in events])
        self._append(self.head.hash, tuple(raw))
        self._included[number] = included
        for pooled in included:
            self.pool.drop(pooled, {"inBlock": "0x" + self.head.hash.hex()})
        self._tell("new", self.head)
        self.finalize()

    def _initialize(self, number: int) -> list[weights.Event]:
        self.state.put("System.Number", value=number)
        self.state.put("System.ParentHash", value="0x" + self.head.hash.hex())
        self.state.put("System.BlockHash", number - 1, value="0x" + self.head.hash.hex())
        self.state.put("Timestamp.Now", value=self.began + number * BLOCK_MS)
        return epochs.step(self.state, self.opened, self.beacon)

    def _execute(self, pooled: PooledExtrinsic) -> list[weights.Event]:
        """The events of an extrinsic, last whether it succeeded. A call that is not simulated does nothing and succeeds."""
        extrinsic, events = pooled.extrinsic, []
        account = self.state.get("System.Account", extrinsic.signer)
        self.state.put("System.Account", extrinsic.signer, value=account | {"nonce": extrinsic.nonce + 1})
        try:
            if extrinsic.pallet == PALLET and extrinsic.function in weights.SETS:
                events = weights.set_weights(self.state, extrinsic.signer, extrinsic.args)
            elif extrinsic.pallet == PALLET and extrinsic.function in weights.COMMITS:
                events = weights.commit_timelocked(self.state, extrinsic.signer, extrinsic.args)
        except weights.CallRefused as e:
            failed = {"dispatch_error": {"Module": self._error(str(e))}, "dispatch_info": INFO}
            return [("System.ExtrinsicFailed", failed)]
        return [*events, ("System.ExtrinsicSuccess", {"dispatch_info": INFO})]

    def _error(self, name: str) -> dict[str, Any]:
        pallet = next(entry for entry in self.state.runtime.metadata_ir()["pallets"] if entry["name"] == PALLET)
        index = next(error["index"] for error in pallet["errors"] if error["name"] == name)
        return {"index": pallet["index"], "error": f"0x{index:02x}000000"}

    def finalize(self) -> None:
        """Bring finality up to where it is due, unless it is stalled."""
        while not self.stalled and self.finalized < self.head.number - self.finality:
            self.finalized += 1
            block = self.blocks[self.finalized]
            for pooled in self._included.pop(self.finalized, ()):
                pooled.tell({"finalized": "0x" + block.hash.hex()})
            self._tell("finalized", block)

    def reorg(self, depth: int, *, keep: bool = True) -> None:
        """Throw the last blocks away and make as many others, empty; their extrinsics wait again, or are lost."""
        with self.lock:
            if depth > self.head.number - self.finalized:
                raise ValueError(f"only {self.head.number - self.finalized} blocks are not final yet")
            gone = self.blocks[-depth:]
            del self.blocks[-depth:]
            self.state.rewind(self.head.number)
            back = [pooled for block in gone for pooled in self._included.pop(block.number, ())]
            for block in gone:
                del self.by_hash[block.hash]
            for pooled in back:
                self.pool.banned.pop(pooled.extrinsic.hash, None)
                pooled.tell({"retracted": "0x" + gone[-1].hash.hex()})
            self._fork = gone[-1].hash
            self.produce(depth, empty=True)
            for pooled in back:
                if keep:
                    self.pool.waiting[pooled.extrinsic.hash] = pooled
                    pooled.tell("ready")
                else:
                    pooled.tell("dropped")

    def _append(self, parent: bytes, extrinsics: tuple[bytes, ...]) -> None:
        number = len(self.blocks)
        root = blake2b(b"".join(extrinsics) + self._fork, digest_size=32).digest()
        state = blake2b(root + number.to_bytes(8, "little"), digest_size=32).digest()
        self._fork = b""
        encoded = parent + self.state.encode("Compact<u32>", number) + state + root + b"\0"
        header = {
            "parentHash": "0x" + parent.hex(),
            "number": hex(number),
            "stateRoot": "0x" + state.hex(),
            "extrinsicsRoot": "0x" + root.hex(),
            "digest": {"logs": []},
        }
        block = SimulatedBlock(number, blake2b(encoded, digest_size=32).digest(), header, extrinsics)
        self.blocks.append(block)
        self.by_hash[block.hash] = block

    def _bare(self, call: bytes) -> bytes:
        """An extrinsic that nobody signs."""
        return self.state.encode("Compact<u32>", len(call) + 1) + b"\x04" + call

    def _tell(self, what: str, block: SimulatedBlock) -> None:
        for listener in list(self.listeners):
            listener(what, block)


def _record(phase: Any, event: weights.Event) -> dict[str, Any]:
    """An event as the codec takes it."""
    pallet, _, name = event[0].rpartition(".")
    return {"phase": phase, "event": {pallet or PALLET: {name: event[1]}}, "topics": []}
