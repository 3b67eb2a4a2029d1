"""Forwards an agent's HTTP requests from a Unix socket to one model service, the only way out of the box. SPEC 2.1.

- The agent chooses a path below the service's base_url, among a few endpoints that store nothing (`model_requests`). It cannot
  choose the host, and neither `..` nor CONNECT is forwarded.
- The key is added here, outside the box. Only headers that describe the request and the wanted answer pass: no credentials, no
  cookies, nothing that could steer a gateway. Cookies in answers are dropped.
- Redirects are returned to the agent, never followed.
- Requests, bytes, connections and seconds are limited. Above a limit the agent gets 429 or 413, which is its own failure. Bytes
  are counted as they arrive, and each piece of a body counts as at least 256.
- `upstream` sends the requests and decides who caused a failure. If it was the service, a trial that does not pass is an ERROR.

`h11` parses the agent's side; `assay.peers.http` speaks to the service.
"""

from __future__ import annotations

import json
import re
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11

from assay.judge.service import HEADER, PATH, ModelAccess
from assay.judge.terminal import model_requests
from assay.judge.terminal.model_requests import LIMITS, ModelTraffic, NotForwarded, ProxyLimits
from assay.judge.terminal.upstream import Closed, ModelRequest, Upstream
from assay.peers import NoAnswer, Overrun
from assay.peers.http import StreamedAnswer

__all__ = ["open_proxy"]

