"""Several competitions on one subnet: their weights joined by participant, the emission split. SPEC 4, Emission split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput
from assay.exact import NANO, apportion, digest, half_even, text
from assay.scheme.model import Reward
from assay.scheme.subnet import Subnet
from assay.settle.encoding import encode
from assay.settle.shares import Shares

if TYPE_CHECKING:
    from assay.settle.settlement import Settlement

__all__ = ["Emission", "Part", "Row", "Settled", "join", "joined", "part", "split"]

SCHEMA = "assay.emission/1"


@dataclass(frozen=True)
class Settled:
    """What the split takes from a settlement: keys, uids and final shares run in parallel, in ranking order. SPEC 4."""

    name: str
    epoch: int
    digest: str
    reward: Reward
    participants: Sequence[str]
    uids: Sequence[int | None]
    shares: Shares
    receipt: str | None = None
    """The digest of its receipt, where it has one."""


@dataclass(frozen=True, slots=True)
class Part:
    """A competition's part of the subnet: α_c (nanos), E_c (rao; None if the emission is not known), digests of what it is of."""

    name: str
    share: int
    emission: int | None
    settlement: str
    receipt: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A participant's share of the subnet, Σ α_c·w_c, exact, and its encodings. SPEC 4."""

    participant: str
    uid: int | None
    share: Fraction
    u16: int
    chain_u16: int


@dataclass(frozen=True)
class Emission:
    """The split of one epoch; rows by first appearance over the competitions in the order of the subnet file. SPEC 4, 7."""

    epoch: int
    competitions: tuple[Part, ...]
    unclaimed: int | None
    """Rao that no competition claims, which burn."""
    rows: tuple[Row, ...]
    burn: Row
    """The burn UID's row; its participant is ""."""

    @cached_property
    def document(self) -> dict[str, Any]:
        """The split as the JSON document of schema `assay.emission/1`, digest included. SPEC 7."""
        content = {
            "schema": SCHEMA,
            "epoch": self.epoch,
            "competitions": [
                {
                    "name": part.name,
                    "share": text(part.share),
                    "emission": None if part.emission is None else str(part.emission),
                    "settlement": part.settlement,
                }
                for part in self.competitions
            ],
            "weights": [{"participant": row.participant, **_weight(row)} for row in self.rows],
            "burn": _weight(self.burn),
        }
        if self.receipts:
            content["receipts"] = self.receipts
        return content | {"digest": digest(content)}

    @property
    def receipts(self) -> list[dict[str, Any]]:
        """Of each competition that has one: its name, the epoch, and the receipt's digest. SPEC 6."""
        return [
            {"competition": part.name, "epoch": self.epoch, "digest": part.receipt}
            for part in self.competitions
            if part.receipt is not None
        ]

    @property
    def digest(self) -> str:
        """`sha256:…` over the canonical JSON of the document without its `digest`. SPEC 6."""
        found: str = self.document["digest"]
        return found


def _weight(row: Row) -> dict[str, Any]:
    share = text(half_even(row.share.numerator * NANO, row.share.denominator))
    return {"uid": row.uid, "share": share, "u16": row.u16, "chain_u16": row.chain_u16}


def part(settlement: Settlement, receipt: str | None = None) -> Settled:
    """What the split takes from a settlement, and the digest of its receipt; `split` refuses one that pays out. SPEC 4."""
    allotment, scheme = settlement.allotment, settlement.inputs.scheme
    participants = settlement.inputs.participants
    return Settled(
        name=scheme.name,
        epoch=settlement.epoch,
        digest=settlement.digest,
        reward=scheme.reward,
        participants=settlement.ranking,
        uids=[participants[column].uid for column in settlement.order],
        shares=Shares([0] * len(settlement.order), 1) if allotment is None else allotment.share,
        receipt=receipt,
    )


def join(subnet: Subnet, settlements: Sequence[tuple[Settlement, str | None]]) -> Emission:
    """The split of settlements, each with the digest of its receipt if it has one; raises as `split` does. SPEC 4.

    Refused are also uids in conflict between the registries, agreed score or not: who has none may have one in the next epoch.
    """
    found = split(subnet, [part(one, receipt) for one, receipt in settlements])
    rows = [(one.inputs.scheme.name, one.inputs.participants) for one, _ in settlements]
    joined([(name, [one.key for one in people], [one.uid for one in people]) for name, people in rows], subnet.burn_uid)
    return found


