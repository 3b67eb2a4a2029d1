"""The competitions that the service serves: one, or those of a subnet file, each with its ledger and its pages.

A served competition keeps nothing that a restart would lose: it draws from the folder and the ledger; `Notebook` has the rest.
"""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from assay.competition import open_competition
from assay.errors import BadInput, CannotSettle, brief
from assay.folder.files import stamp
from assay.judge.copies import FOUND
from assay.judge.holds import DECISIONS
from assay.ledger import config
from assay.ledger.access import Ledger, open_ledger, open_store
from assay.ledger.bundle import receipt_now
from assay.ledger.closing_cost import next_epoch
from assay.ledger.intake import IntakeRules, intake_rules
from assay.ledger.keys import PublicKey, public
from assay.ledger.store import Store, Submission
from assay.scheme import subnet
from assay.scheme.model import Scheme
from assay.serve.http import Hashed, HttpProblem
from assay.serve.links import other_epochs, segment
from assay.serve.live import closes_at
from assay.serve.notebook import CACHE_KIB, Notebook
from assay.serve.pages import page
from assay.serve.ranking import AT_ONCE, Asked
from assay.serve.season import Season, read
from assay.serve.signed import SKEW, WINDOW, SignedRequest

__all__ = ["ServedCompetition", "Site", "now", "open_site"]

SEASONS = 4
"""Epochs of a competition that stay in memory."""
RESERVED = ("v1", "competitions", "openapi.json")
"""Addresses of the service itself, which no competition may have."""
PAGE_BYTES = 64 * 2**20
"""Bytes of drawn pages that stay in memory, for all epochs of a competition."""
FAILED_SECONDS = 5.0
"""For so long the answer that nothing can be settled counts."""
KEPT_PAGES = 300
"""Pages of a board above this number are drawn each time, and so are results of a search."""
_PARTICIPANTS, _MARGINS = "participants.csv", "margins"
_BESIDE = (_PARTICIPANTS, FOUND, DECISIONS, _MARGINS)
"""Files that no settled epoch depends on, but its pages do."""
_RULES = ("scheme.toml", "validators.csv", "tasks.txt", "bounty.toml", "quotes", config.POLICY, *_BESIDE)


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class _WriterRegistry:
    """The folder's rules about who may write, for one state of its files."""

    state: tuple[object, ...]
    rules: IntakeRules
    validators: Mapping[PublicKey, str]
    participants: Mapping[PublicKey, str]


@dataclass
class _Shelf:
    """Pages that were drawn, the most recently used last; of a certain state of the competition."""

    state: tuple[object, ...] = ()
    settled: tuple[object, ...] = ()
    """The part of the state on which the seasons depend."""
    seen: tuple[object, ...] | None = None
    """The folder's files and the database's commits when the state was last asked for; None where commits cannot be seen."""
    until: datetime | None = None
    """The moment when the open epoch closes. Boards show it."""
    seasons: OrderedDict[int | None, Season] = field(default_factory=OrderedDict)
    pages: OrderedDict[tuple[object, ...], Hashed] = field(default_factory=OrderedDict)
    size: int = 0
    failed: dict[int | None, tuple[float, CannotSettle]] = field(default_factory=dict)
    """Epoch → when a settlement was tried in vain, and why."""
    last: Season | None = None
    """The last epoch. A participant who handed in something since is not up to date in it."""
    before: Season | None = None
    """The epoch that was last until a newer one was settled; shown while the newer one is read. Its pages are not kept."""

    def holds(self, moment: datetime) -> bool:
        """Whether the epoch that boards say is open has not closed."""
        return self.until is None or moment < self.until

    def following(self, state: tuple[object, ...], settled: tuple[object, ...], until: datetime | None) -> _Shelf:
        """The shelf of a later state. No page of this one is in it; a season is, unless what it depends on has changed."""
        seasons = self.seasons.copy()
        last = seasons.pop(None, self.last)
        if settled and settled == self.settled:
            return _Shelf(state, settled, until=until, seasons=seasons, last=last, before=self.before)
        return _Shelf(state, settled, until=until, before=(last or self.before) if settled else None)


