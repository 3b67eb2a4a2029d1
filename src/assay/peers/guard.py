"""Decides which connections a server keeps, so that no client can shut out the others by opening many.

- A connection without a request does not count as a request. Its first byte and its header have short time-outs. If there are too
  many connections, the oldest silent one is closed, beginning with the address that has most of them.
- A public address has a share of connections and of requests. Addresses that are not public are shared (a gateway, this machine):
  they have no share of their own.
- Some requests are reserved for known addresses: those from which something was accepted. Each accepted thing
  reserves only a few, because it can be sent again from anywhere.
- Behind a reverse proxy that is trusted, a request is of the client that the proxy names (X-Forwarded-For). What others write
  into that header counts for nothing.
- A request whose body takes long is closed when there is no room for another one. So is an incomplete request of a network that
  has several, in favour of a network that has fewer. An answer that the client does not read is dropped.

It needs uvicorn, so only servers import it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["CONNECTION_LIMITS", "Asgi", "Connection", "ConnectionGuard", "ConnectionLimits", "Network"]

Asgi = Callable[[Any, Any, Any], Awaitable[None]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


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
    """Reserved requests for each accepted thing."""
    first_byte: float = 5.0
    header: float = 10.0
    body: float = 10.0
    """After this time a request with an incomplete body is closed, if another needs the room."""
    rate: int = 16_384
    """Bytes per second at which a client must read its answer."""
    look: float = 5.0
    """Seconds between two measurements of that rate."""


CONNECTION_LIMITS = ConnectionLimits()


@dataclass(eq=False)
class Connection:
    """A connection. `unfinished`: whether its request has begun and is incomplete; `leave`: closes it."""

    address: str
    leave: Callable[[], None]
    unfinished: Callable[[], bool]
    asking: float | None = None
    """The time since which it has a request; None without one."""
    stopping: bool = False
    """Whether the server is stopping: an answer that waits for news ends now."""
    network: str = field(init=False)
    """The wider network of the address: its owner has many addresses."""
    shared: bool = field(init=False)
    peer: str = field(init=False)
    """The address at the other end of the connection: the client's, or a proxy's."""

    def __post_init__(self) -> None:
        self.peer = self.address
        self.set_client(self.address)

    def set_client(self, address: str, *, shared: bool = False) -> None:
        """Note whose request it has now. shared: many clients have this address."""
        self.address, self.network, private = _network_of(address)
        self.shared = shared or private


class ConnectionGuard:
    """The connections of one service, in the order of their arrival. proxies: whose X-Forwarded-For is believed."""

    def __init__(
        self,
        bounds: ConnectionLimits = CONNECTION_LIMITS,
        clock: Callable[[], float] = time.monotonic,
        proxies: Iterable[Network] = (),
    ) -> None:
        self.bounds, self._clock, self.proxies = bounds, clock, tuple(proxies)
        self.guests: dict[Connection, None] = {}
        self._known: OrderedDict[str, bytes] = OrderedDict()

    def identify(self, guest: Connection, forwarded: Iterable[str]) -> None:
        """Note whose request a connection has. forwarded: the values of X-Forwarded-For, in their order.

        Each proxy appends the address from which it has the request. So the last address that is not a trusted proxy's is true,
        and what stands before it may be forged. Clients without a usable address count as one client: the proxy.
        """
        if self._is_proxy(guest.peer):
            for hop in reversed([hop.strip() for value in forwarded for hop in value.split(",")]):
                address = _without_port(hop)
                if not self._is_proxy(address):
                    guest.set_client(address)
                    return
            guest.set_client(guest.peer, shared=True)

    def _is_proxy(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        return any(parsed in network for network in self.proxies)

    def arrive(self, guest: Connection) -> bool:
        """Accept a connection, and close another one if there are too many; False if none can be closed."""
        self.identify(guest, ())
        self.guests[guest] = None
        while not guest.shared and self._of(guest.address) > self.bounds.address_connections:
            if not self._one_leaves([other for other in self.guests if other.address == guest.address], guest):
                return False
        while len(self.guests) > self.bounds.connections:
            if not self._one_leaves(list(self.guests), guest):
                return False
        return True

    def gone(self, guest: Connection) -> None:
        """A connection has ended."""
        self.guests.pop(guest, None)

    def ask(self, guest: Connection) -> bool:
        """Whether a connection may have a request now. A slow request of another may be closed for it."""
        bounds, asking = self.bounds, [other for other in self.guests if other.asking is not None]
        mine = [other for other in asking if other.address == guest.address]
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
        """Reserve requests for an address that sent something that was accepted. receipt: the answer that it got."""
        what = sha256(receipt).digest()
        several = guest.address not in self._known and Counter(self._known.values())[what] >= self.bounds.each
        if guest.shared or several:
            return
        self._known[guest.address] = what
        self._known.move_to_end(guest.address)
        while len(self._known) > self.bounds.known:
            self._known.popitem(last=False)

    def is_known(self, guest: Connection) -> bool:
        """Whether something from this address was accepted before."""
        return guest.address in self._known

    def _of(self, address: str) -> int:
        return sum(guest.address == address for guest in self.guests)

    def _one_leaves(self, among: list[Connection], newcomer: Connection) -> bool:
        """Close the oldest silent connection: strangers first, then of the address that has most. False if there is none."""
        silent = [guest for guest in among if guest.asking is None and guest is not newcomer]
        if not silent:
            return self._slow_leaves([guest for guest in among if guest is not newcomer])
        self._leaves(min(silent, key=self._order()))
        return True

    def _slow_leaves(self, among: list[Connection]) -> bool:
        """Close a request that has been incomplete for long. False if there is none."""
        late = self._clock() - self.bounds.body
        slow = [guest for guest in among if guest.asking is not None and guest.asking <= late and guest.unfinished()]
        if not slow:
            return False
        self._leaves(min(slow, key=self._order()))
        return True

    def _busiest_leaves(self, asking: list[Connection], network: str) -> bool:
        """Close an incomplete request of a network with two more than the newcomer's. It need not be slow: it may be renewed."""
        counts = Counter(guest.network for guest in asking)
        most = counts[network] + 1
        those = [guest for guest in asking if not guest.shared and counts[guest.network] > most and guest.unfinished()]
        if not those:
            return False
        order = self._order()
        self._leaves(min(those, key=lambda guest: (-counts[guest.network], *order(guest))))
        return True

    def _order(self) -> Callable[[Connection], tuple[bool, int]]:
        """The order in which connections are closed; of equals, `min` takes the oldest."""
        counts = Counter(guest.address for guest in self.guests)
        return lambda guest: (self.is_known(guest), -counts[guest.address])

    def _leaves(self, guest: Connection) -> None:
        self.gone(guest)
        guest.leave()

    def app(self, inner: Asgi, busy: Asgi) -> Asgi:
        """An application that lets requests in by `ask`; `busy` answers the others."""

        async def application(scope: Any, receive: Any, send: Any) -> None:
            guest: Connection = scope["state"]["guest"]
            self.identify(guest, [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"])
            if not self.ask(guest):
                await busy(scope, receive, send)
                return
            try:
                await inner(scope, receive, send)
            finally:
                self.answered(guest)
                self.identify(guest, ())

        return application

    def protocol(self) -> type[H11Protocol]:
        """uvicorn's protocol behind this guard."""
        return type("GuardedProtocol", (_GuardedProtocol,), {"guard": self})


class _GuardedProtocol(H11Protocol):
    """A connection that `guard` may close."""

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

    def shutdown(self) -> None:
        self._guest.stopping = True
        super().shutdown()

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
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._held is not None and self._busy():  # more is written now, and then begins another measurement
            self._held.cancel()
            self._held = None

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

    def _watch(self) -> None:
        """Begin to measure how fast the buffer empties."""
        if self._held is not None:
            self._held.cancel()
        self._look(self.transport.get_write_buffer_size())

    def _look(self, left: int) -> None:
        """Watch that the client reads its answer, whole or while it is sent: nothing else bounds the time in the buffer."""
        self._held = self.loop.call_later(self.guard.bounds.look, self._taken, left) if left else None

    def _taken(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left and before - left < self.guard.bounds.rate * self.guard.bounds.look:
            opened = self.transport.get_extra_info("socket")
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the kernel forgets the answer too
            self.transport.abort()
        else:
            self._look(left)


def _without_port(hop: str) -> str:
    """An address as proxies write it: `192.0.2.7`, `192.0.2.7:4711`, `2001:db8::7`, `[2001:db8::7]:4711`."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


def _network_of(address: str) -> tuple[str, str, bool]:
    """The address to count by (for IPv6 the /64), its wider network (/48; IPv4: /24), and whether many clients may share it."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address, address, True
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return _network_of(str(parsed.ipv4_mapped))
        own, wide = (str(ipaddress.ip_network((parsed, bits), strict=False)) for bits in (64, 48))
        return own, wide, not parsed.is_global
    return str(parsed), str(ipaddress.ip_network((parsed, 24), strict=False)), not parsed.is_global
