"""What a trial counts as: exit codes, bounds and reward files into pass, fail or timeout. Pure. SPEC 2.1.

- PASS: the tests exited 0 within their bounds, and every reward file that was written says exactly 1.
- A reward is one decimal number. `1`, `1.0` and `1e0` are 1; `10`, `1x`, `nan`, nothing at all, and a file too large to be a
  number are not. `reward.json` is an object whose key `reward` is such a number; without that key it says no 1.
- Both files written: both must say 1, so different ones fail.
- Running out of time is `timeout`, into any other bound `fail`. Trouble never comes here: it is an ERROR, decided elsewhere.
- An agent's own exit code decides nothing: the tests do.

What is kept of a trial: `result.json`, schema assay.trial/1, closed; seconds as decimal strings, sizes in bytes. SPEC 2.1.

Where a validator's trials and evidence are kept, so that a crash at any moment loses nothing and counts nothing twice.

    trials/<validator>/<participant>@<digest12>/<task>/<n>/     one folder a trial: result.json, what was printed, ctrf.json
    trials/<validator>/.lock, .partial/                          the run that is going on, and what it has not finished
    evidence/run-<validator>.jsonl                               one line for each trial that is not an ERROR

A trial's folder is made in .partial/, its record flushed by who judged it, and renamed to its place; then its line is written. A
crash in between leaves a result without a line, which the next run writes; a line that was cut off is taken away first. SPEC 2.1,
3.0.
"""

from __future__ import annotations

import decimal
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from assay.errors import BadInput
from assay.exact import canonical, text
from assay.folder import strict
from assay.folder.files import decode, flush_folder, load, write_text
from assay.judge import run_files, tree
from assay.judge.run_files import segment, short
from assay.judge.sandbox import Bound, Ran
from assay.judge.terminal.task_settings import Mode
from assay.scheme.fields import Epoch, Instant, Key, Section, Whole
from assay.scheme.reading import validate

if TYPE_CHECKING:
    from assay.records import Tests


TrialOutcome = Literal["pass", "fail", "timeout", "error"]
AgentTimeout = Literal["fail", "verify"]

REWARD_BYTES = 65_536
"""A reward file above this size is not read: it is no reward of 1."""
LONGEST = 100
"""Characters of a number."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_SPACE = " \t\r\n"


class TrialReason(StrEnum):
    """Why a trial came out as it did."""

    PASSED = "passed"
    TESTS_FAILED = "tests-failed"
    """test.sh exited with something other than 0."""
    REWARD_NOT_ONE = "reward-not-one"
    AGENT_TIME = "agent-time"
    AGENT_MEMORY = "agent-memory"
    AGENT_PROCESSES = "agent-processes"
    AGENT_DISK = "agent-disk"
    AGENT_OUTPUT = "agent-output"
    TESTS_TIME = "tests-time"
    TESTS_MEMORY = "tests-memory"
    TESTS_PROCESSES = "tests-processes"
    TESTS_DISK = "tests-disk"
    TESTS_OUTPUT = "tests-output"
    WORK_GONE = "work-directory-gone"
    """The agent removed a folder that the tests are given, or put something else in its place."""
    WORK_TOO_LARGE = "work-directory-too-large"
    """What the agent left in it is over the task's bounds."""
    TROUBLE = "trouble"
    """Nobody's fault that is judged."""


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """What the trial counts as, and why."""

    outcome: TrialOutcome
    reason: TrialReason


def after_agent(ran: Ran, rule: AgentTimeout) -> TrialVerdict | None:
    """The verdict that is certain once the agent has ended; None: the tests decide. SPEC 2.1."""
    if ran.stopped is None or (ran.stopped == "time" and rule == "verify"):
        return None
    return _bound("agent", ran.stopped)


def after_tests(ran: Ran, reward_text: bytes | None, reward_json: bytes | None) -> TrialVerdict:
    """The verdict of the tests; a reward file is None if there is none, b"" if it is no plain file or too large. SPEC 2.1."""
    if ran.stopped is not None:
        return _bound("tests", ran.stopped)
    if ran.exit_code != 0:
        return TrialVerdict("fail", TrialReason.TESTS_FAILED)
    if reward_text is not None and not is_one(reward_text):
        return TrialVerdict("fail", TrialReason.REWARD_NOT_ONE)
    if reward_json is not None and not says_one(reward_json):
        return TrialVerdict("fail", TrialReason.REWARD_NOT_ONE)
    return TrialVerdict("pass", TrialReason.PASSED)


