"""Sealing: what only the holder of one X25519 key can open. RFC 9180.

HPKE in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20-Poly1305, one message to a context. Sealed bytes are
the encapsulated key (32 bytes), then the ciphertext with its tag, so 48 bytes more than what was sealed; each time anew.

What a sealed thing is bound to goes into `info`. It enters the key schedule, so that with another one nothing opens: it does what
associated data would, which the library does not take. Anybody can seal; who it was, a signature has to say.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from assay.errors import BadInput
from assay.ledger.keys import X25519, PrivateKey, PublicKey

__all__ = ["OVERHEAD", "open_sealed", "seal"]

OVERHEAD = 48
"""Bytes that sealing adds."""
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def seal(data: bytes, to: PublicKey, info: bytes) -> bytes:
    """The data so that only the holder of a key can open it, and only with this `info`; raises BadInput for a key that signs."""
    if to.kind != X25519:
        raise BadInput(f"nothing can be sealed to {to}: it signs", hint="give an x25519 key: assay keys new NAME --kind x25519")
    return _SUITE.encrypt(data, X25519PublicKey.from_public_bytes(to.raw), info)


def open_sealed(data: bytes, key: PrivateKey, info: bytes) -> bytes:
    """What was sealed to this key with this `info`; raises BadInput for anything else, and for a key that signs."""
    try:
        return _SUITE.decrypt(data, key.opener(), info)
    except (InvalidTag, ValueError):
        raise BadInput(
            f"does not open with {key.public}", hint="it was sealed to another key or for something else, or was changed"
        ) from None
