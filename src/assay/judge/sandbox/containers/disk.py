"""The bound on what a command writes in a container.

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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from assay.judge import tree
from assay.judge.sandbox.box import Limits, Trouble
from assay.judge.sandbox.containers.engine import PATIENCE, talking
from assay.judge.sandbox.disk import SPARE
from assay.judge.sandbox.inside import Sockets, View

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Disk", "Files", "disk"]

_EVERY, _PACE = 0.1, 5
"""Seconds between looks, at least; and a look may take one part in so many of the time."""
_ASKED = 2.0
_ALL = 1 << 62


class Files(Protocol):
    """A way to find out what a container's files take up."""

    every: float
    """Seconds between looks, at least."""
    sockets: Sockets | None
    """The container's, where they can be seen."""

    def used(self, bounds: tree.Bounds | None = None) -> tuple[int, int]:
        """Bytes and entries. Raises tree.TooMuch over bounds, and Trouble."""

    def close(self) -> None:
        """Lets go of the container."""


class Disk:
    """What a command has written."""

    def __init__(self, files: Files, limits: Limits) -> None:
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


def disk(client: APIClient, about: Mapping[str, Any]) -> Files:
    """The best way there is for a container that runs; about: what the engine says of it."""
    pid = int(about["State"].get("Pid") or 0)
    if pid > 0 and os.geteuid() == 0:
        with suppress(OSError):
            return _Local(pid, about)
    return _Asked(client, str(about["Id"]))


class _Local:
    every = _EVERY

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
            self._view = View(pid, handle)
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


class _Asked:
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
