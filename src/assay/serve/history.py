"""The epochs before the one shown: read from the ledger when a page asks, and kept as a few numbers for each participant.

A settlement has every vote of every validator. A history needs one row for each participant, so the document is dropped as soon
as its rows are made. Rows are kept in memory up to `ROWS`, for all seasons of the process: a settled epoch never changes.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.exact import LARGEST, nanos

if TYPE_CHECKING:
    from assay.ledger.batch import StoredRecord
    from assay.settle import Settlement

__all__ = ["EpochRow", "Past", "rows_of"]

Json = dict[str, Any]
ROWS = 400_000
"""Rows of past epochs that a process keeps: about 100 MB."""


class EpochRow(NamedTuple):
    """One participant in one epoch; score, kept, share and capped in nanos, None where it has none."""

    status: str
    rank: int | None
    score: int | None
    kept: int | None = None
    share: int | None = None
    capped: int | None = None
    u16: int | None = None


def rows_of(document: Json) -> dict[str, EpochRow]:
    """Participant → its row of a settlement's document."""
    ranks = {key: rank for rank, key in enumerate(document["ranking"], start=1)}
    weights = {row["participant"]: row for row in document["weights"]}
    rows = {}
    for agreed in document["agreed"]:
        key, has = agreed["participant"], agreed["status"] == "agreed"
        row = EpochRow(agreed["status"], ranks.get(key), nanos(agreed["score"]) if has else None)
        if (weight := weights.get(key)) is not None:
            kept, share, capped = (nanos(weight[name]) for name in ("kept", "share", "capped"))
            row = row._replace(kept=kept, share=share, capped=capped, u16=weight["u16"])
        rows[key] = row
    return rows


@dataclass(frozen=True)
class Past:
    """The history that a ledger has beside one settlement: earlier settlements, and the records that this one rests on."""

    folder: Path
    receipts: tuple[tuple[int, str], ...] = ()
    """The epochs before the one shown, ascending, each with the digest of its receipt."""
    last_seq: int = LARGEST
    """Records after this one came when the settlement was there already."""

    def rows(self, last: int | None = None) -> list[tuple[int, dict[str, EpochRow]]]:
        """The rows of these epochs, or of so many of the last, ascending. Raises StoreError."""
        wanted = self.receipts if last is None else self.receipts[max(0, len(self.receipts) - last) :]
        by_digest = {digest: rows for _, digest in wanted if (rows := _KEPT.get(digest)) is not None}
        missing = {epoch: digest for epoch, digest in wanted if digest not in by_digest}
        for document in self.documents([*missing]):
            digest = missing[document["epoch"]]
            by_digest[digest] = _KEPT.put(digest, rows_of(document))
        return [(epoch, by_digest[digest]) for epoch, digest in wanted if digest in by_digest]

    def documents(self, epochs: Sequence[int]) -> Iterator[Json]:
        """The settlement documents of epochs, one at a time. Raises StoreError."""
        from assay.ledger.access import open_ledger
        from assay.serve.notebook import CACHE_KIB

        if not epochs:
            return
        with open_ledger(self.folder, cache=CACHE_KIB) as ledger, ledger.store.reading() as view:
            for epoch in epochs:
                if (stored := view.settlement(epoch)) is not None:
                    yield json.loads(stored.document)

    def records(self, settlement: Settlement) -> dict[str, list[StoredRecord]]:
        """Participant → the records that its result rests on; no others are read. Raises StoreError."""
        from assay.ledger import settling
        from assay.ledger.access import open_ledger
        from assay.serve.notebook import CACHE_KIB

        with open_ledger(self.folder, cache=CACHE_KIB) as ledger:
            return settling.records_by_participant(ledger, settlement, self.last_seq)


class _Kept:
    """Rows of epochs by the digest of their receipts, the least used dropped first."""

    def __init__(self) -> None:
        self._lock, self._rows = Lock(), OrderedDict[str, dict[str, EpochRow]]()
        self._count = 0

    def get(self, digest: str) -> dict[str, EpochRow] | None:
        with self._lock:
            if digest in self._rows:
                self._rows.move_to_end(digest)
            return self._rows.get(digest)

    def put(self, digest: str, rows: dict[str, EpochRow]) -> dict[str, EpochRow]:
        with self._lock:
            if digest not in self._rows:
                self._rows[digest] = rows
                self._count += len(rows)
            while self._count > ROWS and len(self._rows) > 1:
                self._count -= len(self._rows.popitem(last=False)[1])
        return rows


_KEPT = _Kept()
