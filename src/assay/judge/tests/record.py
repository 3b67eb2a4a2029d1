"""What is kept of a trial: `result.json`, schema assay.trial/1, closed; seconds as decimal strings, sizes in bytes. SPEC 2.1."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from assay.errors import BadInput
from assay.exact import text
from assay.folder import strict
from assay.folder.text import decode, load
from assay.folder.write import write_text
from assay.judge.sandbox.box import Bound, Ran
from assay.judge.tests.outcome import Outcome, Reason
from assay.judge.tests.tasks import Mode
from assay.scheme.fields import Key, Section
from assay.scheme.reading import validate
from assay.scheme.times import Instant

if TYPE_CHECKING:
    from assay.records import Tests

__all__ = [
    "FILE",
    "RESULT_BYTES",
    "Command",
    "Digests",
    "ModelUse",
    "TrialRecord",
    "command",
    "message",
    "not_kept",
    "read",
    "seconds",
    "write",
]

FILE = "result.json"
SCHEMA = "assay.trial/1"
RESULT_BYTES = 4_000_000
MESSAGE = 2_000
"""Characters of a message of trouble."""

Seconds = Annotated[str, Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,3})?$")]
Size = Annotated[int, Field(ge=0, le=2**53 - 1)]
Message = Annotated[str, Field(max_length=MESSAGE)]
Digest = Annotated[str, Field(max_length=256)]


class Command(Section):
    """How the agent's command, or test.sh, ended."""

    exit_code: Annotated[int, Field(ge=0, le=255)] | None = None
    stopped: Bound | None = None
    """The bound that it ran into."""
    wall_seconds: Seconds
    cpu_seconds: Seconds
    peak_memory: Size
    output_dropped: Size = 0


class Digests(Section):
    """What the trial was made of. `work`: what the agent left in the folders that the tests see; None if it came to nothing."""

    task: Digest
    agent: Digest
    image: Digest | None = None
    work: Digest | None = None


class ModelUse(Section):
    """What went through the proxy."""

    requests: Size
    refused: Size
    sent: Size
    received: Size
    troubles: Annotated[tuple[Message, ...], Field(strict=False, max_length=100)] = ()
    own: Annotated[tuple[Message, ...], Field(strict=False, max_length=100)] | None = None
    """What the service refused though a question of ours was answered; the agent's own affair."""
    again: Size | None = None
    """Requests that were asked again."""
    questions: Size | None = None


class TrialRecord(Section):
    """One trial, as its last attempt ended."""

    schema_: Annotated[Literal["assay.trial/1"], Field(alias="schema")] = "assay.trial/1"
    validator: Key
    participant: Key
    submission: Digest
    task: Key
    trial: Annotated[int, Field(ge=1, le=10**9)]
    attempt: Annotated[int, Field(ge=1, le=1000)] = 1
    outcome: Outcome
    reason: Annotated[Reason, Field(strict=False)]
    message: Message = ""
    """What the trouble was; empty unless the outcome is error."""
    mode: Mode
    sandbox: Annotated[str, Field(max_length=100)]
    agent_name: Key
    agent_version: Key
    agent: Command | None = None
    tests: Command | None = None
    reward: Annotated[str, Field(max_length=1000)] | None = None
    """The beginning of what reward.json, or else reward.txt, said; None without either."""
    digests: Digests
    model: ModelUse | None = None
    notes: Annotated[tuple[Message, ...], Field(strict=False, max_length=100)] = ()
    """What was not kept, and why."""
    earlier: Annotated[tuple[Message, ...], Field(strict=False, max_length=1000)] = ()
    """The troubles of earlier attempts."""
    started_at: Instant
    finished_at: Instant
    epoch: Annotated[int, Field(ge=0, le=2**53 - 1)]

    def evidence(self) -> Tests | None:
        """The record of evidence; None for an error, which would occupy the key that a later attempt needs. SPEC 2.1, 3.0."""
        if self.outcome == "error":
            return None
        from assay.records import Tests  # who judges writes none, and they are slow to import

        return Tests(
            kind="tests",
            epoch=self.epoch,
            validator=self.validator,
            participant=self.participant,
            submission=self.submission,
            observed_at=self.finished_at,
            task=self.task,
            outcome=self.outcome,
            trial=self.trial,
            image=self.digests.image,
        )


def command(ran: Ran) -> Command:
    """How a command ended, as it is kept."""
    return Command(
        exit_code=ran.exit_code,
        stopped=ran.stopped,
        wall_seconds=seconds(ran.wall_seconds),
        cpu_seconds=seconds(ran.cpu_seconds),
        peak_memory=ran.peak_memory,
        output_dropped=ran.output_dropped,
    )


def message(said: str) -> str:
    """Words as they are kept: printable, and not too many."""
    plain = said.encode("utf-8", "backslashreplace").decode()
    return "".join(char if char.isprintable() else " " for char in plain)[:MESSAGE]


def seconds(value: float) -> str:
    """Seconds to the millisecond, as a decimal string."""
    return text(max(0, round(value * 1000)), 3)


def write(folder: Path, found: TrialRecord) -> None:
    """Puts the file, JSON for people and programs, into a trial's folder, flushed to the disk. Raises BadInput if that fails."""
    write_text(folder / FILE, found.model_dump_json(by_alias=True, exclude_none=True, indent=1) + "\n")


def not_kept(found: TrialRecord, why: str) -> TrialRecord:
    """What is left of a trial that could not be written to the disk: an error, which is nobody's fault that is judged."""
    changed = {"outcome": "error", "reason": Reason.TROUBLE, "message": message(f"the trial could not be kept: {why}")}
    return found.model_copy(update=changed)


def read(path: Path) -> TrialRecord:
    """The record in a result.json; raises BadInput for what is none."""
    data = load(path, RESULT_BYTES, hint="give a trial's folder: `assay trials --json` names each")
    try:
        content: Any = strict.parse(decode(data, path))
    except BadInput as error:
        raise error.at(file=path) from None
    return validate(TrialRecord, content, file=path)
