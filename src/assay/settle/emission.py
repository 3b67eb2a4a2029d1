"""The emission split: the weights of several competitions on one subnet, joined by participant. SPEC 4, Emission split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput
from assay.exact import NANO, apportion, digest, share_text, text
from assay.scheme.model import Reward
from assay.scheme.subnet import SubnetFile
from assay.settle.reward import Shares, encode

if TYPE_CHECKING:
    from assay.records import Pulled
    from assay.settle.settlement import Settlement

__all__ = ["CompetitionPart", "Emission", "SplitInput", "SubnetWeight", "joined", "labels", "split", "split_input"]

SCHEMA = "assay.emission/1"


@dataclass(frozen=True)
class SplitInput:
    """The part of a settlement that a split needs: keys, uids and final shares run in parallel, in ranking order. SPEC 4.

    took_part: whether any participant has a share by the strategy. listed: key and uid of every participant in the registry, with
    or without an agreed score. receipt, log: the digest of its receipt, and the public key of the log that has the receipt.
    pulled: the block of the chain at which its uids were read; None if they do not come from a chain.
    """

    name: str
    epoch: int
    digest: str
    reward: Reward
    participants: Sequence[str]
    uids: Sequence[int | None]
    shares: Shares
    took_part: bool = True
    listed: Sequence[tuple[str, int | None]] = ()
    receipt: str | None = None
    log: str | None = None
    pulled: Pulled | None = None


@dataclass(frozen=True, slots=True)
class CompetitionPart:
    """A competition's part of the subnet: α_c (nanos), E_c (rao; None if the emission is not known), and its digests.

    received: its exact part after unearned parts went to the others; None if these burn. block: the block at which its uids were
    pulled from a chain; the receipt has it, the document does not.
    """

    name: str
    share: int
    emission: int | None
    settlement: str
    receipt: str | None = None
    log: str | None = None
    received: Fraction | None = None
    block: int | None = None

    @property
    def document(self) -> dict[str, Any]:
        """The part as a row of the split's document."""
        emission = None if self.emission is None else str(self.emission)
        row = {"name": self.name, "share": text(self.share), "emission": emission, "settlement": self.settlement}
        return row if self.received is None else row | {"received": share_text(self.received)}


@dataclass(frozen=True, slots=True)
class SubnetWeight:
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
    competitions: tuple[CompetitionPart, ...]
    unclaimed: int | None
    """Rao that no competition claims; they burn."""
    rows: tuple[SubnetWeight, ...]
    burn: SubnetWeight
    """The burn UID's row; its participant is ""."""

    @cached_property
    def document(self) -> dict[str, Any]:
        """The split as the JSON document of schema `assay.emission/1`, digest included. SPEC 7."""
        content = {
            "schema": SCHEMA,
            "epoch": self.epoch,
            "competitions": [part.document for part in self.competitions],
            "weights": [{"participant": row.participant, **_weight(row)} for row in self.rows],
            "burn": _weight(self.burn),
        }
        if self.receipts:
            content["receipts"] = self.receipts
        return content | {"digest": digest(content)}

    @property
    def receipts(self) -> list[dict[str, Any]]:
        """Of each competition that has one: its name, the epoch, the receipt's digest, and its log's public key. SPEC 6."""
        return [
            {"competition": part.name, "epoch": self.epoch, "digest": part.receipt, "log": part.log}
            for part in self.competitions
            if part.receipt is not None
        ]

    @property
    def digest(self) -> str:
        """`sha256:…` over the canonical JSON of the document without its `digest`. SPEC 6."""
        digest: str = self.document["digest"]
        return digest


def _weight(row: SubnetWeight) -> dict[str, Any]:
    return {"uid": row.uid, "share": share_text(row.share), "u16": row.u16, "chain_u16": row.chain_u16}


def split_input(settlement: Settlement, receipt: str | None = None, log: str | None = None) -> SplitInput:
    """The input of a split: a settlement with its receipt and log; `split` refuses one without weights. SPEC 4."""
    allotment, scheme = settlement.allotment, settlement.inputs.scheme
    participants = settlement.inputs.participants
    return SplitInput(
        name=scheme.name,
        epoch=settlement.epoch,
        digest=settlement.digest,
        reward=scheme.reward,
        participants=settlement.ranking,
        uids=[participants[column].uid for column in settlement.order],
        shares=Shares([0] * len(settlement.order), 1) if allotment is None else allotment.share,
        took_part=allotment is not None and any(allotment.strategy.parts),
        listed=[(participant.key, participant.uid) for participant in participants],
        receipt=receipt,
        log=log,
        pulled=settlement.inputs.registry,
    )


