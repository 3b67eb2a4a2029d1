"""The run of the judge by tests: every trial of every task, in processes of their own. SPEC 2.1.

Before the first trial every task is calibrated, see `calibration`: one that does not judge right here judges nobody.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.judge import tree
from assay.judge.cell_queue import Attempt, Report
from assay.judge.judge_run import JudgeRun
from assay.judge.kind_options import TaskOptions
from assay.judge.running import RunEvent, RunOptions, RunSummary, Tell, quiet
from assay.judge.sandbox import InfrastructureError
from assay.judge.stations import Crew, Errand, Heard, Needs, Parcel, StationSpec, unpack
from assay.judge.terminal import agent as agents
from assay.judge.terminal.competition import EveryTrial, TrialCell, TrialCompetition, check_same_tasks, open_contest
from assay.judge.terminal.pool import WorkerMessage, WorkerPool
from assay.judge.terminal.record import TrialRecord, TrialStore, not_kept, write_record
from assay.judge.terminal.trial import TrialResult
from assay.judge.terminal.worker import Job, WorkerSettings, record_of
from assay.records import Participant
from assay.scheme.reading import validate

__all__ = ["run"]

SPARE = 900.0
"""Seconds that a trial may take beyond all of its task's own bounds, before its worker is taken for lost."""
_TICK = 0.2
"""Seconds between two looks at whether somebody wants the end of a calibration."""


def run(competition: Path, validator: str, options: RunOptions | None = None, on_event: Tell = quiet) -> RunSummary:
    """Judges what is missing; raises BadInput, RunBusy, and InfrastructureError where nothing can be judged at all."""
    return _TrialsRun(competition, validator, options, on_event).carry_out()


