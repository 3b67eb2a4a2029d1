"""The common shape of what other harnesses recorded: trials, the trouble they had, and what counts for each cell. SPEC 2.1.

A reader (`terminal_bench`, `harbor`, `inspect_ai`, `lm_eval`, `tables`) says what a harness wrote down, fact for fact; `decide`
says what that counts as under a scheme. So the same files import under either rule of `agent_timeout`; no reader knows a rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

from assay.errors import BadInput
from assay.records import Tests
from assay.scheme.times import instant

__all__ = [
    "MAX_TRIALS",
    "UNKNOWN_TIME",
    "Cells",
    "Options",
    "Outcome",
    "Trial",
    "Trials",
    "Trouble",
    "cells",
    "decide",
    "moment",
    "natural",
    "numbered",
    "passed",
    "runs_of",
    "task_id",
    "threshold_of",
    "validator_of",
]

MAX_TRIALS = 2_000_000
"""More trials than this in one import are refused."""

UNKNOWN_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""`observed_at` of a trial whose harness recorded no start: an instant that nobody takes for a real one."""

Outcome = Literal["pass", "fail", "timeout", "error"]


class Trouble(StrEnum):
    """What went wrong in a trial, in the words the rules need."""

    NONE = "none"
    AGENT_TIMEOUT = "agent-timeout"
    TEST_TIMEOUT = "test-timeout"
    AGENT = "agent"
    """The agent crashed or broke off, or left something that the tests' output could not be read from."""
    SETUP = "setup"
    """The agent never came to run: it could not be installed."""
    ELSEWHERE = "elsewhere"
    """Trouble that is not the participant's, or that this program does not know."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may say about an import. The first group is for reading, the second for counting, the third for writing."""

    agent: str | None = None
    """Every trial is of this agent, whatever the files call it."""
    attempts: Literal["auto", "runs", "trials"] = "auto"
    """Whether attempt k of a task stands for run k (a validator), or is trial k of its run."""

    agent_timeout: Literal["fail", "verify"] | None = None
    """The rule of SPEC 2.1; None = the scheme's."""
    count_as: Literal["scheme", "leaderboard"] = "scheme"
    """`leaderboard`: resolved is pass, everything else is fail, as Terminal-Bench counts."""
    strict_errors: bool = False
    """An agent that crashed, or output that could not be read, is error instead of fail."""

    epoch: int = 1
    stake: str = "100"
    first_uid: int | None = 1
    """uid of the first agent in the order of names; None = nobody is registered."""
    into: Literal["new", "add", "replace"] = "new"
    """Make a directory; add evidence to a competition that is there; make it anew in place of an earlier import."""
    assume_submission: bool = False
    """With `add`: the trials are of the submission that participants.csv names, although its digest is another."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial as its harness recorded it; `validator` is the key that its run stands for."""

    agent: str
    validator: str
    task: str
    trial: int = 1
    resolved: bool | None = None
    """Whether all tests passed; None = the harness recorded nothing."""
    trouble: Trouble = Trouble.NONE
    mode: str = "unset"
    """The harness's own name of the trouble, for the report."""
    started_at: datetime | None = None
    version: str = ""
    stated: Outcome | None = None
    """The outcome, where the source says it in so many words."""
    origin: Tests | None = None
    """The record of evidence that it was exported from."""
    file: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Trials:
    """What a reader found, and what the user should know of the reading."""

    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    def __len__(self) -> int:
        return len(self.trials)


def decide(trial: Trial, agent_timeout: str = "fail", *, leaderboard: bool = False, strict_errors: bool = False) -> Outcome:
    """What a trial counts as. SPEC 2.1.

    - Tests that ran out of time: timeout. An agent that did: timeout under "fail"; under "verify" its tests decide.
    - An agent that could not be installed: error, whatever the tests said.
    - Otherwise tests that passed are a pass, whatever broke around them.
    - Not passed, with no trouble: fail; nothing recorded: error. An agent's own crash or unreadable test output: fail
      (`strict_errors`: error). Any other trouble: error, never fail.
    - `leaderboard`: resolved is pass, everything else fail.
    """
    if leaderboard:
        return "pass" if (trial.stated == "pass" or (trial.stated is None and trial.resolved is True)) else "fail"
    if trial.stated is not None:
        return trial.stated
    if trial.trouble is Trouble.TEST_TIMEOUT or (trial.trouble is Trouble.AGENT_TIMEOUT and agent_timeout == "fail"):
        return "timeout"
    if trial.trouble is Trouble.SETUP:
        return "error"
    if trial.resolved is True:
        return "pass"
    if trial.trouble is Trouble.AGENT_TIMEOUT:
        return "fail" if trial.resolved is False else "timeout"
    if trial.trouble is Trouble.NONE:
        return "fail" if trial.resolved is False else "error"
    return "fail" if trial.trouble is Trouble.AGENT and not strict_errors else "error"


Cell = tuple[str, str, str, int]
"""(agent, validator, task, trial)."""


