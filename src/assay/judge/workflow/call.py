"""How a service is asked: a request out, the bytes of an answer back, or one of three ways to fail. SPEC 2.2.

    CallFailed
    ├── Denied      the service understood, and said no: the plan's fault
    ├── Broken      no answer, a server's error, or an answer that cannot be read
    └── Lied        an answer whose cost cannot be believed

An answer is {"output": any JSON, "cost": "0.001"} or {"error": "why not"}, which may have a cost too. A plan chooses what a
service is asked, so a failure is the service's own (`own`) only where no question could have caused it: a cost that is missing,
negative or no decimal string, and a reply that is no JSON object of this form.

A service is asked by HTTP (one POST, nothing followed or unpacked), is a command that is started in the sandbox for every call,
or is a Python function that the validator has installed, called in a process of its own.
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
from assay.judge.sandbox import Image, Limits, Ran, Sandbox, Trouble
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
    """One attempt of a step came to nothing. `cost`: nanos that the service took all the same."""

    word: Literal["denied", "broken", "lied", "timeout"] = "broken"

    def __init__(self, message: str, cost: int = 0, *, own: bool = False) -> None:
        """own: whether the service is to blame, and no plan could have caused it."""
        super().__init__(plain(message))
        self.cost, self.own = cost, own


class Denied(CallFailed):
    """The service says that it will not do this."""

    word = "denied"


class Broken(CallFailed):
    """The service gave no answer that is one."""


class Lied(CallFailed):
    """What the service says of its cost cannot be."""

    word = "lied"


@dataclass(frozen=True)
class ServiceAnswer:
    """What a service answered: the output as a value, and as JSON of ours; the cost in nanos."""

    output: Any
    data: bytes
    cost: int


def read(data: bytes, max_cost: int) -> ServiceAnswer:
    """The answer in the bytes of one; raises CallFailed. max_cost: nanos."""
    try:
        bounded(data.decode("utf-8", "replace"), PARTS, depth=len(data))  # how deep it is, `values` looks at
        found = values.parse(data)
    except Overrun as error:
        raise Broken(f"the answer has {error.why}") from None
    except BadInput as error:
        raise Broken(f"the answer {error.what}", own=not _json(data)) from None
    if not isinstance(found, dict):
        raise Broken("the answer is not a JSON object", own=True)
    if "error" in found:
        said = found["error"]
        if found.keys() - {"error", "cost"} or not isinstance(said, str):
            raise Broken("the answer has an error that is no text, or something beside it", own=True)
        raise Denied(said or "the service gave no reason", _cost(found["cost"], max_cost) if "cost" in found else 0)
    if "output" not in found or found.keys() - {"output", "cost"}:
        raise Broken("the answer has not output and cost, and nothing else", own=True)
    if "cost" not in found:
        raise Lied("the answer has no cost", own=True)
    cost = _cost(found["cost"], max_cost)
    return ServiceAnswer(found["output"], values.dumps(found["output"]), cost)


def plain(said: str) -> str:
    """Words as they are kept: printable, and not too many."""
    return "".join(char if char.isprintable() else " " for char in said[:MESSAGE].encode("utf-8", "backslashreplace").decode())


def _json(data: bytes) -> bool:
    """Whether it is JSON for some reader: the NaN, depth, length or key twice that we refuse may come of what a plan asked."""
    try:
        json.loads(data, parse_int=len)  # Python refuses integers of thousands of digits, which are JSON all the same
    except (ValueError, RecursionError) as error:
        return isinstance(error, RecursionError)
    return True


def _cost(said: object, most: int) -> int:
    try:
        cost = nanos(said)
    except BadInput as error:
        raise Lied(f"the cost {error.what}", own=True) from None
    if cost > most:
        raise Lied(f"the cost is {text(cost)}, and a call costs {text(most)} at most")
    return cost


@dataclass(frozen=True)
class ServiceCall:
    """One attempt of a step."""

    request: bytes
    """{"action": …, "params": …}."""
    seconds: float
    """How long there is at most; who asks gives up by itself then."""
    attempt: int = 1
    step: str = ""
    """What tells this step of this run from all others, the same for all its attempts."""


class CallableService(Protocol):
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

    async def ask(self, call: ServiceCall) -> bytes:
        """The bytes of an answer; raises Denied or Broken, and Trouble for what is ours. Can be cancelled at any time."""


class DeclaredService:
    """What services.toml says of a service, as a `CallableService` says it."""

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
    """What the validator's machine has for services."""

    folder: Path
    """Of services.toml."""
    env: Mapping[str, str]
    """For the keys of services."""
    sandbox: Sandbox | None = None


