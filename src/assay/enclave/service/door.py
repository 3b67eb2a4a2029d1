"""Who gets in, and who has to go, so that no number of connections shuts everybody out.

- A connection without a request is nobody's request. Its first byte and its header have short time-outs, and where there are too
  many connections the oldest silent one goes, first of the address that has most of them.
- A public address has a share of connections and of requests. Addresses that are not public are shared (a gateway, this machine):
  they have no share of their own.
- Some requests are kept for those who are known: addresses that something was taken from (a commitment, a solution, a release), a
  few for each such thing, since it can be sent again from anywhere.
- A request whose body takes long goes when there is no room for another one, and so does an incomplete one of a network that has
  several, for one that has fewer. An answer that nobody reads is given up.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["BOUNDS", "Bounds", "Door", "Guest"]

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass(frozen=True)
class Bounds:
    """What a door lets in; times in seconds."""

    connections: int = 600
    address_connections: int = 48
    requests: int = 200
    address_requests: int = 24
    kept: int = 50
    """Of the requests, those that only known addresses may have."""
    known: int = 1000
    """Addresses that are remembered."""
    each: int = 4
    """Of these, so many for one thing that was taken."""
    first_byte: float = 5.0
    header: float = 10.0
    body: float = 10.0
    """After which a request whose body is not whole goes, if another needs the room."""
    rate: int = 16_384
    """Bytes a second that who gets an answer has to take."""
    look: float = 5.0
    """Between two looks at how fast it is taken."""


BOUNDS = Bounds()


@dataclass(eq=False)
class Guest:
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
        self.address, self.network, self.shared = _address(self.address)


class Door:
    """The connections of one service, in the order in which they came."""

    def __init__(self, bounds: Bounds = BOUNDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.bounds, self._clock = bounds, clock
        self.guests: dict[Guest, None] = {}
        self._known: OrderedDict[str, bytes] = OrderedDict()

    def arrive(self, guest: Guest) -> bool:
        """Let a connection in, and have another leave if there are too many; False if nobody can go."""
        self.guests[guest] = None
        while not guest.shared and self._of(guest.address) > self.bounds.address_connections:
            if not self._one_leaves([one for one in self.guests if one.address == guest.address], guest):
                return False
        while len(self.guests) > self.bounds.connections:
            if not self._one_leaves(list(self.guests), guest):
                return False
        return True

    def gone(self, guest: Guest) -> None:
        """A connection has ended."""
        self.guests.pop(guest, None)

    def ask(self, guest: Guest) -> bool:
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

    def answered(self, guest: Guest) -> None:
        """The request of a connection is over."""
        guest.asking = None

    def welcome(self, guest: Guest, receipt: bytes) -> None:
        """Something that is worth something was taken from this address: room is kept for it. receipt: what was answered."""
        what = sha256(receipt).digest()
        several = guest.address not in self._known and Counter(self._known.values())[what] >= self.bounds.each
        if guest.shared or several:
            return
        self._known[guest.address] = what
        self._known.move_to_end(guest.address)
        while len(self._known) > self.bounds.known:
            self._known.popitem(last=False)

    def is_known(self, guest: Guest) -> bool:
        """Whether something was taken from this address before."""
        return guest.address in self._known

    def _of(self, address: str) -> int:
        return sum(one.address == address for one in self.guests)

    def _one_leaves(self, among: list[Guest], newcomer: Guest) -> bool:
        """The silent one that has been there longest goes: strangers first, and of the address that has most."""
        silent = [one for one in among if one.asking is None and one is not newcomer]
        if not silent:
            return self._slow_leaves([one for one in among if one is not newcomer])
        self._leaves(min(silent, key=self._order()))
        return True

    def _slow_leaves(self, among: list[Guest]) -> bool:
        """A request that has been incomplete for long goes."""
        late = self._clock() - self.bounds.body
        slow = [one for one in among if one.asking is not None and one.asking <= late and one.unfinished()]
        if not slow:
            return False
        self._leaves(min(slow, key=self._order()))
        return True

    def _busiest_leaves(self, asking: list[Guest], network: str) -> bool:
        """An incomplete request goes of a network that has two more than the newcomer's: who renews them is never slow."""
        counts = Counter(one.network for one in asking)
        most = counts[network] + 1
        those = [one for one in asking if not one.shared and counts[one.network] > most and one.unfinished()]
        if not those:
            return False
        order = self._order()
        self._leaves(min(those, key=lambda one: (-counts[one.network], *order(one))))
        return True

    def _order(self) -> Callable[[Guest], tuple[bool, int]]:
        """Who goes first; of equals, `min` takes the one that came first."""
        counts = Counter(one.address for one in self.guests)
        return lambda one: (self.is_known(one), -counts[one.address])

    def _leaves(self, guest: Guest) -> None:
        self.gone(guest)
        guest.leave()

    def app(self, inner: Asgi, busy: Asgi) -> Asgi:
        """An application that lets requests in by `ask`; `busy` answers the others."""

        async def application(scope: Any, receive: Any, send: Any) -> None:
            guest: Guest = scope["state"]["guest"]
            if not self.ask(guest):
                await busy(scope, receive, send)
                return
            try:
                await inner(scope, receive, send)
            finally:
                self.answered(guest)

        return application

    def protocol(self) -> type[H11Protocol]:
        """uvicorn's protocol, with this door before it."""
        door = self

        class Guarded(H11Protocol):
            """One connection."""

            _timer: asyncio.TimerHandle | None = None
            _held: asyncio.TimerHandle | None = None

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                self._guest = Guest(self.client[0] if self.client else "", transport.abort, self._unfinished)
                self.app_state = {**self.app_state, "guest": self._guest}
                if not door.arrive(self._guest):
                    door.gone(self._guest)
                    transport.abort()
                    return
                self._within(door.bounds.first_byte)

            def connection_lost(self, exc: Exception | None) -> None:
                door.gone(self._guest)
                self._stop()
                if self._held is not None:
                    self._held.cancel()
                super().connection_lost(exc)

            def data_received(self, data: bytes) -> None:
                if self._timer is not None and not self._heard:
                    self._within(door.bounds.header)
                    self._heard = True
                super().data_received(data)
                if self._busy():
                    self._stop()
                elif self._timer is None:
                    self._within(door.bounds.header)
                    self._heard = True

            def on_response_complete(self) -> None:
                super().on_response_complete()
                if self._held is None:
                    self._look(self.transport.get_write_buffer_size())

            _heard = False

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
                self._held = self.loop.call_later(door.bounds.look, self._taken, left) if left else None

            def _taken(self, before: int) -> None:
                left = self.transport.get_write_buffer_size()
                if left and before - left < door.bounds.rate * door.bounds.look:
                    self.transport.abort()
                else:
                    self._look(left)

        return Guarded


def _address(said: str) -> tuple[str, str, bool]:
    """An address as it is counted (of IPv6 the /64, which is one household's), a wider network that it is in (/48, of IPv4 /24),
    and whether many may stand behind it."""
    try:
        found = ipaddress.ip_address(said.partition("%")[0])
    except ValueError:
        return said, said, True
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return _address(str(found.ipv4_mapped))
        own, wide = (str(ipaddress.ip_network((found, bits), strict=False)) for bits in (64, 48))
        return own, wide, not found.is_global
    return str(found), str(ipaddress.ip_network((found, 24), strict=False)), not found.is_global
