"""Runs commands in a container, and moves files into and out of it.

A first process of Assay's keeps the container alive. Commands start beside it.
"""

from __future__ import annotations

import io
import os
import secrets
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from assay.judge import tree
from assay.judge.sandbox import Image, InfrastructureError, Limits, Ran
from assay.judge.sandbox.containers import archive, engine
from assay.judge.sandbox.containers.command import ACK, ContainerCommand, program
from assay.judge.sandbox.containers.engine import Engine, Stream, mine, talking
from assay.judge.sandbox.containers.usage import FileUsage, Meter, WriteWatch, disk, groups_of, meter, process_limit

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["USER", "ContainerBox"]

USER = "0:0"
"""Root of the container, without capabilities."""
_ACKED = 120.0
"""Seconds to wait until every process in a box is dead, which takes milliseconds on a normal machine."""
_AGAIN, _LOOK = 5.0, 0.01
"""Seconds between signals to the first process, and between looks at its output."""
_SENT = 3
"""The number of times that Assay tries to send files to an engine."""
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Links to folders of /usr that every system may have. Any other link on the way to a path was made by the agent."""
_SYSTEM_FILES = {"etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n", "etc/group": b"root:x:0:\n"}
_MOST_READ = 60_000
"""Bytes of such a file. Then no line is longer than an engine accepts."""
_SHARED = 64 << 20
_NO_SCORE = b"-1000"


def _whole(number: int) -> bytes:
    with open(number, "rb", closefd=False) as file:
        return file.read()


class ContainerBox:
    """A `Box` that is a container."""

    def __init__(self, at: Engine, image: Image, limits: Limits, runtime: str | None = None) -> None:
        """Starts the container. Raises InfrastructureError."""
        self.image = image
        self._engine = at
        self._client: APIClient = at.client()
        self.id = ""
        self._output: Stream | None = None
        self._files: FileUsage | None = None
        self._used = False
        try:
            self._start(limits, runtime)
        except BaseException:
            with suppress(InfrastructureError):
                self.close()
            raise

    def _start(self, limits: Limits, runtime: str | None) -> None:
        name = f".assay-{secrets.token_hex(8)}"  # no image has a file of this name
        client = self._client
        with talking("the container could not be made"):
            created = client.create_container_from_config(_config(client, self.image, f"/{name}", limits, runtime))
        self.id = str(created["Id"])
        with _tar() as (file, tar):
            folder = tarfile.TarInfo(".")  # some engines make a root folder that its owner may not write to
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
            archive.plain_file(tar, name, program(self._engine.architecture), 0o111)
            self._send(tar, file)
        with talking("the container could not be started"):
            client.start(self.id)
        about = self._alive()
        self._pid = int(about["State"].get("Pid") or 0)
        with suppress(OSError):  # the last process to be killed when memory is short; only root may set this
            Path(f"/proc/{self._pid}/oom_score_adj").write_bytes(_NO_SCORE)
        self._output = Stream(self._engine, f"/containers/{self.id}/attach?stream=1&stdout=1", {})
        self._output.close_input()
        self._files = disk(client, about)
        self._meter: Meter = meter(client, self.id, groups_of(self._pid, self.id), limits, self._files.sockets)
        path, stat = self._way(self.image.workdir)
        if stat is None or not stat.folder:
            self._fresh(path)

    def run(
        self,
        command: Sequence[str],
        *,
        limits: Limits,
        stdout: Path,
        stderr: Path,
        stdin: bytes | int = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        door: Path | None = None,
    ) -> Ran:
        """See `Box.run`."""
        assert self._files is not None
        where = cwd or self.image.workdir
        self._alive()
        self._mend()
        written = WriteWatch(self._files, limits)
        self._meter.begin(limits)
        with ExitStack() as stack:
            watched = ContainerCommand(self._engine, self._client, self.id, limits, self._meter, written, self.clear)
            if door is not None:
                stack.callback(_open_door(self._pid, door).close)
            stdin_bytes = stdin if isinstance(stdin, bytes) else _whole(stdin)
            return watched.run(
                command, stdout=stdout, stderr=stderr, stdin=stdin_bytes, env=dict(env or {}), cwd=where, user=USER
            )

    def clear(self, meanwhile: Callable[[], None]) -> None:
        """Kills every process in the box except the first, and waits until the first reports that. Raises InfrastructureError.

        meanwhile: reads output. An engine that cannot deliver the output of a process does not remove the process.
        """
        output = self._output
        assert output is not None
        while output.pump(0):  # drops what an agent may have made it print
            pass
        until = time.monotonic() + _ACKED
        while time.monotonic() < until:
            try:
                with talking("the processes in the container could not be killed"):
                    self._client.kill(self.id, "SIGUSR1")
            except InfrastructureError:
                self._alive()
                raise
            again = time.monotonic() + _AGAIN
            while time.monotonic() < again and not output.ended:
                if any(ACK in data for _kind, data in output.pump(_LOOK)):
                    return
                meanwhile()
            self._alive()
            if output.ended:
                raise InfrastructureError("the engine closed the connection to the container")
        raise InfrastructureError("the processes in the container could not be killed")

    def put(self, source: Path, inside: str, *, mode: int | None = None) -> None:
        """See `Box.put`."""
        path, _ = self._way(inside)
        try:
            with _tar() as (file, tar):
                self._parents(tar, path)
                archive.pack(tar, source, path, mode)
                self._send(tar, file)
        except (OSError, tree.TreeError) as error:
            raise InfrastructureError(f"{inside} could not be put into the container: {error}") from error

    def fresh(self, inside: str) -> None:
        """See `Box.fresh`."""
        self._fresh(self._way(inside)[0])

    def take(self, inside: str, target: Path, *, most_bytes: int, most_files: int) -> bool:
        """See `Box.take`. A hole in a file counts with its size, because archives have no holes."""
        path, stat = self._way(inside)
        if stat is None or not (stat.folder or stat.plain):
            return False
        self._mend()
        name = path.rpartition("/")[2]
        bounds = tree.Bounds(most_bytes, most_files)
        with talking(f"{inside} could not be taken out of the container"):
            url = engine.archive_url(self._client, self.id)
            answer = self._client.get(url, params={"path": f"/{path}"}, stream=True, timeout=engine.PATIENCE)
            try:
                if answer.status_code != 200:
                    raise InfrastructureError(f"{inside} could not be taken out of the container: status {answer.status_code}")
                pieces = archive.Incoming(answer.iter_content(1 << 16))
                return archive.unpack(io.BufferedReader(pieces), target, name=name, inside=inside, bounds=bounds)
            finally:
                answer.close()

    def commit(self, labels: Mapping[str, str]) -> str:
        """Saves everything in the box as an image, and returns its id. Raises InfrastructureError."""
        self._mend()
        with talking("the container could not be frozen"):
            changes = [f'LABEL "{key}"="{value}"' for key, value in labels.items()]
            committed = self._client.commit(self.id, changes=changes, pause=False)
        return _sha(str(committed.get("Id") or ""))

    def close(self) -> None:
        """Removes the container and everything in it. Raises InfrastructureError."""
        try:
            if self._output is not None:
                self._output.close()
            if self._files is not None:
                self._files.close()
            if self.id:
                remove(self._client, self.id)
        finally:
            self._client.close()

    def _alive(self) -> Mapping[str, Any]:
        """The engine's description of the container. Raises InfrastructureError if it does not run."""
        about = engine.inspect(self._client, self.id)
        state = about["State"]
        if not state.get("Running"):
            how = "ran out of memory" if state.get("OOMKilled") else f"was killed (exit code {state.get('ExitCode')})"
            raise InfrastructureError(f"the container {how}")
        return about

    def _way(self, inside: str) -> tuple[str, engine.Stat | None]:
        """A path without its leading slash, and what is there now; None also if a name on the way is not a folder."""
        parts = [part for part in inside.split("/") if part not in ("", ".")]
        if not inside.startswith("/") or not parts or ".." in parts or "\0" in inside:
            raise ValueError(f"{inside!r} is not an absolute path of something in a box")
        if parts[0] in _MERGED:
            stat = engine.stat(self._client, self.id, f"/{parts[0]}")
            if stat is not None and stat.link and stat.target in (f"/usr/{parts[0]}", f"usr/{parts[0]}"):
                parts.insert(0, "usr")
        path, stat = "/".join(parts), None
        for count in range(1, len(parts) + 1):
            stat = engine.stat(self._client, self.id, "/" + "/".join(parts[:count]))
            if stat is None or (count < len(parts) and not stat.folder):
                return path, None
        return path, stat

    def _parents(self, tar: tarfile.TarFile, path: str) -> None:
        """Adds the parents of a path to an archive, from the first one that is missing or is no folder."""
        parts = path.split("/")[:-1]
        missing = False
        for count in range(1, len(parts) + 1):
            above = "/".join(parts[:count])
            if not missing:
                stat = engine.stat(self._client, self.id, f"/{above}")
                missing = stat is None or not stat.folder
            if missing:
                archive.clear_folder(tar, above)

    def _fresh(self, path: str) -> None:
        with _tar() as (file, tar):
            self._parents(tar, path)
            archive.clear_folder(tar, path)
            self._send(tar, file)

    def _send(self, tar: tarfile.TarFile, file: IO[bytes]) -> None:
        """Lets the engine unpack an archive. It replaces every file that it names, so it can be sent again after an error."""
        archive.finish(tar, file)
        for attempt in range(1, _SENT + 1):
            file.seek(0)
            try:
                return self._put(file)
            except engine.Unmet:
                raise
            except InfrastructureError:
                if attempt == _SENT:
                    raise
                time.sleep(attempt)

    def _put(self, file: IO[bytes]) -> None:
        with talking("files could not be put into the container"):
            # Without copyUIDGID=false, Podman reads the box's /etc/passwd: see `_mend`.
            target = {"path": "/", "copyUIDGID": "false"}
            url = engine.archive_url(self._client, self.id)
            answer = self._client.put(url, params=target, data=file, timeout=engine.PATIENCE)
            message = answer.text[:500]
            answer.close()
            if not answer.ok:
                kind = engine.Unmet if answer.status_code == HTTPStatus.NOT_FOUND else InfrastructureError
                raise kind(f"files could not be put into the container: {message}")

    def _mend(self) -> None:
        """Replaces the files that an engine reads before it works in a box, if an agent replaced them with something harmful.

        Engines open /etc/passwd and /etc/group without a check. On a FIFO, the whole engine would wait for ever.
        """
        for path, text in _SYSTEM_FILES.items():
            stat = engine.stat(self._client, self.id, f"/{path}") if self._used else None
            if stat is not None and not (stat.plain and stat.size <= _MOST_READ):
                with _tar() as (file, tar):
                    self._parents(tar, path)
                    archive.plain_file(tar, path, text)
                    self._send(tar, file)
        self._used = True


