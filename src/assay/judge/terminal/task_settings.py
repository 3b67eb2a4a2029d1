"""Parses task.toml in Harbor's schema 1.x, with its older spellings, and lists the settings that are refused here. SPEC 2.1.

Defaults: 600 s each for agent, verifier and build; 2 cores, 4 GiB of memory, 20 GB of disk; and a verifier in a box of its own
(`separate`), which is stricter than Harbor's default.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput
from assay.scheme.reading import line_of

Mode = Literal["separate", "shared", "snapshot"]
"""The verifier's start: a pristine root, the agent's own box, or a frozen copy of that box."""
Network = Literal["no-network", "public", "allowlist"]

LONGEST_SECONDS = 7 * 24 * 3600
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}")
_SIZE = re.compile(r"([0-9]+)(?:\.([0-9]{1,9}))?\s*([KMGT])I?B?", re.ASCII)
_UNITS = {"K": 1, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30}
"""KiB of each."""


def _absolute(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not value.startswith("/") or "\0" in value or ".." in value.split("/"):
        raise PydanticCustomError(
            "assay", "{value} is not an absolute path; begin with /, without ..", {"value": repr(value[:80])}
        )
    return "/" + posixpath.normpath(value).lstrip("/")


Seconds = Annotated[float, Field(gt=0, le=LONGEST_SECONDS, allow_inf_nan=False)]
PathInBox = Annotated[str, BeforeValidator(_absolute)]
Name = Annotated[str, Field(pattern=r"^[^=\x00]+$")]
Value = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Variables = dict[Name, Value]


class TaskTable(BaseModel):
    """A table of task.toml. Known fields are strict; unknown fields are ignored here, and `tasks` makes notes of them."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class AgentTable(TaskTable):
    """[agent]."""

    timeout_sec: Seconds = 600
    user: str | int | None = None
    network_mode: Network | None = None
    allowed_hosts: list[str] = []


class VerifierTable(TaskTable):
    """[verifier]."""

    timeout_sec: Seconds = 600
    env: Variables = {}
    user: str | int | None = None
    environment_mode: Mode = "separate"
    network_mode: Network | None = None
    allowed_hosts: list[str] = []
    environment: dict[str, Any] | None = None
    collect: list[Any] = []


class EnvironmentTable(TaskTable):
    """[environment]; memory and storage in MiB."""

    build_timeout_sec: Seconds = 600
    docker_image: Annotated[str, Field(min_length=1)] | None = None
    os: Literal["linux", "windows"] = "linux"
    cpus: Annotated[float, Field(gt=0, le=4096, allow_inf_nan=False)] = 2
    memory_mb: Annotated[int, Field(gt=0, le=1 << 24)] = 4096
    storage_mb: Annotated[int, Field(gt=0, le=1 << 30)] = 20_000
    gpus: Annotated[int, Field(ge=0)] = 0
    gpu_types: list[str] | None = None
    mcp_servers: list[Any] = []
    env: Variables = {}
    skills_dir: str | None = None
    healthcheck: dict[str, Any] | None = None
    workdir: PathInBox | None = None
    network_mode: Network | None = None
    allowed_hosts: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _from_older(cls, content: Any) -> Any:
        """The table with its older spellings replaced."""
        if not isinstance(content, dict):
            return content
        new = dict(content)
        for old, name in (("memory", "memory_mb"), ("storage", "storage_mb")):
            if old in new:
                _set_new(new, old, name, _mebibytes(new.pop(old), old))
        if "allow_internet" in new:
            allowed = new.pop("allow_internet")
            if not isinstance(allowed, bool):
                raise PydanticCustomError("assay", "allow_internet is neither true nor false; write one of them")
            if not (allowed and new.get("network_mode") == "allowlist"):
                _set_new(new, "allow_internet", "network_mode", "public" if allowed else "no-network")
        return new


class SolutionTable(TaskTable):
    """[solution]."""

    env: Variables = {}


class ArtifactTable(TaskTable):
    """A path that is copied from the agent's box to the verifier's, besides the work directory."""

    source: PathInBox
    destination: str | None = None
    exclude: list[Annotated[str, Field(min_length=1)]] = []
    """Patterns of what is not copied, as tar's --exclude reads them."""
    service: str | None = None


class AssayTable(TaskTable):
    """[metadata.assay]: settings that other harnesses ignore."""

    base: Literal["any"] | None = None
    """Whether any root file system, such as the host's, can replace the image after FROM."""
    hidden: bool = False
    """Whether a service keeps the logs of its trials to itself, whatever the scheme releases."""


class MetadataTable(TaskTable):
    """[metadata]; everything except [metadata.assay] is for people and other programs."""

    assay: AssayTable = AssayTable()


def _artifact(value: object) -> object:
    return {"source": value} if isinstance(value, str) else value


class TaskSettings(TaskTable):
    """A task.toml."""

    schema_version: Annotated[str, Field(pattern=r"^1(\.[0-9]+)*$")] = "1.0"
    task: dict[str, Any] = {}
    metadata: MetadataTable = MetadataTable()
    source: Any = None
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    environment: EnvironmentTable = EnvironmentTable()
    solution: SolutionTable = SolutionTable()
    artifacts: list[Annotated[ArtifactTable, BeforeValidator(_artifact)]] = []
    steps: list[Any] = []
    multi_step_reward_strategy: Any = None