@asynccontextmanager
async def opened(services: Services, names: Iterable[str], given: ServiceHost) -> AsyncIterator[dict[str, CallableService]]:
    """The services of these names, ready to be asked. Raises BadInput for a key that is not set, or a library that is missing."""
    async with AsyncExitStack() as later:
        found: dict[str, CallableService] = {}
        for name in names:
            found[name] = await _open(name, services.services[name], given, later)
        yield found


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
    """The key of a service, None if it wants none; raises BadInput if it is not set."""
    if not isinstance(spec, HttpSpec) or spec.key is None:
        return None
    key = env.get(spec.key, "")
    if not key or not key.isascii() or not key.isprintable():
        raise BadInput(
            f"the service {name!r} wants a key, and {spec.key} is not set, or not printable ASCII",
            field=f"services.{name}.key",
            hint=f"export {spec.key}=… first",
        )
    return key


_BUSY = frozenset({408, 425, 429})
"""Answers of a service that has no time now: as a server's error, not as a refusal."""
_DENIED = frozenset(range(400, 500)) - _BUSY
_SPARE = 5.0
"""Seconds that a thread has more than who waits for it, who gives up by himself."""


def client(url: str, seconds: float, at: str | None = None) -> Peer:
    """A client that does only what it is told: no proxy of the environment, no redirect, each call on a connection of its own.

    Its connections end with their exchanges. It is not to be closed, since a thread of one that was given up may still be at it.
    at: the address that the host was looked up to be.
    """
    return peer(url, extra="workflow", seconds=seconds + _SPARE, at=at, keep=False)


def unreadable(error: NoAnswer) -> str | None:
    """What is wrong with an answer of which the beginning came; None for one that did not come."""
    if isinstance(error, Packed):
        return "the answer is compressed, and nobody asked for that"
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
        """Ready to be asked; closed with the context."""
        headers = {"content-type": "application/json", "accept": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        client(spec.url, 0.0).close()  # what the first connection would load is loaded now
        yield cls(spec, parallel, headers)

    async def ask(self, call: ServiceCall) -> bytes:
        """See `CallableService`."""
        headers = self._headers | {"idempotency-key": call.step, "assay-attempt": str(call.attempt)}
        most = self.spec.answer_bytes
        try:
            asking = client(self.spec.url, call.seconds)
            answer = await asking.ask_aside("POST", headers=headers, body=call.request, most=most, bodies=_DENIED | {200})
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
        """What a 4xx says: its own words, and its cost, if it is written as an answer."""
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
    """What one command of somebody else's may use."""
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
    """One command in a box of its own: how it ended, and at most `most` + 1 bytes of its stdout. Raises Trouble."""
    with tempfile.TemporaryDirectory(prefix="assay-call-") as made, sandbox.open(image, bounds) as box:
        for inside, source in put.items():
            box.put(source, inside)
        out = Path(made) / "out"
        ran = box.run(command, limits=bounds, stdout=out, stderr=Path(made) / "err", stdin=stdin, env=env, cwd=cwd)
        try:
            with out.open("rb") as file:
                return ran, file.read(most + 1)
        except OSError as error:
            raise Trouble(f"the output of a command cannot be read: {error.strerror}", file=out) from error


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
        """Ready to be asked. What still runs when the context ends has its own bound on time, and is not waited for."""
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
            raise Trouble(f"a service's process cannot be started: {error.strerror}") from error
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
