"""A watch: one look after the other at ledger and chain, and what follows from it. What is decided is in `decide`."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from assay.errors import AssayError, Unreachable
from assay.ledger import store
from assay.ledger.opened import open_ledger
from assay.publish import settled
from assay.publish.history import Tried, history, last_published
from assay.publish.journal import Entry, Journal, Overtaken
from assay.publish.outcome import Confirmed, Outcome, Planned, Refusal, Unknown
from assay.publish.publishers import Publisher, Pulse, pulse_of
from assay.publish.targets import Target
from assay.publish.watch.decide import Alarm, Checked, Facts, Memory, Publish, Rest, alarms, decide, to_check, waiting
from assay.scheme.times import instant

__all__ = ["Event", "Level", "Report", "Watch"]

Level = Literal["info", "warning", "error"]
_PASSING = (store.Busy, store.Unreachable, Overtaken, Unreachable)
"""Errors that pass by themselves."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: `name` for programs, and what is to be said of it. outcome: of a try to publish the epoch."""

    level: Level
    name: str
    what: str = ""
    epoch: int | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True)
class Report:
    """How it stands after a look. Times are seconds since 1970; alarms are with the time since when they stand.

    entries: of the target's journal, by state. tried: what it comes to. rest: seconds until the next look.
    """

    competition: str
    target: str
    kind: str
    at: float
    facts: Facts
    memory: Memory
    alarms: tuple[tuple[Alarm, float], ...]
    tried: tuple[Tried, ...]
    entries: Mapping[str, int]
    rest: float

    @property
    def reachable(self) -> bool:
        """Whether ledger and node answered."""
        return self.memory.away is None

    @property
    def last_set(self) -> float | None:
        """When our key last set something, about, by the chain's pulse."""
        pulse = self.facts.pulse
        return None if pulse is None or pulse.last is None else self.at - (pulse.now - pulse.last) * pulse.seconds

    @property
    def pending(self) -> bool:
        """Whether the last try, or the look, came to nothing certain."""
        outcome = self.memory.outcome if self.facts.waiting is not None else None
        return bool(not self.reachable or self.memory.broken or (outcome is not None and not outcome.ok))

    @property
    def exit_code(self) -> int:
        """0 if nobody has to do anything; 1 if it is not known or not deep enough yet; 3 while there is an alarm."""
        return 3 if self.alarms else int(self.pending)


