"""Watches one target: looks at ledger and chain again and again, publishes when it is time, and shows metrics and a page.

`decisions` decides what follows from a look. Metrics are in Prometheus' text format, for the textfile collector of its node
exporter. `assay_publish_looked_timestamp_seconds` grows with every look, so it shows that the watch is alive. The page is one
HTML file without scripts, which the browser reloads.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from assay.errors import AssayError, Unreachable
from assay.ledger import store
from assay.ledger.access import open_ledger
from assay.publish import settled_epoch
from assay.publish.alarms import Alarm, StandingAlarms, what_and_hint
from assay.publish.decisions import ALARMS, ChainCheck, Facts, Memory, Publish, Rest, alarms, decide, to_check, waiting
from assay.publish.faces import Family, alarm_boxes, escaped, metrics_text, note, page_text, table, time_text
from assay.publish.journal import Journal, JournalEntry, Overtaken, SendHistory, history, last_published
from assay.publish.outcome import Confirmed, Outcome, Planned, Refusal, Unknown, in_words
from assay.publish.publishers import Publisher, PublishPlan, Pulse, Target, pulse_of
from assay.scheme.fields import instant

Level = Literal["info", "warning", "error"]
_PASSING = (store.DatabaseBusy, store.DatabaseUnreachable, Overtaken, Unreachable)
"""Errors that may pass without anybody's help."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """An event of a watch: `name` for programs, `what` for people. outcome: of a try to publish the epoch."""

    level: Level
    name: str
    what: str = ""
    epoch: int | None = None
    outcome: Outcome | None = None

    @property
    def text(self) -> str:
        """The event in words, with the epoch where it is about a try."""
        about = f"epoch {self.epoch}: " if self.outcome is not None or self.name == "progress" else ""
        return about + (self.what if self.outcome is None else in_words(self.outcome))


@dataclass(frozen=True)
class WatchReport:
    """The state of a watch after a look. Times are seconds since 1970; each alarm has the time since when it stands.

    histories: of the target's journal. entries: how many the journal has, by state. rest: seconds until the next look.
    """

    competition: str
    target: str
    kind: str
    at: float
    facts: Facts
    memory: Memory
    alarms: tuple[tuple[Alarm, float], ...]
    histories: tuple[SendHistory, ...]
    entries: Mapping[str, int]
    rest: float

    @property
    def reachable(self) -> bool:
        """Whether ledger and node answered."""
        return self.memory.away is None

    @property
    def last_set(self) -> float | None:
        """About when our key last set something, by the chain's pulse."""
        pulse = self.facts.pulse
        return None if pulse is None or pulse.last is None else self.at - (pulse.now - pulse.last) * pulse.seconds

    @property
    def pending(self) -> bool:
        """Whether the last try or look has no certain outcome yet."""
        outcome = self.memory.outcome if self.facts.waiting is not None else None
        return bool(not self.reachable or self.memory.broken or (outcome is not None and not outcome.ok))

    @property
    def exit_code(self) -> int:
        """0 if nobody has to act; 1 if the outcome is not known or not deep enough yet; 3 while there is an alarm."""
        return 3 if self.alarms else int(self.pending)


