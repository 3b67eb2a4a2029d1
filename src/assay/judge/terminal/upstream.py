"""Sends an agent's requests to the model service, and decides of each failure whether service or agent caused it. SPEC 2.1.

A failure of the service makes a trial an ERROR, so an agent that is about to fail would like one. It can make a service refuse:
with a prompt that is flagged, with a request that breaks the service, or with requests until a limit is reached. So a refusal is
not believed at once:

- A failure that may be temporary (408, 425, 429, 5xx, a broken connection) is repeated after a pause, which doubles each time or
  follows `Retry-After`. After a 429, nothing of this trial is sent before the pause is over.
- If it persists, or is permanent (401, 402, 403, 407, no answer in time), the judge sends a probe: a small request of its own
  with the same key, model and endpoint (`model_requests.make_probe`). If the probe is refused too, the service failed.
- If the probe is answered, the agent's request caused the failure. A temporary failure is repeated once more; then the agent
  gets the refusal.
- If an answer is cut off, the same request is sent again and its answer is discarded. If that answer is complete, the service
  failed.
- A request that has waited long (`_LONG`), or has failed and is not decided, when the trial ends is decided in the same way.

Probes, repeats and pauses are limited for each trial. An agent that has used up the probes has caused that many failures, so all
further refusals count as its own. Only a limited number of requests is sent in a minute, so one agent cannot exhaust the account.
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

_PERMANENT = frozenset({401, 402, 403, 407})
_TEMPORARY = frozenset({408, 425, 429})
_TRIES = 3
"""The number of times that a request is sent before a probe is."""
_CUT = 3
"""The number of a trial's answers that are requested again because they were cut off."""
_CACHED = 10.0
"""Seconds for which an answered probe also decides later permanent refusals."""
_MINUTE = 60.0
_LONG = 10.0
"""Seconds after which a request that still waits when the trial ends is decided by a probe."""
_PROBE_BYTES = 1_000_000


class Closed(Exception):
    """The trial is over."""


