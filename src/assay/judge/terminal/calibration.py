"""Calibrates tasks, and checks task sets: a task must judge correctly here before it judges any agent. SPEC 2.1.

In one sandbox, image, mode and set of limits, the reference solution must pass and doing nothing must fail, k times each. If a
task has no solution, only doing nothing is tried. The result is stored in the machine's state folder, so every competition,
validator and command can use it:

    STATE/calibrations/<64 hex digits>.json     schema assay.calibration/1; the name is the digest of all that it depends on

Only success is stored. A task that failed is tried again by the next run, since somebody may have repaired the machine.

`check_tasks` reports what is wrong with the tasks of a set: tasks that cannot be loaded, tasks that judge wrongly here, and
warnings about files that look suspicious.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.errors import BadInput
from assay.exact import digest
from assay.folder.files import write_text
from assay.judge import tree
from assay.judge.sandbox import Image, InfrastructureError, Sandbox, images
from assay.judge.sandbox.root import programs
from assay.judge.terminal import agent as agents
from assay.judge.terminal.agent import Agent
from assay.judge.terminal.task_settings import Mode
from assay.judge.terminal.tasks import SOLUTION, TESTS, TOML, Task, read_task, task_folders, within
from assay.judge.terminal.trial import KEEPING, Keeping, TrialResult, TrialSetup, image_of, run_trial
from assay.scheme.fields import Section
from assay.scheme.reading import line_of, validate

_TAIL = 20_000
"""Bytes at the end of an output that are searched for an error."""
_LINE = 300
_TROUBLE = re.compile(
    r"not found|no such|denied|error|cannot|can't|could not|unable|fail|refused|missing|exception|traceback|unresolved|expected",
    re.IGNORECASE,
)
_SHELL = re.compile(r"^(?:/tests/|/solution/)?[\w.-]+\.sh: line \d+: ")


class Uncalibrated(BadInput):
    """A task does not judge correctly here, so it must not judge agents."""


class Calibration(Section):
    """A successful calibration of a task."""

    schema_: Annotated[Literal["assay.calibration/1"], Field(alias="schema")] = "assay.calibration/1"
    task: str
    """The task's digest."""
    sandbox: str
    """The sandbox's own description: name, version, how it enforces limits."""
    image: str
    """The image's digest."""
    mode: Mode
    times: Annotated[int, Field(ge=1, le=1000)]
    """The number of tries of the solution, and of doing nothing."""
    solution: bool
    """Whether there was a reference solution; without one, only doing nothing was tried."""


@dataclass(frozen=True)
class _CalibrationKey:
    """Everything that a calibration depends on. Its digest names the file, so fields must not be renamed."""

    task: str
    sandbox: str
    image: str
    mode: Mode
    keeping: Keeping
    programs: str
    """The host's programs, if boxes see them: the image's digest covers packages only."""

    @property
    def file(self) -> Path:
        return images.state() / "calibrations" / f"{digest(asdict(self)).removeprefix('sha256:')}.json"


def calibrate(
    sandbox: Sandbox, task: Task, image: Image, *, times: int = 1, keeping: Keeping = KEEPING
) -> tuple[Calibration, bool]:
    """The task's calibration in this sandbox and image, and whether it was stored before; without a stored one, the trials run.

    Raises Uncalibrated with the reason if the task does not judge correctly, or InfrastructureError if the trials could not tell.
    """
    key = _CalibrationKey(task.digest, f"{sandbox.name}: {sandbox.describe()}", image.digest, task.mode, keeping, programs(image))
    if (stored := _load(key)) is not None and stored.times >= times:
        return stored, True
    setup = TrialSetup(sandbox, keeping=keeping)
    for _ in range(times):
        if task.solution is not None:
            _check_solution(setup, task, image)
        _check_noop(setup, task, image)
    calibration = Calibration(
        task=task.digest,
        sandbox=key.sandbox,
        image=image.digest,
        mode=task.mode,
        times=times,
        solution=task.solution is not None,
    )
    _store(key, calibration)
    return calibration, False


def _check_solution(setup: TrialSetup, task: Task, image: Image) -> None:
    with _trial(setup, task, agents.BUILT_IN["oracle"], image) as (result, folder):
        if result.verdict.outcome != "pass":
            what = f"the reference solution fails here: {_why_not_passed(result, folder)}"
            hint = f"to see it: assay trial {task.folder} oracle; correct the task or its environment"
            raise Uncalibrated(what, file=task.folder, hint=hint)


