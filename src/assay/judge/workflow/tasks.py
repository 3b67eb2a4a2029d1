"""Reads workflow tasks, the pinned set of a competition, and the round of an epoch. SPEC 2.2, 3.0, 6, 7.

A task is a folder with task.toml:

    type = "rag"                        # code | rag | agent | data_transform
    instruction = "Answer the question from the passages that the search finds."
    budget = "0.05"
    max_seconds = "10"
    min_steps = 2                       # a plan with fewer steps counts as a plan of 2 steps
    [input]                             # or input.json beside it
    question = "Who owns the night ferry?"
    [services.search]
    find = "{text} → {passages: [text]}"
    [quality]                           # its fields depend on the type; references are files beside it

The participant's planner gets the package: all of this except the reference.

Set: tasks.txt pins the folders under tasks/ with a line `task-id sha256:digest` for each. A task whose files differ from the
pinned digest is refused, because validators that judge different files would disagree without a visible reason.

Round: `round.toml` says how many tasks are drawn in an epoch (`tasks = 6`). `randomness.csv` has 32 bytes for each epoch that
nobody knew before, for example the hash of a later block. The pinned tasks with the lowest SHA-256(randomness ‖ 0x00 ‖ task id)
are asked, so anyone can repeat the draw. Without round.toml every task is asked in every epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.errors import BadInput
from assay.exact import NANO, canonical, text
from assay.exact import digest as digest_of
from assay.folder import csvs, registry, strict
from assay.folder.files import TABLE_BYTES, Place, decode, load
from assay.judge import tree
from assay.judge.workflow import limits as judge_limits  # a field of task.toml is called limits
from assay.judge.workflow.measures import Measure, read_measure
from assay.judge.workflow.plan import PlanBounds, PlanRules
from assay.records import Amount
from assay.scheme.fields import Key, Section, Text
from assay.scheme.reading import line_of, present, read_toml, validate

FILE, INPUT = "task.toml", "input.json"
SCHEMA = "assay.package/1"
BOUNDS = tree.Bounds(bytes=64_000_000, files=2_000)
"""The limits of a task's folder."""


class _LimitsTable(Section):
    nodes: Annotated[int, Field(ge=1, le=judge_limits.MOST_NODES)] = judge_limits.NODES
    edges: Annotated[int, Field(ge=0, le=judge_limits.MOST_EDGES)] = judge_limits.EDGES
    bytes: Annotated[int, Field(ge=2, le=judge_limits.MOST_PLAN_BYTES)] = judge_limits.PLAN_BYTES
    depth: Annotated[int, Field(ge=1, le=32)] = judge_limits.PLAN_DEPTH


_Actions = Annotated[dict[Key, Text], Field(min_length=1)]


class _WorkflowTaskTable(Section):
    """A task.toml."""

    type: Literal["code", "rag", "agent", "data_transform"]
    instruction: Annotated[str, Field(min_length=1, max_length=100_000)]
    budget: Amount
    max_seconds: Amount
    min_steps: Annotated[int, Field(ge=1, le=judge_limits.MOST_NODES)] = 1
    output: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")] | None = None
    services: Annotated[
        dict[Key, Annotated[dict[Key, Text], Field(min_length=1)]], Field(min_length=1, max_length=judge_limits.SERVICES)
    ]
    limits: _LimitsTable = _LimitsTable()
    input: dict[str, Any] | None = None
    quality: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class WorkflowTask:
    """A task, with the digest of its folder's files."""

    id: str
    folder: Path
    digest: str
    settings: _WorkflowTaskTable
    input: Any
    measure: Measure

    @property
    def budget(self) -> int:
        """The most that a run may cost, in nanos."""
        return self.settings.budget

    @property
    def nanoseconds(self) -> int:
        """The most time that a run may take."""
        return self.settings.max_seconds

    @property
    def min_steps(self) -> int:
        """The lower bound of steps_total. SPEC 2.2."""
        return self.settings.min_steps

    @cached_property
    def allowed(self) -> Mapping[str, frozenset[str]]:
        """Service → actions that a plan may ask for."""
        return {name: frozenset(actions) for name, actions in self.settings.services.items()}

    def rules(self, max_retries: int | None) -> PlanRules:
        """The rules for a plan. max_retries: how many retries a step may declare, by the scheme."""
        bound = self.settings.limits
        bounds = PlanBounds(bound.nodes, bound.edges, bound.bytes, bound.depth)
        return PlanRules(self.allowed, bounds, max_retries, self.nanoseconds, self.settings.output or "")

    def package(self, max_retries: int) -> dict[str, Any]:
        """The package that a planner gets: everything except the reference, the same for all participants."""
        settings = self.settings
        package = {
            "schema": SCHEMA,
            "task": self.id,
            "type": settings.type,
            "instruction": settings.instruction,
            "input": self.input,
            "budget": text(settings.budget),
            "max_seconds": text(settings.max_seconds),
            "min_steps": settings.min_steps,
            "services": settings.services,
            "limits": settings.limits.model_dump() | {"retries": max_retries},
            "quality": self.measure.public(),
        }
        return package if settings.output is None else package | {"output": settings.output}

    def package_digest(self, max_retries: int) -> str:
        """`sha256:…` over the package's canonical JSON."""
        return digest_of(self.package(max_retries))

    def package_bytes(self, max_retries: int) -> bytes:
        """The package as canonical JSON."""
        return canonical(self.package(max_retries))


