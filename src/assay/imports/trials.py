"""The common shape of what other harnesses recorded: trials, the trouble they had, and what counts for each cell. SPEC 2.1.

A reader (`terminal_bench`, `harbor`, `inspect_ai`, `lm_eval`, `tables`) says what a harness wrote down, fact for fact; `decide`
says what that counts as under a scheme. So the same files import under either rule of `agent_timeout`; no reader knows a rule.
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
"""More trials than this in one import are refused."""

UNKNOWN_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""`observed_at` of a trial whose harness recorded no start: an instant that nobody takes for a real one."""

Outcome = Literal["pass", "fail", "timeout", "error"]


class FailureCause(StrEnum):
    """What went wrong in a trial, in the words the rules need."""

    NONE = "none"
    AGENT_TIMEOUT = "agent-timeout"
    TEST_TIMEOUT = "test-timeout"
    AGENT = "agent"
    """The agent crashed or broke off, or left something that the tests' output could not be read from."""
    SETUP = "setup"
    """The agent never came to run: it could not be installed."""
    ELSEWHERE = "elsewhere"
    """Trouble that is not the participant's, or that this program does not know."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What a user may say about an import. The first group is for reading, the second for counting, the third for writing."""

    agent: str | None = None
    """Every trial is of this agent, whatever the files call it."""
    attempts: Literal["auto", "runs", "trials"] = "auto"
    """Whether attempt k of a task stands for run k (a validator), or is trial k of its run."""

    agent_timeout: Literal["fail", "verify"] | None = None
    """The rule of SPEC 2.1; None = the scheme's."""
    count_as: Literal["scheme", "leaderboard"] = "scheme"
    """`leaderboard`: resolved is pass, everything else is fail, as Terminal-Bench counts."""
    strict_errors: bool = False
    """An agent that crashed, or output that could not be read, is error instead of fail."""

    epoch: int = 1
    stake: str = "100"
    first_uid: int | None = 1
    """uid of the first agent in the order of names; None = nobody is registered."""
    into: Literal["new", "add", "replace"] = "new"
    """Make a directory; add evidence to a competition that is there; make it anew in place of an earlier import."""
    assume_submission: bool = False
    """With `add`: the trials are of the submission that participants.csv names, although its digest is another."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial as its harness recorded it; `validator` is the key that its run stands for."""

    agent: str
    validator: str
    task: str
    trial: int = 1
    resolved: bool | None = None
    """Whether all tests passed; None = the harness recorded nothing."""
    trouble: FailureCause = FailureCause.NONE
    mode: str = "unset"
    """The harness's own name of the trouble, for the report."""
    started_at: datetime | None = None
    version: str = ""
    stated: Outcome | None = None
    """The outcome, where the source says it in so many words."""
    origin: Tests | None = None
    """The record of evidence that it was exported from."""
    file: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Trials:
    """What a reader found, and what the user should know of the reading."""

    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    def __len__(self) -> int:
        return len(self.trials)


def decide(trial: Trial, agent_timeout: str = "fail", *, leaderboard: bool = False, strict_errors: bool = False) -> Outcome:
    """What a trial counts as. SPEC 2.1.

    - Tests that ran out of time: timeout. An agent that did: timeout under "fail"; under "verify" its tests decide.
    - An agent that could not be installed: error, whatever the tests said.
    - Otherwise tests that passed are a pass, whatever broke around them.
    - Not passed, with no trouble: fail; nothing recorded: error. An agent's own crash or unreadable test output: fail
      (`strict_errors`: error). Any other trouble: error, never fail.
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
    """One trial for every cell that has any, in the order of the keys' UTF-8 bytes, and what was left out on the way."""

    outcomes: Mapping[Cell, tuple[Outcome, Trial]] = field(default_factory=dict)
    repeated: int = 0
    """Trials that said the same of a cell once more; the earliest is kept."""
    retried: int = 0
    """Errors that gave way to a later result of the same cell."""


def cells(decided: Iterable[tuple[Outcome, Trial]]) -> Cells:
    """One trial a cell: an error gives way to a result, equal results count once, the earliest; different ones are refused."""
    kept: dict[Cell, tuple[Outcome, Trial]] = {}
    repeated = retried = 0
    for outcome, trial in decided:
        cell = (trial.agent, trial.validator, trial.task, trial.trial)
        if cell not in kept:
            kept[cell] = outcome, trial
            if len(kept) > MAX_TRIALS:
                raise BadInput(f"there are more than {MAX_TRIALS} trials", file=trial.file, hint="import them in parts")
            continue
        before, first = kept[cell]
        if before == outcome:
            repeated += 1
            if _when(trial) < _when(first):
                kept[cell] = outcome, trial
        elif "error" in (before, outcome):
            retried += 1
            if before == "error":
                kept[cell] = outcome, trial
        else:
            raise _contradiction(before, first, outcome, trial)
    ordered = sorted(kept, key=lambda c: (c[0].encode(), c[1].encode(), c[2].encode(), c[3]))
    return Cells({cell: kept[cell] for cell in ordered}, repeated, retried)


def _contradiction(before: Outcome, first: Trial, outcome: Outcome, trial: Trial) -> BadInput:
    place = first.file + (f":{first.line}" if first.line else "")
    return BadInput(
        f"says {outcome} of agent {trial.agent!r}, {trial.validator}, task {trial.task!r}, trial {trial.trial}, "
        f"of which {place} says {before}",
        file=trial.file,
        line=trial.line,
        hint="remove one of the two, or number the attempts (a column `trial`) if both count",
    )


