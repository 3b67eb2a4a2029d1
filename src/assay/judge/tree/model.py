"""The nouns of trees: bounds, entries, and what can be wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from assay.errors import AssayError

__all__ = ["DEPTH", "OURS", "Bounds", "Budget", "Entry", "Kind", "Missing", "NotPlain", "TooMuch", "TreeError"]

Kind = Literal["file", "exec", "folder", "link", "fifo", "socket", "device"]

DEPTH = 128
"""Folders inside one another, so that a walk holds a bounded number of descriptors."""


class TreeError(AssayError):
    """A tree is not what was asked for."""


class TooMuch(TreeError):
    """A tree is over its bounds on bytes, entries or depth."""


class Missing(TreeError):
    """There is nothing at that place, or it could only be reached through a link."""


class NotPlain(TreeError):
    """A plain file was asked for, and something else is there."""


@dataclass(frozen=True)
class Bounds:
    """How large a tree may be."""

    bytes: int
    """Of data in files, written zeros too; holes do not count. A file with several names counts once for a copy, which keeps
    them, and each time for a digest, unless that is told `once`: what a set of files is must not hang on how it is stored."""
    files: int
    """Entries of any kind."""
    depth: int = DEPTH


OURS = Bounds(bytes=64 << 30, files=1_000_000)
"""For trees that a user of Assay wrote: task sets, agents."""


@dataclass(frozen=True)
class Entry:
    """One thing in a tree."""

    path: str
    """From the top, with slashes; `.` is the top itself. Bytes that are not UTF-8 stand as surrogates."""
    kind: Kind
    size: int
    mode: int
    """Permission bits."""
    target: str = ""
    """Where a link points."""


@dataclass
class Budget:
    """What a walk has used of its bounds."""

    bounds: Bounds
    files: int = 0
    bytes: int = 0

    def entry(self, depth: int) -> None:
        """Counts an entry; raises TooMuch."""
        self.files += 1
        if self.files > self.bounds.files:
            raise TooMuch(f"has more than {self.bounds.files} files and folders")
        if depth > self.bounds.depth:
            raise TooMuch(f"has folders more than {self.bounds.depth} deep")

    def data(self, count: int) -> None:
        """Counts bytes of data; raises TooMuch."""
        self.bytes += count
        if self.bytes > self.bounds.bytes:
            raise TooMuch(f"has more than {self.bounds.bytes} bytes in its files")
