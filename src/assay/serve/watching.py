"""Looks for news in the ledgers once a second, for everybody who waits for it: event streams and long polls.

A state is a few numbers, and also the id of an event. So a client that comes back with the id it saw last gets what it missed,
from any worker process, and nobody keeps a queue for it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from assay.errors import AssayError
from assay.exact import canonical
from assay.scheme.fields import instant_text
from assay.serve.http import HttpProblem
from assay.serve.site import ServedCompetition, Site

__all__ = ["News", "Watch"]

Json = dict[str, Any]
POLL_SECONDS = 1.0
"""Between two looks at the databases."""
GONE_SECONDS = 5.0
"""Between two looks whether a client that waits for work is still there."""
LISTENERS = 64
"""Clients that may listen to events at one time, in one process."""
ADDRESS_LISTENERS = 16
"""The number of listeners that may share a public address."""
SETTLED = 100
"""Settled epochs that a client which was away hears of."""
_ID = re.compile("([0-9]{1,18})-([0-9]{1,18})-([0-9a-f]{12})", re.ASCII)


@dataclass(frozen=True)
class News:
    """The state of a competition: its last batch and record, how many epochs are settled, and what is being judged."""

    batch: int = 0
    seq: int = 0
    epochs: tuple[Json, ...] = ()
    """The last settled epochs, oldest first."""
    settled: int = 0
    """The number of epochs that are settled."""
    beats: tuple[Json, ...] = ()
    beating: str = "0" * 12

    @property
    def id(self) -> str:
        """The id of this state."""
        return f"{self.batch}-{self.settled}-{self.beating}"

    @property
    def last(self) -> int | None:
        """The last settled epoch."""
        return self.epochs[-1]["epoch"] if self.epochs else None

    def since(self, seen: str | None) -> Iterator[tuple[str, Json]]:
        """Yield what is new since a state: (name of the event, its data); everything that is, if `seen` is no id."""
        known = _ID.fullmatch(seen or "")
        if known is None:
            yield "state", {"batches": self.batch, "records": self.seq, "settled": self.last, "heartbeats": list(self.beats)}
            return
        batch, settled, beating = int(known[1]), int(known[2]), known[3]
        if batch != self.batch:
            yield "evidence", {"batches": self.batch, "records": self.seq}
        for row in self.epochs:
            if row["position"] >= settled:
                yield "settled", row
        if beating != self.beating:
            yield "heartbeat", {"heartbeats": list(self.beats)}


@dataclass
class _Watched:
    """A competition that somebody waits for."""

    served: ServedCompetition
    waiting: int = 0
    news: News = field(default_factory=News)
    known: bool = False
    """Whether `news` is of now: as long as somebody waits."""
    first: asyncio.Lock = field(default_factory=asyncio.Lock)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    files: object = None
    """The state of the folder's files as of the last look: it changes when a file does."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a file or the settled epoch is another, or the server stops: what everybody judges may be other work."""
    pollers: set[Request] = field(default_factory=set)
    """The requests that wait for work. Validators are many, so they are not woken each second as listeners are."""

    def put(self, news: News, files: object) -> None:
        """Note the state of now, and wake those for whom it is news."""
        if news.id != self.news.id:
            self.changed.set()
            self.changed = asyncio.Event()
        if files != self.files or news.last != self.news.last or any(map(_stopping, self.pollers)):
            self.moved.set()
            self.moved = asyncio.Event()
        self.news, self.files = news, files


