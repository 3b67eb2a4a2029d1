"""Runs one command in a bubblewrap box and guarantees that it is dead afterwards.

    bubblewrap starts → reports the pid of the box's first process → the process gets its limits → the gate opens
    → output is kept, and limits are checked 20 times a second → the command ends, or reaches a limit
    → the first process is killed, and the kernel kills everything else in its pid namespace with it

Processes are held by pidfds, not by pids: a pidfd always means the same process, and the kernel reuses pids. The thread that
starts a command must live until the command ends, because bubblewrap dies with it.
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

from assay.judge.sandbox import Bound, InfrastructureError, Limits, Ran
from assay.judge.sandbox.cgroups import Group
from assay.judge.sandbox.root import Owner
from assay.judge.sandbox.scratch import kill_named
from assay.judge.sandbox.socket_proxy import Door
from assay.judge.sandbox.usage import BoxView, DiskWatch, ready

_CHUNK = 1 << 16
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Capture:
    """Two pipes that a command writes to, and two files on the host that keep what it wrote."""

    def __init__(self, stdout: Path, stderr: Path, most: int, owner: tuple[int, int] | None) -> None:
        """most: bytes that both files may have together. owner: uid and gid that may open the pipes by name, as `> /dev/stderr`
        does. Raises InfrastructureError.
        """
        self.dropped = 0
        self._left = most
        self._files: dict[int, int] = {}
        self.ends: list[int] = []
        """The ends that the command gets as its stdout and stderr."""
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
            raise InfrastructureError(f"the output cannot be written: {error.strerror}", file=error.filename or stdout) from error

    @property
    def pipes(self) -> list[int]:
        """The pipes that can still be read; a pipe that has ended is not among them."""
        return list(self._files)

    def started(self) -> None:
        """Closes this process's copies of the command's ends, so that the pipes end when the command closes them."""
        for end in self.ends:
            os.close(end)
        self.ends = []

    def read(self, pipe: int) -> bool:
        """Reads once from a pipe and keeps the data; False if the pipe has ended. Raises InfrastructureError."""
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            os.close(pipe)
            os.close(self._files.pop(pipe))
            return False
        within = data[: self._left]
        self._left -= len(within)
        self.dropped += len(data) - len(within)
        append(self._files[pipe], within)
        return True

    def rest(self) -> None:
        """Keeps what is still in the pipes, after every process that could write is dead. Raises InfrastructureError."""
        for pipe in self.pipes:
            while pipe in self._files:
                before = self.dropped, self._left
                if not self.read(pipe) or (self.dropped, self._left) == before:
                    break

    def close(self) -> None:
        """Closes the pipes and the files."""
        for number in (*self.ends, *self._files, *self._files.values()):
            with suppress(OSError):
                os.close(number)
        self.ends, self._files = [], {}


def append(file: int, data: bytes) -> None:
    """Writes all of a command's output to a file of the host. Raises InfrastructureError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(file, view) :]
        except OSError as error:
            what = "the host's disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
            raise InfrastructureError(f"the output cannot be written: {what}") from error


def input_of(data: bytes | int) -> int:
    """A descriptor from which a command can read these bytes, and to which it cannot write; a descriptor is duplicated."""
    if isinstance(data, int):
        return os.dup(data)
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
"""Exit codes of a command that does not exist, and of one that cannot be started, as shells use them."""
_LOOK = 0.05
"""Seconds between looks at the limits."""
_SOON = 0.01
"""Seconds until the first look."""
_PATIENCE = 120.0
"""Seconds to wait for bubblewrap's start and for the death of killed processes, which take milliseconds on a normal machine."""
_FAILED = (b"bwrap: execvp ", b"bwrap: Can't chdir to ")
"""The beginnings of bubblewrap's message if the box works and the command cannot start."""


@dataclass(frozen=True)
class BoxCommand:
    """A command to run in a box, with its limits, its input and its output files."""

    line: Callable[[int, int], Sequence[str]]
    """Makes bubblewrap's command line from two descriptors: one that it reports to, and one that it waits for."""
    passed: Sequence[int]
    """Further descriptors that bubblewrap inherits."""
    folder: Path
    """The box's folder. Its processes name it in their command lines, so they can be found without their pids."""
    owner: Owner
    limits: Limits
    group: Group
    watch: DiskWatch
    stdin: bytes | int
    stdout: Path
    stderr: Path
    door: Path | None


def supervise(command: BoxCommand) -> Ran:
    """Runs the command. Whatever happens, none of its processes is alive afterwards. Raises InfrastructureError."""
    try:
        with ExitStack() as stack:
            supervision: _Supervision | None = None
            try:
                with _signals_held():
                    supervision = _Supervision(command, stack)
                return supervision.run()
            finally:
                if supervision is not None:
                    supervision.kill()
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the host's disk is full" if full else f"the sandbox broke: {error.strerror or error}"
        raise InfrastructureError(what, file=error.filename) from error


