"""The code that Ray's workers run: one errand after the other, in a station's process; and the bucket of a rate limit.

Ray imports this module by its name on every node, so each must have the same Assay installed.
"""

from __future__ import annotations

import os
import pickle
import secrets
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import assay
from assay.engine.parcels import ParcelShelf
from assay.engine.station import Outcome, StationLost, Talk
from assay.errors import AssayError, BadInput
from assay.judge.sandbox import cgroups
from assay.judge.sandbox.scratch import Scratch
from assay.judge.stations import Ticket, Turn

__all__ = ["Answer", "Bucket", "Order", "carry_out", "clear", "gate_of"]

ROOM_SECONDS = 60.0
"""Seconds that an errand waits until its memory is free on the host. Then another node gets it."""
_TICK = 0.5


@dataclass(frozen=True)
class Answer:
    """A node's answer about an errand. lost: why another node should try. busy: 0 … 1, of the host's cores.

    lacks: whether it did not have a parcel that was not sent along.
    """

    node: str
    outcome: Outcome
    busy: float = 0.0
    lost: str = ""
    lacks: bool = False


@dataclass
class _OpenStation:
    """The station of this process, between two errands."""

    key: str
    talk: Talk


_STATION: _OpenStation | None = None
_SHELF: ParcelShelf | None = None


class Order(NamedTuple):
    """An errand on its way. version, run: of Assay at the driver; a station is kept for one run. payload: pickled.

    parcels: name → digest. It has nothing but texts, bytes and numbers, so that a node of another version can say that it is one.
    """

    version: str
    run: str
    payload: bytes
    parcels: Mapping[str, str]
    seconds: float
    memory: int


def carry_out(order: bytes, spec: bytes, archives: Mapping[str, Any]) -> bytes:
    """Carry out an `Order` on this node; an `Answer`. Both are pickled here, as Ray takes long for each argument.

    spec: a pickled `StationSpec`. archives: digest → where in Ray's object store the archive of a parcel is, if it is sent along.
    A station is closed if Ray interrupts this, so cancelled work leaves nothing behind.
    """
    return pickle.dumps(_answer(Order(*pickle.loads(order)), spec, archives))


def _answer(order: Order, spec: bytes, archives: Mapping[str, Any]) -> Answer:
    node = _node()
    if order.version != assay.__version__:
        what = (
            f"the node {node[:8]} has Assay {assay.__version__}, and the run is of {order.version}: install the same on all nodes"
        )
        return Answer(node, Outcome(trouble=what, final=True))
    _take_priority()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as whoever starts Ray in the background of a shell has it
        signal.signal(signal.SIGINT, signal.default_int_handler)  # or Ray could not interrupt what is cancelled
    if not _has_room(order.memory):
        return Answer(node, Outcome(), lost="its memory was not free on the host")
    before = _times()
    try:
        places = _places(order.parcels, archives)
    except LookupError:
        return Answer(node, Outcome(), lacks=True)
    except AssayError as error:
        return Answer(node, Outcome(), lost=str(error))
    with ExitStack() as unless_it_ends:  # Ray interrupts what is cancelled, with whatever exception
        unless_it_ends.callback(_close)
        try:
            outcome = _opened(order.run, spec).carry_out(order.payload, places, order.seconds, _RemoteGate(order.run))
        except StationLost:
            return Answer(node, Outcome(), lost="the station's process ended")
        if not outcome.refused:
            unless_it_ends.pop_all()
    return Answer(node, outcome, _busy(before, _times()))


