"""Asks one model service through the `openai` client, bounded in time, bytes and patience. No question appears in a log.

- 429, 408, 409, 5xx, time-outs, lost connections and bodies that are not a completion are retried, after pauses that double;
  `Retry-After` is respected, within a bound. After a 429 no question is asked before the pause is over.
- A compressed body is not a completion: no content coding was requested. Time and bytes are bounded as for every peer.
- When the bounds are reached, the service has failed for that model (`ServiceFailure`). The same holds for a model that does not
  exist (404) or a question that is refused (other 4xx). If nothing listens at the address, no other model would answer either:
  Unreachable.
- A refused key, an empty account and a redirect need an operator: Unreachable, and final.
- A service's filter that rejects a question counts as a refusal by the model.
- The service's message about a refusal is kept (`service_message`): printable, cut, without the key, and without our question.
- The tokens of a request are unknown if its reply did not tell them: it was cut off, timed out, or was not a completion.

The client's own retries and redirects are switched off. A body that is not a completion is the service's fault, not the model's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpx2
import openai

from assay.errors import Unreachable, printable
from assay.exact import canonical
from assay.judge.rubric.asking import Models
from assay.judge.rubric.conversation import AskedQuestion, ServiceFailure
from assay.judge.rubric.judgement import BODY_BYTES, NAME_CHARACTERS, WORDS_CHARACTERS, JudgeLimits, Spent, TokenUsage
from assay.judge.rubric.reply import Reply
from assay.judge.stations import Gate, Ticket
from assay.peers import NoAnswer, Overrun, Packed, Silent, peer, retry_after

if TYPE_CHECKING:
    from assay.peers.http import PeerAnswer


ECHO = 20
"""A run of so many characters of the question in an error message counts as an echo."""
LETTERS = 14
"""A run of so many letters and digits also does, whatever is between them and however they are escaped."""
_MOST_TOKENS = 2**31
_WRITTEN = re.compile(
    r"\\+(?:u(?P<u>[0-9a-f]{4})|x(?P<x>[0-9a-f]{2})|[a-z])|&#?\w{1,8};|<br ?/?>|%[0-9a-f]{2}"
    r"|(?<![0-9a-f])[0-9a-f]{8} [0-9]{1,7}\||(?P<letter>[^\W_])",
    re.IGNORECASE,
)
"""A letter or digit, plain or escaped; an escape of another character; a gutter."""


def parse_completion(data: bytes) -> tuple[Reply, TokenUsage] | None:
    """The reply in a body, and its tokens (None if not told); None if the body is not a chat completion."""
    try:
        document: Any = json.loads(data)
        choice = document["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        content, refusal = message.get("content"), message.get("refusal")
        if not all(text is None or isinstance(text, str) for text in (content, refusal, finish)):
            return None
        for text in (content, refusal, finish):
            (text or "").encode()  # a lone surrogate is not text
        reply = Reply(
            content, refusal, finish, _printable_name(document.get("model")), _printable_name(document.get("system_fingerprint"))
        )
        usage = document.get("usage")
        return reply, TokenUsage(_tokens(usage, "prompt_tokens"), _tokens(usage, "completion_tokens"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def parse_error(data: bytes) -> tuple[str, str]:
    """`error.code` and `error.message` in the body of an error, empty if absent. The message is not made printable."""
    try:
        document: Any = json.loads(data)
        error = document.get("error", document)
        if isinstance(error, str):  # some services send only a message
            return "", error
        return tuple(text if isinstance(text := error.get(name), str) else "" for name in ("code", "message"))  # type: ignore[return-value]
    except (ValueError, AttributeError, RecursionError):
        return "", ""


def service_message(message: str, secrets: Sequence[str], texts: Sequence[str]) -> str:
    """A service's message made safe to show: printable, cut, without secrets, and without the texts of the question.

    texts: the untrusted texts of the request. A run of `ECHO` characters that one of them has is left out, and so is a run of
    `LETTERS` letters and digits: services repeat a request with escapes, or as it was sent, with gutters.
    """
    for secret in secrets:
        message = message.replace(secret, "…") if secret else message
    message = " ".join(message[: 4 * WORDS_CHARACTERS].split())
    plain = [" ".join(text.split()) for text in texts]
    hidden = bytearray(len(message))
    for start in range(len(message) - ECHO + 1):
        if any(message[start : start + ECHO] in text for text in plain):
            hidden[start : start + ECHO] = b"\x01" * ECHO
    letters, places = _letters(message)
    bare = [_letters(text)[0] for text in texts]
    for start in range(len(letters) - LETTERS + 1):
        if any(letters[start : start + LETTERS] in text for text in bare):
            first, last = places[start][0], places[start + LETTERS - 1][1]
            hidden[first:last] = b"\x01" * (last - first)
    visible = "".join(
        "" if hide and hidden[place - 1 : place] == b"\x01" else "…" if hide else c
        for place, (c, hide) in enumerate(zip(message, hidden, strict=True))
    )
    return printable(visible if len(visible) <= WORDS_CHARACTERS else f"{visible[:WORDS_CHARACTERS]}…")


def _letters(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The letters and digits of a text in lower case, with escapes read, and where each begins and ends."""
    letters: list[str] = []
    places: list[tuple[int, int]] = []
    for match in _WRITTEN.finditer(text):
        code = match["u"] or match["x"]
        letter = (chr(int(code, 16)) if code else match["letter"] or "").lower()[:1]
        if letter.isalnum():
            letters.append(letter)
            places.append(match.span())
    return "".join(letters), places