@dataclass
class TargetWatch:
    """The watch of one target. every: seconds of a round. patience: see `alarms`. send: False only shows what would be sent.

    subnet: the subnet file whose signed splits are published; None: the settled epochs of the target's folder are.
    """

    target: Target
    publisher: Publisher
    tell: Callable[[WatchEvent], None]
    every: float = 60.0
    patience: float | None = None
    send: bool = True
    clock: Callable[[], float] = time.time
    memory: Memory = field(default_factory=Memory)
    subnet: Path | None = None

    def __post_init__(self) -> None:
        self._journal: Journal | None = None
        self._place = self.target.folder if self.subnet is None else self.subnet
        self._competition = self._place.stem
        self._histories: list[SendHistory] = []
        self._standing = StandingAlarms()
        self._begun = self.clock()
        self._seen: dict[int | None, float] = {}
        self._facts = Facts(None, None, None, 0.0, self._begun)

    def step(self) -> WatchReport:
        """Look, and publish one epoch if it is time. Raises no error that may pass by the next look."""
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
            self._facts = self._read()
            answer = pulse_of(self.publisher)
            pulse = answer if isinstance(answer, Pulse) else None
            self._facts, self.memory = replace(self._facts, pulse=pulse), self.memory.heard(answer, self.clock())
            self._check()
        except _PASSING as error:
            self.memory = self.memory.silent(*what_and_hint(error), self.clock())
        except AssayError as error:
            self.memory = replace(self.memory, away=None, broken=str(error))
        except Exception as error:  # noqa: BLE001 - the watch continues, and alarms
            self.memory = replace(self.memory, away=None, broken=_fault(error))
        last = self._facts.settled
        if last is not None and last != settled_before:
            self._say("info", "settled", f"epoch {last} is the last that is settled", last)
        if self.memory.away and not before.away:
            self._say("warning", "away", self.memory.away.what)
        if before.away and not self.memory.away:
            self._say("info", "back", f"it answers again, after {self.clock() - before.away.since:.0f} seconds")

    def _read(self) -> Facts:
        """The facts from ledger and journal; raises what these raise."""
        with open_ledger(self._place) as ledger, ledger.store.reading() as view:
            epochs, self._competition = view.settled_epochs(), ledger.store.meta.competition
        self._journal = self._journal or self.target.journal()
        self._histories = history(self._journal.read())
        times = {sent.epoch: _time_of(sent.first) for sent in reversed(self._histories) if sent.epoch is not None}
        published = last_published(self._histories)
        if isinstance(self.memory.outcome, Confirmed):  # a publisher need not keep a journal
            published = max(published or 0, self.memory.epoch or 0)
        every_epoch = getattr(self.publisher, "every_epoch", False)
        epoch = waiting(epochs, published, min(times, default=None), every_epoch=every_epoch)
        now = self.clock()
        self._seen[epoch] = since = min(self._seen.get(epoch, now), now, *([times[epoch]] if epoch in times else []))
        begun = min(times.values(), default=self._begun)
        self._begun = min(self._begun, now)
        return Facts(epochs[-1] if epochs else None, published, epoch, since, min(begun, now))

    def _check(self) -> None:
        """Ask whether the chain still has what was published, if it is time. Raises errors that may pass."""
        epoch = to_check(self._facts, self.memory, self.clock())
        if epoch is None:
            return
        try:
            outcome = self.publisher.confirm(self._plan(epoch))
        except _PASSING:
            raise
        except AssayError as error:
            outcome = Refusal("input", *what_and_hint(error))
        undone = outcome if isinstance(outcome, Refusal) else None
        self.memory = replace(self.memory, checked=ChainCheck(epoch, self.clock(), undone))

    # Publishing

    def _publish(self, epoch: int) -> None:
        before, fault = self.memory.outcome if self.memory.epoch == epoch else None, ""
        try:
            outcome = self._outcome(epoch)
        except _PASSING as error:
            outcome = Unknown(what_and_hint(error)[0])
        except AssayError as error:
            outcome = Refusal("input", *what_and_hint(error))
        except Exception as error:  # noqa: BLE001 - the watch continues, and alarms; the journal has what was sent
            fault = _fault(error)
            outcome = Unknown(fault)
        self.memory = self.memory.tried(epoch, outcome, self.clock(), fault)
        if outcome != before:
            level: Level = "info" if outcome.ok else "error" if isinstance(outcome, Refusal) else "warning"
            self.tell(WatchEvent(level, "outcome", epoch=epoch, outcome=outcome))

    def _outcome(self, epoch: int) -> Outcome:
        plan = self._plan(epoch)
        if self.send:
            return self.publisher.send(plan, lambda what: self._say("info", "progress", what, epoch))
        return self.publisher.compare(plan).outcome or Planned()

    def _plan(self, epoch: int) -> PublishPlan:
        if self.subnet is not None:
            return self.publisher.plan(settled_epoch.read_joint(self.subnet, epoch))
        with open_ledger(self.target.folder) as ledger:
            return self.publisher.plan(settled_epoch.read(ledger, epoch))

    # Report and events

    def _report(self, rest: float) -> WatchReport:
        now = self.clock()
        change = self._standing.follow(alarms(self._facts, self.memory, now, self.patience), now)
        for alarm, _ in change.begun:
            self._say("error", "alarm", f"{alarm.what}; {alarm.hint}")
        for alarm, _ in change.over:
            self._say("info", "alarm-over", f"over: {alarm.what}")
        entries = Counter(str(entry.get("state")) for entry in (self._journal.entries if self._journal is not None else ()))
        return WatchReport(
            self._competition,
            self.target.name,
            self.target.kind,
            now,
            self._facts,
            self.memory,
            self._standing.alarms,
            tuple(self._histories),
            entries,
            rest,
        )

    def _say(self, level: Level, name: str, what: str, epoch: int | None = None) -> None:
        self.tell(WatchEvent(level, name, what, epoch))


