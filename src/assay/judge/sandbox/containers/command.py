"""Runs one command in a container from its start to its death, with the program that kills its processes.

That program is the first process of the container: an ELF file of 400 bytes that keeps the box alive and clears it.

- It is not taken from the image: an image may lack such a program, and an agent could replace it.
- When the engine sends it SIGUSR1, it kills every other process until none is left, and then writes one byte to its output.
- It ignores SIGCHLD, so the kernel removes processes that end. It is not dumpable, so no process in the box can read or
  change it. The kernel does not let a signal from inside the box end it.

The program is written below as a list of system calls, and encoded for the engine's processor.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.judge.sandbox import Bound, InfrastructureError, Limits, Ran
from assay.judge.sandbox.containers.engine import STDERR, STDOUT, Engine, Stream, stat, talking
from assay.judge.sandbox.containers.usage import Meter, WriteWatch
from assay.judge.sandbox.supervise import append

if TYPE_CHECKING:
    from docker import APIClient


ACK = b"."
"""The byte that the first process writes when no other process in the box is alive."""

_CHLD, _KILL, _USR1 = 17, 9, 10
_EVERYBODY = 0xFFFFFFFF  # -1: every process but the caller
_DATA = {
    "action": struct.pack("<4Q", 1, 0, 0, 0),  # SIG_IGN
    "signals": struct.pack("<Q", 1 << (_USR1 - 1)),
    "pause": struct.pack("<2Q", 0, 2_000_000),  # 2 ms
    "ack": ACK,
}

_Operand = int | str
_Step = tuple[str, str, tuple[_Operand, ...]]
"""The operation, the name of a system call or label, and the operands: numbers, or names of data."""


_STEPS: tuple[_Step, ...] = (
    ("call", "prctl", (4, 0)),  # PR_SET_DUMPABLE
    ("call", "rt_sigaction", (_CHLD, "action", 0, 8)),
    ("call", "rt_sigprocmask", (0, "signals", 0, 8)),  # SIG_BLOCK: a blocked signal waits, even for the first process
    ("label", "wait", ()),
    ("call", "rt_sigtimedwait", ("signals", 0, 0, 8)),
    ("unless", "wait", (_USR1,)),
    ("label", "kill", ()),
    ("call", "kill", (_EVERYBODY, _KILL)),
    ("negative", "dead", ()),  # ESRCH: no other process was left
    ("call", "nanosleep", ("pause", 0)),
    ("jump", "kill", ()),
    ("label", "dead", ()),
    ("call", "write", (1, "ack", len(ACK))),
    ("jump", "wait", ()),
)


@dataclass(frozen=True)
class _InstructionSet:
    """The encoding of the program for a processor."""

    number: int
    """The processor's number in the head of an ELF file."""
    calls: Mapping[str, int]
    call: Callable[[int, list[int]], bytes]
    branch: Callable[[str, int, tuple[_Operand, ...]], bytes]
    """From the kind of branch, the bytes from its start to its target, and the operands."""


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


_X86 = _InstructionSet(
    62,
    {
        "write": 1, "rt_sigaction": 13, "rt_sigprocmask": 14, "nanosleep": 35, "kill": 62, "rt_sigtimedwait": 128, "prctl": 157,
    },
    _call_x86,
    _branch_x86,
)  # fmt: skip
_ARM = _InstructionSet(
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
    """The first process as an ELF file for an engine's processor. Raises InfrastructureError unless this is x86-64 or ARM64."""
    machine = _MACHINES.get(architecture)
    if machine is None:
        raise InfrastructureError(f"the containers sandbox supports x86-64 and ARM64, and this engine runs on {architecture!r}")
    labels: dict[str, int] = {}
    code = _encode(machine, labels)
    code = _encode(machine, labels, len(code))  # now that the labels are known
    body = code + b"".join(_padded(data) for data in _DATA.values())
    size = _HEAD + len(body)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, machine.number, 1, _BASE + _HEAD, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    return head + struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000) + body


