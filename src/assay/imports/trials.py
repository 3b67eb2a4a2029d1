"""Defines the common form of other harnesses' results: trials, why they failed, and what each counts as. SPEC 2.1.

A reader (`terminal_bench`, `harbor`, `inspect_ai`, `lm_eval`, `tables`) returns the facts that a harness recorded. `decide` says
what they count as under a scheme. No reader knows a rule, so the same files can be imported under either rule of `agent_timeout`.
Files of a harness are read within bounds: no symbolic link is followed, and JSON is checked by type.
"""

from __future__ import annotations

import decimal
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from assay.errors import BadInput
from assay.records import Tests
from assay.scheme.fields import instant

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_ENTRIES",
    "MAX_TRIALS",
    "UNKNOWN_TIME",
    "Cells",
    "FailureCause",
    "FolderWalk",
    "ImportOptions",
    "Outcome",
    "Trial",
    "Trials",
    "cells",
    "decide",
    "find",
    "inside",
    "json_object",
    "kind_of",
    "listed",
    "moment",
    "natural",
    "numbered",
    "optional_text",
    "parsed",
    "passed",
    "runs_of",
    "task_id",
    "text_of",
    "threshold_of",
    "validator_of",
]


MAX_TRIALS = 2_000_000
"""Most trials of one import."""

UNKNOWN_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""`observed_at` of a trial without a recorded start: an instant that cannot be a real one."""

Outcome = Literal["pass", "fail", "timeout", "error"]


class FailureCause(StrEnum):
    """The cause of a trial's failure, as far as the rules need to know."""

    NONE = "none"
    AGENT_TIMEOUT = "agent-timeout"
    TEST_TIMEOUT = "test-timeout"
    AGENT = "agent"
    """The agent crashed or stopped early, or the output of the tests cannot be read because of it."""
    SETUP = "setup"
    """The agent never ran: it could not be installed."""
    ELSEWHERE = "elsewhere"
    """The cause is not the participant's, or this program does not know it."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The user's options of an import. The first group is for reading, the second for counting, the third for writing."""

    agent: str | None = None
    """The agent of every trial, whatever name the files have."""
    attempts: Literal["auto", "runs", "trials"] = "auto"
    """The meaning of attempt k of a task: run k (a validator) or trial k of its run; `auto` decides by the files."""

    agent_timeout: Literal["fail", "verify"] | None = None
    """The rule of SPEC 2.1; None: the scheme's."""
    count_as: Literal["scheme", "leaderboard"] = "scheme"
    """`leaderboard`: resolved is pass, everything else is fail, as Terminal-Bench counts."""
    strict_errors: bool = False
    """A crashed agent, or unreadable output of its tests, is an error instead of a fail."""

    epoch: int = 1
    stake: str = "100"
    first_uid: int | None = 1
    """uid of the first agent in the order of names; None: no agent gets a uid."""
    into: Literal["new", "add", "replace"] = "new"
    """Make a new folder; add evidence to an existing competition; or replace an earlier import."""
    assume_submission: bool = False
    """With `add`: the trials are of the submission in participants.csv, although its digest differs."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial as its harness recorded it; `validator` is the key that its run stands for."""

    agent: str
    validator: str
    task: str
    trial: int = 1
    resolved: bool | None = None
    """True if all tests passed; None if the harness did not record it."""
    trouble: FailureCause = FailureCause.NONE
    mode: str = "unset"
    """The harness's own name of the failure, for the report."""
    started_at: datetime | None = None
    version: str = ""
    stated: Outcome | None = None
    """The outcome, if the source states it explicitly."""
    origin: Tests | None = None
    """The record of evidence that it was exported from."""
    file: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Trials:
    """The trials that a reader found, and notes for the user."""

    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    def __len__(self) -> int:
        return len(self.trials)