def _printable_name(value: object) -> str | None:
    """A name that the service sent, made printable and cut; None if it is not a text."""
    if not isinstance(value, str):
        return None
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in value[:NAME_CHARACTERS])


def _tokens(usage: object, name: str) -> int | None:
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _MOST_TOKENS else None


_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_TO_MEND = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED})
_FILTERED = frozenset({"content_filter", "content_policy_violation", "data_inspection_failed"})
_NO_CONNECTION = "no-connection"
_UNTOLD = TokenUsage(None, None)
"""The service may have computed tokens, but did not tell how many."""


class _StatusError(openai.OpenAIError):
    """A status other than success, with the needed parts of headers and body. The client passes its own kind of errors on."""

    def __init__(self, status: int, code: str, message: str, retry_after: str | None) -> None:
        super().__init__(f"status {status}")
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after


class _UnusableBody(openai.OpenAIError):
    """The body cannot be a completion: it is too large, or has a content coding."""


class _AsyncPeerTransport(httpx2.AsyncBaseTransport):
    """The client's transport: a `Peer` in its own threads, which bounds answers before the client sees them."""

    def __init__(self, models: Models, limits: JudgeLimits) -> None:
        options = {"seconds": limits.seconds, "proxies": True, "keep": False}
        self._peer = peer(models.base_url, extra="llm", **options)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return its whole answer. Raises _StatusError, _UnusableBody and httpx2's errors."""
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers.raw}
        try:
            answer = await self._peer.ask_aside(
                request.method, str(request.url), headers=headers, body=await request.aread(), most=BODY_BYTES
            )
        except (Overrun, Packed) as error:
            if error.head is None or error.head.status < HTTPStatus.BAD_REQUEST:
                raise _UnusableBody from None
            raise _status(error.head) from None
        except Silent as error:
            raise httpx2.ReadTimeout(error.why, request=request) from None
        except NoAnswer as error:
            kind = httpx2.ConnectError if error.never else httpx2.ReadError
            raise kind(error.why, request=request) from None
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            raise _status(answer)
        return httpx2.Response(answer.status, headers=answer.headers, content=answer.body, request=request)


def _status(answer: PeerAnswer) -> _StatusError:
    return _StatusError(answer.status, *parse_error(answer.body), answer.header("retry-after"))


class _Retry(Exception):
    """The service failed; the request may be repeated after `pause` seconds, if that is known.

    words: the service's message about it.
    """

    def __init__(self, reason: str, *, pause: float = 0.0, words: str = "") -> None:
        super().__init__(reason)
        self.reason, self.pause, self.words = reason, pause, words


