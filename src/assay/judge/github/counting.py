"""From label events to counts: which records a run makes, and what each issue counts for its author in each epoch. SPEC 2.4, 3.0.

Pure: every validator gets the same counts.

- The verdict on an issue is that of the last deciding label that a maintainer set and did not take off again.
- An epoch counts the difference between the verdict at its beginning and at its end. Valid at the end but not at the beginning is
  one `valid`; valid at the beginning but not at the end is one `revoked_valid`; the same for invalid. However often a label
  changes within an epoch, an issue counts once.
- Events before the first epoch are ignored. A label counts for nothing unless a maintainer set it, or if the author set it on
  their own issue.
- An issue that was transferred from another repository counts nowhere: it would count twice.

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
    """A label was set, or taken off: by whom (None: an account that is gone), and when."""

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
    """A deciding label event that counts for nothing: by the author, or by an account that may not decide."""

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
    found: dict[int, VerdictChange] = {}
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
        began = found[epoch].before if epoch in found else before
        found[epoch] = VerdictChange(epoch, began, after, event)
        before = after
    return [one for _, one in sorted(found.items()) if one.before != one.after]


def count_issues(issues: Iterable[CountedIssue], author: int, rules: IssueRules) -> dict[int, IssueCounts]:
    """Epoch → what the issues of an author count in it; an epoch in which nothing changed is not there."""
    found: dict[int, IssueCounts] = {}
    for issue in issues:
        for change in verdict_changes(issue, rules) if issue.author == author else ():
            here = found.setdefault(change.epoch, IssueCounts())
            here.valid += change.after == "valid"
            here.invalid += change.after == "invalid"
            here.revoked_valid += change.before == "valid"
            here.revoked_invalid += change.before == "invalid"
    return found


def ignored_labels(issue: CountedIssue, rules: IssueRules) -> list[IgnoredLabel]:
    """The deciding labels of an issue that count for nothing because of who set them or took them off."""
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
    """A record to be made: a participant in a repository and an epoch; or, without these, a name for all of them."""

    participant: str
    repository: str = ""
    epoch: int = -1

    @property
    def parts(self) -> Mapping[str, str]:
        """Repository and epoch, as far as there are any."""
        said = {"repository": self.repository, "epoch": "" if self.epoch < 0 else str(self.epoch)}
        return {name: value for name, value in said.items() if value}

    @property
    def key(self) -> tuple[object, ...]:
        """See `running.Cell`."""
        return self.participant, self.repository, self.epoch


def assigned_participants(
    who: Entries, linked: Mapping[str, LinkedAccount], asked: range, options: RunOptions
) -> list[Participant]:
    """The linked participants that are this validator's to judge, and wanted. Raises BadInput where randomness is missing."""
    here = [one for one in who.participants if one.key in linked]
    mine = here if options.everybody or not asked else entries.drawn(who, here, {}, asked[0])
    return [one for one in mine if not options.participants or one.key in options.participants]


def finished_epochs(epochs: Epochs, now: datetime, options: RunOptions) -> range:
    """The epochs that are over and asked for; raises BadInput if one is asked for that is not over."""
    found = epochs.over(now)
    found = range(max(found.start, options.since or 0), found.stop)
    if options.epoch is None or options.epoch == options.since:
        return found
    if options.epoch not in found:
        what = f"epoch {options.epoch} is not over, or none of {RULES_FILE}"
        hint = f"it is judged {epochs.wait} s after its end; leave it out for all that are over"
        raise BadInput(what, field="epoch", hint=hint)
    return range(options.epoch, options.epoch + 1)


def plan_records(
    mine: Sequence[Participant], linked: Mapping[str, LinkedAccount], repositories: Sequence[str], asked: range, epochs: Epochs
) -> list[PlannedRecord]:
    """The records in their order: by epoch, repository and participant. A link counts from the epoch in which it was published.

    Raises BadInput if they are too many for one run.
    """
    first = {one.key: epochs.of(linked[one.key].since) or epochs.first for one in mine}
    records = len(repositories) * sum(len(range(max(asked.start, begins), asked.stop)) for begins in first.values())
    if records > MOST_RECORDS:
        what = f"there are {records} records to be made, and a run makes {MOST_RECORDS}"
        raise BadInput(what, field="epochs", hint="judge an epoch at a time: --epoch")
    return [
        PlannedRecord(one.key, name, epoch) for epoch in asked for name in repositories for one in mine if first[one.key] <= epoch
    ]
