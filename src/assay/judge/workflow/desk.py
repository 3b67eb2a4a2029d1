"""One plan for one task, carried out and judged: what a validator does for evidence, and a miner at his desk to see. SPEC 2.2."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.exact import text
from assay.judge.sandbox.box import Sandbox
from assay.judge.workflow.call.service import Given, check_key, opened
from assay.judge.workflow.execute import Bounds, execute
from assay.judge.workflow.plan import Plan
from assay.judge.workflow.quality.scored import NOTHING, Scored
from assay.judge.workflow.record import steps_of
from assay.judge.workflow.services import Command, Services
from assay.judge.workflow.task import Task
from assay.judge.workflow.trace import Moment, Ran
from assay.records import MAX_UNITS

__all__ = ["Desk", "Done", "fields_of"]

_MOST = MAX_UNITS * 10**9 - 1


@dataclass(frozen=True)
class Done:
    """How a plan ran, and how good its output was; quality is None where a service was broken."""

    ran: Ran
    quality: Scored | None
    steps_total: int


@dataclass(frozen=True)
class Desk:
    """What plans are carried out with."""

    services: Services
    folder: Path
    """Of services.toml."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For the keys of services."""
    sandbox: Sandbox | None = None

    def boxed(self, task: Task) -> bool:
        """Whether a task needs a sandbox, for its services or for its quality."""
        commands = any(isinstance(self.services.services.get(name), Command) for name in task.allowed)
        return commands or task.measure.boxed

    def ready(self, task: Task) -> None:
        """Refuses a task that cannot be judged here; raises BadInput."""
        self.services.check_has(task.allowed, file=task.folder / "task.toml")
        for name in sorted(task.allowed):
            check_key(name, self.services.services[name], self.env)
        task.measure.ready()
        if self.sandbox is None and self.boxed(task):
            raise BadInput(f"the task {task.id!r} needs a sandbox", field="sandbox")

    async def carry_out(
        self, task: Task, plan: Plan, *, name: str = "", on_moment: Callable[[Moment], None] = lambda _moment: None
    ) -> Done:
        """Runs a plan that was checked against the task, and takes the quality of what came of it; raises Trouble, BadInput."""
        names = sorted({node.service for node in plan.nodes})
        bounds = Bounds(task.budget, task.nanoseconds)
        async with opened(self.services, names, Given(self.folder, self.env, self.sandbox)) as services:
            ran = await execute(plan, bounds, services, task.input, name=name, on_moment=on_moment)
        steps = max(len(plan.nodes), task.min_steps)
        if ran.broken:
            return Done(ran, None, steps)
        found, output = _output(task, plan, ran)
        quality = await asyncio.to_thread(task.measure.score, output, self.sandbox) if found else NOTHING
        return Done(ran, quality, steps)


def fields_of(done: Done, task: Task, plan: Plan) -> dict[str, Any]:
    """The fields of a record that say how a plan ran; JSON."""
    ran = done.ran
    found: dict[str, Any] = {
        "outcome": "service-error" if ran.broken else "ran",
        "message": ran.broken[:500],
        "steps": steps_of(ran),
        "stopped": ran.stopped,
        "steps_completed": ran.completed,
        "steps_total": done.steps_total,
        "cost": text(min(ran.cost, _MOST)),
        "budget": text(task.budget),
        "seconds": text(ran.nanoseconds),
        "max_seconds": text(task.nanoseconds),
        "retries": ran.retries,
        "declared_retries": plan.declared_retries,
        "timeouts": ran.timeouts,
        "hard_failures": ran.hard_failures,
    }
    if done.quality is not None:
        found |= {"quality": text(done.quality.nanos), "quality_how": done.quality.how}
    return found


def _output(task: Task, plan: Plan, ran: Ran) -> tuple[bool, Any]:
    """Whether a plan came to an output, and which: the answer of the step that the task names, or of the plan's last steps."""
    if task.settings.output:
        return task.settings.output in ran.outputs, ran.outputs.get(task.settings.output)
    ends = {name: ran.outputs[name] for name in plan.sinks if name in ran.outputs}
    if len(plan.sinks) == 1:
        return bool(ends), next(iter(ends.values()), None)
    return bool(ends), ends
