"""The workers of a run: processes that are started, given jobs, listened to, replaced when they die, and stopped."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from assay.judge.sandbox import Trouble
from assay.judge.terminal.worker import Job, WorkerSettings

__all__ = ["Worker", "WorkerMessage", "WorkerPool"]

PATIENCE = 60.0
"""Seconds that a worker has to clear up after itself when it is told to stop; then it is killed, and the next run clears up."""
DEATHS = 20
"""Deaths of workers in a row, none of which got a trial done, after which the run gives up."""
_LAST = 2000


@dataclass
class Worker:
    """One process, and what it is doing."""

    process: subprocess.Popen[bytes]
    errors: Path
    core: int | None = None
    """Which it keeps to."""
    ready: bool = False
    job: Job | None = None
    deadline: float = 0.0
    buffer: bytearray = field(default_factory=bytearray)

    @property
    def out(self) -> IO[bytes]:
        """Where it speaks."""
        assert self.process.stdout is not None
        return self.process.stdout

    def give(self, line: bytes) -> bool:
        """Hands it a line; False if it is gone."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except OSError:
            return False
        return True


@dataclass(frozen=True)
class WorkerMessage:
    """A line of a worker; or, if there is none, that it died, in `death`'s words."""

    job: Job | None
    line: dict[str, Any] | None
    death: str = ""


class WorkerPool:
    """The workers, and what they say. To be closed in any case."""

    def __init__(self, settings: WorkerSettings, count: int, folder: Path, lock: int, *, cores: Collection[int] = ()) -> None:
        """folder: for what they write to stderr; there, and theirs alone. lock: a descriptor that they hold while they live.

        cores: which they keep to, each to one, with everything that they start; none: the kernel moves them about.
        """
        self._settings, self._folder, self._lock, self._cores = settings, folder, lock, cores
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []
        self._started = self._deaths = 0
        try:
            for _ in range(count):
                self._hire()
        except OSError as error:
            self.close(now=True)
            raise Trouble(f"a judge's process could not be started: {error.strerror}") from error

    def idle(self) -> Worker | None:
        """One that has nothing to do."""
        return next((worker for worker in self._workers if worker.job is None), None)

    def busy(self) -> list[Worker]:
        """Those that have."""
        return [worker for worker in self._workers if worker.job is not None]

    def give(self, worker: Worker, job: Job, seconds: float) -> None:
        """Sets it to work; after so many seconds it is taken for lost."""
        worker.job, worker.deadline = job, time.monotonic() + seconds
        worker.give(job.to_json())  # if it is gone, its end is heard soon enough

    def listen(self, seconds: float) -> Iterator[WorkerMessage]:
        """What is said within so many seconds, at least one round of it. Raises Trouble when workers do nothing but die."""
        for worker in self._workers:
            if worker.job is not None and time.monotonic() > worker.deadline:
                worker.process.kill()
        for key, _ in self._selector.select(seconds):
            worker = key.data
            part = os.read(worker.out.fileno(), 1 << 20)
            if not part:
                yield WorkerMessage(worker.job, None, self._bury(worker))
                continue
            worker.buffer += part
            while (end := worker.buffer.find(b"\n")) >= 0:
                line = json.loads(bytes(worker.buffer[:end]))
                del worker.buffer[: end + 1]
                job = worker.job
                worker.ready = True
                if "record" in line or "calibration" in line:
                    worker.job = None
                    self._deaths = 0
                yield WorkerMessage(job, line)

    def close(self, *, now: bool = False) -> None:
        """Stops everybody, and waits until their boxes are gone. now: without letting them clear up."""
        for worker in self._workers:
            with suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGKILL if now else signal.SIGTERM)
            with suppress(OSError):
                assert worker.process.stdin is not None
                worker.process.stdin.close()
        until = time.monotonic() + PATIENCE
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.out.close()
        self._workers.clear()
        self._selector.close()

    def _hire(self) -> None:
        self._started += 1
        errors = self._folder / f"worker-{self._started}.txt"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "assay.judge.terminal.worker", str(self._lock)],
                pass_fds=(self._lock,),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,  # so that Ctrl-C in a terminal is the run's to answer
            )
        taken = {worker.core for worker in self._workers}
        worker = Worker(process, errors, core=next((core for core in self._cores if core not in taken), None))
        if worker.core is not None:
            with suppress(OSError):  # it is only for speed
                os.sched_setaffinity(process.pid, {worker.core})
        worker.give(self._settings.to_json())
        self._workers.append(worker)
        self._selector.register(worker.out, selectors.EVENT_READ, worker)

    def _bury(self, worker: Worker) -> str:
        """Takes a dead worker's place with a new one; how it died."""
        self._selector.unregister(worker.out)
        code = worker.process.wait()
        for pipe in (worker.process.stdin, worker.out):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        self._workers.remove(worker)
        said = _last(worker.errors)
        how = f"the judge's process was ended by signal {-code}" if code < 0 else f"the judge's process ended with {code}: {said}"
        self._deaths += 1
        if self._deaths > DEATHS or not worker.ready:
            raise Trouble(how, hint="see what else happens on this machine, and run it again")
        self._hire()
        return how


def _last(errors: Path) -> str:
    try:
        lines = errors.read_bytes()[-_LAST:].decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""
