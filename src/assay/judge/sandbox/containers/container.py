"""A box that is a container: it is kept alive by a first process of ours, and commands are started beside that one."""

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
from assay.judge.sandbox import Image, Limits, Ran, Trouble
from assay.judge.sandbox.containers import archive, engine
from assay.judge.sandbox.containers.command import ACK, ContainerCommand, program
from assay.judge.sandbox.containers.engine import Engine, Stream, mine, talking
from assay.judge.sandbox.containers.usage import FileUsage, Meter, WriteWatch, disk, groups_of, meter, process_limit

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["USER", "ContainerBox"]

USER = "0:0"
"""Root of the box, who has no capability and can gain none."""
_ACKED = 120.0
"""Seconds for what takes milliseconds unless the machine is overloaded: the death of everything in a box."""
_AGAIN, _LOOK = 5.0, 0.01
_SENT = 3
"""How often files are sent to an engine that fails to take them."""
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Links of every system's own to folders of /usr; any other link on the way to a path was put there."""
_READ = {"etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n", "etc/group": b"root:x:0:\n"}
_MOST_READ = 60_000
"""Bytes; no line can then be longer than engines take."""
_SHARED = 64 << 20
_NO_SCORE = b"-1000"


class ContainerBox:
    """A `Box`."""

    def __init__(self, at: Engine, image: Image, limits: Limits, runtime: str | None = None) -> None:
        """Starts the container. Raises Trouble."""
        self.image = image
        self._engine = at
        self._client: APIClient = at.client()
        self.id = ""
        self._said: Stream | None = None
        self._files: FileUsage | None = None
        self._used = False
        try:
            self._start(limits, runtime)
        except BaseException:
            with suppress(Trouble):
                self.close()
            raise

    def _start(self, limits: Limits, runtime: str | None) -> None:
        name = f".assay-{secrets.token_hex(8)}"  # nothing that an image holds can be in its way
        client = self._client
        with talking("the container could not be made"):
            made = client.create_container_from_config(_config(client, self.image, f"/{name}", limits, runtime))
        self.id = str(made["Id"])
        with _tar() as (file, tar):
            folder = tarfile.TarInfo(".")  # some engines give a root that its owner may not write to
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
            archive.plain_file(tar, name, program(self._engine.architecture), 0o111)
            self._send(tar, file)
        with talking("the container could not be started"):
            client.start(self.id)
        about = self._alive()
        self._pid = int(about["State"].get("Pid") or 0)
        with suppress(OSError):  # the last to be chosen when memory is short; only root may say so
            Path(f"/proc/{self._pid}/oom_score_adj").write_bytes(_NO_SCORE)
        self._said = Stream(self._engine, f"/containers/{self.id}/attach?stream=1&stdout=1", {})
        self._said.close_input()
        self._files = disk(client, about)
        self._meter: Meter = meter(client, self.id, groups_of(self._pid, self.id), limits, self._files.sockets)
        place, found = self._way(self.image.workdir)
        if found is None or not found.folder:
            self._fresh(place)

    def run(
        self,
        command: Sequence[str],
        *,
        limits: Limits,
        stdout: Path,
        stderr: Path,
        stdin: bytes = b"",
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
            one = ContainerCommand(self._engine, self._client, self.id, limits, self._meter, written, self.clear)
            if door is not None:
                stack.callback(_open(self._pid, door).close)
            return one.run(command, stdout=stdout, stderr=stderr, stdin=stdin, env=dict(env or {}), cwd=where, user=USER)

    def clear(self, meanwhile: Callable[[], None]) -> None:
        """Kills everything in the box but its first process, and waits until that says so. Raises Trouble.

        meanwhile: takes output; an engine that cannot get rid of any does not clear away the process that printed it.
        """
        said = self._said
        assert said is not None
        while said.pump(0):  # what an agent may have had it say
            pass
        until = time.monotonic() + _ACKED
        while time.monotonic() < until:
            try:
                with talking("what is in the container could not be killed"):
                    self._client.kill(self.id, "SIGUSR1")
            except Trouble:
                self._alive()
                raise
            again = time.monotonic() + _AGAIN
            while time.monotonic() < again and not said.ended:
                if any(ACK in data for _kind, data in said.pump(_LOOK)):
                    return
                meanwhile()
            self._alive()
            if said.ended:
                raise Trouble("the engine broke off the connection to the container")
        raise Trouble("what is in the container could not be killed")

    def put(self, source: Path, inside: str, *, mode: int | None = None) -> None:
        """See `Box.put`."""
        place, _ = self._way(inside)
        try:
            with _tar() as (file, tar):
                self._parents(tar, place)
                archive.pack(tar, source, place, mode)
                self._send(tar, file)
        except (OSError, tree.TreeError) as error:
            raise Trouble(f"{inside} could not be put into the container: {error}") from error

    def fresh(self, inside: str) -> None:
        """See `Box.fresh`."""
        self._fresh(self._way(inside)[0])

    def take(self, inside: str, target: Path, *, most_bytes: int, most_files: int) -> bool:
        """See `Box.take`. A hole in a file counts as what it would hold, because archives have no holes."""
        place, found = self._way(inside)
        if found is None or not (found.folder or found.plain):
            return False
        self._mend()
        name = place.rpartition("/")[2]
        bounds = tree.Bounds(most_bytes, most_files)
        with talking(f"{inside} could not be taken out of the container"):
            url = engine.archive_url(self._client, self.id)
            answer = self._client.get(url, params={"path": f"/{place}"}, stream=True, timeout=engine.PATIENCE)
            try:
                if answer.status_code != 200:
                    raise Trouble(f"{inside} could not be taken out of the container: status {answer.status_code}")
                pieces = archive.Incoming(answer.iter_content(1 << 16))
                return archive.unpack(io.BufferedReader(pieces), target, name=name, inside=inside, bounds=bounds)
            finally:
                answer.close()

    def commit(self, labels: Mapping[str, str]) -> str:
        """Everything in the box as an image, whose id is returned. Raises Trouble."""
        self._mend()
        with talking("the container could not be frozen"):
            changes = [f'LABEL "{key}"="{value}"' for key, value in labels.items()]
            made = self._client.commit(self.id, changes=changes, pause=False)
        return _sha(str(made.get("Id") or ""))

    def close(self) -> None:
        """Removes the container, and with it everything in it. Raises Trouble."""
        try:
            if self._said is not None:
                self._said.close()
            if self._files is not None:
                self._files.close()
            if self.id:
                remove(self._client, self.id)
        finally:
            self._client.close()

    def _alive(self) -> Mapping[str, Any]:
        """What the engine says of the container; raises Trouble if it does not run."""
        about = engine.inspect(self._client, self.id)
        state = about["State"]
        if not state.get("Running"):
            how = "ran out of memory" if state.get("OOMKilled") else f"was killed (exit code {state.get('ExitCode')})"
            raise Trouble(f"the container {how}")
        return about

    def _way(self, inside: str) -> tuple[str, engine.Stat | None]:
        """A path without its leading slash, and what is there now; None too if the way there is not made of folders."""
        parts = [part for part in inside.split("/") if part not in ("", ".")]
        if not inside.startswith("/") or not parts or ".." in parts or "\0" in inside:
            raise ValueError(f"{inside!r} is not an absolute path of something in a box")
        if parts[0] in _MERGED:
            found = engine.stat(self._client, self.id, f"/{parts[0]}")
            if found is not None and found.link and found.target in (f"/usr/{parts[0]}", f"usr/{parts[0]}"):
                parts.insert(0, "usr")
        place, found = "/".join(parts), None
        for count in range(1, len(parts) + 1):
            found = engine.stat(self._client, self.id, "/" + "/".join(parts[:count]))
            if found is None or (count < len(parts) and not found.folder):
                return place, None
        return place, found

    def _parents(self, tar: tarfile.TarFile, place: str) -> None:
        """Folders for the way to a path, from the first place on where there is none."""
        parts = place.split("/")[:-1]
        missing = False
        for count in range(1, len(parts) + 1):
            above = "/".join(parts[:count])
            if not missing:
                found = engine.stat(self._client, self.id, f"/{above}")
                missing = found is None or not found.folder
            if missing:
                archive.clear_folder(tar, above)

    def _fresh(self, place: str) -> None:
        with _tar() as (file, tar):
            self._parents(tar, place)
            archive.clear_folder(tar, place)
            self._send(tar, file)

    def _send(self, tar: tarfile.TarFile, file: IO[bytes]) -> None:
        """Has the engine unpack an archive, which replaces all that it names, so that it can be sent again if that failed."""
        archive.finish(tar, file)
        for attempt in range(1, _SENT + 1):
            file.seek(0)
            try:
                return self._put(file)
            except engine.Unmet:
                raise
            except Trouble:
                if attempt == _SENT:
                    raise
                time.sleep(attempt)

    def _put(self, file: IO[bytes]) -> None:
        with talking("files could not be put into the container"):
            # Without copyUIDGID=false Podman looks into the box's /etc/passwd, of which see `_mend`.
            where = {"path": "/", "copyUIDGID": "false"}
            url = engine.archive_url(self._client, self.id)
            answer = self._client.put(url, params=where, data=file, timeout=engine.PATIENCE)
            said = answer.text[:500]
            answer.close()
            if not answer.ok:
                kind = engine.Unmet if answer.status_code == HTTPStatus.NOT_FOUND else Trouble
                raise kind(f"files could not be put into the container: {said}")

    def _mend(self) -> None:
        """Replaces what engines read in a box before they do something there, if an agent made it so that they would never end.

        They open /etc/passwd and /etc/group without a look, and wait for ever on a FIFO, everything else of theirs with them.
        """
        for place, text in _READ.items():
            found = engine.stat(self._client, self.id, f"/{place}") if self._used else None
            if found is not None and not (found.plain and found.size <= _MOST_READ):
                with _tar() as (file, tar):
                    self._parents(tar, place)
                    archive.plain_file(tar, place, text)
                    self._send(tar, file)
        self._used = True


def remove(client: APIClient, container: str) -> None:
    """Removes a container whatever it does; one that is gone is fine. Raises Trouble."""
    for last in (False, True):
        try:
            with talking("the container could not be removed"):
                client.remove_container(container, force=True, v=True)
            return
        except engine.Unmet:
            return
        except Trouble:
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
    """An archive to be filled, on the disk where it is large."""
    with (
        tempfile.SpooledTemporaryFile(1 << 22) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as tar,
    ):
        yield file, tar


def _open(pid: int, target: Path) -> Any:
    from assay.judge.sandbox.socket_proxy import Door

    if pid <= 0 or not os.path.exists(f"/proc/{pid}"):
        raise Trouble("a door needs the container engine to be on this machine")
    try:
        return Door(pid, target)
    except OSError as error:
        raise Trouble(f"the door could not be opened: {error}", hint="joining a container's network needs root") from error


def _sha(name: str) -> str:
    return name if name.startswith("sha256:") else f"sha256:{name}"
