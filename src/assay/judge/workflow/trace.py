"""What a run of a plan leaves: every step with its attempts, and the counts of SPEC 2.2 that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.judge.workflow.call.answer import CallFailed

__all__ = ["Attempt", "Moment", "Outcome", "Ran", "State", "Step", "TimedOut"]

Outcome = Literal["going", "answered", "denied", "broken", "lied", "timeout", "given-up"]
"""How an attempt ended. `given-up`: the run ended before it did."""
State = Literal["waiting", "going", "completed", "failed", "given-up"]
"""How a step ended. `waiting`: it never began, because something that it needs did not end well, or the run ended before."""
Kind = Literal["began", "again", "completed", "failed"]


class TimedOut(CallFailed):
    """An attempt took longer than the plan declared."""

    word = "timeout"


@dataclass
class Attempt:
    """One execution of a step. Times in nanoseconds since the run began, cost in nanos."""

    number: int
    began: int
    ended: int | None = None
    outcome: Outcome = "going"
    cost: int = 0
    message: str = ""


@dataclass
class Step:
    """A step of the plan, and what came of it."""

    id: str
    service: str
    action: str
    state: State = "waiting"
    attempts: list[Attempt] = field(default_factory=list)
    message: str = ""
    output_digest: str | None = None
    output_bytes: int = 0


@dataclass(frozen=True)
class Moment:
    """Something that happened to a step: `again`, an attempt that failed. Nanoseconds since the run began; spent in nanos."""

    kind: Kind
    step: Step
    nanoseconds: int
    spent: int


@dataclass(frozen=True)
class Ran:
    """How a plan ran."""

    steps: tuple[Step, ...]
    """In the order of the plan."""
    outputs: Mapping[str, Any]
    """Of the steps that were completed."""
    cost: int
    nanoseconds: int
    """From the beginning to the end of the last step, or to the stop."""
    stopped: Literal["", "budget", "latency"]
    """Which of the task's two bounds ended it."""
    broken: str
    """Which service is broken, and how; empty if none is."""

    @property
    def completed(self) -> int:
        """Steps that were done."""
        return sum(step.state == "completed" for step in self.steps)

    @property
    def retries(self) -> int:
        """Attempts beyond each step's first. SPEC 2.2."""
        return sum(max(0, len(step.attempts) - 1) for step in self.steps)

    @property
    def timeouts(self) -> int:
        """Executions that took longer than their step declared. SPEC 2.2."""
        return sum(attempt.outcome == "timeout" for step in self.steps for attempt in step.attempts)

    @property
    def hard_failures(self) -> int:
        """Steps that ended without an answer, their declared retries used up. SPEC 2.2."""
        return sum(step.state == "failed" for step in self.steps)
