"""GitHub for tests: the server of the example over facts made here, with trouble on demand; and a competition judged from it.

The trouble is real: a real server cuts its answers off, hangs, redirects, counts requests. Nothing of the client is replaced.
"""

import copy
import hashlib
import importlib.util
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.judge.github.accounts import AccountClaim, signed_block
from assay.judge.running import RunEvent, RunOptions, RunSummary
from assay.ledger import keys
from assay.ledger.keys import PrivateKey

ROOT = Path(__file__).parents[3]
Json = dict[str, Any]


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_github", ROOT / "examples" / "bounty-challenge" / "github.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SERVER = _module()
BEGINS = datetime(2026, 11, 2, tzinfo=UTC)
SECONDS = 3600
"""An epoch is an hour, the first is 1."""
REPOSITORY, REPOSITORY_ID = "acme/widget", 700
OTHER, OTHER_ID = "acme/gadget", 701
KESTREL, MERLIN, STRANGER = 90, 91, 60
PEOPLE = {"ann": 50, "ben": 51, "cyd": 52}
"""Participants by name, and their accounts."""
COMPETITION = "bounty-challenge"


def key_of(word: str) -> PrivateKey:
    """A key made of a word."""
    return keys.read(hashlib.sha256(word.encode()).hexdigest().encode())


def public_of(word: str) -> str:
    """Its public key, as participants.csv has it."""
    return key_of(word).public.raw.hex()


