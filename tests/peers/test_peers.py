"""The one way in which Assay speaks to a peer: deadlines, bounds, and words that cannot hurt."""

import asyncio
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpcore
import pytest

from assay.errors import BadInput
from assay.peers import NoAnswer, Overrun, Packed, Silent, Words, peer, reading, retry_after
from assay.peers.http import Peer, PeerAnswer
from assay.peers.network import ExchangeBudget
from hostile_kit import BEHAVIOURS, EVIL, GIVE_UP, HostileConnection, grown, hostile, is_plain

MIB = 2**20


def asked(behave: Any, *, most: int = MIB, path: Path | None = None, body: bytes | None = None, **bounds: Any) -> PeerAnswer:
    options: dict[str, Any] = {"seconds": 30.0} | bounds
    with hostile(behave, path) as there:
        url = "http://there" if path else there.url
        with Peer(url, uds=None if path is None else str(path), **options) as peer:
            return peer.ask("GET" if body is None else "POST", f"{url}/x", body=body, most=most)


ENDLESS = ("silent", "drips its body", "drips its header", "drips headers", "early hints without end")
FINE = {"a bomb of parts", "a bomb of depth", "echoes secrets and escapes"}
"""Those are for who reads the body."""


@pytest.mark.parametrize("name", [name for name in BEHAVIOURS if name not in FINE])
@pytest.mark.parametrize("unix", [False, True])
def test_what_misbehaves_is_no_answer(name: str, unix: bool, tmp_path: Path) -> None:
    before, began = grown(), time.monotonic()
    seconds = 0.3 if name in ENDLESS else 30.0
    with pytest.raises(NoAnswer) as error:
        asked(BEHAVIOURS[name], seconds=seconds, path=tmp_path / "s" if unix else None)
    assert time.monotonic() - began < GIVE_UP / 2
    assert grown() - before < 100 * MIB
    assert isinstance(error.value, Silent) == (name in ENDLESS)
    assert isinstance(error.value, Packed) == ("gzip" in name)
    assert is_plain(str(error.value))


def test_an_answer_is_what_was_sent() -> None:
    answer = asked(lambda line: line.answer(line.head + line.body, "418 Tea", "X-Two: a", "x-two: b"), body=b"abc")
    assert (answer.status, answer.header("X-TWO"), answer.header("none")) == (418, "a", None)
    assert answer.body.endswith(b"abc")
    assert b"accept-encoding: identity" in answer.body.lower()


def test_early_hints_are_passed_over_and_bytes_are_bounded() -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    assert asked(lambda line: (line.send(hint * 3), line.answer(b"ok"))).body == b"ok"
    assert asked(lambda line: line.answer(bytes(1000)), most=1000).body == bytes(1000)
    with pytest.raises(Overrun, match="more than 999 bytes"):
        asked(lambda line: line.answer(bytes(1000)), most=999)


def test_the_wire_is_bounded_though_no_body_comes() -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: " + b"x" * 10_000 + b"\r\n\r\n"
    with pytest.raises(Overrun, match="more bytes than an answer may have"):
        asked(lambda line: [line.send(hint) for _ in range(1000)])


def test_a_wait_has_its_own_bound_and_bytes_buy_time() -> None:
    with pytest.raises(Silent) as error:
        asked(BEHAVIOURS["silent"], idle=0.05)
    assert not error.value.whole
    with pytest.raises(Silent) as error:
        asked(BEHAVIOURS["drips its body"], idle=10.0, seconds=0.3)
    assert error.value.whole
    budget = ExchangeBudget(0.0, 10**9, rate=1000)
    with pytest.raises(Silent):
        budget.left()
    budget.take(received=60_000_000)
    assert 1000 < budget.left() < 60_000
    assert not budget.late()


def test_a_body_that_nobody_takes_is_given_up(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "s"))
    listener.listen(1)
    with listener, Peer("http://there", uds=str(tmp_path / "s"), seconds=0.3) as peer, pytest.raises(Silent):
        peer.ask("POST", "http://there/x", body=bytes(50 * MIB), most=1)


