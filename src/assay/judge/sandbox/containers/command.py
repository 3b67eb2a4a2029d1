"""The first process of a container: a program of 400 bytes that we bring along, and that keeps the box alive and clears it.

- It is not taken from the image: an image may have no such program, and an agent may replace those that it has.
- Sent SIGUSR1 by the engine, it kills every other process until there is none, then writes one byte to its output.
- It ignores SIGCHLD, so that the kernel clears away what ends. It is not dumpable, so that nobody in the box may look into it or
  change it. And the kernel lets no signal from inside a box end its first process.

It is written below as the system calls it makes, and encoded for the engine's processor.

What a command in a container prints, kept in files of the host up to a bound on both together.

One command in a container, from start to death.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.judge.sandbox import Bound, Limits, Ran, Trouble
from assay.judge.sandbox.containers.engine import STDERR, STDOUT, Engine, Stream, stat, talking
from assay.judge.sandbox.containers.usage import Meter, WriteWatch

if TYPE_CHECKING:
    from docker import APIClient


ACK = b"."
"""What it writes when nothing else in the box is alive."""

_CHLD, _KILL, _USR1 = 17, 9, 10
_EVERYBODY = 0xFFFFFFFF  # -1, which is everybody but ourselves
_DATA = {
    "action": struct.pack("<4Q", 1, 0, 0, 0),  # SIG_IGN
    "signals": struct.pack("<Q", 1 << (_USR1 - 1)),
    "pause": struct.pack("<2Q", 0, 2_000_000),  # 2 ms
    "ack": ACK,
}

_Operand = int | str
_Step = tuple[str, str, tuple[_Operand, ...]]
"""What to do, the name of a call or label, operands: numbers and names of data."""


_STEPS: tuple[_Step, ...] = (
    ("call", "prctl", (4, 0)),  # PR_SET_DUMPABLE
    ("call", "rt_sigaction", (_CHLD, "action", 0, 8)),
    ("call", "rt_sigprocmask", (0, "signals", 0, 8)),  # SIG_BLOCK: a blocked signal waits, even for the first process
    ("label", "wait", ()),
    ("call", "rt_sigtimedwait", ("signals", 0, 0, 8)),
    ("unless", "wait", (_USR1,)),
    ("label", "kill", ()),
    ("call", "kill", (_EVERYBODY, _KILL)),
    ("negative", "dead", ()),  # ESRCH: there was nobody
    ("call", "nanosleep", ("pause", 0)),
    ("jump", "kill", ()),
    ("label", "dead", ()),
    ("call", "write", (1, "ack", len(ACK))),
    ("jump", "wait", ()),
)


@dataclass(frozen=True)
class _Machine:
    number: int
    """In the head of an ELF file."""
    calls: Mapping[str, int]
    call: Callable[[int, list[int]], bytes]
    branch: Callable[[str, int, tuple[_Operand, ...]], bytes]
    """Kind of branch, bytes from the start of the branch to its target, operands."""


def _call_x86(number: int, values: list[int]) -> bytes:
    moves = [b"\xb8", b"\xbf", b"\xbe", b"\xba", b"\x41\xba"]  # mov eax, edi, esi, edx, r10d
    code = b"".join(move + struct.pack("<I", value) for move, value in zip(moves, [number, *values], strict=False))
    return code + b"\x0f\x05"  # syscall


def _branch_x86(kind: str, distance: int, operands: tuple[_Operand, ...]) -> bytes:
    head = {"jump": b"\xe9", "negative": b"\x85\xc0\x0f\x88"}.get(kind) or b"\x83\xf8" + bytes([int(operands[0])]) + b"\x0f\x85"
    return head + struct.pack("<i", distance - len(head) - 4)


def _call_arm(number: int, values: list[int]) -> bytes:
    code = b""
    for register, value in [(8, number), *enumerate(values)]:
        code += struct.pack("<I", 0xD2800000 | (value & 0xFFFF) << 5 | register)  # movz
        code += struct.pack("<I", 0xF2A00000 | (value >> 16) << 5 | register)  # movk, lsl 16
    return code + struct.pack("<I", 0xD4000001)  # svc 0


def _branch_arm(kind: str, distance: int, operands: tuple[_Operand, ...]) -> bytes:
    if kind == "jump":
        return struct.pack("<I", 0x14000000 | (distance >> 2) & 0x3FFFFFF)
    if kind == "negative":
        return struct.pack("<I", 0x37F80000 | ((distance >> 2) & 0x3FFF) << 5)  # tbnz w0, 31
    compare = struct.pack("<I", 0x7100001F | int(operands[0]) << 10)  # cmp w0, …
    return compare + struct.pack("<I", 0x54000001 | (((distance - 4) >> 2) & 0x7FFFF) << 5)  # b.ne


_X86 = _Machine(
    62,
    {
        "write": 1, "rt_sigaction": 13, "rt_sigprocmask": 14, "nanosleep": 35, "kill": 62, "rt_sigtimedwait": 128, "prctl": 157,
    },
    _call_x86,
    _branch_x86,
)  # fmt: skip
_ARM = _Machine(
    183,
    {
        "write": 64, "nanosleep": 101, "kill": 129, "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigtimedwait": 137,
        "prctl": 167,
    },
    _call_arm,
    _branch_arm,
)  # fmt: skip
_MACHINES = {"x86_64": _X86, "amd64": _X86, "aarch64": _ARM, "arm64": _ARM}
_BASE, _HEAD = 0x400000, 64 + 56


def program(architecture: str) -> bytes:
    """The ELF file for an engine's processor, as the engine names it; raises Trouble for others than x86-64 and ARM64."""
    machine = _MACHINES.get(architecture)
    if machine is None:
        raise Trouble(f"the containers sandbox knows x86-64 and ARM64, and this engine is {architecture!r}")
    labels: dict[str, int] = {}
    code = _encode(machine, labels)
    code = _encode(machine, labels, len(code))  # now that the labels are known
    body = code + b"".join(_padded(data) for data in _DATA.values())
    size = _HEAD + len(body)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, machine.number, 1, _BASE + _HEAD, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    return head + struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000) + body


