"""A real `assay serve` in a process of its own, competitions for it, and a client that keeps one connection: for measurements."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from assay.ledger import batch, config, intake, keys
from assay.ledger.access import make_ledger, open_ledger
from assay.ledger.keys import PrivateKey
from assay.ledger.settling import settle
from assay.records import Evidence, Tests, record
from assay.serve.signed import sign_request

BUILD = Path(__file__).parents[1] / "build" / "bench"
ORIGIN = "example.org/bench"
SIGNER = keys.read(b"78" * 32)
"""The log's."""
BEGIN = datetime(2026, 11, 2, tzinfo=UTC)
START_SECONDS = 120.0


class BareAnswer(NamedTuple):
    """The service's answer, and the seconds until its first byte."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    first: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Kept:
    """One connection that is kept; requests are signed by `key`, if there is one. Raises OSError and HTTPException."""

    def __init__(self, port: int, key: PrivateKey | None = None) -> None:
        self.port, self.key, self.base = port, key, f"http://127.0.0.1:{port}"
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.opened = self.used = time.monotonic()
        """The times when the connection was opened, and when its last answer was read."""
        self.sent = 0.0
        """The time when the last request was sent, as a whole or in part: on a busy machine long after it was asked for."""

    def signed(self, method: str, path: str, body: bytes) -> dict[str, str]:
        """The headers that sign a request."""
        assert self.key is not None
        return sign_request(self.key, method, f"{self.base}{path}", sha256(body).digest())

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> BareAnswer:
        """One request on the connection; signed if there are no headers and this has a key."""
        if headers is None:
            headers = self.signed(method, path, body or b"") if self.key is not None else {}
        if self._connection.sock is None:
            self.opened = self.used = time.monotonic()
        begun = time.perf_counter()
        try:
            self._connection.request(method, path, body, dict(headers))
        finally:
            self.sent = time.monotonic()
        given = self._connection.getresponse()
        first = time.perf_counter() - begun
        answer = BareAnswer(given.status, {name.lower(): value for name, value in given.getheaders()}, given.read(), first)
        self.used = time.monotonic()
        return answer

    def rest(self, seconds: float) -> None:
        """Close the connection if nothing was asked for so many seconds: the service may be about to close it."""
        if time.monotonic() - self.used > seconds:
            self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()


@dataclass
class ServedProcess:
    """A service in a process of its own."""

    process: subprocess.Popen[str]
    port: int
    printed: list[str] = field(default_factory=list)
    """The lines that it printed to its standard error; whole when it has ended."""

    def workers(self) -> list[int]:
        """Its worker processes (with `--workers` above 1)."""
        pids = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                    command = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if int(parent) == self.process.pid and b"spawn_main" in command:
                    pids.append(int(entry.name))
        return sorted(pids)

    def connections(self, pid: int) -> int:
        """The number of connections with clients that one of its processes has."""
        ours = f":{self.port:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        inodes = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(ours) and row[3] == "01"}
        try:
            return sum(os.readlink(entry) in inodes for entry in Path(f"/proc/{pid}/fd").iterdir())
        except OSError:  # it has ended, or closes files meanwhile
            return 0


def resident(pid: int) -> int:
    """Resident bytes of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def family(pid: int) -> list[int]:
    """A process and everything that it began and that runs."""
    children = dict[int, list[int]]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    members = [pid]
    for member in members:
        members += children.get(member, [])
    return members


def occupied(pids: Sequence[int]) -> int:
    """Bytes that processes occupy together: what several share counts once (PSS)."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(1024 * int(row.split()[1]) for row in rows if row.startswith("Pss:"))
    return total


@contextmanager
def started(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[ServedProcess]:
    """A program that prints its address with the port; asked to end at the end, and killed if it does not."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | dict(environment or {}),
        )
        assert process.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
        running = ServedProcess(process, int(address[1]) if address else 0)
        try:
            if address:
                _wait(running.port)
                yield running
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
            errors.seek(0)
            running.printed = errors.read().splitlines()
        if not address:
            raise SystemExit(f"{' '.join(command)} did not begin: {' '.join(running.printed)[-2000:]}")


