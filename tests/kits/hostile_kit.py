"""One hostile peer for every client: it takes a connection, reads what is asked, and misbehaves as it was told.

It drips, floods, packs, lies about lengths, nests, echoes secrets and speaks in terminal escapes. It gives up by itself after
GIVE_UP seconds, so that a client without a deadline fails its test rather than holds it.
"""

import base64
import gzip
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

GIVE_UP = 60.0
"""Seconds after which the peer hangs up. A test that took as long has no deadline of its own."""
EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\u2066\u200b\x9b31m\u200f\U000e0041\xad"
"""A title, a cleared screen, bidi overrides, a C1 control, zero-width characters."""


@dataclass
class HostileConnection:
    """A connection, its request read: `head` to the empty line, `body` as far as Content-Length says."""

    socket: socket.socket
    head: bytes
    body: bytes
    released: threading.Event

    def send(self, data: bytes) -> bool:
        self.socket.sendall(data)
        return True

    def pause(self, seconds: float = 0.01) -> bool:
        """Whether to go on."""
        return not self.released.wait(seconds)

    def drip(self, data: bytes = b" ") -> bool:
        """The same bytes again and again, slowly, till the end."""
        return all(self.pause() and self.send(data) for _ in range(int(GIVE_UP / 0.01)))

    def message(self) -> Any:
        """The JSON in the next frame of a websocket, which a client masks."""
        first, second = self.take(2)
        length = second & 0x7F
        if length > 125:
            length = int.from_bytes(self.take(2 if length == 126 else 8), "big")
        mask = self.take(4)
        data = bytes(byte ^ mask[place % 4] for place, byte in enumerate(self.take(length)))
        return json.loads(data) if first & 0x0F == 1 else None

    def take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            if not (piece := self.socket.recv(count - len(data))):
                raise OSError("gone")
            data += piece
        return data

    def answer(self, body: bytes, status: str = "200 OK", *headers: str) -> None:
        lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers, "", "")
        self.send("\r\n".join(lines).encode() + body)


Behaviour = Callable[[HostileConnection], object]


@cache  # to pack it takes longer than any client takes to refuse it
def nested_gzip(size: int = 200_000_000, times: int = 3) -> bytes:
    """A few hundred bytes that are so many when all layers are off."""
    data = b"".join(_gzipped_zeros(size))
    for _ in range(times - 1):
        data = gzip.compress(data)
    return data


