"""A run: every task of the round that has no evidence yet is asked of every participant, and the answer judged. SPEC 2.2.

- Task after task, so that all are asked the same under the same conditions; every participant is sent the same package.
- Trouble of ours is tried again after 2, 8, 32 … seconds, a bounded number of times, and is then left missing: it is no evidence.
- Where a service is broken the task counts for nobody in that round: whoever was not asked yet is not, and that is evidence.
- What is done is on the disk before it is counted; a run that is stopped or killed goes on where it was.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import assay
from assay.errors import BadInput
from assay.judge import entries
from assay.judge.running import Event, Options, Stop, Summary, backoff, stopping
from assay.judge.sandbox import Trouble, choose
from assay.judge.workflow import planner as planners
from assay.judge.workflow.call import plain
from assay.judge.workflow.competition import Contest, Desk, UntilStopped, fields_of, open_contest
from assay.judge.workflow.plan import Plan, parse_plan
from assay.judge.workflow.planner import NoPlan, Planner
from assay.judge.workflow.record import RunRecord, RunStore
from assay.judge.workflow.tasks import Round, WorkflowTask, latest_round, read_round
from assay.records import Evidence, Participant, Workflow

__all__ = ["Cell", "run"]

_TICK = 0.1
"""Seconds between two looks at whether somebody wants the end."""

About = tuple[str, int, str, bool]
"""(participant, epoch, task, whether a service was broken): what one validator's evidence is about."""


@dataclass(frozen=True)
class Cell:
    """One task that is asked of one participant."""

    participant: str
    submission: str
    task: str

    @property
    def parts(self) -> Mapping[str, str]:
        """See `running.Cell`."""
        return {"task": self.task}


def run(
    competition: Path, validator: str, options: Options | None = None, on_event: Callable[[Event], None] = lambda _event: None
) -> Summary:
    """Judges what is missing; raises BadInput, Busy, and Trouble where nothing can be judged at all.

    Ctrl-C and SIGTERM end it cleanly, if it runs in the main thread: the summary then says `stopped`.
    """
    options = options or Options()
    options.check()
    contest = open_contest(competition, validator, tasks=options.tasks, participants=options.participants, only=options.only)
    store = RunStore(competition, validator)
    with store.lock(), stopping() as stop:
        store.clean()
        found = entries.written(contest, _about)
        epoch = _epoch(contest, found.epoch, options)
        asked = read_round(competition, contest.pinned, epoch)
        tasks = {name: contest.pinned.task(name) for name in asked.tasks if not options.only or name in options.only}
        here = contest.here
        wanted = here if options.everybody else entries.drawn(contest, here, found.first, epoch)
        desk = _desk(contest, list(tasks.values()), wanted, options, stop)
        store.begin(asked)
        going = _Run(contest, store, options, desk, asked, tasks, on_event, stop)
        going.prepare(wanted, here, found.done)
        going.judge()
        return going.summary


def _about(found: Evidence) -> About:
    assert isinstance(found, Workflow)  # evidence of another kind was refused
    return found.participant, found.epoch, found.task, found.outcome == "service-error"


def _epoch(contest: Contest, seen: int | None, options: Options) -> int:
    """The round that is judged: the one that was said, or the last that is drawn, or that there is evidence of."""
    if options.epoch is not None:
        return options.epoch
    return max(1, seen or 1, latest_round(contest.folder) or 1)


def _desk(contest: Contest, tasks: Sequence[WorkflowTask], wanted: Sequence[Participant], options: Options, stop: Stop) -> Desk:
    """What plans are carried out with; a sandbox only where something needs one. Raises BadInput and Trouble."""
    desk = Desk(contest.services, contest.folder, os.environ)
    commands = any(contest.planners[one.submission].command for one in wanted)
    if commands or any(desk.boxed(task) for task in tasks):
        options.check_boxes(contest.rules.fresh_boxes, contest.folder / "scheme.toml")
        sandbox = choose(options.sandbox, engine=options.engine, runtime=options.runtime, reuse=options.reuse)
        sandbox.sweep()
        desk = Desk(contest.services, contest.folder, os.environ, UntilStopped(sandbox, stop))
    for task in tasks:
        desk.ready(task)
    return desk


