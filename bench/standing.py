"""The cost of an epoch in a ledger that already has a million records, beside one with ten thousand.

    python bench/standing.py          10,000 and 1,000,000 records, in SQLite and PostgreSQL; 4 to 8 minutes

Each ledger has a settled epoch with all its records: ten validators, 100 tasks. Then 100 new records come in each of some further
epochs. `assay settle` of such an epoch, and `assay explain` of one participant, are run as commands, in a process of their own.

- few: ten participants;
- stands: a thousand participants, and every record still counts;
- history: ten participants with a hundred submissions each, of which only the last counts.

The records are signed, and go into the database in one transaction, without the intake; what the intake checks is not checked
again in the first settlement, of which the seconds are shown too.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from assay.exact import canonical, digest
from assay.ledger import batch, config, counting, keys, log, settling, store
from assay.ledger.access import open_ledger
from assay.ledger.batch import BatchStatement
from assay.ledger.batch import run_of as run_key
from assay.ledger.check import EMPTY_ROOT
from assay.ledger.config import Config
from assay.ledger.log import Log
from assay.ledger.store.tables import batches, records
from assay.scheme.load import read as read_scheme

BUILD = Path(__file__).parents[1] / "build" / "bench"
sys.path.append(str(Path(__file__).parents[1] / "tests" / "kits"))
ORIGIN, NAME = "example.org/bench", "bench"
VALIDATORS, TASKS, EPOCHS = 10, 100, 3
AIM = 2.0
TASK_IDS = [f"task-{number:03}" for number in range(TASKS)]


class Shape(NamedTuple):
    """The number of participants, and of submissions that each had."""

    name: str
    participants: int
    submissions: int

    @property
    def records(self) -> int:
        return VALIDATORS * TASKS * self.participants * self.submissions


SMALL = Shape("few", 10, 1)
LARGE = (Shape("stands", 1000, 1), Shape("history", 10, 100))


class Cost(NamedTuple):
    """Of a command: seconds, seconds of the processor, MiB."""

    seconds: float
    cpu: float
    memory: float


def submission(participant: int, number: int) -> str:
    return "sha256:" + sha256(f"{participant} {number}".encode()).hexdigest()


def run_of(signer: keys.PrivateKey, participant: int, number: int, epoch: int, trial: int, task_set: str) -> Run:
    """One trial of all tasks, by one validator, signed: what its batch and its records are stored as."""
    validator, whose = signer.public.raw.hex(), submission(participant, number)
    bodies = {}
    for at, task in enumerate(TASK_IDS):
        outcome = "pass" if (at * 7 + trial * 3 + participant) % 10 < 6 else "fail"
        body = (
            f'{{"epoch":{epoch},"kind":"tests","observed_at":"2026-11-02T00:00:00Z","outcome":"{outcome}",'
            f'"participant":"miner-{participant:04}","submission":"{whose}","task":"{task}","trial":{trial},'
            f'"validator":"{validator}"}}'
        )
        bodies[body.encode()] = task
    run = run_key("tests", validator, whose)
    rows = sorted(
        (sha256(body).digest(), run + sha256(run + f"{task}\0{trial}".encode()).digest()[:8], body)
        for body, task in bodies.items()
    )
    root = batch.root_of([leaf for leaf, _, _ in rows])
    statement = BatchStatement(ORIGIN, NAME, epoch, "tests", validator, task_set, len(rows), root, (whose,))
    payload = canonical(statement.document())
    return Run(statement, f"sha256:{sha256(payload).hexdigest()}", canonical(keys.sign_envelope(payload, signer)), rows)


class Run(NamedTuple):
    """A batch: its statement, digest and envelope; digest, slot and body of each record."""

    statement: BatchStatement
    digest: str
    envelope: bytes
    rows: list[tuple[bytes, bytes, bytes]]


class Season:
    """A competition with a ledger of this shape in a database, epoch 1 settled."""

    def __init__(self, folder: Path, shape: Shape, database: str, signers: list[keys.PrivateKey]) -> None:
        self.folder, self.shape, self.signers, self.log_key = folder, shape, signers, keys.read(b"77" * 32)
        folder.mkdir()
        scheme = f'[scheme]\nname = "{NAME}"\n[score]\nkind = "tests"\n'
        (folder / "scheme.toml").write_text(scheme)
        (folder / "tasks.txt").write_text("".join(f"{task}\n" for task in TASK_IDS))
        stakes = "".join(f"{signer.public.raw.hex()},{1000 + at},\n" for at, signer in enumerate(signers))
        (folder / "validators.csv").write_text("key,stake,name\n" + stakes)
        self.write(dict.fromkeys(range(shape.participants), shape.submissions - 1))
        key = log.log_key(ORIGIN, self.log_key.public)
        settings = Config(folder, ORIGIN, str(key), database, "log", str(folder / "log.key"))
        store.create(settings.place, store.Meta(read_scheme(folder / "scheme.toml").name, ORIGIN, str(key))).close()
        Log.create(settings.tiles, key, log.sign_checkpoint(0, EMPTY_ROOT, key, self.log_key))
        config.write(settings)

    def write(self, submissions: dict[int, int]) -> None:
        rows = [f"miner-{miner:04},{miner + 1},,{submission(miner, number)},,,\n" for miner, number in submissions.items()]
        head = "key,uid,name,submission,submitted_at,last_reset_epoch,address\n"
        (self.folder / "participants.csv").write_text(head + "".join(rows))

    def add(self, runs: Iterator[Run]) -> None:
        with store.open(config.read(self.folder).place) as ledger, ledger.writing() as tx:
            number, last = tx._state()
            while some := list(islice(runs, 500)):
                heads, rows = [], []
                for run in some:
                    number, first, last = number + 1, last + 1, last + len(run.rows)
                    statement = run.statement
                    names = (
                        number,
                        run.digest,
                        statement.validator,
                        statement.epoch,
                        statement.count,
                        statement.root,
                        run.envelope,
                    )
                    heads.append((*names, f"[[{first},{last}]]", first, last))
                    for seq, (leaf, slot, body) in enumerate(run.rows, start=first):
                        rows.append((seq, leaf, number, statement.epoch, slot, False, body))
                tx._add(batches, *heads)
                tx._add(records, *rows)

    def settle(self, epoch: int) -> float:
        """Seconds of the processor for settling it in this process."""
        with open_ledger(self.folder) as ledger:
            with ledger.store.reading() as view:
                before = ""
                for stored in view.batches():
                    before = counting._digest(before, stored)
                    ledger.judged[before, "", view.settled_epoch()] = ""
            begun = time.process_time()
            settling.settle(ledger, self.log_key, epoch)
        return time.process_time() - begun

    @property
    def task_set(self) -> str:
        return digest(sorted(TASK_IDS))


def runs_of(shape: Shape, signers: list[keys.PrivateKey], task_set: str) -> Iterator[Run]:
    """All records of the first epoch."""
    for participant in range(shape.participants):
        for number in range(shape.submissions):
            for signer in signers:
                yield run_of(signer, participant, number, 1, 1, task_set)


def fill(season: Season) -> float:
    """Add all records of the first epoch, and settle it; returns the processor's seconds of settling."""
    season.add(runs_of(season.shape, season.signers, season.task_set))
    return season.settle(1)


