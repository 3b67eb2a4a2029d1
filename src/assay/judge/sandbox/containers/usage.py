"""What the commands in a container use, and whether they ran into a bound.

- If the engine is on this machine and we may look: by the container's own control groups, whose counters miss nothing.
- Otherwise by what the engine says, once a second: that is coarser, and an out-of-memory kill is told from its exit code.

The bound on what a command writes in a container.

- If we may look into the container's files: what they take up before and after, with those that the engine mounts into it from
  the host (/etc/hosts and the like, volumes), and those that only an open descriptor still holds.
- Otherwise by the size that the engine gives, every two seconds.
- A disk of the host that fills up is Trouble, not the command's fault.
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
from assay.judge.sandbox import Bound, Limits, Trouble
from assay.judge.sandbox.cgroups import over_with_sockets
from assay.judge.sandbox.containers.engine import PATIENCE, inspect, talking
from assay.judge.sandbox.usage import SPARE, BoxView, Sockets

if TYPE_CHECKING:
    from docker import APIClient

    from assay.judge.sandbox.usage import Sockets


_PERIOD = 100_000
_EVERY = 1.0
_FEWEST = 32
"""Threads that the engine's own starter needs at one time, which count in the container."""
KILLED = 137


class Meter(Protocol):
    """Of one container, for one command after the other."""

    def begin(self, limits: Limits) -> None:
        """Sets the bounds of the next command, and counts anew. Raises Trouble."""

    def look(self, exit_code: int | None = None) -> Bound | None:
        """The bound that was run into since, if one was; exit_code: once the command has ended. Raises Trouble."""

    def cpu_seconds(self) -> float:
        """Used since."""

    def peak(self) -> int:
        """The most memory since, in bytes; 0 if it is not known."""


@dataclass(frozen=True)
class ContainerGroups:
    """Where a container's control groups are on this machine."""

    memory: Path
    pids: Path
    cpu: Path
    times: Path
    second: bool
    """Whether they are of version 2."""


def process_limit(limits: Limits) -> int:
    """How many processes a container may have so that its commands may have as many as they should."""
    return max(limits.processes + 1, _FEWEST)


def groups_of(pid: int, container: str) -> ContainerGroups | None:
    """The control groups of a container's first process, if this machine has both and lets us change them."""
    with suppress(OSError, ValueError, KeyError):
        own = {names: path for _, names, path in (line.split(":", 2) for line in _lines(f"/proc/{pid}/cgroup"))}
        if not any(container in path for path in own.values()):
            return None
        found: dict[str, Path] = {}
        for line in _lines("/proc/self/mountinfo"):
            left, _, right = line.partition(" - ")
            root, top = left.split(" ")[3:5]
            kind, _source, options = right.split(" ")[:3]
            for names, path in own.items():
                here = kind == "cgroup2" if not names else kind == "cgroup" and set(names.split(",")) <= set(options.split(","))
                if here and (root == "/" or path.startswith(f"{root}/")):
                    place = Path(top, path.removeprefix(root if root != "/" else "").lstrip("/"))
                    found.update(dict.fromkeys(names.split(","), place))
        if {"memory", "pids", "cpu", "cpuacct"} <= set(found):
            groups = ContainerGroups(found["memory"], found["pids"], found["cpu"], found["cpuacct"], False)
        else:
            groups = ContainerGroups(found[""], found[""], found[""], found[""], True)
        limit = groups.memory / ("memory.max" if groups.second else "memory.limit_in_bytes")
        if os.access(limit, os.R_OK | os.W_OK) and str(pid) in _lines(str(groups.pids / "cgroup.procs")):
            return groups
    return None


def meter(
    client: APIClient, container: str, groups: ContainerGroups | None, limits: Limits, sockets: Sockets | None = None
) -> Meter:
    """The best meter that there is; limits: those that the container was made with; sockets: its own, if they can be seen."""
    return EngineMeter(client, container, limits, sockets) if groups is None else _GroupMeter(groups, sockets)


class _GroupMeter:
    def __init__(self, groups: ContainerGroups, sockets: Sockets | None) -> None:
        self._groups, self._sockets, self._memory = groups, sockets, 0
        self._kills = self._refused = 0
        self._cpu = 0.0

    def begin(self, limits: Limits) -> None:
        groups, self._memory = self._groups, limits.memory
        try:
            if groups.second:
                _write(groups.memory / "memory.max", limits.memory)
                if limits.cpus is not None:
                    _write(groups.cpu / "cpu.max", f"{max(1000, int(limits.cpus * _PERIOD))} {_PERIOD}")
            else:
                _memory_v1(groups.memory, limits.memory)
                if (tcp := groups.memory / "memory.kmem.tcp.limit_in_bytes").exists():
                    _write(tcp, limits.memory)
                _write(groups.memory / "memory.max_usage_in_bytes", 0)
                if limits.cpus is not None:
                    _write(groups.cpu / "cpu.cfs_quota_us", max(1000, int(limits.cpus * _PERIOD)))
            _write(groups.pids / "pids.max", process_limit(limits))  # gone with the container, as all of them
        except OSError as error:
            raise Trouble(f"the container's bounds could not be set: {error.strerror}", file=error.filename) from error
        self._kills, self._refused, self._cpu = self._killed(), self._over(), self._used()

    def look(self, exit_code: int | None = None) -> Bound | None:
        if self._killed() > self._kills:
            return "memory"
        found = self._sockets
        if found is not None and over_with_sockets(self._groups.memory, found, self._memory, second=self._groups.second):
            return "memory"
        return "processes" if self._over() > self._refused else None

    def cpu_seconds(self) -> float:
        return max(0.0, self._used() - self._cpu)

    def peak(self) -> int:
        name = "memory.peak" if self._groups.second else "memory.max_usage_in_bytes"
        return _number(self._groups.memory / name)

    def _killed(self) -> int:
        return _counter(self._groups.memory / ("memory.events" if self._groups.second else "memory.oom_control"), "oom_kill")

    def _over(self) -> int:
        return _counter(self._groups.pids / "pids.events", "max")

    def _used(self) -> float:
        if self._groups.second:
            return _counter(self._groups.times / "cpu.stat", "usage_usec") / 1e6
        return _number(self._groups.times / "cpuacct.usage") / 1e9


