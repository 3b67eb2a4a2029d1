"""Bounds on memory, processes and cores, by what this machine has: control groups of version 2, of version 1, or counting.

- Every command has a group of its own, named after the run that made it, so that a later run can tell whose it was and clear it.
- A command is put into its group before it starts; the group's own counters say whether it ran into a bound.
- What waits in sockets is counted from outside and added, where a group does not count it: UDP, TCP and netlink are 400 MiB soon.
- Without groups, a box is counted from outside 20 times a second; the kernel's limits on a process stop what grows faster.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from assay.judge.sandbox import Bound, Limits, Trouble
from assay.judge.sandbox.usage import BoxView, Sockets

__all__ = ["SLACK", "CountedGroup", "Group", "Groups", "Kind", "find", "over_with_sockets", "sweep"]

Kind = Literal["v2", "v1", "counted"]

_V1 = ("memory", "pids", "cpuacct")
_PERIOD = 100_000
_NAME = re.compile(r"assay-(\d+)-(\d+)-(\d+)-\d+")
SLACK = 16
"""Processes over a bound before the kernel itself refuses, so that a look can see that it was passed."""
_OURS = 2
"""Processes of bubblewrap's own in a group: the one that was started, and the box's first."""
_FEW = 1 << 20
"""Bytes in sockets that are not worth a further look."""
_PATIENCE = 60.0
"""Seconds until a group must be empty."""
_numbers = itertools.count()


class Group(Protocol):
    """The bounds of one command."""

    doors: Sequence[Path]
    """Files that a process joins by, when it writes 0 to each; none where it cannot, and is put in."""

    def early(self, pid: int) -> None:
        """Puts bubblewrap in while it makes the box, unless it has come in: that waits for the kernel. Raises Trouble."""

    def add(self, pid: int) -> None:
        """Puts the box's first process in, before it starts the command. Raises Trouble."""

    def look(self, view: BoxView | None) -> Bound | None:
        """The bound that was run into, if one was; view: into the box while it lives."""

    def cpu_seconds(self) -> float:
        """What its processes have used."""

    def peak(self) -> int:
        """The most memory that it had, in bytes; what it read and wrote in files may be in it. 0: unknown."""

    def close(self) -> None:
        """Removes the group; its processes are dead by then."""


@dataclass(frozen=True)
class Groups:
    """Where groups can be made on this machine."""

    kind: Kind
    places: Mapping[str, Path] = field(default_factory=dict)
    """Version 1: the folder by controller; version 2: the one folder, as `all`."""
    left: set[Path] = field(default_factory=set)
    """What was made and is not removed yet."""

    def describe(self) -> str:
        """In a few words, for people."""
        if self.kind == "counted":
            return "no control groups: memory and processes are counted 20 times a second"
        return f"memory and processes by control groups {self.kind}"

    def make(self, limits: Limits) -> Group:
        """A new group with these bounds. Raises Trouble."""
        if self.kind == "counted":
            return CountedGroup(limits)
        name = f"assay-{_namespace()}-{os.getpid()}-{_born(os.getpid())}-{next(_numbers)}"
        folders = {key: place / name for key, place in self.places.items()}
        try:
            if self.kind == "v1":
                return _V1Group(folders, limits, self.left)
            return _V2Group(folders, limits, self.left)
        except OSError as error:
            raise Trouble(f"no control group could be made: {error.strerror}", file=error.filename) from error

    def close(self) -> None:
        """Removes what an interruption left of groups of this process, and not of one that it was forked from."""
        for folder in list(self.left):
            if f"-{os.getpid()}-" not in folder.name:
                continue
            with suppress(OSError):
                _kill(folder)
            if _remove(folder):
                self.left.discard(folder)


class _KernelGroup:
    """A group of the kernel's, as one folder or as one for each controller."""

    doors: Sequence[Path] = ()

    def __init__(self, folders: Mapping[str, Path], limits: Limits, left: set[Path]) -> None:
        """left: where its folders are remembered until they are gone, so that an interruption at any point loses none."""
        self._of = folders
        self._folders = tuple(dict.fromkeys(folders.values()))
        self._left = left
        try:
            for folder in self._folders:
                left.add(folder)
                folder.mkdir()
            self._bound(limits)
        except BaseException:
            self.close()
            raise

    def _bound(self, limits: Limits) -> None:
        raise NotImplementedError

    def add(self, pid: int) -> None:
        for folder in self._folders:
            _add(folder, pid)

    early = add

    def close(self) -> None:
        for folder in self._folders:
            if _remove(folder):
                self._left.discard(folder)


