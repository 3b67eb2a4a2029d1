"""Runs the service: sockets, TLS, one or several worker processes, and a stop that loses nothing that was acknowledged."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from uvicorn.supervisors import Multiprocess

from assay.errors import BadInput, Unreachable, brief
from assay.peers.guard import Asgi, ConnectionGuard, Network
from assay.serve.app import make_app
from assay.serve.site import Site, open_site

__all__ = ["ServeOptions", "addresses", "application", "listen", "networks", "run", "server"]

STOP_SECONDS = 20
"""How long requests that are under way may take after the signal to stop."""
HUNG_SECONDS = 30
"""A worker that does not answer the process that started it for so long is killed. On a busy machine a start takes seconds."""
HEADER_BYTES = 16_384
"""Bytes of a request's head."""


@dataclass(frozen=True)
class ServeOptions:
    """What is served where. place: a competition's folder or a subnet file.

    address: the public address, behind a reverse proxy or a name. certificate and key: PEM files for TLS without a proxy.
    """

    place: Path
    host: str = "127.0.0.1"
    port: int = 8400
    address: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    workers: int = 1
    proxies: tuple[str, ...] = ()
    """Addresses or networks of reverse proxies, whose word about the client's address counts."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the service."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def networks(proxies: Iterable[str]) -> list[Network]:
    """The networks of proxies. Raises BadInput for what is no address."""
    parsed: list[Network] = []
    for proxy in proxies:
        try:
            parsed.append(ipaddress.ip_network(proxy, strict=False))
        except ValueError:
            hint = "write the address from which the proxy connects: --proxy 127.0.0.1, or a network: --proxy 10.0.0.0/8"
            raise BadInput(f"{brief(proxy, 80)} is not an address", field="--proxy", hint=hint) from None
    return parsed


def addresses(options: ServeOptions, port: int) -> list[str]:
    """The addresses under which the service answers, the first for printing. Raises BadInput if none can be known."""
    scheme = "http" if options.certificate is None else "https"
    known = []
    if options.address is not None:
        parts = urlsplit(options.address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise BadInput("is not an address", field="--address", hint="write it as https://assay.example.org, without a path")
        known.append(f"{parts.scheme}://{parts.netloc}")
    if options.host in ("0.0.0.0", "::"):
        if not known:
            what = "the service listens on all addresses, and does not know its own"
            raise BadInput(what, field="--address", hint="name the one that others use: --address https://assay.example.org")
    elif not options.is_loopback:
        known.append(f"{scheme}://{_bracketed(options.host)}:{port}")
    if options.is_loopback or options.host in ("0.0.0.0", "::"):
        known += [f"{scheme}://{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]
    return list(dict.fromkeys(map(_without_default_port, known)))


def _without_default_port(address: str) -> str:
    """An address as clients have it in Host: they leave out the port that its scheme has anyway."""
    return address.removesuffix(":443" if address.startswith("https:") else ":80")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def listen(options: ServeOptions) -> socket.socket:
    """The listening socket. Raises Unreachable if the address cannot be used."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # Only if the protocol is named does asyncio set TCP_NODELAY; without it an answer's body waits 40 ms for an ACK of its head.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((options.host, options.port))
        opened.listen(1024)
        opened.set_inheritable(True)
    except OSError as error:
        opened.close()
        what = f"{options.host}:{options.port} cannot be used ({error.strerror})"
        raise Unreachable(what, final=True, hint="another program may have it: choose another --port") from None
    return opened


GUARD = ConnectionGuard()
Protocol = GUARD.protocol()
"""What a worker process speaks; uvicorn finds it, and `application`, by name."""
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
        with open_site(options.place, addresses(options, opened.getsockname()[1])) as site:
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
    return make_app(open_site(Path(place), known), guard=GUARD, tell=_tell, counts=Path(counts))


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
