"""How a plan runs, done slowly. SPEC 2.2, and docs/workflows.md for what SPEC leaves open. Times are integers.

Every attempt that could be made is listed with its times; then the first reason to stop is looked for, and what came before it
is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Result = Literal["answered", "denied", "broken", "lied"]


@dataclass(frozen=True)
class Scripted:
    """What a service does when it is asked: how long that takes, what comes of it, what it says it cost."""

    time: int
    result: Result = "answered"
    cost: int = 0


@dataclass(frozen=True)
class Step:
    """A step: what it needs, whom it asks, what it declares, and what happens at its first, second … attempt (then the last)."""

    needs: frozenset[str]
    service: str
    script: Sequence[Scripted]
    retries: int = 0
    timeout: int | None = None


@dataclass(frozen=True)
class Health:
    """How long a service takes to answer its health action, whether it does, and how long it may take."""

    time: int
    good: bool
    allowed: int


@dataclass(frozen=True)
class RunCounts:
    """What the run comes to. `tied`: two things happened at one time, and either may have been first."""

    broken: bool
    stopped: str
    completed: int
    retries: int
    timeouts: int
    hard_failures: int
    cost: int
    time: int
    tied: bool


@dataclass(frozen=True)
class _Attempt:
    step: str
    number: int
    began: int
    ended: int
    outcome: str
    cost: int
    last: bool


def run(
    steps: Mapping[str, Step], health: Mapping[str, Health], *, budget: int, latency: int, grace: int, waits: Sequence[int]
) -> RunCounts:
    """The counts. waits: before the second, third … attempt (then the last)."""
    attempts = _all(steps, latency, waits)
    stops: list[tuple[int, str]] = [(latency, "latency")]
    spent = 0
    for attempt in sorted(attempts, key=lambda attempt: attempt.ended):
        spent += attempt.cost
        if spent > budget:
            stops.append((attempt.ended, "budget"))
            break
    probes = _probes(
        [attempt for attempt in attempts if attempt.last and attempt.outcome in ("broken", "lied", "timeout")], steps, health
    )
    stops += [(end, "broken") for _, end, good in probes if not good]
    whole = max((attempt.ended for attempt in attempts), default=0)
    stops.append((whole, ""))
    stop, why = min(stops, key=lambda row: row[0])

    done = [attempt for attempt in attempts if attempt.ended <= stop]
    ended = {attempt.step for attempt in done if attempt.last}
    completed = {attempt.step for attempt in done if attempt.last and attempt.outcome == "answered"}
    begun = [attempt for attempt in attempts if attempt.began <= stop and _ready(attempt, steps, completed, done)]
    broken = why == "broken"
    running: list[tuple[str, int, bool]] = [row for row in probes if _begun(row, done, steps, health) <= stop]
    if why == "latency":
        asked = {service for service, end, _ in running if end > stop}
        going = {attempt.step for attempt in begun} - ended
        running += [_probe(steps[name].service, stop, health) for name in sorted(going) if steps[name].service not in asked]
    if not broken:
        limit = max(stop, latency) + grace
        broken = any(not good or end > limit for _, end, good in running)
    times = [attempt.ended for attempt in attempts] + [end for _, end, _ in {*probes, *running}] + [latency, latency + grace]
    times += [attempt.began for attempt in attempts if attempt.number > 1]
    return RunCounts(
        broken=broken,
        stopped="" if why == "broken" else why,
        completed=len(completed),
        retries=sum(attempt.number > 1 for attempt in begun),
        timeouts=sum(attempt.outcome == "timeout" for attempt in done),
        hard_failures=len(ended - completed),
        cost=sum(attempt.cost for attempt in done),
        time=stop,
        tied=len(set(times)) != len(times),
    )


def _all(steps: Mapping[str, Step], latency: int, waits: Sequence[int]) -> list[_Attempt]:
    """Every attempt, as if nothing ever stopped the run."""
    attempts: list[_Attempt] = []
    ends: dict[str, int | None] = {}
    while len(ends) < len(steps):
        name, step = next((n, s) for n, s in steps.items() if n not in ends and s.needs <= ends.keys())
        before = [ends[need] for need in step.needs]
        ends[name] = None
        if None in before:
            continue
        now = max((end for end in before if end is not None), default=0)
        for number in range(1, step.retries + 2):
            scripted = step.script[min(number, len(step.script)) - 1]
            time, outcome, cost = scripted.time, scripted.result, scripted.cost
            kind: str = outcome
            if step.timeout is not None and step.timeout < latency - now and step.timeout < time:
                time, kind, cost = step.timeout, "timeout", 0
            if outcome in ("broken", "lied"):
                cost = 0
            last = kind in ("answered", "lied") or number == step.retries + 1
            attempts.append(_Attempt(name, number, now, now + time, kind, cost, last))
            now += time
            if last:
                ends[name] = now if kind == "answered" else None
                break
            now += waits[min(number, len(waits)) - 1]
    return attempts


def _ready(attempt: _Attempt, steps: Mapping[str, Step], completed: set[str], done: Sequence[_Attempt]) -> bool:
    """Whether the attempt really began: all that the step needs was done, and the attempt before it had ended."""
    earlier = attempt.number == 1 or any(other.step == attempt.step and other.number == attempt.number - 1 for other in done)
    return steps[attempt.step].needs <= completed and earlier


def _probes(failed: Sequence[_Attempt], steps: Mapping[str, Step], health: Mapping[str, Health]) -> list[tuple[str, int, bool]]:
    """(service, when it is known, whether it is well) of every time that a failed step makes somebody ask for it."""
    probes: list[tuple[str, int, bool]] = []
    for attempt in sorted(failed, key=lambda attempt: attempt.ended):
        service = steps[attempt.step].service
        if not any(name == service and end > attempt.ended for name, end, _ in probes):
            probes.append(_probe(service, attempt.ended, health))
    return probes


def _probe(service: str, now: int, health: Mapping[str, Health]) -> tuple[str, int, bool]:
    known = health[service]
    if known.time > known.allowed:
        return service, now + known.allowed, False
    return service, now + known.time, known.good


def _begun(row: tuple[str, int, bool], done: Sequence[_Attempt], steps: Mapping[str, Step], health: Mapping[str, Health]) -> int:
    service, end, _ = row
    return end - min(health[service].time, health[service].allowed)
