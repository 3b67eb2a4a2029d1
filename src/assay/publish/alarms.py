"""Alarms, as a watch and the nodes raise them: what is wrong, since when it stands, and what began or is over.

Whoever raises alarms says at each look which ones stand, from facts alone. So an alarm goes away by itself when it is mended,
and nobody has to acknowledge it. It imports nothing heavy: a process that only waits uses it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from assay.errors import AssayError

__all__ = ["Alarm", "AlarmChange", "StandingAlarms", "what_and_hint"]


@dataclass(frozen=True, slots=True)
class Alarm:
    """A problem that needs a person: a code for programs, what is wrong, what to do.

    about: what it is about, where several alarms of a code may stand at once: a validator, a task, a target. An alarm of the same
    code about the same is the same alarm, even if its words change.
    """

    code: str
    what: str
    hint: str
    about: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the alarm from one look to the next."""
        return self.code, self.about

    @property
    def sentence(self) -> str:
        """The fault and the remedy, in one line."""
        return f"{self.what}; {self.hint}" if self.hint else self.what

    @property
    def document(self) -> dict[str, Any]:
        """The alarm, for programs."""
        return {"code": self.code, "about": self.about, "what": self.what, "hint": self.hint}


@dataclass(frozen=True)
class AlarmChange:
    """The change from one look to the next: alarms that began, and alarms that are over, each with the time since when."""

    begun: tuple[tuple[Alarm, float], ...] = ()
    over: tuple[tuple[Alarm, float], ...] = ()


@dataclass
class StandingAlarms:
    """The alarms that stand, each with the time since when (seconds since 1970), in the order in which they were given."""

    alarms: tuple[tuple[Alarm, float], ...] = ()

    def follow(self, alarms: Iterable[Alarm], now: float) -> AlarmChange:
        """Take what stands now, and return what began and what is over. An alarm that stood before keeps its time."""
        known = {alarm.key: since for alarm, since in self.alarms}
        rows = {alarm.key: alarm for alarm in alarms}
        over = tuple(row for row in self.alarms if row[0].key not in rows)
        self.alarms = tuple((alarm, known.get(key, now)) for key, alarm in rows.items())
        return AlarmChange(tuple(row for row in self.alarms if row[0].key not in known), over)


def what_and_hint(error: AssayError) -> tuple[str, str]:
    """Split an error into what is wrong, with its location, and what to do."""
    return str(error).removesuffix(f"; {error.hint}"), error.hint
