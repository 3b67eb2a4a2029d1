"""A task: what is wanted, for how much, in what time, from which services, and how the output is judged. `task.toml` in a folder.

    type = "rag"                        # code | rag | agent | data_transform
    instruction = "Answer the question from the passages that the search finds."
    budget = "0.05"
    max_seconds = "10"
    min_steps = 2                       # a plan of fewer steps is counted as one of so many
    [input]                             # or input.json beside it
    question = "Who owns the night ferry?"
    [services.search]
    find = "{text} → {passages: [text]}"
    [quality]                           # its fields depend on the type; references are files beside it

Who plans gets the package: all of this but the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.errors import BadInput
from assay.exact import NANO, canonical, text
from assay.exact import digest as digest_of
from assay.folder import strict
from assay.folder.text import decode, load
from assay.judge import tree
from assay.judge.workflow import limits as most
from assay.judge.workflow.plan import Bounds, Rules
from assay.judge.workflow.quality import measures
from assay.judge.workflow.quality.measures import Measure
from assay.records import Amount
from assay.scheme.fields import Key, Section, Text
from assay.scheme.reading import line_of, read_toml, validate

__all__ = ["BOUNDS", "FILE", "Task", "read"]

FILE, INPUT = "task.toml", "input.json"
SCHEMA = "assay.package/1"
BOUNDS = tree.Bounds(bytes=64_000_000, files=2_000)
"""How large a task's folder may be."""


class _Limits(Section):
    nodes: Annotated[int, Field(ge=1, le=most.MOST_NODES)] = most.NODES
    edges: Annotated[int, Field(ge=0, le=most.MOST_EDGES)] = most.EDGES
    bytes: Annotated[int, Field(ge=2, le=most.MOST_PLAN_BYTES)] = most.PLAN_BYTES
    depth: Annotated[int, Field(ge=1, le=32)] = most.PLAN_DEPTH


class _Task(Section):
    type: Literal["code", "rag", "agent", "data_transform"]
    instruction: Annotated[str, Field(min_length=1, max_length=100_000)]
    budget: Amount
    max_seconds: Amount
    min_steps: Annotated[int, Field(ge=1, le=most.MOST_NODES)] = 1
    output: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")] | None = None
    services: Annotated[dict[Key, Annotated[dict[Key, Text], Field(min_length=1)]], Field(min_length=1, max_length=most.SERVICES)]
    limits: _Limits = _Limits()
    input: dict[str, Any] | None = None
    quality: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A task as it was read, with the digest of its folder's files."""

    id: str
    folder: Path
    digest: str
    settings: _Task
    input: Any
    measure: Measure

    @property
    def budget(self) -> int:
        """Nanos of money."""
        return self.settings.budget

    @property
    def nanoseconds(self) -> int:
        """The latency bound."""
        return self.settings.max_seconds

    @property
    def min_steps(self) -> int:
        """The least that steps_total is. SPEC 2.2."""
        return self.settings.min_steps

    @cached_property
    def allowed(self) -> Mapping[str, frozenset[str]]:
        """Service → actions that a plan may ask for."""
        return {name: frozenset(actions) for name, actions in self.settings.services.items()}

    def rules(self, max_retries: int | None) -> Rules:
        """What a plan for it is held to. max_retries: what a step may declare, by the scheme."""
        bound = self.settings.limits
        bounds = Bounds(bound.nodes, bound.edges, bound.bytes, bound.depth)
        return Rules(self.allowed, bounds, max_retries, self.nanoseconds, self.settings.output or "")

    def package(self, max_retries: int) -> dict[str, Any]:
        """What who plans is sent: everything but the reference, the same for everybody."""
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


def read(folder: Path) -> Task:
    """The task in a folder; raises BadInput for whatever is wrong with it, a missing reference above all. SPEC 2.2."""
    if not folder.is_dir():
        raise BadInput("no such folder", file=folder, hint=f"a task is a folder with {FILE} in it")
    file = folder / FILE
    content, source = read_toml(file)
    settings = validate(_Task, content, file=file, source=source)
    for name in ("budget", "max_seconds"):
        if getattr(settings, name) == 0:
            raise _at(file, source, name, "is 0", "it must be more than 0")
    if settings.max_seconds > most.CALL_SECONDS * NANO:
        raise _at(file, source, "max_seconds", "is more than an hour", f"at most {most.CALL_SECONDS}")
    given = _input(folder, settings, file, source)
    measure = measures.read(settings.type, settings.quality, folder, file=file, source=source)
    try:
        found = tree.digest(folder, bounds=BOUNDS)
    except tree.TooMuch as error:
        raise BadInput(error.what, file=folder, hint="leave out what the task does not need") from None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=folder, hint="check its permissions") from None
    return Task(folder.resolve().name, folder, found, settings, given, measure)


def _input(folder: Path, settings: _Task, file: Path, source: str) -> Any:
    """The input, from task.toml or input.json: JSON without floats."""
    place = folder / INPUT
    if not place.exists():
        _check_plain(settings.input, "input", file, source)
        return settings.input or {}
    if settings.input is not None:
        raise _at(file, source, "input", f"stands in {INPUT} too", "keep one of the two")
    try:
        given = strict.parse(decode(load(place, most.TASK_BYTES, hint=""), place))
    except BadInput as error:
        raise error.at(file=place) from None
    _check_plain(given, "", place, "")
    return given


def _check_plain(value: Any, field: str, file: Path, source: str) -> None:
    if isinstance(value, float | datetime | date | time):
        raise _at(file, source, field, f"is a {type(value).__name__}", "write it in quotes")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_plain(inner, f"{field}.{key}" if field else key, file, source)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _check_plain(inner, f"{field}[{index}]", file, source)


def _at(file: Path, source: str, field: str, what: str, hint: str) -> BadInput:
    return BadInput(what, file=file, line=line_of(source, field.split(".")), field=field, hint=hint)
