"""For tests of the workflow judge: time that passes only when nobody has anything to do, and services that follow a script."""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from assay.exact import text
from assay.judge.workflow.call import Broken, ServiceCall
from assay.judge.workflow.plan import Plan

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Where a loop would wait, its time goes on instead."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everybody waits for something that nobody will do")
        if not ready and timeout:
            self.loop.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def nanoseconds(self) -> int:
        return round(self.now * 10**9)


def virtually(work: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Runs a coroutine in virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work(loop))
    finally:
        loop.close()


@dataclass
class Fake:
    """A `CallableService` that asks a function: (action, step, attempt) → (seconds, answer), or an exception as the answer."""

    script: Callable[[str, str, int], tuple[float, Any]]
    max_cost: int = 10**9
    parallel: int = 10_000
    health: str = "ping"
    health_seconds: float = 5.0
    asked: list[tuple[str, int]] = field(default_factory=list)
    under_way: int = 0
    most: int = 0

    async def ask(self, call: ServiceCall) -> bytes:
        action = json.loads(call.request)["action"]
        step = call.step.rpartition("/")[2]
        self.asked.append((step, call.attempt))
        seconds, answer = self.script(action, step, call.attempt)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.under_way -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def well(output: Any = None, cost: int = 0) -> dict[str, Any]:
    """An answer as it should be. cost: nanos."""
    return {"output": output, "cost": text(cost)}


def broken() -> Broken:
    """An answer that is none."""
    return Broken("the service answered 503")


def plan(nodes: Sequence[str], edges: Sequence[tuple[str, str]] = (), **handling: Mapping[str, Any]) -> Plan:
    """A plan whose steps all ask the service `s` for `do`."""
    return Plan.model_validate(
        {
            "nodes": [{"id": name, "service": "s", "action": "do"} for name in nodes],
            "edges": list(edges),
            "error_handling": dict(handling),
        }
    )
