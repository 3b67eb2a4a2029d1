"""The work of a service that no request waits for: compares what was handed in, and computes how firmly a board holds.

    a submission is accepted, or an epoch was settled  ─▶  Background.wake  ─▶  python -m assay.serve.background DIR

It is done in a process of its own, one at a time, with a low priority and a limit of time. So a request has the interpreter for
itself, and source of strangers is read in a process that holds no connection. What is done is on the disk as soon as it is done;
a process that is killed is made up for by the next one. Several workers, or hosts with one folder, exclude each other by a lock
in the folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from assay.competition import open_competition
from assay.errors import AssayError, brief
from assay.folder import csvs, registry
from assay.folder.files import Place
from assay.judge import copies
from assay.ledger import config
from assay.ledger.access import open_store
from assay.serve import margins
from assay.serve.season import read
from assay.serve.site import ServedCompetition, Site

__all__ = ["Background", "catch_up"]

SECONDS = 900.0
"""For so long one process may work; what it has not done by then, another one goes on with."""
AGAIN = 60.0
"""Seconds after which it is tried again where a process failed."""
NICE = 10
TOLD = 3
"""The exit status of a process that noted itself why it failed."""


class Background:
    """The background of a service: a thread that starts processes. A context manager. tell: takes a line for an operator."""

    def __init__(self, site: Site, tell: Callable[[str], None] = lambda line: None) -> None:
        self._site, self._tell = site, tell
        self._waiting: dict[str, ServedCompetition] = {}
        self._failed: dict[str, float] = {}
        self._changed = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="background", daemon=True)

    def __enter__(self) -> Self:
        for served in self._site.competitions.values():
            served.wake = partial(self.wake, served)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
            process = self._process
        if process is not None:
            process.kill()
        self._thread.join()

    def wake(self, served: ServedCompetition) -> None:
        """Say that there may be something to do for a competition. It returns at once."""
        with self._changed:
            if time.monotonic() - self._failed.get(served.segment, -AGAIN) >= AGAIN:
                self._waiting[served.segment] = served
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or bool(self._waiting))
                if self._stopping:
                    return
                segment = next(iter(self._waiting))
                served = self._waiting.pop(segment)
                try:
                    self._process = process = _begin(served.folder)
                except OSError as error:
                    self._fail(segment, why := f"no process can be started ({error.strerror})")
                    copies.note_failure(served.folder, why)
                    continue
            why = _end(process)
            if process.returncode not in (0, TOLD) and not self._stopping:
                copies.note_failure(served.folder, why)
            with self._changed:
                self._process = None
                if why and not self._stopping:
                    self._fail(segment, why)

    def _fail(self, segment: str, why: str) -> None:
        self._failed[segment] = time.monotonic()
        self._tell(f"{segment}: comparing submissions and computing margins failed: {why}")


def _begin(folder: Path) -> subprocess.Popen[bytes]:
    """Start the process. Its input is open as long as this one lives: so it ends with it."""
    command = [sys.executable, "-m", "assay.serve.background", str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _end(process: subprocess.Popen[bytes]) -> str:
    """Wait for a process; returns what went wrong, in a line, or nothing."""
    assert process.stderr is not None
    assert process.stdin is not None
    timer = threading.Timer(SECONDS, process.kill)
    timer.daemon = True
    timer.start()
    try:
        printed = process.stderr.read()
        code = process.wait()
    finally:
        timer.cancel()
        process.stdin.close()
        process.stderr.close()
    lines = printed.decode("utf-8", "replace").strip().splitlines()
    return "" if not code else brief(lines[-1] if lines else f"it ended with {code}", 300)


def catch_up(folder: Path) -> None:
    """Compare what was not compared yet, and compute the margins of the last settled epoch. Raises AssayError."""
    scheme = open_competition(folder).scheme
    if scheme.submission is not None and scheme.submission.copies is not None:
        file = folder / csvs.PARTICIPANTS.name
        entries = copies.of_ledger(folder, registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), scheme))
        try:
            if entries is not None:
                copies.compare_new(folder, scheme, entries)
        except AssayError as error:
            copies.note_failure(folder, brief(str(error), 300))
            raise
    if (digest := _last_settled(folder)) is not None and not margins.is_kept(folder, digest):
        margins.keep(read(folder))


def _last_settled(folder: Path) -> str | None:
    """The digest of the last settlement that has a receipt; None without one."""
    with open_store(config.read(folder)) as store, store.reading() as view:
        epoch = view.settled_epoch()
        stored = None if epoch is None else view.settlement(epoch)
    return None if stored is None else stored.digest


def _end_with_parent() -> None:
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os._exit(1)


def main() -> None:
    """The process: catches up in a folder, and ends with whoever started it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.nice(NICE)
    try:
        catch_up(Path(sys.argv[1]))
    except AssayError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(TOLD)


if __name__ == "__main__":
    main()
