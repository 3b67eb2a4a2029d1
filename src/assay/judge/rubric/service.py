"""Asking, through the `openai` client: with bounds on time, on bytes and on patience, and nothing of what is asked in any log.

- 429, 408, 409, 5xx, time-outs, lost connections and bodies that are no completion are asked again, after pauses that double;
  `Retry-After` is kept to, within a bound. After a 429 nobody asks before the pause is over.
- A body that is packed is no completion: nobody asked for a content coding. Time and bytes are bounded as those of every peer.
- When the bounds are reached, that model has failed (`Failed`); so has one that is not there (404) or does not take the question
  (other 4xx). Where nobody listens, no other model would be heard either: Unreachable.
- A key that is refused, an account that is empty and a redirect are for somebody to mend: Unreachable, and final.
- A filter of the service's that turns a question down is a refusal, as if the model had refused.
- What a service says of a refusal is kept (`completion.words`): printable, cut, without the key, and without what we asked about.
- Tokens that a request took and that no reply told are unknown: where it was cut off, timed out, or was no completion.

What the client would do by itself (retries, redirects) it does not do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING

import httpx2
import openai

from assay.errors import Unreachable
from assay.exact import canonical
from assay.judge.rubric.completion import completion, error_of, words
from assay.judge.rubric.course import Asked, Failed
from assay.judge.rubric.judgement import Spent, Usage
from assay.judge.rubric.limits import BODY_BYTES, Limits
from assay.judge.rubric.model import Models
from assay.judge.rubric.reply import Reply
from assay.peers import NoAnswer, Overrun, Packed, Silent, peer, retry_after

if TYPE_CHECKING:
    from assay.peers.http import Answer

__all__ = ["Service", "opened"]

_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_TO_MEND = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED})
_FILTERED = frozenset({"content_filter", "content_policy_violation", "data_inspection_failed"})
_NO_CONNECTION = "no-connection"
_UNTOLD = Usage(None, None)
"""The service may have computed, and did not say how much."""


class _Status(openai.OpenAIError):
    """A status that is no success, and what is needed of headers and body. The client hands errors of its kind on as they are."""

    def __init__(self, status: int, code: str, said: str, retry_after: str | None) -> None:
        super().__init__(f"status {status}")
        self.status, self.code, self.said, self.retry_after = status, code, said, retry_after


class _TooMuch(openai.OpenAIError):
    """A body that is no completion, whatever is in it: too large, or with a content coding, which nobody asked for."""


class _Bounded(httpx2.AsyncBaseTransport):
    """The client's way out: a `Peer`, in threads of its own, so that what comes is bounded before the client sees it."""

    def __init__(self, models: Models, limits: Limits) -> None:
        options = {"seconds": limits.seconds, "proxies": True, "keep": False}
        self._peer = peer(models.base_url, extra="llm", **options)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One request and its whole answer; raises _Status for what is no success, _TooMuch, and httpx2's errors."""
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers.raw}
        try:
            answer = await self._peer.ask_aside(
                request.method, str(request.url), headers=headers, body=await request.aread(), most=BODY_BYTES
            )
        except (Overrun, Packed) as error:
            if error.head is None or error.head.status < HTTPStatus.BAD_REQUEST:
                raise _TooMuch from None
            raise _status(error.head) from None
        except Silent as error:
            raise httpx2.ReadTimeout(error.why, request=request) from None
        except NoAnswer as error:
            kind = httpx2.ConnectError if error.never else httpx2.ReadError
            raise kind(error.why, request=request) from None
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            raise _status(answer)
        return httpx2.Response(answer.status, headers=answer.headers, content=answer.body, request=request)


def _status(answer: Answer) -> _Status:
    return _Status(answer.status, *error_of(answer.body), answer.header("retry-after"))


class _Trouble(Exception):
    """The service failed a request; it may be asked again after `pause` seconds, if that is known.

    words: what the service says of it.
    """

    def __init__(self, reason: str, *, pause: float = 0.0, words: str = "") -> None:
        super().__init__(reason)
        self.reason, self.pause, self.words = reason, pause, words


