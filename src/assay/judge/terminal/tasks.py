"""Reads terminal tasks in Harbor's format, and refuses a task that cannot be judged here. SPEC 2.1.

A folder with task.toml is a task, and a folder of such folders is a task set. A task has the instruction for the agent, the
limits of its box, and the tests that decide the outcome. Its digest covers every file of its folder.

A setting of task.toml that has no effect here becomes a note of the task, not a refusal.
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
    """A field of task.toml that has no effect here, and what to do about it."""

    rule: str
    field: str
    line: int | None
    what: str
    do: str


@dataclass(frozen=True)
class Task:
    """One task of a set."""

    id: str
    """The name of the folder."""
    folder: Path
    instruction: str
    settings: TaskSettings
    digest: str
    """The digest of the whole folder, by `tree.digest`."""
    plan: BuildPlan | None
    """environment/Dockerfile, parsed; None if the task names a docker_image instead."""
    source: str = ""
    """The text of task.toml."""
    notes: tuple[Note, ...] = ()

    @property
    def mode(self) -> Mode:
        """The verifier's start: a pristine root, the agent's box, or a frozen copy of it."""
        return self.settings.verifier.environment_mode

    @property
    def workdir(self) -> str:
        """The folder in which the agent works: from task.toml, else from the Dockerfile, else /app."""
        in_dockerfile = self.plan.workdir if self.plan is not None else None
        return self.settings.environment.workdir or in_dockerfile or WORKDIR

    @property
    def kept(self) -> tuple[str, ...]:
        """The paths that a separate verifier gets from the agent's box: the work directory and artifacts, none inside another."""
        paths = [self.workdir, *(artifact.source for artifact in self.settings.artifacts)]
        outer = [path for path in paths if not any(path != other and within(path, other) for other in paths)]
        return tuple(dict.fromkeys(outer))

    @property
    def any_base(self) -> bool:
        """Whether the task says that it needs nothing from the image after FROM."""
        return self.settings.metadata.assay.base == "any"

    @property
    def environment(self) -> Path:
        """The build context."""
        return self.folder / ENVIRONMENT

    @property
    def dockerfile(self) -> Path | None:
        """The path of the Dockerfile; None if the task names an image instead."""
        return self.environment / "Dockerfile" if self.plan is not None else None

    @property
    def tests(self) -> Path:
        """The folder that is copied to /tests."""
        return self.folder / "tests"

    @property
    def solution(self) -> Path | None:
        """The folder that is copied to /solution for the oracle; None if it has no solve.sh."""
        return self.folder / "solution" if (self.folder / SOLUTION).is_file() else None

    @property
    def memory(self) -> int:
        """The limit on memory, in bytes."""
        return self.settings.environment.memory_mb << 20

    @property
    def disk(self) -> int:
        """The limit on disk, in bytes."""
        return self.settings.environment.storage_mb << 20

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of every command in the task's boxes."""
        return fixed(self.settings.environment.env)

    @property
    def verifier_env(self) -> dict[str, str]:
        """Further environment variables of the tests."""
        return fixed(self.settings.verifier.env)

    @property
    def solution_env(self) -> dict[str, str]:
        """Further environment variables of the oracle."""
        return fixed(self.settings.solution.env)


def within(path: str, folder: str) -> bool:
    """Whether an absolute path is a folder or something beneath it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


BOUNDS = tree.Bounds(bytes=16 << 30, files=200_000)
"""The limits of a task's folder."""
TEXT_BYTES = 1_000_000
"""The most bytes of instruction.md, and of a Dockerfile."""

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
    """Folders beside the tasks that do not look like tasks."""

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, name: str) -> Task:
        """The task with an id; raises BadInput with the nearest ids."""
        for task in self.tasks:
            if task.id == name:
                return task
        hint = suggest(name, [task.id for task in self.tasks], "list them to see their ids", most=3)
        raise BadInput(f"there is no task {name[:80]!r}", hint=hint)


