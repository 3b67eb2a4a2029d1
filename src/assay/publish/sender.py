"""Sending to a chain once, and following what was sent until the chain has it: the same for every chain.

A publisher says what there is to send; a `Chain` signs it and looks for it on its chain; the `Sender` does the rest.

    plan      the signed transaction is written to the journal, on the disk, before a node hears of it
    send      a node has it; after a crash the chain is asked what became of it before anything else is sent
    follow    the chain is looked at until the attempt has ended, or waits in a block for the chain to open it
    confirm   it ended as it should; otherwise the publisher is asked again, and a new attempt begins

- One attempt is under way at a time: the next begins when the one before has ended or waits in a block.
- What is under way comes first, also if it is of another plan. That of another account or chain is never touched.
- What a chain does not answer is an outcome (`Unknown`); the same command again goes on where this one stopped.
- Every line of the journal that belongs to an attempt has `state`, `attempt` (counted from 1), `subject` and `plan`. The line
  `planned` has all that it takes to send the same bytes again.

Documentation: Publishing, "A publisher of your own".
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, TypeVar

from assay.errors import Unreachable
from assay.publish.journal import Journal, JournalEntry, of_another_kind, stamped
from assay.publish.outcome import Confirmed, Outcome, Refusal, Sent, Unknown, document

__all__ = [
    "AttemptEnded",
    "Chain",
    "ChainAttempt",
    "Following",
    "Known",
    "Prepare",
    "Seen",
    "Sender",
    "SystemClock",
    "Waiting",
    "under_way",
]

BEGINNINGS = 5
"""How often one command begins anew, because another transaction used the nonce, or the time of one was over."""
T = TypeVar("T")
AttemptT = TypeVar("AttemptT", bound="ChainAttempt")
Prepare = Callable[[], T | Outcome]
"""Looks at the chain, and says what to send now, or why nothing is to be sent."""


@dataclass(frozen=True)
class SystemClock:
    """Time as it passes, for tests to let pass as they like: seconds between two looks at a chain, monotonic time, a way to wait,
    and seconds since 1970."""

    poll: float = 1.0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    wall: Callable[[], float] = time.time


@dataclass
class ChainAttempt(ABC):
    """One thing that was sent, or was about to be; a chain's own attempt adds what it needs to send the same bytes again.

    number: in the journal, from 1. sent: hashes that a node has taken. state: of the last entry. ending: that entry.
    """

    ENDED: ClassVar[frozenset[str]] = frozenset({"confirmed", "failed", "lost"})
    """States after which nothing more comes of it."""
    WAITS: ClassVar[frozenset[str]] = frozenset()
    """States in which it is in a final block, and the chain opens it later."""

    number: int
    subject: str
    plan: str
    account: str
    sent: set[str] = field(default_factory=set, kw_only=True)
    state: str = field(default="planned", kw_only=True)
    ending: JournalEntry = field(default_factory=dict, kw_only=True)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state in self.ENDED

    @property
    def in_block(self) -> bool:
        """Whether it is in a final block, and waits until the chain opens it."""
        return self.state in self.WAITS

    @property
    @abstractmethod
    def transaction(self) -> str:
        """The hash of what was signed last for it."""

    @property
    def owner(self) -> tuple[object, ...]:
        """Whose it is, and where: the account, then what tells the chain from others."""
        return (self.account,)

    @property
    def described(self) -> str:
        """What it is, for people: the subject of a sentence."""
        return f"a transaction of {self.account}"

    def entry(self) -> JournalEntry:
        """The journal's entry that plans it."""
        about = {"attempt": self.number, "subject": self.subject, "plan": self.plan, "account": self.account}
        return {"state": "planned"} | about | self.content()

    def content(self) -> JournalEntry:
        """The chain's own fields, as JSON; as they are, unless a chain says otherwise."""
        own = [item.name for item in fields(self) if item.name not in _COMMON]
        return {name: getattr(self, name) for name in own}

    @classmethod
    def planned(cls: type[AttemptT], entry: JournalEntry) -> AttemptT:
        """The attempt that an entry plans; raises KeyError if the entry is of another kind of target."""
        own = [item.name for item in fields(cls) if item.name not in _COMMON]
        about = (entry["attempt"], entry["subject"], entry["plan"], entry["account"])
        return cls(*about, **{name: entry[name] for name in own})

    def follow(self, entry: JournalEntry) -> None:
        """Take in a later entry about it."""
        state = entry["state"]
        if state == "sent":
            self.sent.add(entry["hash"])
        elif state in self.ENDED or state in self.WAITS:
            self.state, self.ending = state, entry

    @classmethod
    def read(cls: type[AttemptT], entries: Iterable[JournalEntry]) -> list[AttemptT]:
        """The attempts of a journal, in order; raises BadInput if it is of another kind of target."""
        attempts: dict[int, AttemptT] = {}
        for entry in entries:
            number = entry.get("attempt")
            if entry["state"] == "planned" and number is not None:
                try:
                    attempts[number] = cls.planned(entry)
                except KeyError:
                    raise of_another_kind(entry) from None
            elif number in attempts:
                attempts[number].follow(entry)
        return list(attempts.values())


