"""One HTTP exchange with a peer, bounded in time, bytes on the wire and bytes of the body. Nothing is ever unpacked.

It uses httpcore (the layer below httpx), which speaks HTTP, TLS and proxies, and passes bodies on unchanged. Redirects are not
followed.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import urllib.request
from collections.abc import Container, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

import httpcore

from assay.errors import broken
from assay.peers import NoAnswer, Overrun, Packed, Silent
from assay.peers.network import Backend, ExchangeBudget, spending

__all__ = ["Peer", "PeerAnswer", "StreamedAnswer"]

_FRAMES = 2**20
"""Bytes of headers and 1xx answers on the wire."""


@dataclass(frozen=True)
class PeerAnswer:
    """An answer: status, unchanged headers, and the whole body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The first header of a name; None if there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class StreamedAnswer:
    """An answer whose body is read in pieces, within the bounds of the whole exchange."""

    def __init__(self, answer: PeerAnswer, pieces: Iterator[bytes], budget: ExchangeBudget, most: int) -> None:
        self.answer = answer
        self._pieces, self._budget, self._most, self._came = pieces, budget, most, 0

    def read(self) -> bytes:
        """The next bytes of the body; b"" is its end. Raises NoAnswer (Silent, Overrun)."""
        with spending(self._budget), _ours(self._budget):
            piece = next(self._pieces, b"")
        self._came += len(piece)
        if self._came > self._most:
            raise Overrun(f"more than {self._most} bytes")
        return piece


