"""Reads issues.toml: where issues are read, whose labels decide, and when each epoch begins. SPEC 2.4.

    [github]
    api = "https://api.github.com"            # left out: this; GitHub Enterprise has https://HOST/api/v3

    [epochs]
    first = 1                                 # the number of the first epoch
    begins = 2026-11-02T00:00:00Z             # when it begins; earlier events are ignored
    seconds = 86400                           # how long each one lasts
    wait = 300                                # seconds after its end before an epoch is judged

    [labels]
    valid = ["valid"]
    invalid = ["invalid"]
    duplicate = ["duplicate"]                 # decides too, and counts as neither

    [maintainers]                             # whose labels count: the id counts, the name is for the reader
    kestrel = 9001
    merlin = { id = 9002, until = 2026-12-01T00:00:00Z }

    [repositories]                            # the id of each repository of the scheme's table
    "owner/name" = 700001

All validators of a competition have the same file, and their counts follow only from it and from GitHub.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput
from assay.exact import LARGEST
from assay.scheme.fields import Epoch, Instant, Key, Section, refused
from assay.scheme.model import PointsScore
from assay.scheme.reading import read_toml, validate

RULES_FILE = "issues.toml"
PUBLIC_API = "https://api.github.com"
LAST = datetime(9999, 1, 1, tzinfo=UTC)
"""No epoch ends after this date: Python's dates end soon after it."""

LabelVerdict = Literal["valid", "invalid", "duplicate"]
Id = Annotated[int, Field(ge=1, le=LARGEST)]


def loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _api(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError as error:
        raise refused(BadInput(f"{value[:100]!r} is not an address ({error})", hint=f"write it as in {PUBLIC_API}")) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise refused(BadInput(f"{parts.hostname or ''!r} is not an address of GitHub", hint=f"write it as in {PUBLIC_API}"))
    if parts.scheme == "http" and not loopback(parts.hostname):
        raise refused(BadInput("http would show the token to everybody on the way", hint="use https; http is for this machine"))
    return value.rstrip("/")


def _period(value: Any) -> Any:
    return {"id": value} if type(value) is int else value


class _GitHubTable(Section):
    api: Annotated[str, Field(max_length=1000), BeforeValidator(_api)] = PUBLIC_API


class Epochs(Section):
    """Beginning and end of each epoch: epoch `first` + n begins at `begins` + n × `seconds`."""

    first: Epoch = 1
    begins: Instant
    seconds: Annotated[int, Field(ge=60, le=10**9)]
    wait: Annotated[int, Field(ge=0, le=10**9)] = 300

    def of(self, moment: datetime) -> int | None:
        """The epoch that a moment belongs to; None before the first."""
        passed = moment - self.begins
        return None if passed < timedelta() else self.first + passed // timedelta(seconds=self.seconds)

    def end(self, epoch: int) -> datetime:
        """The end of an epoch: the first moment of the next one."""
        return self.begins + (epoch - self.first + 1) * timedelta(seconds=self.seconds)

    def over(self, now: datetime) -> range:
        """The epochs that can be judged: those that have been over for `wait` seconds."""
        going = self.of(min(now, LAST) - timedelta(seconds=self.wait))
        return range(self.first, self.first if going is None else going)


class _Labels(Section):
    valid: Annotated[tuple[Key, ...], Field(strict=False, min_length=1, max_length=100)] = ("valid",)
    invalid: Annotated[tuple[Key, ...], Field(strict=False, max_length=100)] = ("invalid",)
    duplicate: Annotated[tuple[Key, ...], Field(strict=False, max_length=100)] = ("duplicate",)

    @model_validator(mode="after")
    def _apart(self) -> Self:
        seen: dict[str, str] = {}
        for verdict, label in self.pairs():
            other = seen.setdefault(label, verdict)
            if other != verdict:
                what = "the label {label} says {one} and {other}; keep it in one list"
                raise PydanticCustomError("assay", what, {"label": repr(label), "one": other, "other": verdict})
        return self

    def pairs(self) -> Iterator[tuple[LabelVerdict, str]]:
        """Verdict and label, as they are compared: GitHub does not tell upper from lower case in labels."""
        verdicts: tuple[LabelVerdict, ...] = ("valid", "invalid", "duplicate")
        for verdict in verdicts:
            for label in getattr(self, verdict):
                yield verdict, label.casefold()


class _Maintainer(Section):
    id: Id
    since: Instant | None = None
    until: Instant | None = None


class IssueRules(Section):
    """The rules in issues.toml."""

    github: _GitHubTable = _GitHubTable()
    epochs: Epochs
    labels: _Labels = _Labels()
    maintainers: Annotated[dict[Key, Annotated[_Maintainer, BeforeValidator(_period)]], Field(min_length=1, max_length=1000)]
    repositories: Annotated[dict[Key, Id], Field(min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _once(self) -> Self:
        for what, ids in (
            ("maintainers", [maintainer.id for maintainer in self.maintainers.values()]),
            ("repositories", list(self.repositories.values())),
        ):
            twice = sorted({identity for identity in ids if ids.count(identity) > 1})
            if twice:
                raise PydanticCustomError("assay", f"two {what} have the id {twice[0]}; each has its own")
        return self

    def verdict(self, label: str) -> LabelVerdict | None:
        """The verdict of a label, if it decides anything."""
        folded = label.casefold()
        return next((verdict for verdict, name in self.labels.pairs() if name == folded), None)

    def decides(self, account: int | None, moment: datetime) -> bool:
        """Whether an account's labels counted at a moment."""
        maintainer = next((maintainer for maintainer in self.maintainers.values() if maintainer.id == account), None)
        if maintainer is None:
            return False
        since, until = maintainer.since, maintainer.until
        return (since is None or since <= moment) and (until is None or moment < until)


def read_api_url(folder: Path) -> str:
    """The address of the competition's GitHub API; raises BadInput as `read_rules` does."""
    return _parse_rules(folder).github.api


def _parse_rules(folder: Path) -> IssueRules:
    path = folder / RULES_FILE
    if not path.is_file():
        what = "no such file, so it is not known whose labels decide"
        raise BadInput(what, file=path, hint="`assay init --preset bounty-challenge` writes one to start from")
    content, source = read_toml(path)
    return validate(IssueRules, content, file=path, source=source)


def read_rules(folder: Path, score: PointsScore) -> IssueRules:
    """The rules of a competition's folder; raises BadInput with file, line and field, and for a repository without an id."""
    path, rules = folder / RULES_FILE, _parse_rules(folder)
    for name in score.repositories:
        if name not in rules.repositories:
            hint = f"add its id: `assay issues id DIR {name}` shows it"
            raise BadInput(f"{name} of scheme.toml is missing", file=path, field="repositories", hint=hint)
    for name in rules.repositories:
        if name not in score.repositories:
            hint = "give it a worth in scheme.toml, or remove it"
            raise BadInput(f"{name} is not in the scheme's table", file=path, field="repositories", hint=hint)
    return rules
