"""Reads services.toml: the validator's services that plans may call, and how planners are asked.

[services.search]
kind = "http"                       # http | command | python
url = "http://127.0.0.1:8801/call"  # POST {"action": …, "params": …} → {"output": …, "cost": "0.001"} or {"error": "…"}
actions = ["find", "ping"]
health = "ping"                     # the action that tells a broken service from a bad request; called with empty params
max_cost = "0.01"                   # the most that one call may cost; an answer that states more is refused
key = "SEARCH_KEY"                  # the variable that holds the service's key, if it needs one

[planners]                          # how participants' planners are asked
seconds = "30"
private = false                     # true: also at loopback and private addresses
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput
from assay.judge.workflow import limits
from assay.records import Amount
from assay.scheme.fields import Key, Section, Text
from assay.scheme.reading import line_of, read_toml, validate

__all__ = ["FILE", "CommandSpec", "HttpSpec", "Planners", "PythonSpec", "ServiceSpec", "Services", "read"]

FILE = "services.toml"

_TAG = re.compile(r"^(services\.[^.]+)\.(?:http|command|python)\b")
"""Pydantic puts the kind of a service into the path of its fields; the file has no such part."""
_ENTRY = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*$"
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,99}$"


def _url(value: Any) -> Any:
    if isinstance(value, str):
        try:
            parts = urlsplit(value)
            _ = parts.port
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or not value.isprintable():
            raise PydanticCustomError("assay", "is not an address; write http:// or https://, a host and a path, and no password")
    return value


Url = Annotated[str, BeforeValidator(_url), Field(max_length=2000)]
CommandWords = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[^\x00]*$")], ...], Field(strict=False, min_length=1, max_length=1000)
]


class _ServiceTable(Section):
    actions: Annotated[tuple[Key, ...], Field(strict=False, min_length=1, max_length=1000)]
    health: Key
    max_cost: Amount
    answer_bytes: Annotated[int, Field(ge=1, le=64_000_000)] = limits.ANSWER_BYTES
    parallel: Annotated[int, Field(ge=1, le=1024)] | None = None
    health_seconds: Amount = 5 * 10**9
    description: Text = ""

    @model_validator(mode="after")
    def _has_health(self) -> Self:
        if self.health not in self.actions:
            raise PydanticCustomError("assay", "health is not one of the actions; add it to them")
        if not self.health_seconds:
            raise PydanticCustomError("assay", "health_seconds is 0; give the service time to answer")
        return self


class HttpSpec(_ServiceTable):
    """A service that is called by HTTP."""

    kind: Literal["http"]
    url: Url
    key: Annotated[str, Field(pattern=_VARIABLE)] | None = None
    """The variable that holds the key, which is sent as `Authorization: Bearer …`."""


class CommandSpec(_ServiceTable):
    """A service that is a command in the sandbox, started for every call: the request on stdin, the answer on stdout."""

    kind: Literal["command"]
    command: CommandWords
    folder: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """A folder beside services.toml, which is copied into the box at /service."""
    memory_mb: Annotated[int, Field(ge=1, le=1_000_000)] = 512


class PythonSpec(_ServiceTable):
    """A service that is an installed Python function, (action, params) → the answer, called in a process of its own."""

    kind: Literal["python"]
    entry: Annotated[str, Field(pattern=_ENTRY, max_length=500)]


ServiceSpec = Annotated[HttpSpec | CommandSpec | PythonSpec, Field(discriminator="kind")]


class Planners(Section):
    """The settings with which participants' planners are asked."""

    seconds: Amount = 30 * 10**9
    private: bool = False
    memory_mb: Annotated[int, Field(ge=1, le=1_000_000)] = 512


class Services(Section):
    """A services.toml."""

    services: Annotated[dict[Key, ServiceSpec], Field(min_length=1, max_length=limits.SERVICES)]
    planners: Planners = Planners()

    @cached_property
    def actions(self) -> Mapping[str, frozenset[str]]:
        """Service → its actions."""
        return {name: frozenset(service.actions) for name, service in self.services.items()}

    def check_has(self, wanted: Mapping[str, frozenset[str]], *, file: Path | str | None = None) -> None:
        """Refuses a task that allows services or actions that are not here; raises BadInput."""
        for name, actions in wanted.items():
            if name not in self.actions:
                hint = f"add [services.{name}] to {FILE}; there is {', '.join(sorted(self.actions)[:10])}"
                raise BadInput(f"there is no service {name!r}", file=file, field=f"services.{name}", hint=hint)
            missing = sorted(actions - self.actions[name])
            if missing:
                hint = f"add it to the actions of {name!r} in {FILE}"
                raise BadInput(f"{name!r} has no action {missing[0]!r}", file=file, field=f"services.{name}", hint=hint)


def read(path: Path) -> Services:
    """The services in a file. Raises BadInput for a faulty file, and for a folder that does not exist."""
    if not path.is_file():
        raise BadInput("no such file", file=path, hint="it says where the services of the tasks are; see docs/workflows.md")
    content, source = read_toml(path)
    try:
        services = validate(Services, content, file=path, source=source)
    except BadInput as error:
        error.field = _TAG.sub(r"\1", error.field)
        error.line = line_of(source, error.field.partition("[")[0].split("."))
        raise
    for name, spec in services.services.items():
        if isinstance(spec, CommandSpec) and spec.folder is not None and not (path.parent / spec.folder).is_dir():
            field = f"services.{name}.folder"
            raise BadInput(f"no such folder: {spec.folder}", file=path, field=field, hint="put the program there")
    return services
