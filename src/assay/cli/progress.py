"""A spinner on stderr for work that takes more than a second, if stderr is a terminal."""

from __future__ import annotations

import sys
import threading
from types import TracebackType

PATIENCE = 1.0
"""Seconds before anything is shown."""


class Working:
    """Shows what the block does and for how long, once it has run for a second: `with Working("settling"): …`."""

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
