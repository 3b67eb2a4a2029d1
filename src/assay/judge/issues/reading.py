"""One repository, whole: its issues by linked accounts with what happened to their labels, and who has starred it. SPEC 2.4."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from datetime import datetime

from pydantic import TypeAdapter

from assay.judge.issues import answers
from assay.judge.issues.answers import TITLE, Unread, taken
from assay.judge.issues.client import GitHub, Gone, Moved
from assay.judge.issues.counting import Issue, LabelEvent
from assay.judge.issues.listing import listed

__all__ = ["Facts", "read"]

_REPOSITORY = TypeAdapter(answers.Repository)
_ISSUES = TypeAdapter(list[answers.Issue])
_EVENTS = TypeAdapter(list[answers.Event])
_STARS = TypeAdapter(list[answers.Star])
_STARRED_AT = "application/vnd.github.star+json"
_ALL = {"state": "all", "sort": "created", "direction": "asc"}


@dataclass(frozen=True)
class Facts:
    """What was read of a repository."""

    name: str
    """As the scheme calls it."""
    called: str
    """As it is called now."""
    at: datetime
    """GitHub's time when the reading began."""
    issues: tuple[Issue, ...]
    """Of linked accounts, by number."""
    stars: dict[int, datetime]
    """Account → since when it has starred the repository, of linked accounts."""
    gone: tuple[int, ...]
    """Issues that were there before, and are deleted or moved away."""


def read(
    github: GitHub,
    name: str,
    id: int,
    authors: Collection[int],
    known: Collection[int],
    *,
    stars: bool,
    phase: Callable[[str], None],
) -> Facts:
    """Reads it; authors: ids of linked accounts; known: numbers of issues that were there before. Raises Unread, Stopped.

    stars: whether they are worth anything. phase: is told what is read.
    """
    phase("repository")
    path = f"/repos/{name}"
    got = github.get(path)
    repository = taken(_REPOSITORY, got.body, path)
    if repository.id != id:
        what = f"{name} is another repository now: its id is {repository.id}, and in issues.toml it is {id}"
        raise Unread(what, hint="correct its name in scheme.toml and issues.toml, or its id")
    home = f"/repos/{repository.full_name}"
    phase("issues")
    everything = listed(github, f"{home}/issues", _ISSUES, lambda one: one.number, _ALL)
    gone = _gone(github, home, {one.number for one in everything}, known)
    mine = [one for one in everything if not one.pull_request and one.user is not None and one.user.id in authors]
    issues = []
    for place, one in enumerate(sorted(mine, key=lambda one: one.number), start=1):
        phase(f"issue {place} of {len(mine)}")
        try:
            issues.append(_issue(github, home, one))
        except (Gone, Moved):  # since the list was read
            gone.append(one.number)
    since: dict[int, datetime] = {}
    if stars:
        phase("stars")
        listing = listed(github, f"{home}/stargazers", _STARS, _starrer, accept=_STARRED_AT)
        since = {one.user.id: one.starred_at for one in listing if one.user is not None and one.user.id in authors}
    return Facts(name, repository.full_name, got.date, tuple(issues), since, tuple(sorted(gone)))


def _gone(github: GitHub, home: str, there: Collection[int], known: Collection[int]) -> list[int]:
    """Those of the known issues that are deleted or moved away; one that is there and not in the list: the list was not whole."""
    missing = sorted(set(known) - set(there))
    for number in missing:
        try:
            github.get(f"{home}/issues/{number}", follow=False)
        except (Gone, Moved):
            continue
        raise Unread(f"{home}/issues: the list leaves out issue {number}, which is there")
    return missing


def _starrer(one: answers.Star) -> Hashable:
    return object() if one.user is None else one.user.id  # several who are gone are not one


def _issue(github: GitHub, home: str, one: answers.Issue) -> Issue:
    path = f"{home}/issues/{one.number}/events"
    events = listed(github, path, _EVENTS, lambda event: event.id, follow=False)
    assert one.user is not None
    return Issue(
        number=one.number,
        author=one.user.id,
        url=one.html_url,
        title=one.title[:TITLE],
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
