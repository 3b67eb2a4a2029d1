"""Measures what a running box uses, from outside: processes, memory, sockets, and disk space.

A `BoxView` reads the box's own /proc, which lists its processes and no others. A `DiskWatch` measures the box's files before a
command, and again and again while it runs:

- It counts blocks on the disk and entries, of the files in the box and of deleted files that a descriptor still holds.
- The time of a measurement grows with the box, so the pause until the next one grows too, unless the disk is filling up.
- If the host's disk is full, that is `InfrastructureError`, not the command's failure.
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

from assay.judge.sandbox import InfrastructureError, Limits
from assay.judge.tree import DEPTH


def ready(numbers: Iterable[int], seconds: float) -> set[int]:
    """The descriptors that can be read or have ended; waits at most so many seconds for the first. Their numbers may be high."""
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLIN)
    return {number for number, _events in poll.poll(max(0.0, seconds) * 1000)}


_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_ROOT = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class Load:
    """The resources that the processes of a box use at one moment."""

    tasks: int
    """Processes and threads, without the first process, which is bubblewrap's."""
    memory: int
    """Bytes in memory. A page that several processes share counts once for each of them."""
    cpu_seconds: float
    """Of the living processes and of the children that they waited for."""


_IP_FILES = ("udp", "udp6", "udplite", "udplite6", "icmp", "icmp6", "raw", "raw6")
_PACE = 5
"""Counting may take one part in so many of the time: after t seconds of counting, the next count is at least 5 t later."""


def _waiting(pid: int, *, tcp: bool) -> int:
    """Bytes that wait in the sockets of a process's network: UDP and similar, netlink, and TCP if asked for; not local ones.

    Control groups v1 count none of these bytes as memory, and v2 does not count netlink. Sums over processes count none either.
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
                    if fields[3] != b"0A":  # a listening socket shows a number of connections, not of bytes
                        total += sum(int(part, 16) for part in fields[4].split(b":"))
    with suppress(OSError):
        for line in Path(f"{net}/netlink").read_bytes().splitlines()[1:]:
            with suppress(ValueError, IndexError):
                fields = line.split()
                total += int(fields[4]) + int(fields[5])
    return total


class Sockets:
    """Counts the bytes that wait in a box's sockets, and limits the time that this takes."""

    def __init__(self, pid: int, handle: int) -> None:
        """pid: of a process in the box. handle: a pidfd of that process, which shows whether it is still alive."""
        self._pid, self._handle = pid, handle
        self._next = 0.0
        self._seen = 0

    def held(self, *, tcp: bool) -> int:
        """Bytes at the last count."""
        began = time.monotonic()
        if began >= self._next:
            waiting = _waiting(self._pid, tcp=tcp)
            self._seen = 0 if ready([self._handle], 0) else waiting
            now = time.monotonic()
            self._next = now + _PACE * (now - began)
        return self._seen


class BoxView:
    """Shows what the processes of one box use. Before the box exists and after it is gone, everything is 0."""

    def __init__(self, first: int, handle: int) -> None:
        """first: the host's pid of the box's first process. handle: a pidfd of that process."""
        self._first, self._handle = first, handle
        self._root: int | None = None
        self.sockets = Sockets(first, handle)

    def load(self) -> Load:
        """The resources that the box's processes use now."""
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
        """Bytes in memory, with each shared page counted once. It is slow, so only used if the plain sum is above the limit."""
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
                status = os.statvfs(f"/proc/self/fd/{self._root}/dev/shm")
                return (status.f_blocks - status.f_bfree) * status.f_frsize
        return 0

    def unnamed(self, device: int, *, seconds: float = 0.02) -> tuple[int, bool]:
        """Bytes of deleted files on a disk that descriptors or mappings still hold, and whether there was time to count all.

        Only root can see the files that only a mapping holds.
        """
        processes = self._processes()
        until = time.monotonic() + seconds
        seen: dict[int, int] = {}
        for number, place in enumerate(itertools.chain(map(_living, processes), _threads(processes))):
            for file in itertools.chain(_opened(place), _mapped(place) if number < len(processes) else ()):
                with suppress(OSError):
                    info = os.stat(file)
                    if stat.S_ISREG(info.st_mode) and info.st_nlink == 0 and info.st_dev == device:
                        seen[info.st_ino] = info.st_blocks * 512
            if time.monotonic() > until:
                return sum(seen.values()), False
        return sum(seen.values()), True

    def close(self) -> None:
        """Closes the descriptor of the box's root."""
        if self._root is not None:
            os.close(self._root)
            self._root = None

    def _processes(self) -> list[str]:
        if self._ready():
            top = f"/proc/self/fd/{self._root}/proc"
            with suppress(OSError):
                # A set has no order, so a box with very many processes is not always read from the same end.
                return [f"{top}/{name}" for name in {name for name in os.listdir(top) if name.isdigit()}]
        return []

    def _ready(self) -> bool:
        """Opens the box's root as soon as there is one. Until then, the first process still sees the host's root."""
        if self._root is None:
            with suppress(OSError):
                root = os.open(f"/proc/{self._first}/root", _ROOT)
                own = os.stat(f"/proc/self/fd/{root}/proc").st_dev != os.stat("/proc").st_dev
                if own and not ready([self._handle], 0):
                    self._root = root
                else:
                    os.close(root)
        return self._root is not None


