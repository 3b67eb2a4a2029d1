"""The signed batches of a bundle, line by line: an envelope, and the seqs of the records that it is about. SPEC 6."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from assay.errors import BadInput
from assay.folder.evidence import parse
from assay.folder.places import Place
from assay.folder.text import opened, unreadable
from assay.ledger import check

__all__ = ["LINE_BYTES", "rows", "split"]

LINE_BYTES = 16 * 2**20
"""Bytes of a line of batches.jsonl: an envelope and the ranges of up to 100,000 records."""
BEFORE, BETWEEN = b'{"envelope":', b',"members":'


def rows(path: Path) -> Iterator[tuple[Place, bytes]]:
    """The lines of the file, and where each is; raises BadInput, also for one that is too long."""
    try:
        with opened(path) as file:
            for number, line in enumerate(iter(partial(file.readline, LINE_BYTES + 1), b""), start=1):
                if len(line) > LINE_BYTES:
                    raise BadInput(f"the line is longer than {LINE_BYTES} bytes", file=path, line=number)
                yield Place(path, number), line
    except OSError as error:
        raise unreadable(path, error) from None


def split(line: bytes, place: Place) -> tuple[bytes, list[list[int]]]:
    """The envelope of a line as it came, and the ranges of its records; raises BadInput."""
    head, between, tail = line.rpartition(BETWEEN)
    if not between or not head.startswith(BEFORE) or not tail.endswith(b"}\n"):
        raise place.refuse('is not a batch: {"envelope":…,"members":[[first,last],…]}')
    members = parse(tail[:-2], place)
    if check.misfit(members, [[int]]) or not isinstance(members, list) or not all(len(pair) == 2 for pair in members):
        raise place.refuse("is not a list of ranges", field="members")
    return head.removeprefix(BEFORE), members
