"""Talks to a container engine over its socket: Docker, Podman or a compatible one.

Every failure of the engine raises InfrastructureError.

Importing this module needs the Python package docker; see `sandbox.check_docker`.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from docker import APIClient
from docker.constants import DEFAULT_DOCKER_API_VERSION
from docker.transport.unixconn import UnixHTTPAdapter, UnixHTTPConnection, UnixHTTPConnectionPool

from assay.errors import BadInput
from assay.judge.sandbox import InfrastructureError
from assay.judge.sandbox.cgroups import started

NEWEST: str = DEFAULT_DOCKER_API_VERSION
"""The version of the protocol for which the package was written."""


class _EngineConnection(UnixHTTPConnection):
    """Closes the socket if connecting fails, which the package does not."""

    def connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self.timeout)
            connection.connect(self.unix_socket)
        except BaseException:
            connection.close()
            raise
        self.sock = connection


class _Pool(UnixHTTPConnectionPool):
    def _new_conn(self) -> _EngineConnection:
        return _EngineConnection(self.base_url, self.socket_path, self.timeout)


class _Adapter(UnixHTTPAdapter):
    """Lets all requests of a client share one pool of connections."""

    _pool: _Pool | None = None

    def get_connection(self, url: str, proxies: Any = None) -> _Pool:
        if self._pool is None:
            self._pool = _Pool(url, self.socket_path, self.timeout, maxsize=self.max_pool_size)
        return self._pool

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        super().close()


def docker_client(url: str, version: str, timeout: int) -> APIClient:
    """A client for the engine at unix:///…; nothing is sent yet."""
    client = APIClient(base_url=url, version=version, timeout=timeout)
    client.mount("http+docker://", _Adapter(url.replace("unix://", "http+unix://"), timeout))
    return client


PATIENCE = 300
"""Seconds to wait for an answer, which takes milliseconds on a normal machine."""
_LINK, _FOLDER = 1 << 27, 1 << 31  # as Go's os.FileMode has them
_TYPES = _LINK | _FOLDER | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19  # devices, FIFOs, sockets, and other kinds
_OLDEST = "1.24"
"""A version of the protocol that every engine supports."""
_SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")


class Unmet(InfrastructureError):
    """The engine does not have the image, the container, or the path in a container."""


@dataclass(frozen=True)
class Stat:
    """The entry at a path in a container."""

    link: bool
    folder: bool
    plain: bool
    """True for a plain file."""
    size: int
    target: str
    """The final target of a link."""


@dataclass(frozen=True)
class Engine:
    """A running container engine."""

    url: str
    title: str
    """The engine's name and version, for people."""
    version: str
    """The version of the protocol."""
    architecture: str
    groups: str
    """The version of control groups: "1" or "2"."""
    runtime: str
    """The default runtime."""
    runtimes: tuple[str, ...] = ()
    """The runtimes that the engine knows."""

    def client(self, timeout: int = PATIENCE) -> APIClient:
        """A new client, for one thread. The caller closes it."""
        return docker_client(self.url, self.version, timeout)


def default_url() -> str:
    """The default socket: $DOCKER_HOST, $CONTAINER_HOST, Docker's or Podman's, the first that exists.

    Raises InfrastructureError.
    """
    if named := os.environ.get("DOCKER_HOST") or os.environ.get("CONTAINER_HOST"):
        return named
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    for place in (*_SOCKETS, *([f"{own}/podman/podman.sock"] if own else [])):
        if os.path.exists(place):
            return f"unix://{place}"
    raise InfrastructureError(
        "no container engine was found", hint="start Docker or `podman system service`, or give --engine unix:///…"
    )