@dataclass
class Watch:
    """One target, watched. every: seconds of a round. patience: see `alarms`. send: else it is only said what would be sent."""

    target: Target
    publisher: Publisher
    tell: Callable[[Event], None]
    every: float = 60.0
    patience: float | None = None
    send: bool = True
    clock: Callable[[], float] = time.time
    memory: Memory = field(default_factory=Memory)

    def __post_init__(self) -> None:
        self._journal: Journal | None = None
        self._competition = self.target.folder.name
        self._tried: list[Tried] = []
        self._standing: dict[str, tuple[Alarm, float]] = {}
        self._begun = self.clock()
        self._seen: dict[int | None, float] = {}
        self._facts = Facts(None, None, None, 0.0, self._begun)

    def step(self) -> Report:
        """Look, and publish one epoch if it is time; raises nothing that another look could mend."""
        self._look()
        action = self._next()
        if isinstance(action, Publish):
            self._publish(action.epoch)
            self._look()
            action = self._next()
        return self._report(0.0 if isinstance(action, Publish) else action.seconds)

    def _next(self) -> Publish | Rest:
        return decide(self._facts, self.memory, self.clock(), self.every)

    # A look

    def _look(self) -> None:
        settled_before, before = self._facts.settled, self.memory
        self._facts = replace(self._facts, pulse=None)
        try:
            self._facts = self._found()
            said = pulse_of(self.publisher)
            pulse = said if isinstance(said, Pulse) else None
            self._facts, self.memory = replace(self._facts, pulse=pulse), self.memory.heard(said, self.clock())
            self._check()
        except _PASSING as error:
            self.memory = self.memory.silent(*_said(error), self.clock())
        except AssayError as error:
            self.memory = replace(self.memory, away=None, broken=str(error))
        except Exception as error:  # noqa: BLE001 - it goes on, and alarms
            self.memory = replace(self.memory, away=None, broken=_fault(error))
        last = self._facts.settled
        if last is not None and last != settled_before:
            self._say("info", "settled", f"epoch {last} is the last that is settled", last)
        if self.memory.away and not before.away:
            self._say("warning", "away", self.memory.away.what)
        if before.away and not self.memory.away:
            self._say("info", "back", f"it answers again, after {self.clock() - before.away.since:.0f} seconds")

    def _found(self) -> Facts:
        """What ledger and journal say; raises what they raise."""
        with open_ledger(self.target.folder) as ledger, ledger.store.reading() as view:
            epochs, self._competition = view.settled_epochs(), ledger.store.meta.competition
        self._journal = self._journal or self.target.journal()
        self._tried = history(self._journal.read())
        times = {one.epoch: _time(one.first) for one in reversed(self._tried) if one.epoch is not None}
        published = last_published(self._tried)
        if isinstance(self.memory.outcome, Confirmed):  # of a publisher that keeps no journal, too
            published = max(published or 0, self.memory.epoch or 0)
        every_epoch = getattr(self.publisher, "every_epoch", False)
        epoch = waiting(epochs, published, min(times, default=None), every_epoch=every_epoch)
        now = self.clock()
        self._seen[epoch] = since = min(self._seen.get(epoch, now), now, *([times[epoch]] if epoch in times else []))
        begun = min(times.values(), default=self._begun)
        self._begun = min(self._begun, now)
        return Facts(epochs[-1] if epochs else None, published, epoch, since, min(begun, now))

    def _check(self) -> None:
        """Ask whether the chain still has what was published, when it is time; raises what passes by itself."""
        epoch = to_check(self._facts, self.memory, self.clock())
        if epoch is None:
            return
        try:
            with open_ledger(self.target.folder) as ledger:
                plan = self.publisher.plan(settled.read(ledger, epoch))
            said = self.publisher.confirm(plan)
        except _PASSING:
            raise
        except AssayError as error:
            said = Refusal("input", *_said(error))
        undone = said if isinstance(said, Refusal) else None
        self.memory = replace(self.memory, checked=Checked(epoch, self.clock(), undone))

    # Publishing

    def _publish(self, epoch: int) -> None:
        before, fault = self.memory.outcome if self.memory.epoch == epoch else None, ""
        try:
            outcome = self._outcome(epoch)
        except _PASSING as error:
            outcome = Unknown(_said(error)[0])
        except AssayError as error:
            outcome = Refusal("input", *_said(error))
        except Exception as error:  # noqa: BLE001 - it goes on, and alarms; the journal has what was sent
            fault = _fault(error)
            outcome = Unknown(fault)
        self.memory = self.memory.tried(epoch, outcome, self.clock(), fault)
        if outcome != before:
            level: Level = "info" if outcome.ok else "error" if isinstance(outcome, Refusal) else "warning"
            self.tell(Event(level, "outcome", epoch=epoch, outcome=outcome))

    def _outcome(self, epoch: int) -> Outcome:
        with open_ledger(self.target.folder) as ledger:
            plan = self.publisher.plan(settled.read(ledger, epoch))
        if self.send:
            return self.publisher.send(plan, lambda what: self._say("info", "progress", what, epoch))
        return self.publisher.compare(plan).outcome or Planned()

    # What is told

    def _report(self, rest: float) -> Report:
        now = self.clock()
        found = {one.code: one for one in alarms(self._facts, self.memory, now, self.patience)}
        for code, one in found.items():
            if code not in self._standing:
                self._say("error", "alarm", f"{one.what}; {one.hint}")
        for code in self._standing.keys() - found.keys():
            self._say("info", "alarm-over", f"over: {self._standing[code][0].what}")
        self._standing = {code: (one, self._standing.get(code, (one, now))[1]) for code, one in found.items()}
        entries = Counter(str(entry.get("state")) for entry in (self._journal.entries if self._journal is not None else ()))
        return Report(
            self._competition,
            self.target.name,
            self.target.kind,
            now,
            self._facts,
            self.memory,
            tuple(self._standing.values()),
            tuple(self._tried),
            entries,
            rest,
        )

    def _say(self, level: Level, name: str, what: str, epoch: int | None = None) -> None:
        self.tell(Event(level, name, what, epoch))


def _said(error: AssayError) -> tuple[str, str]:
    """What is wrong, with its place, and what to do."""
    return str(error).removesuffix(f"; {error.hint}"), error.hint


def _fault(error: Exception) -> str:
    """An error that nobody thought of, by its kind and its place: in its text might be what is to be shown to nobody."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"the program has a fault: {type(error).__name__} at line {place.lineno} of {Path(place.filename).name}; report that"


def _time(entry: Entry) -> float:
    """When an entry was written."""
    return instant(entry.get("at")).timestamp()
