"""The way to one model service: what is forwarded and what is not, and how much of it. SPEC 2.1."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from assay.judge.service import ModelAccess
from assay.judge.terminal import model_proxy
from assay.judge.terminal.model_proxy import open_proxy
from assay.judge.terminal.model_requests import ProxyLimits
from proxy_kit import KEY, Through, ask, proxied, raw, say, service


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
    with service(say()) as behind, open_proxy(ModelAccess(behind.url, KEY, "x-api-key"), door):
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
    with proxied(door, say(), ProxyLimits(requests=0)) as (behind, _), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(door))
        client.sendall(f"{method} /embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n".encode())
        head = client.recv(65_536)
        for _ in range(4):
            client.sendall(b"x")
            time.sleep(0.02)
        assert status in head.splitlines()[0]
        client.shutdown(socket.SHUT_WR)
        while client.recv(65_536):
            pass
    assert behind.asked == []


@pytest.mark.parametrize(("seconds", "piece", "pause"), [(0.05, b"x", 0.05), (60.0, b"x" * 100_000, 0.0)])
def test_who_is_refused_is_not_listened_to_for_ever(
    door: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, piece: bytes, pause: float
) -> None:
    def go_on(client: socket.socket) -> None:
        for _ in range(100):
            time.sleep(pause)
            client.sendall(piece)

    monkeypatch.setattr(model_proxy, "_DRAIN_SECONDS", seconds)
    limits = ProxyLimits(requests=0, request_bytes=100_000)
    with proxied(door, say(), limits), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(door))
        client.sendall(b"POST /embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n")
        with pytest.raises(BrokenPipeError):
            go_on(client)


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
    with proxied(door, say()) as (behind, _), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(door))
        client.sendall(b"POST /embeddings HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert client.recv(65_536).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"{}")
        assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert [asked.body for asked in behind.asked] == [b"{}"]


def test_closed_while_the_service_keeps_everybody_waiting(door: Path) -> None:
    """The proxy ends with the trial, whoever is still waiting, and that is nobody's trouble."""
    arrived, done = threading.Event(), threading.Event()

    def wait(handler: BaseHTTPRequestHandler) -> None:
        arrived.set()
        done.wait(60)

    with service(wait) as behind:
        with open_proxy(ModelAccess(behind.url, KEY), door) as seen:
            connection = Through(door)
            connection.request("POST", "/embeddings", body=b"{}")
            assert arrived.wait(60)
        with pytest.raises((http.client.HTTPException, OSError)):
            connection.getresponse()
        connection.close()
        done.set()
    assert seen.troubles == []
    assert not door.exists()
