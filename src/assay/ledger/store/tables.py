"""The tables, and the triggers that make them append-only on both databases. Version 4 of the schema.

- `records.seq` counts from 1 without a gap, in order of acceptance. SPEC 3.0.
- A record that counts is there once: the same record has the same slot, so one index finds both. Its key begins with the run, so
  that the records of one batch stand side by side in it, however many others there are. The index is not unique, nor is that of
  the batches' digests: what somebody forged must not stand in the way of the true one.
- A batch has the number after the last one, and a record one that its batch brought: so nobody who may insert uses the numbers
  up, puts anything between what was looked at, or adds to a batch.
- `attempts` has what was sent to the targets of publish.toml, counted from 1 for each: two who would write at once cannot both.
- `checked` has what the log's key signed of the batches whose signatures were looked at: `assay.ledger.counting` says what.
- No row is ever changed or removed; `meta` alone may be, by a migration.

What goes into the store and comes out of it. Digests are `sha256:…`, but those of records, which are many: 32 bytes.

The slot of a record as 16 bytes, and which record of a slot was accepted first. SPEC 3.0.

8 bytes of SHA-256 of the run (kind, validator, submission or participant), then 8 of the whole: so a run's records stand together
in the index. Different slots may share these bytes, if somebody takes pains; so what has the same is always compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

from assay.ledger.batch import StoredRecord
from assay.records import Evidence, record

MARK = {"sqlite": "?", "postgresql": "%s"}
"""What stands for a value in a statement that goes past SQLAlchemy, whose own layer costs more than the database."""
SCHEMA = MetaData()
_Number = BigInteger().with_variant(Integer, "sqlite")

meta = Table("meta", SCHEMA, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))

batches = Table(
    "batches",
    SCHEMA,
    Column("id", _Number, primary_key=True, autoincrement=False),
    Column("digest", Text, nullable=False, index=True),
    Column("validator", Text, nullable=False),
    Column("epoch", _Number, nullable=False, index=True),
    Column("count", Integer, nullable=False),
    Column("root", Text, nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    Column("members", Text, nullable=False),
    Column("first_seq", _Number),
    Column("last_seq", _Number),
)

records = Table(
    "records",
    SCHEMA,
    Column("seq", _Number, primary_key=True, autoincrement=False),
    Column("digest", LargeBinary, CheckConstraint("length(digest) = 32"), nullable=False),
    Column("batch", _Number, ForeignKey("batches.id"), nullable=False),
    Column("epoch", _Number, nullable=False),
    Column("slot", LargeBinary, CheckConstraint("length(slot) = 16"), nullable=False),
    Column("conflict", Boolean, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("records_slot", "slot", "digest"),
)
_conflicting = Index(
    "records_conflicting", records.c.seq, sqlite_where=records.c.conflict.is_(True), postgresql_where=records.c.conflict.is_(True)
)

submissions = Table(
    "submissions",
    SCHEMA,
    Column("id", _Number, primary_key=True, autoincrement=False),
    Column("participant", Text, nullable=False),
    Column("submission", Text, nullable=False),
    Column("epoch", _Number, nullable=False),
    Column("submitted_at", Text, nullable=False),
)

inputs = Table("inputs", SCHEMA, Column("digest", Text, primary_key=True), Column("document", LargeBinary, nullable=False))

settlements = Table(
    "settlements",
    SCHEMA,
    Column("epoch", _Number, primary_key=True, autoincrement=False),
    Column("digest", Text, nullable=False),
    Column("inputs", Text, ForeignKey("inputs.digest"), nullable=False),
    Column("document", LargeBinary, nullable=False),
)

receipts = Table(
    "receipts",
    SCHEMA,
    Column("epoch", _Number, ForeignKey("settlements.epoch"), primary_key=True, autoincrement=False),
    Column("position", _Number, nullable=False, unique=True),
    Column("digest", Text, nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    Column("checkpoint", LargeBinary, nullable=False),
)

attempts = Table(
    "attempts",
    SCHEMA,
    Column("target", Text, primary_key=True),
    Column("number", _Number, primary_key=True, autoincrement=False),
    Column("entry", LargeBinary, nullable=False),
)

checked = Table(
    "checked",
    SCHEMA,
    Column("digest", Text, primary_key=True),
    Column("batches", _Number, nullable=False),
    Column("envelope", LargeBinary, nullable=False),
)

APPEND_ONLY = (batches, records, submissions, inputs, settlements, receipts, attempts, checked)
_SAME = {
    "batches": "id = NEW.id",
    "records": "seq = NEW.seq",
    "submissions": "id = NEW.id",
    "inputs": "digest = NEW.digest",
    "settlements": "epoch = NEW.epoch",
    "receipts": "epoch = NEW.epoch OR position = NEW.position",
    "attempts": "target = NEW.target AND number = NEW.number",
    "checked": "digest = NEW.digest",
}
"""Table → when a new row is an old one again: SQLite's REPLACE would remove that one, and asks no trigger of removals."""