def decide(trial: Trial, agent_timeout: str = "fail", *, leaderboard: bool = False, strict_errors: bool = False) -> Outcome:
    """The outcome that a trial counts as. SPEC 2.1.

    - Tests that ran out of time: timeout. An agent that ran out of time: timeout under "fail"; under "verify" its tests decide.
    - An agent that could not be installed: error, whatever the tests said.
    - Otherwise, if the tests passed: pass, whatever else failed.
    - Tests that failed, with no other cause: fail. Nothing recorded: error. An agent's own crash or unreadable test output: fail
      (`strict_errors`: error). Any other cause: error, never fail.
    - `leaderboard`: resolved is pass, everything else fail.
    """
    if leaderboard:
        return "pass" if (trial.stated == "pass" or (trial.stated is None and trial.resolved is True)) else "fail"
    if trial.stated is not None:
        return trial.stated
    if trial.trouble is FailureCause.TEST_TIMEOUT or (trial.trouble is FailureCause.AGENT_TIMEOUT and agent_timeout == "fail"):
        return "timeout"
    if trial.trouble is FailureCause.SETUP:
        return "error"
    if trial.resolved is True:
        return "pass"
    if trial.trouble is FailureCause.AGENT_TIMEOUT:
        return "fail" if trial.resolved is False else "timeout"
    if trial.trouble is FailureCause.NONE:
        return "fail" if trial.resolved is False else "error"
    return "fail" if trial.trouble is FailureCause.AGENT and not strict_errors else "error"


Cell = tuple[str, str, str, int]
"""(agent, validator, task, trial)."""


@dataclass(frozen=True, slots=True)
class Cells:
    """One trial for each cell that has any, in the order of the keys' UTF-8 bytes, and counts of those left out."""

    outcomes: Mapping[Cell, tuple[Outcome, Trial]] = field(default_factory=dict)
    repeated: int = 0
    """Repeated trials of a cell with the same outcome; the earliest is kept."""
    retried: int = 0
    """Errors that a later result of the same cell replaced."""


def cells(decided: Iterable[tuple[Outcome, Trial]]) -> Cells:
    """One trial for each cell: a result replaces an error; of equal results the earliest counts; different ones are refused."""
    best: dict[Cell, tuple[Outcome, Trial]] = {}
    repeated = retried = 0
    for outcome, trial in decided:
        cell = (trial.agent, trial.validator, trial.task, trial.trial)
        if cell not in best:
            best[cell] = outcome, trial
            if len(best) > MAX_TRIALS:
                raise BadInput(f"there are more than {MAX_TRIALS} trials", file=trial.file, hint="import them in parts")
            continue
        before, first = best[cell]
        if before == outcome:
            repeated += 1
            if _when(trial) < _when(first):
                best[cell] = outcome, trial
        elif "error" in (before, outcome):
            retried += 1
            if before == "error":
                best[cell] = outcome, trial
        else:
            raise _contradiction(before, first, outcome, trial)
    ordered = sorted(best, key=lambda c: (c[0].encode(), c[1].encode(), c[2].encode(), c[3]))
    return Cells({cell: best[cell] for cell in ordered}, repeated, retried)


def _contradiction(before: Outcome, first: Trial, outcome: Outcome, trial: Trial) -> BadInput:
    place = first.file + (f":{first.line}" if first.line else "")
    return BadInput(
        f"says {outcome} for agent {trial.agent!r}, {trial.validator}, task {trial.task!r}, trial {trial.trial}, "
        f"but {place} says {before}",
        file=trial.file,
        line=trial.line,
        hint="remove one of the two, or number the attempts (a column `trial`) if both count",
    )


def _when(trial: Trial) -> tuple[datetime, str, int]:
    return trial.started_at or datetime.max.replace(tzinfo=UTC), trial.file, trial.line or 0


_NAIVE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?", re.ASCII)


def moment(value: object) -> tuple[datetime | None, bool]:
    """The instant of a start time (None without one), and whether it had no time zone and was read as UTC. Raises BadInput."""
    if value is None or value == "":
        return None, False
    if isinstance(value, str) and _NAIVE.fullmatch(value):
        return instant(f"{value}Z"), True
    return instant(value), False


def threshold_of(text: str | None) -> Decimal | None:
    """The threshold in a text such as "0.75": the least score that is a pass. Raises BadInput."""
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", text, re.ASCII):
        raise BadInput(f"{text[:40]!r} is not a number", field="--threshold", hint='write a decimal number such as "0.75"')
    return Decimal(text)


