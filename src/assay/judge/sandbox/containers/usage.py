"""Measures what the commands in a container use, and notices when they reach a limit.

For memory, processes and CPU time:

- If the engine is on this machine, the container's own control groups are read. Their counters miss nothing.
- Otherwise the engine is asked once a second. That is less exact, and the exit code shows a kill for lack of memory.

For disk space:

- If this machine can see the container's files, they are measured before and after a command. Files that the engine mounts
  from the host (/etc/hosts and so on, volumes) and deleted files that a descriptor still holds count too.
- Otherwise the engine is asked for the container's size every two seconds.
- If the host's disk is full, that is InfrastructureError, not the command's failure.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from assay.judge import tree
from assay.judge.sandbox import Bound, InfrastructureError, Limits
from assay.judge.sandbox.cgroups import over_with_sockets, read_counter, read_number, write_value
from assay.judge.sandbox.containers.engine import PATIENCE, inspect, talking
from assay.judge.sandbox.usage import SPARE, BoxView, Sockets

if TYPE_CHECKING:
    from docker import APIClient


_PERIOD = 100_000
_EVERY = 1.0
_FEWEST = 32
"""Threads that the engine needs to start a command, which count as processes of the container."""
KILLED = 137
"""The exit code of a command that was killed, also by the kernel when memory is short."""


class Meter(Protocol):
    """Sets the limits of one container, and reads what each of its commands uses."""

    def begin(self, limits: Limits) -> None:
        """Sets the limits of the next command, and resets the counts. Raises InfrastructureError."""

    def look(self, exit_code: int | None = None) -> Bound | None:
        """The limit that the command has reached, if any. exit_code: of a command that has ended. Raises InfrastructureError."""

    def cpu_seconds(self) -> float:
        """CPU time of the command."""

    def peak(self) -> int:
        """The most memory of the command, in bytes; 0 if unknown."""


@dataclass(frozen=True)
class ContainerGroups:
    """The folders of a container's control groups on this machine."""

    memory: Path
    pids: Path
    cpu: Path
    times: Path
    second: bool
    """Whether the control groups are v2."""


def process_limit(limits: Limits) -> int:
    """The process limit of the container, which its first process and the engine's own threads count towards."""
    return max(limits.processes + 1, _FEWEST)


def groups_of(pid: int, container: str) -> ContainerGroups | None:
    """The control groups of a container's first process; None if they are not on this machine or cannot be changed."""
    with suppress(OSError, ValueError, KeyError):
        own = {names: path for _, names, path in (line.split(":", 2) for line in _lines(f"/proc/{pid}/cgroup"))}
        if not any(container in path for path in own.values()):
            return None
        folders: dict[str, Path] = {}
        for line in _lines("/proc/self/mountinfo"):
            left, _, right = line.partition(" - ")
            root, top = left.split(" ")[3:5]
            kind, _source, options = right.split(" ")[:3]
            for names, path in own.items():
                here = kind == "cgroup2" if not names else kind == "cgroup" and set(names.split(",")) <= set(options.split(","))
                if here and (root == "/" or path.startswith(f"{root}/")):
                    folder = Path(top, path.removeprefix(root if root != "/" else "").lstrip("/"))
                    folders.update(dict.fromkeys(names.split(","), folder))
        if {"memory", "pids", "cpu", "cpuacct"} <= set(folders):
            groups = ContainerGroups(folders["memory"], folders["pids"], folders["cpu"], folders["cpuacct"], False)
        else:
            groups = ContainerGroups(folders[""], folders[""], folders[""], folders[""], True)
        limit = groups.memory / ("memory.max" if groups.second else "memory.limit_in_bytes")
        if os.access(limit, os.R_OK | os.W_OK) and str(pid) in _lines(str(groups.pids / "cgroup.procs")):
            return groups
    return None


def meter(
    client: APIClient, container: str, groups: ContainerGroups | None, limits: Limits, sockets: Sockets | None = None
) -> Meter:
    """The best meter. limits: those that the container was made with. sockets: the container's, if this machine can see them."""
    return _EngineMeter(client, container, limits, sockets) if groups is None else _GroupMeter(groups, sockets)


