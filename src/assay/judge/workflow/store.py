"""Where a validator's runs and evidence are kept, so that a crash at any moment loses nothing and counts nothing twice.

    workflows/<validator>/<epoch>/round.json                                  what was asked
    workflows/<validator>/<epoch>/<participant>@<digest12>/<task>.json        what came of it
    evidence/run-<validator>.jsonl                                            one line for each that is not an error

A record is on the disk before its line is written. A crash in between leaves a record without a line, which the next run writes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.text import load
from assay.folder.write import clear, write_bytes
from assay.judge import keeping
from assay.judge.workflow import record as records
from assay.judge.workflow.record import RunRecord
from assay.judge.workflow.rounds import Round

__all__ = ["Store"]

FOLDER = "workflows"
_ROUND_BYTES = 64_000_000


class Store:
    """What one validator keeps in a competition's folder."""

    def __init__(self, competition: Path, validator: str) -> None:
        self.validator = validator
        self.root = competition / FOLDER / keeping.segment(validator)
        self.evidence = keeping.evidence_file(competition, validator)

    def lock(self) -> AbstractContextManager[int]:
        """Holds the validator's lock; raises Busy and BadInput."""
        return keeping.held(self.root, self.validator)

    def clean(self) -> None:
        """Takes away what an earlier run was writing when it died, and mends the evidence. For the holder of the lock."""
        for folder in (self.root, *(one for one in self.root.rglob("*") if one.is_dir())):
            clear(folder)
        keeping.mend(self.evidence)

    def place(self, epoch: int, participant: str, submission: str, task: str) -> Path:
        """The file of one record."""
        whose = f"{keeping.segment(participant)}@{keeping.short(submission)}"
        return self.root / str(epoch) / whose / f"{keeping.segment(task)}.json"

    def keep(self, found: RunRecord) -> Path:
        """Puts a record in its place, over an earlier error; raises BadInput where it cannot be written."""
        file = self.place(found.epoch, found.participant, found.submission, found.task)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot be made ({error.strerror})", file=file.parent, hint="check permissions and space") from None
        write_bytes(file, records.to_bytes(found))
        return file

    def append(self, found: RunRecord) -> bool:
        """Adds the record's line of evidence and flushes it to the disk; False for an error, which has none. Raises OSError."""
        evidence = found.evidence()
        if evidence is None:
            return False
        keeping.append(self.evidence, canonical(evidence.document()) + b"\n")
        return True

    def result(self, epoch: int, participant: str, submission: str, task: str) -> RunRecord | None:
        """The record that was kept; None if there is none that can be read."""
        try:
            return records.read(self.place(epoch, participant, submission, task))
        except BadInput:
            return None

    def begin(self, asked: Round) -> None:
        """Remembers what is asked in an epoch; raises BadInput if something else was asked in it before."""
        file = self.root / str(asked.epoch) / "round.json"
        now = canonical(asked.document()) + b"\n"
        if file.exists():
            if load(file, _ROUND_BYTES, hint="") != now:
                raise BadInput(
                    f"{self.validator!r} asked other tasks, or other files of them, in epoch {asked.epoch}",
                    file=file,
                    hint="everybody is asked the same in a round: get the tasks back, or begin the next epoch",
                )
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, now)
