"""One byte string out of several parts, so that no two lists of parts give the same: each after its length in eight bytes."""

from __future__ import annotations

__all__ = ["bound"]


def bound(*parts: str | bytes) -> bytes:
    """The parts (text as UTF-8), each after its length (8 bytes, big-endian); the first names what it is for."""
    raw = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(len(part).to_bytes(8, "big") + part for part in raw)
