"""What a watch does next, and what it alarms about: pure, so that every case is a row in a table of the tests.

- What is published is the newest settled epoch that is not; where a publisher wants every epoch, the first of them.
- An epoch that was just tried is tried again: when the chain said that it may, or a round later if the chain has it and not
  deep enough; after anything else later and later, but within `MOST` rounds.
- Nothing is waited for so long that the next look, a round later, would not come before it; but who does not answer is asked
  less and less often.

Times are seconds since 1970. Who sets the clock back does not stop a watch: what is remembered of a time to come is of now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from assay.publish.outcome import Confirmed, Outcome, Refusal, Sent, TooEarly
from assay.publish.publishers import Pulse

__all__ = [
    "ALARMS",
    "MOST",
    "TEMPOS",
    "Alarm",
    "Away",
    "ChainCheck",
    "Facts",
    "Memory",
    "Publish",
    "Rest",
    "alarms",
    "decide",
    "to_check",
    "waiting",
]

TEMPOS = 2
"""So many without anything set are an alarm."""
MOST = 60
"""After so many rounds it is tried again, whatever was said: clocks are wrong, and what was refused is mended."""
BACKS_OFF = 10
"""What does not answer is asked less and less, until it is once in so many rounds."""
SILENCE = 3600.0
"""Seconds after which silence alarms where no tempo was heard yet, and nobody said after how many."""
ALARMS = ("refused", "shut-out", "undone", "nothing-set", "unreachable", "late", "broken")


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish this epoch now."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Look again after so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Facts:
    """What a look found.

    settled: the last settled epoch. published: the last that the chain has. waiting: the one that is to be published next, and
    `since` when it waits. begun: when something was first sent to the target; if nothing was, when watching began.
    """

    settled: int | None
    published: int | None
    waiting: int | None
    since: float
    begun: float
    pulse: Pulse | None = None


@dataclass(frozen=True, slots=True)
class Away:
    """Something does not answer: since when, what was said last, what to do."""

    since: float
    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """When it was last asked whether the chain still has an epoch that is published, and why it has not."""

    epoch: int
    at: float
    undone: Refusal | None = None


@dataclass(frozen=True)
class Memory:
    """What is remembered from one look to the next.

    epoch, outcome, at: the last try, what it came to, and when. failures: how many in a row came to nothing. pulse, pulse_at: the
    last that was heard, and when. shut: why the chain has no place for our key, as was heard last. checked: whether the chain
    still has what is published. away: since when ledger or node do not answer. broken: why nothing can be published at all.
    fault: what of the program broke at the last try.
    """

    epoch: int | None = None
    outcome: Outcome | None = None
    at: float = 0.0
    failures: int = 0
    pulse: Pulse | None = None
    pulse_at: float = 0.0
    shut: Refusal | None = None
    checked: ChainCheck | None = None
    away: Away | None = None
    broken: str = ""
    fault: str = ""

    def tried(self, epoch: int, outcome: Outcome, now: float, fault: str = "") -> Memory:
        """After a try."""
        before = self.failures if epoch == self.epoch else 0
        failures = 0 if isinstance(outcome, Confirmed | TooEarly | Sent) else before + 1
        checked = ChainCheck(epoch, now) if isinstance(outcome, Confirmed) else self.checked
        return replace(self, epoch=epoch, outcome=outcome, at=now, failures=failures, checked=checked, fault=fault)

    def heard(self, said: Pulse | Refusal | None, now: float) -> Memory:
        """After a look that found everything there."""
        there = replace(self, shut=said if isinstance(said, Refusal) else None, away=None, broken="")
        return replace(there, pulse=said, pulse_at=now) if isinstance(said, Pulse) else there

    def silent(self, what: str, hint: str, now: float) -> Memory:
        """After a look at which something did not answer."""
        return replace(self, away=Away(now if self.away is None else min(self.away.since, now), what, hint), broken="")


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that somebody has to look at: a code of `ALARMS`, what is wrong, what to do."""

    code: str
    what: str
    hint: str


def waiting(settled: Sequence[int], published: int | None, begun: int | None, *, every_epoch: bool) -> int | None:
    """The epoch that is to be published next; None if the chain has all. settled: ascending; begun: the first that was tried.

    Where nothing is published yet, every epoch means those from the first that was tried on, else the newest: what was settled
    before there was a target is not sent after all.
    """
    if not settled or (published is not None and published >= settled[-1]):
        return None
    first = begun if published is None else published + 1
    if not every_epoch or first is None:
        return settled[-1]
    return next(epoch for epoch in settled if epoch >= min(first, settled[-1]))


