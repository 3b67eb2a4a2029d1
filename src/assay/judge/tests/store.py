"""Where a validator's trials and evidence are kept, so that a crash at any moment loses nothing and counts nothing twice.

    trials/<validator>/<participant>@<digest12>/<task>/<n>/     one folder a trial: result.json, what was printed, ctrf.json
    trials/<validator>/.lock, .partial/                          the run that is going on, and what it has not finished
    evidence/run-<validator>.jsonl                               one line for each trial that is not an ERROR

A trial's folder is made in .partial/, its record flushed by who judged it, and renamed to its place; then its line is written. A
crash in between leaves a result without a line, which the next run writes; a line that was cut off is taken away first. SPEC 2.1,
3.0.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.write import flush_folder
from assay.judge import keeping, tree
from assay.judge.keeping import segment, short
from assay.judge.tests import record as records
from assay.judge.tests.record import TrialRecord

__all__ = ["Store", "kept"]


class Store:
    """What one validator keeps in a competition's folder."""

    def __init__(self, competition: Path, validator: str) -> None:
        self.validator = validator
        self.root = competition / "trials" / segment(validator)
        self.evidence = keeping.evidence_file(competition, validator)
        self._partial = self.root / ".partial"

    @contextmanager
    def lock(self) -> Iterator[int]:
        """Holds the validator's lock, and gives its descriptor, which workers hold too: nobody begins before they are gone.

        Raises Busy if another run has it, and BadInput where nothing can be written. Waits for the workers of a run that is dead.
        """
        try:
            self._partial.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            hint = "check its permissions and space"
            raise BadInput(f"cannot be written ({error.strerror})", file=self.root, hint=hint) from None
        with keeping.held(self.root, self.validator) as number:
            yield number

    def place(self, participant: str, submission: str, task: str, trial: int) -> Path:
        """The folder of a trial."""
        return self.root / f"{segment(participant)}@{short(submission)}" / segment(task) / str(trial)

    def partial(self) -> Path:
        """A new folder for a trial that is going on."""
        made = self._partial / secrets.token_hex(8)
        made.mkdir(parents=True)
        return made

    def clean(self) -> int:
        """Removes what an earlier run left unfinished; returns how many trials. For the holder of the lock."""
        left = sorted(self._partial.iterdir()) if self._partial.is_dir() else []
        for one in left:
            tree.remove(one)
        return len(left)

    def keep(self, partial: Path, found: TrialRecord) -> Path:
        """Puts a trial whose record is written in its place, where an earlier error gives way to it; no crash undoes that.

        Raises OSError.
        """
        target = self.place(found.participant, found.submission, found.task, found.trial)
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target):
            aside = self._partial / secrets.token_hex(8)
            target.rename(aside)
            partial.rename(target)
            tree.remove(aside)
        else:
            partial.rename(target)
        flush_folder(target.parent)
        return target

    def append(self, found: TrialRecord) -> bool:
        """Adds the trial's line of evidence and flushes it to the disk; False for an error, which has none. Raises OSError."""
        evidence = found.evidence()
        if evidence is None:
            return False
        keeping.append(self.evidence, canonical(evidence.document()) + b"\n")
        return True

    def repair(self) -> bool:
        """Mends the end of the evidence file, if need be: a whole record gets its line end, half of one is taken away."""
        return keeping.mend(self.evidence)

    def result(self, participant: str, submission: str, task: str, trial: int) -> TrialRecord | None:
        """The record of a trial that was judged; None if there is none that can be read."""
        try:
            return records.read(self.place(participant, submission, task, trial) / records.FILE)
        except BadInput:
            return None


def kept(competition: Path) -> Iterator[tuple[Path, TrialRecord]]:
    """Every trial that is kept in a competition's folder, and where; what cannot be read is passed over."""
    for file in sorted((competition / "trials").glob(f"[!.]*/[!.]*/*/*/{records.FILE}")):
        with suppress(BadInput):
            yield file.parent, records.read(file)
