"""Stores a validator's last reading of each repository, and explains every count by issues from it. SPEC 2.4.

    issues/<validator>/.lock, cache/               the run in progress, and GitHub's earlier answers
    issues/<validator>/<owner%2Fname>.json         schema assay.issues/1: issues, deciding events, labels that do not count

A reading explains, and decides nothing: only evidence counts. An issue that is gone stays in the reading, marked as gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import strict
from assay.folder.files import decode, load, write_bytes
from assay.judge import entries
from assay.judge.entries import known
from assay.judge.github.accounts import ACCOUNTS_FILE, AccountLink, CheckedLinks, LinkedAccount
from assay.judge.github.counting import CountedIssue, IssueCounts, LabelEvent, PlannedRecord, ignored_labels, verdict_changes
from assay.judge.github.reading import RepositoryFacts
from assay.judge.github.rules import IssueRules
from assay.judge.run_files import segment
from assay.records import Evidence, Participant, Points
from assay.scheme.fields import Instant, Section
from assay.scheme.load import read as read_scheme
from assay.scheme.model import PointsScore
from assay.scheme.reading import validate

READING_BYTES = 256_000_000
"""Bytes of one file."""
LabelVerdict = Literal["valid", "invalid", "duplicate"]
StoredText = Annotated[str, Field(max_length=1000)]


def validator_folder(competition: Path, validator: str) -> Path:
    """The folder of a validator."""
    return competition / "issues" / segment(validator)


def reading_file(competition: Path, validator: str, repository: str) -> Path:
    """The file of a repository."""
    return validator_folder(competition, validator) / f"{segment(repository)}.json"


class StoredEvent(Section):
    """A label was set or removed."""

    at: Instant
    label: StoredText
    added: bool
    by: StoredText
    by_id: int | None = None


class StoredChange(Section):
    """The verdict that an epoch ended with, where it began with another; and the label event that decided."""

    epoch: int
    before: LabelVerdict | None = None
    after: LabelVerdict | None = None
    event: StoredEvent


class StoredIgnored(Section):
    """A deciding label that does not count, since the author or an account that may not decide set it."""

    why: Literal["author", "maintainer"]
    event: StoredEvent


class StoredIssue(Section):
    """An issue of a linked account."""

    number: int
    participant: StoredText
    account: int
    url: StoredText
    title: StoredText
    moved: bool
    gone: bool
    changes: Annotated[tuple[StoredChange, ...], Field(strict=False)]
    ignored: Annotated[tuple[StoredIgnored, ...], Field(strict=False)]


class _Account(Section):
    participant: StoredText
    account: int
    login: StoredText
    starred_at: Instant | None = None


class StoredReading(Section):
    """The last reading of a repository by a validator."""

    schema_: Annotated[Literal["assay.issues/1"], Field(alias="schema")] = "assay.issues/1"
    validator: StoredText
    repository: StoredText
    called: StoredText
    read_at: Instant
    accounts: Annotated[tuple[_Account, ...], Field(strict=False)]
    issues: Annotated[tuple[StoredIssue, ...], Field(strict=False)]

    @property
    def known(self) -> frozenset[int]:
        """The numbers of issues that were there."""
        return frozenset(issue.number for issue in self.issues if not issue.gone)


def load_reading(path: Path) -> StoredReading | None:
    """The stored reading; None if there is none. Raises BadInput if it is damaged."""
    if not path.exists():
        return None
    text = decode(load(path, READING_BYTES, hint="remove it: the next run writes it again"), path)
    try:
        return validate(StoredReading, strict.parse(text), file=path)
    except BadInput as error:
        error.hint = "remove it: the next run writes it again"
        raise error.at(file=path) from None


def make_reading(
    facts: RepositoryFacts, linked: Mapping[str, LinkedAccount], validator: str, rules: IssueRules, before: StoredReading | None
) -> StoredReading:
    """A reading to be stored, with the issues of an earlier one that are gone."""
    whose = {person.account: person.participant for person in linked.values()}
    earlier = before.issues if before else ()
    issues = {issue.number: issue.model_copy(update={"gone": issue.gone or issue.number in facts.gone}) for issue in earlier}
    issues |= {issue.number: _stored_issue(issue, whose[issue.author], rules) for issue in facts.issues}
    others = [account for account in (before.accounts if before else ()) if account.participant not in linked]
    mine = [
        _Account(
            participant=person.participant, account=person.account, login=person.login, starred_at=facts.stars.get(person.account)
        )
        for person in linked.values()
    ]
    return StoredReading(
        validator=validator,
        repository=facts.name,
        called=facts.called,
        read_at=facts.at,
        accounts=(*others, *mine),
        issues=tuple(issue for _, issue in sorted(issues.items())),
    )


def write_reading(path: Path, reading: StoredReading) -> None:
    """Writes the file atomically; raises BadInput."""
    write_bytes(path, canonical(reading.model_dump(mode="json", by_alias=True, exclude_none=True)) + b"\n")


def _stored_issue(issue: CountedIssue, participant: str, rules: IssueRules) -> StoredIssue:
    return StoredIssue(
        number=issue.number,
        participant=participant,
        account=issue.author,
        url=issue.url,
        title=issue.title,
        moved=issue.moved,
        gone=False,
        changes=tuple(
            StoredChange(epoch=change.epoch, before=change.before, after=change.after, event=_stored_event(change.event))
            for change in verdict_changes(issue, rules)
        ),
        ignored=tuple(
            StoredIgnored(why=ignored_label.why, event=_stored_event(ignored_label.event))
            for ignored_label in ignored_labels(issue, rules)
        ),
    )


def _stored_event(event: LabelEvent) -> StoredEvent:
    at: datetime = event.at
    return StoredEvent(at=at, label=event.label, added=event.added, by=event.login, by_id=event.actor)


LISTED_NAMES = 5
"""The number of names that a sentence lists."""

FourCounts = tuple[int, int, int, int]
"""valid, invalid, revoked_valid, revoked_invalid."""


def unlinked_remarks(checked: CheckedLinks, links: Sequence[AccountLink], everybody: Sequence[Participant]) -> Iterator[str]:
    """Remarks about refused and missing links. everybody: the participants to report about."""
    keys = [participant.key for participant in everybody]
    for participant, why in checked.refused.items():
        if participant in keys:
            yield f"No account is linked for {participant}: {why}"
    named = {link.participant for link in links}
    if without := [key for key in keys if key not in named]:
        yield f"Not in {ACCOUNTS_FILE.name}: {_name_list(without)}."


def reading_remarks(reading: StoredReading) -> Iterator[str]:
    """Remarks about labels and issues that do not count."""
    ignored = Counter(label.event.by or "a deleted account" for issue in reading.issues for label in issue.ignored)
    if ignored:
        names = _name_list(f"{name} ({count})" for name, count in sorted(ignored.items()))
        yield f"{reading.repository}: labels that do not count, set by {names}."
    for what, numbers in (
        ("deleted or moved away; their earlier counts stay", [issue.number for issue in reading.issues if issue.gone]),
        ("moved here from another repository, and do not count", [issue.number for issue in reading.issues if issue.moved]),
    ):
        if numbers:
            yield f"{reading.repository}: {what}: {_name_list(f'#{number}' for number in numbers)}."


def changed_history_remarks(
    repository: str, done: Mapping[PlannedRecord, FourCounts], counted: Mapping[str, Mapping[int, IssueCounts]]
) -> Iterator[str]:
    """Remarks about epochs whose record differs from GitHub's history now."""
    for cell, before in sorted(done.items(), key=lambda item: (item[0].participant, item[0].epoch)):
        if cell.repository == repository and cell.participant in counted:
            now = counted[cell.participant].get(cell.epoch, IssueCounts())
            if (now.valid, now.invalid, now.revoked_valid, now.revoked_invalid) != before:
                what = f"GitHub's history of {cell.participant} in epoch {cell.epoch} is different now; the record stays"
                yield f"{repository}: {what}."


