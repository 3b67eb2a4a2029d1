"""From what happened to an issue to what counts for its author, epoch by epoch. Pure: the same for whoever asks. SPEC 2.4.

- The verdict on an issue is that of the last deciding label that a maintainer set and has not taken off again.
- An epoch counts the difference: of the verdict when it begins, and of that when it ends. Valid at its end and not before is
  one `valid`; valid before and no longer is one `revoked_valid`; so too for invalid. However often a label changes within an
  epoch, an issue counts once.
- What happened before the first epoch is not looked at. A label counts for nothing that was set by anybody but a maintainer,
  or by the author on his own issue.
- An issue that came from another repository counts nowhere: it would count twice.

Valid in epoch 1, found to be a duplicate in epoch 3: `valid` 1 in epoch 1, nothing in epoch 2, `revoked_valid` 1 in epoch 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from assay.judge.issues.rules import Rules, Verdict

__all__ = ["Change", "Counts", "Ignored", "Issue", "LabelEvent", "changes", "counts", "ignored"]

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
class Issue:
    """An issue of a linked account: its author's id, and its events."""

    number: int
    author: int
    url: str
    title: str
    events: tuple[LabelEvent, ...]
    moved: bool = False
    """It was opened in another repository."""


@dataclass(frozen=True, slots=True)
class Change:
    """An epoch ended with another verdict than it began with; `event` is the last one that decided."""

    epoch: int
    before: Verdict | None
    after: Verdict | None
    event: LabelEvent


@dataclass(frozen=True, slots=True)
class Ignored:
    """A deciding label that was set or taken off, and counts for nothing: the author's own, or nobody's who may decide."""

    event: LabelEvent
    why: Why


@dataclass(slots=True)
class Counts:
    """What one participant has in one repository and epoch."""

    valid: int = 0
    invalid: int = 0
    revoked_valid: int = 0
    revoked_invalid: int = 0


def changes(issue: Issue, rules: Rules) -> list[Change]:
    """The epochs in which the verdict changed, ascending."""
    found: dict[int, Change] = {}
    standing: dict[str, Verdict] = {}
    before: Verdict | None = None
    for event in _in_order(issue.events):
        epoch, verdict = rules.epochs.of(event.at), rules.verdict(event.label)
        if issue.moved or epoch is None or verdict is None or _why_not(issue, event, rules):
            continue
        standing.pop(event.label.casefold(), None)
        if event.added:
            standing[event.label.casefold()] = verdict
        after = next(reversed(standing.values()), None)
        began = found[epoch].before if epoch in found else before
        found[epoch] = Change(epoch, began, after, event)
        before = after
    return [one for _, one in sorted(found.items()) if one.before != one.after]


def counts(issues: Iterable[Issue], author: int, rules: Rules) -> dict[int, Counts]:
    """Epoch → what the issues of an author count in it; an epoch in which nothing changed is not there."""
    found: dict[int, Counts] = {}
    for issue in issues:
        for change in changes(issue, rules) if issue.author == author else ():
            here = found.setdefault(change.epoch, Counts())
            here.valid += change.after == "valid"
            here.invalid += change.after == "invalid"
            here.revoked_valid += change.before == "valid"
            here.revoked_invalid += change.before == "invalid"
    return found


def ignored(issue: Issue, rules: Rules) -> list[Ignored]:
    """The deciding labels of an issue that count for nothing because of who set them or took them off."""
    return [
        Ignored(event, why)
        for event in _in_order(issue.events)
        if rules.epochs.of(event.at) is not None and rules.verdict(event.label) and (why := _why_not(issue, event, rules))
    ]


def _why_not(issue: Issue, event: LabelEvent, rules: Rules) -> Why | None:
    if not rules.decides(event.actor, event.at):
        return "maintainer"
    return "author" if event.actor == issue.author else None


def _in_order(events: Iterable[LabelEvent]) -> list[LabelEvent]:
    return sorted(events, key=lambda event: (event.at, event.id))
