"""JSON-RPC clients for nodes, over HTTP and over a websocket, with a deadline for each question and a size limit for each answer.

- `HttpRpc` repeats a question that is not answered in time. Every question over HTTP may reach the node twice, even a signed
  transaction.
- `WebSocketRpc` has one deadline for connecting, asking, and asking once more. A question that may be repeated is asked again on
  a new connection. An old connection gets only half of the time, because it may be dead. A transaction may not be repeated, so
  it is asked once, on a new connection. Answers to other questions, and notifications, are skipped; anything that is not
  JSON-RPC ends the connection.

An address may contain a password or an API key, so only its host is ever shown.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import weakref
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from assay.errors import BadInput, Unreachable, broken
from assay.peers import NoAnswer, Silent, Words, peer, reading

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

ANSWER_BYTES = 32 * 2**20
"""Most bytes of one answer. A runtime's metadata has about one million, a full block or pool about twenty million."""
HTTP_PARTS = 500_000
"""Most brackets, commas and strings of one answer over HTTP; an event has about forty."""
WEBSOCKET_PARTS = 200_000
"""The same over a websocket, where the longest answers are long texts."""
CLOSE_SECONDS = 1.0
"""Seconds that a websocket's reading thread may take to end after the connection is closed."""
TRIES = 3
"""The number of times that a question is asked over HTTP."""
PAUSE = 0.2
"""Seconds before the second try."""
_HEX = re.compile("0x[0-9a-fA-F]*")
_KEY = 16
"""A part of a URL's path with at least so many characters may be an API key."""
_SHUT_OUT = (401, 403, 407)
"""Statuses of a node that needs a key, or another key."""


class RpcError(Exception):
    """The node answered with an error: its code, its message, its data. The message is safe to show and to write down."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        self.code, self.message = code, Words()(_text(message), 500)
        super().__init__(self.message)
        self.data = _text(data) if isinstance(data, str) else data


class NoAnswerError(Exception):
    """The node's reply is not a JSON-RPC answer; the reason, in a few words."""


class _Rpc:
    """One address, asked by one thread at a time. seconds: for one question, connecting included."""

    schemes: ClassVar[tuple[str, ...]]
    example: ClassVar[str]

    def __init__(self, url: str, seconds: float) -> None:
        self._parts, host, port = _parts(url, *self.schemes, hint=f"write {self.example}")
        self.host = host if port is None else f"{host}:{port}"
        self._seconds, self._numbers = seconds, count(1)

    def _question(self, method: str, params: tuple[Any, ...]) -> tuple[int, str]:
        """The number of a question, and its text."""
        number = next(self._numbers)
        return number, json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    def _silent(self, method: str, why: object) -> Unreachable:
        return Unreachable(f"{self.host} does not answer {method} ({why})", hint="is the address right, and the node running?")

    def _shut_out(self, status: int) -> BadInput:
        hint = "the address lacks a key, or has a wrong one"
        return BadInput(f"{self.host} does not let us in (status {status})", hint=hint)


