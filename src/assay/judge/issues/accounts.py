"""accounts.csv, beside the scheme: where each participant's GitHub account says whose it is.

    participant,url,key
    5Grwva…utQY,https://gist.github.com/robin-codes/2f6c…,
    robin,https://github.com/owner/name/issues/7#issuecomment-41,d3bf…3bd2

The gist or comment holds the statement that `assay issues link` prints. The column `key` is for a participant who is not
called by a public key: it says which one speaks for him.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInput
from assay.folder import csvs
from assay.folder.csvs import Table
from assay.folder.places import Place, Row
from assay.ledger.keys import PublicKey, public

__all__ = ["ACCOUNTS", "Comment", "Gist", "Link", "key_of", "read", "spot"]

ACCOUNTS = Table("accounts.csv", ("participant", "url"), ("key",))
_HINT = "give the address of a gist, or of a comment on an issue, such as https://github.com/OWNER/NAME/issues/7#issuecomment-41"
_GIST = re.compile(r"https?://[^/?#@]+(?:/gist)?/(?:[A-Za-z0-9_-]{1,60}/)?([0-9a-f]{20,40})/?", re.ASCII)
_COMMENT = re.compile(
    r"https?://[^/?#@]+/([A-Za-z0-9_-]{1,60}/[A-Za-z0-9._-]{1,100})/issues/[0-9]{1,18}#issuecomment-([0-9]{1,15})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Gist:
    """A gist, by its id."""

    id: str


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on an issue, by its repository and its id."""

    repository: str
    id: int


@dataclass(frozen=True, slots=True)
class Link:
    """A row of accounts.csv: whose account, which key speaks for him, and where the statement is."""

    participant: str
    key: PublicKey
    url: str
    spot: Gist | Comment


def read(folder: Path, participants: Iterable[str]) -> tuple[Link, ...]:
    """The rows in the order given; raises BadInput, with the line, for an unknown or repeated participant, a URL, a key."""
    path = folder / ACCOUNTS.name
    known = set(participants)
    found: dict[str, Link] = {}
    for row in csvs.read(path, ACCOUNTS):
        link = _link(row, known)
        if link.participant in found:
            hint = "remove one of the two; a participant has one account"
            raise row.place.refuse(f"{link.participant[:80]!r} is there twice", field="participant", hint=hint)
        found[link.participant] = link
    return tuple(found.values())


def _link(row: Row, known: set[str]) -> Link:
    participant, url = row.fields["participant"], row.fields["url"]
    if participant not in known:
        raise row.place.refuse(
            f"there is no participant {participant[:80]!r}",
            field="participant",
            hint="add it to participants.csv, or remove the row",
        )
    return Link(participant, key_of(participant, row.fields.get("key"), row.place), url, spot(url, row.place))


def key_of(participant: str, said: str | None, place: Place) -> PublicKey:
    """The key that speaks for a participant: the one he is called by, or else the one that is said. Raises BadInput."""
    try:
        own = public(participant)
    except BadInput:
        own = None
    if own is None and said is None:
        hint = "call the participant by his public key in participants.csv, or put it into the column `key`"
        raise place.refuse(f"{participant[:80]!r} is not a public key", field="key", hint=hint)
    if said is None and own is not None:
        return own
    try:
        given = public(said or "")
    except BadInput as error:
        error.at(field="key")
        raise place.put(error) from None
    if own is not None and own != given:
        raise place.refuse("is another key than the participant's own", field="key", hint="leave it empty")
    return given


def spot(url: str, place: Place) -> Gist | Comment:
    """Where a URL leads to; of the host nothing is taken, for it is asked through the API. Raises BadInput."""
    if gist := _GIST.fullmatch(url):
        return Gist(gist[1])
    if comment := _COMMENT.fullmatch(url):
        return Comment(comment[1], int(comment[2]))
    raise place.refuse(f"{url[:100]!r} is neither a gist nor a comment", field="url", hint=_HINT)
