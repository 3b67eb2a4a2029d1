"""Another implementation as a process: one line of JSON in for each case, one line out. SPEC 6.

    in   {"kind": "tests", "input": {"passed": 73, "trials": 91}}
    out  {"score": "0.802197802"}     or   {"refused": true}     or   {"unsupported": true}

One process answers one case file, in order. It may take its time within limits; what it says on stderr is kept for the report.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from assay.errors import BadInput
from assay.folder import strict

__all__ = ["ANSWER_BYTES", "SECONDS", "Failed", "answers", "words"]

SECONDS = 60.0
"""How long an answer may take."""
ENDING = 10.0
"""How long a process may take to end, once it has given its last answer or closed its output."""
ANSWER_BYTES = 16_000_000
"""The longest line that is read as an answer."""
KEPT = 2_000
"""Bytes of stderr that are kept, the last ones."""
AHEAD = 8
"""Answers that are read before they are looked at: one that talks without end is not taken in without end."""

_END = b""


@dataclass(frozen=True)
class Failed:
    """An answer that did not come, or was none, and why."""

    why: str


@dataclass
class _Process:
    """A running command with its three pipes attended to by threads, so that neither side waits for the other."""

    popen: subprocess.Popen[bytes]
    lines: queue.Queue[bytes] = field(default_factory=lambda: queue.Queue(AHEAD))
    said: bytearray = field(default_factory=bytearray)
    threads: list[threading.Thread] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def attend(self, requests: Sequence[bytes]) -> None:
        for target, arguments in ((self._ask, (requests,)), (self._listen, ()), (self._overhear, ())):
            thread = threading.Thread(target=target, args=arguments, daemon=True)
            thread.start()
            self.threads.append(thread)

    def _ask(self, requests: Sequence[bytes]) -> None:
        pipe = _pipe(self.popen.stdin)
        with contextlib.suppress(OSError, ValueError):  # it ended, or closed its stdin: the missing answers tell
            for request in requests:
                pipe.write(request)
            pipe.flush()
        with contextlib.suppress(OSError, ValueError):
            pipe.close()

    def _listen(self) -> None:
        pipe = _pipe(self.popen.stdout)
        with contextlib.suppress(OSError, ValueError):
            while line := pipe.readline(ANSWER_BYTES + 1):
                self._hear(line)
                if len(line) > ANSWER_BYTES:
                    break
        self._hear(_END)

    def _hear(self, line: bytes) -> None:
        while not self.over.is_set():
            with contextlib.suppress(queue.Full):
                self.lines.put(line, timeout=0.1)
                return

    def _overhear(self) -> None:
        pipe = _pipe(self.popen.stderr)
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(pipe.fileno(), 65_536):
                self.said += chunk
                del self.said[:-KEPT]

    def next(self, seconds: float) -> bytes | None:
        """The next line; nothing at the end; None if it takes too long."""
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return None

    def end(self) -> None:
        """Stop it and whatever it started, and let the threads go."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self.over.set()
        for thread in self.threads:
            thread.join(ENDING)
        for pipe, thread in zip((self.popen.stdin, self.popen.stdout, self.popen.stderr), self.threads, strict=True):
            if pipe is not None and not thread.is_alive():
                with contextlib.suppress(OSError):
                    pipe.close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:  # pragma: no cover  (all three are asked for)
        raise ValueError("no pipe")
    return pipe


def words(command: str) -> list[str]:
    """The command in words, as a shell would split it; raises BadInput if there is none."""
    try:
        found = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"{command[:80]!r} is not a command ({error})", hint="close the quotes") from None
    if not found:
        raise BadInput("the command is empty", hint='say which, as in --with "./my-validator --cases"')
    return found


def answers(command: Sequence[str], kind: str, inputs: Sequence[str], seconds: float = SECONDS) -> Iterator[Any]:
    """What a command answers to each input, or Failed; one Failed more if it does not end well; BadInput if it cannot run.

    inputs: JSON, each on one line, sent as it is.
    """
    try:
        popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise BadInput(f"{command[0]!r} cannot be run ({error.strerror})", hint="check its path and permissions") from None
    process = _Process(popen)
    try:
        process.attend([f'{{"input":{given},"kind":"{kind}"}}\n'.encode() for given in inputs])
        yield from _collected(process, len(inputs), seconds)
    finally:
        process.end()


def _collected(process: _Process, count: int, seconds: float) -> Iterator[Any]:
    for place in range(count):
        line = process.next(seconds)
        if not line or len(line) > ANSWER_BYTES:
            yield Failed(_ended(process) if line == _END else _silent(line, seconds))
            yield from (Failed("not asked: the command had failed before") for _ in range(place + 1, count))
            return
        yield _parsed(line)
    last = process.next(ENDING)
    if last is None:
        yield Failed(f"it did not end within {ENDING:g} s after the last answer")
    elif last != _END:
        yield Failed(f"it answers more than it is asked: {_short(last)}")
    elif _code(process) != 0:
        yield Failed(_ended(process))


def _code(process: _Process) -> int | None:
    """The exit code; None if it closed its output and runs on."""
    try:
        return process.popen.wait(ENDING)
    except subprocess.TimeoutExpired:
        return None


def _ended(process: _Process) -> str:
    code = _code(process)
    if code is None:
        return "it closed its output"
    process.threads[2].join(ENDING)
    said = bytes(process.said).decode(errors="replace").strip()
    return f"it ended with exit code {code}; it said: {said}" if said else f"it ended with exit code {code}"


def _silent(line: bytes | None, seconds: float) -> str:
    return f"no answer within {seconds:g} s" if line is None else f"an answer of more than {ANSWER_BYTES} bytes"


def _parsed(line: bytes) -> Any:
    try:
        return strict.parse(line.decode())
    except (UnicodeDecodeError, BadInput):
        return Failed(f"not a line of JSON: {_short(line)}")


def _short(line: bytes) -> str:
    text = line[:120].decode(errors="replace").strip()
    return f"{text!a}" if len(line) <= 120 else f"{text!a}…"
