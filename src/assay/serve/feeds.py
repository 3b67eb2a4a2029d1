"""News for programs and people: an Atom feed of settled epochs, server-sent events, health, and metrics."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any
from xml.etree import ElementTree

from fastapi import APIRouter, Header, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from assay.competition import open_competition
from assay.errors import AssayError, printable
from assay.exact import canonical
from assay.ledger.access import stored_settlement
from assay.ledger.store import Store, View
from assay.serve.http import JSON, PROBLEMS, HttpProblem, answer, look, words
from assay.serve.metrics import Metrics
from assay.serve.public import CHECKPOINT, Segment, log_file
from assay.serve.shapes import download, example
from assay.serve.site import ServedCompetition, Site
from assay.serve.uploads import check_room
from assay.serve.watching import Watch
from assay.settle.story.telling import named, plural

__all__ = ["routes"]

Json = dict[str, Any]
ATOM, EVENTS, PLAIN = "application/atom+xml", "text/event-stream", "text/plain; version=0.0.4; charset=utf-8"
ENTRIES = 50
"""EpochReader in a feed, the last ones."""
EVENT_SECONDS = 110.0
"""An event stream ends after this time; the client comes back with the last id."""
QUIET = 15
"""After so many seconds without an event a comment says that the connection lives."""
_NAMESPACE = "http://www.w3.org/2005/Atom"
_EVENT: Json = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["state", "evidence", "settled", "heartbeat"]},
        "data": {"type": "string", "contentMediaType": JSON, "description": "One JSON object"},
        "id": {"type": "string", "description": "With the last event of a state: for Last-Event-ID"},
    },
    "examples": [{"event": "settled", "id": "9-2-000000000000", "data": '{"epoch":12,"position":11,"receipt":"sha256:…"}'}],
}
_METRICS = """\
# HELP assay_epoch_settled The last settled epoch.
# TYPE assay_epoch_settled gauge
assay_epoch_settled{competition="term-challenge"} 12
"""
_SHAPE: dict[int | str, Json] = {200: {"description": "Events", "content": {EVENTS: {"schema": _EVENT}}}}


def routes(site: Site, watch: Watch, metrics: Metrics) -> APIRouter:
    """The routes of feeds, health and metrics."""
    router = APIRouter(tags=["public"], responses=PROBLEMS)

    @router.get("/healthz", responses=download("text/plain", "ok\n"), response_class=Response)
    async def health(request: Request) -> Response:
        """200 while the service can do its work; 503 with what is wrong: a database, a file of the folder, a disk."""
        reasons = await run_in_threadpool(lambda: [*_wrong(site)])
        if reasons:
            raise HttpProblem(503, "; ".join(reasons), hint="tell its operator, who corrects it", stage="health", retry=5)
        return answer(request, b"ok\n", "text/plain", headers={"Cache-Control": "no-store"})

    @router.get("/metrics", responses=download("text/plain", _METRICS), response_class=Response)
    async def prometheus(request: Request) -> Response:
        """Counts for Prometheus, of all worker processes together: requests, seconds, bytes, evidence, epochs."""
        return answer(request, await run_in_threadpool(metrics.text), PLAIN, headers={"Cache-Control": "no-store"})

    @router.get("/{segment}/feed.atom", responses=download(ATOM, example("feed.atom")), response_class=Response)
    async def feed(request: Request, segment: Segment) -> Response:
        """The settled epochs as an Atom feed, the newest first: who leads, and what changed."""
        served = site.competition(segment)
        data = await look(request, served.drawn, ("/v1", "atom"), lambda: _feed(served, site.address))
        return answer(request, data, ATOM, seconds=60)

    @router.get("/{segment}/events", responses=_SHAPE, response_class=Response)
    async def events(
        request: Request,
        segment: Segment,
        last_event_id: Annotated[str, Header(max_length=64, description="The id of the last event that was seen.")] = "",
    ) -> Response:
        """Server-sent events: `evidence` (more records came), `settled` (an epoch), `heartbeat` (what is judged changed).

        The first event is `state`, unless `Last-Event-ID` says what was seen; then it is what came since. The stream ends after
        two minutes, and the client comes back.
        """
        store, _ = site.competition(segment).books()
        await look(request, _check_answers, store)  # once a stream has begun, there is no other answer
        if getattr(request.state, "method", "GET") == "HEAD":
            return Response(None, 200, media_type=EVENTS)
        guest = getattr(request.state, "guest", None)
        place = watch.place(address="" if guest is None or guest.shared else guest.address)
        place.__enter__()
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        stream = _events(request, watch, segment, last_event_id)
        return _EventStream(stream, place, headers)

    return router


class _EventStream(StreamingResponse):
    """An event stream that gives its place back when it ends, however it ends."""

    def __init__(self, stream: AsyncIterator[bytes], place: Any, headers: dict[str, str]) -> None:
        super().__init__(stream, 200, headers, EVENTS)
        self._place, self._stream = place, stream

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._place.__exit__(None, None, None)


async def _events(request: Request, watch: Watch, segment: str, seen: str) -> AsyncIterator[bytes]:
    quiet = 0
    yield b"retry: 2000\n\n"
    async for news in watch.states(request, segment, EVENT_SECONDS):
        if news is None:
            quiet += 1
            if quiet % QUIET == 0:
                yield b":\n\n"
            continue
        events, seen, quiet = [*news.since(seen)], news.id, 0
        for number, (name, data) in enumerate(events, start=1):
            id_ = f"id: {news.id}\n" if number == len(events) else ""  # only with the last one everything was seen
            yield f"{id_}event: {name}\ndata: {canonical(data).decode()}\n\n".encode()


def _check_answers(store: Store) -> None:
    """Raises StoreError if the database does not answer."""
    with store.reading() as view:
        view.last_batch()


def _wrong(site: Site) -> Iterator[str]:
    """A line for each competition that cannot be served as it should be, with the reason."""
    for segment, served in site.competitions.items():
        try:
            _check_served(served)
        except AssayError as error:
            where, what, _hint = words(error, served.folder)
            yield ": ".join(part for part in (segment, where, what) if part)
        except OSError as error:
            yield f"{segment}: its folder or its database cannot be used ({error.strerror})"


def _check_served(served: ServedCompetition) -> None:
    """Raise what is wrong with a competition's rules, its ledger, or the disks of both: AssayError, OSError."""
    if served.store is None:
        open_competition(served.folder)
        return
    served.rules()
    store, _notebook = served.books()
    _check_answers(store)
    log_file(served, CHECKPOINT)
    places = {served.folder} if served.database is None else {served.folder, served.database.parent, served.database}
    for place in sorted(places):
        check_room(place)
        if not os.access(place, os.R_OK | os.W_OK):
            raise HttpProblem(
                503, f"the service may not read and write {place.name}", hint="check its permissions, and the mount"
            )


