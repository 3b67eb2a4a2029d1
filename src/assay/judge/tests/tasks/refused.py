"""What a task may ask for in Harbor and cannot have here, each refused by its name. SPEC 2.1."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import Path

from assay.errors import BadInput
from assay.judge.tests.tasks.settings import Settings, open_names
from assay.scheme.reading import line_of

__all__ = ["CLOSED", "COMPOSE", "closed", "refusals"]

COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
"""Names that say there is more than one box."""
CLOSED = ("/bin", "/dev", "/lib", "/lib32", "/lib64", "/logs/verifier", "/proc", "/sbin", "/solution", "/sys", "/tests", "/usr")
"""What an agent made never goes there in the verifier's box."""
_SEPARATE = 'or set environment_mode = "snapshot" in [verifier]'


def refusals(settings: Settings, source: str, file: Path) -> list[BadInput]:
    """Everything in the settings that is not supported; source: the text of the file, for the lines."""
    return [
        BadInput(what, file=file, line=line_of(source, field.split(".")), field=field, hint=hint)
        for field, what, hint in _said(settings)
    ]


def _said(settings: Settings) -> Iterator[tuple[str, str, str]]:
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


def _paths(settings: Settings) -> Iterator[tuple[str, str, str]]:
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
