"""JSON-RPC over HTTP, with a bound on everything (see assay.peers): what does not answer in time is asked again, and given up.

An address can hold a password or an API key, so only its host is ever shown.
"""

from __future__ import annotations

import json
import re
import time
import weakref
from base64 import b64encode
from itertools import count
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote

from assay.errors import BadInput, Unreachable
from assay.peers import NoAnswer, Silent, Words, peer, reading
from assay.publish.rpc import NoAnswerError, RpcError, parted, result

__all__ = ["ANSWER_BYTES", "ANSWER_PARTS", "Http"]

ANSWER_BYTES = 32 * 2**20
"""Bytes of one answer."""
ANSWER_PARTS = 500_000
"""Brackets, commas and strings of one answer: an event has some forty."""
TRIES = 3
"""For what may be asked twice: everything here may, a signed transaction too."""
_HEX = re.compile("0x[0-9a-fA-F]*")
_KEY = 16
"""A part of a path with so many characters may be a key."""
PAUSE = 0.2
"""Seconds before the second try."""


class Http:
    """One address, asked by one thread at a time. seconds: for one question in all, connecting included."""

    def __init__(self, url: str, *, seconds: float = 20.0, tries: int = TRIES) -> None:
        parts, host, port = parted(url, "http", "https", hint="write https://HOST or http://127.0.0.1:8545")
        self.host = host if port is None else f"{host}:{port}"
        headers = {"Content-Type": "application/json"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
        there = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        self._seconds, self._tries, self._numbers = seconds, tries, count(1)
        self._words = Words(_secrets(parts, headers.get("Authorization", "")))
        self._peer = peer(there, extra="evm", headers=headers, seconds=seconds)
        weakref.finalize(self, self._peer.close)

    def ask(self, method: str, *params: Any) -> Any:
        """The result; raises RpcError where the answer is no, Unreachable where there is none that can be read."""
        number = next(self._numbers)
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        for last in [False] * (self._tries - 1) + [True]:
            try:
                return _result(self._once(body), number)
            except RpcError as error:
                data = error.data
                if isinstance(data, str) and not _HEX.fullmatch(data):
                    data = self._words(data, 500)
                raise RpcError(error.code, self._words(error.message, 500), data) from None
            except (NoAnswer, NoAnswerError) as error:
                self.close()
                if last:
                    why = f"{self._seconds:g} seconds were not enough" if isinstance(error, Silent) else str(error)
                    hint = "is the address right, and the node running?"
                    raise Unreachable(f"{self.host} does not answer {method} ({why})", hint=hint) from None
                time.sleep(PAUSE)
        raise AssertionError  # pragma: no cover

    def close(self) -> None:
        """Drop the connection; the next question opens another."""
        self._peer.close()

    def _once(self, body: bytes) -> bytes:
        """One question, and the bytes of its answer."""
        answer = self._peer.ask("POST", body=body, most=ANSWER_BYTES)
        if answer.status in (401, 403, 407):
            hint = "the address lacks a key, or has a wrong one"
            raise BadInput(f"{self.host} does not let us in (status {answer.status})", hint=hint)
        if answer.status != 200 and not answer.body.lstrip().startswith(b"{"):
            raise NoAnswerError(f"status {answer.status}")
        return answer.body


def _result(data: bytes, number: int) -> Any:
    """The result in an answer; raises RpcError, NoAnswer and NoAnswerError."""
    said = reading.parsed(data, parts=ANSWER_PARTS)
    if not isinstance(said, dict) or said.get("id") not in (number, None):
        raise NoAnswerError("no answer to what was asked")
    return result(said, number)


def _secrets(parts: SplitResult, credentials: str) -> list[str]:
    """What of an address a node might repeat, and nobody may be shown."""
    path = [part for part in parts.path.split("/") if len(part) >= _KEY]
    return [parts.password or "", credentials.removeprefix("Basic "), *path, *(value for _, value in parse_qsl(parts.query))]