def read_tasks(*places: Path) -> TaskSet:
    """The tasks in these folders. Raises BadInput for a task that cannot be judged, a repeated id, and no task at all."""
    tasks: dict[str, Task] = {}
    passed_over: list[Path] = []
    for place in places:
        folders, others = task_folders(place)
        passed_over += others
        for folder in folders:
            if folder.name in tasks:
                raise BadInput(
                    f"the task {folder.name!r} is there twice, first at {tasks[folder.name].folder}",
                    file=folder,
                    hint="rename one of the two",
                )
            tasks[folder.name] = read_task(folder)
            if len(tasks) > MOST_TASKS:
                raise BadInput(f"has more than {MOST_TASKS} tasks", file=place, hint="make several competitions of it")
    return TaskSet(tuple(tasks[name] for name in sorted(tasks, key=str.encode)), tuple(passed_over))


def task_folders(place: Path) -> tuple[list[Path], list[Path]]:
    """The folders of a set that are tasks, sorted, and the others. A single task is a set of one. Raises BadInput."""
    try:
        if (place / TOML).is_file():
            return [place.resolve()], []
        folders = sorted(
            (path for path in place.iterdir() if path.is_dir() and not path.name.startswith(".")),
            key=lambda path: path.name.encode(),
        )
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=place, hint="name a folder of tasks") from None
    tasks = [folder for folder in folders if any((folder / sign).exists() for sign in _SIGNS)]
    if not tasks:
        hint = f"a task is a folder with {TOML}, {INSTRUCTION} and {TESTS}"
        if (place / "tasks").is_dir():
            hint = f"the tasks of a competition are in {place / 'tasks'}: name that folder"
        raise BadInput("has no tasks", file=place, hint=hint)
    return tasks, [folder for folder in folders if folder not in tasks]


def read_task(folder: Path) -> Task:
    """The task in a folder. Raises BadInput with the first reason why it cannot be judged."""
    _check_name(folder)
    _check_entries(folder)
    settings, source = _read_settings(folder)
    for refusal in refusals(settings, source, folder / TOML):
        raise refusal
    instruction = _read_text(folder, INSTRUCTION, hint="write into it what the agent must do")
    _read_text(folder, TESTS, hint="write the script that decides: exit 0 and, if it writes a reward, 1")
    _check_environment(folder, settings)
    task = Task(
        id=folder.name,
        folder=folder,
        instruction=instruction,
        settings=settings,
        digest=tree.digest(folder, bounds=BOUNDS),
        plan=_read_dockerfile(folder),
        source=source,
        notes=tuple(_notes(settings, source, folder)),
    )
    if task.mode == "separate" and closed(task.workdir):
        raise BadInput(
            f"the work directory {task.workdir} cannot be given to the verifier", file=task.dockerfile, field="WORKDIR",
            hint='work in /app, or set environment_mode = "snapshot" in [verifier]',
        )  # fmt: skip
    return task


def _check_name(folder: Path) -> None:
    name = folder.name
    if folder.is_symlink():
        raise BadInput("is a link", file=folder, hint="put the task's folder itself there: a digest does not pin a link's target")
    if not allowed(name) or len(name) > LONGEST_TASK or " " in name or name.startswith("#"):
        raise BadInput(
            f"{name[:60]!r} is not a task id", file=folder, hint=f"use 1 to {LONGEST_TASK} printable characters, and no spaces"
        )


def _check_entries(folder: Path) -> None:
    """Refuses what a digest cannot pin: links that lead out of the task, and what is neither file nor folder nor link."""
    try:
        for entry in tree.walk(folder, bounds=BOUNDS):
            if entry.kind in ("fifo", "socket", "device"):
                raise BadInput(f"is a {entry.kind}", file=folder / entry.path, hint="a task is files, folders and links")
            if entry.kind == "link" and not tree.stays_inside(entry.target, entry.path.count("/")):
                raise BadInput("is a link that leads out of the task", file=folder / entry.path, hint="replace it with a copy")
    except tree.Missing as error:
        raise BadInput(error.what, file=folder, hint="name the folder of a task: it has task.toml") from None
    except tree.TreeError as error:
        raise BadInput(error.what, file=folder, hint="a task's folder holds only what the task needs") from None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=folder, hint="check its permissions") from None