def _check_noop(setup: TrialSetup, task: Task, image: Image) -> None:
    with _trial(setup, task, agents.BUILT_IN["noop"], image) as (result, _folder):
        if result.verdict.outcome == "pass":
            hint = f"to see it: assay trial {task.folder} noop; make the tests fail where the work was not done"
            raise Uncalibrated("doing nothing passes its tests", file=task.folder, hint=hint)


@contextmanager
def _trial(setup: TrialSetup, task: Task, agent: Agent, image: Image) -> Iterator[tuple[TrialResult, Path]]:
    """A trial's result and its folder, which is removed when the context ends.

    Raises InfrastructureError for a trial that is an error.
    """
    try:
        with TemporaryDirectory(prefix="assay-calibration-") as folder:
            result = run_trial(setup, task, agent, image, Path(folder))
            if result.verdict.outcome == "error":
                raise InfrastructureError(f"{agent.name} could not be tried: {result.message}", file=task.folder)
            yield result, Path(folder)
    except OSError as error:
        raise InfrastructureError(f"{agent.name} could not be tried: {error.strerror}", file=error.filename) from error


def _why_not_passed(result: TrialResult, folder: Path) -> str:
    """The reason why a solution did not pass: the tests' own words, if they printed any."""
    parts = []
    if result.tests is not None and result.tests.stopped is None and (line := last_line(folder / "tests")):
        parts.append(line)
    else:
        parts.append(str(result.verdict.reason))
    if result.agent is not None and result.agent.exit_code not in (0, None):
        ended = f"solve.sh itself ended with {result.agent.exit_code}"
        line = last_line(folder / "agent")
        parts.append(f"{ended}: {line}" if line else ended)
    return "; ".join(parts)


def last_line(folder: Path) -> str:
    """The last printed line that mentions an error, else the last line; without the prefix that a shell adds.

    stdout is read before stderr, where shells report what they did not find.
    """
    lines: list[str] = []
    for name in ("stdout.txt", "stderr.txt"):
        with suppress(OSError), (folder / name).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            lines += file.read().decode("utf-8", "replace").splitlines()
    plain = [" ".join(line.split()) for line in lines if any(char.isalnum() for char in line)]
    errors = [line for line in plain if _TROUBLE.search(line)]
    last = (errors or plain or [""])[-1]
    return _SHELL.sub("", last)[:_LINE]


def _load(key: _CalibrationKey) -> Calibration | None:
    """The stored calibration; None if there is none, or it cannot be read."""
    file = key.file
    try:
        stored = validate(Calibration, json.loads(file.read_bytes()), file=file)
    except (OSError, ValueError, BadInput):
        return None
    same = (stored.task, stored.sandbox, stored.image, stored.mode) == (key.task, key.sandbox, key.image, key.mode)
    return stored if same else None


def _store(key: _CalibrationKey, calibration: Calibration) -> None:
    """Stores a calibration for the next run. If that fails, the next run calibrates again."""
    with suppress(OSError, BadInput):
        key.file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_text(key.file, calibration.model_dump_json(by_alias=True, indent=1) + "\n")


FindingLevel = Literal["refused", "error", "warning"]