def at(epoch: int, minutes: float = 0) -> str:
    """A moment of an epoch."""
    return (BEGINS + timedelta(seconds=(epoch - 1) * SECONDS, minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def label(name: str, epoch: int, minutes: float = 10, by: int | None = KESTREL, *, off: bool = False) -> Json:
    """A label that is set, or taken off."""
    return {"at": at(epoch, minutes), "by": by, "event": "unlabeled" if off else "labeled", "label": name}


def issue(number: int, by: int | None, *events: Json, **fields: Any) -> Json:
    """An issue."""
    return {"number": number, "title": f"issue {number}", "by": by, "at": at(1), **fields, "events": list(events)}


def gist_id(word: str) -> str:
    """The id of somebody's gist."""
    return hashlib.sha256(word.encode()).hexdigest()[:32]


def facts(issues: Sequence[Json] = (), /, *, now: str = at(4, 10), stars: Sequence[Json] = (), **more: Sequence[Json]) -> Json:
    """A GitHub with one repository, or with `other` as the issues of a second one; everybody's gist is right."""
    accounts = [*((number, name) for name, number in PEOPLE.items()), (KESTREL, "kestrel"), (MERLIN, "merlin"), (STRANGER, "eve")]
    rows = [(REPOSITORY_ID, REPOSITORY, issues, stars), (OTHER_ID, OTHER, more.get("other", ()), ())]
    return {
        "now": now,
        "accounts": [{"id": number, "login": name} for number, name in accounts],
        "repositories": [
            {"id": number, "name": name, "formerly": [], "stars": list(starred), "issues": list(reported)}
            for number, name, reported, starred in rows
        ],
        "gists": [gist(name) for name in PEOPLE],
    }


def gist(name: str, owner: int | None = None, text: str | None = None, moment: str = at(1)) -> Json:
    """Somebody's gist with the statement in it."""
    content = statement(name) if text is None else text
    return {"id": gist_id(name), "owner": owner or PEOPLE[name], "at": moment, "files": {"assay.txt": content}}


def statement(name: str, account: int | None = None, *, signer: str | None = None, competition: str = COMPETITION) -> str:
    """A participant's statement on his account."""
    claim = AccountClaim(competition, public_of(name), account or PEOPLE[name], name)
    return signed_block(claim, key_of(signer or name))


@dataclass
class GithubFault:
    """What is answered instead, `times` times, to addresses that match; where `act` returns False, the right answer follows."""

    match: str
    act: Callable[[Any], bool | None]
    times: int = 10**9
    after: int = 0
    """How many that match are answered rightly before."""


class FaultyGithub(SERVER.Server):  # type: ignore[misc,name-defined]
    """The server, with trouble on demand."""

    def __init__(self, facts: Json, **more: Any) -> None:
        super().__init__(facts, **more)
        self.faults: list[GithubFault] = []
        self.released = threading.Event()

    def fault(self, handler: Any, path: str, asked: Mapping[str, str]) -> bool:
        for fault in self.faults:
            if fault.times > 0 and re.search(fault.match, handler.path):
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.times -= 1
                return fault.act(handler) is not False
        return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news."""

    @property
    def paths(self) -> list[str]:
        """What was asked for, without what stands behind `?`."""
        return [path.partition("?")[0] for path, _ in self.asked]

    @property
    def repository(self) -> Json:
        """The facts of the first repository."""
        repository: Json = self.world.facts["repositories"][0]
        return repository


@contextmanager
def serving(facts: Json, **more: Any) -> Iterator[FaultyGithub]:
    """The server, while the block runs."""
    with FaultyGithub(copy.deepcopy(facts), **more) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


def status(code: int, message: str = "no", **headers: str) -> Callable[[Any], None]:
    """Answers with a status."""

    def act(handler: Any) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.reply(code, json.dumps({"message": message}).encode(), named)

    return act


def sent(body: bytes, length: int | None = None, code: int = 200) -> Callable[[Any], None]:
    """Answers with these bytes, and may say that there are more, then hangs up."""

    def act(handler: Any) -> None:
        handler.send_response(code)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = True

    return act


def hang(handler: Any) -> None:
    """Answers nothing until the test is over."""
    handler.server.released.wait(60)
    handler.close_connection = True


SCHEME = """
[scheme]
name = "bounty-challenge"
version = "1.0.0"
[score]
kind = "points"
[score.repositories]
{repositories}
[consensus]
min_validators = 1
[reward]
kind = "weights"
strategy = "direct"
cap = "100%"
[decay]
curve = "none"
"""
RULES = """
[github]
api = "{api}"
[epochs]
begins = {begins}
seconds = {seconds}
wait = 300
[labels]
valid = ["valid", "Confirmed"]
[maintainers]
kestrel = 90
merlin = {{ id = 91, until = {until} }}
[repositories]
{repositories}
"""


def github_competition(
    place: Path, api: str, *, repositories: Mapping[str, int] | None = None, people: Sequence[str] = tuple(PEOPLE)
) -> Path:
    """A competition that is judged from a server; validators val-1 and val-2."""
    table = repositories or {REPOSITORY: REPOSITORY_ID}
    place.mkdir()
    named = "\n".join(f'"{name}" = "5"' for name in table)
    (place / "scheme.toml").write_text(SCHEME.format(repositories=named), encoding="utf-8")
    ids = "\n".join(f'"{name}" = {number}' for name, number in table.items())
    rules = RULES.format(api=api, begins=at(1), seconds=SECONDS, until=at(3), repositories=ids)
    (place / "issues.toml").write_text(rules, encoding="utf-8")
    rows = "".join(f"{public_of(name)},{number},{name}\n" for number, name in enumerate(PEOPLE, start=1))
    (place / "participants.csv").write_text(f"key,uid,name\n{rows}", encoding="utf-8")
    links = "".join(f"{public_of(name)},https://gist.github.com/{name}/{gist_id(name)}\n" for name in people)
    (place / "accounts.csv").write_text(f"participant,url\n{links}", encoding="utf-8")
    (place / "validators.csv").write_text("key,stake,name\nval-1,100,\nval-2,100,\n", encoding="utf-8")
    return place


def judged(place: Path, validator: str = "val-1", events: list[RunEvent] | None = None, **options: Any) -> RunSummary:
    """What a run comes to; it waits for hundredths of a second where it would wait for seconds."""
    from assay.judge.github.run import run

    heard = events if events is not None else []
    return run(place, validator, RunOptions(**{"delay": 0.01, **options}), heard.append)


def records(place: Path, validator: str = "val-1") -> list[Json]:
    """The evidence of a validator, in the order in which it was written."""
    path = place / "evidence" / f"run-{validator}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def counted(place: Path, name: str = "ann", validator: str = "val-1", repository: str = REPOSITORY) -> dict[int, str]:
    """Epoch → "valid/invalid/revoked valid/revoked invalid", with a star behind it if there is one."""
    names = ("valid", "invalid", "revoked_valid", "revoked_invalid")
    return {
        record["epoch"]: "/".join(str(record[field]) for field in names) + ("*" if record["starred"] else "")
        for record in records(place, validator)
        if (record["participant"], record["repository"]) == (public_of(name), repository)
    }
