"""The service's side of an agent's proxy: requests go out, and of each failure it is found out whose it was. SPEC 2.1.

The service's failure makes a trial an ERROR, so an agent that would fail wants one. It can make a service refuse: by a prompt
that is flagged, by a request that breaks it, by asking until a limit is reached. So a refusal is not believed at once:

- What may pass by itself (408, 425, 429, 5xx, a connection that broke) is asked again, after a pause that doubles, or that
  `Retry-After` says. After a 429 nothing of this trial goes out before the pause is over.
- If it stays refused, or is refused for good (401, 402, 403, 407, nothing in time), the judge asks a small question of its own:
  same key, model and endpoint (`endpoints.question`). If that is refused too, it is the service's trouble.
- If it is answered, the request was to blame. What may pass is asked a last time; then the agent gets the refusal as its own.
- An answer that is cut off in the middle is asked for again, and thrown away. If it comes whole, it is the service's trouble.
- A request that still waits when the trial ends (`_LONG`), or that is in doubt then, is looked into in the same way.

Questions, repeats and pauses are bounded for each trial. An agent that has used up the questions has been to blame so often;
what it is refused from then on is its own. No more than so many requests go out in a minute, so that one agent does not exhaust
the account.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from assay.judge.service import ModelAccess
from assay.judge.terminal import model_requests
from assay.judge.terminal.model_requests import ModelTraffic, ProxyLimits
from assay.peers import NoAnswer, Overrun, Silent, retry_after
from assay.peers.http import Peer, StreamedAnswer

__all__ = ["Closed", "ModelRequest", "Upstream"]

_FOR_GOOD = frozenset({401, 402, 403, 407})
_PASSING = frozenset({408, 425, 429})
_TRIES = 3
"""How often a request is asked before a question is."""
_CUT = 3
"""Answers that were cut off and are asked for again, in one trial."""
_CACHED = 10.0
"""Seconds for which a question that was answered stands for refusals for good."""
_MINUTE = 60.0
_LONG = 10.0
"""Seconds after which a request that waits when the trial ends is looked into."""
_QUESTION_BYTES = 1_000_000


class Closed(Exception):
    """The trial is over."""


@dataclass(frozen=True)
class ModelRequest:
    """What an agent asked, as it is forwarded; `target` from the host's root."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class _Failure:
    why: str
    passing: bool = False
    """Whether it may be gone when it is asked again."""
    pause: float | None = None
    """Seconds that the service wants us to wait."""


@dataclass(eq=False)
class _Doubt:
    """A request that has no answer yet."""

    request: ModelRequest
    since: float = field(default_factory=time.monotonic)
    tries: int = 0
    failed: bool = False
    proven: bool = False
    """Whether a question of ours was answered in between, so that the next failure is the request's own."""


