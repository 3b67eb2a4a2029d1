"""acknowledged.jsonl beside ledger.toml: what was answered for, so that a batch that was taken in cannot vanish unseen. SPEC 6.

A line for each batch, written and flushed to the disk when the batch is in the database, before whoever handed it in hears of it:

    {"batch":"sha256:…","digest":"sha256:…","epoch":3,"validator":"…"}

`digest` is taken over the digest of the line before ("" for the first) and this line without it, so that no line can be changed
or left out but at the end. The owner of a shared database can delete a batch of an open epoch. This file is not in the database,
and `assay ledger check` holds the one against the other. A ledger that takes batches in on several machines has a file on each.

If the line cannot be written, the batch is kept and nobody is answered. Handed in again it is answered, with one line.
"""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from typing import BinaryIO

from assay.errors import BadInput
from assay.exact import canonical, digest
from assay.folder.evidence import parse
from assay.folder.places import Place
from assay.folder.write import lock
from assay.ledger import check
from assay.ledger.batch import Batch
from assay.ledger.store import Damaged

__all__ = ["FILE", "add", "held_against"]

FILE = "acknowledged.jsonl"
_SHAPE = {"batch": check.DIGEST, "digest": check.DIGEST, "epoch": int, "validator": check.WORD}
_HINT = "restore the file from a copy, or move it away, and compare what validators were answered with `assay evidence list`"


def add(path: Path, batch: Batch, *, new: bool) -> None:
    """Write the line of a batch that the database has, and flush it; nothing, if it has one. Raises BadInput if that fails.

    new: the batch was not there before, so that it has no line.
    """
    said = batch.statement
    try:
        with path.open("a+b") as file:
            lock(file.fileno())
            before = _end(file, path, batch.digest, whole=not new)
            if before is not None:
                row = {"batch": batch.digest, "epoch": said.epoch, "validator": said.validator}
                file.write(canonical(row | {"digest": _digest(before, row)}) + b"\n")
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        what = f"cannot be written ({error.strerror}): the batch {batch.digest} is kept, and not acknowledged"
        raise BadInput(what, file=path, hint="correct that, and hand the batch in again") from None


def held_against(path: Path, batches: Container[str]) -> int:
    """How many batches were acknowledged, all of which are among those; 0 without a file.

    Raises Damaged for one that is not, which it names, and BadInput for a line that is not as it was written.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=path, hint=_HINT) from None
    before, seen = "", set[object]()
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):  # what is after the last line end was never answered
        row = _row(line, Place(path, number), before)
        if row["batch"] not in batches:
            whose = f"of {row['validator']}, epoch {row['epoch']}"
            what = f"batch {row['batch']} {whose}, was acknowledged, and the ledger has it no more"
            raise Damaged(
                what, file=path, line=number, hint="restore the database from a copy, or ask the validator for it again"
            )
        before = str(row["digest"])
        seen.add(row["batch"])
    return len(seen)


def _end(file: BinaryIO, path: Path, name: str, *, whole: bool) -> str | None:
    """The digest of the last line, "" if there is none; None if a batch of this name has a line, which `whole` looks for.

    What a crash left of a line is cut off.
    """
    size = file.seek(0, os.SEEK_END)
    begin = 0 if whole else max(0, size - 2**16)
    file.seek(begin)
    data = file.read()
    kept = data[: data.rfind(b"\n") + 1]
    if len(kept) < len(data):
        file.truncate(begin + len(kept))
    if whole and f'"batch":"{name}"'.encode() in kept:
        return None
    lines = kept.split(b"\n")[:-1]
    return str(_row(lines[-1], Place(path), None)["digest"]) if lines else ""


def _row(line: bytes, place: Place, before: str | None) -> dict[str, object]:
    """A line, as it was written; after a line with the digest `before`, None: after any. Raises BadInput."""
    row = parse(line, place)
    if check.misfit(row, _SHAPE) or not isinstance(row, dict):
        raise place.refuse("is no acknowledgement", hint=_HINT)
    if before is not None and row["digest"] != _digest(before, {name: row[name] for name in row if name != "digest"}):
        raise place.refuse("is not what was written here after the line before: another digest", field="digest", hint=_HINT)
    return row


def _digest(before: str, row: dict[str, object]) -> str:
    return digest(row | {"before": before})
