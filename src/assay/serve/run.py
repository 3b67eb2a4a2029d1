"""Runs the service: TLS, one or several worker processes, and a stop that loses nothing that was acknowledged."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from assay.peers.guard import Asgi, ConnectionGuard
from assay.serve.app import make_app
from assay.serve.background import Background
from assay.serve.listening import ServeOptions, addresses, networks
from assay.serve.site import Site, open_site

__all__ = ["application", "run", "server"]

STOP_SECONDS = 20
"""The seconds that requests under way may still take after the signal to stop."""
HUNG_SECONDS = 30
"""A worker that does not answer the process that started it for so long is killed. On a busy machine a start takes seconds."""
HEADER_BYTES = 16_384
"""Bytes of a request's head."""


GUARD = ConnectionGuard()
Protocol = GUARD.protocol()
"""The protocol of a worker process; uvicorn finds it, and `application`, by name."""
_SETTINGS = "ASSAY_SERVE"


def server(site: Site, guard: ConnectionGuard) -> uvicorn.Server:
    """A server in this process; `run(sockets=[…])` serves until `should_exit` is set."""
    return uvicorn.Server(_config(make_app(site, guard=guard, tell=_tell), guard.protocol(), ServeOptions(Path())))


def run(options: ServeOptions, opened: socket.socket) -> None:
    """Serve until a signal comes. Several workers are processes of their own; one that dies is started again."""
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn catches them, stops, and raises them again for whoever waits
        signal.signal(number, lambda *_: None)
    GUARD.proxies = tuple(networks(options.proxies))
    settings = [str(options.place), addresses(options, opened.getsockname()[1]), options.proxies]
    if options.workers == 1:
        with open_site(options.place, addresses(options, opened.getsockname()[1])) as site, Background(site, _tell):
            app = make_app(site, guard=GUARD, tell=_tell)
            uvicorn.Server(_config(app, Protocol, options)).run(sockets=[opened])
        return
    with TemporaryDirectory(prefix="assay-serve-") as counts:
        os.environ[_SETTINGS] = json.dumps([*settings, counts])
        config = _config(f"{__name__}:application", f"{__name__}:Protocol", options)
        Multiprocess(config, sockets=[opened]).run()


def application() -> Asgi:
    """The application of a worker process, which has its settings from the process that started it."""
    place, known, proxies, counts = json.loads(os.environ[_SETTINGS])
    GUARD.proxies = tuple(networks(proxies))
    site = open_site(Path(place), known)
    Background(site, _tell).__enter__()  # it ends with the process
    return make_app(site, guard=GUARD, tell=_tell, counts=Path(counts))


def _config(app: Asgi | str, protocol: Any, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        workers=options.workers,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # a stranger's broken request is no line in a log
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_worker_healthcheck=HUNG_SECONDS,
        ssl_certfile=options.certificate,
        ssl_keyfile=None if options.key is None else str(options.key),
    )


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
