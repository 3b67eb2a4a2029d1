"""Public randomness that nobody can choose: a round of drand, fixed by when a receipt was witnessed. docs/auditing.md.

The beacon is drand's quicknet: a round every three seconds, signed by a group of organisations together (BLS on BLS12-381). A
round's randomness is the SHA-256 of its signature. The signature is checked with `py_ecc` (extra `audit`), so it does not matter
who hands it over.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from assay.errors import MISSING
from assay.ledger import check
from assay.ledger.check import CheckError

__all__ = ["ADDRESSES", "ANSWER_BYTES", "BeaconRound", "check_round", "parse_round", "round_after", "time_of_round"]

STAGE = "randomness"
CHAIN = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
PUBLIC = (
    "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451"
    "0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a"
)
GENESIS, PERIOD = 1_692_803_367, 3
"""The time of round 1, in seconds since 1970, and the seconds between two rounds."""
TAG = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"
ADDRESSES = ("https://api.drand.sh", "https://drand.cloudflare.com")
ANSWER_BYTES = 4096
_SHAPE = {"round": int, "randomness": "[0-9a-f]{64}", "signature": "[0-9a-f]{96}"}


@dataclass(frozen=True, slots=True)
class BeaconRound:
    """A round of the beacon: its number, its signature (48 bytes) and its randomness (32 bytes)."""

    number: int
    signature: bytes
    randomness: bytes

    def document(self) -> dict[str, Any]:
        """The round as JSON."""
        return {"source": "drand", "chain": CHAIN, "round": self.number, "signature": self.signature.hex()}


def round_after(time: int) -> int:
    """The first round at or after a time, in seconds since 1970."""
    return 1 if time <= GENESIS else -(-(time - GENESIS) // PERIOD) + 1


def time_of_round(number: int) -> int:
    """The time at which a round comes, in seconds since 1970."""
    return GENESIS + (number - 1) * PERIOD


def path_of(number: int) -> str:
    """The path of a round below the address of a drand server."""
    return f"/{CHAIN}/public/{number}"


def parse_round(data: bytes, number: int) -> BeaconRound:
    """The round in a drand server's answer, checked; raises CheckError for another round, or one that the group did not sign."""
    document = check.parse_json(data, STAGE, ANSWER_BYTES)
    known = {name: value for name, value in document.items() if name in _SHAPE} if isinstance(document, dict) else {}
    if bad := check.misfit(known, _SHAPE):
        raise CheckError(STAGE, f"it is not a round of drand's quicknet: {bad} does not fit")
    if known["round"] != number:
        raise CheckError(STAGE, "it is another round", number, known["round"])
    return check_round(number, bytes.fromhex(known["signature"]), bytes.fromhex(known["randomness"]))


def check_round(number: int, signature: bytes, randomness: bytes | None = None) -> BeaconRound:
    """The round with this signature; raises CheckError unless quicknet's group signed it, and where `py_ecc` is missing."""
    computed = hashlib.sha256(signature).digest()
    if randomness not in (None, computed):
        raise CheckError(STAGE, "its randomness is not that of its signature", computed.hex(), json.dumps(str(randomness)))
    if not _signed(hashlib.sha256(number.to_bytes(8, "big")).digest(), signature):
        raise CheckError(STAGE, f"round {number} is not signed by drand's quicknet", found=signature.hex())
    return BeaconRound(number, signature, computed)


@lru_cache(maxsize=64)
def _signed(message: bytes, signature: bytes) -> bool:
    """Whether e(signature, g2) = e(H(message), public key), and the signature is a point of the right group."""
    limit = sys.getrecursionlimit()
    try:
        from py_ecc.bls.g2_primitives import subgroup_check
        from py_ecc.bls.hash_to_curve import hash_to_G1
        from py_ecc.bls.point_compression import decompress_G1, decompress_G2
        from py_ecc.bls.typing import G1Compressed, G2Compressed
        from py_ecc.optimized_bls12_381.optimized_curve import G2, is_inf
        from py_ecc.optimized_bls12_381.optimized_pairing import pairing
    except ImportError:
        what = "drand's signatures are checked with py_ecc, which is not installed: pip install 'assay[audit]'"
        raise CheckError(MISSING, what) from None
    finally:
        sys.setrecursionlimit(limit)  # py_ecc raises it: deeply nested JSON would then crash the process
    sha256: Any = hashlib.sha256  # a class for py_ecc's types
    public = bytes.fromhex(PUBLIC)
    key = decompress_G2(G2Compressed((int.from_bytes(public[:48], "big"), int.from_bytes(public[48:], "big"))))
    try:
        point = decompress_G1(G1Compressed(int.from_bytes(signature, "big")))
    except ValueError:
        return False
    if is_inf(point) or not subgroup_check(point):
        return False
    return bool(pairing(G2, point) == pairing(key, hash_to_G1(message, TAG, sha256)))
