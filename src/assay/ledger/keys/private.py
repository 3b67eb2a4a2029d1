"""Private keys: made, read and written; never shown.

An Ed25519 key, which signs, and an X25519 key, which opens what is sealed to it, is a PKCS#8 PEM; an sr25519 key a Bittensor
key file.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any, NoReturn

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from assay.errors import BadInput
from assay.ledger.keys import hotkey
from assay.ledger.keys.public import ED25519, KINDS, SR25519, X25519, PublicKey

__all__ = ["PrivateKey", "from_seed", "new", "read"]

_SEED = re.compile(rb"\s*(?:0x)?([0-9a-fA-F]{64})\s*")
_NOTE_KEY = re.compile(rb"\s*PRIVATE\+KEY\+[^\s+]+\+[0-9a-f]{8}\+([A-Za-z0-9+/=]+)\s*")


class PrivateKey:
    """A private key: signs, or opens; its public key is `public`. It does not show itself, and cannot be pickled."""

    __slots__ = ("_pair", "public")

    def __init__(self, public: PublicKey, pair: Any) -> None:
        self.public = public
        self._pair = pair

    def __repr__(self) -> str:
        return f"<private key of {self.public}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is not pickled")

    def sign(self, message: bytes) -> bytes:
        """The signature of a message, 64 bytes. Ed25519 signs one message in one way only, sr25519 in a new way each time.

        Raises BadInput for an X25519 key, which signs nothing.
        """
        if self.public.kind == X25519:
            raise BadInput(f"{self.public} cannot sign: it opens what is sealed", hint="sign with a key of `assay keys new`")
        return bytes(self._pair.sign(message))

    def opener(self) -> X25519PrivateKey:
        """The key that opens what is sealed to it; raises BadInput for one that signs."""
        if not isinstance(self._pair, X25519PrivateKey):
            raise BadInput(f"{self.public} cannot open: it signs", hint="make one that opens: assay keys new NAME --kind x25519")
        return self._pair

    def to_file(self, passphrase: str = "") -> bytes:
        """The bytes of its file, encrypted where there is a passphrase."""
        if self.public.kind != SR25519:
            how = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
            return bytes(self._pair.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
        data = hotkey.to_file(self._pair)
        return hotkey.encrypted(data, passphrase) if passphrase else data


def new(kind: str = ED25519) -> PrivateKey:
    """A new key of a kind; raises BadInput if there is no such kind, or if it takes an extra that is not installed."""
    _check(kind)
    if kind == SR25519:
        return _sr25519(hotkey.generate())
    return _x25519(X25519PrivateKey.generate()) if kind == X25519 else _ed25519(Ed25519PrivateKey.generate())


def from_seed(seed: bytes, kind: str = ED25519) -> PrivateKey:
    """The key of a kind in the 32 bytes of its seed; of X25519 they are the private key."""
    _check(kind)
    if kind == SR25519:
        return _sr25519(hotkey.from_seed(seed))
    if kind == X25519:
        return _x25519(X25519PrivateKey.from_private_bytes(seed))
    return _ed25519(Ed25519PrivateKey.from_private_bytes(seed))


def read(data: bytes, *, kind: str = ED25519, passphrase: Callable[[], str] | None = None) -> PrivateKey:
    """The key in the bytes of a file; `passphrase` is asked if it is encrypted. Raises BadInput if there is no key in them.

    Read are: PKCS#8 PEM; Bittensor key files; the hex digits of a seed, which are of `kind`; a log's key as C2SP signed-note
    spells it (`PRIVATE+KEY+NAME+HEX+BASE64`).
    """
    _check(kind)
    if seed := _SEED.fullmatch(data):
        return from_seed(bytes.fromhex(seed[1].decode()), kind)
    if noted := _NOTE_KEY.fullmatch(data):
        return _noted(noted[1])
    if data.lstrip().startswith(b"-----BEGIN"):
        return _pem(data, passphrase)
    if hotkey.is_encrypted(data):
        data = hotkey.decrypted(data, _asked(passphrase))
    if data.lstrip().startswith(b"{"):
        return _sr25519(hotkey.from_file(data))
    raise BadInput("holds no private key", hint="give 64 hex digits, a PKCS#8 PEM, or the key file of a Bittensor hotkey")


def _check(kind: str) -> None:
    kinds = (*KINDS, X25519)
    if kind not in kinds:
        raise BadInput(f"there is no kind of key {kind!r}", hint=f"use one of {', '.join(kinds)}")


def _asked(passphrase: Callable[[], str] | None) -> str:
    said = passphrase() if passphrase is not None else ""
    if not said:
        raise BadInput("is encrypted", hint="set ASSAY_PASSPHRASE, or use it where a passphrase can be asked for")
    return said


def _ed25519(pair: Ed25519PrivateKey) -> PrivateKey:
    return PrivateKey(PublicKey(ED25519, pair.public_key().public_bytes_raw()), pair)


def _x25519(pair: X25519PrivateKey) -> PrivateKey:
    return PrivateKey(PublicKey(X25519, pair.public_key().public_bytes_raw()), pair)


def _sr25519(pair: Any) -> PrivateKey:
    return PrivateKey(PublicKey(SR25519, bytes(pair.public_key)), pair)


def _noted(encoded: bytes) -> PrivateKey:
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError:
        data = b""
    if len(data) != 33 or data[0] != 1:
        raise BadInput("is not the key of a log that signs with Ed25519", hint="give the whole line PRIVATE+KEY+…")
    return from_seed(data[1:], ED25519)


def _pem(data: bytes, passphrase: Callable[[], str] | None) -> PrivateKey:
    said = _asked(passphrase).encode() if b"ENCRYPTED" in data else None
    try:
        pair = load_pem_private_key(data, said)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        what = "is not a PEM of a private key" if said is None else "the passphrase does not open it, or it is damaged"
        raise BadInput(what, hint="PKCS#8 is read: openssl pkcs8 -topk8" if said is None else "try again") from None
    if isinstance(pair, X25519PrivateKey):
        return _x25519(pair)
    if not isinstance(pair, Ed25519PrivateKey):
        raise BadInput("is a private key of another kind than Ed25519 or X25519", hint="make one: assay keys new")
    return _ed25519(pair)