def passed(value: object, threshold: Decimal | None, what: str) -> bool | None:
    """True if a score is a pass: exactly 1, or at least the threshold; None without a score (null, NaN).

    A number other than 0 and 1 is refused without a threshold: there is no partial credit, so the user must say what passes.
    Raises BadInput; `what` describes the score in its message.
    """
    if isinstance(value, bool):
        value = int(value)
    if value is None or (isinstance(value, Decimal) and value.is_nan()):
        return None
    if not isinstance(value, int | Decimal):
        raise BadInput(f"{what} is not a number", hint="name one that is a number, or correct it")
    if threshold is not None:
        return value >= threshold
    if value not in (0, 1):
        raise BadInput(
            f"{what} is {value}, neither 0 nor 1", hint="give the least score that is a pass, for example --threshold 0.5"
        )
    return value == 1


def task_id(task: str, name: object) -> str:
    """The id of one sample of a task, `task/name`. Spaces and % are escaped, so that different names stay different."""
    return re.sub(r"[%\s]", lambda match: f"%{ord(match[0]):02X}", f"{task}/{name}")


def runs_of(logs: Mapping[tuple[str, str], Iterable[str]], key: Callable[[str], Any]) -> dict[tuple[str, str, str], int]:
    """(agent, task, log) → the number of its run. The k-th log of a task, sorted by `key`, belongs to the agent's run k."""
    return {
        (agent, task, log): number
        for (agent, task), names in logs.items()
        for number, log in enumerate(sorted(set(names), key=key), start=1)
    }


def natural(name: str) -> tuple[tuple[int, bytes], ...]:
    """A sort key by which run10 comes after run9."""
    parts = re.split("([0-9]+)", name, flags=re.ASCII)
    return tuple((int(part[:40]) if place % 2 else 0, part.encode()) for place, part in enumerate(parts))


def validator_of(number: int) -> str:
    """The key of the validator for run `number` of every agent."""
    return f"run-{number}"


def numbered(runs: Sequence[str]) -> dict[str, int]:
    """The runs of one agent, numbered from 1 in natural order."""
    return {run: index for index, run in enumerate(sorted(set(runs), key=lambda run: (natural(run), run)), start=1)}


MAX_BYTES = 64_000_000
"""Most bytes of one file of results."""
MAX_ENTRIES = 1_000_000
"""Most files and folders in a folder, at all depths."""
MAX_DEPTH = 12
"""The depth to which folders are searched for results."""