def test_where_nobody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    for where, uds in ((url, None), ("http://there", str(tmp_path / "none"))):
        with Peer(where, seconds=30, uds=uds) as peer, pytest.raises(NoAnswer) as error:
            peer.ask("GET", most=1)
        assert error.value.never
    for wrong in ("http://[::", "ftp://127.0.0.1/x", "http://127.0.0.1:1/\n"):
        with Peer(url, seconds=30) as peer, pytest.raises(NoAnswer):
            peer.ask("GET", wrong, most=1)


def test_the_look_up_of_a_name_is_within_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: done.wait(GIVE_UP) and [])
    with Peer("http://slow.example", seconds=0.1) as peer, pytest.raises(Silent):
        peer.ask("GET", most=1)
    done.set()

    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with Peer("http://none.example", seconds=30) as peer, pytest.raises(NoAnswer, match="name or service not known"):
        peer.ask("GET", most=1)


def test_every_address_of_a_host_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
    known = socket.getaddrinfo
    rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{number}", 0)) for number in (9, 1)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *more, **kw: rows if "many" in host else known(host, *more, **kw))
    with hostile(lambda line: line.answer(line.head)) as there, Peer(f"http://many.example:{there.port}", seconds=30) as peer:
        assert b"Host: many.example" in peer.ask("GET", most=MIB).body
        with pytest.raises(NoAnswer, match="refused"):
            peer.ask("GET", f"http://many.example:{closed}/", most=1)


def test_a_connection_is_used_again_and_a_dead_one_is_not(tmp_path: Path) -> None:
    def twice(line: HostileConnection) -> None:
        line.answer(b"1")
        if b"/again" in line.head and line.socket.recv(65_536):
            line.answer(b"2")

    for path in (None, tmp_path / "s"):
        with hostile(twice, path) as there:
            url = "http://there" if path else there.url
            with Peer(url, seconds=30, uds=str(path) if path else None) as peer:
                assert peer.ask("GET", f"{url}/again", most=1).body == b"1"
                assert peer.ask("GET", f"{url}/again", most=1).body == b"2"
                for _ in range(3):
                    assert there.shut.acquire(timeout=GIVE_UP)
                    assert peer.ask("GET", f"{url}/once", most=1).body == b"1"


