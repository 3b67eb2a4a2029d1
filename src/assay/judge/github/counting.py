"""Counts issues from label events, for each author and epoch, and plans the records of a run. SPEC 2.4, 3.0.

It is pure: every validator gets the same counts.

- The verdict on an issue is that of the last deciding label that a maintainer set and did not remove again.
- An epoch counts the difference between the verdict at its beginning and at its end. Valid at the end but not at the beginning is
  one `valid`; valid at the beginning but not at the end is one `revoked_valid`; the same for invalid. However often a label
  changes within an epoch, an issue counts once.
- Events before the first epoch are ignored. A label does not count unless a maintainer set it. A maintainer's label on their own
  issue does not count either.
- An issue that was transferred from another repository does not count: it would count twice.

Valid in epoch 1, found to be a duplicate in epoch 3: `valid` 1 in epoch 1, nothing in epoch 2, `revoked_valid` 1 in epoch 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from assay.errors import BadInput
from assay.judge import entries
from assay.judge.entries import Entries
from assay.judge.github.accounts import LinkedAccount
from assay.judge.github.rules import RULES_FILE, Epochs, IssueRules, LabelVerdict
from assay.judge.running import RunOptions
from assay.records import Participant

Why = Literal["author", "maintainer"]


@dataclass(frozen=True, slots=True)
class LabelEvent:
    """A label was set or removed: by whom (None: an account that no longer exists), and when."""

    id: int
    at: datetime
    actor: int | None
    login: str
    label: str
    added: bool


@dataclass(frozen=True, slots=True)
class CountedIssue:
    """An issue of a linked account: its author's id, and its events."""

    number: int
    author: int
    url: str
    title: str
    events: tuple[LabelEvent, ...]
    moved: bool = False
    """It was opened in another repository."""


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """An epoch ended with another verdict than it began with; `event` is the last one that decided."""

    epoch: int
    before: LabelVerdict | None
    after: LabelVerdict | None
    event: LabelEvent


@dataclass(frozen=True, slots=True)
class IgnoredLabel:
    """A deciding label event that does not count, because the author or an account that may not decide caused it."""

    event: LabelEvent
    why: Why


@dataclass(slots=True)
class IssueCounts:
    """The counts of one participant in one repository and epoch."""

    valid: int = 0
    invalid: int = 0
    revoked_valid: int = 0
    revoked_invalid: int = 0


def verdict_changes(issue: CountedIssue, rules: IssueRules) -> list[VerdictChange]:
    """The epochs in which the verdict changed, ascending."""
    changes: dict[int, VerdictChange] = {}
    standing: dict[str, LabelVerdict] = {}
    before: LabelVerdict | None = None
    for event in _in_order(issue.events):
        epoch, verdict = rules.epochs.of(event.at), rules.verdict(event.label)
        if issue.moved or epoch is None or verdict is None or _why_not(issue, event, rules):
            continue
        standing.pop(event.label.casefold(), None)
        if event.added:
            standing[event.label.casefold()] = verdict
        after = next(reversed(standing.values()), None)
        began = changes[epoch].before if epoch in changes else before
        changes[epoch] = VerdictChange(epoch, began, after, event)
        before = after
    return [change for _, change in sorted(changes.items()) if change.before != change.after]


def count_issues(issues: Iterable[CountedIssue], author: int, rules: IssueRules) -> dict[int, IssueCounts]:
    """Epoch → the counts of an author's issues, without epochs in which nothing changed."""
    by_epoch: dict[int, IssueCounts] = {}
    for issue in issues:
        for change in verdict_changes(issue, rules) if issue.author == author else ():
            counts = by_epoch.setdefault(change.epoch, IssueCounts())
            counts.valid += change.after == "valid"
            counts.invalid += change.after == "invalid"
            counts.revoked_valid += change.before == "valid"
            counts.revoked_invalid += change.before == "invalid"
    return by_epoch


def ignored_labels(issue: CountedIssue, rules: IssueRules) -> list[IgnoredLabel]:
    """The deciding labels of an issue that do not count, because of who set or removed them."""
    return [
        IgnoredLabel(event, why)
        for event in _in_order(issue.events)
        if rules.epochs.of(event.at) is not None and rules.verdict(event.label) and (why := _why_not(issue, event, rules))
    ]


def _why_not(issue: CountedIssue, event: LabelEvent, rules: IssueRules) -> Why | None:
    if not rules.decides(event.actor, event.at):
        return "maintainer"
    return "author" if event.actor == issue.author else None


def _in_order(events: Iterable[LabelEvent]) -> list[LabelEvent]:
    return sorted(events, key=lambda event: (event.at, event.id))


MOST_RECORDS = 200_000
"""Records of one run."""


@dataclass(frozen=True)
class PlannedRecord:
    """A record to be made, for a participant, repository and epoch. Without the last two it names something of the whole run."""

    participant: str
    repository: str = ""
    epoch: int = -1

    @property
    def parts(self) -> Mapping[str, str]:
        """Repository and epoch, if the record has them."""
        parts = {"repository": self.repository, "epoch": "" if self.epoch < 0 else str(self.epoch)}
        return {name: value for name, value in parts.items() if value}

    @property
    def key(self) -> tuple[object, ...]:
        """See `running.Cell`."""
        return self.participant, self.repository, self.epoch


def assigned_participants(
    who: Entries, linked: Mapping[str, LinkedAccount], asked: range, options: RunOptions
) -> list[Participant]:
    """The linked participants that are this validator's to judge, and wanted. Raises BadInput where randomness is missing."""
    here = [participant for participant in who.participants if participant.key in linked]
    mine = here if options.everybody or not asked else entries.drawn(who, here, {}, asked[0])
    return [participant for participant in mine if not options.participants or participant.key in options.participants]


def finished_epochs(epochs: Epochs, now: datetime, options: RunOptions) -> range:
    """The requested epochs that are over; raises BadInput if a requested one is not over."""
    over = epochs.over(now)
    over = range(max(over.start, options.since or 0), over.stop)
    if options.epoch is None or options.epoch == options.since:
        return over
    if options.epoch not in over:
        what = f"epoch {options.epoch} is not over, or does not exist in {RULES_FILE}"
        hint = f"it is judged {epochs.wait} s after its end; leave the option out for all epochs that are over"
        raise BadInput(what, field="epoch", hint=hint)
    return range(options.epoch, options.epoch + 1)


def plan_records(
    mine: Sequence[Participant], linked: Mapping[str, LinkedAccount], repositories: Sequence[str], asked: range, epochs: Epochs
) -> list[PlannedRecord]:
    """The records in their order: by epoch, repository and participant. A link counts from the epoch in which it was published.

    Raises BadInput if they are too many for one run.
    """
    first = {participant.key: epochs.of(linked[participant.key].since) or epochs.first for participant in mine}
    records = len(repositories) * sum(len(range(max(asked.start, begins), asked.stop)) for begins in first.values())
    if records > MOST_RECORDS:
        what = f"there are {records} records to be made, and a run makes {MOST_RECORDS}"
        raise BadInput(what, field="epochs", hint="judge an epoch at a time: --epoch")
    return [
        PlannedRecord(participant.key, name, epoch)
        for epoch in asked
        for name in repositories
        for participant in mine
        if first[participant.key] <= epoch
    ]