class _GroupMeter:
    """A `Meter` that uses the container's control groups."""

    def __init__(self, groups: ContainerGroups, sockets: Sockets | None) -> None:
        self._groups, self._sockets, self._memory = groups, sockets, 0
        self._kills = self._refused = 0
        self._cpu = 0.0

    def begin(self, limits: Limits) -> None:
        groups, self._memory = self._groups, limits.memory
        try:
            if groups.second:
                write_value(groups.memory / "memory.max", limits.memory)
                if limits.cpus is not None:
                    write_value(groups.cpu / "cpu.max", f"{max(1000, int(limits.cpus * _PERIOD))} {_PERIOD}")
            else:
                _memory_v1(groups.memory, limits.memory)
                if (tcp := groups.memory / "memory.kmem.tcp.limit_in_bytes").exists():
                    write_value(tcp, limits.memory)
                write_value(groups.memory / "memory.max_usage_in_bytes", 0)
                if limits.cpus is not None:
                    write_value(groups.cpu / "cpu.cfs_quota_us", max(1000, int(limits.cpus * _PERIOD)))
            write_value(groups.pids / "pids.max", process_limit(limits))  # removed with the container, like all of them
        except OSError as error:
            raise InfrastructureError(
                f"the container's limits could not be set: {error.strerror}", file=error.filename
            ) from error
        self._kills, self._refused, self._cpu = self._killed(), self._over(), self._used()

    def look(self, exit_code: int | None = None) -> Bound | None:
        if self._killed() > self._kills:
            return "memory"
        sockets, groups = self._sockets, self._groups
        if sockets is not None and over_with_sockets(groups.memory, sockets, self._memory, second=groups.second):
            return "memory"
        return "processes" if self._over() > self._refused else None

    def cpu_seconds(self) -> float:
        return max(0.0, self._used() - self._cpu)

    def peak(self) -> int:
        name = "memory.peak" if self._groups.second else "memory.max_usage_in_bytes"
        return read_number(self._groups.memory / name)

    def _killed(self) -> int:
        return read_counter(self._groups.memory / ("memory.events" if self._groups.second else "memory.oom_control"), "oom_kill")

    def _over(self) -> int:
        return read_counter(self._groups.pids / "pids.events", "max")

    def _used(self) -> float:
        if self._groups.second:
            return read_counter(self._groups.times / "cpu.stat", "usage_usec") / 1e6
        return read_number(self._groups.times / "cpuacct.usage") / 1e9


class _EngineMeter:
    """A `Meter` that asks the engine."""

    def __init__(self, client: APIClient, container: str, limits: Limits, sockets: Sockets | None = None) -> None:
        self._client, self._container, self._now, self._sockets = client, container, limits, sockets
        self._next = 0.0
        self._cpu = self._used = 0.0
        self._peak = 0

    def begin(self, limits: Limits) -> None:
        """Lets the engine change the limits if they differ from those before."""
        before = (self._now.memory, self._now.processes, self._now.cpus)
        if (limits.memory, limits.processes, limits.cpus) != before:
            body: dict[str, Any] = {
                "Memory": limits.memory, "MemorySwap": limits.memory, "PidsLimit": process_limit(limits),
            }  # fmt: skip
            if limits.cpus is not None:
                body["NanoCpus"] = int(limits.cpus * 1e9)
            with talking("the engine could not change the container's limits"):
                url = f"{self._client.base_url}/v{self._client.api_version}/containers/{self._container}/update"
                answer = self._client.post(url, json=body, timeout=PATIENCE)
                answer.close()
                if not answer.ok:
                    raise InfrastructureError(f"the engine could not change the container's limits: status {answer.status_code}")
            self._now = limits
        self._cpu, self._peak = self._read()[0], 0
        self._used = self._cpu

    def look(self, exit_code: int | None = None) -> Bound | None:
        """Asks the engine, if it is time to or the command has ended."""
        if exit_code is None and time.monotonic() < self._next:
            return None
        self._used, memory, processes = self._read()
        if self._sockets is not None and self._sockets.held(tcp=True) > self._now.memory:
            return "memory"
        self._peak = max(self._peak, memory)
        self._next = time.monotonic() + _EVERY
        if exit_code == KILLED and inspect(self._client, self._container)["State"].get("OOMKilled"):
            return "memory"
        return "processes" if processes > self._now.processes + 1 else None

    def cpu_seconds(self) -> float:
        """CPU time at the last look."""
        return max(0.0, self._used - self._cpu)

    def peak(self) -> int:
        """The most memory that any look saw."""
        return self._peak

    def _read(self) -> tuple[float, int, int]:
        with talking("the engine could not report what the container uses"):
            stats: Mapping[str, Any] = self._client.stats(self._container, decode=False, stream=False, one_shot=True)
        cpu = stats.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage") or 0
        memory = stats.get("memory_stats", {})
        used = memory.get("max_usage") or memory.get("usage") or 0
        return cpu / 1e9, int(used), int(stats.get("pids_stats", {}).get("current") or 0)


def _memory_v1(folder: Path, most: int) -> None:
    """Sets both limits in an order that the kernel accepts: memory alone may never exceed memory with swap."""
    both = [folder / "memory.limit_in_bytes", folder / "memory.memsw.limit_in_bytes"]
    files = [file for file in both if file.exists()]
    if most > read_number(both[0]):
        files.reverse()
    for file in files:
        write_value(file, most)


def _lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines()


