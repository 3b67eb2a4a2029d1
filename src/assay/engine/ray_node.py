"""What runs in Ray's workers: one errand after the other, in a station's process; and the bucket of a service's rate limit.

Ray imports this module by its name on every node, so each must have the same Assay installed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import assay
from assay.engine.parcels import ParcelShelf
from assay.engine.station import Outcome, StationLost, Talk
from assay.errors import AssayError, BadInput
from assay.judge.stations import StationSpec

__all__ = ["Answer", "Bucket", "carry_out"]

ROOM_SECONDS = 60.0
"""Seconds that an errand waits until its memory is free on the host. Then another node gets it."""
_TICK = 0.5


@dataclass(frozen=True)
class Answer:
    """What a node says of an errand. lost: why another node should try. busy: 0 … 1, of the host's cores."""

    node: str
    outcome: Outcome
    busy: float = 0.0
    lost: str = ""


@dataclass
class _OpenStation:
    """The station of this process, between two errands."""

    key: str
    talk: Talk


_STATION: _OpenStation | None = None
_SHELF: ParcelShelf | None = None


def carry_out(
    version: str,
    run: str,
    spec: StationSpec,
    payload: Any,
    parcels: Mapping[str, tuple[str, Any]],
    seconds: float,
    memory: int,
    gate: Any,
) -> Answer:
    """Carry out one errand on this node. parcels: name → digest, and where the archive is in Ray's object store.

    version, run: of Assay at the driver; a station is kept for one run. It is closed if Ray interrupts this, so cancelled work
    leaves nothing behind.
    """
    import ray

    node = str(ray.get_runtime_context().get_node_id())
    if version != assay.__version__:
        what = f"the node {node[:8]} has Assay {assay.__version__}, and the run is of {version}: install the same on all nodes"
        return Answer(node, Outcome(trouble=what, final=True))
    if not _has_room(memory):
        return Answer(node, Outcome(), lost="its memory was not free on the host")
    before = _times()
    try:
        places = _places(parcels)
    except AssayError as error:
        return Answer(node, Outcome(), lost=str(error))
    try:
        outcome = _opened(run, spec).carry_out(payload, places, seconds, _RemoteGate(gate))
    except StationLost:
        _close()
        return Answer(node, Outcome(), lost="the station's process ended")
    except BaseException:  # Ray interrupts what is cancelled
        _close()
        raise
    if outcome.refused:
        _close()
    return Answer(node, outcome, _busy(before, _times()))


def _opened(run: str, spec: StationSpec) -> Talk:
    global _STATION  # noqa: PLW0603  (Ray's workers are reused, and so is what is slow to start)
    if _STATION is not None and _STATION.key != run:
        _close()
    if _STATION is None:
        _STATION = _OpenStation(run, Talk(spec))
    return _STATION.talk


def _close() -> None:
    global _STATION
    if _STATION is not None:
        kept, _STATION = _STATION, None
        kept.talk.close()


def _places(parcels: Mapping[str, tuple[str, Any]]) -> dict[str, Path]:
    """Where the parcels are on this machine; raises AssayError."""
    global _SHELF  # noqa: PLW0603
    if _SHELF is None:
        _SHELF = ParcelShelf()
    return {name: _SHELF.get(digest, partial(_archive, ref)) for name, (digest, ref) in parcels.items()}


def _archive(ref: Any) -> bytes:
    import ray

    archive: bytes = ray.get(ref)
    return archive


def _has_room(memory: int) -> bool:
    """Whether so many bytes are free on this host, now or soon: other programs use memory too, of which Ray knows nothing."""
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

    rate: requests a minute; None: no limit but the pauses that the service asks for. clock: seconds.
    """

    def __init__(self, rate: int | None, clock: Any = time.monotonic) -> None:
        if rate is not None and rate < 1:
            raise BadInput(f"{rate} is not a number of requests a minute", field="rate", hint="from 1 up")
        self._clock = clock
        self._per_second = None if rate is None else rate / 60
        self._most = 1.0 if rate is None else max(1.0, rate / 60)
        self._tokens, self._at = self._most, clock()
        self._not_before = self._at

    def turn(self) -> float:
        """See `stations.Gate.turn`."""
        now = self._clock()
        if now < self._not_before:
            return float(self._not_before - now)
        if self._per_second is None:
            return 0.0
        self._tokens = min(self._most, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        if self._tokens < 1:
            return float((1 - self._tokens) / self._per_second)
        self._tokens -= 1
        return 0.0

    def pause(self, seconds: float) -> None:
        """See `stations.Gate.pause`."""
        self._not_before = max(self._not_before, self._clock() + max(0.0, seconds))


class _RemoteGate:
    """A `stations.Gate`: the bucket's actor, wherever it is."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def turn(self) -> float:
        import ray

        return float(ray.get(self._actor.turn.remote()))

    def pause(self, seconds: float) -> None:
        import ray

        ray.get(self._actor.pause.remote(seconds))
