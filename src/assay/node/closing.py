"""Closes the epochs that have ended: registry, grace for the validators, settlement, split, export. SPEC 6, Epochs.

An epoch is closed as soon as it has ended and every submission that counts has an agreed score, or when its grace time is over.
While nobody has an agreed score it stays open, unless the scheme says `empty = "burn"`: evidence may only be late. Epochs are
closed one after the other, in their order, so an operator that was away catches up and skips none.

All competitions of a subnet are closed with registries of one block. Work that a crash leaves undone is done the next time: the
ledger says which epochs are settled, the subnet's log which splits are signed, and the export's folder which epochs are in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.errors import AssayError, BadInput, CannotSettle
from assay.exact import digest
from assay.folder import registry
from assay.judge.running import Stop
from assay.ledger import bundle, closing_cost, config, settling, subnet_bundle
from assay.ledger.access import Ledger, open_ledger, receipt_predicate
from assay.ledger.keys import PrivateKey
from assay.ledger.store import StoredReceipt
from assay.node import status
from assay.node.chain import EpochRegistry
from assay.node.clock import change_note, read_note, write_note
from assay.node.witnesses import AGAIN_SECONDS, SeasonWitnesses, is_shown
from assay.scheme.bounty import read_bounty
from assay.scheme.clock import BLOCK_SECONDS, EpochEnd, by_blocks, by_time, ends_late
from assay.scheme.fields import instant_text
from assay.scheme.load import BOUNTY
from assay.scheme.load import read as read_scheme
from assay.scheme.model import Scheme
from assay.settle import Settlement
from assay.settle.story.telling import named, plural

__all__ = ["Closer", "Due"]

Tell = Callable[[str], None]
LOOK_SECONDS = 1.0
"""Between two looks at whether the validators have sent what is missing."""
_PULLED = 20
"""Of so many epochs the block of the registry is remembered."""


@dataclass(frozen=True)
class Due:
    """The time of the next close, by the clock of this machine: seconds since 1970; None: only by hand.

    head: the newest final block at that look, with the time, where a chain's blocks are counted.
    """

    at: float | None
    head: tuple[int, float] | None = None

    def note(self, folder: Path) -> None:
        """Note when to look again, and the head by which the next blocks are measured. Raises BadInput, OSError."""
        head = None if self.head is None else [int(part) for part in self.head]
        change_note(folder, due=None if self.at is None else int(self.at), head=head)


@dataclass
class _ClosingSeason:
    """One competition, and what is known of its open epoch."""

    folder: Path
    signer: PrivateKey
    end: EpochEnd | None = None
    seen: object = None
    """The state that the last draft was made of; if it is the same, it need not be made again."""
    waits: str = ""
    """The reason that it was not closed at the last look."""
    noted: object = None
    """The content of its status."""
    _ledger: Ledger | None = None
    _scheme: tuple[object, Scheme] | None = None

    @property
    def scheme(self) -> Scheme:
        """The rules as they are now."""
        file = self.folder / "scheme.toml"
        stamp = _stamp(file)
        if self._scheme is None or self._scheme[0] != stamp:
            self._scheme = stamp, read_scheme(file)
        return self._scheme[1]

    @property
    def takes_until(self) -> float:
        """Until when a bounty that pays out takes submissions, in seconds since 1970: to pay before would shut out whoever comes
        later. 0 if no deadline says it. Raises BadInput.
        """
        if self.scheme.payout is None or not (self.folder / BOUNTY).exists():
            return 0.0
        until = read_bounty(self.folder).open_until
        return 0.0 if until is None else until.timestamp()

    @property
    def ledger(self) -> Ledger:
        """The ledger, which stays open until `close`: to open it for each epoch takes as long as to settle a small one."""
        if self._ledger is None:
            self._ledger = open_ledger(self.folder)
        return self._ledger

    def close(self) -> None:
        """Close the ledger."""
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None


@dataclass
class Closer:
    """Closes what is due, of one competition or of all competitions of a subnet.

    subnet: the subnet file. target: of publish.toml, from which registries are pulled; None: they are kept by hand. export: the
    folder to which settled epochs are exported. signers: of each competition's log by its folder, and of the subnet's.
    """

    folders: Sequence[Path]
    signers: Mapping[Path, PrivateKey]
    tell: Tell
    stop: Stop = field(default_factory=Stop)
    subnet: Path | None = None
    target: tuple[Path, str] | None = None
    export: Path | None = None
    clock: Callable[[], float] = time.time
    before: tuple[int, float] | None = None
    """`head` of the `Due` before: how long a block takes is measured."""
    catch_up: bool = False
    """Whether several epochs may be closed at once by a clock that never closed one here."""
    since: float = 0.0
    """The time at which the node began, in seconds since 1970: after a time away, the grace time counts again from then on."""

    def __post_init__(self) -> None:
        self._seasons = [_ClosingSeason(folder, self.signers[folder]) for folder in self.folders]
        self._pulled = dict[EpochEnd, list[Path]]()
        self._registry = None if self.target is None else EpochRegistry(self.target, self._tell)
        self._witnesses = SeasonWitnesses(self.folders[0], self.tell)

    def carry_out(self, *, wait: bool = True) -> Due:
        """Close everything that has ended, and say when the next epoch ends. wait: for validators, for as long as it takes.

        Raises AssayError if the folder, the ledger or the chain do not allow it; what is closed until then is closed.
        """
        try:
            if self._registry is not None:
                self._registry.begin(self.folders)
            closed = True
            while not self.stop.asked:
                ended, wrong = self._ended()
                wrong = (self._follow_up() if closed else None) or wrong
                closed, waits, wrong = self._close_each(ended, wrong)
                if closed:
                    continue
                if not (waits and wait):
                    if wrong is not None:
                        raise wrong
                    break
                self._rest()
            due = self._due()
            if self._witnesses.waiting:
                due = replace(due, at=min(self.clock() + AGAIN_SECONDS, due.at or float("inf")))
            return due
        finally:
            for season in self._seasons:
                season.close()
            if self._registry is not None:
                self._registry.close()

    # The times of closing

    def _ended(self) -> tuple[list[_ClosingSeason], AssayError | None]:
        """The competitions whose open epoch has ended, with registries of the block at which it did; and the first error."""
        head = self._head() if self._counts_blocks() else None
        ended, wrong = list[_ClosingSeason](), None
        for season in self._seasons:
            try:
                season.end = self._end(season)
                if season.end is not None:
                    self._check_clock(season, season.end, self._now(season.end, head))
                if season.end is not None and self._now(season.end, head) >= season.end.at:
                    if self._still_taking(season, season.end):
                        continue
                    ended.append(season)
                else:
                    self._note(season, "waiting for the end of the epoch", held=None, silent=[])
            except AssayError as error:
                wrong = wrong or self._wrong(season, error)
        if ended and self._registry is not None:
            self._pull_for(ended, self._registry)
        return ended, wrong

    def _still_taking(self, season: _ClosingSeason, end: EpochEnd) -> bool:
        """Whether an epoch that has ended waits for the deadline of its bounty; then it is told."""
        if season.takes_until <= self.clock():
            return False
        until = instant_text(datetime.fromtimestamp(season.takes_until, UTC))
        waits = f"submissions are taken until {until}, and a payout is final: it is settled after that"
        if season.waits != waits:
            season.waits = waits
            self._tell(season.folder, f"epoch {end.epoch}: {waits}")
        self._note(season, f"waiting for the deadline of the bounty, {until}", held=None, silent=[])
        return True

    def _wrong(self, season: _ClosingSeason, error: AssayError) -> AssayError:
        """Note what is wrong with one competition: it does not hold up the others."""
        if str(error) != season.waits and len(self.folders) > 1:  # of the only one, it is told by whoever hears the error
            season.waits = str(error)
            self._tell(season.folder, f"trouble: {error}")
        self._note(season, "waiting", trouble=status.trouble_of(error))
        return error

    def _pull_for(self, ended: Sequence[_ClosingSeason], chain: EpochRegistry) -> None:
        """Pull the registries of the competitions that close, once for each epoch, all at its block."""
        for end in sorted({season.end for season in ended if season.end is not None}, key=lambda end: (end.epoch, end.at)):
            folders = [season.folder for season in ended if season.end == end]
            if self._pulled.get(end) == folders:
                continue
            note = read_note(self.folders[0]).get("pulled")
            known = {int(epoch): int(block) for epoch, block in note.items()} if isinstance(note, dict) else {}
            known[end.epoch] = chain.pull(end, folders, known)
            latest = sorted(known.items())[-_PULLED:]
            write_note(self.folders[0], pulled={str(epoch): block for epoch, block in latest})
            self._pulled[end] = folders

    def _head(self) -> int:
        assert self._registry is not None  # `_counts_blocks` asked for it
        return self._registry.head()

    def _check_clock(self, season: _ClosingSeason, end: EpochEnd, now: float) -> None:
        """Raise CannotSettle if a clock that is new here would close several epochs at once: its start may be a mistake."""
        clock = season.scheme.epoch
        assert clock is not None
        clock_digest = digest(clock.model_dump(mode="json", include={"every", "start", "tempo"}, exclude_none=True))
        if read_note(season.folder).get("clock") == clock_digest:
            return
        due = 1 + int(now - end.at) // (clock.every or clock.tempo or 1)
        if due > 1 and not self.catch_up:
            what = f"epochs {end.epoch} to {end.epoch + due - 1} have ended by [epoch], and no node has closed one by it yet"
            hint = "correct start: epoch N ends at start + N · every; or close them all, now and for good: --catch-up"
            raise CannotSettle(what, file=season.folder / "scheme.toml", hint=hint)
        write_note(season.folder, clock=clock_digest)
        if late := ends_late(clock, end.epoch, datetime.fromtimestamp(self.clock(), UTC)):
            self._tell(season.folder, late)

    def _counts_blocks(self) -> bool:
        counts = False
        for season in self._seasons:
            with suppress(BadInput):  # it is said where its epoch is looked at
                clock = season.scheme.epoch
                counts = counts or (clock is not None and clock.tempo is not None)
        if counts and self.target is None:
            hint = "name a target of publish.toml of kind bittensor: --registry NAME; or give the scheme every and start"
            raise BadInput("[epoch] tempo counts a chain's blocks, and no chain is named", file=self.folders[0], hint=hint)
        return counts

    def _now(self, end: EpochEnd, head: int | None) -> float:
        return self.clock() if end.unit == "time" or head is None else head

    def _end(self, season: _ClosingSeason) -> EpochEnd | None:
        """The end of a competition's open epoch; None if somebody closes it by hand."""
        clock = season.scheme.epoch
        if clock is None:
            return None
        with season.ledger.store.reading() as view:
            epoch, last = closing_cost.next_epoch(view) or 1, view.last_receipt()
        if clock.tempo is None:
            return by_time(clock, epoch)
        return by_blocks(clock, epoch, self._ended_before(season.folder, epoch, last))

    def _ended_before(self, folder: Path, epoch: int, last: StoredReceipt | None) -> int:
        """The block at which the epoch before ended: as noted; else that of the last receipt's registry, or of the first pull."""
        note = read_note(folder)
        if note.get("epoch") == epoch - 1 and isinstance(note.get("block"), int):
            return int(note["block"])
        about = None if last is None else receipt_predicate(last).get("registry")
        pulled = registry.read_pulled(folder / registry.PULLED_FILE)
        assert pulled is not None  # `carry_out` pulled one
        block = pulled.block if about is None else int(about["block"])
        write_note(folder, epoch=epoch - 1, block=block)  # the registry may be pulled again before this epoch is closed
        return block

    def _due(self) -> Due:
        """The time when the next epoch ends; for blocks, when they will have passed if each takes its time."""
        ends = [(season.end, season.takes_until) for season in self._seasons if season.end is not None]
        if not ends:
            return Due(None)
        if not self._counts_blocks():
            return Due(min(max(end.at, until) for end, until in ends))
        head, now = self._head(), self.clock()
        before, then = (head, now) if self.before is None else self.before
        measured = head > before and now > then
        seconds = (now - then) / (head - before) if measured else BLOCK_SECONDS
        at = min(max(end.at if end.unit == "time" else now + (end.at - head) * seconds, until) for end, until in ends)
        return Due(at if measured else min(at, now + BLOCK_SECONDS), (head, now))

    def _rest(self) -> None:
        until = time.monotonic() + (LOOK_SECONDS * 6 if self._counts_blocks() else LOOK_SECONDS)
        while not self.stop.asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))

    # Closing

    def _close_each(self, ended: Sequence[_ClosingSeason], wrong: AssayError | None) -> tuple[bool, bool, AssayError | None]:
        """Close each ended epoch; say whether any was closed, whether any waits, and the first error, which holds up no other."""
        closed = waits = False
        for season in ended:
            try:
                done = self._close(season)
                closed, waits = closed or done, waits or not done
            except AssayError as error:
                wrong = wrong or self._wrong(season, error)
        return closed, waits, wrong

    def _close(self, season: _ClosingSeason) -> bool:
        """Close the open epoch of a competition, if it may be; tells why not."""
        end = season.end
        assert end is not None
        payout = season.scheme.payout
        judged_until = None if payout is None else payout.scoring_deadline
        over = self._now(end, self._head() if end.unit == "block" else None) >= end.until
        grace = (end.until - end.at) * (BLOCK_SECONDS if end.unit == "block" else 1)
        over = over and (end.unit == "block" or self.clock() >= self.since + grace) and self.clock() >= season.takes_until + grace
        over = over and (judged_until is None or judged_until.timestamp() <= self.clock())
        ledger = season.ledger
        with ledger.store.reading() as view:
            seen = (view.last_batch(), view.last_receipt(), _stamps(season.folder), over)
        if seen == season.seen:
            return False
        drafted = settling.draft(ledger, end.epoch)
        if isinstance(drafted, settling.Draft):
            why = _wait(drafted, over=over) or _held(drafted)
            if why is not None:
                season.seen = seen
                self._wait(season, why, drafted)
                return False
            empty = not drafted.closing.scored
            settled = settling.settle(ledger, season.signer, end.epoch, without_scores=empty, drafted=drafted)
            self._note(season, "closing what has ended", held=None, silent=[], trouble=None)  # catching up may take long
            self._tell_closed(season, settled, drafted)
        if end.unit == "block":
            write_note(season.folder, epoch=end.epoch, block=end.at)
        season.seen, season.waits = None, ""
        return True

    def _wait(self, season: _ClosingSeason, why: _Why, drafted: settling.Draft) -> None:
        end = season.end
        assert end is not None
        if why.what != season.waits:
            season.waits = why.what
            self._tell(season.folder, f"epoch {end.epoch}: {why.what}" + (f"; {why.hint}" if why.hint else ""))
        held_epoch = {"epoch": end.epoch, "what": why.what, "hint": why.hint} if why.held else None
        self._note(season, "waiting for validators", held=held_epoch, silent=drafted.closing.silent_names)

    def _tell_closed(self, season: _ClosingSeason, settled: settling.EpochResult, drafted: settling.Draft) -> None:
        scored, silent = len(settled.settlement.ranking), drafted.closing.silent_names
        what = f"settled epoch {settled.settlement.epoch}"
        if scored:
            what += f": {plural(scored, 'agreed score')}"
        else:
            what += " without an agreed score: all of it burns"
        self._tell(season.folder, what + (f"; {named(silent, 10)} sent nothing new" if silent else ""))
        for aside in settled.aside:
            if aside.new:
                self._tell(season.folder, str(aside))

    # Afterwards

    def _follow_up(self) -> AssayError | None:
        """Ask the witnesses, sign the splits of epochs that all competitions have settled, and export; the first error."""
        wrong: AssayError | None = None
        for season in self._seasons:
            if not (config.read(season.folder).policy.exists() or self._witnesses.waiting):
                continue
            try:
                self._witnesses.look(season.ledger, season.folder.name if len(self.folders) > 1 else "")
            except AssayError as error:
                wrong = wrong or error
        if self.subnet is not None:
            try:
                self._sign_splits(self.subnet)
            except AssayError as error:
                wrong = wrong or error
        for season in self._seasons if self.export is not None else ():
            assert self.export is not None
            name = season.folder.name if len(self.folders) > 1 else ""
            try:
                self._export(season.folder, season.ledger, self.export / name)
            except AssayError as error:
                wrong = wrong or error
        return wrong

    def _sign_splits(self, subnet: Path) -> None:
        newest = subnet_bundle.last_epoch(self.folders)
        with open_ledger(subnet) as ledger, ledger.store.reading() as view:
            last = view.settled_epoch()
        first = 0 if newest is None else newest if last is None else last + 1
        for epoch in range(first, 0 if newest is None else newest + 1):
            signed = subnet_bundle.sign(subnet, self.signers[subnet], epoch)
            if signed.new:
                self.tell(f"{subnet.stem}: signed the split of epoch {epoch}")
        with open_ledger(subnet) as ledger:
            self._witnesses.look(ledger, subnet.stem)

    def _export(self, folder: Path, ledger: Ledger, place: Path) -> None:
        """Export each epoch after the newest one that is there; the first time, the newest that is settled."""
        with ledger.store.reading() as view:
            epochs = view.settled_epochs()
        exported = [epoch for epoch in epochs if (place / f"epoch-{epoch}").exists()]
        missing = [epoch for epoch in epochs if not exported or epoch > exported[-1]] if exported else epochs[-1:]
        for epoch in missing:
            if not is_shown(ledger, ledger.receipt(epoch).position):
                return
            try:
                place.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise BadInput(f"cannot be made ({error.strerror})", file=place, hint="name another --export") from None
            bundle.export(ledger, epoch, place / f"epoch-{epoch}")
            self._tell(folder, f"exported epoch {epoch} to {place / f'epoch-{epoch}'}")
        for path in bundle.carry_audits(ledger, place):
            self._tell(folder, f"added {path.name} to {path.parent.parent}")

    # Messages

    def _tell(self, folder: Path, what: str) -> None:
        self.tell(f"{folder.name}: {what}" if len(self.folders) > 1 else what)

    def _note(self, season: _ClosingSeason, state: str, **more: Any) -> None:
        end = season.end
        known = {} if end is None else {"epoch": end.epoch, "closes": end.text}
        fields = {"state": state if end is not None else "epochs are closed by hand", "trouble": None, **known, **more}
        if fields != season.noted:
            status.note(season.folder, **fields)
            season.noted = fields


