"""A service as a run asks it, and the three kinds, opened together for one run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from assay.errors import BadInput
from assay.exact import NANO
from assay.judge.workflow import limits
from assay.judge.workflow.services import Command, Http, Python, Service, Services

if TYPE_CHECKING:
    from assay.judge.sandbox.box import Sandbox

__all__ = ["Asked", "Call", "Declared", "Given", "check_key", "opened"]


@dataclass(frozen=True)
class Call:
    """One attempt of a step."""

    request: bytes
    """{"action": …, "params": …}."""
    seconds: float
    """How long there is at most; who asks gives up by itself then."""
    attempt: int = 1
    step: str = ""
    """What tells this step of this run from all others, the same for all its attempts."""


class Asked(Protocol):
    """A service that can be asked."""

    @property
    def max_cost(self) -> int:
        """The most that one call may cost, in nanos."""

    @property
    def parallel(self) -> int:
        """Calls at one time."""

    @property
    def health(self) -> str:
        """The action that says whether it works."""

    @property
    def health_seconds(self) -> float:
        """How long that may take."""

    async def ask(self, call: Call) -> bytes:
        """The bytes of an answer; raises Denied or Broken, and Trouble for what is ours. Can be cancelled at any time."""


class Declared:
    """What services.toml says of a service, as an `Asked` says it."""

    spec: Service

    @property
    def max_cost(self) -> int:
        """See `Asked`."""
        return self.spec.max_cost

    @property
    def health(self) -> str:
        """See `Asked`."""
        return self.spec.health

    @property
    def health_seconds(self) -> float:
        """See `Asked`."""
        return self.spec.health_seconds / NANO


@dataclass(frozen=True)
class Given:
    """What the validator's machine has for services."""

    folder: Path
    """Of services.toml."""
    env: Mapping[str, str]
    """For the keys of services."""
    sandbox: Sandbox | None = None


@asynccontextmanager
async def opened(services: Services, names: Iterable[str], given: Given) -> AsyncIterator[dict[str, Asked]]:
    """The services of these names, ready to be asked. Raises BadInput for a key that is not set, or a library that is missing."""
    async with AsyncExitStack() as later:
        found: dict[str, Asked] = {}
        for name in names:
            found[name] = await _open(name, services.services[name], given, later)
        yield found


async def _open(name: str, spec: Service, given: Given, later: AsyncExitStack) -> Asked:
    parallel = spec.parallel or limits.CALLS[spec.kind]
    if isinstance(spec, Http):
        from assay.judge.workflow.call.http import HttpService

        return await later.enter_async_context(HttpService.open(spec, parallel, check_key(name, spec, given.env)))
    if isinstance(spec, Command):
        from assay.judge.workflow.call.command import CommandService

        if given.sandbox is None:
            raise BadInput(f"the service {name!r} runs in a sandbox, and there is none", field=f"services.{name}")
        return later.enter_context(CommandService.open(spec, parallel, given.sandbox, given.folder))
    assert isinstance(spec, Python)
    from assay.judge.workflow.call.python import PythonService

    return PythonService(spec, parallel)


def check_key(name: str, spec: Service, env: Mapping[str, str]) -> str | None:
    """The key of a service, None if it wants none; raises BadInput if it is not set."""
    if not isinstance(spec, Http) or spec.key is None:
        return None
    key = env.get(spec.key, "")
    if not key or not key.isascii() or not key.isprintable():
        raise BadInput(
            f"the service {name!r} wants a key, and {spec.key} is not set, or not printable ASCII",
            field=f"services.{name}.key",
            hint=f"export {spec.key}=… first",
        )
    return key
