"""The run of the workflow judge: every task of the round is asked of every participant, and their plan is carried out. SPEC 2.2.

- Tasks come one after the other, so that all are asked under the same conditions; every participant is sent the same package.
- If a service is broken, the task counts for nobody in that round: no further participant is asked, and that is evidence.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import assay
from assay.judge import service, tree
from assay.judge.cell_queue import Attempt, Report
from assay.judge.entries import Written
from assay.judge.judge_run import JudgeRun
from assay.judge.kind_options import TaskOptions
from assay.judge.running import RunEvent, RunOptions, RunSummary, Tell, quiet
from assay.judge.stations import BOUNDS, Errand, Heard, Needs, Parcel, StationSpec
from assay.judge.workflow.call import plain
from assay.judge.workflow.competition import Desk, UntilStopped, WorkflowCompetition, open_contest
from assay.judge.workflow.record import RunRecord, RunStore
from assay.judge.workflow.services import CommandSpec, HttpSpec
from assay.judge.workflow.station import PlanSettings, judged_fields
from assay.judge.workflow.tasks import latest_round, read_round
from assay.records import Evidence, Participant, Workflow

__all__ = ["TaskCell", "run"]

SPARE = 900.0
"""Seconds that a plan may take on another machine beyond its task's own bound."""
_WAITING, _MEMORY = 0.5, 1 << 30
"""Cores and bytes of memory that a plan takes of a node; its services may be elsewhere."""


@dataclass(frozen=True)
class TaskCell:
    """One task that is asked of one participant in an epoch."""

    participant: str
    submission: str
    task: str
    epoch: int

    @property
    def parts(self) -> Mapping[str, str]:
        """See `running.Cell`."""
        return {"task": self.task}

    @property
    def key(self) -> tuple[object, ...]:
        """See `running.Cell`."""
        return self.participant, self.epoch, self.task


def run(competition: Path, validator: str, options: RunOptions | None = None, on_event: Tell = quiet) -> RunSummary:
    """Judges what is missing; raises BadInput, RunBusy, and InfrastructureError where nothing can be judged at all."""
    return _WorkflowRun(competition, validator, options, on_event).carry_out()


