"""One judge at work: a process that carries out trials one after the other, and that can be stopped at any time.

Lines of JSON come in: first the settings, then one job after the other. Lines go out: `ready`, then for each job its phases and
its record. When the pipe closes or SIGTERM comes, the trial that is going on is given up, and nothing of it is left.
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
from assay.judge.sandbox import Image, Sandbox, Trouble, choose
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

_HELD = 200
"""Tasks that are held at most."""


@dataclass(frozen=True)
class WorkerSettings:
    """What all of a worker's trials share; everything that JSON can say."""

    sandbox: str
    agent_timeout: AgentTimeout
    model: ModelAccess | None = None
    env: dict[str, str] = field(default_factory=dict)
    keeping: Keeping = KEEPING
    engine: str | None = None
    runtime: str | None = None
    times: int = 1
    """How often a task's calibration tries its solution, and doing nothing."""
    reuse: bool = False

    def to_json(self) -> bytes:
        """One line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of_json(cls, line: bytes) -> WorkerSettings:
        """The settings in a line."""
        found = json.loads(line)
        if (model := found["model"]) is not None:
            found["model"] = ModelAccess(**model | {name: tuple(model[name]) for name in ("endpoints", "names")})
        return cls(**found | {"keeping": Keeping(**found["keeping"])})


@dataclass(frozen=True)
class Job:
    """One trial to be carried out, in a folder that is there and empty."""

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
    """The agent's folder; or `oracle` or `noop`."""
    folder: str
    epoch: int
    attempt: int = 1
    earlier: tuple[str, ...] = ()
    calibrate: bool = False
    """Whether the task is only to be calibrated, with no trial of an agent."""

    def to_json(self) -> bytes:
        """One line."""
        return json.dumps(vars(self)).encode() + b"\n"

    @classmethod
    def of_json(cls, line: bytes) -> Job:
        """The job in a line."""
        found = json.loads(line)
        return cls(**found | {"earlier": tuple(found["earlier"])})


class TaskReader:
    """Tasks that were read before, and are not read again while their folders are the same."""

    def __init__(self) -> None:
        self._read: dict[Path, Task] = {}

    def read(self, folder: Path) -> Task:
        """The task in a folder, as it is now. Raises BadInput."""
        held = self._read.get(folder)
        if held is None or _digest(folder) != held.digest:
            if len(self._read) >= _HELD:
                self._read.clear()
            held = self._read[folder] = read_task(folder)
        return held


def _digest(folder: Path) -> str:
    """Of a task's folder; empty for what cannot be one, which `read_task` says more about."""
    try:
        return tree.digest(folder, bounds=BOUNDS)
    except (tree.TreeError, OSError):
        return ""


class WorkerStopped(BaseException):
    """The run is over."""


