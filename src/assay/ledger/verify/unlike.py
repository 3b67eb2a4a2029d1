"""Which of a receipt's records are not those that were signed: for a message that says whose they are. SPEC 6.

A receipt binds its records by one root, which only tells that something is another. The batches beside them tell more, since each
has a root that its validator signed: the first one whose records differ is named, or the first record that is in none.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from assay.errors import BadInput, Refused
from assay.ledger import batch, check, evidence, keys
from assay.ledger.batch import BatchStatement
from assay.ledger.evidence import Held
from assay.ledger.verify import batches

__all__ = ["named"]

NAMES = 3
"""Participants, submissions or ranges that are named; of the others it is said how many they are."""
Ranges = Sequence[Sequence[int]]


def named(path: Path, found: Held, signed: Path | None, epochs: tuple[int, int]) -> Refused | None:
    """What is refused of the records in a file; None if all are as they were signed, or nothing says how that was.

    signed: the batches. epochs: the first and the last of the receipt's.
    """
    here = dict(zip(found.seqs, zip(found.digests, found.said, strict=True), strict=True))
    left = set(here)
    try:
        for stated, members in _batches(signed, epochs):
            wanted = {seq for first, last in members for seq in range(first, last + 1)}
            left -= wanted
            mine = sorted(here[seq][0] for seq in wanted if seq in here)
            if len(mine) != len(wanted) or batch.root_of(mine) != stated.root:
                return _other(path, stated, members, len(wanted) - len(mine), batch.root_of(mine))
    except BadInput:
        return None
    if signed is None or not left:
        return None
    seq = min(left)
    what = f"nobody signed the record with seq {seq}, which is said to be of {here[seq][1][2]}"
    return Refused("evidence", what, participant=_participants(path, [[seq, seq]]), file=path)


def _batches(signed: Path | None, epochs: tuple[int, int]) -> Iterator[tuple[BatchStatement, Ranges]]:
    """Those of the epochs that can be read and are signed; the others are refused at their own stage. Raises BadInput."""
    for place, line in [] if signed is None else batches.rows(signed):
        with suppress(BadInput, check.Refused):
            envelope, members = batches.split(line, place)
            stated = batch.stated(envelope)[1]
            batch.check_envelope(envelope, keys.public(stated.validator))
            count = sum(last - first + 1 for first, last in members)
            whole = stated.count == count <= batch.RECORDS and all(first <= last for first, last in members)
            if whole and epochs[0] <= stated.epoch <= epochs[1]:
                yield stated, members


def _other(path: Path, stated: BatchStatement, members: Ranges, missing: int, root: str) -> Refused:
    """What is refused of a batch's records, of which so many are missing, and the others have this root."""
    seqs = _few([str(first) if first == last else f"{first} … {last}" for first, last in members])
    about = _few([one for one in stated.submissions if one])
    of = f"of the records with seq {seqs} that {stated.validator} signed{about and f' about {about}'}"
    whose = _participants(path, members)
    if missing:
        return Refused("evidence", f"{of}, {missing} {'is' if missing == 1 else 'are'} missing", participant=whose, file=path)
    what = f"{of}, at least one was changed"
    return Refused("evidence", what, participant=whose, expected=stated.root, found=root, file=path)


def _participants(path: Path, members: Ranges) -> str:
    """Whom the records in these ranges are about, as they are now."""
    seqs = {seq for first, last in members for seq in range(first, last + 1)}
    bodies = itertools.chain.from_iterable(zip(part.seqs, part.bodies, strict=True) for part in evidence.parts(path))
    return _few(sorted({json.loads(body)["participant"] for seq, body in bodies if seq in seqs}))


def _few(names: Sequence[str]) -> str:
    """The first of them as they are, and how many more there are."""
    more = len(names) - NAMES
    return ", ".join(names[:NAMES]) + (f" and {more} more" if more > 0 else "")
