"""Decides what a watch does next, and which alarms it raises. It is pure, so the tests list every case as a row of a table.

- A watch publishes the newest settled epoch that the chain does not have. If the publisher wants every epoch, it publishes the
  oldest of those.
- It tries an epoch again when the chain said that it may, or after one round if the chain has it but not deep enough. After any
  other outcome the pauses grow, up to `MOST` rounds.
- No pause is longer than a round, so no event is missed. But if the ledger or a node does not answer, it is asked less and less
  often.

Times are seconds since 1970. A clock that is set back does not stop a watch: a remembered time in the future counts as now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from assay.publish.alarms import Alarm
from assay.publish.outcome import Confirmed, Outcome, Refusal, Sent, TooEarly
from assay.publish.publishers import Pulse

__all__ = [
    "ALARMS",
    "MOST",
    "TEMPOS",
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
"""Tempos without new weights after which a watch alarms."""
MOST = 60
"""Rounds after which an epoch is always tried again, because clocks may be wrong and the reason of a refusal may be gone."""
BACKS_OFF = 10
"""Longest pause, in rounds, between two looks at something that does not answer."""
SILENCE = 3600.0
"""Seconds of silence after which a watch alarms, if neither a tempo nor `--alarm` is known."""
ALARMS = ("refused", "shut-out", "undone", "nothing-set", "unreachable", "late", "broken")
"""The codes of a watch's alarms."""


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
    """The result of one look.

    settled: the last settled epoch. published: the last that the chain has. waiting: the epoch to be published next. since: when
    it began to wait. begun: when something was first sent to the target, otherwise when the watch began.
    """

    settled: int | None
    published: int | None
    waiting: int | None
    since: float
    begun: float
    pulse: Pulse | None = None


@dataclass(frozen=True, slots=True)
class Away:
    """Ledger or node do not answer: since when, the last error, what to do."""

    since: float
    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """The last check whether the chain still has a published epoch. undone: why the chain does not have it any more."""

    epoch: int
    at: float
    undone: Refusal | None = None


