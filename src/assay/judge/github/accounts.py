"""Links GitHub accounts to participants: reads accounts.csv, makes signed statements, and checks each link. SPEC 2.4.

    participant,url,key
    5Grwva…utQY,https://gist.github.com/robin-codes/2f6c…,
    robin,https://github.com/owner/name/issues/7#issuecomment-41,d3bf…3bd2

The gist or comment contains the statement that `assay issues link` prints. The column `key` is for a participant whose name is
not a public key: it says which key speaks for them. The statement is a DSSE envelope around an in-toto statement that names
competition, participant and account, between two lines that make it easy to find. The signature shows that the participant wants
the link; the place of publication shows that the account does.

- The signature is the participant's, the gist or comment is the account's, and the statement names both, by the account's id.
- An account belongs to one participant. If two have a valid statement about it, the one that was published earlier counts.
- A deleted gist or comment ends the link. Counted issues stay.
- While a participant's link cannot be read, no other participant gets that account: which of the two is earlier is not known.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from assay.errors import BadInput, brief
from assay.exact import canonical
from assay.folder import csvs
from assay.folder.csvs import CsvFormat
from assay.folder.files import Place, TableRow
from assay.judge.entries import known
from assay.judge.github import client, rules
from assay.judge.github.client import GitHub, Gone, Moved, Unread, parse_answer
from assay.judge.running import Stop
from assay.ledger import check
from assay.ledger.keys import PrivateKey, PublicKey, as_bad_input, public, sign_envelope
from assay.scheme.load import read as read_scheme

ACCOUNTS_FILE = CsvFormat("accounts.csv", ("participant", "url"), ("key",))
_HINT = "give the address of a gist, or of a comment on an issue, such as https://github.com/OWNER/NAME/issues/7#issuecomment-41"
_GIST_URL = re.compile(r"https?://[^/?#@]+(?:/gist)?/(?:[A-Za-z0-9_-]{1,60}/)?([0-9a-f]{20,40})/?", re.ASCII)
_COMMENT_URL = re.compile(
    r"https?://[^/?#@]+/([A-Za-z0-9_-]{1,60}/[A-Za-z0-9._-]{1,100})/issues/[0-9]{1,18}#issuecomment-([0-9]{1,15})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class GistLocation:
    """A gist, by its id."""

    id: str


@dataclass(frozen=True, slots=True)
class CommentLocation:
    """A comment on an issue, by its repository and its id."""

    repository: str
    id: int


@dataclass(frozen=True, slots=True)
class AccountLink:
    """A row of accounts.csv: the participant, the key that speaks for them, and the location of the statement."""

    participant: str
    key: PublicKey
    url: str
    spot: GistLocation | CommentLocation


def read_links(folder: Path, participants: Iterable[str]) -> tuple[AccountLink, ...]:
    """The rows in the order given; raises BadInput, with the line, for an unknown or repeated participant, a URL, a key."""
    path = folder / ACCOUNTS_FILE.name
    known = set(participants)
    links: dict[str, AccountLink] = {}
    for row in csvs.read(path, ACCOUNTS_FILE):
        link = _parse_link(row, known)
        if link.participant in links:
            hint = "remove one of the two; a participant has one account"
            raise row.place.refuse(f"{link.participant[:80]!r} is there twice", field="participant", hint=hint)
        links[link.participant] = link
    return tuple(links.values())


def _parse_link(row: TableRow, known: set[str]) -> AccountLink:
    participant, url = row.fields["participant"], row.fields["url"]
    if participant not in known:
        raise row.place.refuse(
            f"there is no participant {participant[:80]!r}",
            field="participant",
            hint="add it to participants.csv, or remove the row",
        )
    return AccountLink(
        participant, speaking_key(participant, row.fields.get("key"), row.place), url, parse_location(url, row.place)
    )


def speaking_key(participant: str, column: str | None, place: Place) -> PublicKey:
    """The key that speaks for a participant: their own, or else the one in the column `key`. Raises BadInput."""
    try:
        own = public(participant)
    except BadInput:
        own = None
    if own is None and column is None:
        hint = "use the participant's public key in participants.csv, or write it into the column `key`"
        raise place.refuse(f"{participant[:80]!r} is not a public key", field="key", hint=hint)
    if column is None and own is not None:
        return own
    try:
        given = public(column or "")
    except BadInput as error:
        error.at(field="key")
        raise place.put(error) from None
    if own is not None and own != given:
        raise place.refuse("is another key than the participant's own", field="key", hint="leave it empty")
    return given


def parse_location(url: str, place: Place) -> GistLocation | CommentLocation:
    """The location that a URL names; the host is ignored, since the API is asked. Raises BadInput."""
    if gist := _GIST_URL.fullmatch(url):
        return GistLocation(gist[1])
    if comment := _COMMENT_URL.fullmatch(url):
        return CommentLocation(comment[1], int(comment[2]))
    raise place.refuse(f"{url[:100]!r} is neither a gist nor a comment", field="url", hint=_HINT)


PREDICATE = "assay:account/v1"
MOST_BLOCKS = 100
"""The number of statements of one text that are examined."""

_BEGIN, _END = "-----BEGIN ASSAY ACCOUNT-----", "-----END ASSAY ACCOUNT-----"
_BLOCK = re.compile(rf"^{_BEGIN}[ \t\r]*\n[ \t\r]*(\{{[^\n]*\}})[ \t\r]*\n[ \t\r]*{_END}[ \t\r]*$", re.MULTILINE)
_AGAIN = "publish what `assay issues link` prints, unchanged"
_SHAPE = {
    "_type": re.escape(check.STATEMENT),
    "subject": [{"name": check.WORD, "digest": {"sha256": "[0-9a-f]{64}"}}],
    "predicateType": re.escape(PREDICATE),
    "predicate": {"competition": check.WORD, "participant": check.WORD, "account": int, "login": check.WORD},
}


@dataclass(frozen=True)
class AccountClaim:
    """A participant's claim to an account: the account by its id, `login` its name at that time."""

    competition: str
    participant: str
    account: int
    login: str

    def document(self) -> dict[str, Any]:
        """The in-toto statement."""
        name = f"GitHub account {self.account}"
        return {
            "_type": check.STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": sha256(name.encode()).hexdigest()}}],
            "predicateType": PREDICATE,
            "predicate": {
                "competition": self.competition,
                "participant": self.participant,
                "account": self.account,
                "login": self.login,
            },
        }