class ModelService:
    """One client for many questions. `open_service` makes it."""

    def __init__(self, models: Models, limits: JudgeLimits, client: openai.AsyncOpenAI, gate: Gate | None = None) -> None:
        self.models, self.limits = models, limits
        self._client, self._gate = client, gate
        self._not_before = 0.0

    async def ask(self, asked: AskedQuestion, waiting: Callable[[str], None], spent: Spent) -> Reply | ServiceFailure:
        """Ask one question until there is an answer or the bounds are reached. Raises Unreachable. Adds to `spent`."""
        limits, spread = self.limits, _spread(asked)
        failures = 0
        waited, pause = 0.0, limits.first_pause
        while True:
            await self._turn()
            spent.tries += 1
            try:
                return await self._once(asked, spent)
            except _Retry as retry:
                trouble = retry
            limited = trouble.reason == "status-429"
            failures += not limited
            rest = min(max(pause * spread, trouble.pause), limits.longest_pause)
            if failures >= limits.tries or waited + rest > limits.patience:
                if trouble.reason == _NO_CONNECTION:
                    raise Unreachable(f"there is no connection to the model at {self.models.host}", hint="is it running?")
                return ServiceFailure(trouble.reason, trouble.words)
            if limited:
                self._not_before = max(self._not_before, time.monotonic() + rest)
                if self._gate is not None:
                    await asyncio.to_thread(self._gate.pause, rest)
            waiting(trouble.reason)
            await asyncio.sleep(rest)
            waited += rest
            pause *= 2

    async def _turn(self) -> None:
        while (left := self._not_before - time.monotonic()) > 0:
            await asyncio.sleep(left)
        ticket: Ticket | None = None
        while self._gate is not None:
            left, ticket = await asyncio.to_thread(self._gate.turn, ticket)
            if left <= 0:
                return
            await asyncio.sleep(left)

    async def _once(self, asked: AskedQuestion, spent: Spent) -> Reply | ServiceFailure:
        """Send one request. Raises _Retry if it is worth repeating, and Unreachable if it is not."""
        usage = _UNTOLD
        try:
            async with asyncio.timeout(min(self.limits.seconds, asked.called.model.timeout)):
                data = await self._body(asked)
            completion = parse_completion(data)
            if completion is None:
                raise _Retry("no-completion")
            usage = completion[1]
            return completion[0]
        except (TimeoutError, openai.APITimeoutError, httpx2.TimeoutException):
            raise _Retry("timeout") from None
        except _UnusableBody:
            raise _Retry("no-completion") from None
        except _StatusError as error:
            usage = TokenUsage()
            return self._refused(error, asked)
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            if isinstance(error.__cause__ or error, httpx2.ConnectError):
                usage = TokenUsage()
                raise _Retry(_NO_CONNECTION) from None
            raise _Retry("cut-off") from None
        finally:
            spent.usage += usage

    async def _body(self, asked: AskedQuestion) -> bytes:
        """The bytes of the reply to a request."""
        create = self._client.chat.completions.with_streaming_response.create
        async with create(**asked.body) as response:
            return bytes(await response.read())

    def _refused(self, error: _StatusError, asked: AskedQuestion) -> Reply | ServiceFailure:
        """The reply or failure that a status stands for. Raises _Retry or Unreachable."""
        status, host = error.status, self.models.host
        message = service_message(error.message, [self.models.api_key], asked.texts)
        quoted = f": {message}" if message else ""
        if status in _TO_MEND or error.code == "insufficient_quota":
            raise Unreachable(
                f"the model at {host} refuses us (status {status}){quoted}", final=True, hint="check the key and the account"
            )
        if status < HTTPStatus.BAD_REQUEST:
            raise Unreachable(
                f"the model at {host} redirects us (status {status})", final=True, hint="give the address that it redirects to"
            )
        if status in _AGAIN or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise _Retry(f"status-{status}", pause=retry_after(error.retry_after) or 0.0, words=message)
        if error.code in _FILTERED:
            return Reply(content=None, refusal=error.code, finish="content_filter", model=None, fingerprint=None)
        return ServiceFailure(f"status-{status}", message)


@asynccontextmanager
async def open_service(models: Models, limits: JudgeLimits, gate: Gate | None = None) -> AsyncIterator[ModelService]:
    """Open a client, which is closed at the end of the block. gate: asked before each request, where several machines ask."""
    logging.getLogger("openai").setLevel(logging.WARNING)  # some versions log requests at level debug, but they are private
    http = openai.DefaultAsyncHttpxClient(
        follow_redirects=False,
        timeout=limits.seconds,
        transport=_AsyncPeerTransport(models, limits),
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
        yield ModelService(models, limits, client, gate)


def _spread(asked: AskedQuestion) -> float:
    """A factor from 0.5 to 1.5, from the question's digest: it spreads requests that were refused at the same moment."""
    return 0.5 + int.from_bytes(sha256(canonical(dict(asked.body))).digest()[:4], "big") / 2**32
