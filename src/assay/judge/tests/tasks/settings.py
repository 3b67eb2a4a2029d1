"""task.toml: what a task asks for, in Harbor's schema 1.x and its older spellings, as one validated value. SPEC 2.1.

Where nothing is said, what is common counts: agent and verifier 600 s, build 600 s, 2 cores, 4 GiB, 20 GB; and the verifier is
`separate`, which is stricter than Harbor's own default.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

__all__ = [
    "Agent",
    "Artifact",
    "Assay",
    "Environment",
    "Metadata",
    "Mode",
    "Network",
    "Settings",
    "Solution",
    "Table",
    "Verifier",
    "fixed",
    "open_names",
]

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


class Table(BaseModel):
    """A table of task.toml: frozen and strict in what it knows; what it does not know is told apart by the reader."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Agent(Table):
    """[agent]."""

    timeout_sec: Seconds = 600
    user: str | int | None = None
    network_mode: Network | None = None
    allowed_hosts: list[str] = []


class Verifier(Table):
    """[verifier]."""

    timeout_sec: Seconds = 600
    env: Variables = {}
    user: str | int | None = None
    environment_mode: Mode = "separate"
    network_mode: Network | None = None
    allowed_hosts: list[str] = []
    environment: dict[str, Any] | None = None
    collect: list[Any] = []


class Environment(Table):
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


class Solution(Table):
    """[solution]."""

    env: Variables = {}


class Artifact(Table):
    """A path that goes from the agent's box to the verifier's, besides the work directory."""

    source: Inside
    destination: str | None = None
    exclude: list[Annotated[str, Field(min_length=1)]] = []
    """Patterns of what the tests are not given of it, as tar's --exclude reads them."""
    service: str | None = None


class Assay(Table):
    """[metadata.assay], where other harnesses look for nothing."""

    base: Literal["any"] | None = None
    """Whether any root file system will do in place of the image after FROM, such as the host's own."""


class Metadata(Table):
    """[metadata]; all but [metadata.assay] is for people and other programs."""

    assay: Assay = Assay()


def _artifact(value: object) -> object:
    return {"source": value} if isinstance(value, str) else value


class Settings(Table):
    """A whole task.toml."""

    schema_version: Annotated[str, Field(pattern=r"^1(\.[0-9]+)*$")] = "1.0"
    task: dict[str, Any] = {}
    metadata: Metadata = Metadata()
    source: Any = None
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    environment: Environment = Environment()
    solution: Solution = Solution()
    artifacts: list[Annotated[Artifact, BeforeValidator(_artifact)]] = []
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
