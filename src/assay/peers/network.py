"""Sockets with a budget: httpcore's network, every read and write of which has a deadline and is counted.

httpcore bounds each wait for bytes. A peer that sends a byte a second, or 103 answers without end, keeps within that for
ever; the budget bounds the whole exchange. It is the exchange's own (a context variable), so one pool of connections serves many.
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
"""Addresses of one host that are tried."""
_SLICE = 16_384
"""Bytes that are written between two looks at the clock."""


class ExchangeBudget:
    """Of one exchange. seconds: for all of it; idle: for each wait; rate: bytes that buy one second more (None: nothing does)."""

    def __init__(self, seconds: float, wire: int, *, idle: float | None = None, rate: int | None = None) -> None:
        self._begun, self._seconds, self._rate = time.monotonic(), seconds, rate
        self._idle, self._wire, self._spent = idle, wire, 0
        self._lock, self._ended = threading.Lock(), False
        self._sockets: set[socket.socket] = set()

    def hold(self, opened: socket.socket) -> None:
        """A socket that `end` shuts down."""
        with self._lock:
            self._sockets.add(opened)
        if self._ended:
            self.end()

    def end(self) -> None:
        """Hang up, from any thread: who waits for bytes stops waiting."""
        with self._lock:
            self._ended = True
            for opened in self._sockets:
                with suppress(OSError):
                    socket.socket.shutdown(opened, socket.SHUT_RDWR)  # of what is below TLS, if there is any

    def left(self) -> float:
        """Seconds for the next wait, above 0; raises Silent, and NoAnswer after `end`."""
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
        """Count bytes; raises Overrun above so many received, and NoAnswer after `end`, which looks like an end of theirs."""
        if self._ended:
            raise NoAnswer("the connection was ended here")
        self._spent += received + sent
        self._wire -= received
        if self._wire < 0:
            raise Overrun("more bytes than an answer may have")


_BUDGET: ContextVar[ExchangeBudget] = ContextVar("budget")


@contextmanager
def spending(budget: ExchangeBudget) -> Iterator[ExchangeBudget]:
    """What is read and written within is of this budget."""
    token = _BUDGET.set(budget)
    try:
        yield budget
    finally:
        _BUDGET.reset(token)


class _Stream(httpcore.NetworkStream):
    """A connection whose every wait is within the budget of who uses it now."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def _budget(self) -> ExchangeBudget:
        """Of who uses it now, and who can end that from now on."""
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
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, self._budget().left()))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class Backend(httpcore.NetworkBackend):
    """Connects within the budget: the look-up of a name and all of its addresses have one deadline."""

    def __init__(self, at: str | None = None) -> None:
        """at: an address that was looked up before, and is taken instead of the host's."""
        self._inner, self._at = httpcore.SyncBackend(), at

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        """See httpcore; each of the host's addresses is tried."""
        budget, error = _BUDGET.get(), None
        addresses = _looked_up(self._at or host, port, budget)
        for number, address in enumerate(addresses):
            try:
                seconds = budget.left() / (len(addresses) - number)  # the last one has all that is left
                return _Stream(self._inner.connect_tcp(address, port, seconds, local_address, socket_options))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as refused:
                error = refused
        raise error or httpcore.ConnectError("the host has no address")

    def connect_unix_socket(self, path: str, timeout: float | None = None, socket_options: Any = None) -> httpcore.NetworkStream:
        """See httpcore; a socket that nobody listens at is closed."""
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            opened.settimeout(_BUDGET.get().left())
            opened.connect(path)
        except TimeoutError as error:
            opened.close()  # httpcore's own way would leave it to the garbage collector
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            opened.close()
            raise httpcore.ConnectError(str(error)) from error
        return _Stream(_UnixStream(opened))

    def sleep(self, seconds: float) -> None:
        """httpcore's pause between attempts to connect, of which there is one here."""


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
    """The host's addresses, looked up in a thread of its own: the system's look-up has no deadline that we could set."""
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
        with _mapped(httpcore.ConnectTimeout, httpcore.ConnectError):  # UnicodeError is no OSError, and says why by itself
            raise result
    return list(dict.fromkeys(str(row[4][0]) for row in result))[:ADDRESSES]
