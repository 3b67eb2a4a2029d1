"""Holds the result of a plan's run, and stores its record and its line of evidence. SPEC 2.2.

`PlanRun` has every step with its attempts, and the counts of SPEC 2.2 that follow from them. `RunRecord` is the stored form: one
task for one participant, with the closed schema `assay.workflow-run/1` and without floats.

`RunStore` writes them so that a crash at any moment loses nothing and counts nothing twice:

    workflows/<validator>/<epoch>/round.json                                  the tasks of the epoch
    workflows/<validator>/<epoch>/<participant>@<digest12>/<task>.json        the record
    evidence/run-<validator>.jsonl                                            one line for each record that is not an error

A record is on the disk before its line of evidence. After a crash in between the next run writes the line.
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
from assay.judge.workflow.tasks import EpochTasks
from assay.records import Amount, Fraction, Workflow
from assay.scheme.fields import Epoch, Instant, Key, Section, Whole
from assay.scheme.reading import validate

AttemptOutcome = Literal["going", "answered", "denied", "broken", "lied", "timeout", "given-up"]
"""The end of an attempt. `given-up`: the run ended first."""
StepState = Literal["waiting", "going", "completed", "failed", "given-up"]
"""The end of a step. `waiting`: it never began, because a step that it needs did not complete, or the run ended first."""
MomentKind = Literal["began", "again", "completed", "failed"]


class TimedOut(CallFailed):
    """An attempt took longer than the plan declared."""

    word = "timeout"


@dataclass
class StepAttempt:
    """One attempt of a step. Times are nanoseconds since the run began; the cost is in nanos."""

    number: int
    began: int
    ended: int | None = None
    outcome: AttemptOutcome = "going"
    cost: int = 0
    message: str = ""


@dataclass
class StepRun:
    """A step of the plan, as it runs or ran."""

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
    """An event of a step; `again` is a failed attempt. Nanoseconds since the run began; spent in nanos."""

    kind: MomentKind
    step: StepRun
    nanoseconds: int
    spent: int


@dataclass(frozen=True)
class PlanRun:
    """The result of running a plan."""

    steps: tuple[StepRun, ...]
    """In the order of the plan."""
    outputs: Mapping[str, Any]
    """Step → its answer, of the completed steps."""
    cost: int
    nanoseconds: int
    """From the beginning of the run to the end of the last step, or to the stop."""
    stopped: Literal["", "budget", "latency"]
    """The bound of the task that stopped the run; empty if none did."""
    broken: str
    """The broken service, and its fault; empty if none is broken."""

    @property
    def completed(self) -> int:
        """The number of steps that completed."""
        return sum(step.state == "completed" for step in self.steps)

    @property
    def retries(self) -> int:
        """The number of attempts beyond each step's first. SPEC 2.2."""
        return sum(max(0, len(step.attempts) - 1) for step in self.steps)

    @property
    def timeouts(self) -> int:
        """The number of attempts that took longer than their step declared. SPEC 2.2."""
        return sum(attempt.outcome == "timeout" for step in self.steps for attempt in step.attempts)

    @property
    def hard_failures(self) -> int:
        """The number of steps that ended without an answer after all declared retries. SPEC 2.2."""
        return sum(step.state == "failed" for step in self.steps)


RECORD_BYTES = 64_000_000

Message = Annotated[str, Field(max_length=MESSAGE)]
DigestText = Annotated[str, Field(max_length=256)]


class AttemptRecord(Section):
    """A stored attempt: seconds since the run began, and the cost that the service stated."""

    number: Annotated[int, Field(ge=1)]
    began: Amount
    ended: Amount
    outcome: Literal["answered", "denied", "broken", "lied", "timeout", "given-up"]
    cost: Amount = 0
    message: Message = ""


class StepRecord(Section):
    """A stored step, and how it ended."""

    id: Key
    service: Key
    action: Key
    state: Literal["waiting", "completed", "failed", "given-up"]
    attempts: Annotated[tuple[AttemptRecord, ...], Field(strict=False)] = ()
    """If there were many, only the last ones."""
    message: Message = ""
    output_digest: DigestText | None = None
    output_bytes: Whole = 0


