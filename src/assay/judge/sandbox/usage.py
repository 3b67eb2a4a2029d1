"""Waiting for descriptors, however high their numbers are.

Looking into a running box from outside, through its own /proc, which lists its processes and no others.

The bound on what a command writes: its box is measured before, and again and again while it runs.

- Counted are blocks on the disk and entries, of what is in the box and of what only an open descriptor still holds.
- A look costs time that grows with the box, so looks are spaced by what the last one took, unless the disk is seen to fill up.
- A disk of the host that fills up is Trouble, not the command's fault.
"""

from __future__ import annotations

import errno
import itertools
import os
import select
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from assay.judge.sandbox import Limits, Trouble
from assay.judge.tree import DEPTH


def ready(numbers: Iterable[int], seconds: float) -> set[int]:
    """Those of them that can be read from, or are at their end; waits that long for the first."""
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLIN)
    return {number for number, _events in poll.poll(max(0.0, seconds) * 1000)}


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


class BoxView:
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


SPARE = 128 << 20
"""Bytes that have to stay free on the disk that boxes are on."""
SPARE_FILES = 1_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""A look may take one part in so many of the time."""
_EVERY = 0.05
_LONG = 10.0
"""Seconds for a look at everything that a box holds open, when the disk lost more than is explained."""


class DiskWatch:
    """What a box's files take up since a command began."""

    def __init__(self, root: Path, limits: Limits, *, mend: bool, spare: int = SPARE) -> None:
        """root: the box's, on the host. mend: open what its owner closed to himself, which is needed unless we are root."""
        self._root, self._mend, self._spare = root, mend, spare
        self._device = os.stat(root).st_dev
        self._free = self._had = self._room()
        self._took = 0.0
        self._next = time.monotonic() + _EVERY
        self.held: tuple[int, int] | None = None
        """Bytes and entries in the box when it was last measured; None if that could not be brought to its end."""
        before = self._measure(1 << 62, 1 << 62)
        # Folders so deep that they cannot be measured were made by an earlier command: no more may be written then.
        self._most = (0, 0) if before is None else (before[0] + limits.disk, before[1] + limits.files)
        self._left = self._may = limits.disk

    @property
    def most_bytes(self) -> int:
        """What the box may take up in all."""
        return self._most[0]

    def look(self, view: BoxView) -> bool:
        """Whether the command has written too much. Looks only when it is time. Raises Trouble."""
        now = time.monotonic()
        free = self._room()
        if now < self._next and self._free - free < (self._left >> 1):
            return False
        over = self.over(view)
        self._next = time.monotonic() + max(_EVERY * 0.8, _PACE * self._took)
        return over

    def over(self, view: BoxView | None = None) -> bool:
        """Whether the command has written too much, now; without a view all of the box's processes are dead. Raises Trouble."""
        began = time.monotonic()
        self._free = self._room()
        found = self.held = self._measure(*self._most)
        if found is None:
            return True
        self._left, whole = self._most[0] - found[0], True
        if view is not None:
            unnamed, _ = view.unnamed(self._device)
            # What the disk has lost, less what is seen here, may be others'; or it is hidden behind very many descriptors.
            if self._had - self._free - (self._may - self._left + unnamed) > self._may:
                unnamed, whole = view.unnamed(self._device, seconds=_LONG)
            self._left -= unnamed
        self._took = time.monotonic() - began
        return self._left < 0 or not whole

    def _room(self) -> int:
        found = os.statvfs(self._root)
        free = found.f_bavail * found.f_frsize
        if free < self._spare or (found.f_files and found.f_favail < SPARE_FILES):
            raise Trouble("the disk that boxes are on is full", file=self._root, hint="free some space, or set ASSAY_SCRATCH")
        return free

    def _measure(self, most_bytes: int, most_files: int) -> tuple[int, int] | None:
        """Bytes and entries; None over the bounds, or where folders are so deep that something could be hidden in them."""
        count = _Count(most_bytes, most_files, self._mend)
        number = os.open(self._root, _FOLDER)
        try:
            count.folder(number, 0)
        except _Over:
            return None
        finally:
            os.close(number)
        return count.bytes, count.files


class _Over(Exception):
    pass


class _Count:
    def __init__(self, most_bytes: int, most_files: int, mend: bool) -> None:
        self.bytes = self.files = 0
        self._most_bytes, self._most_files, self._mend = most_bytes, most_files, mend
        self._seen: set[int] = set()

    def folder(self, number: int, depth: int) -> None:
        with os.scandir(number) as entries:
            for entry in entries:
                try:
                    info = entry.stat(follow_symlinks=False)
                except OSError:  # gone meanwhile
                    continue
                self.files += 1
                if info.st_nlink == 1 or stat.S_ISDIR(info.st_mode):
                    self.bytes += info.st_blocks * 512
                elif info.st_ino not in self._seen:
                    self._seen.add(info.st_ino)
                    self.bytes += info.st_blocks * 512
                if self.bytes > self._most_bytes or self.files > self._most_files or depth > DEPTH:
                    raise _Over
                if stat.S_ISDIR(info.st_mode):
                    self._enter(entry.name, number, depth)

    def _enter(self, name: str, parent: int, depth: int) -> None:
        try:
            number = os.open(name, _FOLDER, dir_fd=parent)
        except OSError as error:
            if error.errno != errno.EACCES or not self._mend or not _mend(name, parent):
                return
            try:
                number = os.open(name, _FOLDER, dir_fd=parent)
            except OSError:
                return
        try:
            self.folder(number, depth + 1)
        finally:
            os.close(number)


def _mend(name: str, parent: int) -> bool:
    """Lets the owner of a folder, who is us, into it, without following a link that it may just have become."""
    with suppress(OSError):
        number = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            info = os.fstat(number)
            if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid():
                os.chmod(f"/proc/self/fd/{number}", stat.S_IMODE(info.st_mode) | 0o700)
                return True
        finally:
            os.close(number)
    return False