def test_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile(lambda line: line.answer(line.head)) as there:
        monkeypatch.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{there.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with Peer("http://far.example", seconds=30, proxies=True) as peer:
            head = peer.ask("GET", "http://far.example/x", most=MIB).body
        assert head.startswith(b"GET http://far.example/x HTTP/1.1")
        assert b"Proxy-Authorization: Basic bWU6cEBzcw==" in head
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with Peer(there.url, seconds=30, proxies=True) as peer:
            assert peer.ask("GET", f"{there.url}/y", most=MIB).body.startswith(b"GET /y ")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("assay.peers.http", "assay.peers.network"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "httpcore", None)
    with pytest.raises(BadInput, match=r"pip install 'assay\[github\]'"):
        peer("http://127.0.0.1:1", extra="github", seconds=1.0)


BOMBS = {
    "lists": "[" + "[]," * 4_000_000 + "[]]",
    "objects": "[" + "{}," * 4_000_000 + "{}]",
    "numbers": "[" + "1," * 4_000_000 + "1]",
    "strings": "[" + '"",' * 4_000_000 + '""]',
    "strings alone": '""' * 4_000_000,
    "escapes": "[" * 65 + '"' + "\\n" * 8_000_000,
    "depth": "[" * 1_000_000,
    "depth of objects": '{"a":' * 1_000_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_anything_is_made_of_it(name: str) -> None:
    before = grown()
    with pytest.raises(Overrun, match="more than"):
        reading.parsed(BOMBS[name].encode())
    assert grown() - before < 60 * MIB


def test_json_within_the_bounds() -> None:
    text = json.dumps({"a": ['[{,\\"' * 100_000, "\\", {"b": [1, None, "é"]}]}, ensure_ascii=False)
    assert reading.parsed(text) == reading.parsed(text.encode()) == json.loads(text)
    reading.bounded("[" * 64 + "]" * 64)
    with pytest.raises(Overrun, match="nested more than 64 deep"):
        reading.bounded("[" * 65 + "]" * 65)
    reading.bounded("[" + "[]," * 65)  # wide, and not deep
    assert reading.parsed("[1,2,3]", parts=3) == [1, 2, 3]
    with pytest.raises(Overrun, match="more than 2 parts"):
        reading.parsed("[1,2,3]", parts=2)
    for wrong in (b"", b"{", b"\xff", b"[1,]", b"9" * 5000, b'"'):
        with pytest.raises(NoAnswer, match="not JSON"):
            reading.parsed(wrong)


def test_what_is_large_is_read_aside() -> None:
    import asyncio

    here = threading.get_ident()
    seen: list[int] = []

    def parsed(data: bytes, **_: Any) -> str:
        seen.append(threading.get_ident())
        return str(len(data))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "parsed", parsed)
        assert asyncio.run(reading.parsed_aside(b"1")) == "1"
        assert asyncio.run(reading.parsed_aside(b"1" * 100_000)) == "100000"
    assert seen[0] == here != seen[1]


@pytest.fixture
def words() -> Words:
    return Words(["ghp_s3cr/t+", "", "abc"])


def test_words_of_a_peer_cannot_hurt(words: Words) -> None:
    shown = r"\x1b]0;owned\x07\x1b[2J\u202e\u2066\u200b\x9b31m\u200f\U000e0041\xad!"
    assert words(f"Bearer ghp_s3cr/t+ {EVIL}!") == f"Bearer [secret] {shown}"
    assert words("at /x?key=ghp_s3cr%2Ft%2B&abc") == "at /x?key=[secret]&abc"
    assert words("x" * 195 + "ghp_s3cr/t+ more") == "x" * 195 + "[sec…"
    assert words("y" * 200) == "y" * 200
    assert len(words(EVIL * 1000, 50)) == 50
    assert words("\ud800") == r"\ud800"
    assert words(None) == "None"
    long = "".join(map(str, range(300)))  # some tokens have more than five hundred characters
    assert not any(map(str.isdigit, Words([long])(long * 30)))
    assert Words(['pass"word'])('said: {"k": "pass\\"word"}') == 'said: {"k": "[secret]"}'


def test_errors_of_the_library_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (
        httpcore.ProxyError("x"),
        httpcore.LocalProtocolError("x"),
        httpcore.UnsupportedProtocol("x"),
        OSError(5, "No"),
    ):
        with Peer("http://127.0.0.1:1", seconds=30) as peer:

            def failing(*_: Any, error: Exception = error, **__: Any) -> Any:
                raise error

            monkeypatch.setattr(peer._pool, "stream", failing)
            with pytest.raises(NoAnswer):
                peer.ask("GET", most=1)


class ConfinedWorker:
    """What is confined in these tests; the child imports this file."""

    def __init__(self, begin: int) -> None:
        if begin < 0:
            raise ValueError("below zero")
        self.sum = begin

    def add(self, more: int) -> int:
        self.sum += more
        return self.sum

    def same(self, value: Any) -> Any:
        print("what a library prints is not an answer")
        return value

    def grow(self, size: int) -> int:
        return len(bytearray(size))

    def hang(self) -> None:
        threading.Event().wait()

    def crash(self) -> None:
        import os

        os._exit(3)

    def fail(self, name: str) -> None:
        raise {"key": KeyError("k"), "value": ValueError("v"), "own": RuntimeError("r"), "exit": SystemExit(1)}[name]


@pytest.fixture
def confined(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from assay.peers.confined import Confined

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with Confined("test_peers:ConfinedWorker", 40) as worker:
        yield worker


def test_an_object_in_a_child(confined: Any) -> None:
    assert confined.call("add", 2, seconds=60) == 42
    value = [None, True, 2**200, -1, 1.5, "é\x1b", b"\0", (1, [2]), {"a": {1: b""}}]
    assert confined.call("same", value, seconds=60) == value
    assert len(confined.call("same", bytes(5 * MIB), seconds=60)) == 5 * MIB
    for name, kind in (("key", KeyError), ("value", ValueError)):
        with pytest.raises(kind) as error:
            confined.call("fail", name, seconds=60)
        assert error.value.args == (name[0],)
    assert confined.call("add", 1, seconds=60) == 43
    confined.close()
    assert not confined.alive
    with pytest.raises(NoAnswer, match="ended before"):
        confined.call("add", 1, seconds=60)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "args", "kind", "words"),
    [
        ("grow", (2**31,), Overrun, "more memory"),
        ("hang", (), Silent, "too long"),
        ("crash", (), Overrun, "more memory"),
        ("fail", ("own",), NoAnswer, r"it failed \(RuntimeError\)"),
        ("fail", ("exit",), NoAnswer, r"it failed \(SystemExit\)"),
        ("same", (bytes(17 * MIB),), Overrun, "more than 16777216 bytes"),
    ],
)
def test_a_child_that_goes_wrong_is_ended(confined: Any, name: str, args: tuple[Any, ...], kind: Any, words: str) -> None:
    with pytest.raises(kind, match=words):
        confined.call(name, *args, seconds=0.2 if name == "hang" else 60)
    assert not confined.alive
    assert confined._child.returncode is not None