def _feed(served: ServedCompetition, address: str) -> bytes:
    store, _ = served.books()
    board = f"{address}/{served.segment}/"
    feed = ElementTree.Element("feed", xmlns=_NAMESPACE)
    _text(feed, "id", board)
    _text(feed, "title", served.name)
    ElementTree.SubElement(feed, "link", rel="alternate", type="text/html", href=board)
    ElementTree.SubElement(feed, "link", rel="self", type=ATOM, href=f"{board}feed.atom")
    _text(feed, "generator", "Assay")
    author = ElementTree.SubElement(feed, "author")
    _text(author, "name", served.name)
    with store.reading() as view:
        last = view.last_receipt()
        first = 0 if last is None else max(0, last.position - ENTRIES)
        receipts = [*view.receipts(first)]
        documents = [json.loads(stored_settlement(view, receipt.epoch)[0].document) for receipt in receipts]
        names = {} if last is None else _names(view, last.epoch)
        times = [_when(view, receipt.epoch) for receipt in receipts]
    _text(feed, "updated", times[-1] if times else "1970-01-01T00:00:00Z")
    shown = list(zip(receipts, documents, times, [None, *documents][: len(documents)], strict=True))
    for receipt, document, when, before in reversed(shown[-ENTRIES:]):
        entry = ElementTree.SubElement(feed, "entry")
        _text(entry, "id", f"{board}epoch-{receipt.epoch}/")
        _text(entry, "title", _title(document, names))
        _text(entry, "updated", when)
        ElementTree.SubElement(entry, "link", rel="alternate", type="text/html", href=f"{board}epoch-{receipt.epoch}/")
        _text(entry, "summary", " ".join([*_changes(document, before, names), f"Receipt {receipt.digest}."]))
    ElementTree.indent(feed)
    body: bytes = ElementTree.tostring(feed, "utf-8", xml_declaration=False)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + body + b"\n"


def _text(parent: ElementTree.Element, name: str, text: str) -> None:
    """An element with text, in which no control character is left: XML has none."""
    ElementTree.SubElement(parent, name).text = printable(text)


def _names(view: View, epoch: int) -> dict[str, str]:
    """Key → name of the participants of a settled epoch."""
    inputs = json.loads(stored_settlement(view, epoch)[1])
    return {row["key"]: row.get("name") or row["key"] for row in inputs["participants"]}


def _when(view: View, epoch: int) -> str:
    """A time for an epoch: when the last of its records was observed. The receipt has none, since settling reads no clock."""
    last = view.last_record(epoch)
    return "1970-01-01T00:00:00Z" if last is None else str(json.loads(last.body)["observed_at"])


def _title(document: Json, names: dict[str, str]) -> str:
    ranking = document["ranking"]
    if not ranking:
        return f"Epoch {document['epoch']}: nobody has an agreed score"
    score = document["agreed"][0]["score"]
    return f"Epoch {document['epoch']}: {names.get(ranking[0], ranking[0])} leads with {score}"


def _changes(document: Json, before: Json | None, names: dict[str, str]) -> Iterator[str]:
    """Sentences: how many have a score, whether the leader is another, who is new and who lost their score."""
    ranking, total = document["ranking"], len(document["agreed"])
    yield f"{len(ranking)} of {plural(total, 'participant')} {'has' if len(ranking) == 1 else 'have'} an agreed score."
    if before is None:
        return
    earlier = before["ranking"]
    if ranking and earlier:
        was = names.get(earlier[0], earlier[0])
        yield f"{was} led in epoch {before['epoch']} too." if ranking[0] == earlier[0] else f"Before, {was} led."
    for which, what in (([k for k in ranking if k not in earlier], "new"), ([k for k in earlier if k not in ranking], "gone")):
        if which:
            who = named([names.get(key, key) for key in which])
            yield f"New on the board: {who}." if what == "new" else f"Without a score now: {who}."
