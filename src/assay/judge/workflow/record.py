"""What a run of a plan leaves: every step with its attempts, and the counts of SPEC 2.2 that follow from them.

What is kept of one task that was asked of one participant: `assay.workflow-run/1`, closed, without floats. SPEC 2.2.

Where a validator's runs and evidence are kept, so that a crash at any moment loses nothing and counts nothing twice.

    workflows/<validator>/<epoch>/round.json                                  what was asked
    workflows/<validator>/<epoch>/<participant>@<digest12>/<task>.json        what came of it
    evidence/run-<validator>.jsonl                                            one line for each that is not an error

A record is on the disk before its line is written. A crash in between leaves a record without a line, which the next run writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.errors import BadInput
from assay.exact import canonical, text
from assay.folder import strict
from assay.folder.files import clear, decode, load, write_bytes
from assay.judge import run_files
from assay.judge.workflow.call import CallFailed
from assay.judge.workflow.limits import KEPT_ATTEMPTS, MESSAGE
from assay.judge.workflow.tasks import Round
from assay.records import Amount, Fraction, Workflow
from assay.scheme.fields import Epoch, Instant, Key, Section, Whole
from assay.scheme.reading import validate

AttemptOutcome = Literal["going", "answered", "denied", "broken", "lied", "timeout", "given-up"]
"""How an attempt ended. `given-up`: the run ended before it did."""
StepState = Literal["waiting", "going", "completed", "failed", "given-up"]
"""How a step ended. `waiting`: it never began, because something that it needs did not end well, or the run ended before."""
MomentKind = Literal["began", "again", "completed", "failed"]


class TimedOut(CallFailed):
    """An attempt took longer than the plan declared."""

    word = "timeout"


@dataclass
class StepAttempt:
    """One execution of a step. Times in nanoseconds since the run began, cost in nanos."""

    number: int
    began: int
    ended: int | None = None
    outcome: AttemptOutcome = "going"
    cost: int = 0
    message: str = ""


@dataclass
class StepRun:
    """A step of the plan, and what came of it."""

    id: str
    service: str
    action: str
    state: StepState = "waiting"
    attempts: list[StepAttempt] = field(default_factory=list)
    message: str = ""
    output_digest: str | None = None
    output_bytes: int = 0


@dataclass(frozen=True)
class Moment:
    """Something that happened to a step: `again`, an attempt that failed. Nanoseconds since the run began; spent in nanos."""

    kind: MomentKind
    step: StepRun
    nanoseconds: int
    spent: int


@dataclass(frozen=True)
class PlanRun:
    """How a plan ran."""

    steps: tuple[StepRun, ...]
    """In the order of the plan."""
    outputs: Mapping[str, Any]
    """Of the steps that were completed."""
    cost: int
    nanoseconds: int
    """From the beginning to the end of the last step, or to the stop."""
    stopped: Literal["", "budget", "latency"]
    """Which of the task's two bounds ended it."""
    broken: str
    """Which service is broken, and how; empty if none is."""

    @property
    def completed(self) -> int:
        """Steps that were done."""
        return sum(step.state == "completed" for step in self.steps)

    @property
    def retries(self) -> int:
        """Attempts beyond each step's first. SPEC 2.2."""
        return sum(max(0, len(step.attempts) - 1) for step in self.steps)

    @property
    def timeouts(self) -> int:
        """Executions that took longer than their step declared. SPEC 2.2."""
        return sum(attempt.outcome == "timeout" for step in self.steps for attempt in step.attempts)

    @property
    def hard_failures(self) -> int:
        """Steps that ended without an answer, their declared retries used up. SPEC 2.2."""
        return sum(step.state == "failed" for step in self.steps)


RECORD_BYTES = 64_000_000

Message = Annotated[str, Field(max_length=MESSAGE)]
DigestText = Annotated[str, Field(max_length=256)]


class AttemptRecord(Section):
    """One execution of a step: seconds since the run began, and what the service said it cost."""

    number: Annotated[int, Field(ge=1)]
    began: Amount
    ended: Amount
    outcome: Literal["answered", "denied", "broken", "lied", "timeout", "given-up"]
    cost: Amount = 0
    message: Message = ""


class StepRecord(Section):
    """A step of the plan, and how it ended."""

    id: Key
    service: Key
    action: Key
    state: Literal["waiting", "completed", "failed", "given-up"]
    attempts: Annotated[tuple[AttemptRecord, ...], Field(strict=False)] = ()
    """The last ones, if there were many."""
    message: Message = ""
    output_digest: DigestText | None = None
    output_bytes: Whole = 0