def _encode(machine: _Machine, labels: dict[str, int], length: int = 0) -> bytes:
    places: dict[str, int] = {}
    at = _BASE + _HEAD + length
    for name, data in _DATA.items():
        places[name] = at
        at += len(_padded(data))
    code = b""
    for kind, name, operands in _STEPS:
        if kind == "label":
            labels[name] = len(code)
        elif kind == "call":
            values = [places[one] if isinstance(one, str) else one for one in operands]
            code += machine.call(machine.calls[name], values)
        else:
            code += machine.branch(kind, labels.get(name, 0) - len(code), operands)
    return code + bytes(-len(code) % 8)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Output:
    """The two files."""

    def __init__(self, stdout: Path, stderr: Path, most: int) -> None:
        """most: bytes kept of both. Raises Trouble."""
        self.dropped = 0
        self._left = most
        self._files: dict[int, int] = {}
        try:
            for kind, path in ((STDOUT, stdout), (STDERR, stderr)):
                self._files[kind] = os.open(path, _NEW, 0o600)
        except OSError as error:
            self.close()
            raise Trouble(f"output cannot be kept: {error.strerror}", file=error.filename) from error

    def keep(self, kind: int, data: bytes) -> None:
        """Keeps what came on one of them, as far as there is room. Raises Trouble."""
        kept = memoryview(data[: self._left])
        self._left -= len(kept)
        self.dropped += len(data) - len(kept)
        while kept:
            try:
                kept = kept[os.write(self._files.get(kind, self._files[STDOUT]), kept) :]
            except OSError as error:
                what = "the host's disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
                raise Trouble(f"output cannot be kept: {what}") from error

    def close(self) -> None:
        """Closes both."""
        for number in self._files.values():
            os.close(number)
        self._files = {}


