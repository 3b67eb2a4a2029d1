"""JSON-RPC over a websocket, with a bound on everything: a connection that answers slowly, or no more, is opened anew.

- A question has one deadline for all of it: connecting, asking, and asking once more.
- What may be asked twice is, on a new connection, if the first does not answer; an old connection gets half of the time, for it
  may have died since. What may not, a transaction, is asked once, on a new connection.
- Answers to other questions, and notifications, are passed over; what is no JSON-RPC at all ends the connection.

An address can hold a password or an API key, so only its host is ever shown.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import weakref
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput, Unreachable, broken
from assay.peers import NoAnswer, reading
from assay.publish.bittensor.libraries import connector
from assay.publish.rpc import NoAnswerError, parted, result

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

__all__ = ["ANSWER_BYTES", "ANSWER_PARTS", "Wire"]

ANSWER_BYTES = 32 * 2**20
"""Bytes of one answer; a runtime's metadata takes about one million, a full block or pool some twenty."""
ANSWER_PARTS = 200_000
"""Brackets, commas and strings of one answer. The longest answers are long texts."""
CLOSE_SECONDS = 1.0
"""How long the thread that reads from a connection may take to end, once the connection is cut."""


class Wire:
    """One address, asked by one thread at a time. seconds: for one question in all."""

    def __init__(self, url: str, *, seconds: float = 20.0) -> None:
        parts, host, port = parted(url, "ws", "wss", hint="write wss://HOST or ws://127.0.0.1:9944")
        self.host = host if port is None else f"{host}:{port}"
        self._url, self._seconds, self._numbers = parts._replace(fragment="").geturl(), seconds, count(1)
        self._connection: ClientConnection | None = None

    def ask(self, method: str, *params: Any, twice: bool = True) -> Any:
        """The result; raises RpcError where the answer is no, Unreachable where there is none that can be read.

        twice: the question may reach the node twice.
        """
        if not twice:
            self.close()
        until = time.monotonic() + self._seconds
        old = self._connection is not None
        try:
            return self._once(method, params, until - self._seconds / 2 if old else until)
        except NoAnswerError as error:
            if not twice or time.monotonic() >= until:
                raise self._silent(method, error) from None
        try:
            return self._once(method, params, until)
        except NoAnswerError as error:
            raise self._silent(method, error) from None

    def close(self) -> None:
        """Drop the connection; the next question opens another."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            _cut(connection)

    def _silent(self, method: str, error: NoAnswerError) -> Unreachable:
        return Unreachable(f"{self.host} does not answer {method} ({error})", hint="is the address right, and the node running?")

    def _once(self, method: str, params: tuple[Any, ...], until: float) -> Any:
        """One question on one connection, which is dropped if there is no answer; raises RpcError and NoAnswerError."""
        from websockets.exceptions import WebSocketException

        try:
            return self._answer(self._connected(until), method, params, until)
        except (OSError, WebSocketException, NoAnswerError, ValueError) as error:  # ValueError: where a node sends us on to
            self.close()
            if time.monotonic() >= until:
                raise NoAnswerError(f"{self._seconds:g} seconds were not enough") from None
            raise error if isinstance(error, NoAnswerError) else NoAnswerError(broken(error)) from None

    def _answer(self, connection: ClientConnection, method: str, params: tuple[Any, ...], until: float) -> Any:
        number = next(self._numbers)
        timer = threading.Timer(max(0.0, until - time.monotonic()), _shut, [connection])
        timer.daemon = True
        timer.start()  # sending has no deadline of its own
        try:
            connection.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
            while True:
                said = _object(connection.recv(max(0.0, until - time.monotonic())))
                if said.get("id") == number:
                    return result(said, number)
        finally:
            timer.cancel()

    def _connected(self, until: float) -> ClientConnection:
        """The connection there is, or a new one; raises BadInput where the node does not let us in."""
        from websockets.exceptions import InvalidStatus

        if self._connection is None:
            left = max(0.001, until - time.monotonic())
            try:
                self._connection = connector()(
                    self._url,
                    open_timeout=left,
                    close_timeout=CLOSE_SECONDS,
                    ping_interval=None,  # every question has its deadline
                    max_size=ANSWER_BYTES,
                    compression=None,
                    proxy=None,
                )
            except InvalidStatus as error:
                status = error.response.status_code
                if status in (401, 403, 407):
                    raise BadInput(
                        f"{self.host} does not let us in (status {status})", hint="the address lacks a key, or has a wrong one"
                    ) from None
                raise NoAnswerError(f"status {status}") from None
            weakref.finalize(self, _cut, self._connection)
        return self._connection


def _shut(connection: ClientConnection) -> None:
    """End both directions at once, whoever waits for either."""
    with suppress(OSError):  # it is closed already
        connection.socket.shutdown(socket.SHUT_RDWR)


def _cut(connection: ClientConnection) -> None:
    _shut(connection)
    connection.close()


def _object(data: str | bytes) -> dict[str, Any]:
    """A message as an object of JSON; raises NoAnswerError."""
    try:
        said = reading.parsed(data, parts=ANSWER_PARTS)
    except NoAnswer as error:
        raise NoAnswerError(error.why) from None
    if not isinstance(said, dict):
        raise NoAnswerError("not JSON-RPC")
    return said
