"""A sign of life on stderr for whatever takes more than a second, where somebody looks at a terminal.

What a settlement waits for: judgements, until a payout's scoring deadline (SPEC 5), and a word for what closes more than the
next epoch (SPEC 6, Epochs).

The settlement itself reads no clock and asks nobody: it is the command that does.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import typer

from assay.cli.errors import warn
from assay.errors import CannotSettle
from assay.scheme.fields import instant_text
from assay.scheme.model import Scheme
from assay.settle import Settlement

if TYPE_CHECKING:
    from assay.ledger.closing_cost import Closing


PATIENCE = 1.0
"""Seconds before anything is shown."""


class Working:
    """While the block runs for longer than a second, say what it does and for how long: `with Working("settling"): …`."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Working:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        if self._done.wait(PATIENCE):
            return
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            progress.add_task(f"{self.what} …", total=None)
            self._done.wait()


@dataclass(frozen=True)
class Meant:
    """What was said of an epoch that is not simply the next to be closed."""

    skip: bool = False
    without_scores: bool = False
    yes: bool = False

    def check(self, closing: Closing) -> None:
        """Say what closing an epoch costs where it costs anything, and on a terminal ask; raises CannotSettle for a no."""
        closing.check(skip=self.skip, without_scores=self.without_scores)
        costs = [*closing.costs()]
        warn(costs)
        if costs and not self.yes and _terminal():
            epoch = closing.settlement.epoch
            if not typer.confirm(f"Close epoch {epoch} for good?", err=True):
                raise CannotSettle(f"epoch {epoch} was not closed", hint="nothing was kept")


def deadline(scheme: Scheme, now: datetime) -> datetime | None:
    """The scoring deadline, if it is still to come."""
    until = None if scheme.payout is None else scheme.payout.scoring_deadline
    return until if until is not None and now < until else None


def waited_for(settlement: Settlement) -> list[str]:
    """The participants with a submission of their own that has no agreed score yet."""
    submissions = {one.key: one.submission for one in settlement.inputs.participants}
    open_ = [row["participant"] for row in settlement.document["agreed"] if row["status"] not in ("agreed", "duplicate")]
    return [key for key in open_ if submissions[key]]


def check_waited(settlement: Settlement, folder: Path, until: datetime) -> None:
    """Refuse to settle a payout before its deadline while a judgement is missing; raises CannotSettle."""
    missing = waited_for(settlement)
    if missing:
        from assay.settle.story.telling import named

        raise CannotSettle(
            f"{named(missing)} {'has' if len(missing) == 1 else 'have'} no agreed score yet, and judging goes on until "
            f"{instant_text(until)}",
            file=folder,
            hint="judge what is missing, wait until then, or settle without: --early",
        )


def _terminal() -> bool:
    return sys.stdin.isatty()