class Service:
    """One client for many questions. `opened` makes it."""

    def __init__(self, models: Models, limits: Limits, client: openai.AsyncOpenAI) -> None:
        self.models, self.limits = models, limits
        self._client = client
        self._not_before = 0.0

    async def ask(self, asked: Asked, waiting: Callable[[str], None], spent: Spent) -> Reply | Failed:
        """One question, asked until there is an answer or the bounds are reached; raises Unreachable. Adds to `spent`."""
        limits, spread = self.limits, _spread(asked)
        failures = 0
        waited, pause = 0.0, limits.first_pause
        while True:
            await self._turn()
            spent.tries += 1
            try:
                return await self._once(asked, spent)
            except _Trouble as found:
                trouble = found
            limited = trouble.reason == "status-429"
            failures += not limited
            rest = min(max(pause * spread, trouble.pause), limits.longest_pause)
            if failures >= limits.tries or waited + rest > limits.patience:
                if trouble.reason == _NO_CONNECTION:
                    raise Unreachable(f"there is no connection to the model at {self.models.host}", hint="is it running?")
                return Failed(trouble.reason, trouble.words)
            if limited:
                self._not_before = max(self._not_before, time.monotonic() + rest)
            waiting(trouble.reason)
            await asyncio.sleep(rest)
            waited += rest
            pause *= 2

    async def _turn(self) -> None:
        while (left := self._not_before - time.monotonic()) > 0:
            await asyncio.sleep(left)

    async def _once(self, asked: Asked, spent: Spent) -> Reply | Failed:
        """One request; raises _Trouble where it is worth another one, and Unreachable where it is not."""
        usage = _UNTOLD
        try:
            async with asyncio.timeout(min(self.limits.seconds, asked.called.model.timeout)):
                data = await self._body(asked)
            found = completion(data)
            if found is None:
                raise _Trouble("no-completion")
            usage = found[1]
            return found[0]
        except (TimeoutError, openai.APITimeoutError, httpx2.TimeoutException):
            raise _Trouble("timeout") from None
        except _TooMuch:
            raise _Trouble("no-completion") from None
        except _Status as error:
            usage = Usage()
            return self._refused(error, asked)
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            if isinstance(error.__cause__ or error, httpx2.ConnectError):
                usage = Usage()
                raise _Trouble(_NO_CONNECTION) from None
            raise _Trouble("cut-off") from None
        finally:
            spent.usage += usage

    async def _body(self, asked: Asked) -> bytes:
        """The bytes of a reply."""
        create = self._client.chat.completions.with_streaming_response.create
        async with create(**asked.body) as response:
            return bytes(await response.read())

    def _refused(self, error: _Status, asked: Asked) -> Reply | Failed:
        """What a status means; raises _Trouble or Unreachable."""
        status, host = error.status, self.models.host
        said = words(error.said, [self.models.api_key], asked.texts)
        told = f": {said}" if said else ""
        if status in _TO_MEND or error.code == "insufficient_quota":
            raise Unreachable(
                f"the model at {host} refuses us (status {status}){told}", final=True, hint="check the key and the account"
            )
        if status < HTTPStatus.BAD_REQUEST:
            raise Unreachable(
                f"the model at {host} sends us elsewhere (status {status})", final=True, hint="give the address itself"
            )
        if status in _AGAIN or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise _Trouble(f"status-{status}", pause=retry_after(error.retry_after) or 0.0, words=said)
        if error.code in _FILTERED:
            return Reply(content=None, refusal=error.code, finish="content_filter", model=None, fingerprint=None)
        return Failed(f"status-{status}", said)


@asynccontextmanager
async def opened(models: Models, limits: Limits) -> AsyncIterator[Service]:
    """A client that is closed in the end."""
    logging.getLogger("openai").setLevel(logging.WARNING)  # some versions log at debug what is asked, which is private
    http = openai.DefaultAsyncHttpxClient(
        follow_redirects=False,
        timeout=limits.seconds,
        transport=_Bounded(models, limits),
    )
    async with openai.AsyncOpenAI(
        base_url=models.base_url,
        api_key=models.api_key or "none",
        organization="",
        project="",
        max_retries=0,
        timeout=limits.seconds,
        http_client=http,
    ) as client:
        yield Service(models, limits, client)


def _spread(asked: Asked) -> float:
    """From 0.5 to 1.5, by the question: so that those who were turned down at once do not come back at once."""
    return 0.5 + int.from_bytes(sha256(canonical(dict(asked.body))).digest()[:4], "big") / 2**32