@contextmanager
def _signals_held() -> Iterator[None]:
    """Delays signals that have Python handlers: a handler that raises while a process is being started would lose that process.

    At that moment Python does not know the child's pid, and the child has no command line by which to find it. Handlers run only
    in the main thread. A signal mask is no solution, because the child would inherit it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, lambda number, _frame: heard.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for code in heard:
            signal.raise_signal(code)


class _Supervision:
    """One bubblewrap process, from its start to its death."""

    def __init__(self, command: BoxCommand, stack: ExitStack) -> None:
        self._command, self._stack = command, stack
        self._first: int | None = None
        self._view: BoxView | None = None
        self._alive = True
        self._reported = b""
        self._capture = Capture(command.stdout, command.stderr, command.limits.output, command.owner.chown)
        stack.callback(self._capture.close)
        with ExitStack() as inherited:
            self._status, status = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            stack.callback(os.close, self._status)
            inherited.callback(os.close, status)
            out, self._gate = os.pipe2(os.O_CLOEXEC)
            stack.callback(os.close, self._gate)
            inherited.callback(os.close, out)
            # bubblewrap holds the gate open for writing too, so if this process dies, the gate never ends and nothing starts.
            gate = os.open(f"/proc/self/fd/{out}", os.O_RDWR | os.O_CLOEXEC)
            inherited.callback(os.close, gate)
            stdin = input_of(command.stdin)
            inherited.callback(os.close, stdin)
            self._process = self._popen(status, gate, stdin)
        try:
            self._outer = os.pidfd_open(self._process.pid)
        except OSError:
            self._process.kill()
            self._process.wait()
            kill_named(command.folder)
            raise
        stack.callback(os.close, self._outer)
        self._capture.started()

    def run(self) -> Ran:
        """Runs the command until it ends or reaches a limit, and returns how it went. Raises InfrastructureError."""
        command = self._command
        stopped: Bound | None = None
        began = time.monotonic()
        if self._meet():
            began = time.monotonic()
            stopped = self._watch()
        wall = time.monotonic() - began
        stopped = stopped or command.group.look(self._view)
        self.kill()
        self._capture.rest()
        if command.watch.over() and stopped is None:
            stopped = "disk"
        if self._capture.dropped and stopped is None:
            stopped = "output"
        code = self._code() if stopped is None else None
        return Ran(code, stopped, wall, command.group.cpu_seconds(), command.group.peak(), self._capture.dropped)

    def kill(self) -> None:
        """Kills all processes of the box and waits until they are dead. Raises InfrastructureError."""
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
            # The first process of a namespace is dead only when every other process in it is dead.
            if handle is not None and not ready([handle], _PATIENCE):
                raise InfrastructureError("the processes of a box cannot be killed", file=self._command.folder)
        self._process.wait()
        if self._first is None:
            kill_named(self._command.folder)
        self._alive = False

    def _popen(self, status: int, gate: int, stdin: int) -> subprocess.Popen[bytes]:
        line, passed = self._command.line(status, gate), (status, gate, *self._command.passed)
        stdout, stderr = self._capture.ends
        return subprocess.Popen(
            line, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=passed, env={}, cwd="/", start_new_session=True
        )

    def _meet(self) -> bool:
        """Waits for the box's first process and sets its limits; False if bubblewrap ended before the gate opened."""
        self._command.group.early(self._process.pid)
        until = time.monotonic() + _PATIENCE
        while not self._know():
            events = ready([self._status, self._outer], until - time.monotonic())
            if not events:
                raise InfrastructureError("bubblewrap does not start", hint="the machine may be overloaded: use fewer jobs")
            if not self._hear() and self._outer in events:
                return False
        assert self._first is not None
        pid = self._pid
        self._command.group.add(pid)
        if self._command.door is not None:
            self._stack.callback(Door(pid, self._command.door).close)
        self._view = BoxView(pid, self._first)
        self._stack.callback(self._view.close)
        return True

    def _watch(self) -> Bound | None:
        """Opens the gate, and returns when the command has ended (None) or has reached a limit."""
        command, capture = self._command, self._capture
        assert self._view is not None
        with selectors.DefaultSelector() as selector:
            for number in (self._outer, *capture.pipes):
                selector.register(number, selectors.EVENT_READ)
            with suppress(BrokenPipeError):  # bubblewrap was killed just now; the loop below notices
                os.write(self._gate, b"!")
            now = time.monotonic()
            deadline, look = now + command.limits.seconds, now + _SOON
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
                    if bound := command.group.look(self._view):
                        return bound
                    if command.watch.look(self._view):
                        return "disk"
                    now = time.monotonic()
                    look = now + _LOOK

    def _hear(self) -> bool:
        """Reads what bubblewrap reports; False if it has closed the pipe."""
        while True:
            try:
                data = os.read(self._status, 4096)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._reported += data

    def _know(self) -> bool:
        """Opens a pidfd of the first process as soon as its pid is known; whether there is one."""
        if self._first is None and (match := re.search(rb'"child-pid": (\d+)\D', self._reported)):
            self._pid = int(match[1])
            with suppress(ProcessLookupError):
                self._first = os.pidfd_open(self._pid)
                self._stack.callback(os.close, self._first)
        return self._first is not None

    def _code(self) -> int:
        """The command's exit code. Raises InfrastructureError if bubblewrap failed or was killed, so that there is none."""
        self._hear()
        # A command can make the first process report any number, so no number counts as InfrastructureError.
        if match := re.search(rb'"exit-code": (-?\d+)', self._reported):
            return int(match[1]) & 0xFF
        code = self._process.returncode
        if code < 0:
            raise InfrastructureError(f"bubblewrap was killed from outside, by signal {-code}")
        with open(self._command.stderr, "rb") as file:
            message = file.read(2000).strip()
        if message.startswith(_FAILED):
            return NOT_FOUND if message.endswith(b"No such file or directory") else NOT_STARTED
        raise InfrastructureError(
            f"bubblewrap could not make the box: {message.decode(errors='replace') or f'it ended with exit code {code}'}",
            hint="run `assay sandbox check`: it shows what this machine lacks",
        )
