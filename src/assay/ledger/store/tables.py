"""The tables, and the triggers that make them append-only on both databases. Version 3 of the schema.

- `records.seq` counts from 1 without a gap, in order of acceptance. SPEC 3.0.
- A record is there once: the same record has the same slot, so one index finds both. Its key begins with the run, so that the
  records of one batch stand side by side in it, however many others there are.
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
    UniqueConstraint,
)

__all__ = [
    "MARK",
    "SCHEMA",
    "append_only",
    "attempts",
    "batches",
    "checked",
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
    Column("digest", Text, nullable=False, unique=True),
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
    UniqueConstraint("slot", "digest"),
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
    "batches": "id = NEW.id OR digest = NEW.digest",
    "records": "seq = NEW.seq OR (slot = NEW.slot AND digest = NEW.digest)",
    "submissions": "id = NEW.id",
    "inputs": "digest = NEW.digest",
    "settlements": "epoch = NEW.epoch",
    "receipts": "epoch = NEW.epoch OR position = NEW.position",
    "attempts": "target = NEW.target AND number = NEW.number",
    "checked": "digest = NEW.digest",
}
"""Table → when a new row is an old one again: SQLite's REPLACE would remove that one, and asks no trigger of removals."""


def triggers(dialect: str) -> Iterator[str]:
    """The statements that make the triggers, for `sqlite` or `postgresql`."""
    if dialect == "postgresql":
        yield (
            "CREATE FUNCTION assay_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION USING MESSAGE = 'assay: ' || TG_TABLE_NAME || ' is append-only'; END $$"
        )
    for table in APPEND_ONLY:
        yield from append_only(table, dialect)


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
