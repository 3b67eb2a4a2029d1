"""Calibration: a task judges nobody before it has judged right here. SPEC 2.1.

In one sandbox, image and mode, and within one set of bounds, the reference solution has to pass and doing nothing has to fail, k
times each. Of a task without a solution only the second can be tried. What came of it is kept in the machine's state folder, so
that it costs these trials once, whichever competition, validator or command asks:

    STATE/calibrations/<64 hex digits>.json     schema assay.calibration/1; the name is the digest of all that it depends on

Only what judged right is kept. What did not is tried again by the next run: meanwhile somebody may have mended the machine.

What is wrong with tasks: what cannot be loaded, whether each judges right here, and plain hints. SPEC 2.1, calibration.

Whether a task judges right is not guessed from its scripts: it is tried. What a script looks like says little about that.
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
from assay.judge.sandbox import Image, Sandbox, Trouble, images
from assay.judge.sandbox.root import programs
from assay.judge.terminal import agent as agents
from assay.judge.terminal.agent import Agent
from assay.judge.terminal.task_settings import Mode
from assay.judge.terminal.tasks import SOLUTION, TESTS, TOML, Task, read_task, task_folders, within
from assay.judge.terminal.trial import KEEPING, Keeping, TrialResult, TrialSetup, image_of, run_trial
from assay.scheme.fields import Section
from assay.scheme.reading import line_of, validate

_TAIL = 20_000
"""Bytes of an output's end that are looked at for what went wrong."""
_LINE = 300
_TROUBLE = re.compile(
    r"not found|no such|denied|error|cannot|can't|could not|unable|fail|refused|missing|exception|traceback|unresolved|expected",
    re.IGNORECASE,
)
_SHELL = re.compile(r"^(?:/tests/|/solution/)?[\w.-]+\.sh: line \d+: ")


class Uncalibrated(BadInput):
    """A task does not judge right here, so that it judges nobody."""


class Calibration(Section):
    """That a task judged right here."""

    schema_: Annotated[Literal["assay.calibration/1"], Field(alias="schema")] = "assay.calibration/1"
    task: str
    """Its digest."""
    sandbox: str
    """As it describes itself: which, its version, how bounds are held."""
    image: str
    """The digest of what boxes start from."""
    mode: Mode
    times: Annotated[int, Field(ge=1, le=1000)]
    """How often each was tried."""
    solution: bool
    """Whether there was a reference solution to try; without one it was only seen that doing nothing fails."""


@dataclass(frozen=True)
class _CalibrationKey:
    """What a calibration depends on."""

    task: str
    sandbox: str
    image: str
    mode: Mode
    keeping: Keeping
    programs: str
    """Those of the host, if boxes see them: the image's digest knows packages only."""

    @property
    def file(self) -> Path:
        return images.state() / "calibrations" / f"{digest(asdict(self)).removeprefix('sha256:')}.json"


def calibrate(
    sandbox: Sandbox, task: Task, image: Image, *, times: int = 1, keeping: Keeping = KEEPING
) -> tuple[Calibration, bool]:
    """The task's calibration in this sandbox and image, and whether it had been kept; carried out if there is none.

    Raises Uncalibrated with the reason if the task does not judge right, Trouble if that could not be found out.
    """
    asked = _CalibrationKey(
        task.digest, f"{sandbox.name}: {sandbox.describe()}", image.digest, task.mode, keeping, programs(image)
    )
    if (found := _kept(asked)) is not None and found.times >= times:
        return found, True
    judge = TrialSetup(sandbox, keeping=keeping)
    for _ in range(times):
        if task.solution is not None:
            _solved(judge, task, image)
        _undone(judge, task, image)
    made = Calibration(
        task=task.digest,
        sandbox=asked.sandbox,
        image=image.digest,
        mode=task.mode,
        times=times,
        solution=task.solution is not None,
    )
    _keep(asked, made)
    return made, False


def _solved(judge: TrialSetup, task: Task, image: Image) -> None:
    with _tried(judge, task, agents.BUILT_IN["oracle"], image) as (tried, folder):
        if tried.verdict.outcome != "pass":
            what = f"the reference solution fails here: {_why(tried, folder)}"
            hint = f"to see it: assay trial {task.folder} oracle; mend the task or its environment"
            raise Uncalibrated(what, file=task.folder, hint=hint)


def _undone(judge: TrialSetup, task: Task, image: Image) -> None:
    with _tried(judge, task, agents.BUILT_IN["noop"], image) as (tried, _folder):
        if tried.verdict.outcome == "pass":
            hint = f"to see it: assay trial {task.folder} noop; let the tests fail where the work was not done"
            raise Uncalibrated("doing nothing passes its tests", file=task.folder, hint=hint)