class _Worker:
    def __init__(self, settings: WorkerSettings, out: BinaryIO) -> None:
        self.out = out
        self.sandbox: Sandbox = choose(settings.sandbox, engine=settings.engine, runtime=settings.runtime, reuse=settings.reuse)
        self.judge = TrialSetup(self.sandbox, settings.agent_timeout, settings.model, env=settings.env, keeping=settings.keeping)
        self.times = settings.times
        self.images: dict[str, Image] = {}
        self.calibrated: dict[tuple[str, str], tuple[Calibration, bool]] = {}
        self.tasks = TaskReader()

    def say(self, **what: Any) -> None:
        try:
            self.out.write(json.dumps(what).encode() + b"\n")
            self.out.flush()
        except BrokenPipeError:  # nobody listens any more, which a trial that goes on must not take for its own trouble
            raise WorkerStopped from None

    def say_phase(self, job: Job, phase: TrialPhase) -> None:
        if phase not in ("set-up", "done"):  # which who gave the job out, and who gets the record, knows
            self.say(job=job.number, phase=phase)

    def carry_out(self, job: Job) -> None:
        """One trial; what cannot be judged at all is an error that trying again does not mend."""
        if job.calibrate:
            self.calibrate(job)
            return
        final = False
        try:
            tried, names = self.tried(job)
        except Uncalibrated as error:
            tried, names, final = TrialResult.failed(error.what), ("?", "?", "separate"), True
        except BadInput as error:
            tried, names, final = TrialResult.failed(str(error)), ("?", "?", "separate"), True
        found = record_of(job, names, self.sandbox.name, tried)
        if found.outcome != "error":
            try:
                records.write_record(Path(job.folder), found)  # by the judge, so that no other waits until it is on the disk
            except BadInput as error:
                found = records.not_kept(found, str(error))
        self.say(job=job.number, record=found.model_dump(mode="json", by_alias=True, exclude_none=True), final=final)

    def calibrate(self, job: Job) -> None:
        """Says how the task judges here. With `why` and not `sure`, trouble kept it from being found out."""
        said: dict[str, Any] = {"why": "", "hint": "", "sure": True, "known": False, "solution": True}
        try:
            task = self.tasks.read(Path(job.task))
            made, said["known"] = self.calibration(task, self.image(task))
            said["solution"] = made.solution
        except (BadInput, Trouble) as error:
            said |= {"hint": error.hint, "sure": isinstance(error, BadInput)}
            error.hint = ""
            said["why"] = error.what if isinstance(error, Uncalibrated) else str(error)
        self.say(job=job.number, calibration=said)

    def calibration(self, task: Task, image: Image) -> tuple[Calibration, bool]:
        """That this task judges right here, before it judges anybody. Raises Uncalibrated and Trouble."""
        key = task.digest, image.digest
        if key not in self.calibrated:
            self.calibrated[key] = calibration.calibrate(self.sandbox, task, image, times=self.times, keeping=self.judge.keeping)
        return self.calibrated[key]

    def tried(self, job: Job) -> tuple[TrialResult, tuple[str, str, Mode]]:
        task = self.tasks.read(Path(job.task))
        agent = agents.BUILT_IN[job.agent] if job.agent in agents.BUILT_IN else agents.load_agent(Path(job.agent))
        if task.digest != job.task_digest or agent.digest != job.submission:
            raise BadInput("the task or the agent changed while the run went on", file=job.task, hint="begin the run again")
        try:
            image = self.image(task)
            self.calibration(task, image)
        except Trouble as error:  # the trial did not even begin
            return TrialResult.failed(str(error)), (agent.name, agent.version, task.mode)
        tried = run_trial(self.judge, task, agent, image, Path(job.folder), say=lambda phase: self.say_phase(job, phase))
        if tried.verdict.outcome == "error":  # its image may be gone, and is asked for anew when the trial is tried again
            self.images.pop(task.digest, None)
        return tried, (agent.name, agent.version, task.mode)

    def image(self, task: Task) -> Image:
        """What boxes of this task start from. Raises Trouble and BadInput."""
        if task.digest not in self.images:
            self.images[task.digest] = image_of(self.sandbox, task)
        return self.images[task.digest]


def record_of(job: Job, names: tuple[str, str, Mode], sandbox: str, tried: TrialResult) -> TrialRecord:
    """What is kept of a trial. names: the agent's name and version, and the task's mode."""
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
        digests=records.Digests(task=job.task_digest, agent=job.submission, image=tried.image, work=tried.work),
        model=None if tried.model is None else records.ModelUse(**tried.model.document()),
        notes=tuple(map(records.message, tried.notes)),
        earlier=tuple(map(records.message, job.earlier)),
        started_at=tried.started_at,
        finished_at=tried.finished_at,
        epoch=job.epoch,
    )


def _lines(source: BinaryIO, into: queue.SimpleQueue[bytes | None], busy: threading.Event) -> None:
    """Passes on what comes in, so that its end is seen in the middle of a trial too."""
    for line in source:
        into.put(line)
    into.put(None)
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


def _stop(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough: what clears up must not be stopped as well
    raise WorkerStopped


def main() -> int:
    """The process: works until there is nothing more to come, or it is told to stop; returns its exit code."""
    try:
        return _work()
    except WorkerStopped:
        return 0


def _work() -> int:
    os.set_inheritable(int(sys.argv[1]), False)  # the run's lock: ours as long as we live, and nobody else's
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints by mistake does not print into the pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        signal.signal(signal.SIGTERM, _stop)
        jobs: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        busy = threading.Event()
        # A file of its own: Python ends with an abort where a thread is still reading sys.stdin, and nobody hears why it ended.
        source = os.fdopen(os.dup(0), "rb")
        threading.Thread(target=_lines, args=(source, jobs, busy), daemon=True).start()
        first = jobs.get()
        if first is None:
            return 0
        busy.set()
        worker = _Worker(WorkerSettings.of_json(first), out)
        gc.freeze()  # what is there now stays: nobody has to look through it again and again
        worker.say(ready=True)
        while (line := jobs.get()) is not None:
            worker.carry_out(Job.of_json(line))
    except AssayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