_LOCAL_EVERY, _ENGINE_EVERY = 0.1, 2.0
"""Seconds between measurements of files, at least: from this machine, and by the engine."""
_PACE = 5
"""A measurement may take one part in so many of the time."""
_ALL = 1 << 62


class FileUsage(Protocol):
    """Measures how much disk space a container's files use."""

    every: float
    """Seconds between measurements, at least."""
    sockets: Sockets | None
    """The container's sockets, if this machine can see them."""

    def used(self, bounds: tree.Bounds | None = None) -> tuple[int, int]:
        """Bytes and entries. Raises tree.TooMuch above the limits, and InfrastructureError."""

    def close(self) -> None:
        """Closes what is open of the container."""


class WriteWatch:
    """Compares what a command has written with its disk limit."""

    def __init__(self, files: FileUsage, limits: Limits) -> None:
        self._files, self._limits = files, limits
        try:
            self._before = files.used()
        except tree.TooMuch as error:
            raise InfrastructureError(f"the container's files could not be measured: {error.what}") from error
        self._next = 0.0

    def look(self, *, now: bool = False) -> bool:
        """True if the command has written too much. Measures only when it is time to, or if `now`. Raises InfrastructureError."""
        began = time.monotonic()
        if not now and began < self._next:
            return False
        bytes_, entries = self._before
        most = tree.Bounds(bytes_ + self._limits.disk, entries + self._limits.files)
        try:
            used = self._files.used(most)
        except tree.TooMuch:
            return True
        took = time.monotonic() - began
        self._next = began + took + max(self._files.every, _PACE * took)
        return used[0] > most.bytes or used[1] > most.files


def disk(client: APIClient, about: Mapping[str, Any]) -> FileUsage:
    """The best measurement for a running container. about: the engine's description of it."""
    pid = int(about["State"].get("Pid") or 0)
    if pid > 0 and os.geteuid() == 0:
        with suppress(OSError):
            return _LocalUsage(pid, about)
    return _EngineUsage(client, str(about["Id"]))


class _LocalUsage:
    """Measures the container's files on this machine."""

    every = _LOCAL_EVERY

    def __init__(self, pid: int, about: Mapping[str, Any]) -> None:
        upper = ((about.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir")
        own = {os.path.dirname(about.get(key) or "") for key in ("HostsPath", "HostnamePath", "ResolvConfPath")}
        volumes = [mount.get("Source") for mount in about.get("Mounts") or () if mount.get("RW", True)]
        self._places = [Path(place) for place in (upper, *own, *volumes) if place and os.path.isdir(place)]
        self._whole = not upper or not os.path.isdir(upper)
        with ExitStack() as stack:
            handle = os.pidfd_open(pid)
            stack.callback(os.close, handle)
            root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, root)
            self._root = Path(f"/proc/self/fd/{root}")
            self._device = os.stat(self._root).st_dev
            self._view = BoxView(pid, handle)
            self.sockets: Sockets | None = self._view.sockets
            stack.callback(self._view.close)
            self._stack = stack.pop_all()

    def used(self, bounds: tree.Bounds | None = None) -> tuple[int, int]:
        try:
            self._spare()
            bytes_ = entries = 0
            for place in (*self._places, *(self._own() if self._whole else ())):
                most = tree.Bounds(_ALL, _ALL if bounds is None else max(0, bounds.files - entries))
                usage = tree.measure(place, bounds=most)
                bytes_, entries = bytes_ + usage.bytes, entries + usage.files
            unnamed, _ = self._view.unnamed(self._device)
        except OSError as error:
            raise InfrastructureError(
                f"the container's files could not be measured: {error.strerror}", file=error.filename
            ) from error
        return bytes_ + unnamed, entries

    def _own(self) -> list[Path]:
        """The entries of the container's root, without mounts."""
        with os.scandir(self._root) as entries:
            return [Path(entry.path) for entry in entries if entry.stat(follow_symlinks=False).st_dev == self._device]

    def _spare(self) -> None:
        for place in self._places or [self._root]:
            if tree.room(place).bytes < SPARE:
                raise InfrastructureError("the disk that holds the containers is full", file=place, hint="free some space")

    def close(self) -> None:
        self._stack.close()


class _EngineUsage:
    """Asks the engine for the size, and does not know the number of entries."""

    every = _ENGINE_EVERY
    sockets: Sockets | None = None

    def __init__(self, client: APIClient, container: str) -> None:
        self._client, self._container = client, container

    def used(self, bounds: tree.Bounds | None = None) -> tuple[int, int]:
        with talking("the engine could not measure the container"):
            url = f"{self._client.base_url}/v{self._client.api_version}/containers/{self._container}/json"
            answer = self._client.get(url, params={"size": "true"}, timeout=PATIENCE)
            answer.raise_for_status()
            return int(answer.json().get("SizeRw") or 0), 0

    def close(self) -> None:
        return