def _encode(machine: _InstructionSet, labels: dict[str, int], length: int = 0) -> bytes:
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
            values = [places[operand] if isinstance(operand, str) else operand for operand in operands]
            code += machine.call(machine.calls[name], values)
        else:
            code += machine.branch(kind, labels.get(name, 0) - len(code), operands)
    return code + bytes(-len(code) % 8)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Output:
    """The two files on the host that keep a command's output, up to a limit on both together."""

    def __init__(self, stdout: Path, stderr: Path, most: int) -> None:
        """most: bytes that both files may have together. Raises InfrastructureError."""
        self.dropped = 0
        self._left = most
        self._files: dict[int, int] = {}
        try:
            for kind, path in ((STDOUT, stdout), (STDERR, stderr)):
                self._files[kind] = os.open(path, _NEW, 0o600)
        except OSError as error:
            self.close()
            raise InfrastructureError(f"the output cannot be written: {error.strerror}", file=error.filename) from error

    def keep(self, kind: int, data: bytes) -> None:
        """Keeps output of stdout or stderr as far as the limit allows. Raises InfrastructureError."""
        within = data[: self._left]
        self._left -= len(within)
        self.dropped += len(data) - len(within)
        append(self._files.get(kind, self._files[STDOUT]), within)

    def close(self) -> None:
        """Closes both files."""
        for number in self._files.values():
            os.close(number)
        self._files = {}


NOT_STARTED = 126
"""The exit code of a command that could not be started, as shells use it."""
_LOOK = 0.05
"""Seconds to wait for output between looks at the limits."""
_ASK = 0.5
"""Seconds between requests whether the command has ended, while its output is still open."""
_DRAIN = 30.0
"""Seconds to wait for the rest of the output after every process is dead."""


class ContainerCommand:
    """Runs a command, and watches it until it ends or reaches a limit. Then `clear` kills every process."""

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
        """Runs the command.

        Raises InfrastructureError; then too every process is dead, unless the container cannot be reached.
        """
        with closing(Output(stdout, stderr, self._limits.output)) as output:
            if stat(self._client, self._container, cwd) is None:
                # An earlier command in the box removed the folder, so this command has failed.
                output.keep(STDERR, f"assay: there is no folder {cwd} to start in\n".encode(errors="replace"))
                return Ran(NOT_STARTED, None, 0.0, 0.0, 0)
            with talking("the command could not be started"):
                created = self._client.exec_create(
                    self._container, list(command), stdin=True, environment=env, workdir=cwd, user=user
                )
            began = time.monotonic()
            number = str(created["Id"])
            try:
                with closing(Stream(self._engine, f"/exec/{number}/start", {"Detach": False, "Tty": False}, stdin)) as stream:
                    bound = self._watch(stream, number, output, began)
                    wall = time.monotonic() - began
                    self._clear(lambda: self._take(stream, output, 0))
                    self._drain(stream, output)
            except InfrastructureError:
                self._clear(lambda: None)  # if the container is gone, this raises a better error
                if (bound := self._meter.look()) is None:
                    raise
                wall = time.monotonic() - began
            code = self._code(number) if bound is None else None
            bound = bound or self._after(code, output)
            ended = None if bound else code
            return Ran(ended, bound, wall, self._meter.cpu_seconds(), self._meter.peak(), output.dropped)

    def _watch(self, stream: Stream, number: str, output: Output, began: float) -> Bound | None:
        """Watches until the command ends (None) or reaches a limit, which is returned."""
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
                # A command may close its output and go on, or it may end while another process keeps its output open.
                if not self._inspect(number).get("Running"):
                    return None
                ask = now + _ASK
            if now - began >= self._limits.seconds:
                return "time"

    def _take(self, stream: Stream, output: Output, seconds: float) -> None:
        for kind, data in stream.pump(seconds):
            output.keep(kind, data)

    def _drain(self, stream: Stream, output: Output) -> None:
        """Keeps output that is still on its way."""
        until = time.monotonic() + _DRAIN
        while not stream.ended and time.monotonic() < until:
            self._take(stream, output, _LOOK)

    def _code(self, number: str) -> int:
        code = self._inspect(number).get("ExitCode")
        if not isinstance(code, int) or code < 0:
            raise InfrastructureError("the engine does not know the exit code of the command")
        return code

    def _after(self, code: int | None, output: Output) -> Bound | None:
        """The limit that a dead command turns out to have reached, if any."""
        if output.dropped:
            return "output"
        return self._meter.look(code) or ("disk" if self._disk.look(now=True) else None)

    def _inspect(self, number: str) -> Mapping[str, Any]:
        with talking("the command could not be looked at"):
            return dict(self._client.exec_inspect(number))