@contextmanager
def _tried(judge: TrialSetup, task: Task, agent: Agent, image: Image) -> Iterator[tuple[TrialResult, Path]]:
    """A trial and the folder of what was printed, gone when the context ends. Raises Trouble for a trial that is an error."""
    try:
        with TemporaryDirectory(prefix="assay-calibration-") as made:
            tried = run_trial(judge, task, agent, image, Path(made))
            if tried.verdict.outcome == "error":
                raise Trouble(f"{agent.name} could not be tried: {tried.message}", file=task.folder)
            yield tried, Path(made)
    except OSError as error:
        raise Trouble(f"{agent.name} could not be tried: {error.strerror}", file=error.filename) from error


def _why(tried: TrialResult, folder: Path) -> str:
    """Why a solution did not pass, in the words of the tests as far as they have any."""
    parts = []
    if tried.tests is not None and tried.tests.stopped is None and (line := said_last(folder / "tests")):
        parts.append(line)
    else:
        parts.append(str(tried.verdict.reason))
    if tried.agent is not None and tried.agent.exit_code not in (0, None):
        ended = f"solve.sh itself ended with {tried.agent.exit_code}"
        line = said_last(folder / "agent")
        parts.append(f"{ended}: {line}" if line else ended)
    return "; ".join(parts)


def said_last(folder: Path) -> str:
    """The last line of what was printed into a folder that tells of trouble, else the last line; without a shell's own prefix.

    stdout is read before stderr, where shells say what they did not find.
    """
    lines: list[str] = []
    for name in ("stdout.txt", "stderr.txt"):
        with suppress(OSError), (folder / name).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            lines += file.read().decode("utf-8", "replace").splitlines()
    plain = [" ".join(line.split()) for line in lines if any(char.isalnum() for char in line)]
    telling = [line for line in plain if _TROUBLE.search(line)]
    last = (telling or plain or [""])[-1]
    return _SHELL.sub("", last)[:_LINE]


def _kept(asked: _CalibrationKey) -> Calibration | None:
    """What was kept of the same; what cannot be read is nothing, and is carried out again."""
    file = asked.file
    try:
        found = validate(Calibration, json.loads(file.read_bytes()), file=file)
    except (OSError, ValueError, BadInput):
        return None
    same = (found.task, found.sandbox, found.image, found.mode) == (asked.task, asked.sandbox, asked.image, asked.mode)
    return found if same else None