def test_a_child_that_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.peers.confined import Confined

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with pytest.raises(ValueError, match="below zero"):
        Confined("test_peers:ConfinedWorker", -1)
    for wrong in ("no_such_module:X", "test_peers:NoSuch"):
        with pytest.raises(NoAnswer):
            Confined(wrong)


def test_a_body_is_read_as_it_comes_and_can_be_hung_up_on() -> None:
    def stream(line: HostileConnection) -> None:
        line.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nabc")
        line.released.wait(GIVE_UP)

    with hostile(stream) as there, Peer(there.url, seconds=60, keep=False) as peer:
        with peer.exchange("GET", f"{there.url}/a;b?c=d;e", most=10) as opened:
            assert (opened.answer.status, opened.answer.header("content-encoding")) == (200, "gzip")
            assert opened.read() == b"abc"
            threading.Timer(0.05, peer.hang_up).start()
            began = time.monotonic()
            with pytest.raises(NoAnswer, match="ended here"):
                opened.read()
            assert time.monotonic() - began < GIVE_UP / 2
        assert there.asked[0].startswith(b"GET /a;b?c=d;e HTTP/1.1\r\n")
        assert b"\r\nConnection: close" in there.asked[0]
        with pytest.raises(Overrun, match="more than 2 bytes"), peer.exchange("GET", most=2) as opened:
            opened.read()


def test_what_goes_wrong_beside_a_body_is_not_the_peers() -> None:
    with hostile(lambda line: line.answer(b"abc")) as there, Peer(there.url, seconds=60) as peer:
        with pytest.raises(BrokenPipeError), peer.exchange("GET", most=10) as opened:
            raise BrokenPipeError
        assert opened.answer.status == 200
        assert peer.ask("GET", most=10).body == b"abc"


def test_asked_beside_the_event_loop_and_hung_up_on_when_cancelled() -> None:
    async def all_of_it() -> None:
        with (
            hostile(lambda line: line.answer(line.head)) as there,
            Peer("http://somewhere", at="127.0.0.1", seconds=60, keep=False) as peer,
        ):
            answers = await asyncio.gather(
                *(peer.ask_aside("GET", f"http://somewhere:{there.port}/", most=MIB) for _ in range(20))
            )
            assert all(b"Host: somewhere" in answer.body for answer in answers)
            with pytest.raises(Overrun):
                await peer.ask_aside("GET", f"http://somewhere:{there.port}/", most=3)
        gone = threading.Event()

        def wait(line: HostileConnection) -> None:
            assert line.socket.recv(1) == b""
            gone.set()

        with hostile(wait) as there, Peer(there.url, seconds=60) as peer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await peer.ask_aside("GET", most=MIB)
            assert await asyncio.to_thread(gone.wait, GIVE_UP / 2)

    asyncio.run(all_of_it())


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("7", 7),
        (" 7 ", 7),
        ("soon", None),
        ("-5", None),
        ("1e9", None),
        ("9" * 400, 999999999),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2015 07:28:00", None),
    ],
)
def test_what_retry_after_says(header: str | None, seconds: float | None) -> None:
    assert retry_after(header) == seconds


def test_retry_after_may_be_a_date() -> None:
    assert 3000 < (retry_after(format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)) or 0) <= 3600
