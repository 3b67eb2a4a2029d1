"""The display of a run while it goes on: a bar on a terminal, and a line for each cell anywhere else.

Also what the judging commands share: options of sandboxes, numbers for people, and `FollowTrial`, which shows what an agent and
the tests print while they print it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from assay.judge.kind_options import ENGINE, ENV, RUNTIME, SANDBOX, SandboxName
from assay.settle.story.telling import plural

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

    from assay.judge.running import Cell, RunEvent


SandboxOption = Annotated[SandboxName, typer.Option(SANDBOX.name, help=SANDBOX.help)]
EngineOption = Annotated[str | None, typer.Option(ENGINE.name, metavar=ENGINE.metavar, help=ENGINE.help)]
RuntimeOption = Annotated[str | None, typer.Option(RUNTIME.name, metavar=RUNTIME.metavar, help=RUNTIME.help)]
EnvOption = Annotated[list[str] | None, typer.Option(ENV.name, metavar=ENV.metavar, help=ENV.help)]


def duration(seconds: float) -> str:
    """Seconds for people: 0.42 s, 12 s, 3 min 05 s, 2 h 03 min."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def memory(count: int) -> str:
    """Bytes for people; nothing where a sandbox cannot tell."""
    if not count:
        return ""
    return f"{count / (1 << 20):.1f} MiB" if count < 1 << 30 else f"{count / (1 << 30):.1f} GiB"


def text_lines(data: bytes) -> list[str]:
    """The lines that an agent printed, without anything that moves the cursor."""
    from assay.cli.errors import printable

    return [printable(line) for line in data.decode("utf-8", "replace").replace("\t", "    ").split("\n")]


def table(rows: Sequence[Mapping[str, str]]) -> Table:
    """Rows of cells by the name of their column: keys are shortened, numbers to the right, the last column is wrapped."""
    from assay.cli.show import Column, grid

    names = list(rows[0])
    kinds: dict[str, Literal["key", "text"]] = {names[-1]: "text", names[0]: "key"}
    columns = []
    for name in names:
        cells = [row[name] for row in rows]
        if all(cell.isdigit() for cell in cells):
            columns.append(Column(name, cells, right=True))
        else:
            columns.append(Column(name, cells, kind=kinds.get(name, "crop")))
    return grid(columns)


SHOWN = 8
"""The number of cells under way that are shown."""
_PER_SECOND = 8


