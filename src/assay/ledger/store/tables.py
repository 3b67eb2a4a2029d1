"""Define the tables of the ledger, the triggers that make them append-only, the types of their rows, and the slots of records.

This is version 6 of the schema, for both databases.

- `records.seq` counts from 1 without a gap, in order of acceptance. SPEC 3.0.
- A record that counts is stored once. The same record has the same slot, so one index finds both. The key of the index begins
  with the run, so the records of one batch are neighbours in it, however many others there are. The index is not unique, nor is
  the index of the batches' digests: a forged row must not block the true one.
- A batch gets the number after the last one, and a record a seq that its batch brought. So a user who may insert cannot use
  up numbers, insert between rows that were checked, or add to a batch.
- `attempts` stores what was sent to the targets of publish.toml, numbered from 1 for each target: of two simultaneous writers,
  one fails.
- `checked` stores the verdicts on batches that the log's key signed: see `assay.ledger.counting`.
- `witnessed` stores the checkpoints that witnesses have cosigned: see `assay.ledger.cosigning`.
- `standing` stores what follows from the rest for each participant: see `assay.ledger.standing`. It can be made anew at any time.
- No row is ever changed or removed, except in `standing`, and in `meta` by a migration.

In the rows, digests are `sha256:…`; the digests of records, of which there are many, are 32 bytes.

The slot of a record is stored as 16 bytes: 8 bytes of SHA-256 of the run (kind, validator, submission or participant), then 8 of
the whole slot, so the records of a run are neighbours in the index. Somebody who takes pains can make two slots with the same
bytes, so records with the same bytes are always compared.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.compiler import SQLCompiler

from assay.exact import LARGEST
from assay.ledger.batch import StoredRecord

MARK = {"sqlite": "?", "postgresql": "%s"}
"""The placeholder for a value in statements that bypass SQLAlchemy, whose layer costs more time than the database."""
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

BODY = {
    "sqlite": "records.body",
    "postgresql": (
        "(CASE WHEN records.body = ''::bytea THEN coalesce((SELECT part.body FROM bodies part WHERE part.epoch = records.epoch"
        " AND part.seq = records.seq), ''::bytea) ELSE records.body END)"
    ),
}
"""A record's body in SQL: its own row has it, or a part of the table `bodies`; empty if it is in an archive. See `parts`."""


class RecordBody(ColumnElement[bytes]):
    """A record's body in a query of SQLAlchemy, wherever the database has it."""

    inherit_cache = True
    type = LargeBinary()


@compiles(RecordBody)
def _in_sql(_: RecordBody, compiler: SQLCompiler, **__: object) -> str:
    return BODY[compiler.dialect.name]


RECORD = (records.c.seq, records.c.digest, RecordBody())
"""The columns of a `StoredRecord`."""
ROW = (*(column for column in records.c if column.name != "body"), RecordBody())
"""The columns of a `RecordRow`."""

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

witnessed = Table(
    "witnessed",
    SCHEMA,
    Column("size", _Number, primary_key=True, autoincrement=False),
    Column("checkpoint", LargeBinary, nullable=False),
)

archived = Table(
    "archived",
    SCHEMA,
    Column("epoch", _Number, ForeignKey("receipts.epoch"), primary_key=True, autoincrement=False),
    Column("first", _Number, nullable=False),
    Column("envelope", LargeBinary, nullable=False),
)

standing = Table("standing", SCHEMA, Column("about", Text, primary_key=True), Column("document", LargeBinary, nullable=False))

LEASES = MetaData()
"""Beside the ledger: no number rests on them, and no backup has them. See `assay.ledger.leases`."""
leases = Table(
    "run_leases",
    LEASES,
    Column("validator", Text, primary_key=True),
    Column("cell", Text, primary_key=True),
    Column("holder", Text, nullable=False, index=True),
    Column("until", _Number, nullable=False),
)

