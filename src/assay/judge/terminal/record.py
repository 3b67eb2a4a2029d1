"""Decides the outcome of a trial, and stores its record, result.json, and its line of evidence. SPEC 2.1, 3.0.

Outcome (pure):

- PASS: the tests exited 0 within their limits, and every reward file that was written says exactly 1.
- A reward is one decimal number. `1`, `1.0` and `1e0` are 1. `10`, `1x`, `nan`, an empty file, and a file too large to be a
  number are not 1. `reward.json` is an object whose key `reward` is such a number; without that key it does not say 1.
- If both files are written, both must say 1.
- Running out of time is `timeout`; running into any other limit is `fail`. Infrastructure errors are decided elsewhere.
- The agent's exit code decides nothing; the tests do.

Record: result.json has the closed schema assay.trial/1, with seconds as decimal strings and sizes in bytes.

Store: a crash at any moment loses nothing and counts nothing twice.

    trials/<validator>/<participant>@<digest12>/<task>/<n>/     one folder for each trial: result.json, output, ctrf.json
    trials/<validator>/.lock, .partial/                          the run in progress, and its unfinished trials
    evidence/run-<validator>.jsonl                               one line for each trial that is not an ERROR

A worker writes a trial's folder in .partial/ and flushes its record. The run renames the folder to its place, then writes the
line of evidence. After a crash in between there is a result without a line; the next run writes the line, after it has removed a
line that was cut off.
"""

from __future__ import annotations

import decimal
import json
import os
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
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
"""A reward file above this size is not read, and does not say 1."""
LONGEST = 100
"""Characters of a reward."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_SPACE = " \t\r\n"


class TrialReason(StrEnum):
    """The reason for a trial's outcome."""

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
    """The agent removed the work directory, or replaced it with something that is not a folder."""
    WORK_TOO_LARGE = "work-directory-too-large"
    """The files that the agent left for the tests exceed the task's limits."""
    TROUBLE = "trouble"
    """An infrastructure error."""


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """The outcome of a trial, and the reason."""

    outcome: TrialOutcome
    reason: TrialReason


def after_agent(ran: Ran, rule: AgentTimeout) -> TrialVerdict | None:
    """The verdict after the agent has ended; None if the tests decide. SPEC 2.1."""
    if ran.stopped is None or (ran.stopped == "time" and rule == "verify"):
        return None
    return _bound("agent", ran.stopped)


def after_tests(ran: Ran, reward_text: bytes | None, reward_json: bytes | None) -> TrialVerdict:
    """The verdict after the tests. A reward is None if there is no file, b"" if it is not a plain file or too large. SPEC 2.1."""
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
    """The verdict given the model service's failures: with any, a trial that did not pass is an error. SPEC 2.1."""
    return TrialVerdict("error", TrialReason.TROUBLE) if troubles and verdict.outcome != "pass" else verdict


def is_one(data: bytes) -> bool:
    """Whether the bytes of a reward.txt are a decimal number that is exactly 1, with white space around it."""
    if len(data) > REWARD_BYTES:
        return False
    try:
        number = data.decode("ascii").strip(_SPACE)
    except UnicodeDecodeError:
        return False
    return len(number) <= LONGEST and _NUMBER.fullmatch(number) is not None and decimal.Decimal(number) == 1


def says_one(data: bytes) -> bool:
    """True if the bytes of a reward.json are an object whose key `reward` occurs once and is a number that is exactly 1."""
    if len(data) > REWARD_BYTES:
        return False
    try:
        content = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=strict.unique,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_number,
        )
    except (ValueError, RecursionError, BadInput):
        return False
    reward = content.get("reward") if isinstance(content, dict) else None
    return isinstance(reward, decimal.Decimal) and reward == 1


def _number(text: str) -> decimal.Decimal:
    """The number that a text says; 0, which is not 1, if it is not a number or too long."""
    return decimal.Decimal(text) if len(text) <= LONGEST and _NUMBER.fullmatch(text) else decimal.Decimal(0)


def _bound(whose: Literal["agent", "tests"], bound: Bound) -> TrialVerdict:
    return TrialVerdict("timeout" if bound == "time" else "fail", TrialReason(f"{whose}-{bound}"))


FILE = "result.json"
SCHEMA = "assay.trial/1"
RESULT_BYTES = 4_000_000
MESSAGE = 2_000
"""Characters of a stored message."""

SecondsText = Annotated[str, Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,3})?$")]
Message = Annotated[str, Field(max_length=MESSAGE)]
DigestText = Annotated[str, Field(max_length=256)]


