"""What the tests that talk to a simulated subtensor node share: a bare connection, and who signs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import bittensor_core
import pytest
from websockets.sync.client import ClientConnection, connect

from subtensor import RpcFault, Simulator, files

PATIENCE = 60.0  # seconds until a test gives an answer up; silence is asked for with less
SILENCE = 0.2


@pytest.fixture
def metadata(shared: object) -> None:
    """Skips where the metadata is not beside the repository."""
    try:
        files()
    except FileNotFoundError as e:
        pytest.skip(str(e))


class RpcLine:
    """A bare JSON-RPC connection. news: the notifications that came while an answer was awaited."""

    def __init__(self, url: str) -> None:
        self.socket: ClientConnection = connect(url, compression=None, max_size=2**28, ping_interval=None)
        self.news: list[Any] = []
        self._last = 0

    def send(self, method: str, *params: Any, **named: Any) -> int:
        """Ask without waiting; the id."""
        self._last += 1
        asked = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": named or list(params)}
        self.socket.send(json.dumps(asked))
        return self._last

    def receive(self, timeout: float = PATIENCE) -> Any:
        """The next message as it comes; TimeoutError where none does."""
        return json.loads(self.socket.recv(timeout))

    def ask(self, method: str, *params: Any, **named: Any) -> Any:
        """The result; RpcFault where the node answers with an error."""
        ident = self.send(method, *params, **named)
        while (answer := self.receive()).get("id") != ident:
            self.news.append(answer["params"]["result"])
        if "error" in answer:
            raise RpcFault(answer["error"]["code"], answer["error"]["message"], answer["error"].get("data"))
        return answer["result"]

    def status(self) -> Any:
        """The next notification's content."""
        return self.news.pop(0) if self.news else self.receive()["params"]["result"]

    def silent(self) -> bool:
        """Whether nothing comes for a while."""
        try:
            self.receive(SILENCE)
        except TimeoutError:
            return True
        return False


@contextmanager
def line(url: str) -> Iterator[RpcLine]:
    """A bare connection for a while."""
    wire = RpcLine(url)
    try:
        yield wire
    finally:
        wire.socket.close()


class CallSigner:
    """Somebody who signs calls, as a client would from what the node says."""

    def __init__(self, simulator: Simulator, uri: str) -> None:
        self.simulator = simulator
        self.key = bittensor_core.Keypair.create_from_uri(uri)
        self.uri = uri

    @property
    def nonce(self) -> int:
        """The nonce of the account's state."""
        return int(self.simulator.get("System.Account", self.key.public_key)["nonce"])

    def signed(
        self,
        function: str,
        args: dict[str, Any],
        *,
        nonce: int | None = None,
        period: int | None = 64,
        at: int | None = None,
        tip: int = 0,
        genesis: bytes | None = None,
    ) -> str:
        """A signed extrinsic in hex. at: the block it counts as the current one; period: None for one that never dies."""
        chain = self.simulator.chain
        runtime = chain.state.runtime
        at = chain.head.number if at is None else at
        birth = bittensor_core.era_birth(period, at) if period else 0
        call = runtime.compose_call("SubtensorModule", function, args)
        shared = {
            "era": {"period": period, "current": at} if period else "00",
            "nonce": self.nonce if nonce is None else nonce,
            "tip": tip,
            "tip_asset_id": None,
        }
        hashes = {"genesis_hash": genesis or chain.genesis, "era_block_hash": chain.blocks[birth].hash}
        signature = self.key.sign(bytes(runtime.signature_payload(call, **shared, **hashes)))
        proof = {"public_key": self.key.public_key, "signature": signature, "signature_version": 1}
        return "0x" + bytes(runtime.encode_signed_extrinsic(call, **proof, **shared)[0]).hex()

    def weights(self, uids: list[int], values: list[int], **kwargs: Any) -> str:
        """A signed set_weights of subnet 1."""
        return self.signed("set_weights", {"netuid": 1, "dests": uids, "weights": values, "version_key": 0}, **kwargs)

    def commit(self, commit: bytes = b"\x01", **kwargs: Any) -> str:
        """A signed timelocked commit for subnet 1."""
        args = {"netuid": 1, "mecid": 0, "commit": commit, "reveal_round": 10**6, "commit_reveal_version": 4}
        return self.signed("commit_timelocked_mechanism_weights", args, **kwargs)


def outcome(simulator: Simulator, block: int | None = None) -> str:
    """What became of the last extrinsic of a block: `ExtrinsicSuccess`, or the name of the module's error."""
    block = simulator.chain.head.number if block is None else block
    last = simulator.state.get("System.Events", at=block)[-1]
    if last["event_id"] != "ExtrinsicFailed":
        return str(last["event_id"])
    module = last["attributes"]["dispatch_error"]["Module"]
    return str(simulator.state.runtime.module_error(module["index"], int(module["error"][2:4], 16))[0])


def events(simulator: Simulator, block: int) -> list[tuple[str, Any]]:
    """The subtensor pallet's events of a block."""
    entries = simulator.state.get("System.Events", at=block)
    return [(entry["event_id"], entry["attributes"]) for entry in entries if entry["module_id"] == "SubtensorModule"]
