"""Running the cases: by Assay itself, or by another implementation as a process that reads and writes lines of JSON. SPEC 6.

    in   {"kind": "tests", "input": {"passed": 73, "trials": 91}}
    out  {"score": "0.802197802"}     or   {"refused": true}     or   {"unsupported": true}

One process answers one case file, in order, within limits of time and size; its stderr is kept for the report. `serve` is Assay
on the other side of the same protocol.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, BinaryIO

from assay.conformance import cases as case_files
from assay.conformance.cases import Case, CaseFile, Failure, FileReport, RunReport, differences
from assay.conformance.kinds import KINDS
from assay.errors import MISSING, AssayError, BadInput
from assay.exact import canonical
from assay.folder import strict

__all__ = [
    "ANSWER_BYTES",
    "REFUSED",
    "SECONDS",
    "UNSUPPORTED",
    "Failed",
    "answer",
    "answers",
    "command_words",
    "refusal",
    "run",
    "serve",
]


SECONDS = 60.0
"""The seconds that an answer may take."""
ENDING = 10.0
"""The seconds that a process may take to end, once it has given its last answer or closed its output."""
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
    errors: bytearray = field(default_factory=bytearray)
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
                self.errors += chunk
                del self.errors[:-KEPT]

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


def command_words(command: str) -> list[str]:
    """The command in words, as a shell would split it; raises BadInput if there is none."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"{command[:80]!r} is not a command ({error})", hint="close the quotes") from None
    if not words:
        raise BadInput("the command is empty", hint='say which, as in --with "./my-validator --cases"')
    return words


def answers(command: Sequence[str], kind: str, inputs: Sequence[str], seconds: float = SECONDS) -> Iterator[Any]:
    """The answer of a command to each input, or Failed; one Failed more if it does not end well; BadInput if it cannot run.

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
    printed = bytes(process.errors).decode(errors="replace").strip()
    return f"it ended with exit code {code}; it said: {printed}" if printed else f"it ended with exit code {code}"


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


REFUSED = {"refused": True}
"""The answer to an input from which nothing follows."""
UNSUPPORTED = {"unsupported": True}
"""The answer of an implementation that does not have this kind, or this part of it: neither right nor wrong."""


def answer(kind: str, given: Any) -> Any:
    """The answer of Assay to the input of a case; raises BadInput or CannotSettle where it refuses, or the kind is unknown."""
    case_kind = KINDS.get(kind)
    if case_kind is None:
        raise BadInput(f"there is no kind {str(kind)[:60]!r}", field="kind", hint=f"use one of {', '.join(KINDS)}")
    return case_kind.answer(given)


def run(directory: Path, command: str | None = None, *, seconds: float = SECONDS, case: str | None = None) -> RunReport:
    """Every case of a folder or a file, answered by Assay or by a command that is started once a file. SPEC 6.

    Raises BadInput for a file that is no case file and a command that cannot run. `seconds`: how long an answer may take.
    `case`: only those of that name; the report then shows what was expected and what came.
    """
    files = case_files.files(directory)
    if case is not None:
        files = [replace(case_file, cases=tuple(each for each in case_file.cases if each.name == case)) for case_file in files]
        files = [case_file for case_file in files if case_file.cases]
        if not files:
            raise BadInput(f"there is no case {case[:80]!r}", file=directory, hint="give the name as the report has it")
    words = None if command is None else command_words(command)
    asked = ((case_file, _own(case_file) if words is None else _other(words, case_file, seconds)) for case_file in files)
    reports = [_ran(file, answers, shown=case is not None) for file, answers in asked]
    return RunReport(directory, command, tuple(reports))


def _own(file: CaseFile) -> Iterator[Any]:
    for case in file.cases:
        try:
            yield answer(file.kind, case.input)
        except AssayError as error:
            yield refusal(error)


def _other(words: list[str], file: CaseFile, seconds: float) -> Iterator[Any]:
    return answers(words, file.kind, [case.text for case in file.cases], seconds)


def refusal(error: AssayError) -> dict[str, Any]:
    """The answer to an input that is refused: the code is compared, the words are for people."""
    if error.reason_code == MISSING:
        return UNSUPPORTED
    return {**REFUSED, "code": error.reason_code, "why": str(error)}


def _ran(file: CaseFile, answers: Iterable[Any], *, shown: bool) -> FileReport:
    failures: list[Failure] = []
    pairs: list[tuple[Any, Any]] = []
    refusals = unsupported = 0
    asked = iter(file.cases)
    for given in answers:
        case = next(asked, None)
        if case is None:
            failures.append(Failure("(after the last case)", given.why))
            continue
        if shown:
            wanted = {**REFUSED, "code": case.code, "why": case.why} if case.refused else case.output
            pairs.append((wanted, {"failed": given.why} if isinstance(given, Failed) else given))
        if given == UNSUPPORTED:
            unsupported += 1
        elif (failure := _judged(case, given)) is not None:
            failures.append(failure)
        else:
            refusals += case.refused
    cases = len(file.cases)
    return FileReport(file.path, file.kind, file.about, cases, tuple(failures), unsupported, refusals, tuple(pairs))


def _judged(case: Case, given: Any) -> Failure | None:
    if isinstance(given, Failed):
        return Failure(case.name, given.why)
    refused = isinstance(given, dict) and given.get("refused") is True
    if case.refused and refused:
        code = given.get("code", case.code)
        right = code == case.code or not case.code
        return (
            None
            if right
            else Failure(case.name, f"it is refused for {str(code)[:80]!r}, and must be for {case.code!r}: {case.why}")
        )
    if case.refused:
        return Failure(case.name, f"it must be refused: {case.why}")
    if refused:
        why = given.get("why")
        return Failure(case.name, f"it is refused ({why})" if isinstance(why, str) else "it is refused, and must not be")
    for difference in differences(case.output, given):
        return Failure(case.name, str(difference), difference)
    return None


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer every line `{"kind", "input"}` with the output, or with `{"refused": true, "code", "why"}`, until the lines end."""
    for line in requests:
        try:
            asked = strict.parse(line.decode())
            if not isinstance(asked, dict) or asked.keys() != {"kind", "input"}:
                raise BadInput("is not a request", hint='a line is {"kind": …, "input": …}')
            reply = answer(asked["kind"], asked["input"])
        except AssayError as error:
            reply = refusal(error)
        except UnicodeDecodeError:
            reply = refusal(BadInput("the line is not UTF-8"))
        replies.write(canonical(reply) + b"\n")
        replies.flush()
