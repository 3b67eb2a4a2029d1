"""The simulator as a test uses it: a chain, its first node, and what may be done to both from outside."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any

from . import metadata, subnets
from .chain import GENESIS_MS, SimulatedBlock, SimulatedChain
from .epochs import Contents
from .server import SimulatedNode
from .weights import as_bytes, digest

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "subtensor"
FILES = ("metadata-v14-spec218.scale", "metadata-v15-spec218.scale")


def files(folder: Path = SHARED) -> tuple[Path, ...]:
    """The files of metadata beside the repository; FileNotFoundError where they are not."""
    paths = tuple(folder / name for name in FILES if (folder / name).is_file())
    if not paths:
        raise FileNotFoundError(f"{folder} holds no runtime metadata ({', '.join(FILES)})")
    return paths


class Simulator:
    """A node at `url` and its chain. Use it as a context; `close` ends it.

    paths: files of metadata other than those beside the repository. extended: with what the current chain has over spec 218.
    finality: how many blocks the final one is behind the head. fast: a block as soon as an extrinsic waits. block_time: seconds
    between blocks; None, and only `step` makes them. control: the methods `simulator_*` on the same socket. name: part of the
    genesis, so that two names are two chains. began: the time of block 0, in milliseconds since 1970.
    """

    def __init__(
        self,
        *,
        paths: tuple[Path, ...] = (),
        extended: bool = True,
        finality: int = 2,
        fast: bool = False,
        block_time: float | None = None,
        control: bool = False,
        port: int = 0,
        name: str = "simulated",
        began: int = GENESIS_MS,
    ) -> None:
        self.chain = SimulatedChain(metadata.load(paths or files(), extended), finality=finality, name=name, began=began)
        self.state = self.chain.state
        extra = {f"simulator_{method}": getattr(self, method) for method in CONTROL} if control else {}
        self.node = SimulatedNode(self.chain, port=port, fast=fast, extra=extra)
        self.url, self.faults = self.node.url, self.node.faults
        self.nodes = [self.node]
        self._stop = Event()
        self._clock = Thread(target=self._tick, args=(block_time,), name="blocks", daemon=True) if block_time else None
        if self._clock:
            self._clock.start()

    @classmethod
    def with_subnet(
        cls, netuid: int, *hotkeys: str, owner: str = "//Owner", settings: dict[str, Any] | None = None, **kwargs: Any
    ) -> Simulator:
        """A simulator with a subnet whose uid 0 is the owner's and whose next uids are `hotkeys` (URIs like `//Alice`), each with
        the coldkey `URI//cold`, a stake of 1,000 alpha and a validator's permit; five blocks old, the first ones final."""
        simulator = cls(**kwargs)
        simulator.subnet(netuid, owner, **(settings or {}))
        for hotkey in (owner, *hotkeys):
            simulator.register(netuid, hotkey, alpha=10**12, permit=True)
        simulator.step(5)
        return simulator

    def __enter__(self) -> Simulator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the clock and every node."""
        self._stop.set()
        if self._clock:
            self._clock.join()
        for node in self.nodes:
            node.close()

    def _tick(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            self.chain.produce()

    def another(self, **kwargs: Any) -> SimulatedNode:
        """One more node of the same chain, with faults of its own."""
        self.nodes.append(SimulatedNode(self.chain, **kwargs))
        return self.nodes[-1]

    # -- what may be done from outside; each is also a method of JSON-RPC with --control, with the same arguments by name

    def step(self, blocks: int = 1) -> int:
        """Make blocks; the number of the last."""
        self.chain.produce(blocks)
        return self.chain.head.number

    def subnet(self, netuid: int, owner: str = "//Owner", coldkey: str | None = None, **settings: Any) -> None:
        """A subnet. settings: storage items by name, such as Tempo=10."""
        with self.chain.lock:
            subnets.add_subnet(self.state, netuid, owner, coldkey or _cold(owner), **settings)

    def register(self, netuid: int, hotkey: str, coldkey: str | None = None, **kwargs: Any) -> int:
        """Give a hotkey the next uid, or `uid=` in place of who has it; `alpha=`, `tao=` in rao, `permit=`, `active=`."""
        with self.chain.lock:
            return subnets.register(self.state, netuid, hotkey, coldkey or _cold(hotkey), **kwargs)

    def fund(self, account: str) -> None:
        """Make an account one that may send extrinsics, as registering a hotkey does."""
        with self.chain.lock:
            subnets.fund(self.state, account)

    def set(self, item: str, *keys: Any, value: Any) -> None:
        """Store a value under an item by its name in the state of the head; `step` brings it under a new hash and to finality."""
        with self.chain.lock:
            self.state.put(item, *keys, value=value)

    def get(self, item: str, *keys: Any) -> Any:
        """What is stored in the state of the head."""
        with self.chain.lock:
            return self.state.get(item, *keys)

    def mechanisms(self, netuid: int, count: int) -> None:
        """How many mechanisms a subnet has."""
        with self.chain.lock:
            subnets.set_mechanisms(self.state, netuid, count)

    def opens(self, hotkey: str, weights: dict[Any, int] | None, version_key: int = 0, commit: Any = None) -> None:
        """What is in a hotkey's commits, or in the one with these bytes; None: they do not decrypt."""
        contents = Contents(None if weights is None else {int(uid): value for uid, value in weights.items()}, version_key)
        with self.chain.lock:
            self.chain.opened[digest(as_bytes(commit)) if commit else subnets.public_key(hotkey)] = contents

    def pulses(self, there: bool, late: int = 3) -> None:
        """Whether the chain gets the beacon's pulses, without which commits wait, and how many blocks into an epoch."""
        with self.chain.lock:
            self.chain.beacon.there, self.chain.beacon.late = there, late

    def signature(self, round_: int, signature: str) -> None:
        """The beacon's signature of a round, in hex: commits to it, of whose contents nothing is said, are decrypted with it."""
        with self.chain.lock:
            self.chain.beacon.signatures[round_] = signature

    def guards(self, on: bool) -> None:
        """Whether the pool turns calls away with custom errors. Off, the same calls fail in a block with the module's errors."""
        self.chain.pool.guards = on

    def finality(self, stalled: bool) -> None:
        """Stall finality, or let it go on."""
        with self.chain.lock:
            self.chain.stalled = stalled
            self.chain.finalize()

    def reorg(self, depth: int, keep: bool = True) -> None:
        """Replace the last blocks by empty ones; what was in them waits again, or is lost."""
        self.chain.reorg(depth, keep=keep)

    def fault(self, kind: str, method: str | None = None, times: int | None = 1, **details: Any) -> None:
        """Let something go wrong in the first node: see faults.WIRE and faults.NODE."""
        self.faults.add(kind, method, times, **details)

    def drop(self) -> None:
        """End every connection of the first node; it takes new ones."""
        self.node.drop()

    def clear(self) -> None:
        """Let nothing go wrong in the first node."""
        self.faults.clear()

    def weights(self, netuid: int, uid: int, mechanism: int = 0) -> dict[int, int]:
        """The weights a uid has set."""
        with self.chain.lock:
            return dict(self.state.get("Weights", subnets.index(netuid, mechanism), uid))

    def dump(self, netuid: int, mechanism: int = 0) -> dict[str, Any]:
        """The chain and a subnet at its head, as JSON."""
        at = subnets.index(netuid, mechanism)
        with self.chain.lock:
            return {
                "genesis": "0x" + self.chain.genesis.hex(),
                "head": self.chain.head.number,
                "finalized": self.chain.finalized,
                "pool": ["0x" + digest.hex() for digest in self.chain.pool.waiting],
                "hotkeys": [self.state.get("Keys", netuid, uid) for uid in range(self.state.get("SubnetworkN", netuid))],
                "last_update": list(self.state.get("LastUpdate", at)),
                "weights": {str(uid): [list(pair) for pair in weights] for uid, weights in self.state.under("Weights", at)},
            }

    def included(self, function: str | None = None) -> list[tuple[SimulatedBlock, dict[str, Any]]]:
        """The signed extrinsics of the chain's blocks, decoded, of one call or of all."""
        extrinsics = []
        with self.chain.lock:
            for block in self.chain.blocks:
                for raw in block.extrinsics[1:]:
                    extrinsic = self.state.runtime.decode_extrinsic(raw)
                    if function in (None, extrinsic["call"]["call_function"]):
                        extrinsics.append((block, extrinsic))
        return extrinsics


CONTROL = (
    *("step", "subnet", "register", "fund", "set", "get", "mechanisms", "dump"),
    *("opens", "pulses", "signature", "guards", "finality", "reorg", "fault", "drop", "clear"),
)


def _cold(hotkey: str) -> str:
    return f"{hotkey}//cold" if hotkey.startswith("//") else "//Cold"
