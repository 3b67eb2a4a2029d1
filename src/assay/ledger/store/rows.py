"""What goes into the store and comes out of it. Digests are `sha256:…`, but those of records, which are many: 32 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from assay.ledger.lines import Kept

__all__ = ["Accepted", "Conflict", "Kept", "KeptBatch", "Meta", "Receipt", "Row", "Settled", "Submission"]


@dataclass(frozen=True, slots=True)
class Meta:
    """Whose ledger it is: the competition's name, the origin of its log, and the log's public key (vkey)."""

    competition: str
    origin: str
    key: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a batch: records that are new, that were known, and of the new ones those in conflict with an earlier one.

    `first_seq` … `last_seq` are the new ones; None if there are none.
    """

    new: int
    known: int
    conflicting: int = 0
    first_seq: int | None = None
    last_seq: int | None = None


class Row(NamedTuple):
    """All that is kept of a record, for looking it over.

    conflict: when it was taken in, the first of its slot that was there said something else.
    """

    seq: int
    digest: bytes
    batch: int
    epoch: int
    slot: bytes
    conflict: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """A batch: the envelope as it came, and which records are in it, as ranges of `seq`, first and last included."""

    id: int
    digest: str
    validator: str
    epoch: int
    count: int
    root: str
    envelope: bytes
    members: tuple[tuple[int, int], ...]
    first_seq: int | None
    last_seq: int | None
    """Those that were new with it; None if there were none."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A record that says something else than the one accepted first of its slot, which is the one that counts. SPEC 3.0."""

    record: Kept
    first: Kept


@dataclass(frozen=True, slots=True)
class Submission:
    """What a participant handed in, in which epoch, and when (RFC 3339, "" = not said)."""

    participant: str
    submission: str
    epoch: int
    submitted_at: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """A settlement (canonical JSON), its digest, and that of the inputs it was computed from."""

    epoch: int
    digest: str
    inputs: str
    document: bytes


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receipt: its epoch, place in the log (from 0), digest of its payload, DSSE envelope, signed checkpoint."""

    epoch: int
    position: int
    digest: str
    envelope: bytes
    checkpoint: bytes