class EngineMeter:
    """By what the engine says."""

    def __init__(self, client: APIClient, container: str, limits: Limits, sockets: Sockets | None = None) -> None:
        self._client, self._container, self._now, self._sockets = client, container, limits, sockets
        self._next = 0.0
        self._cpu = self._used = 0.0
        self._peak = 0

    def begin(self, limits: Limits) -> None:
        """Has the engine change the bounds, where they are others than before."""
        before = (self._now.memory, self._now.processes, self._now.cpus)
        if (limits.memory, limits.processes, limits.cpus) != before:
            body: dict[str, Any] = {
                "Memory": limits.memory, "MemorySwap": limits.memory, "PidsLimit": process_limit(limits),
            }  # fmt: skip
            if limits.cpus is not None:
                body["NanoCpus"] = int(limits.cpus * 1e9)
            with talking("the engine could not change the container's bounds"):
                url = f"{self._client.base_url}/v{self._client.api_version}/containers/{self._container}/update"
                answer = self._client.post(url, json=body, timeout=PATIENCE)
                answer.close()
                if not answer.ok:
                    raise Trouble(f"the engine could not change the container's bounds: status {answer.status_code}")
            self._now = limits
        self._cpu, self._peak = self._read()[0], 0
        self._used = self._cpu

    def look(self, exit_code: int | None = None) -> Bound | None:
        """Asks the engine, if it is time, or the command has ended."""
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
        """As of the last look."""
        return max(0.0, self._used - self._cpu)

    def peak(self) -> int:
        """The most that a look saw."""
        return self._peak

    def _read(self) -> tuple[float, int, int]:
        with talking("the engine could not say what the container uses"):
            said: Mapping[str, Any] = self._client.stats(self._container, decode=False, stream=False, one_shot=True)
        cpu = said.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage") or 0
        memory = said.get("memory_stats", {})
        used = memory.get("max_usage") or memory.get("usage") or 0
        return cpu / 1e9, int(used), int(said.get("pids_stats", {}).get("current") or 0)


def _memory_v1(folder: Path, most: int) -> None:
    """Both limits, in the order that the kernel takes: memory alone may never be more than memory with swap."""
    both = [folder / "memory.limit_in_bytes", folder / "memory.memsw.limit_in_bytes"]
    files = [file for file in both if file.exists()]
    if most > _number(both[0]):
        files.reverse()
    for file in files:
        _write(file, most)


def _lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines()


def _write(file: Path, value: int | str) -> None:
    number = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(number, str(value).encode())
    finally:
        os.close(number)


def _number(file: Path) -> int:
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return 0


def _counter(file: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in _lines(str(file)):
            if line.startswith(name + " "):
                return int(line.split()[1])
    return 0


_EVERY_disk, _PACE = 0.1, 5
"""Seconds between looks, at least; and a look may take one part in so many of the time."""
_ASKED = 2.0
_ALL = 1 << 62


class FileUsage(Protocol):
    """A way to find out what a container's files take up."""

    every: float
    """Seconds between looks, at least."""
    sockets: Sockets | None
    """The container's, where they can be seen."""

    def used(self, bounds: tree.Bounds | None = None) -> tuple[int, int]:
        """Bytes and entries. Raises tree.TooMuch over bounds, and Trouble."""

    def close(self) -> None:
        """Lets go of the container."""


class WriteWatch:
    """What a command has written."""

    def __init__(self, files: FileUsage, limits: Limits) -> None:
        self._files, self._limits = files, limits
        try:
            self._before = files.used()
        except tree.TooMuch as error:
            raise Trouble(f"the container's files could not be measured: {error.what}") from error
        self._next = 0.0

    def look(self, *, now: bool = False) -> bool:
        """Whether it is too much; looks only when it is time, or now. Raises Trouble."""
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
    """The best way there is for a container that runs; about: what the engine says of it."""
    pid = int(about["State"].get("Pid") or 0)
    if pid > 0 and os.geteuid() == 0:
        with suppress(OSError):
            return _LocalUsage(pid, about)
    return _EngineUsage(client, str(about["Id"]))


class _LocalUsage:
    every = _EVERY_disk

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
                found = tree.measure(place, bounds=most)
                bytes_, entries = bytes_ + found.bytes, entries + found.files
            held, _ = self._view.unnamed(self._device)
        except OSError as error:
            raise Trouble(f"the container's files could not be measured: {error.strerror}", file=error.filename) from error
        return bytes_ + held, entries

    def _own(self) -> list[Path]:
        """What is in the container's root, without what is mounted there."""
        with os.scandir(self._root) as found:
            return [Path(one.path) for one in found if one.stat(follow_symlinks=False).st_dev == self._device]

    def _spare(self) -> None:
        for place in self._places or [self._root]:
            if tree.room(place).bytes < SPARE:
                raise Trouble("the disk that containers are on is full", file=place, hint="free some space")

    def close(self) -> None:
        self._stack.close()


class _EngineUsage:
    every = _ASKED
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