_COMMON = frozenset(item.name for item in fields(ChainAttempt))


def under_way(attempts: Iterable[AttemptT]) -> AttemptT | None:
    """The attempt of which it is not certain yet whether a block has it; there is one at most."""
    return next((attempt for attempt in attempts if not attempt.ended and not attempt.in_block), None)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is certain yet; why it takes longer than it should, or nothing where all is well."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt has ended, or waits in a block: the state, the entry's other fields, and what the command ends with.

    outcome: None if the attempt ended as if it had never been, so that the publisher is to be asked again.
    """

    state: str
    outcome: Outcome | None
    more: dict[str, Any] = field(default_factory=dict)


Seen = Outcome | AttemptEnded | Waiting
"""What one look at an attempt comes to. An outcome ends the command, and leaves the attempt under way."""
Known = Outcome | tuple[AttemptT, AttemptEnded]
"""What is known of a plan before anything is prepared: an outcome, perhaps with the end of an earlier attempt to write down."""


class Following(Generic[AttemptT, T]):
    """An attempt while it is followed, and how a chain writes down what it does with it.

    prepare: what would be sent now; None if the attempt is of another plan than the one that is asked for.
    """

    def __init__(self, attempt: AttemptT, prepare: Prepare[T] | None, journal: Journal, tell: Callable[[str], None]) -> None:
        self.attempt, self.prepare, self.tell = attempt, prepare, tell
        self._journal = journal

    def mark_sent(self) -> None:
        """A node has what was signed last; written down once for each hash."""
        attempt = self.attempt
        if attempt.transaction not in attempt.sent:
            self.add("sent", hash=attempt.transaction)
            attempt.sent.add(attempt.transaction)
            self.tell(f"sent {attempt.transaction}")

    def add(self, state: str, **more: Any) -> None:
        """Write an entry about the attempt to the journal, on the disk."""
        _add(self._journal, self.attempt, state, more)


class Chain(ABC, Generic[AttemptT, T]):
    """What is different on each chain. T: what there is to send (a call). Every method may raise Unreachable.

    attempt: the chain's own kind of attempt. account: who sends, for people.
    """

    attempt: type[AttemptT]
    account: str

    @property
    @abstractmethod
    def owner(self) -> tuple[object, ...]:
        """See `Attempt.owner`; attempts of others are never touched."""

    def wrong(self) -> Outcome | None:
        """Why nothing at all may be sent there: the node is of another chain, say. None if all is right."""
        return None

    def known(self, attempts: list[AttemptT], plan: str) -> Known[AttemptT] | None:
        """What has become of a plan (its digest) by what was sent before; None if it is to be prepared."""
        return None

    @abstractmethod
    def sign(self, number: int, subject: str, plan: str, call: T, attempts: list[AttemptT]) -> AttemptT | Outcome:
        """A signed attempt that no node has seen, or why there is none. attempts: all before it."""

    @abstractmethod
    def follow(self, following: Following[AttemptT, T]) -> Callable[[], Seen]:
        """What looks at the attempt once, and sees to it that a node has it; it is called until it says how that ended."""


class Sender(Generic[AttemptT, T]):
    """Sends to one target. tell: is told what happens, a sentence at a time. wait_seconds: how long a command follows at most."""

    def __init__(
        self,
        chain: Chain[AttemptT, T],
        journal: Journal,
        tell: Callable[[str], None],
        *,
        wait_seconds: float,
        clock: SystemClock | None = None,
    ) -> None:
        self._chain, self._journal, self._tell = chain, journal, tell
        self._wait_seconds, self._clock = wait_seconds, clock or SystemClock()
        self._until = 0.0

    def run(self, subject: str, plan: str, prepare: Prepare[T]) -> Outcome:
        """Send what `prepare` says, once, and follow it to its end, or as long as the command waits.

        `prepare` is asked again after every attempt that ended otherwise than it should. subject and plan: what it is about, and
        the digest of what is sent. Raises BadInput and Overtaken; what the network does is an outcome.
        """
        self._until = self._clock.now() + self._wait_seconds
        outcome: Outcome | None = None
        try:
            for _ in range(BEGINNINGS):
                outcome = self._step(subject, plan, prepare)
                if outcome is not None:
                    break
        except Unreachable as error:
            outcome = Unknown(f"{error.what}; {error.hint}" if error.hint else error.what)
        if outcome is None:
            what = f"something else sends from {self._chain.account} at the same time"
            outcome = Refusal("nonce", what, "let one program send, then do this again")
        if not isinstance(outcome, Confirmed) or outcome.transaction is None:
            self._journal.note(subject, plan, outcome)
        return outcome

    def _step(self, subject: str, plan: str, prepare: Prepare[T]) -> Outcome | None:
        """Bring one attempt to its end: the one under way, else a new one. None: look at the chain again, and begin anew."""
        wrong = self._chain.wrong()
        if wrong is not None:
            return wrong
        attempts = self._chain.attempt.read(self._journal.read())
        attempt = under_way(attempts)
        if attempt is None:
            begun = self._known(attempts, plan) or self._begin(subject, plan, prepare, attempts)
            if not isinstance(begun, ChainAttempt):
                return begun
            attempt = begun
        elif attempt.owner != self._chain.owner:
            what = f"{attempt.described} is under way: {attempt.subject}"
            return Refusal("under-way", what, "see that one to its end first, with its key and its fields in publish.toml")
        asked_for = (attempt.subject, attempt.plan) == (subject, plan)
        outcome = self._follow(attempt, prepare if asked_for else None)
        if asked_for:
            return outcome
        if attempt.ended or attempt.in_block or outcome is None:
            return None
        return Unknown(f"{attempt.subject} is under way, and comes first: {document(outcome).get('what', outcome.state)}")

    def _known(self, attempts: list[AttemptT], plan: str) -> Outcome | None:
        """What has become of the plan, written down if that is new."""
        known = self._chain.known(attempts, plan)
        if not isinstance(known, tuple):
            return known
        attempt, ended = known
        self._end(attempt, ended)
        return ended.outcome

    def _begin(self, subject: str, plan: str, prepare: Prepare[T], attempts: list[AttemptT]) -> AttemptT | Outcome:
        """A new attempt, in the journal, or why there is none."""
        call = prepare()
        if isinstance(call, Outcome):
            return call
        attempt = self._chain.sign(len(attempts) + 1, subject, plan, call, attempts)
        if isinstance(attempt, ChainAttempt):
            self._journal.add(stamped(attempt.entry()))
        return attempt

    def _follow(self, attempt: AttemptT, prepare: Prepare[T] | None) -> Outcome | None:
        """The attempt's outcome, or what is known of it when time is up; None if it ended as if it had never been."""
        look = self._chain.follow(Following(attempt, prepare, self._journal, self._tell))
        while True:
            try:
                seen = look()
            except Unreachable as error:
                seen = Waiting(error.what)
            if isinstance(seen, AttemptEnded):
                self._end(attempt, seen)
                return seen.outcome
            if not isinstance(seen, Waiting):
                return seen
            if self._clock.now() >= self._until:
                return _waiting(attempt, seen.why)
            self._clock.sleep(self._clock.poll)

    def _end(self, attempt: AttemptT, ended: AttemptEnded) -> None:
        """Write down how it ended. What was confirmed takes the place of whatever waited in a block before it."""
        _add(self._journal, attempt, ended.state, ended.more)
        attempt.state, attempt.ending = ended.state, ended.more
        if ended.state == "confirmed":
            why = f"{attempt.subject} came before it was looked at again"
            for other in self._chain.attempt.read(self._journal.entries):
                if other.in_block and other.number < attempt.number and other.owner == attempt.owner:
                    _add(self._journal, other, "superseded", {"why": why})


def _add(journal: Journal, attempt: ChainAttempt, state: str, more: dict[str, Any]) -> None:
    about = {"state": state, "attempt": attempt.number, "subject": attempt.subject, "plan": attempt.plan}
    journal.add(stamped(about | more))


def _waiting(attempt: ChainAttempt, why: str) -> Outcome:
    """What is known of an attempt when there is no more time to wait."""
    if attempt.transaction in attempt.sent and not why:
        return Sent(attempt.transaction)
    return Unknown(f"{why or 'no node has taken it yet'}; do this again to see it through", attempt.transaction)