def _read_settings(folder: Path) -> tuple[TaskSettings, str]:
    """task.toml, and its text."""
    file = folder / TOML
    if not file.is_file():
        if (folder / "task.yaml").is_file():
            raise BadInput(
                "is a task of Terminal-Bench 1, which is not supported", file=folder, hint="convert it to Harbor's format"
            )
        raise BadInput("no such file", file=file, hint='a task needs it; the shortest one is schema_version = "1.0"')
    content, source = read_toml(file)
    return validate(TaskSettings, content, file=file, source=source), source


def _read_text(folder: Path, name: str, *, hint: str) -> str:
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


def _check_environment(folder: Path, settings: TaskSettings) -> None:
    """Refuses more than one container, and a task with neither a Dockerfile nor an image."""
    for name in COMPOSE:
        for place in (ENVIRONMENT, "tests"):
            if (folder / place / name).exists():
                raise BadInput("several containers are not supported", file=folder / place / name, hint="put them into one image")
    if (folder / "tests" / "Dockerfile").exists():
        raise BadInput(
            "a separate image for the verifier is not supported",
            file=folder / "tests" / "Dockerfile",
            hint="use the task's image, and put the files into tests/",
        )
    if not (folder / ENVIRONMENT / "Dockerfile").exists() and settings.environment.docker_image is None:
        raise BadInput(
            "no such file", file=folder / ENVIRONMENT / "Dockerfile", hint="write it, or name a docker_image in [environment]"
        )


def _read_dockerfile(folder: Path) -> dockerfile.BuildPlan | None:
    file = folder / ENVIRONMENT / "Dockerfile"
    if not file.exists():
        return None
    return dockerfile.plan(_read_text(folder, f"{ENVIRONMENT}/Dockerfile", hint="begin with FROM"), file)


def _notes(settings: TaskSettings, source: str, folder: Path) -> Iterator[Note]:
    """The fields of task.toml that have no effect here."""
    content, _ = read_toml(folder / TOML)
    yield from _unknown(content, TaskSettings, "", source)
    for name, model in _TABLES.items():
        yield from _unknown(content.get(name, {}), model, name, source)
    yield from _unknown(content.get("metadata", {}).get("assay", {}), AssayTable, "metadata.assay", source)
    for number, artifact in enumerate(content.get("artifacts", [])):
        if isinstance(artifact, dict):
            yield from _unknown(artifact, ArtifactTable, f"artifacts.{number}", source)
    for field, value, what, do in _no_effect(settings):
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
                f"there is no field {key[:80]!r} here, so it has no effect",
                do,
            )


def _no_effect(settings: TaskSettings) -> Sequence[tuple[str, object, str, str]]:
    """Known fields without effect here: field, value (None: not set), why, and what to do."""
    environment = settings.environment
    same_box = settings.verifier.environment_mode != "separate"
    user = "everything in a box runs as one unprivileged user"
    remove = "remove it, and check that the task can be solved and verified without it"
    return (
        ("agent.user", settings.agent.user, user, remove),
        ("verifier.user", settings.verifier.user, user, remove),
        *(
            (f"artifacts.{number}.{name}", value or None, why, remove)
            for number, artifact in enumerate(settings.artifacts)
            for name, value, why in (
                ("destination", artifact.destination, "the tests find the artifact at the same path as the agent"),
                ("exclude", same_box and artifact.exclude, "the tests see everything that the agent left"),
            )
        ),
        ("environment.skills_dir", environment.skills_dir, "agents get no skills", remove),
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
