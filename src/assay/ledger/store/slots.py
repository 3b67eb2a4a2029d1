"""The slot of a record as 16 bytes, and which record of a slot was accepted first. SPEC 3.0.

8 bytes of SHA-256 of the run (kind, validator, submission or participant), then 8 of the whole: so a run's records stand together
in the index. Different slots may share these bytes, if somebody takes pains; so what has the same is always compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from sqlalchemy import Connection

from assay.ledger.store.rows import Row
from assay.ledger.store.tables import MARK
from assay.records import Evidence, record

__all__ = ["Candidate", "candidates", "contradictions", "same", "slot_of"]

AT_ONCE = 500
"""Slots that are looked up in one query."""


class Candidate(NamedTuple):
    """A record that may be of the slot that is looked for, and the batch that brought it."""

    seq: int
    digest: bytes
    body: bytes
    batch: int


def slot_of(one: Evidence) -> bytes:
    """The 16 bytes. No part of a slot has a zero byte in it."""
    slot = one.slot
    run = _run(*slot[:3])
    return run + sha256(run + "\0".join(map(str, slot[3:])).encode()).digest()[:8]


@lru_cache(maxsize=4096)
def _run(*parts: object) -> bytes:
    return sha256("\0".join(map(str, parts)).encode()).digest()[:8]


def candidates(connection: Connection, slots: Sequence[bytes]) -> dict[bytes, list[Candidate]]:
    """Slot → what is there under its 16 bytes, in order of acceptance; slots with nothing are left out."""
    found: dict[bytes, list[Candidate]] = {}
    mark = MARK[connection.dialect.name]
    for at in range(0, len(slots), AT_ONCE):
        some = tuple(slots[at : at + AT_ONCE])
        query = f"SELECT slot, seq, digest, body, batch FROM records WHERE slot IN ({', '.join([mark] * len(some))}) ORDER BY seq"
        for slot, *rest in connection.exec_driver_sql(query, some):
            found.setdefault(slot, []).append(Candidate(*rest))
    return found


def same(one: Evidence, there: Iterable[Candidate]) -> Evidence | None:
    """The first of the candidates that is of the record's slot indeed."""
    slot = one.slot
    parsed = (record(json.loads(candidate.body)) for candidate in there)
    return next((earlier for earlier in parsed if earlier.slot == slot), None)


def contradictions(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Of records with the same 16 bytes, in order of acceptance: each that differs from the first of its slot, with that one."""
    firsts: dict[tuple[object, ...], tuple[Row, Evidence]] = {}
    for row in rows:
        one = record(json.loads(row.body))
        first, said = firsts.setdefault(one.slot, (row, one))
        if said.content != one.content:
            yield row, first
