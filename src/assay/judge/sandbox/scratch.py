"""Where runs of Assay keep their boxes, and how a later run clears what a dead one left there.

    /var/tmp/assay-UID/            or $ASSAY_SCRATCH
        lock                       held while a run's folder is made or cleared
        images/…                   built images, see `images`
        run-XXXXXXXX/              one per run
            alive                  locked for as long as the run lives, however it ends
            box-N/root/            one per box, see `again`

A process of a dead run is known by its command line, which names the run's folder.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import secrets
import signal
import stat
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from assay.judge import tree
from assay.judge.sandbox import Trouble

__all__ = ["BEHIND", "Scratch", "kill_named"]

_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_PATIENCE = 60.0
BEHIND = 8
"""Boxes that may be being removed."""


class _Removal:
    """A folder that is being removed, by a program: a thread whose start a signal breaks off keeps Python from ever ending."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rm: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            line = ["rm", "-rf", "--one-file-system", "--", str(folder)]
            self._rm = subprocess.Popen(line, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def over(self) -> bool:
        """Whether the program has ended."""
        return self._rm is None or self._rm.poll() is not None

    def finish(self) -> None:
        """Waits for the program; what it could not remove is done with care. Raises OSError."""
        if self._rm is not None:
            self._rm.wait()
        tree.remove(self._folder)


class _RunFolder:
    """One run's folder, and what is no longer needed in it and being removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = os.getpid()
        folder.mkdir(mode=0o711)
        os.chmod(folder, 0o711)
        self._alive = os.open(folder / "alive", _LOCK, 0o600)
        fcntl.flock(self._alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._going: deque[_Removal] = deque()
        self._taking = Lock()

    @property
    def ours(self) -> bool:
        """Whether this process made it, and not one that it was forked from."""
        return os.getpid() == self._process

    def remove(self, folder: Path) -> None:
        """Removes a folder soon. Raises OSError, also of an earlier removal."""
        gone = folder.with_name(f"gone-{folder.name}")
        os.rename(folder, gone)
        self._going.append(_Removal(gone))
        self._finish(BEHIND)

    def _finish(self, most: int) -> None:
        """Comes to the end of what is over, and of as many more as are over the bound."""
        while True:
            with self._taking:
                if not (len(self._going) > most or (self._going and self._going[0].over)):
                    return
                one = self._going.popleft()
            one.finish()

    def close(self) -> None:
        """Removes everything, unless this is a fork of the process that made it. Raises OSError."""
        if self.ours and self._alive >= 0:
            self._finish(0)
            with suppress(FileNotFoundError):
                for name in os.listdir(self.folder):
                    if name != "alive":
                        _Removal(self.folder / name).finish()
            with (
                suppress(FileNotFoundError),
                _locked(self.folder.parent),
            ):  # without its lock it looks dead, and a sweep would remove it at the same time
                tree.remove(self.folder)
            os.close(self._alive)
            self._alive = -1


class Scratch:
    """The folder of all runs of one user on this machine, and in it that of this run, which is made when it is first needed."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: instead of the usual place. Raises Trouble."""
        chosen = folder or os.environ.get("ASSAY_SCRATCH") or f"/var/tmp/assay-{os.geteuid()}"
        self.folder = Path(os.path.abspath(chosen))
        self._run: _RunFolder | None = None
        self._making = Lock()
        self._numbers = itertools.count()
        with _trouble(self.folder):
            self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            info = os.lstat(self.folder)
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
                raise Trouble("is not a folder that only we may write to", file=self.folder, hint="set ASSAY_SCRATCH")
            if os.geteuid() == 0:
                self._passable()

    @contextmanager
    def box(self) -> Iterator[Path]:
        """A new folder for a box, gone when the context ends. Raises Trouble.

        What is in it is removed in the background, because a disk that tells its device about every freed block takes its time.
        """
        run = self._ours()
        folder = run.folder / f"box-{next(self._numbers)}"
        with _trouble(folder):
            folder.mkdir(mode=0o711)
            os.chmod(folder, 0o711)
        try:
            yield folder
        finally:
            with _trouble(folder):
                run.remove(folder)

    def close(self) -> None:
        """Removes this run's folder; another is made if one is needed again. Raises Trouble."""
        with _trouble(self.folder), self._making:
            if self._run is not None:
                self._run.close()
                self._run = None

    def sweep(self) -> int:
        """Kills the processes and removes the folders of dead runs; returns how many. Raises Trouble."""
        removed = 0
        with _trouble(self.folder), _locked(self.folder):
            for run in sorted(self.folder.glob("run-*")):
                if (self._run and run == self._run.folder) or not _dead(run):
                    continue
                removed += 1 + kill_named(run)
                tree.remove(run)
        return removed

    def _ours(self) -> _RunFolder:
        with _trouble(self.folder), self._making:
            if self._run is None or not self._run.ours:
                with _locked(self.folder):
                    self._run = _RunFolder(self.folder / f"run-{secrets.token_hex(8)}")
                weakref.finalize(self, self._run.close)
            return self._run

    def _passable(self) -> None:
        """Boxes run as other users, who have to get here."""
        for folder in (self.folder, *self.folder.parents):
            if not os.stat(folder).st_mode & 0o001:
                raise Trouble(
                    "boxes run as users without rights, who cannot pass this folder",
                    file=folder,
                    hint="set ASSAY_SCRATCH to a place that everybody can get to, such as /var/tmp/assay",
                )


_HOLDING = threading.local()
"""The folders whose lock this thread holds."""


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time makes or removes runs. A thread may hold the lock twice: a garbage collection can close a run."""
    holding: set[Path] = _HOLDING.__dict__.setdefault("folders", set())
    if folder in holding:
        yield
        return
    lock = os.open(folder / "lock", _LOCK, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        holding.add(folder)
        try:
            yield
        finally:
            holding.remove(folder)
        fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough while another thread is starting a program
    finally:
        os.close(lock)


def kill_named(folder: Path) -> int:
    """Kills every process of bubblewrap whose command line names this folder; returns how many."""
    killed: set[int] = set()
    until = time.monotonic() + _PATIENCE
    while found := _named(folder):
        if time.monotonic() > until:
            raise Trouble(f"processes {', '.join(map(str, found))} cannot be killed", file=folder)
        for pid in found:
            with suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                try:
                    if pid in _named(folder, pid):  # still the same one
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                        killed.add(pid)
                finally:
                    os.close(handle)
        time.sleep(0.01)
    return len(killed)


def _named(folder: Path, *pids: int) -> list[int]:
    marks = (os.fsencode(folder) + b"/", os.fsencode(folder) + b"\0")
    found = []
    for pid in pids or [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        with suppress(OSError):
            if os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid):
                continue
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"\0--block-fd\0" in line and any(mark in line for mark in marks):
                found.append(pid)
    return found


def _dead(run: Path) -> bool:
    try:
        lock = os.open(run / "alive", _LOCK & ~os.O_CREAT)
    except FileNotFoundError:
        return True  # only half made or half removed, and no run is making or removing one now
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


@contextmanager
def _trouble(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Trouble(f"the sandbox's folder cannot be used: {error.strerror}", file=error.filename or place) from error