class HttpRpc(_Rpc):
    """A node that is asked over HTTP."""

    schemes = ("http", "https")
    example = "https://HOST or http://127.0.0.1:8545"

    def __init__(self, url: str, *, seconds: float = 20.0, tries: int = TRIES) -> None:
        super().__init__(url, seconds)
        parts, self._tries = self._parts, tries
        headers = {"Content-Type": "application/json"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
        address = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        self._words = Words(_secrets(parts, headers.get("Authorization", "")))
        self._peer = peer(address, extra="evm", headers=headers, seconds=seconds)
        weakref.finalize(self, self._peer.close)

    def ask(self, method: str, *params: Any) -> Any:
        """The result. Raises RpcError if the node answers with an error, Unreachable if there is no readable answer."""
        number, text = self._question(method, params)
        body = text.encode()
        for last in [False] * (self._tries - 1) + [True]:
            try:
                message = _object(self._once(body), HTTP_PARTS)
                if message.get("id") not in (number, None):
                    raise NoAnswerError("no answer to what was asked")
                return _result(message, number)
            except RpcError as error:
                data = error.data
                if isinstance(data, str) and not _HEX.fullmatch(data):
                    data = self._words(data, 500)
                raise RpcError(error.code, self._words(error.message, 500), data) from None
            except (NoAnswer, NoAnswerError) as error:
                self.close()
                if last:
                    why = f"{self._seconds:g} seconds were not enough" if isinstance(error, Silent) else str(error)
                    raise self._silent(method, why) from None
                time.sleep(PAUSE)
        raise AssertionError  # pragma: no cover

    def close(self) -> None:
        """Drop the connection; the next question opens another."""
        self._peer.close()

    def _once(self, body: bytes) -> bytes:
        """Ask once, and return the bytes of the answer."""
        answer = self._peer.ask("POST", body=body, most=ANSWER_BYTES)
        if answer.status in _SHUT_OUT:
            raise self._shut_out(answer.status)
        if answer.status != 200 and not answer.body.lstrip().startswith(b"{"):
            raise NoAnswerError(f"status {answer.status}")
        return answer.body


class WebSocketRpc(_Rpc):
    """A node that is asked over a websocket."""

    schemes = ("ws", "wss")
    example = "wss://HOST or ws://127.0.0.1:9944"

    def __init__(self, url: str, *, seconds: float = 20.0) -> None:
        super().__init__(url, seconds)
        self._url = self._parts._replace(fragment="").geturl()
        self._connection: ClientConnection | None = None

    def ask(self, method: str, *params: Any, twice: bool = True) -> Any:
        """The result. Raises RpcError if the node answers with an error, Unreachable if there is no readable answer.

        twice: whether the question may reach the node twice.
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

    def _once(self, method: str, params: tuple[Any, ...], until: float) -> Any:
        """Ask once on one connection, and close it if there is no answer. Raises RpcError and NoAnswerError."""
        from websockets.exceptions import WebSocketException

        try:
            return self._answer(self._connected(until), method, params, until)
        except (OSError, WebSocketException, NoAnswerError, ValueError) as error:  # ValueError: an invalid redirect of the node
            self.close()
            if time.monotonic() >= until:
                raise NoAnswerError(f"{self._seconds:g} seconds were not enough") from None
            raise error if isinstance(error, NoAnswerError) else NoAnswerError(broken(error)) from None

    def _answer(self, connection: ClientConnection, method: str, params: tuple[Any, ...], until: float) -> Any:
        number, text = self._question(method, params)
        timer = threading.Timer(max(0.0, until - time.monotonic()), _shut, [connection])
        timer.daemon = True
        timer.start()  # sending has no deadline of its own
        try:
            connection.send(text)
            while True:
                message = _object(connection.recv(max(0.0, until - time.monotonic())), WEBSOCKET_PARTS)
                if message.get("id") == number:
                    return _result(message, number)
        finally:
            timer.cancel()

    def _connected(self, until: float) -> ClientConnection:
        """The open connection, or a new one. Raises BadInput if the node refuses access."""
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
                if status in _SHUT_OUT:
                    raise self._shut_out(status) from None
                raise NoAnswerError(f"status {status}") from None
            weakref.finalize(self, _cut, self._connection)
        return self._connection


def connector() -> Callable[..., ClientConnection]:
    """The function that opens a websocket. Raises BadInput if the extra is not installed."""
    try:
        from websockets.sync.client import connect
    except ImportError:
        hint = "install Assay with it: pip install 'assay[bittensor]'"
        raise BadInput("Bittensor needs the package websockets", hint=hint) from None
    return connect


def _shut(connection: ClientConnection) -> None:
    """End both directions at once, even while another thread waits for data."""
    with suppress(OSError):  # the connection is closed already
        connection.socket.shutdown(socket.SHUT_RDWR)


def _cut(connection: ClientConnection) -> None:
    _shut(connection)
    connection.close()


def _parts(url: str, *schemes: str, hint: str) -> tuple[SplitResult, str, int | None]:
    """The parts of a node's address, its host and its port. Raises BadInput, without the address, if it is not valid."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")  # as DNS requires: a label has 1 to 63 characters
    except ValueError:
        host, port = "", None
    if not host or parts.scheme not in schemes or not url.isascii() or not url.isprintable():
        raise BadInput("is not the address of a node", hint=hint)
    return parts, host, port


def _object(data: str | bytes, parts: int) -> dict[str, Any]:
    """A message as a JSON object. Raises NoAnswerError if it is not one."""
    try:
        message = reading.parsed(data, parts=parts)
    except NoAnswer as error:
        raise NoAnswerError(error.why) from None
    if not isinstance(message, dict):
        raise NoAnswerError("not JSON-RPC")
    return message


def _result(message: dict[str, Any], number: int) -> Any:
    """The result in the answer to question `number`. Raises RpcError and NoAnswerError."""
    error = message.get("error")
    if error is not None:
        answer = error if isinstance(error, dict) else {"message": str(error)}
        code = answer.get("code")
        raise RpcError(code if isinstance(code, int) else 0, str(answer.get("message", "")), answer.get("data"))
    if "result" not in message or message.get("id") != number:
        raise NoAnswerError("neither result nor error")
    return message["result"]


def _text(text: str) -> str:
    """The text without lone surrogates, which JSON can contain but a file cannot."""
    return text.encode("utf-8", "replace").decode()


def _secrets(parts: SplitResult, credentials: str) -> list[str]:
    """The parts of an address that must never be shown, even if a node repeats them."""
    path = [part for part in parts.path.split("/") if len(part) >= _KEY]
    return [parts.password or "", credentials.removeprefix("Basic "), *path, *(value for _, value in parse_qsl(parts.query))]