def served(folder: Path, *options: str) -> Any:
    """`assay serve` of a folder on a free port."""
    return started(["-m", "assay", "serve", str(folder), "--port", "0", *options])


def _wait(port: int) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        probe = Kept(port)
        try:
            probe.ask("GET", "/")
            return
        except (OSError, http.client.HTTPException):
            if time.monotonic() > until:
                raise SystemExit(f"nobody answers on port {port}") from None
            time.sleep(0.05)
        finally:
            probe.close()


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the disk that the repository is on, gone afterwards."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="serve-", dir=BUILD) as folder:
        yield Path(folder)


def signers(count: int) -> list[PrivateKey]:
    """Keys of validators, or of participants: the same in every run."""
    return [keys.read(seed(number).encode()) for number in range(count)]


def seed(number: int) -> str:
    """The seed of one of these keys, as a key's file has it."""
    return sha256(b"bench %d" % number).hexdigest()


def competition(
    folder: Path,
    kind: str,
    participants: Sequence[str],
    validators: Sequence[PrivateKey],
    *,
    tasks: int = 0,
    database: str | None = None,
) -> Path:
    """A competition with an empty ledger. participants: their keys; each has the submission that `submission` gives."""
    folder.mkdir(parents=True)
    consensus = '[consensus]\nmin_validators = 1\nmin_stake = "0"\n'
    (folder / "scheme.toml").write_text(f'[scheme]\nname = "bench"\n[score]\nkind = "{kind}"\n{consensus}')
    rows = "".join(f"{key},{uid},{submission(key)}\n" for uid, key in enumerate(participants, start=1))
    (folder / "participants.csv").write_text(f"key,uid,submission\n{rows}")
    (folder / "validators.csv").write_text("key,stake\n" + "".join(f"{key.public.raw.hex()},100\n" for key in validators))
    if tasks:
        (folder / "tasks.txt").write_text("".join(f"{task(number)}\n" for number in range(tasks)))
    make_ledger(folder, ORIGIN, SIGNER, database=database)
    return folder


def submission(participant: str) -> str:
    """The submission of a participant."""
    return "sha256:" + sha256(participant.encode()).hexdigest()


def task(number: int) -> str:
    """The name of a task."""
    return f"task-{number:03}"


def trials(
    signer: PrivateKey, participant: str, numbers: range, *, epoch: int = 1, trial: int = 1, judged: str = ""
) -> list[Evidence]:
    """The evidence of a validator about a participant: one trial of each task. judged: its submission, if it is another one."""
    return [
        Tests(
            kind="tests",
            epoch=epoch,
            validator=signer.public.raw.hex(),
            participant=participant,
            submission=judged or submission(participant),
            task=task(number),
            trial=trial,
            outcome="pass" if number % 3 else "fail",
            observed_at=BEGIN + timedelta(seconds=number),
        )
        for number in numbers
    ]


def signed_batch(folder: Path, signer: PrivateKey, records: Sequence[Evidence]) -> batch.Batch:
    """A batch of a validator, for the ledger of a folder."""
    rules = intake.intake_rules(folder)
    return batch.make(
        records,
        origin=config.read(folder).origin,
        competition=rules.competition,
        task_set=rules.task_set,
        signer=signer,
        validator=signer.public.raw.hex(),
    )


def settled_board(folder: Path, size: int) -> Path:
    """A competition of scores for `size` participants, each seen by three validators, with one settled epoch."""
    names = [f"5{number:046x}z" for number in range(1, size + 1)]
    validators = signers(3)
    competition(folder, "given", names, validators)
    with open_ledger(folder) as ledger:
        for signer in validators:
            records = [
                record(
                    {
                        "kind": "given",
                        "epoch": 1,
                        "validator": signer.public.raw.hex(),
                        "participant": name,
                        "submission": submission(name),
                        "score": "0." + f"{1 + number * 7919 % 9973:04}".rstrip("0"),
                        "observed_at": BEGIN.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    }
                )
                for number, name in enumerate(names)
            ]
            intake.accept(ledger.store, signed_batch(folder, signer, records), intake.intake_rules(folder))
        settle(ledger, SIGNER, 1)
    return folder
