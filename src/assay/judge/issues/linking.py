"""Whose account is whose: each link of accounts.csv held against what that account has published. SPEC 2.4.

- The signature is the participant's, the gist or comment is the account's, and the statement names both, by the account's id.
- One account is one participant's. Of two who both have a right statement on it, the one that was published earlier stands.
- A gist or comment that is gone ends the link. What was counted stays.
- While somebody's link cannot be read, nobody else has the account that it was of: who of two is earlier, is not known then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import TypeAdapter

from assay.errors import BadInput
from assay.judge.issues import answers
from assay.judge.issues.accounts import Gist, Link
from assay.judge.issues.answers import Unread, taken
from assay.judge.issues.client import GitHub, Gone, Moved
from assay.judge.issues.statement import claimed

__all__ = ["Linked", "Links", "check"]

_GIST, _COMMENT = TypeAdapter(answers.Gist), TypeAdapter(answers.Comment)


@dataclass(frozen=True, slots=True)
class Linked:
    """A participant's account: its id, what it is called now, and since when its statement is as it is."""

    participant: str
    account: int
    login: str
    since: datetime


@dataclass
class Links:
    """What came of the links: who is linked, which are not right and why, which could not be read."""

    linked: dict[str, Linked] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


def check(
    github: GitHub, links: Sequence[Link], competition: str, known: Mapping[str, int], began: Callable[[str], None]
) -> Links:
    """Looks at every link; raises BadInput for a token that is refused, and Stopped.

    known: participant → account, by an earlier reading. began: is told whose link is looked at.
    """
    found = Links()
    claims: list[Linked] = []
    for link in links:
        began(link.participant)
        try:
            claims.append(_linked(github, link, competition))
        except BadInput as error:
            if error.field == "GITHUB_TOKEN":
                raise
            found.refused[link.participant] = f"{error.what}; {error.hint}" if error.hint else error.what
        except (Gone, Moved) as error:
            found.refused[link.participant] = error.what
        except Unread as error:
            found.unread[link.participant] = str(error)
    held = {known[participant]: participant for participant in found.unread if participant in known}
    for one in sorted(claims, key=lambda one: (one.since, one.participant.encode())):
        holder = next((other for other in found.linked.values() if other.account == one.account), None)
        if one.account in held:
            why = f"the account {one.login} was that of {held[one.account]!r}, whose link cannot be read now"
            found.unread[one.participant] = why
        elif holder is None:
            found.linked[one.participant] = one
        else:
            found.refused[one.participant] = f"the account {one.login} is that of {holder.participant!r}, who said so earlier"
    return found


def _linked(github: GitHub, link: Link, competition: str) -> Linked:
    if isinstance(link.spot, Gist):
        path = f"/gists/{link.spot.id}"
        gist = taken(_GIST, github.get(path).body, path)
        owner, since = gist.owner, gist.updated_at
        text = "\n".join(gist.files[name].content for name in sorted(gist.files, key=str.encode))
    else:
        path = f"/repos/{link.spot.repository}/issues/comments/{link.spot.id}"
        comment = taken(_COMMENT, github.get(path).body, path)
        owner, since, text = comment.user, comment.updated_at, comment.body or ""
    if owner is None:
        raise BadInput("nobody owns it any more", hint="publish the statement again")
    claim = claimed(text.replace("\r\n", "\n"), competition, link.participant, link.key)
    if claim.account != owner.id:
        what = f"it states the account {claim.account} ({claim.login}), and was published by {owner.login}, which is {owner.id}"
        raise BadInput(what, hint="publish it from the account that it is about")
    if owner.type != "User":
        raise BadInput(f"{owner.login} is no person's account ({owner.type})", hint="link the account of a person")
    return Linked(link.participant, owner.id, owner.login, since)
