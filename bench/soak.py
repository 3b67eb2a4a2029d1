"""A soak: mixed load by signed clients against `assay serve`, while its workers are killed. Nothing acknowledged is lost.

    python -m bench.soak                                  ten minutes, two workers, SQLite, a kill every 30 seconds
    python -m bench.soak --seconds 60 --kill-every 10 --database postgresql://…

Participants hand in one archive after the other. Validators ask for work, judge the submissions that count now (one validator
from two machines at once), and send batches, every fifth twice, and heartbeats. An operator settles the open epoch every minute
with `assay settle`. Readers ask for pages and documents. The youngest worker that has a connection is killed, so that the oldest
lives as long as the run, and its memory is the one that is looked at.

The run fails if at the end an acknowledged batch or submission is not there exactly once, `assay ledger check` finds anything, an
answer was wrong, a connection broke for another reason than a kill, or the memory of the oldest worker grew (in runs of at least
two minutes). A client that gets 429 or 503 with Retry-After, or no answer because of a kill, sends the same again.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from assay.errors import AssayError
from assay.ledger import batch, intake, keys
from assay.ledger.access import open_ledger
from assay.ledger.intake import IntakeRules
from assay.ledger.keys import PrivateKey
from assay.ledger.settling import settle
from assay.serve.archives import pack
from assay.serve.notebook import Notebook
from bench import serving
from bench.serving import BareAnswer, Kept, ServedProcess

SEGMENT = "/v1/bench"
PARTICIPANTS, VALIDATORS, TASKS, TRIALS = 20, 3, 10, 12
AT_ONCE = 2
"""Trials of each task that one batch has."""
ROWS = 4
"""Submissions that a validator judges before it asks for work again."""
SETTLE_EVERY = 60.0
"""Seconds between two settlements; in a short run a quarter of it."""
IDLE = 4.0
"""Seconds after which the service may close a connection that asks nothing."""
GROWTH, GROWTH_SECONDS = 1.2, 120.0
"""The largest growth of memory in the second half of a run, and the seconds from which a run is long enough to tell."""
MORE_SECONDS = 120.0
"""The seconds that a run may go on longer until the first worker was killed."""
KEPT = 10
"""Requests on one connection; then a client opens another, which any of the workers may take."""
PAUSE = 0.05
"""Seconds between two requests of a client."""
PAGES = (
    "/bench/",
    "/bench/board.json",
    "/bench/validators.html",
    "/bench/epoch.html",
    "/bench/live.html",
    "/bench/feed.atom",
    "/bench/log/checkpoint",
    "/v1/competitions",
    f"{SEGMENT}/participants",
    f"{SEGMENT}/epochs",
    f"{SEGMENT}/epochs/1/board",
    f"{SEGMENT}/epochs/1/records?limit=50",
    f"{SEGMENT}/epochs/1/receipt",
)
NEWEST = ("board", "records?limit=50", "receipt", "weights.csv")
"""The documents that are read of the last settled epoch."""


@dataclass
class SoakLoad:
    """One run: when it ends, and everything that its clients noted. Threads share it."""

    process: ServedProcess
    until: float
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """For each kind of request, the seconds of its answers."""
    again: Counter[str] = field(default_factory=Counter)
    """The number of times that something was sent again, by reason."""
    wrong: list[str] = field(default_factory=list)
    kills: list[tuple[float, float]] = field(default_factory=list)
    """Of each killed worker: when it was about to be killed, and when it was gone."""
    sent: dict[str, int] = field(default_factory=dict)
    """The digest of each batch that was sent, and how many records it has."""
    acknowledged: set[str] = field(default_factory=set)
    submissions: set[tuple[str, str]] = field(default_factory=set)
    """Participant and submission of each upload that was acknowledged."""
    memory: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    """For each worker: time, and resident bytes."""
    settled: int = 1
    """The last settled epoch, as the operator knows it."""
    settling: int = 1
    """The last epoch that is settled, or about to be: evidence of it may come too late."""

    @property
    def over(self) -> bool:
        """Whether the time is up. A run without a kill would show nothing, so a slow machine gets more time for the first."""
        return time.monotonic() >= self.until + (0 if self.kills else MORE_SECONDS)

    def killed(self, opened: float, failed: float) -> bool:
        """Whether a connection that was opened and failed at these times may have been that of a killed worker."""
        return any(opened <= gone and failed >= begun for begun, gone in tuple(self.kills))


class LoadClient:
    """One client of a run: it keeps a connection, and sends again what got no answer."""

    def __init__(self, load: SoakLoad, key: PrivateKey | None = None) -> None:
        self.load, self._kept, self._left = load, Kept(load.process.port, key), KEPT

    def ask(
        self, kind: str, method: str, path: str, body: bytes | None = None, *, good: Sequence[int] = (200,)
    ) -> BareAnswer | None:
        """The answer to a request; None if there was none until the end of the run, or a wrong one, which is noted."""
        load = self.load
        while not load.over:
            self._kept.rest(IDLE / 2)
            self._left -= 1
            if self._left < 0:
                self._kept.close()
                self._left = KEPT
            begun = time.monotonic()
            try:
                answer = self._kept.ask(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                idle, opened = self._kept.sent - self._kept.used, self._kept.opened
                self._kept.close()
                if not load.killed(opened, time.monotonic()) and idle < IDLE:
                    load.wrong.append(f"{kind}: {method} {path}: {type(error).__name__}: {error}, and no worker was killed")
                load.again["no answer"] += 1
                time.sleep(PAUSE)
                continue
            load.seconds[kind].append(time.monotonic() - begun)
            if answer.status in (429, 503) and answer.headers.get("retry-after", "").isdigit():
                load.again[f"{answer.status}"] += 1
                time.sleep(min(int(answer.headers["retry-after"]), 2))
                continue
            if answer.status not in good:
                load.wrong.append(f"{kind}: {method} {path}: {answer.status} {answer.body[:300].decode(errors='replace')}")
                return None
            time.sleep(PAUSE)
            return answer
        return None


def validator(load: SoakLoad, rules: IntakeRules, signer: PrivateKey, seed: int) -> None:
    """Ask for work, and send what is missing of some submissions: every fifth batch twice, every fourth with a heartbeat."""
    client, whose, chance, number = LoadClient(load, signer), signer.public.raw.hex(), random.Random(seed), 0
    while not load.over:
        work = client.ask("work", "GET", f"{SEGMENT}/work")
        if work is None:
            continue
        missing = [(row, first) for row in work.json["submissions"] if (first := _missing(row["evidence"]["trials"]))]
        for row, first in chance.sample(missing, min(ROWS, len(missing))):
            trials = [
                record
                for trial in range(first, first + AT_ONCE)
                for record in serving.trials(
                    signer, row["participant"], range(TASKS), epoch=work.json["epoch"], trial=trial, judged=row["submission"]
                )
            ]
            judged = batch.make(
                trials,
                origin=serving.ORIGIN,
                competition=rules.competition,
                task_set=rules.task_set,
                signer=signer,
                validator=whose,
            )
            load.sent[judged.digest] = len(judged.records)
            if not _send(load, client, judged, 2 if number % 5 == 0 else 1):
                break
            if number % 4 == 0:
                entry = {"participant": row["participant"], "task": "task-001", "done": first, "total": TRIALS}
                body = json.dumps({"judging": [entry]}).encode()
                client.ask("heartbeat", "POST", f"{SEGMENT}/heartbeat", body, good=(204,))
            number += 1


def _missing(trials: dict[str, list[int]]) -> int:
    """The first trial of the first batch that is missing; 0 if none is. A batch is there as a whole, or not at all."""
    there = set(trials.get(serving.task(0), ()))
    return next((first for first in range(1, TRIALS, AT_ONCE) if first not in there), 0)


def _send(load: SoakLoad, client: LoadClient, judged: batch.Batch, times: int) -> bool:
    """Send a batch so many times. False if its epoch was settled meanwhile, or the run is over: then ask for work again."""
    for _ in range(times):
        answer = client.ask("evidence", "POST", f"{SEGMENT}/evidence", judged.data)
        if answer is None:
            return False
        (outcome,) = answer.json["batches"]
        epoch = judged.statement.epoch
        if outcome["outcome"] in ("accepted", "known") and outcome["batch"] == judged.digest:
            load.acknowledged.add(judged.digest)
        elif epoch <= load.settling and f"epoch {epoch} is settled" in outcome.get("detail", ""):
            load.again["epoch settled"] += 1
            return False
        else:
            load.wrong.append(f"evidence: {outcome}")
    return True


def operator(load: SoakLoad, folder: Path, key: Path, every: float) -> None:
    """Settle the open epoch again and again, with the command that an operator uses."""
    due = time.monotonic() + every
    while not load.over:
        if time.monotonic() < due:
            time.sleep(0.2)
            continue
        load.settling = load.settled + 1
        begun = time.monotonic()
        words = ["settle", str(folder), "--epoch", str(load.settling), "--key", str(key), "--without-scores", "--json"]
        ended = subprocess.run([sys.executable, "-m", "assay", *words], capture_output=True, text=True, check=False)
        load.seconds["settle"].append(time.monotonic() - begun)
        if ended.returncode:
            load.wrong.append(f"settle: {ended.stderr[-500:]}")
        else:
            load.settled = load.settling
        due = time.monotonic() + every


def reader(load: SoakLoad, names: Sequence[str], seed: int) -> None:
    """Read the board, participants, records and documents, in an order of chance."""
    client, chance = LoadClient(load), random.Random(seed)
    persons = [f"{SEGMENT}/epochs/1/participants/{name}" for name in names[:5]]
    while not load.over:
        newest = (f"{SEGMENT}/epochs/{load.settled}/{name}" for name in NEWEST)
        path = chance.choice((*PAGES, *persons, *newest))
        answer = client.ask("read", "GET", path)
        if answer is not None and not answer.body:
            load.wrong.append(f"read: {path}: an empty answer")


def participants(load: SoakLoad, signers: Sequence[PrivateKey], folder: Path) -> None:
    """Hand in one archive after the other, in turns."""
    clients = [(LoadClient(load, signer), signer.public.raw.hex()) for signer in signers]
    folder.mkdir()
    (folder / "agent.toml").write_text('name = "soak"\ncommand = ["sh", "/agent/run.sh"]\n')
    number = 0
    while not load.over:
        client, whose = clients[number % len(clients)]
        (folder / "run.sh").write_text(f"echo {number}\n")
        archive = io.BytesIO()
        pack(folder, archive)
        answer = client.ask("upload", "PUT", f"{SEGMENT}/submissions", archive.getvalue(), good=(200, 201))
        if answer is not None:
            load.submissions.add((whose, answer.json["submission"]))
        number += 1
        time.sleep(0.5)


def keeper(load: SoakLoad, every: float) -> None:
    """Look at the memory of the workers, and kill the youngest every so many seconds."""
    due = time.monotonic() + every
    oldest: int | None = None
    while not load.over:
        workers = {pid: size for pid in load.process.workers() if (size := serving.resident(pid))}
        for pid, size in workers.items():
            load.memory.setdefault(pid, []).append((time.monotonic(), size))
        if oldest is None:
            oldest = min(workers, default=None)
        young = [pid for pid in workers if pid != oldest and load.process.connections(pid)]
        if time.monotonic() >= due and young:
            begun = time.monotonic()
            os.kill(young[-1], signal.SIGKILL)
            while serving.resident(young[-1]):
                time.sleep(0.005)
            load.kills.append((begun, time.monotonic()))
            due = time.monotonic() + every
        time.sleep(0.2)


def kept(load: SoakLoad, folder: Path, place: str) -> Iterator[str]:
    """The batches and records that are missing, or there twice, after a run; and what `assay ledger check` finds wrong."""
    with open_ledger(folder) as ledger, ledger.store.reading() as view:
        stored = Counter(row.digest for row in view.batches(2))
        records = Counter(row.digest for row in view.records(2))
    if lost := load.acknowledged - stored.keys():
        yield f"{len(lost)} of {len(load.acknowledged)} acknowledged batches are not in the ledger: {min(lost)} …"
    if strange := stored.keys() - load.sent.keys():
        yield f"{len(strange)} batches are in the ledger that nobody sent: {min(strange)} …"
    if twice := [digest for digest, count in stored.items() if count > 1]:
        yield f"{len(twice)} batches are in the ledger more than once"
    expected = sum(load.sent.get(digest, 0) for digest in stored)
    if (len(records), records.total()) != (expected, expected):
        yield f"the ledger has {records.total()} records, {len(records)} different ones, and {expected} came in its batches"
    notebook = Notebook(place)
    for name in sorted({name for name, _ in load.submissions}):
        noted = {upload.submission for upload in notebook.uploads(name, last=10**6)}
        if gone := {digest for whose, digest in load.submissions if whose == name} - noted:
            yield f"{len(gone)} acknowledged submissions of {name} are not there: {min(gone)} …"
    notebook.close()
    if not (load.kills and load.acknowledged and load.settled > 1):
        yield "no worker was killed, nothing was acknowledged, or nothing was settled: the run shows nothing"
    check = subprocess.run(
        [sys.executable, "-m", "assay", "ledger", "check", str(folder)], capture_output=True, text=True, check=False
    )
    if check.returncode:
        yield f"assay ledger check: {check.stdout}{check.stderr}"


def report(load: SoakLoad, seconds: float) -> Iterator[str]:
    """Print how long answers took and how the memory was; what is wrong with that."""
    print(f"{'request':<12}{'answers':>9}{'p50':>11}{'p99':>11}{'longest':>11}")
    for kind, took in sorted(load.seconds.items()):
        edges = statistics.quantiles(took, n=100, method="inclusive") if len(took) > 1 else took * 99
        print(f"{kind:<12}{len(took):>9,}{edges[49] * 1e3:>8.1f} ms{edges[98] * 1e3:>8.1f} ms{max(took) * 1e3:>8.1f} ms")
    count = sum(load.sent[digest] for digest in load.acknowledged)
    print(f"acknowledged: {len(load.acknowledged):,} batches of {count:,} records, {len(load.submissions):,} submissions")
    again = ", ".join(f"{why}: {count}" for why, count in sorted(load.again.items())) or "nothing"
    print(f"workers killed: {len(load.kills)}; epochs settled: {load.settled - 1}; sent again: {again}")
    oldest = max(load.memory.values(), key=len, default=[])
    if len(oldest) > 1:
        middle = (oldest[0][0] + oldest[-1][0]) / 2
        first = max(size for at, size in oldest if at <= middle)
        second = max(size for at, size in oldest if at >= middle)
        halves = f"{first / 2**20:.0f} MiB at most in the first half, {second / 2**20:.0f} MiB in the second"
        print(f"memory of the oldest worker: {halves}")
        if seconds >= GROWTH_SECONDS and second > GROWTH * first:
            yield f"the memory of the oldest worker grew by more than {GROWTH}"
    largest = max((size for rows in load.memory.values() for _, size in rows), default=0)
    print(f"largest worker of {len(load.memory)}: {largest / 2**20:.0f} MiB")


def competition(folder: Path, names: Sequence[str], signers: Sequence[PrivateKey], database: str | None) -> Path:
    """A competition with one settled epoch and an open one."""
    serving.competition(folder, "tests", names, signers, tasks=TASKS, database=database)
    with (folder / "scheme.toml").open("a") as scheme:
        scheme.write("[submission]\nper_epoch = 1000000\n")
    rules = (folder / "scheme.toml").read_text()
    (folder / "scheme.toml").write_text(rules.replace("[score]\n", f"[score]\ntrials = {TRIALS}\n"))
    with open_ledger(folder) as ledger:
        for signer in signers:
            each = [(name, trial) for name in names for trial in range(1, TRIALS + 1)]
            records = [record for name, trial in each for record in serving.trials(signer, name, range(TASKS), trial=trial)]
            intake.accept(ledger.store, serving.signed_batch(folder, signer, records), intake.intake_rules(folder))
        settle(ledger, serving.SIGNER, 1)
    return folder


def soak(work: Path, seconds: float, every: float, workers: int, database: str | None) -> list[str]:
    """One run; what was wrong."""
    people = serving.signers(PARTICIPANTS + VALIDATORS)
    signers, people = people[:VALIDATORS], people[VALIDATORS:]
    names = [key.public.raw.hex() for key in people]
    folder = competition(work / "soak", names, signers, database)
    rules = intake.intake_rules(folder)
    key = keys.save(str(work / "log.key"), serving.SIGNER)
    with serving.served(folder, "--workers", str(workers)) as process:
        load = SoakLoad(process, time.monotonic() + seconds)
        clients: list[Callable[[], None]] = [
            partial(keeper, load, every),
            *(partial(validator, load, rules, signer, seed) for seed, signer in enumerate((signers[0], *signers))),
            *(partial(reader, load, names, seed) for seed in range(2)),
            partial(participants, load, people, work / "agent"),
            partial(operator, load, folder, key, min(SETTLE_EVERY, seconds / 4)),
        ]
        with ThreadPoolExecutor(len(clients)) as pool:
            for running in [pool.submit(client) for client in clients]:
                running.result()
    wrong = load.wrong + [f"the service said: {line}" for line in process.printed]
    with open_ledger(folder) as ledger:
        place = ledger.config.place
    return [*wrong, *report(load, seconds), *kept(load, folder, place)]


def main() -> None:
    """Run, and print what happened. Exit code 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the load goes on (600)")
    parser.add_argument("--kill-every", type=float, default=30.0, metavar="SECONDS", help="between two kills (30)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes, at least 2")
    parser.add_argument("--database", metavar="URL", help="an empty PostgreSQL database; without it: SQLite")
    chosen = parser.parse_args()
    if chosen.workers < 2:
        parser.error("--workers: a worker that lives and one that is killed are needed")
    with serving.scratch() as work:
        try:
            wrong = soak(work, chosen.seconds, chosen.kill_every, chosen.workers, chosen.database)
        except AssayError as error:
            raise SystemExit(f"the soak could not begin: {error}") from None
    for line in wrong[:20]:
        print(f"wrong: {line}")
    print(f"{len(wrong)} things were wrong" if wrong else "nothing acknowledged is lost, and nothing was wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