def over_with_sockets(folder: Path, sockets: Sockets, most: int, *, second: bool) -> bool:
    """Whether a group's memory with what waits in sockets and is not in it is above a bound.

    folder: of the memory. second: of version 2, which counts UDP and TCP itself; version 1 counts TCP, but elsewhere.
    """
    waiting = sockets.held(tcp=False)
    if second:
        waiting -= min(waiting, _counter(folder / "memory.stat", "sock"))
    else:
        waiting += _number(folder / "memory.kmem.tcp.usage_in_bytes")
    if waiting < _FEW:
        return False
    used = _number(folder / ("memory.current" if second else "memory.usage_in_bytes"))
    cached = sum(_counter(folder / "memory.stat", name) for name in ("active_file", "inactive_file"))  # is given back in need
    return max(0, used - cached) + waiting > most


class _V1Group(_KernelGroup):
    def early(self, pid: int) -> None:
        """Nothing: it has come in by itself before it is bubblewrap, or `add` sees that it has not."""

    def add(self, pid: int) -> None:
        with suppress(OSError):
            if Path(f"/proc/{pid}/cgroup").read_text().count(f"/{self._folders[0].name}\n") == len(self._folders):
                return
        super().add(pid)

    def _bound(self, limits: Limits) -> None:
        self._memory = limits.memory
        self.doors = [folder / "tasks" for folder in self._folders]
        memory = self._of["memory"]
        _write(memory / "memory.limit_in_bytes", limits.memory)
        if (swap := memory / "memory.memsw.limit_in_bytes").exists():
            _write(swap, limits.memory)
        _write(self._of["pids"] / "pids.max", limits.processes + _OURS)
        if (tcp := memory / "memory.kmem.tcp.limit_in_bytes").exists():
            _write(tcp, limits.memory)
        if limits.cpus is not None and (cpu := self._of.get("cpu")) and (cpu / "cpu.cfs_quota_us").exists():
            _write(cpu / "cpu.cfs_period_us", _PERIOD)
            _write(cpu / "cpu.cfs_quota_us", max(1000, int(limits.cpus * _PERIOD)))

    def look(self, view: BoxView | None) -> Bound | None:
        if _counter(self._of["memory"] / "memory.oom_control", "oom_kill"):
            return "memory"
        if view is not None and over_with_sockets(self._of["memory"], view.sockets, self._memory, second=False):
            return "memory"
        return "processes" if _counter(self._of["pids"] / "pids.events", "max") else None

    def cpu_seconds(self) -> float:
        return _number(self._of["cpuacct"] / "cpuacct.usage") / 1e9

    def peak(self) -> int:
        return _number(self._of["memory"] / "memory.max_usage_in_bytes")


class _V2Group(_KernelGroup):
    def _bound(self, limits: Limits) -> None:
        folder = self._of["all"]
        self._memory = limits.memory
        _write(folder / "memory.max", limits.memory)
        _write(folder / "pids.max", limits.processes + _OURS)
        for name, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):
            if (folder / name).exists():
                _write(folder / name, value)
        if limits.cpus is not None and (folder / "cpu.max").exists():
            _write(folder / "cpu.max", f"{max(1000, int(limits.cpus * _PERIOD))} {_PERIOD}")

    def look(self, view: BoxView | None) -> Bound | None:
        if _counter(self._of["all"] / "memory.events", "oom_kill"):
            return "memory"
        if view is not None and over_with_sockets(self._of["all"], view.sockets, self._memory, second=True):
            return "memory"
        return "processes" if _counter(self._of["all"] / "pids.events", "max") else None

    def cpu_seconds(self) -> float:
        return _counter(self._of["all"] / "cpu.stat", "usage_usec") / 1e6

    def peak(self) -> int:
        return _number(self._of["all"] / "memory.peak")


class CountedGroup:
    """Bounds without control groups: the box is looked at, and what it uses is added up."""

    doors: Sequence[Path] = ()

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._cpu = 0.0
        self._peak = 0

    def early(self, pid: int) -> None:
        """Nothing: it is not the box's user yet."""

    def add(self, pid: int) -> None:
        """Stops what grows faster than we look. The number is that of our user in the box; for another, see `launch`."""
        most = self._limits.processes + SLACK
        with suppress(ProcessLookupError, PermissionError):
            resource.prlimit(pid, resource.RLIMIT_NPROC, (most, most))

    def look(self, view: BoxView | None) -> Bound | None:
        """Adds up what the box uses now."""
        if view is None:
            return None
        found = view.load()
        self._cpu = max(self._cpu, found.cpu_seconds)
        memory = found.memory
        if memory > self._limits.memory:
            memory = view.shares()
        memory += view.shared_files() + view.sockets.held(tcp=True)
        self._peak = max(self._peak, memory)
        if memory > self._limits.memory:
            return "memory"
        return "processes" if found.tasks > self._limits.processes else None

    def cpu_seconds(self) -> float:
        """As of the last look."""
        return self._cpu

    def peak(self) -> int:
        """The most that a look saw."""
        return self._peak

    def close(self) -> None:
        """Nothing is left to be done."""


