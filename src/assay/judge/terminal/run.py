"""A run: every trial without evidence is judged, by several workers, until there is none left, or somebody stops it. SPEC 2.1.

- An error is tried again after 2, 8, 32 … seconds, a bounded number of times, and is then left missing. It leaves no evidence.
- What is done is on the disk before it is counted; a run that is stopped or killed goes on where it was.
- Before the first trial every task is calibrated, see `calibration`; one that does not judge right here judges nobody.
- One run of a validator at a time; runs of different validators do not know of each other.
"""

from __future__ import annotations

import heapq
import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from assay.errors import BadInput
from assay.judge import entries, tree
from assay.judge.running import Event, Options, Stop, Summary, backoff, stopping
from assay.judge.sandbox import Sandbox, Trouble, choose
from assay.judge.terminal import agent as agents
from assay.judge.terminal.competition import Cell, Contest, Done, check_same_tasks, every_cell, missing, open_contest, written
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


def run(
    competition: Path, validator: str, options: Options | None = None, on_event: Callable[[Event], None] = lambda _event: None
) -> Summary:
    """Judges what is missing; raises BadInput, Busy, and Trouble where nothing can be judged at all.

    Ctrl-C and SIGTERM end it cleanly, if it runs in the main thread: the summary then says `stopped`.
    """
    options = options or Options()
    options.check()
    sandbox = choose(options.sandbox, engine=options.engine, runtime=options.runtime, reuse=options.reuse)
    contest = open_contest(competition, validator, tasks=options.tasks, participants=options.participants, only=options.only)
    options.check_boxes(contest.rules.fresh_boxes, competition / "scheme.toml")
    store = TrialStore(competition, validator)
    with store.lock() as lock, stopping() as stop:
        try:
            store.clean()
            store.repair()
        except OSError as error:
            raise Trouble(f"what an earlier run left cannot be cleared: {error.strerror}", file=error.filename) from error
        sandbox.sweep()
        found = written(contest)
        epoch, here = found.of(options.epoch), contest.here
        wanted = here if options.everybody else entries.drawn(contest, here, found.first, epoch)
        for one in wanted:
            agents.check_agent(
                contest.agents[one.submission], contest.tasks.values(), options.env, model=options.model is not None
            )
        check_same_tasks(contest, store.root, found.done)
        done = found.done | _recovered(contest, wanted, store, found.done, on_event)
        cells = missing(wanted, list(contest.tasks), contest.rules.trials, done)
        whole = sum(1 for _ in every_cell(wanted, list(contest.tasks), contest.rules.trials))
        on_event(Event("planned", count=len(cells), done=whole - len(cells)))
        others = tuple(one.key for one in here if one not in wanted)
        summary = Summary(len(cells), absent=contest.absent, others=others, epoch=epoch)
        going = _Run(contest, store, options, sandbox, epoch, on_event, stop, summary)
        if cells:
            going.judge(cells, lock)
        return going.summary


def _recovered(
    contest: Contest, wanted: Sequence[Participant], store: TrialStore, done: frozenset[Done], on_event: Callable[[Event], None]
) -> set[Done]:
    """Writes the evidence of trials that were kept just before an earlier run ended."""
    found: set[Done] = set()
    for cell in missing(wanted, list(contest.tasks), contest.rules.trials, done):
        kept = store.result(cell.participant, cell.submission, cell.task, cell.trial)
        same = (
            kept is not None
            and kept.outcome != "error"
            and (kept.validator, kept.submission, kept.task, kept.trial) == (contest.validator, *cell.key)
            and kept.digests.task == contest.tasks[cell.task].digest
        )
        if kept is not None and same and store.append(kept):
            found.add(cell.key)
    if found:
        on_event(Event("kept", count=len(found)))
    return found


def _cores(judges: int, contest: Contest) -> Collection[int]:
    """The cores that so many judges keep to: ours, if there is one for each, and no task may use more than one; else none.

    A trial is a dozen short-lived processes one after the other. The kernel would move each to the core that is idle for that
    moment, where nothing is in the cache yet and the other judge goes on next; with a core for each there is none to win.
    """
    ours = os.sched_getaffinity(0)
    single = all(task.settings.environment.cpus <= 1 for task in contest.tasks.values())
    return sorted(ours) if single and len(ours) == judges else ()