def count_text(points: Points) -> str:
    """The counts of a record as text: "5 valid, 1 invalid, starred"."""
    parts = [f"{points.valid} valid", f"{points.invalid} invalid"]
    parts += [f"{points.revoked_valid} valid revoked"] if points.revoked_valid else []
    parts += [f"{points.revoked_invalid} invalid revoked"] if points.revoked_invalid else []
    return ", ".join([*parts, *(["starred"] if points.starred else [])])


def _name_list(names: Iterable[str]) -> str:
    """The first few names of many."""
    listed = list(names)
    return ", ".join(listed[:LISTED_NAMES]) + (f" and {len(listed) - LISTED_NAMES} more" if len(listed) > LISTED_NAMES else "")


LISTED_ISSUES = 12
"""The number of issues that a row lists."""


@dataclass(frozen=True)
class CountLine:
    """A participant in a repository: the validator's records by epoch, and the issues of its last reading."""

    participant: str
    repository: str
    records: tuple[Points, ...]
    issues: tuple[StoredIssue, ...]
    reading: StoredReading | None

    def total(self, name: str) -> int:
        """The sum of a count over all epochs."""
        return sum(getattr(record, name) for record in self.records)

    @property
    def starred(self) -> bool:
        """Whether the participant has starred the repository, by the record of the latest epoch."""
        return self.records[-1].starred

    @property
    def differs(self) -> tuple[int, ...]:
        """The epochs whose record differs from the counts of the last reading."""
        if self.reading is None:
            return ()
        return tuple(
            record.epoch for record in self.records if _record_counts(record) != _issue_counts(self.issues, record.epoch)
        )


