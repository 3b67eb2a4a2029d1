"""Keeps the folders of boxes on disk, and clears what dead runs of Assay left there.

    /var/tmp/assay-UID/            or $ASSAY_SCRATCH
        lock                       locked while a run's folder is made or removed
        images/…                   built images, see `images`
        run-XXXXXXXX/              one per run
            alive                  locked as long as the run lives; the kernel frees the lock
            box-N/root/            one per box, see `reuse`

A process of a dead run is recognised by its command line, which names the run's folder.
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
from assay.judge.sandbox import InfrastructureError

__all__ = ["BEHIND", "Scratch", "kill_named"]

_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_PATIENCE = 60.0
BEHIND = 8
"""The number of boxes that may be in removal at once."""


class _Removal:
    """Removes a folder in the background, with `rm`.

    A thread would not do: if a signal interrupts the start of a thread, Python may never end.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rm: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            line = ["rm", "-rf", "--one-file-system", "--", str(folder)]
            self._rm = subprocess.Popen(line, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def over(self) -> bool:
        """Whether `rm` has ended."""
        return self._rm is None or self._rm.poll() is not None

    def finish(self) -> None:
        """Waits for `rm`, and removes what it could not remove. Raises OSError."""
        if self._rm is not None:
            self._rm.wait()
        tree.remove(self._folder)


class _RunFolder:
    """The folder of one run, and the removals under way in it."""

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
        """Whether this process made the folder, and not a process that it was forked from."""
        return os.getpid() == self._process

    def remove(self, folder: Path) -> None:
        """Starts to remove a folder. Raises OSError, also for an earlier removal."""
        gone = folder.with_name(f"gone-{folder.name}")
        os.rename(folder, gone)
        self._going.append(_Removal(gone))
        self._finish(BEHIND)

    def _finish(self, most: int) -> None:
        """Finishes the removals that have ended, and waits for the oldest others until at most `most` are left."""
        while True:
            with self._taking:
                if not (len(self._going) > most or (self._going and self._going[0].over)):
                    return
                removal = self._going.popleft()
            removal.finish()

    def close(self) -> None:
        """Removes the run's folder, unless this process is a fork of the one that made it. Raises OSError."""
        if self.ours and self._alive >= 0:
            self._finish(0)
            with suppress(FileNotFoundError):
                for name in os.listdir(self.folder):
                    if name != "alive":
                        _Removal(self.folder / name).finish()
            # The run looks dead once its lock file is removed; a sweep would then remove it at the same time.
            with suppress(FileNotFoundError), _locked(self.folder.parent):
                tree.remove(self.folder)
            os.close(self._alive)
            self._alive = -1


class Scratch:
    """The folder of all runs of one user, and in it the folder of this run, which is made when first needed."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: instead of the default folder. Raises InfrastructureError."""
        chosen = folder or os.environ.get("ASSAY_SCRATCH") or f"/var/tmp/assay-{os.geteuid()}"
        self.folder = Path(os.path.abspath(chosen))
        self._run: _RunFolder | None = None
        self._making = Lock()
        self._numbers = itertools.count()
        with _host_errors(self.folder):
            self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            info = os.lstat(self.folder)
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
                what = "must be a folder that belongs to you and that only you may write to"
                raise InfrastructureError(what, file=self.folder, hint="set ASSAY_SCRATCH")
            if os.geteuid() == 0:
                self._check_passable()

    @contextmanager
    def box(self) -> Iterator[Path]:
        """A new folder for a box, removed when the context ends. Raises InfrastructureError.

        It is removed in the background: that is slow on a disk that reports every freed block to its device.
        """
        run = self._ours()
        folder = run.folder / f"box-{next(self._numbers)}"
        with _host_errors(folder):
            folder.mkdir(mode=0o711)
            os.chmod(folder, 0o711)
        try:
            yield folder
        finally:
            with _host_errors(folder):
                run.remove(folder)

    def close(self) -> None:
        """Removes this run's folder; a later box makes another one. Raises InfrastructureError."""
        with _host_errors(self.folder), self._making:
            if self._run is not None:
                self._run.close()
                self._run = None

    def sweep(self) -> int:
        """Kills the processes and removes the folders of dead runs, and returns how many of both. Raises InfrastructureError."""
        removed = 0
        with _host_errors(self.folder), _locked(self.folder):
            for run in sorted(self.folder.glob("run-*")):
                if (self._run and run == self._run.folder) or not _dead(run):
                    continue
                removed += 1 + kill_named(run)
                tree.remove(run)
        return removed

    def _ours(self) -> _RunFolder:
        with _host_errors(self.folder), self._making:
            if self._run is None or not self._run.ours:
                with _locked(self.folder):
                    self._run = _RunFolder(self.folder / f"run-{secrets.token_hex(8)}")
                weakref.finalize(self, self._run.close)
            return self._run

    def _check_passable(self) -> None:
        """Raises InfrastructureError if a box's user, who has no rights, cannot reach the folder."""
        for folder in (self.folder, *self.folder.parents):
            if not os.stat(folder).st_mode & 0o001:
                raise InfrastructureError(
                    "boxes run as users without rights, and these cannot enter this folder",
                    file=folder,
                    hint="set ASSAY_SCRATCH to a folder that every user can reach, such as /var/tmp/assay",
                )


_HOLDING = threading.local()
"""The folders whose lock this thread holds."""


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lets one process at a time make or remove folders of runs.

    A thread may enter twice: a garbage collection can close a run at any moment.
    """
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
        fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough: a program that another thread is starting holds the file too
    finally:
        os.close(lock)


def kill_named(folder: Path) -> int:
    """Kills every bubblewrap process whose command line names this folder, and returns how many. Raises InfrastructureError."""
    killed: set[int] = set()
    until = time.monotonic() + _PATIENCE
    while pids := _named(folder):
        if time.monotonic() > until:
            raise InfrastructureError(f"processes {', '.join(map(str, pids))} cannot be killed", file=folder)
        for pid in pids:
            with suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                try:
                    if pid in _named(folder, pid):  # still the same process
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                        killed.add(pid)
                finally:
                    os.close(handle)
        time.sleep(0.01)
    return len(killed)


def _named(folder: Path, *pids: int) -> list[int]:
    """The bubblewrap processes, all or among these, whose command lines name the folder."""
    marks = (os.fsencode(folder) + b"/", os.fsencode(folder) + b"\0")
    matching = []
    for pid in pids or [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        with suppress(OSError):
            if os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid):
                continue
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"\0--block-fd\0" in line and any(mark in line for mark in marks):
                matching.append(pid)
    return matching


def _dead(run: Path) -> bool:
    """Whether the run of a folder has ended."""
    try:
        lock = os.open(run / "alive", _LOCK & ~os.O_CREAT)
    except FileNotFoundError:
        return True  # half made or half removed, and the lock shows that no run is doing that now
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


@contextmanager
def _host_errors(place: Path) -> Iterator[None]:
    """Turns OSError into InfrastructureError. place: the file to name if the error names none."""
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"the sandbox's folder cannot be used: {error.strerror}", file=error.filename or place
        ) from error