def split(subnet: SubnetFile, settled: Sequence[SplitInput]) -> Emission:
    """The subnet's weights from its competitions' settlements, one for each in the order of the file. SPEC 4, Emission split.

    Raises BadInput for a competition without weights, a competition listed twice, different epochs, and uids in conflict, also of
    participants without an agreed score: they may have one in the next epoch. Raises ValueError if there is not one settlement
    for each competition.
    """
    if len(settled) != len(subnet.competitions):
        raise ValueError("one settlement for each competition of the subnet file")
    names = labels(subnet, [entry.name for entry in settled])
    for name, entry in zip(names, settled, strict=True):
        _check_rules(name, entry.reward)
    _check_once(names, settled)
    _check_blocks(names, settled)
    epoch = _epoch(names, settled)
    ranked = [list(zip(entry.participants, entry.uids, strict=True)) for entry in settled]
    uids = joined(list(zip(names, ranked, strict=True)), subnet.burn_uid)
    joined(list(zip(names, [entry.listed for entry in settled], strict=True)), subnet.burn_uid)
    claims, whole = _claims(subnet, settled)
    parts, denominator = _summed(claims, whole, settled, uids)
    burn = denominator - sum(parts)
    encoded = encode(parts, burn, denominator, subnet.encoding)
    emissions: list[int | None] = [None] * (len(claims) + 1)
    if subnet.emission is not None:
        emissions = [*apportion(subnet.emission, [*claims, whole - sum(claims)], whole)]
    return Emission(
        epoch=epoch,
        competitions=tuple(
            CompetitionPart(
                entry.name,
                member.share,
                rao,
                entry.digest,
                entry.receipt,
                entry.log,
                Fraction(claim, whole) if subnet.unearned == "others" else None,
                None if entry.pulled is None else entry.pulled.block,
            )
            for entry, member, claim, rao in zip(settled, subnet.competitions, claims, emissions[:-1], strict=True)
        ),
        unclaimed=emissions[-1],
        rows=tuple(
            SubnetWeight(key, uid, Fraction(part, denominator), u16, chain)
            for (key, uid), part, u16, chain in zip(uids.items(), parts, encoded.u16, encoded.chain_u16, strict=True)
        ),
        burn=SubnetWeight("", subnet.burn_uid, Fraction(burn, denominator), encoded.burn_u16, encoded.burn_chain_u16),
    )


def labels(subnet: SubnetFile, names: Sequence[str]) -> list[str]:
    """The name of each competition in messages: that of its scheme, with the folder if several schemes have that name."""
    paths = [member.path for member in subnet.competitions]
    return [
        f"{name} in {path}" if names.count(name) > 1 and path != name else name for name, path in zip(names, paths, strict=True)
    ]


def _check_rules(name: str, reward: Reward) -> None:
    if reward.kind != "weights":
        into = "payouts" if reward.kind == "payout" else "a ranking"
        raise BadInput(
            f"the competition {name!r} settles into {into}, so it has no weights to join",
            field="competitions",
            hint='leave it out of the subnet file, or give it [reward] kind = "weights"',
        )
    if reward.excess == "drop":
        raise BadInput(
            f'the competition {name!r} has excess = "drop", which leaves a part that belongs to nobody',
            field="competitions",
            hint='set excess = "burn" or "redistribute" in its scheme',
        )


def _check_once(names: Sequence[str], settled: Sequence[SplitInput]) -> None:
    """Refuse a log or a receipt that two competitions have: one of them is a copy of the other."""
    for what in ("log", "receipt"):
        first: dict[str, str] = {}
        for name, entry in zip(names, settled, strict=True):
            value: str | None = getattr(entry, what)
            if value is not None and value in first:
                raise BadInput(
                    f"the competitions {first[value]!r} and {name!r} have one {what}, {value}",
                    field="competitions",
                    hint="list each competition once, and give each a log of its own name",
                )
            first |= {} if value is None else {value: name}


