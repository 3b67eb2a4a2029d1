"""What became of publishing: one of these, and each says what to do next.

Planned      would be sent: nothing was
Sent         the chain was given it, and does not have it yet
Confirmed    the chain has it, as deep as was asked for, and it was read back
TooEarly     the chain does not take it yet: not a failure
Refusal      it will not be taken as it is; `code` says why
Unknown      it cannot be said yet whether the chain has it; asked again, it is found out before anything else is sent
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

__all__ = ["Confirmed", "Outcome", "Planned", "Refusal", "Sent", "TooEarly", "Unknown", "document"]


@dataclass(frozen=True, slots=True)
class Planned:
    """Nothing was sent. `ok` of each: whether nobody has to do anything about it."""

    state: ClassVar[str] = "planned"
    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Sent:
    """The chain was given a transaction, and what it comes to is not certain yet: asked again, it is seen through.

    opens: it is in the chain, locked, and this is about the block in which the chain opens it. Until then all is well.
    """

    state: ClassVar[str] = "sent"
    transaction: str
    opens: int | None = None

    @property
    def ok(self) -> bool:
        """Whether nobody has to do anything about it."""
        return self.opens is not None


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The chain has it: in this block, by this transaction of ours, or, where that is None, by somebody else's."""

    state: ClassVar[str] = "confirmed"
    ok: ClassVar[bool] = True
    block: int
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class TooEarly:
    """It may be sent from then on: a time in seconds since 1970, or a block."""

    state: ClassVar[str] = "too-early"
    ok: ClassVar[bool] = True
    at: int
    unit: Literal["time", "block"]
    what: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """It will not be taken: a code for programs, why, and what to do."""

    state: ClassVar[str] = "refused"
    ok: ClassVar[bool] = False
    code: str
    what: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It is not known yet."""

    state: ClassVar[str] = "unknown"
    ok: ClassVar[bool] = False
    what: str
    transaction: str | None = None


Outcome = Planned | Sent | Confirmed | TooEarly | Refusal | Unknown


def document(outcome: Outcome) -> dict[str, Any]:
    """The outcome as JSON: its state, and what it says."""
    return {"state": outcome.state} | {name: value for name, value in asdict(outcome).items() if value not in (None, "")}