def fixed(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables with each `${NAME:-default}` replaced by its default: nothing from the host's environment enters a box."""
    return {name: _VARIABLE.sub(lambda match: match[3] or "", value) for name, value in variables.items()}


def open_names(variables: Mapping[str, str]) -> list[str]:
    """The host's variables that are used without a default."""
    return [match[1] for value in variables.values() for match in _VARIABLE.finditer(value) if match[2] is None]


def _set_new(content: dict[str, Any], old: str, name: str, value: Any) -> None:
    """Sets the field that replaced an older one; refuses another value of it."""
    if content.setdefault(name, value) != value:
        raise PydanticCustomError("assay", "{old} and {name} say different things; keep {name}", {"old": old, "name": name})


def _mebibytes(value: object, field: str) -> int:
    """The MiB of a size such as "2G"; `field` is for the message."""
    match = _SIZE.fullmatch(value.strip().upper()) if isinstance(value, str) else None
    if match is None:
        raise PydanticCustomError(
            "assay", '{field} = {value} is not a size; write it like "2G" or "512M"', {"field": field, "value": repr(value)[:80]}
        )
    whole, fraction, unit = match.groups()
    digits = fraction or ""
    return int(whole + digits) * _UNITS[unit] // (1024 * int("1" + "0" * len(digits)))


COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
"""File names that mean that a task has more than one container."""
CLOSED = ("/bin", "/dev", "/lib", "/lib32", "/lib64", "/logs/verifier", "/proc", "/sbin", "/solution", "/sys", "/tests", "/usr")
"""Paths of the verifier's box into which nothing from the agent is copied."""
_SEPARATE = 'or set environment_mode = "snapshot" in [verifier]'


def refusals(settings: TaskSettings, source: str, file: Path) -> list[BadInput]:
    """Every setting that is not supported here. source: the text of the file, for the line numbers."""
    return [
        BadInput(what, file=file, line=line_of(source, field.split(".")), field=field, hint=hint)
        for field, what, hint in _unsupported(settings)
    ]


def _unsupported(settings: TaskSettings) -> Iterator[tuple[str, str, str]]:
    """The field, what is wrong with it, and what to do."""
    environment, verifier = settings.environment, settings.verifier
    if settings.steps:
        yield "steps", "a task of several steps is not supported", "make each step a task"
    if environment.os != "linux":
        yield "environment.os", f"{environment.os} is not supported", "only linux is supported"
    if environment.gpus:
        yield "environment.gpus", "GPUs are not supported", "set gpus = 0, or leave the task out"
    if environment.mcp_servers:
        yield (
            "environment.mcp_servers",
            "MCP servers are not supported",
            "a box has no services beside it; leave the task out",
        )
    if environment.healthcheck is not None:
        yield "environment.healthcheck", "a health check is not supported", "a box starts no service; remove the check"
    if verifier.environment:
        yield (
            "verifier.environment",
            "a separate environment for the verifier is not supported",
            "put the files that the tests need into tests/",
        )
    if verifier.collect:
        yield "verifier.collect", "collecting files by commands is not supported", "name the paths in artifacts"
    for name in ("agent", "verifier", "environment"):
        table = getattr(settings, name)
        if table.network_mode == "allowlist" or table.allowed_hosts:
            yield (
                f"{name}.{'network_mode' if table.network_mode else 'allowed_hosts'}",
                "a network of allowed hosts is not supported",
                "boxes have no network; put what is needed into the image, or leave the task out",
            )
    for name in ("environment", "verifier", "solution"):
        for variable in open_names(getattr(settings, name).env):
            yield (
                f"{name}.env",
                f"uses the host's variable {variable}",
                f"write ${{{variable}:-default}}, or the value itself",
            )
    yield from _unsupported_paths(settings)


def _unsupported_paths(settings: TaskSettings) -> Iterator[tuple[str, str, str]]:
    separate = settings.verifier.environment_mode == "separate"
    if separate and settings.environment.workdir is not None and closed(settings.environment.workdir):
        yield (
            "environment.workdir",
            f"{settings.environment.workdir} cannot be given to the verifier",
            f"work in /app, {_SEPARATE}",
        )
    for artifact in settings.artifacts:
        if artifact.service not in (None, "main"):
            yield "artifacts", f"the service {artifact.service!r} is not supported", "a task has one container; remove it"
        if separate and closed(artifact.source):
            yield (
                "artifacts",
                f"{artifact.source} cannot be given to the verifier",
                f"name a folder of the agent's own work, {_SEPARATE}",
            )


def closed(path: str) -> bool:
    """Whether a path must not be copied into the verifier's box: it is in a folder of `CLOSED`, or above one."""
    above = path.rstrip("/") + "/"
    return any(path == folder or path.startswith(folder + "/") or folder.startswith(above) for folder in CLOSED)
