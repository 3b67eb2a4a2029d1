"""The fingerprints of submissions and of a baseline: reads their files within bounds, and keeps what it read.

Nothing of a submission is executed. A file is read as text if it is UTF-8 without NUL and not too large; any other counts by its
digest only. A submission with too much in it has no fingerprints, and that is said. docs/near-copies.md.

    copies/prints/HEX   what was read of the submission sha256:HEX; it may be removed, and is read again
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.files import write_bytes
from assay.judge import tree
from assay.rules.near_copies import Print, fingerprints, grams

__all__ = ["ALL_BYTES", "ALL_FILES", "BASELINE", "SourcePrints", "baseline_of", "baseline_state", "source_prints"]

BASELINE = ("baseline", "tasks")
FILE_BYTES = 1 << 20
"""A larger file counts by its digest only, if it is not above ALL_BYTES."""
ALL_BYTES, ALL_FILES = 4 << 20, 2_000
"""Of one submission; above it nothing is compared."""
ALL_PRINTS = 250_000
"""Fingerprints of one submission; plain source of ALL_BYTES has fewer. What repeats one sign has more, and takes memory."""
_ROW = struct.Struct("<8s4I")
_HEX = re.compile("sha256:([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True)
class SourcePrints:
    """The parts of a submission that are compared: its fingerprints, and by file the digests of files that are not source."""

    prints: tuple[Print, ...]
    others: dict[str, str]


def source_prints(place: Path, submission: str, cache: Path | None = None) -> SourcePrints:
    """The fingerprints of a submission. cache: the folder that keeps them (None: no folder does). Raises TreeError.

    submission: its digest, so that it is read once.
    """
    hexed = _HEX.fullmatch(submission)
    file = None if cache is None or hexed is None else cache / hexed[1]
    if file is not None:
        with suppress(OSError, ValueError, KeyError, struct.error, IndexError):
            return _unpacked(file.read_bytes())
    if file is None:
        return _read(place, submission)
    prints = _read.__wrapped__(place, submission)
    write_bytes(file, _packed(prints))
    return prints


@lru_cache(maxsize=256)
def _read(place: Path, submission: str) -> SourcePrints:
    """The fingerprints out of the files. submission: its digest, which is what is remembered."""
    texts: dict[str, str] = {}
    digests: dict[str, str] = {}
    for entry in tree.walk(place, bounds=tree.Bounds(bytes=ALL_BYTES, files=ALL_FILES)):
        if entry.kind not in ("file", "exec"):
            continue
        beneath = "" if entry.path == "." else entry.path
        data = tree.peek(place, beneath, most=ALL_BYTES) or b""
        try:
            if len(data) > FILE_BYTES or b"\0" in data:
                raise ValueError
            texts[beneath or place.name] = data.decode()
        except ValueError:
            digests[beneath or place.name] = sha256(data).hexdigest()
    prints: list[Print] = []
    for file, text in texts.items():
        prints += fingerprints({file: text})
        if len(prints) > ALL_PRINTS:
            raise tree.TooMuch(f"has more than {ALL_PRINTS} fingerprints", file=place)
    return SourcePrints(tuple(prints), digests)


def _packed(prints: SourcePrints) -> bytes:
    files = {name: at for at, name in enumerate(dict.fromkeys(mark.file for mark in prints.prints))}
    head = canonical({"files": [*files], "others": prints.others})
    rows = (_ROW.pack(mark.hash, files[mark.file], mark.word, mark.first, mark.last) for mark in prints.prints)
    return head + b"\n" + b"".join(rows)


def _unpacked(data: bytes) -> SourcePrints:
    """The fingerprints that `_packed` wrote; raises ValueError, KeyError, IndexError or struct.error for anything else."""
    end = data.index(b"\n")
    head = json.loads(data[:end])
    files = head["files"]
    rows = _ROW.iter_unpack(data[end + 1 :])
    return SourcePrints(tuple(Print(hash_, files[at], *rest) for hash_, at, *rest in rows), dict(head["others"]))


def baseline_of(places: Sequence[Path]) -> frozenset[bytes]:
    """The hashes of all files of some folders; a place that is not there has none. Raises BadInput for one that is too large."""
    hashes: set[bytes] = set()
    for place in places:
        if not os.path.lexists(place):
            continue
        try:
            for entry in tree.walk(place):
                beneath = "" if entry.path == "." else entry.path
                if entry.kind in ("file", "exec") and entry.size <= FILE_BYTES:
                    text = (tree.peek(place, beneath, most=FILE_BYTES) or b"").decode("utf-8", "replace")
                    hashes.update(gram.hash for gram in grams(beneath, text))
        except tree.TreeError as error:
            raise BadInput(f"cannot be a baseline: {error}", file=place, hint="name a folder of source") from None
    return frozenset(hashes)


def baseline_state(folder: Path) -> str:
    """Return what changes when a file of a competition's baseline does: names, sizes and times. Raises BadInput."""
    rows = []
    for name in BASELINE:
        for place, folders, files in os.walk(folder / name):
            folders.sort()
            for file in sorted(files):
                path = Path(place, file)
                with suppress(OSError):
                    status = path.lstat()
                    rows.append(f"{path.relative_to(folder)}\0{status.st_size}\0{status.st_mtime_ns}")
    return sha256("\n".join(rows).encode("utf-8", "surrogateescape")).hexdigest()[:16]
