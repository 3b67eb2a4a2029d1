"""Extrinsics as they come: taken apart, and their signature checked against what must have been signed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import bittensor_core


class Undecodable(ValueError):
    """Bytes that are no extrinsic of this runtime."""


class BadProof(ValueError):
    """A signature that is not over what must have been signed."""


@dataclass(frozen=True, slots=True)
class Extrinsic:
    """A signed extrinsic. era: period and phase in blocks, None for one that never dies. args: by their names."""

    raw: bytes
    hash: bytes
    signer: bytes
    address: str
    signature: bytes
    era: tuple[int, int] | None
    nonce: int
    tip: int
    call: bytes
    pallet: str
    function: str
    args: dict[str, Any]

    def birth(self, current: int) -> int:
        """The block whose hash is signed, as the chain counts it at block `current`: 0, the genesis, if it never dies."""
        if not self.era:
            return 0
        period, phase = self.era
        return (max(current, phase) - phase) // period * period + phase

    def death(self, current: int) -> int | None:
        """The first block in which it is dead."""
        return self.birth(current) + self.era[0] if self.era else None


def decode(runtime: Any, raw: bytes) -> Extrinsic:
    """The extrinsic in these bytes; Undecodable where they are none, or not signed."""
    try:
        fields = runtime.decode_extrinsic(raw, strict=True)
    except ValueError as e:
        raise Undecodable(str(e)) from e
    if "signature" not in fields or "Sr25519" not in fields["signature"]:
        raise Undecodable("it carries no sr25519 signature")
    era = None if fields["era"] == "00" else (int(fields["era"][0]), int(fields["era"][1]))
    head = 1 << (raw[0] & 3)  # the bytes of the compact length
    extra = runtime.signature_payload_parts(**_signed(era, fields["nonce"], fields["tip"], bytes(32), bytes(32)))[0]
    start = head + 1 + 33 + 65  # version, address, signature
    call = fields["call"]
    return Extrinsic(
        raw=raw,
        hash=bytes.fromhex(fields["extrinsic_hash"][2:]),
        signer=raw[head + 2 : head + 34],
        address=fields["address"],
        signature=bytes.fromhex(fields["signature"]["Sr25519"][2:]),
        era=era,
        nonce=fields["nonce"],
        tip=fields["tip"],
        call=raw[start + len(extra) :],
        pallet=call["call_module"],
        function=call["call_function"],
        args={arg["name"]: arg["value"] for arg in call["call_args"]},
    )


def check_signature(runtime: Any, extrinsic: Extrinsic, genesis: bytes, birth: bytes) -> None:
    """BadProof unless the signature is over this call with this era, nonce, tip, chain, runtime version, and no metadata hash."""
    signed = _signed(extrinsic.era, extrinsic.nonce, extrinsic.tip, genesis, birth)
    payload = runtime.signature_payload(extrinsic.call, **signed)
    if not bittensor_core.Keypair(ss58_address=extrinsic.address).verify(payload, extrinsic.signature):
        raise BadProof("the signature does not match")


def _signed(era: tuple[int, int] | None, nonce: int, tip: int, genesis: bytes, birth: bytes) -> dict[str, Any]:
    return {
        "era": {"period": era[0], "phase": era[1]} if era else "00",
        "nonce": nonce,
        "tip": tip,
        "tip_asset_id": None,
        "genesis_hash": genesis,
        "era_block_hash": birth,
    }
