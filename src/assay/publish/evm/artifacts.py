"""The contracts as they ship: interface and code, compiled by `tools/contracts` with the settings that each file names.

Both are made by DEPLOYER with CREATE2 (EIP-1014), so an address is a hash over the code that made what is there and the arguments
of its constructor. That proves more than the code at an address does: code can be put there by anything, with any storage.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from assay.publish.evm.libraries import checksum, keccak

__all__ = ["DEPLOYER", "DEPLOYER_CODE", "ORACLE", "ROUND", "Artifact", "address_of", "artifact", "making", "oracle_address"]

ORACLE, ROUND = "ScoringOracle", "BountyRound"
DEPLOYER = "0x4e59b44847b379578588920cA78FbF26c0B4956C"
"""Makes a contract of the code it is sent, after 32 bytes of salt: the same program at the same address on nearly every chain."""
DEPLOYER_CODE = bytes.fromhex(
    "7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe03601600081602082378035828234f58015156039578182fd5b80825250"
    "50506014600cf3"
)
_SALT = bytes(32)


@dataclass(frozen=True)
class Artifact:
    """One contract: its ABI, the code that makes it, and the code that is then there, but for the values of its making."""

    name: str
    abi: tuple[dict[str, Any], ...]
    bytecode: bytes
    deployed: bytes
    immutables: tuple[tuple[int, int], ...]
    """(Start, length) of the values that are put into the code when it is made."""

    def is_at(self, code: bytes) -> bool:
        """Whether the code at an address is this contract's, whatever values it was made with."""
        return len(code) == len(self.deployed) and self._blank(code) == self._blank(self.deployed)

    def _blank(self, code: bytes) -> bytes:
        found = bytearray(code)
        for start, length in self.immutables:
            found[start : start + length] = bytes(length)
        return bytes(found)


def making(code: bytes) -> bytes:
    """What DEPLOYER is sent to make a contract. code: the shipped bytecode, and the constructor's arguments."""
    return _SALT + code


def address_of(code: bytes) -> str:
    """Where DEPLOYER makes a contract of this code, as EIP-55 spells it."""
    said = b"\xff" + bytes.fromhex(DEPLOYER[2:]) + _SALT + keccak(code)
    return checksum(f"0x{keccak(said)[12:].hex()}")


@cache
def oracle_address() -> str:
    """Where the oracle is, on every chain: it has no constructor arguments."""
    return address_of(artifact(ORACLE).bytecode)


@cache
def artifact(name: str) -> Artifact:
    """One of the contracts that ship: ORACLE or ROUND."""
    found = json.loads(files("assay.publish.evm").joinpath("contracts", f"{name}.json").read_bytes())
    return Artifact(
        found["contract"],
        tuple(found["abi"]),
        bytes.fromhex(found["bytecode"][2:]),
        bytes.fromhex(found["deployed"][2:]),
        tuple((one["start"], one["length"]) for one in found["immutables"]),
    )