NOT_STARTED = 126
"""Exit code of a command that could not be started, as shells have it."""
_LOOK = 0.05
_ASK = 0.5
"""Seconds between questions to the engine whether the command has ended, while something may still be printed."""
_DRAIN = 30.0
"""Seconds for the rest of the output, when everything that could print is dead."""


class ContainerCommand:
    """It is watched until it ends or runs into a bound; then `clear` kills everything."""

    def __init__(
        self,
        engine: Engine,
        client: APIClient,
        container: str,
        limits: Limits,
        meter: Meter,
        disk: WriteWatch,
        clear: Callable[[Callable[[], None]], None],
    ) -> None:
        self._engine, self._client, self._container, self._limits = engine, client, container, limits
        self._meter, self._disk, self._clear = meter, disk, clear

    def run(
        self,
        command: Sequence[str],
        *,
        stdout: Path,
        stderr: Path,
        stdin: bytes,
        env: dict[str, str],
        cwd: str,
        user: str,
    ) -> Ran:
        """Raises Trouble; then too everything is dead, unless the container itself cannot be reached."""
        with closing(Output(stdout, stderr, self._limits.output)) as output:
            if stat(self._client, self._container, cwd) is None:
                # An earlier command in the box removed the folder, so this one has failed.
                output.keep(STDERR, f"assay: there is no folder {cwd} to begin in\n".encode(errors="replace"))
                return Ran(NOT_STARTED, None, 0.0, 0.0, 0)
            with talking("the command could not be started"):
                made = self._client.exec_create(
                    self._container, list(command), stdin=True, environment=env, workdir=cwd, user=user
                )
            began = time.monotonic()
            number = str(made["Id"])
            try:
                with closing(Stream(self._engine, f"/exec/{number}/start", {"Detach": False, "Tty": False}, stdin)) as stream:
                    bound = self._watch(stream, number, output, began)
                    wall = time.monotonic() - began
                    self._clear(lambda: self._take(stream, output, 0))
                    self._drain(stream, output)
            except Trouble:
                self._clear(lambda: None)  # if the container is gone, that says so better
                if (bound := self._meter.look()) is None:
                    raise
                wall = time.monotonic() - began
            code = self._code(number) if bound is None else None
            bound = bound or self._after(code, output)
            ended = None if bound else code
            return Ran(ended, bound, wall, self._meter.cpu_seconds(), self._meter.peak(), output.dropped)

    def _watch(self, stream: Stream, number: str, output: Output, began: float) -> Bound | None:
        """Until the command has ended, or ran into a bound, which is returned."""
        ask = time.monotonic() + _ASK
        while True:
            self._take(stream, output, _LOOK)
            if output.dropped:
                return "output"
            if (bound := self._meter.look()) is not None:
                return bound
            if self._disk.look():
                return "disk"
            now = time.monotonic()
            if stream.ended or now >= ask:
                # A command may close its output and go on, or end and leave somebody who keeps it open.
                if not self._inspect(number).get("Running"):
                    return None
                ask = now + _ASK
            if now - began >= self._limits.seconds:
                return "time"

    def _take(self, stream: Stream, output: Output, seconds: float) -> None:
        for kind, data in stream.pump(seconds):
            output.keep(kind, data)

    def _drain(self, stream: Stream, output: Output) -> None:
        """Keeps what is still on its way."""
        until = time.monotonic() + _DRAIN
        while not stream.ended and time.monotonic() < until:
            self._take(stream, output, _LOOK)

    def _code(self, number: str) -> int:
        code = self._inspect(number).get("ExitCode")
        if not isinstance(code, int) or code < 0:
            raise Trouble("the engine does not know how the command ended")
        return code

    def _after(self, code: int | None, output: Output) -> Bound | None:
        """The bound that a command turns out to have run into now that it is dead."""
        if output.dropped:
            return "output"
        return self._meter.look(code) or ("disk" if self._disk.look(now=True) else None)

    def _inspect(self, number: str) -> Mapping[str, Any]:
        with talking("the command could not be looked at"):
            return dict(self._client.exec_inspect(number))