def read_task(folder: Path) -> WorkflowTask:
    """The task in a folder. Raises BadInput for anything that is wrong with it, such as a missing reference. SPEC 2.2."""
    if not folder.is_dir():
        raise BadInput("no such folder", file=folder, hint=f"a task is a folder with {FILE} in it")
    file = folder / FILE
    content, source = read_toml(file)
    settings = validate(_WorkflowTaskTable, content, file=file, source=source)
    for name in ("budget", "max_seconds"):
        if getattr(settings, name) == 0:
            raise _refusal(file, source, name, "is 0", "it must be more than 0")
    if settings.max_seconds > judge_limits.CALL_SECONDS * NANO:
        raise _refusal(file, source, "max_seconds", "is more than an hour", f"at most {judge_limits.CALL_SECONDS}")
    task_input = _read_input(folder, settings, file, source)
    measure = read_measure(settings.type, settings.quality, folder, file=file, source=source)
    try:
        digest = tree.digest(folder, bounds=BOUNDS)
    except tree.TooMuch as error:
        raise BadInput(error.what, file=folder, hint="leave out what the task does not need") from None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=folder, hint="check its permissions") from None
    return WorkflowTask(folder.resolve().name, folder, digest, settings, task_input, measure)


def _read_input(folder: Path, settings: _WorkflowTaskTable, file: Path, source: str) -> Any:
    """The input, from task.toml or input.json: JSON without floats."""
    input_file = folder / INPUT
    if not input_file.exists():
        _refuse_floats(settings.input, "input", file, source)
        return settings.input or {}
    if settings.input is not None:
        raise _refusal(file, source, "input", f"{INPUT} exists too", "keep one of the two")
    try:
        content = strict.parse(decode(load(input_file, judge_limits.TASK_BYTES, hint=""), input_file))
    except BadInput as error:
        raise error.at(file=input_file) from None
    _refuse_floats(content, "", input_file, "")
    return content


def _refuse_floats(value: Any, field: str, file: Path, source: str) -> None:
    """Refuses floats, and the dates and times of TOML."""
    if isinstance(value, float | datetime | date | time):
        raise _refusal(file, source, field, f"is a {type(value).__name__}", "write it in quotes")
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_floats(inner, f"{field}.{key}" if field else key, file, source)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_floats(inner, f"{field}[{index}]", file, source)


def _refusal(file: Path, source: str, field: str, what: str, hint: str) -> BadInput:
    return BadInput(what, file=file, line=line_of(source, field.split(".")), field=field, hint=hint)


LIST, TASKS = "tasks.txt", "tasks"
_HEAD = "# The tasks of this competition, each with the digest of its folder; `assay workflow pin` writes it.\n"


@dataclass(frozen=True)
class PinnedTasks:
    """The pinned set, from tasks.txt."""

    digests: Mapping[str, str]
    """Id → digest of the folder, in the order of the ids' UTF-8 bytes."""
    digest: str
    """The digest of the set."""
    folder: Path

    def task(self, name: str) -> WorkflowTask:
        """The task with that id. Raises BadInput if it is missing, or its files differ from the pinned digest."""
        task = read_task(self.folder / name)
        if task.digest != self.digests[name]:
            raise BadInput(
                f"the files of the task {name!r} are not the pinned files",
                file=task.folder,
                hint="restore the pinned files, or pin the tasks again, which makes a new set",
            )
        return task