class ServedCompetition:
    """One competition that is served: its folder, its rules, its ledger (None without one). Threads share it.

    base: the service's address, without a slash.

    Raises BadInput if the folder or its ledger cannot be read, and StoreError.
    """

    def __init__(self, folder: Path, base: str = "http://127.0.0.1:8400") -> None:
        self.folder = folder = folder.absolute()
        self.name = open_competition(folder).scheme.name
        self.segment = segment(self.name)
        """Its part of an address."""
        self.address = f"{base}/{self.segment}"
        """Its address, for people."""
        self._lock, self._drawing, self._shelf = threading.Lock(), threading.Lock(), _Shelf()
        self._known: _WriterRegistry | None = None
        self.wake: Callable[[], None] = lambda: None
        """Says that the background has something to do (`serve/background.py`)."""
        self._entering, self._handed_in = threading.Lock(), (0, dict[str, Submission]())
        self.judged: dict[tuple[object, ...], str] = {}
        """The batches whose signatures were checked and whether they count: each is checked once, not for each page."""
        with ExitStack() as stack:
            self.store: Store | None = None
            self.notebook: Notebook | None = None
            self.database: Path | None = None
            """The ledger's file; None without a ledger, and for one in PostgreSQL."""
            if config.exists(folder):
                settings = config.read(folder)
                if "://" not in settings.place:
                    self.database, self._opened = Path(settings.place), stamp(Path(settings.place))[-1]
                self.store = stack.enter_context(closing(open_store(settings, cache=CACHE_KIB)))
                self.notebook = stack.enter_context(closing(Notebook(settings.place)))
                self._remembering = 0 if self.notebook.file is None else stamp(self.notebook.file)[-1]
            self._open = stack.pop_all()

    def close(self) -> None:
        """Close its database."""
        self._open.close()

    @property
    def scheme(self) -> Scheme:
        """The rules as they are now in the folder."""
        return open_competition(self.folder).scheme

    def ledger(self) -> Ledger:
        """Its ledger, opened anew: a context manager. Raises HttpProblem (409) if it has none."""
        if self.store is None:
            raise self._without_ledger()
        return open_ledger(self.folder)

    def books(self) -> tuple[Store, Notebook]:
        """Return where evidence and requests are written. Raises HttpProblem: 409 without a ledger, 503 if its file is lost.

        An open file can be written after somebody removed or replaced it, but then nobody would ever read what was acknowledged.
        """
        if self.store is None or self.notebook is None:
            raise self._without_ledger()
        if self.database is not None and stamp(self.database)[-1] != self._opened:
            what = f"the ledger's file {self.database.name} {'was replaced' if self.database.exists() else 'is gone'}"
            hint = "nothing is accepted until its operator puts the file back, or restores a backup and restarts the service"
            raise HttpProblem(503, what, hint=hint, stage="ledger", retry=60)
        requests = self.notebook.file
        if requests is not None and stamp(requests)[-1] != self._remembering:
            what = f"the file of requests {requests.name} {'was replaced' if requests.exists() else 'is gone'}"
            raise HttpProblem(503, what, hint="its operator restarts the service", stage="ledger", retry=60)
        return self.store, self.notebook

    def handed_in(self) -> Mapping[str, Submission]:
        """Participant → what its ledger has as handed in last; only what is new there is read. Raises HttpProblem (409)."""
        store, _ = self.books()
        with self._entering, store.reading() as view:
            last, known = self._handed_in
            new: dict[str, Submission] = {}
            for number, submission in view.submissions_after(last):
                last, new[submission.participant] = number, submission
            if new:  # what another thread may be reading stays as it is
                self._handed_in = last, known | new
            return self._handed_in[1]

    def _without_ledger(self) -> HttpProblem:
        return HttpProblem(409, f"the competition {self.name!r} has no ledger", hint="its operator makes one: assay ledger init")

    def rules(self) -> IntakeRules:
        """The rules that evidence is accepted by; read again when a file of the folder has changed. Raises BadInput."""
        return self._registry().rules

    def _registry(self) -> _WriterRegistry:
        state = self.files()
        known = self._known
        if known is None or known.state != state:
            rules = intake_rules(self.folder, may_be_empty=True)  # an enclave is a validator once its results are collected
            validators = {key: name for name, key in rules.validators.items() if isinstance(key, PublicKey)}
            participants = {key: name for name in rules.participants if (key := _key_of(name)) is not None}
            known = self._known = _WriterRegistry(state, rules, validators, participants)
        return known

    def files(self) -> tuple[object, ...]:
        """Return what changes when a file of the folder does."""
        return tuple(stamp(self.folder / name) for name in _RULES)

    def validator_of(self, key: PublicKey) -> str:
        """The validator with a key, as the registry spells it. Raises HttpProblem (403) for a stranger."""
        if (validator := self._registry().validators.get(key)) is not None:
            return validator
        hint = "the operator adds validators to validators.csv; use the key of one of them"
        raise HttpProblem(403, f"{key.id} is not the key of a validator of {self.name!r}", hint=hint, stage="validator")

    def participant_of(self, key: PublicKey) -> str:
        """The participant with a key, from participants.csv or by registration. Raises HttpProblem (403) for a stranger."""
        _, notebook = self.books()
        known = self._registry()
        if (participant := known.participants.get(key)) is not None:
            return participant
        registered = notebook.participant_of(key.id)
        if registered in known.rules.participants:
            return str(registered)
        hint = f"register first: assay register --url ADDRESS/{self.segment}, with the same --key"
        raise HttpProblem(403, f"{key.id} is not the key of a participant of {self.name!r}", hint=hint, stage="participant")

    def spend(self, request: SignedRequest) -> None:
        """Use the nonce of a signed request.

        Raises HttpProblem: 409 if it was used before, so the request is a copy; 503 if nobody remembers whether it was.
        """
        _, notebook = self.books()
        if request.created < notebook.since:
            what = "this request was signed before the service began to remember requests: it may be a copy"
            raise HttpProblem(503, what, hint="sign it again", stage="replay", retry=1)
        if not notebook.spend(request.key.id, request.nonce, now(), WINDOW + 2 * SKEW):
            raise HttpProblem(409, "this request came before: its nonce was used", hint="sign it again", stage="replay")

    def _seen_now(self) -> tuple[object, ...] | None:
        """Return what changes when a file or the database does, in microseconds; None if only a query can tell."""
        commits = None if self.store is None else self.store.commits()
        return None if commits is None else (*self.files(), commits)

    def _state(self) -> tuple[tuple[object, ...], tuple[object, ...]]:
        """Return the state of all pages, and that of the settled epochs alone; () if these must always be read again."""
        files = self.files()
        if self.store is None:
            evidence = self.folder / "evidence"
            return (*files, stamp(evidence), *sorted(map(stamp, evidence.glob("*")))), ()
        with self.store.reading() as view:
            settled = view.settled_epoch()
            if settled is None:
                return (*files, settled, view.highest_epoch(), view.last_seq()), ()
            ledger, newest = (settled, view.highest_epoch()), view.witnessed()
        rest = tuple(row for name, row in zip(_RULES, files, strict=True) if name not in _BESIDE)
        return (*files, *ledger, newest and newest.size), (*rest, *ledger)

    def _open_epoch(self) -> int:
        """The epoch that the operator's node closes next; 1 without a ledger."""
        if self.store is None:
            return 1
        with self.store.reading() as view:
            return next_epoch(view) or 1

    def _current(self) -> _Shelf:
        seen, shelf = self._seen_now(), self._shelf
        if seen is not None and shelf.seen == seen and shelf.holds(now()):
            return shelf
        state, settled = self._state()  # asked for after `seen`: what changes meanwhile is seen next time
        with self._lock:
            shelf, moment = self._shelf, now()
            if shelf.state != state or not shelf.holds(moment):
                shelf = self._shelf = shelf.following(state, settled, closes_at(self.scheme, self._open_epoch(), moment))
            shelf.seen = seen
            return shelf

    def season(self, epoch: int | None = None) -> Season:
        """One epoch (None: the last settled) and its proof; one thread at a time reads. Raises as `season.read` does.

        While one thread reads an epoch that was just settled, the others get the one before.
        """
        shelf = self._current()
        if (season := self._seen(shelf, epoch)) is not None:
            return season
        if epoch is not None and self.store is None and self.season().settlement.epoch != epoch:
            raise _no_epoch(epoch)
        before = shelf.before if epoch is None else None
        if not self._drawing.acquire(blocking=before is None):
            assert before is not None
            return before
        try:
            return self._seen(shelf, epoch) or self._put(shelf, epoch)
        finally:
            self._drawing.release()

    def _put(self, shelf: _Shelf, epoch: int | None) -> Season:
        """Read a season and put it on the shelf. Raises as `season.read` does."""
        try:
            known = shelf.last if epoch is None else None
            season = self._read(epoch, shelf) if known is None else known.with_waiting()
        except CannotSettle as error:  # the next one who asks gets the same answer, and no settlement is tried for it
            shelf.failed[epoch] = (time.monotonic(), error)
            raise copy(error) from None
        if known is None:
            _give_back()
            if epoch is None and self.store is not None:
                self.wake()
        with self._lock:
            shelf.seasons[epoch] = season
            if epoch is None:
                shelf.before = None
            while len(shelf.seasons) > SEASONS:
                del shelf.seasons[next(other for other in shelf.seasons if other not in (None, epoch))]
        return season

    def _seen(self, shelf: _Shelf, epoch: int | None) -> Season | None:
        """A season that is in memory. Raises CannotSettle again where that was tried just now."""
        with self._lock:
            season = shelf.seasons.get(epoch)
            if season is not None:
                shelf.seasons.move_to_end(epoch)
                return season
        tried, error = shelf.failed.get(epoch, (0.0, None))
        if error is not None and time.monotonic() - tried < FAILED_SECONDS:
            raise copy(error)
        return None

    def _read(self, epoch: int | None, shelf: _Shelf) -> Season:
        """A season with the way to the other epochs: the last settled at the competition's address, others below it."""
        if self.store is None:
            return replace(read(self.folder, epoch), address=self.address)
        with self.store.reading() as view:
            settled = view.settled_epochs()
        # An open epoch is shown to nobody: a validator could copy what another one saw.
        if not settled:
            open_competition(self.folder)  # a folder that is gone or wrong is another answer
            raise CannotSettle("no epoch is settled yet", hint="scores are shown when the operator has settled the first epoch")
        if epoch is not None and epoch not in settled:
            raise _no_epoch(epoch)
        if epoch is None:
            season = read(self.folder, None, self.judged)
            return replace(season, others=other_epochs(settled, season.settlement.epoch, inside=False), address=self.address)
        others = other_epochs(settled, epoch, inside=True)
        if epoch == settled[-1]:  # the same as the last one, which is shown elsewhere
            last = shelf.seasons.get(None, shelf.last)
            if last is None:
                last = shelf.last = self._read(None, shelf)
            if last.settlement.epoch == epoch:
                return last.below(others)
        return replace(read(self.folder, epoch, self.judged), others=others, root="../", address=self.address)

    def page(self, name: str, epoch: int | None, query: Mapping[str, str]) -> bytes:
        """A page, as `pages.page` draws it. Raises HttpProblem (404) for one that there is not."""

        def draw() -> bytes:
            try:
                return page(self._now(self.season(epoch)), name, query)
            except KeyError:
                raise HttpProblem(404, f"there is no page {brief(name, 80)}", hint="begin at the board") from None

        key = _page_key(name, epoch, query)
        return draw() if key is None else self.drawn(key, draw)

    def _now(self, season: Season) -> Season:
        """The season with its receipt as it is now: witnesses may have cosigned it since."""
        if self.store is None or season.proof is None:
            return season
        with self.store.reading() as view:
            return season.with_receipt(receipt_now(view, season.settlement.epoch))

    def cached_page(self, name: str, epoch: int | None, query: Mapping[str, str], *, at_once: bool = False) -> bytes | None:
        """A page that was drawn since the competition last changed; None if it must be drawn.

        at_once: no query is made, so an event loop may call this; None also if only a query can tell.
        """
        key = _page_key(name, epoch, query)
        return None if key is None else self.cached(key, at_once=at_once)

    def cached(self, name: tuple[object, ...], *, at_once: bool = False) -> bytes | None:
        """Return what was drawn for this name since the competition last changed; None if nothing was. at_once: as above."""
        seen, shelf = (self._seen_now(), self._shelf) if at_once else (None, self._current())
        if at_once and (seen is None or shelf.seen != seen):
            return None
        with self._lock:
            if name in shelf.pages:
                shelf.pages.move_to_end(name)
            return shelf.pages.get(name)

    def drawn(self, name: tuple[object, ...], draw: Callable[[], bytes]) -> bytes:
        """Return what `draw` gives, or gave for this name since the competition last changed."""
        shelf = self._current()
        with self._lock:
            if name in shelf.pages:
                shelf.pages.move_to_end(name)
                return shelf.pages[name]
            keep = shelf.before is None
        data = Hashed(draw())
        with self._lock:
            if keep and name not in shelf.pages:
                shelf.pages[name] = data
                shelf.size += len(data)
            while shelf.size > PAGE_BYTES:
                shelf.size -= len(shelf.pages.popitem(last=False)[1])
        return data


