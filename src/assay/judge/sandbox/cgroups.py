"""Enforces limits on memory, processes and cores with control groups (v2 or v1), or by counting where there are none.

- Every command has a control group of its own. Its name contains the process that made it, so a later run can clear what a dead
  run left.
- A command joins its group before it starts. The group's own counters show whether it reached a limit.
- Data that waits in sockets can reach 400 MiB quickly. Assay counts it from outside where a group does not: UDP, TCP and netlink.
- Without control groups, Assay looks at the box 20 times a second, and the kernel's limits on a process stop faster growth.
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

from assay.judge.sandbox import Bound, InfrastructureError, Limits
from assay.judge.sandbox.usage import BoxView, Sockets

__all__ = [
    "SLACK",
    "CountedGroup",
    "Group",
    "Groups",
    "Kind",
    "find",
    "over_with_sockets",
    "read_counter",
    "read_number",
    "started",
    "sweep",
    "write_value",
]

Kind = Literal["v2", "v1", "counted"]

_V1 = ("memory", "pids", "cpuacct")
_PERIOD = 100_000
_NAME = re.compile(r"assay-(\d+)-(\d+)-(\d+)-\d+")
SLACK = 16
"""Processes above the limit before the kernel itself refuses, so that a look can see that the limit was exceeded."""
_OURS = 2
"""Processes of bubblewrap itself in a group: the one that Assay starts, and the box's first process."""
_FEW = 1 << 20
"""Fewer bytes than this in sockets are ignored."""
_PATIENCE = 60.0
"""Seconds to wait until a group is empty."""
_numbers = itertools.count()


class Group(Protocol):
    """Enforces the limits of one command."""

    doors: Sequence[Path]
    """Files of the control group; a process joins it by writing 0 to each of them. Empty if Assay moves the process instead."""

    def early(self, pid: int) -> None:
        """Moves bubblewrap into the group while it makes the box, unless it joins by itself. Raises InfrastructureError."""

    def add(self, pid: int) -> None:
        """Moves the box's first process into the group, before it starts the command. Raises InfrastructureError."""

    def look(self, view: BoxView | None) -> Bound | None:
        """The limit that was reached, if any. view: shows the box, while it lives."""

    def cpu_seconds(self) -> float:
        """CPU time of all its processes."""

    def peak(self) -> int:
        """The most memory that it used, in bytes; the file cache may be part of it. 0: unknown."""

    def close(self) -> None:
        """Removes the group, whose processes are dead."""


@dataclass(frozen=True)
class Groups:
    """The machine's way to enforce limits, and the places where control groups can be made."""

    kind: Kind
    places: Mapping[str, Path] = field(default_factory=dict)
    """v1: the folder of each controller. v2: the only folder, under the key `all`."""
    left: set[Path] = field(default_factory=set)
    """Folders that were made and not yet removed."""

    def describe(self) -> str:
        """The way of enforcement in a few words, for people."""
        if self.kind == "counted":
            return "no control groups: memory and processes are counted 20 times a second"
        return f"memory and processes by control groups {self.kind}"

    def make(self, limits: Limits) -> Group:
        """A new group with these limits. Raises InfrastructureError."""
        if self.kind == "counted":
            return CountedGroup(limits)
        name = f"assay-{_namespace()}-{os.getpid()}-{started(os.getpid())}-{next(_numbers)}"
        folders = {key: place / name for key, place in self.places.items()}
        try:
            if self.kind == "v1":
                return _V1Group(folders, limits, self.left)
            return _V2Group(folders, limits, self.left)
        except OSError as error:
            raise InfrastructureError(f"a control group could not be made: {error.strerror}", file=error.filename) from error

    def close(self) -> None:
        """Removes the groups of this process that an interruption left, but not those of a process that it was forked from."""
        for folder in list(self.left):
            if f"-{os.getpid()}-" not in folder.name:
                continue
            with suppress(OSError):
                _kill(folder)
            if _remove(folder):
                self.left.discard(folder)


