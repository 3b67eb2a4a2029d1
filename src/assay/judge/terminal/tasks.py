"""A task, loaded and checked: what the agent is told, what it may use, and what decides. SPEC 2.1.

Reading tasks: a folder with task.toml is one, a folder of them is a set; what cannot be judged is refused. SPEC 2.1.

Task sets in Harbor's format: reading, pinning, checking. SPEC 2.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from assay.characters import allowed
from assay.errors import BadInput, suggest
from assay.folder.files import LONGEST_TASK, MOST_TASKS, decode
from assay.judge import dockerfile, tree
from assay.judge.dockerfile import BuildPlan
from assay.judge.terminal.task_settings import (
    COMPOSE,
    AgentTable,
    ArtifactTable,
    AssayTable,
    EnvironmentTable,
    Mode,
    SolutionTable,
    TaskSettings,
    VerifierTable,
    closed,
    fixed,
    refusals,
)
from assay.scheme.reading import line_of, read_toml, validate

TOML = "task.toml"
INSTRUCTION = "instruction.md"
ENVIRONMENT = "environment"
SOLUTION = "solution/solve.sh"
TESTS = "tests/test.sh"
WORKDIR = "/app"
"""The work directory of a task that names none."""


class Note(NamedTuple):
    """Something in task.toml that has no effect here, and what to do about it."""

    rule: str
    field: str
    line: int | None
    what: str
    do: str


@dataclass(frozen=True)
class Task:
    """One task of a set."""

    id: str
    """The name of its folder."""
    folder: Path
    instruction: str
    settings: TaskSettings
    digest: str
    """Of the whole folder, as `tree.digest` defines it."""
    plan: BuildPlan | None
    """environment/Dockerfile; None if there is none, and then there is a docker_image."""
    source: str = ""
    """The text of task.toml."""
    notes: tuple[Note, ...] = ()

    @property
    def mode(self) -> Mode:
        """What the verifier starts from."""
        return self.settings.verifier.environment_mode

    @property
    def workdir(self) -> str:
        """Where the agent works: as task.toml says, else the Dockerfile, else /app."""
        said = self.plan.workdir if self.plan is not None else None
        return self.settings.environment.workdir or said or WORKDIR

    @property
    def kept(self) -> tuple[str, ...]:
        """What a separate verifier is given of the agent's box: the work directory and the artifacts, none inside another."""
        named = [self.workdir, *(one.source for one in self.settings.artifacts)]
        outer = [path for path in named if not any(path != other and within(path, other) for other in named)]
        return tuple(dict.fromkeys(outer))

    @property
    def any_base(self) -> bool:
        """Whether the task says that it needs nothing of the image after FROM."""
        return self.settings.metadata.assay.base == "any"

    @property
    def environment(self) -> Path:
        """The build context."""
        return self.folder / ENVIRONMENT

    @property
    def dockerfile(self) -> Path | None:
        """None if the task has only an image."""
        return self.environment / "Dockerfile" if self.plan is not None else None

    @property
    def tests(self) -> Path:
        """The folder that goes to /tests."""
        return self.folder / "tests"

    @property
    def solution(self) -> Path | None:
        """The folder that goes to /solution for the oracle; None if there is no solve.sh in it."""
        return self.folder / "solution" if (self.folder / SOLUTION).is_file() else None

    @property
    def memory(self) -> int:
        """Bytes."""
        return self.settings.environment.memory_mb << 20

    @property
    def disk(self) -> int:
        """Bytes."""
        return self.settings.environment.storage_mb << 20

    @property
    def env(self) -> dict[str, str]:
        """Variables of everything in the task's boxes."""
        return fixed(self.settings.environment.env)

    @property
    def verifier_env(self) -> dict[str, str]:
        """Variables of the tests, beyond `env`."""
        return fixed(self.settings.verifier.env)

    @property
    def solution_env(self) -> dict[str, str]:
        """Variables of the oracle, beyond `env`."""
        return fixed(self.settings.solution.env)


def within(path: str, folder: str) -> bool:
    """Whether an absolute path is a folder or something beneath it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


BOUNDS = tree.Bounds(bytes=16 << 30, files=200_000)
"""How large a task's folder may be."""
TEXT_BYTES = 1_000_000
"""How large instruction.md and a Dockerfile may be."""

_SIGNS = (TOML, "task.yaml", INSTRUCTION, "tests", "solution", ENVIRONMENT)
_TABLES: dict[str, type[BaseModel]] = {
    "agent": AgentTable,
    "verifier": VerifierTable,
    "environment": EnvironmentTable,
    "solution": SolutionTable,
}
_OLDER = {"": {"version", "multi_step_reward_mode"}, "environment": {"memory", "storage", "allow_internet"}}


