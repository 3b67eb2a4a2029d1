"""What every judge's run has in common: its options, what it tells while it goes on, what came of it, and how it is stopped."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Protocol

from assay.errors import BadInput
from assay.judge.service import ModelAccess

__all__ = ["ATTEMPTS", "DELAY", "Cell", "Event", "Options", "Result", "Stop", "Summary", "Tell", "backoff", "stopping"]

ATTEMPTS = 3
"""How often one thing is begun before its error is left as it is."""
DELAY = 2.0
"""Seconds before the second attempt."""

Kind = Literal["calibrating", "calibrated", "planned", "began", "phase", "ended", "again", "kept", "stopping"]


class Cell(Protocol):
    """One thing to be judged: a trial of a task, or a whole solution. It can be a key of a dictionary."""

    @property
    def participant(self) -> str:
        """Whose it is."""

    @property
    def parts(self) -> Mapping[str, str]:
        """What else tells it from others of this participant, by name, in the order in which it is shown."""

    def __hash__(self) -> int: ...


class Result(Protocol):
    """How one thing ended."""

    @property
    def outcome(self) -> str:
        """One word; `error` is what is tried again, and never evidence."""

    @property
    def reason(self) -> str:
        """Why, in one word or number; `pass` needs none."""

    @property
    def message(self) -> str:
        """What the trouble was; empty unless the outcome is error."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a run."""

    kind: Kind
    cell: Cell | None = None
    phase: str = ""
    """phase: which. calibrated: of what, a task."""
    why: str = ""
    """calibrated: why it judges nobody; empty if it judges right."""
    hint: str = ""
    """calibrated: what to do about it."""
    record: Result | None = None
    """Of what ended, or is tried again."""
    count: int = 0
    """planned: how many are to be judged. kept: how many of an earlier run had no evidence yet. calibrating: how many tasks."""
    done: int = 0
    """planned: how many have evidence already."""
    seconds: float = 0.0
    """again: until then."""
    folder: Path | None = None
    """ended: where what is kept of it is."""


Tell = Callable[[Event], None]


def backoff(attempt: int, delay: float, *, factor: float = 4.0, longest: float = 300.0) -> float:
    """Seconds to wait after attempt 1, 2, … before the next: `delay`, each time `factor` times as long, at most `longest`."""
    return min(longest, delay * factor ** (attempt - 1))


@dataclass(frozen=True)
class Options:
    """How a run is carried out. Of these a judge takes what concerns it."""

    jobs: int = 1
    epoch: int | None = None
    """Of the evidence; None: the highest that there is evidence of, or 1."""
    since: int | None = None
    """The first epoch that is open, where there is a ledger; what is before is settled."""
    attempts: int = ATTEMPTS
    delay: float = DELAY
    participants: Sequence[str] = ()
    """Keys; none: all."""
    everybody: bool = False
    """Judge also those for whom `assign` drew other validators."""
    model: ModelAccess | None = None
    """What agents may ask, or what answers a rubric."""
    primary: str | None = None
    fallback: str | None = None
    """What the service calls the two models of a bounty, if not as the bounty does."""
    prices: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """What a million tokens of a question and of an answer cost, in millionths, by the name that the service is asked for."""
    again: bool = False
    """Judge again what was left unjudged."""
    sandbox: str = "bubblewrap"
    engine: str | None = None
    runtime: str | None = None
    """Of the containers: the engine's socket and the runtime, if not what is usual."""
    reuse: bool = False
    """Let bubblewrap use a box's folder again, unless the scheme wants a new box for every trial."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What agents may be given, by name."""
    tasks: Path | None = None
    """The task set's folder; None: tasks/ in the competition."""
    only: Sequence[str] = ()
    """Task ids; none: all."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """The values of the options that only this kind has, by `kind.Option.key`."""
    calibrate: int = 1
    """How often a task's solution has to pass here, and doing nothing to fail, before the task judges anybody."""

    def check(self) -> None:
        """Refuse numbers that make no sense; raises BadInput."""
        if not 1 <= self.jobs <= 1024:
            hint = "from 1 to 1024; one for each core is right"
            raise BadInput(f"{self.jobs} is not a number of jobs", field="jobs", hint=hint)
        if not 1 <= self.attempts <= 100:
            raise BadInput(f"{self.attempts} is not a number of attempts", field="attempts", hint="from 1 to 100")
        if not 1 <= self.calibrate <= 100:
            raise BadInput(f"{self.calibrate} is not a number of times", field="calibrate", hint="from 1 to 100")

    def check_boxes(self, demanded: bool | None, file: Path) -> None:
        """Refuse to use boxes again where the scheme demands fresh ones; raises BadInput."""
        if self.reuse and demanded:
            what = "demands a new box for every trial, and --reuse-boxes says otherwise"
            raise BadInput(what, file=file, field="score.fresh_boxes", hint="leave --reuse-boxes out")


@dataclass
class Summary:
    """What came of a run."""

    planned: int
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: list[tuple[Cell, str]] = field(default_factory=list)
    """What is still missing after all attempts, and why."""
    absent: tuple[str, ...] = ()
    """Participants of whom there is nothing here that could be judged."""
    others: tuple[str, ...] = ()
    """Participants for whom `assign` drew other validators, who were not judged."""
    stopped: bool = False
    epoch: int = 1
    unit: str = "trial"
    """What is counted."""
    submission: str = "agent"
    """What a participant hands in."""
    remarks: list[str] = field(default_factory=list)
    """Sentences on what else the run came to."""
    table: Sequence[Mapping[str, str]] = ()
    """What stands now, for a judge whose evidence is worth a table: rows of cells by the name of their column."""

    @property
    def judged(self) -> int:
        """How many have evidence now and had none before."""
        return sum(self.outcomes.values())


@dataclass
class Stop:
    """How often somebody asked for the end."""

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