@dataclass(frozen=True)
class ModelRequest:
    """A request as it is forwarded; `target` begins at the host's root."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class _UpstreamFailure:
    why: str
    temporary: bool = False
    """Whether the same request may succeed later."""
    pause: float | None = None
    """Seconds that the service asks us to wait."""


@dataclass(eq=False)
class _Pending:
    """A request that has no answer yet."""

    request: ModelRequest
    since: float = field(default_factory=time.monotonic)
    tries: int = 0
    failed: bool = False
    proven: bool = False
    """Whether a probe was answered after a failure, so the request itself causes the next one."""


class Upstream:
    """The connection of one trial to the service. Several threads may use it; it must be closed."""

    def __init__(self, model: ModelAccess, limits: ProxyLimits, seen: ModelTraffic, lock: threading.Lock) -> None:
        """seen: the counts and failures, changed only under the lock."""
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
        self._pending: set[_Pending] = set()

    @contextmanager
    def answer(self, request: ModelRequest) -> Iterator[StreamedAnswer | None]:
        """The answer for the agent, perhaps a refusal; None if no answer came. Raises Closed."""
        pending = _Pending(request)
        with self._lock:
            self._pending.add(pending)
        try:
            while True:
                pending.tries += 1
                with ExitStack() as later:
                    exchange, failure = self._send(request, later)
                    pending.failed = failure is not None
                    if failure is not None and self._again(pending, failure):
                        continue
                    pending.failed, pending.since = False, time.monotonic()  # its body may still keep us waiting
                    yield exchange
                    return
        finally:
            with self._lock:
                self._pending.discard(pending)

    def cut_off(self, request: ModelRequest, error: NoAnswer, *, slow: bool) -> None:
        """Decides who caused it that an answer was cut off. slow: the agent was slow to read it."""
        why = f"{request.method}: cut off ({error.why})"
        if slow:  # a service does not wait forever
            self._blame(why)
            return
        with self._lock:
            again = self._cut > 0 and not isinstance(error, Silent) and not self._seen.troubles
            self._cut -= again
        if again and self._whole(request):
            self._trouble(f"{why}, and complete when it was requested again")
        elif refusal := self._refusal(request, time.monotonic(), whole=True):
            self._trouble(f"{why}; {refusal}")
        else:
            self._blame(why)

    def close(self) -> None:
        """Ends all requests, and decides the pending ones. Connections close with the threads that use them."""
        self._closed.set()
        now = time.monotonic()
        with self._lock:
            pending = [request for request in self._pending if request.failed or now - request.since >= _LONG]
        self._peer.hang_up()
        self._own.hang_up()
        if pending and (refusal := self._refusal(pending[0].request, now, last=True)):
            with self._lock:
                waited = now - pending[0].since
                self._seen.trouble(f"{pending[0].request.method}: no answer for {waited:.0f} s when the trial ended; {refusal}")

    def _send(self, request: ModelRequest, later: ExitStack) -> tuple[StreamedAnswer | None, _UpstreamFailure | None]:
        """Sends a request once, when it is its turn: the answer, and the failure if it is one."""
        self._wait_turn()
        try:
            exchange = later.enter_context(self._exchange(self._peer, request, self._limits.answer_bytes))
        except NoAnswer as error:
            return None, _UpstreamFailure(f"no answer ({error.why})", temporary=not isinstance(error, Silent))
        status = exchange.answer.status
        if status in _TEMPORARY or status >= 500:
            pause = retry_after(exchange.answer.header("retry-after"))
            return exchange, _UpstreamFailure(f"status {status}", temporary=True, pause=pause)
        named = status == 404 and bool(self._model.names) and request.method == "POST"  # the validator says that it exists
        return exchange, _UpstreamFailure(f"status {status}") if status in _PERMANENT or named else None

    def _exchange(self, peer: Peer, request: ModelRequest, most: int) -> AbstractContextManager[StreamedAnswer]:
        body = request.body if request.method == "POST" else None
        return peer.exchange(request.method, self._root + request.target, headers=request.headers, body=body, most=most)

    def _wait_turn(self) -> None:
        """Waits until one more request may be sent. Raises Closed."""
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

    def _again(self, pending: _Pending, failure: _UpstreamFailure) -> bool:
        """Whether a request that failed is sent again; if not, records who caused the failure. Raises Closed."""
        why = f"{pending.request.method}: {failure.why}"
        if pending.proven:
            self._blame(why)
        elif failure.temporary and pending.tries < _TRIES and self._rest(failure, pending.tries):
            return True
        elif refusal := self._refusal(pending.request, time.monotonic() - (0.0 if failure.temporary else _CACHED)):
            self._trouble(f"{why}; {refusal}")
        elif failure.temporary and self._repeat():
            pending.proven = True
            return True
        else:
            self._blame(why)
        return False

    def _repeat(self) -> bool:
        """Whether a request may be sent once more; counts it."""
        with self._lock:
            if self._seen.again >= self._limits.again:
                return False
            self._seen.again += 1
            return True

    def _rest(self, failure: _UpstreamFailure, tries: int) -> bool:
        """Pauses before a request is sent again; False if the trial's repeats or pauses are used up. Raises Closed."""
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
        """The service's refusal of a probe; "" if one was answered after `since`, or no more may be sent."""
        probe = model_requests.make_probe(self._base, request.method, request.target, request.body)
        if probe is None:
            return "and no probe of this endpoint is known that would show who caused the failure"
        with self._asking:
            with self._lock:
                if self._seen.troubles:
                    return "as before"
                known = self._answered.get(probe, float("-inf")) >= since
                if known or self._seen.questions >= self._limits.questions or (self._closed.is_set() and not last):
                    return ""
                self._seen.questions += 1
            status = self._probe(probe, whole=whole)
            if not status:
                self._answered[probe] = time.monotonic()
            return f"and the judge's own probe: {status}" if status else ""

    def _probe(self, probe: model_requests.Probe, *, whole: bool) -> str:
        """The service's failure at a probe; "" if it answers, or if the agent's model or address causes the failure."""
        status = self._status(probe.method, probe.target, probe.body, whole=whole)
        if status == "status 403" and not self._model.names and probe.method == "POST":
            # The agent may have named a model that this account may not use. If the account may list models, it is good.
            status = self._status("GET", probe.listing, b"", whole=whole)
        if status.startswith("status"):  # a service may refuse an address that it does not know: `/v1` twice, a key in the query
            others = (self._status(probe.method, target, probe.body, whole=whole, good=True) for target in probe.others)
            if not all(others):
                return ""
        return status

    def _status(self, method: str, target: str, body: bytes, *, whole: bool, good: bool = False) -> str:
        """The failure of a request of the judge's own; "" if it is answered.

        Answered: a status that refuses neither key nor work, and the beginning of a body. whole: the whole body is needed.
        good: a status of success is needed.
        """
        headers = {"Content-Type": "application/json", "Anthropic-Version": "2023-06-01", **self._model.credentials}
        began = False
        try:
            with self._exchange(self._own, ModelRequest(method, target, headers, body), _PROBE_BYTES) as exchange:
                status = exchange.answer.status
                while exchange.read():
                    began = True
                    if not whole:
                        break
        except NoAnswer as error:
            if not began or not isinstance(error, Overrun if whole else Silent | Overrun):  # otherwise more than enough came
                return f"no answer ({error.why})"
        refused = status in _PERMANENT or status in _TEMPORARY or status >= 500 or (status == 404 and bool(self._model.names))
        return f"status {status}" if refused or (good and status >= 300) else ""

    def _whole(self, request: ModelRequest) -> bool:
        """Whether the same request, sent again, is answered completely."""
        try:
            self._wait_turn()
            with self._exchange(self._peer, request, self._limits.answer_bytes) as exchange:
                while exchange.read():
                    pass
                return exchange.answer.status < 300
        except (NoAnswer, Closed):
            return False

    def _trouble(self, what: str) -> None:
        with self._lock:
            if not self._closed.is_set():  # otherwise we closed the connection ourselves
                self._seen.trouble(what)

    def _blame(self, what: str) -> None:
        with self._lock:
            if not self._closed.is_set():
                self._seen.to_blame(what)
