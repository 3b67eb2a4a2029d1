"""A publisher: it writes the scores of a settled epoch into a file. publish.toml: `kind = "file"`, `path = "scores.json"`."""

import json
from pathlib import Path

from assay.folder.files import write_bytes
from assay.publish.outcome import Confirmed, Outcome, Refusal
from assay.publish.publishers import Comparison, Line, PublishPlan, Target, Tell
from assay.publish.settled_epoch import SettledEpoch


class FilePublisher:
    """One target of publish.toml."""

    def __init__(self, target: Target) -> None:
        self.target, self.path = target, target.folder / target.fields["path"]

    def plan(self, epoch: SettledEpoch) -> PublishPlan:
        """What would be written."""
        scores = {row["participant"]: row["score"] for row in epoch.settlement["agreed"] if row["status"] == "agreed"}
        lines = tuple(Line(name, name, score) for name, score in scores.items())
        return PublishPlan(self.target.name, epoch.epoch, epoch.receipt, {"epoch": epoch.epoch, "scores": scores}, lines)

    def compare(self, plan: PublishPlan) -> Comparison:
        """What the file has instead."""
        there = json.loads(self.path.read_bytes()) if self.path.exists() else {"scores": {}}
        return Comparison(there["scores"], Confirmed(block=0) if there == plan.content else None)

    def send(self, plan: PublishPlan, tell: Tell) -> Outcome:
        """Write it: all of the file, or nothing."""
        write_bytes(Path(self.path), json.dumps(plan.content).encode())
        return self.confirm(plan)

    def confirm(self, plan: PublishPlan) -> Outcome:
        """Read it back."""
        same = self.compare(plan).outcome
        return same or Refusal("differs", f"{self.path} has other scores")
