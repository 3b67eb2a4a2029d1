"""The processes of a node: each part of its work is a fork, which ends when the node does; and the signals that end them all.

A node forks, and its main process has no threads: so a key is asked for once, a socket that listens stays open while its
process is begun again, and the memory that a child needs is given back when it ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["TROUBLE", "Child", "StopWaiting", "Stopping"]

TROUBLE = 1
"""The exit code of a child that failed without saying more."""

_PIPES = set[int]()
"""The ends that this process holds: when it is gone, its children read the end of theirs."""


class StopWaiting(BaseException):
    """Somebody asked for the end while the node waited."""


class Child:
    """A process that does one part of a node's work. work: returns its exit code; what it raises is printed."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._work = work
        self._pid: int | None = None
        self._write_end = -1

    @property
    def running(self) -> bool:
        """Whether it was begun and did not end, as far as `ended` was asked."""
        return self._pid is not None

    def begin(self) -> None:
        """Fork. The child ends, as by SIGTERM, when this process is gone."""
        follows, write_end = os.pipe()
        _PIPES.add(write_end)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        child = os.fork()
        if not child:
            self._carry_out(follows)
        self._pid, self._write_end = child, write_end
        os.close(follows)

    def wait(self) -> int:
        """Wait for the end; the exit code, below 0 for the signal that ended it."""
        code = self._ended(0)
        assert code is not None  # it was waited for
        return code

    def ended(self) -> int | None:
        """The exit code, if it ended since it was begun; None if it did not."""
        return self._ended(os.WNOHANG)

    def _ended(self, options: int) -> int | None:
        if self._pid is None:
            return None
        done, state = os.waitpid(self._pid, options)
        if not done:
            return None
        self._pid = None
        _PIPES.discard(self._write_end)
        os.close(self._write_end)
        return os.waitstatus_to_exitcode(state)

    def send(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def end(self, seconds: float) -> None:
        """Send SIGTERM, and wait for the end for so long; it ends by itself when this process is gone."""
        self.send(signal.SIGTERM)
        until = time.monotonic() + seconds
        while self.running and self.ended() is None and time.monotonic() < until:
            time.sleep(0.02)

    def _carry_out(self, follows: int) -> None:
        """Do the work of the process; it does not return."""
        code = TROUBLE
        try:
            os.setpgid(0, 0)  # Ctrl-C goes to the node, which tells its children
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            for pipe in _PIPES:  # with that of another child, this one would keep it from ending
                os.close(pipe)
            threading.Thread(target=_follow, args=(follows,), daemon=True).start()
            code = self._work()
        except SystemExit as ends:
            code = ends.code if isinstance(ends.code, int) else TROUBLE
        except BaseException:  # noqa: BLE001  (the process ends here, whatever it is)
            traceback.print_exc()
        finally:
            with suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


class Stopping:
    """SIGTERM and Ctrl-C: handed on to the children of a node, which ends when they have.

    stop_children: called when one comes. asked: whether one came.
    """

    def __init__(self, stop_children: Callable[[], None]) -> None:
        self._stop_children = stop_children
        self._waiting = False
        self.asked = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Hear the signals in the block."""

        def hear(_number: int, _frame: FrameType | None) -> None:
            self.asked = True
            self._stop_children()
            if self._waiting:
                raise StopWaiting

        before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """In the block, a signal raises StopWaiting."""
        self._waiting = True
        try:
            if self.asked:
                raise StopWaiting
            yield
        finally:
            self._waiting = False

    def sleep(self, seconds: float) -> None:
        """Sleep; raises StopWaiting when a signal comes, or came."""
        with self.at_once():
            time.sleep(seconds)


def _follow(number: int) -> None:
    """End this process, as SIGTERM does, when the process that holds the other end of a pipe is gone."""
    with suppress(OSError):
        os.read(number, 1)
    os.kill(os.getpid(), signal.SIGTERM)