def _gzipped_zeros(size: int) -> Iterator[bytes]:
    import zlib

    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    for _ in range(size // 1_000_000):
        yield packer.compress(bytes(1_000_000))
    yield packer.flush()


def _echo(line: HostileConnection) -> None:
    echoed = line.head.decode("latin-1") + EVIL
    words = {"message": echoed, "code": echoed, "type": echoed, "what": echoed, "hint": echoed}
    line.answer(json.dumps({"error": words, **words}).encode(), "400 \x1b[31mBad")


def _early(line: HostileConnection) -> None:
    for _ in range(int(GIVE_UP / 0.001)):
        if not line.pause(0.001):
            return
        line.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n")


def _flood(line: HostileConnection) -> None:
    line.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    for _ in range(4_000):  # 4 GB at most
        if not line.pause(0):
            return
        line.send(b" " * 1_000_000)


def _chunks(line: HostileConnection) -> None:
    """Chunks of one byte with extensions: much more on the wire than there is of a body."""
    line.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = b"1;" + b"x" * 10_000 + b"\r\n \r\n"
    for _ in range(400_000):
        if not line.pause(0):
            return
        line.send(piece * 20)


PACKED = {"Content-Encoding: " + ", ".join(["gzip"] * 3)}
BEHAVIOURS: dict[str, Behaviour] = {
    "silent": lambda line: line.released.wait(GIVE_UP),
    "drips its body": lambda line: (line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"), line.drip()),
    "drips its header": lambda line: (line.send(b"HTTP/1.1 200 OK\r\nX-Drip: "), line.drip(b"x")),
    "drips headers": lambda line: (line.send(b"HTTP/1.1 200 OK\r\n"), line.drip(b"X-Drip: x\r\n")),
    "early hints without end": _early,
    "body without end": _flood,
    "chunks of a byte": _chunks,
    "nested gzip": lambda line: line.answer(nested_gzip(), "200 OK", *PACKED),
    "gzip on a 404": lambda line: line.answer(nested_gzip(), "404 Not Found", *PACKED),
    "gzip on a 500": lambda line: line.answer(nested_gzip(), "500 Trouble", *PACKED),
    "a bomb of parts": lambda line: line.answer(b"[" + b"[]," * 4_000_000 + b"[]]"),
    "a bomb of depth": lambda line: line.answer(b"[" * 1_000_000 + b"]" * 1_000_000),
    "echoes secrets and escapes": _echo,
    "shorter than it says": lambda line: line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}"),
    "not HTTP": lambda line: line.send(f"{EVIL}\r\n\r\n".encode()),
    "headers without end": lambda line: line.send(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 3_000_000),
    "hangs up": lambda line: None,
}
"""Every one of them ends with an error of the client's own, soon."""


@dataclass
class Hostile:
    """A peer that listens: `url` over TCP, or `path` of a Unix socket."""

    behave: Behaviour
    listener: socket.socket
    released: threading.Event = field(default_factory=threading.Event)
    asked: list[bytes] = field(default_factory=list)
    """The heads of requests."""
    shut: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released when the peer has ended its side of a connection."""

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self) -> None:
        while not self.released.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError):
            connection.settimeout(GIVE_UP)
            data = bytearray()
            while b"\r\n\r\n" not in data:
                if not (piece := connection.recv(65_536)):
                    return
                data += piece
            head, _, body = bytes(data).partition(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            wanted = int(lengths[0].partition(b":")[2]) if lengths else 0
            while len(body) < wanted and (piece := connection.recv(65_536)):
                body += piece
            self.asked.append(head)
            self.behave(HostileConnection(connection, head, body, self.released))
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                self.shut.release()
                connection.settimeout(1)
                connection.recv(1)


@contextmanager
def hostile(behave: Behaviour, path: Path | None = None) -> Iterator[Hostile]:
    """A peer that behaves so, until the context ends."""
    if path is None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    else:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen(64)
    peer = Hostile(behave, listener)
    thread = threading.Thread(target=peer.run, daemon=True)
    thread.start()
    try:
        yield peer
    finally:
        peer.released.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def upgraded(then: Behaviour, *, read: bool = True) -> Behaviour:
    """A websocket that is opened as it should be, and misbehaves after (the first question is read)."""

    def behave(line: HostileConnection) -> None:
        key = next(
            row.partition(b":")[2].strip() for row in line.head.split(b"\r\n") if row.lower().startswith(b"sec-websocket-key")
        )
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
        line.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            + f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        if read:
            line.socket.recv(65_536)
        then(line)

    return behave


def frame(data: bytes, *, last: bool = True, first: bool = True) -> bytes:
    """A frame of text, or a part of one."""
    head = bytes([(0x80 if last else 0) | (1 if first else 0)])
    length = len(data)
    if length < 126:
        return head + bytes([length]) + data
    return head + (b"\x7e" + struct.pack(">H", length) if length < 65_536 else b"\x7f" + struct.pack(">Q", length)) + data


def _pieces(line: HostileConnection) -> None:
    """A message of empty parts that never ends."""
    line.send(frame(b"", last=False))
    for _ in range(int(GIVE_UP / 0.001)):
        if not line.pause(0.001):
            return
        line.send(bytes([0, 0]) * 100)


SOCKETS: dict[str, Behaviour] = {
    "silent": upgraded(lambda line: line.released.wait(GIVE_UP)),
    "drips a message": upgraded(lambda line: (line.send(b"\x81\x7e\xff\xff"), line.drip())),
    "a message without end": upgraded(_pieces),
    "other answers without end": upgraded(lambda line: line.drip(frame(b'{"jsonrpc":"2.0","id":77,"result":1}'))),
    "a bomb of parts": upgraded(lambda line: line.send(frame(b"[" + b"[]," * 4_000_000 + b"[]]"))),
    "a bomb of depth": upgraded(lambda line: line.send(frame(b"[" * 1_000_000 + b"]" * 1_000_000))),
    "too long": upgraded(lambda line: (line.send(b"\x81\x7f" + struct.pack(">Q", 2**40)), line.drip())),
    "escapes": upgraded(
        lambda line: line.send(
            frame(json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": EVIL, "data": EVIL}}).encode())
        )
    ),
}
"""After the handshake of a websocket."""


def grown() -> int:
    """The most memory that this process had so far, in bytes. Take it before and after."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def is_plain(text: str) -> bool:
    """Whether a text can be shown as it is, line ends aside."""
    return all(char.isprintable() for char in text.replace("\n", ""))