class _KernelGroup:
    """A control group of the kernel: one folder, or one folder for each controller."""

    doors: Sequence[Path] = ()

    def __init__(self, folders: Mapping[str, Path], limits: Limits, left: set[Path]) -> None:
        """left: holds the group's folders until they are removed, so that an interruption at any point loses none."""
        self._of = folders
        self._folders = tuple(dict.fromkeys(folders.values()))
        self._left = left
        try:
            for folder in self._folders:
                left.add(folder)
                folder.mkdir()
            self._set(limits)
        except BaseException:
            self.close()
            raise

    def _set(self, limits: Limits) -> None:
        """Writes the limits into the group."""
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
    """True if a group's memory is above a limit, together with data in sockets that the group does not count.

    folder: of the memory controller. second: v2, which counts UDP and TCP itself; v1 counts TCP in another file.
    """
    waiting = sockets.held(tcp=False)
    if second:
        waiting -= min(waiting, read_counter(folder / "memory.stat", "sock"))
    else:
        waiting += read_number(folder / "memory.kmem.tcp.usage_in_bytes")
    if waiting < _FEW:
        return False
    used = read_number(folder / ("memory.current" if second else "memory.usage_in_bytes"))
    # The kernel can free the file cache.
    cached = sum(read_counter(folder / "memory.stat", name) for name in ("active_file", "inactive_file"))
    return max(0, used - cached) + waiting > most


class _V1Group(_KernelGroup):
    def early(self, pid: int) -> None:
        """Does nothing: the process joins before it becomes bubblewrap, and `add` checks that it did."""

    def add(self, pid: int) -> None:
        with suppress(OSError):
            if Path(f"/proc/{pid}/cgroup").read_text().count(f"/{self._folders[0].name}\n") == len(self._folders):
                return
        super().add(pid)

    def _set(self, limits: Limits) -> None:
        self._memory = limits.memory
        self.doors = [folder / "tasks" for folder in self._folders]
        memory = self._of["memory"]
        write_value(memory / "memory.limit_in_bytes", limits.memory)
        if (swap := memory / "memory.memsw.limit_in_bytes").exists():
            write_value(swap, limits.memory)
        write_value(self._of["pids"] / "pids.max", limits.processes + _OURS)
        if (tcp := memory / "memory.kmem.tcp.limit_in_bytes").exists():
            write_value(tcp, limits.memory)
        if limits.cpus is not None and (cpu := self._of.get("cpu")) and (cpu / "cpu.cfs_quota_us").exists():
            write_value(cpu / "cpu.cfs_period_us", _PERIOD)
            write_value(cpu / "cpu.cfs_quota_us", max(1000, int(limits.cpus * _PERIOD)))

    def look(self, view: BoxView | None) -> Bound | None:
        if read_counter(self._of["memory"] / "memory.oom_control", "oom_kill"):
            return "memory"
        if view is not None and over_with_sockets(self._of["memory"], view.sockets, self._memory, second=False):
            return "memory"
        return "processes" if read_counter(self._of["pids"] / "pids.events", "max") else None

    def cpu_seconds(self) -> float:
        return read_number(self._of["cpuacct"] / "cpuacct.usage") / 1e9

    def peak(self) -> int:
        return read_number(self._of["memory"] / "memory.max_usage_in_bytes")


class _V2Group(_KernelGroup):
    def _set(self, limits: Limits) -> None:
        folder = self._of["all"]
        self._memory = limits.memory
        write_value(folder / "memory.max", limits.memory)
        write_value(folder / "pids.max", limits.processes + _OURS)
        for name, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):
            if (folder / name).exists():
                write_value(folder / name, value)
        if limits.cpus is not None and (folder / "cpu.max").exists():
            write_value(folder / "cpu.max", f"{max(1000, int(limits.cpus * _PERIOD))} {_PERIOD}")

    def look(self, view: BoxView | None) -> Bound | None:
        if read_counter(self._of["all"] / "memory.events", "oom_kill"):
            return "memory"
        if view is not None and over_with_sockets(self._of["all"], view.sockets, self._memory, second=True):
            return "memory"
        return "processes" if read_counter(self._of["all"] / "pids.events", "max") else None

    def cpu_seconds(self) -> float:
        return read_counter(self._of["all"] / "cpu.stat", "usage_usec") / 1e6

    def peak(self) -> int:
        return read_number(self._of["all"] / "memory.peak")


