"""The way to one model service: what is forwarded, what is not, whose trouble is whose. SPEC 2.1."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from assay.errors import BadInput
from assay.judge.service import Model, of_agents, of_judges
from assay.judge.tests import proxy
from assay.judge.tests.asked import LIMITS, ProxyLimits, Seen
from assay.judge.tests.proxy import open_proxy

KEY = "sk-of-the-validator"


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Service:
    """A real HTTP server on the loopback that remembers what it was asked and answers as told."""

    answer: Callable[[BaseHTTPRequestHandler], None]
    asked: list[Asked] = field(default_factory=list)
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
def service(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[Service]:
    found = Service(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found.asked.append(Asked(self.command, self.path, dict(self.headers.items()), body))
            found.answer(self)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    with Quiet(("127.0.0.1", 0), Handler) as server:
        found.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield found
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


@pytest.fixture
def door() -> Iterator[Path]:
    with TemporaryDirectory(prefix="assay-test-") as folder:  # a socket's path must be short
        yield Path(folder) / "door"


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
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(60)
        one.connect(str(door))
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        parts = []
        while part := one.recv(65_536):
            parts.append(part)
        return b"".join(parts)


@contextmanager
def proxied(
    door: Path, answer: Callable[[BaseHTTPRequestHandler], None], limits: ProxyLimits = LIMITS
) -> Iterator[tuple[Service, Seen]]:
    with service(answer) as behind, open_proxy(Model(behind.url, KEY), door, limits) as seen:
        yield behind, seen


def test_the_key_is_added_outside_and_the_agents_own_is_dropped(door: Path) -> None:
    sent = {
        "Authorization": "Bearer mine",
        "X-Api-Key": "mine",
        "Cookie": "a=b",
        "Content-Type": "application/json",
        "X-Title": "t",
        "Forwarded": "for=1.2.3.4",
    }
    with proxied(door, say(Set_Cookie="s=1", X_Request_Id="r")) as (behind, seen):
        status, headers, body = ask(door, path="/chat/completions?n=1", body=b'{"a": 1}', headers=sent)
    assert (status, json.loads(body)) == (200, {"ok": True})
    assert headers["X-Request-Id"] == "r"
    assert "Set-Cookie" not in headers
    (asked,) = behind.asked
    assert (asked.method, asked.path, asked.body) == ("POST", "/v1/chat/completions?n=1", b'{"a": 1}')
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    assert asked.headers["Host"] == f"127.0.0.1:{behind.port}"
    assert asked.headers["X-Title"] == "t"
    assert not {"Cookie", "X-Api-Key", "Forwarded"} & set(asked.headers)
    assert "mine" not in str(asked.headers.values())
    assert (seen.requests, seen.refused, seen.received, seen.troubles) == (1, 0, 12, [])
    assert seen.sent > 100  # the line and the headers as well


def test_headers_by_which_gateways_are_steered_are_dropped(door: Path) -> None:
    steering = {
        "Idempotency-Key": "a",  # answers with what another left under it
        "X-HTTP-Method-Override": "DELETE",
        "X-Original-URL": "/v1/files",
        "X-Rewrite-URL": "/v1/files",
        "X-Portkey-Custom-Host": "http://127.0.0.1:1/v1",
        "Helicone-Target-Url": "http://127.0.0.1:1",
        "OpenAI-Project": "proj_1",
        "Content-Encoding": "gzip",
    }
    with proxied(door, say()) as (behind, _):
        assert ask(door, headers=steering | {"Anthropic-Version": "2023-06-01", "User-Agent": "u"})[0] == 200
    (asked,) = behind.asked
    assert not {name.lower() for name in steering} & {name.lower() for name in asked.headers}
    assert (asked.headers["Anthropic-Version"], asked.headers["User-Agent"]) == ("2023-06-01", "u")


def test_other_headers_for_the_key(door: Path) -> None:
    with service(say()) as behind, open_proxy(Model(behind.url, KEY, "x-api-key"), door):
        ask(door, headers={"X-API-KEY": "mine", "Authorization": "Bearer mine"})
    (asked,) = behind.asked
    assert asked.headers["x-api-key"] == KEY
    assert "Authorization" not in asked.headers


@pytest.mark.parametrize(
    "path",
    [
        "/../admin",
        "/a/../../admin",
        "/./a",
        "/%2e%2e/admin",
        "/..;/admin",
        "/a%2Fb",
        "/models/%252e%252e%252ffiles",
        "/a\\b",
        "http://127.0.0.1:1/x",
        "//127.0.0.1:1/x",
        "/a//b",
        "/a%00",
        "/ä",
        "*",
        "x",
    ],
)
def test_nothing_else_is_reached(door: Path, path: str) -> None:
    with proxied(door, say()) as (behind, seen):
        answer = raw(door, f"GET {path} HTTP/1.1\r\nHost: evil\r\n\r\n".encode("latin-1"))
    assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ")), answer
    assert behind.asked == []
    assert (seen.refused, seen.troubles) == (1, [])


@pytest.mark.parametrize("method", ["CONNECT", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "HEAD"])
def test_methods_that_no_model_needs(door: Path, method: str) -> None:
    with proxied(door, say()) as (behind, seen):
        answer = raw(door, f"{method} /models HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert b" 403 " in answer.split(b"\r\n")[0]
    assert behind.asked == []
    assert seen.troubles == []


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 0x2\r\n\r\n{}",
        b"POST /embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{}",
        b"POST /embeddings HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /embeddings HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /embeddings HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_bodies_that_two_readers_could_take_differently(door: Path, request_: bytes) -> None:
    with proxied(door, say()) as (behind, seen):
        assert raw(door, request_).startswith(b"HTTP/1.1 400 ")
    assert behind.asked == []
    assert seen.refused == 1
    assert seen.troubles == []


def test_chunked_requests_arrive_whole(door: Path) -> None:
    with proxied(door, say()) as (behind, _):
        answer = raw(
            door,
            b"POST /embeddings HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
        )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert [asked.body for asked in behind.asked] == [b"abcde"]


def test_redirects_are_handed_back(door: Path) -> None:
    with proxied(door, say(302, b"", Location="http://127.0.0.1:1/")) as (behind, seen):
        assert ask(door)[0] == 302
    assert len(behind.asked) == 1
    assert seen.troubles == []


@pytest.mark.parametrize("status", [200, 400, 404, 422])
def test_what_is_the_agents_own_affair(door: Path, status: int) -> None:
    with proxied(door, say(status)) as (_, seen):
        assert ask(door)[0] == status
    assert seen.troubles == []


@pytest.mark.parametrize("status", [401, 402, 403, 407, 429, 500, 502, 503, 504, 529])
def test_what_is_the_services_trouble(door: Path, status: int) -> None:
    with proxied(door, say(status)) as (_, seen):
        assert ask(door)[0] == status
    assert seen.troubles == [f"POST: status {status}"]


def test_nobody_there(door: Path) -> None:
    with socket.socket() as free:  # bound and not listening: nobody else can take the port
        free.bind(("127.0.0.1", 0))
        with open_proxy(Model(f"http://127.0.0.1:{free.getsockname()[1]}"), door) as seen:
            assert ask(door)[0] == 502
    assert seen.troubles == ["POST: no answer (connection refused)"]


def test_hung_up_before_the_answer(door: Path) -> None:
    def hang_up(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)

    with proxied(door, hang_up) as (_, seen):
        assert ask(door)[0] == 502
    assert len(seen.troubles) == 1
    assert "no answer" in seen.troubles[0]


def test_an_answer_before_the_answer_is_the_services_trouble(door: Path) -> None:
    with proxied(door, say(103, b"")) as (_, seen):
        assert ask(door)[0] == 502
    assert seen.troubles == ["POST: status 103, which is no answer"]


def test_cut_off_in_the_middle(door: Path) -> None:
    with proxied(door, say(200, b"half", Content_Length="8")) as (_, seen), pytest.raises(http.client.IncompleteRead):
        ask(door)
    assert seen.troubles == ["POST: cut off, 4 bytes are missing"]


def test_answers_stream_as_they_come(door: Path) -> None:
    first, go_on = threading.Event(), threading.Event()

    def stream(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        handler.wfile.write(b"data: 1\n\n")
        handler.wfile.flush()
        first.set()
        go_on.wait(60)
        handler.wfile.write(b"data: 2\n\n")

    with proxied(door, stream) as (_, seen):
        connection = Through(door)
        connection.request("POST", "/embeddings", body=b"{}")
        answer = connection.getresponse()
        assert first.wait(60)
        assert answer.readline() == b"data: 1\n"  # although the answer has not ended
        go_on.set()
        assert answer.read() == b"\ndata: 2\n\n"
        connection.close()
    assert seen.received == 18
    assert seen.troubles == []


def test_bounds(door: Path) -> None:
    limits = ProxyLimits(requests=2, request_bytes=10)
    with proxied(door, say(), limits) as (behind, seen):
        assert ask(door, body=b"x" * 11)[0] == 413
        assert ask(door, body=b"x" * 10)[0] == 200
        assert ask(door)[0] == 429
    assert len(behind.asked) == 1
    assert (seen.refused, seen.troubles) == (2, [])


@pytest.mark.parametrize(("method", "status"), [("POST", b" 429 "), ("PUT", b" 403 ")])
def test_who_is_refused_may_say_all_and_hears_why(door: Path, method: str, status: bytes) -> None:
    """Clients send the head of a request and then its body; the answer may be there in between."""
    with proxied(door, say(), ProxyLimits(requests=0)) as (behind, _), socket.socket(socket.AF_UNIX) as one:
        one.settimeout(60)
        one.connect(str(door))
        one.sendall(f"{method} /embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n".encode())
        head = one.recv(65_536)
        for _ in range(4):
            one.sendall(b"x")
            time.sleep(0.02)
        assert status in head.splitlines()[0]
        one.shutdown(socket.SHUT_WR)
        while one.recv(65_536):
            pass
    assert behind.asked == []


@pytest.mark.parametrize(("seconds", "piece", "pause"), [(0.05, b"x", 0.05), (60.0, b"x" * 100_000, 0.0)])
def test_who_is_refused_is_not_listened_to_for_ever(
    door: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, piece: bytes, pause: float
) -> None:
    def go_on(one: socket.socket) -> None:
        for _ in range(100):
            time.sleep(pause)
            one.sendall(piece)

    monkeypatch.setattr(proxy, "_HEARD_OUT", seconds)
    limits = ProxyLimits(requests=0, request_bytes=100_000)
    with proxied(door, say(), limits), socket.socket(socket.AF_UNIX) as one:
        one.settimeout(60)
        one.connect(str(door))
        one.sendall(b"POST /embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n")
        with pytest.raises(BrokenPipeError):
            go_on(one)


def test_bytes_in_all_are_bounded(door: Path) -> None:
    with proxied(door, say(body=b"y" * 300), ProxyLimits(total_bytes=200)) as (_, seen):
        with pytest.raises(http.client.IncompleteRead):
            ask(door)
        assert ask(door)[0] == 429
    assert seen.troubles == []


def test_short_pieces_cost_what_they_cost_to_take_apart(door: Path) -> None:
    head = b"POST /embeddings HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with proxied(door, say(), ProxyLimits(request_bytes=100_000)) as (behind, seen):
        assert b" 200 " in raw(door, head + b"2\r\nab\r\n" * 300 + b"0\r\n\r\n").splitlines()[0]
        assert b" 413 " in raw(door, head + b"2\r\nab\r\n" * 500 + b"0\r\n\r\n").splitlines()[0]
        assert b" 200 " in raw(door, head + b"10000\r\n" + bytes(65_536) + b"\r\n0\r\n\r\n").splitlines()[0]
        assert b" 413 " in raw(door, head + b"186A1\r\n" + bytes(100_001) + b"\r\n0\r\n\r\n").splitlines()[0]
    assert [len(asked.body) for asked in behind.asked] == [600, 65_536]
    assert seen.sent > 300 * 256 + 500 + 65_536
    door.unlink(missing_ok=True)
    with proxied(door, say(), ProxyLimits(total_bytes=10_000)) as (behind, seen):
        assert b" 429 " in raw(door, head + b"2\r\nab\r\n" * 300 + b"0\r\n\r\n").splitlines()[0]
    assert (behind.asked, seen.troubles) == ([], [])


def test_a_head_without_end_is_refused(door: Path) -> None:
    with proxied(door, say()) as (behind, seen):
        answer = raw(door, b"GET /models HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 200_000)
    assert b" 431 " in answer.splitlines()[0]
    assert (behind.asked, seen.refused) == ([], 1)


def test_who_waits_for_a_100_is_told(door: Path) -> None:
    with proxied(door, say()) as (behind, _), socket.socket(socket.AF_UNIX) as one:
        one.settimeout(60)
        one.connect(str(door))
        one.sendall(b"POST /embeddings HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert one.recv(65_536).startswith(b"HTTP/1.1 100 ")
        one.sendall(b"{}")
        assert one.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert [asked.body for asked in behind.asked] == [b"{}"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", each) for each in ("/files", "/v1/files", "/batches", "/threads", "/vector_stores", "/uploads", "/x")),
        *(
            ("POST", each)
            for each in ("/responses/resp_1", "/chat/completions/x", "/models", "/chat/completions/", "/conversations")
        ),
        *(("GET", each) for each in ("/files", "/files/file-1/content", "/responses/resp_1", "/models/a/b")),
        ("DELETE", "/models/a"),
    ],
)
def test_what_one_agent_leaves_at_the_service_no_other_can_read(door: Path, method: str, path: str) -> None:
    with proxied(door, say()) as (behind, seen):
        status, _, body = ask(door, method, path, b"{}" if method == "POST" else None)
    assert status == 403
    assert json.loads(body)["error"]["message"].startswith("only these are forwarded: POST /chat/completions, ")
    assert behind.asked == []
    assert (seen.requests, seen.refused, seen.troubles) == (0, 1, [])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/chat/completions"), ("POST", "/v1/messages"), ("POST", "/v1/embeddings"), ("POST", "/messages/count_tokens"),
        ("GET", "/models"), ("GET", "/models/gpt-x?a=b"), ("POST", "/v1/chat/completions?x=%20"),
    ],
)  # fmt: skip
def test_what_leaves_nothing_is_forwarded_as_it_is(door: Path, method: str, path: str) -> None:
    body = b'{"a":  1.10}' if method == "POST" else None
    with proxied(door, say()) as (behind, _):
        assert ask(door, method, path, body)[0] == 200
    assert [(asked.method, asked.path, asked.body) for asked in behind.asked] == [(method, f"/v1{path}", body or b"")]


@pytest.mark.parametrize(
    ("path", "body", "forwarded"),
    [
        ("/responses", b'{"input": "a"}', {"input": "a", "store": False}),
        ("/v1/responses", b'{"input": "a", "store": true}', {"input": "a", "store": False}),
        ("/responses", b'{"store": false, "store": true, "background": false}', {"store": False, "background": False}),
        ("/chat/completions", b'{"\\u0073tore": true}', {"store": False}),
        ("/responses", b'{"previous_response_id": "resp_1"}', 403),
        ("/responses", b'{"background": true}', 403),
        ("/responses", b'{"conversation": {"id": "conv_1"}}', 403),
        ("/responses", b'{"Previous_Response_ID": "resp_1"}', 400),
        ("/chat/completions", b'{"store": false, "Store": true}', 400),
        ("/chat/completions", '{"\u017ftore": true}'.encode(), 400),
        (
            "/responses",
            b'{"tools": [{"type": "function", "name": "f"}], "store": false}',
            {"tools": [{"type": "function", "name": "f"}], "store": False},
        ),
        (
            "/messages",
            b'{"tools": [{"name": "f"}, {"type": "bash_20250124", "name": "bash"}], "container": null}',
            {"tools": [{"name": "f"}, {"type": "bash_20250124", "name": "bash"}], "container": None},
        ),
        ("/chat/completions", b'{"tools": [{"type": "mcp"}], "tools": []}', {"tools": []}),
        ("/responses", b'{"tools": [{"type": "function"}, {"type": "mcp", "server_url": "https://x"}]}', 403),
        ("/responses", b'{"tools": [{"type": "web_search"}]}', 403),
        ("/responses", b'{"tools": [{"type": "function", "Type": "mcp"}]}', 403),
        ("/responses", b'{"prompt": {"id": "pmpt_1"}}', 403),
        ("/messages", b'{"tools": [{"type": "web_search_20250305", "name": "web_search"}]}', 403),
        ("/messages", b'{"mcp_servers": [{"url": "https://x"}]}', 403),
        ("/messages", b'{"Tools": []}', 400),
        ("/messages", b'{"tools": {"type": "custom"}}', 400),
        ("/chat/completions", b'{"web_search_options": {}}', 403),
        ("/chat/completions", b'{"plugins": [{"id": "web"}]}', 403),
        ("/responses", b"[]", 400),
        ("/responses", b"{", 400),
        ("/responses", b'{"a": NaN}', 400),
        ("/chat/completions", b"[" * 100_000, 400),
    ],
)
def test_the_service_is_told_to_keep_nothing(door: Path, path: str, body: bytes, forwarded: dict[str, Any] | int) -> None:
    with proxied(door, say()) as (behind, seen):
        status = ask(door, path=path, body=body)[0]
    if isinstance(forwarded, int):
        assert (status, behind.asked, seen.refused) == (forwarded, [], 1)
    else:
        assert [json.loads(asked.body) for asked in behind.asked] == [forwarded]
        assert behind.asked[0].headers["Content-Length"] == str(len(behind.asked[0].body))


def test_a_validator_may_say_which_endpoints_there_are(door: Path) -> None:
    given = {"ASSAY_MODEL_ENDPOINTS": "POST /completions,  GET  /deployments/*/models"}
    with service(say()) as behind:
        model = of_agents(given, behind.url)
        assert model is not None
        with open_proxy(model, door):
            assert ask(door, path="/completions")[0] == 200
            assert ask(door, "GET", "/deployments/x/models", None)[0] == 200
            assert ask(door, "GET", "/deployments/x/y/models", None)[0] == 403
            assert ask(door, path="/chat/completions")[0] == 403
        listed = of_agents({"ASSAY_MODEL_ENDPOINTS": "POST /openai/v1/responses"}, behind.url)
        assert listed is not None
        with open_proxy(listed, door):
            assert ask(door, path="/openai/v1/responses", body=b'{"input": "a"}')[0] == 200
        assert json.loads(behind.asked[-1].body) == {"input": "a", "store": False}
    for wrong in ("PUT /x", "/x", "POST x", "POST /../x y", "POST /%2e"):
        with pytest.raises(BadInput, match="is not an endpoint"):
            of_agents({"ASSAY_MODEL_ENDPOINTS": wrong}, "http://a/v1")


def test_closed_while_the_service_keeps_everybody_waiting(door: Path) -> None:
    """The proxy ends with the trial, whoever is still waiting, and that is nobody's trouble."""
    arrived, done = threading.Event(), threading.Event()

    def wait(handler: BaseHTTPRequestHandler) -> None:
        arrived.set()
        done.wait(60)

    with service(wait) as behind:
        with open_proxy(Model(behind.url, KEY), door) as seen:
            connection = Through(door)
            connection.request("POST", "/embeddings", body=b"{}")
            assert arrived.wait(60)
        with pytest.raises((http.client.HTTPException, OSError)):
            connection.getresponse()
        connection.close()
        done.set()
    assert seen.troubles == []
    assert not door.exists()


