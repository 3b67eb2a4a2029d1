"""Looking into a running box from outside, through its own /proc, which lists its processes and no others."""

from __future__ import annotations

import itertools
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from assay.judge.sandbox.waiting import ready

__all__ = ["Load", "Sockets", "View"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_ROOT = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class Load:
    """What a box's processes use at one moment."""

    tasks: int
    """Processes and threads, without the first, which is bubblewrap's."""
    memory: int
    """Bytes in memory; pages that processes share count in each of them."""
    cpu_seconds: float
    """Of the living and of those that the living waited for."""


_IP_FILES = ("udp", "udp6", "udplite", "udplite6", "icmp", "icmp6", "raw", "raw6")
_PACE = 5
"""Counting sockets may take one part in so many of the time."""


def _waiting(pid: int, *, tcp: bool) -> int:
    """Bytes that wait in the sockets of a process's network: UDP and the like, netlink, and TCP if asked for; local ones not.

    Control groups of version 1 count none of these as memory, of version 2 not netlink; neither do sums over processes.
    """
    net, total = f"/proc/{pid}/net", 0
    with suppress(OSError, ValueError, IndexError):
        if int(Path(f"{net}/sockstat").read_bytes().split(b"\n", 1)[0].split()[2]) == 0:
            return 0
    for name in (*_IP_FILES, *(("tcp", "tcp6") if tcp else ())):
        with suppress(OSError):
            for line in Path(f"{net}/{name}").read_bytes().splitlines()[1:]:
                with suppress(ValueError, IndexError):
                    fields = line.split()
                    if fields[3] != b"0A":  # a socket that listens tells how many wait, not how much
                        total += sum(int(part, 16) for part in fields[4].split(b":"))
    with suppress(OSError):
        for line in Path(f"{net}/netlink").read_bytes().splitlines()[1:]:
            with suppress(ValueError, IndexError):
                fields = line.split()
                total += int(fields[4]) + int(fields[5])
    return total


class Sockets:
    """What waits in a box's sockets, counted at most a part of the time."""

    def __init__(self, pid: int, handle: int) -> None:
        """pid: of a process in the box; handle: a descriptor of that process, which tells whether it still is the same."""
        self._pid, self._handle = pid, handle
        self._next = 0.0
        self._seen = 0

    def held(self, *, tcp: bool) -> int:
        """Bytes, as of the last count."""
        began = time.monotonic()
        if began >= self._next:
            found = _waiting(self._pid, tcp=tcp)
            self._seen = 0 if ready([self._handle], 0) else found
            now = time.monotonic()
            self._next = now + _PACE * (now - began)
        return self._seen


class View:
    """A look into one box. Before the box is made and after it is gone there is nothing to be seen."""

    def __init__(self, first: int, handle: int) -> None:
        """first: the number of its first process on the host; handle: a descriptor of that process."""
        self._first, self._handle = first, handle
        self._root: int | None = None
        self.sockets = Sockets(first, handle)

    def load(self) -> Load:
        """What its processes use."""
        tasks, memory, ticks = -1, 0, 0
        for place in self._processes():
            with suppress(OSError, ValueError, IndexError):
                fields = _fields(place)
                if fields[0] == b"Z":
                    fields = _fields(_living(place))
                tasks += int(fields[17])
                memory += int(fields[21]) * _PAGE
                ticks += sum(int(field) for field in fields[11:15])
        return Load(max(0, tasks), memory, ticks / _TICK)

    def shares(self) -> int:
        """Bytes in memory, each page counted once: slow, so only asked for when the plain sum is too much."""
        total = 0
        for place in map(_living, self._processes()):
            with suppress(OSError, ValueError, IndexError):
                for line in Path(f"{place}/smaps_rollup").read_bytes().splitlines():
                    if line.startswith(b"Pss:"):
                        total += int(line.split()[1]) * 1024
        return total

    def shared_files(self) -> int:
        """Bytes in the box's /dev/shm."""
        if self._ready():
            with suppress(OSError):
                found = os.statvfs(f"/proc/self/fd/{self._root}/dev/shm")
                return (found.f_blocks - found.f_bfree) * found.f_frsize
        return 0

    def unnamed(self, device: int, *, seconds: float = 0.02) -> tuple[int, bool]:
        """Bytes on a disk in files without a name, that only descriptors or mappings hold, and whether the time was enough.

        What only a mapping holds can be looked at by root alone.
        """
        processes = self._processes()
        until = time.monotonic() + seconds
        seen: dict[int, int] = {}
        for number, place in enumerate(itertools.chain(map(_living, processes), _threads(processes))):
            for held in itertools.chain(_opened(place), _mapped(place) if number < len(processes) else ()):
                with suppress(OSError):
                    info = os.stat(held)
                    if stat.S_ISREG(info.st_mode) and info.st_nlink == 0 and info.st_dev == device:
                        seen[info.st_ino] = info.st_blocks * 512
            if time.monotonic() > until:
                return sum(seen.values()), False
        return sum(seen.values()), True

    def close(self) -> None:
        """Lets the box go."""
        if self._root is not None:
            os.close(self._root)
            self._root = None

    def _processes(self) -> list[str]:
        if self._ready():
            top = f"/proc/self/fd/{self._root}/proc"
            with suppress(OSError):
                # A set forgets the order, so that a box with very many processes is not always looked at from the same end.
                return [f"{top}/{name}" for name in {name for name in os.listdir(top) if name.isdigit()}]
        return []

    def _ready(self) -> bool:
        """Holds the box's root as soon as it has one: until then the first process still sees the host's."""
        if self._root is None:
            with suppress(OSError):
                root = os.open(f"/proc/{self._first}/root", _ROOT)
                made = os.stat(f"/proc/self/fd/{root}/proc").st_dev != os.stat("/proc").st_dev
                if made and not ready([self._handle], 0):
                    self._root = root
                else:
                    os.close(root)
        return self._root is not None


def _fields(place: str) -> list[bytes]:
    """What /proc says of a process behind its name."""
    return Path(f"{place}/stat").read_bytes().rpartition(b")")[2].split()


def _living(place: str) -> str:
    """Where a process shows what it has: where its first thread has ended, only the others do."""
    with suppress(OSError, IndexError):
        if _fields(place)[0] == b"Z":
            return next(_threads([place]), place)
    return place


def _threads(places: Iterable[str]) -> Iterator[str]:
    """The threads of processes besides the first, as places of their own: each may have its own descriptors."""
    for place in places:
        top, _, number = place.rpartition("/")
        with suppress(OSError):
            yield from (f"{top}/{name}" for name in os.listdir(f"{place}/task") if name != number)


def _opened(place: str) -> Iterator[str]:
    """Links to what a process or thread holds open."""
    with suppress(OSError), os.scandir(f"{place}/fd") as entries:
        yield from (entry.path for entry in entries)


def _mapped(place: str) -> Iterator[str]:
    """Links to what a process has mapped, and nobody can open by a name any more."""
    with suppress(OSError):
        for line in Path(f"{place}/maps").read_bytes().splitlines():
            if line.endswith(b" (deleted)"):
                begin, end = (int(part, 16) for part in line.partition(b" ")[0].split(b"-"))
                yield f"{place}/map_files/{begin:x}-{end:x}"