class CommandResult(Section):
    """The result of the agent's command, or of test.sh."""

    exit_code: Annotated[int, Field(ge=0, le=255)] | None = None
    stopped: Bound | None = None
    """The limit that it ran into."""
    wall_seconds: SecondsText
    cpu_seconds: SecondsText
    peak_memory: Whole
    output_dropped: Whole = 0


class Digests(Section):
    """The digests of what a trial used. `work`: what the agent left for the tests; None if the trial did not get that far."""

    task: DigestText
    agent: DigestText
    image: DigestText | None = None
    work: DigestText | None = None
    kept_work: DigestText | None = None
    """The SHA-256 of work.tar.gz, if the finished work is kept and the tests ran on it."""


class ModelUse(Section):
    """The traffic of the model's proxy."""

    requests: Whole
    refused: Whole
    sent: Whole
    received: Whole
    troubles: Annotated[tuple[Message, ...], Field(strict=False, max_length=100)] = ()
    own: Annotated[tuple[Message, ...], Field(strict=False, max_length=100)] | None = None
    """Requests that the service refused although it answered a probe: the agent's own failures."""
    again: Whole | None = None
    """Requests that were sent again."""
    questions: Whole | None = None
    """Probes: small requests of the judge's own that show whether the service works."""


class TrialRecord(Section):
    """The record of a trial, after its last attempt."""

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
    """The infrastructure error; empty unless the outcome is error."""
    mode: Mode
    sandbox: Annotated[str, Field(max_length=100)]
    agent_name: Key
    agent_version: Key
    agent: CommandResult | None = None
    tests: CommandResult | None = None
    reward: Annotated[str, Field(max_length=1000)] | None = None
    """The beginning of reward.json, or else of reward.txt; None without either."""
    digests: Digests
    model: ModelUse | None = None
    notes: Annotated[tuple[Message, ...], Field(strict=False, max_length=100)] = ()
    """The files that were not kept, and why."""
    earlier: Annotated[tuple[Message, ...], Field(strict=False, max_length=1000)] = ()
    """The infrastructure errors of earlier attempts."""
    started_at: Instant
    finished_at: Instant
    epoch: Epoch

    def evidence(self) -> Tests | None:
        """The record of evidence; None for an error, which would take the key that a later attempt needs. SPEC 2.1, 3.0."""
        if self.outcome == "error":
            return None
        from assay.records import Tests  # slow to import, and a worker writes no evidence

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
            work=self.digests.kept_work,
        )


def command(ran: Ran) -> CommandResult:
    """The result of a command, as it is stored."""
    return CommandResult(
        exit_code=ran.exit_code,
        stopped=ran.stopped,
        wall_seconds=seconds(ran.wall_seconds),
        cpu_seconds=seconds(ran.cpu_seconds),
        peak_memory=ran.peak_memory,
        output_dropped=ran.output_dropped,
    )


def message(words: str) -> str:
    """A message as it is stored: printable characters only, cut to `MESSAGE`."""
    plain = words.encode("utf-8", "backslashreplace").decode()
    return "".join(char if char.isprintable() else " " for char in plain)[:MESSAGE]


def seconds(value: float) -> str:
    """Seconds to the millisecond, as a decimal string."""
    return text(max(0, round(value * 1000)), 3)


def write_record(folder: Path, record: TrialRecord) -> None:
    """Writes the record into a trial's folder and flushes it to the disk. Raises BadInput if that fails."""
    write_text(folder / FILE, record.model_dump_json(by_alias=True, exclude_none=True, indent=1) + "\n")


def not_kept(record: TrialRecord, why: str) -> TrialRecord:
    """The record of a trial that could not be written to the disk: an error, which says nothing about the participant."""
    changed = {"outcome": "error", "reason": TrialReason.TROUBLE, "message": message(f"the trial could not be kept: {why}")}
    return record.model_copy(update=changed)


def end_of(file: Path, most: int) -> bytes:
    """The last bytes of a file of a trial, at most so many; empty if it is gone, or no plain file."""
    try:
        number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(number, "rb") as opened:
            opened.seek(max(0, os.fstat(number).st_size - most))
            return opened.read(most)
    except OSError:
        return b""


def read_record(path: Path) -> TrialRecord:
    """The record in a result.json; raises BadInput if it cannot be read."""
    data = load(path, RESULT_BYTES, hint="give a trial's folder: `assay trials --json` names each")
    try:
        content: Any = strict.parse(decode(data, path))
    except BadInput as error:
        raise error.at(file=path) from None
    return validate(TrialRecord, content, file=path)


