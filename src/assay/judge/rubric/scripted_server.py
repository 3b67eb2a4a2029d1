"""Serves a scripted model: `/v1/chat/completions` and `/v1/models`. The `model` of every reply begins with `scripted/`."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from assay.judge.rubric.scripted import (
    CONTENT_FAULTS,
    Script,
    ScriptedFault,
    SeenRequest,
    read_request,
    read_script,
    spoil_answer,
)

PREFIX = "scripted/"
_BODY_BYTES = 64_000_000
_FINGERPRINT = "scripted"
Brain = Callable[[SeenRequest], dict[str, Any] | None]
"""Answers a question with an object of the requested form; None if it has no answer."""


@dataclass
class ScriptedServer:
    """A running server. `url`: the `base_url` for clients; `seen`: the requests in the order of their arrival."""

    script: Script
    brain: Brain
    url: str = ""
    seen: list[SeenRequest] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    """Number of replies by status; 0: the connection was closed without one."""
    _counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, seen: SeenRequest, body: bytes) -> ScriptedFault | None:
        """The fault for this request, or None. It counts the request."""
        name = next((solved.name for solved in self.script.solutions if solved.fits(seen)), "")
        with self._lock:
            self.seen.append(seen)
            for place, fault in enumerate(self.script.faults):
                if fault.fits(seen, name):
                    key = (place, sha256(body).hexdigest() if fault.each else "")
                    self._counts[key] += 1
                    if self._counts[key] > fault.after and (not fault.times or self._counts[key] <= fault.after + fault.times):
                        return fault
        return None

    def note(self, status: int) -> None:
        """Count a reply."""
        with self._lock:
            self.statuses[status] += 1


def _scripted(script: Script) -> Brain:
    def answer(seen: SeenRequest) -> dict[str, Any] | None:
        return next((solved.answer(seen) for solved in script.solutions if solved.fits(seen)), None)

    return answer


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    model: ScriptedServer

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection, which may get further requests."""
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that ends."""
        self.open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close all connections, also idle ones."""
        super().server_close()
        for connection in tuple(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away."""


class _CompletionHandler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for the client to say that it has the headers
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing of a request."""

    def do_GET(self) -> None:
        """Answer `/v1/models`."""
        if self.path != "/v1/models":
            self._send(404, {"error": {"message": "there is nothing here", "code": "not_found"}})
            return
        self._send(200, {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "assay"}]})

    def do_POST(self) -> None:
        """Answer `/v1/chat/completions`."""
        if self.path != "/v1/chat/completions":
            self._send(404, {"error": {"message": "there is nothing here", "code": "not_found"}})
            return
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 < length <= _BODY_BYTES:
            self.close_connection = True
            self._send(413, {"error": {"message": "the body is empty or too large", "code": "too_large"}})
            return
        data = self.rfile.read(length)
        try:
            seen = read_request(json.loads(data))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            self._send(400, {"error": {"message": f"this is no question of a rubric: {type(error).__name__}", "code": "unread"}})
            return
        fault = self.server.model.fault(seen, data)
        if fault is None or not self._fails(fault):
            self._answer(seen, fault)

    def _fails(self, fault: ScriptedFault) -> bool:
        """Send the reply of a fault that has no answer. False if the fault is of another kind."""
        if fault.kind.isdigit():
            extra = {"Retry-After": f"{fault.seconds:g}"} if fault.seconds else {}
            self._send(int(fault.kind), {"error": {"message": fault.message, "code": "scripted"}}, extra)
        elif fault.kind == "close":
            self.server.model.note(0)
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
        elif fault.kind == "no-json":
            self._send(200, "<html>the proxy is tired</html>")
        elif fault.kind == "no-choices":
            self._send(200, {"object": "chat.completion", "choices": []})
        elif fault.kind == "huge":
            self._send(200, {"choices": [{"message": {"content": "x" * 8_000_000}, "finish_reason": "stop"}]})
        else:
            return False
        return True

    def _answer(self, seen: SeenRequest, fault: ScriptedFault | None) -> None:
        kind = "" if fault is None else fault.kind
        answer = self.server.model.brain(seen)
        if answer is None:
            self._send(400, {"error": {"message": "the script has no answer to this solution", "code": "no_answer"}})
            return
        if fault is not None and kind == "slow":
            time.sleep(fault.seconds)
        content = spoil_answer(kind, answer) if kind in CONTENT_FAULTS else json.dumps(answer, ensure_ascii=False)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if kind == "refusal":
            message |= {"content": None, "refusal": "I cannot help with that."}
        body: dict[str, Any] = {
            "id": "chatcmpl-scripted",
            "object": "chat.completion",
            "created": 0,
            "model": f"{PREFIX}another" if kind == "other-model" else PREFIX + seen.model,
            "system_fingerprint": _FINGERPRINT,
            "choices": [{"index": 0, "message": message, "finish_reason": "length" if kind == "length" else "stop"}],
            "usage": {
                "prompt_tokens": len((seen.system + seen.user).encode()) // 4,
                "completion_tokens": len(content.encode(errors="replace")) // 4,
            },
        }
        for name in {"no-model": ("model",), "no-usage": ("usage",)}.get(kind, ()):
            del body[name]
        self._send(200, body, cut=kind == "cut")

    def _send(self, status: int, body: Any, extra: dict[str, str] | None = None, *, cut: bool = False) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.server.model.note(status)
        with suppress(OSError):
            self.send_response_only(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **(extra or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = self.close_connection or cut


def make_server(script: Script, *, port: int = 0, brain: Brain | None = None) -> tuple[ScriptedServer, ThreadingHTTPServer]:
    """A server that listens on loopback, but does not serve yet. Raises OSError if the port is in use."""
    model = ScriptedServer(script, brain or _scripted(script))
    http = _Http(("127.0.0.1", port), _CompletionHandler)
    http.model = model
    model.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    return model, http


@contextmanager
def scripted_model(script: Script | Path, *, port: int = 0, brain: Brain | None = None) -> Iterator[ScriptedServer]:
    """Run the server of a script on loopback, in threads of this process. Raises BadInput for a bad script."""
    model, http = make_server(script if isinstance(script, Script) else read_script(script), port=port, brain=brain)
    with http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield model
        finally:
            http.shutdown()
            thread.join()