def read_tasks(competition: Path, folder: Path | None = None) -> PinnedTasks:
    """The pinned set of a competition. folder: where the tasks are, if not in tasks/. Raises BadInput."""
    file = competition / LIST
    rows = registry.task_lines(load(file, TABLE_BYTES, hint="`assay workflow pin DIR` writes it"), file)
    task_set = registry.parse_tasks(rows, 1, Place(file))
    digests: dict[str, str] = {}
    for row, place in rows:
        name, *rest = row.split()
        if len(rest) != 1 or not rest[0].startswith("sha256:"):
            raise place.refuse(f"the task {name!r} is not pinned by a digest", hint="`assay workflow pin DIR` does that")
        if name in (".", "..") or "/" in name or "\\" in name:
            raise place.refuse(f"{name!r} is not the name of a folder", hint="a task's id is its folder's name")
        digests[name] = rest[0]
    ordered = dict(sorted(digests.items(), key=lambda item: item[0].encode()))
    return PinnedTasks(ordered, task_set.digest, folder or competition / TASKS)


def everything(folder: Path) -> list[WorkflowTask]:
    """Every task under a folder, by id. Raises BadInput for a faulty task, and if there is none."""
    files = (file for file in folder.glob(f"*/{FILE}") if not file.parent.name.startswith("."))
    folders = sorted((file.parent for file in files), key=lambda path: path.name.encode())
    if not folders:
        raise BadInput("has no tasks", file=folder, hint=f"a task is a folder in it with {FILE}")
    return [read_task(path) for path in folders]


def manifest_text(tasks: Iterable[WorkflowTask]) -> str:
    """The text of tasks.txt for these tasks."""
    return _HEAD + "".join(f"{task.id} {task.digest}\n" for task in tasks)


ROUND_FILE = "round.toml"
ROUND_SCHEMA = "assay.round/1"


class _RoundTable(Section):
    tasks: Annotated[int, Field(ge=1, le=judge_limits.DRAWN)]


@dataclass(frozen=True)
class EpochTasks:
    """The tasks that are asked in an epoch."""

    epoch: int
    task_set: str
    """The digest of tasks.txt."""
    tasks: Mapping[str, str]
    """Id → digest of the task's files, in the order of the ids' UTF-8 bytes."""
    randomness: bytes | None = None
    """None: no draw, all tasks are asked."""

    def document(self) -> dict[str, Any]:
        """The round as JSON, the same for every validator."""
        drawn = None if self.randomness is None else self.randomness.hex()
        return {
            "schema": ROUND_SCHEMA,
            "epoch": self.epoch,
            "task_set": self.task_set,
            "randomness": drawn,
            "tasks": dict(self.tasks),
        }


def draw_round(names: Iterable[str], randomness: bytes, count: int) -> list[str]:
    """The `count` names with the lowest hash, in the order of their UTF-8 bytes. SPEC 3.0 draws validators in the same way."""
    ranked = sorted(names, key=lambda name: (sha256(randomness + b"\0" + name.encode()).digest(), name.encode()))
    return sorted(ranked[:count], key=str.encode)


def read_round(competition: Path, pinned: PinnedTasks, epoch: int) -> EpochTasks:
    """The round of an epoch. Raises BadInput if the randomness is missing, or if there are too few tasks."""
    file = competition / ROUND_FILE
    if not present(file):
        return EpochTasks(epoch, pinned.digest, pinned.digests)
    content, source = read_toml(file)
    count = validate(_RoundTable, content, file=file, source=source).tasks
    if count > len(pinned.digests):
        what = f"{count} tasks are to be drawn, and there are {len(pinned.digests)}"
        raise BadInput(what, file=file, field="tasks", hint="pin more, or draw fewer")
    known = _randomness(competition)
    if epoch not in known:
        raise BadInput(
            f"there is no randomness of epoch {epoch}",
            file=competition / csvs.RANDOMNESS.name,
            hint="add its row when the block whose hash it is exists",
        )
    names = draw_round(pinned.digests, known[epoch], count)
    return EpochTasks(epoch, pinned.digest, {name: pinned.digests[name] for name in names}, known[epoch])


def latest_round(competition: Path) -> int | None:
    """The highest epoch whose randomness is known; None if nothing is drawn."""
    if not present(competition / ROUND_FILE):
        return None
    return max(_randomness(competition), default=None)


def _randomness(competition: Path) -> Mapping[int, bytes]:
    file = competition / csvs.RANDOMNESS.name
    return registry.randomness(csvs.read(file, csvs.RANDOMNESS), Place(file))
