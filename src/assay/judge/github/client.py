"""Reads GitHub's REST API with limits, retries and checks of every answer; an incomplete answer is never used.

- The bytes of an answer, each wait for them and the whole exchange are bounded by assay.peers. A compressed answer is refused.
- Only the fields that are needed are read, and those are checked.
- 304 returns the stored answer. 5xx and broken connections are retried a few times. If GitHub reports a rate limit (403 or 429,
  `retry-after` or `x-ratelimit-reset`), the client waits, an hour in all; then the rest is left for another run.
- Redirects and the addresses of next pages are followed within the same host only: the token goes nowhere else. If an answer
  repeats the token, no message shows it and the answer is not stored.
- GitHub's `Date` is the clock, so that all validators have the same one.

The cache has one file for each address, with its ETag, in a private folder of the validator. It decides nothing: each answer is
asked for again, and GitHub says whether the stored one is still right. A damaged file is dropped.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from assay.errors import AssayError, BadInput, brief
from assay.exact import LARGEST, canonical
from assay.folder.files import clear
from assay.judge.github.rules import loopback
from assay.judge.running import RunStopped, Stop, backoff
from assay.peers import NoAnswer, Overrun, Packed, Silent, Words, peer, reading
from assay.scheme.fields import Instant

if TYPE_CHECKING:
    import httpx


ANSWER_PARTS = 1_000_000
"""Brackets, commas and strings of one answer; a page of a hundred events has about a hundred thousand."""
TITLE_CHARACTERS = 256
"""Characters of a title that are stored."""


class Unread(AssayError):
    """GitHub could not be read completely: an infrastructure error. Results that depend on it are left missing."""


class _AnswerModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


Id = Annotated[int, Field(ge=1, le=LARGEST)]
Name = Annotated[str, Field(max_length=1000)]


class AccountAnswer(_AnswerModel):
    """A user, an organisation or a bot."""

    id: Id
    login: Name
    type: Name = "User"


class RepositoryAnswer(_AnswerModel):
    """A repository; its name changes, its id does not."""

    id: Id
    full_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100}$")]


class _Label(_AnswerModel):
    name: Name


class IssueAnswer(_AnswerModel):
    """An issue in a list; a pull request has `pull_request`. An account that is gone leaves null or a ghost behind."""

    id: Id
    number: Id
    html_url: Name
    title: Annotated[str, Field(max_length=100_000)]
    user: AccountAnswer | None
    pull_request: Annotated[bool, BeforeValidator(lambda value: value is not None)] = False


class EventAnswer(_AnswerModel):
    """Something that happened to an issue; a label is there if the event is `labeled` or `unlabeled`."""

    id: Id
    event: Name
    actor: AccountAnswer | None
    created_at: Instant
    label: _Label | None = None


class StarAnswer(_AnswerModel):
    """A star; the request's media type makes GitHub add its date."""

    starred_at: Instant
    user: AccountAnswer | None


class GistFileAnswer(_AnswerModel):
    """A file of a gist. If it is long, GitHub gives only its beginning."""

    content: Annotated[str, Field(max_length=2_000_000)] = ""
    truncated: bool = False


class GistAnswer(_AnswerModel):
    """A gist, with its owner and files."""

    owner: AccountAnswer | None = None
    updated_at: Instant
    files: Annotated[dict[str, GistFileAnswer], Field(max_length=1000)]


class CommentAnswer(_AnswerModel):
    """A comment on an issue."""

    user: AccountAnswer | None
    updated_at: Instant
    body: Annotated[str, Field(max_length=2_000_000)] | None = None


T = TypeVar("T")


