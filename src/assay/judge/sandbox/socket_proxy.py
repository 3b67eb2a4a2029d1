"""Opens a door in a box: `127.0.0.1:8080` inside leads to one Unix socket of the host, and nowhere else.

A small process outside the box joins the box's network namespace only to listen there, and forwards connections. It runs this
file alone, without the rest of Assay. It ends when its stdin ends, so it cannot outlive the process that started it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import selectors
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["PORT", "Door"]

PORT = 8080
_MOST = 128
"""The number of connections that may be open at once."""
_OWNER_OF = 0xB701
"""The ioctl that opens the user namespace which owns a namespace."""
_USER, _NETWORK = 0x10000000, 0x40000000
_PATIENCE = 60.0
_READY = b"listening\n"


class Door:
    """An open door: the process that forwards connections."""

    def __init__(self, first: int, target: Path) -> None:
        """first: pid of the box's first process. target: the socket on the host. Raises OSError."""
        network = os.open(f"/proc/{first}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(network), str(target)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(network,), env={},
                start_new_session=True, bufsize=0,
            )  # fmt: skip
        finally:
            os.close(network)
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        if not poll.poll(_PATIENCE * 1000) or self._process.stdout.read(64) != _READY:
            raise OSError(f"the door could not be opened: {self.close()[-300:] or 'it did not start in time'}")

    def close(self) -> str:
        """Closes the door, and returns what its process wrote to stderr."""
        self._process.kill()
        _out, err = self._process.communicate()
        return bytes(err).decode(errors="replace").strip()


def _enter(network: int) -> None:
    """Joins a network namespace. Without root, the process must first join the user namespace that owns it."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(network, _NETWORK) == 0:
        return
    for number, kind in ((fcntl.ioctl(network, _OWNER_OF), _USER), (network, _NETWORK)):
        if library.setns(number, kind) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


class _Pair:
    """Two connected sockets, with the bytes that were read from one and not yet written to the other."""

    def __init__(self, inner: socket.socket, outer: socket.socket) -> None:
        self.ends = (inner, outer)
        self.waiting = {inner: b"", outer: b""}
        self.ended: set[socket.socket] = set()

    def other(self, end: socket.socket) -> socket.socket:
        return self.ends[1] if end is self.ends[0] else self.ends[0]


class _Relay:
    """Accepts connections in the box, and forwards each to the socket on the host."""

    def __init__(self, listener: socket.socket, target: str) -> None:
        self._listener, self._target = listener, target
        self._watch = selectors.DefaultSelector()
        self._watch.register(listener, selectors.EVENT_READ)
        self._watch.register(0, selectors.EVENT_READ)
        self._pairs: dict[socket.socket, _Pair] = {}

    def serve(self) -> None:
        """Forwards connections until stdin ends."""
        while True:
            for key, events in self._watch.select():
                if key.fd == 0:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                    continue
                end = key.fileobj
                assert isinstance(end, socket.socket)
                if (pair := self._pairs.get(end)) is None:
                    continue
                try:
                    self._pass(pair, end, events)
                except OSError:
                    self._drop(pair)

    def _accept(self) -> None:
        try:
            inner, _ = self._listener.accept()
        except OSError:
            return
        outer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if len(self._pairs) >= 2 * _MOST:
                raise OSError("too many connections")
            outer.connect(self._target)
        except OSError:
            inner.close()
            outer.close()
            return
        pair = _Pair(inner, outer)
        for end in pair.ends:
            end.setblocking(False)
            self._pairs[end] = pair
            self._watch.register(end, selectors.EVENT_READ)

    def _pass(self, pair: _Pair, end: socket.socket, events: int) -> None:
        other = pair.other(end)
        if events & selectors.EVENT_READ:
            data = end.recv(65536)
            if data:
                pair.waiting[other] += data
            else:
                pair.ended.add(end)
        for writable in (other, end):
            self._flush(pair, writable)
        if pair.ended == set(pair.ends) and not any(pair.waiting.values()):
            self._drop(pair)
            return
        for end in pair.ends:
            # Read from one side only after the other side has taken everything.
            wanted = selectors.EVENT_WRITE if pair.waiting[end] else 0
            if end not in pair.ended and not pair.waiting[pair.other(end)]:
                wanted |= selectors.EVENT_READ
            with suppress(KeyError):
                self._watch.unregister(end)
            if wanted:
                self._watch.register(end, wanted)

    def _flush(self, pair: _Pair, end: socket.socket) -> None:
        if pair.waiting[end]:
            with suppress(BlockingIOError):
                pair.waiting[end] = pair.waiting[end][end.send(pair.waiting[end]) :]
        if pair.other(end) in pair.ended and not pair.waiting[end]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_WR)

    def _drop(self, pair: _Pair) -> None:
        for end in pair.ends:
            with suppress(KeyError, ValueError):
                self._watch.unregister(end)
            self._pairs.pop(end, None)
            end.close()


def _main() -> None:
    network, target = int(sys.argv[1]), sys.argv[2]
    _enter(network)
    os.close(network)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", PORT))
        listener.listen(_MOST)
        listener.setblocking(False)
        os.write(1, _READY)
        _Relay(listener, target).serve()


if __name__ == "__main__":
    _main()
