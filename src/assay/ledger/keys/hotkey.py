"""Use Bittensor's keys: sr25519 signatures, SS58 addresses and key files, through the extra `bittensor`."""

from __future__ import annotations

import re
from typing import Any

from assay.errors import MISSING, BadInput, brief

__all__ = [
    "NotInstalled",
    "address",
    "decode",
    "decrypted",
    "encrypted",
    "from_file",
    "from_seed",
    "generate",
    "is_encrypted",
    "to_file",
    "verifies",
]


class NotInstalled(BadInput):
    """The extra `bittensor` is not installed, so the key cannot be checked."""


BARE = b"no key signs this: it is signed to see whether there is a private key"


def _library() -> Any:
    try:
        import bittensor_core
    except ImportError:
        raise NotInstalled(
            "hotkeys (sr25519, SS58) need a library that is not installed",
            hint="install it: pip install 'assay[bittensor]'",
            stage=MISSING,
        ) from None
    return bittensor_core


def decode(text: str) -> bytes:
    """The 32 bytes of an SS58 address of any network; raises BadInput if its checksum is wrong."""
    library = _library()
    try:
        return bytes(library.ss58_decode(text))
    except ValueError as error:
        raise BadInput(f"{brief(text)} is not an SS58 address ({error})", hint="copy it again, whole") from None


def address(raw: bytes) -> str:
    """The SS58 address of a key of 32 bytes, as Bittensor writes it."""
    return str(_library().ss58_encode(raw))


def verifies(raw: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the sr25519 key made this signature; wallets that sign `<Bytes>message</Bytes>` are understood."""
    if len(signature) != 64:
        return False
    try:
        return bool(_library().Keypair(public_key=raw).verify(message, signature))
    except ValueError:  # the 32 bytes are not a point of the curve
        return False


def generate() -> Any:
    """A new sr25519 key pair."""
    library = _library()
    return library.Keypair.from_mnemonic(library.Keypair.generate_mnemonic(12))


def from_seed(seed: bytes) -> Any:
    """The sr25519 key pair of a seed of 32 bytes."""
    return _library().Keypair.from_seed(seed)


def from_file(data: bytes) -> Any:
    """The key pair in a Bittensor key file that is not encrypted; raises BadInput if it holds no private sr25519 key."""
    library = _library()
    try:
        pair = library.deserialize_keypair_from_keyfile_data(data)
        pair.sign(BARE)
    except (library.KeyfileError, ValueError):
        raise BadInput("is not a Bittensor key file with a private key", hint="give the file of a hotkey") from None
    if pair.crypto_type != library.CRYPTO_SR25519:
        raise BadInput("is a Bittensor key of another kind than sr25519", hint="import its seed as hex digits")
    return pair


def to_file(pair: Any) -> bytes:
    """The key pair as a Bittensor key file."""
    return bytes(_library().serialized_keypair_to_keyfile_data(pair))


def is_encrypted(data: bytes) -> bool:
    """Whether these are the bytes of an encrypted key file."""
    return re.match(rb"\$NACL|\$ANSIBLE_VAULT|gAAAAA", data) is not None


def encrypted(data: bytes, passphrase: str) -> bytes:
    """The key file, encrypted as Bittensor's wallet does it."""
    return bytes(_library().encrypt_keyfile_data(data, passphrase))


def decrypted(data: bytes, passphrase: str) -> bytes:
    """The key file in an encrypted one; raises BadInput if the passphrase is wrong."""
    library = _library()
    try:
        return bytes(library.decrypt_keyfile_data(data, passphrase))
    except library.KeyfileError:
        raise BadInput("the passphrase does not open it", hint="try again, or set ASSAY_PASSPHRASE") from None