LEAST_MEMORY = 64 << 20
LEAST_DISK = 16 << 20
SHORT_SECONDS = 5
_ORDER = {"refused": 0, "error": 1, "warning": 2}
_STEERING = frozenset(
    {
        "BASH_ENV",
        "ENV",
        "GIT_CONFIG_GLOBAL",
        "HOME",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "NODE_PATH",
        "PATH",
        "PERL5LIB",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "RUBYLIB",
    }
)
"""Variables that decide from where programs are loaded."""
_LITTER = frozenset(
    {"__pycache__", ".DS_Store", ".git", ".idea", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv", ".vscode"}
)


@dataclass(frozen=True)
class Finding:
    """A fault of a task, or something suspicious about it."""

    level: FindingLevel
    """`refused`: the task cannot be judged at all; `error`: it judges wrongly here; `warning`: its author should look."""
    rule: str
    task: str
    file: Path
    what: str
    do: str
    line: int | None = None
    field: str = ""

    @property
    def where(self) -> str:
        """File, line and field, as far as they are known."""
        location = str(self.file) if self.line is None else f"{self.file}:{self.line}"
        return f"{location}: {self.field}" if self.field else location

    def __str__(self) -> str:
        return f"{self.where}: {self.level} [{self.rule}] {self.what}; {self.do}"

    def document(self) -> dict[str, Any]:
        """The finding as JSON."""
        return {
            "level": self.level,
            "rule": self.rule,
            "task": self.task,
            "file": str(self.file),
            "line": self.line,
            "field": self.field,
            "what": self.what,
            "do": self.do,
        }


@dataclass(frozen=True)
class TasksCheck:
    """The result of checking task sets."""

    findings: tuple[Finding, ...]
    """In the order of the tasks; for each task errors first, then by file and line."""
    right: int
    """The number of tasks that judge correctly here."""
    known: int
    """The number of these that were calibrated before."""
    tasks: int


def check_tasks(*places: Path, sandbox: Sandbox, times: int = 1, jobs: int = 1) -> TasksCheck:
    """Loads the tasks of sets, inspects their files, and calibrates each in a sandbox. Raises BadInput for a place without tasks.

    times: how often the solution must pass, and doing nothing must fail. jobs: tasks at one time.
    """
    seen, tasks = inspect_tasks(*places)

    def calibrated(task: Task) -> Finding | bool:
        return _calibrated(sandbox, task, times)

    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(calibrated, tasks))
    wrong = [result for result in results if isinstance(result, Finding)]
    order = {task.id: number for number, task in enumerate(tasks)}
    findings = sorted((*seen, *wrong), key=lambda finding: (order.get(finding.task, -1), _ORDER[finding.level]))
    known, total = sum(result is True for result in results), len({*order, *(finding.task for finding in seen)})
    return TasksCheck(tuple(findings), len(results) - len(wrong), known, total)


def inspect_tasks(*places: Path) -> tuple[list[Finding], list[Task]]:
    """Findings that need no trial, and the tasks that can be loaded. Raises BadInput for a place without tasks."""
    findings: list[Finding] = []
    tasks: list[Task] = []
    seen: dict[str, Path] = {}
    for place in places:
        for folder in task_folders(place)[0]:
            if folder.name in seen:
                what = f"the task is there twice, first at {seen[folder.name]}"
                findings.append(Finding("refused", "twice", folder.name, folder, what, "rename one"))
                continue
            seen[folder.name] = folder
            try:
                tasks.append(read_task(folder))
                findings += task_warnings(tasks[-1])
            except BadInput as error:
                findings.append(_finding("refused", "refused", folder.name, error, folder))
    return findings, tasks


def _calibrated(sandbox: Sandbox, task: Task, times: int) -> Finding | bool:
    """The fault of a task that judges wrongly; for others, whether they were calibrated before."""
    try:
        return calibrate(sandbox, task, image_of(sandbox, task), times=times)[1]
    except Uncalibrated as error:
        return _finding("error", "uncalibrated", task.id, error, task.folder)
    except BadInput as error:
        return _finding("error", "environment", task.id, error, task.folder)
    except InfrastructureError as error:
        return _finding("error", "trouble", task.id, error, task.folder)


def _finding(level: FindingLevel, rule: str, task: str, error: BadInput | InfrastructureError, folder: Path) -> Finding:
    file, do = Path(error.file or folder), error.hint or "correct it"
    return Finding(level, rule, task, file, error.what, do, error.line, error.field)


def task_warnings(task: Task) -> tuple[Finding, ...]:
    """The warnings about a loaded task, by file and line. Nothing runs."""
    findings = {finding for rule in (_notes, _settings, _scripts, _dockerfile, _leaks, _litter) for finding in rule(task)}
    return tuple(sorted(findings, key=lambda finding: (str(finding.file), finding.line or 0, finding.rule, finding.what)))


def _notes(task: Task) -> Iterator[Finding]:
    for note in task.notes:
        yield Finding("warning", note.rule, task.id, task.folder / TOML, note.what, note.do, note.line, note.field)