@dataclass(frozen=True)
class Memory:
    """The state that a watch keeps from one look to the next.

    epoch, outcome, at: the last try, its outcome, and when. failures: the number of failed tries in a row. pulse, pulse_at: the
    last known pulse, and when it came. shut: why the chain has no place for our key, by its last answer. checked: the last check
    of the published weights. away: since when ledger or node do not answer. broken: why nothing can be published at all. fault: a
    fault of the program at the last try.
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
        """The memory after a try to publish."""
        before = self.failures if epoch == self.epoch else 0
        failures = 0 if isinstance(outcome, Confirmed | TooEarly | Sent) else before + 1
        checked = ChainCheck(epoch, now) if isinstance(outcome, Confirmed) else self.checked
        return replace(self, epoch=epoch, outcome=outcome, at=now, failures=failures, checked=checked, fault=fault)

    def heard(self, pulse: Pulse | Refusal | None, now: float) -> Memory:
        """The memory after a look at which everything answered."""
        memory = replace(self, shut=pulse if isinstance(pulse, Refusal) else None, away=None, broken="")
        return replace(memory, pulse=pulse, pulse_at=now) if isinstance(pulse, Pulse) else memory

    def silent(self, what: str, hint: str, now: float) -> Memory:
        """The memory after a look at which something did not answer."""
        return replace(self, away=Away(now if self.away is None else min(self.away.since, now), what, hint), broken="")


def waiting(settled: Sequence[int], published: int | None, begun: int | None, *, every_epoch: bool) -> int | None:
    """The epoch to be published next; None if the chain has all. settled: ascending. begun: the first epoch that was tried.

    With `every_epoch`, if nothing is published yet, it is the first epoch that was tried, otherwise the newest: epochs that were
    settled before the target existed are not sent.
    """
    if not settled or (published is not None and published >= settled[-1]):
        return None
    first = begun if published is None else published + 1
    if not every_epoch or first is None:
        return settled[-1]
    return next(epoch for epoch in settled if epoch >= min(first, settled[-1]))


def decide(facts: Facts, memory: Memory, now: float, every: float) -> Publish | Rest:
    """The next action. every: the seconds of a round."""
    if memory.away is not None:
        return Rest(min(max(every, (now - memory.away.since) / 2), BACKS_OFF * every))
    if facts.waiting is None or memory.broken:
        return Rest(every)
    left = _due(facts, memory, now, every) - now
    return Publish(facts.waiting) if left <= 0 else Rest(min(left, every))


def to_check(facts: Facts, memory: Memory, now: float) -> int | None:
    """The published epoch to be checked now: once a tempo, and at each look if the chain does not have it any more."""
    pulse, last = facts.pulse, memory.checked
    if pulse is None or facts.published is None:
        return None
    if last is None or last.epoch != facts.published or last.undone is not None:
        return facts.published
    return None if last.at <= now < last.at + pulse.tempo * pulse.seconds else facts.published


def _due(facts: Facts, memory: Memory, now: float, every: float) -> float:
    """The time at which the waiting epoch is tried next."""
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
    """The alarms of now. patience: seconds after which an unpublished epoch alarms; None: never by time alone.

    If no tempo is known, patience also replaces `SILENCE`.
    """
    standing = []
    outcome = memory.outcome if memory.epoch == facts.waiting else None
    if memory.broken or (memory.fault and memory.epoch == facts.waiting):
        standing.append(Alarm("broken", memory.broken or memory.fault, "nothing is published until this is repaired"))
    if isinstance(outcome, Refusal) and facts.waiting is not None:
        standing.append(Alarm("refused", f"epoch {facts.waiting} is refused: {outcome.what}", outcome.hint or _ASK))
    if memory.shut is not None:
        standing.append(Alarm("shut-out", memory.shut.what, memory.shut.hint or _ASK))
    checked = memory.checked
    if checked is not None and checked.undone is not None and checked.epoch == facts.published:
        what = f"epoch {checked.epoch} was published, but the chain does not have it any more: {checked.undone.what}"
        standing.append(Alarm("undone", what, checked.undone.hint or _ASK))
    pulse = facts.pulse or _since(memory, now)
    if pulse is not None and (quiet := _quiet(facts, pulse, now)) > TEMPOS * pulse.tempo:
        what = f"nothing was set for {quiet} blocks, and the tempo is {pulse.tempo}"
        hint = "settle the next epoch" if facts.waiting is None else f"see what keeps epoch {facts.waiting} from the chain"
        standing.append(Alarm("nothing-set", what, hint))
    unheard = SILENCE if patience is None else patience
    limit = unheard if memory.pulse is None else TEMPOS * memory.pulse.tempo * memory.pulse.seconds
    if memory.away is not None and now - memory.away.since > limit:
        what = f"{memory.away.what}, for {now - memory.away.since:.0f} seconds"
        standing.append(Alarm("unreachable", what, memory.away.hint or "look at the other side"))
    if facts.waiting is not None and patience is not None and not _locked(facts.pulse, outcome):
        since = max(facts.since, outcome.at) if isinstance(outcome, TooEarly) and outcome.unit == "time" else facts.since
        if now - since > patience:
            what = f"epoch {facts.waiting} is settled, but for {now - since:.0f} seconds it has not been published"
            standing.append(Alarm("late", what, _ASK))
    return standing


_ASK = "`assay publish` shows what would be sent, and what prevents it"


def _locked(pulse: Pulse | None, outcome: Outcome | None) -> bool:
    """True if the chain has a commitment that it need not have opened yet. A tempo after its block it should have opened it."""
    if not isinstance(outcome, Sent) or outcome.opens is None:
        return False
    return pulse is None or pulse.now <= outcome.opens + pulse.tempo


def _since(memory: Memory, now: float) -> Pulse | None:
    """The last known pulse, moved forward by the clock, because alarms must not stop while a node is silent."""
    pulse = memory.pulse
    return pulse and replace(pulse, now=pulse.now + int(max(0.0, now - memory.pulse_at) / pulse.seconds))


def _quiet(facts: Facts, pulse: Pulse, now: float) -> int:
    """The number of blocks since something was set; since the first try, if nothing ever was."""
    return int((now - facts.begun) / pulse.seconds) if pulse.last is None else pulse.now - pulse.last