def _when(trial: Trial) -> tuple[datetime, str, int]:
    return trial.started_at or datetime.max.replace(tzinfo=UTC), trial.file, trial.line or 0


_NAIVE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?", re.ASCII)


def moment(value: object) -> tuple[datetime | None, bool]:
    """The instant of a start time, and whether it had no time zone and was read as UTC; nothing: None. Raises BadInput."""
    if value is None or value == "":
        return None, False
    if isinstance(value, str) and _NAIVE.fullmatch(value):
        return instant(f"{value}Z"), True
    return instant(value), False


def threshold_of(text: str | None) -> Decimal | None:
    """The number in a text such as "0.75", from which on a score is a pass; raises BadInput."""
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", text, re.ASCII):
        raise BadInput(f"{text[:40]!r} is not a number", field="--threshold", hint='write a decimal number such as "0.75"')
    return Decimal(text)


def passed(value: object, threshold: Decimal | None, what: str) -> bool | None:
    """Whether a score is a pass: exactly 1, or at least the threshold; None where there is no score (null, NaN).

    A number other than 0 and 1 is refused without a threshold: there is no partial credit, so somebody must say what passes.
    Raises BadInput naming `what` the score is.
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
        raise BadInput(f"{what} is {value}, neither 0 nor 1", hint="say from where on it is a pass: --threshold 0.5, for example")
    return value == 1


def task_id(task: str, name: object) -> str:
    """The id of one sample of a task, `task/name`, without the spaces that no id may have; % is %25, so that two stay two."""
    return re.sub(r"[%\s]", lambda match: f"%{ord(match[0]):02X}", f"{task}/{name}")


def runs_of(logs: Mapping[tuple[str, str], Iterable[str]], key: Callable[[str], Any]) -> dict[tuple[str, str, str], int]:
    """(agent, task, log) → the number of its run: the k-th log of a task, sorted by `key`, is of the agent's run k."""
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
    """The key of the validator that run `number` of every agent stands for."""
    return f"run-{number}"


def numbered(runs: Sequence[str]) -> dict[str, int]:
    """The runs of one agent, numbered from 1 in natural order."""
    return {run: index for index, run in enumerate(sorted(set(runs), key=lambda run: (natural(run), run)), start=1)}


MAX_BYTES = 64_000_000
"""One file of results is refused above this size."""
MAX_ENTRIES = 1_000_000
"""A folder with more files and folders than this, in all, is refused."""
MAX_DEPTH = 12
"""How many folders deep results are looked for."""


@dataclass
class FolderWalk:
    """What a walk saw and left out: symbolic links, which are never followed, and folders that are too deep."""

    entries: int = 0
    links: int = 0
    deep: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of it."""
        links = f"{self.links} symbolic link{'s' if self.links > 1 else ''} not followed"
        deep = f"{self.deep} folder{'s' if self.deep > 1 else ''} more than {MAX_DEPTH} deep not looked into"
        return tuple(note for note, count in ((links, self.links), (deep, self.deep)) if count)


def find(root: Path, name: str, visit: Callable[[Path], bool], *, skip: frozenset[str] = frozenset()) -> FolderWalk:
    """Calls `visit` for every file called `name` in a folder, shallow ones first, in the order of their names; raises BadInput.

    Where `visit` says True, nothing below that folder is looked at: what lies there was written by the agent, not by the harness.
    Folders named in `skip`, and symbolic links, are not entered.
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
    """The files of a folder, or below it, whose names match; a file stands for itself. Raises BadInput."""
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
    """The JSON object in a file, numbers with a point as Decimal; raises BadInput. No binary float is made of a reward."""
    limit = limit or MAX_BYTES
    try:
        if path.stat().st_size > limit:
            raise BadInput(f"is larger than {limit} bytes", file=path, hint="is this a file of results?")
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=path, hint="check its permissions") from None
    return parsed(data, path)


def parsed(data: bytes, path: Path | str) -> dict[str, Any]:
    """The JSON object in some bytes of a file, numbers with a point as Decimal; raises BadInput."""
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
    """A field that must be there, as text; raises BadInput naming it."""
    text = optional_text(content, name, path, prefix=prefix)
    if text is None:
        raise BadInput("is missing", file=path, field=prefix + name, hint="is this a file of results of that harness?")
    return text


def optional_text(content: dict[str, Any], name: str, path: Path | str, *, prefix: str = "") -> str | None:
    """A field that may be absent or null, else text; raises BadInput naming it."""
    value = content.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadInput(f"is {kind_of(value)}, not text", file=path, field=prefix + name, hint="correct it or leave the trial out")
    if not value:
        raise BadInput("is empty", file=path, field=prefix + name, hint="correct it or leave the trial out")
    return value


def inside(content: dict[str, Any], name: str, path: Path | str, prefix: str = "") -> dict[str, Any]:
    """An object that may be absent or null, which is as good as empty; raises BadInput naming it."""
    value = content.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        what, hint = f"is {kind_of(value)}, not an object", "is this a file of results of that harness?"
        raise BadInput(what, file=path, field=prefix + name, hint=hint)
    return value


def kind_of(value: object) -> str:
    """What a JSON value is, in a word or two."""
    kinds = {bool: "a boolean", int: "a number", decimal.Decimal: "a number", str: "text", list: "a list", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), type(value).__name__)
