"""The process: where it listens, what it never writes, and how it ends."""

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
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from assay.enclave.service.lock import locked
from assay.enclave.service.service import Service
from assay.errors import BadInput

if TYPE_CHECKING:
    import uvicorn

    from assay.enclave.service.door import Door

__all__ = ["Listening", "harden", "listening", "serve", "server_of"]

BACKLOG = 600
"""Connections that wait to be taken."""
IDLE_SECONDS = 5
HEADER_BYTES = 65_536
_PR_SET_DUMPABLE = 4


class Listening:
    """A socket that listens: `unix:PATH`, which the owner alone may use, or `HOST:PORT`."""

    def __init__(self, said: str) -> None:
        self.path: Path | None = None
        if said.startswith("unix:"):
            self.path = Path(said.removeprefix("unix:"))
            self.socket = _unix(self.path)
            self.words, self.loopback = said, True
            return
        self.socket, self.loopback = _tcp(said)
        host, port = self.socket.getsockname()[:2]
        self.words = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        """Close it, and take away its file."""
        self.socket.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def listening(said: str) -> Listening:
    """The listening socket of `unix:PATH` or `HOST:PORT`; raises BadInput."""
    try:
        return Listening(said)
    except OSError as error:
        hint = "use unix:PATH or 127.0.0.1:PORT; is another process listening there?"
        raise BadInput(f"cannot listen at {said[:200]} ({error.strerror or error})", field="listen", hint=hint) from None


def _unix(path: Path) -> socket.socket:
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):  # of a service that was killed: a living one has the folder's lock
            path.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
    except OSError:
        made.close()
        raise
    finally:
        os.umask(before)
    made.listen(BACKLOG)
    return made


def _tcp(said: str) -> tuple[socket.socket, bool]:
    host, colon, port = said.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise BadInput(f"{said[:200]!r} is no address", field="listen", hint="use unix:PATH or 127.0.0.1:PORT")
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    return socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET), loopback


def harden(tell: Callable[[str], None]) -> None:
    """Let nothing of what this process holds reach a file or a log: no core dumps, no tracebacks with what they were about."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    faulthandler.disable()
    os.environ.pop("OPENAI_LOG", None)  # the client would log what it sends
    logging.disable(logging.CRITICAL)

    def quiet(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        del error
        tell(f"ended by {kind.__name__}{_where(trace)}")

    sys.excepthook = quiet
    threading.excepthook = lambda said: tell(f"internal trouble: {said.exc_type.__name__}")
    sys.unraisablehook = lambda said: tell(f"internal trouble: {said.exc_type.__name__}")


def _where(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def serve(make: Callable[[], Service], competition: Path, said: str, *, tell: Callable[[str], None]) -> None:
    """Serve until the process is told to end; raises BadInput. make: the service, made within the event loop."""
    with locked(competition):
        place = listening(said)
        try:
            tell(f"listening at {place.words}")
            asyncio.run(_serve(make, place, tell))
        finally:
            place.close()


async def _serve(make: Callable[[], Service], place: Listening, tell: Callable[[str], None]) -> None:
    from assay.enclave.service.door import Door

    asyncio.get_running_loop().set_exception_handler(lambda _, said: tell(f"internal trouble: {_named(said)}"))
    service = make()
    server = server_of(service, Door())
    living = asyncio.create_task(service.live())
    living.add_done_callback(lambda _: setattr(server, "should_exit", True))
    try:
        await server.serve(sockets=[place.socket])
    finally:
        living.cancel()
        with suppress(asyncio.CancelledError):
            await living


def server_of(service: Service, door: Door) -> uvicorn.Server:
    """The server of a service behind a door, within the running event loop."""
    import uvicorn

    from assay.enclave.service.app import app_of

    loop = asyncio.get_running_loop()

    class Server(uvicorn.Server):
        """The server, with signals that end it and do not end the process before it has closed."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Ctrl-C and SIGTERM."""
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self.handle_exit, number, None)
            yield

    return Server(
        uvicorn.Config(
            app_of(service, door=door),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=IDLE_SECONDS,
            h11_max_incomplete_event_size=HEADER_BYTES,
            http=door.protocol(),
            ws="none",
        )
    )


def _named(said: dict[str, Any]) -> str:
    error = said.get("exception")
    return "" if error is None else type(error).__name__
