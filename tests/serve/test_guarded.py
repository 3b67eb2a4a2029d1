"""What a service bounds, over real sockets: silent connections, slow readers and writers, large heads, too much at once."""

import http.client as http_client
import os
import select
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

import ledger_kit
from assay.ledger.keys import PrivateKey
from assay.peers.guard import CONNECTION_LIMITS, Connection, ConnectionGuard, ConnectionLimits
from assay.serve import bodies, http
from assay.serve.bodies import PART
from assay.serve.listening import networks
from assay.serve.signed import sign_request
from service_kit import Running, running

ONE, TWO, _ = ledger_kit.VALIDATORS.values()
MIB = 2**20
PATIENCE = 60.0
"""Seconds after which something that must happen did not; much longer than it takes anywhere."""


@contextmanager
def served(tmp_path: Path, limits: ConnectionLimits = CONNECTION_LIMITS, *proxies: str) -> Iterator[Running]:
    folder = ledger_kit.once(tmp_path / "small", ("guarded",), ledger_kit.ledger_folder)
    with running(folder, limits, *proxies) as service:
        yield service


def connected(service: Running, data: bytes = b"", *, room: int | None = None) -> socket.socket:
    """A connection on which some bytes were sent. room: bytes that the client's side holds."""
    opened = socket.socket()
    opened.settimeout(PATIENCE)
    if room is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    opened.connect(("127.0.0.1", service.port))
    opened.sendall(data)
    return opened


def head(service: Running, key: PrivateKey, method: str, path: str, body: bytes = b"", *, length: int | None = None) -> bytes:
    """The head of a signed request for a body; length: what it says of the body's."""
    fields = sign_request(key, method, f"{service.address}{path}", sha256(body).digest())
    fields |= {"Host": f"127.0.0.1:{service.port}", "Content-Length": str(len(body) if length is None else length)}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode()


def object_path(body: bytes) -> str:
    return f"/v1/small/objects/{sha256(body).hexdigest()}"


def begun(service: Running, key: PrivateKey, body: bytes, part: int) -> socket.socket:
    """A signed upload of which only a part was sent."""
    return connected(service, head(service, key, "PUT", object_path(body), body) + body[:part])


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def dropped(connection: socket.socket) -> bool:
    """Whether the service ended a connection, whatever was not yet read of it."""
    watched = select.poll()
    watched.register(connection, select.POLLRDHUP)
    return any(event & (select.POLLERR | select.POLLHUP | select.POLLRDHUP) for _, event in watched.poll(0))


def is_open(service: Running) -> bool:
    answer = service.ask("GET", "/v1/competitions")
    return answer.status == 200


@pytest.mark.parametrize("data", [b"", b"GET /v1/comp"], ids=["silent", "half a head"])
def test_many_silent_connections_keep_nobody_out(tmp_path: Path, data: bytes) -> None:
    limits = replace(CONNECTION_LIMITS, connections=50, first_byte=PATIENCE, header=PATIENCE)
    with served(tmp_path, limits) as service, ExitStack() as stack:
        silent = [stack.enter_context(connected(service, data)) for _ in range(200)]
        assert is_open(service)
        eventually(lambda: sum(map(dropped, silent)) >= 150)
        assert not dropped(silent[-1])


def test_bodies_that_do_not_come_keep_nobody_out(tmp_path: Path) -> None:
    limits = replace(CONNECTION_LIMITS, requests=8, kept=2, body=0.0)
    with served(tmp_path, limits) as service, ExitStack() as stack:
        for number in range(20):
            key = (ONE, TWO)[number % 2]
            stack.enter_context(begun(service, key, b"%d" % number * MIB, 100_000))
        assert is_open(service)
        assert service.signed(TWO, "GET", "/v1/small/work").status == 200


def test_a_reader_that_hardly_reads_is_dropped(tmp_path: Path) -> None:
    body = os.urandom(16 * MIB)
    with served(tmp_path, replace(CONNECTION_LIMITS, look=0.2)) as service:
        assert service.signed(ONE, "PUT", object_path(body), body).status == 200
        ask = head(service, ONE, "GET", object_path(body))
        with connected(service, ask, room=4096) as slow:
            assert slow.recv(12) == b"HTTP/1.1 200"

            def is_dropped() -> bool:
                slow.recv(1)
                return dropped(slow)

            eventually(is_dropped)
        with connected(service, head(service, ONE, "GET", object_path(body)), room=65_536) as quick:
            answer = bytearray()
            while len(answer) < len(body):
                piece = quick.recv(65_536)
                assert piece
                answer += piece
            while len(answer.partition(b"\r\n\r\n")[2]) < len(body):
                answer += quick.recv(65_536)
            assert answer.partition(b"\r\n\r\n")[2] == body


def test_a_body_that_drips_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.5)
    body = bytes(1000)
    with served(tmp_path) as service, begun(service, ONE, body, 1) as slow:
        slow.settimeout(0.05)
        answer = b""
        while not answer:
            try:
                answer = slow.recv(65_536)
            except TimeoutError:
                slow.sendall(b"\0")
        slow.settimeout(60)
        while b"too slowly" not in answer and (more := slow.recv(65_536)):  # head and body may come apart
            answer += more
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"the body came too slowly" in answer


