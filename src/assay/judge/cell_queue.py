"""The cells of a run on their way: which are missing, which wait, which are judged, and the pool that judges them."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from assay.judge.running import Cell, CellResult

__all__ = ["Attempt", "CellPool", "CellQueue", "MissingCells", "Report"]

C = TypeVar("C", bound=Cell)
R = TypeVar("R", bound=CellResult)


@dataclass(frozen=True)
class Attempt(Generic[C]):
    """One beginning of a cell: its number from 1, and the errors of the earlier ones."""

    cell: C
    number: int = 1
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report(Generic[C, R]):
    """A worker's result of one cell. final: another attempt would not help."""

    cell: C
    result: R
    final: bool = False


class CellPool(Protocol[C, R]):
    """A pool of workers that judge several cells at a time."""

    def start(self, cells: Collection[C]) -> None:
        """Get ready, before the first cell begins."""

    def idle(self) -> bool:
        """Whether one more cell can begin."""

    def begin(self, attempt: Attempt[C]) -> None:
        """Begin a cell; `listen` returns its report later."""

    def listen(self, seconds: float) -> Iterator[Report[C, R] | None]:
        """The reports that come within so many seconds. None: a cell ended, and another can begin while its report is made."""

    def close(self, *, now: bool) -> None:
        """Give up what goes on, and clear up after it; now: without waiting for that."""


class MissingCells(Collection[C]):
    """The cells of a collection that are not done. Each pass filters the collection anew: they are never all in memory."""

    def __init__(self, whole: Collection[C], done: Collection[tuple[object, ...]]) -> None:
        self._whole, self._done = whole, done
        self._count: int | None = None

    def __iter__(self) -> Iterator[C]:
        return (cell for cell in self._whole if cell.key not in self._done)

    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(1 for _ in self)
        return self._count

    def __contains__(self, cell: object) -> bool:
        return any(cell == waiting for waiting in self)


class CellQueue(Generic[C]):
    """The cells of a run: those that wait, those that wait for another attempt, and those being judged."""

    def __init__(self, cells: Iterable[C]) -> None:
        self._fresh: Iterator[C] | None = iter(cells)
        """Those that were not begun yet; None when there are no more. Each is made when its turn comes: which one is next may
        depend on what earlier ones came to."""
        self._ready = deque[Attempt[C]]()
        self._later: list[tuple[float, int, Attempt[C]]] = []
        self.held: dict[tuple[object, ...], Attempt[C]] = {}
        """The attempts at cells that another driver has, by key."""
        self._numbers = itertools.count()
        self.going: dict[C, Attempt[C]] = {}

    @property
    def left(self) -> bool:
        """Whether anything is not done yet."""
        return bool(self._fresh is not None or self._ready or self._later or self.held or self.going)

    def take(self) -> Attempt[C] | None:
        """The next to begin; None if nothing can. A retry that is due comes first: it would delay the end, and fill memory."""
        while self._later and self._later[0][0] <= time.monotonic():
            self._ready.append(heapq.heappop(self._later)[2])
        if self._ready:
            attempt = self._ready.popleft()
        else:
            cell = None if self._fresh is None else next(self._fresh, None)
            if cell is None:
                self._fresh = None
                return None
            attempt = Attempt(cell)
        self.going[attempt.cell] = attempt
        return attempt

    def put_off(self, attempt: Attempt[C], seconds: float) -> None:
        """Begin it after so many seconds."""
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), attempt))

    def free(self, taken: Collection[tuple[object, ...]]) -> None:
        """Make ready the cells that no other driver has any more. taken: the keys of the cells that one still has."""
        for key in [key for key in self.held if key not in taken]:
            self._ready.append(self.held.pop(key))

    def pause(self, longest: float) -> float:
        """Seconds until something is due, at most `longest`; what is due already waits for a worker, and not for a time."""
        wait = self._later[0][0] - time.monotonic() if self._later else longest
        return min(longest, wait) if wait > 0 else longest
