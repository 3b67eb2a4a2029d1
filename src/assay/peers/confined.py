"""Runs a library on a peer's bytes in a child process, with a bound on its memory and a deadline for every call.

Some formats only a library can decode, and it may turn a few hostile bytes into gigabytes. In a child that only ends the child.

    with Confined("package.module:Thing", argument) as thing:   # made in the child
        thing.call("method", 1, 2, seconds=5)                   # what Thing(argument).method(1, 2) returns

Arguments and results are what `marshal` supports: None, numbers, text, bytes, lists, tuples, dicts, sets. A method's ValueError,
KeyError, TypeError or OverflowError is raised here too, with its first words; any other error becomes NoAnswer.
"""

from __future__ import annotations

import marshal
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO, Self

from assay.peers import NoAnswer, Overrun, Silent

__all__ = ["MEMORY", "RESULT_BYTES", "Confined", "serve"]

MEMORY = 512 * 2**20
"""Bytes that a child may allocate after its library is loaded."""
RESULT_BYTES = 16 * 2**20
"""Bytes of one result."""
SECONDS = 60.0
"""Seconds for the child to start: a machine may be busy."""
_ERRORS: dict[str, type[Exception]] = {error.__name__: error for error in (ValueError, KeyError, TypeError, OverflowError)}
_HEAD = 8


class Confined:
    """An object in a child process: `MODULE:NAME`, called with arguments. Several threads may use it. Raises as `call` does."""

    def __init__(self, target: str, *args: Any, seconds: float = SECONDS, memory: int = MEMORY, most: int = RESULT_BYTES) -> None:
        self._most, self._lock = most, threading.Lock()
        words = [sys.executable, "-P", "-c", "from assay.peers.confined import serve; serve()"]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self._child = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=null, start_new_session=True)
        self._end = weakref.finalize(self, _ended, self._child)
        self._exchanged((target, memory, args), seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        self._end()

    @property
    def alive(self) -> bool:
        """Whether the child still runs."""
        return self._end.alive

    def call(self, name: str, *args: Any, seconds: float) -> Any:
        """The result of a method. A child that is late, too large or gone is ended. Raises NoAnswer (Silent, Overrun)."""
        return self._exchanged((name, args), seconds)

    def _exchanged(self, message: Any, seconds: float) -> Any:
        with self._lock:
            if not self.alive:
                raise NoAnswer("it was ended before")
            try:
                return _result(self._spoken(marshal.dumps(message), time.monotonic() + seconds))
            except NoAnswer:
                self.close()
                raise

    def _spoken(self, data: bytes, until: float) -> bytes:
        """Send a message and return the answer, before the time is over."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        there, back = self._child.stdin.fileno(), self._child.stdout.fileno()
        os.set_blocking(there, False)
        left, received = memoryview(len(data).to_bytes(_HEAD, "big") + data), bytearray()
        poll = select.poll()
        poll.register(back, select.POLLIN)
        poll.register(there, select.POLLOUT)
        while True:
            seconds = until - time.monotonic()
            ready = dict(poll.poll(max(0.0, seconds) * 1000))
            if seconds <= 0:
                raise Silent("it took too long", whole=True)
            if there in ready and left:
                with suppress(BlockingIOError, BrokenPipeError):  # if the child is gone, its answer ends too
                    left = left[os.write(there, left) :]
                if not left:
                    poll.unregister(there)
            if back in ready:
                piece = os.read(back, 2**20)
                received += piece
                if not piece:
                    raise Overrun("it takes more memory than it may")  # or it crashed
                length = int.from_bytes(received[:_HEAD], "big")
                if len(received) >= _HEAD and length > self._most:
                    raise Overrun(f"it comes to more than {self._most} bytes")
                if len(received) >= _HEAD + length and len(received) >= _HEAD:
                    return bytes(received[_HEAD : _HEAD + length])


def _result(data: bytes) -> Any:
    try:
        kind, value = marshal.loads(data)
    except (ValueError, EOFError, TypeError):
        raise NoAnswer("it sent an impossible answer") from None
    if kind == "done":
        return value
    if kind in _ERRORS:
        raise _ERRORS[kind](value)
    raise Overrun("it takes more memory than it may") if kind == "MemoryError" else NoAnswer(f"it failed ({kind})")


def _ended(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    child.wait()


def serve() -> None:
    """Run the child: make the object, then answer calls until the parent is gone."""
    there, back = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library's prints must not mix with the answers
    target, memory, args = _message(there)
    target_object: Any = None

    def begin() -> None:
        nonlocal target_object
        module, _, name = target.partition(":")
        kind = getattr(import_module(module), name)
        _bound(memory)
        target_object = kind(*args)

    _answer(back, begin)
    while True:
        name, args = _message(there)
        _answer(back, lambda name=name, args=args: getattr(target_object, name)(*args))


def _message(there: BinaryIO) -> Any:
    head = there.read(_HEAD)
    if len(head) < _HEAD:
        os._exit(0)
    return marshal.loads(there.read(int.from_bytes(head, "big")))


def _answer(back: BinaryIO, act: Any) -> None:
    try:
        data = marshal.dumps(("done", act()))
    except BaseException as error:  # noqa: BLE001  (every error is an answer)
        message = str(error.args[0] if error.args else error)[:500].encode("utf-8", "replace").decode()
        known = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
        data = marshal.dumps((next(known, type(error).__name__), message))
    back.write(len(data).to_bytes(_HEAD, "big") + data)
    back.flush()


def _bound(memory: int) -> None:
    """Limit this process to so much more memory than it has now, if the system can count it."""
    import resource

    with suppress(OSError, ValueError), open("/proc/self/statm") as file:
        now = int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_DATA, (now + memory, now + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
