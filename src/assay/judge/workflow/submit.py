"""Submitting plans or a planner: files are kept by digest, and participants.csv says whose they are, since when. SPEC 2, 7."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from assay.judge import submitting
from assay.judge.workflow.contest import PLANNERS
from assay.judge.workflow.planner import BOUNDS, Planner, load_planner

__all__ = ["Submitted", "submit"]


@dataclass(frozen=True)
class Submitted:
    """What was done."""

    planner: Planner
    before: str
    """The participant's submission until now; empty if there was none."""
    epoch: int | None = None
    """In which epoch the ledger has it as accepted; None without a ledger."""

    @property
    def changed(self) -> bool:
        """Whether it is another submission than before."""
        return self.before != self.planner.digest


def submit(
    competition: Path, participant: str, folder: Path, *, at: datetime | None = None, epoch: int | None = None
) -> Submitted:
    """Makes a folder of plans, or with planner.toml, the current submission of a participant; raises BadInput, StoreError.

    epoch: in which it is accepted, for a competition with a ledger; None is the latest that is open.
    """
    row = submitting.find(competition, participant)
    before = row.submission
    planner = load_planner(folder)
    submitting.placed(
        competition / PLANNERS,
        planner.folder,
        planner.digest,
        lambda kept: load_planner(kept).digest,
        bounds=BOUNDS,
        refused="a submission is files, folders, and links that stay inside",
    )
    return Submitted(planner, before, row.enter(planner.digest, at=at, epoch=epoch))
