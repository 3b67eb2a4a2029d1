"""Build the Merkle tree of RFC 6962: its root, and the proofs that `assay.ledger.check` checks. SPEC 6.

The functions ask a tree for the hashes of whole subtrees, `node(level, index)`: the subtree number `index` of those with 2^level
leaves. `Tree` has these hashes in memory; `assay.ledger.log` reads them from tiles on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from assay.ledger.check import EMPTY_ROOT, node_hash

__all__ = ["Frontier", "Node", "Proof", "Tree", "consistency", "inclusion", "root", "span"]

Node = Callable[[int, int], bytes]
"""The hash of the whole subtree at (level, index)."""


@dataclass(frozen=True)
class Proof:
    """A proof that a leaf is in a tree: the leaf's index, the number of leaves, the hashes from the leaf up."""

    index: int
    size: int
    hashes: tuple[bytes, ...]


def root(hashes: Sequence[bytes]) -> bytes:
    """The root over leaf hashes; that of no leaves is the SHA-256 of nothing. RFC 6962, 2.1."""
    level = list(hashes)
    while len(level) > 1:
        level = _paired(level) + level[len(level) & ~1 :]  # a node without a neighbour moves up unchanged
    return level[0] if level else EMPTY_ROOT


def _paired(level: Sequence[bytes]) -> list[bytes]:
    """The parents of neighbouring hashes; a last hash without a neighbour is left out."""
    each = iter(level)
    return [sha256(b"\x01" + left + right).digest() for left, right in zip(each, each, strict=False)]


class Frontier:
    """The part of a tree that leaves can be added to: the roots of its largest whole subtrees, from left to right."""

    def __init__(self, count: int = 0, hashes: Sequence[bytes] = ()) -> None:
        self.count, self.hashes = count, list(hashes)
        if count.bit_count() != len(self.hashes):
            raise ValueError(f"a tree of {count} leaves has {count.bit_count()} such subtrees, not {len(self.hashes)}")

    def add(self, leaf: bytes) -> None:
        """Add a leaf hash."""
        below = self.count
        while below & 1:
            leaf = node_hash(self.hashes.pop(), leaf)
            below >>= 1
        self.hashes.append(leaf)
        self.count += 1

    def root(self) -> bytes:
        """The root over all leaves: the same as `root` gives."""
        if not self.hashes:
            return EMPTY_ROOT
        *rest, hash_ = self.hashes
        for left in reversed(rest):
            hash_ = node_hash(left, hash_)
        return hash_


def span(node: Node, begin: int, end: int) -> bytes:
    """The root over the leaves begin … end − 1; `begin` must start a subtree that is at least as large as this range."""
    if begin == end:
        return EMPTY_ROOT
    parts = []
    while begin < end:
        level = (end - begin).bit_length() - 1
        parts.append(node(level, begin >> level))
        begin += 1 << level
    hash_ = parts.pop()
    while parts:
        hash_ = node_hash(parts.pop(), hash_)
    return hash_


def inclusion(node: Node, size: int, index: int) -> Proof:
    """The proof that leaf `index` is in the tree of the first `size` leaves; ValueError unless index < size. RFC 6962, 2.1.1."""
    if not 0 <= index < size:
        raise ValueError(f"there is no leaf {index} in a tree of {size}")
    begin, end, beside = 0, size, []
    while end - begin > 1:
        middle = begin + _largest_below(end - begin)
        if index < middle:
            beside.append((middle, end))
            end = middle
        else:
            beside.append((begin, middle))
            begin = middle
    return Proof(index, size, tuple(span(node, *leaves) for leaves in reversed(beside)))


def consistency(node: Node, old: int, new: int) -> tuple[bytes, ...]:
    """The proof that the tree of the first `old` leaves is the beginning of that of `new`. RFC 6962, 2.1.2.

    Raises ValueError unless old <= new. From no leaves, and from all of them, there is nothing to prove.
    """
    if not 0 <= old <= new:
        raise ValueError(f"a tree of {new} does not go on from one of {old}")
    if old in (0, new):
        return ()
    begin, end, beside = 0, new, []
    while end != old:
        middle = begin + _largest_below(end - begin)
        if old <= middle:
            beside.append((middle, end))
            end = middle
        else:
            beside.append((begin, middle))
            begin = middle
    if begin:
        beside.append((begin, end))
    return tuple(span(node, *leaves) for leaves in reversed(beside))


def _largest_below(count: int) -> int:
    """The largest power of two below a count of at least 2."""
    return 1 << ((count - 1).bit_length() - 1)


class Tree:
    """A tree in memory, of leaf hashes in order: made in O(n), each proof in O(log n)."""

    def __init__(self, hashes: Sequence[bytes]) -> None:
        self.levels = [list(hashes)]
        while len(self.levels[-1]) > 1:
            self.levels.append(_paired(self.levels[-1]))

    @property
    def size(self) -> int:
        """The number of leaves."""
        return len(self.levels[0])

    def node(self, level: int, index: int) -> bytes:
        """The hash of a whole subtree."""
        return self.levels[level][index]

    def root(self, size: int | None = None) -> bytes:
        """The root over the first `size` leaves, or over all."""
        return span(self.node, 0, self.size if size is None else size)

    def inclusion(self, index: int, size: int | None = None) -> Proof:
        """The proof of a leaf in the tree of the first `size` leaves, or of all."""
        return inclusion(self.node, self.size if size is None else size, index)

    def consistency(self, old: int, new: int | None = None) -> tuple[bytes, ...]:
        """The proof between the first `old` leaves and the first `new`, or all."""
        return consistency(self.node, old, self.size if new is None else new)
