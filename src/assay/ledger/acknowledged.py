"""acknowledged.jsonl beside ledger.toml: what was answered for, so that a batch that was taken in cannot vanish unseen. SPEC 6.

A line for each batch, written and flushed to the disk when the batch is in the database, before whoever handed it in hears of it:

    {"batch":"sha256:…","digest":"sha256:…","epoch":3,"validator":"…"}

`digest` is taken over the digest of the line before ("" for the first) and this line without it, so that no line can be changed
or left out but at the end. The owner of a shared database can delete a batch of an open epoch, or change it. This file is not in
the database: `assay ledger check` holds the one against the other, and nothing is settled while a batch is missing. A ledger that
takes batches in on several machines has a file on each.

A batch that is lost for good is given up by one more line, with "lost" after the epoch: from then on nobody misses it.

If the line cannot be written, the batch is kept and nobody is answered. Handed in again it is answered, with one line.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from assay.errors import BadInput, brief
from assay.exact import canonical, digest
from assay.folder.evidence import parse
from assay.folder.places import Place
from assay.folder.write import lock
from assay.ledger import check
from assay.ledger.batch import Batch
from assay.ledger.sound import Judge
from assay.ledger.store import Damaged, KeptBatch, View

__all__ = ["FILE", "add", "give_up", "held_against", "missing", "unseen"]

Row = dict[str, object]
FILE = "acknowledged.jsonl"
_SHAPE = {"batch": check.DIGEST, "digest": check.DIGEST, "epoch": int, "lost?": "for good", "validator": check.WORD}
_HINT = "restore the file from a copy, or move it away, and compare what validators were answered with `assay evidence list`"


def add(path: Path, batch: Batch, *, new: bool) -> None:
    """Write the line of a batch that the database has, and flush it; nothing, if it has one. Raises BadInput if that fails.

    new: the batch was not there before, so that it has no line.
    """
    said = batch.statement
    row = {"batch": batch.digest, "epoch": said.epoch, "validator": said.validator}
    what = f"the batch {batch.digest} is kept, and not acknowledged"
    _append(path, row, f'"batch":"{batch.digest}"' if not new else "", what, "correct that, and hand the batch in again")


def give_up(path: Path, batches: Collection[str]) -> None:
    """Write down of batches, by digest, that they were acknowledged and are lost for good; raises BadInput if one was not."""
    answered = {str(row["batch"]): row for _, row in _rows(path)}
    for name in batches:
        if name not in answered:
            raise BadInput(f"batch {brief(name, 80)} was never acknowledged here", file=path, hint="name one that is missing")
    for name in batches:
        if "lost" not in answered[name]:
            row = answered[name] | {"lost": "for good"}
            del row["digest"]
            _append(path, row, "", "nothing was given up", "correct that, then do it again")


def missing(path: Path, batches: Container[str]) -> tuple[int, list[tuple[int, Row]]]:
    """How many batches were acknowledged and not given up, and the lines (from 1) of those that are not among these.

    None were without a file. Raises BadInput for a line that is not as it was written.
    """
    last = {row["batch"]: (number, row) for number, row in _rows(path)}
    kept = [one for one in last.values() if "lost" not in one[1]]
    return len(kept), [(number, row) for number, row in kept if row["batch"] not in batches]


def held_against(path: Path, batches: Container[str], aside: Mapping[str, str] = {}) -> int:
    """How many batches were acknowledged and not given up, all of which count: they are among these; 0 without a file.

    aside: batch → why it does not count. Raises Damaged for one that does not, which it names, and BadInput for a line that is
    not as it was written.
    """
    count, gone = missing(path, batches)
    for number, row in gone:
        whose = f"of {row['validator']}, epoch {row['epoch']}"
        why = aside.get(str(row["batch"]))
        how = "the ledger has it no more" if why is None else f"it does not count: {why}"
        what = f"batch {row['batch']} {whose}, was acknowledged, and {how}"
        hint = "restore the database from a copy, or ask the validator for the batch and add it again"
        hint += f"; to go on without it for good: assay ledger lost {path.parent} {row['batch']}"
        raise Damaged(what, file=path, line=number, hint=hint)
    return count


def unseen(path: Path, view: View, key: str) -> list[KeptBatch]:
    """The batches of open epochs that could be deleted unseen: no line is of them, and the log's key signed nothing of them.

    Such are in a ledger of an earlier version that was brought forward, until its next receipt. key: the log's public key.
    """
    answered = {str(row["batch"]) for _, row in _rows(path)}
    settled, signed = view.settled_epoch(), Judge(view, key).before.batches
    open_ = view.batches(0 if settled is None else settled + 1)
    return [one for one in open_ if one.id > signed and one.digest not in answered]


def _append(path: Path, row: Row, known: str, what: str, hint: str) -> None:
    """Add a line; nothing, where one has the text `known`."""
    try:
        with path.open("a+b") as file:
            lock(file.fileno())
            before = _end(file, path, known)
            if before is not None:
                file.write(canonical(row | {"digest": _digest(before, row)}) + b"\n")
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror}): {what}", file=path, hint=hint) from None


def _rows(path: Path) -> Iterator[tuple[int, Row]]:
    """The lines, with their numbers; none without a file. Raises BadInput for one that is not as it was written."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=path, hint=_HINT) from None
    before = ""
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):  # what is after the last line end was never answered
        row = _row(line, Place(path, number), before)
        before = str(row["digest"])
        yield number, row


def _end(file: BinaryIO, path: Path, known: str) -> str | None:
    """The digest of the last line, "" if there is none; None if a line has the text `known`, unless that is empty.

    What a crash left of a line is cut off.
    """
    size = file.seek(0, os.SEEK_END)
    begin = 0 if known else max(0, size - 2**16)
    file.seek(begin)
    data = file.read()
    kept = data[: data.rfind(b"\n") + 1]
    if len(kept) < len(data):
        file.truncate(begin + len(kept))
    if known and known.encode() in kept:
        return None
    lines = kept.split(b"\n")[:-1]
    return str(_row(lines[-1], Place(path), None)["digest"]) if lines else ""


def _row(line: bytes, place: Place, before: str | None) -> Row:
    """A line, as it was written; after a line with the digest `before`, None: after any. Raises BadInput."""
    row = parse(line, place)
    if check.misfit(row, _SHAPE) or not isinstance(row, dict):
        raise place.refuse("is no acknowledgement", hint=_HINT)
    if before is not None and row["digest"] != _digest(before, {name: row[name] for name in row if name != "digest"}):
        raise place.refuse("is not what was written here after the line before: another digest", field="digest", hint=_HINT)
    return row


def _digest(before: str, row: Row) -> str:
    return digest(row | {"before": before})
