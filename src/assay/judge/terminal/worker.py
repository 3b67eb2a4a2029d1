"""The worker process of a run: carries out trials one after the other, and can be stopped at any time.

It reads lines of JSON: first the settings, then one job after the other. It writes lines: `ready`, then for each job its phases
and its record. When the pipe closes, or on SIGTERM, it gives up the trial in progress and removes everything of it.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import signal
import sys
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from assay.errors import AssayError, BadInput
from assay.judge import tree
from assay.judge.sandbox import Image, InfrastructureError, Sandbox, choose
from assay.judge.service import ModelAccess
from assay.judge.terminal import agent as agents
from assay.judge.terminal import calibration
from assay.judge.terminal import record as records
from assay.judge.terminal.calibration import Calibration, Uncalibrated
from assay.judge.terminal.record import AgentTimeout, TrialRecord
from assay.judge.terminal.task_settings import Mode
from assay.judge.terminal.tasks import BOUNDS, Task, read_task
from assay.judge.terminal.trial import KEEPING, Keeping, TrialPhase, TrialResult, TrialSetup, image_of, run_trial

__all__ = ["Job", "TaskReader", "WorkerSettings", "main", "record_of"]

_MOST_CACHED = 200
"""Tasks that are kept in memory."""


@dataclass(frozen=True)
class WorkerSettings:
    """The settings that all trials of a worker share, in a form that JSON can hold."""

    sandbox: str
    agent_timeout: AgentTimeout
    model: ModelAccess | None = None
    env: dict[str, str] = field(default_factory=dict)
    keeping: Keeping = KEEPING
    engine: str | None = None
    runtime: str | None = None
    times: int = 1
    """The number of times that a calibration tries the solution, and doing nothing."""
    reuse: bool = False
    keep_work: int = 0
    """As in `TrialSetup`."""

    def to_json(self) -> bytes:
        """The settings as one line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of_json(cls, line: bytes) -> WorkerSettings:
        """The settings in a line."""
        fields = json.loads(line)
        if (model := fields["model"]) is not None:
            fields["model"] = ModelAccess(**model | {name: tuple(model[name]) for name in ("endpoints", "names")})
        return cls(**fields | {"keeping": Keeping(**fields["keeping"])})


@dataclass(frozen=True)
class Job:
    """One trial to be carried out, in an existing empty folder."""

    number: int
    validator: str
    participant: str
    submission: str
    task: str
    """The task's folder."""
    task_id: str
    task_digest: str
    trial: int
    agent: str
    """The agent's folder, or `oracle` or `noop`."""
    folder: str
    epoch: int
    attempt: int = 1
    earlier: tuple[str, ...] = ()
    flush: bool = True
    """Whether the record is written to the disk here, before anybody hears of it."""
    calibrate: bool = False
    """Whether the task is only calibrated, without a trial of an agent."""

    def to_json(self) -> bytes:
        """The job as one line."""
        return json.dumps(vars(self)).encode() + b"\n"

    @classmethod
    def of_json(cls, line: bytes) -> Job:
        """The job in a line."""
        fields = json.loads(line)
        return cls(**fields | {"earlier": tuple(fields["earlier"])})


class TaskReader:
    """Reads tasks, and reads a task again only if its folder has changed."""

    def __init__(self) -> None:
        self._read: dict[Path, Task] = {}

    def read(self, folder: Path) -> Task:
        """The task in a folder, as it is now. Raises BadInput."""
        task = self._read.get(folder)
        if task is None or _digest(folder) != task.digest:
            if len(self._read) >= _MOST_CACHED:
                self._read.clear()
            task = self._read[folder] = read_task(folder)
        return task


def _digest(folder: Path) -> str:
    """The digest of a task's folder; empty if it cannot be read, which `read_task` then explains."""
    try:
        return tree.digest(folder, bounds=BOUNDS)
    except (tree.TreeError, OSError):
        return ""


class WorkerStopped(BaseException):
    """The worker must end: the run is over, or wants to stop."""


