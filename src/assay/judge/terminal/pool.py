"""The worker pool of a run: starts the processes, gives them jobs, reads their messages, replaces dead ones, stops them."""

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

from assay.judge.sandbox import InfrastructureError
from assay.judge.terminal.worker import Job, WorkerSettings

__all__ = ["Worker", "WorkerMessage", "WorkerPool"]

PATIENCE = 60.0
"""Seconds that a worker has to clean up when it is told to stop. Then it is killed, and the next run cleans up."""
DEATHS = 20
"""Deaths in a row, without a finished trial in between, after which the run gives up."""
_LAST = 2000


@dataclass
class Worker:
    """One worker process, and its job."""

    process: subprocess.Popen[bytes]
    errors: Path
    core: int | None = None
    """The core that it runs on; None for any."""
    ready: bool = False
    job: Job | None = None
    deadline: float = 0.0
    buffer: bytearray = field(default_factory=bytearray)

    @property
    def out(self) -> IO[bytes]:
        """The pipe of its messages."""
        assert self.process.stdout is not None
        return self.process.stdout

    def give(self, line: bytes) -> bool:
        """Sends it a line; False if it has died."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except OSError:
            return False
        return True


@dataclass(frozen=True)
class WorkerMessage:
    """A line from a worker. If `line` is None the worker died, and `death` says how."""

    job: Job | None
    line: dict[str, Any] | None
    death: str = ""


class WorkerPool:
    """The workers of a run. It must always be closed."""

    def __init__(self, settings: WorkerSettings, count: int, folder: Path, lock: int, *, cores: Collection[int] = ()) -> None:
        """folder: an existing folder for their stderr, used by nothing else. lock: a descriptor that they hold while they live.

        cores: the cores that they run on, one for each worker with everything that it starts; none: the kernel chooses.
        """
        self._settings, self._folder, self._lock, self._cores = settings, folder, lock, cores
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []
        self._started = self._deaths = 0
        try:
            for _ in range(count):
                self._start()
        except OSError as error:
            self.close(now=True)
            raise InfrastructureError(f"a judge's process could not be started: {error.strerror}") from error

    def idle(self) -> Worker | None:
        """A worker without a job, if there is one."""
        return next((worker for worker in self._workers if worker.job is None), None)

    def busy(self) -> list[Worker]:
        """The workers that have a job."""
        return [worker for worker in self._workers if worker.job is not None]

    def give(self, worker: Worker, job: Job, seconds: float) -> None:
        """Gives a worker a job; it is killed if the job takes longer than `seconds`."""
        worker.job, worker.deadline = job, time.monotonic() + seconds
        worker.give(job.to_json())  # if it has died, `listen` reports that

    def listen(self, seconds: float) -> Iterator[WorkerMessage]:
        """The messages that are there, or that come within `seconds`. Raises InfrastructureError if workers only die."""
        for worker in self._workers:
            if worker.job is not None and time.monotonic() > worker.deadline:
                worker.process.kill()
        for key, _ in self._selector.select(seconds):
            worker = key.data
            part = os.read(worker.out.fileno(), 1 << 20)
            if not part:
                yield WorkerMessage(worker.job, None, self._replace(worker))
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
        """Stops all workers, and waits until their boxes are gone. now: kills them before they can clean up."""
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

    def _start(self) -> None:
        self._started += 1
        errors = self._folder / f"worker-{self._started}.txt"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "assay.judge.terminal.worker", str(self._lock)],
                pass_fds=(self._lock,),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,  # Ctrl-C in a terminal must reach only the run
            )
        taken = {worker.core for worker in self._workers}
        worker = Worker(process, errors, core=next((core for core in self._cores if core not in taken), None))
        if worker.core is not None:
            with suppress(OSError):  # only for speed
                os.sched_setaffinity(process.pid, {worker.core})
        worker.give(self._settings.to_json())
        self._workers.append(worker)
        self._selector.register(worker.out, selectors.EVENT_READ, worker)

    def _replace(self, worker: Worker) -> str:
        """Starts a new worker in the place of a dead one; returns how that one died."""
        self._selector.unregister(worker.out)
        code = worker.process.wait()
        for pipe in (worker.process.stdin, worker.out):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        self._workers.remove(worker)
        last = _last_line(worker.errors)
        how = f"the judge's process was ended by signal {-code}" if code < 0 else f"the judge's process ended with {code}: {last}"
        self._deaths += 1
        if self._deaths > DEATHS or not worker.ready:
            raise InfrastructureError(how, hint="see what else happens on this machine, and run it again")
        self._start()
        return how


def _last_line(errors: Path) -> str:
    try:
        lines = errors.read_bytes()[-_LAST:].decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""