class Site:
    """The competitions of a service, and the addresses under which it is reached. A context manager.

    addresses: `http://127.0.0.1:8400` and so on, without a slash; the first is the one to print. A request for another host is
    refused, so that a signature for one service is worth nothing at another.
    """

    def __init__(self, competitions: Mapping[str, ServedCompetition], addresses: list[str]) -> None:
        self.competitions, self.addresses = dict(competitions), list(addresses)
        self.started = now()

    @property
    def address(self) -> str:
        """The address to print."""
        return self.addresses[0]

    def origin(self, host: str) -> str:
        """The address that a header Host means. Raises HttpProblem (421) for another service's."""
        for address in self.addresses:
            if address.partition("://")[2].lower() == host.lower():
                return address
        hint = f"ask {self.address}; an operator names the public address with --address"
        raise HttpProblem(421, f"this service is not {brief(host, 80)}", hint=hint, stage="host")

    def competition(self, segment: str) -> ServedCompetition:
        """The competition with this part of an address. Raises HttpProblem (404)."""
        if segment not in self.competitions:
            known = ", ".join(sorted(self.competitions))
            raise HttpProblem(404, f"there is no competition {brief(segment, 80)}", hint=f"there is {known:.300}")
        return self.competitions[segment]

    def close(self) -> None:
        """Close all databases."""
        for served in self.competitions.values():
            served.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def open_site(place: Path, addresses: list[str]) -> Site:
    """The service of a competition's folder, or of all competitions of a subnet file.

    Raises BadInput for a wrong folder, or two competitions that would have one address; StoreError.
    """
    folders, _, _ = subnet.places(place)
    with ExitStack() as stack:
        competitions: dict[str, ServedCompetition] = {}
        for folder in folders:
            served = stack.enter_context(closing(ServedCompetition(folder, addresses[0])))
            if served.segment in (*competitions, *RESERVED):
                what = f"something else is already at /{served.segment}/"
                raise BadInput(what, file=folder / "scheme.toml", field="scheme.name", hint="give the competition another name")
            competitions[served.segment] = served
        stack.pop_all()
    return Site(competitions, addresses)


def _give_back() -> None:
    """Give the system the memory that computing a settlement needed: else Python and the C library keep it, for each thread."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library has no such function
        ctypes.CDLL(None).malloc_trim(0)


def _page_key(name: str, epoch: int | None, query: Mapping[str, str]) -> tuple[object, ...] | None:
    """The name under which a page is kept: only what it reads of a query counts. None for one that is drawn each time."""
    if name != "index.html":
        asks = name.startswith("board-") and not query.keys().isdisjoint(("find", "sort", "order", "from"))
        return None if asks else (name, epoch)
    asked = Asked.of(query)
    page = (asked.start - 1) // AT_ONCE
    return None if asked.find or page > KEPT_PAGES else (name, epoch, asked.sort, asked.down, page)


def _no_epoch(epoch: int) -> HttpProblem:
    return HttpProblem(404, f"epoch {epoch} is not settled", hint="the board names the epochs that are")


def _key_of(participant: str) -> PublicKey | None:
    """The public key that a participant's key in the registry is; None for one that is only a name."""
    try:
        return public(participant)
    except BadInput:
        return None
