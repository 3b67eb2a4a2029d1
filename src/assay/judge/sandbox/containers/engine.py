"""The docker package's way to a socket, with two things mended: a connection that fails is closed, and requests share a pool.

Imported only where the package is there.

The container engine behind a socket: Docker, Podman, or whatever speaks as they do. What goes wrong there is Trouble.

A connection of the engine that was taken over: what a process prints comes in frames, what it is given goes the other way.

The docker package reads the head of such an answer through a buffer and then forgets what else was in it, so that quick output
can be lost; here the rest is kept.

Whose a container is: a label that names the process that made it, so that a later run can tell whether that still lives.
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
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from docker import APIClient
from docker.constants import DEFAULT_DOCKER_API_VERSION
from docker.transport.unixconn import UnixHTTPAdapter, UnixHTTPConnection, UnixHTTPConnectionPool

from assay.errors import BadInput
from assay.judge.sandbox import Trouble

NEWEST: str = DEFAULT_DOCKER_API_VERSION
"""The version of the protocol that the package was written for."""


class _Connection(UnixHTTPConnection):
    def connect(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(self.timeout)
            made.connect(self.unix_socket)
        except BaseException:
            made.close()
            raise
        self.sock = made


class _Pool(UnixHTTPConnectionPool):
    def _new_conn(self) -> _Connection:
        return _Connection(self.base_url, self.socket_path, self.timeout)


class _Adapter(UnixHTTPAdapter):
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
    made = APIClient(base_url=url, version=version, timeout=timeout)
    made.mount("http+docker://", _Adapter(url.replace("unix://", "http+unix://"), timeout))
    return made


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

        return docker_client(self.url, self.version, timeout)


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
    url = url or default_url()
    if not url.startswith("unix://"):
        raise BadInput(f"{url} is no local socket", field="the engine", hint="give it as unix:///path/of/the/socket")
    with (
        talking("the container engine cannot be reached", hint=f"is it running, and may you use {url}?"),
        closing(docker_client(url, _OLDEST, PATIENCE)) as client,
    ):
        about, info = client.version(api_version=False), client.info()
    if info.get("OSType", "linux") != "linux":
        raise Trouble("the container engine runs no Linux containers")
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


STDOUT, STDERR = 1, 2
_CHUNK = 1 << 16
_MOST_HEAD = 1 << 16
_FRAME = 8


class FrameReader:
    """Takes a stream of frames apart, however it was cut: each has 1 byte for its kind, 3 zeros, and 4 for its length."""

    def __init__(self) -> None:
        self._head = b""
        self._kind = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Kind and content, as soon as there is some. Raises Trouble for what are no frames."""
        while data:
            if self._left == 0:
                need = _FRAME - len(self._head)
                self._head, data = self._head + data[:need], data[need:]
                if len(self._head) < _FRAME:
                    return
                self._kind, self._left = self._head[0], int.from_bytes(self._head[4:], "big")
                if self._kind > STDERR or self._head[1:4] != b"\0\0\0":
                    raise Trouble("the engine sent output that was not understood")
                self._head = b""
                continue
            part, data = data[: self._left], data[self._left :]
            self._left -= len(part)
            yield self._kind, part


class Stream:
    """Such a connection; not blocking."""

    def __init__(self, engine: Engine, path: str, body: Mapping[str, Any], stdin: bytes = b"") -> None:
        """Asks for `path` of the protocol with POST, and takes over. stdin is closed after it was sent. Raises Trouble."""
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
            raise Trouble(f"the container engine cannot be reached: {error}") from error
        except Trouble:
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
                raise Trouble("the container engine broke off")
            answer += part
        said, _, rest = answer.partition(b"\r\n\r\n")
        status = said.split(b"\r\n")[0].split(b" ")[1:2]
        if status not in ([b"101"], [b"200"]):
            raise Trouble(f"the container engine refused: {(rest or said)[:500].decode(errors='replace').strip()}")
        return rest

    def close_input(self) -> None:
        """Nothing will be sent."""
        self._input, self._shut = memoryview(b""), True

    def pump(self, seconds: float) -> list[tuple[int, bytes]]:
        """Waits so long for something to happen, and returns what came; `ended` if nothing will any more. Raises Trouble."""
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
        except ConnectionError:  # the engine closes so what nobody wrote to any more
            data = b""
        if not data:
            self.ended = True
        return list(self._frames.feed(data))

    def _send(self) -> None:
        try:
            self._input = self._input[self._socket.send(self._input[:_CHUNK]) :]
        except BlockingIOError:
            return
        except ConnectionError:  # it ended without having read everything
            self._input = memoryview(b"")

    def _quietly_shut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        """Lets the connection go."""
        self._socket.close()


LABEL = "org.assay.owner"


def mine() -> dict[str, str]:
    """The label of what this process makes."""
    return {LABEL: f"{_machine()}/{os.getpid()}/{_born(os.getpid())}"}


def dead(labels: Mapping[str, str] | None) -> bool:
    """Whether something was made by a process of this machine that is gone; of what another machine's made, nothing is known."""
    parts = (labels or {}).get(LABEL, "").split("/")
    host, boot, namespace = _machine().split("/")
    if len(parts) != 5 or parts[0] != host:
        return False
    if parts[1] != boot:
        return True
    if parts[2] != namespace or not parts[3].isdigit():
        return False
    return str(_born(int(parts[3]))) != parts[4]


@cache
def _machine() -> str:
    """Host, boot, and the namespace that process numbers belong to."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname().replace('/', '_')}/{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _born(pid: int) -> int:
    """When a process started, in ticks since boot; -1 if there is none with this number."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return -1 if fields[0] in (b"Z", b"X") else int(fields[19])
    return -1
