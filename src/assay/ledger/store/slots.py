"""Find the records of a slot, and say which of them contradict the first one. SPEC 3.0.

A slot is stored as 16 bytes, which somebody can craft. So records are compared by what they say, except those whose bodies are in
an archive: of these, the 16 bytes are all there is. They were checked when the records were accepted and when they were archived.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from assay.ledger.store.engine import rows_of
from assay.ledger.store.tables import BODY, MARK, RecordRow, SeqRanges
from assay.records import Evidence, record

__all__ = ["Candidate", "TaskSets", "candidates", "contradictions", "contradicts"]

AT_ONCE = 500
"""Slots of one query."""
FEW = 8
"""From so many records of a run on, the run is looked for before its slots."""
RUN_BYTES = 8
"""Bytes with which the slots of a run begin: see `assay.ledger.batch.slot_of`."""


class Candidate(NamedTuple):
    """A record that may have a wanted slot, and the batch that brought it; without a body if that is in an archive."""

    seq: int
    digest: bytes
    body: bytes
    batch: int


def candidates(connection: Connection, slots: Sequence[bytes]) -> dict[bytes, list[Candidate]]:
    """Slot (16 bytes) → the records with these bytes, in order of acceptance; slots without records are left out."""
    by_slot: dict[bytes, list[Candidate]] = {}
    mark, body = MARK[connection.dialect.name], BODY[connection.dialect.name]
    runs = {slot[:RUN_BYTES] for slot in slots}
    if FEW * len(runs) <= len(slots):  # a run that is new has no record, and one look at the index tells it
        query = f"SELECT 1 FROM records WHERE slot BETWEEN {mark} AND {mark} LIMIT 1"
        ends = (bytes(RUN_BYTES), b"\xff" * RUN_BYTES)
        known = {run for run in runs if rows_of(connection, query, tuple(run + end for end in ends))}
        slots = [slot for slot in slots if slot[:RUN_BYTES] in known] if known else []
    for at in range(0, len(slots), AT_ONCE):
        some = tuple(slots[at : at + AT_ONCE])
        marks = ", ".join([mark] * len(some))
        query = f"SELECT slot, seq, digest, {body}, batch FROM records WHERE slot IN ({marks}) ORDER BY seq"
        for slot, *rest in rows_of(connection, query, some):
            by_slot.setdefault(slot, []).append(Candidate(*rest))
    return by_slot


def contradicts(item: Evidence, stored: Iterable[Candidate]) -> bool | None:
    """Whether a record contradicts the first candidate that really has its slot; None if no candidate has it.

    A candidate whose body is in an archive has the slot if its 16 bytes say so. Nothing is accepted for an epoch that is
    archived, so its epoch is another one, and it differs.
    """
    slot = item.slot
    for candidate in stored:
        if not candidate.body:
            return True
        earlier = record(json.loads(candidate.body))
        if earlier.slot == slot:
            return bool(earlier.content != item.content)
    return None


class TaskSets:
    """The task sets on which records count: those of the batches that have them. None is any: such a batch names none. SPEC 3.0.

    brought: batch → the task set of the records that came with it. again: (task set, seqs) of batches that have earlier records.
    """

    def __init__(self, brought: Mapping[int, str | None], again: Iterable[tuple[str | None, Sequence[tuple[int, int]]]]) -> None:
        self._brought, by_set = brought, dict[str | None, list[tuple[int, int]]]()
        for task_set, members in again:
            by_set.setdefault(task_set, []).extend(members)
        self._again = {task_set: SeqRanges(pairs) for task_set, pairs in by_set.items()}

    def of(self, seq: int, batch: int) -> set[str | None]:
        """The task sets of a record. batch: the number of the one that brought it."""
        later = {task_set for task_set, seqs in self._again.items() if seq in seqs}
        return later | {self._brought[batch]} if batch in self._brought else later


def contradictions(
    rows: Sequence[RecordRow], task_sets: TaskSets, age: int | None = None
) -> Iterator[tuple[RecordRow, RecordRow]]:
    """Pairs of a record, and the first of its slot that counts on a task set of the record; only if the two differ.

    rows: of the same 16 bytes, in order of acceptance. age: the scheme's `max_age_epochs`; a record that is older than so many
    epochs counts no more when a later one comes. SPEC 3.0: an evaluation stands until the task set changes, or for so long.
    """
    firsts: dict[tuple[object, ...], list[tuple[RecordRow, object]]] = {}
    whole = all(row.body for row in rows)
    for row in rows:
        slot, content = _compared(row, whole=whole)
        sets = task_sets.of(row.seq, row.batch)
        wanted = {_EVERY} if None in sets else {*sets, None}
        earlier = [
            pair for name in wanted for pair in firsts.get((*slot, name), ()) if age is None or row.epoch - pair[0].epoch <= age
        ]
        first, earliest = min(earlier, key=lambda pair: pair[0].seq, default=(row, content))
        if earliest != content:
            yield row, first
        for name in (*sets, _EVERY):
            there = firsts.setdefault((*slot, name), [])
            if age is not None or not there:  # only if it may grow too old, a later one can come to count
                there.append((row, content))


def _compared(row: RecordRow, *, whole: bool) -> tuple[tuple[object, ...], object]:
    """The slot of a record, and what another one of the slot must have in common with it.

    whole: no record of these 16 bytes is in an archive. Of one that is, the flag says whether it differs from the first.
    """
    if not row.body:
        return (row.slot,), (row.epoch, row.digest if row.conflict else None)
    parsed = record(json.loads(row.body))
    return parsed.slot if whole else (row.slot,), parsed.content


_EVERY = "every"
"""Stands for all task sets, which are digests."""