def _record_counts(points: Points) -> tuple[int, int, int, int]:
    return points.valid, points.invalid, points.revoked_valid, points.revoked_invalid


def _issue_counts(issues: Sequence[StoredIssue], epoch: int) -> tuple[int, int, int, int]:
    changes = [change for issue in issues for change in issue.changes if change.epoch == epoch]
    afters, befores = [change.after for change in changes], [change.before for change in changes]
    return afters.count("valid"), afters.count("invalid"), befores.count("valid"), befores.count("invalid")


def validators(folder: Path) -> list[str]:
    """The validators that have read issues in a competition's folder, from the stored readings."""
    return sorted({reading.validator for path in (folder / "issues").glob("[!.]*/*.json") if (reading := load_reading(path))})


def chosen_validator(folder: Path, name: str | None) -> str:
    """The named validator, or the only one here. Raises BadInput."""
    names = validators(folder)
    if name is not None:
        known(name, names, folder / "issues", "validator who has read issues here")
        return name
    if len(names) != 1:
        what = f"{len(names)} validators have read issues here" if names else "no validator has read issues here yet"
        hint = f"choose one with --validator: {', '.join(names[:5])}" if names else "`assay run DIR --validator NAME` reads them"
        raise BadInput(what, file=folder / "issues", field="validator" if names else "", hint=hint)
    return names[0]


def count_lines(folder: Path, validator: str, participants: Sequence[str] = ()) -> list[CountLine]:
    """A validator's counts from the evidence, by participant and repository in the order of the files; raises BadInput.

    participants: only these, if there are any.
    """
    scheme = read_scheme(folder / "scheme.toml")
    if not isinstance(scheme.score, PointsScore):
        what = f"is {scheme.score.kind!r}, but only competitions of the kind 'points' count issues"
        raise BadInput(what, file=folder / "scheme.toml", field="score.kind", hint="name a competition of kind points")
    who = entries.read(folder, scheme, validator, participants)
    of: dict[tuple[str, str], list[Points]] = {}
    for points in sorted(entries.written(who, _unchanged).done, key=lambda points: points.epoch):
        if isinstance(points, Points):
            of.setdefault((points.participant, points.repository), []).append(points)
    lines = []
    read = {name: load_reading(reading_file(folder, validator, name)) for name in scheme.score.repositories}
    for person in who.participants:
        for name, reading in read.items():
            records = of.get((person.key, name))
            if records and (not participants or person.key in participants):
                mine = tuple(issue for issue in (reading.issues if reading else ()) if issue.participant == person.key)
                lines.append(CountLine(person.key, name, tuple(records), mine, reading))
    return lines


def _unchanged(evidence: Evidence) -> Evidence:
    return evidence


def table_rows(lines: Sequence[CountLine]) -> list[Mapping[str, str]]:
    """The lines as a table."""
    return [
        {
            "participant": line.participant,
            "repo": line.repository,
            "valid": str(line.total("valid")),
            "invalid": str(line.total("invalid")),
            "revoked": str(line.total("revoked_valid") + line.total("revoked_invalid")),
            "star": "yes" if line.starred else "no",
            "issues": _issue_list(line.issues),
        }
        for line in lines
    ]


def _issue_list(issues: Sequence[StoredIssue]) -> str:
    """The numbers of issues by the verdict that stands: "valid #1 #2, invalid #6"."""
    by: dict[str, list[int]] = {}
    for issue in issues:
        if issue.changes:
            by.setdefault(issue.changes[-1].after or "undecided", []).append(issue.number)
    order = ("valid", "invalid", "duplicate", "undecided")
    return ", ".join(f"{verdict} {_number_list(by[verdict])}" for verdict in order if verdict in by)


def _number_list(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - LISTED_ISSUES} more" if len(numbers) > LISTED_ISSUES else ""
    return " ".join(f"#{number}" for number in numbers[:LISTED_ISSUES]) + more
