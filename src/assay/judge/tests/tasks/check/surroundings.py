"""Rules about what stands around the tests: settings, Dockerfile, bounds, solution, and what should not be in the folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from assay.errors import BadInput
from assay.judge import tree
from assay.judge.dockerfile import Context, Copy, Placed, Run
from assay.judge.tests.tasks.check import commands, shell
from assay.judge.tests.tasks.check.commands import STEERING
from assay.judge.tests.tasks.check.finding import Finding
from assay.judge.tests.tasks.task import SOLUTION, TESTS, TOML, Task, within
from assay.scheme.reading import line_of

__all__ = ["found"]

LEAST_MEMORY = 64 << 20
LEAST_DISK = 16 << 20
SHORT_SECONDS = 5
_LITTER = frozenset(
    {"__pycache__", ".DS_Store", ".git", ".idea", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv", ".vscode"}
)


def found(task: Task) -> Iterator[Finding]:
    """What the rules say about everything but the tests."""
    for note in task.notes:
        yield Finding("warning", note.rule, task.id, task.folder / TOML, note.what, note.do, note.line, note.field)
    for rule in (_settings, _solution, _dockerfile, _copies, _leaks, _litter):
        yield from rule(task)


def _settings(task: Task) -> Iterator[Finding]:
    def say(rule: str, field: str, what: str, do: str) -> Finding:
        return Finding("warning", rule, task.id, task.folder / TOML, what, do, line_of(task.source, field.split(".")), field)

    environment = task.settings.environment
    if task.mode != "separate":
        yield say(
            "weaker",
            "verifier.environment_mode",
            f"{task.mode} lets what the agent left behind meet the tests, and the score is labelled so",
            "use separate, and name in artifacts what the tests need",
        )
    if task.memory < LEAST_MEMORY:
        yield say(
            "small",
            "environment.memory_mb",
            f"{environment.memory_mb} MiB of memory is less than Python and git need",
            "give 64 or more",
        )
    if task.disk < LEAST_DISK:
        yield say("small", "environment.storage_mb", f"{environment.storage_mb} MiB of disk is little", "give 16 or more")
    for name, seconds in (("agent", task.settings.agent.timeout_sec), ("verifier", task.settings.verifier.timeout_sec)):
        if seconds < SHORT_SECONDS:
            yield say(
                "small", f"{name}.timeout_sec", f"{seconds:g} s may pass before a busy machine starts anything", "give 5 or more"
            )
    if task.plan is None:
        yield say(
            "image-only",
            "environment.docker_image",
            "there is no environment/Dockerfile, so only containers can judge it",
            "add the Dockerfile that the image was built from",
        )
    elif environment.workdir is None and task.plan.workdir is None:
        yield Finding(
            "warning",
            "no-workdir",
            task.id,
            task.environment / "Dockerfile",
            f"names no work directory, so it is {task.workdir}",
            "write WORKDIR /app",
        )
    for name, value in (task.env | dict(task.plan.env if task.plan else {}) | task.verifier_env).items():
        at = [part for part in value.split(":") if any(within(part, one) for one in task.kept)]
        if name in STEERING and at:
            yield Finding(
                "warning",
                "steered",
                task.id,
                task.folder / TOML,
                f"{name} has the agent's folder {at[0]} in it, for the tests too",
                "set it in the tests to what they need",
            )


def _solution(task: Task) -> Iterator[Finding]:
    file = task.folder / SOLUTION
    if task.solution is None:
        yield Finding(
            "warning",
            "no-solution",
            task.id,
            file,
            "there is no solution, so nothing shows that the task can be solved",
            "write solution/solve.sh, which the oracle runs",
        )
    elif not file.read_bytes().startswith(b"#!"):
        yield Finding("warning", "no-shebang", task.id, file, "does not say what runs it", "begin with #!/bin/bash", 1)


def _dockerfile(task: Task) -> Iterator[Finding]:
    if task.plan is None:
        return
    file = task.environment / "Dockerfile"
    for one in task.plan.refused:
        yield Finding("warning", "containers-only", task.id, file, f"{one.what} cannot be done in bubblewrap", one.why, one.line)
    for step in task.plan.steps:
        if isinstance(step, Run):
            line = step.command[-1] if len(step.command) == 3 and step.command[1].endswith("c") else " ".join(step.command)
            for each in (each for one in shell.string(line, step.cwd, step.line) for each in commands.said(one, ())):
                yield Finding(
                    "warning",
                    "containers-only",
                    task.id,
                    file,
                    f"{each.what} while the image is built in bubblewrap",
                    "take it from the base image, or COPY it",
                    step.line,
                )


def _copies(task: Task) -> Iterator[Finding]:
    """COPY of what is not there, and a context that does not fit into the task's own disk."""
    if task.plan is None:
        return
    file = task.environment / "Dockerfile"
    try:
        context = Context.open(task.environment)
    except BadInput as error:
        yield _refused(task, error)
        return
    placed: list[Placed] = []
    for step in task.plan.steps:
        if isinstance(step, Copy):
            try:
                placed += context.placed(step, file)
            except BadInput as error:
                yield _refused(task, error)
    size = sum(context.entries[one.source].size for one in placed if one.source in context.entries and one.kind != "folder")
    if size > task.disk:
        yield Finding(
            "error", "small", task.id, file, f"copies {size} bytes, more than storage_mb allows the whole box", "raise storage_mb"
        )


def _refused(task: Task, error: BadInput) -> Finding:
    return Finding("error", "copy", task.id, Path(error.file or task.environment), error.what, error.hint, error.line)


def _leaks(task: Task) -> Iterator[Finding]:
    """What the agent should not see, lying where the image is built from."""
    secret = {_content(one): one for one in (*_files(task.folder / "solution"), task.folder / TESTS)}
    for file in _files(task.environment):
        same = secret.get(_content(file))
        if same is not None and file.stat().st_size > 0:
            yield Finding(
                "error",
                "leaks",
                task.id,
                file,
                f"is the same as {same.relative_to(task.folder)}, and agents can read it",
                "take it out of environment/",
            )


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [folder / entry.path for entry in tree.walk(folder) if entry.kind in ("file", "exec")]


def _content(file: Path) -> bytes:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def _litter(task: Task) -> Iterator[Finding]:
    entries = [entry for entry in tree.walk(task.folder) if entry.path != "."]
    parents = {entry.path.rpartition("/")[0] for entry in entries}
    for entry in entries:
        name = entry.path.rpartition("/")[2]
        if name in _LITTER or name.endswith((".pyc", ".swp", "~")):
            yield Finding(
                "warning",
                "litter",
                task.id,
                task.folder / entry.path,
                "belongs to somebody's machine, and changes the task's digest",
                "remove it",
            )
        elif entry.kind == "folder" and entry.path not in parents:
            yield Finding(
                "warning",
                "empty-folder",
                task.id,
                task.folder / entry.path,
                "is empty: git does not keep it, and the digest would change",
                "make it in the Dockerfile, or put a file into it",
            )
