"""What the service counts, as Prometheus reads it. Labels are routes, statuses and competitions: nothing that a stranger chooses.

Requests are counted by each worker process for itself, under its number; what is in the ledger is the same in all of them.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from assay.errors import AssayError
from assay.serve.site import Site

__all__ = ["Metrics", "RequestTally"]

BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
"""Upper bounds of the histogram of seconds."""
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class RequestTally:
    """What passes between a server and the application for one request; the answer gets some headers more."""

    def __init__(self, receive: Any, send: Any, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._receive, self._send, self._headers = receive, send, headers
        self.begun, self.status, self.received, self.sent = time.monotonic(), 0, 0, 0

    async def receive(self) -> Any:
        """What the client sends."""
        message = await self._receive()
        self.received += len(message.get("body", b""))
        return message

    async def send(self, message: Any) -> None:
        """Send something to the client."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._headers]
        self.sent += len(message.get("body", b""))
        await self._send(message)


class Metrics:
    """Counts of one process. Its methods are for one event loop; `text` may run in a thread."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, list[int]] = {}
        self._spent: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self.listening = 0
        """Clients that wait for events."""

    def count(self, scope: Any, method: str, tally: RequestTally) -> None:
        """Count a request that is over. scope: the request's, after it was routed."""
        route = getattr(scope.get("route"), "path", "none")
        seconds = time.monotonic() - tally.begun
        self._requests[method if method in METHODS else "other", route, tally.status] += 1
        places = self._seconds.setdefault(route, [0] * (len(BUCKETS) + 1))
        places[bisect_left(BUCKETS, seconds)] += 1
        self._spent[route] += int(seconds * 1e6)
        self._bytes["in"] += tally.received
        self._bytes["out"] += tally.sent

    def text(self) -> bytes:
        """Everything in Prometheus' text format (version 0.0.4)."""
        return "".join(f"{line}\n" for line in (*self._of_process(), *self._of_ledgers())).encode()

    def _of_process(self) -> Iterator[str]:
        worker = f'worker="{os.getpid()}"'
        yield from _head("assay_http_requests_total", "counter", "Requests that are over, by method, route and status.")
        for (method, route, status), count in sorted(self._requests.items()):
            yield f'assay_http_requests_total{{{worker},method="{method}",route="{_plain(route)}",status="{status}"}} {count}'
        yield from _head("assay_http_request_seconds", "histogram", "Seconds from a request to the end of its answer.")
        for route, places in sorted(self._seconds.items()):
            labels, total = f'{worker},route="{_plain(route)}"', 0
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), places, strict=True):
                total += count
                yield f'assay_http_request_seconds_bucket{{{labels},le="{bound}"}} {total}'
            yield f"assay_http_request_seconds_sum{{{labels}}} {self._spent[route] / 1e6:.6f}"
            yield f"assay_http_request_seconds_count{{{labels}}} {total}"
        yield from _head("assay_http_bytes_total", "counter", "Bytes of bodies, in and out.")
        for way in ("in", "out"):
            yield f'assay_http_bytes_total{{{worker},way="{way}"}} {self._bytes[way]}'
        yield from _head("assay_event_listeners", "gauge", "Clients that wait for events.")
        yield f"assay_event_listeners{{{worker}}} {self.listening}"

    def _of_ledgers(self) -> Iterator[str]:
        found = [*self._counts()]
        for name, kind, about in (
            ("assay_evidence_records_total", "counter", "Records of evidence that were accepted."),
            ("assay_evidence_batches_total", "counter", "Batches of evidence that were accepted."),
            ("assay_epochs_settled_total", "counter", "Epochs that are settled."),
            ("assay_epoch_settled", "gauge", "The last settled epoch."),
            ("assay_ledger_up", "gauge", "Whether the database answers: 1 or 0."),
        ):
            yield from _head(name, kind, about)
            for segment, counted, value in found:
                if counted == name:
                    yield f'{name}{{competition="{segment}"}} {value}'

    def _counts(self) -> Iterator[tuple[str, str, int]]:
        """(competition, metric, value): a part of an address has no character that a label could not have."""
        for segment, served in self._site.competitions.items():
            if served.store is None:
                continue
            try:
                with served.store.reading() as view:
                    last = view.last_receipt()
                    yield segment, "assay_evidence_records_total", view.last_seq()
                    yield segment, "assay_evidence_batches_total", view.last_batch()
                    yield segment, "assay_epochs_settled_total", 0 if last is None else last.position + 1
                    if last is not None:
                        yield segment, "assay_epoch_settled", last.epoch
                yield segment, "assay_ledger_up", 1
            except AssayError:
                yield segment, "assay_ledger_up", 0


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _plain(route: str) -> str:
    return route.replace("\\", "").replace('"', "")
