"""The interface of every judge's run: its options, the cells it judges, events while it goes on, and the summary.

The run itself is in `assay.judge.judge_run`.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.judge.stations import ErrandEngine, Leases
    from assay.records import Record

__all__ = [
    "ATTEMPTS",
    "DELAY",
    "Cell",
    "CellChoice",
    "CellResult",
    "Judged",
    "RunEvent",
    "RunOptions",
    "RunStopped",
    "RunSummary",
    "Stop",
    "Tell",
    "backoff",
    "quiet",
    "stopping",
]

ATTEMPTS = 3
"""The number of times that one cell is begun before its error is left as it is."""
DELAY = 2.0
"""Seconds before the second attempt."""


class RunStopped(Exception):
    """The run was asked to end."""


class Cell(Protocol):
    """One thing to be judged: a trial of a task, or a whole solution. It can be a key of a dictionary."""

    @property
    def participant(self) -> str:
        """The key of the participant."""

    @property
    def parts(self) -> Mapping[str, str]:
        """The values that tell it from other cells of this participant, by name, in the order in which they are shown."""

    @property
    def key(self) -> tuple[object, ...]:
        """The end of its record's key: the submission (or participant), then the record's `parts`. SPEC 3.0."""

    def __hash__(self) -> int: ...


class CellResult(Protocol):
    """The result of one cell."""

    @property
    def outcome(self) -> str:
        """One word; `error` is tried again, and is never evidence."""

    @property
    def reason(self) -> str:
        """The reason, in one word or number; `pass` needs none."""

    @property
    def message(self) -> str:
        """The trouble; empty unless the outcome is `error`."""


@dataclass(frozen=True)
class Judged:
    """A result, with its record of evidence, if the judge does not store that by itself."""

    outcome: str
    reason: str = ""
    message: str = ""
    evidence: Record | None = None


@dataclass(frozen=True)
class RunEvent:
    """Something that happened in a run."""

    kind: Literal["calibrating", "calibrated", "planned", "began", "phase", "ended", "again", "kept", "stopping"]
    cell: Cell | None = None
    phase: str = ""
    """phase: which. calibrated: of what, a task."""
    why: str = ""
    """calibrated: why it judges nobody; empty if it judges right."""
    hint: str = ""
    """calibrated: what to do about it."""
    record: CellResult | None = None
    """Of what ended, or is tried again."""
    count: int = 0
    """planned: how many are to be judged. kept: how many of an earlier run had no evidence yet. calibrating: how many tasks."""
    done: int = 0
    """planned: how many have evidence already."""
    seconds: float = 0.0
    """again: until then."""
    folder: Path | None = None
    """ended: where what is kept of it is."""


Tell = Callable[[RunEvent], None]


def quiet(_event: RunEvent) -> None:
    """Tell nobody."""


def backoff(attempt: int, delay: float, *, factor: float = 4.0, longest: float = 300.0) -> float:
    """Seconds to wait after attempt 1, 2, … before the next: `delay`, each time `factor` times as long, at most `longest`."""
    return min(longest, delay * factor ** (attempt - 1))


class CellChoice(Protocol):
    """The choice of the cells that a run judges, their order, and the end. Without one, it judges all that have no evidence."""

    def chosen(self, cells: Collection[Any]) -> Collection[Any]:
        """The cells that may be needed, in the order in which they are judged."""

    def saw(self, key: tuple[object, ...], outcome: str) -> None:
        """Note the outcome of a cell, by its key: from evidence, from a result, or `error` where it is left missing."""

    @property
    def enough(self) -> bool:
        """Whether nothing more need be judged."""


@dataclass(frozen=True)
class RunOptions:
    """The options of a run, for every judge."""

    jobs: int = 1
    epoch: int | None = None
    """Of the evidence; None: the highest that there is evidence of, or 1."""
    since: int | None = None
    """The first epoch that is open, where there is a ledger; earlier ones are settled."""
    attempts: int = ATTEMPTS
    delay: float = DELAY
    participants: Sequence[str] = ()
    """Keys; none: all."""
    everybody: bool = False
    """Judge also those for whom `assign` drew other validators."""
    done: frozenset[tuple[object, ...]] = frozenset()
    """Keys of cells that are not judged, although their evidence is not here: the ledger has it."""
    engine: ErrandEngine | None = None
    """The engine that judges on other machines; None: this machine judges."""
    leases: Leases | None = None
    """The claims on cells, where several machines judge for one validator and share a ledger."""
    choice: CellChoice | None = None
    """The choice of cells; None: all that have no evidence."""
    own: Any = field(default_factory=dict)
    """The options that only this kind of judge has, as `kind.Kind.settings` makes them of the command line's."""

    def check(self) -> None:
        """Refuse numbers that make no sense; raises BadInput."""
        if not 1 <= self.jobs <= 1024:
            hint = "from 1 to 1024; one for each core is right"
            raise BadInput(f"{self.jobs} is not a number of jobs", field="jobs", hint=hint)
        if not 1 <= self.attempts <= 100:
            raise BadInput(f"{self.attempts} is not a number of attempts", field="attempts", hint="from 1 to 100")


@dataclass
class RunSummary:
    """The result of a run."""

    planned: int
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: list[tuple[Cell, str]] = field(default_factory=list)
    """The cells that are still missing after all attempts, and why."""
    absent: tuple[str, ...] = ()
    """Participants of whom there is nothing here that could be judged."""
    others: tuple[str, ...] = ()
    """Participants for whom `assign` drew other validators, who were not judged."""
    in_ledger: int = 0
    """The number of cells that were left out because of `RunOptions.done` alone."""
    stopped: bool = False
    epoch: int = 1
    unit: str = "trial"
    """The noun for a cell."""
    submission: str = "agent"
    """The noun for a submission."""
    remarks: list[str] = field(default_factory=list)
    """Further sentences on the results of the run."""
    table: Sequence[Mapping[str, str]] = ()
    """The present standings, for a judge whose evidence is worth a table: rows of cells by the name of their column."""

    @property
    def judged(self) -> int:
        """The number of cells that have evidence now and had none before."""
        return sum(self.outcomes.values())


@dataclass
class Stop:
    """The number of requests to end the run."""

    asked: int = 0


@contextmanager
def stopping() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM are counted instead of breaking in anywhere; outside the main thread they cannot be."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def heard(_number: int, _frame: FrameType | None) -> None:
        stop.asked += 1

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
