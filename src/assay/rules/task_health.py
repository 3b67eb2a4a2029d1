"""Whether a task tells anybody anything: dead, flaky, never separating, negatively separating. Counts of trials, and no model.

A task is looked at through the trials of its participants. A timeout is a failure; an error is no trial, and is counted apart.
docs/task-health.md has the definitions; every inequality is exact, and no word is used below its minimum counts:

- dead: at least 3 participants tried it and nobody ever passed, or at least 3 have trials and all trials are errors
- flaky: at least 3 participants have two trials or more, there are at least 10 pairs of trials of one participant, and more than
  one pair in four differs: 4 · differing > pairs
- never-separating: at least 3 participants tried it, it is not dead, and all passed the same share of their trials
- negative: at least 3 participants pass more than half of their trials and at least 3 pass less than half, and the mean of the
  former on the other tasks is below the mean of the latter

Nothing here reaches a score. SPEC 2.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, Literal

__all__ = ["FLAKY", "LEAST", "PAIRS", "WORDS", "HealthWord", "TaskHealth", "TrialCount", "task_health"]

HealthWord = Literal["dead", "flaky", "never-separating", "negative"]
WORDS: tuple[HealthWord, ...] = ("dead", "flaky", "never-separating", "negative")
LEAST = 3
"""Participants below which no word is used; for `negative` on each side."""
PAIRS = 10
"""Pairs of trials of one participant below which a task is not called flaky."""
FLAKY = Fraction(1, 4)
"""Above this part of differing pairs a task is flaky; who passes with probability p differs in 2p(1 − p) of its pairs."""


@dataclass(frozen=True, slots=True)
class TrialCount:
    """The trials of one participant on one task."""

    passed: int
    failed: int
    errors: int = 0

    @property
    def trials(self) -> int:
        """The trials that were no errors."""
        return self.passed + self.failed


@dataclass(frozen=True, slots=True)
class TaskHealth:
    """The counts of one task, and the words that follow from them."""

    task: str
    participants: int
    """Participants with a trial that was no error."""
    passed: int
    failed: int
    errors: int
    repeated: int
    """Participants with two trials or more."""
    pairs: int
    """Pairs of trials of one participant, and how many of them differ."""
    differing: int
    passers: int
    """Participants that pass more than half of their trials and have trials of other tasks; failers: less than half."""
    failers: int
    rest_passers: Fraction | None
    """The mean share of the other tasks that the passers pass; None without passers. The same of the failers."""
    rest_failers: Fraction | None
    words: tuple[HealthWord, ...]

    def document(self) -> dict[str, Any]:
        """As JSON, with exact ratios as "a/b"."""
        names = ("task", "participants", "passed", "failed", "errors", "repeated", "pairs", "differing", "passers", "failers")
        ratios = {name: _ratio(getattr(self, name)) for name in ("rest_passers", "rest_failers")}
        return {name: getattr(self, name) for name in names} | ratios | {"words": [*self.words]}


def _ratio(value: Fraction | None) -> str | None:
    return None if value is None else f"{value.numerator}/{value.denominator}"


def task_health(results: Mapping[str, Sequence[TrialCount]]) -> list[TaskHealth]:
    """The health of each task, in the order given. results: task → the trials of each participant, all in one order.

    The counts are exact. Raises ValueError if the rows differ in length.
    """
    if len({len(row) for row in results.values()}) > 1:
        raise ValueError("every task needs a place for each participant")
    rests = _rests(list(results.values()))
    return [_of_task(task, row, rest) for (task, row), rest in zip(results.items(), rests, strict=True)]


def _of_task(task: str, row: Sequence[TrialCount], rest: Sequence[Fraction | None]) -> TaskHealth:
    tried = [count for count in row if count.trials]
    passed, failed, errors = (sum(getattr(count, name) for count in row) for name in ("passed", "failed", "errors"))
    pairs = sum(count.trials * (count.trials - 1) // 2 for count in tried)
    differing = sum(count.passed * count.failed for count in tried)
    repeated = sum(count.trials > 1 for count in tried)
    sides: tuple[list[Fraction], list[Fraction]] = ([], [])
    for count, other in zip(row, rest, strict=True):
        if other is not None and count.passed != count.failed:
            sides[count.passed < count.failed].append(other)
    means = [sum(side, Fraction()) / len(side) if side else None for side in sides]
    above, below = means
    words: list[HealthWord] = []
    with_errors = sum(count.errors > 0 for count in row)
    dead = (len(tried) >= LEAST and not passed) or (not tried and with_errors >= LEAST)
    if dead:
        words.append("dead")
    if repeated >= LEAST and pairs >= PAIRS and differing > FLAKY * pairs:
        words.append("flaky")
    if not dead and len(tried) >= LEAST and all(count.passed * (passed + failed) == passed * count.trials for count in tried):
        words.append("never-separating")
    if above is not None and below is not None and min(map(len, sides)) >= LEAST and above < below:
        words.append("negative")
    passers, failers = map(len, sides)
    return TaskHealth(
        task, len(tried), passed, failed, errors, repeated, pairs, differing, passers, failers, above, below, tuple(words)
    )  # fmt: skip


def _rests(rows: Sequence[Sequence[TrialCount]]) -> list[list[Fraction | None]]:
    """Task × participant → the mean share that the participant passed of its other tasks; None where it tried no other.

    Shares are integers of one common unit until the last step, so a table of 256 participants × 1,000 tasks takes a second.
    """
    unit = lcm(*{count.trials for row in rows for count in row if count.trials})
    people = len(rows[0]) if rows else 0
    totals, tried = [0] * people, [0] * people
    shares = [[count.passed * (unit // count.trials) if count.trials else 0 for count in row] for row in rows]
    for row, share in zip(rows, shares, strict=True):
        for at, count in enumerate(row):
            totals[at] += share[at]
            tried[at] += count.trials > 0
    table: list[list[Fraction | None]] = []
    for row, share in zip(rows, shares, strict=True):
        line: list[Fraction | None] = []
        for at, count in enumerate(row):
            others = tried[at] - (count.trials > 0)
            line.append(Fraction(totals[at] - share[at], unit * others) if others else None)
        table.append(line)
    return table