class RunRecord(Section):
    """The result of one task for one participant. The outcome `error` is an infrastructure error, and not evidence."""

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
    """The reason: the plan's fault, the broken service, or the infrastructure error."""
    planner: Annotated[str, Field(max_length=600)] = ""
    """The submission's name and version, and how it was asked."""
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
        """The result in a few words, for a line of progress."""
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
    """The steps of a run, as they are stored."""
    return tuple(_step_record(step) for step in ran.steps)


def _step_record(step: StepRun) -> StepRecord:
    attempts = tuple(
        AttemptRecord.model_validate(
            {
                "number": attempt.number,
                "began": text(attempt.began),
                "ended": text(attempt.ended or 0),
                "outcome": "given-up" if attempt.outcome == "going" else attempt.outcome,
                "cost": text(attempt.cost),
                "message": attempt.message,
            }
        )
        for attempt in step.attempts[-KEPT_ATTEMPTS:]
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


def to_bytes(record: RunRecord) -> bytes:
    """The record's file: JSON for people and programs."""
    document = record.model_dump(mode="json", by_alias=True, exclude_none=True)
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()


def read_record(path: Path) -> RunRecord:
    """The record in a file; raises BadInput if it cannot be read."""
    data = load(path, RECORD_BYTES, hint="was this task judged here?")
    try:
        content: Any = strict.parse(decode(data, path))
    except BadInput as error:
        raise error.at(file=path) from None
    return validate(RunRecord, content, file=path)


FOLDER = "workflows"
_ROUND_BYTES = 64_000_000


class RunStore:
    """One validator's runs and evidence in a competition's folder."""

    def __init__(self, competition: Path, validator: str) -> None:
        self.validator = validator
        self.root = competition / FOLDER / run_files.segment(validator)
        self.evidence = run_files.evidence_file(competition, validator)

    def lock(self) -> AbstractContextManager[int]:
        """Holds the validator's lock; raises RunBusy and BadInput."""
        return run_files.held(self.root, self.validator)

    def clean(self) -> None:
        """Removes what an earlier run was writing when it died, and mends the evidence. Only for the holder of the lock."""
        for folder in (self.root, *(path for path in self.root.rglob("*") if path.is_dir())):
            clear(folder)
        run_files.mend(self.evidence)

    def place(self, epoch: int, participant: str, submission: str, task: str) -> Path:
        """The file of one record."""
        folder = f"{run_files.segment(participant)}@{run_files.short(submission)}"
        return self.root / str(epoch) / folder / f"{run_files.segment(task)}.json"

    def keep(self, record: RunRecord) -> Path:
        """Writes a record, over an earlier error; raises BadInput if it cannot be written."""
        file = self.place(record.epoch, record.participant, record.submission, record.task)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot be made ({error.strerror})", file=file.parent, hint="check permissions and space") from None
        write_bytes(file, to_bytes(record))
        return file

    def append(self, record: RunRecord) -> bool:
        """Adds the record's line of evidence and flushes it to the disk; False for an error, which has none. Raises OSError."""
        evidence = record.evidence()
        if evidence is None:
            return False
        run_files.append(self.evidence, canonical(evidence.document()) + b"\n")
        return True

    def result(self, epoch: int, participant: str, submission: str, task: str) -> RunRecord | None:
        """The stored record; None if there is none, or it cannot be read."""
        try:
            return read_record(self.place(epoch, participant, submission, task))
        except BadInput:
            return None

    def begin(self, asked: EpochTasks) -> None:
        """Stores the round of an epoch; raises BadInput if another one is stored."""
        file = self.root / str(asked.epoch) / "round.json"
        content = canonical(asked.document()) + b"\n"
        if file.exists():
            if load(file, _ROUND_BYTES, hint="") != content:
                raise BadInput(
                    f"{self.validator!r} asked other tasks, or other files of them, in epoch {asked.epoch}",
                    file=file,
                    hint="all participants get the same tasks in a round: restore the tasks, or begin the next epoch",
                )
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, content)
