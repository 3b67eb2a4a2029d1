"""A service on loopback that misbehaves as its action says: it hangs, lies, floods, breaks off, sends elsewhere, answers late."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["ChaosHandler"], None]
HANG = 30.0
"""Seconds that hang; the server's own end cuts it short."""


class ChaosHandler(BaseHTTPRequestHandler):
    """One request."""

    server: ChaosServer
    asked: dict[str, Any]

    def do_POST(self) -> None:
        self.asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        action = self.asked.get("action", "")  # a planner is sent the package, which has none
        self.server.seen.append((action, dict(self.headers)))
        with suppress(ConnectionError):
            self.server.replies[action](self)

    def reply(self, content: Any, status: int = 200, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def wait(self, seconds: float) -> None:
        self.server.over.wait(seconds)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class ChaosServer(ThreadingHTTPServer):
    """Replies by action; what was asked is in `seen`."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, replies: dict[str, Reply]) -> None:
        super().__init__(("127.0.0.1", 0), ChaosHandler)
        self.replies = replies
        self.over = threading.Event()
        self.seen: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/call"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


def well(output: Any = None, cost: str = "0.001", seconds: float = 0.0) -> Reply:
    def reply(handler: ChaosHandler) -> None:
        time.sleep(seconds)
        handler.reply({"output": output, "cost": cost})

    return reply


def reply_of(content: Any, status: int = 200, **headers: str) -> Reply:
    return lambda handler: handler.reply(content, status, **headers)


def hangs(handler: ChaosHandler) -> None:
    handler.wait(HANG)


def hangs_amid_the_body(handler: ChaosHandler) -> None:
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"output": ')
    handler.wait(HANG)


def closes_amid_the_body(handler: ChaosHandler) -> None:
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"output": ')
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def drips(handler: ChaosHandler) -> None:
    """A byte now and then, for ever: no time-out of a socket would notice."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(int(HANG / 0.05)):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        if handler.server.over.wait(0.05):
            return


def floods(handler: ChaosHandler) -> None:
    """An answer of ten million bytes, without saying so before; but for that it would do."""
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b'{"output": 1, "cost": "0"')
    for _ in range(100):
        handler.wfile.write(b" " * 100_000)
    handler.wfile.write(b"}")


def redirects(handler: ChaosHandler) -> None:
    """To where a good answer would be."""
    if handler.path == "/there":
        handler.reply({"output": 1, "cost": "0"})
    else:
        handler.reply({}, 307, location="/there")


def resets(handler: ChaosHandler) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    handler.connection.close()


@contextmanager
def serving(**replies: Reply) -> Iterator[ChaosServer]:
    server = ChaosServer(dict(replies))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
