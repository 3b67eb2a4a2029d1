"""task.toml: what a task asks for, in Harbor's schema 1.x and its older spellings, as one validated value. SPEC 2.1.

Where nothing is said, what is common counts: agent and verifier 600 s, build 600 s, 2 cores, 4 GiB, 20 GB; and the verifier is
`separate`, which is stricter than Harbor's own default.

What a task may ask for in Harbor and cannot have here, each refused by its name. SPEC 2.1.
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
"""What the verifier starts from: a pristine root, the agent's own box, or a frozen copy of it."""
Network = Literal["no-network", "public", "allowlist"]

LONGEST_SECONDS = 7 * 24 * 3600
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}")
_SIZE = re.compile(r"([0-9]+)(?:\.([0-9]{1,9}))?\s*([KMGT])I?B?", re.ASCII)
_UNITS = {"K": 1, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30}
"""KiB of each."""


def _inside(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not value.startswith("/") or "\0" in value or ".." in value.split("/"):
        raise PydanticCustomError(
            "assay", "{value} is not an absolute path; begin with / and go down", {"value": repr(value[:80])}
        )
    return "/" + posixpath.normpath(value).lstrip("/")


Seconds = Annotated[float, Field(gt=0, le=LONGEST_SECONDS, allow_inf_nan=False)]
Inside = Annotated[str, BeforeValidator(_inside)]
Name = Annotated[str, Field(pattern=r"^[^=\x00]+$")]
Value = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Variables = dict[Name, Value]


class TaskTable(BaseModel):
    """A table of task.toml: frozen and strict in what it knows; what it does not know is told apart by the reader."""

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
    workdir: Inside | None = None
    network_mode: Network | None = None
    allowed_hosts: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _older(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        new = dict(content)
        for old, name in (("memory", "memory_mb"), ("storage", "storage_mb")):
            if old in new:
                _same(new, old, name, _mebibytes(new.pop(old), old))
        if "allow_internet" in new:
            allowed = new.pop("allow_internet")
            if not isinstance(allowed, bool):
                raise PydanticCustomError("assay", "allow_internet is neither true nor false; write one of them")
            if not (allowed and new.get("network_mode") == "allowlist"):
                _same(new, "allow_internet", "network_mode", "public" if allowed else "no-network")
        return new


class SolutionTable(TaskTable):
    """[solution]."""

    env: Variables = {}


class ArtifactTable(TaskTable):
    """A path that goes from the agent's box to the verifier's, besides the work directory."""

    source: Inside
    destination: str | None = None
    exclude: list[Annotated[str, Field(min_length=1)]] = []
    """Patterns of what the tests are not given of it, as tar's --exclude reads them."""
    service: str | None = None


class AssayTable(TaskTable):
    """[metadata.assay], where other harnesses look for nothing."""

    base: Literal["any"] | None = None
    """Whether any root file system will do in place of the image after FROM, such as the host's own."""


class MetadataTable(TaskTable):
    """[metadata]; all but [metadata.assay] is for people and other programs."""

    assay: AssayTable = AssayTable()


def _artifact(value: object) -> object:
    return {"source": value} if isinstance(value, str) else value


class TaskSettings(TaskTable):
    """A whole task.toml."""

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
    """Variables with `${NAME:-default}` as its default: nothing of the host's own environment enters a box."""
    return {name: _VARIABLE.sub(lambda found: found[3] or "", value) for name, value in variables.items()}


def open_names(variables: Mapping[str, str]) -> list[str]:
    """The host's variables that are asked for without a default."""
    return [found[1] for value in variables.values() for found in _VARIABLE.finditer(value) if found[2] is None]


def _same(content: dict[str, Any], old: str, name: str, value: Any) -> None:
    if content.setdefault(name, value) != value:
        raise PydanticCustomError("assay", "{old} and {name} say different things; keep {name}", {"old": old, "name": name})


def _mebibytes(value: object, field: str) -> int:
    found = _SIZE.fullmatch(value.strip().upper()) if isinstance(value, str) else None
    if found is None:
        raise PydanticCustomError(
            "assay", '{field} = {value} is not a size; write it like "2G" or "512M"', {"field": field, "value": repr(value)[:80]}
        )
    whole, part, unit = found.groups()
    digits = part or ""
    return int(whole + digits) * _UNITS[unit] // (1024 * int("1" + "0" * len(digits)))


COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
"""Names that say there is more than one box."""
CLOSED = ("/bin", "/dev", "/lib", "/lib32", "/lib64", "/logs/verifier", "/proc", "/sbin", "/solution", "/sys", "/tests", "/usr")
"""What an agent made never goes there in the verifier's box."""
_SEPARATE = 'or set environment_mode = "snapshot" in [verifier]'


def refusals(settings: TaskSettings, source: str, file: Path) -> list[BadInput]:
    """Everything in the settings that is not supported; source: the text of the file, for the lines."""
    return [
        BadInput(what, file=file, line=line_of(source, field.split(".")), field=field, hint=hint)
        for field, what, hint in _said(settings)
    ]


def _said(settings: TaskSettings) -> Iterator[tuple[str, str, str]]:
    environment, verifier = settings.environment, settings.verifier
    if settings.steps:
        yield "steps", "a task of several steps is not supported", "make a task of each step"
    if environment.os != "linux":
        yield "environment.os", f"{environment.os} is not supported", "only linux is"
    if environment.gpus:
        yield "environment.gpus", "GPUs are not supported", "set gpus = 0, or leave the task out"
    if environment.mcp_servers:
        yield (
            "environment.mcp_servers",
            "MCP servers are not supported",
            "a box has no other service beside it; leave the task out",
        )
    if environment.healthcheck is not None:
        yield "environment.healthcheck", "a health check is not supported", "a box starts no service to wait for; remove it"
    if verifier.environment:
        yield (
            "verifier.environment",
            "an environment of the verifier's own is not supported",
            "put what the tests need into tests/",
        )
    if verifier.collect:
        yield "verifier.collect", "collecting by commands is not supported", "name the paths in artifacts"
    for name in ("agent", "verifier", "environment"):
        table = getattr(settings, name)
        if table.network_mode == "allowlist" or table.allowed_hosts:
            yield (
                f"{name}.{'network_mode' if table.network_mode else 'allowed_hosts'}",
                "a network of allowed hosts is not supported",
                "boxes have no network; put into the image what is needed, or leave the task out",
            )
    for name in ("environment", "verifier", "solution"):
        for variable in open_names(getattr(settings, name).env):
            yield (
                f"{name}.env",
                f"asks for the host's variable {variable}",
                f"write ${{{variable}:-default}}, or the value itself",
            )
    yield from _paths(settings)


def _paths(settings: TaskSettings) -> Iterator[tuple[str, str, str]]:
    separate = settings.verifier.environment_mode == "separate"
    if separate and settings.environment.workdir is not None and closed(settings.environment.workdir):
        yield (
            "environment.workdir",
            f"{settings.environment.workdir} cannot be given to the verifier",
            f"work in /app, {_SEPARATE}",
        )
    for artifact in settings.artifacts:
        if artifact.service not in (None, "main"):
            yield "artifacts", f"the service {artifact.service!r} is not supported", "a task is one box; remove it"
        if separate and closed(artifact.source):
            yield (
                "artifacts",
                f"{artifact.source} cannot be given to the verifier",
                f"name a folder of the agent's work, {_SEPARATE}",
            )


def closed(path: str) -> bool:
    """Whether a path of the agent's box may not be put into the verifier's: it is in one of `CLOSED`, or above one."""
    above = path.rstrip("/") + "/"
    return any(path == one or path.startswith(one + "/") or one.startswith(above) for one in map(posixpath.normpath, CLOSED))