def _fields(place: str) -> list[bytes]:
    """The fields of a process's stat file after its name."""
    return Path(f"{place}/stat").read_bytes().rpartition(b")")[2].split()


def _living(place: str) -> str:
    """The folder in /proc that shows a process's memory and files: another thread's, if the first thread has ended."""
    with suppress(OSError, IndexError):
        if _fields(place)[0] == b"Z":
            return next(_threads([place]), place)
    return place


def _threads(places: Iterable[str]) -> Iterator[str]:
    """The folders in /proc of the other threads of processes: each thread may have its own descriptors."""
    for place in places:
        top, _, number = place.rpartition("/")
        with suppress(OSError):
            yield from (f"{top}/{name}" for name in os.listdir(f"{place}/task") if name != number)


def _opened(place: str) -> Iterator[str]:
    """Links to the files that a process or thread has open."""
    with suppress(OSError), os.scandir(f"{place}/fd") as entries:
        yield from (entry.path for entry in entries)


def _mapped(place: str) -> Iterator[str]:
    """Links to deleted files that a process still has mapped."""
    with suppress(OSError):
        for line in Path(f"{place}/maps").read_bytes().splitlines():
            if line.endswith(b" (deleted)"):
                begin, end = (int(part, 16) for part in line.partition(b" ")[0].split(b"-"))
                yield f"{place}/map_files/{begin:x}-{end:x}"


SPARE = 128 << 20
"""Bytes that must stay free on the disk that holds the boxes."""
SPARE_FILES = 1_000
"""Files that it must still be possible to create there."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_EVERY = 0.05
"""Seconds between measurements, at least."""
_LONG = 10.0
"""Seconds to look at every open file of a box, when the disk has lost more space than the measurement explains."""


class DiskWatch:
    """Measures the disk space that a command in a box uses, and compares it with the limit."""

    def __init__(self, root: Path, limits: Limits, *, mend: bool, spare: int = SPARE) -> None:
        """root: the box's root folder on the host. mend: add missing permissions of folders; only root does not need it."""
        self._root, self._mend, self._spare = root, mend, spare
        self._device = os.stat(root).st_dev
        self._free = self._had = self._room()
        self._took = 0.0
        self._next = time.monotonic() + _EVERY
        self.held: tuple[int, int] | None = None
        """Bytes and entries at the last measurement; None if they were above the limits, so that it was not finished."""
        before = self._measure(1 << 62, 1 << 62)
        # An earlier command made folders too deep to be measured: then no more may be written.
        self._most = (0, 0) if before is None else (before[0] + limits.disk, before[1] + limits.files)
        self._left = self._may = limits.disk

    @property
    def most_bytes(self) -> int:
        """The bytes that the whole box may use."""
        return self._most[0]

    def look(self, view: BoxView) -> bool:
        """Whether the command has written too much. Measures only when it is time to. Raises InfrastructureError."""
        now = time.monotonic()
        free = self._room()
        if now < self._next and self._free - free < (self._left >> 1):
            return False
        over = self.over(view)
        self._next = time.monotonic() + max(_EVERY * 0.8, _PACE * self._took)
        return over

    def over(self, view: BoxView | None = None) -> bool:
        """Measures now whether the command has written too much. view: None if the box's processes are dead.

        Raises InfrastructureError.
        """
        began = time.monotonic()
        self._free = self._room()
        self.held = self._measure(*self._most)
        if self.held is None:
            return True
        self._left, whole = self._most[0] - self.held[0], True
        if view is not None:
            unnamed, _ = view.unnamed(self._device)
            # Space that the disk lost and this measurement did not see: other programs used it, or very many descriptors hide it.
            if self._had - self._free - (self._may - self._left + unnamed) > self._may:
                unnamed, whole = view.unnamed(self._device, seconds=_LONG)
            self._left -= unnamed
        self._took = time.monotonic() - began
        return self._left < 0 or not whole

    def _room(self) -> int:
        status = os.statvfs(self._root)
        free = status.f_bavail * status.f_frsize
        if free < self._spare or (status.f_files and status.f_favail < SPARE_FILES):
            raise InfrastructureError(
                "the disk that holds the boxes is full", file=self._root, hint="free some space, or set ASSAY_SCRATCH"
            )
        return free

    def _measure(self, most_bytes: int, most_files: int) -> tuple[int, int] | None:
        """Bytes and entries; None above the limits, or if folders are so deep that they could hide something."""
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
    """The tree is above its limits."""


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
                except OSError:  # it vanished meanwhile
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
    """Gives this process, which owns a folder, permission to open it, without following a link that may have replaced it."""
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