class RunRecord(Section):
    """What came of one task asked of one participant. An `error` is trouble of ours, and is no evidence."""

    schema_: Annotated[Literal["assay.workflow-run/1"], Field(alias="schema")] = "assay.workflow-run/1"
    epoch: Epoch
    validator: Key
    participant: Key
    submission: DigestText
    task: Key
    task_digest: DigestText
    package_digest: DigestText
    outcome: Literal["ran", "invalid", "service-error", "error"]
    message: Message = ""
    """Why the plan is invalid, which service is broken, or what the trouble was."""
    planner: Annotated[str, Field(max_length=600)] = ""
    """Name, version and way of what was submitted."""
    plan: dict[str, Any] | None = None
    plan_digest: DigestText | None = None
    steps: Annotated[tuple[StepRecord, ...], Field(strict=False)] = ()
    stopped: Literal["", "budget", "latency"] = ""
    quality: Fraction | None = None
    quality_how: dict[str, Any] = Field(default_factory=dict)
    steps_completed: Whole = 0
    steps_total: Whole = 0
    cost: Amount | None = None
    budget: Amount | None = None
    seconds: Amount | None = None
    max_seconds: Amount | None = None
    retries: Whole = 0
    declared_retries: Whole = 0
    timeouts: Whole = 0
    hard_failures: Whole = 0
    started_at: Instant
    finished_at: Instant
    assay: Annotated[str, Field(max_length=100)] = ""
    """The version that judged."""

    @property
    def reason(self) -> str:
        """What one line of progress says of it."""
        if self.outcome != "ran" or self.quality is None:
            return self.message
        stopped = f", out of {'money' if self.stopped == 'budget' else 'time'}" if self.stopped else ""
        return f"quality {text(self.quality)}, {self.steps_completed} of {self.steps_total} steps{stopped}"

    def evidence(self) -> Workflow | None:
        """The record of evidence; None for an error."""
        if self.outcome == "error":
            return None
        common: dict[str, Any] = {
            "kind": "workflow",
            "epoch": self.epoch,
            "validator": self.validator,
            "participant": self.participant,
            "submission": self.submission,
            "observed_at": self.finished_at,
            "task": self.task,
            "outcome": self.outcome,
        }
        if self.outcome != "ran":
            return Workflow.model_validate(common)
        counts = ("steps_completed", "steps_total", "retries", "declared_retries", "timeouts", "hard_failures")
        amounts = ("quality", "cost", "budget", "seconds", "max_seconds")
        ran = {name: getattr(self, name) for name in counts} | {name: text(getattr(self, name) or 0) for name in amounts}
        return Workflow.model_validate(common | ran)


def steps_of(ran: PlanRun) -> tuple[StepRecord, ...]:
    """The steps of a run as they are kept."""
    return tuple(_step(step) for step in ran.steps)


def _step(step: StepRun) -> StepRecord:
    attempts = tuple(
        AttemptRecord.model_validate(
            {
                "number": one.number,
                "began": text(one.began),
                "ended": text(one.ended or 0),
                "outcome": "given-up" if one.outcome == "going" else one.outcome,
                "cost": text(one.cost),
                "message": one.message,
            }
        )
        for one in step.attempts[-KEPT_ATTEMPTS:]
    )
    return StepRecord(
        id=step.id,
        service=step.service,
        action=step.action,
        state="given-up" if step.state == "going" else step.state,
        attempts=attempts,
        message=step.message,
        output_digest=step.output_digest,
        output_bytes=step.output_bytes,
    )


def to_bytes(found: RunRecord) -> bytes:
    """The file: JSON for people and programs."""
    document = found.model_dump(mode="json", by_alias=True, exclude_none=True)
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()


def read_record(path: Path) -> RunRecord:
    """The record in a file; raises BadInput for what is none."""
    data = load(path, RECORD_BYTES, hint="was this task judged here?")
    try:
        content: Any = strict.parse(decode(data, path))
    except BadInput as error:
        raise error.at(file=path) from None
    return validate(RunRecord, content, file=path)


FOLDER = "workflows"
_ROUND_BYTES = 64_000_000


class RunStore:
    """What one validator keeps in a competition's folder."""

    def __init__(self, competition: Path, validator: str) -> None:
        self.validator = validator
        self.root = competition / FOLDER / run_files.segment(validator)
        self.evidence = run_files.evidence_file(competition, validator)

    def lock(self) -> AbstractContextManager[int]:
        """Holds the validator's lock; raises RunBusy and BadInput."""
        return run_files.held(self.root, self.validator)

    def clean(self) -> None:
        """Takes away what an earlier run was writing when it died, and mends the evidence. For the holder of the lock."""
        for folder in (self.root, *(one for one in self.root.rglob("*") if one.is_dir())):
            clear(folder)
        run_files.mend(self.evidence)

    def place(self, epoch: int, participant: str, submission: str, task: str) -> Path:
        """The file of one record."""
        whose = f"{run_files.segment(participant)}@{run_files.short(submission)}"
        return self.root / str(epoch) / whose / f"{run_files.segment(task)}.json"

    def keep(self, found: RunRecord) -> Path:
        """Puts a record in its place, over an earlier error; raises BadInput where it cannot be written."""
        file = self.place(found.epoch, found.participant, found.submission, found.task)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot be made ({error.strerror})", file=file.parent, hint="check permissions and space") from None
        write_bytes(file, to_bytes(found))
        return file

    def append(self, found: RunRecord) -> bool:
        """Adds the record's line of evidence and flushes it to the disk; False for an error, which has none. Raises OSError."""
        evidence = found.evidence()
        if evidence is None:
            return False
        run_files.append(self.evidence, canonical(evidence.document()) + b"\n")
        return True

    def result(self, epoch: int, participant: str, submission: str, task: str) -> RunRecord | None:
        """The record that was kept; None if there is none that can be read."""
        try:
            return read_record(self.place(epoch, participant, submission, task))
        except BadInput:
            return None

    def begin(self, asked: Round) -> None:
        """Remembers what is asked in an epoch; raises BadInput if something else was asked in it before."""
        file = self.root / str(asked.epoch) / "round.json"
        now = canonical(asked.document()) + b"\n"
        if file.exists():
            if load(file, _ROUND_BYTES, hint="") != now:
                raise BadInput(
                    f"{self.validator!r} asked other tasks, or other files of them, in epoch {asked.epoch}",
                    file=file,
                    hint="everybody is asked the same in a round: get the tasks back, or begin the next epoch",
                )
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, now)
