"""Runs the service's process: checks everything first, opens the socket, and keeps secrets out of logs and core dumps."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import ipaddress
import logging
import os
import resource
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from assay.enclave.dstack import Dstack
from assay.enclave.sealing import OpenedSolution, parse_sealed
from assay.enclave.service.intake import Deadlines
from assay.enclave.service.judging import ProblemMissing
from assay.enclave.service.lifecycle import Service, ServiceOptions
from assay.enclave.service.state import locked
from assay.errors import BadInput
from assay.folder import csvs
from assay.folder.files import load
from assay.judge.rubric import asking
from assay.judge.rubric.asking import Models
from assay.judge.rubric.judgement import LIMITS, JudgeLimits, Judgement, JudgingCost
from assay.ledger.keys import sealing
from assay.scheme.bounty import PROBLEM_BYTES, Bounty, read_bounty

if TYPE_CHECKING:
    import uvicorn

    from assay.peers.guard import ConnectionGuard


BACKLOG = 600
"""Connections that may wait to be accepted."""
IDLE_SECONDS = 5
HEADER_BYTES = 65_536
_PR_SET_DUMPABLE = 4


class Listener:
    """A listening socket: `unix:PATH`, which only the owner may use, or `HOST:PORT`."""

    def __init__(self, address: str) -> None:
        self.path: Path | None = None
        if address.startswith("unix:"):
            self.path = Path(address.removeprefix("unix:"))
            self.socket = _unix_socket(self.path)
            self.words, self.loopback = address, True
            return
        self.socket, self.loopback = _tcp_socket(address)
        host, port = self.socket.getsockname()[:2]
        self.words = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        """Close the socket, and remove its file."""
        self.socket.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def open_listener(address: str) -> Listener:
    """The listening socket of `unix:PATH` or `HOST:PORT`; raises BadInput."""
    try:
        return Listener(address)
    except OSError as error:
        hint = "use unix:PATH or 127.0.0.1:PORT; is another process listening there?"
        raise BadInput(f"cannot listen at {address[:200]} ({error.strerror or error})", field="listen", hint=hint) from None


def _unix_socket(path: Path) -> socket.socket:
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):  # left by a killed service: a living one holds the folder's lock
            path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    return listener


def _tcp_socket(address: str) -> tuple[socket.socket, bool]:
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise BadInput(f"{address[:200]!r} is not an address", field="listen", hint="use unix:PATH or 127.0.0.1:PORT")
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    return socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET), loopback


def harden(tell: Callable[[str], None]) -> None:
    """Keep the content of this process out of files and logs: no core dumps, and no tracebacks with values."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    faulthandler.disable()
    os.environ.pop("OPENAI_LOG", None)  # the client would log what it sends
    logging.disable(logging.CRITICAL)

    def quiet(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        del error
        tell(f"ended by {kind.__name__}{_innermost_frame(trace)}")

    sys.excepthook = quiet
    threading.excepthook = lambda failure: tell(f"internal error: {failure.exc_type.__name__}")
    sys.unraisablehook = lambda failure: tell(f"internal error: {failure.exc_type.__name__}")


def _innermost_frame(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def serve(make: Callable[[], Service], competition: Path, address: str, *, tell: Callable[[str], None]) -> None:
    """Serve until a signal ends the process. Raises BadInput. make: makes the service, within the event loop."""
    with locked(competition):
        place = open_listener(address)
        try:
            tell(f"listening at {place.words}")
            asyncio.run(_serve(make, place, tell))
        finally:
            place.close()


async def _serve(make: Callable[[], Service], place: Listener, tell: Callable[[str], None]) -> None:
    from assay.peers.guard import ConnectionGuard

    asyncio.get_running_loop().set_exception_handler(lambda _, context: tell(f"internal error: {_listen_error(context)}"))
    service = make()
    server = make_server(service, ConnectionGuard())
    living = asyncio.create_task(service.live())
    living.add_done_callback(lambda _: setattr(server, "should_exit", True))
    try:
        await server.serve(sockets=[place.socket])
    finally:
        living.cancel()
        with suppress(asyncio.CancelledError):
            await living


def make_server(service: Service, guard: ConnectionGuard) -> uvicorn.Server:
    """The server of a service behind a guard, within the running event loop."""
    import uvicorn

    from assay.enclave.service.http import make_app

    loop = asyncio.get_running_loop()

    class Server(uvicorn.Server):
        """A server that a signal stops in order: the process ends only after it has closed."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Handle Ctrl-C and SIGTERM."""
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self.handle_exit, number, None)
            yield

    return Server(
        uvicorn.Config(
            make_app(service, guard=guard),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=IDLE_SECONDS,
            h11_max_incomplete_event_size=HEADER_BYTES,
            http=guard.protocol(),
            ws="none",
        )
    )


def _listen_error(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return "" if error is None else type(error).__name__


class ProblemText:
    """The problem's text. A sealed problem is opened when the keys and its file are available."""

    def __init__(self, bounty: Bounty) -> None:
        self._bounty, self._text = bounty, bounty.problem

    def text(self, service: Service) -> str | None:
        """The text; None if it is not available yet."""
        if self._text is None and service.work is not None and self._bounty.sealed is not None:
            self._text = self._opened(service, self._bounty.sealed)
        return self._text

    def _opened(self, service: Service, file: Path) -> str | None:
        try:
            sealed = parse_sealed(load(file, 8 * PROBLEM_BYTES, hint=""))
            data = sealed.open(service.ready().desk.identity.seal)
            right = sealed.kind == "problem" and f"sha256:{sha256(data).hexdigest()}" == self._bounty.problem_digest
            return data.decode() if right else None
        except (BadInput, UnicodeDecodeError):
            return None


@dataclass(frozen=True)
class StartOptions:
    """The settings with which a service starts. dstack: its endpoint; None: the usual one. tell: prints one line."""

    competition: Path
    listen: str
    models: Models
    tell: Callable[[str], None]
    dstack: str | None = None
    setting: ServiceOptions = field(default_factory=ServiceOptions)
    limits: JudgeLimits = LIMITS


def serve_competition(start: StartOptions) -> None:
    """Serve until a signal ends the process. Raises BadInput before serving, and if another enclave wrote the stored state."""
    bounty = read_bounty(start.competition)
    _check_bounty(bounty)
    start.models.settings(bounty, start.limits)
    problem = ProblemText(bounty)
    lost: dict[str, JudgingCost] = {}

    def heard(event: asking.JudgeProgress) -> None:
        """Add up the cost of failed tries: it is added to the final judgement."""
        if event.measured is not None:
            before = lost.get(event.submission)
            lost[event.submission] = event.measured if before is None else before + event.measured

    async def judge(service: Service, opened: OpenedSolution) -> Judgement:
        text = problem.text(service)
        if text is None:
            raise ProblemMissing("the sealed problem is not there", hint="`assay seal DIR --problem FILE` makes its file")
        judgement = await asking.judge(bounty, text, opened.solution, start.models, on_event=heard, limits=start.limits)
        before = lost.pop(judgement.submission, None)
        return (
            judgement
            if before is None or judgement.measured is None
            else replace(judgement, measured=before + judgement.measured)
        )

    def check(service: Service, opened: OpenedSolution) -> None:
        text = problem.text(service)
        if text is not None:
            asking.check_case(bounty, text, opened.solution)

    def make() -> Service:
        return Service(bounty, lambda: Dstack(start.dstack), judge, check, start.tell, start.setting)

    harden(start.tell)
    serve(make, start.competition, start.listen, tell=start.tell)


def _check_bounty(bounty: Bounty) -> None:
    """Refuse errors in registry, keys, deadlines and extras before serving, not in the middle of the round."""
    Deadlines.of(bounty)
    csvs.read(bounty.file.with_name(csvs.PARTICIPANTS.name), csvs.PARTICIPANTS)
    if bounty.terms.sponsor is not None:
        try:
            sealing(bounty.terms.sponsor)
        except BadInput as error:
            raise error.at(file=bounty.file, field="bounty.sponsor") from None
    for name in ("dstack_sdk", "fastapi", "openai", "uvicorn"):
        if find_spec(name) is None:
            hint = "install them: pip install 'assay[tee,llm]'"
            raise BadInput(f"the service needs libraries that are not installed ({name})", hint=hint)