@dataclass(frozen=True, slots=True)
class Cells:
    """One trial for every cell that has any, in the order of the keys' UTF-8 bytes, and what was left out on the way."""

    outcomes: Mapping[Cell, tuple[Outcome, Trial]] = field(default_factory=dict)
    repeated: int = 0
    """Trials that said the same of a cell once more; the earliest is kept."""
    retried: int = 0
    """Errors that gave way to a later result of the same cell."""


def cells(decided: Iterable[tuple[Outcome, Trial]]) -> Cells:
    """One trial a cell: an error gives way to a result, equal results count once, the earliest; different ones are refused."""
    kept: dict[Cell, tuple[Outcome, Trial]] = {}
    repeated = retried = 0
    for outcome, trial in decided:
        cell = (trial.agent, trial.validator, trial.task, trial.trial)
        if cell not in kept:
            kept[cell] = outcome, trial
            if len(kept) > MAX_TRIALS:
                raise BadInput(f"there are more than {MAX_TRIALS} trials", file=trial.file, hint="import them in parts")
            continue
        before, first = kept[cell]
        if before == outcome:
            repeated += 1
            if _when(trial) < _when(first):
                kept[cell] = outcome, trial
        elif "error" in (before, outcome):
            retried += 1
            if before == "error":
                kept[cell] = outcome, trial
        else:
            raise _contradiction(before, first, outcome, trial)
    ordered = sorted(kept, key=lambda c: (c[0].encode(), c[1].encode(), c[2].encode(), c[3]))
    return Cells({cell: kept[cell] for cell in ordered}, repeated, retried)


def _contradiction(before: Outcome, first: Trial, outcome: Outcome, trial: Trial) -> BadInput:
    place = first.file + (f":{first.line}" if first.line else "")
    return BadInput(
        f"says {outcome} of agent {trial.agent!r}, {trial.validator}, task {trial.task!r}, trial {trial.trial}, "
        f"of which {place} says {before}",
        file=trial.file,
        line=trial.line,
        hint="remove one of the two, or number the attempts (a column `trial`) if both count",
    )


def _when(trial: Trial) -> tuple[datetime, str, int]:
    return trial.started_at or datetime.max.replace(tzinfo=UTC), trial.file, trial.line or 0


_NAIVE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?", re.ASCII)


def moment(value: object) -> tuple[datetime | None, bool]:
    """The instant of a start time, and whether it had no time zone and was read as UTC; nothing: None. Raises BadInput."""
    if value is None or value == "":
        return None, False
    if isinstance(value, str) and _NAIVE.fullmatch(value):
        return instant(f"{value}Z"), True
    return instant(value), False


def threshold_of(said: str | None) -> Decimal | None:
    """The number in a text such as "0.75", from which on a score is a pass; raises BadInput."""
    if said is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", said, re.ASCII):
        raise BadInput(f"{said[:40]!r} is not a number", field="--threshold", hint='write a decimal number such as "0.75"')
    return Decimal(said)


def passed(value: object, threshold: Decimal | None, what: str) -> bool | None:
    """Whether a score is a pass: exactly 1, or at least the threshold; None where there is no score (null, NaN).

    A number other than 0 and 1 is refused without a threshold: there is no partial credit, so somebody must say what passes.
    Raises BadInput naming `what` the score is.
    """
    if isinstance(value, bool):
        value = int(value)
    if value is None or (isinstance(value, Decimal) and value.is_nan()):
        return None
    if not isinstance(value, int | Decimal):
        raise BadInput(f"{what} is not a number", hint="name one that is a number, or correct it")
    if threshold is not None:
        return value >= threshold
    if value not in (0, 1):
        raise BadInput(f"{what} is {value}, neither 0 nor 1", hint="say from where on it is a pass: --threshold 0.5, for example")
    return value == 1


def task_id(task: str, name: object) -> str:
    """The id of one sample of a task, `task/name`, without the spaces that no id may have; % is %25, so that two stay two."""
    return re.sub(r"[%\s]", lambda found: f"%{ord(found[0]):02X}", f"{task}/{name}")


def runs_of(logs: Mapping[tuple[str, str], Iterable[str]], key: Callable[[str], Any]) -> dict[tuple[str, str, str], int]:
    """(agent, task, log) → the number of its run: the k-th log of a task, sorted by `key`, is of the agent's run k."""
    return {
        (agent, task, log): number
        for (agent, task), names in logs.items()
        for number, log in enumerate(sorted(set(names), key=key), start=1)
    }


def natural(name: str) -> tuple[tuple[int, bytes], ...]:
    """A sort key by which run10 comes after run9."""
    parts = re.split("([0-9]+)", name, flags=re.ASCII)
    return tuple((int(part[:40]) if place % 2 else 0, part.encode()) for place, part in enumerate(parts))


def validator_of(number: int) -> str:
    """The key of the validator that run `number` of every agent stands for."""
    return f"run-{number}"


def numbered(runs: Sequence[str]) -> dict[str, int]:
    """The runs of one agent, numbered from 1 in natural order."""
    return {run: index for index, run in enumerate(sorted(set(runs), key=lambda run: (natural(run), run)), start=1)}
