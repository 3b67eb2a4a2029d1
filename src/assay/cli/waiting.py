"""Whether a payout still waits for judgements: before the scoring deadline nobody is settled without. SPEC 5.

The settlement itself reads no clock: it is the command that waits.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from assay.errors import CannotSettle
from assay.scheme.model import Scheme
from assay.scheme.times import instant_text
from assay.settle import Settlement

__all__ = ["check_waited", "deadline", "waited_for"]


def deadline(scheme: Scheme, now: datetime) -> datetime | None:
    """The scoring deadline, if it is still to come."""
    until = None if scheme.payout is None else scheme.payout.scoring_deadline
    return until if until is not None and now < until else None


def waited_for(settlement: Settlement) -> list[str]:
    """The participants with a submission of their own that has no agreed score yet."""
    submissions = {one.key: one.submission for one in settlement.inputs.participants}
    open_ = [row["participant"] for row in settlement.document["agreed"] if row["status"] not in ("agreed", "duplicate")]
    return [key for key in open_ if submissions[key]]


def check_waited(settlement: Settlement, folder: Path, until: datetime) -> None:
    """Refuse to settle a payout before its deadline while a judgement is missing; raises CannotSettle."""
    missing = waited_for(settlement)
    if missing:
        from assay.settle.story.telling import named

        raise CannotSettle(
            f"{named(missing)} {'has' if len(missing) == 1 else 'have'} no agreed score yet, and judging goes on until "
            f"{instant_text(until)}",
            file=folder,
            hint="judge what is missing, wait until then, or settle without: --early",
        )
