"""What a target's journal says of transactions: which are under way, which have ended and how.

Entries, each with `state`, `subject` (what it is about), `plan` (the digest of what is sent) and `at` (when):

    planned     attempt (counted from 1), account, chain_id, nonce, to, value, data, gas, and a first transaction
    replaced    attempt, and another transaction with the same nonce, of which a chain can take one only
    sent        attempt, hash: a node has it
    confirmed   attempt, hash, block, block_hash: ended, as deep as was asked for
    reverted    attempt, hash, block, why: ended; it is in a block, and did nothing
    lost        attempt, why: ended; its nonce was used by something else
    dropped     attempt, why: ended; no node has it, and the contract would refuse it now
    unknown, refused, too-early, confirmed without an attempt: what a command ended with; with one, what reading back came to

A transaction is hash, raw (as it was signed), max_fee, max_tip.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from assay.publish.evm.fees import Fees
from assay.publish.journal import of_another_kind

__all__ = ["ENDED", "Attempt", "Signed", "attempts", "under_way"]

ENDED = frozenset({"confirmed", "reverted", "lost", "dropped"})


@dataclass(frozen=True, slots=True)
class Signed:
    """A signed transaction: its hash, its bytes, what it offers."""

    hash: str
    raw: bytes = field(repr=False)
    fees: Fees

    def entry(self) -> dict[str, Any]:
        """As the journal has it."""
        fees = {"max_fee": str(self.fees.most), "max_tip": str(self.fees.tip)}
        return {"hash": self.hash, "raw": f"0x{self.raw.hex()}"} | fees


@dataclass
class Attempt:
    """One thing that was sent, or was about to be: transactions with one nonce, of which a chain can take one."""

    number: int
    subject: str
    plan: str
    account: str
    chain_id: int
    nonce: int
    to: str | None
    value: int
    data: bytes
    gas: int
    transactions: list[Signed]
    sent: set[str] = field(default_factory=set)
    state: str = "planned"
    ending: dict[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether nothing will come of it any more that has not come."""
        return self.state in ENDED

    def entry(self) -> dict[str, Any]:
        """The entry that plans it."""
        return {
            "state": "planned",
            "attempt": self.number,
            "subject": self.subject,
            "plan": self.plan,
            "account": self.account,
            "chain_id": self.chain_id,
            "nonce": self.nonce,
            "to": self.to,
            "value": str(self.value),
            "data": f"0x{self.data.hex()}",
            "gas": self.gas,
        } | self.transactions[0].entry()


def attempts(entries: Iterable[dict[str, Any]]) -> list[Attempt]:
    """The attempts of a journal, in order; raises BadInput if it is of another kind of target."""
    found: dict[int, Attempt] = {}
    for entry in entries:
        number = entry.get("attempt")
        if entry["state"] == "planned" and number is not None:
            try:
                found[number] = _planned(entry)
            except KeyError:
                raise of_another_kind(entry) from None
        elif number in found:
            one = found[number]
            if entry["state"] == "replaced":
                one.transactions.append(_signed(entry))
            elif entry["state"] == "sent":
                one.sent.add(entry["hash"])
            elif entry["state"] in ENDED:
                one.state, one.ending = entry["state"], entry
    return list(found.values())


def under_way(entries: Iterable[dict[str, Any]]) -> Attempt | None:
    """The attempt that has not ended: there is one at most, since a next one begins after the one before."""
    return next((one for one in attempts(entries) if not one.ended), None)


def _planned(entry: dict[str, Any]) -> Attempt:
    return Attempt(
        entry["attempt"],
        entry["subject"],
        entry["plan"],
        entry["account"],
        entry["chain_id"],
        entry["nonce"],
        entry["to"],
        int(entry["value"]),
        bytes.fromhex(entry["data"][2:]),
        entry["gas"],
        [_signed(entry)],
    )


def _signed(entry: dict[str, Any]) -> Signed:
    fees = Fees(int(entry["max_fee"]), int(entry["max_tip"]))
    return Signed(entry["hash"], bytes.fromhex(entry["raw"][2:]), fees)
