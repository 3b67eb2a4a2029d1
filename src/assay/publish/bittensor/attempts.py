"""What a target's journal says of extrinsics: which are under way, which have ended and how.

Entries, each with `state`, `subject`, `plan` (the digest of what is published) and `at` (when):

    planned        attempt (counted from 1), epoch, account, chain, netuid, mechanism, kind (set, commit), uids, values, hash,
                   raw, nonce, birth, death; of a commitment reveal: about which block the chain opens it
    sent           attempt, hash: a node has it
    committed      attempt, hash, block, block_hash: a commitment is in a final block, and waits for the chain to open it
    confirmed      attempt, hash, block, block_hash: ended; the chain has the weights, read back at a final block
    failed         attempt, hash, block, why: ended; it is in a block, and did nothing
    expired        attempt, why: ended; the blocks that could have had it are final, and none has it
    lost           attempt, why: ended; its nonce was used by something else
    overwritten    attempt, hash, block, why: ended; it did what it should, and something else of the same hotkey has undone it
    reveal-failed  attempt, hash, block, why: ended; the chain has opened the commitment, or dropped it, and has not these weights
    superseded     attempt, why: ended; the weights of a later epoch came before it was looked at again
    unknown, refused, too-early, sent or confirmed without an attempt: what a command ended with
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.publish.bittensor.extrinsic import Signed
from assay.publish.journal import of_another_kind

__all__ = ["ENDED", "Attempt", "Kind", "Whose", "attempts", "under_way"]

ENDED = frozenset({"confirmed", "failed", "expired", "lost", "overwritten", "reveal-failed", "superseded"})
Kind = Literal["set", "commit"]
Whose = tuple[str, str, int, int]
"""Whose weights, and where: account, chain, netuid, mechanism."""


@dataclass
class Attempt:
    """One extrinsic that was sent, or was about to be."""

    number: int
    subject: str
    plan: str
    epoch: int
    account: str
    chain: str
    netuid: int
    mechanism: int
    kind: Kind
    uids: tuple[int, ...]
    values: tuple[int, ...]
    signed: Signed
    reveal: int | None = None
    sent: bool = False
    state: str = "planned"
    ending: dict[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether nothing will come of it any more that has not come."""
        return self.state in ENDED

    @property
    def in_block(self) -> bool:
        """Whether it is a commitment that is in the chain, and waits."""
        return self.state == "committed"

    @property
    def block(self) -> int:
        """The final block that has it; 0 where none does."""
        return int(self.ending.get("block", 0))

    @property
    def weights(self) -> dict[int, int]:
        """What the chain should have of it."""
        return dict(zip(self.uids, self.values, strict=True))

    @property
    def whose(self) -> Whose:
        """Whose weights it sets, and where."""
        return self.account, self.chain, self.netuid, self.mechanism

    def entry(self) -> dict[str, Any]:
        """The entry that plans it."""
        found: dict[str, Any] = {
            "state": "planned",
            "attempt": self.number,
            "subject": self.subject,
            "plan": self.plan,
            "epoch": self.epoch,
            "account": self.account,
            "chain": self.chain,
            "netuid": self.netuid,
            "mechanism": self.mechanism,
            "kind": self.kind,
            "uids": list(self.uids),
            "values": list(self.values),
            "hash": self.signed.hash,
            "raw": f"0x{self.signed.raw.hex()}",
            "nonce": self.signed.nonce,
            "birth": self.signed.birth,
            "death": self.signed.death,
        }
        return found if self.reveal is None else found | {"reveal": self.reveal}


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
            if entry["state"] == "sent":
                one.sent = True
            else:
                one.state, one.ending = entry["state"], entry
    return list(found.values())


def under_way(found: Iterable[Attempt]) -> Attempt | None:
    """The extrinsic of which it is not certain yet whether a block has it: there is one at most."""
    return next((one for one in found if not one.ended and not one.in_block), None)


def _planned(entry: dict[str, Any]) -> Attempt:
    raw = bytes.fromhex(entry["raw"][2:])
    return Attempt(
        number=entry["attempt"],
        subject=entry["subject"],
        plan=entry["plan"],
        epoch=entry["epoch"],
        account=entry["account"],
        chain=entry["chain"],
        netuid=entry["netuid"],
        mechanism=entry["mechanism"],
        kind=entry["kind"],
        uids=tuple(entry["uids"]),
        values=tuple(entry["values"]),
        signed=Signed(entry["hash"], raw, entry["nonce"], entry["birth"], entry["death"]),
        reveal=entry.get("reveal"),
    )
