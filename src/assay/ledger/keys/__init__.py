"""Read, make and store keys: public ones as text, private ones in files that only their owner can read. Sign, and seal. SPEC 6.

    key = keys.public("5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY")    # or 64 hex digits: Ed25519
    signer = keys.load("val-1")                                              # ~/.config/assay/keys/val-1.key
    key.verifies(signer.sign(message), message)

`sign_envelope` puts a DSSE envelope around the bytes of a statement. `seal` encrypts to an X25519 key (HPKE, RFC 9180: base mode,
DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305). `as_bad_input` turns an error of `assay.ledger.check` into BadInput.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from assay.errors import MISSING, BadInput, brief
from assay.folder.files import flush_folder, unreadable
from assay.folder.files import load as load_bytes
from assay.ledger import check
from assay.ledger.check import IN_TOTO, CheckError, pae
from assay.ledger.keys import hotkey

__all__ = [
    "ED25519",
    "KINDS",
    "SEAL_BYTES",
    "SR25519",
    "X25519",
    "NamedKey",
    "PrivateKey",
    "PublicKey",
    "as_bad_input",
    "folder",
    "from_seed",
    "listed",
    "load",
    "new",
    "open_sealed",
    "path_of",
    "public",
    "read",
    "save",
    "seal",
    "sealing",
    "sign_envelope",
]


@contextmanager
def as_bad_input(hint: str, *, file: Path | str | None = None, line: int | None = None, field: str = "") -> Iterator[None]:
    """Raise errors of `check` in the block as BadInput, with this place and this hint; without it where a library is missing."""
    try:
        yield
    except CheckError as refused:
        if refused.stage == MISSING:
            raise BadInput(str(refused), file=file, line=line, field=field, stage=MISSING) from None
        what = str(refused).removeprefix(f"{refused.stage}: ")
        raise BadInput(what, file=file, line=line, field=field, hint=hint, stage=refused.stage) from None


ED25519, SR25519, X25519 = "ed25519", "sr25519", "x25519"
KINDS = (ED25519, SR25519)
"""The kinds of key that sign."""
_PRIME = 2**255 - 19


@dataclass(frozen=True)
class PublicKey:
    """A public key: its kind and its 32 bytes. Raises BadInput for a weak key, for which anybody could sign or open."""

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
        """The name of the key beside a signature: `ed25519:`, `sr25519:` or `x25519:`, and 64 hex digits."""
        return f"{self.kind}:{self.raw.hex()}"

    def __str__(self) -> str:
        return self.id

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key made this signature of this message; raises BadInput if that needs an extra that is not installed."""
        if self.kind == ED25519:
            return check.Ed25519Key(self.raw).verifies(signature, message)
        if self.kind == X25519:
            return False  # such a key signs nothing
        return hotkey.verifies(self.raw, signature, message)


def public(text: str) -> PublicKey:
    """The public key in a text; raises BadInput if it is not one, or if it needs an extra that is not installed."""
    kind, colon, spelling = text.rpartition(":")
    if kind == X25519:
        raise BadInput(f"{brief(text)} is a key for sealing", hint="give a key that signs: assay keys new")
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
    """The public key for sealing in a text: `x25519:` and 64 hex digits; raises BadInput. RFC 7748."""
    if re.fullmatch("x25519:[0-9a-f]{64}", text):
        return PublicKey(X25519, bytes.fromhex(text.removeprefix("x25519:")))
    raise BadInput(
        f"{brief(text)} is not a key for sealing",
        hint="write x25519: and 64 hex digits, as `assay keys show` prints them",
    )