def _settings(task: Task) -> Iterator[Finding]:
    def warning(rule: str, field: str, what: str, do: str) -> Finding:
        return Finding("warning", rule, task.id, task.folder / TOML, what, do, line_of(task.source, field.split(".")), field)

    environment = task.settings.environment
    if task.mode != "separate":
        what = f"with {task.mode} the tests can meet what the agent left behind, and the score is labelled so"
        yield warning("weaker", "verifier.environment_mode", what, "use separate, and name in artifacts what the tests need")
    if task.memory < LEAST_MEMORY:
        what = f"{environment.memory_mb} MiB of memory is less than Python and git need"
        yield warning("small", "environment.memory_mb", what, "give 64 or more")
    if task.disk < LEAST_DISK:
        yield warning("small", "environment.storage_mb", f"{environment.storage_mb} MiB of disk is little", "give 16 or more")
    for name, seconds in (("agent", task.settings.agent.timeout_sec), ("verifier", task.settings.verifier.timeout_sec)):
        if seconds < SHORT_SECONDS:
            what = f"{seconds:g} s may pass before a busy machine starts anything"
            yield warning("small", f"{name}.timeout_sec", what, "give 5 or more")
    for name, value in (task.env | dict(task.plan.env if task.plan else {}) | task.verifier_env).items():
        agents_folders = [part for part in value.split(":") if any(within(part, path) for path in task.kept)]
        if name in _STEERING and agents_folders:
            what = f"{name} has the agent's folder {agents_folders[0]} in it, for the tests too"
            yield Finding("warning", "steered", task.id, task.folder / TOML, what, "set it in the tests to what they need")


def _scripts(task: Task) -> Iterator[Finding]:
    """Warnings about how the two scripts start, and about a missing solution."""
    for name in (SOLUTION, TESTS):
        file = task.folder / name
        if name == SOLUTION and task.solution is None:
            what = "there is no solution, so it is not known that the task can be solved"
            yield Finding("warning", "no-solution", task.id, file, what, "write solution/solve.sh, which the oracle runs")
            continue
        first = file.read_bytes().split(b"\n", 1)[0]
        if not first.startswith(b"#!"):
            yield Finding("warning", "no-shebang", task.id, file, "names no program that runs it", "begin with #!/bin/bash", 1)
        elif b"\r" in first:
            what = "has Windows line ends, which shells do not accept"
            yield Finding("warning", "line-ends", task.id, file, what, "save it with Unix line ends", 1)
        if name == TESTS and not file.stat().st_mode & 0o100:
            what = "is not executable, and other harnesses start it directly"
            yield Finding("warning", "not-executable", task.id, file, what, f"chmod +x {TESTS}")


def _dockerfile(task: Task) -> Iterator[Finding]:
    if task.plan is None:
        return
    file = task.environment / "Dockerfile"
    for step in task.plan.refused:
        what = f"{step.what} cannot be done in bubblewrap"
        yield Finding("warning", "containers-only", task.id, file, what, step.why, step.line)
    if task.settings.environment.workdir is None and task.plan.workdir is None:
        what = f"names no work directory, so it is {task.workdir}"
        yield Finding("warning", "no-workdir", task.id, file, what, "write WORKDIR /app")


def _leaks(task: Task) -> Iterator[Finding]:
    """Copies of the two scripts in the build context. Other files of tests/ may be there for a reason, often as input."""
    secret = {_content(file): name for name in (SOLUTION, TESTS) if (file := task.folder / name).is_file()}
    for entry in tree.walk(task.environment) if task.environment.is_dir() else ():
        file = task.environment / entry.path
        if entry.kind in ("file", "exec") and entry.size and (same := secret.get(_content(file))):
            what = f"is the same as {same}, and agents may be able to read it"
            yield Finding("warning", "leaks", task.id, file, what, "take it out of environment/")


def _content(file: Path) -> bytes:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def _litter(task: Task) -> Iterator[Finding]:
    entries = [entry for entry in tree.walk(task.folder) if entry.path != "."]
    parents = {entry.path.rpartition("/")[0] for entry in entries}
    for entry in entries:
        name, file = entry.path.rpartition("/")[2], task.folder / entry.path
        if name in _LITTER or name.endswith((".pyc", ".swp", "~")):
            what = "belongs to one person's machine, and changes the task's digest"
            yield Finding("warning", "litter", task.id, file, what, "remove it")
        elif entry.kind == "folder" and entry.path not in parents:
            what = "is empty: git does not keep it, and the digest would change"
            yield Finding("warning", "empty-folder", task.id, file, what, "make it in the Dockerfile, or put a file into it")
