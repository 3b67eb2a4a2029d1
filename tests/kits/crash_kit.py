"""Workers for the crash tests are started and killed, and what they leave behind is looked at.

They are forked from a process that has imported everything (`Warm`), so that a kill costs no start of Python. A worker puts down
in a file what has returned, as somebody who was told so would remember it.
"""

from __future__ import annotations

import gc
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import crash_look
import crash_work
import ledger_kit
from crash_look import look, look_whole
from crash_work import create_ledger, heard, steps_of, work

__all__ = ["SERIES", "Warm", "every_step", "every_write", "rounds", "warm"]

SERIES = 25
"""Workers that are killed in one ledger."""
WAIT = 300
WRITES = ("INSERT", "COMMIT", "do_commit", "mkdir", "replace", "rename", "unlink", "rmdir")


class Warm:
    """A process that has imported everything and forks workers: one at a time. module: whose functions they are, if not ours."""

    def __init__(self, folder: Path, module: str = "") -> None:
        self._report = folder / "report.json"
        command = [sys.executable, "-c", f"import crash_kit; crash_kit.serve({module!r})"]
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=os.environ | {"PYTHONPATH": path}
        )

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        """The result of a function of `crash_work`, `crash_look` or the module in a new process; errors there are raised here."""
        number = self._start(function, args)
        assert self._ended(WAIT), f"{function.__name__} did not end (process {number})"
        return self._answer(function)

    def killed(self, function: Callable[..., Any], *args: Any, after: float | None = None) -> bool:
        """Kill a new process after so many seconds, or wait until it kills itself. Whether it was killed before it was done."""
        number = self._start(function, args)
        if after is not None and not self._ended(after):
            os.kill(number, signal.SIGKILL)
        assert self._ended(WAIT), f"{function.__name__} was not killed (process {number})"
        if self._status == -signal.SIGKILL:
            return True
        self._answer(function)
        return False

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        try:
            self._server.wait(WAIT)
        finally:
            self._server.kill()

    def _start(self, function: Callable[..., Any], args: Sequence[Any]) -> int:
        assert self._server.stdin is not None
        self._report.unlink(missing_ok=True)
        order = [function.__name__, list(args), str(self._report)]
        self._server.stdin.write(json.dumps(order, default=str).encode() + b"\n")
        self._server.stdin.flush()
        self._status: int | None = None
        return self._number()

    def _ended(self, seconds: float) -> bool:
        """Whether the process ends in this time."""
        assert self._server.stdout is not None
        if self._status is None and select.select([self._server.stdout], [], [], seconds)[0]:
            self._status = self._number()
        return self._status is not None

    def _number(self) -> int:
        assert self._server.stdout is not None
        line = b""
        while not line.endswith(b"\n"):  # not through the buffer, which select does not see
            piece = os.read(self._server.stdout.fileno(), 1)
            assert piece, "the process that forks workers is gone"
            line += piece
        return int(line)

    def _answer(self, function: Callable[..., Any]) -> Any:
        assert self._status == 0, f"{function.__name__} ended with {self._status}"
        result, error = json.loads(self._report.read_text())
        assert error is None, f"in {function.__name__}: {error}"
        return result


def serve(module: str) -> None:
    """Fork a process for each order on standard input; its number and how it ended on standard output."""
    functions = {"imports": imports} | vars(crash_work) | vars(crash_look) | (vars(import_module(module)) if module else {})
    functions["imports"]()
    gc.freeze()  # a collection in a fork would copy every page of what was imported
    for line in sys.stdin.buffer:
        name, args, report = json.loads(line)
        number = os.fork()
        if number == 0:
            _child(functions[name], args, Path(report))
        _put(number)
        _put(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]))


def imports() -> None:
    """Import what is imported late."""
    with tempfile.TemporaryDirectory() as place:
        create_ledger(Path(place) / "small", "ledger.db")
        look(f"{place}/small", f"{place}/told", f"{place}/seen")


def _put(number: int) -> None:
    os.write(1, b"%d\n" % number)


def _child(function: Callable[..., Any], args: Sequence[Any], report: Path) -> None:
    answer: list[Any] = [None, None]
    try:
        answer[0] = function(*args)
    except BaseException:  # noqa: BLE001  (whatever it is, the test shows it)
        answer[1] = traceback.format_exc()
    sys.setprofile(None)
    report.write_text(json.dumps(answer))
    os._exit(0)


@contextmanager
def warm(folder: Path, module: str = "") -> Iterator[Warm]:
    """The process that forks, for as long as the block lasts."""
    process = Warm(folder, module)
    try:
        yield process
    finally:
        process.close()


def rounds(warm: Warm, folder: Path, database: str, draw: random.Random, count: int, *, at_steps: bool) -> None:
    """Kill so many workers, one after the other: at random moments of a cycle, or at random steps. And look after each."""
    place, notes, seen = (folder / name for name in ("small", "told", "seen"))
    create_ledger(place, database)
    steps = len(warm.ask(steps_of, place, notes))
    killed = 0
    while killed < count:
        if at_steps:
            assert warm.killed(work, place, notes, draw.randint(1, steps))
            killed += 1
        else:
            seconds = [note[1] for note in heard(notes) if note[0] == "cycle"]
            killed += warm.killed(work, place, notes, None, after=draw.uniform(0, seconds[-1]))
        warm.ask(look, place, notes, seen)
    warm.ask(look_whole, place, seen)


def every_step(warm: Warm, folder: Path, another: Callable[[Path], str]) -> int:
    """Kill a worker at each step of a cycle in turn, in new ledgers of some epochs each; how many steps there were."""
    step, killed = 0, True
    while killed:
        if step % SERIES == 0:
            place, notes, seen = (folder / str(step) / name for name in ("small", "told", "seen"))
            create_ledger(place, another(place))
            warm.ask(steps_of, place, notes)
        step += 1
        killed = warm.killed(work, place, notes, step, 1)
        warm.ask(look, place, notes, seen)
    return step


def every_write(warm: Warm, folder: Path, *, every: int = 1) -> int:
    """Kill a worker before each `every`th thing that settling and exporting an epoch write; how many there are."""

    def copy(name: str) -> tuple[Path, ...]:
        ledger_kit.copied(folder / "whole", folder / name)
        return tuple(folder / name / part for part in ("small", "told", "seen"))

    create_ledger(folder / "whole/small", "ledger.db")
    warm.ask(steps_of, folder / "whole/small", folder / "whole/told")
    steps = warm.ask(steps_of, *copy("steps")[:2])
    first = next(number for number, name in enumerate(steps, start=1) if name.startswith("INSERT INTO inputs"))
    writes = [number for number, name in enumerate(steps, start=1) if number >= first and name.startswith(WRITES)]
    for number in writes[::every]:
        place, notes, seen = copy(str(number))
        assert warm.killed(work, place, notes, number)
        warm.ask(look, place, notes, seen)
    return len(writes)
