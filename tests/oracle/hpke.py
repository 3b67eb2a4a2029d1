"""HPKE in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20-Poly1305, written from RFC 9180, sections 4 to 6.

X25519 is written out from RFC 7748 and HKDF from RFC 5869; only the AEAD is the library's. Nothing here runs in constant time.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

__all__ = ["KeySchedule", "decap", "derive_key_pair", "encap", "key_schedule", "public_of", "sealed", "unseal", "x25519"]

P = 2**255 - 19
BASE = (9).to_bytes(32, "little")
KEM = b"KEM" + (0x0020).to_bytes(2, "big")
SUITE = b"HPKE" + b"".join(number.to_bytes(2, "big") for number in (0x0020, 0x0001, 0x0003))


def x25519(scalar: bytes, u: bytes) -> bytes:
    """The u-coordinate of scalar × point, by the Montgomery ladder. RFC 7748, 5."""
    k = int.from_bytes(scalar, "little") & ~7 & ~(1 << 255) | (1 << 254)
    x1 = int.from_bytes(u, "little") & ~(1 << 255)
    x2, z2, x3, z3 = 1, 0, x1, 1
    for bit in range(254, -1, -1):
        if swap := k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = (x2 + z2) % P, (x2 - z2) % P, (x3 + z3) % P, (x3 - z3) % P
        aa, bb, da, cb = a * a % P, b * b % P, d * a % P, c * b % P
        x3, z3 = (da + cb) ** 2 % P, x1 * (da - cb) ** 2 % P
        e = (aa - bb) % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def public_of(secret: bytes) -> bytes:
    """The public key of a private one."""
    return x25519(secret, BASE)


def _extract(salt: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), ikm, "sha256")


def _expand(prk: bytes, info: bytes, length: int) -> bytes:
    out = block = b""
    for number in range(1, -(-length // 32) + 1):
        block = hmac.digest(prk, block + info + bytes([number]), "sha256")
        out += block
    return out[:length]


def labeled_extract(suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    """LabeledExtract. RFC 9180, 4."""
    return _extract(salt, b"HPKE-v1" + suite + label + ikm)


def labeled_expand(suite: bytes, prk: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """LabeledExpand. RFC 9180, 4."""
    return _expand(prk, length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info, length)


def derive_key_pair(ikm: bytes) -> tuple[bytes, bytes]:
    """DeriveKeyPair: private and public. RFC 9180, 7.1.3."""
    secret = labeled_expand(KEM, labeled_extract(KEM, b"", b"dkp_prk", ikm), b"sk", b"", 32)
    return secret, public_of(secret)


def _shared(dh: bytes, enc: bytes, to: bytes) -> bytes:
    if dh == bytes(32):
        raise ValueError("the shared secret is zero")
    return labeled_expand(KEM, labeled_extract(KEM, b"", b"eae_prk", dh), b"shared_secret", enc + to, 32)


def encap(to: bytes, ephemeral: bytes) -> tuple[bytes, bytes]:
    """Encap with a given ephemeral private key: the shared secret and `enc`. RFC 9180, 4.1."""
    enc = public_of(ephemeral)
    return _shared(x25519(ephemeral, to), enc, to), enc


def decap(enc: bytes, secret: bytes) -> bytes:
    """Decap: the shared secret. RFC 9180, 4.1."""
    return _shared(x25519(secret, enc), enc, public_of(secret))


class KeySchedule(NamedTuple):
    """What the key schedule gives. RFC 9180, 5.1."""

    schedule: bytes
    secret: bytes
    key: bytes
    nonce: bytes
    exporter: bytes

    def seal(self, aad: bytes, data: bytes, number: int = 0) -> bytes:
        """ContextS.Seal at a sequence number. RFC 9180, 5.2."""
        return ChaCha20Poly1305(self.key).encrypt(self._nonce(number), data, aad)

    def open(self, aad: bytes, data: bytes, number: int = 0) -> bytes:
        """ContextR.Open at a sequence number. RFC 9180, 5.2."""
        return ChaCha20Poly1305(self.key).decrypt(self._nonce(number), data, aad)

    def export(self, context: bytes, length: int) -> bytes:
        """Context.Export. RFC 9180, 5.3."""
        return labeled_expand(SUITE, self.exporter, b"sec", context, length)

    def _nonce(self, number: int) -> bytes:
        return bytes(a ^ b for a, b in zip(self.nonce, number.to_bytes(12, "big"), strict=True))


def key_schedule(shared: bytes, info: bytes) -> KeySchedule:
    """KeySchedule in base mode. RFC 9180, 5.1."""
    psk_id, hashed = labeled_extract(SUITE, b"", b"psk_id_hash", b""), labeled_extract(SUITE, b"", b"info_hash", info)
    schedule = b"\0" + psk_id + hashed
    secret = labeled_extract(SUITE, shared, b"secret", b"")
    key, nonce = (labeled_expand(SUITE, secret, label, schedule, n) for label, n in ((b"key", 32), (b"base_nonce", 12)))
    return KeySchedule(schedule, secret, key, nonce, labeled_expand(SUITE, secret, b"exp", schedule, 32))


def sealed(data: bytes, to: bytes, info: bytes, ephemeral: bytes) -> bytes:
    """`enc` and the ciphertext of one message without associated data. RFC 9180, 6.1."""
    shared, enc = encap(to, ephemeral)
    return enc + key_schedule(shared, info).seal(b"", data)


def unseal(data: bytes, secret: bytes, info: bytes) -> bytes:
    """What `sealed` was given. RFC 9180, 6.1."""
    return key_schedule(decap(data[:32], secret), info).open(b"", data[32:])