APPEND_ONLY = (batches, records, submissions, inputs, settlements, receipts, attempts, checked, witnessed, archived)
_SAME = {
    "batches": "id = NEW.id",
    "records": "seq = NEW.seq",
    "submissions": "id = NEW.id",
    "inputs": "digest = NEW.digest",
    "settlements": "epoch = NEW.epoch",
    "receipts": "epoch = NEW.epoch OR position = NEW.position",
    "attempts": "target = NEW.target AND number = NEW.number",
    "checked": "digest = NEW.digest",
    "witnessed": "size = NEW.size",
    "archived": "epoch = NEW.epoch",
}
"""Table → when a new row has the key of an old one: SQLite's REPLACE would remove the old row without its triggers."""


AHEAD = 2**28
"""The farthest that a batch may begin after the last record: imported records keep their seqs, with later epochs between."""
MEMBERS_BYTES, ENVELOPE_BYTES, BODY_BYTES, RECORDS = 2**22, 2**20, 1_000_000, 100_000
"""Limits of a batch: bytes of its ranges as text, of its envelope, of a record; and how many records."""
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
"""Table → the condition on a new row, on both databases."""


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
    """The statements that make one table append-only; PostgreSQL has the function already."""
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
    """The statements that make a table of evidence refuse rows that do not follow the last ones.

    On PostgreSQL, the trigger runs as the user who inserts. So its tables are looked up in the ledger's schema, not first among
    tables that this user made.
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
    """The identity of a ledger: the competition's name, the origin of its log, and the log's public key (vkey)."""

    competition: str
    origin: str
    key: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of accepting a batch: how many records are new, known, and, of the new ones, in conflict with an earlier one.

    `first_seq` … `last_seq` are the new ones; None if there are none.
    """

    new: int
    known: int
    conflicting: int = 0
    first_seq: int | None = None
    last_seq: int | None = None


class RecordRow(NamedTuple):
    """A row of `records`, with everything that is stored of a record.

    conflict: when it was accepted, the first record of its slot differed from it.
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
    """A row of `batches`: the envelope as it came, and its records as ranges of `seq`, first and last included."""

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
    """The range of the records that were new with it; None if there were none."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A record that contradicts the first accepted one of its slot and task set, which counts. SPEC 3.0."""

    record: StoredRecord
    first: StoredRecord


@dataclass(frozen=True, slots=True)
class Submission:
    """A submission of a participant, the epoch, and the time (RFC 3339; "" if unknown)."""

    participant: str
    submission: str
    epoch: int
    submitted_at: str = ""


@dataclass(frozen=True, slots=True)
class StoredSettlement:
    """A settlement (canonical JSON), its digest, and the digest of its inputs."""

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


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A signed checkpoint of the log: how many receipts it covers, and the note with its cosignatures."""

    size: int
    checkpoint: bytes


@dataclass(frozen=True, slots=True)
class StoredArchived:
    """Says where the records of a receipt are: of the epochs `first` … `epoch`. envelope: the log's key signed it."""

    epoch: int
    first: int
    envelope: bytes


def members_of(text: Any) -> tuple[tuple[int, int], ...]:
    """The ranges of a batch's members; none if they are malformed or do not ascend: a batch without members does not count."""
    members, before = list[tuple[int, int]](), 0
    try:
        for first, last in json.loads(text):
            if type(first) is not int or type(last) is not int or not before < first <= last <= LARGEST:
                return ()
            members.append((first, last))
            before = last
    except (RecursionError, TypeError, ValueError):
        return ()
    return tuple(members)


def ranges_of(numbers: Iterable[int]) -> list[list[int]]:
    """The numbers as ascending ranges, first and last included."""
    ascending, ranges = sorted(set(numbers)), list[list[int]]()
    if ascending and ascending[-1] - ascending[0] == len(ascending) - 1:
        return [[ascending[0], ascending[-1]]]
    for number in ascending:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


class SeqRanges:
    """The seqs in some ranges, first and last included. `pairs`: the same as ascending ranges that do not touch."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        self.pairs: list[tuple[int, int]] = []
        for first, last in sorted(pairs):
            if self.pairs and first <= self.pairs[-1][1] + 1:
                self.pairs[-1] = (self.pairs[-1][0], max(self.pairs[-1][1], last))
            else:
                self.pairs.append((first, last))
        self._firsts = [first for first, _ in self.pairs]

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._firsts, seq)
        return at > 0 and seq <= self.pairs[at - 1][1]
