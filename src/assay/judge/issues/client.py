"""GitHub's REST API, one answer at a time: bounded, patient, and never believing half an answer.

- An answer has a bound on its bytes, on each wait for them, and on the whole, as assay.peers has them. What is packed is not
  taken.
- 304 gives what is kept. 5xx and broken connections are tried again, a few times. Where GitHub says that it was asked too much
  (403 or 429, by `retry-after` or `x-ratelimit-reset`), it is waited for, an hour in all; then the rest is left for another run.
- A redirect is followed within the same host only, and so is the address of a next page: the token goes nowhere else. If an
  answer repeats the token, no message shows it and nothing is kept of that answer.
- What time it is, GitHub says (`Date`), so that all validators have one clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from assay.errors import BadInput, brief
from assay.judge.issues.answers import Unread
from assay.judge.issues.cache import Cache, Kept
from assay.judge.issues.rules import loopback
from assay.judge.running import Stop
from assay.peers import NoAnswer, Overrun, Packed, Silent, Words, peer, reading

if TYPE_CHECKING:
    import httpx

__all__ = ["BODY_BYTES", "GitHub", "Gone", "Got", "Moved", "Stopped"]

JSON = "application/vnd.github+json"
BODY_BYTES = 32_000_000
"""Bytes of one answer."""
SECONDS, WHOLE_SECONDS = 30.0, 120.0
"""For each wait for an answer's bytes, and for the whole of it."""
PATIENCE = 3600.0
"""Seconds that a run waits, all in all, where GitHub asks it to."""
FACTOR, LONGEST = 4.0, 300.0
"""How much longer each further attempt waits than the one before, and the most seconds."""
SECONDARY = 60.0
"""Seconds to wait where GitHub says that it was asked too much, and not for how long."""
HOPS = 3
"""Redirects that are followed from one address."""
_TICK = 0.1


class Gone(Unread):
    """There is nothing at an address any more, or nothing that this token may see: 404, 410 or 451."""


class Moved(Unread):
    """What was asked for is somewhere else, where it was not to be followed."""


class Stopped(Exception):
    """Somebody asked for the end."""


@dataclass(frozen=True, slots=True)
class Got:
    """An answer: its body, the address of the page after it, GitHub's time, and whether it is what was kept."""

    body: bytes
    next: str | None
    date: datetime
    kept: bool = False


