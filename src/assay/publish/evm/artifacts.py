"""The contracts as they ship: interface and code, compiled by `tools/contracts` with the settings that each file names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["ORACLE", "ROUND", "Artifact", "artifact"]

ORACLE, ROUND = "ScoringOracle", "BountyRound"


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
