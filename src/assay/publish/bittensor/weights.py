"""From exact shares to the weights that the chain is sent: u16, the largest 65535, zeros left out. SPEC 4, Encoding.

A share is its participant's only as long as the uid is: a uid that has another hotkey now, or none, would pay a stranger. So what
has changed hands burns, and everything is encoded anew from the shares, since the largest may be another then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

from assay.errors import BadInput
from assay.publish.bittensor.subnet import Subnet
from assay.publish.bittensor.wallet import respelled
from assay.publish.settled import Shares
from assay.settle.encoding import encode

__all__ = ["Vector", "content", "moved", "of_content", "pulled_at", "strangers", "vector"]


@dataclass(frozen=True)
class Vector:
    """What is sent: uids ascending, and the weight of each. burns: whether some of it goes to the burn UID."""

    uids: tuple[int, ...]
    values: tuple[int, ...]
    burns: bool

    @property
    def by_uid(self) -> dict[int, int]:
        """As the chain keeps it."""
        return dict(zip(self.uids, self.values, strict=True))


def vector(shares: Shares, without: Sequence[str] = ()) -> Vector:
    """The weights of all but some participants, whose shares burn; raises BadInput where there is nothing to send. SPEC 4."""
    burn = shares.burn + sum((share for key, _, share in shares.rows if key in without), Fraction(0))
    rows = [(uid, share) for key, uid, share in shares.rows if key not in without]
    if not burn and not rows:
        raise BadInput("nobody has a weight, and nothing burns", hint='with excess = "drop", let somebody keep something')
    denominator = lcm(burn.denominator, *(share.denominator for _, share in rows))
    parts = [share.numerator * (denominator // share.denominator) for _, share in rows]
    encoded = encode(parts, burn.numerator * (denominator // burn.denominator), denominator, "max-upscale")
    pairs = sorted([*zip((uid for uid, _ in rows), encoded.chain_u16, strict=True), (shares.burn_uid, encoded.burn_chain_u16)])
    found = [(uid, value) for uid, value in pairs if value]
    return Vector(tuple(uid for uid, _ in found), tuple(value for _, value in found), encoded.burn_chain_u16 > 0)


def moved(shares: Shares, subnet: Subnet) -> dict[str, str]:
    """Participants whose uid is not theirs on the chain, and why: since it was settled it has changed hands, or is gone."""
    found = {}
    for key, uid, _ in shares.rows:
        there, hotkey = subnet.by_uid.get(uid), respelled(key)
        if there is not None and there.hotkey == hotkey:
            continue
        why = f"uid {uid} is not on the subnet" if there is None else f"uid {uid} has the hotkey {there.hotkey} now"
        own = subnet.by_hotkey.get(hotkey)
        found[key] = why if own is None else f"{why}, and this one has uid {own.uid}"
    return found


def strangers(registries: Sequence[Mapping[str, Any]], where: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON, those of the registries that are of another chain, subnet or mechanism than where it is sent."""
    found = [{name: one[name] for name in where} for one in registries]
    return {"registries": others} if (others := [one for one in found if one != dict(where)]) else {}


def pulled_at(registries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """As JSON, the newest block that the uids are of; nothing where no registry was pulled."""
    return {"pulled_at": max(one["block"] for one in registries)} if registries else {}


def content(shares: Shares) -> dict[str, Any]:
    """The shares as JSON, and what they come to if no uid has changed hands."""
    values = vector(shares).by_uid
    return {
        "weights": [
            {"participant": key, "uid": uid, "share": str(share), "chain_u16": values.get(uid, 0)}
            for key, uid, share in shares.rows
        ],
        "burn": {"uid": shares.burn_uid, "share": str(shares.burn), "chain_u16": values.get(shares.burn_uid, 0)},
    }


def of_content(said: dict[str, Any]) -> Shares:
    """The shares in that."""
    rows = tuple((row["participant"], row["uid"], Fraction(row["share"])) for row in said["weights"])
    return Shares(rows, Fraction(said["burn"]["share"]), said["burn"]["uid"])
