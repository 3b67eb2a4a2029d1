"""A model's service of our own, a proxy before it, and an agent's side of that."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from assay.judge.service import ModelAccess
from assay.judge.terminal.model_proxy import open_proxy
from assay.judge.terminal.model_requests import LIMITS, ModelTraffic, ProxyLimits

KEY = "sk-of-the-validator"
QUICK = replace(LIMITS, pause=0.01)


@dataclass
class ProxyRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class RememberingService:
    """A real HTTP server on the loopback that remembers what it was asked and answers as told."""

    answer: Callable[[BaseHTTPRequestHandler], None]
    asked: list[ProxyRequest] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


def say(status: int = 200, body: bytes = b'{"ok": true}', **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@contextmanager
def service(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[RememberingService]:
    service = RememberingService(answer)

    class ModelHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            service.asked.append(ProxyRequest(self.command, self.path, dict(self.headers.items()), body))
            service.answer(self)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    with Quiet(("127.0.0.1", 0), ModelHandler) as server:
        service.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


class Through(http.client.HTTPConnection):
    """HTTP on the proxy's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("127.0.0.1:8080", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self.path))


def ask(
    door: Path, method: str = "POST", path: str = "/embeddings", body: bytes | None = b"{}", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = Through(door)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def raw(door: Path, data: bytes) -> bytes:
    """What comes back for bytes that no HTTP client would send."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(door))
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        parts = []
        while part := client.recv(65_536):
            parts.append(part)
        return b"".join(parts)


@contextmanager
def proxied(
    door: Path, answer: Callable[[BaseHTTPRequestHandler], None], limits: ProxyLimits = QUICK
) -> Iterator[tuple[RememberingService, ModelTraffic]]:
    with service(answer) as behind, open_proxy(ModelAccess(behind.url, KEY), door, limits) as seen:
        yield behind, seen