class Upstream:
    """One trial's way to the service. May be used by several threads; to be closed."""

    def __init__(self, model: ModelAccess, limits: ProxyLimits, seen: ModelTraffic, lock: threading.Lock) -> None:
        """seen: what is noted, under the lock."""
        self._model, self._limits, self._seen, self._lock = model, limits, seen, lock
        self._peer = Peer(model.base_url, seconds=limits.whole, idle=limits.seconds, keep=False)
        self._own = Peer(model.base_url, seconds=limits.question_seconds, keep=False)
        parts = urlsplit(model.base_url)
        self._root, self._base = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        self._closed = threading.Event()
        self._sent: deque[float] = deque()
        self._not_before, self._patience, self._cut = 0.0, limits.patience, _CUT
        self._asking = threading.Lock()
        self._answered: dict[model_requests.Probe, float] = {}
        self._doubts: set[_Doubt] = set()

    @contextmanager
    def answer(self, request: ModelRequest) -> Iterator[StreamedAnswer | None]:
        """What the agent is given, a refusal perhaps; None where nothing came. Raises Closed."""
        doubt = _Doubt(request)
        with self._lock:
            self._doubts.add(doubt)
        try:
            while True:
                doubt.tries += 1
                with ExitStack() as later:
                    opened, failure = self._once(request, later)
                    doubt.failed = failure is not None
                    if failure is not None and self._again(doubt, failure):
                        continue
                    doubt.failed, doubt.since = False, time.monotonic()  # its body may still keep us waiting
                    yield opened
                    return
        finally:
            with self._lock:
                self._doubts.discard(doubt)

    def cut_off(self, request: ModelRequest, error: NoAnswer, *, slow: bool) -> None:
        """Notes whose trouble it is that an answer had a beginning and no end. slow: the agent kept it waiting."""
        why = f"{request.method}: cut off ({error.why})"
        if slow:  # a service does not wait for ever
            self._blame(why)
            return
        with self._lock:
            again = self._cut > 0 and not isinstance(error, Silent) and not self._seen.troubles
            self._cut -= again
        if again and self._whole(request):
            self._trouble(f"{why}, and whole when it was asked for again")
        elif refusal := self._refusal(request, time.monotonic(), whole=True):
            self._trouble(f"{why}; {refusal}")
        else:
            self._blame(why)

    def close(self) -> None:
        """Ends everything that goes on; what was in doubt is looked into. Connections close with the threads that use them."""
        self._closed.set()
        now = time.monotonic()
        with self._lock:
            doubts = [one for one in self._doubts if one.failed or now - one.since >= _LONG]
        self._peer.hang_up()
        self._own.hang_up()
        if doubts and (refusal := self._refusal(doubts[0].request, now, last=True)):
            with self._lock:
                waited = now - doubts[0].since
                self._seen.trouble(f"{doubts[0].request.method}: no answer for {waited:.0f} s when the trial ended; {refusal}")

    def _once(self, request: ModelRequest, later: ExitStack) -> tuple[StreamedAnswer | None, _Failure | None]:
        """One request, when it is its turn: its answer, and what is wrong with it."""
        self._turn()
        try:
            opened = later.enter_context(self._exchange(self._peer, request, self._limits.answer_bytes))
        except NoAnswer as error:
            return None, _Failure(f"no answer ({error.why})", passing=not isinstance(error, Silent))
        status = opened.answer.status
        if status in _PASSING or status >= 500:
            return opened, _Failure(f"status {status}", passing=True, pause=retry_after(opened.answer.header("retry-after")))
        named = status == 404 and bool(self._model.names) and request.method == "POST"  # the validator says that it is there
        return opened, _Failure(f"status {status}") if status in _FOR_GOOD or named else None

    def _exchange(self, peer: Peer, request: ModelRequest, most: int) -> AbstractContextManager[StreamedAnswer]:
        body = request.body if request.method == "POST" else None
        return peer.exchange(request.method, self._root + request.target, headers=request.headers, body=body, most=most)

    def _turn(self) -> None:
        """Waits until one more request may go out. Raises Closed."""
        while True:
            with self._lock:
                now = time.monotonic()
                while self._sent and self._sent[0] <= now - _MINUTE:
                    self._sent.popleft()
                full = len(self._sent) >= self._model.per_minute
                seconds = max(self._not_before - now, self._sent[0] + _MINUTE - now if full else 0.0)
                if seconds <= 0 and not self._closed.is_set():
                    self._sent.append(now)
                    return
            if self._closed.wait(max(0.0, seconds)):
                raise Closed

    def _again(self, doubt: _Doubt, failure: _Failure) -> bool:
        """Whether a request that failed is asked again; if not, it is noted whose failure it was. Raises Closed."""
        why = f"{doubt.request.method}: {failure.why}"
        if doubt.proven:
            self._blame(why)
        elif failure.passing and doubt.tries < _TRIES and self._rest(failure, doubt.tries):
            return True
        elif refusal := self._refusal(doubt.request, time.monotonic() - (0.0 if failure.passing else _CACHED)):
            self._trouble(f"{why}; {refusal}")
        elif failure.passing and self._repeat():
            doubt.proven = True
            return True
        else:
            self._blame(why)
        return False

    def _repeat(self) -> bool:
        """Whether a request may be asked once more, which is counted."""
        with self._lock:
            if self._seen.again >= self._limits.again:
                return False
            self._seen.again += 1
            return True

    def _rest(self, failure: _Failure, tries: int) -> bool:
        """Pauses before a request is asked again; False if there is no patience left for it. Raises Closed."""
        seconds = self._limits.pause * 2 ** (tries - 1) if failure.pause is None else failure.pause
        with self._lock:
            if seconds > self._patience or self._seen.again >= self._limits.again:
                return False
            self._patience -= seconds
            self._seen.again += 1
            if failure.why == "status 429":
                self._not_before = max(self._not_before, time.monotonic() + seconds)
        if self._closed.wait(seconds):
            raise Closed
        return True

    def _refusal(self, request: ModelRequest, since: float, *, whole: bool = False, last: bool = False) -> str:
        """What a question of our own comes to; "" if one was answered after `since`, or none may be asked any more."""
        question = model_requests.question(self._base, request.method, request.target, request.body)
        if question is None:
            return "and this endpoint has no question by which to see whose failure it is"
        with self._asking:
            with self._lock:
                if self._seen.troubles:
                    return "as before"
                known = self._answered.get(question, float("-inf")) >= since
                if known or self._seen.questions >= self._limits.questions or (self._closed.is_set() and not last):
                    return ""
                self._seen.questions += 1
            status = self._outcome(question, whole=whole)
            if not status:
                self._answered[question] = time.monotonic()
            return f"and a question of ours: {status}" if status else ""

    def _outcome(self, question: model_requests.Probe, *, whole: bool) -> str:
        """What comes of a question; "" if the agent is to blame for what it asked, or for how it wrote it."""
        status = self._status(question.method, question.target, question.body, whole=whole)
        if status == "status 403" and not self._model.names and question.method == "POST":
            # The agent may have named a model that this account may not use. If it may list models, the account is good.
            status = self._status("GET", question.listing, b"", whole=whole)
        if status.startswith("status"):  # a service may refuse what it does not know: `/v1` twice, or a key in the query
            others = (self._status(question.method, one, question.body, whole=whole, good=True) for one in question.others)
            if not all(others):
                return ""
        return status

    def _status(self, method: str, target: str, body: bytes, *, whole: bool, good: bool = False) -> str:
        """What is answered; "" for a status that refuses neither the key nor the work, and the beginning of a body.

        whole: all of the body. good: only for a status of success.
        """
        headers = {"Content-Type": "application/json", "Anthropic-Version": "2023-06-01", **self._model.credentials}
        came = False
        try:
            with self._exchange(self._own, ModelRequest(method, target, headers, body), _QUESTION_BYTES) as opened:
                status = opened.answer.status
                while opened.read():
                    came = True
                    if not whole:
                        break
        except NoAnswer as error:
            if not came or not isinstance(error, Overrun if whole else Silent | Overrun):  # more than enough came
                return f"no answer ({error.why})"
        refused = status in _FOR_GOOD or status in _PASSING or status >= 500 or (status == 404 and bool(self._model.names))
        return f"status {status}" if refused or (good and status >= 300) else ""

    def _whole(self, request: ModelRequest) -> bool:
        """Whether the same request is answered to the end."""
        try:
            self._turn()
            with self._exchange(self._peer, request, self._limits.answer_bytes) as opened:
                while opened.read():
                    pass
                return opened.answer.status < 300
        except (NoAnswer, Closed):
            return False

    def _trouble(self, what: str) -> None:
        with self._lock:
            if not self._closed.is_set():  # then it was us who hung up
                self._seen.trouble(what)

    def _blame(self, what: str) -> None:
        with self._lock:
            if not self._closed.is_set():
                self._seen.to_blame(what)
