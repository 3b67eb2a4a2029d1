"""An upgrade of the operator's Assay whose ledger has older tables, while two validators keep sending: nothing is lost."""

import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import Connection

import ledger_kit
import node_kit
from assay.errors import AssayError, Unreachable
from assay.exact import canonical
from assay.folder.files import write_text
from assay.ledger.store import OtherVersion, schema
from assay.node.spool import Spool
from assay.serve.client import Client
from assay.serve.site import open_site
from cli_kit import output
from ledger_kit import V1, V2, VALIDATORS
from service_kit import running
from small_folder import record

MOST = 400
"""The most trials that a validator judges; the test ends long before."""
PEACE = 120.0
"""Seconds to wait at most for what other threads do."""


class SendingValidator(threading.Thread):
    """A validator that judges a trial after the other, and sends as long as it is told to; the service may be away."""

    def __init__(self, place: Path, desk: Path, validator: str) -> None:
        super().__init__(daemon=True)
        self.place, self.validator, self.url = place, validator, ""
        self.judged, self.away, self.broken = 0, 0, list[Exception]()
        self.ending = threading.Event()
        place.mkdir()
        for name in ("scheme.toml", "participants.csv", "validators.csv", "tasks.txt", "ledger.toml"):
            write_text(place / name, (desk / name).read_text())

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                if self.judged < MOST:
                    self._judge()
                self.send()
                self.ending.wait(0.2)
        except (AssayError, OSError) as error:
            self.broken.append(error)

    def send(self) -> None:
        try:
            with Client(self.url, VALIDATORS[self.validator]) as client:
                Spool(self.place, VALIDATORS[self.validator]).push(client, 3, pauses=())
        except Unreachable:
            self.away += 1

    def _judge(self) -> None:
        self.judged += 1
        file = self.place / "evidence" / "run.jsonl"
        file.parent.mkdir(exist_ok=True)
        fields = {"epoch": 3, "validator": self.validator, "participant": "m1", "submission": "s1", "task": "t1"}
        with file.open("ab") as opened:
            opened.write(canonical(record("tests", **fields, trial=self.judged)) + b"\n")


def another(connection: Connection) -> None:
    """A migration as a later version might have it."""
    connection.exec_driver_sql("CREATE TABLE visits (id INTEGER PRIMARY KEY)")


def wait_for(sender: SendingValidator, *, judged: int = 0, away: int = 0) -> None:
    """Wait until a validator has judged, and found nobody, so often."""
    end = time.monotonic() + PEACE
    while sender.judged < judged or sender.away < away:
        assert not sender.broken, sender.broken
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_ledger_is_brought_forward_while_validators_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = ledger_kit.once(tmp_path / "desk" / "small", ("upgrade",), ledger_kit.ledger_folder)
    senders = [SendingValidator(tmp_path / name, desk, key) for name, key in (("one", V1), ("two", V2))]
    with running(desk) as service:
        for sender in senders:
            sender.url = f"{service.address}/small"
            sender.start()
        for sender in senders:
            wait_for(sender, judged=3)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, another))  # the operator installs the next version
    for sender in senders:
        wait_for(sender, away=sender.away + 1)  # the service is away: what was judged waits
    with pytest.raises(OtherVersion, match="assay ledger migrate"):
        open_site(desk, ["http://127.0.0.1:1"])
    output("ledger", "migrate", desk)
    with running(desk) as service:
        for sender in senders:
            sender.url = f"{service.address}/small"
            wait_for(sender, judged=sender.judged + 2)
        for sender in senders:
            sender.ending.set()
            sender.join(PEACE)
            assert not sender.is_alive()
            assert not sender.broken
            sender.send()  # the last one
    held = node_kit.stored(desk)
    assert sorted(row[3] for row in held) == sorted(trial for sender in senders for trial in range(1, sender.judged + 1))
    assert node_kit.conflicts(desk) == 0
    assert output("ledger", "check", desk)
