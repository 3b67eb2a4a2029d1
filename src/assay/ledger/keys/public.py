"""Public keys as text: hex digits, or an SS58 address.

`[KIND:]SPELLING`: 64 hex digits (0x before them is allowed) are an Ed25519 key, an SS58 address is an sr25519 key, and
`ed25519:` or `sr25519:` before either says otherwise. Two spellings of one key are equal. A key that things are sealed to,
which signs nothing, has one spelling: `x25519:` and 64 hex digits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from assay.errors import BadInput, brief
from assay.ledger import check
from assay.ledger.keys import hotkey
from assay.ledger.refusal import as_bad_input

__all__ = ["ED25519", "KINDS", "SR25519", "X25519", "PublicKey", "public", "sealing"]

ED25519, SR25519, X25519 = "ed25519", "sr25519", "x25519"
KINDS = (ED25519, SR25519)
"""The kinds that sign."""
_PRIME = 2**255 - 19


@dataclass(frozen=True)
class PublicKey:
    """A public key: its kind, and its 32 bytes. Raises BadInput for one that anybody could sign or open for."""

    kind: str
    raw: bytes

    def __post_init__(self) -> None:
        if self.kind == ED25519:
            with as_bad_input("give the public key that `assay keys show` prints"):
                check.Ed25519Key(self.raw)
        if self.kind == X25519:
            _check_point(self.raw)

    @property
    def id(self) -> str:
        """`ed25519:`, `sr25519:` or `x25519:` and 64 hex digits: what a signature names it by."""
        return f"{self.kind}:{self.raw.hex()}"

    def __str__(self) -> str:
        return self.id

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key made this signature of this message; BadInput where that takes an extra that is not installed."""
        if self.kind == ED25519:
            return check.Ed25519Key(self.raw).verifies(signature, message)
        if self.kind == X25519:
            return False  # it signs nothing
        return hotkey.verifies(self.raw, signature, message)


def public(text: str) -> PublicKey:
    """The public key that a text spells; raises BadInput if it is none, or if it takes an extra that is not installed."""
    kind, colon, spelling = text.rpartition(":")
    if kind == X25519:
        raise BadInput(f"{brief(text)} is a key that things are sealed to", hint="give one that signs: assay keys new")
    if not colon or kind in KINDS:
        digits = spelling.removeprefix("0x")
        if re.fullmatch("[0-9a-fA-F]{64}", digits):
            return PublicKey(kind or ED25519, bytes.fromhex(digits))
        if re.fullmatch("[1-9A-HJ-NP-Za-km-z]{46,49}", spelling):
            return PublicKey(kind or SR25519, hotkey.decode(spelling))
    raise BadInput(
        f"{brief(text)} is not a public key",
        hint="write 64 hex digits (Ed25519) or an SS58 address (sr25519), as `assay keys show` prints them",
    )


def sealing(text: str) -> PublicKey:
    """The public key, to which things are sealed, that a text spells: `x25519:` and 64 hex digits; raises BadInput. RFC 7748."""
    if re.fullmatch("x25519:[0-9a-f]{64}", text):
        return PublicKey(X25519, bytes.fromhex(text.removeprefix("x25519:")))
    raise BadInput(
        f"{brief(text)} is not a key that things are sealed to",
        hint="write x25519: and 64 hex digits, as `assay keys show` prints them",
    )


def _check_point(raw: bytes) -> None:
    """Refuse 32 bytes that spell another key's point once more, or a point with which every secret is the same."""
    try:
        X25519PrivateKey.from_private_bytes(bytes(31) + b"\x40").exchange(X25519PublicKey.from_public_bytes(raw))
    except ValueError:
        sound = False
    else:
        sound = int.from_bytes(raw, "little") < _PRIME
    if not sound:
        raise BadInput(
            f"{brief(raw.hex(), 70)} is not a public key of X25519", hint="give the public key that `assay keys show` prints"
        )