class GitHub:
    """A context manager. tell: is told what is tried again, and in how many seconds."""

    def __init__(
        self,
        api: str,
        token: str,
        cache: Cache | None,
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
            raise BadInput("the token is not printable ASCII", field="GITHUB_TOKEN", hint="copy it again, whole")
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
    ) -> Got:
        """The answer at a path of the API, or at a whole address that GitHub gave.

        fresh: without asking whether what is kept is still right. Raises Gone, Moved (`follow` being False), Unread, BadInput
        for a token that is refused, and Stopped.
        """
        url = self._address(path if "://" in path else f"{self.api}{path}", params)
        for _ in range(HOPS + 1):
            kept = None if fresh or self.cache is None else self.cache.get(url, accept)
            answer, body = self._answered(url, accept, kept)
            date = self._dated(answer)
            if answer.status_code == 200:
                following = answer.links.get("next", {}).get("url")
                following = None if following is None else self._address(following)
                etag = answer.headers.get("etag")
                if self.cache is not None and etag and not self._words.repeated(url, etag, body, following):
                    self.cache.put(url, accept, Kept(etag, body, following))
                return Got(body, following, date)
            if answer.status_code == 304 and kept is not None:
                return Got(kept.body, kept.next, date, kept=True)
            if answer.status_code not in (301, 302, 307, 308):
                raise Unread(f"{self._named(url)}: GitHub answered {answer.status_code}")
            url = self._address(answer.headers.get("location", ""))
            if not follow:
                raise Moved(f"is at {self._named(url)} now")
        raise Unread(f"{self._named(url)}: is redirected again and again")

    def _answered(self, url: str, accept: str, kept: Kept | None) -> tuple[httpx.Response, bytes]:
        """The answer that is not an error, after as many attempts as it takes and may take."""
        headers = {"Accept": accept} | ({} if kept is None else {"If-None-Match": kept.etag})
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
            self._wait(min(LONGEST, self.delay * FACTOR ** (attempt - 1)), why)
            attempt += 1

    def _sent(self, url: str, asked: Mapping[str, str]) -> tuple[httpx.Response | None, bytes, str]:
        """An answer and its body; or None, and why there is none."""
        httpx = _library()
        self.requests += 1
        try:
            came = self._peer.ask("GET", url, headers=asked, most=BODY_BYTES)
        except Overrun:
            raise Unread(f"{self._named(url)}: the answer is larger than {BODY_BYTES} bytes") from None
        except Packed:
            raise Unread(f"{self._named(url)}: the answer is packed, and nobody asked for that") from None
        except Silent as silent:
            return None, b"", f"the answer took longer than {WHOLE_SECONDS:.0f} s" if silent.whole else "GitHub does not answer"
        except NoAnswer as error:
            return None, b"", f"the connection broke ({error.why})"
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in came.headers]
        answer = httpx.Response(came.status, headers=headers, request=httpx.Request("GET", url))
        return answer, came.body, f"GitHub answered {came.status}"

    def _limited(self, answer: httpx.Response, body: bytes) -> float | None:
        """For how many seconds GitHub wants to be left alone; None if it says no such thing."""
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
            return BadInput("GitHub does not take the token (401)", field="GITHUB_TOKEN", hint="set one that is valid")
        if status in (404, 410, 451):
            return Gone(f"{self._named(url)}: there is nothing there ({status}), or nothing that the token may read")
        return Unread(f"{self._named(url)}: GitHub answered {status}{self._message(body)}")

    def _message(self, body: bytes) -> str:
        """What GitHub says to an error, if it says it as it does."""
        try:
            said = reading.parsed(body)["message"]
        except (NoAnswer, KeyError, TypeError, IndexError):
            return ""
        return f": {self._words(brief(said, 200) if isinstance(said, str) else brief(said))}"

    def _wait(self, seconds: float, why: str) -> None:
        if self._waited + seconds > PATIENCE:
            raise Unread(f"{why}; it would have to be waited for {seconds:.0f} s more", hint="run it again later")
        self._waited += seconds
        self.tell(why, seconds)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._check_stop()
            time.sleep(min(_TICK, left))

    def _check_stop(self) -> None:
        if self.stop.asked:
            raise Stopped

    def _dated(self, answer: httpx.Response) -> datetime:
        try:
            found = parsedate_to_datetime(answer.headers["date"]).astimezone(UTC)
        except (KeyError, ValueError, TypeError, OverflowError):
            raise Unread(f"{self._named(str(answer.url))}: the answer has no date") from None
        self.date = self.date or found
        return found

    def _address(self, url: str, params: Mapping[str, str] | None = None) -> str:
        """An address of the API; raises Unread for one that is not on the same host."""
        httpx = _library()
        with self._addresses(url):
            found, home = httpx.URL(url, params=params) if params else httpx.URL(url), httpx.URL(self.api)
            same = (found.scheme, found.host, found.port) == (home.scheme, home.host, home.port) and not found.userinfo
            if not same or not found.path.startswith(f"{home.path.rstrip('/')}/"):
                raise Unread(f"GitHub names an address that is not of its API: {self._words(url, 100)}")
            return str(found)

    def _named(self, url: str) -> str:
        return self._words(url.removeprefix(self.api).partition("?")[0])

    @contextmanager
    def _addresses(self, url: str) -> Iterator[None]:
        try:
            yield
        except (_library().InvalidURL, ValueError, TypeError):
            raise Unread(f"GitHub names an address that is none: {self._words(url, 100)}") from None


def _library() -> Any:
    try:
        import httpx
    except ImportError:
        what = "issues are read with httpx, which is not installed"
        raise BadInput(what, hint="install it: pip install 'assay[github]'") from None
    return httpx


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 16 else None