class _TrialsRun(JudgeRun[TrialCell, TrialRecord]):
    def open(self) -> TrialCompetition:
        own = self.own = self.options.own or TaskOptions()
        own.check()
        self.sandbox = own.open_sandbox()
        self.contest = open_contest(
            self.competition, self.validator, tasks=own.tasks, participants=self.options.participants, only=own.only
        )
        own.check_boxes(self.contest.rules.fresh_boxes, self.competition / "scheme.toml")
        self.store = TrialStore(self.competition, self.validator)
        self.here, self.summary.absent = self.contest.here, self.contest.absent
        self.jobs: dict[TrialCell, Job] = {}
        """The job that runs, or ended last, of each cell that has no evidence yet."""
        self.wrong: dict[str, str] = {}
        """Tasks that do not judge right here, and why."""
        self.unsolved: list[str] = []
        """Tasks without a reference solution."""
        self._numbers = itertools.count()
        return self.contest

    def lock(self) -> AbstractContextManager[int]:
        return self.store.lock()

    def clear(self) -> None:
        try:
            self.store.clean()
            self.store.repair()
        except OSError as error:
            raise InfrastructureError(
                f"what an earlier run left cannot be cleared: {error.strerror}", file=error.filename
            ) from error
        self.sandbox.sweep()

    def check(self, wanted: Sequence[Participant], done: frozenset[tuple[object, ...]]) -> None:
        tasks, model = self.contest.tasks, self.own.model is not None
        for participant in wanted:
            agents.check_agent(self.contest.agents[participant.submission], tasks.values(), self.own.env, model=model)
        check_same_tasks(self.contest, self.store.root, done)

    def cells(self, wanted: Sequence[Participant]) -> EveryTrial:
        return EveryTrial(wanted, tuple(self.contest.tasks), self.contest.rules.trials)

    def recover(self, missing: Iterable[TrialCell]) -> list[tuple[object, ...]]:
        return [cell.key for cell in missing if self._recovered(cell)]

    def _recovered(self, cell: TrialCell) -> bool:
        kept = self.store.result(cell.participant, cell.submission, cell.task, cell.trial)
        recovered = (
            kept is not None
            and kept.outcome != "error"
            and kept.epoch >= self.oldest
            and (kept.validator, kept.submission, kept.task, kept.trial) == (self.validator, *cell.key)
            and kept.digests.task == self.contest.tasks[cell.task].digest
            and self.store.append(kept)
        )
        if recovered and kept is not None:
            self.chose(cell.key, kept.outcome)
        return recovered

    def workers(self, cells: Collection[TrialCell]) -> _TrialPool:
        return _TrialPool(self, min(self.options.jobs, len(cells)))

    @property
    def settings(self) -> WorkerSettings:
        """The settings that all workers share."""
        own = self.own
        return WorkerSettings(
            own.sandbox,
            self.contest.rules.agent_timeout,
            own.model,
            dict(own.env),
            engine=own.engine,
            runtime=own.runtime,
            times=own.calibrate,
            reuse=own.reuse,
            keep_work=self.contest.scheme.work_bytes,
        )

    def station(self) -> StationSpec:
        return StationSpec("assay.judge.terminal.station:TrialStation", self.settings, asks=False)

    def errand(self, attempt: Attempt[TrialCell]) -> Errand:
        cell = attempt.cell
        agent = self.contest.agents[cell.submission]
        parcels = {} if agent.folder is None else {"agent": Parcel(agent.digest, agent.folder)}
        return self._errand(self.job(attempt), cell.task, self.bound(cell.task), parcels)

    def _errand(self, job: Job, name: str, seconds: float, parcels: dict[str, Parcel]) -> Errand:
        task = self.contest.tasks[name]
        environment = task.settings.environment
        needs = Needs(environment.cpus, task.memory, environment.gpus, sandbox=True)
        return Errand(job, seconds, needs, {"task": Parcel(task.digest, task.folder)} | parcels)

    def bound(self, name: str) -> float:
        """Seconds after which a trial of a task is taken for lost."""
        settings = self.contest.tasks[name].settings
        return settings.environment.build_timeout_sec + settings.agent.timeout_sec + settings.verifier.timeout_sec + SPARE

    def calibration_bound(self, name: str) -> float:
        """The same of its calibration."""
        settings = self.contest.tasks[name].settings
        once = settings.agent.timeout_sec + settings.verifier.timeout_sec
        return settings.environment.build_timeout_sec + 2 * self.own.calibrate * once + SPARE

    def prepare(self, cells: Iterable[TrialCell], crew: Crew) -> None:
        """Calibrate each task on one node. The others do it for themselves, before their first trial of the task."""
        names = list(dict.fromkeys(cell.task for cell in cells))
        waiting, going = deque(names), dict[int, str]()
        self.tell(RunEvent("calibrating", count=len(names)))
        while (waiting or going) and not self.stop.asked:
            while waiting and crew.idle():
                name = waiting.popleft()
                job = self.calibration(name)
                going[-1 - job.number] = name  # trials count from 1 up
                crew.send(-1 - job.number, self._errand(job, name, self.calibration_bound(name), {}))
            for heard in crew.hear(_TICK):
                name = going.pop(heard.number)
                if not heard.trouble:
                    self.calibrated(name, heard.reply["calibration"])

    def calibrated(self, name: str, finding: dict[str, Any]) -> None:
        """Note whether a task judges right; what trouble kept from being found out, its trials try again."""
        if finding["why"] and finding["sure"]:
            self.wrong[name] = finding["why"]
        if not finding["solution"]:
            self.unsolved.append(name)
        self.tell(RunEvent("calibrated", phase=name, why=finding["why"], hint=finding["hint"], done=finding["known"]))

    def report(self, attempt: Attempt[TrialCell], heard: Heard) -> Report[TrialCell, TrialRecord]:
        if heard.trouble:
            return Report(attempt.cell, self.died(attempt.cell, heard.trouble), final=heard.final)
        record, folder = validate(TrialRecord, heard.reply["record"]), Path(self.jobs[attempt.cell].folder)
        unpack(heard.files, folder)
        if record.outcome != "error":
            write_record(folder, record)
        return Report(attempt.cell, record, final=heard.reply["final"])

    def failed(self, cell: TrialCell, why: str) -> TrialRecord:
        return self.died(cell, why)

    def job(self, attempt: Attempt[TrialCell]) -> Job:
        """The job of a trial, in a new folder."""
        cell = attempt.cell
        task, agent = self.contest.tasks[cell.task], self.contest.agents[cell.submission]
        job = self.jobs[cell] = Job(
            number=next(self._numbers),
            validator=self.validator,
            participant=cell.participant,
            submission=cell.submission,
            task=str(task.folder),
            task_id=task.id,
            task_digest=task.digest,
            trial=cell.trial,
            agent=agent.name if agent.folder is None else str(agent.folder.absolute()),
            folder=str(self.store.partial().absolute()),
            epoch=self.summary.epoch,
            attempt=attempt.number,
            earlier=attempt.earlier,
        )
        return job

    def calibration(self, name: str) -> Job:
        """The job that finds out whether a task judges right here."""
        task, folder = self.contest.tasks[name], str(self.store.partial().absolute())
        return Job(next(self._numbers), self.validator, "", "", str(task.folder), name, task.digest, 0, "", folder,
                   self.summary.epoch, calibrate=True)  # fmt: skip

    def refused(self, attempt: Attempt[TrialCell]) -> TrialRecord | None:
        why = self.wrong.get(attempt.cell.task)
        if why is None:
            return None
        agent, task = self.contest.agents[attempt.cell.submission], self.contest.tasks[attempt.cell.task]
        names = (agent.name, agent.version, task.mode)
        return record_of(self.job(attempt), names, self.own.sandbox, TrialResult.failed(why))

    def died(self, cell: TrialCell, how: str) -> TrialRecord:
        """The error of a trial whose worker died."""
        names = ("?", "?", self.contest.tasks[cell.task].mode)
        return record_of(self.jobs[cell], names, self.own.sandbox, TrialResult.failed(how))

    def keep(self, cell: TrialCell, result: TrialRecord) -> Path:
        place = self.store.keep(Path(self.jobs[cell].folder), result)
        self.store.append(result)
        del self.jobs[cell]
        return place

    def not_kept(self, cell: TrialCell, result: TrialRecord, why: str) -> TrialRecord:
        return not_kept(result, why)

    def discard(self, cell: TrialCell) -> None:
        with suppress(OSError, tree.TreeError):
            tree.remove(Path(self.jobs[cell].folder))

    def keep_error(self, cell: TrialCell, result: TrialRecord) -> Path | None:
        with suppress(OSError, BadInput, tree.TreeError):
            partial = Path(self.jobs[cell].folder)
            write_record(partial, result)
            return self.store.keep(partial, result)
        return None

    def tidy(self) -> None:
        with suppress(OSError, tree.TreeError):
            self.store.clean()
            if (kept := self.contest.scheme.evidence) is not None and kept.epochs is not None:
                current = {participant.submission for participant in self.contest.participants}
                self.store.drop_work(self.summary.epoch - kept.epochs, current)
        with suppress(InfrastructureError):
            self.sandbox.sweep()

    def remarks(self) -> Iterator[str]:
        if self.wrong:
            names = ", ".join(sorted(self.wrong, key=str.encode))
            yield f"Judged nobody, because they do not judge right here: {names}. assay tasks check says what is wrong."
        if self.unsolved:
            names = ", ".join(sorted(self.unsolved, key=str.encode))
            yield f"Without a reference solution, so that only doing nothing was tried: {names}."


