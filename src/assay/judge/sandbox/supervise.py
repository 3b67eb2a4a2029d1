"""What a command prints, kept in files of the host up to a bound on both together.

One command in a box, from start to death.

    bubblewrap is started → tells the number of the box's first process → that one is put under its bounds → the gate opens
    → output is kept, bounds are looked at 20 times a second → the command ended, or ran into a bound
    → the first process is killed, and with it, by the kernel's rule, everything in its process namespace

Processes are held by descriptors, which stay with the process they were opened for, and not by numbers, which do not.
The thread that starts a command has to live until it ends: bubblewrap dies with it.
"""

from __future__ import annotations

import errno
import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from assay.judge.sandbox import Bound, Limits, Ran, Trouble
from assay.judge.sandbox.cgroups import Group
from assay.judge.sandbox.root import Owner
from assay.judge.sandbox.scratch import kill_named
from assay.judge.sandbox.socket_proxy import Door
from assay.judge.sandbox.usage import BoxView, DiskWatch, ready

_CHUNK = 1 << 16
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Capture:
    """Two pipes that a command writes to, and two files that what comes out of them is kept in."""

    def __init__(self, stdout: Path, stderr: Path, most: int, owner: tuple[int, int] | None) -> None:
        """most: bytes kept of both. owner: who may open the pipes by name, as `> /dev/stderr` does. Raises Trouble."""
        self.dropped = 0
        self._left = most
        self._files: dict[int, int] = {}
        self.ends: list[int] = []
        """What the command gets as its stdout and stderr."""
        try:
            for path in (stdout, stderr):
                file = os.open(path, _NEW, 0o600)
                try:
                    out, into = os.pipe2(os.O_CLOEXEC)
                except OSError:
                    os.close(file)
                    raise
                self._files[out] = file
                self.ends.append(into)
                os.set_blocking(out, False)
                if owner is not None:
                    os.fchown(into, *owner)
        except OSError as error:
            self.close()
            raise Trouble(f"output cannot be kept: {error.strerror}", file=error.filename or stdout) from error

    @property
    def pipes(self) -> list[int]:
        """What there is to read from; a pipe that is at its end is not among them any more."""
        return list(self._files)

    def started(self) -> None:
        """Forgets the command's ends, which it has by now, so that their end can be seen."""
        for end in self.ends:
            os.close(end)
        self.ends = []

    def read(self, pipe: int) -> bool:
        """Keeps what has come so far; False if nothing will come any more. Raises Trouble."""
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            os.close(pipe)
            os.close(self._files.pop(pipe))
            return False
        kept = data[: self._left]
        self._left -= len(kept)
        self.dropped += len(data) - len(kept)
        self._keep(self._files[pipe], kept)
        return True

    def rest(self) -> None:
        """Keeps what is still in the pipes when everything that could write is dead. Raises Trouble."""
        for pipe in self.pipes:
            while pipe in self._files:
                before = self.dropped, self._left
                if not self.read(pipe) or (self.dropped, self._left) == before:
                    break

    def close(self) -> None:
        """Closes everything."""
        for number in (*self.ends, *self._files, *self._files.values()):
            with suppress(OSError):
                os.close(number)
        self.ends, self._files = [], {}

    @staticmethod
    def _keep(file: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(file, view) :]
            except OSError as error:
                what = "the host's disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
                raise Trouble(f"output cannot be kept: {what}") from error


def given(data: bytes) -> int:
    """A descriptor that a command can read these bytes from, and not write to."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    memory = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(memory, view) :]
        os.fchmod(memory, 0o444)
        return os.open(f"/proc/self/fd/{memory}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(memory)


NOT_FOUND, NOT_STARTED = 127, 126
"""Exit codes of a command that is not there, and of one that cannot be started, as shells have them."""
_LOOK = 0.05
_SOON = 0.01
"""Until the first look."""
_PATIENCE = 120.0
"""Seconds for what takes milliseconds unless the machine is overloaded: bubblewrap's start, and the death of what was killed."""
_FAILED = (b"bwrap: execvp ", b"bwrap: Can't chdir to ")
"""How bubblewrap says that all is well with the box, and not with the command."""