def split(subnet: Subnet, settled: Sequence[Settled]) -> Emission:
    """The subnet's weights from its competitions' settlements, one for each in the order of the file. SPEC 4, Emission split.

    Raises BadInput for a competition that has no weights to join, epochs that differ, and uids in conflict; ValueError if
    the settlements are not as many as the competitions.
    """
    if len(settled) != len(subnet.competitions):
        raise ValueError("one settlement for each competition of the subnet file")
    for one in settled:
        _check_rules(one)
    epoch = _epoch(settled)
    uids = joined([(one.name, one.participants, one.uids) for one in settled], subnet.burn_uid)
    parts, denominator = _summed(subnet, settled, uids)
    burn = denominator - sum(parts)
    encoded = encode(parts, burn, denominator, subnet.encoding)
    claimed = [member.share for member in subnet.competitions]
    emissions: list[int | None] = [None] * (len(claimed) + 1)
    if subnet.emission is not None:
        emissions = [*apportion(subnet.emission, [*claimed, NANO - sum(claimed)], NANO)]
    return Emission(
        epoch=epoch,
        competitions=tuple(
            Part(one.name, share, rao, one.digest, one.receipt)
            for one, share, rao in zip(settled, claimed, emissions[:-1], strict=True)
        ),
        unclaimed=emissions[-1],
        rows=tuple(
            Row(key, uid, Fraction(part, denominator), u16, chain)
            for (key, uid), part, u16, chain in zip(uids.items(), parts, encoded.u16, encoded.chain_u16, strict=True)
        ),
        burn=Row("", subnet.burn_uid, Fraction(burn, denominator), encoded.burn_u16, encoded.burn_chain_u16),
    )


def _check_rules(one: Settled) -> None:
    if one.reward.kind == "payout":
        raise BadInput(
            f"the competition {one.name!r} settles into payouts, so it has no weights to join",
            field="competitions",
            hint='leave it out of the subnet file, or give it [reward] kind = "weights"',
        )
    if one.reward.excess == "drop":
        raise BadInput(
            f'the competition {one.name!r} has excess = "drop", which leaves a part that belongs to nobody',
            field="competitions",
            hint='set excess = "burn" or "redistribute" in its scheme',
        )


def _epoch(settled: Sequence[Settled]) -> int:
    first = settled[0]
    for one in settled[1:]:
        if one.epoch != first.epoch:
            raise BadInput(
                f"the competitions settle different epochs: {first.name!r} {first.epoch}, {one.name!r} {one.epoch}",
                field="competitions",
                hint="name the epoch with --epoch",
            )
    return first.epoch


def joined(competitions: Sequence[tuple[str, Sequence[str], Sequence[int | None]]], burn_uid: int) -> dict[str, int | None]:
    """Participant → uid over competitions (name, keys, their uids), by first appearance; raises BadInput for conflicts. SPEC 4.

    One without a uid in one competition and with one in another has the uid.
    """
    uids: dict[str, int | None] = {}
    holder: dict[int, str] = {}
    for one, keys, numbers in competitions:
        for key, uid in zip(keys, numbers, strict=True):
            known = uids.setdefault(key, uid)
            if uid is None:
                continue
            if known is None:
                uids[key] = uid
            elif known != uid:
                raise _conflict(one, f"the participant {key!r} has uid {uid} here and {known} in an earlier competition")
            if holder.setdefault(uid, key) != key:
                raise _conflict(one, f"the uid {uid} belongs to {key!r} here and to {holder[uid]!r} elsewhere")
            if uid == burn_uid:
                raise _conflict(one, f"the participant {key!r} has uid {uid}, which is the subnet's burn UID")
    return uids


def _conflict(name: str, what: str) -> BadInput:
    return BadInput(
        f"{what} (competition {name!r})",
        field="uid",
        hint="correct participants.csv of the competitions, so that each key has one uid on the subnet",
    )


def _summed(subnet: Subnet, settled: Sequence[Settled], uids: dict[str, int | None]) -> tuple[list[int], int]:
    """Σ α_c·w_c of every participant in the order of `uids`, as parts of a common denominator."""
    common = gcd(NANO, *(member.share for member in subnet.competitions))
    denominator = lcm(*(one.shares.denominator for one in settled))
    sums = dict.fromkeys(uids, 0)
    for member, one in zip(subnet.competitions, settled, strict=True):
        times = member.share // common * (denominator // one.shares.denominator)
        for key, part in zip(one.participants, one.shares.parts, strict=True):
            sums[key] += part * times
    return list(sums.values()), denominator * (NANO // common)