@dataclass(frozen=True)
class TaskSet:
    """A set of tasks, in the order of their ids."""

    tasks: tuple[Task, ...]
    passed_over: tuple[Path, ...] = ()
    """Folders beside them in which nothing looks like a task."""

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, name: str) -> Task:
        """The task with an id; raises BadInput with the nearest ids."""
        for one in self.tasks:
            if one.id == name:
                return one
        hint = suggest(name, [task.id for task in self.tasks], "list them to see their ids", most=3)
        raise BadInput(f"there is no task {name[:80]!r}", hint=hint)


def read_tasks(*places: Path) -> TaskSet:
    """The tasks in folders; raises BadInput for the first that cannot be judged, for an id that is there twice, and for none."""
    found: dict[str, Task] = {}
    passed: list[Path] = []
    for place in places:
        inner, other = task_folders(place)
        passed += other
        for folder in inner:
            if folder.name in found:
                raise BadInput(
                    f"the task {folder.name!r} is there twice, first at {found[folder.name].folder}",
                    file=folder,
                    hint="rename one of the two",
                )
            found[folder.name] = read_task(folder)
            if len(found) > MOST_TASKS:
                raise BadInput(f"has more than {MOST_TASKS} tasks", file=place, hint="make several competitions of it")
    return TaskSet(tuple(found[name] for name in sorted(found, key=str.encode)), tuple(passed))


def task_folders(place: Path) -> tuple[list[Path], list[Path]]:
    """The folders of a set that are tasks, sorted, and those that are not; a task alone is a set of one. Raises BadInput."""
    try:
        if (place / TOML).is_file():
            return [place.resolve()], []
        inner = sorted(
            (one for one in place.iterdir() if one.is_dir() and not one.name.startswith(".")), key=lambda one: one.name.encode()
        )
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=place, hint="name a folder of tasks") from None
    tasks = [one for one in inner if any((one / sign).exists() for sign in _SIGNS)]
    if not tasks:
        hint = f"a task is a folder with {TOML}, {INSTRUCTION} and {TESTS}"
        if (place / "tasks").is_dir():
            hint = f"those of a competition are in {place / 'tasks'}: name that"
        raise BadInput("has no tasks", file=place, hint=hint)
    return tasks, [one for one in inner if one not in tasks]


def read_task(folder: Path) -> Task:
    """The task in a folder; raises BadInput for the first thing for which it cannot be judged."""
    _name(folder)
    _plain(folder)
    settings, source = _settings(folder)
    for refusal in refusals(settings, source, folder / TOML):
        raise refusal
    instruction = _text(folder, INSTRUCTION, hint="say in it what the agent is to do")
    _text(folder, TESTS, hint="write the script that decides: exit 0 and, if it writes a reward, 1")
    _environment(folder, settings)
    task = Task(
        id=folder.name,
        folder=folder,
        instruction=instruction,
        settings=settings,
        digest=tree.digest(folder, bounds=BOUNDS),
        plan=_plan(folder),
        source=source,
        notes=tuple(_notes(settings, source, folder)),
    )
    if task.mode == "separate" and closed(task.workdir):
        raise BadInput(
            f"the work directory {task.workdir} cannot be given to the verifier", file=task.dockerfile, field="WORKDIR",
            hint='work in /app, or set environment_mode = "snapshot" in [verifier]',
        )  # fmt: skip
    return task


def _name(folder: Path) -> None:
    name = folder.name
    if folder.is_symlink():
        raise BadInput("is a link", file=folder, hint="put the task's folder itself there, so that its digest pins it")
    if not allowed(name) or len(name) > LONGEST_TASK or " " in name or name.startswith("#"):
        raise BadInput(
            f"{name[:60]!r} is not a task id", file=folder, hint=f"use 1 to {LONGEST_TASK} printable characters, and no spaces"
        )


def _plain(folder: Path) -> None:
    """Refuses what a digest cannot pin: links that lead out, and what is neither file nor folder nor link."""
    try:
        for entry in tree.walk(folder, bounds=BOUNDS):
            if entry.kind in ("fifo", "socket", "device"):
                raise BadInput(f"is a {entry.kind}", file=folder / entry.path, hint="a task is files, folders and links")
            if entry.kind == "link" and not tree.stays_inside(entry.target, entry.path.count("/")):
                raise BadInput("is a link that leads out of the task", file=folder / entry.path, hint="put a copy in its place")
    except tree.TreeError as error:
        raise BadInput(error.what, file=folder, hint="a task's folder holds only what the task needs") from None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=folder, hint="check its permissions") from None


