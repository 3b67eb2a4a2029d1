"""One agent on a whole set of tasks: `assay trial` on each, in a process of its own, and a score at the end. SPEC 2.1.

Each task is tried by the very command that tries one, so the rules are the same: calibration, time, bounds, and whose trouble
is whose. An error is no failure: it leaves the score open.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from assay.cli.errors import printable
from assay.exact import NANO, half_even, text
from assay.uncertainty import wilson

__all__ = ["Set", "try_set"]

Json = dict[str, Any]
STOPPED = "stopped"


@dataclass
class Set:
    """The tasks of a set in their order, and what came of those that were tried."""

    agent: str
    tasks: tuple[str, ...]
    trials: dict[str, Json] = field(default_factory=dict)
    stopped: bool = False

    def count(self, *outcomes: str) -> int:
        """Trials that ended so."""
        return sum(one["outcome"] in outcomes for one in self.trials.values())

    @property
    def passed(self) -> int:
        """Tasks that were passed."""
        return self.count("pass")

    @property
    def judged(self) -> int:
        """Tasks with a result: errors have none, nor has what was never tried."""
        return self.count("pass", "fail", "timeout")

    @property
    def score(self) -> str | None:
        """The share of all tasks that were passed, as evidence would score; None while one of them has no result."""
        return text(half_even(self.passed * NANO, len(self.tasks))) if self.judged == len(self.tasks) else None

    def document(self) -> Json:
        """The set as JSON."""
        counts = {"tasks": len(self.tasks), "passed": self.passed, "judged": self.judged, "errors": self.count("error")}
        trials = [self.trials[task] for task in self.tasks if task in self.trials]
        missing = [task for task in self.tasks if self.trials.get(task, {}).get("outcome") not in ("pass", "fail", "timeout")]
        said = {"schema": "assay.trial-set/1", "agent": self.agent, "score": self.score, "stopped": self.stopped}
        return said | counts | {"missing": missing, "trials": trials}

    def summary(self) -> str:
        """What it comes to, in a sentence or two."""
        if self.score is not None:
            sure = wilson(self.passed, len(self.tasks))
            between = f"{100 * sure.low:.1f}–{100 * sure.high:.1f} %"
            return f"Score {self.score}: {self.passed} of {len(self.tasks)} tasks passed (95 % interval {between})."
        rest = len(self.tasks) - self.judged
        why = "Stopped, so there is no score yet" if self.stopped else "No score"
        missing = f"{rest} of {len(self.tasks)} tasks {'has' if rest == 1 else 'have'} no result, and errors are never failures"
        return f"{why}: {missing}. Of the {self.judged} with one, {self.passed} passed."


def try_set(agent: str, tasks: Sequence[Path], options: Sequence[str], jobs: int, *, output: Path | None, loud: bool) -> Set:
    """Try every task, so many at a time, telling each result as it comes. Ctrl-C stops the trials and keeps what there is."""
    found = Set(agent, tuple(task.name for task in tasks))
    running: dict[str, subprocess.Popen[bytes]] = {}
    starting = threading.Lock()

    def one(task: Path) -> Json:
        words = [str(task), agent, "--json", *options, *(["--output", str(output / task.name)] if output else [])]
        with starting:
            if found.stopped:
                return {"task": task.name, "outcome": STOPPED}
            process = running[task.name] = subprocess.Popen(
                [sys.executable, "-m", "assay", "trial", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # so that Ctrl-C in a terminal is this command's to answer
            )
        said, wrong = process.communicate()
        running.pop(task.name)
        return _told(task.name, process.returncode, said, wrong, stopped=found.stopped)

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(one, task) for task in tasks]
        try:
            for future in as_completed(futures):
                _take(found, future.result(), loud)
        except KeyboardInterrupt:
            with starting:
                found.stopped = True
            for future in futures:
                future.cancel()
            for process in list(running.values()):
                process.send_signal(signal.SIGINT)
    for future in futures:
        if future.done() and not future.cancelled() and future.result()["task"] not in found.trials:
            _take(found, future.result(), loud)
    return found


def _told(task: str, code: int, said: bytes, wrong: bytes, *, stopped: bool) -> Json:
    """What a trial's process said; trouble of its own is an error of the trial."""
    try:
        document: Json = json.loads(said)
    except ValueError:
        if stopped or code == 130:
            return {"task": task, "outcome": STOPPED}
        last = (wrong.decode(errors="replace").strip().splitlines() or [f"the trial's process ended with {code}"])[-1]
        return {"task": task, "outcome": "error", "reason": "error", "message": last.removeprefix("error: "), "seconds": None}
    return document


def _take(found: Set, trial: Json, loud: bool) -> None:
    if trial["outcome"] == STOPPED:
        return
    found.trials[trial["task"]] = trial
    if loud:
        why = f": {trial['message']}" if trial["outcome"] == "error" and trial["message"] else ""
        line = f"{len(found.trials)}/{len(found.tasks)} {trial['task']}: {trial['outcome']}{why}"
        typer.echo(printable(line), err=True)
