"""`assay serve` as people run it: a process of its own, several workers, a stop in the middle of a request."""

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

import ledger_kit
import postgres
from assay.ledger import keys
from assay.ledger.keys import PrivateKey
from assay.serve.signed import sign_request
from cli_kit import refused

EVIDENCE = "/v1/small/evidence"


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`assay serve` on a free port: the process and the port."""
    command = [sys.executable, "-m", "assay", "serve", str(folder), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/small/", line)
        assert match, (line, process.stderr.read() if process.stderr and not line else "")
        yield process, int(match[1])
    finally:
        process.terminate()
        process.communicate()


def send(port: int, key: PrivateKey, body: bytes, *, half: bool = False) -> http.client.HTTPConnection:
    """Begin a signed request; half: without the end of its body."""
    headers = sign_request(key, "POST", f"http://127.0.0.1:{port}{EVIDENCE}", sha256(body).digest())
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.putrequest("POST", EVIDENCE)
    for name, value in (headers | {"Content-Length": str(len(body))}).items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(body[:-10] if half else body)
    return connection


def outcome(port: int, key: PrivateKey, body: bytes) -> tuple[int, bytes]:
    """The answer to a signed request; tried again while a worker is not there."""
    while True:
        try:
            with closing(send(port, key, body)) as connection:
                answer = connection.getresponse()
                return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    pgrep = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in pgrep.stdout.split()]


def serving(pid: int) -> list[int]:
    """Its workers: the children that run Python's spawn."""
    return [child for child in children(pid) if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_a_stop_answers_what_is_under_way(tmp_path: Path) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    batch = next(ledger_kit.batches(folder, ledger_kit.records()))
    key = ledger_kit.VALIDATORS[batch.statement.validator]
    with served(folder) as (process, port):
        with closing(send(port, key, batch.data, half=True)) as connection:
            assert outcome(port, key, batch.data)[0] == 200  # the other one has begun
            process.send_signal(signal.SIGTERM)
            connection.send(batch.data[-10:])
            answer = connection.getresponse()
            assert (answer.status, b'"known"' in answer.read()) == (200, True)
        assert process.wait() == 0
    with ledger_kit.opened(folder) as ledger, ledger.store.reading() as view:
        assert view.count() == len(batch.records)


def counted(port: int) -> dict[str, int]:
    """What /metrics says of workers, of those who listen and of batches sent; asked until a worker is there."""
    while True:
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
                connection.request("GET", "/metrics")
                text = connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
            continue
        sent = r'\{method="POST",route="/v1/\{segment\}/evidence",status="200"\}'
        numbers = re.findall(rf"^assay_(workers|event_listeners|http_requests_total(?={sent}))(?:{sent})? (\d+)$", text, re.M)
        return {name: int(number) for name, number in numbers}


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_that_was_acknowledged_or_counted(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folder = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    batches = [batch for epoch in (3, 4, 5) for batch in ledger_kit.batches(folder, ledger_kit.records(epoch=epoch))]
    acknowledged = 0
    with served(folder, "--workers", "2") as (process, port):
        while counted(port)["workers"] < 2:
            time.sleep(0.05)
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as listener:
            listener.request("GET", "/small/events")
            assert listener.getresponse().readline() == b"retry: 2000\n"
            for number, batch in enumerate(batches):
                status, body = outcome(port, ledger_kit.VALIDATORS[batch.statement.validator], batch.data)
                assert status == 200, body
                acknowledged += len(batch.records)
                counts = counted(port)
                assert counts["http_requests_total"] == number + 1, "whichever worker is asked, before and after they were killed"
                if number == 3:
                    assert counts["event_listeners"] == 1
                    workers = serving(process.pid)
                    assert len(workers) == 2
                    for worker in workers:
                        os.kill(worker, signal.SIGKILL)
        assert counted(port)["event_listeners"] == 0
        assert len([*tmp_path.glob("assay-serve-*/*")]) == 2, "a new worker goes on with the file of a killed one"
    assert not [*tmp_path.glob("assay-serve-*")]
    with ledger_kit.opened(folder) as ledger, ledger.store.reading() as view:
        assert view.count() == acknowledged


def settled(folder: Path) -> subprocess.CompletedProcess[str]:
    """`assay settle` of epoch 3, as an operator runs it."""
    command = [sys.executable, "-m", "assay", "settle", str(folder), "--epoch", "3", "--key", "log"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.full
@pytest.mark.slow
def test_two_hosts_with_copies_of_the_folder_share_one_database(
    tmp_path: Path, postgresql: postgres.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    keys.save("log", ledger_kit.SIGNER)
    original = ledger_kit.ledger_folder(tmp_path / "one" / "small", database=postgresql.database())
    two = Path(shutil.copytree(original, tmp_path / "two" / "small"))
    batches = [batch for epoch in (3, 4) for batch in ledger_kit.batches(original, ledger_kit.records(epoch=epoch))]

    def send_all(port: int) -> list[bytes]:
        answers = [outcome(port, ledger_kit.VALIDATORS[batch.statement.validator], batch.data) for batch in batches]
        assert {status for status, _ in answers} == {200}, answers
        return [body for _, body in answers]

    with served(original) as (_, here), served(two) as (_, there), ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(send_all, (here, there, here, there))]
        for several in zip(*answers, strict=True):
            assert [body.count(b'"accepted"') for body in several].count(1) == 1
    for folder in (original, two):
        with ledger_kit.opened(folder) as ledger, ledger.store.reading() as view:
            assert view.count() == sum(len(batch.records) for batch in batches)
            assert len({record.digest for record in view.records()}) == view.count()

    with ThreadPoolExecutor(2) as pool:  # the log has one sequence, whoever settles
        commands = [
            [sys.executable, "-m", "assay", "settle", str(folder), "--epoch", "3", "--key", "log"] for folder in (original, two)
        ]
        ended = list(pool.map(lambda command: subprocess.run(command, capture_output=True, text=True, check=False), commands))
    assert [done.returncode for done in ended] == [0, 0], ended
    checkpoints = set()
    for folder in (original, two):
        with ledger_kit.opened(folder) as ledger, ledger.store.reading() as view:
            assert [receipt.epoch for receipt in view.receipts()] == [3]
            ledger.bring_up()
            checkpoints.add((folder / "log" / "checkpoint").read_bytes())
    assert len(checkpoints) == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "does not know its own"),
        (["--certificate", "x.pem"], "come together"),
        (["--address", "example.org"], "is not an address"),
        (["--proxy", "proxy.example.org"], "'proxy.example.org' is not an address"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: list[str], message: str) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    command = [sys.executable, "-m", "assay", "serve", str(folder), "--port", "0", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    printed = " ".join(ended.stderr.split())
    assert (ended.returncode, message in printed, "Traceback" in printed) == (2, True, False), printed


def test_a_scheme_file_is_told_from_a_subnet_file(tmp_path: Path) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    assert f"assay serve {folder}" in refused("serve", folder / "scheme.toml")
