"""A task, loaded and checked: what the agent is told, what it may use, and what decides. SPEC 2.1."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from assay.judge.dockerfile import Plan
from assay.judge.tests.tasks.settings import Mode, Settings, fixed

__all__ = ["ENVIRONMENT", "INSTRUCTION", "SOLUTION", "TESTS", "TOML", "WORKDIR", "Note", "Task", "within"]

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
    settings: Settings
    digest: str
    """Of the whole folder, as `tree.digest` defines it."""
    plan: Plan | None
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