@dataclass
class _Run:
    """What is going on."""

    contest: Contest
    store: RunStore
    options: Options
    desk: Desk
    asked: Round
    tasks: Mapping[str, WorkflowTask]
    on_event: Callable[[Event], None]
    stop: Stop
    cells: list[Cell] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    """Task → which service was broken."""

    def prepare(self, wanted: Sequence[Participant], here: Sequence[Participant], done: frozenset[About]) -> None:
        """Finds what there is to do; writes the evidence of what was kept just before an earlier run ended."""
        epoch = self.asked.epoch
        have = {(participant, task) for participant, at, task, _ in done if at == epoch}
        self.broken = {
            task: "a service was broken when it was asked before" for _, at, task, bad in sorted(done) if at == epoch and bad
        }
        whole = [Cell(one.key, one.submission, task) for task in self.tasks for one in wanted]
        missing = [cell for cell in whole if (cell.participant, cell.task) not in have]
        kept = [cell for cell in missing if self.recovered(cell)]
        if kept:
            self.on_event(Event("kept", count=len(kept)))
        self.cells = [cell for cell in missing if cell not in kept]
        others = tuple(one.key for one in here if one not in wanted)
        self.summary = Summary(
            len(self.cells), absent=self.contest.absent, others=others, epoch=epoch, unit="task", submission="planner"
        )
        self.on_event(Event("planned", count=len(self.cells), done=len(whole) - len(self.cells)))

    def recovered(self, cell: Cell) -> bool:
        found = self.store.result(self.asked.epoch, cell.participant, cell.submission, cell.task)
        if found is None or found.outcome == "error":
            return False
        mine = (found.validator, found.participant, found.submission, found.epoch, found.task, found.task_digest)
        if mine != (self.contest.validator, cell.participant, cell.submission, self.asked.epoch, cell.task, self.digest(cell)):
            return False
        if found.outcome == "service-error":
            self.broken.setdefault(cell.task, found.message)
        return self.store.append(found)

    def digest(self, cell: Cell) -> str:
        return self.tasks[cell.task].digest

    def judge(self) -> None:
        """Judges them all, until there is none left or somebody wants the end."""
        if self.cells:
            asyncio.run(self.all())
        self.summary.outcomes = Counter(sorted(self.summary.outcomes.elements()))
        self.summary.errors.sort(key=lambda row: (row[0].task.encode(), row[0].participant.encode()))  # type: ignore[attr-defined]
        for task, why in self.broken.items():
            self.summary.remarks.append(f"The task {task} counts for nobody in epoch {self.asked.epoch}: {why}.")

    async def all(self) -> None:
        left = list(reversed(self.cells))
        going: set[asyncio.Task[None]] = set()
        while (left or going) and not self.stop.asked:
            while left and len(going) < self.options.jobs:
                going.add(asyncio.create_task(self.cell(left.pop())))
            done, going = await asyncio.wait(going, timeout=_TICK, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        if self.stop.asked:
            self.summary.stopped = True
            self.on_event(Event("stopping"))
            for one in going:
                one.cancel()
            if going:
                await asyncio.wait(going)

    async def cell(self, cell: Cell) -> None:
        """One task of one participant, tried again as long as something of ours breaks."""
        self.on_event(Event("began", cell))
        attempt = 1
        while True:
            found = await self.attempt(cell)
            if found.outcome != "error":
                try:
                    place = self.store.keep(found)
                    self.store.append(found)
                except (OSError, BadInput) as error:
                    found = found.model_copy(update={"outcome": "error", "message": plain(f"it could not be kept: {error}")})
                else:
                    self.summary.outcomes[found.outcome] += 1
                    self.on_event(Event("ended", cell, record=found, folder=place))
                    return
            if attempt == self.options.attempts or self.stop.asked:
                self.summary.errors.append((cell, found.message))
                self.on_event(Event("ended", cell, record=found))
                return
            wait = backoff(attempt, self.options.delay)
            self.on_event(Event("again", cell, record=found, seconds=wait))
            await asyncio.sleep(wait)
            attempt += 1
            self.on_event(Event("began", cell))

    async def attempt(self, cell: Cell) -> RunRecord:
        """What comes of asking once."""
        started = datetime.now(UTC)
        fields: dict[str, Any] = {"outcome": "error"}
        try:
            fields |= await self.fields(cell)
        except Trouble as error:
            fields |= {"outcome": "error", "message": plain(str(error))}
        except OSError as error:
            fields |= {"outcome": "error", "message": plain(f"the host: {error.strerror or error}")}
        return self.record(cell, started, fields)

    async def fields(self, cell: Cell) -> dict[str, Any]:
        task, planner = self.tasks[cell.task], self.contest.planners[cell.submission]
        about: dict[str, Any] = {"planner": f"{planner.name} {planner.version} ({planner.way})"}
        if cell.task in self.broken:
            return about | {"outcome": "service-error", "message": plain(self.broken[cell.task])}
        self.on_event(Event("phase", cell, phase="plan"))
        try:
            plan = await self.plan(task, planner)
        except NoPlan as error:
            return about | {"outcome": "invalid", "message": plain(str(error))}
        self.on_event(Event("phase", cell, phase="run"))
        done = await self.desk.carry_out(task, plan, name=secrets.token_hex(16))  # services do not learn whose plan it is
        if done.ran.broken:
            self.broken.setdefault(cell.task, done.ran.broken)
        return about | {"plan": plan.document(), "plan_digest": plan.digest} | fields_of(done, task, plan)

    async def plan(self, task: WorkflowTask, planner: Planner) -> Plan:
        """The participant's plan, checked; raises NoPlan, which is his, and Trouble, which is ours."""
        retries = self.contest.rules.max_retries_per_step
        rules, package = task.rules(retries), task.package_bytes(retries)
        most, asking = rules.bounds.bytes, self.contest.services.planners
        data = await planners.ask_planner(planner, task.id, package, most, asking, self.desk.sandbox)
        try:
            return parse_plan(data, rules)
        except BadInput as error:
            raise NoPlan(str(error)) from None

    def record(self, cell: Cell, started: datetime, fields: dict[str, Any]) -> RunRecord:
        task = self.tasks[cell.task]
        return RunRecord.model_validate(
            {
                "epoch": self.asked.epoch,
                "validator": self.contest.validator,
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