_PASSED = frozenset({"accept", "anthropic-beta", "anthropic-version", "content-type", "openai-beta", "user-agent", "x-title"})
"""The agent's headers that are forwarded. Others could steer a gateway to another path, host, or stored answer."""
_DROPPED_BACK = frozenset(
    {"alt-svc", "connection", "content-length", "keep-alive", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade"}
)
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_CHUNK = 65_536
_HEAD = 65_536
"""Bytes of a request's line and headers."""
_PIECE = 256
"""Bytes that each piece of a body counts as at least, because parsing a piece has a cost."""
_SLOW = 5.0
"""Seconds for which an agent may keep an answer waiting. If the answer is cut off after that, the agent caused it."""
_DRAIN_SECONDS = 5.0
"""Seconds for which a refused agent may go on sending."""


@contextmanager
def open_proxy(model: ModelAccess, path: Path, limits: ProxyLimits = LIMITS) -> Iterator[ModelTraffic]:
    """Serves on a new Unix socket until the context ends, which closes all its connections. Raises OSError."""
    server = _ProxyServer(str(path), model, limits)
    try:
        path.chmod(0o666)  # the box has another user; the folder's permissions decide who reaches the socket
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


class _ProxyServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, path: str, model: ModelAccess, limits: ProxyLimits) -> None:
        self.model, self.limits, self.seen = model, limits, ModelTraffic()
        self.lock = threading.Lock()
        self.open: set[socket.socket] = set()
        self.upstream = Upstream(model, limits, self.seen, self.lock)
        super().__init__(path, _ProxyHandler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether one more connection may be open; otherwise it is closed at once."""
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
        """Nothing: the agent may break off a connection."""

    def hang_up(self) -> None:
        """Closes what is still open on both sides, so that the threads end."""
        self.upstream.close()
        with self.lock:
            for connection in self.open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def count(self, sent: int = 0, received: int = 0) -> bool:
        """Adds to the sums; returns whether they are within the limits."""
        with self.lock:
            self.seen.sent += sent
            self.seen.received += received
            return self.seen.sent + self.seen.received <= self.limits.total_bytes

    def admit(self) -> bool:
        """Counts a request; returns whether it is within the limits."""
        with self.lock:
            self.seen.requests += 1
            return self.seen.requests <= self.limits.requests

    def refused(self) -> None:
        with self.lock:
            self.seen.refused += 1


class _AgentGone(Exception):
    """The agent closed the connection."""


class _ProxyHandler(socketserver.BaseRequestHandler):
    """One connection, which carries one request and its answer."""

    server: _ProxyServer
    request: socket.socket

    def handle(self) -> None:
        self.request.settimeout(self.server.limits.seconds)
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD)
        try:
            request, target, body = self._read_request()
        except NotForwarded as refusal:
            self.server.refused()
            self._answer_error(refusal.status, refusal.why)
            self._drain()
            return
        except _AgentGone:
            return
        self._forward(request, target, body)

    def _read_request(self) -> tuple[h11.Request, str, bytes]:
        """The request, the target and body that are forwarded. Raises NotForwarded, and _AgentGone if there is no request."""
        try:
            request = self._next()
            if not isinstance(request, h11.Request):
                raise _AgentGone
            target, method = request.target.decode("ascii"), request.method.decode("ascii")
            if PATH.fullmatch(target) is None:
                raise NotForwarded(403, "only paths below the service's base_url are forwarded")
            model_requests.check(self.server.model, method, target)
            if not self.server.admit():
                raise NotForwarded(429, "this trial's requests are used up")
            return request, self._base() + target, model_requests.stateless(self.server.model, target, self._body(request))
        except h11.RemoteProtocolError as error:
            raise NotForwarded(431 if error.error_status_hint == 431 else 400, "the request cannot be read") from None

    def _base(self) -> str:
        return urlsplit(self.server.model.base_url).path.rstrip("/")

    def _next(self) -> h11.Request | h11.Data | h11.EndOfMessage | h11.ConnectionClosed:
        """The next event. Raises h11.RemoteProtocolError, NotForwarded above the limit on all bytes, and _AgentGone."""
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                if self.http.they_are_waiting_for_100_continue:
                    self._send(h11.InformationalResponse(status_code=100, headers=[]))
                data = self._receive()
                self.http.receive_data(data)
            elif isinstance(event, h11.Request | h11.Data | h11.EndOfMessage | h11.ConnectionClosed):
                return event
            else:  # h11.PAUSED
                raise _AgentGone

    def _receive(self) -> bytes:
        try:
            data = self.request.recv(_CHUNK)
        except OSError:
            raise _AgentGone from None
        if not self.server.count(sent=len(data)):
            raise NotForwarded(429, "this trial's bytes are used up")
        return data

    def _body(self, request: h11.Request) -> bytes:
        names = [name for name, _ in request.headers]
        if b"content-length" in names and b"transfer-encoding" in names:
            raise NotForwarded(400, "a body has one length")
        most, taken = self.server.limits.request_bytes, 0
        declared = next((int(value) for name, value in request.headers if name == b"content-length"), 0)
        if declared > most:
            raise NotForwarded(413, "the request is too large")
        body = bytearray()
        while isinstance(event := self._next(), h11.Data):
            body += event.data
            extra = max(0, _PIECE - len(event.data)) if event.chunk_start or event.chunk_end else 0
            taken += len(event.data) + extra
            if len(body) > most or taken > max(most, _PIECE):
                raise NotForwarded(413, "the request is too large, or in too many pieces")
            if not self.server.count(sent=extra):
                raise NotForwarded(429, "this trial's bytes are used up")
        return bytes(body)

    def _drain(self) -> None:
        """Reads what the agent is still sending, within limits: otherwise it might not get the answer that says why."""
        until, left = time.monotonic() + _DRAIN_SECONDS, self.server.limits.request_bytes
        with suppress(OSError):
            self.request.shutdown(socket.SHUT_WR)
            while left > 0 and (seconds := until - time.monotonic()) > 0:
                self.request.settimeout(seconds)
                if not (part := self.request.recv(_CHUNK)):
                    return
                left -= len(part)

    def _forward(self, received: h11.Request, target: str, body: bytes) -> None:
        model = self.server.model
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in received.headers.raw_items()]
        headers = {name: value for name, value in pairs if _passes(name, value, model)} | model.credentials
        request = ModelRequest(received.method.decode("ascii"), target, headers, body)
        with suppress(Closed), self.server.upstream.answer(request) as exchange:
            if exchange is None:
                self._answer_error(502, "the service did not answer")
                return
            with suppress(OSError, h11.LocalProtocolError):  # the agent closed the connection, which is its own failure
                self._pass_answer(request, exchange)

    def _pass_answer(self, request: ModelRequest, exchange: StreamedAnswer) -> None:
        """Sends the service's answer to the agent."""
        answer = exchange.answer
        headers = [
            (name, value.strip())
            for name, value in answer.headers
            if name.lower() not in _DROPPED_BACK and HEADER.fullmatch(name) and _VALUE.fullmatch(value.strip())
        ]
        headers.append(("Connection", "close"))
        if (length := answer.header("content-length")) is not None and answer.header("transfer-encoding") is None:
            headers.append(("Content-Length", length))
        self._send(h11.Response(status_code=answer.status, headers=headers))
        waited = 0.0
        while True:
            try:
                part = exchange.read()
            except Overrun:
                self.server.refused()
                return
            except NoAnswer as error:
                self.server.upstream.cut_off(request, error, slow=waited > _SLOW)
                return
            if not part:
                break
            if not self.server.count(received=len(part)):
                self.server.refused()
                return
            began = time.monotonic()
            self._send(h11.Data(data=part))
            waited += time.monotonic() - began
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> None:
        if data := self.http.send(event):
            self.request.sendall(data)

    def _answer_error(self, status: int, why: str) -> None:
        data = json.dumps({"error": {"message": why, "type": "assay_proxy"}}).encode() + b"\n"
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data))), ("Connection", "close")]
        with suppress(OSError, h11.LocalProtocolError):
            self._send(h11.Response(status_code=status, headers=headers))
            self._send(h11.Data(data=data))
            self._send(h11.EndOfMessage())


def _passes(name: str, value: str, model: ModelAccess) -> bool:
    """True if a header of the agent is forwarded: it is well-formed, in `_PASSED`, and not the header that carries the key."""
    well_formed = value.isascii() and value.replace("\t", " ").isprintable()
    return well_formed and name.lower() in _PASSED and name.lower() != model.header.lower()
