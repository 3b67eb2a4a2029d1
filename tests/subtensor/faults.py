"""What can be made to go wrong, each for one request, for some, or until it is cleared."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any

# On the wire, of one request:
WIRE = {
    "drop-before": "the connection is closed; nothing was done",
    "drop-after": "it is done, then the connection is closed without an answer",
    "silent": "nothing is done and nothing answered; the connection stays",
    "silent-after": "it is done and not answered",
    "slow": "answered after `seconds`",
    "duplicate": "answered twice",
    "garbage": "answered with what is no JSON",
    "huge": "answered with `bytes` bytes of a result",
    "wrong-id": "answered under an id that nobody asked with",
    "stray": "another answer, of an id that nobody asked with, comes before the right one",
    "error": "answered with the error `code`, `message`, `data`; nothing was done",
}
# In the node, whatever is asked:
NODE = {
    "half-open": "connections are taken, and nothing is ever answered on them",
    "mute": "connections are taken, and not even greeted",
    "nonce": "system_accountNextIndex is `offset` off",
    "forget": "a submitted extrinsic is said to be taken and is not",
    "lie": "a submitted extrinsic is thrown away, and its watcher is told that it is in the head and final",
    "stale": "the node answers as it would have `blocks` ago",
}


@dataclass
class Fault:
    """A fault: of one method or of all, `times` more times (None: until cleared)."""

    kind: str
    method: str | None
    times: int | None
    details: dict[str, Any]


class Faults:
    """The faults of one node."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._set: list[Fault] = []

    def add(self, kind: str, method: str | None = None, times: int | None = 1, **details: Any) -> None:
        """Let something go wrong: a kind of WIRE or NODE, for requests of one method or of any."""
        if kind not in WIRE and kind not in NODE:
            raise ValueError(f"there is no fault {kind!r}; there are {', '.join([*WIRE, *NODE])}")
        with self._lock:
            self._set.append(Fault(kind, method, times, details))

    def clear(self) -> None:
        """Let nothing go wrong any more."""
        with self._lock:
            self._set.clear()

    def next(self, kinds: dict[str, str] | tuple[str, ...], method: str) -> Fault | None:
        """The first fault of these kinds that is meant for a request of this method, counted as having happened."""
        with self._lock:
            for fault in self._set:
                if fault.kind in kinds and fault.method in (None, method):
                    if fault.times is not None:
                        fault.times -= 1
                        if fault.times <= 0:
                            self._set.remove(fault)
                    return fault
        return None

    def standing(self, kind: str) -> Fault | None:
        """A fault of the node that is in force, without counting it."""
        with self._lock:
            return next((fault for fault in self._set if fault.kind == kind), None)
