"""Judges trials again for an audit: only their tests, in new boxes, on kept work. docs/auditing.md.

A trial whose first run shows what is claimed is done; another is judged up to three times, to tell a flaky task from a false
claim. An infrastructure error says nothing about a claim: it is raised, and the trial is judged again later.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.errors import BadInput
from assay.judge.sandbox import Image, InfrastructureError, Sandbox
from assay.judge.terminal import calibration
from assay.judge.terminal.competition import pins_of
from assay.judge.terminal.kept_work import OtherWork
from assay.judge.terminal.record import WORK_FILE, TrialStore
from assay.judge.terminal.tasks import Task, read_task
from assay.judge.terminal.trial import TrialSetup, image_of, run_tests_again
from assay.rules.audit import RUNS, ClaimedTrial

__all__ = ["TrialsAgain"]


@dataclass
class TrialsAgain:
    """Judges trials of one epoch again. Several threads may use it.

    folders: competitions' folders with kept work, as validators wrote it or as a service has it. tasks: the folder of the task
    set. manifest: its lines, as the receipt binds them.
    """

    sandbox: Sandbox
    folders: Sequence[Path]
    tasks: Path
    manifest: Sequence[str]
    _ready: dict[str, tuple[Task, Image]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def seen(self, trial: ClaimedTrial, submission: str, work: str | None) -> tuple[str, ...]:
        """The outcomes, in their order; none if the work is missing or another. work: its digest in the record.

        Raises InfrastructureError, and BadInput for a task that is missing, not the pinned one, or does not judge right here.
        """
        file = None if work is None else self._work(trial, submission, work)
        if work is None or file is None:
            return ()
        task, image = self._prepared(trial.task)
        outcomes = list[str]()
        while len(outcomes) < RUNS:
            with TemporaryDirectory(prefix="assay-audit-") as place:
                try:
                    result = run_tests_again(TrialSetup(self.sandbox), task, image, (file, work), Path(place))
                except OtherWork:
                    return ()
            if result.verdict.outcome == "error":
                raise InfrastructureError(f"{trial.task}: {result.message}", file=task.folder)
            outcomes.append(result.verdict.outcome)
            if (outcomes[-1] == "pass") == trial.passed:
                break
        return tuple(outcomes)

    def _work(self, trial: ClaimedTrial, submission: str, work: str) -> Path | None:
        """The file of a trial's kept work: by its digest as a service has it, or beside the trial's logs."""
        sha = work.removeprefix("sha256:")
        for folder in self.folders:
            place = TrialStore(folder, trial.validator).place(trial.participant, submission, trial.task, trial.trial)
            named = [folder / "objects" / sha[:2] / sha] if sha.isalnum() else []
            for file in (*named, place / WORK_FILE):
                if file.is_file() and not file.is_symlink():
                    return file
        return None

    def _prepared(self, name: str) -> tuple[Task, Image]:
        with self._lock:
            if name not in self._ready:
                task = read_task(self.tasks / name)
                pinned = pins_of(self.manifest).get(name)
                if pinned not in (None, task.digest):
                    what = f"has the digest {task.digest}, and the epoch was judged with {pinned}"
                    raise BadInput(what, file=task.folder, hint="give the task set of that epoch with --tasks")
                image = image_of(self.sandbox, task)
                calibration.calibrate(self.sandbox, task, image)
                self._ready[name] = task, image
            return self._ready[name]