class CountedGroup:
    """Enforces limits without control groups: looks at the box, and adds up what it uses."""

    doors: Sequence[Path] = ()

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._cpu = 0.0
        self._peak = 0

    def early(self, pid: int) -> None:
        """Does nothing: the process does not yet run as the box's user."""

    def add(self, pid: int) -> None:
        """Sets the kernel's limit on processes, for a command that starts them faster than the looks come.

        The kernel counts the processes of Assay's own user in the box. If the box has another user, `launch` sets the limit.
        """
        most = self._limits.processes + SLACK
        with suppress(ProcessLookupError, PermissionError):
            resource.prlimit(pid, resource.RLIMIT_NPROC, (most, most))

    def look(self, view: BoxView | None) -> Bound | None:
        """Adds up what the box uses now, and compares it with the limits."""
        if view is None:
            return None
        load = view.load()
        self._cpu = max(self._cpu, load.cpu_seconds)
        memory = load.memory
        if memory > self._limits.memory:
            memory = view.shares()
        memory += view.shared_files() + view.sockets.held(tcp=True)
        self._peak = max(self._peak, memory)
        if memory > self._limits.memory:
            return "memory"
        return "processes" if load.tasks > self._limits.processes else None

    def cpu_seconds(self) -> float:
        """CPU time at the last look."""
        return self._cpu

    def peak(self) -> int:
        """The most memory that any look saw."""
        return self._peak

    def close(self) -> None:
        """Does nothing: there is no group to remove."""


def find(*, counted: bool = False) -> Groups:
    """The best way that this machine offers. counted: do not look for control groups at all."""
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
                if match is None or int(match[1]) != _namespace() or started(int(match[2])) == int(match[3]):
                    continue
                with suppress(OSError):
                    _kill(Path(folder, name))
                    if _remove(Path(folder, name)):
                        removed.add(name)
    return len(removed)


def _place_v2(top: Path) -> Path | None:
    """This process's own group, or the nearest group above it, in which groups with the controllers can be made."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = top / next(line for line in lines if line.startswith("0::"))[3:].strip("/")
        while own.is_relative_to(top):
            with suppress(OSError):
                if {"memory", "pids"} <= set((own / "cgroup.controllers").read_text().split()):
                    on = set((own / "cgroup.subtree_control").read_text().split())
                    if not {"memory", "pids"} <= on:
                        write_value(own / "cgroup.subtree_control", "+memory +pids")
                    if _works(Groups("v2", {"all": own})):
                        with suppress(OSError):
                            write_value(own / "cgroup.subtree_control", "+cpu")
                        return own
            own = own.parent
    return None


def _works(groups: Groups) -> bool:
    """Whether a group can be made, and a waiting process moved into it."""
    limits = Limits(seconds=1, memory=1 << 30, processes=64, disk=0, output=0)
    try:
        group = groups.make(limits)
    except InfrastructureError:
        return False
    try:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=dict(os.environ)) as process:
            try:
                group.add(process.pid)
                group.look(None)
            except (InfrastructureError, OSError):
                return False
            return True
    except OSError:
        return False
    finally:
        group.close()


def _mounts() -> Iterator[tuple[str, list[str], Path]]:
    """Kind, options and folder of every mount of control groups that this process may write to."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ")[:3]
        top = Path(left.split(" ")[4].encode().decode("unicode_escape"))
        if kind in ("cgroup", "cgroup2") and os.access(top, os.W_OK | os.X_OK | os.R_OK):
            yield kind, options.split(","), top
        elif kind == "cgroup2":
            yield kind, [], top  # this process may own a part of it


def _namespace() -> int:
    """The inode of this process's pid namespace: a pid has a meaning only inside its namespace."""
    return os.stat("/proc/self/ns/pid").st_ino


def started(pid: int) -> int:
    """The start of a process, in ticks since boot; -1 if no such process is alive. A zombie counts as dead."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return -1 if fields[0] in (b"Z", b"X") else int(fields[19])
    return -1


def _add(folder: Path, pid: int) -> None:
    try:
        write_value(folder / "cgroup.procs", pid)
    except OSError as error:
        if error.errno != errno.ESRCH:  # it ended by itself; the caller will notice
            raise InfrastructureError(
                f"a process could not be moved into its control group: {error.strerror}", file=folder
            ) from error


def _kill(folder: Path) -> None:
    """Kills every process in a group, and waits a limited time until the group is empty."""
    until = time.monotonic() + _PATIENCE
    with suppress(OSError):
        write_value(folder / "cgroup.kill", 1)
    while time.monotonic() < until:
        pids = (folder / "cgroup.procs").read_text().split()
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.005)


def _remove(folder: Path) -> bool:
    """Removes a group; False if the kernel is still busy with it after a long time. A later sweep removes it then."""
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


def write_value(file: Path, value: int | str) -> None:
    """Writes a value into a file of a control group. Raises OSError."""
    number = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(number, str(value).encode())
    finally:
        os.close(number)


def read_number(file: Path) -> int:
    """The number in a file of a control group; 0 if there is none."""
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return 0


def read_counter(file: Path, name: str) -> int:
    """The number after a name in a file with lines of the form `name number`; 0 if there is none."""
    with suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            if line.startswith(name + " "):
                return int(line.split()[1])
    return 0