def remove(client: APIClient, container: str) -> None:
    """Removes a container, running or not, if it exists. Raises InfrastructureError."""
    for last in (False, True):
        try:
            with talking("the container could not be removed"):
                client.remove_container(container, force=True, v=True)
            return
        except engine.Unmet:
            return
        except InfrastructureError:
            if last:
                raise
            time.sleep(1)


def _config(client: APIClient, image: Image, first: str, limits: Limits, runtime: str | None) -> dict[str, Any]:
    host = client.create_host_config(
        network_mode="none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        mem_limit=limits.memory,
        memswap_limit=limits.memory,
        pids_limit=process_limit(limits),
        nano_cpus=None if limits.cpus is None else int(limits.cpus * 1e9),
        shm_size=min(_SHARED, max(1 << 20, limits.memory // 4)),
        runtime=runtime,
        restart_policy={"Name": "no"},
    )
    config = client.create_container_config(
        image.digest,
        command=[],
        entrypoint=[first],
        environment=dict(image.env),
        host_config=host,
        hostname="box",
        labels=mine(),
        network_disabled=True,
        stop_signal="SIGKILL",
        user=USER,
        working_dir="/",
        healthcheck={"test": ["NONE"]},
    )
    return dict(config)


@contextmanager
def _tar() -> Iterator[tuple[IO[bytes], tarfile.TarFile]]:
    """A new archive to fill; a large one is kept on the disk."""
    with (
        tempfile.SpooledTemporaryFile(1 << 22) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as tar,
    ):
        yield file, tar


def _open_door(pid: int, target: Path) -> Any:
    from assay.judge.sandbox.socket_proxy import Door

    if pid <= 0 or not os.path.exists(f"/proc/{pid}"):
        raise InfrastructureError("a door needs a container engine on this machine")
    try:
        return Door(pid, target)
    except OSError as error:
        raise InfrastructureError(
            f"the door could not be opened: {error}", hint="joining a container's network needs root"
        ) from error


def _sha(name: str) -> str:
    return name if name.startswith("sha256:") else f"sha256:{name}"
