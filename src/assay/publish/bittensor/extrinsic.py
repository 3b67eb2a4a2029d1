"""What is signed and sent: a call, bound to one chain, one nonce, and some minutes of that chain's time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.ledger.keys import PrivateKey
from assay.publish.bittensor.read import PALLET
from assay.publish.bittensor.subnet import BlockId
from assay.publish.bittensor.weights import Vector

__all__ = ["PERIOD", "Signed", "commit_call", "nonces_of", "set_call", "signed"]

PERIOD = 64
"""Blocks that an extrinsic is good for: some 13 minutes."""
_SR25519 = 1


@dataclass(frozen=True, slots=True)
class Signed:
    """A signed extrinsic: blocks after `birth` can have it, up to `death`, which is the last; no other ever can."""

    hash: str
    raw: bytes = field(repr=False)
    nonce: int
    birth: int
    death: int


def signed(runtime: Any, call: bytes, key: PrivateKey, *, nonce: int, genesis: str, birth: BlockId) -> Signed:
    """A call, signed: good after the block `birth`, which has to be final, or its chain could go without it."""
    parts = {"era": {"period": PERIOD, "current": birth.number}, "nonce": nonce, "tip": 0, "tip_asset_id": None}
    hashes = {"genesis_hash": bytes.fromhex(genesis[2:]), "era_block_hash": bytes.fromhex(birth.hash[2:])}
    signature = key.sign(bytes(runtime.signature_payload(call, **parts, **hashes)))
    said = {"public_key": key.public.raw, "signature": signature, "signature_version": _SR25519}
    raw, digest = runtime.encode_signed_extrinsic(call, **said, **parts)
    return Signed(f"0x{bytes(digest).hex()}", bytes(raw), nonce, birth.number, birth.number + PERIOD - 1)


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
