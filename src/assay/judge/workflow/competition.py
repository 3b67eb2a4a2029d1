"""A competition's folder for the workflow judge, the execution of one plan, and the submission of planners. SPEC 2.2, 7.

tasks/ID/…                the tasks, pinned by tasks.txt; --tasks names another place
planners/<digest12>/…     submitted planners, as `submit_plans` put them there
services.toml             the services; round.toml and randomness.csv: the draw of the tasks
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.exact import text
from assay.judge import entries, submitting
from assay.judge.entries import Entries
from assay.judge.running import Stop
from assay.judge.sandbox import Box, Image, InfrastructureError, Limits, Sandbox
from assay.judge.workflow import services as service_files
from assay.judge.workflow.call import ServiceHost, check_key, opened
from assay.judge.workflow.execute import RunBounds, execute
from assay.judge.workflow.plan import Plan
from assay.judge.workflow.planner import BOUNDS, Planner, load_planner
from assay.judge.workflow.quality import NOTHING, QualityScore
from assay.judge.workflow.record import Moment, PlanRun, steps_of
from assay.judge.workflow.services import CommandSpec, Services
from assay.judge.workflow.tasks import LIST, PinnedTasks, WorkflowTask, read_tasks
from assay.records import MAX_UNITS, Participant
from assay.scheme.load import read as read_scheme
from assay.scheme.model import WorkflowScore

PLANNERS = "planners"


@dataclass(frozen=True)
class WorkflowCompetition(Entries):
    """A competition of workflows, as one validator sees it."""

    rules: WorkflowScore
    services: Services
    pinned: PinnedTasks
    planners: Mapping[str, Planner]
    """By submission."""
    here: tuple[Participant, ...]
    """Participants whose submission counts, and is here."""
    absent: tuple[str, ...]
    """Participants whose submission counts, and is not here."""


def rules_of(scheme: Path) -> WorkflowScore:
    """The rules in a scheme file; raises BadInput if it scores something else."""
    rules = read_scheme(scheme).score
    if not isinstance(rules, WorkflowScore):
        raise BadInput(f"is {rules.kind!r}, and plans are judged as workflows", file=scheme, field="score.kind")
    return rules


def open_contest(
    folder: Path, validator: str, *, tasks: Path | None = None, participants: Sequence[str] = (), only: Sequence[str] = ()
) -> WorkflowCompetition:
    """Reads it; participants, only: keys and task ids to which it is narrowed. Raises BadInput for whatever is wrong."""
    rules = rules_of(folder / "scheme.toml")
    seen = entries.read(folder, read_scheme(folder / "scheme.toml"), validator, participants)
    pinned = read_tasks(folder, tasks)
    for name in only:
        entries.known(name, list(pinned.digests), folder / LIST, "task")
    hint = "assay submit DIR PARTICIPANT FOLDER puts one in its place"
    theirs = entries.submitted(
        seen,
        participants,
        lambda participant: planner_of(folder, participant),
        "a planner",
        hint,
    )
    return WorkflowCompetition(
        folder=folder,
        scheme=seen.scheme,
        validator=validator,
        participants=seen.participants,
        validators=seen.validators,
        rules=rules,
        services=service_files.read(folder / service_files.FILE),
        pinned=pinned,
        planners=theirs.files,
        here=theirs.here,
        absent=theirs.absent,
    )


def planner_of(folder: Path, participant: Participant) -> Planner | None:
    """The planner that a participant submitted; None if it is not here. Raises BadInput if its files are others."""
    return entries.handed_in(folder / PLANNERS, participant, load_planner, _planners)


def _planners(place: Path) -> Iterator[Planner]:
    """The planners in a folder, whatever they are called."""
    for path in sorted(place.glob("*")):
        if path.is_dir() and not path.name.startswith("."):
            yield load_planner(path)


_MOST = MAX_UNITS * 10**9 - 1


@dataclass(frozen=True)
class Done:
    """The run of a plan and the quality of its output; quality is None where a service was broken."""

    ran: PlanRun
    quality: QualityScore | None
    steps_total: int


@dataclass(frozen=True)
class Desk:
    """The services, keys and sandbox with which plans are carried out."""

    services: Services
    folder: Path
    """Of services.toml."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For the keys of services."""
    sandbox: Sandbox | None = None

    def boxed(self, task: WorkflowTask) -> bool:
        """Whether a task needs a sandbox, for its services or for its quality."""
        commands = any(isinstance(self.services.services.get(name), CommandSpec) for name in task.allowed)
        return commands or task.measure.boxed

    def ready(self, task: WorkflowTask) -> None:
        """Refuses a task that cannot be judged here; raises BadInput."""
        self.services.check_has(task.allowed, file=task.folder / "task.toml")
        for name in sorted(task.allowed):
            check_key(name, self.services.services[name], self.env)
        task.measure.ready()
        if self.sandbox is None and self.boxed(task):
            raise BadInput(f"the task {task.id!r} needs a sandbox", field="sandbox")

    async def carry_out(
        self, task: WorkflowTask, plan: Plan, *, name: str = "", on_moment: Callable[[Moment], None] = lambda _moment: None
    ) -> Done:
        """Runs a plan that was checked against the task, and takes the quality of what came of it.

        Raises InfrastructureError, BadInput.
        """
        names = sorted({node.service for node in plan.nodes})
        bounds = RunBounds(task.budget, task.nanoseconds)
        async with opened(self.services, names, ServiceHost(self.folder, self.env, self.sandbox)) as services:
            ran = await execute(plan, bounds, services, task.input, name=name, on_moment=on_moment)
        steps = max(len(plan.nodes), task.min_steps)
        if ran.broken:
            return Done(ran, None, steps)
        has_output, output = _output(task, plan, ran)
        quality = await asyncio.to_thread(task.measure.score, output, self.sandbox) if has_output else NOTHING
        return Done(ran, quality, steps)