def decide(facts: Facts, memory: Memory, now: float, every: float) -> Publish | Rest:
    """What to do now. every: the seconds of a round."""
    if memory.away is not None:
        return Rest(min(max(every, (now - memory.away.since) / 2), BACKS_OFF * every))
    if facts.waiting is None or memory.broken:
        return Rest(every)
    left = _due(facts, memory, now, every) - now
    return Publish(facts.waiting) if left <= 0 else Rest(min(left, every))


def to_check(facts: Facts, memory: Memory, now: float) -> int | None:
    """The epoch of which it is to be asked whether the chain still has it: once a tempo, and at each look while it has not."""
    pulse, last = facts.pulse, memory.checked
    if pulse is None or facts.published is None:
        return None
    if last is None or last.epoch != facts.published or last.undone is not None:
        return facts.published
    return None if last.at <= now < last.at + pulse.tempo * pulse.seconds else facts.published


def _due(facts: Facts, memory: Memory, now: float, every: float) -> float:
    """When the waiting epoch is to be tried."""
    if memory.epoch != facts.waiting or memory.outcome is None or memory.at > now:
        return now
    longest = memory.at + MOST * every
    match memory.outcome:
        case TooEarly(at, "time"):
            return min(at if at > memory.at else memory.at + every, longest)
        case TooEarly(block, _) | Sent(_, int(block)) if facts.pulse is not None:
            pulse = facts.pulse
            return min(max(now + (block - pulse.now) * pulse.seconds, memory.at + min(pulse.seconds, every)), longest)
        case TooEarly() | Sent() | Confirmed():
            return memory.at + every
    return min(memory.at + every * 2.0 ** min(memory.failures - 1, MOST), longest)


def alarms(facts: Facts, memory: Memory, now: float, patience: float | None) -> list[Alarm]:
    """What is wrong now. patience: seconds after which an epoch that is not published alarms; None: never by time alone.

    It is also for how long something may be away of which no tempo is known, in place of `SILENCE`.
    """
    found = []
    outcome = memory.outcome if memory.epoch == facts.waiting else None
    if memory.broken or (memory.fault and memory.epoch == facts.waiting):
        found.append(Alarm("broken", memory.broken or memory.fault, "nothing is published until this is mended"))
    if isinstance(outcome, Refusal) and facts.waiting is not None:
        found.append(Alarm("refused", f"epoch {facts.waiting} is refused: {outcome.what}", outcome.hint or _ASK))
    if memory.shut is not None:
        found.append(Alarm("shut-out", memory.shut.what, memory.shut.hint or _ASK))
    checked = memory.checked
    if checked is not None and checked.undone is not None and checked.epoch == facts.published:
        what = f"epoch {checked.epoch} was published, and is not what the chain has: {checked.undone.what}"
        found.append(Alarm("undone", what, checked.undone.hint or _ASK))
    pulse = facts.pulse or _since(memory, now)
    if pulse is not None and (quiet := _quiet(facts, pulse, now)) > TEMPOS * pulse.tempo:
        what = f"nothing was set for {quiet} blocks, and the tempo is {pulse.tempo}"
        hint = "settle the next epoch" if facts.waiting is None else f"see what keeps epoch {facts.waiting} from the chain"
        found.append(Alarm("nothing-set", what, hint))
    unheard = SILENCE if patience is None else patience
    limit = unheard if memory.pulse is None else TEMPOS * memory.pulse.tempo * memory.pulse.seconds
    if memory.away is not None and now - memory.away.since > limit:
        what = f"{memory.away.what}, for {now - memory.away.since:.0f} seconds"
        found.append(Alarm("unreachable", what, memory.away.hint or "look at the other side"))
    if facts.waiting is not None and patience is not None and not _locked(facts.pulse, outcome):
        since = max(facts.since, outcome.at) if isinstance(outcome, TooEarly) and outcome.unit == "time" else facts.since
        if now - since > patience:
            what = f"epoch {facts.waiting} is settled, and for {now - since:.0f} seconds it is not published"
            found.append(Alarm("late", what, _ASK))
    return found


_ASK = "`assay publish` says what would be sent, and what stands in its way"


def _locked(pulse: Pulse | None, outcome: Outcome | None) -> bool:
    """Whether it is in the chain, and the chain is not to open it yet; a tempo later it should have, wherever epochs began."""
    if not isinstance(outcome, Sent) or outcome.opens is None:
        return False
    return pulse is None or pulse.now <= outcome.opens + pulse.tempo


def _since(memory: Memory, now: float) -> Pulse | None:
    """The last pulse that was heard, gone on by the clock: a node that is silent mends nothing."""
    pulse = memory.pulse
    return pulse and replace(pulse, now=pulse.now + int(max(0.0, now - memory.pulse_at) / pulse.seconds))


def _quiet(facts: Facts, pulse: Pulse, now: float) -> int:
    """For how many blocks nothing was set; where nothing ever was, since it was first tried."""
    return int((now - facts.begun) / pulse.seconds) if pulse.last is None else pulse.now - pulse.last
