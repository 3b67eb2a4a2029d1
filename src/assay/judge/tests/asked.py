"""What a trial's agent may ask of the model service, and what it did ask: for whoever has nothing to do with how it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["LIMITS", "ProxyLimits", "Seen"]


@dataclass(frozen=True)
class ProxyLimits:
    """What one trial may ask of the service."""

    requests: int = 10_000
    connections: int = 16
    """At one time."""
    request_bytes: int = 32_000_000
    """Of one request's body, as it comes in: what says how long its chunks are counts as well."""
    answer_bytes: int = 256_000_000
    """Of one answer's body."""
    total_bytes: int = 2_000_000_000
    """Of all that agents send, and of all answers' bodies."""
    seconds: float = 600.0
    """Without a byte, on either side."""
    whole: float = 3600.0
    """From the first byte of a request to the last of its answer, on the service's side."""
    pause: float = 1.0
    """Before a request that failed is asked again; doubled with each time, unless `Retry-After` says how long."""
    patience: float = 120.0
    """Of all such pauses."""
    again: int = 100
    """Requests that are asked again."""
    questions: int = 50
    """Questions of our own, by which it is seen whose a failure is."""
    question_seconds: float = 60.0
    """For one of them."""


LIMITS = ProxyLimits()
NAMED = 20
"""How many troubles are kept."""


@dataclass
class Seen:
    """What went through: for the record of the trial. `troubles` are the service's, never the agent's; `own` are the agent's."""

    requests: int = 0
    refused: int = 0
    sent: int = 0
    received: int = 0
    troubles: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    again: int = 0
    questions: int = 0

    def trouble(self, what: str) -> None:
        """Note a failure of the service; the first ones are kept in words."""
        if len(self.troubles) < NAMED:
            self.troubles.append(what)

    def to_blame(self, what: str) -> None:
        """Note a failure that the agent's request caused; the first ones are kept in words."""
        if len(self.own) < NAMED:
            self.own.append(what)

    def document(self) -> dict[str, Any]:
        """As JSON; what is seldom there is left out where it is not."""
        seldom = {"own": list(self.own), "again": self.again, "questions": self.questions}
        return {
            "requests": self.requests,
            "refused": self.refused,
            "sent": self.sent,
            "received": self.received,
            "troubles": list(self.troubles),
        } | {name: value for name, value in seldom.items() if value}
