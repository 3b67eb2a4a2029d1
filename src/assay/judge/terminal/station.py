"""The judge by tests on a node: one worker process, which carries out trials that are sent here from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.judge.sandbox import InfrastructureError, choose
from assay.judge.stations import ErrandDone, Gate
from assay.judge.terminal.pool import WorkerPool
from assay.judge.terminal.worker import Job, WorkerSettings

__all__ = ["TrialStation"]

_TICK = 1.0
_HERTZ = os.sysconf("SC_CLK_TCK")


class TrialStation:
    """A `stations.Station`. The worker is the one of a run on one machine, and so is what happens when it dies."""

    def __init__(self, settings: WorkerSettings, home: Path, _gate: Gate) -> None:
        """Raises AssayError where no sandbox can be used."""
        sandbox = choose(settings.sandbox, engine=settings.engine, runtime=settings.runtime, reuse=settings.reuse)
        with suppress(InfrastructureError):
            sandbox.sweep()  # what a node that was killed left here
        self._lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        folder = home / "workers"
        folder.mkdir()
        self._pool = WorkerPool(settings, 1, folder, self._lock)

    def carry_out(self, payload: Job, places: Mapping[str, Path], folder: Path, seconds: float) -> ErrandDone:
        """See `Station.carry_out`. The reply is what the worker said: its record, or its calibration."""
        agent = str(places["agent"]) if "agent" in places else payload.agent
        job = replace(payload, task=str(places["task"]), agent=agent, folder=str(folder), flush=False)
        worker = self._pool.idle()
        assert worker is not None  # a station carries out one errand at a time
        before = _cpu(worker.process.pid)
        self._pool.give(worker, job, seconds)
        while True:
            for message in self._pool.listen(_TICK):
                if message.job is None or message.job.number != job.number:
                    continue
                if message.line is None:
                    raise InfrastructureError(message.death)
                if "record" in message.line or "calibration" in message.line:
                    return ErrandDone(
                        message.line, max(0.0, _cpu(worker.process.pid) - before) + _boxes(message.line.get("record"))
                    )

    def close(self) -> None:
        """See `Station.close`."""
        self._pool.close()
        os.close(self._lock)


def _cpu(pid: int) -> float:
    """Seconds of the processor that a process used, and those of its children for which it waited."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _HERTZ


def _boxes(record: dict[str, Any] | None) -> float:
    """Seconds of the processor that a trial's boxes used: only the system waits for the first process of a box."""
    return sum(float((record or {}).get(whose, {}).get("cpu_seconds", 0)) for whose in ("agent", "tests"))