class TrialStore:
    """One validator's trials and evidence in a competition's folder."""

    def __init__(self, competition: Path, validator: str) -> None:
        self.validator = validator
        self.root = competition / "trials" / segment(validator)
        self.evidence = run_files.evidence_file(competition, validator)
        self._partial = self.root / ".partial"

    @contextmanager
    def lock(self) -> Iterator[int]:
        """Holds the validator's lock, and gives its descriptor. Workers hold it too, so no run starts before they have ended.

        Waits for the workers of a run that died. Raises RunBusy if another run holds the lock, BadInput if it cannot write.
        """
        try:
            self._partial.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            hint = "check its permissions and space"
            raise BadInput(f"cannot be written ({error.strerror})", file=self.root, hint=hint) from None
        with run_files.held(self.root, self.validator) as descriptor:
            yield descriptor

    def place(self, participant: str, submission: str, task: str, trial: int) -> Path:
        """The folder of a trial."""
        return self.root / f"{segment(participant)}@{short(submission)}" / segment(task) / str(trial)

    def partial(self) -> Path:
        """A new folder for a trial in progress."""
        folder = self._partial / secrets.token_hex(8)
        folder.mkdir(parents=True)
        return folder

    def clean(self) -> int:
        """Removes the unfinished trials of an earlier run; returns how many. Only for the holder of the lock."""
        unfinished = sorted(self._partial.iterdir()) if self._partial.is_dir() else []
        for folder in unfinished:
            tree.remove(folder)
        return len(unfinished)

    def keep(self, partial: Path, record: TrialRecord) -> Path:
        """Moves a trial whose record is written to its place, over an earlier error, and flushes the move. Raises OSError."""
        target = self.place(record.participant, record.submission, record.task, record.trial)
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

    def append(self, record: TrialRecord) -> bool:
        """Adds the trial's line of evidence and flushes it to the disk; False for an error, which has none. Raises OSError."""
        evidence = record.evidence()
        if evidence is None:
            return False
        run_files.append(self.evidence, canonical(evidence.document()) + b"\n")
        return True

    def drop_work(self, before: int, current: Collection[str]) -> int:
        """Removes the kept work of trials of epochs before this one, except of submissions that still count; returns how many."""
        dropped = 0
        for file in sorted(self.root.glob(f"[!.]*/*/*/{WORK_FILE}")):
            with suppress(BadInput, OSError):
                record = read_record(file.parent / FILE)
                if record.epoch < before and record.submission not in current:
                    file.unlink()
                    dropped += 1
        return dropped

    def repair(self) -> bool:
        """Mends the end of the evidence file: a whole record without a line end gets one, half a record is removed."""
        return run_files.mend(self.evidence)

    def result(self, participant: str, submission: str, task: str, trial: int) -> TrialRecord | None:
        """The record of a trial; None if there is none, or it cannot be read."""
        try:
            return read_record(self.place(participant, submission, task, trial) / FILE)
        except BadInput:
            return None


WORK_FILE = "work.tar.gz"
"""The agent's finished work, where the scheme keeps it: see `kept_work`."""
PRINTED = ("agent/stdout.txt", "agent/stderr.txt", "tests/stdout.txt", "tests/stderr.txt")
"""The files of a trial with what its agent and its tests printed."""
WORK = ("tests/ctrf.json", "agent/logs", "artifacts", WORK_FILE)
"""Further files of a trial: the tests' own report, those that the agent left in /logs/agent and /logs/artifacts, and its work."""


def kept(competition: Path, record: Tests) -> dict[str, Path]:
    """The files that are kept here of an evidence record's trial: name → a file, or a folder of files.

    Nothing if another run of the same trial is kept. A record that was signed for a later epoch is still about its run.
    """
    place = TrialStore(competition, record.validator).place(record.participant, record.submission, record.task, record.trial)
    try:
        stored = read_record(place / FILE)
    except BadInput:
        return {}
    its_own = stored.evidence()
    if its_own is None or its_own.document() | {"epoch": record.epoch} != record.document():
        return {}
    here = {name: place / name for name in (*PRINTED, *WORK)}
    return {name: path for name, path in here.items() if not path.is_symlink() and (path.is_file() or path.is_dir())}


def stored_trials(competition: Path) -> Iterator[tuple[Path, TrialRecord]]:
    """The folder and the record of every trial in a competition's folder; records that cannot be read are passed over."""
    for file in sorted((competition / "trials").glob(f"[!.]*/[!.]*/*/*/{FILE}")):
        with suppress(BadInput):
            yield file.parent, read_record(file)
