"""The counts of the service, as Prometheus reads them. Labels are routes, statuses and competitions: strangers choose none.

Requests are counted by each worker process, and the answer is the sum of all of them, whichever is asked: see `Tallies`. Numbers
from the ledger are the same for all.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.folder.files import NODE_STATUS
from assay.folder.strict import load_note
from assay.serve.site import Site
from assay.serve.tallies import Tallies

__all__ = ["Metrics", "RequestTally"]

BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
"""Upper bounds of the histogram of seconds."""
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class RequestTally:
    """A request as it passes between server and application, measured on the way; its answer gets some more headers."""

    def __init__(self, receive: Any, send: Any, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._receive, self._send, self._headers = receive, send, headers
        self.begun, self.status, self.received, self.sent = time.monotonic(), 0, 0, 0

    async def receive(self) -> Any:
        """The next message from the client."""
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
    """The counts of a process, and those of all together. Its methods are for one event loop; `text` may run in a thread.

    folder: where the workers of a service keep their counts; None if there is one process.
    """

    def __init__(self, site: Site, folder: Path | None = None) -> None:
        self._site = site
        self._tallies = Tallies(folder, ("listening",))

    def count(self, scope: Any, method: str, tally: RequestTally) -> None:
        """Count a request that is over. scope: the request's, after it was routed."""
        route = getattr(scope.get("route"), "path", "none")
        seconds = time.monotonic() - tally.begun
        self._tallies.add(("requests", method if method in METHODS else "other", route, str(tally.status)))
        self._tallies.add(("seconds", route, str(bisect_left(BUCKETS, seconds))))
        self._tallies.add(("spent", route), int(seconds * 1e6))
        self._tallies.add(("bytes", "in"), tally.received)
        self._tallies.add(("bytes", "out"), tally.sent)

    def listen(self, count: int) -> None:
        """Note how many clients of this process wait for news."""
        self._tallies.set(("listening",), count)

    def text(self) -> bytes:
        """Everything in Prometheus' text format (version 0.0.4)."""
        return "".join(f"{line}\n" for line in (*self._of_workers(), *self._of_ledgers(), *self._of_operator())).encode()

    def _of_workers(self) -> Iterator[str]:
        sums, workers = self._tallies.sums()
        yield from _head("assay_workers", "gauge", "Processes that answer requests.")
        yield f"assay_workers {workers}"
        yield from _head("assay_http_requests_total", "counter", "Requests that are over, by method, route and status.")
        for name, count in sorted(sums.items()):
            if name[0] == "requests":
                _, method, route, status = name
                yield f'assay_http_requests_total{{method="{method}",route="{_plain(route)}",status="{status}"}} {count}'
        yield from _head("assay_http_request_seconds", "histogram", "Seconds from a request to the end of its answer.")
        for route in sorted(name[1] for name in sums if name[0] == "spent"):
            labels, total = f'route="{_plain(route)}"', 0
            for number, bound in enumerate((*map(str, BUCKETS), "+Inf")):
                total += sums["seconds", route, str(number)]
                yield f'assay_http_request_seconds_bucket{{{labels},le="{bound}"}} {total}'
            yield f"assay_http_request_seconds_sum{{{labels}}} {sums['spent', route] / 1e6:.6f}"
            yield f"assay_http_request_seconds_count{{{labels}}} {total}"
        yield from _head("assay_http_bytes_total", "counter", "Bytes of bodies, in and out.")
        for way in ("in", "out"):
            yield f'assay_http_bytes_total{{way="{way}"}} {sums["bytes", way]}'
        yield from _head("assay_event_listeners", "gauge", "Clients that wait for news.")
        yield f"assay_event_listeners {sums[('listening',)]}"

    def _of_ledgers(self) -> Iterator[str]:
        counts = [*self._counts()]
        for name, kind, about in (
            ("assay_evidence_records_total", "counter", "Records of evidence that were accepted."),
            ("assay_evidence_batches_total", "counter", "Batches of evidence that were accepted."),
            ("assay_epochs_settled_total", "counter", "Epochs that are settled."),
            ("assay_epoch_settled", "gauge", "The last settled epoch."),
            ("assay_ledger_up", "gauge", "Whether the database answers: 1 or 0."),
        ):
            yield from _head(name, kind, about)
            for segment, counted, value in counts:
                if counted == name:
                    yield f'{name}{{competition="{segment}"}} {value}'

    def _of_operator(self) -> Iterator[str]:
        """The alarms that stand at the operator's node, as it notes them in the folder; its codes are Assay's own."""
        yield from _head("assay_alarm", "gauge", "Alarms that stand at the operator's node, by code.")
        for segment, served in self._site.competitions.items():
            for code, count in sorted(_standing(served.folder).items()):
                yield f'assay_alarm{{competition="{segment}",code="{_plain(code)}"}} {count}'

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


def _standing(folder: Path) -> Counter[str]:
    """Code → how many alarms of it the node's status has; none if no node works here, or it cannot be read."""
    try:
        return Counter(str(row["code"]) for row in load_note(folder / NODE_STATUS).get("alarms", ()))
    except (KeyError, TypeError):
        return Counter()


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _plain(route: str) -> str:
    return route.replace("\\", "").replace('"', "")