@dataclass
class FolderWalk:
    """The counts of a walk through a folder: entries, symbolic links (never followed), folders that are too deep."""

    entries: int = 0
    links: int = 0
    deep: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about what was left out."""
        links = f"{self.links} symbolic link{'s' if self.links > 1 else ''} not followed"
        deep = f"{self.deep} folder{'s' if self.deep > 1 else ''} more than {MAX_DEPTH} deep not looked into"
        return tuple(note for note, count in ((links, self.links), (deep, self.deep)) if count)


def find(root: Path, name: str, visit: Callable[[Path], bool], *, skip: frozenset[str] = frozenset()) -> FolderWalk:
    """Call `visit` for every file called `name` in a folder, shallow ones first, in the order of their names. Raises BadInput.

    If `visit` returns True, the walk does not go below that folder: the agent wrote the files there, not the harness. Folders
    named in `skip`, and symbolic links, are not entered.
    """
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "no such folder"
        raise BadInput(what, file=root, hint="give the folder that the harness wrote its results to")
    walk, level = FolderWalk(), [root]
    for _ in range(MAX_DEPTH):
        below: list[Path] = []
        for folder in level:
            files, folders = _entries(folder, walk)
            if not (name in files and visit(folder / name)):
                below += [folder / entry for entry in folders if entry not in skip]
        level = below
    walk.deep = len(level)
    return walk


def listed(src: Path, pattern: str) -> tuple[list[Path], FolderWalk]:
    """The files in or below a folder whose names match; or the file itself. Raises BadInput."""
    if src.is_file():
        return [src], FolderWalk()
    if not src.is_dir():
        raise BadInput("no such file or folder", file=src, hint="give what the harness wrote its results to")
    walk, level, files = FolderWalk(), [src], list[Path]()
    for _ in range(MAX_DEPTH):
        below: list[Path] = []
        for folder in level:
            names, folders = _entries(folder, walk)
            files += [folder / name for name in sorted(names, key=os.fsencode) if re.fullmatch(pattern, name)]
            below += [folder / entry for entry in folders]
        level = below
    walk.deep = len(level)
    return files, walk


def _entries(folder: Path, walk: FolderWalk) -> tuple[set[str], list[str]]:
    files, folders = set(), []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                walk.entries += 1
                if walk.entries > MAX_ENTRIES:
                    raise BadInput(f"has more than {MAX_ENTRIES} files and folders", file=folder, hint="import it in parts")
                if entry.is_symlink():
                    walk.links += 1
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    files.add(entry.name)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=folder, hint="check its permissions") from None
    return files, sorted(folders, key=os.fsencode)


def json_object(path: Path, limit: int = 0) -> dict[str, Any]:
    """The JSON object in a file, with Decimal instead of float, since a reward must stay exact. Raises BadInput."""
    limit = limit or MAX_BYTES
    try:
        if path.stat().st_size > limit:
            raise BadInput(f"is larger than {limit} bytes", file=path, hint="is this a file of results?")
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=path, hint="check its permissions") from None
    return parsed(data, path)


def parsed(data: bytes, path: Path | str) -> dict[str, Any]:
    """The JSON object in some bytes of a file, with Decimal instead of float. Raises BadInput."""
    source = ""
    try:
        source = data.decode("utf-8")
        content = json.loads(source, parse_float=decimal.Decimal, parse_constant=decimal.Decimal)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise BadInput("is not UTF-8", file=path, line=line, hint="JSON is UTF-8") from None
    except json.JSONDecodeError as error:
        broken = "ends in the middle" if error.pos >= len(source.rstrip()) else f"is not JSON: {error.msg}"
        raise BadInput(
            broken, file=path, line=error.lineno, hint="was the run stopped while it wrote? remove the file or run the task again"
        ) from None
    except RecursionError:
        raise BadInput("is nested too deeply", file=path, hint="is this a file of results?") from None
    except (ValueError, ArithmeticError):
        raise BadInput("has a number too long to read", file=path, hint="is this a file of results?") from None
    if not isinstance(content, dict):
        raise BadInput(f"holds {kind_of(content)} where an object is expected", file=path, hint="is this a file of results?")
    return content


def text_of(content: dict[str, Any], name: str, path: Path | str, *, prefix: str = "") -> str:
    """The text of a required field. Raises BadInput that names it."""
    text = optional_text(content, name, path, prefix=prefix)
    if text is None:
        raise BadInput("is missing", file=path, field=prefix + name, hint="is this a file of results of that harness?")
    return text


def optional_text(content: dict[str, Any], name: str, path: Path | str, *, prefix: str = "") -> str | None:
    """The text of an optional field; None if it is absent or null. Raises BadInput that names it."""
    value = content.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadInput(f"is {kind_of(value)}, not text", file=path, field=prefix + name, hint="correct it or leave the trial out")
    if not value:
        raise BadInput("is empty", file=path, field=prefix + name, hint="correct it or leave the trial out")
    return value


def inside(content: dict[str, Any], name: str, path: Path | str, prefix: str = "") -> dict[str, Any]:
    """The object of an optional field, empty if it is absent or null. Raises BadInput that names it."""
    value = content.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        what, hint = f"is {kind_of(value)}, not an object", "is this a file of results of that harness?"
        raise BadInput(what, file=path, field=prefix + name, hint=hint)
    return value


def kind_of(value: object) -> str:
    """The type of a JSON value, in words."""
    kinds = {bool: "a boolean", int: "a number", decimal.Decimal: "a number", str: "text", list: "a list", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), type(value).__name__)
