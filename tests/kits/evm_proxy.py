"""A node that misbehaves: a server between us and a real one, which does to its answers what it is told."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[["ProxyHandler", dict[str, Any], bytes], None]


class ProxyHandler(BaseHTTPRequestHandler):
    """One connection. A fault gets the question and the real answer, and sends what it likes."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for the client to say that it has the headers
    server: Proxy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        question = json.loads(body)
        fault = self.server.next_fault(question["method"])
        if fault is cut_before:
            self.close()
            return
        request = urllib.request.Request(self.server.node, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            data: bytes = answer.read()
        (fault or plain)(self, question, data)

    def give(self, data: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def close(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Proxy(ThreadingHTTPServer):
    """The server: `faults` are taken one by one, by the method they are for ("" for any), "*" for always."""

    daemon_threads = True

    def __init__(self, node: str) -> None:
        super().__init__(("127.0.0.1", 0), ProxyHandler)
        self.node, self.faults, self.asked = node, list[tuple[str, Fault]](), list[str]()
        self.always: dict[str, Fault] = {}
        self.over = threading.Event()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_fault(self, method: str) -> Fault | None:
        with self._lock:
            self.asked.append(method)
            for at, (wanted, fault) in enumerate(self.faults):
                if wanted in ("", method):
                    del self.faults[at]
                    return fault
            return self.always.get(method) or self.always.get("")

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the other side hung up, which is what the faults are for


@contextmanager
def proxy(node: str) -> Iterator[Proxy]:
    server = Proxy(node)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def plain(handler: ProxyHandler, question: dict[str, Any], data: bytes) -> None:
    handler.give(data)


def cut_before(handler: ProxyHandler, question: dict[str, Any], data: bytes) -> None:
    """Hang up without asking the node: it never hears of it."""


def cut_after(handler: ProxyHandler, question: dict[str, Any], data: bytes) -> None:
    """The node has done it; nobody is told."""
    handler.close()


def cut_within(handler: ProxyHandler, question: dict[str, Any], data: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.wfile.flush()
    handler.close()


def drip(handler: ProxyHandler, question: dict[str, Any], data: bytes) -> None:
    """A byte now and then, for ever."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    with suppress(OSError):
        while not handler.server.over.wait(0.1):
            handler.wfile.write(b" ")
            handler.wfile.flush()


def silent(handler: ProxyHandler, question: dict[str, Any], data: bytes) -> None:
    """Nothing, until the other side has had enough, or the server ends."""
    handler.connection.settimeout(0.1)
    with suppress(ConnectionError):
        while not handler.server.over.is_set():
            with suppress(TimeoutError):
                handler.connection.recv(1)
                break
    handler.close_connection = True


def endless(handler: ProxyHandler, question: dict[str, Any], data: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(10**12))
    handler.end_headers()
    with suppress(OSError):
        while True:
            handler.wfile.write(b" " * 1_000_000)


def saying(data: bytes, status: int = 200) -> Fault:
    return lambda handler, question, _: handler.give(data, status)


def result(value: Any) -> Fault:
    """This result instead of the real one."""
    return lambda handler, question, _: handler.give(
        json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": value}).encode()
    )


def error(code: int, message: str, data: Any = None) -> Fault:
    failure = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return lambda handler, question, _: handler.give(
        json.dumps({"jsonrpc": "2.0", "id": question["id"], "error": failure}).encode()
    )