def after_troubles(verdict: TrialVerdict, troubles: Sequence[str]) -> TrialVerdict:
    """The verdict once it is known what the model service failed at: what did not pass with it failing is an error. SPEC 2.1."""
    return TrialVerdict("error", TrialReason.TROUBLE) if troubles and verdict.outcome != "pass" else verdict


def is_one(data: bytes) -> bool:
    """Whether the bytes of a reward.txt are a decimal number that is exactly 1, with white space around it."""
    if len(data) > REWARD_BYTES:
        return False
    try:
        text = data.decode("ascii").strip(_SPACE)
    except UnicodeDecodeError:
        return False
    return len(text) <= LONGEST and _NUMBER.fullmatch(text) is not None and decimal.Decimal(text) == 1


def says_one(data: bytes) -> bool:
    """Whether the bytes of a reward.json are an object whose key `reward`, there once, is a number that is exactly 1."""
    if len(data) > REWARD_BYTES:
        return False
    try:
        found = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=strict.unique,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_number,
        )
    except (ValueError, RecursionError, BadInput):
        return False
    reward = found.get("reward") if isinstance(found, dict) else None
    return isinstance(reward, decimal.Decimal) and reward == 1


def _number(text: str) -> decimal.Decimal:
    """The number; what is not written as one of a sensible length is 0, which is not 1."""
    return decimal.Decimal(text) if len(text) <= LONGEST and _NUMBER.fullmatch(text) else decimal.Decimal(0)


def _bound(whose: Literal["agent", "tests"], bound: Bound) -> TrialVerdict:
    return TrialVerdict("timeout" if bound == "time" else "fail", TrialReason(f"{whose}-{bound}"))


FILE = "result.json"
SCHEMA = "assay.trial/1"
RESULT_BYTES = 4_000_000
MESSAGE = 2_000
"""Characters of a message of trouble."""

SecondsText = Annotated[str, Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,3})?$")]
Message = Annotated[str, Field(max_length=MESSAGE)]
DigestText = Annotated[str, Field(max_length=256)]


class CommandResult(Section):
    """How the agent's command, or test.sh, ended."""

    exit_code: Annotated[int, Field(ge=0, le=255)] | None = None
    stopped: Bound | None = None
    """The bound that it ran into."""
    wall_seconds: SecondsText
    cpu_seconds: SecondsText
    peak_memory: Whole
    output_dropped: Whole = 0


class Digests(Section):
    """What the trial was made of. `work`: what the agent left in the folders that the tests see; None if it came to nothing."""

    task: DigestText
    agent: DigestText
    image: DigestText | None = None
    work: DigestText | None = None


class ModelUse(Section):
    """What went through the proxy."""

    requests: Whole
    refused: Whole
    sent: Whole
    received: Whole
    troubles: Annotated[tuple[Message, ...], Field(strict=False, max_length=100)] = ()
    own: Annotated[tuple[Message, ...], Field(strict=False, max_length=100)] | None = None
    """What the service refused though a question of ours was answered; the agent's own affair."""
    again: Whole | None = None
    """Requests that were asked again."""
    questions: Whole | None = None


class TrialRecord(Section):
    """One trial, as its last attempt ended."""

    schema_: Annotated[Literal["assay.trial/1"], Field(alias="schema")] = "assay.trial/1"
    validator: Key
    participant: Key
    submission: DigestText
    task: Key
    trial: Annotated[int, Field(ge=1, le=10**9)]
    attempt: Annotated[int, Field(ge=1, le=1000)] = 1
    outcome: TrialOutcome
    reason: Annotated[TrialReason, Field(strict=False)]
    message: Message = ""
    """What the trouble was; empty unless the outcome is error."""
    mode: Mode
    sandbox: Annotated[str, Field(max_length=100)]
    agent_name: Key
    agent_version: Key
    agent: CommandResult | None = None
    tests: CommandResult | None = None
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
    epoch: Epoch

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


