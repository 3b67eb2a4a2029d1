"""Sends a transaction to any chain exactly once, and follows it until the chain has it.

A publisher decides what to send. A `Chain` signs it and looks for it on its chain. The `Sender` does the rest:

    plan      the signed transaction is written to the journal, on the disk, before any node gets it
    send      a node has it; after a crash the chain is asked about it before anything else is sent
    follow    the chain is asked until the attempt has ended, or waits in a block until the chain opens it
    confirm   the attempt succeeded; otherwise the publisher is asked again, and a new attempt begins

- Only one attempt is under way at a time. The next one begins when it has ended or waits in a block.
- An attempt that is under way comes first, even if it belongs to another plan. An attempt of another account or chain is never
  touched.
- If a chain does not answer, the outcome is `Unknown`. The same command, run again, continues there.
- Every line of the journal that belongs to an attempt has `state`, `attempt` (counted from 1), `subject` and `plan`. The line
  `planned` has everything that is needed to send the same bytes again.

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
"""The number of attempts that one command begins, if another transaction uses the nonce or an attempt expires."""
T = TypeVar("T")
AttemptT = TypeVar("AttemptT", bound="ChainAttempt")
Prepare = Callable[[], T | Outcome]
"""Looks at the chain, and returns what to send now, or the outcome if nothing is to be sent."""


@dataclass(frozen=True)
class SystemClock:
    """The time, which tests replace.

    poll: seconds between two looks at a chain. now: monotonic time. sleep: waits. wall: seconds since 1970.
    """

    poll: float = 1.0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    wall: Callable[[], float] = time.time


@dataclass
class ChainAttempt(ABC):
    """One attempt to send something. Each chain's own class adds the fields it needs to send the same bytes again.

    number: in the journal, from 1. sent: hashes that a node has accepted. state: of the last entry. ending: that entry.
    """

    ENDED: ClassVar[frozenset[str]] = frozenset({"confirmed", "failed", "lost"})
    """States after which nothing more happens to an attempt."""
    WAITS: ClassVar[frozenset[str]] = frozenset()
    """States in which an attempt is in a final block, and the chain opens it later."""

    number: int
    subject: str
    plan: str
    account: str
    sent: set[str] = field(default_factory=set, kw_only=True)
    state: str = field(default="planned", kw_only=True)
    ending: JournalEntry = field(default_factory=dict, kw_only=True)

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in self.ENDED

    @property
    def in_block(self) -> bool:
        """Whether it is in a final block, and waits until the chain opens it."""
        return self.state in self.WAITS

    @property
    @abstractmethod
    def transaction(self) -> str:
        """The hash of the transaction that was signed last."""

    @property
    def owner(self) -> tuple[object, ...]:
        """The account that sends, followed by whatever identifies the chain."""
        return (self.account,)

    @property
    def described(self) -> str:
        """The attempt as the subject of a sentence, for people."""
        return f"a transaction of {self.account}"

    def entry(self) -> JournalEntry:
        """The journal's entry `planned`."""
        about = {"attempt": self.number, "subject": self.subject, "plan": self.plan, "account": self.account}
        return {"state": "planned"} | about | self.content()

    def content(self) -> JournalEntry:
        """The fields of the chain's own class, as JSON. A class overrides this if its fields are not JSON."""
        own = [item.name for item in fields(self) if item.name not in _COMMON]
        return {name: getattr(self, name) for name in own}

    @classmethod
    def planned(cls: type[AttemptT], entry: JournalEntry) -> AttemptT:
        """The attempt of an entry `planned`. Raises KeyError if the entry belongs to another kind of target."""
        own = [item.name for item in fields(cls) if item.name not in _COMMON]
        about = (entry["attempt"], entry["subject"], entry["plan"], entry["account"])
        return cls(*about, **{name: entry[name] for name in own})

    def follow(self, entry: JournalEntry) -> None:
        """Update the attempt by a later entry about it."""
        state = entry["state"]
        if state == "sent":
            self.sent.add(entry["hash"])
        elif state in self.ENDED or state in self.WAITS:
            self.state, self.ending = state, entry

    @classmethod
    def read(cls: type[AttemptT], entries: Iterable[JournalEntry]) -> list[AttemptT]:
        """The attempts of a journal, in order. Raises BadInput if the journal belongs to another kind of target."""
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
    """The attempt that may or may not get into a block; there is at most one."""
    return next((attempt for attempt in attempts if not attempt.ended and not attempt.in_block), None)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is certain yet. why: the reason if it takes longer than usual."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt has ended, or waits in a block. more: the other fields of its journal entry.

    outcome: of the command; None if the attempt had no effect, so the publisher is asked again.
    """

    state: str
    outcome: Outcome | None
    more: dict[str, Any] = field(default_factory=dict)


Seen = Outcome | AttemptEnded | Waiting
"""The result of one look at an attempt. An outcome ends the command, and the attempt stays under way."""
Known = Outcome | tuple[AttemptT, AttemptEnded]
"""The state of a plan before anything is prepared: an outcome, or an earlier attempt with its end, to be written down."""


class Following(Generic[AttemptT, T]):
    """An attempt that is being followed, with the methods by which a chain writes to the journal.

    prepare: returns what would be sent now; None if the attempt belongs to another plan than the command's.
    """

    def __init__(self, attempt: AttemptT, prepare: Prepare[T] | None, journal: Journal, tell: Callable[[str], None]) -> None:
        self.attempt, self.prepare, self.tell = attempt, prepare, tell
        self._journal = journal

    def mark_sent(self) -> None:
        """Write down that a node has the transaction that was signed last; once for each hash."""
        attempt = self.attempt
        if attempt.transaction not in attempt.sent:
            self.add("sent", hash=attempt.transaction)
            attempt.sent.add(attempt.transaction)
            self.tell(f"sent {attempt.transaction}")

    def add(self, state: str, **more: Any) -> None:
        """Write an entry about the attempt to the journal, on the disk."""
        _add(self._journal, self.attempt, state, more)


class Chain(ABC, Generic[AttemptT, T]):
    """The part of sending that differs between chains. T: what is sent (a call). Every method may raise Unreachable.

    attempt: the chain's own class of attempts. account: the account that sends, as shown to people.
    """

    attempt: type[AttemptT]
    account: str

    @property
    @abstractmethod
    def owner(self) -> tuple[object, ...]:
        """See `ChainAttempt.owner`. Attempts with another owner are never touched."""

    def wrong(self) -> Outcome | None:
        """The reason why nothing may be sent there at all, such as a node of another chain. None if all is right."""
        return None

    def known(self, attempts: list[AttemptT], plan: str) -> Known[AttemptT] | None:
        """The outcome of a plan (its digest) that was sent before; None if it must be prepared."""
        return None

    @abstractmethod
    def sign(self, number: int, subject: str, plan: str, call: T, attempts: list[AttemptT]) -> AttemptT | Outcome:
        """A new signed attempt that no node has seen, or the outcome if there is none. attempts: all earlier ones."""

    @abstractmethod
    def follow(self, following: Following[AttemptT, T]) -> Callable[[], Seen]:
        """A function that looks at the attempt once, and hands it to a node if necessary. It is called until the attempt ends."""


class Sender(Generic[AttemptT, T]):
    """Sends to one target.

    tell: shows progress, one sentence at a time. wait_seconds: how long a command follows an attempt at most.
    """

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
        """Send what `prepare` returns, once, and follow it to its end, or as long as the command waits.

        `prepare` is asked again after every attempt that ended without effect. subject: what is sent, for people. plan: its
        digest. Raises BadInput and Overtaken; every failure of the network is an outcome.
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
            outcome = Refusal("nonce", what, "let only one program send, then run this command again")
        if not isinstance(outcome, Confirmed) or outcome.transaction is None:
            self._journal.note(subject, plan, outcome)
        return outcome

    def _step(self, subject: str, plan: str, prepare: Prepare[T]) -> Outcome | None:
        """Bring one attempt to its end: the one under way, otherwise a new one. None: look at the chain again, and start over."""
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
            return Refusal("under-way", what, "finish that one first, with its key and its fields in publish.toml")
        asked_for = (attempt.subject, attempt.plan) == (subject, plan)
        outcome = self._follow(attempt, prepare if asked_for else None)
        if asked_for:
            return outcome
        if attempt.ended or attempt.in_block or outcome is None:
            return None
        return Unknown(f"{attempt.subject} is under way, and comes first: {document(outcome).get('what', outcome.state)}")

    def _known(self, attempts: list[AttemptT], plan: str) -> Outcome | None:
        """The outcome of the plan, if it was sent before. The end of an attempt that is new is written down."""
        known = self._chain.known(attempts, plan)
        if not isinstance(known, tuple):
            return known
        attempt, ended = known
        self._end(attempt, ended)
        return ended.outcome

    def _begin(self, subject: str, plan: str, prepare: Prepare[T], attempts: list[AttemptT]) -> AttemptT | Outcome:
        """A new attempt, written to the journal, or the outcome if there is none."""
        call = prepare()
        if isinstance(call, Outcome):
            return call
        attempt = self._chain.sign(len(attempts) + 1, subject, plan, call, attempts)
        if isinstance(attempt, ChainAttempt):
            self._journal.add(stamped(attempt.entry()))
        return attempt

    def _follow(self, attempt: AttemptT, prepare: Prepare[T] | None) -> Outcome | None:
        """The attempt's outcome, or what is known of it when time is up; None if it ended without effect."""
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
        """Write down how an attempt ended. A confirmed one supersedes every earlier one that still waits in a block."""
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
    """The outcome of an attempt when there is no more time to wait."""
    if attempt.transaction in attempt.sent and not why:
        return Sent(attempt.transaction)
    return Unknown(f"{why or 'no node has accepted it yet'}; run this command again to continue", attempt.transaction)