@dataclass(frozen=True)
class _Why:
    """The reason that an epoch which has ended is not closed. held: time alone does not change it."""

    what: str
    hint: str = ""
    held: bool = False


def _wait(drafted: settling.Draft, *, over: bool) -> _Why | None:
    """The validators that an epoch waits for in its grace time; None if it need not, or if that is over."""
    if over:
        return None
    settlement = drafted.settlement
    missing = _judged_now(settlement, closing_cost.unjudged(settlement))
    if drafted.closing.scored and not missing:
        return None
    silent = drafted.closing.silent_names
    waits = f"waits for {named(silent, 5)}" if silent else "waits for the validators' next results"
    without = f": {named(missing, 5)} {'has' if len(missing) == 1 else 'have'} no agreed score" if missing else ""
    return _Why(waits + without)


def _judged_now(settlement: Settlement, missing: Sequence[str]) -> list[str]:
    """Without those whom nobody can have judged: with `assign`, validators are drawn when the epoch of acceptance is over."""
    if settlement.inputs.scheme.consensus.assign is None:
        return list(missing)
    new = {row.key for row in settlement.inputs.participants if row.accepted_epoch == settlement.epoch}
    return [key for key in missing if key not in new]


def _held(drafted: settling.Draft) -> _Why | None:
    """The reason that an epoch is not closed although its time is over; None if it may be."""
    clock = drafted.settlement.inputs.scheme.epoch
    if drafted.closing.scored or (clock is not None and clock.empty == "burn"):
        return None
    costs = " ".join(drafted.closing.costs()).removesuffix(".")
    hint = 'it is closed when somebody has one; assay settle --without-scores closes it now; [epoch] empty = "burn" always'
    return _Why(costs, hint, held=True)


def _stamps(folder: Path) -> tuple[object, ...]:
    """The stamps of a folder's tables: they change when a table does."""
    files = [*sorted(folder.glob("*.csv")), folder / "scheme.toml", folder / "tasks.txt"]
    return tuple((file.name, _stamp(file)) for file in files)


def _stamp(file: Path) -> object:
    """The stamp of a file: it changes when the file does; None if it is not there."""
    with suppress(OSError):
        state = file.stat()
        return state.st_mtime_ns, state.st_size, state.st_ino
    return None