def fields_of(done: Done, task: WorkflowTask, plan: Plan) -> dict[str, Any]:
    """The fields of a record that say how a plan ran; JSON."""
    ran = done.ran
    fields: dict[str, Any] = {
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
        fields |= {"quality": text(done.quality.nanos), "quality_how": done.quality.how}
    return fields


def _output(task: WorkflowTask, plan: Plan, ran: PlanRun) -> tuple[bool, Any]:
    """The output of a plan, after whether it has one: the answer of the step that the task names, or of the plan's last steps."""
    if task.settings.output:
        return task.settings.output in ran.outputs, ran.outputs.get(task.settings.output)
    ends = {name: ran.outputs[name] for name in plan.sinks if name in ran.outputs}
    if len(plan.sinks) == 1:
        return bool(ends), next(iter(ends.values()), None)
    return bool(ends), ends


class UntilStopped:
    """A `Sandbox` around another one."""

    def __init__(self, sandbox: Sandbox, stop: Stop) -> None:
        self.name, self._sandbox, self._stop = sandbox.name, sandbox, stop

    def describe(self) -> str:
        """See `Sandbox.describe`."""
        return self._sandbox.describe()

    def image(
        self, environment: Path | None = None, *, name: str = "", limits: Limits | None = None, any_base: bool = False
    ) -> Image:
        """See `Sandbox.image`."""
        return self._sandbox.image(environment, name=name, limits=limits, any_base=any_base)

    def open(self, image: Image, limits: Limits) -> AbstractContextManager[Box]:
        """See `Sandbox.open`. Raises InfrastructureError when the run is to end."""
        if self._stop.asked:
            raise InfrastructureError("the run was stopped")
        return self._sandbox.open(image, limits)

    @contextmanager
    def freeze(self, box: Box) -> Iterator[Image]:
        """See `Sandbox.freeze`."""
        with self._sandbox.freeze(box) as image:
            yield image

    def sweep(self) -> int:
        """See `Sandbox.sweep`."""
        return self._sandbox.sweep()


@dataclass(frozen=True)
class SubmittedPlanner:
    """The result of submitting a planner."""

    planner: Planner
    before: str
    """The participant's submission until now; empty if there was none."""
    epoch: int | None = None
    """The epoch in which the ledger accepted it; None without a ledger."""

    @property
    def changed(self) -> bool:
        """Whether it is another submission than before."""
        return self.before != self.planner.digest


def submit_plans(
    competition: Path, participant: str, folder: Path, *, at: datetime | None = None, epoch: int | None = None
) -> SubmittedPlanner:
    """Makes a folder of plans, or with planner.toml, the current submission of a participant; raises BadInput, StoreError.

    epoch: in which it is accepted, for a competition with a ledger; None is the latest that is open.
    """
    row = submitting.find(competition, participant)
    before = row.submission
    planner = put_planner(competition, folder)
    return SubmittedPlanner(planner, before, row.enter(planner.digest, at=at, epoch=epoch))


def put_planner(competition: Path, source: Path, submission: str | None = None) -> Planner:
    """The planner in a folder, whose files are copied to planners/; submission: the digest that it must have. Raises BadInput."""
    planner = load_planner(source)
    if submission not in (None, planner.digest):
        raise BadInput(f"is not the submission {submission}: its digest is {planner.digest}", file=source, hint="get it again")
    submitting.placed(
        competition / PLANNERS,
        planner.folder,
        planner.digest,
        lambda copied: load_planner(copied).digest,
        bounds=BOUNDS,
        refused="a submission is files, folders, and links that stay inside",
    )
    return planner
