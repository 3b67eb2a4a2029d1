"""The cost of taking in signed evidence, against a bare loop that verifies the same signatures and inserts the same rows.

    python bench/ledger.py            100,000 records, in batches of 100, each a run of one submission by one validator
    python bench/ledger.py --full     1,000,000

`append` is `intake.accept` of a batch that has been read: its signature verified, its terms checked, what is known and what
conflicts looked for, its rows written and flushed to the disk. `read` comes before that where a batch comes as a file: parsed,
each line held to the schema and canonical form of its record and hashed, the Merkle root over them computed. `whole` is both:
from the bytes of a file to the disk. `together` is `intake.accept_all` of 20 files at once, as the service and the commands take
in what is handed to them in one request: also from bytes to the disk, with one commit for these batches.

The bare loop is handed the signed bytes and the finished rows, for the same tables in the same settings of SQLite (WAL,
synchronous = FULL, foreign keys), and commits once a batch; it has no triggers. It hashes no record, so its signature says
nothing of its rows. Every batch is taken by all in turn, and the order changes from group to group, so that what else the machine
does falls on all. CPU time stands beside the time that passed: a flush of the disk takes no CPU time, and other work on the
machine takes only time that passes.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from assay.ledger import batch, check, intake, keys, store
from assay.ledger.batch import Batch
from assay.ledger.store import Accepted
from assay.records import Tests

BUILD = Path(__file__).parents[1] / "build" / "bench"
VALIDATORS, TASKS, GROUP = 64, 100, 20
AIM = 0.5
ORIGIN = "example.org/bench"
NAME = "bench"
BEGIN = datetime(2026, 11, 2, tzinfo=UTC)
Rows = Sequence[tuple[object, ...]]
Result = TypeVar("Result")
WAYS = ("bare", "read", "append", "together")


@dataclass
class Spent:
    """Seconds that passed, and of CPU, by way, over some records."""

    records: int = 0
    wall: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WAYS, 0.0))
    cpu: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WAYS, 0.0))

    def time(self, way: str, do: Callable[[], Result]) -> Result:
        """Do something, and count its time."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = do()
        self.cpu[way] += time.process_time() - cpu
        self.wall[way] += time.perf_counter() - wall
        return result

    def __add__(self, other: Spent) -> Spent:
        added = Spent(self.records + other.records)
        for way in WAYS:
            added.wall[way], added.cpu[way] = self.wall[way] + other.wall[way], self.cpu[way] + other.cpu[way]
        return added


def participant(run: int) -> str:
    return f"miner-{run // VALIDATORS:05}"


def judged_batches(count: int, signers: Sequence[keys.PrivateKey]) -> Iterator[Batch]:
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


class Taken(NamedTuple):
    """The rows of a batch that the bare loop is handed."""

    key: Ed25519PublicKey
    signature: bytes
    message: bytes
    head: Rows
    rows: Rows


def prepared(folder: Path, given: Sequence[Batch], known: intake.IntakeRules) -> list[Taken]:
    """The rows of the batches, from a ledger that took them in before."""
    taken = []
    with store.create(folder / "before.db", store.Meta(NAME, ORIGIN, "key")) as before:
        assert all(isinstance(verdict, Accepted) for verdict in intake.accept_all(before, given, known))
    with closing(sqlite3.connect(folder / "before.db")) as written:
        for number, made_batch in enumerate(given, start=1):
            envelope = check.Envelope.parse(check.parse_json(made_batch.envelope, "batch"), "batch")
            head = written.execute("SELECT * FROM batches WHERE id = ?", (number,)).fetchall()
            rows = written.execute("SELECT * FROM records WHERE batch = ? ORDER BY seq", (number,)).fetchall()
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(made_batch.statement.validator))
            taken.append(Taken(key, envelope.signatures[0][1], check.pae(check.IN_TOTO, envelope.payload), head, rows))
    return taken


def measure(folder: Path, count: int) -> list[Spent]:
    """All ways over `count` batches: of the first hundredth, then of each tenth."""
    signers = [keys.new() for _ in range(VALIDATORS)]
    rules = {signer.public.raw.hex(): signer.public for signer in signers}
    known = intake.IntakeRules(NAME, "tests", rules, {*map(participant, range(count))})
    batches = list(judged_batches(count, signers))
    taken, files = prepared(folder, batches, known), [given.data for given in batches]
    del batches
    ends = {max(GROUP, count // 100), *range(count // 10, count + 1, count // 10)}
    parts, spent = list[Spent](), Spent()
    meta = store.Meta(NAME, ORIGIN, "key")
    with store.create(folder / "one.db", meta) as single, store.create(folder / "group.db", meta) as grouped:
        bare = Bare(folder / "bare.db", folder / "one.db")

        def plainly(numbers: Sequence[int]) -> None:
            for number in numbers:
                spent.time("bare", partial(bare.take, *taken[number]))

        def one_by_one(numbers: Sequence[int]) -> None:
            for number in numbers:
                given = spent.time("read", partial(batch.read, files[number]))
                assert spent.time("append", partial(intake.accept, single, given, known)).new == TASKS

        def together(numbers: Sequence[int]) -> None:
            some = [files[number] for number in numbers]
            verdicts = spent.time("together", lambda: list(intake.accept_all(grouped, some, known)))
            assert all(isinstance(verdict, Accepted) and verdict.new == TASKS for verdict in verdicts)

        ways = [plainly, one_by_one, together]
        with closing(bare.database):
            for begin in range(0, count, GROUP):
                numbers = range(begin, min(begin + GROUP, count))
                for way in ways:
                    way(numbers)
                ways = [*ways[1:], ways[0]]
                spent.records += len(numbers) * TASKS
                if numbers[-1] + 1 in ends:
                    parts.append(spent)
                    spent = Spent()
    return parts


def row(name: str, spent: Spent, *, cpu: bool = False) -> str:
    """A line of the table: µs a record, and the rates."""
    each = {way: 1e6 * seconds / spent.records for way, seconds in (spent.cpu if cpu else spent.wall).items()}
    bare, whole = each["bare"], each["read"] + each["append"]
    columns = [f"{bare:8.1f}", f"{each['append']:8.1f} {bare / each['append']:6.2f}", f"{each['read']:8.1f}"]
    columns += [f"{whole:8.1f} {bare / whole:6.2f}", f"{each['together']:9.1f} {bare / each['together']:6.2f}"]
    return f"{name:>12} {' '.join(columns)}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="1,000,000 records")
    count = 10_000 if parser.parse_args().full else 1_000
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ledger-", dir=BUILD) as folder:
        parts = measure(Path(folder), count)
    print("µs a record, in batches of 100; rate: of what stands before it, that of the bare loop being 1")
    names = ("bare", "append", "rate", "read", "whole", "rate", "together", "rate")
    print(f"{'records':>12} " + " ".join(f"{name:>{width}}" for name, width in zip(names, (8, 8, 6, 8, 8, 6, 9, 6), strict=True)))
    records = 0
    for spent in parts:
        records += spent.records
        print(row(f"{records:,}", spent))
    whole = sum(parts, Spent())
    print(f"{row('in all', whole)}    (aim of the rate of whole: at least {AIM})")
    print(row("CPU time", whole, cpu=True))
    begin, end = parts[1], parts[-1]
    grown = {way: end.wall[way] / end.records / (begin.wall[way] / begin.records) for way in WAYS}
    print(f"from the first tenth to the last: append × {grown['append']:.2f} (bare × {grown['bare']:.2f})")


if __name__ == "__main__":
    main()
