"""Counts that the worker processes of a service share: each writes its own file, and every one can add all of them up.

A file is mapped into memory, so a count is there for the others at once, and stays when its worker is killed. The worker that is
started next goes on with that file, so no count goes back and there are never more files than workers. A lock on the file says
that its worker lives. A gauge is a statement about now, so those of a worker that has ended do not count.

    entry: value (8 bytes) · length of the name (2 bytes) · the name's parts, "\\0" between them · zeros up to 8 bytes
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

__all__ = ["Tallies"]

BYTES = 2**19
"""Of a file: room for some thousand names. Names are routes and statuses, so they are few."""
_VALUE, _LENGTH = struct.Struct("<Q"), struct.Struct("<H")
_HEAD = _VALUE.size + _LENGTH.size

Name = tuple[str, ...]


class Tallies:
    """The counts of a worker, and the sums of all. folder: where their files are; None for a service of one process.

    gauges: the first parts of names that say what is now. One thread counts; any may ask for the sums.
    """

    def __init__(self, folder: Path | None, gauges: Collection[str] = ()) -> None:
        self._folder, self._gauges = folder, frozenset(gauges)
        self._file = -1 if folder is None else _own(folder)
        self._memory = mmap.mmap(self._file, BYTES)
        self._places: dict[Name, int] = {}
        self._end = 0
        for name, _, place in _entries(self._memory):
            self._places[name], self._end = place, place + _size(name)
            if name[0] in self._gauges:
                _VALUE.pack_into(self._memory, place, 0)

    def add(self, name: Name, amount: int = 1) -> None:
        """Count something."""
        place = self._place(name)
        if place is not None:
            _VALUE.pack_into(self._memory, place, _VALUE.unpack_from(self._memory, place)[0] + amount)

    def set(self, name: Name, value: int) -> None:
        """Say what a gauge shows now."""
        place = self._place(name)
        if place is not None:
            _VALUE.pack_into(self._memory, place, value)

    def sums(self) -> tuple[Counter[Name], int]:
        """Every count, summed over the workers there are and were; and how many there are."""
        sums: Counter[Name] = Counter()
        if self._folder is None:
            sums.update({name: value for name, value, _ in _entries(self._memory)})
            return sums, 1
        alive = 0
        for file in self._folder.iterdir():
            lives = _lives(file)
            alive += lives
            for name, value, _ in _entries(file.read_bytes()):
                if lives or name[0] not in self._gauges:
                    sums[name] += value
        return sums, alive

    def close(self) -> None:
        """Count no more, as when the process ends."""
        self._memory.close()
        if self._folder is not None:
            os.close(self._file)

    def _place(self, name: Name) -> int | None:
        """The offset of a name's value in the file, given on first use; None if the file is full."""
        if name not in self._places:
            if self._end + _size(name) + _HEAD > BYTES:
                return None
            text, place = _bytes(name), self._end
            self._memory[place + _HEAD : place + _HEAD + len(text)] = text
            _LENGTH.pack_into(self._memory, place + _VALUE.size, len(text))  # the last: from now on others see the entry
            self._places[name], self._end = place, place + _size(name)
        return self._places[name]


def _bytes(name: Name) -> bytes:
    return "\0".join(name).encode()


def _size(name: Name) -> int:
    return -(-(_HEAD + len(_bytes(name))) // 8) * 8


def _entries(data: bytes | mmap.mmap) -> Iterator[tuple[Name, int, int]]:
    """Yield (name, value, place) of every entry."""
    place = 0
    while place + _HEAD <= len(data) and (length := _LENGTH.unpack_from(data, place + _VALUE.size)[0]):
        name = tuple(data[place + _HEAD : place + _HEAD + length].decode().split("\0"))
        yield name, _VALUE.unpack_from(data, place)[0], place
        place += _size(name)


def _own(folder: Path) -> int:
    """Open and lock the file of a worker that has ended, or a new one; the lock lasts as long as this process."""
    while True:
        for path in sorted(folder.iterdir()):
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
            else:
                return file
        with (folder / secrets.token_hex(8)).open("xb") as new:
            new.truncate(BYTES)


def _lives(path: Path) -> bool:
    """Whether the worker with a file lives."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
