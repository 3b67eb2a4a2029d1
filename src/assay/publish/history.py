"""What a target's journal comes to: about each thing that was sent there, what was tried, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from assay.publish.journal import Entry
from assay.publish.publishers import EPOCH

__all__ = ["Tried", "history", "last_published"]


@dataclass
class Tried:
    """One thing: `states` in order, each once in a row; the first entry about it, and the last."""

    subject: str
    first: Entry
    last: Entry
    states: list[str] = field(default_factory=list)

    @property
    def epoch(self) -> int | None:
        """Which epoch it is, if it is one."""
        number = self.subject.removeprefix(EPOCH)
        return int(number) if number != self.subject and number.isdecimal() else None

    @property
    def state(self) -> str:
        """What became of it."""
        return self.states[-1]

    @property
    def transaction(self) -> str:
        """The transaction that the last entry is about; empty if it is about none."""
        return str(self.last.get("hash") or self.last.get("transaction") or "")

    @property
    def why(self) -> str:
        """What the last entry says of a reason."""
        return str(self.last.get("what") or self.last.get("why") or "")

    def document(self) -> dict[str, Any]:
        """As JSON: the last entry, and how it came there."""
        last = {name: value for name, value in self.last.items() if name != "raw"}
        return last | {"subject": self.subject, "states": self.states, "since": self.first.get("at")}


def history(entries: Iterable[Entry]) -> list[Tried]:
    """By subject and plan (two claims are one subject), in the order in which they were begun.

    What a command ended with, which is of no attempt, takes nothing away from what the chain has: its node was away, say.
    """
    found: dict[tuple[str, str], Tried] = {}
    for entry in entries:
        subject, plan, state = (str(entry.get(name, "")) for name in ("subject", "plan", "state"))
        one = found.setdefault((subject, plan), Tried(subject, entry, entry))
        if one.states[-1:] == ["confirmed"] and entry.get("attempt") is None:
            continue
        one.last = entry
        if one.states[-1:] != [state]:
            one.states.append(state)
    return list(found.values())


def last_published(tried: Iterable[Tried]) -> int | None:
    """The last epoch that the chain has."""
    return max((one.epoch for one in tried if one.epoch is not None and one.state == "confirmed"), default=None)