def find(*, counted: bool = False) -> Groups:
    """The best that this machine has for us; counted: do not even look for control groups."""
    if counted:
        return Groups("counted")
    mounts = list(_mounts())
    for kind, _names, top in mounts:
        if kind == "cgroup2" and (place := _place_v2(top)):
            return Groups("v2", {"all": place})
    places = {name: top for kind, names, top in mounts if kind == "cgroup" for name in names if name in (*_V1, "cpu")}
    if set(_V1) <= set(places) and _works(Groups("v1", places)):
        return Groups("v1", places)
    return Groups("counted")


def sweep() -> int:
    """Kills and removes the groups that dead runs of Assay left behind; returns how many."""
    removed: set[str] = set()
    for top in {top for _kind, _names, top in _mounts()}:
        for folder, names, _files in os.walk(top, topdown=False, onerror=None):
            for name in names:
                match = _NAME.fullmatch(name)
                if match is None or int(match[1]) != _namespace() or _born(int(match[2])) == int(match[3]):
                    continue
                with suppress(OSError):
                    _kill(Path(folder, name))
                    if _remove(Path(folder, name)):
                        removed.add(name)
    return len(removed)


def _place_v2(top: Path) -> Path | None:
    """Our own group or the nearest above it in which groups with the controllers can be made."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = top / next(line for line in lines if line.startswith("0::"))[3:].strip("/")
        while own.is_relative_to(top):
            with suppress(OSError):
                if {"memory", "pids"} <= set((own / "cgroup.controllers").read_text().split()):
                    on = set((own / "cgroup.subtree_control").read_text().split())
                    if not {"memory", "pids"} <= on:
                        _write(own / "cgroup.subtree_control", "+memory +pids")
                    if _works(Groups("v2", {"all": own})):
                        with suppress(OSError):
                            _write(own / "cgroup.subtree_control", "+cpu")
                        return own
            own = own.parent
    return None


def _works(groups: Groups) -> bool:
    """Tries a group on a process that waits for its input to end."""
    limits = Limits(seconds=1, memory=1 << 30, processes=64, disk=0, output=0)
    try:
        group = groups.make(limits)
    except Trouble:
        return False
    try:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=dict(os.environ)) as process:
            try:
                group.add(process.pid)
                group.look(None)
            except (Trouble, OSError):
                return False
            return True
    except OSError:
        return False
    finally:
        group.close()


def _mounts() -> Iterator[tuple[str, list[str], Path]]:
    """Kind, options and place of every mount of control groups that we may write to."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ")[:3]
        top = Path(left.split(" ")[4].encode().decode("unicode_escape"))
        if kind in ("cgroup", "cgroup2") and os.access(top, os.W_OK | os.X_OK | os.R_OK):
            yield kind, options.split(","), top
        elif kind == "cgroup2":
            yield kind, [], top  # a part of it may be ours


def _namespace() -> int:
    """Process numbers mean something only in their own namespace."""
    return os.stat("/proc/self/ns/pid").st_ino


def _born(pid: int) -> int:
    """When a process started, in ticks since boot; -1 if none with this number lives. What only waits to be reaped is dead."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return -1 if fields[0] in (b"Z", b"X") else int(fields[19])
    return -1


def _add(folder: Path, pid: int) -> None:
    try:
        _write(folder / "cgroup.procs", pid)
    except OSError as error:
        if error.errno != errno.ESRCH:  # it ended by itself, and will be heard of
            raise Trouble(f"a process could not be put into its control group: {error.strerror}", file=folder) from error


def _kill(folder: Path) -> None:
    until = time.monotonic() + _PATIENCE
    with suppress(OSError):
        _write(folder / "cgroup.kill", 1)
    while time.monotonic() < until:
        pids = (folder / "cgroup.procs").read_text().split()
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.005)


def _remove(folder: Path) -> bool:
    """Whether it is gone: one that the kernel is still clearing up in after so long is left to a later sweep."""
    until, pause = time.monotonic() + _PATIENCE, 0.0005
    while True:
        try:
            folder.rmdir()
            return True
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() > until:
                return False
        time.sleep(pause)
        pause = min(0.05, pause * 2)


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
    """The number behind a name in a file of lines `name number`; 0 if it is not there."""
    with suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            if line.startswith(name + " "):
                return int(line.split()[1])
    return 0
