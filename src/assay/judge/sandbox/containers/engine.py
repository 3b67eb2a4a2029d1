"""The container engine behind a socket: Docker, Podman, or whatever speaks as they do. What goes wrong there is Trouble."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput
from assay.judge.sandbox.box import Trouble

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Engine", "Stat", "Unmet", "connect", "talking"]

PATIENCE = 300
"""Seconds that an answer may take which takes milliseconds unless the machine is overloaded."""
_LINK, _FOLDER = 1 << 27, 1 << 31  # as Go's os.FileMode has them
_TYPES = _LINK | _FOLDER | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19  # devices, FIFOs, sockets, and what is none of all
_OLDEST = "1.24"
"""The version of the protocol that every engine still knows."""
_SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")


class Unmet(Trouble):
    """The engine has no such thing: an image, a container, a path in it."""


@dataclass(frozen=True)
class Stat:
    """What the engine says of a path in a container."""

    link: bool
    folder: bool
    plain: bool
    """Whether it is a plain file."""
    size: int
    target: str
    """Where a link leads in the end."""


@dataclass(frozen=True)
class Engine:
    """A running engine."""

    url: str
    title: str
    """Its name and version, for people."""
    version: str
    """Of the protocol."""
    architecture: str
    groups: str
    """Of control groups: "1" or "2"."""
    runtime: str
    """The one that it takes if nobody says."""
    runtimes: tuple[str, ...] = ()
    """Those that it knows."""

    def client(self, timeout: int = PATIENCE) -> APIClient:
        """A connection of its own, for one thread; to be closed."""
        from assay.judge.sandbox.containers import transport

        return transport.client(self.url, self.version, timeout)


def default_url() -> str:
    """The socket that a user means who says nothing: $DOCKER_HOST, $CONTAINER_HOST, Docker's, Podman's. Raises Trouble."""
    if named := os.environ.get("DOCKER_HOST") or os.environ.get("CONTAINER_HOST"):
        return named
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    for place in (*_SOCKETS, *([f"{own}/podman/podman.sock"] if own else [])):
        if os.path.exists(place):
            return f"unix://{place}"
    raise Trouble("no container engine was found", hint="start Docker or `podman system service`, or say --engine unix:///…")


def connect(url: str | None = None) -> Engine:
    """Finds out who is there. Raises Trouble, and BadInput for an address that is no local socket."""
    try:
        from assay.judge.sandbox.containers import transport
    except ImportError as error:
        raise BadInput(
            "the containers sandbox needs the Python package docker", hint="pip install 'assay[containers]'"
        ) from error
    url = url or default_url()
    if not url.startswith("unix://"):
        raise BadInput(f"{url} is no local socket", field="the engine", hint="give it as unix:///path/of/the/socket")
    with (
        talking("the container engine cannot be reached", hint=f"is it running, and may you use {url}?"),
        closing(transport.client(url, _OLDEST, PATIENCE)) as client,
    ):
        about, info = client.version(api_version=False), client.info()
    if info.get("OSType", "linux") != "linux":
        raise Trouble("the container engine runs no Linux containers")
    parts = about.get("Components") or [{}]
    title = f"{parts[0].get('Name', 'Docker').removesuffix(' Engine')} {about.get('Version', '')}".strip()
    return Engine(
        url,
        title,
        min(str(about.get("ApiVersion", _OLDEST)), transport.NEWEST, key=_numbers),
        str(info.get("Architecture", "")),
        str(info.get("CgroupVersion", "1")),
        str(info.get("DefaultRuntime", "")),
        tuple(sorted(info.get("Runtimes") or ())),
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


@contextmanager
def talking(what: str, *, hint: str = "") -> Iterator[None]:
    """Turns everything that can go wrong between us and an engine into Trouble; what it has not got, into Unmet."""
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except APIError as error:
        said = (error.explanation or str(error)).strip()
        kind = Unmet if error.status_code == HTTPStatus.NOT_FOUND else Trouble
        raise kind(f"{what}: {said[:500]}", hint=hint) from error
    except (DockerException, RequestException, HTTPError, OSError) as error:
        raise Trouble(f"{what}: {str(error)[:500] or type(error).__name__}", hint=hint) from error


def archive_url(client: APIClient, container: str) -> str:
    """Where the files of a container are."""
    return f"{client.base_url}/v{client.api_version}/containers/{container}/archive"


def stat(client: APIClient, container: str, path: str) -> Stat | None:
    """What is at an absolute path in a container, the last link not followed; None if nothing is. Raises Trouble."""
    what = f"{path} could not be looked at in the container"
    status, said = _stat(client, container, path, what)
    if status == HTTPStatus.NOT_FOUND:
        inspect(client, container)  # the path, or the container?
        return None
    # Links that lead in a circle are more than Podman can say; an engine that still answers otherwise is well.
    broken = HTTPStatus.INTERNAL_SERVER_ERROR
    if status == broken and path != "/" and stat(client, container, "/") and _stat(client, container, path, what)[0] == broken:
        return Stat(True, False, False, 0, "")
    if status != HTTPStatus.OK or not said:
        raise Trouble(f"{what}: status {status}")
    try:
        found: Mapping[str, Any] = json.loads(base64.b64decode(said))
        mode, size = int(found["mode"]), int(found.get("size") or 0)
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise Trouble(f"the engine's answer about {path} was not understood") from error
    link = bool(mode & _LINK)
    return Stat(link, bool(mode & _FOLDER) and not link, not mode & _TYPES, size, str(found.get("linkTarget") or ""))


def _stat(client: APIClient, container: str, path: str, what: str) -> tuple[int, str]:
    with talking(what), closing(client.head(archive_url(client, container), params={"path": path}, timeout=PATIENCE)) as answer:
        return int(answer.status_code), str(answer.headers.get("X-Docker-Container-Path-Stat") or "")


def inspect(client: APIClient, container: str) -> Mapping[str, Any]:
    """What the engine knows of a container. Raises Trouble, Unmet among it."""
    with talking("the container could not be looked at"):
        return dict(client.inspect_container(container))


def socket_path(engine: Engine) -> Path:
    """Where the engine's socket is."""
    return Path(engine.url.removeprefix("unix://"))
