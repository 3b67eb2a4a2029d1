"""Which records there should be: each linked participant, in each repository, in each epoch that is over. SPEC 2.4, 3.0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from assay.errors import BadInput
from assay.judge import entries
from assay.judge.entries import Entries
from assay.judge.issues.linking import Linked
from assay.judge.issues.rules import FILE, Epochs
from assay.judge.running import Options
from assay.records import Participant

__all__ = ["RECORDS", "Cell", "drawn", "over", "wanted"]

RECORDS = 200_000
"""Records of one run."""


@dataclass(frozen=True)
class Cell:
    """One record to be: a participant in a repository and an epoch; or, without these, what stands for all of them."""

    participant: str
    repository: str = ""
    epoch: int = -1

    @property
    def parts(self) -> Mapping[str, str]:
        """Repository and epoch, as far as there are any."""
        said = {"repository": self.repository, "epoch": "" if self.epoch < 0 else str(self.epoch)}
        return {name: value for name, value in said.items() if value}


def drawn(who: Entries, linked: Mapping[str, Linked], asked: range, options: Options) -> list[Participant]:
    """The linked participants that are this validator's to judge, and wanted. Raises BadInput where randomness is missing."""
    here = [one for one in who.participants if one.key in linked]
    mine = here if options.everybody or not asked else entries.drawn(who, here, {}, asked[0])
    return [one for one in mine if not options.participants or one.key in options.participants]


def over(epochs: Epochs, now: datetime, options: Options) -> range:
    """The epochs that are over and asked for; raises BadInput if one is asked for that is not over."""
    found = epochs.over(now)
    found = range(max(found.start, options.since or 0), found.stop)
    if options.epoch is None or options.epoch == options.since:
        return found
    if options.epoch not in found:
        what = f"epoch {options.epoch} is not over, or none of {FILE}"
        hint = f"it is judged {epochs.wait} s after its end; leave it out for all that are over"
        raise BadInput(what, field="epoch", hint=hint)
    return range(options.epoch, options.epoch + 1)


def wanted(
    mine: Sequence[Participant], linked: Mapping[str, Linked], repositories: Sequence[str], asked: range, epochs: Epochs
) -> list[Cell]:
    """The records in their order: by epoch, repository and participant. A link counts from the epoch in which it was published.

    Raises BadInput if they are too many for one run.
    """
    first = {one.key: epochs.of(linked[one.key].since) or epochs.first for one in mine}
    records = len(repositories) * sum(len(range(max(asked.start, begins), asked.stop)) for begins in first.values())
    if records > RECORDS:
        what = f"there are {records} records to be made, and a run makes {RECORDS}"
        raise BadInput(what, field="epochs", hint="judge an epoch at a time: --epoch")
    return [Cell(one.key, name, epoch) for epoch in asked for name in repositories for one in mine if first[one.key] <= epoch]
