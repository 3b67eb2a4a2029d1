"""The judge's counts are those of the slow oracle, whatever the plan and whatever its services do. SPEC 2.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from assay.exact import NANO
from assay.judge.workflow import execute as judge
from assay.judge.workflow import limits
from assay.judge.workflow.plan import Plan
from depth import depth
from oracle import workflow_run as oracle
from workflow_kit import Fake, VirtualLoop, broken, virtually, well

TICK = 512
"""Ticks of a second: their multiples are exact as floats of seconds, and as integers of nanoseconds."""
NANOSECONDS = NANO // TICK
WAITS = [round(min(limits.RETRY_WAIT * 2**place, limits.LONGEST_WAIT) * TICK) for place in range(8)]

costs = st.integers(0, 3).map(lambda count: count * NANO // 10)
outcomes: list[oracle.Result] = ["answered", "answered", "answered", "answered", "denied", "broken", "lied"]
times = st.lists(st.integers(1, 4000).map(lambda half: 2 * half), min_size=26, max_size=26, unique=True)
odd = st.integers(0, 6000).map(lambda half: 2 * half + 1)
"""What time-outs are: never exactly what something takes."""
World = tuple[dict[str, oracle.Step], dict[str, oracle.Health], int, int]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Steps, the health of two services, budget, latency."""
    take = iter(draw(times))
    names = [f"n{place}" for place in range(draw(st.integers(1, 8)))]
    steps = {}
    for place, name in enumerate(names):
        needs = draw(st.sets(st.sampled_from(names[:place]), max_size=3)) if place else set()
        script = [
            oracle.Scripted(next(take), draw(st.sampled_from(outcomes)), draw(costs)) for _ in range(draw(st.integers(1, 3)))
        ]
        timeout = draw(st.none() | odd)
        steps[name] = oracle.Step(frozenset(needs), draw(st.sampled_from("st")), script, draw(st.integers(0, 3)), timeout)
    health = {
        name: oracle.Health(next(take), draw(st.integers(0, 3)) > 0, draw(st.sampled_from((99_999, 50_001)) | odd))
        for name in "st"
    }
    return steps, health, draw(st.sampled_from([0, NANO // 2, NANO, 100 * NANO])), draw(st.integers(100, 40_000) | st.just(10**7))


def _plan(steps: Mapping[str, oracle.Step]) -> Plan:
    handling: dict[str, Any] = {}
    for name, step in steps.items():
        handling[name] = {"retry_count": step.retries}
        if step.timeout is not None:
            handling[name]["timeout_seconds"] = f"{step.timeout / TICK:.9f}"
    return Plan.model_validate(
        {
            "nodes": [{"id": name, "service": step.service, "action": "do"} for name, step in steps.items()],
            "edges": [(before, name) for name, step in steps.items() for before in sorted(step.needs)],
            "error_handling": handling,
        }
    )


def _service(name: str, steps: Mapping[str, oracle.Step], health: oracle.Health) -> Fake:
    def script(action: str, step: str, attempt: int) -> tuple[float, Any]:
        if action == "ping":
            return health.time / TICK, well() if health.good else broken()
        scripted = steps[step].script[min(attempt, len(steps[step].script)) - 1]
        cost = {"cost": well(cost=scripted.cost)["cost"]}
        answers = {
            "answered": {"output": [step, attempt], **cost},
            "denied": {"error": "no", **cost},
            "broken": broken(),
            "lied": {"output": None, "cost": "2"},
        }
        return scripted.time / TICK, answers[scripted.result]

    return Fake(script, health_seconds=health.allowed / TICK)


@settings(max_examples=depth(60, 300), deadline=None)
@given(worlds())
def test_counts_are_those_of_the_oracle(world: World) -> None:
    steps, health, budget, latency = world
    grace = round(limits.GRACE * TICK)
    wanted = oracle.run(steps, health, budget=budget, latency=latency, grace=grace, waits=WAITS)
    assume(not wanted.tied)
    services = {name: _service(name, steps, health[name]) for name in "st"}

    async def work(loop: VirtualLoop) -> Any:
        bounds = judge.RunBounds(budget, latency * NANOSECONDS)
        return await judge.execute(_plan(steps), bounds, services, None, clock=loop.nanoseconds)

    ran = virtually(work)
    event(f"stopped by {wanted.stopped or 'nothing'}{', broken' if wanted.broken else ''}")
    counts = oracle.RunCounts(
        broken=bool(ran.broken),
        stopped=ran.stopped,
        completed=ran.completed,
        retries=ran.retries,
        timeouts=ran.timeouts,
        hard_failures=ran.hard_failures,
        cost=ran.cost,
        time=ran.nanoseconds // NANOSECONDS,
        tied=False,
    )
    assert ran.nanoseconds % NANOSECONDS == 0
    assert counts == wanted
