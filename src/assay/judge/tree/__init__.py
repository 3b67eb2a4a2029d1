"""Folders as values: a digest, a copy, a clean removal, of trees that untrusted programs wrote.

- Nothing is reached through a link: every step down opens a name in a folder that is already held open, and links refuse to open.
- Only plain files, folders and links are kept. A device, FIFO or socket is never opened.
- A file with holes costs what is in it, not what its size says; an all-zero block counts as a hole, wherever it came from.
- A file with several names is read and copied once, and keeps its names.
- Everything has a bound (`TooMuch`); removal has none, because it must always work.

OSError is let through: it is the host's trouble, which callers tell apart from what the tree did.
"""

from assay.judge.tree.copying import Copied, Links, copy, stays_inside
from assay.judge.tree.digests import digest
from assay.judge.tree.looking import Room, Usage, measure, peek, room, walk
from assay.judge.tree.model import DEPTH, OURS, Bounds, Entry, Kind, Missing, NotPlain, TooMuch, TreeError
from assay.judge.tree.removal import prune, remove

__all__ = [
    "DEPTH",
    "OURS",
    "Bounds",
    "Copied",
    "Entry",
    "Kind",
    "Links",
    "Missing",
    "NotPlain",
    "Room",
    "TooMuch",
    "TreeError",
    "Usage",
    "copy",
    "digest",
    "measure",
    "peek",
    "prune",
    "remove",
    "room",
    "stays_inside",
    "walk",
]
