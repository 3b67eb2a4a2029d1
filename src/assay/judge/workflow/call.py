"""Calls a service by HTTP, as a command in the sandbox, or as a Python function, and reads its answer. SPEC 2.2.

    CallFailed
    ├── Denied      the service understood the request and refused it: the plan's fault
    ├── Broken      no answer, a server's error, or an answer that cannot be read
    └── Lied        an answer with an invalid or excessive cost

An answer is {"output": any JSON, "cost": "0.001"} or {"error": "why not"}, which may also have a cost. A plan chooses the
request, so a failure is the service's own (`own`) only if no request could have caused it: a cost that is missing, negative or
not a decimal string, or a reply that is not a JSON object of this form.

By HTTP a call is one POST; redirects are not followed, and compressed answers are refused. A command is started for every call. A
Python function is called in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from assay.errors import BadInput
from assay.exact import NANO, nanos, text
from assay.judge.sandbox import Image, InfrastructureError, Limits, Ran, Sandbox
from assay.judge.workflow import limits, values
from assay.judge.workflow.limits import MESSAGE, PARTS
from assay.judge.workflow.services import CommandSpec, HttpSpec, PythonSpec, Services, ServiceSpec
from assay.peers import NoAnswer, Overrun, Packed, peer
from assay.peers.reading import bounded

if TYPE_CHECKING:
    from assay.judge.sandbox import Sandbox
    from assay.peers.http import Peer

__all__ = [
    "Broken",
    "CallFailed",
    "CallableService",
    "CommandService",
    "DeclaredService",
    "Denied",
    "HttpService",
    "Lied",
    "PythonService",
    "ServiceAnswer",
    "ServiceCall",
    "ServiceHost",
    "box_limits",
    "check_key",
    "client",
    "opened",
    "plain",
    "read",
    "run_once",
    "unreadable",
]


class CallFailed(Exception):
    """An attempt of a step failed. `cost`: the nanos that the service charged for it."""

    word: Literal["denied", "broken", "lied", "timeout"] = "broken"

    def __init__(self, message: str, cost: int = 0, *, own: bool = False) -> None:
        """own: whether the service caused it, since no plan could have."""
        super().__init__(plain(message))
        self.cost, self.own = cost, own


class Denied(CallFailed):
    """The service refused the request."""

    word = "denied"


class Broken(CallFailed):
    """The service gave no valid answer."""


class Lied(CallFailed):
    """The cost that the service states is invalid or too high."""

    word = "lied"


@dataclass(frozen=True)
class ServiceAnswer:
    """A service's answer: the output as a value and as our JSON, and the cost in nanos."""

    output: Any
    data: bytes
    cost: int


def read(data: bytes, max_cost: int) -> ServiceAnswer:
    """The answer in these bytes; raises CallFailed. max_cost: nanos."""
    try:
        bounded(data.decode("utf-8", "replace"), PARTS, depth=len(data))  # `values` limits the depth
        content = values.parse(data)
    except Overrun as error:
        raise Broken(f"the answer has {error.why}") from None
    except BadInput as error:
        raise Broken(f"the answer {error.what}", own=not _is_json(data)) from None
    if not isinstance(content, dict):
        raise Broken("the answer is not a JSON object", own=True)
    if "error" in content:
        reason = content["error"]
        if content.keys() - {"error", "cost"} or not isinstance(reason, str):
            raise Broken("the answer has an error that is not a text, or other fields beside it", own=True)
        raise Denied(reason or "the service gave no reason", _cost(content["cost"], max_cost) if "cost" in content else 0)
    if "output" not in content or content.keys() - {"output", "cost"}:
        raise Broken("the answer must have output and cost, and nothing else", own=True)
    if "cost" not in content:
        raise Lied("the answer has no cost", own=True)
    cost = _cost(content["cost"], max_cost)
    return ServiceAnswer(content["output"], values.dumps(content["output"]), cost)


def plain(message: str) -> str:
    """A message as it is stored: printable characters only, cut to `MESSAGE`."""
    return "".join(char if char.isprintable() else " " for char in message[:MESSAGE].encode("utf-8", "backslashreplace").decode())


def _is_json(data: bytes) -> bool:
    """True if some reader accepts it as JSON: a plan may cause the NaN, depth, length or repeated key that we refuse."""
    try:
        json.loads(data, parse_int=len)  # Python refuses integers of thousands of digits, but they are valid JSON
    except (ValueError, RecursionError) as error:
        return isinstance(error, RecursionError)
    return True


def _cost(stated: object, most: int) -> int:
    try:
        cost = nanos(stated)
    except BadInput as error:
        raise Lied(f"the cost {error.what}", own=True) from None
    if cost > most:
        raise Lied(f"the cost is {text(cost)}, and a call may cost {text(most)} at most")
    return cost


@dataclass(frozen=True)
class ServiceCall:
    """One attempt of a step."""

    request: bytes
    """{"action": …, "params": …}."""
    seconds: float
    """The most time that it may take; the caller gives up after that."""
    attempt: int = 1
    step: str = ""
    """The name of this step of this run, different from all others and the same for all its attempts."""


