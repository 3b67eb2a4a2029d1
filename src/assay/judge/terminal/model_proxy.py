"""A way out of the box to one model service and nowhere else: HTTP on a Unix socket, forwarded to one base_url.

- The agent says what it wants below the base_url, of a few endpoints that keep nothing there (`endpoints`); where that is, is not
  for it to say: no other host, no `..`, no CONNECT.
- The key is added out here. Of the agent's headers only those pass that say what it sends and how to answer: no credentials, no
  cookies, nothing that a gateway would take for an order. Cookies that come back are dropped.
- Redirects are handed back, never followed.
- Requests, bytes, connections and seconds have bounds; over one of them the agent is told 429 or 413, and that is its affair.
  Bytes are counted as they come in, and a piece of a body counts as no fewer than 256, however short it is.
- How the service is spoken to, and whose trouble a failure is, `upstream` says. What is the service's is noted in `troubles`: a
  trial that did not pass all the same is then an ERROR. SPEC 2.1.
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
"""Headers of the agent's that are forwarded. Others steer gateways: to another path, another host, or an answer of another's."""
_DROPPED_BACK = frozenset(
    {"alt-svc", "connection", "content-length", "keep-alive", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade"}
)
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_CHUNK = 65_536
_HEAD = 65_536
"""Bytes of a request's line and headers."""
_PIECE = 256
"""Bytes that the shortest piece of a body counts as: what it costs to take one apart."""
_SLOW = 5.0
"""Seconds for which an agent may keep an answer waiting; if it is cut off after that, the agent is to blame."""
_HEARD_OUT = 5.0
"""Seconds that who is refused may go on sending."""


@contextmanager
def open_proxy(model: ModelAccess, path: Path, limits: ProxyLimits = LIMITS) -> Iterator[ModelTraffic]:
    """Serves on a new Unix socket while the context lasts; afterwards no connection of it is open. Raises OSError."""
    server = _ProxyServer(str(path), model, limits)
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
        self.upstream.close()
        with self.lock:
            for one in self.open:
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

    def refused(self) -> None:
        with self.lock:
            self.seen.refused += 1


class _Gone(Exception):
    """The agent hung up."""


class _ProxyHandler(socketserver.BaseRequestHandler):
    """One connection: one request, its answer, and the end."""

    server: _ProxyServer
    request: socket.socket

    def handle(self) -> None:
        self.request.settimeout(self.server.limits.seconds)
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD)
        try:
            asked, target, body = self._asked()
        except NotForwarded as refusal:
            self.server.refused()
            self._say(refusal.status, refusal.why)
            self._hear_out()
            return
        except _Gone:
            return
        self._forward(asked, target, body)

    def _asked(self) -> tuple[h11.Request, str, bytes]:
        """A request, where it goes and the body that is forwarded. Raises NotForwarded, and _Gone if there is none."""
        try:
            asked = self._next()
            if not isinstance(asked, h11.Request):
                raise _Gone
            target, method = asked.target.decode("ascii"), asked.method.decode("ascii")
            if PATH.fullmatch(target) is None:
                raise NotForwarded(403, "only paths below the service's base_url are forwarded")
            model_requests.check(self.server.model, method, target)
            if not self.server.admit():
                raise NotForwarded(429, "this trial's requests are used up")
            return asked, self._base() + target, model_requests.stateless(self.server.model, target, self._body(asked))
        except h11.RemoteProtocolError as error:
            raise NotForwarded(431 if error.error_status_hint == 431 else 400, "the request cannot be read") from None

    def _base(self) -> str:
        return urlsplit(self.server.model.base_url).path.rstrip("/")

    def _next(self) -> h11.Request | h11.Data | h11.EndOfMessage | h11.ConnectionClosed:
        """What comes next. Raises h11.RemoteProtocolError, NotForwarded over the bound on all bytes, and _Gone."""
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
                raise _Gone

    def _receive(self) -> bytes:
        try:
            data = self.request.recv(_CHUNK)
        except OSError:
            raise _Gone from None
        if not self.server.count(sent=len(data)):
            raise NotForwarded(429, "this trial's bytes are used up")
        return data

    def _body(self, asked: h11.Request) -> bytes:
        names = [name for name, _ in asked.headers]
        if b"content-length" in names and b"transfer-encoding" in names:
            raise NotForwarded(400, "a body has one length")
        most, taken = self.server.limits.request_bytes, 0
        declared = next((int(value) for name, value in asked.headers if name == b"content-length"), 0)
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

    def _forward(self, asked: h11.Request, target: str, body: bytes) -> None:
        model = self.server.model
        given = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in asked.headers.raw_items()]
        headers = {name: value for name, value in given if _passes(name, value, model)} | model.credentials
        request = ModelRequest(asked.method.decode("ascii"), target, headers, body)
        with suppress(Closed), self.server.upstream.answer(request) as opened:
            if opened is None:
                self._say(502, "the service did not answer")
                return
            with suppress(OSError, h11.LocalProtocolError):  # the agent has hung up, and that is its affair
                self._hand_back(request, opened)

    def _hand_back(self, request: ModelRequest, opened: StreamedAnswer) -> None:
        answer = opened.answer
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
                part = opened.read()
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

    def _say(self, status: int, why: str) -> None:
        data = json.dumps({"error": {"message": why, "type": "assay_proxy"}}).encode() + b"\n"
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data))), ("Connection", "close")]
        with suppress(OSError, h11.LocalProtocolError):
            self._send(h11.Response(status_code=status, headers=headers))
            self._send(h11.Data(data=data))
            self._send(h11.EndOfMessage())


def _passes(name: str, value: str, model: ModelAccess) -> bool:
    """Whether a header of the agent's is forwarded: a well-formed one that says how to answer, and is not where the key goes."""
    well_formed = value.isascii() and value.replace("\t", " ").isprintable()
    return well_formed and name.lower() in _PASSED and name.lower() != model.header.lower()