AHEAD = 2**28
"""So far after the last record a batch may begin: an import keeps the seqs that its records had, and those of later epochs lie
between."""
MEMBERS_BYTES, ENVELOPE_BYTES, BODY_BYTES, RECORDS = 2**22, 2**20, 1_000_000, 100_000
"""What a batch may have of each: its ranges as text, its envelope, a record, records."""
_FITS = {
    "batches": (
        "NEW.id = (SELECT coalesce(max(id), 0) + 1 FROM batches) AND NEW.epoch BETWEEN 0 AND 9007199254740991"
        f" AND length(NEW.envelope) <= {ENVELOPE_BYTES} AND length(NEW.members) <= {MEMBERS_BYTES}"
        " AND coalesce(NEW.first_seq BETWEEN 1 AND"
        f" (SELECT coalesce(max(seq), 0) + {AHEAD} FROM records) AND NEW.last_seq BETWEEN NEW.first_seq AND NEW.first_seq +"
        f" {RECORDS - 1}, NEW.first_seq IS NULL AND NEW.last_seq IS NULL)"
    ),
    "records": (
        f"length(NEW.body) <= {BODY_BYTES} AND EXISTS (SELECT 1 FROM batches WHERE id = NEW.batch AND epoch = NEW.epoch"
        " AND NEW.seq BETWEEN first_seq AND last_seq)"
    ),
}
"""Table → what a new row must fit, on both databases."""


def triggers(dialect: str) -> Iterator[str]:
    """The statements that make the triggers, for `sqlite` or `postgresql`."""
    if dialect == "postgresql":
        yield (
            "CREATE FUNCTION assay_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION USING MESSAGE = 'assay: ' || TG_TABLE_NAME || ' is append-only'; END $$"
        )
    for table in APPEND_ONLY:
        yield from append_only(table, dialect)
    for table in (batches, records):
        yield from fitting(table, dialect)


def append_only(table: Table, dialect: str) -> Iterator[str]:
    """Those of one table; PostgreSQL has the function already."""
    name = table.name
    if dialect == "postgresql":
        yield (
            f"CREATE TRIGGER {name}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {name} "
            "FOR EACH STATEMENT EXECUTE FUNCTION assay_append_only()"
        )
        return
    refuse = f"BEGIN SELECT RAISE(ABORT, 'assay: {name} is append-only'); END"
    yield f"CREATE TRIGGER {name}_no_update BEFORE UPDATE ON {name} {refuse}"
    yield f"CREATE TRIGGER {name}_no_delete BEFORE DELETE ON {name} {refuse}"
    again = f"EXISTS (SELECT 1 FROM {name} WHERE {_SAME[name]})"
    yield f"CREATE TRIGGER {name}_no_replace BEFORE INSERT ON {name} WHEN {again} {refuse}"


def fitting(table: Table, dialect: str) -> Iterator[str]:
    """Those that refuse a row of evidence which does not fit what is there.

    On PostgreSQL whoever inserts carries them out: so the names of tables in them are looked up where the ledger is, and not
    first among the tables that somebody made for himself.
    """
    name, what = table.name, f"assay: a row of {table.name} does not follow what is there"
    if dialect == "postgresql":
        body = f"BEGIN IF NOT ({_FITS[name]}) THEN RAISE EXCEPTION USING MESSAGE = ''{what}'', ERRCODE = ''40001''; END IF;"
        yield (
            f"DO $do$ BEGIN EXECUTE 'CREATE FUNCTION assay_{name}_fit() RETURNS trigger LANGUAGE plpgsql SET search_path = '"
            f" || quote_ident(current_schema()) || ', pg_temp AS $$ {body} RETURN NEW; END $$'; END $do$"
        )
        yield f"CREATE TRIGGER {name}_fit BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION assay_{name}_fit()"
        return
    yield (f"CREATE TRIGGER {name}_fit BEFORE INSERT ON {name} WHEN NOT ({_FITS[name]}) BEGIN SELECT RAISE(ABORT, '{what}'); END")


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


class RecordRow(NamedTuple):
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
class StoredBatch:
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

    record: StoredRecord
    first: StoredRecord


@dataclass(frozen=True, slots=True)
class Submission:
    """What a participant handed in, in which epoch, and when (RFC 3339, "" = not said)."""

    participant: str
    submission: str
    epoch: int
    submitted_at: str = ""


@dataclass(frozen=True, slots=True)
class StoredSettlement:
    """A settlement (canonical JSON), its digest, and that of the inputs it was computed from."""

    epoch: int
    digest: str
    inputs: str
    document: bytes


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A receipt: its epoch, place in the log (from 0), digest of its payload, DSSE envelope, signed checkpoint."""

    epoch: int
    position: int
    digest: str
    envelope: bytes
    checkpoint: bytes


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


def first_of_slot(one: Evidence, there: Iterable[Candidate]) -> Evidence | None:
    """The first of the candidates that is of the record's slot indeed."""
    slot = one.slot
    parsed = (record(json.loads(candidate.body)) for candidate in there)
    return next((earlier for earlier in parsed if earlier.slot == slot), None)


def contradictions(rows: Sequence[RecordRow]) -> Iterator[tuple[RecordRow, RecordRow]]:
    """Of records with the same 16 bytes, in order of acceptance: each that differs from the first of its slot, with that one."""
    firsts: dict[tuple[object, ...], tuple[RecordRow, Evidence]] = {}
    for row in rows:
        one = record(json.loads(row.body))
        first, said = firsts.setdefault(one.slot, (row, one))
        if said.content != one.content:
            yield row, first