class _TrialWorker:
    def __init__(self, settings: WorkerSettings, out: BinaryIO) -> None:
        self.out = out
        self.sandbox: Sandbox = choose(settings.sandbox, engine=settings.engine, runtime=settings.runtime, reuse=settings.reuse)
        self.setup = TrialSetup(
            self.sandbox,
            settings.agent_timeout,
            settings.model,
            env=settings.env,
            keeping=settings.keeping,
            keep_work=settings.keep_work,
        )
        self.times = settings.times
        self.images: dict[str, Image] = {}
        self.calibrated: dict[tuple[str, str], tuple[Calibration, bool]] = {}
        self.tasks = TaskReader()

    def say(self, **what: Any) -> None:
        try:
            self.out.write(json.dumps(what).encode() + b"\n")
            self.out.flush()
        except BrokenPipeError:  # the run is gone; a trial in progress must not take that for an infrastructure error of its own
            raise WorkerStopped from None

    def say_phase(self, job: Job, phase: TrialPhase) -> None:
        if phase not in ("set-up", "done"):  # the run knows these two: it gave the job out, and it gets the record
            self.say(job=job.number, phase=phase)

    def carry_out(self, job: Job) -> None:
        """Carries out one job. `final`: the error would be the same in another attempt."""
        if job.calibrate:
            self.calibrate(job)
            return
        final = False
        try:
            result, names = self.run(job)
        except Uncalibrated as error:
            result, names, final = TrialResult.failed(error.what), ("?", "?", "separate"), True
        except BadInput as error:
            result, names, final = TrialResult.failed(str(error)), ("?", "?", "separate"), True
        record = record_of(job, names, self.sandbox.name, result)
        if record.outcome != "error" and job.flush:
            try:
                records.write_record(Path(job.folder), record)  # here and not in the run, so that no other worker waits for it
            except BadInput as error:
                record = records.not_kept(record, str(error))
        self.say(job=job.number, record=record.model_dump(mode="json", by_alias=True, exclude_none=True), final=final)

    def calibrate(self, job: Job) -> None:
        """Calibrates a task and reports it. `why` without `sure`: an infrastructure error, so the task may be all right."""
        report: dict[str, Any] = {"why": "", "hint": "", "sure": True, "known": False, "solution": True}
        try:
            task = self.tasks.read(Path(job.task))
            calibrated, report["known"] = self.calibration(task, self.image(task))
            report["solution"] = calibrated.solution
        except (BadInput, InfrastructureError) as error:
            report |= {"hint": error.hint, "sure": isinstance(error, BadInput)}
            error.hint = ""
            report["why"] = error.what if isinstance(error, Uncalibrated) else str(error)
        self.say(job=job.number, calibration=report)

    def calibration(self, task: Task, image: Image) -> tuple[Calibration, bool]:
        """The task's calibration, needed before it judges anyone. Raises Uncalibrated and InfrastructureError."""
        key = task.digest, image.digest
        if key not in self.calibrated:
            self.calibrated[key] = calibration.calibrate(self.sandbox, task, image, times=self.times, keeping=self.setup.keeping)
        return self.calibrated[key]

    def run(self, job: Job) -> tuple[TrialResult, tuple[str, str, Mode]]:
        """The result of a job's trial; the agent's name and version, and the task's mode. Raises BadInput and Uncalibrated."""
        task = self.tasks.read(Path(job.task))
        agent = agents.BUILT_IN[job.agent] if job.agent in agents.BUILT_IN else agents.load_agent(Path(job.agent))
        if task.digest != job.task_digest or agent.digest != job.submission:
            raise BadInput("the task or the agent changed during the run", file=job.task, hint="start the run again")
        try:
            image = self.image(task)
            self.calibration(task, image)
        except InfrastructureError as error:  # before the trial began
            return TrialResult.failed(str(error)), (agent.name, agent.version, task.mode)
        result = run_trial(self.setup, task, agent, image, Path(job.folder), say=lambda phase: self.say_phase(job, phase))
        if result.verdict.outcome == "error":  # the image may be gone: the next attempt makes it again
            self.images.pop(task.digest, None)
        return result, (agent.name, agent.version, task.mode)

    def image(self, task: Task) -> Image:
        """The image that boxes of this task start from. Raises InfrastructureError and BadInput."""
        if task.digest not in self.images:
            self.images[task.digest] = image_of(self.sandbox, task)
        return self.images[task.digest]


def record_of(job: Job, names: tuple[str, str, Mode], sandbox: str, tried: TrialResult) -> TrialRecord:
    """The record of a trial. names: the agent's name and version, and the task's mode."""
    name, version, mode = names
    return TrialRecord(
        validator=job.validator,
        participant=job.participant,
        submission=job.submission,
        task=job.task_id,
        trial=job.trial,
        attempt=job.attempt,
        outcome=tried.verdict.outcome,
        reason=tried.verdict.reason,
        message=records.message(tried.message),
        mode=mode,
        sandbox=sandbox,
        agent_name=name,
        agent_version=version,
        agent=None if tried.agent is None else records.command(tried.agent),
        tests=None if tried.tests is None else records.command(tried.tests),
        reward=tried.reward,
        digests=records.Digests(
            task=job.task_digest, agent=job.submission, image=tried.image, work=tried.work, kept_work=tried.kept_work
        ),
        model=None if tried.model is None else records.ModelUse(**tried.model.document()),
        notes=tuple(map(records.message, tried.notes)),
        earlier=tuple(map(records.message, job.earlier)),
        started_at=tried.started_at,
        finished_at=tried.finished_at,
        epoch=job.epoch,
    )


def _lines(source: BinaryIO, into: queue.SimpleQueue[bytes | None], busy: threading.Event) -> None:
    """Queues the lines that arrive. At the end of the input it stops the worker, even in the middle of a trial."""
    for line in source:
        into.put(line)
    into.put(None)
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


def _stop(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second signal must not stop the cleaning up
    raise WorkerStopped


def main() -> int:
    """The process: works until its input ends or it is told to stop; returns the exit code."""
    try:
        return _work()
    except WorkerStopped:
        return 0


def _work() -> int:
    os.set_inheritable(int(sys.argv[1]), False)  # the run's lock: this process holds it while it lives, its children do not
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what prints to stdout by mistake must not print into the pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        signal.signal(signal.SIGTERM, _stop)
        jobs: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        busy = threading.Event()
        # Not sys.stdin: Python aborts without a message if it ends while a thread is reading sys.stdin.
        source = os.fdopen(os.dup(0), "rb")
        threading.Thread(target=_lines, args=(source, jobs, busy), daemon=True).start()
        first = jobs.get()
        if first is None:
            return 0
        busy.set()
        worker = _TrialWorker(WorkerSettings.of_json(first), out)
        gc.freeze()  # what exists now stays, so later collections need not look at it
        worker.say(ready=True)
        while (line := jobs.get()) is not None:
            worker.carry_out(Job.of_json(line))
    except AssayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