class _TrialPool:
    """The worker processes of a run, as a `CellPool`."""

    def __init__(self, run: _TrialsRun, count: int) -> None:
        self._run = run
        self._workers = WorkerPool(run.settings, count, run.store.partial(), run.lock_number, cores=_cores(count, run.contest))
        self._going: dict[int, TrialCell] = {}

    def start(self, cells: Collection[TrialCell]) -> None:
        """Find out which tasks judge right here. If trouble prevents this for a task, its trials try again."""
        run, names = self._run, list(dict.fromkeys(cell.task for cell in cells))
        waiting, going = deque(names), dict[int, str]()
        run.tell(RunEvent("calibrating", count=len(names)))
        while (waiting or going) and not run.stop.asked:
            while waiting and (worker := self._workers.idle()) is not None:
                name = waiting.popleft()
                job = run.calibration(name)
                going[job.number] = name
                self._workers.give(worker, job, run.calibration_bound(name))
            for message in self._workers.listen(_TICK):
                if message.job is None or message.job.number not in going or (message.line and "calibration" not in message.line):
                    continue
                name = going.pop(message.job.number)
                if message.line is not None:
                    run.calibrated(name, message.line["calibration"])

    def idle(self) -> bool:
        return self._workers.idle() is not None

    def begin(self, attempt: Attempt[TrialCell]) -> None:
        job = self._run.job(attempt)
        self._going[job.number] = attempt.cell
        worker = self._workers.idle()
        assert worker is not None  # the run asked before
        self._workers.give(worker, job, self._run.bound(attempt.cell.task))

    def listen(self, seconds: float) -> Iterator[Report[TrialCell, TrialRecord]]:
        for message in self._workers.listen(seconds):
            report = self._heard(message)
            if report is not None:
                yield report

    def _heard(self, message: WorkerMessage) -> Report[TrialCell, TrialRecord] | None:
        cell = None if message.job is None else self._going.get(message.job.number)
        if cell is None or message.job is None:
            return None
        if message.line is not None and "record" not in message.line:
            if "phase" in message.line:
                self._run.tell(RunEvent("phase", cell, phase=message.line["phase"]))
            return None
        del self._going[message.job.number]
        if message.line is None:
            return Report(cell, self._run.died(cell, message.death))
        return Report(cell, validate(TrialRecord, message.line["record"]), final=message.line["final"])

    def close(self, *, now: bool) -> None:
        self._workers.close(now=now)


def _cores(judges: int, contest: TrialCompetition) -> Collection[int]:
    """The cores that so many judges keep to: ours, if there is one for each, and no task may use more than one; else none.

    A trial is a dozen short-lived processes one after the other. The kernel would move each to the core that is idle for that
    moment, where nothing is in the cache yet and the other judge goes on next; with a core for each there is none to win.
    """
    ours = os.sched_getaffinity(0)
    single = all(task.settings.environment.cpus <= 1 for task in contest.tasks.values())
    return sorted(ours) if single and len(ours) == judges else ()
