"""The pieces that a log is kept in: tiles of hashes and bundles of entries, and what their files are called (C2SP tlog-tiles)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from assay.ledger import merkle
from assay.ledger.check import leaf_hash

__all__ = ["ENTRY_BYTES", "HASH", "WIDTH", "Place", "bundle", "edge", "files", "fold", "grow", "root", "tile_path", "unbundle"]

WIDTH = 256
"""Hashes of a full tile."""
HASH = 32
"""Bytes of a hash."""
ENTRY_BYTES = 2**16 - 1
"""Bytes of an entry."""

Place = tuple[int, int]
"""Level and number of a tile."""


def tile_path(level: int | str, index: int, width: int = WIDTH) -> str:
    """Where a tile is: `tile/0/x001/x234/067`, with `.p/W` after it where it has fewer than 256 hashes.

    level: 0 … 63, or "entries". Raises ValueError if there is no such tile.
    """
    known = 0 <= level <= 63 if isinstance(level, int) else level == "entries"
    if not known or index < 0 or not 1 <= width <= WIDTH:
        raise ValueError(f"there is no tile {level}/{index} of width {width}")
    *before, last = f"{index:,}".split(",")
    parts = [*(f"x{part:>03}" for part in before), f"{last:>03}"]
    return f"tile/{level}/{'/'.join(parts)}" + ("" if width == WIDTH else f".p/{width}")


def edge(size: int) -> Iterator[tuple[int, int, int]]:
    """The partial tiles of a tree, one a level at most, from the leaves up: (level, index, width)."""
    level = 0
    while size:
        if size % WIDTH:
            yield level, size // WIDTH, size % WIDTH
        size, level = size // WIDTH, level + 1


def fold(data: bytes) -> bytes:
    """The root over the hashes in a tile, or in a part of one."""
    return merkle.root([data[at : at + HASH] for at in range(0, len(data), HASH)])


def root(tiles: Mapping[Place, bytes], size: int) -> bytes:
    """The root of a tree of `size` leaves, from its partial tiles."""

    def node(level: int, index: int) -> bytes:
        tile, rest = divmod(level, 8)
        place, begin = divmod(index << rest, WIDTH)
        return fold(tiles[tile, place][begin * HASH : (begin + (1 << rest)) * HASH])

    return merkle.span(node, 0, size)


def grow(tiles: Mapping[Place, bytes], size: int, entries: Sequence[bytes]) -> dict[Place, bytes]:
    """The tiles that are new or longer when entries are added to a tree of `size` leaves with these partial tiles."""
    grown, hashes, level = dict[Place, bytes](), [leaf_hash(one) for one in entries], 0
    while hashes:
        index = size // WIDTH
        data = (tiles[level, index] if size % WIDTH else b"") + b"".join(hashes)
        hashes = []
        for at in range(0, len(data), WIDTH * HASH):
            grown[level, index] = chunk = data[at : at + WIDTH * HASH]
            index += 1
            if len(chunk) == WIDTH * HASH:
                hashes.append(fold(chunk))
        size, level = size // WIDTH, level + 1
    return grown


def files(entries: Sequence[bytes]) -> dict[str, bytes]:
    """All tiles and bundles of a log with these entries: path → bytes."""
    found = {tile_path(*at, len(data) // HASH): data for at, data in grow({}, 0, entries).items()}
    for at in range(0, len(entries), WIDTH):
        part = entries[at : at + WIDTH]
        found[tile_path("entries", at // WIDTH, len(part))] = bundle(part)
    return found


def bundle(entries: Sequence[bytes]) -> bytes:
    """Entries in a file, each after its length in two bytes; ValueError if one is longer than ENTRY_BYTES."""
    if any(len(one) > ENTRY_BYTES for one in entries):
        raise ValueError(f"an entry is longer than {ENTRY_BYTES} bytes")
    return b"".join(len(one).to_bytes(2, "big") + one for one in entries)


def unbundle(data: bytes) -> list[bytes]:
    """The entries in a bundle; ValueError if it ends within one."""
    found, at = [], 0
    while at < len(data):
        begin = at + 2
        at = begin + int.from_bytes(data[at:begin], "big")
        if at > len(data) or begin > len(data):
            raise ValueError("it ends within an entry")
        found.append(data[begin:at])
    return found