class CallableService(Protocol):
    """A service that can be called."""

    @property
    def max_cost(self) -> int:
        """The most that one call may cost, in nanos."""

    @property
    def parallel(self) -> int:
        """The number of calls that may run at one time."""

    @property
    def health(self) -> str:
        """The action that shows whether the service works."""

    @property
    def health_seconds(self) -> float:
        """The most time that the health action may take."""

    async def ask(self, call: ServiceCall) -> bytes:
        """The bytes of an answer.

        Raises Denied, Broken, and InfrastructureError for infrastructure errors. It can be cancelled any time.
        """


class DeclaredService:
    """The properties of a `CallableService` that come from services.toml."""

    spec: ServiceSpec

    @property
    def max_cost(self) -> int:
        """See `CallableService`."""
        return self.spec.max_cost

    @property
    def health(self) -> str:
        """See `CallableService`."""
        return self.spec.health

    @property
    def health_seconds(self) -> float:
        """See `CallableService`."""
        return self.spec.health_seconds / NANO


@dataclass(frozen=True)
class ServiceHost:
    """The parts of the validator's machine that services need."""

    folder: Path
    """The folder of services.toml."""
    env: Mapping[str, str]
    """The variables that hold the keys of services."""
    sandbox: Sandbox | None = None


@asynccontextmanager
async def opened(services: Services, names: Iterable[str], given: ServiceHost) -> AsyncIterator[dict[str, CallableService]]:
    """The services of these names, ready to be called. Raises BadInput for a key that is not set, and for a missing library."""
    async with AsyncExitStack() as later:
        ready: dict[str, CallableService] = {}
        for name in names:
            ready[name] = await _open(name, services.services[name], given, later)
        yield ready


async def _open(name: str, spec: ServiceSpec, given: ServiceHost, later: AsyncExitStack) -> CallableService:
    parallel = spec.parallel or limits.CALLS[spec.kind]
    if isinstance(spec, HttpSpec):
        return await later.enter_async_context(HttpService.open(spec, parallel, check_key(name, spec, given.env)))
    if isinstance(spec, CommandSpec):
        if given.sandbox is None:
            raise BadInput(f"the service {name!r} runs in a sandbox, and there is none", field=f"services.{name}")
        return later.enter_context(CommandService.open(spec, parallel, given.sandbox, given.folder))
    assert isinstance(spec, PythonSpec)

    return PythonService(spec, parallel)


def check_key(name: str, spec: ServiceSpec, env: Mapping[str, str]) -> str | None:
    """The key of a service; None if it needs none. Raises BadInput if the key is not set."""
    if not isinstance(spec, HttpSpec) or spec.key is None:
        return None
    key = env.get(spec.key, "")
    if not key or not key.isascii() or not key.isprintable():
        raise BadInput(
            f"the service {name!r} needs a key, and {spec.key} is not set, or not printable ASCII",
            field=f"services.{name}.key",
            hint=f"export {spec.key}=… first",
        )
    return key


_BUSY = frozenset({408, 425, 429})
"""Statuses of a service that is busy: they count as a server's error, not as a refusal."""
_DENIED = frozenset(range(400, 500)) - _BUSY
_SPARE = 5.0
"""Seconds by which a thread's time-out exceeds that of the caller, who gives up first."""


def client(url: str, seconds: float, at: str | None = None) -> Peer:
    """A client without proxies from the environment and without redirects, with a connection of its own for each call.

    Its connections end with their exchanges. Do not close it: a thread of a call that was given up may still use it.
    at: the address that the host's name was resolved to.
    """
    return peer(url, extra="workflow", seconds=seconds + _SPARE, at=at, keep=False)


def unreadable(error: NoAnswer) -> str | None:
    """The fault of an answer that began to arrive; None if no answer came."""
    if isinstance(error, Packed):
        return "the answer is compressed, which was not requested"
    return f"the answer has {error.why}" if isinstance(error, Overrun) else None


