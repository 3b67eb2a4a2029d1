"""The socket of a service, and the addresses under which it is known. A node, which must be small, holds this socket."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from assay.errors import BadInput, Unreachable, brief
from assay.peers.guard import Network

__all__ = ["ServeOptions", "addresses", "listen", "networks"]


@dataclass(frozen=True)
class ServeOptions:
    """The options of a service: its competitions and its address. place: a competition's folder or a subnet file.

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
    """Read the networks of proxies. Raises BadInput for what is no address."""
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
            raise BadInput(what, field="--address", hint="name the address that others use: --address https://assay.example.org")
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
    """Open the listening socket. Raises Unreachable if the address cannot be used."""
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
