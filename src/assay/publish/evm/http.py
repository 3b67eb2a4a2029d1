"""JSON-RPC over HTTP, with a bound on everything: a connection that answers slowly, or no more, is dropped and opened anew.

An address can hold a password or an API key, so only its host is ever shown.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
import weakref
from base64 import b64encode
from contextlib import suppress
from itertools import count
from typing import Any
from urllib.parse import unquote

from assay.errors import BadInput, Unreachable, broken
from assay.publish.rpc import NoAnswerError, parted, result

__all__ = ["ANSWER_BYTES", "Http"]

ANSWER_BYTES = 32 * 2**20
"""Bytes of one answer."""
TRIES = 3
"""For what may be asked twice: everything here may, a signed transaction too."""
PAUSE = 0.2
"""Seconds before the second try."""


class Http:
    """One address, asked by one thread at a time. seconds: for one question in all, connecting included."""

    def __init__(self, url: str, *, seconds: float = 20.0, tries: int = TRIES) -> None:
        parts, host, port = parted(url, "http", "https", hint="write https://HOST or http://127.0.0.1:8545")
        self.host = host if port is None else f"{host}:{port}"
        self._secure, self._name, self._port = parts.scheme == "https", host, port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
        self._seconds, self._tries, self._numbers = seconds, tries, count(1)
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, *params: Any) -> Any:
        """The result; raises RpcError where the answer is no, Unreachable where there is none that can be read."""
        number = next(self._numbers)
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        for last in [False] * (self._tries - 1) + [True]:
            try:
                return _result(self._once(body), number)
            except (OSError, http.client.HTTPException, NoAnswerError) as error:
                self.close()
                if last:
                    why = str(error) if isinstance(error, NoAnswerError) else broken(error)
                    hint = "is the address right, and the node running?"
                    raise Unreachable(f"{self.host} does not answer {method} ({why})", hint=hint) from None
                time.sleep(PAUSE)
        raise AssertionError  # pragma: no cover

    def close(self) -> None:
        """Drop the connection; the next question opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _once(self, body: bytes) -> bytes:
        """One question, its answer read to the end before the time is up."""
        connection = self._connection
        if connection is None:
            connection = self._connection = self._connect()
            weakref.finalize(self, connection.close)
        ended = threading.Event()

        def cut() -> None:
            ended.set()
            if connection.sock is not None:
                with suppress(OSError):  # it is closed already
                    connection.sock.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self._seconds, cut)
        timer.daemon = True
        timer.start()
        try:
            connection.request("POST", self._path, body, self._headers)
            answer = connection.getresponse()
            data = answer.read(ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException):
            if ended.is_set():
                raise NoAnswerError(f"{self._seconds:g} seconds were not enough") from None
            raise
        finally:
            timer.cancel()
        if ended.is_set():
            raise NoAnswerError(f"{self._seconds:g} seconds were not enough")
        if len(data) > ANSWER_BYTES:
            raise NoAnswerError(f"more than {ANSWER_BYTES} bytes")
        if answer.status in (401, 403, 407):
            raise BadInput(
                f"{self.host} does not let us in (status {answer.status})", hint="the address lacks a key, or has a wrong one"
            )
        if answer.status != 200 and not data.lstrip().startswith(b"{"):
            raise NoAnswerError(f"status {answer.status}")
        return data

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._name, self._port, timeout=self._seconds, context=context)
        return http.client.HTTPConnection(self._name, self._port, timeout=self._seconds)


def _result(data: bytes, number: int) -> Any:
    """The result in an answer; raises RpcError and NoAnswerError."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        raise NoAnswerError("not JSON") from None
    if not isinstance(said, dict) or said.get("id") not in (number, None):
        raise NoAnswerError("no answer to what was asked")
    return result(said, number)
