"""Merkle trees and their proofs as RFC 6962 defines them, by recursion over the entries; and tiles as C2SP does. SPEC 6."""

import base64
import hashlib
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["consistency", "inclusion", "leaf", "note", "proof", "root", "tile", "tile_name", "tree_of", "vkey"]


def _sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def leaf(entry: bytes) -> bytes:
    """MTH({d(0)}). RFC 6962, 2.1."""
    return _sha(b"\x00" + entry)


def _k(n: int) -> int:
    """The largest power of two smaller than n."""
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def tree_of(hashes: Sequence[bytes]) -> bytes:
    """MTH over leaf hashes. RFC 6962, 2.1."""
    n = len(hashes)
    if n == 0:
        return _sha(b"")
    if n == 1:
        return hashes[0]
    k = _k(n)
    return _sha(b"\x01" + tree_of(hashes[:k]) + tree_of(hashes[k:]))


def root(entries: Sequence[bytes]) -> bytes:
    """MTH(D[n]). RFC 6962, 2.1."""
    return tree_of([leaf(entry) for entry in entries])


def inclusion(m: int, hashes: Sequence[bytes]) -> list[bytes]:
    """PATH(m, D[n]). RFC 6962, 2.1.1."""
    n = len(hashes)
    if n == 1:
        return []
    k = _k(n)
    if m < k:
        return [*inclusion(m, hashes[:k]), tree_of(hashes[k:])]
    return [*inclusion(m - k, hashes[k:]), tree_of(hashes[:k])]


def consistency(m: int, hashes: Sequence[bytes]) -> list[bytes]:
    """PROOF(m, D[n]); from no entries there is none. RFC 6962, 2.1.2."""
    return _subproof(m, hashes, True) if m else []


def _subproof(m: int, hashes: Sequence[bytes], whole: bool) -> list[bytes]:
    n = len(hashes)
    if m == n:
        return [] if whole else [tree_of(hashes)]
    k = _k(n)
    if m <= k:
        return [*_subproof(m, hashes[:k], whole), tree_of(hashes[k:])]
    return [*_subproof(m - k, hashes[k:], False), tree_of(hashes[:k])]


def tile(level: int, index: int, hashes: Sequence[bytes]) -> list[bytes]:
    """The hashes of a tile: MTH(D[(n·256 + i)·256^l : (n·256 + i + 1)·256^l]), as far as the tree goes. C2SP tlog-tiles."""
    span = 256**level
    starts = [(index * 256 + i) * span for i in range(256)]
    return [tree_of(hashes[start : start + span]) for start in starts if start + span <= len(hashes)]


def tile_name(level: int | str, index: int, width: int) -> str:
    """The path of a tile. C2SP tlog-tiles."""
    parts = [f"{index % 1000:03d}"]
    while index >= 1000:
        index //= 1000
        parts.insert(0, f"x{index % 1000:03d}")
    return f"tile/{level}/" + "/".join(parts) + (f".p/{width}" if width < 256 else "")


def _raw(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _hint(name: str, key: Ed25519PrivateKey) -> bytes:
    return _sha(name.encode() + b"\x0a\x01" + _raw(key))[:4]


def vkey(name: str, key: Ed25519PrivateKey) -> str:
    """The public key of a note. C2SP signed-note."""
    return f"{name}+{_hint(name, key).hex()}+{base64.b64encode(bytes([1]) + _raw(key)).decode()}"


def signature(text: str, name: str, key: Ed25519PrivateKey) -> str:
    """A line of a note with a signature. C2SP signed-note."""
    return f"— {name} {base64.b64encode(_hint(name, key) + key.sign(text.encode())).decode()}\n"


def note(name: str, size: int, top: bytes, key: Ed25519PrivateKey) -> str:
    """A signed checkpoint. C2SP tlog-checkpoint."""
    text = f"{name}\n{size}\n{base64.b64encode(top).decode()}\n"
    return f"{text}\n{signature(text, name, key)}"


def witness_vkey(name: str, key: Ed25519PrivateKey) -> str:
    """The public key of a witness. C2SP tlog-cosignature."""
    return f"{name}+{_witness(name, key).hex()}+{base64.b64encode(bytes([4]) + _raw(key)).decode()}"


def _witness(name: str, key: Ed25519PrivateKey) -> bytes:
    return _sha(name.encode() + b"\x0a\x04" + _raw(key))[:4]


def cosignature(text: str, name: str, key: Ed25519PrivateKey, time: int) -> str:
    """A line of a note with a cosignature. C2SP tlog-cosignature."""
    signed = key.sign(f"cosignature/v1\ntime {time}\n{text}".encode())
    return f"— {name} {base64.b64encode(_witness(name, key) + time.to_bytes(8, 'big') + signed).decode()}\n"


def proof(index: int, hashes: Sequence[bytes], checkpoint: str) -> str:
    """A log proof. C2SP tlog-proof."""
    lines = "".join(f"{base64.b64encode(sibling).decode()}\n" for sibling in hashes)
    return f"c2sp.org/tlog-proof@v1\nindex {index}\n{lines}\n{checkpoint}"
