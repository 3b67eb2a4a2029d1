"""A way out of the box to one model service and nowhere else: HTTP on a Unix socket, forwarded to one base_url.

- The agent says what it wants below the base_url; where that is, is not for it to say: no other host, no `..`, no CONNECT.
- The key is added out here. What the agent sends as credentials or cookies is dropped, and so are cookies that come back.
- Redirects are handed back, never followed.
- Requests, bytes, connections and seconds have bounds; over one of them the agent is told 429 or 413, and that is its affair.
- When the service fails (no connection, cut off, 5xx, or it refuses the validator's key or quota: 401, 402, 403, 407, 429), it is
  noted in `troubles`: a trial that did not pass all the same is then an ERROR. SPEC 2.1.
"""

from __future__ import annotations

import http.client
import re
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay.errors import broken
from assay.judge.service import HEADER, PATH, Model
from assay.judge.tests.asked import LIMITS, ProxyLimits, Seen

__all__ = ["open_proxy"]

_DROPPED = frozenset(
    {
        *("accept-encoding", "api-key", "authorization", "connection", "content-length", "cookie", "expect", "forwarded", "host"),
        *("keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
        *("x-api-key", "x-forwarded-for", "x-forwarded-host", "x-goog-api-key"),
    }
)
_DROPPED_BACK = frozenset(
    {"alt-svc", "connection", "content-length", "keep-alive", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade"}
)
_ESCAPED = re.compile("%(2e|2f|5c|00)", re.ASCII | re.IGNORECASE)
_NOT_THE_AGENTS = frozenset({401, 402, 403, 407, 429})
_CHUNK = 65_536
_HEARD_OUT = 5.0
"""Seconds that who is refused may go on sending."""


@contextmanager
def open_proxy(model: Model, path: Path, limits: ProxyLimits = LIMITS) -> Iterator[Seen]:
    """Serves on a new Unix socket while the context lasts; afterwards no connection of it is open. Raises OSError."""
    server = _Server(str(path), model, limits)
    try:
        path.chmod(0o666)  # the box's user is not ours; who may reach the socket is a matter of the folder it is in
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="model proxy", daemon=True)
        thread.start()
        try:
            yield server.seen
        finally:
            server.shutdown()
            thread.join()
    finally:
        server.server_close()
        server.hang_up()
        path.unlink(missing_ok=True)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, path: str, model: Model, limits: ProxyLimits) -> None:
        self.model, self.limits, self.seen = model, limits, Seen()
        self.lock = threading.Lock()
        self.open: set[socket.socket] = set()
        self.upstream: set[http.client.HTTPConnection] = set()
        self.closing = False
        super().__init__(path, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Only so many at a time; one more is hung up on."""
        with self.lock:
            if len(self.open) >= self.limits.connections:
                return False
            self.open.add(request)
        return True

    def shutdown_request(self, request: Any) -> None:
        with self.lock:
            self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that the agent broke off is nothing to tell of."""

    def hang_up(self) -> None:
        """Close what is still open on both sides, so that its threads end."""
        with self.lock:
            self.closing = True
            for one in (*self.open, *(found.sock for found in self.upstream if found.sock is not None)):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def count(self, sent: int = 0, received: int = 0) -> bool:
        """Add to the sums; whether they are still within the bounds."""
        with self.lock:
            self.seen.sent += sent
            self.seen.received += received
            return self.seen.sent + self.seen.received <= self.limits.total_bytes

    def admit(self) -> bool:
        """Whether one more request is within the bounds."""
        with self.lock:
            self.seen.requests += 1
            return self.seen.requests <= self.limits.requests

    def trouble(self, what: str) -> None:
        with self.lock:
            if not self.closing:  # then it was us who hung up
                self.seen.trouble(what)

    def refused(self) -> None:
        with self.lock:
            self.seen.refused += 1


class _Refused(Exception):
    """What the agent asked for is not forwarded."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "assay"
    sys_version = ""

    def setup(self) -> None:
        self.request.settimeout(self.server.limits.seconds)
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what an agent asks is in nobody's log."""

    def address_string(self) -> str:
        return "agent"

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        self.close_connection = True
        try:
            target = self._target()
            if not self.server.admit():
                raise _Refused(429, "this trial's requests are used up")
            body = self._body()
        except _Refused as refusal:
            self.server.refused()
            self._say(refusal.status, refusal.why)
            self._hear_out()
            return
        self._forward(target, body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no request, or none that is served."""
        super().send_error(code, message, explain)
        self._hear_out()

    def _hear_out(self) -> None:
        """Takes what is still being sent, within bounds: who is hung up on before all of it is out may not hear why."""
        until, left = time.monotonic() + _HEARD_OUT, self.server.limits.request_bytes
        with suppress(OSError):
            self.request.shutdown(socket.SHUT_WR)
            while left > 0 and (seconds := until - time.monotonic()) > 0:
                self.request.settimeout(seconds)
                if not (part := self.request.recv(_CHUNK)):
                    return
                left -= len(part)

    def _target(self) -> str:
        target = self.path
        path = target.partition("?")[0]
        if PATH.fullmatch(target) is None or _ESCAPED.search(path) or "//" in path:
            raise _Refused(403, "only paths below the service's base_url are forwarded")
        if any(part.partition(";")[0] in (".", "..") for part in path.split("/")):  # some services leave out what follows
            raise _Refused(403, "only paths below the service's base_url are forwarded")
        return urlsplit(self.server.model.base_url).path.rstrip("/") + target

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            if "Content-Length" in self.headers:
                raise _Refused(400, "a body has one length")
            return self._checked(self._chunks())
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or re.fullmatch("[0-9]{1,12}", length, re.ASCII) is None:
            raise _Refused(400, "the body's length cannot be read")
        if int(length) > self.server.limits.request_bytes:
            raise _Refused(413, "the request is too large")
        body = self.rfile.read(int(length))
        if len(body) != int(length):
            raise _Refused(400, "the body ended too early")
        return self._checked(body)

    def _checked(self, body: bytes) -> bytes:
        if not self.server.count(sent=len(body)):
            raise _Refused(429, "this trial's bytes are used up")
        return body

    def _chunks(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            head = self.rfile.readline(100).split(b";")[0].strip()
            if re.fullmatch(b"[0-9A-Fa-f]{1,8}", head) is None:
                raise _Refused(400, "a chunk's length cannot be read")
            length = int(head, 16)
            size += length
            if size > self.server.limits.request_bytes:
                raise _Refused(413, "the request is too large")
            part = self.rfile.read(length)
            if len(part) != length or not self.rfile.readline(3).endswith(b"\n"):
                raise _Refused(400, "a chunk ended too early")
            if not length:
                return b"".join(parts)
            parts.append(part)

    def _forward(self, target: str, body: bytes) -> None:
        model = self.server.model
        headers = {name: value for name, value in self.headers.items() if _passes(name, value, model)}
        headers |= {"Accept-Encoding": "identity", **model.credentials}
        connection = _connection(model, self.server.limits.seconds)
        with self.server.lock:
            self.server.upstream.add(connection)
        try:
            try:
                connection.request(self.command, target, body=body if self.command == "POST" else None, headers=headers)
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                self.server.trouble(f"{self.command}: no answer ({broken(error)})")
                self._say(502, "the service did not answer")
                return
            if answer.status >= 500 or answer.status in _NOT_THE_AGENTS:
                self.server.trouble(f"{self.command}: status {answer.status}")
            self._hand_back(answer)
        finally:
            with self.server.lock:
                self.server.upstream.discard(connection)
            connection.close()

    def _hand_back(self, answer: http.client.HTTPResponse) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _DROPPED_BACK:
                self.send_header(name, value.replace("\r", " ").replace("\n", " "))
        self.send_header("Connection", "close")
        if answer.length is not None:
            self.send_header("Content-Length", str(answer.length))
        self.end_headers()
        received = 0
        while True:
            try:
                part = answer.read1(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                self.server.trouble(f"{self.command}: cut off ({broken(error)})")
                return
            if not part:
                break
            received += len(part)
            if not self.server.count(received=len(part)) or received > self.server.limits.answer_bytes:
                self.server.refused()
                return
            self.wfile.write(part)
            self.wfile.flush()
        if answer.length:
            self.server.trouble(f"{self.command}: cut off, {answer.length} bytes are missing")

    def _say(self, status: int, why: str) -> None:
        data = f'{{"error": {{"message": "{why}", "type": "assay_proxy"}}}}\n'.encode()
        with suppress(OSError):
            self.send_response_only(status)
            for name, value in (
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(data))),
                ("Connection", "close"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)


def _passes(name: str, value: str, model: Model) -> bool:
    """Whether a header of the agent's is forwarded: a well-formed one that is neither a credential nor about the connection."""
    well_formed = HEADER.fullmatch(name) is not None and value.isascii() and value.replace("\t", " ").isprintable()
    return well_formed and name.lower() not in _DROPPED and name.lower() != model.header.lower()


def _connection(model: Model, seconds: float) -> http.client.HTTPConnection:
    parts = urlsplit(model.base_url)
    host = parts.hostname or ""
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, parts.port, timeout=seconds, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, parts.port, timeout=seconds)
