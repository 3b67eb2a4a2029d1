"""What a validator keeps of its last reading of each repository, so that every number can be explained by issues.

    issues/<validator>/.lock, cache/               the run that is going on, and what GitHub answered before
    issues/<validator>/<owner%2Fname>.json         schema assay.issues/1: issues, who decided when, labels that count for nothing

It explains, and decides nothing: what counts is the evidence. An issue that is gone stays in it, marked so.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import strict
from assay.folder.text import decode, load
from assay.folder.write import write_bytes
from assay.judge.issues.counting import Issue, LabelEvent, changes, ignored
from assay.judge.issues.linking import Linked
from assay.judge.issues.reading import Facts
from assay.judge.issues.rules import Rules
from assay.judge.keeping import segment
from assay.scheme.fields import Section
from assay.scheme.reading import validate
from assay.scheme.times import Instant

__all__ = ["Ignored", "Kept", "KeptChange", "KeptEvent", "KeptIssue", "place", "read", "root", "told", "write"]

MOST = 256_000_000
"""Bytes of one file."""
Verdict = Literal["valid", "invalid", "duplicate"]
Text = Annotated[str, Field(max_length=1000)]


def root(competition: Path, validator: str) -> Path:
    """The folder of a validator."""
    return competition / "issues" / segment(validator)


def place(competition: Path, validator: str, repository: str) -> Path:
    """The file of a repository."""
    return root(competition, validator) / f"{segment(repository)}.json"


class KeptEvent(Section):
    """A label was set, or taken off."""

    at: Instant
    label: Text
    added: bool
    by: Text
    by_id: int | None = None


class KeptChange(Section):
    """The verdict that an epoch ended with, where it began with another; and the label event that decided."""

    epoch: int
    before: Verdict | None = None
    after: Verdict | None = None
    event: KeptEvent


class Ignored(Section):
    """A deciding label that counts for nothing, since a stranger or the author himself set it."""

    why: Literal["author", "maintainer"]
    event: KeptEvent


class KeptIssue(Section):
    """An issue of a linked account."""

    number: int
    participant: Text
    account: int
    url: Text
    title: Text
    moved: bool
    gone: bool
    changes: Annotated[tuple[KeptChange, ...], Field(strict=False)]
    ignored: Annotated[tuple[Ignored, ...], Field(strict=False)]


class _Account(Section):
    participant: Text
    account: int
    login: Text
    starred_at: Instant | None = None


class Kept(Section):
    """The last reading of a repository by a validator."""

    schema_: Annotated[Literal["assay.issues/1"], Field(alias="schema")] = "assay.issues/1"
    validator: Text
    repository: Text
    called: Text
    read_at: Instant
    accounts: Annotated[tuple[_Account, ...], Field(strict=False)]
    issues: Annotated[tuple[KeptIssue, ...], Field(strict=False)]

    @property
    def known(self) -> frozenset[int]:
        """The numbers of issues that were there."""
        return frozenset(one.number for one in self.issues if not one.gone)


def read(path: Path) -> Kept | None:
    """What is kept; None if nothing is. Raises BadInput if it is damaged."""
    if not path.exists():
        return None
    text = decode(load(path, MOST, hint="it is made anew when it is removed"), path)
    try:
        return validate(Kept, strict.parse(text), file=path)
    except BadInput as error:
        error.hint = "remove it: the next reading makes it anew"
        raise error.at(file=path) from None


def told(facts: Facts, linked: Mapping[str, Linked], validator: str, rules: Rules, before: Kept | None) -> Kept:
    """A reading as it is kept, with the issues of an earlier one that are gone."""
    whose = {one.account: one.participant for one in linked.values()}
    earlier = before.issues if before else ()
    issues = {one.number: one.model_copy(update={"gone": one.gone or one.number in facts.gone}) for one in earlier}
    issues |= {one.number: _issue(one, whose[one.author], rules) for one in facts.issues}
    others = [one for one in (before.accounts if before else ()) if one.participant not in linked]
    mine = [
        _Account(participant=one.participant, account=one.account, login=one.login, starred_at=facts.stars.get(one.account))
        for one in linked.values()
    ]
    return Kept(
        validator=validator,
        repository=facts.name,
        called=facts.called,
        read_at=facts.at,
        accounts=(*others, *mine),
        issues=tuple(one for _, one in sorted(issues.items())),
    )


def write(path: Path, kept: Kept) -> None:
    """Puts it in its place, whole; raises BadInput."""
    write_bytes(path, canonical(kept.model_dump(mode="json", by_alias=True, exclude_none=True)) + b"\n")


def _issue(one: Issue, participant: str, rules: Rules) -> KeptIssue:
    return KeptIssue(
        number=one.number,
        participant=participant,
        account=one.author,
        url=one.url,
        title=one.title,
        moved=one.moved,
        gone=False,
        changes=tuple(
            KeptChange(epoch=change.epoch, before=change.before, after=change.after, event=_event(change.event))
            for change in changes(one, rules)
        ),
        ignored=tuple(Ignored(why=found.why, event=_event(found.event)) for found in ignored(one, rules)),
    )


def _event(one: LabelEvent) -> KeptEvent:
    at: datetime = one.at
    return KeptEvent(at=at, label=one.label, added=one.added, by=one.login, by_id=one.actor)