class Watch:
    """The requests that wait for each competition. Its methods are for one event loop.

    report: called with how many there are, at each change.
    """

    def __init__(self, site: Site, report: Callable[[int], None] = lambda count: None) -> None:
        self._report = report
        self._watched = {segment: _Watched(served) for segment, served in site.competitions.items()}
        self._task: asyncio.Task[None] | None = None
        self.waiting: Counter[str] = Counter()
        self._from: Counter[str] = Counter()

    @contextmanager
    def place(self, who: str = "", most: int | None = None, address: str = "") -> Iterator[None]:
        """Be one of those who wait: of a validator, or as "" of everybody. Raises HttpProblem (429) if there are `most`.

        address: of one client, which has a share of the places; "" if many clients may share it.
        """
        most = LISTENERS if most is None else most
        for count, bound in ((self.waiting[who], most), (self._from[address] if address else 0, ADDRESS_LISTENERS)):
            if count >= bound:
                raise HttpProblem(429, f"{bound} requests wait for news already", hint="ask again later", retry=30)
        self.waiting[who] += 1
        self._from[address] += 1
        self._report(self.waiting.total())
        try:
            yield
        finally:
            for counts, name in ((self.waiting, who), (self._from, address)):
                counts[name] -= 1
                if not counts[name]:
                    del counts[name]
            self._report(self.waiting.total())

    def files(self, segment: str) -> object:
        """Return what changes when a file of a competition's folder does."""
        return self._watched[segment].served.files()

    async def states(self, request: Request, segment: str, seconds: float) -> AsyncIterator[News | None]:
        """The state now, then each state that differs from the one before; None every second without news.

        It ends after so many seconds, when the server stops, or when the client is gone.
        """
        watched, loop = self._watched[segment], asyncio.get_running_loop()
        until = loop.time() + seconds
        watched.waiting += 1
        try:
            await self._begin(watched)
            news = watched.news
            yield news
            while loop.time() < until and not _stopping(request):
                changed = watched.changed
                try:
                    await asyncio.wait_for(changed.wait(), min(POLL_SECONDS, max(0.01, until - loop.time())))
                except TimeoutError:
                    if await request.is_disconnected():
                        return
                    self._keep_looking()
                if watched.news.id != news.id:
                    news = watched.news
                    yield news
                else:
                    yield None
        finally:
            watched.waiting -= 1
            watched.known = watched.known and watched.waiting > 0

    async def work(self, request: Request, segment: str, seconds: float) -> AsyncIterator[tuple[object, int | None]]:
        """(`files`, last settled epoch) as of the last look, then each time when they changed. It ends as `states` does."""
        watched, loop = self._watched[segment], asyncio.get_running_loop()
        until = loop.time() + seconds
        watched.waiting += 1
        watched.pollers.add(request)
        try:
            await self._begin(watched)
            moved = watched.moved
            yield watched.files, watched.news.last
            while (left := until - loop.time()) > 0 and not _stopping(request):
                try:
                    await asyncio.wait_for(moved.wait(), min(GONE_SECONDS, left))
                except TimeoutError:
                    if await request.is_disconnected():
                        return
                    self._keep_looking()
                else:
                    moved = watched.moved
                    yield watched.files, watched.news.last
        finally:
            watched.pollers.discard(request)
            watched.waiting -= 1
            watched.known = watched.known and watched.waiting > 0

    async def _begin(self, watched: _Watched) -> None:
        """See to it that the state is of now, and stays so as long as somebody waits. Raises AssayError."""
        async with watched.first:
            if not watched.known:
                watched.put(*await run_in_threadpool(_read, watched.served, watched.news))
                watched.known = True
        self._keep_looking()

    def _keep_looking(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        """Look for news as long as somebody waits; a database that does not answer now is asked again."""
        while any(watched.waiting for watched in self._watched.values()):
            for watched in self._watched.values():
                if not watched.waiting:
                    continue
                try:
                    news, files = await run_in_threadpool(_read, watched.served, watched.news)
                except AssayError:
                    news, files = watched.news, watched.files
                watched.put(news, files)
            await asyncio.sleep(POLL_SECONDS)


def _read(served: ServedCompetition, before: News) -> tuple[News, object]:
    """The state now, and its files. Settled epochs are read only if there are more of them."""
    files = served.files()  # before the database: what changes meanwhile is seen at the next look
    store, notebook = served.books()
    with store.reading() as view:
        batch, last = view.last_batch(), view.last_receipt()
        settled = 0 if last is None else last.position + 1
        seq, epochs = (before.seq, before.epochs) if batch == before.batch else (view.last_seq(), before.epochs)
        if settled != before.settled:
            epochs = tuple(
                {"epoch": receipt.epoch, "receipt": receipt.digest, "position": receipt.position}
                for receipt in view.receipts(max(0, settled - SETTLED))
            )
    beats = tuple(
        {"validator": beat.validator, "at": instant_text(beat.at), "judging": list(beat.judging)}
        for beat in notebook.heartbeats()
    )
    beating = sha256(canonical(list(beats))).hexdigest()[:12] if beats else "0" * 12
    return News(batch, seq, epochs, settled, beats, beating), files


def _stopping(request: Request) -> bool:
    """Whether the server was told to stop."""
    return bool(getattr(getattr(request.state, "guest", None), "stopping", False))