@dataclass
class _Run:
    """The loop: gives jobs out, keeps what comes back."""

    contest: Contest
    store: TrialStore
    options: Options
    sandbox: Sandbox
    epoch: int
    on_event: Callable[[Event], None]
    stop: Stop
    summary: Summary
    numbers: Iterator[int] = field(default_factory=itertools.count)
    going: dict[int, Cell] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    """Tasks that do not judge right here, and why."""

    def judge(self, cells: list[Cell], lock: int) -> None:
        ready = deque((cell, 1, ()) for cell in cells)
        self.ready: deque[tuple[Cell, int, tuple[str, ...]]] = deque(ready)
        self.later: list[tuple[float, int, tuple[Cell, int, tuple[str, ...]]]] = []
        settings = WorkerSettings(
            self.options.sandbox,
            self.contest.rules.agent_timeout,
            self.options.model,
            dict(self.options.env),
            engine=self.options.engine,
            runtime=self.options.runtime,
            times=self.options.calibrate,
            reuse=self.options.reuse,
        )
        count = min(self.options.jobs, len(cells))
        crew = WorkerPool(settings, count, self.store.partial(), lock, cores=_cores(count, self.contest))
        try:
            self.calibrate(crew, list(dict.fromkeys(cell.task for cell in cells)))
            while (self.ready or self.later or self.going) and not self.stop.asked:
                self.give_out(crew)
                for said in crew.listen(_TICK):
                    if not self.stop.asked:
                        self.give_out(crew)  # a judge goes on while what it found is flushed to the disk
                    self.heard(said)
        finally:
            if self.stop.asked:
                self.summary.stopped = True
                self.on_event(Event("stopping"))
            crew.close(now=self.stop.asked > 1)
            with suppress(OSError, tree.TreeError):
                self.store.clean()
            with suppress(Trouble):
                self.sandbox.sweep()

    def calibrate(self, crew: WorkerPool, names: list[str]) -> None:
        """Finds out which tasks judge right here. What trouble kept from being found out, a task's trials try again."""
        waiting, going = deque(names), dict[int, str]()
        self.on_event(Event("calibrating", count=len(names)))
        unsolved = []
        while (waiting or going) and not self.stop.asked:
            while waiting and (worker := crew.idle()) is not None:
                name = waiting.popleft()
                task, folder = self.contest.tasks[name], self.store.partial()
                job = Job(next(self.numbers), self.contest.validator, "", "", str(task.folder), name, task.digest, 0, "",
                          str(folder.absolute()), self.epoch, calibrate=True)  # fmt: skip
                going[job.number] = name
                settings = task.settings
                once = settings.agent.timeout_sec + settings.verifier.timeout_sec
                crew.give(worker, job, settings.environment.build_timeout_sec + 2 * self.options.calibrate * once + SPARE)
            for said in crew.listen(_TICK):
                if said.job is None or said.job.number not in going or (said.line and "calibration" not in said.line):
                    continue
                name = going.pop(said.job.number)
                if said.line is None:
                    continue
                found = said.line["calibration"]
                if found["why"] and found["sure"]:
                    self.wrong[name] = found["why"]
                if not found["solution"]:
                    unsolved.append(name)
                self.on_event(Event("calibrated", phase=name, why=found["why"], hint=found["hint"], done=found["known"]))
        if self.wrong:
            names_of = ", ".join(sorted(self.wrong, key=str.encode))
            self.summary.remarks.append(
                f"Judged nobody, because they do not judge right here: {names_of}. assay tasks check says what is wrong."
            )
        if unsolved:
            names_of = ", ".join(sorted(unsolved, key=str.encode))
            self.summary.remarks.append(f"Without a reference solution, so that only doing nothing was tried: {names_of}.")

    def give_out(self, crew: WorkerPool) -> None:
        now = time.monotonic()
        while self.later and self.later[0][0] <= now:
            self.ready.append(heapq.heappop(self.later)[2])
        while self.ready and (worker := crew.idle()) is not None:
            cell, attempt, earlier = self.ready.popleft()
            task, agent = self.contest.tasks[cell.task], self.contest.agents[cell.submission]
            number = next(self.numbers)
            job = Job(
                number=number,
                validator=self.contest.validator,
                participant=cell.participant,
                submission=cell.submission,
                task=str(task.folder),
                task_id=task.id,
                task_digest=task.digest,
                trial=cell.trial,
                agent=agent.name if agent.folder is None else str(agent.folder.absolute()),
                folder=str(self.store.partial().absolute()),
                epoch=self.epoch,
                attempt=attempt,
                earlier=earlier,
            )
            self.going[number] = cell
            if (why := self.wrong.get(cell.task)) is not None:
                names = (agent.name, agent.version, task.mode)
                self.ended(cell, job, record_of(job, names, self.options.sandbox, TrialResult.failed(why)), final=True)
                continue
            settings = task.settings
            bound = settings.environment.build_timeout_sec + settings.agent.timeout_sec + settings.verifier.timeout_sec
            crew.give(worker, job, bound + SPARE)
            self.on_event(Event("began", cell))

    def heard(self, said: WorkerMessage) -> None:
        if said.job is None:
            return
        cell = self.going.get(said.job.number)
        if cell is None:
            return
        if said.line is None:
            names = ("?", "?", self.contest.tasks[cell.task].mode)
            self.ended(
                cell, said.job, record_of(said.job, names, self.options.sandbox, TrialResult.failed(said.death)), final=False
            )
        elif "phase" in said.line:
            self.on_event(Event("phase", cell, phase=said.line["phase"]))
        elif "record" in said.line:
            self.ended(cell, said.job, validate(TrialRecord, said.line["record"]), final=said.line["final"])

    def ended(self, cell: Cell, job: Job, found: TrialRecord, *, final: bool) -> None:
        """Keeps what came of a trial, or puts it off."""
        del self.going[job.number]
        partial = Path(job.folder)
        if found.outcome != "error":
            try:
                place = self.store.keep(partial, found)
                self.store.append(found)
                self.summary.outcomes[found.outcome] += 1
                self.on_event(Event("ended", cell, record=found, folder=place))
                return
            except (OSError, BadInput, tree.TreeError) as error:
                found = not_kept(found, str(error))
        if not final and job.attempt < self.options.attempts:
            wait = backoff(job.attempt, self.options.delay)
            again = (cell, job.attempt + 1, (*job.earlier, found.message))
            heapq.heappush(self.later, (time.monotonic() + wait, job.number, again))
            with suppress(OSError, tree.TreeError):
                tree.remove(partial)
            self.on_event(Event("again", cell, record=found, seconds=wait))
            return
        self.summary.errors.append((cell, found.message))
        place_or_none: Path | None = None
        with suppress(OSError, BadInput, tree.TreeError):
            write_record(partial, found)
            place_or_none = self.store.keep(partial, found)
        self.on_event(Event("ended", cell, record=found, folder=place_or_none))
