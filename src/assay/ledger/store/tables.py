"""The tables, and the triggers that make them append-only on both databases. Version 4 of the schema.

- `records.seq` counts from 1 without a gap, in order of acceptance. SPEC 3.0.
- A record that counts is there once: the same record has the same slot, so one index finds both. Its key begins with the run, so
  that the records of one batch stand side by side in it, however many others there are. The index is not unique, nor is that of
  the batches' digests: what somebody forged must not stand in the way of the true one.
- A batch has the number after the last one, and a record one that its batch brought: so nobody who may insert uses the numbers
  up, puts anything between what was looked at, or adds to a batch.
- `attempts` has what was sent to the targets of publish.toml, counted from 1 for each: two who would write at once cannot both.
- `checked` has what the log's key signed of the batches whose signatures were looked at: `assay.ledger.sound` says what.
- No row is ever changed or removed; `meta` alone may be, by a migration.
"""

from __future__ import annotations

from collections.abc import Iterator

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

__all__ = [
    "MARK",
    "SCHEMA",
    "append_only",
    "attempts",
    "batches",
    "checked",
    "fitting",
    "inputs",
    "meta",
    "receipts",
    "records",
    "settlements",
    "submissions",
    "triggers",
]

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
