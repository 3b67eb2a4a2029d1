"""The cost of carrying out a plan of a thousand steps beyond the calls themselves, in three shapes, and of checking it.

The services answer at once, or after a moment that the same calls are waited for bare. The aim is at most 1 ms a step beyond
the calls; a bare `asyncio` task for each call is beside it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from assay.exact import NANO
from assay.judge.workflow import execute as judge
from assay.judge.workflow.call import ServiceCall
from assay.judge.workflow.plan import Plan, PlanBounds, PlanRules, parse_plan

STEPS, ROUNDS = 1000, 5
AIM = 1.0
"""Milliseconds a step."""
ANSWER = b'{"output": {"text": "done", "n": 1}, "cost": "0.000001"}'
_RULES = PlanRules({"s": frozenset({"do"})}, PlanBounds(nodes=STEPS, edges=10 * STEPS, bytes=4_000_000))


@dataclass
class Instant:
    """A service that answers after so many seconds, in this process."""

    seconds: float
    max_cost: int = NANO
    parallel: int = STEPS
    health: str = "do"
    health_seconds: float = 5.0

    async def ask(self, call: ServiceCall) -> bytes:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        return ANSWER


def chain(place: int) -> list[int]:
    return [place - 1] if place else []


def wide(_place: int) -> list[int]:
    return []


def mesh(place: int) -> list[int]:
    """Twenty-five layers of forty, each step after five of the layer before."""
    layer, row = divmod(place, 40)
    return [] if not layer else [(layer - 1) * 40 + (row + step) % 40 for step in range(5)]


SHAPES: dict[str, Callable[[int], list[int]]] = {"one after the other": chain, "all at once": wide, "25 layers of 40": mesh}


def plan_of(needs: Callable[[int], list[int]]) -> bytes:
    """A plan of this shape, in which each step refers to one that it needs."""
    nodes: list[dict[str, Any]] = []
    edges = []
    for place in range(STEPS):
        before = needs(place)
        params = {"text": f"after ${{n{before[0]}.output.text}}"} if before else {"text": "first"}
        nodes.append({"id": f"n{place}", "service": "s", "action": "do", "params": params})
        edges += [[f"n{needed}", f"n{place}"] for needed in before]
    handling = {node["id"]: {"retry_count": 2, "timeout_seconds": "30"} for node in nodes}
    return json.dumps({"nodes": nodes, "edges": edges, "error_handling": handling}).encode()


async def bare(plan: Plan, service: Instant) -> None:
    """The same calls in the same order, with nothing else."""
    done: dict[str, asyncio.Future[None]] = {name: asyncio.get_running_loop().create_future() for name in plan.by_id}

    async def step(name: str) -> None:
        for before in plan.needs[name]:
            await done[before]
        await service.ask(ServiceCall(b"", 1.0))
        done[name].set_result(None)

    await asyncio.gather(*(step(name) for name in plan.by_id))


async def carried_out(plan: Plan, service: Instant) -> None:
    execution = await judge.execute(plan, judge.RunBounds(NANO, 600 * NANO), {"s": service}, None)
    assert (execution.completed, execution.retries, execution.broken) == (STEPS, 0, "")


def seconds(work: Callable[[Plan, Instant], Awaitable[None]], plan: Plan, service: Instant) -> float:
    async def timed() -> float:
        began = time.perf_counter()
        await work(plan, service)
        return time.perf_counter() - began

    return asyncio.run(timed())


def main() -> None:
    """Prints the table; ends with what is too slow, if something is."""
    worst = 0.0
    print(f"{STEPS:,} steps, medians of {ROUNDS}{'':26}checked   the calls   carried out   beyond, a step")
    for name, needs in SHAPES.items():
        data = plan_of(needs)
        began = time.perf_counter()
        plan = parse_plan(data, _RULES)
        checked = time.perf_counter() - began
        for moment in (0.0, 0.002):
            service = Instant(moment)
            pairs = [(seconds(bare, plan, service), seconds(carried_out, plan, service)) for _ in range(ROUNDS)]
            calls, whole = (statistics.median(times) for times in zip(*pairs, strict=True))
            beyond = statistics.median(more - less for less, more in pairs) / STEPS * 1000
            worst = max(worst, beyond)
            label = f"{name}, {'at once' if not moment else f'{moment * 1000:g} ms a call'}"
            print(f"{label:47} {checked * 1000:7.0f} ms {calls * 1000:8.0f} ms {whole * 1000:10.0f} ms {beyond:11.3f} ms")
    print(f"{'the most beyond the calls, a step':47} {worst:.3f} ms   (aim: at most {AIM:g})")
    if worst > AIM:
        raise SystemExit(f"too slow: {worst:.3f} ms a step")


if __name__ == "__main__":
    main()
