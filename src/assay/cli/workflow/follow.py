"""A plan as it runs: a line for each step that moves along on a terminal, a line for each moment elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

import typer

from assay.cli.judging.words import duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from assay.judge.workflow.plan import Plan
    from assay.judge.workflow.trace import Moment, Step

__all__ = ["Follow"]

SHOWN = 30
"""How many steps are shown at one time."""
_PER_SECOND = 8
_SIGNS = {"waiting": "·", "going": "▸", "completed": "✓", "failed": "✗", "given-up": "–"}


class Follow:
    """`with Follow(plan) as follow: execute(…, on_moment=follow.moment)`."""

    def __init__(self, plan: Plan, *, quiet: bool = False) -> None:
        self.plan, self.quiet = plan, quiet
        self.steps: dict[str, Step] = {}
        self.began = time.monotonic()
        self.spent = 0
        self._live: Live | None = None

    def __enter__(self) -> Follow:
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

    def moment(self, moment: Moment) -> None:
        """Something happened to a step."""
        step = self.steps[moment.step.id] = moment.step
        self.spent = moment.spent
        if self.quiet or self._live is not None:
            return
        from assay.cli.errors import printable

        attempt = step.attempts[-1] if step.attempts else None
        said = {
            "began": f"attempt {attempt.number}" if attempt is not None and attempt.number > 1 else "",
            "again": f"{attempt.outcome}: {attempt.message}" if attempt is not None else "",
            "completed": "",
            "failed": step.message,
        }[moment.kind]
        word = {"again": "attempt failed"}.get(moment.kind, moment.kind)
        line = f"{duration(moment.nanoseconds / 10**9):>8}  {word:14}  {step.id}  {said}"
        typer.echo(printable(line.rstrip()), err=True)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from assay.cli.errors import printable
        from assay.exact import text

        lines = []
        for node in self.plan.nodes[:SHOWN]:
            step = self.steps.get(node.id)
            state = "waiting" if step is None else step.state
            tries = f"  attempt {len(step.attempts)}" if step is not None and len(step.attempts) > 1 else ""
            needs = f"  ← {', '.join(sorted(self.plan.needs[node.id]))}" if self.plan.needs[node.id] else ""
            line = f"{_SIGNS[state]} {node.id}  {node.service}.{node.action}{needs}{tries}"
            lines.append(Text(printable(line), no_wrap=True, overflow="ellipsis", style="dim" if state == "waiting" else ""))
        if len(self.plan.nodes) > SHOWN:
            lines.append(Text(f"… and {len(self.plan.nodes) - SHOWN} more", style="dim"))
        return Group(*lines, Text(f"{duration(time.monotonic() - self.began)}, {text(self.spent)} spent"))