def command(ran: Ran) -> CommandResult:
    """How a command ended, as it is kept."""
    return CommandResult(
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


def write_record(folder: Path, found: TrialRecord) -> None:
    """Puts the file, JSON for people and programs, into a trial's folder, flushed to the disk. Raises BadInput if that fails."""
    write_text(folder / FILE, found.model_dump_json(by_alias=True, exclude_none=True, indent=1) + "\n")


def not_kept(found: TrialRecord, why: str) -> TrialRecord:
    """What is left of a trial that could not be written to the disk: an error, which is nobody's fault that is judged."""
    changed = {"outcome": "error", "reason": TrialReason.TROUBLE, "message": message(f"the trial could not be kept: {why}")}
    return found.model_copy(update=changed)


def read_record(path: Path) -> TrialRecord:
    """The record in a result.json; raises BadInput for what is none."""
    data = load(path, RESULT_BYTES, hint="give a trial's folder: `assay trials --json` names each")
    try:
        content: Any = strict.parse(decode(data, path))
    except BadInput as error:
        raise error.at(file=path) from None
    return validate(TrialRecord, content, file=path)


class TrialStore:
    """What one validator keeps in a competition's folder."""

    def __init__(self, competition: Path, validator: str) -> None:
        self.validator = validator
        self.root = competition / "trials" / segment(validator)
        self.evidence = run_files.evidence_file(competition, validator)
        self._partial = self.root / ".partial"

    @contextmanager
    def lock(self) -> Iterator[int]:
        """Holds the validator's lock, and gives its descriptor, which workers hold too: nobody begins before they are gone.

        Raises RunBusy if another run has it, and BadInput where nothing can be written. Waits for the workers of a dead run.
        """
        try:
            self._partial.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            hint = "check its permissions and space"
            raise BadInput(f"cannot be written ({error.strerror})", file=self.root, hint=hint) from None
        with run_files.held(self.root, self.validator) as number:
            yield number

    def place(self, participant: str, submission: str, task: str, trial: int) -> Path:
        """The folder of a trial."""
        return self.root / f"{segment(participant)}@{short(submission)}" / segment(task) / str(trial)

    def partial(self) -> Path:
        """A new folder for a trial that is going on."""
        made = self._partial / secrets.token_hex(8)
        made.mkdir(parents=True)
        return made

    def clean(self) -> int:
        """Removes what an earlier run left unfinished; returns how many trials. For the holder of the lock."""
        left = sorted(self._partial.iterdir()) if self._partial.is_dir() else []
        for one in left:
            tree.remove(one)
        return len(left)

    def keep(self, partial: Path, found: TrialRecord) -> Path:
        """Puts a trial whose record is written in its place, where an earlier error gives way to it; no crash undoes that.

        Raises OSError.
        """
        target = self.place(found.participant, found.submission, found.task, found.trial)
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target):
            aside = self._partial / secrets.token_hex(8)
            target.rename(aside)
            partial.rename(target)
            tree.remove(aside)
        else:
            partial.rename(target)
        flush_folder(target.parent)
        return target

    def append(self, found: TrialRecord) -> bool:
        """Adds the trial's line of evidence and flushes it to the disk; False for an error, which has none. Raises OSError."""
        evidence = found.evidence()
        if evidence is None:
            return False
        run_files.append(self.evidence, canonical(evidence.document()) + b"\n")
        return True

    def repair(self) -> bool:
        """Mends the end of the evidence file, if need be: a whole record gets its line end, half of one is taken away."""
        return run_files.mend(self.evidence)

    def result(self, participant: str, submission: str, task: str, trial: int) -> TrialRecord | None:
        """The record of a trial that was judged; None if there is none that can be read."""
        try:
            return read_record(self.place(participant, submission, task, trial) / FILE)
        except BadInput:
            return None


def kept(competition: Path) -> Iterator[tuple[Path, TrialRecord]]:
    """Every trial that is kept in a competition's folder, and where; what cannot be read is passed over."""
    for file in sorted((competition / "trials").glob(f"[!.]*/[!.]*/*/*/{FILE}")):
        with suppress(BadInput):
            yield file.parent, read_record(file)