def parse_answer(adapter: TypeAdapter[T], body: bytes, what: str) -> T:
    """The checked fields of an answer's JSON; raises Unread if it is cut off, or not in GitHub's form."""
    try:
        reading.bounded(body.decode("utf-8", "replace"), ANSWER_PARTS)
        return adapter.validate_json(body)
    except NoAnswer as error:
        raise Unread(f"{what}: the answer is not whole, or not GitHub's ({error.why})") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f", {part}" for part in fault["loc"])
        raise Unread(f"{what}: the answer is not whole, or not GitHub's ({brief(fault['msg'], 200)}{place})") from None


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An answer: its ETag, its body, and the address of the page after it."""

    etag: str
    body: bytes
    next: str | None


class AnswerCache:
    """Answers by address and media type. Answers that a complete run did not use are dropped at its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._used: set[str] = set()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        clear(folder)

    def get(self, url: str, accept: str) -> CachedAnswer | None:
        """The cached answer of an address; None if there is none, or a damaged one."""
        path = self._path(url, accept)
        try:
            first_line, _, body = path.read_bytes().partition(b"\n")
            head = json.loads(first_line)
            if head["digest"] == sha256(body).hexdigest() and (head["url"], head["accept"]) == (url, accept):
                return CachedAnswer(head["etag"], body, head["next"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        with suppress(OSError):
            path.unlink()
        return None

    def put(self, url: str, accept: str, answer: CachedAnswer) -> None:
        """Stores an answer, if there is space. It is not flushed: the digest shows whether a power failure damaged it."""
        digest = sha256(answer.body).hexdigest()
        head = {"url": url, "accept": accept, "etag": answer.etag, "next": answer.next, "digest": digest}
        path = self._path(url, accept)
        temporary = path.with_name(f".{path.name[:16]}.{secrets.token_hex(8)}.tmp")
        with suppress(OSError):
            try:
                temporary.write_bytes(canonical(head) + b"\n" + answer.body)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def drop_unused(self) -> None:
        """Drops the answers that were not requested since this object was made."""
        for path in self.folder.iterdir():
            if path.name not in self._used:
                with suppress(OSError):
                    path.unlink()

    def _path(self, url: str, accept: str) -> Path:
        name = sha256(f"{accept}\n{url}".encode("utf-8", "surrogatepass")).hexdigest()
        self._used.add(name)
        return self.folder / name


JSON = "application/vnd.github+json"
BODY_BYTES = 32_000_000
"""Bytes of one answer."""
SECONDS, WHOLE_SECONDS = 30.0, 120.0
"""For each wait for an answer's bytes, and for the whole answer."""
PATIENCE = 3600.0
"""Seconds that a run waits in total when GitHub asks it to."""
SECONDARY = 60.0
"""Seconds to wait if GitHub reports a rate limit without saying how long."""
HOPS = 3
"""Redirects that are followed from one address."""
_TICK = 0.1


class Gone(Unread):
    """There is nothing at an address, or nothing that this token may read: 404, 410 or 451."""


class Moved(Unread):
    """The address redirects, and the caller does not want to follow redirects."""


@dataclass(frozen=True, slots=True)
class GitHubAnswer:
    """An answer: its body, the address of the page after it, GitHub's time, and whether it is the cached one."""

    body: bytes
    next: str | None
    date: datetime
    kept: bool = False


class GitHub:
    """The client, a context manager. tell: called with the reason and the seconds before each retry."""

    def __init__(
        self,
        api: str,
        token: str,
        cache: AnswerCache | None,
        stop: Stop,
        *,
        attempts: int,
        delay: float,
        tell: Callable[[str, float], None],
    ) -> None:
        _library()
        self.api, self.cache, self.stop, self.attempts, self.delay, self.tell = api, cache, stop, attempts, delay, tell
        self.requests = 0
        self.date: datetime | None = None
        """GitHub's time when it answered first."""
        self._waited = 0.0
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise BadInput("the token is not printable ASCII", field="GITHUB_TOKEN", hint="copy it again, completely")
        self._words = Words([token])
        self._peer = peer(
            api,
            extra="github",
            headers={
                "User-Agent": f"assay/{version('assay')}",
                "X-GitHub-Api-Version": "2022-11-28",
                **({"Authorization": f"Bearer {token}"} if token else {}),
            },
            seconds=WHOLE_SECONDS,
            idle=SECONDS,
            proxies=not loopback(urlsplit(api).hostname or ""),
        )

    def __enter__(self) -> GitHub:
        return self

    def __exit__(self, *_: object) -> None:
        self._peer.close()

    def get(
        self, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON, fresh: bool = False, follow: bool = True
    ) -> GitHubAnswer:
        """The answer at a path of the API, or at a complete address that GitHub gave.

        fresh: without the cache. Raises Gone, Moved (unless `follow`), Unread, RunStopped, and BadInput for a refused token.
        """
        url = self._address(path if "://" in path else f"{self.api}{path}", params)
        for _ in range(HOPS + 1):
            cached = None if fresh or self.cache is None else self.cache.get(url, accept)
            answer, body = self._answered(url, accept, cached)
            date = self._dated(answer)
            if answer.status_code == 200:
                following = answer.links.get("next", {}).get("url")
                following = None if following is None else self._address(following)
                etag = answer.headers.get("etag")
                if self.cache is not None and etag and not self._words.repeated(url, etag, body, following):
                    self.cache.put(url, accept, CachedAnswer(etag, body, following))
                return GitHubAnswer(body, following, date)
            if answer.status_code == 304 and cached is not None:
                return GitHubAnswer(cached.body, cached.next, date, kept=True)
            if answer.status_code not in (301, 302, 307, 308):
                raise Unread(f"{self._named(url)}: GitHub answered {answer.status_code}")
            url = self._address(answer.headers.get("location", ""))
            if not follow:
                raise Moved(f"is at {self._named(url)} now")
        raise Unread(f"{self._named(url)}: is redirected again and again")

    def _answered(self, url: str, accept: str, cached: CachedAnswer | None) -> tuple[httpx.Response, bytes]:
        """The answer that is not an error, after as many attempts as it takes and may take."""
        headers = {"Accept": accept} | ({} if cached is None else {"If-None-Match": cached.etag})
        why, attempt = "", 1
        while True:
            self._check_stop()
            answer, body, why = self._sent(url, headers)
            if answer is not None and answer.status_code < 400:
                return answer, body
            if answer is not None and (wait := self._limited(answer, body)) is not None:
                self._wait(wait, f"GitHub was asked too much ({answer.status_code})")
                continue
            if answer is not None and answer.status_code < 500:
                raise self._refused(url, answer, body)
            if attempt >= self.attempts:
                raise Unread(f"{self._named(url)}: {why}")
            self._wait(backoff(attempt, self.delay), why)
            attempt += 1

    def _sent(self, url: str, asked: Mapping[str, str]) -> tuple[httpx.Response | None, bytes, str]:
        """An answer and its body; or None and the reason."""
        httpx = _library()
        self.requests += 1
        try:
            came = self._peer.ask("GET", url, headers=asked, most=BODY_BYTES)
        except Overrun:
            raise Unread(f"{self._named(url)}: the answer is larger than {BODY_BYTES} bytes") from None
        except Packed:
            raise Unread(f"{self._named(url)}: the answer is compressed, which was not requested") from None
        except Silent as silent:
            return None, b"", f"the answer took longer than {WHOLE_SECONDS:.0f} s" if silent.whole else "GitHub does not answer"
        except NoAnswer as error:
            return None, b"", f"the connection broke ({error.why})"
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in came.headers]
        answer = httpx.Response(came.status, headers=headers, request=httpx.Request("GET", url))
        return answer, came.body, f"GitHub answered {came.status}"

    def _limited(self, answer: httpx.Response, body: bytes) -> float | None:
        """For how many seconds GitHub wants no requests; None if it did not report a rate limit."""
        if answer.status_code not in (403, 429):
            return None
        headers = answer.headers
        if (after := _number(headers.get("retry-after"))) is not None:
            return max(1.0, after)
        if headers.get("x-ratelimit-remaining") == "0" and (reset := _number(headers.get("x-ratelimit-reset"))) is not None:
            return max(1.0, reset - self._dated(answer).timestamp() + 1)
        return SECONDARY if answer.status_code == 429 or b"rate limit" in body[:10_000].lower() else None

    def _refused(self, url: str, answer: httpx.Response, body: bytes) -> Exception:
        status = answer.status_code
        if status == 401:
            return BadInput("GitHub refuses the token (401)", field="GITHUB_TOKEN", hint="set a valid one")
        if status in (404, 410, 451):
            return Gone(f"{self._named(url)}: there is nothing there ({status}), or nothing that the token may read")
        return Unread(f"{self._named(url)}: GitHub answered {status}{self._message(body)}")

    def _message(self, body: bytes) -> str:
        """GitHub's message in an error, if it has the usual form."""
        try:
            text = reading.parsed(body)["message"]
        except (NoAnswer, KeyError, TypeError, IndexError):
            return ""
        return f": {self._words(brief(text, 200) if isinstance(text, str) else brief(text))}"

    def _wait(self, seconds: float, why: str) -> None:
        if self._waited + seconds > PATIENCE:
            raise Unread(f"{why}; the run would have to wait {seconds:.0f} s more", hint="run it again later")
        self._waited += seconds
        self.tell(why, seconds)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._check_stop()
            time.sleep(min(_TICK, left))

    def _check_stop(self) -> None:
        if self.stop.asked:
            raise RunStopped

    def _dated(self, answer: httpx.Response) -> datetime:
        try:
            date = parsedate_to_datetime(answer.headers["date"]).astimezone(UTC)
        except (KeyError, ValueError, TypeError, OverflowError):
            raise Unread(f"{self._named(str(answer.url))}: the answer has no date") from None
        self.date = self.date or date
        return date

    def _address(self, url: str, params: Mapping[str, str] | None = None) -> str:
        """An address of the API; raises Unread for one that is not on the same host."""
        httpx = _library()
        with self._addresses(url):
            address, home = httpx.URL(url, params=params) if params else httpx.URL(url), httpx.URL(self.api)
            same = (address.scheme, address.host, address.port) == (home.scheme, home.host, home.port) and not address.userinfo
            if not same or not address.path.startswith(f"{home.path.rstrip('/')}/"):
                raise Unread(f"GitHub answered with an address outside its API: {self._words(url, 100)}")
            return str(address)

    def _named(self, url: str) -> str:
        return self._words(url.removeprefix(self.api).partition("?")[0])

    @contextmanager
    def _addresses(self, url: str) -> Iterator[None]:
        try:
            yield
        except (_library().InvalidURL, ValueError, TypeError):
            raise Unread(f"GitHub answered with an invalid address: {self._words(url, 100)}") from None


def _library() -> Any:
    try:
        import httpx
    except ImportError:
        what = "issues are read with httpx, which is not installed"
        raise BadInput(what, hint="install it: pip install 'assay[github]'") from None
    return httpx


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 16 else None
