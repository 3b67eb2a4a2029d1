"""Submitting plans or a planner: files are kept by digest, and participants.csv says whose they are, since when. SPEC 2, 7."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from assay.errors import BadInput
from assay.judge import submitting, tree
from assay.judge.keeping import short
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
    planner = _placed(competition, load_planner(folder))
    return Submitted(planner, before, row.enter(planner.digest, at=at, epoch=epoch))


def _placed(competition: Path, planner: Planner) -> Planner:
    """The planner with its files in planners/, copied there whole or not at all."""
    target = competition / PLANNERS / short(planner.digest)
    if target.is_dir() and load_planner(target).digest == planner.digest:
        return planner
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        target.parent.mkdir(exist_ok=True)
        try:
            copied = tree.copy(planner.folder, beside, bounds=BOUNDS)
            if copied.left:
                hint = "a submission is files, folders, and links that stay inside"
                raise BadInput(f"{', '.join(copied.names)} cannot be submitted", file=planner.folder, hint=hint)
            tree.remove(target)
            os.rename(beside, target)
        finally:
            tree.remove(beside)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=target, hint="check permissions and space") from None
    return planner
