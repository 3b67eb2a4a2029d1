"""Progress of a run: a bar and what is going on, on a terminal; a line for each thing judged elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING

import typer

from assay.cli.judging.words import duration
from assay.settle.story.telling import plural

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live as RichLive

    from assay.judge.running import Cell, Event

__all__ = ["Live"]

SHOWN = 8
"""How many of those that are going on are shown."""
_PER_SECOND = 8


class Live:
    """`with Live(jobs) as live: run(…, live.event)`."""

    def __init__(self, jobs: int, *, quiet: bool = False) -> None:
        self.jobs, self.quiet = jobs, quiet
        self.planned = self.before = self.done = self.failing = self.waiting = 0
        self.began = time.monotonic()
        self.going: dict[Cell, tuple[str, float]] = {}
        self.outcomes: Counter[str] = Counter()
        self.stopping = False
        self._live: RichLive | None = None

    def __enter__(self) -> Live:
        if sys.stderr.isatty() and not self.quiet:
            from rich.console import Console
            from rich.live import Live as RichLive

            console = Console(stderr=True, highlight=False, markup=False, emoji=False)
            self._live = RichLive(get_renderable=self._render, console=console, transient=True, refresh_per_second=_PER_SECOND)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def event(self, event: Event) -> None:
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

    def _line(self, event: Event, took: float) -> None:
        found = event.record
        assert found is not None
        assert event.cell is not None
        what = _named(event.cell)
        if event.kind == "again":
            self._say(f"error    {what}  {found.message}; again in {duration(event.seconds)}")
        elif found.outcome == "error":
            self._say(f"error    {what}  {found.message}")
        elif self._live is None:
            why = "" if found.outcome == "pass" else f"  {found.reason}"
            time_taken = f"  {duration(took)}" if took else ""  # of what came out of one reading there is none
            self._say(f"{found.outcome:7}  {what}{time_taken}{why}  [{self.done}/{self.planned}]")

    def _say(self, text: str) -> None:
        from assay.cli.errors import printable

        if self.quiet:
            return
        if self._live is not None:
            self._live.console.print(printable(text))
        else:
            typer.echo(printable(text), err=True)

    def left(self) -> float | None:
        """Seconds that it will still take, by what it took so far; None while nothing is known."""
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
