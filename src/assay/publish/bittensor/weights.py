"""Encodes exact shares as the weights that a chain gets, and makes the calls that set them or commit to them. SPEC 4, Encoding.

Weights are u16; the largest is 65535, and zeros are left out. If a uid has another hotkey now, or none, its weight would pay a
stranger. So the share burns instead, and all weights are encoded again from the shares, because the largest may be another.

The chain itself opens commitments (version 4). Each is locked to a round of drand's beacon, whose signature nobody has before its
time. It contains the hotkey, the uids, the weights and the version key. The round follows from the subnet's schedule of epochs,
all read at one block, and from this machine's clock. If the round is too early, the weights are visible too soon; if it is too
late, the chain cannot open the commitment, and the weights are lost.
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
    """The weights that are sent: uids ascending, and the weight of each. burns: whether the burn UID gets a weight."""

    uids: tuple[int, ...]
    values: tuple[int, ...]
    burns: bool

    @property
    def by_uid(self) -> dict[int, int]:
        """The weights by uid, as the chain stores them."""
        return dict(zip(self.uids, self.values, strict=True))


def vector(shares: EpochShares, without: Sequence[str] = ()) -> Vector:
    """The weights of the shares; the shares of participants in `without` burn. Raises BadInput if nothing is left. SPEC 4."""
    burn = shares.burn + sum((share for key, _, share in shares.rows if key in without), Fraction(0))
    rows = [(uid, share) for key, uid, share in shares.rows if key not in without]
    if not burn and not rows:
        raise BadInput("no participant has a weight, and nothing burns", hint='with excess = "drop", raise the cap')
    denominator = lcm(burn.denominator, *(share.denominator for _, share in rows))
    parts = [share.numerator * (denominator // share.denominator) for _, share in rows]
    encoded = encode(parts, burn.numerator * (denominator // burn.denominator), denominator, "max-upscale")
    pairs = sorted([*zip((uid for uid, _ in rows), encoded.chain_u16, strict=True), (shares.burn_uid, encoded.burn_chain_u16)])
    sent = [(uid, value) for uid, value in pairs if value]
    return Vector(tuple(uid for uid, _ in sent), tuple(value for _, value in sent), encoded.burn_chain_u16 > 0)


def moved(shares: EpochShares, subnet: SubnetState) -> dict[str, str]:
    """Participants who do not have their uid on the chain any more, each with the reason."""
    reasons = {}
    for key, uid, _ in shares.rows:
        there, hotkey = subnet.by_uid.get(uid), respelled(key)
        if there is not None and there.hotkey == hotkey:
            continue
        why = f"uid {uid} is not on the subnet" if there is None else f"uid {uid} has the hotkey {there.hotkey} now"
        own = subnet.by_hotkey.get(hotkey)
        reasons[key] = why if own is None else f"{why}, and this one has uid {own.uid}"
    return reasons


def strangers(registries: Sequence[Mapping[str, Any]], where: Mapping[str, Any]) -> dict[str, Any]:
    """The registries of another chain, subnet or mechanism than the target's, as JSON; empty if there are none."""
    places = [{name: registry[name] for name in where} for registry in registries]
    return {"registries": others} if (others := [place for place in places if place != dict(where)]) else {}