class _WorkflowRun(JudgeRun[TaskCell, RunRecord]):
    unit: ClassVar[str] = "task"
    submission: ClassVar[str] = "planner"

    def open(self) -> WorkflowCompetition:
        own = self.own = self.options.own or TaskOptions()
        self.contest = open_contest(
            self.competition, self.validator, tasks=own.tasks, participants=self.options.participants, only=own.only
        )
        self.store = RunStore(self.competition, self.validator)
        self.broken_at: dict[int, set[str]] = {}
        self.broken: dict[str, str] = {}
        self.began: dict[TaskCell, datetime] = {}
        """The time at which a cell was sent to another machine."""
        self.here, self.summary.absent = self.contest.here, self.contest.absent
        return self.contest

    def lock(self) -> AbstractContextManager[int]:
        return self.store.lock()

    def clear(self) -> None:
        self.store.clean()

    def saw(self, record: Evidence) -> None:
        assert isinstance(record, Workflow)  # evidence of another kind was refused
        if record.outcome == "service-error":
            self.broken_at.setdefault(record.epoch, set()).add(record.task)

    def epoch(self, written: Written[tuple[object, ...]]) -> int:
        """The round that is judged: the one that was said, or the last that is drawn, or that there is evidence of."""
        if self.options.epoch is not None:
            return self.options.epoch
        return max(1, written.epoch or 1, latest_round(self.competition) or 1)

    def check(self, wanted: Sequence[Participant], done: frozenset[tuple[object, ...]]) -> None:
        epoch, only = self.summary.epoch, self.own.only
        asked = read_round(self.competition, self.contest.pinned, epoch)
        self.tasks = {name: self.contest.pinned.task(name) for name in asked.tasks if not only or name in only}
        why = "a service was broken when it was asked before"
        self.broken = dict.fromkeys(sorted(self.broken_at.get(epoch, ())), why)
        self.desk = self._desk(wanted)
        self.store.begin(asked)

    def _desk(self, wanted: Sequence[Participant]) -> Desk:
        """The desk that carries out plans; with a sandbox only if a plan needs one. Raises BadInput and InfrastructureError."""
        contest, own, tasks = self.contest, self.own, list(self.tasks.values())
        desk = Desk(contest.services, contest.folder, os.environ)
        commands = any(contest.planners[participant.submission].command for participant in wanted)
        if commands or any(desk.boxed(task) for task in tasks):
            own.check_boxes(contest.rules.fresh_boxes, contest.folder / "scheme.toml")
            sandbox = own.open_sandbox()
            sandbox.sweep()
            desk = Desk(contest.services, contest.folder, os.environ, UntilStopped(sandbox, self.stop))
        for task in tasks:
            desk.ready(task)
        return desk

    def cells(self, wanted: Sequence[Participant]) -> list[TaskCell]:
        epoch = self.summary.epoch
        return [TaskCell(participant.key, participant.submission, task, epoch) for task in self.tasks for participant in wanted]

    def recover(self, missing: Iterable[TaskCell]) -> list[tuple[object, ...]]:
        return [cell.key for cell in missing if self._recovered(cell)]

    def _recovered(self, cell: TaskCell) -> bool:
        stored = self.store.result(cell.epoch, cell.participant, cell.submission, cell.task)
        if stored is None or stored.outcome == "error":
            return False
        about = (stored.validator, stored.participant, stored.submission, stored.epoch, stored.task, stored.task_digest)
        digest = self.tasks[cell.task].digest
        if about != (self.validator, cell.participant, cell.submission, cell.epoch, cell.task, digest):
            return False
        if stored.outcome == "service-error":
            self.broken.setdefault(cell.task, stored.message)
        return self.store.append(stored)

    async def judge(self, cell: TaskCell) -> RunRecord:
        started = datetime.now(UTC)
        try:
            fields = await self._fields(cell)
        except OSError as error:
            return self.failed(cell, f"the host: {error.strerror or error}")
        return self._record(cell, started, fields)

    async def _fields(self, cell: TaskCell) -> dict[str, Any]:
        """The fields of a record about the plan and its run."""
        task, planner = self.tasks[cell.task], self.contest.planners[cell.submission]
        if cell.task in self.broken:
            return self._fields_of_broken(cell)
        tell = lambda phase: self.tell(RunEvent("phase", cell, phase=phase))  # noqa: E731
        fields, broken = await judged_fields(self.desk, self.contest.rules.max_retries_per_step, task, planner, tell)
        if broken:
            self.broken.setdefault(cell.task, broken)
        return fields

    def _fields_of_broken(self, cell: TaskCell) -> dict[str, Any]:
        planner = self.contest.planners[cell.submission]
        about = f"{planner.name} {planner.version} ({planner.way})"
        return {"planner": about, "outcome": "service-error", "message": plain(self.broken[cell.task])}

    def station(self) -> StationSpec:
        names = [spec.key for spec in self.contest.services.services.values() if isinstance(spec, HttpSpec) and spec.key]
        keys = {name: os.environ[name] for name in names if name in os.environ}
        own = None if self.desk.sandbox is None else self.own
        settings = PlanSettings(self.contest.services, self.contest.rules.max_retries_per_step, own, keys)
        return StationSpec("assay.judge.workflow.station:PlanStation", settings, service.rate(os.environ, "ASSAY_PLANS_RATE"))

    def errand(self, attempt: Attempt[TaskCell]) -> Errand:
        cell, contest = attempt.cell, self.contest
        task, planner = self.tasks[cell.task], contest.planners[cell.submission]
        parcels = {"task": Parcel(task.digest, task.folder), "planner": Parcel(planner.digest, planner.folder)}
        for name, spec in contest.services.services.items():
            if isinstance(spec, CommandSpec) and spec.folder is not None:
                place = contest.folder / spec.folder
                parcels[f"service {name}"] = Parcel(tree.digest(place, bounds=BOUNDS), place)
        self.began[cell] = datetime.now(UTC)
        boxed = self.desk.sandbox is not None
        memory = _MEMORY if boxed else 0
        return Errand((cell.task, planner.name), task.nanoseconds / 1e9 + SPARE, Needs(_WAITING, memory, sandbox=boxed), parcels)

    def report(self, attempt: Attempt[TaskCell], heard: Heard) -> Report[TaskCell, RunRecord]:
        cell, started = attempt.cell, self.began.pop(attempt.cell)
        if cell.task in self.broken:  # it broke meanwhile, and the task counts for nobody
            return Report(cell, self._record(cell, started, self._fields_of_broken(cell)))
        if heard.trouble:
            return Report(cell, self.failed(cell, heard.trouble), final=heard.final)
        fields, broken = heard.reply
        if broken:
            self.broken.setdefault(cell.task, broken)
        return Report(cell, self._record(cell, started, fields))

    def _record(self, cell: TaskCell, started: datetime, fields: dict[str, Any]) -> RunRecord:
        task = self.tasks[cell.task]
        return RunRecord.model_validate(
            {
                "epoch": cell.epoch,
                "validator": self.validator,
                "participant": cell.participant,
                "submission": cell.submission,
                "task": cell.task,
                "task_digest": task.digest,
                "package_digest": task.package_digest(self.contest.rules.max_retries_per_step),
                "started_at": started,
                "finished_at": datetime.now(UTC),
                "assay": assay.__version__,
                **fields,
            }
        )

    def failed(self, cell: TaskCell, why: str) -> RunRecord:
        return self._record(cell, datetime.now(UTC), {"outcome": "error", "message": plain(why)})

    def keep(self, cell: TaskCell, result: RunRecord) -> Path:
        place = self.store.keep(result)
        self.store.append(result)
        return place

    def remarks(self) -> Iterator[str]:
        for task, why in self.broken.items():
            yield f"The task {task} counts for nobody in epoch {self.summary.epoch}: {why}."
