"""From exact shares to the weights that the chain is sent, and the calls that set or commit them. SPEC 4, Encoding.

Weights are u16, the largest 65535, zeros left out. A share is its participant's only as long as the uid is: a uid that has
another hotkey now, or none, would pay a stranger. So what has changed hands burns, and everything is encoded anew from the
shares, since the largest may be another then.

Commitments (version 4) are opened by the chain itself: locked to a round of drand's beacon, which nobody has before its time. In
one are the hotkey, the uids, the weights and the version key. Which round it is follows from the subnet's schedule of epochs, all
of it read at one block, and from this machine's clock. One that is too early would show the weights too soon; one too late is not
there when the chain opens them, and then they are lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import Any

from assay.errors import BadInput
from assay.ledger.keys import PrivateKey, PublicKey
from assay.publish.bittensor.node import BlockId
from assay.publish.bittensor.refusals import older
from assay.publish.bittensor.runtime import core
from assay.publish.bittensor.settings import respelled
from assay.publish.bittensor.subnet import PALLET, SubnetState
from assay.publish.outcome import Refusal
from assay.publish.settled_epoch import EpochShares
from assay.settle.reward import encode


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


def vector(shares: EpochShares, without: Sequence[str] = ()) -> Vector:
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


def moved(shares: EpochShares, subnet: SubnetState) -> dict[str, str]:
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


def content(shares: EpochShares) -> dict[str, Any]:
    """The shares as JSON, and what they come to if no uid has changed hands."""
    values = vector(shares).by_uid
    return {
        "weights": [
            {"participant": key, "uid": uid, "share": str(share), "chain_u16": values.get(uid, 0)}
            for key, uid, share in shares.rows
        ],
        "burn": {"uid": shares.burn_uid, "share": str(shares.burn), "chain_u16": values.get(shares.burn_uid, 0)},
    }


def of_content(said: dict[str, Any]) -> EpochShares:
    """The shares in that."""
    rows = tuple((row["participant"], row["uid"], Fraction(row["share"])) for row in said["weights"])
    return EpochShares(rows, Fraction(said["burn"]["share"]), said["burn"]["uid"])


CLOCK_SECONDS = 120
"""How far this machine's clock may be from the chain's, whose newest block is some seconds old."""

REVEAL_EPOCHS = 300
"""Epochs till it is opened, at most: the library goes through them one by one."""
LATE = 3
"""Blocks after which the round comes: as the library reckons, so that the chain has its signature by then."""


@dataclass(frozen=True, slots=True)
class Commitment:
    """What is committed to: its bytes, the round that opens it, and about which block the chain does."""

    data: bytes
    round: int
    reveal: int


def commitment(
    subnet: SubnetState, hotkey: PublicKey, vector: Vector, version_key: int, *, chain: float, here: float
) -> Commitment | Refusal:
    """Weights of a hotkey, locked; or why they cannot be. chain, here: what time it is by each, seconds since 1970."""
    index, last, pending, since = subnet.epoch_index, subnet.last_epoch, subnet.pending_epoch, subnet.since_step
    if index is None or last is None or pending is None or since is None:
        return older(subnet)
    if subnet.tempo == 0:
        return Refusal("no-epochs", "the subnet's tempo is 0: nothing that is committed is ever opened", "ask the subnet's owner")
    if subnet.reveal_epochs > REVEAL_EPOCHS:
        what = f"the subnet opens commitments after {subnet.reveal_epochs} epochs, and {REVEAL_EPOCHS} are waited for at most"
        return Refusal("reveal-period", what, "ask the subnet's owner")
    if (wrong := wrong_clock(chain, here)) is not None:
        return wrong
    data, number = core().get_encrypted_commit_v2(
        uids=list(vector.uids),
        weights=list(vector.values),
        version_key=version_key,
        last_epoch_block=last,
        pending_epoch_at=pending,
        subnet_epoch_index=index,
        tempo=subnet.tempo,
        blocks_since_last_step=since,
        current_block=subnet.block.number,
        subnet_reveal_period_epochs=subnet.reveal_epochs,
        block_time=subnet.block_seconds,
        hotkey=hotkey.raw,
    )
    return Commitment(bytes(data), int(number), reveal_block(subnet))


def wrong_clock(chain: float, here: float) -> Refusal | None:
    """Whether the two clocks differ by so much that a commitment would be locked to the wrong time."""
    if abs(here - chain) <= CLOCK_SECONDS:
        return None
    what = f"this machine's clock is {abs(here - chain):.0f} seconds {'behind' if here < chain else 'ahead of'} the chain's"
    return Refusal("clock", what, "set it; if it is right, the chain stands still: wait")


def reveal_block(subnet: SubnetState) -> int:
    """About when what is committed in the next block is opened: some epochs later, if nobody changes the schedule.

    The round comes three blocks after that epoch has begun, so that nobody knows the weights before.
    """
    after = subnet.block.number + 1
    due = [] if subnet.last_epoch is None else [subnet.last_epoch + subnet.tempo]
    due += [subnet.pending_epoch] if subnet.pending_epoch else []
    begins = max(after, min(due, default=after))
    # What comes in the block in which an epoch begins belongs to that one already.
    return begins + subnet.tempo * (subnet.reveal_epochs - (begins > after)) + LATE


PERIOD = 64
"""Blocks that an extrinsic is good for: some 13 minutes."""
_SR25519 = 1


@dataclass(frozen=True, slots=True)
class SignedExtrinsic:
    """A signed extrinsic: blocks after `birth` can have it, up to `death`, which is the last; no other ever can."""

    hash: str
    raw: bytes = field(repr=False)
    nonce: int
    birth: int
    death: int


def signed(runtime: Any, call: bytes, key: PrivateKey, *, nonce: int, genesis: str, birth: BlockId) -> SignedExtrinsic:
    """A call, signed: good after the block `birth`, which has to be final, or its chain could go without it."""
    parts = {"era": {"period": PERIOD, "current": birth.number}, "nonce": nonce, "tip": 0, "tip_asset_id": None}
    hashes = {"genesis_hash": bytes.fromhex(genesis[2:]), "era_block_hash": bytes.fromhex(birth.hash[2:])}
    signature = key.sign(bytes(runtime.signature_payload(call, **parts, **hashes)))
    said = {"public_key": key.public.raw, "signature": signature, "signature_version": _SR25519}
    raw, digest = runtime.encode_signed_extrinsic(call, **said, **parts)
    return SignedExtrinsic(f"0x{bytes(digest).hex()}", bytes(raw), nonce, birth.number, birth.number + PERIOD - 1)


def set_call(runtime: Any, netuid: int, mechanism: int, vector: Vector, version_key: int) -> bytes:
    """The call that sets weights in the open; ValueError if the runtime has none."""
    said = {"netuid": netuid, "dests": list(vector.uids), "weights": list(vector.values), "version_key": version_key}
    if mechanism == 0:
        return bytes(runtime.compose_call(PALLET, "set_weights", said))
    return bytes(runtime.compose_call(PALLET, "set_mechanism_weights", said | {"mecid": mechanism}))


def commit_call(runtime: Any, netuid: int, mechanism: int, commitment: bytes, reveal_round: int, version: int) -> bytes:
    """The call that commits to weights which the chain opens later by itself; ValueError if the runtime has none."""
    said = {
        "netuid": netuid,
        "commit": f"0x{commitment.hex()}",
        "reveal_round": reveal_round,
        "commit_reveal_version": version,
    }
    try:
        return bytes(runtime.compose_call(PALLET, "commit_timelocked_mechanism_weights", said | {"mecid": mechanism}))
    except ValueError:
        if mechanism:
            raise
        return bytes(runtime.compose_call(PALLET, "commit_timelocked_weights", said))  # before there were mechanisms


def nonces_of(runtime: Any, account: str, extrinsics: Sequence[bytes]) -> set[int]:
    """The nonces of an account's extrinsics among these; what cannot be read is nobody's."""
    found = set()
    for raw in extrinsics:
        try:
            said = runtime.decode_extrinsic(raw)
        except ValueError:
            continue
        if said.get("address") == account and isinstance(said.get("nonce"), int):
            found.add(said["nonce"])
    return found