def _fault(error: Exception) -> str:
    """An unexpected error by its type and location, without its text, which might contain a secret."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"the program has a fault: {type(error).__name__} at line {place.lineno} of {Path(place.filename).name}; report it"


def _time_of(entry: JournalEntry) -> float:
    """The time at which an entry was written."""
    return instant(entry.get("at")).timestamp()


def metrics(report: WatchReport) -> str:
    """The text of the metrics file. A value that is not known has no sample."""
    facts, pulse = report.facts, report.facts.pulse
    now, last = (None, None) if pulse is None else (pulse.now, pulse.last)
    standing = {alarm.code for alarm, _ in report.alarms}
    families: list[Family] = [
        ("alarm", "gauge", "Whether somebody has to look at it.", [({"alarm": code}, code in standing) for code in ALARMS]),
        ("reachable", "gauge", "Whether ledger and node answered.", [({}, report.reachable)]),
        ("settled_epoch", "gauge", "The last settled epoch.", [({}, facts.settled)]),
        ("published_epoch", "gauge", "The last epoch that the chain has.", [({}, facts.published)]),
        ("waiting_epoch", "gauge", "The epoch that is to be published next.", [({}, facts.waiting)]),
        ("block", "gauge", "The chain's last block.", [({}, now)]),
        ("last_set_block", "gauge", "The block in which our key last set something.", [({}, last)]),
        ("last_set_timestamp_seconds", "gauge", "When that was, about.", [({}, report.last_set)]),
        (
            "entries_total",
            "counter",
            "What the journal has, by outcome.",
            [({"state": state}, count) for state, count in sorted(report.entries.items())],
        ),
        ("looked_timestamp_seconds", "gauge", "When the watch last looked.", [({}, report.at)]),
    ]
    return metrics_text("assay_publish_", {"target": report.target}, families)


PAGE_LINES = 30
"""The number of the last tries that the page shows."""


def page(report: WatchReport, refresh: float) -> str:
    """The page. refresh: seconds after which the browser reloads it."""
    title = f"{len(report.alarms)} wrong: " if report.alarms else ""
    ends = "If that is long ago, the watch does not run any more."
    return page_text(f"{title}{report.target}", report.competition, refresh, _parts(report), report.at, ends)


def _parts(report: WatchReport) -> Iterator[str]:
    yield f"<h1>Published to {escaped(report.target)}</h1>\n"
    yield from alarm_boxes(report.alarms)
    if not report.alarms:
        yield _calm(report)
    yield table((), _standing(report))
    rows = [_row(sent) for sent in reversed(report.histories[-PAGE_LINES:])]
    if rows:
        yield "<h2>Tries</h2>\n"
        yield table(("what", "states", "last", "block", "transaction", "why"), rows)


def _row(sent: SendHistory) -> Sequence[str]:
    at, block = str(sent.last.get("at", "")), str(sent.last.get("block", ""))
    return sent.subject, " → ".join(sent.states), at, block, sent.transaction, sent.why


def _calm(report: WatchReport) -> str:
    if report.memory.away is not None:
        return note("wait", "The ledger or the node does not answer; the watch asks again. No alarm yet.")
    if report.facts.waiting is not None or report.pending:
        return note("wait", "Nothing is wrong; something is under way.")
    return note("fine", "All is well: every settled epoch is published.")


def _standing(report: WatchReport) -> Iterator[tuple[str, str]]:
    facts, memory = report.facts, report.memory
    yield "competition", report.competition
    yield "kind of target", report.kind
    yield "last settled", "nothing yet" if facts.settled is None else f"epoch {facts.settled}"
    yield "last published", "nothing yet" if facts.published is None else f"epoch {facts.published}"
    if facts.waiting is not None:
        outcome = memory.outcome if memory.epoch == facts.waiting else None
        state = "" if outcome is None else f": {outcome.state}" + (f", {what}" if (what := getattr(outcome, "what", "")) else "")
        yield "waits", f"epoch {facts.waiting}, since {time_text(facts.since)}{state}"
    if facts.pulse is not None:
        last = "never" if facts.pulse.last is None else f"block {facts.pulse.last}"
        yield "last set by our key", f"{last}; the chain is at block {facts.pulse.now}, its tempo is {facts.pulse.tempo}"
    yield "ledger and node", "answer" if memory.away is None else f"since {time_text(memory.away.since)}: {memory.away.what}"