def _settings(folder: Path) -> tuple[TaskSettings, str]:
    file = folder / TOML
    if not file.is_file():
        if (folder / "task.yaml").is_file():
            raise BadInput(
                "is a task of Terminal-Bench 1, which is not supported", file=folder, hint="convert it to Harbor's format"
            )
        raise BadInput("no such file", file=file, hint='a task needs it; schema_version = "1.0" is the least')
    content, source = read_toml(file)
    return validate(TaskSettings, content, file=file, source=source), source


def _text(folder: Path, name: str, *, hint: str) -> str:
    file = folder / name
    try:
        data = tree.peek(folder, name, most=TEXT_BYTES)
    except tree.TreeError as error:
        raise BadInput(error.what, file=file, hint=hint) from None
    if data is None:
        raise BadInput("no such file", file=file, hint=hint)
    text = decode(data, file)
    if not text.strip():
        raise BadInput("is empty", file=file, hint=hint)
    return text


def _environment(folder: Path, settings: TaskSettings) -> None:
    for name in COMPOSE:
        for place in (ENVIRONMENT, "tests"):
            if (folder / place / name).exists():
                raise BadInput("several containers are not supported", file=folder / place / name, hint="make one image of them")
    if (folder / "tests" / "Dockerfile").exists():
        raise BadInput(
            "an image of the verifier's own is not supported",
            file=folder / "tests" / "Dockerfile",
            hint="use the task's, and put files into tests/",
        )
    if not (folder / ENVIRONMENT / "Dockerfile").exists() and settings.environment.docker_image is None:
        raise BadInput(
            "no such file", file=folder / ENVIRONMENT / "Dockerfile", hint="write it, or name a docker_image in [environment]"
        )


def _plan(folder: Path) -> dockerfile.BuildPlan | None:
    file = folder / ENVIRONMENT / "Dockerfile"
    if not file.exists():
        return None
    return dockerfile.plan(_text(folder, f"{ENVIRONMENT}/Dockerfile", hint="begin with FROM"), file)


def _notes(settings: TaskSettings, source: str, folder: Path) -> Iterator[Note]:
    """What is in task.toml and has no effect here."""
    content, _ = read_toml(folder / TOML)
    yield from _unknown(content, TaskSettings, "", source)
    for name, model in _TABLES.items():
        yield from _unknown(content.get(name, {}), model, name, source)
    yield from _unknown(content.get("metadata", {}).get("assay", {}), AssayTable, "metadata.assay", source)
    for number, artifact in enumerate(content.get("artifacts", [])):
        if isinstance(artifact, dict):
            yield from _unknown(artifact, ArtifactTable, f"artifacts.{number}", source)
    for field, value, what, do in _idle(settings):
        if value is not None:
            yield Note("no-effect", field, line_of(source, field.split(".")), what, do)


def _unknown(content: dict[str, Any], model: type[BaseModel], table: str, source: str) -> Iterator[Note]:
    known = [*model.model_fields, *_OLDER.get(table, ())]
    for key in content:
        if key not in known:
            field = f"{table}.{key}" if table else key
            do = suggest(key, known, "remove it, or put it under [metadata]")
            yield Note(
                "unknown-key",
                field,
                line_of(source, field.split(".")),
                f"there is no field {key[:80]!r} here, and it has no effect",
                do,
            )


def _idle(settings: TaskSettings) -> Sequence[tuple[str, object, str, str]]:
    environment = settings.environment
    seen = settings.verifier.environment_mode != "separate"
    user = "everything in a box runs as one unprivileged user"
    remove = "remove it, and see that the task can be solved and verified without"
    return (
        ("agent.user", settings.agent.user, user, remove),
        ("verifier.user", settings.verifier.user, user, remove),
        *(
            (f"artifacts.{number}.{name}", value or None, why, remove)
            for number, one in enumerate(settings.artifacts)
            for name, value, why in (
                ("destination", one.destination, "what is at source goes to the same place for the tests"),
                ("exclude", seen and one.exclude, "the tests see all that the agent left"),
            )
        ),
        ("environment.skills_dir", environment.skills_dir, "agents are given no skills", remove),
        *(
            (
                f"{name}.network_mode",
                True if getattr(settings, name).network_mode == "public" else None,
                "boxes have no network",
                remove,
            )
            for name in ("agent", "verifier", "environment")
        ),
    )
