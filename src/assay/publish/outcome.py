"""The possible outcomes of publishing.

Planned      it would be sent; nothing was sent
Sent         a node accepted it, and it is not certain yet
Confirmed    the chain has it, as deep as required, and it was read back
TooEarly     the chain does not accept it yet; this is not a failure
Refusal      the chain will not accept it as it is; `code` says why
Unknown      it is not known yet whether the chain has it; the next command finds out before it sends anything
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

__all__ = ["Confirmed", "Outcome", "Planned", "Refusal", "Sent", "TooEarly", "Unknown", "document"]


@dataclass(frozen=True, slots=True)
class Planned:
    """It would be sent; nothing was sent. `ok` of every outcome: True if nobody has to act."""

    state: ClassVar[str] = "planned"
    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Sent:
    """A node accepted a transaction whose outcome is not certain yet. The same command again follows it to its end.

    opens: about which block the chain opens a commitment that it has; None if the transaction is not a commitment.
    """

    state: ClassVar[str] = "sent"
    transaction: str
    opens: int | None = None

    @property
    def ok(self) -> bool:
        """Whether nobody has to act: a commitment only waits for its block."""
        return self.opens is not None


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The chain has it, in this block, by this transaction of ours; None if another's transaction put it there."""

    state: ClassVar[str] = "confirmed"
    ok: ClassVar[bool] = True
    block: int
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class TooEarly:
    """It may be sent from `at` on: a time in seconds since 1970, or a block."""

    state: ClassVar[str] = "too-early"
    ok: ClassVar[bool] = True
    at: int
    unit: Literal["time", "block"]
    what: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """It will not be accepted: a code for programs, the reason, and what to do."""

    state: ClassVar[str] = "refused"
    ok: ClassVar[bool] = False
    code: str
    what: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It is not known yet whether the chain has it."""

    state: ClassVar[str] = "unknown"
    ok: ClassVar[bool] = False
    what: str
    transaction: str | None = None


Outcome = Planned | Sent | Confirmed | TooEarly | Refusal | Unknown


def document(outcome: Outcome) -> dict[str, Any]:
    """The outcome as JSON: its state and its fields that have a value."""
    return {"state": outcome.state} | {name: value for name, value in asdict(outcome).items() if value not in (None, "")}


def moment(at: int, unit: str) -> str:
    """The time or block of an outcome, for people."""
    if unit != "time":
        return f"block {at}"
    try:
        return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):  # a contract may have any number there
        return f"second {at}"


def in_words(outcome: Outcome) -> str:
    """An outcome in words, without what to do, because the watch itself continues."""
    match outcome:
        case Planned():
            return "it would be sent; --yes sends it"
        case Confirmed(block, transaction):
            return f"the chain has it, in block {block}" + (f", by {transaction}" if transaction else ", or before it")
        case Sent(transaction, opens) if opens is not None:
            return f"the chain has it, locked, by {transaction}, and opens it about block {opens}"
        case Sent(transaction):
            return f"sent as {transaction}, but not deep enough in the chain yet"
        case TooEarly(at, unit, what):
            return f"too early: {what}; from {moment(at, unit)} on"
        case Refusal(code, what, hint):
            return f"refused ({code}): {what}" + (f"; {hint}" if hint else "")
    return f"not known yet: {outcome.what}"