def connect(url: str | None = None) -> Engine:
    """Asks the engine at a socket what it is. Raises InfrastructureError, and BadInput for an address that is no local socket."""
    url = url or default_url()
    if not url.startswith("unix://"):
        raise BadInput(f"{url} is not a local socket", field="the engine", hint="write unix:///path/of/the/socket")
    with (
        talking("the container engine cannot be reached", hint=f"is it running, and may you use {url}?"),
        closing(docker_client(url, _OLDEST, PATIENCE)) as client,
    ):
        about, info = client.version(api_version=False), client.info()
    if info.get("OSType", "linux") != "linux":
        raise InfrastructureError("the container engine does not run Linux containers")
    parts = about.get("Components") or [{}]
    title = f"{parts[0].get('Name', 'Docker').removesuffix(' Engine')} {about.get('Version', '')}".strip()
    return Engine(
        url,
        title,
        min(str(about.get("ApiVersion", _OLDEST)), NEWEST, key=_numbers),
        str(info.get("Architecture", "")),
        str(info.get("CgroupVersion", "1")),
        str(info.get("DefaultRuntime", "")),
        tuple(sorted(info.get("Runtimes") or ())),
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


@contextmanager
def talking(what: str, *, hint: str = "") -> Iterator[None]:
    """Turns every error of a request into InfrastructureError, or into Unmet if the engine does not have something."""
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except APIError as error:
        message = (error.explanation or str(error)).strip()
        kind = Unmet if error.status_code == HTTPStatus.NOT_FOUND else InfrastructureError
        raise kind(f"{what}: {message[:500]}", hint=hint) from error
    except (DockerException, RequestException, HTTPError, OSError) as error:
        raise InfrastructureError(f"{what}: {str(error)[:500] or type(error).__name__}", hint=hint) from error


def archive_url(client: APIClient, container: str) -> str:
    """The URL of a container's files."""
    return f"{client.base_url}/v{client.api_version}/containers/{container}/archive"


def stat(client: APIClient, container: str, path: str) -> Stat | None:
    """The entry at an absolute path in a container, without following a final link; None if there is none.

    Raises InfrastructureError.
    """
    what = f"{path} could not be looked at in the container"
    status, encoded = _stat(client, container, path, what)
    if status == HTTPStatus.NOT_FOUND:
        inspect(client, container)  # raises if the container is missing, not only the path
        return None
    # Podman fails on links that form a circle. If it still answers about /, only this path is broken.
    broken = HTTPStatus.INTERNAL_SERVER_ERROR
    if status == broken and path != "/" and stat(client, container, "/") and _stat(client, container, path, what)[0] == broken:
        return Stat(True, False, False, 0, "")
    if status != HTTPStatus.OK or not encoded:
        raise InfrastructureError(f"{what}: status {status}")
    try:
        fields: Mapping[str, Any] = json.loads(base64.b64decode(encoded))
        mode, size = int(fields["mode"]), int(fields.get("size") or 0)
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise InfrastructureError(f"the engine's answer about {path} was not understood") from error
    link = bool(mode & _LINK)
    return Stat(link, bool(mode & _FOLDER) and not link, not mode & _TYPES, size, str(fields.get("linkTarget") or ""))


def _stat(client: APIClient, container: str, path: str, what: str) -> tuple[int, str]:
    with talking(what), closing(client.head(archive_url(client, container), params={"path": path}, timeout=PATIENCE)) as answer:
        return int(answer.status_code), str(answer.headers.get("X-Docker-Container-Path-Stat") or "")


def inspect(client: APIClient, container: str) -> Mapping[str, Any]:
    """The engine's description of a container. Raises InfrastructureError, and Unmet if there is no such container."""
    with talking("the container could not be looked at"):
        return dict(client.inspect_container(container))


def socket_path(engine: Engine) -> Path:
    """The path of the engine's socket."""
    return Path(engine.url.removeprefix("unix://"))


STDOUT, STDERR = 1, 2
_CHUNK = 1 << 16
_MOST_HEAD = 1 << 16
_FRAME = 8


class FrameReader:
    """Splits a stream into frames, however it was cut. A frame begins with 1 byte for its kind, 3 zeros, 4 bytes of length."""

    def __init__(self) -> None:
        self._head = b""
        self._kind = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Kind and content of each part of a frame, as soon as it is there.

        Raises InfrastructureError if the data are no frames.
        """
        while data:
            if self._left == 0:
                need = _FRAME - len(self._head)
                self._head, data = self._head + data[:need], data[need:]
                if len(self._head) < _FRAME:
                    return
                self._kind, self._left = self._head[0], int.from_bytes(self._head[4:], "big")
                if self._kind > STDERR or self._head[1:4] != b"\0\0\0":
                    raise InfrastructureError("the engine sent output that cannot be read")
                self._head = b""
                continue
            part, data = data[: self._left], data[self._left :]
            self._left -= len(part)
            yield self._kind, part


class Stream:
    """A connection to the engine over which a process in a container reads input and writes output; not blocking.

    The docker package reads the head of the engine's answer through a buffer, and then drops what else is in the buffer. So quick
    output can be lost. This class keeps it.
    """

    def __init__(self, engine: Engine, path: str, body: Mapping[str, Any], stdin: bytes = b"") -> None:
        """Sends a POST request for `path`, and takes over the connection. Closes stdin after sending it.

        Raises InfrastructureError.
        """
        self.ended = False
        self._frames = FrameReader()
        self._input = memoryview(stdin)
        self._shut = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(PATIENCE)
            self._socket.connect(str(socket_path(engine)))
            self._rest = self._ask(f"/v{engine.version}{path}", json.dumps(body).encode())
            self._socket.setblocking(False)
        except OSError as error:
            self.close()
            raise InfrastructureError(f"the container engine cannot be reached: {error}") from error
        except InfrastructureError:
            self.close()
            raise

    def _ask(self, path: str, body: bytes) -> bytes:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        answer = b""
        while b"\r\n\r\n" not in answer:
            part = self._socket.recv(_CHUNK)
            if not part or len(answer) > _MOST_HEAD:
                raise InfrastructureError("the container engine closed the connection")
            answer += part
        answer_head, _, rest = answer.partition(b"\r\n\r\n")
        status = answer_head.split(b"\r\n")[0].split(b" ")[1:2]
        if status not in ([b"101"], [b"200"]):
            raise InfrastructureError(
                f"the container engine refused: {(rest or answer_head)[:500].decode(errors='replace').strip()}"
            )
        return rest

    def close_input(self) -> None:
        """Declares that no input will be sent."""
        self._input, self._shut = memoryview(b""), True

    def pump(self, seconds: float) -> list[tuple[int, bytes]]:
        """Waits at most so many seconds, sends input, and returns new output. Sets `ended` at its end.

        Raises InfrastructureError.
        """
        if self._rest:
            data, self._rest = self._rest, b""
            return list(self._frames.feed(data))
        if self.ended:
            time.sleep(seconds)
            return []
        if not self._input and not self._shut:
            self._shut = True
            self._quietly_shut()
        ready, writable, _ = select.select([self._socket], [self._socket] if self._input else [], [], seconds)
        if writable:
            self._send()
        if not ready:
            return []
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return []
        except ConnectionError:  # some engines close an idle connection this way
            data = b""
        if not data:
            self.ended = True
        return list(self._frames.feed(data))

    def _send(self) -> None:
        try:
            self._input = self._input[self._socket.send(self._input[:_CHUNK]) :]
        except BlockingIOError:
            return
        except ConnectionError:  # the process ended before it read everything
            self._input = memoryview(b"")

    def _quietly_shut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


LABEL = "org.assay.owner"
"""The label of containers and images that names the process which made them, so that a later run can tell whether it is dead."""


def mine() -> dict[str, str]:
    """The label for containers and images of this process."""
    return {LABEL: f"{_machine()}/{os.getpid()}/{started(os.getpid())}"}


def dead(labels: Mapping[str, str] | None) -> bool:
    """True if a dead process of this machine made the object; False if another machine's process did, which may be alive."""
    parts = (labels or {}).get(LABEL, "").split("/")
    host, boot, namespace = _machine().split("/")
    if len(parts) != 5 or parts[0] != host:
        return False
    if parts[1] != boot:
        return True
    if parts[2] != namespace or not parts[3].isdigit():
        return False
    return str(started(int(parts[3]))) != parts[4]


@cache
def _machine() -> str:
    """Host name, boot id, and the inode of the pid namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname().replace('/', '_')}/{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
