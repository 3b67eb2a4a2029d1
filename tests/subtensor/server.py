"""A node's socket: JSON-RPC over websockets, and the faults of the wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from .chain import SimulatedChain
from .faults import WIRE, Faults
from .pool import RpcFault
from .rpc import Rpc

MAX_REQUEST = 16 * 2**20


class SimulatedNode:
    """A node that answers on a socket of its own, from a chain that others may answer from too.

    fast: a block is made as soon as an extrinsic waits, after the answer. extra: further methods, by name.
    """

    def __init__(
        self, chain: SimulatedChain, *, port: int = 0, fast: bool = False, extra: dict[str, Callable[..., Any]] | None = None
    ) -> None:
        self.chain, self.fast = chain, fast
        self.faults = Faults()
        self.rpc = Rpc(chain, self.faults)
        self.extra = extra or {}
        self.stopping = Event()
        self._open: set[_Session] = set()
        self._server: Server = serve(
            self._serve,
            "127.0.0.1",
            port,
            process_request=self._greet,
            max_size=MAX_REQUEST,
            compression=None,
            ping_interval=None,
        )
        self.url = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}"
        self._thread = Thread(target=self._server.serve_forever, name=f"node {self.url}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and end every connection."""
        self.stopping.set()
        self._server.shutdown()
        self.drop()
        self._thread.join()

    def drop(self) -> None:
        """End every connection; new ones are taken."""
        for session in list(self._open):
            session.end()

    def _greet(self, connection: ServerConnection, request: object) -> None:
        """Answer the handshake, but for a node that is mute."""
        while self.faults.standing("mute") and not self.stopping.wait(0.02):
            pass

    def _serve(self, connection: ServerConnection) -> None:
        session = _Session(connection)
        self._open.add(session)
        try:
            for message in connection:
                if not self._take(session, message):
                    break
        except ConnectionClosed:
            pass
        finally:
            session.undo_all(self.chain)
            self._open.discard(session)

    def _take(self, session: _Session, message: str | bytes) -> bool:
        """Answer a message; False to end the connection."""
        if self.faults.standing("half-open"):
            return True
        try:
            asked = json.loads(message)
        except ValueError:
            return session.send(_error(None, RpcFault(-32700, "Parse error")))
        with session.answering():
            if isinstance(asked, list):
                going = session.send([self._result(session, request) for request in asked])
            else:
                going = self._one(session, asked)
        if self.fast and self.chain.pool.waiting:
            self.chain.produce()
        return going

    def _one(self, session: _Session, asked: Any) -> bool:
        if not isinstance(asked, dict):
            return session.send(_error(None, RpcFault(-32600, "Invalid request")))
        method = str(asked.get("method"))
        fault = None if method.startswith("simulator_") else self.faults.next(WIRE, method)
        kind, details = (fault.kind, fault.details) if fault else ("", {})
        if kind == "drop-before":
            session.end()
            return False
        if kind == "silent":
            return True
        if kind == "slow":
            self.stopping.wait(float(details.get("seconds", 1)))
        if kind == "error":
            return session.send(_error(asked.get("id"), RpcFault(details["code"], details["message"], details.get("data"))))
        answer = self._result(session, asked)
        if kind == "drop-after":
            session.end()
            return False
        if kind == "silent-after":
            return True
        return self._send(session, answer, kind, details)

    def _send(self, session: _Session, answer: dict[str, Any], kind: str, details: dict[str, Any]) -> bool:
        if kind == "garbage":
            return session.send_text(str(details.get("text", '{"jsonrpc": "2.0", "id')))
        if kind == "huge":
            return session.send(answer | {"result": "0x" + "0" * int(details.get("bytes", 64 * 2**20))})
        other = answer | {"id": "nobody", "result": details.get("result")}
        other.pop("error", None)
        if kind == "wrong-id":
            return session.send(other)
        if kind == "stray" and not session.send(other):
            return False
        if kind == "duplicate" and not session.send(answer):
            return False
        return session.send(answer)

    def _result(self, session: _Session, asked: Any) -> dict[str, Any]:
        if not isinstance(asked, dict) or not isinstance(asked.get("method"), str):
            return _error(None, RpcFault(-32600, "Invalid request"))
        params = asked.get("params") or []
        try:
            if asked["method"] in self.extra:
                named = params if isinstance(params, dict) else params[0] if params else {}
                if not isinstance(named, dict):
                    raise RpcFault(-32602, "Invalid params", "by name, in one object")
                result = self._control(asked["method"], named)
            else:
                result = self.rpc.answer(session, asked["method"], params)
        except RpcFault as e:
            return _error(asked.get("id"), e)
        return {"jsonrpc": "2.0", "id": asked.get("id"), "result": result}

    def _control(self, method: str, named: dict[str, Any]) -> Any:
        """Do what a further method does; of a storage item, `item` and `keys` say which."""
        named = dict(named)
        places = [named.pop("item"), *named.pop("keys", ())] if "item" in named else []
        try:
            with self.chain.lock:
                return self.extra[method](*places, **named)
        except (TypeError, ValueError, KeyError, IndexError) as e:
            raise RpcFault(-32602, "Invalid params", str(e)) from None


def _error(ident: Any, error: RpcFault) -> dict[str, Any]:
    body = {"code": error.code, "message": error.message} | ({} if error.data is None else {"data": error.data})
    return {"jsonrpc": "2.0", "id": ident, "error": body}


class _Session:
    """A connection. News that come while a request is answered are sent after the answer, which names their subscription."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.undo: dict[str, Callable[[], None]] = {}
        self._lock = Lock()
        self._held: list[str] | None = None

    def send(self, answer: Any) -> bool:
        return self.send_text(json.dumps(answer))

    def send_text(self, text: str) -> bool:
        """False where the connection is gone."""
        try:
            self.connection.send(text)
        except ConnectionClosed:
            return False
        return True

    def notify(self, method: str, subscription: str, result: Any) -> None:
        text = json.dumps({"jsonrpc": "2.0", "method": method, "params": {"subscription": subscription, "result": result}})
        with self._lock:  # also while they are sent: news stay in their order
            if self._held is None:
                self.send_text(text)
            else:
                self._held.append(text)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While this lasts, news are held back."""
        with self._lock:
            self._held = []
        try:
            yield
        finally:
            with self._lock:
                for text in self._held or ():
                    self.send_text(text)
                self._held = None

    def end(self) -> None:
        """Close the socket at once, as a line that breaks does."""
        try:
            self.connection.socket.shutdown(2)
        except OSError:
            return

    def undo_all(self, chain: SimulatedChain) -> None:
        with chain.lock:
            for undo in self.undo.values():
                undo()
            self.undo.clear()