class LiveRun:
    """`with LiveRun(jobs) as live: run(…, live.event)`."""

    def __init__(self, jobs: int, *, quiet: bool = False) -> None:
        self.jobs, self.quiet = jobs, quiet
        self.planned = self.before = self.done = self.failing = self.waiting = 0
        self.began = time.monotonic()
        self.going: dict[Cell, tuple[str, float]] = {}
        self.outcomes: Counter[str] = Counter()
        self.stopping = False
        self._live: Live | None = None

    def __enter__(self) -> LiveRun:
        if sys.stderr.isatty() and not self.quiet:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False, markup=False, emoji=False)
            self._live = Live(get_renderable=self._render, console=console, transient=True, refresh_per_second=_PER_SECOND)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def event(self, event: RunEvent) -> None:
        """Something happened."""
        cell = event.cell
        if event.kind == "calibrating":
            self._say(f"calibrating {plural(event.count, 'task')}: the solution has to pass here, and doing nothing to fail")
        elif event.kind == "calibrated" and event.why:
            self._say(f"not calibrated  {event.phase}  {event.why}{f'; {event.hint}' if event.hint else ''}")
        elif event.kind == "planned":
            self.planned, self.before, self.began = event.count, event.done, time.monotonic()
        elif event.kind == "began" and cell is not None:
            self.going[cell] = "set-up", time.monotonic()
        elif event.kind == "phase" and cell in self.going:
            self.going[cell] = event.phase, self.going[cell][1]
        elif event.kind in ("ended", "again") and cell is not None and event.record is not None:
            now = time.monotonic()
            took = now - self.going.pop(cell, ("", now))[1]
            if event.kind == "ended":
                self.done += 1
                self.outcomes[event.record.outcome] += 1
            self._line(event, took)
        elif event.kind == "stopping":
            self.stopping = True
            self._say("stopping: what is going on is given up, what is done is kept")
        elif event.kind == "kept":
            self._say(f"{event.count} of an earlier run had no evidence yet, and have it now")

    def _line(self, event: RunEvent, took: float) -> None:
        record = event.record
        assert record is not None
        assert event.cell is not None
        what = _named(event.cell)
        if event.kind == "again":
            self._say(f"error    {what}  {record.message}; again in {duration(event.seconds)}")
        elif record.outcome == "error":
            self._say(f"error    {what}  {record.message}")
        elif self._live is None:
            why = "" if record.outcome == "pass" else f"  {record.reason}"
            time_taken = f"  {duration(took)}" if took else ""  # of what came out of one reading there is none
            self._say(f"{record.outcome:7}  {what}{time_taken}{why}  [{self.done}/{self.planned}]")

    def _say(self, text: str) -> None:
        from assay.cli.errors import printable

        if self.quiet:
            return
        if self._live is not None:
            self._live.console.print(printable(text))
        else:
            typer.echo(printable(text), err=True)

    def left(self) -> float | None:
        """The seconds that are left, estimated from the time so far; None while nothing is known."""
        if not self.done:
            return None
        return (time.monotonic() - self.began) / self.done * (self.planned - self.done)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        from assay.cli.errors import printable

        row = Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(max(1, self.planned), self.done, width=30), Text(self._counts()))
        now = time.monotonic()
        lines = []
        for cell, (phase, since) in list(self.going.items())[:SHOWN]:
            what = f"  {_named(cell)}  {phase}  {duration(now - since)}"
            lines.append(Text(printable(what), no_wrap=True, overflow="ellipsis"))
        return Group(row, *lines)

    def _counts(self) -> str:
        words = [f"{self.done}/{self.planned}"]
        words += [f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items())]
        left = self.left()
        if self.stopping:
            words.append("stopping")
        elif left is not None and self.done < self.planned:
            words.append(f"about {duration(left)} left")
        return " · ".join(words)


def _named(cell: Cell) -> str:
    return "  ".join((cell.participant, *cell.parts.values()))


_PAUSE = 0.1
_MOST = 1 << 20


class FollowTrial:
    """Shows the files of a trial while the block runs: `with FollowTrial(folder) as follow: run_trial(…, say=follow.phase)`."""

    def __init__(self, folder: Path, *, quiet: bool = False) -> None:
        """quiet: nothing is shown."""
        self._quiet = quiet
        self._files = [
            (folder / whose / f"{stream}.txt", stream == "stderr")
            for whose in ("agent", "tests")
            for stream in ("stdout", "stderr")
        ]
        self._read = dict.fromkeys((path for path, _ in self._files), 0)
        self._rest = dict.fromkeys((path for path, _ in self._files), b"")
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> FollowTrial:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()
        with self._lock:
            self._look(last=True)

    def phase(self, name: str) -> None:
        """Say what begins; what was printed before comes before it."""
        with self._lock:
            self._look(last=True)
            if name != "done" and not self._quiet:
                typer.secho(f"── {name}", dim=True, err=True)

    def _watch(self) -> None:
        while not self._done.wait(_PAUSE):
            with self._lock:
                self._look()

    def _look(self, *, last: bool = False) -> None:
        if self._quiet:
            return
        for path, wrong in self._files:
            try:
                with path.open("rb") as file:
                    file.seek(self._read[path])
                    data = file.read(_MOST)
            except OSError:
                continue
            self._read[path] += len(data)
            whole, newline, rest = (self._rest[path] + data).rpartition(b"\n")
            if newline:
                self._show(whole, wrong)
            if last and rest:
                self._show(rest, wrong)
                rest = b""
            self._rest[path] = rest

    def _show(self, data: bytes, wrong: bool) -> None:
        for line in text_lines(data):
            typer.echo(line, err=wrong)
        (sys.stderr if wrong else sys.stdout).flush()
