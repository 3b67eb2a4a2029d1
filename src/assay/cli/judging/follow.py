"""What the agent and the tests print, shown while they print it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import TracebackType

import typer

from assay.cli.judging.words import text_lines

__all__ = ["Follow"]

_PAUSE = 0.1
_MOST = 1 << 20


class Follow:
    """Looks after the files of a trial while the block runs: `with Follow(folder) as follow: run_trial(…, say=follow.phase)`."""

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

    def __enter__(self) -> Follow:
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