def apart(work: Callable[[], float]) -> float:
    """The result of work in a fork, since a command's memory begins with ours; a private key is never pickled."""
    context = get_context("fork")
    results = context.SimpleQueue()
    process = context.Process(target=lambda: results.put(work()))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit("the ledger could not be filled")
    return float(results.get())


def command(*words: str) -> Cost:
    """The cost of a command of ours; it must succeed."""
    begun = time.perf_counter()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "assay", *words],
        dict(os.environ),
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"assay {' '.join(words)} failed")
    return Cost(time.perf_counter() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def median(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


def measure(season: Season) -> tuple[Cost, Cost]:
    """`assay settle` of an epoch with 100 new records, and `assay explain`: medians over some epochs."""
    (season.folder / "log.key").write_bytes(b"77" * 32 + b"\n")
    (season.folder / "log.key").chmod(0o600)
    settled, explained = [], []
    for epoch in range(2, 2 + EPOCHS):
        last = season.shape.submissions - 1
        season.add(iter([run_of(season.signers[epoch], epoch, last, epoch, epoch, season.task_set)]))
        settled.append(command("settle", str(season.folder), "--epoch", str(epoch)))
        explained.append(command("explain", str(season.folder), "miner-0003"))
    return median(settled), median(explained)


@contextmanager
def databases() -> Iterator[dict[str, Callable[[], str]]]:
    """Database → a function that makes an empty one."""
    import postgres

    with postgres.cluster() as cluster:
        yield {"SQLite": lambda: "ledger.db", "PostgreSQL": cluster.database}


def line(name: str, cost: Cost, beside: Cost | None = None) -> str:
    ratio = (
        ""
        if beside is None
        else f"   {cost.seconds / beside.seconds:5.2f} {cost.cpu / beside.cpu:5.2f} {cost.memory / beside.memory:5.2f}"
    )
    return f"{name:44} {cost.seconds:6.2f} s {cost.cpu:6.2f} s {cost.memory:5.0f} MiB{ratio}"


def main() -> None:
    """Measure and print."""
    BUILD.mkdir(parents=True, exist_ok=True)
    signers = [keys.read(f"{number:02}".encode() * 32) for number in range(10, 10 + VALIDATORS)]
    worst = 0.0
    print(f"medians of {EPOCHS} epochs with 100 new records each; the processor's seconds are without PostgreSQL's own")
    print(f"{'':44} {'wall':>8} {'cpu':>8} {'memory':>9}   × few: wall, cpu, memory")
    with tempfile.TemporaryDirectory(prefix="standing-", dir=BUILD) as place, databases() as kinds:
        few: dict[str, tuple[Cost, Cost]] = {}
        for shape, (name, database) in itertools.product((SMALL, *LARGE), kinds.items()):
            season = Season(Path(place) / f"{name}-{shape.name}", shape, database(), signers)
            first = apart(partial(fill, season))
            costs = measure(season)
            print(f"{name}, {shape.records:,} records, {shape.name} (the first epoch: {first:.1f} s of the processor)")
            for what, cost, beside in zip(("assay settle", "assay explain"), costs, few.setdefault(name, costs), strict=True):
                print(line(f"  {what}", cost, None if shape is SMALL else beside), flush=True)
                worst = max(worst, cost.cpu / beside.cpu)
    print(f"the largest ratio of the processor's seconds: {worst:.2f}    (aim: at most {AIM})")


if __name__ == "__main__":
    main()