def test_a_large_head_is_refused(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        with connected(service, b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 20_000) as large:
            assert large.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 431")
        assert is_open(service)


def test_a_key_has_its_share_of_the_requests(tmp_path: Path) -> None:
    body = bytes(1000)
    with served(tmp_path) as service:
        with ExitStack() as stack:
            for _ in range(http.KEY_REQUESTS):
                stack.enter_context(begun(service, ONE, body, 10))
            eventually(lambda: service.signed(ONE, "GET", "/v1/small/work").status == 429)
            refused = service.signed(ONE, "GET", "/v1/small/work")
            assert (refused.headers["retry-after"], refused.json["type"]) == ("1", "urn:assay:problem:turn")
            assert f"has {http.KEY_REQUESTS} requests that are not yet answered" in refused.json["detail"]
            assert service.signed(TWO, "GET", "/v1/small/work").status == 200
            assert is_open(service)
        eventually(lambda: service.signed(ONE, "PUT", object_path(body), body).status == 200)  # the others are gone


def test_too_much_at_once_is_refused_and_may_come_again(tmp_path: Path) -> None:
    body = bytes(1000)
    with served(tmp_path, replace(CONNECTION_LIMITS, requests=5, kept=2, body=PATIENCE)) as service:
        with ExitStack() as stack:
            for key in (ONE, ONE, TWO):
                stack.enter_context(begun(service, key, body, 10))
            eventually(lambda: service.ask("GET", "/v1/competitions").status == 429)
            refused = service.ask("GET", "/v1/competitions")
            assert (refused.headers["retry-after"], refused.json["detail"]) == ("1", "too much is asked at once")
        eventually(lambda: is_open(service))


@pytest.mark.full
def test_waiting_uploads_are_on_the_disk_and_not_in_memory(tmp_path: Path) -> None:
    count, sent = 12, 6 * MIB
    bodies = [bytes([number]) * (sent + 1) for number in range(count)]
    with served(tmp_path) as service, ExitStack() as stack:
        assert service.signed(ONE, "PUT", object_path(b"first"), b"first").status == 200  # what is made once is made
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        for body in bodies:
            stack.enter_context(begun(service, ONE, body, sent))
        eventually(lambda: spooled(sent - PART) == count)  # the rest waits in memory for the part to be full
        assert tracemalloc.get_traced_memory()[1] < count * sent / 3


def spooled(size: int) -> int:
    """How many open files without a name have so many bytes: bodies that this process received."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            count += "(deleted)" in os.readlink(entry) and entry.stat().st_size >= size
        except OSError:  # closed meanwhile
            continue
    return count


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("8.8.3.3", ["9.9.9.9"], "8.8.3.3"),  # whoever connects without the proxy says nothing
        ("10.0.0.1", ["8.8.1.1"], "8.8.1.1"),
        ("10.0.0.1", ["9.9.9.9, 8.8.1.1"], "8.8.1.1"),  # the client wrote the first
        ("10.0.0.1", ["9.9.9.9", "8.8.1.1:4711"], "8.8.1.1"),
        ("10.0.0.1", ["9.9.9.9, 8.8.1.1, 10.0.0.2"], "8.8.1.1"),  # two proxies
        ("::ffff:10.0.0.1", ["9.9.9.9, [2606:4700::1]:4711"], "2606:4700::/64"),
        ("10.0.0.1", ["2606:4700::1"], "2606:4700::/64"),
        ("10.0.0.1", [], None),
        ("10.0.0.1", ["10.0.0.2"], None),
        ("10.0.0.1", ["9.9.9.9, unknown"], None),
    ],
)
def test_a_proxy_names_the_client_and_nobody_else_does(peer: str, forwarded: list[str], address: str | None) -> None:
    guard = ConnectionGuard(proxies=networks(["10.0.0.0/8"]))
    guest = Connection(peer, lambda: None, lambda: False)
    assert guard.arrive(guest)
    guard.identify(guest, forwarded)
    assert (None if guest.shared else guest.address) == address
    guard.identify(guest, ["8.8.4.4"])  # the next request on this connection
    assert guest.address == (peer if peer == "8.8.3.3" else "8.8.4.4")


def test_clients_behind_a_proxy_have_limits_of_their_own(tmp_path: Path) -> None:
    def ask(*forwarded: str, source: str = "127.0.0.1") -> int:
        connection = http_client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE, source_address=(source, 0))
        with closing(connection):
            connection.request("GET", "/healthz", headers={"X-Forwarded-For": ", ".join(forwarded)} if forwarded else {})
            return connection.getresponse().status

    body = bytes(1000)
    with served(tmp_path, replace(CONNECTION_LIMITS, address_requests=1), "127.0.0.1") as service:
        lines = head(service, ONE, "PUT", object_path(body), body).replace(b"\r\n", b"\r\nX-Forwarded-For: 8.8.1.1\r\n", 1)
        with connected(service, lines + body[:10]):
            until = time.monotonic() + PATIENCE
            while ask("8.8.1.1") == 200:
                assert time.monotonic() < until
            assert [ask("9.9.9.9", "8.8.1.1"), ask("8.8.1.1", "8.8.2.2"), ask()] == [429, 200, 200]
            assert ask("8.8.1.1", source="127.0.0.3") == 200  # no proxy: what it says counts for nothing