def _keep(asked: _CalibrationKey, made: Calibration) -> None:
    """Keeps it for the next run; where that is not possible, the next run tries again."""
    with suppress(OSError, BadInput):
        asked.file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_text(asked.file, made.model_dump_json(by_alias=True, indent=1) + "\n")


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
"""Variables that say where programs are loaded from."""
_LITTER = frozenset(
    {"__pycache__", ".DS_Store", ".git", ".idea", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv", ".vscode"}
)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a task, or suspicious about it."""

    level: FindingLevel
    """`refused`: it cannot be judged at all; `error`: it judges wrongly here; `warning`: its author should look."""
    rule: str
    task: str
    file: Path
    what: str
    do: str
    line: int | None = None
    field: str = ""

    @property
    def where(self) -> str:
        """File, line and field as far as they are known."""
        place = str(self.file) if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.field}" if self.field else place

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
    """What came of a check."""

    findings: tuple[Finding, ...]
    """Task by task; of each, errors first, then by file and line."""
    right: int
    """Tasks that judge right here."""
    known: int
    """Those of them of which that was known already."""
    tasks: int


def check_tasks(*places: Path, sandbox: Sandbox, times: int = 1, jobs: int = 1) -> TasksCheck:
    """Loads the tasks of sets, looks them over, and calibrates each in a sandbox. Raises BadInput for no set.

    times: how often each solution has to pass, and doing nothing to fail. jobs: tasks at one time.
    """
    found, tasks = look(*places)

    def tried(task: Task) -> Finding | bool:
        return _calibrated(sandbox, task, times)

    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(tried, tasks))
    wrong = [one for one in results if isinstance(one, Finding)]
    order = {task.id: number for number, task in enumerate(tasks)}
    all_ = sorted((*found, *wrong), key=lambda one: (order.get(one.task, -1), _ORDER[one.level]))
    known, whole = sum(one is True for one in results), len({*order, *(one.task for one in found)})
    return TasksCheck(tuple(all_), len(results) - len(wrong), known, whole)


def look(*places: Path) -> tuple[list[Finding], list[Task]]:
    """What is seen of sets without running anything, and the tasks that can be loaded. Raises BadInput for no set."""
    out: list[Finding] = []
    tasks: list[Task] = []
    seen: dict[str, Path] = {}
    for place in places:
        for folder in task_folders(place)[0]:
            if folder.name in seen:
                what = f"the task is there twice, first at {seen[folder.name]}"
                out.append(Finding("refused", "twice", folder.name, folder, what, "rename one"))
                continue
            seen[folder.name] = folder
            try:
                tasks.append(read_task(folder))
                out += hints(tasks[-1])
            except BadInput as error:
                out.append(_finding("refused", "refused", folder.name, error, folder))
    return out, tasks


def _calibrated(sandbox: Sandbox, task: Task, times: int) -> Finding | bool:
    """What is wrong, or whether it was known before that the task judges right."""
    try:
        return calibrate(sandbox, task, image_of(sandbox, task), times=times)[1]
    except Uncalibrated as error:
        return _finding("error", "uncalibrated", task.id, error, task.folder)
    except BadInput as error:
        return _finding("error", "environment", task.id, error, task.folder)
    except Trouble as error:
        return _finding("error", "trouble", task.id, error, task.folder)


def _finding(level: FindingLevel, rule: str, task: str, error: BadInput | Trouble, folder: Path) -> Finding:
    file, do = Path(error.file or folder), error.hint or "correct it"
    return Finding(level, rule, task, file, error.what, do, error.line, error.field)


def hints(task: Task) -> tuple[Finding, ...]:
    """What can be said of a loaded task without running it: each a warning, by file and line."""
    all_ = {one for rule in (_notes, _settings, _scripts, _dockerfile, _leaks, _litter) for one in rule(task)}
    return tuple(sorted(all_, key=lambda one: (str(one.file), one.line or 0, one.rule, one.what)))


def _notes(task: Task) -> Iterator[Finding]:
    for note in task.notes:
        yield Finding("warning", note.rule, task.id, task.folder / TOML, note.what, note.do, note.line, note.field)


def _settings(task: Task) -> Iterator[Finding]:
    def say(rule: str, field: str, what: str, do: str) -> Finding:
        return Finding("warning", rule, task.id, task.folder / TOML, what, do, line_of(task.source, field.split(".")), field)

    environment = task.settings.environment
    if task.mode != "separate":
        what = f"{task.mode} lets what the agent left behind meet the tests, and the score is labelled so"
        yield say("weaker", "verifier.environment_mode", what, "use separate, and name in artifacts what the tests need")
    if task.memory < LEAST_MEMORY:
        what = f"{environment.memory_mb} MiB of memory is less than Python and git need"
        yield say("small", "environment.memory_mb", what, "give 64 or more")
    if task.disk < LEAST_DISK:
        yield say("small", "environment.storage_mb", f"{environment.storage_mb} MiB of disk is little", "give 16 or more")
    for name, seconds in (("agent", task.settings.agent.timeout_sec), ("verifier", task.settings.verifier.timeout_sec)):
        if seconds < SHORT_SECONDS:
            what = f"{seconds:g} s may pass before a busy machine starts anything"
            yield say("small", f"{name}.timeout_sec", what, "give 5 or more")
    for name, value in (task.env | dict(task.plan.env if task.plan else {}) | task.verifier_env).items():
        at = [part for part in value.split(":") if any(within(part, one) for one in task.kept)]
        if name in _STEERING and at:
            what = f"{name} has the agent's folder {at[0]} in it, for the tests too"
            yield Finding("warning", "steered", task.id, task.folder / TOML, what, "set it in the tests to what they need")


def _scripts(task: Task) -> Iterator[Finding]:
    """How the two scripts can be started, and whether there is a solution at all."""
    for name in (SOLUTION, TESTS):
        file = task.folder / name
        if name == SOLUTION and task.solution is None:
            what = "there is no solution, so nothing shows that the task can be solved"
            yield Finding("warning", "no-solution", task.id, file, what, "write solution/solve.sh, which the oracle runs")
            continue
        first = file.read_bytes().split(b"\n", 1)[0]
        if not first.startswith(b"#!"):
            yield Finding("warning", "no-shebang", task.id, file, "does not say what runs it", "begin with #!/bin/bash", 1)
        elif b"\r" in first:
            what = "has Windows line ends, which no shell takes"
            yield Finding("warning", "line-ends", task.id, file, what, "save it with plain line ends", 1)
        if name == TESTS and not file.stat().st_mode & 0o100:
            what = "is not executable, and other harnesses start it directly"
            yield Finding("warning", "not-executable", task.id, file, what, f"chmod +x {TESTS}")


def _dockerfile(task: Task) -> Iterator[Finding]:
    if task.plan is None:
        return
    file = task.environment / "Dockerfile"
    for one in task.plan.refused:
        yield Finding("warning", "containers-only", task.id, file, f"{one.what} cannot be done in bubblewrap", one.why, one.line)
    if task.settings.environment.workdir is None and task.plan.workdir is None:
        what = f"names no work directory, so it is {task.workdir}"
        yield Finding("warning", "no-workdir", task.id, file, what, "write WORKDIR /app")


def _leaks(task: Task) -> Iterator[Finding]:
    """The two scripts themselves, lying where the image is built from. Their data may be there with reason: it is often input."""
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
            what = "belongs to somebody's machine, and changes the task's digest"
            yield Finding("warning", "litter", task.id, file, what, "remove it")
        elif entry.kind == "folder" and entry.path not in parents:
            what = "is empty: git does not keep it, and the digest would change"
            yield Finding("warning", "empty-folder", task.id, file, what, "make it in the Dockerfile, or put a file into it")
