"""Somebody who may insert into the evidence tables of a shared ledger, and no more: rows past the intake, for tests."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from assay.exact import canonical
from assay.ledger import batch
from assay.ledger.batch import Batch
from assay.ledger.keys import PrivateKey, sign_envelope
from ledger_kit import VALIDATORS

__all__ = ["ROLE", "Inserter", "batch_row", "record_rows", "signed_anew"]

ROLE = "mallory"
TABLES = ("batches", "records")


class Inserter:
    """Inserts rows: on PostgreSQL as a role that may read all and insert evidence, on SQLite with the triggers in force."""

    def __init__(self, database: str, place: Path) -> None:
        self.database = database if "://" in database else str(place / database)
        if "://" in database:
            for statement in (
                f"DO $$ BEGIN CREATE ROLE {ROLE}; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
                f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {ROLE}",
                f"GRANT INSERT ON {', '.join(TABLES)} TO {ROLE}",
            ):
                self._server([(statement, ())])

    def run(self, *statements: tuple[str, Sequence[Any]]) -> None:
        """Statements with ? for values, in one transaction."""
        if "://" in self.database:
            self._server([(f"SET ROLE {ROLE}", ()), *((text.replace("?", "%s"), values) for text, values in statements)])
            return
        with closing(sqlite3.connect(self.database)) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            for text, values in statements:
                connection.execute(text, values)
            connection.commit()

    def last(self) -> tuple[int, int]:
        """The last batch, and the last record."""
        query = "SELECT (SELECT coalesce(max(id), 0) FROM batches), (SELECT coalesce(max(seq), 0) FROM records)"
        if "://" in self.database:
            return tuple(self._server([(query, ())]))
        with closing(sqlite3.connect(self.database)) as connection:
            return tuple(connection.execute(query).fetchone())

    def put(self, row: Sequence[Any], records: Sequence[Sequence[Any]] = ()) -> None:
        """A batch, and records."""
        marks = {name: f"INSERT INTO {name} VALUES ({', '.join('?' * size)})" for name, size in (("batches", 10), ("records", 7))}
        self.run((marks["batches"], row), *((marks["records"], record) for record in records))

    def _server(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> Any:
        import psycopg

        with psycopg.connect(self.database) as connection:
            cursor = connection.cursor()
            for text, values in statements:
                cursor.execute(text.encode(), values)
            return cursor.fetchone() if cursor.description else None


def batch_row(batch: Batch, last: tuple[int, int], **changes: Any) -> list[Any]:
    """The row of a batch whose records all come with it, after the last batch and the last record that there are."""
    number, seq, statement = last[0] + 1, last[1], batch.statement
    first, end = seq + 1, seq + len(batch.bodies)
    row = {
        "id": number,
        "digest": batch.digest,
        "validator": statement.validator,
        "epoch": statement.epoch,
        "count": statement.count,
    }
    row |= {
        "root": statement.root,
        "envelope": batch.envelope,
        "members": f"[[{first},{end}]]",
        "first_seq": first,
        "last_seq": end,
    }
    return list((row | changes).values())


def record_rows(batch: Batch, last: tuple[int, int], **changes: Any) -> list[list[Any]]:
    """The rows of its records."""
    rows = []
    for at, (slot, digest, body) in enumerate(zip(batch.slots, batch.digests, batch.bodies, strict=True), start=1):
        row = {"seq": last[1] + at, "digest": digest, "batch": last[0] + 1, "epoch": batch.statement.epoch}
        rows.append(list((row | {"slot": slot, "conflict": False, "body": body} | changes).values()))
    return rows


def signed_anew(original: Batch, signer: PrivateKey | None = None, **changes: Any) -> Batch:
    """A batch with another statement over the same records, signed by whom it names, or by somebody else."""
    from dataclasses import replace

    statement = replace(original.statement, **changes)
    envelope = canonical(sign_envelope(canonical(statement.document()), signer or VALIDATORS[statement.validator]))
    assert batch.stated(envelope)[1] == statement
    return replace(original, envelope=envelope, signed=batch.parsed(envelope), statement=statement)
