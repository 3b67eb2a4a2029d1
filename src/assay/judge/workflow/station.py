"""Asking for one plan and carrying it out: in a run on one machine, or at a station on a node."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.judge.kind_options import TaskOptions
from assay.judge.stations import ErrandDone, Gate
from assay.judge.workflow import planner as planners
from assay.judge.workflow.call import plain
from assay.judge.workflow.competition import Desk, fields_of
from assay.judge.workflow.plan import Plan, parse_plan
from assay.judge.workflow.planner import NoPlan, Planner, load_planner
from assay.judge.workflow.services import CommandSpec, Services
from assay.judge.workflow.tasks import WorkflowTask, read_task

__all__ = ["PlanSettings", "PlanStation", "judged_fields"]


async def judged_fields(
    desk: Desk, retries: int, task: WorkflowTask, planner: Planner, tell: Callable[[str], None] = lambda _phase: None
) -> tuple[dict[str, Any], str]:
    """The fields of a record about a plan and its run; and the reason why a service is broken, if one is.

    retries: most that a plan may declare for a step. tell: hears each phase. Raises InfrastructureError, BadInput, OSError.
    """
    about: dict[str, Any] = {"planner": f"{planner.name} {planner.version} ({planner.way})"}
    tell("plan")
    try:
        plan = await _plan(desk, retries, task, planner)
    except NoPlan as error:
        return about | {"outcome": "invalid", "message": plain(str(error))}, ""
    tell("run")
    done = await desk.carry_out(task, plan, name=secrets.token_hex(16))  # services do not learn whose plan it is
    return about | {"plan": plan.document(), "plan_digest": plan.digest} | fields_of(done, task, plan), done.ran.broken


async def _plan(desk: Desk, retries: int, task: WorkflowTask, planner: Planner) -> Plan:
    """The participant's plan, checked. Raises NoPlan where the participant has none, and InfrastructureError."""
    rules, package = task.rules(retries), task.package_bytes(retries)
    data = await planners.ask_planner(planner, task.id, package, rules.bounds.bytes, desk.services.planners, desk.sandbox)
    try:
        return parse_plan(data, rules)
    except BadInput as error:
        raise NoPlan(str(error)) from None


@dataclass(frozen=True)
class PlanSettings:
    """The settings that all plans of a run share. env: the keys of services. own: the sandbox's options, if one is needed."""

    services: Services
    retries: int
    own: TaskOptions | None
    env: Mapping[str, str] = field(repr=False)


class PlanStation:
    """A `stations.Station`. Parcels: `task`, `planner`, and `service NAME` for the folder of a service that is a command."""

    def __init__(self, settings: PlanSettings, home: Path, gate: Gate) -> None:
        """Raises BadInput and InfrastructureError where the sandbox cannot be used."""
        self._settings, self._gate = settings, gate
        self._services = home / "services"
        self._services.mkdir()
        sandbox = None if settings.own is None else settings.own.open_sandbox()
        self._desk = Desk(settings.services, self._services, settings.env, sandbox)

    def carry_out(self, payload: tuple[str, str], places: Mapping[str, Path], folder: Path, seconds: float) -> ErrandDone:
        """See `Station.carry_out`. payload: the task's id, and the planner's name. The reply: as `judged_fields` returns it."""
        left, ticket = self._gate.turn()
        while left > 0:
            time.sleep(left)
            left, ticket = self._gate.turn(ticket)
        for name, spec in self._settings.services.services.items():
            if isinstance(spec, CommandSpec) and spec.folder is not None:
                _lead(self._services / spec.folder, places[f"service {name}"])
        # Both may be known by the names of their folders, and those of parcels are digests.
        task, planner = (
            replace(read_task(places["task"]), id=payload[0]),
            replace(load_planner(places["planner"]), name=payload[1]),
        )
        self._desk.ready(task)
        return ErrandDone(
            asyncio.run(asyncio.wait_for(judged_fields(self._desk, self._settings.retries, task, planner), seconds))
        )

    def close(self) -> None:
        """See `Station.close`."""


def _lead(link: Path, place: Path) -> None:
    """Make a link lead to a parcel's place."""
    if not link.is_symlink() or link.readlink() != place:
        link.unlink(missing_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(place)
