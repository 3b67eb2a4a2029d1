"""The service over HTTP: JSON in and out, every body bounded in size and time, every refusal a code and a sentence.

    GET  /attestation                 the enclave's keys, and the quote that binds them
    GET  /bounty                      the bounty that it judges
    POST /commitments                 a signed commitment        → the enclave's signed statement about it
    POST /submissions                 a sealed solution          → the enclave's signed statement about it
    GET  /submissions/WHO             the state of a participant, or of a commitment
    GET  /status                      counts, errors, the cost of judging
    GET  /results, /results/sealed    once they are published
    POST /release                     a receipt and its settlement → the winners' solutions, sealed to the sponsor

A refusal is `{"error": {"code", "what", "hint"}}`. Nothing of a body is ever logged, and no stack trace leaves.

`ConnectionGuard` decides which connections stay, so that no number of them shuts everybody out:

- A connection without a request counts as no request. Its first byte and its header have short time-outs. If there are too many
  connections, the oldest silent one is closed, first of the address that has most of them.
- A public address has a share of connections and of requests. Addresses that are not public are shared (a gateway, this machine):
  they have no share of their own.
- Some requests are reserved for known addresses: those that sent something that was taken (a commitment, a solution, a release).
  Each such thing reserves a few, since it can be sent again from anywhere.
- A request whose body takes long is closed when there is no room for another one. So is an incomplete request of a network that
  has several, in favour of a network that has fewer. An answer that the client does not read is given up.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import h11
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from assay.enclave.messages import ENVELOPE_BYTES, Code, Rejected
from assay.enclave.service.intake import sealed_limit
from assay.enclave.service.lifecycle import Service
from assay.enclave.service.results import RELEASE_BYTES
from assay.errors import AssayError
from assay.exact import canonical

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass(frozen=True)
class ConnectionLimits:
    """The connections and requests that a guard allows; times in seconds."""

    connections: int = 600
    address_connections: int = 48
    requests: int = 200
    address_requests: int = 24
    kept: int = 50
    """Requests that are reserved for known addresses."""
    known: int = 1000
    """Addresses that are remembered."""
    each: int = 4
    """Reserved requests for each thing that was taken."""
    first_byte: float = 5.0
    header: float = 10.0
    body: float = 10.0
    """After which a request whose body is not whole goes, if another needs the room."""
    rate: int = 16_384
    """Bytes a second that who gets an answer has to take."""
    look: float = 5.0
    """Between two looks at how fast it is taken."""


CONNECTION_LIMITS = ConnectionLimits()


@dataclass(eq=False)
class Connection:
    """A connection. `unfinished`: whether its request has begun and is not whole; `leave`: what ends it."""

    address: str
    leave: Callable[[], None]
    unfinished: Callable[[], bool]
    asking: float | None = None
    """Since when it has a request."""
    network: str = field(init=False)
    """A wider one that the address is in: whoever has one has many addresses."""
    shared: bool = field(init=False)

    def __post_init__(self) -> None:
        self.address, self.network, self.shared = _network_of(self.address)


class ConnectionGuard:
    """The connections of one service, in the order in which they came."""

    def __init__(self, bounds: ConnectionLimits = CONNECTION_LIMITS, clock: Callable[[], float] = time.monotonic) -> None:
        self.bounds, self._clock = bounds, clock
        self.guests: dict[Connection, None] = {}
        self._known: OrderedDict[str, bytes] = OrderedDict()

    def arrive(self, guest: Connection) -> bool:
        """Accept a connection, and close another one if there are too many; False if none can be closed."""
        self.guests[guest] = None
        while not guest.shared and self._of(guest.address) > self.bounds.address_connections:
            if not self._one_leaves([one for one in self.guests if one.address == guest.address], guest):
                return False
        while len(self.guests) > self.bounds.connections:
            if not self._one_leaves(list(self.guests), guest):
                return False
        return True

    def gone(self, guest: Connection) -> None:
        """A connection has ended."""
        self.guests.pop(guest, None)

    def ask(self, guest: Connection) -> bool:
        """Whether a connection may have a request now; a slow one of another goes for it."""
        bounds, asking = self.bounds, [one for one in self.guests if one.asking is not None]
        mine = [one for one in asking if one.address == guest.address]
        if not guest.shared and len(mine) >= bounds.address_requests and not self._slow_leaves(mine):
            return False
        room = bounds.requests - (0 if self.is_known(guest) else bounds.kept)
        if len(asking) >= room and not self._slow_leaves(asking) and not self._busiest_leaves(asking, guest.network):
            return False
        guest.asking = self._clock()
        return True

    def answered(self, guest: Connection) -> None:
        """The request of a connection is over."""
        guest.asking = None

    def welcome(self, guest: Connection, receipt: bytes) -> None:
        """Reserve requests for an address that sent something valuable. receipt: the answer that it got."""
        what = sha256(receipt).digest()
        several = guest.address not in self._known and Counter(self._known.values())[what] >= self.bounds.each
        if guest.shared or several:
            return
        self._known[guest.address] = what
        self._known.move_to_end(guest.address)
        while len(self._known) > self.bounds.known:
            self._known.popitem(last=False)

    def is_known(self, guest: Connection) -> bool:
        """Whether something was taken from this address before."""
        return guest.address in self._known

    def _of(self, address: str) -> int:
        return sum(one.address == address for one in self.guests)

    def _one_leaves(self, among: list[Connection], newcomer: Connection) -> bool:
        """The silent one that has been there longest goes: strangers first, and of the address that has most."""
        silent = [one for one in among if one.asking is None and one is not newcomer]
        if not silent:
            return self._slow_leaves([one for one in among if one is not newcomer])
        self._leaves(min(silent, key=self._order()))
        return True

    def _slow_leaves(self, among: list[Connection]) -> bool:
        """A request that has been incomplete for long goes."""
        late = self._clock() - self.bounds.body
        slow = [one for one in among if one.asking is not None and one.asking <= late and one.unfinished()]
        if not slow:
            return False
        self._leaves(min(slow, key=self._order()))
        return True

    def _busiest_leaves(self, asking: list[Connection], network: str) -> bool:
        """An incomplete request goes of a network that has two more than the newcomer's: who renews them is never slow."""
        counts = Counter(one.network for one in asking)
        most = counts[network] + 1
        those = [one for one in asking if not one.shared and counts[one.network] > most and one.unfinished()]
        if not those:
            return False
        order = self._order()
        self._leaves(min(those, key=lambda one: (-counts[one.network], *order(one))))
        return True

    def _order(self) -> Callable[[Connection], tuple[bool, int]]:
        """The order in which connections are closed; of equals, `min` takes the oldest."""
        counts = Counter(one.address for one in self.guests)
        return lambda one: (self.is_known(one), -counts[one.address])

    def _leaves(self, guest: Connection) -> None:
        self.gone(guest)
        guest.leave()

    def app(self, inner: Asgi, busy: Asgi) -> Asgi:
        """An application that lets requests in by `ask`; `busy` answers the others."""

        async def application(scope: Any, receive: Any, send: Any) -> None:
            guest: Connection = scope["state"]["guest"]
            if not self.ask(guest):
                await busy(scope, receive, send)
                return
            try:
                await inner(scope, receive, send)
            finally:
                self.answered(guest)

        return application

    def protocol(self) -> type[H11Protocol]:
        """uvicorn's protocol with this guard before it."""
        return type("GuardedProtocol", (_GuardedProtocol,), {"guard": self})