@dataclass(frozen=True)
class BoxCommand:
    """A command to be run, and everything around it."""

    line: Callable[[int, int], Sequence[str]]
    """Makes bubblewrap's command line from two descriptors: where it reports, and what it waits for."""
    passed: Sequence[int]
    """Descriptors that bubblewrap gets besides."""
    folder: Path
    """The box's, by which its processes are known if all else fails."""
    owner: Owner
    limits: Limits
    group: Group
    watch: DiskWatch
    stdin: bytes
    stdout: Path
    stderr: Path
    door: Path | None


def supervise(task: BoxCommand) -> Ran:
    """Runs it; whatever happens, nothing of it is alive afterwards. Raises Trouble."""
    try:
        with ExitStack() as stack:
            run: _Supervision | None = None
            try:
                with _unbroken():
                    run = _Supervision(task, stack)
                return run.ran()
            finally:
                if run is not None:
                    run.kill()
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the host's disk is full" if full else f"the sandbox broke: {error.strerror or error}"
        raise Trouble(what, file=error.filename) from error


@contextmanager
def _unbroken() -> Iterator[None]:
    """Has signals wait whose handlers are Python's: one that raises while a process is being started would lose that process.

    What starts is nobody's child that we know by then, and has no command line yet by which it could be found. Handlers run in
    the main thread only; they cannot be held back by a mask, which the process would inherit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    held = {number: handler for number, handler in before.items() if callable(handler)}
    try:
        for number in held:
            signal.signal(number, lambda number, _frame: heard.append(number))
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for code in heard:
            signal.raise_signal(code)


class _Supervision:
    def __init__(self, task: BoxCommand, stack: ExitStack) -> None:
        self._task, self._stack = task, stack
        self._first: int | None = None
        self._view: BoxView | None = None
        self._alive = True
        self._said = b""
        self._capture = Capture(task.stdout, task.stderr, task.limits.output, task.owner.chown)
        stack.callback(self._capture.close)
        with ExitStack() as theirs:
            self._status, status = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            stack.callback(os.close, self._status)
            theirs.callback(os.close, status)
            out, self._gate = os.pipe2(os.O_CLOEXEC)
            stack.callback(os.close, self._gate)
            theirs.callback(os.close, out)
            # Open for writing as well, a pipe never ends: if we die before the gate opens, bubblewrap waits and starts nothing.
            gate = os.open(f"/proc/self/fd/{out}", os.O_RDWR | os.O_CLOEXEC)
            theirs.callback(os.close, gate)
            stdin = given(task.stdin)
            theirs.callback(os.close, stdin)
            self._process = self._popen(status, gate, stdin)
        try:
            self._outer = os.pidfd_open(self._process.pid)
        except OSError:
            self._process.kill()
            self._process.wait()
            kill_named(task.folder)
            raise
        stack.callback(os.close, self._outer)
        self._capture.started()

    def ran(self) -> Ran:
        """The whole of it."""
        task = self._task
        stopped: Bound | None = None
        began = time.monotonic()
        if self._meet():
            began = time.monotonic()
            stopped = self._watch()
        wall = time.monotonic() - began
        stopped = stopped or task.group.look(self._view)
        self.kill()
        self._capture.rest()
        if task.watch.over() and stopped is None:
            stopped = "disk"
        if self._capture.dropped and stopped is None:
            stopped = "output"
        code = self._code() if stopped is None else None
        return Ran(code, stopped, wall, task.group.cpu_seconds(), task.group.peak(), self._capture.dropped)

    def kill(self) -> None:
        """Kills everything and waits until it is dead. Raises Trouble."""
        if not self._alive:
            return
        if self._first is None:
            self._hear()
            self._know()
        for handle in (self._first, self._outer):
            if handle is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
        for handle in (self._first, self._outer):
            # A first process is dead only when everything in its namespace is.
            if handle is not None and not ready([handle], _PATIENCE):
                raise Trouble("a box does not die", file=self._task.folder)
        self._process.wait()
        if self._first is None:
            kill_named(self._task.folder)
        self._alive = False

    def _popen(self, status: int, gate: int, stdin: int) -> subprocess.Popen[bytes]:
        line, passed = self._task.line(status, gate), (status, gate, *self._task.passed)
        stdout, stderr = self._capture.ends
        return subprocess.Popen(
            line, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=passed, env={}, cwd="/", start_new_session=True
        )

    def _meet(self) -> bool:
        """Waits for the box's first process and puts it under its bounds; False if bubblewrap ended before the gate opened."""
        self._task.group.early(self._process.pid)
        until = time.monotonic() + _PATIENCE
        while not self._know():
            said = ready([self._status, self._outer], until - time.monotonic())
            if not said:
                raise Trouble("bubblewrap does not start", hint="the machine may be overloaded: use fewer jobs")
            if not self._hear() and self._outer in said:
                return False
        assert self._first is not None
        pid = self._pid
        self._task.group.add(pid)
        if self._task.door is not None:
            self._stack.callback(Door(pid, self._task.door).close)
        self._view = BoxView(pid, self._first)
        self._stack.callback(self._view.close)
        return True

    def _watch(self) -> Bound | None:
        """Opens the gate, and comes back when the command has ended or ran into a bound."""
        task, capture = self._task, self._capture
        assert self._view is not None
        with selectors.DefaultSelector() as selector:
            for number in (self._outer, *capture.pipes):
                selector.register(number, selectors.EVENT_READ)
            with suppress(BrokenPipeError):  # it was killed just now, which is heard of in what follows
                os.write(self._gate, b"!")
            now = time.monotonic()
            deadline, look = now + task.limits.seconds, now + _SOON
            while True:
                for key, _events in selector.select(max(0.0, min(deadline, look) - now)):
                    if key.fd == self._outer:
                        return None
                    if not capture.read(key.fd):
                        selector.unregister(key.fd)
                if capture.dropped:
                    return "output"
                now = time.monotonic()
                if now >= deadline:
                    return "time"
                if now >= look:
                    if bound := task.group.look(self._view):
                        return bound
                    if task.watch.look(self._view):
                        return "disk"
                    now = time.monotonic()
                    look = now + _LOOK

    def _hear(self) -> bool:
        """Reads what bubblewrap reports; False if it will report no more."""
        while True:
            try:
                data = os.read(self._status, 4096)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._said += data

    def _know(self) -> bool:
        """Holds the first process if its number is known by now."""
        if self._first is None and (said := re.search(rb'"child-pid": (\d+)\D', self._said)):
            self._pid = int(said[1])
            with suppress(ProcessLookupError):
                self._first = os.pidfd_open(self._pid)
                self._stack.callback(os.close, self._first)
        return self._first is not None

    def _code(self) -> int:
        """The command's exit code. Raises Trouble if there is none, because bubblewrap failed or was killed."""
        self._hear()
        # A command may tell bubblewrap's first process what to report, and no number is trouble.
        if said := re.search(rb'"exit-code": (-?\d+)', self._said):
            return int(said[1]) & 0xFF
        code = self._process.returncode
        if code < 0:
            raise Trouble(f"bubblewrap was killed from outside, by signal {-code}")
        with open(self._task.stderr, "rb") as file:
            said_last = file.read(2000).strip()
        if said_last.startswith(_FAILED):
            return NOT_FOUND if said_last.endswith(b"No such file or directory") else NOT_STARTED
        raise Trouble(
            f"bubblewrap could not make the box: {said_last.decode(errors='replace') or f'it ended with {code}'}",
            hint="`assay sandbox check` says what this machine lacks",
        )
