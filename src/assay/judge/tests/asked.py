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


LIMITS = ProxyLimits()
NAMED = 20
"""How many troubles are kept."""


@dataclass
class Seen:
    """What went through: for the record of the trial. `troubles` are the service's, never the agent's."""

    requests: int = 0
    refused: int = 0
    sent: int = 0
    received: int = 0
    troubles: list[str] = field(default_factory=list)

    def trouble(self, what: str) -> None:
        """Note a failure of the service; the first ones are kept in words."""
        if len(self.troubles) < NAMED:
            self.troubles.append(what)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "requests": self.requests,
            "refused": self.refused,
            "sent": self.sent,
            "received": self.received,
            "troubles": list(self.troubles),
        }
