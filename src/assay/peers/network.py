"""httpcore's network with a budget: every read and write of a socket has a deadline and is counted.

httpcore bounds each wait for bytes. A peer that sends a byte a second, or 103 answers without end, stays within that for ever.
The budget bounds the whole exchange. It belongs to the exchange (in a context variable), so one pool of connections serves many.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import httpcore

from assay.peers import NoAnswer, Overrun, Silent

__all__ = ["Backend", "ExchangeBudget", "spending"]

ADDRESSES = 8
"""Most addresses of one host that are tried."""
_SLICE = 16_384
"""Bytes that are written between two checks of the deadline."""


class ExchangeBudget:
    """The budget of one exchange. seconds: in all; idle: for each wait; rate: bytes that extend it by a second (None: never)."""

    def __init__(self, seconds: float, wire: int, *, idle: float | None = None, rate: int | None = None) -> None:
        self._begun, self._seconds, self._rate = time.monotonic(), seconds, rate
        self._idle, self._wire, self._spent = idle, wire, 0
        self._lock, self._ended = threading.Lock(), False
        self._sockets: set[socket.socket] = set()

    def hold(self, opened: socket.socket) -> None:
        """Note a socket, which `end` will shut down."""
        with self._lock:
            self._sockets.add(opened)
        if self._ended:
            self.end()

    def end(self) -> None:
        """End the exchange, from any thread. A wait for bytes ends too."""
        with self._lock:
            self._ended = True
            for opened in self._sockets:
                with suppress(OSError):
                    socket.socket.shutdown(opened, socket.SHUT_RDWR)  # the socket below TLS

    def left(self) -> float:
        """Seconds left for the next wait, above 0. Raises Silent, and NoAnswer after `end`."""
        if self._ended:
            raise NoAnswer("the connection was ended here")
        bought = 0.0 if self._rate is None else self._spent / self._rate
        whole = self._seconds + bought
        left = self._begun + whole - time.monotonic()
        if left <= 0:
            raise Silent(f"{whole:g} seconds were not enough", whole=True)
        return left if self._idle is None else min(left, self._idle)

    def late(self) -> bool:
        """Whether the whole time is over."""
        try:
            self.left()
        except Silent:
            return True
        except NoAnswer:
            pass
        return False

    def take(self, received: int = 0, sent: int = 0) -> None:
        """Count bytes. Raises Overrun above the limit, and NoAnswer after `end`, which looks like an end by the peer."""
        if self._ended:
            raise NoAnswer("the connection was ended here")
        self._spent += received + sent
        self._wire -= received
        if self._wire < 0:
            raise Overrun("more bytes than an answer may have")


_BUDGET: ContextVar[ExchangeBudget] = ContextVar("budget")


@contextmanager
def spending(budget: ExchangeBudget) -> Iterator[ExchangeBudget]:
    """Charge everything that is read and written in the block to this budget."""
    token = _BUDGET.set(budget)
    try:
        yield budget
    finally:
        _BUDGET.reset(token)


class _BudgetedStream(httpcore.NetworkStream):
    """A connection. Each wait is within the budget of its current exchange."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def _budget(self) -> ExchangeBudget:
        """The budget of the current exchange, which can end it from now on."""
        budget = _BUDGET.get()
        budget.hold(self._inner.get_extra_info("socket"))
        return budget

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        budget = self._budget()
        data = self._inner.read(max_bytes, budget.left())
        budget.take(received=len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        budget = self._budget()
        for begin in range(0, len(buffer), _SLICE):
            piece = buffer[begin : begin + _SLICE]
            self._inner.write(piece, budget.left())
            budget.take(sent=len(piece))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _BudgetedStream(self._inner.start_tls(ssl_context, server_hostname, self._budget().left()))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class Backend(httpcore.NetworkBackend):
    """Connects within the budget: the look-up of a name and all its addresses share one deadline."""

    def __init__(self, at: str | None = None) -> None:
        """at: an address that was looked up before, used instead of the host's."""
        self._inner, self._at = httpcore.SyncBackend(), at

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        """Connect as httpcore does, and try each of the host's addresses."""
        budget, error = _BUDGET.get(), None
        addresses = _looked_up(self._at or host, port, budget)
        for number, address in enumerate(addresses):
            try:
                seconds = budget.left() / (len(addresses) - number)  # the last one has all that is left
                return _BudgetedStream(self._inner.connect_tcp(address, port, seconds, local_address, socket_options))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as refused:
                error = refused
        raise error or httpcore.ConnectError("the host has no address")

    def connect_unix_socket(self, path: str, timeout: float | None = None, socket_options: Any = None) -> httpcore.NetworkStream:
        """Connect as httpcore does, and close the socket if nobody listens."""
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            opened.settimeout(_BUDGET.get().left())
            opened.connect(path)
        except TimeoutError as error:
            opened.close()  # httpcore itself would leave it to the garbage collector
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            opened.close()
            raise httpcore.ConnectError(str(error)) from error
        return _BudgetedStream(_UnixStream(opened))

    def sleep(self, seconds: float) -> None:
        """Do not pause: httpcore pauses between attempts to connect, but here is only one."""


class _UnixStream(httpcore.NetworkStream):
    """A connected Unix socket."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _mapped(httpcore.ReadTimeout, httpcore.ReadError):
            self._socket.settimeout(timeout)
            return self._socket.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with _mapped(httpcore.WriteTimeout, httpcore.WriteError):
            self._socket.settimeout(timeout)
            self._socket.sendall(buffer)  # its time-out is for all of it

    def close(self) -> None:
        self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        if info == "socket":
            return self._socket
        if info == "is_readable":
            self._socket.setblocking(False)
            try:
                return self._socket.recv(1, socket.MSG_PEEK) is not None
            except BlockingIOError:
                return False
            except OSError:
                return True
        return None


@contextmanager
def _mapped(late: type[Exception], failed: type[Exception]) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except OSError as error:
        raise failed(str(error)) from error


def _looked_up(host: str, port: int, budget: ExchangeBudget) -> list[str]:
    """The host's addresses. The look-up runs in its own thread, because the system's look-up has no deadline."""
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    answered: queue.SimpleQueue[list[Any] | OSError | UnicodeError] = queue.SimpleQueue()

    def look() -> None:
        try:
            answered.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answered.put(error)

    threading.Thread(target=look, name="look-up", daemon=True).start()
    try:
        result = answered.get(timeout=budget.left())
    except queue.Empty:
        raise httpcore.ConnectTimeout("the name was not looked up in time") from None
    if isinstance(result, Exception):
        with _mapped(httpcore.ConnectTimeout, httpcore.ConnectError):  # a UnicodeError is raised as it is
            raise result
    return list(dict.fromkeys(str(row[4][0]) for row in result))[:ADDRESSES]