def _check_point(raw: bytes) -> None:
    """Raise BadInput for a second spelling of another key, or a point with which every secret is the same."""
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
        """The signature of a message, 64 bytes; Ed25519 always gives the same signature, sr25519 a new one each time.

        Raises BadInput for an X25519 key, which signs nothing.
        """
        if self.public.kind == X25519:
            raise BadInput(f"{self.public} cannot sign: it opens what is sealed", hint="sign with a key of `assay keys new`")
        return bytes(self._pair.sign(message))

    def opener(self) -> X25519PrivateKey:
        """The key that opens what is sealed to it; raises BadInput for a key that signs."""
        if not isinstance(self._pair, X25519PrivateKey):
            raise BadInput(f"{self.public} cannot open: it signs", hint="make one that opens: assay keys new NAME --kind x25519")
        return self._pair

    def to_file(self, passphrase: str = "") -> bytes:
        """The bytes of its file, encrypted if there is a passphrase."""
        if self.public.kind != SR25519:
            how = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
            return bytes(self._pair.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
        data = hotkey.to_file(self._pair)
        return hotkey.encrypted(data, passphrase) if passphrase else data


def new(kind: str = ED25519) -> PrivateKey:
    """A new key of a kind; raises BadInput for an unknown kind, or if it needs an extra that is not installed."""
    _check(kind)
    if kind == SR25519:
        return _sr25519(hotkey.generate())
    return _x25519(X25519PrivateKey.generate()) if kind == X25519 else _ed25519(Ed25519PrivateKey.generate())


def from_seed(seed: bytes, kind: str = ED25519) -> PrivateKey:
    """The key of a kind from its seed, 32 bytes; for X25519 they are the private key."""
    _check(kind)
    if kind == SR25519:
        return _sr25519(hotkey.from_seed(seed))
    if kind == X25519:
        return _x25519(X25519PrivateKey.from_private_bytes(seed))
    return _ed25519(Ed25519PrivateKey.from_private_bytes(seed))


def read(data: bytes, *, kind: str = ED25519, passphrase: Callable[[], str] | None = None) -> PrivateKey:
    """The key in the bytes of a file; `passphrase` is asked if it is encrypted. Raises BadInput if there is no key in them.

    The formats are: PKCS#8 PEM; Bittensor key files; the hex digits of a seed, of `kind`; a log's key as in C2SP signed-note
    (`PRIVATE+KEY+NAME+HEX+BASE64`).
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
    given = passphrase() if passphrase is not None else ""
    if not given:
        raise BadInput(
            "is encrypted", hint="set ASSAY_PASSPHRASE, or run the command in a terminal, which can ask for the passphrase"
        )
    return given


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
    secret = _asked(passphrase).encode() if b"ENCRYPTED" in data else None
    try:
        pair = load_pem_private_key(data, secret)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        what = "is not a PEM of a private key" if secret is None else "the passphrase does not open it, or it is damaged"
        raise BadInput(what, hint="PKCS#8 is read: openssl pkcs8 -topk8" if secret is None else "try again") from None
    if isinstance(pair, X25519PrivateKey):
        return _x25519(pair)
    if not isinstance(pair, Ed25519PrivateKey):
        raise BadInput("is a private key of another kind than Ed25519 or X25519", hint="make one: assay keys new")
    return _ed25519(pair)


KEY_BYTES = 65_536
"""Bytes of a key file."""
_NAME = re.compile("[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class NamedKey:
    """A key file in the list: its name, its path, and its public key; None, with the problem, if it cannot be read."""

    name: str
    path: Path
    public: PublicKey | None
    problem: str = ""


def folder() -> Path:
    """The folder of the key files."""
    place = os.environ.get("ASSAY_KEYS", "")
    return Path(place) if place else Path.home() / ".config" / "assay" / "keys"


def path_of(name: str) -> Path:
    """The file of a key, by its name, or by its path if that has a slash; raises BadInput if it can be neither."""
    if "/" in name:
        return Path(name)
    if not _NAME.fullmatch(name):
        raise BadInput(f"{name[:60]!r} cannot be the name of a key", hint="use letters, digits, dots, dashes and underscores")
    return folder() / f"{name}.key"


def load(name: str, ask: Callable[[], str] | None = None) -> PrivateKey:
    """The key of a name or path; the passphrase of an encrypted one is `$ASSAY_PASSPHRASE`, or what `ask` returns.

    Raises BadInput if there is no such key, if others can read it, or if the passphrase is wrong.
    """
    path = path_of(name)
    data = load_bytes(path, KEY_BYTES, hint="`assay keys list` shows the keys there are, `assay keys new` makes one")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise BadInput(f"can be read by others (mode {mode:04o})", file=path, hint=f"let only yourself read it: chmod 600 {path}")
    secret = os.environ.get("ASSAY_PASSPHRASE", "")
    try:
        return read(data, passphrase=(lambda: secret) if secret else ask)
    except BadInput as error:
        raise error.at(file=path) from None


def save(name: str, key: PrivateKey, passphrase: str = "") -> Path:
    """Write a key to its file and return the path; raises BadInput if the name is taken or the file cannot be written."""
    path = path_of(name)
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True)
        elif "/" not in name and path.parent.stat().st_mode & 0o022:
            raise BadInput(
                "others can write to it", file=path.parent, hint=f"let only yourself write to it: chmod 700 {path.parent}"
            )
        _write(path, key.to_file(passphrase))
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=path, hint="check the folder and its permissions") from None
    return path


def _write(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(beside, path)  # unlike a rename, this fails where there is a file already
    except FileExistsError:
        hint = "choose another name; a key is never overwritten"
        raise BadInput("there is a key of this name already", file=path, hint=hint) from None
    finally:
        beside.unlink(missing_ok=True)
    flush_folder(path.parent)


def listed() -> list[NamedKey]:
    """The key files by name, each bad file with its problem; raises BadInput if the folder cannot be read."""
    place = folder()
    try:
        paths = sorted(path for path in place.iterdir() if path.suffix == ".key") if place.exists() else []
    except OSError as error:
        raise unreadable(place, error) from None
    return [_listed(path) for path in paths]


def _listed(path: Path) -> NamedKey:
    try:
        return NamedKey(path.stem, path, load(f"{path.parent}/{path.name}").public)
    except BadInput as error:
        return NamedKey(path.stem, path, None, error.what)


def sign_envelope(payload: bytes, signer: PrivateKey) -> dict[str, Any]:
    """A signed DSSE envelope, as a JSON object, around the bytes of an in-toto statement."""
    signature = signer.sign(pae(IN_TOTO, payload))
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": IN_TOTO,
        "signatures": [{"keyid": signer.public.id, "sig": base64.b64encode(signature).decode()}],
    }


SEAL_BYTES = 48
"""Bytes that sealing adds: the encapsulated key (32 bytes), and the tag after the ciphertext."""
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def seal(data: bytes, to: PublicKey, info: bytes) -> bytes:
    """The data so that only the holder of an X25519 key can open it, and only with this `info`. RFC 9180, base mode.

    Sealing the same data again gives other bytes. `info` enters the key schedule, so it binds the data to a context, as
    associated data would; the library does not take associated data. Anybody can seal: only a signature shows who it was. Raises
    BadInput for a key that signs.
    """
    if to.kind != X25519:
        raise BadInput(f"nothing can be sealed to {to}: it signs", hint="give an x25519 key: assay keys new NAME --kind x25519")
    return _SUITE.encrypt(data, X25519PublicKey.from_public_bytes(to.raw), info)


def open_sealed(data: bytes, key: PrivateKey, info: bytes) -> bytes:
    """The bytes that were sealed to this key with this `info`; raises BadInput for anything else, and for a key that signs."""
    try:
        return _SUITE.decrypt(data, key.opener(), info)
    except (InvalidTag, ValueError):
        raise BadInput(
            f"does not open with {key.public}", hint="it was sealed to another key or for something else, or was changed"
        ) from None
