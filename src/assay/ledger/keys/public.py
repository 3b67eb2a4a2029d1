"""Public keys as text: hex digits, or an SS58 address.

`[KIND:]SPELLING`: 64 hex digits (0x before them is allowed) are an Ed25519 key, an SS58 address is an sr25519 key, and
`ed25519:` or `sr25519:` before either says otherwise. Two spellings of one key are equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from assay.errors import BadInput, brief
from assay.ledger import check
from assay.ledger.keys import hotkey
from assay.ledger.refusal import as_bad_input

__all__ = ["ED25519", "KINDS", "SR25519", "PublicKey", "public"]

ED25519, SR25519 = "ed25519", "sr25519"
KINDS = (ED25519, SR25519)


@dataclass(frozen=True)
class PublicKey:
    """A public key: its kind, and its 32 bytes. Raises BadInput for an Ed25519 key that anybody could sign for."""

    kind: str
    raw: bytes

    def __post_init__(self) -> None:
        if self.kind == ED25519:
            with as_bad_input("give the public key that `assay keys show` prints"):
                check.Ed25519Key(self.raw)

    @property
    def id(self) -> str:
        """`ed25519:` or `sr25519:` and 64 hex digits: what a signature names it by."""
        return f"{self.kind}:{self.raw.hex()}"

    def __str__(self) -> str:
        return self.id

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key made this signature of this message; BadInput where that takes an extra that is not installed."""
        if self.kind == ED25519:
            return check.Ed25519Key(self.raw).verifies(signature, message)
        return hotkey.verifies(self.raw, signature, message)


def public(text: str) -> PublicKey:
    """The public key that a text spells; raises BadInput if it is none, or if it takes an extra that is not installed."""
    kind, colon, spelling = text.rpartition(":")
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