def _check_blocks(names: Sequence[str], settled: Sequence[SplitInput]) -> None:
    """Refuse uids of two subnets, and uids that differ from those at the newest block of all competitions. SPEC 8."""
    pulled = [
        (name, entry.pulled, dict(entry.listed)) for name, entry in zip(names, settled, strict=True) if entry.pulled is not None
    ]
    if not pulled:
        return
    newest, latest, latest_uids = max(pulled, key=lambda entry: entry[1].block)
    hint = "`assay registry pull SUBNET.toml --to NAME` pulls all at one block; then settle: an epoch that has a receipt stays"
    for name, block, uids in pulled:
        if (block.chain, block.netuid) != (latest.chain, latest.netuid):
            here, other = (f"subnet {entry.netuid} of the chain {entry.chain}" for entry in (block, latest))
            raise BadInput(f"{name!r} has uids of {here}, but {newest!r} has uids of {other}", field="competitions", hint=hint)
        for key, uid in uids.items():
            if block.block != latest.block and uid is not None and latest_uids.get(key) != uid:
                now = "no uid" if latest_uids.get(key) is None else f"uid {latest_uids[key]}"
                older = f"{name!r} has an older registry, of block {block.block}, than {newest!r}, of block {latest.block}"
                raise BadInput(f"{older}: {key!r} had uid {uid}, and has {now} since", field="competitions", hint=hint)


def _epoch(names: Sequence[str], settled: Sequence[SplitInput]) -> int:
    first = settled[0]
    for name, entry in zip(names, settled, strict=True):
        if entry.epoch != first.epoch:
            raise BadInput(
                f"the competitions settle different epochs: {names[0]!r} {first.epoch}, {name!r} {entry.epoch}",
                field="competitions",
                hint="name the epoch with --epoch",
            )
    return first.epoch


def joined(competitions: Sequence[tuple[str, Sequence[tuple[str, int | None]]]], burn_uid: int) -> dict[str, int | None]:
    """Participant → uid over competitions (name, keys with their uids), by first appearance. SPEC 4, 8.

    Raises BadInput for conflicts: a key with another uid, or with one and without, in two of them; a uid of two keys.
    """
    uids: dict[str, int | None] = {}
    holder: dict[int, str] = {}
    for name, rows in competitions:
        for key, uid in rows:
            known = uids.setdefault(key, uid)
            if known != uid:
                here, there = ("no uid" if number is None else f"uid {number}" for number in (uid, known))
                raise _conflict(name, f"the participant {key!r} has {here} here and {there} in an earlier competition")
            if uid is None:
                continue
            if holder.setdefault(uid, key) != key:
                raise _conflict(name, f"the uid {uid} belongs to {key!r} here and to {holder[uid]!r} elsewhere")
            if uid == burn_uid:
                raise _conflict(name, f"the participant {key!r} has uid {uid}, which is the subnet's burn UID")
    return uids


def _conflict(name: str, what: str) -> BadInput:
    return BadInput(
        f"{what} (competition {name!r})",
        field="uid",
        hint="give each key one uid in participants.csv of all competitions: `assay registry pull SUBNET.toml` does",
    )


def _claims(subnet: SubnetFile, settled: Sequence[SplitInput]) -> tuple[list[int], int]:
    """The part of the emission that each competition divides, over a common denominator. SPEC 4, `unearned`.

    With `unearned = "others"`, the part of a competition in which no participant took part goes to the other competitions in
    proportion to α. If there is no other competition to take it, it burns.
    """
    claimed = [member.share for member in subnet.competitions]
    earned = sum(share for share, entry in zip(claimed, settled, strict=True) if entry.took_part)
    if subnet.unearned == "burn" or not earned:
        return claimed, NANO
    total = sum(claimed)
    return [share * total if entry.took_part else 0 for share, entry in zip(claimed, settled, strict=True)], NANO * earned


def _summed(
    claims: Sequence[int], whole: int, settled: Sequence[SplitInput], uids: dict[str, int | None]
) -> tuple[list[int], int]:
    """Σ α_c·w_c of every participant in the order of `uids`, as parts of a common denominator; α_c is claim / whole."""
    common = gcd(whole, *claims)
    denominator = lcm(*(entry.shares.denominator for entry in settled))
    sums = dict.fromkeys(uids, 0)
    for claim, entry in zip(claims, settled, strict=True):
        times = claim // common * (denominator // entry.shares.denominator)
        for key, part in zip(entry.participants, entry.shares.parts, strict=True):
            sums[key] += part * times
    return list(sums.values()), denominator * (whole // common)
