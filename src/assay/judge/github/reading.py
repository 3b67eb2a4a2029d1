"""Reads one repository completely: issues by linked accounts, their label events, and who has starred it. SPEC 2.4.

A list of several pages may change while it is read. If an issue is deleted, all later ones move forward by one, and one of them
may move from an unread page to a page that was already read. So such a list is read until two readings in a row agree; unchanged
pages cost nothing (304). Within one reading no entry may occur twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import TypeAdapter

from assay.judge.github import client
from assay.judge.github.client import JSON, TITLE_CHARACTERS, GitHub, Gone, Moved, Unread, parse_answer
from assay.judge.github.counting import CountedIssue, LabelEvent

PAGE_ENTRIES = 100
MOST_PAGES = 1000
"""Pages of one list."""
MOST_READINGS = 5
"""The number of times that a list is read until two readings agree."""

T = TypeVar("T")


def read_list(
    github: GitHub,
    path: str,
    adapter: TypeAdapter[list[T]],
    key: Callable[[T], Hashable],
    params: Mapping[str, str] | None = None,
    accept: str = JSON,
    follow: bool = True,
) -> list[T]:
    """All entries of a list, in its order. key: unique for each entry. Raises as `GitHub.get` does, and Unread."""
    before: list[T] | None = None
    for _ in range(MOST_READINGS):
        listed, pages = _read_pages(github, path, adapter, {**(params or {}), "per_page": str(PAGE_ENTRIES)}, accept, follow)
        once = len({key(entry) for entry in listed}) == len(listed)
        if once and (pages == 1 or listed == before):
            return listed
        before = listed if once else None
    raise Unread(f"{path}: the list changes while it is read")


def _read_pages(
    github: GitHub, path: str, adapter: TypeAdapter[list[T]], params: Mapping[str, str], accept: str, follow: bool
) -> tuple[list[T], int]:
    entries: list[T] = []
    address: str | None = path
    pages = 0
    while address is not None:
        if pages == MOST_PAGES:
            raise Unread(f"{path}: the list has more than {MOST_PAGES} pages")
        query = params if pages == 0 else None
        answer = github.get(address, query, accept=accept, follow=follow)
        page = parse_answer(adapter, answer.body, path)
        if answer.kept and answer.next is None and len(page) >= PAGE_ENTRIES:  # it may be cached from before a next page existed
            answer = github.get(address, query, accept=accept, fresh=True, follow=follow)
            page = parse_answer(adapter, answer.body, path)
        entries += page
        address, pages = answer.next, pages + 1
    return entries, pages


_REPOSITORY = TypeAdapter(client.RepositoryAnswer)
_ISSUES = TypeAdapter(list[client.IssueAnswer])
_EVENTS = TypeAdapter(list[client.EventAnswer])
_STARS = TypeAdapter(list[client.StarAnswer])
_STARRED_AT = "application/vnd.github.star+json"
_ALL = {"state": "all", "sort": "created", "direction": "asc"}


@dataclass(frozen=True)
class RepositoryFacts:
    """The facts that were read from a repository."""

    name: str
    """As the scheme calls it."""
    called: str
    """As it is called now."""
    at: datetime
    """GitHub's time when the reading began."""
    issues: tuple[CountedIssue, ...]
    """Issues of linked accounts, by number."""
    stars: dict[int, datetime]
    """Account → since when it has starred the repository, of linked accounts."""
    gone: tuple[int, ...]
    """Issues that existed before, and are deleted or moved to another repository."""


def read_repository(
    github: GitHub,
    name: str,
    id: int,
    authors: Collection[int],
    known: Collection[int],
    *,
    stars: bool,
    phase: Callable[[str], None],
) -> RepositoryFacts:
    """Read a repository; authors: ids of linked accounts; known: numbers of earlier issues. Raises Unread, RunStopped.

    stars: whether they earn points. phase: called with a description of each step.
    """
    phase("repository")
    path = f"/repos/{name}"
    got = github.get(path)
    repository = parse_answer(_REPOSITORY, got.body, path)
    if repository.id != id:
        what = f"{name} is another repository now: its id is {repository.id}, and in issues.toml it is {id}"
        raise Unread(what, hint="correct its name in scheme.toml and issues.toml, or its id")
    home = f"/repos/{repository.full_name}"
    phase("issues")
    everything = read_list(github, f"{home}/issues", _ISSUES, lambda issue: issue.number, _ALL)
    gone = _gone_issues(github, home, {issue.number for issue in everything}, known)
    mine = [issue for issue in everything if not issue.pull_request and issue.user is not None and issue.user.id in authors]
    issues = []
    for place, issue in enumerate(sorted(mine, key=lambda issue: issue.number), start=1):
        phase(f"issue {place} of {len(mine)}")
        try:
            issues.append(_read_issue(github, home, issue))
        except (Gone, Moved):  # after the list was read
            gone.append(issue.number)
    since: dict[int, datetime] = {}
    if stars:
        phase("stars")
        listing = read_list(github, f"{home}/stargazers", _STARS, _starrer, accept=_STARRED_AT)
        since = {star.user.id: star.starred_at for star in listing if star.user is not None and star.user.id in authors}
    return RepositoryFacts(name, repository.full_name, got.date, tuple(issues), since, tuple(sorted(gone)))


def _gone_issues(github: GitHub, home: str, there: Collection[int], known: Collection[int]) -> list[int]:
    """The known issues that are deleted or moved away; raises Unread if one exists but is not in the list."""
    missing = sorted(set(known) - set(there))
    for number in missing:
        try:
            github.get(f"{home}/issues/{number}", follow=False)
        except (Gone, Moved):
            continue
        raise Unread(f"{home}/issues: the list leaves out issue {number}, which is there")
    return missing


def _starrer(answer: client.StarAnswer) -> Hashable:
    return object() if answer.user is None else answer.user.id  # two deleted accounts are two entries


def _read_issue(github: GitHub, home: str, answer: client.IssueAnswer) -> CountedIssue:
    path = f"{home}/issues/{answer.number}/events"
    events = read_list(github, path, _EVENTS, lambda event: event.id, follow=False)
    assert answer.user is not None
    return CountedIssue(
        number=answer.number,
        author=answer.user.id,
        url=answer.html_url,
        title=answer.title[:TITLE_CHARACTERS],
        events=tuple(
            LabelEvent(
                id=event.id,
                at=event.created_at,
                actor=None if event.actor is None else event.actor.id,
                login="" if event.actor is None else event.actor.login,
                label=event.label.name,
                added=event.event == "labeled",
            )
            for event in events
            if event.event in ("labeled", "unlabeled") and event.label is not None
        ),
        moved=any(event.event == "transferred" for event in events),
    )
