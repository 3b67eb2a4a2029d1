"""What is kept of one task that was asked of one participant: `assay.workflow-run/1`, closed, without floats. SPEC 2.2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.errors import BadInput
from assay.exact import text
from assay.folder import strict
from assay.folder.text import decode, load
from assay.judge.workflow.limits import KEPT_ATTEMPTS, MESSAGE
from assay.judge.workflow.trace import Ran, Step
from assay.records import Amount, Fraction, Workflow
from assay.scheme.fields import Key, Section
from assay.scheme.reading import validate
from assay.scheme.times import Instant

__all__ = ["RECORD_BYTES", "KeptAttempt", "KeptStep", "RunRecord", "read", "steps_of", "to_bytes"]

RECORD_BYTES = 64_000_000

Message = Annotated[str, Field(max_length=MESSAGE)]
Digest = Annotated[str, Field(max_length=256)]
Size = Annotated[int, Field(ge=0, le=2**53 - 1)]


class KeptAttempt(Section):
    """One execution of a step: seconds since the run began, and what the service said it cost."""

    number: Annotated[int, Field(ge=1)]
    began: Amount
    ended: Amount
    outcome: Literal["answered", "denied", "broken", "lied", "timeout", "given-up"]
    cost: Amount = 0
    message: Message = ""


class KeptStep(Section):
    """A step of the plan, and how it ended."""

    id: Key
    service: Key
    action: Key
    state: Literal["waiting", "completed", "failed", "given-up"]
    attempts: Annotated[tuple[KeptAttempt, ...], Field(strict=False)] = ()
    """The last ones, if there were many."""
    message: Message = ""
    output_digest: Digest | None = None
    output_bytes: Size = 0


class RunRecord(Section):
    """What came of one task asked of one participant. An `error` is trouble of ours, and is no evidence."""

    schema_: Annotated[Literal["assay.workflow-run/1"], Field(alias="schema")] = "assay.workflow-run/1"
    epoch: Annotated[int, Field(ge=0, le=2**53 - 1)]
    validator: Key
    participant: Key
    submission: Digest
    task: Key
    task_digest: Digest
    package_digest: Digest
    outcome: Literal["ran", "invalid", "service-error", "error"]
    message: Message = ""
    """Why the plan is invalid, which service is broken, or what the trouble was."""
    planner: Annotated[str, Field(max_length=600)] = ""
    """Name, version and way of what was submitted."""
    plan: dict[str, Any] | None = None
    plan_digest: Digest | None = None
    steps: Annotated[tuple[KeptStep, ...], Field(strict=False)] = ()
    stopped: Literal["", "budget", "latency"] = ""
    quality: Fraction | None = None
    quality_how: dict[str, Any] = Field(default_factory=dict)
    steps_completed: Size = 0
    steps_total: Size = 0
    cost: Amount | None = None
    budget: Amount | None = None
    seconds: Amount | None = None
    max_seconds: Amount | None = None
    retries: Size = 0
    declared_retries: Size = 0
    timeouts: Size = 0
    hard_failures: Size = 0
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


def steps_of(ran: Ran) -> tuple[KeptStep, ...]:
    """The steps of a run as they are kept."""
    return tuple(_step(step) for step in ran.steps)


def _step(step: Step) -> KeptStep:
    attempts = tuple(
        KeptAttempt.model_validate(
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
    return KeptStep(
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


def read(path: Path) -> RunRecord:
    """The record in a file; raises BadInput for what is none."""
    data = load(path, RECORD_BYTES, hint="was this task judged here?")
    try:
        content: Any = strict.parse(decode(data, path))
    except BadInput as error:
        raise error.at(file=path) from None
    return validate(RunRecord, content, file=path)