def signed_block(claim: AccountClaim, signer: PrivateKey) -> str:
    """The signed statement as it is published, three lines."""
    envelope = sign_envelope(canonical(claim.document()), signer)
    return f"{_BEGIN}\n{json.dumps(envelope, separators=(',', ':'))}\n{_END}\n"


def find_claim(text: str, competition: str, participant: str, key: PublicKey) -> AccountClaim:
    """A participant's claim in a text, signed with their key; statements about others are skipped.

    Raises BadInput if there is no such statement, or if it is not signed with the key.
    """
    refused: BadInput | None = None
    for number, block in enumerate(_BLOCK.finditer(text)):
        if number == MOST_BLOCKS:
            break
        try:
            envelope, claim = _parse_claim(block[1].encode("utf-8", "surrogatepass"))
            if (claim.competition, claim.participant) != (competition, participant):
                what = f"the statement is about {brief(claim.participant)} in {brief(claim.competition)}"
                raise BadInput(what, hint=f"publish one about {participant!r} in {competition!r}: `assay issues link`")
            with as_bad_input("sign it with the participant's own key: `assay issues link --key`"):
                check.check_envelope(envelope, [key], "statement")
            return claim
        except BadInput as error:
            refused = refused or error
    raise refused or BadInput("there is no statement in it", hint=_AGAIN)


def _parse_claim(data: bytes) -> tuple[check.Envelope, AccountClaim]:
    """An envelope, and what it states, whoever signed it; raises BadInput."""
    with as_bad_input(_AGAIN):
        envelope = check.Envelope.parse(check.parse_json(data, "statement"), "statement")
        document = check.parse_json(envelope.payload, "statement")
        if bad := check.misfit(document, _SHAPE):
            raise check.CheckError("statement", "it does not state whose account it is", found=f"another {bad}")
    claim = AccountClaim(**document["predicate"])
    if canonical(claim.document()) != envelope.payload:
        raise BadInput("the statement is not in its canonical form", hint=_AGAIN)
    return envelope, claim


TOKEN = "GITHUB_TOKEN"
"""The variable that holds the token; it is read from nowhere else, and never shown."""
_ACCOUNT, _REPOSITORY = TypeAdapter(client.AccountAnswer), TypeAdapter(client.RepositoryAnswer)


def look_up_account(api: str, login: str, tell: Callable[[str, float], None]) -> client.AccountAnswer:
    """The account of this name; raises BadInput if there is none, and Unread."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,60}(\[bot\])?", login) is None:
        raise BadInput(
            f"{login[:60]!r} is not the name of an account", field="login", hint="give it as GitHub shows it, without @"
        )
    return parse_answer(_ACCOUNT, _look_up(api, f"/users/{login}", tell), f"/users/{login}")


def look_up_repository(api: str, name: str, tell: Callable[[str, float], None]) -> client.RepositoryAnswer:
    """The repository of this name; raises BadInput if there is none, and Unread."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,60}/[A-Za-z0-9._-]{1,100}", name) is None:
        raise BadInput(f"{name[:160]!r} is not the name of a repository", field="repository", hint="write it as OWNER/NAME")
    return parse_answer(_REPOSITORY, _look_up(api, f"/repos/{name}", tell), f"/repos/{name}")


