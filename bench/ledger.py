"""The cost of taking in signed evidence, against a bare loop that verifies the same signatures and inserts the same rows.

    python bench/ledger.py            100,000 records, in batches of 100, each a run of one submission by one validator
    python bench/ledger.py --full     1,000,000

`append` is `intake.accept` of a batch that has been read: its signature verified, its terms checked, what is known and what
conflicts looked for, its rows written and flushed to the disk. `read` comes before that where a batch comes as a file: parsed,
each record validated, held to its canonical form and hashed, the Merkle root over them computed. `whole` is both: from the bytes
of a file to the disk.

The bare loop is handed the signed bytes and the finished rows, for the same tables in the same settings of SQLite (WAL,
synchronous = FULL, foreign keys), and commits once a batch; it has no triggers. Every batch is taken by both in turn, so that
what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from assay.ledger import batch, check, intake, keys, store
from assay.ledger.batch import Batch
from assay.records import Tests

BUILD = Path(__file__).parents[1] / "build" / "bench"
VALIDATORS, TASKS = 64, 100
AIM = 0.5
ORIGIN = "example.org/bench"
NAME = "bench"
BEGIN = datetime(2026, 11, 2, tzinfo=UTC)
Rows = Sequence[tuple[object, ...]]


class Window(NamedTuple):
    """Records so far; µs a record of reading, of appending, of the bare loop, since the window before."""

    records: int
    read: float
    append: float
    bare: float


def participant(run: int) -> str:
    return f"miner-{run // VALIDATORS:05}"


def made(count: int, signers: Sequence[keys.PrivateKey]) -> Iterator[Batch]:
    """Batches of 100 records: validator after validator judges submission after submission."""
    for run in range(count):
        signer = signers[run % VALIDATORS]
        validator = signer.public.raw.hex()
        trials = [
            Tests(
                kind="tests",
                epoch=12,
                validator=validator,
                participant=participant(run),
                submission="sha256:" + sha256(participant(run).encode()).hexdigest(),
                task=f"task-{task:03}",
                outcome="pass" if (run + task) % 3 else "fail",
                observed_at=BEGIN + timedelta(seconds=run * TASKS + task),
            )
            for task in range(TASKS)
        ]
        yield batch.make(trials, origin=ORIGIN, competition=NAME, task_set=None, signer=signer, validator=validator)


class Bare:
    """The yardstick: verify, insert, commit."""

    def __init__(self, path: Path, like: Path) -> None:
        self.database = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -65536"):
            self.database.execute(f"PRAGMA {pragma}")
        with closing(sqlite3.connect(like)) as ledger:
            wanted = "type IN ('table', 'index') AND sql IS NOT NULL AND tbl_name IN ('batches', 'records')"
            for (statement,) in ledger.execute(f"SELECT sql FROM sqlite_master WHERE {wanted} ORDER BY type DESC"):
                self.database.execute(statement)

    def take(self, key: Ed25519PublicKey, signature: bytes, message: bytes, head: Rows, rows: Rows) -> None:
        key.verify(signature, message)
        self.database.execute("BEGIN IMMEDIATE")
        self.database.executemany("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", head)
        self.database.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self.database.execute("COMMIT")


def measure(folder: Path, count: int) -> list[Window]:
    """Both over `count` batches."""
    signers = [keys.new() for _ in range(VALIDATORS)]
    known = intake.IntakeRules(
        NAME, "tests", {signer.public.raw.hex(): signer.public for signer in signers}, {*map(participant, range(count))}
    )
    public = [Ed25519PublicKey.from_public_bytes(signer.public.raw) for signer in signers]
    ends = {count // 100, *range(count // 10, count + 1, count // 10)}
    found: list[Window] = []
    spent = [0.0, 0.0, 0.0]
    with store.create(folder / "ours.db", store.Meta(NAME, ORIGIN, "key")) as ours:
        bare = Bare(folder / "bare.db", folder / "ours.db")
        with closing(sqlite3.connect(folder / "ours.db")) as written, closing(bare.database):
            for number, given in enumerate(made(count, signers), start=1):
                data = given.data
                begun = time.perf_counter()
                one = batch.read(data)
                spent[0] += time.perf_counter() - begun
                begun = time.perf_counter()
                accepted = intake.accept(ours, one, known)
                spent[1] += time.perf_counter() - begun
                assert accepted.new == TASKS

                envelope = check.Envelope.parse(check.parse_json(one.envelope, "batch"), "batch")
                message = check.pae(check.IN_TOTO, envelope.payload)
                head = written.execute("SELECT * FROM batches WHERE id = ?", (number,)).fetchall()
                seqs = (accepted.first_seq, accepted.last_seq)
                rows = written.execute("SELECT * FROM records WHERE seq BETWEEN ? AND ?", seqs).fetchall()
                begun = time.perf_counter()
                bare.take(public[(number - 1) % VALIDATORS], envelope.signatures[0][1], message, head, rows)
                spent[2] += time.perf_counter() - begun
                if number in ends:
                    since = number * TASKS - (found[-1].records if found else 0)
                    found.append(Window(number * TASKS, *(1e6 * one / since for one in spent)))
                    spent = [0.0, 0.0, 0.0]
    return found


def row(name: str, bare: float, append: float, read: float) -> str:
    whole = read + append
    return f"{name:>10} {bare:8.1f} {append:8.1f} {bare / append:6.2f} {read:8.1f} {whole:8.1f} {bare / whole:6.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="1,000,000 records")
    count = 10_000 if parser.parse_args().full else 1_000
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ledger-", dir=BUILD) as folder:
        found = measure(Path(folder), count)
    print("µs a record, in batches of 100; rate: of append and of whole, that of the bare loop being 1")
    print(f"{'records':>10} {'bare':>8} {'append':>8} {'rate':>6} {'read':>8} {'whole':>8} {'rate':>6}")
    for one in found:
        print(row(f"{one.records:,}", one.bare, one.append, one.read))
    lengths = [after.records - before for after, before in zip(found, [0, *(one.records for one in found)], strict=False)]
    append, bare, read = (
        sum(getattr(one, name) * length for one, length in zip(found, lengths, strict=True)) / sum(lengths)
        for name in ("append", "bare", "read")
    )
    print(f"{row('in all', bare, append, read)}    (aim of the rate of append: at least {AIM})")
    begin, end = found[1], found[-1]
    bare_ratio = end.bare / begin.bare
    print(f"from {begin.records:,} to {end.records:,} records: × {end.append / begin.append:.2f} (bare × {bare_ratio:.2f})")


if __name__ == "__main__":
    main()