@cache
def _node() -> str:
    """This node's id."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def clear() -> int:
    """Remove what killed runs left on this machine: processes, folders of boxes, control groups. Returns how many."""
    return Scratch().sweep() + cgroups.sweep()


def _take_priority() -> None:
    """Take Ray's own priority. Its workers have the lowest but a few, by which trials would take longer than elsewhere.

    Only root may do that; for others, `RAY_worker_niceness=0` on the node does it.
    """
    priority = os.getpriority(os.PRIO_PROCESS, os.getppid())
    if os.getpriority(os.PRIO_PROCESS, 0) > priority:
        with suppress(OSError):
            for thread in os.listdir("/proc/self/task"):
                os.setpriority(os.PRIO_PROCESS, int(thread), priority)


def _opened(run: str, spec: bytes) -> Talk:
    global _STATION  # noqa: PLW0603  (Ray's workers are reused, and so is what is slow to start)
    if _STATION is not None and _STATION.key != run:
        _close()
    if _STATION is None:
        _STATION = _OpenStation(run, Talk(spec))
    return _STATION.talk


def _close() -> None:
    global _STATION
    if _STATION is not None:
        station, _STATION = _STATION, None
        station.talk.close()


def _places(parcels: Mapping[str, str], archives: Mapping[str, Any]) -> dict[str, Path]:
    """The folders of the parcels on this machine; raises LookupError if one is not here and was not sent, and AssayError."""
    global _SHELF  # noqa: PLW0603
    if _SHELF is None:
        _SHELF = ParcelShelf()
    return {name: _SHELF.get(digest, partial(_archive, digest, archives)) for name, digest in parcels.items()}


def _archive(digest: str, archives: Mapping[str, Any]) -> bytes:
    import ray

    archive: bytes = ray.get(archives[digest])
    return archive


def _has_room(memory: int) -> bool:
    """Wait for so many bytes to be free on this host; False if time runs out. Ray does not see the memory of other programs."""
    until = time.monotonic() + ROOM_SECONDS
    while _free() < memory:
        if time.monotonic() > until:
            return False
        time.sleep(_TICK)
    return True


def _free() -> int:
    """Bytes of memory that programs can still get."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _times() -> tuple[int, int]:
    """Ticks that the host's cores were idle, and all of them."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _busy(before: tuple[int, int], after: tuple[int, int]) -> float:
    total = after[1] - before[1]
    return 1.0 - (after[0] - before[0]) / total if total > 0 else 1.0


class Bucket:
    """One token bucket for all stations of a run, in an actor: so a service's rate limit holds for all nodes together.

    A request is told its turn at once, and asks only once more, when that comes. A pause moves all turns that are still to come.
    rate: requests a minute; None: no limit but the pauses that the service asks for. clock: seconds.
    """

    def __init__(self, rate: int | None, clock: Any = time.monotonic) -> None:
        if rate is not None and rate < 1:
            raise BadInput(f"{rate} is not a number of requests a minute", field="rate", hint="from 1 up")
        self._clock, self._name = clock, secrets.token_hex(4)
        self._gap = 0.0 if rate is None else 60 / rate
        self._burst = 0.0 if rate is None else max(0.0, 1 - 60 / rate)
        """Seconds by which turns may come early: as many at one time as a second has."""
        self._next = self._not_before = float(clock())
        """The time at which all turns given out are over, if none came early; and the time before which none comes."""
        self._moved = 0.0
        """Seconds by which pauses moved all turns."""

    def turn(self, ticket: Ticket | None = None) -> Turn:
        """See `stations.Gate.turn`."""
        now = float(self._clock())
        if ticket is None or ticket[0] != self._name:  # another machine's bucket, which was lost with its clock, gave it
            due = max(now, self._not_before, self._next - self._burst)
            self._next = max(now, self._not_before, self._next) + self._gap
            ticket = self._name, due - self._moved
        return Turn(max(0.0, max(ticket[1] + self._moved, self._not_before) - now), ticket)

    def pause(self, seconds: float) -> None:
        """See `stations.Gate.pause`."""
        now = float(self._clock())
        until = now + max(0.0, seconds)
        moved = max(0.0, until - max(now, self._not_before))
        self._moved, self._next = self._moved + moved, self._next + moved
        self._not_before = max(self._not_before, until)


def gate_of(run: str) -> str:
    """The name of the actor that is a run's bucket."""
    return f"gate of {run}"


class _RemoteGate:
    """A `stations.Gate`: the bucket's actor, wherever it is. It is looked up when it is asked for the first time."""

    def __init__(self, run: str) -> None:
        self._run = run

    @cached_property
    def _actor(self) -> Any:
        import ray

        return ray.get_actor(gate_of(self._run))

    def turn(self, ticket: Ticket | None = None) -> Turn:
        import ray

        turn: Turn = ray.get(self._actor.turn.remote(ticket))
        return turn

    def pause(self, seconds: float) -> None:
        import ray

        ray.get(self._actor.pause.remote(seconds))