def _look_up(api: str, path: str, tell: Callable[[str, float], None]) -> bytes:
    with GitHub(api, os.environ.get(TOKEN, ""), None, Stop(), attempts=3, delay=2.0, tell=tell) as github:
        try:
            return github.get(path).body
        except Gone as error:
            raise BadInput(error.what, hint="check the name; a private one needs a token that may read it") from None


def make_statement(
    competition: Path, signer: PrivateKey, login: str, participant: str | None, tell: Callable[[str, float], None]
) -> str:
    """The signed statement to be published; without a participant, the key's participant is used.

    Raises BadInput for a key of no participant and for an unknown account, and Unread.
    """
    scheme = read_scheme(competition / "scheme.toml")
    file = competition / csvs.PARTICIPANTS.name
    keys = [row.fields["key"] for row in csvs.read(file, csvs.PARTICIPANTS)]
    if participant is None:
        participant = next((key for key in keys if _is_key(signer, key)), None)
        if participant is None:
            what = f"no participant has the key {signer.public}"
            raise BadInput(what, file=file, hint="take part with this key, or name the participant with --participant")
    known(participant, keys, file, "participant")
    account = look_up_account(rules.read_api_url(competition), login, tell)
    if account.type != "User":
        what = f"{account.login} is not a person's account ({account.type})"
        raise BadInput(what, field="login", hint="link the account of a person")
    return signed_block(AccountClaim(scheme.name, participant, account.id, account.login), signer)


def _is_key(signer: PrivateKey, key: str) -> bool:
    try:
        return public(key) == signer.public
    except BadInput:
        return False


_GIST, _COMMENT = TypeAdapter(client.GistAnswer), TypeAdapter(client.CommentAnswer)


@dataclass(frozen=True, slots=True)
class LinkedAccount:
    """A participant's account: its id, its current name, and when its statement was last changed."""

    participant: str
    account: int
    login: str
    since: datetime


@dataclass
class CheckedLinks:
    """Checked links: the linked accounts, the refused links with reasons, and the unreadable ones."""

    linked: dict[str, LinkedAccount] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


def check_links(
    github: GitHub, links: Sequence[AccountLink], competition: str, known: Mapping[str, int], began: Callable[[str], None]
) -> CheckedLinks:
    """Check every link; raises BadInput for a refused token, and RunStopped.

    known: participant → account, by an earlier reading. began: called with the participant of each link.
    """
    checked = CheckedLinks()
    claims: list[LinkedAccount] = []
    for link in links:
        began(link.participant)
        try:
            claims.append(_check_link(github, link, competition))
        except BadInput as error:
            if error.field == "GITHUB_TOKEN":
                raise
            checked.refused[link.participant] = f"{error.what}; {error.hint}" if error.hint else error.what
        except (Gone, Moved) as error:
            checked.refused[link.participant] = error.what
        except Unread as error:
            checked.unread[link.participant] = str(error)
    unread_accounts = {known[participant]: participant for participant in checked.unread if participant in known}
    for claim in sorted(claims, key=lambda claim: (claim.since, claim.participant.encode())):
        holder = next((other for other in checked.linked.values() if other.account == claim.account), None)
        if claim.account in unread_accounts:
            why = f"the account {claim.login} was linked to {unread_accounts[claim.account]!r}, whose link cannot be read now"
            checked.unread[claim.participant] = why
        elif holder is None:
            checked.linked[claim.participant] = claim
        else:
            why = f"the account {claim.login} is linked to {holder.participant!r}, who published their statement earlier"
            checked.refused[claim.participant] = why
    return checked


def _check_link(github: GitHub, link: AccountLink, competition: str) -> LinkedAccount:
    if isinstance(link.spot, GistLocation):
        path = f"/gists/{link.spot.id}"
        gist = parse_answer(_GIST, github.get(path).body, path)
        owner, since = gist.owner, gist.updated_at
        text = "\n".join(gist.files[name].content for name in sorted(gist.files, key=str.encode))
    else:
        path = f"/repos/{link.spot.repository}/issues/comments/{link.spot.id}"
        comment = parse_answer(_COMMENT, github.get(path).body, path)
        owner, since, text = comment.user, comment.updated_at, comment.body or ""
    if owner is None:
        raise BadInput("its owner no longer exists", hint="publish the statement again")
    claim = find_claim(text.replace("\r\n", "\n"), competition, link.participant, link.key)
    if claim.account != owner.id:
        what = f"it names the account {claim.account} ({claim.login}), but {owner.login} published it, which is {owner.id}"
        raise BadInput(what, hint="publish it from the account that it names")
    if owner.type != "User":
        raise BadInput(f"{owner.login} is not a person's account ({owner.type})", hint="link the account of a person")
    return LinkedAccount(link.participant, owner.id, owner.login, since)