@dataclass(frozen=True)
class HttpService(DeclaredService):
    """A `CallableService`."""

    spec: HttpSpec
    parallel: int
    _headers: dict[str, str]

    @classmethod
    @asynccontextmanager
    async def open(cls, spec: HttpSpec, parallel: int, key: str | None) -> AsyncIterator[HttpService]:
        """The service, ready to be called."""
        headers = {"content-type": "application/json", "accept": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        client(spec.url, 0.0).close()  # imports now what the first call would import
        yield cls(spec, parallel, headers)

    async def ask(self, call: ServiceCall) -> bytes:
        """See `CallableService`."""
        headers = self._headers | {"idempotency-key": call.step, "assay-attempt": str(call.attempt)}
        most = self.spec.answer_bytes
        try:
            peer = client(self.spec.url, call.seconds)
            answer = await peer.ask_aside("POST", headers=headers, body=call.request, most=most, bodies=_DENIED | {200})
        except NoAnswer as error:
            what = unreadable(error)
            if what is not None and error.head is not None and error.head.status in _DENIED:
                raise Denied(f"the service answered {error.head.status}") from None
            raise Broken(what or f"the service cannot be reached: {error.why}") from None
        if answer.status == 200:
            return answer.body
        if answer.status in _DENIED:
            raise self._denied(answer.status, answer.body)
        raise Broken(f"the service answered {answer.status}")

    def _denied(self, status: int, body: bytes) -> CallFailed:
        """The refusal of a 4xx, with its own words and cost if the body is an answer."""
        try:
            read(body, self.spec.max_cost)
        except (Denied, Lied) as error:
            return error
        except CallFailed:
            pass
        return Denied(f"the service answered {status}")


PLACE = "/service"
_DISK = 256 << 20
_PROCESSES = 128
_ERRORS = 64_000
"""Bytes of stderr that a command may write beside its answer."""


def box_limits(seconds: float, memory_mb: int, output: int) -> Limits:
    """The limits of one command of a service, planner or test."""
    return Limits(
        seconds=seconds, memory=memory_mb << 20, processes=_PROCESSES, disk=_DISK, output=output + _ERRORS, files=20_000
    )


def run_once(
    sandbox: Sandbox,
    image: Image,
    command: tuple[str, ...],
    bounds: Limits,
    *,
    stdin: bytes,
    put: dict[str, Path],
    env: dict[str, str],
    cwd: str | None,
    most: int,
) -> tuple[Ran, bytes]:
    """Runs one command in a box of its own: how it ended, and at most `most` + 1 bytes of its stdout.

    Raises InfrastructureError.
    """
    with tempfile.TemporaryDirectory(prefix="assay-call-") as folder, sandbox.open(image, bounds) as box:
        for inside, source in put.items():
            box.put(source, inside)
        out = Path(folder) / "out"
        ran = box.run(command, limits=bounds, stdout=out, stderr=Path(folder) / "err", stdin=stdin, env=env, cwd=cwd)
        try:
            with out.open("rb") as file:
                return ran, file.read(most + 1)
        except OSError as error:
            raise InfrastructureError(f"the output of a command cannot be read: {error.strerror}", file=out) from error


@dataclass(frozen=True)
class CommandService(DeclaredService):
    """A `CallableService`."""

    spec: CommandSpec
    parallel: int
    _sandbox: Sandbox
    _image: Image
    _folder: Path | None
    _threads: ThreadPoolExecutor

    @classmethod
    @contextmanager
    def open(cls, spec: CommandSpec, parallel: int, sandbox: Sandbox, folder: Path) -> Iterator[CommandService]:
        """The service, ready to be called. Calls that still run when the context ends have time limits and are not waited for."""
        threads = ThreadPoolExecutor(parallel, thread_name_prefix="assay-call")
        place = None if spec.folder is None else folder / spec.folder
        try:
            yield cls(spec, parallel, sandbox, sandbox.image(), place, threads)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    async def ask(self, call: ServiceCall) -> bytes:
        """See `CallableService`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, call)

    def _run(self, call: ServiceCall) -> bytes:
        spec, most = self.spec, self.spec.answer_bytes
        ran, data = run_once(
            self._sandbox,
            self._image,
            spec.command,
            box_limits(call.seconds, spec.memory_mb, most),
            stdin=call.request,
            put={} if self._folder is None else {PLACE: self._folder},
            env={"ASSAY_ATTEMPT": str(call.attempt)},
            cwd=None if self._folder is None else PLACE,
            most=most,
        )
        if ran.stopped is not None:
            raise Broken(f"the service ran into its bound on {ran.stopped}")
        if ran.exit_code:
            raise Broken(f"the service ended with {ran.exit_code}")
        if len(data) > most:
            raise Broken(f"the answer has more than {most} bytes")
        return data


_CHILD = "assay.judge.workflow.call_child"
_PIECE = 1 << 16


@dataclass(frozen=True)
class PythonService(DeclaredService):
    """A `CallableService`."""

    spec: PythonSpec
    parallel: int

    async def ask(self, call: ServiceCall) -> bytes:
        """See `CallableService`."""
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _CHILD, self.spec.entry),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise InfrastructureError(f"a service's process cannot be started: {error.strerror}") from error
        try:
            return await self._talk(process, call.request)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it started
            await asyncio.shield(process.wait())

    async def _talk(self, process: asyncio.subprocess.Process, request: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(ConnectionError):
            process.stdin.write(request)
            await process.stdin.drain()
            process.stdin.close()
        data = bytearray()
        while part := await process.stdout.read(_PIECE):
            data += part
            if len(data) > self.spec.answer_bytes:
                raise Broken(f"the answer has more than {self.spec.answer_bytes} bytes")
        code = await process.wait()
        if code:
            raise Broken(f"{self.spec.entry} ended with {code}")
        return bytes(data)