@pytest.mark.parametrize(
    "url",
    ["", "x", "ftp://a/", "http://", "http://u:p@a/", "http://a/?q", "http://a/#f", "http://a:x/", "http://a/b c", "file:///etc"],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(BadInput, match="is not the address of a service") as refused:
        Model(url)
    assert "u:p" not in str(refused.value)  # it may be a password


def test_the_key_is_not_shown() -> None:
    assert KEY not in repr(Model("https://a/v1", KEY))
    with pytest.raises(BadInput):
        Model("https://a", "a\r\nX: y")
    with pytest.raises(BadInput):
        Model("https://a", "a", "X: y")


def test_from_the_environment() -> None:
    assert of_agents({}) is None
    found = of_agents({"ASSAY_MODEL_URL": "https://a/v1", "ASSAY_MODEL_KEY": "k", "ASSAY_MODEL_HEADER": "x-api-key"})
    assert found == Model("https://a/v1", "k", "x-api-key")
    assert found is not None
    assert found.credentials == {"x-api-key": "k"}
    assert Model("https://a").credentials == {}
    assert of_agents({"ASSAY_MODEL_URL": "https://a"}, "https://b") == Model("https://b")
    assert of_judges({"ASSAY_MODEL_URL": "https://a", "ASSAY_LLM_API_KEY": "k"}) is None
    assert of_judges({"ASSAY_LLM_BASE_URL": "https://a", "ASSAY_LLM_API_KEY": "k"}) == Model("https://a", "k")
    assert of_judges({"ASSAY_LLM_BASE_URL": "https://a"}, "https://b/v1") == Model("https://b/v1")