class _GuardedProtocol(H11Protocol):
    """One connection, which `guard` may close."""

    guard: ConnectionGuard
    _heard = False
    _timer: asyncio.TimerHandle | None = None
    _held: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._guest = Connection(self.client[0] if self.client else "", transport.abort, self._unfinished)
        self.app_state = {**self.app_state, "guest": self._guest}
        if not self.guard.arrive(self._guest):
            self.guard.gone(self._guest)
            transport.abort()
            return
        self._within(self.guard.bounds.first_byte)

    def connection_lost(self, exc: Exception | None) -> None:
        self.guard.gone(self._guest)
        self._stop()
        if self._held is not None:
            self._held.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._timer is not None and not self._heard:
            self._within(self.guard.bounds.header)
            self._heard = True
        super().data_received(data)
        if self._busy():
            self._stop()
        elif self._timer is None:
            self._within(self.guard.bounds.header)
            self._heard = True

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._held is None:
            self._look(self.transport.get_write_buffer_size())

    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _unfinished(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY

    def _within(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, left: int) -> None:
        """See that an answer is taken: it is in the transport's buffer, where nothing else bounds its time."""
        self._held = self.loop.call_later(self.guard.bounds.look, self._taken, left) if left else None

    def _taken(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left and before - left < self.guard.bounds.rate * self.guard.bounds.look:
            self.transport.abort()
        else:
            self._look(left)


def _network_of(said: str) -> tuple[str, str, bool]:
    """An address as it is counted (for IPv6 the /64 of one household), its wider network (/48; for IPv4 /24), and whether it may
    be shared by many clients."""
    try:
        found = ipaddress.ip_address(said.partition("%")[0])
    except ValueError:
        return said, said, True
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return _network_of(str(found.ipv4_mapped))
        own, wide = (str(ipaddress.ip_network((found, bits), strict=False)) for bits in (64, 48))
        return own, wide, not found.is_global
    return str(found), str(ipaddress.ip_network((found, 24), strict=False)), not found.is_global


BODY_SECONDS = 60.0
"""For a body to arrive whole."""
STATUS = {
    Code.MALFORMED: 400,
    Code.TOO_LARGE: 413,
    Code.OTHER_BOUNTY: 409,
    Code.UNKNOWN_PARTICIPANT: 403,
    Code.NO_KEY: 403,
    Code.BAD_SIGNATURE: 403,
    Code.LATE: 410,
    Code.SECOND_COMMITMENT: 409,
    Code.NO_COMMITMENT: 409,
    Code.NOT_OPENED: 422,
    Code.NOT_COMMITTED: 422,
    Code.SECOND_SOLUTION: 409,
    Code.NO_SOLUTION: 422,
    Code.NOT_YET: 409,
    Code.UNKNOWN: 404,
    Code.NO_SPONSOR: 404,
    Code.NOT_SETTLED: 403,
    Code.STARTING: 503,
    Code.BUSY: 503,
    Code.INTERNAL: 500,
}


def make_app(service: Service, *, seconds: float = BODY_SECONDS, guard: ConnectionGuard | None = None) -> Asgi:
    """The application; seconds: for a body to arrive whole; guard: decides which requests stay. Raises nothing."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _refusals(app, service.tell)
    most = sealed_limit(service.bounty)

    @app.get("/attestation")
    async def attestation() -> Response:
        service.ready()
        return _json(service.attestation)

    @app.get("/bounty")
    async def bounty() -> Response:
        found = service.bounty
        return _json(canonical({"digest": found.digest, "bounty": found.document(), "problem": found.problem}))

    @app.post("/commitments")
    async def commitments(request: Request) -> Response:
        return taken(request, service.commit(await _body(request, ENVELOPE_BYTES, seconds)))

    @app.post("/submissions")
    async def submissions(request: Request) -> Response:
        return taken(request, service.submit(await _body(request, most, seconds)))

    @app.get("/submissions/{who:path}")
    async def about(who: str) -> Response:
        return _json(service.about(who))

    @app.get("/status")
    async def status() -> Response:
        return _json(service.status())

    @app.get("/results")
    async def results() -> Response:
        return _json(service.given_out().data)

    @app.get("/results/sealed")
    async def sealed() -> Response:
        return _json(service.sealed_results())

    @app.post("/release")
    async def release(request: Request) -> Response:
        return taken(request, service.release(await _body(request, RELEASE_BYTES, seconds)))

    def taken(request: Request, data: bytes) -> Response:
        """The request was valuable, so requests are reserved for its sender."""
        if guard is not None:
            guard.welcome(request.scope["state"]["guest"], data)
        return _json(data)

    return _guarded(app if guard is None else guard.app(app, _answer_busy))


async def _answer_busy(scope: Any, receive: Any, send: Any) -> None:
    await _error(Rejected(Code.BUSY, "too much is asked at once", hint="try again"))(scope, receive, send)


def _refusals(app: FastAPI, tell: Callable[[str], None]) -> None:
    """Answers to exceptions. Of an internal error only its class and file are reported, not its message."""

    async def rejected(_: Request, error: Exception) -> Response:
        assert isinstance(error, Rejected)
        return _error(error)

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _error(Rejected(Code.UNKNOWN, "there is no such thing here", hint="see docs/enclave.md"), error.status_code)

    async def internal(_: Request, error: Exception) -> Response:
        tell(f"internal trouble: {type(error).__name__} {getattr(error, 'file', None) or ''}".rstrip())
        return _error(Rejected(Code.INTERNAL, "the enclave is in trouble; nothing was taken", hint="try again later"))

    app.add_exception_handler(Rejected, rejected)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(AssayError, internal)
    app.add_exception_handler(Exception, internal)


def _error(error: Rejected, status: int | None = None) -> Response:
    told = {"code": error.code.value, "what": error.what, "hint": error.hint}
    return _json(canonical({"error": told}), status or STATUS[error.code])


def _json(data: bytes, status: int = 200) -> Response:
    return Response(data, status, media_type="application/json", headers={"Cache-Control": "no-store"})


async def _body(request: Request, most: int, seconds: float) -> bytes:
    """The body, whole; raises Rejected if it is too large or too slow."""
    said = request.headers.get("content-length", "")
    if re.fullmatch("[0-9]+", said, re.ASCII) and (len(said) > 18 or int(said) > most):
        raise Rejected(Code.TOO_LARGE, f"this is larger than {most} bytes")
    found = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                found += piece
                if len(found) > most:
                    raise Rejected(Code.TOO_LARGE, f"this is larger than {most} bytes")
    except TimeoutError:
        raise Rejected(Code.BUSY, f"the request did not arrive whole within {seconds:g} seconds", hint="try again") from None
    except ClientDisconnect:
        raise Rejected(Code.BUSY, "the request did not arrive whole", hint="try again") from None
    return bytes(found)


def _guarded(app: Asgi) -> Asgi:
    """The application so that no error comes out of it: what it says may be in a server's log."""

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except Exception:  # noqa: BLE001  (it was answered, and its kind told)
            return

    return guarded
