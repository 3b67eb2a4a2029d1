"""Loads a participant's submission, which is plans or a planner, and gets a plan for a task from it. SPEC 2.2.

A folder of plans has one `TASK.json` for each task. A planner is asked when the task is drawn:

    name = "greedy"                             # planner.toml
    version = "1.2.0"
    url = "https://planner.example/plan"        # POST of the package; the answer is the plan
    command = ["python3", "/planner/plan.py"]   # or: in the sandbox; the package is on stdin, and at /package.json

If a planner gives no answer, or no valid plan, that is the participant's failure (`invalid`). An infrastructure error is
`InfrastructureError`, and is tried again.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput
from assay.exact import NANO
from assay.folder.files import load
from assay.judge import tree
from assay.judge.sandbox import InfrastructureError, Sandbox
from assay.judge.workflow.call import box_limits, client, plain, run_once, unreadable
from assay.judge.workflow.services import CommandWords, Planners, Url
from assay.peers import NoAnswer
from assay.scheme.fields import Key, Section, Text
from assay.scheme.reading import read_toml, validate

FILE = "planner.toml"
PLACE, PACKAGE = "/planner", "/package.json"
BOUNDS = tree.Bounds(bytes=256_000_000, files=20_000)
"""The limits of a submitted folder."""
ATTEMPTS = 2
"""The number of times that a planner that cannot be reached is asked."""
_PAUSE = 1.0
_OUR_NETWORK = frozenset(
    {errno.ENETUNREACH, errno.ENETDOWN, errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOMEM, errno.ENOBUFS}
)


class NoPlan(Exception):
    """The participant gave no answer that could be a plan."""


class _PlannerTable(Section):
    """A planner.toml."""

    name: Key
    version: Key = "1"
    url: Url | None = None
    command: CommandWords | None = None
    description: Text = ""

    @model_validator(mode="after")
    def _url_or_command(self) -> _PlannerTable:
        if (self.url is None) == (self.command is None):
            raise PydanticCustomError("assay", "has url and command, or neither; give one of the two")
        return self


@dataclass(frozen=True)
class Planner:
    """A submission: how it is asked for a plan, and its digest."""

    name: str
    version: str
    digest: str
    """`sha256:…` of the folder; the submission."""
    folder: Path
    url: str | None = None
    command: tuple[str, ...] | None = None

    @property
    def way(self) -> str:
        """One word for how it is asked."""
        return "url" if self.url else "command" if self.command else "plans"


def load_planner(folder: Path) -> Planner:
    """The submission in a folder. Raises BadInput for a faulty planner.toml, and for a folder that is too large."""
    if not folder.is_dir():
        raise BadInput("no such folder", file=folder, hint=f"submit a folder of plans, or one with {FILE}")
    try:
        digest = tree.digest(folder, bounds=BOUNDS)
    except tree.TooMuch as error:
        raise BadInput(error.what, file=folder, hint="leave out what the planner does not need") from None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=folder, hint="check its permissions") from None
    file = folder / FILE
    if file.is_file() and not file.is_symlink():
        content, source = read_toml(file)
        table = validate(_PlannerTable, content, file=file, source=source)
        return Planner(table.name, table.version, digest, folder, table.url, table.command)
    if not any(folder.glob("*.json")):
        raise BadInput(f"has neither {FILE} nor a plan", file=folder, hint="write a plan for each task, named TASK.json")
    return Planner(folder.resolve().name, "1", digest, folder)


async def ask_planner(planner: Planner, task: str, package: bytes, most: int, rules: Planners, sandbox: Sandbox | None) -> bytes:
    """The bytes of a plan for a task, at most `most` and one more.

    Raises NoPlan, and InfrastructureError for infrastructure errors.
    """
    if planner.url is not None:
        return await _by_url(planner.url, package, most, rules)
    if planner.command is not None:
        if sandbox is None:
            raise BadInput(f"the planner {planner.name!r} runs in a sandbox, and there is none", field="sandbox")
        return await asyncio.to_thread(_by_command, planner, planner.command, package, most, rules, sandbox)
    file = planner.folder / f"{task}.json"
    if file.is_symlink() or not file.is_file():
        raise NoPlan("there is no plan for this task")
    try:
        return load(file, most, hint="")
    except BadInput as error:
        raise NoPlan(error.what) from None


def _by_command(
    planner: Planner, command: tuple[str, ...], package: bytes, most: int, rules: Planners, sandbox: Sandbox
) -> bytes:
    with tempfile.TemporaryDirectory(prefix="assay-package-") as folder:
        file = Path(folder) / "package.json"
        file.write_bytes(package)
        ran, data = run_once(
            sandbox,
            sandbox.image(),
            command,
            box_limits(rules.seconds / NANO, rules.memory_mb, most),
            stdin=package,
            put={PLACE: planner.folder, PACKAGE: file},
            env={"ASSAY_PACKAGE": PACKAGE},
            cwd=PLACE,
            most=most,
        )
    if ran.stopped is not None:
        raise NoPlan(f"the planner ran into its bound on {ran.stopped}")
    if ran.exit_code:
        raise NoPlan(f"the planner ended with {ran.exit_code}")
    return data


async def _by_url(url: str, package: bytes, most: int, rules: Planners) -> bytes:
    seconds = rules.seconds / NANO
    try:
        async with asyncio.timeout(seconds):
            for left in range(ATTEMPTS - 1, -1, -1):
                try:
                    return await _post(url, package, most, rules)
                except NoAnswer as error:
                    if (what := unreadable(error)) is not None:
                        raise NoPlan(plain(f"the planner's answer: {what}")) from None
                    _raise_if_ours(error)
                    if not left:
                        raise NoPlan(plain(f"the planner cannot be reached: {error.why}")) from None
                    await asyncio.sleep(_PAUSE)
    except TimeoutError:
        raise NoPlan(f"the planner took longer than {seconds:g} s") from None
    raise AssertionError("unreachable")  # pragma: no cover


async def _post(url: str, package: bytes, most: int, rules: Planners) -> bytes:
    """One request, to an address that was checked: a participant must not make the validator query its own network."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    address = await _address(host, parts.port or (443 if parts.scheme == "https" else 80), private=rules.private)
    headers = {"content-type": "application/json"}
    peer = client(url, rules.seconds / NANO, at=address)
    answer = await peer.ask_aside("POST", headers=headers, body=package, most=most, bodies={200})
    if answer.status != 200:
        raise NoPlan(f"the planner answered {answer.status}")
    return answer.body


async def _address(host: str, port: int, *, private: bool) -> str:
    """An address of a host. Raises NoPlan for a host that does not exist, or is not in the public network."""
    try:
        rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", -5)):
            raise NoPlan(f"there is no host {host[:100]}") from None
        raise InfrastructureError(f"the name of a planner's host cannot be resolved: {error.strerror}") from error
    except UnicodeError:
        raise NoPlan(f"{host[:100]!r} is not the name of a host") from None
    addresses = [str(row[4][0]) for row in rows]
    if not private and not all(ipaddress.ip_address(address.partition("%")[0]).is_global for address in addresses):
        raise NoPlan(f"{host[:100]} is not in the public network")
    return addresses[0]


def _raise_if_ours(error: BaseException) -> None:
    """Raises InfrastructureError if the validator's side of the network failed."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _OUR_NETWORK:
            raise InfrastructureError(f"the validator's network failed: {cause.strerror}") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _causes(inner)
        error = error.__cause__ or error.__context__