def pulled_at(registries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The newest block of the registries, as JSON; empty if no registry was pulled."""
    return {"pulled_at": max(registry["block"] for registry in registries)} if registries else {}


def content(shares: EpochShares) -> dict[str, Any]:
    """The shares as JSON, with the weights that they give if no uid has changed hands."""
    values = vector(shares).by_uid
    return {
        "weights": [
            {"participant": key, "uid": uid, "share": str(share), "chain_u16": values.get(uid, 0)}
            for key, uid, share in shares.rows
        ],
        "burn": {"uid": shares.burn_uid, "share": str(shares.burn), "chain_u16": values.get(shares.burn_uid, 0)},
    }


def of_content(document: dict[str, Any]) -> EpochShares:
    """The shares in the JSON of `content`."""
    rows = tuple((row["participant"], row["uid"], Fraction(row["share"])) for row in document["weights"])
    return EpochShares(rows, Fraction(document["burn"]["share"]), document["burn"]["uid"])


CLOCK_SECONDS = 120
"""Most seconds between this machine's clock and the chain's, whose newest block may be some seconds old."""
REVEAL_EPOCHS = 300
"""Most epochs until a commitment is opened, because the library steps through them one by one."""
LATE = 3
"""Blocks between the beginning of the epoch and the round, as in the library; by then the chain has the round's signature."""


@dataclass(frozen=True, slots=True)
class Commitment:
    """A commitment: its bytes, the round that opens it, and about which block the chain opens it."""

    data: bytes
    round: int
    reveal: int


def commitment(
    subnet: SubnetState, hotkey: PublicKey, vector: Vector, version_key: int, *, chain: float, here: float
) -> Commitment | Refusal:
    """The commitment to a hotkey's weights, or the refusal. chain, here: the time of each clock, in seconds since 1970."""
    index, last, pending, since = subnet.epoch_index, subnet.last_epoch, subnet.pending_epoch, subnet.since_step
    if index is None or last is None or pending is None or since is None:
        return older(subnet)
    if subnet.tempo == 0:
        return Refusal("no-epochs", "the subnet's tempo is 0, so it never opens a commitment", "ask the subnet's owner")
    if subnet.reveal_epochs > REVEAL_EPOCHS:
        what = f"the subnet opens commitments after {subnet.reveal_epochs} epochs; Assay supports at most {REVEAL_EPOCHS}"
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
    """The refusal if the two clocks differ so much that a commitment would be locked to a wrong time; None if they agree."""
    if abs(here - chain) <= CLOCK_SECONDS:
        return None
    what = f"this machine's clock is {abs(here - chain):.0f} seconds {'behind' if here < chain else 'ahead of'} the chain's"
    return Refusal("clock", what, "set the clock; if it is right, the chain has stopped: wait")


def reveal_block(subnet: SubnetState) -> int:
    """About which block opens a commitment of the next block, if nobody changes the schedule.

    The round comes three blocks after the beginning of that epoch, so that nobody knows the weights before.
    """
    after = subnet.block.number + 1
    due = [] if subnet.last_epoch is None else [subnet.last_epoch + subnet.tempo]
    due += [subnet.pending_epoch] if subnet.pending_epoch else []
    begins = max(after, min(due, default=after))
    # A commitment in the first block of an epoch belongs to that epoch.
    return begins + subnet.tempo * (subnet.reveal_epochs - (begins > after)) + LATE


PERIOD = 64
"""Blocks for which an extrinsic is valid: about 13 minutes."""
_SR25519 = 1


@dataclass(frozen=True, slots=True)
class SignedExtrinsic:
    """A signed extrinsic. Only the blocks after `birth` up to and including `death` can include it."""

    hash: str
    raw: bytes = field(repr=False)
    nonce: int
    birth: int
    death: int


def signed(runtime: Any, call: bytes, key: PrivateKey, *, nonce: int, genesis: str, birth: BlockId) -> SignedExtrinsic:
    """Sign a call. `birth` must be a final block; otherwise the extrinsic is invalid if the chain drops that block."""
    parts = {"era": {"period": PERIOD, "current": birth.number}, "nonce": nonce, "tip": 0, "tip_asset_id": None}
    hashes = {"genesis_hash": bytes.fromhex(genesis[2:]), "era_block_hash": bytes.fromhex(birth.hash[2:])}
    signature = key.sign(bytes(runtime.signature_payload(call, **parts, **hashes)))
    signer = {"public_key": key.public.raw, "signature": signature, "signature_version": _SR25519}
    raw, digest = runtime.encode_signed_extrinsic(call, **signer, **parts)
    return SignedExtrinsic(f"0x{bytes(digest).hex()}", bytes(raw), nonce, birth.number, birth.number + PERIOD - 1)


def set_call(runtime: Any, netuid: int, mechanism: int, vector: Vector, version_key: int) -> bytes:
    """The call that sets weights openly. Raises ValueError if the runtime has no such call."""
    fields = {"netuid": netuid, "dests": list(vector.uids), "weights": list(vector.values), "version_key": version_key}
    if mechanism == 0:
        return bytes(runtime.compose_call(PALLET, "set_weights", fields))
    return bytes(runtime.compose_call(PALLET, "set_mechanism_weights", fields | {"mecid": mechanism}))


def commit_call(runtime: Any, netuid: int, mechanism: int, commitment: bytes, reveal_round: int, version: int) -> bytes:
    """The call that commits to weights, which the chain opens later. Raises ValueError if the runtime has no such call."""
    fields = {
        "netuid": netuid,
        "commit": f"0x{commitment.hex()}",
        "reveal_round": reveal_round,
        "commit_reveal_version": version,
    }
    try:
        return bytes(runtime.compose_call(PALLET, "commit_timelocked_mechanism_weights", fields | {"mecid": mechanism}))
    except ValueError:
        if mechanism:
            raise
        return bytes(runtime.compose_call(PALLET, "commit_timelocked_weights", fields))  # a runtime without mechanisms


def nonces_of(runtime: Any, account: str, extrinsics: Sequence[bytes]) -> set[int]:
    """The nonces of an account's extrinsics among these. Extrinsics that cannot be decoded are ignored."""
    nonces = set()
    for raw in extrinsics:
        try:
            decoded = runtime.decode_extrinsic(raw)
        except ValueError:
            continue
        if decoded.get("address") == account and isinstance(decoded.get("nonce"), int):
            nonces.add(decoded["nonce"])
    return nonces