class Peer:
    """A client of one address. A context manager; several threads may use it.

    seconds: for one whole exchange, from the look-up of the name to the last byte. idle: for each wait in it. rate: bytes that
    extend it by one second, for bodies of very different sizes. uds: a Unix socket instead of the address's host. at: an address
    that was looked up before. proxies: use those of the environment. keep: connections stay open for the next request.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float,
        idle: float | None = None,
        rate: int | None = None,
        uds: str | None = None,
        at: str | None = None,
        proxies: bool = False,
        keep: bool = True,
    ) -> None:
        self.url, self.seconds, self.idle, self.rate = url, seconds, idle, rate
        self._headers = {"Accept": "*/*"} | dict(headers or {}) | {"Accept-Encoding": "identity"}
        if not keep:
            self._headers["Connection"] = "close"
        self._pool = _pool(url, uds, at, proxies)
        self._lock, self._going = threading.Lock(), set[ExchangeBudget]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections. The next request opens a new one."""
        self._pool.close()

    def hang_up(self) -> None:
        """End all running exchanges, from any thread. Each of them raises NoAnswer."""
        with self._lock:
            for budget in self._going:
                budget.end()

    def ask(
        self,
        method: str,
        url: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        most: int,
    ) -> PeerAnswer:
        """The answer, whatever its status, with a body of at most `most` bytes. Raises NoAnswer (Silent, Overrun, Packed)."""
        return self._asked(self._budget(most), method, url or self.url, headers, body, most)

    async def ask_aside(
        self,
        method: str,
        url: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        most: int,
        bodies: Container[int] | None = None,
    ) -> PeerAnswer:
        """As `ask`, in its own thread, so that the event loop goes on. Cancelling it ends the exchange.

        bodies: the statuses whose body is read; other answers have an empty body.
        """
        loop, budget = asyncio.get_running_loop(), self._budget(most)
        future: asyncio.Future[PeerAnswer] = loop.create_future()

        def tell(answer: PeerAnswer | None, error: BaseException | None) -> None:
            if answer is not None and not future.done():
                future.set_result(answer)
            elif error is not None and not future.done():
                future.set_exception(error)

        def act() -> None:
            answer, wrong = None, None
            try:
                answer = self._asked(budget, method, url or self.url, headers, body, most, bodies)
            except BaseException as error:  # noqa: BLE001  (every error is raised where the answer is awaited)
                wrong = error
            with suppress(RuntimeError):  # the loop was closed, so nobody waits
                loop.call_soon_threadsafe(tell, answer, wrong)

        threading.Thread(target=act, name="peer", daemon=True).start()
        try:
            return await future
        finally:
            budget.end()

    @contextmanager
    def exchange(
        self,
        method: str,
        url: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        most: int,
    ) -> Iterator[StreamedAnswer]:
        """An answer whose body is passed on unchanged, packed or not. Raises NoAnswer, and so does reading it."""
        budget = self._budget(most)
        with self._exchanging(budget, method, url or self.url, headers, body, most) as opened:
            yield opened

    def _budget(self, most: int) -> ExchangeBudget:
        return ExchangeBudget(self.seconds, 2 * most + _FRAMES, idle=self.idle, rate=self.rate)

    def _asked(
        self,
        budget: ExchangeBudget,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        body: bytes | None,
        most: int,
        bodies: Container[int] | None = None,
    ) -> PeerAnswer:
        with self._exchanging(budget, method, url, headers, body, most) as opened:
            answer, data = opened.answer, bytearray()
            if bodies is not None and answer.status not in bodies:
                return answer
            try:
                if (answer.header("content-encoding") or "identity").strip().lower() not in ("", "identity"):
                    raise Packed("the answer is packed, although nobody asked for that")
                while piece := opened.read():
                    data += piece
            except NoAnswer as error:
                error.head = answer
                raise
        return PeerAnswer(answer.status, answer.headers, bytes(data))

    @contextmanager
    def _exchanging(
        self, budget: ExchangeBudget, method: str, url: str, headers: Mapping[str, str] | None, body: bytes | None, most: int
    ) -> Iterator[StreamedAnswer]:
        headers_sent = dict(headers or {})
        named = {name.lower() for name in headers_sent} - {"accept-encoding", "connection"}  # the caller cannot set these
        headers_sent = {name: value for name, value in headers_sent.items() if name.lower() in named}
        headers_sent |= {name: value for name, value in self._headers.items() if name.lower() not in named}
        with self._lock:
            self._going.add(budget)
        try:
            with ExitStack() as later:
                with spending(budget), _ours(budget):
                    answer = later.enter_context(self._stream(method, url, headers_sent, body))
                headers_received = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers)
                yield StreamedAnswer(PeerAnswer(answer.status, headers_received, b""), answer.iter_stream(), budget, most)
        finally:
            with self._lock:
                self._going.discard(budget)

    def _stream(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AbstractContextManager[httpcore.Response]:
        """The library's exchange. Headers are bytes, so their text is latin-1."""
        rows = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
        return self._pool.stream(method, _located(url), headers=rows, content=body)


def _located(url: str) -> httpcore.URL:
    """The unchanged address: httpcore's own parser drops everything after a semicolon."""
    target, parts = httpcore.URL(url), urlsplit(url)
    target.target = ((parts.path or "/") + (f"?{parts.query}" if parts.query else "")).encode("ascii")
    return target


@contextmanager
def _ours(budget: ExchangeBudget) -> Iterator[None]:
    """Turn every error of the exchange into one of ours."""
    try:
        yield
    except httpcore.TimeoutException as error:
        never = isinstance(error, httpcore.ConnectTimeout)
        raise Silent("no answer in time", never=never, whole=budget.late()) from None
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, httpcore.UnsupportedProtocol, OSError) as error:
        if budget.late():
            raise Silent("no answer in time", whole=True) from None
        raise NoAnswer(broken(error), never=isinstance(error, httpcore.ConnectError)) from None
    except ValueError as error:  # an invalid address: h11 and httpcore check every part of it
        raise NoAnswer(broken(error)) from None


_LOCK = threading.Lock()


@cache
def _context() -> ssl.SSLContext:
    """The system's certificates; also certifi's, unless the user chose others: some systems have none."""
    context = ssl.create_default_context()
    if not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def _pool(url: str, uds: str | None, at: str | None, proxies: bool) -> httpcore.ConnectionPool:
    scheme = url.partition(":")[0].lower()
    with _LOCK:
        context = _context() if scheme == "https" else None
    host = urlsplit(url).netloc.rpartition("@")[2] if proxies else ""
    through = urllib.request.getproxies().get(scheme) if host and not urllib.request.proxy_bypass(host) else None
    return httpcore.ConnectionPool(
        ssl_context=context,
        proxy=None if through is None else _proxy(through),
        uds=uds,
        max_connections=None,
        max_keepalive_connections=1,
        network_backend=Backend(at),
    )


def _proxy(url: str) -> httpcore.Proxy:
    """The proxy at an address of the environment: `[http://][USER:PASSWORD@]HOST:PORT`."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    auth = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    return httpcore.Proxy(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", auth=auth)
