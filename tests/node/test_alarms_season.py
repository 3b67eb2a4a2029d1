"""What an operator is told of a season: by a real service, with real heartbeats and a real ledger."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest

import ledger_kit
import small_folder
from assay.errors import BadInput
from assay.ledger.store.tables import Submission
from assay.node import status
from assay.node.alarms import SILENT
from assay.node.heartbeat import beat as beat_now
from assay.node.season_facts import WAITS, SeasonWatch, season_facts
from assay.serve.client import Client
from cli_kit import output, run
from ledger_kit import V1, V2, VALIDATORS
from service_kit import Running, running

RULES = small_folder.SCHEME + '[consensus]\nmin_validators = 2\nmin_stake = "0.5"\n'


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(ledger_kit.ledger_folder(tmp_path / "small", scheme_toml=RULES)) as started:
        yield started


def folder_of(service: Running) -> Path:
    return service.site.competition("small").folder


def beat(service: Running, validator: str, ago: timedelta = timedelta(0)) -> None:
    """A heartbeat that came a while ago."""
    _, notebook = service.site.competition("small").books()
    notebook.beat(validator, datetime.now(UTC) - ago, [])


def codes(folder: Path) -> list[str]:
    """The alarms of an operator's node in the folder, as a look finds them now."""
    status.note(folder, role="operator", once=True)
    return [f"{alarm.code} {alarm.about}".strip() for alarm, _ in status.read_status(folder).alarms]


def test_a_late_validator_and_a_quorum_in_danger_begin_and_go_away(service: Running) -> None:
    folder = folder_of(service)
    for validator in VALIDATORS:
        beat(service, validator)
    assert codes(folder) == []
    beat(service, V2, SILENT * 2)
    assert codes(folder) == ["validator-late val-2"]
    assert "33.3 % of the stake" in run("node", "status", folder, code=1, columns=200).stdout
    beat(service, V1, SILENT * 2)
    assert codes(folder) == ["validator-late val-2", "validator-late val-1", "quorum"]
    for validator in VALIDATORS:
        beat(service, validator)
    assert codes(folder) == []


def test_what_a_validator_notes_reaches_the_operator_with_its_heartbeat(service: Running, tmp_path: Path) -> None:
    folder, mine = folder_of(service), tmp_path / "mine"
    for validator in VALIDATORS:
        beat(service, validator)
    status.note(mine, once=True, uncalibrated=["t3: its tests fail\x1b; mend them" + "!" * 400])
    with Client(f"{service.address}/small", VALIDATORS[V1]) as client:
        beat_now(client, mine)
        (row,) = season_facts(folder).validators[-1].troubles
        assert (row[0], len(row[1])) == ("task-uncalibrated", 300)
        assert row[1].startswith("a task does not calibrate on this machine: t3: its tests fail\\x1b")
        assert codes(folder) == ["validator-tells val-1 task-uncalibrated 0"]
        assert "task-uncalibrated" not in service.ask("GET", "/v1/small/validators").body.decode(), "only the operator is told"
        status.note(mine, uncalibrated=[])
        beat_now(client, mine)
        assert codes(folder) == []
        for trouble in ({"code": "UPPER", "what": "x"}, {"code": "x", "what": "y" * 301}, {"code": "x", "what": "\x1b"}, "x"):
            with pytest.raises(BadInput):
                client.send("POST", "heartbeat", json.dumps({"troubles": [trouble]}).encode(), "application/json")
        rows = [{"code": "x", "what": "y"}] * 21
        with pytest.raises(BadInput, match="not a heartbeat"):
            client.send("POST", "heartbeat", json.dumps({"troubles": rows}).encode(), "application/json")
        assert codes(folder) == []


def test_a_submission_that_nobody_judges_is_named_if_others_are_judged(service: Running) -> None:
    folder = folder_of(service)
    for validator in VALIDATORS:
        beat(service, validator)
    people = (folder / "participants.csv").read_text()
    (folder / "participants.csv").write_text(people.replace(",s1", ",").replace(",s2", ","))
    long_ago = (datetime.now(UTC) - WAITS).replace(microsecond=0).isoformat().replace("+00:00", "Z")

    def hand_in(participant: str, submission: str, epoch: int, at: str = "") -> None:
        with ledger_kit.opened(folder) as ledger, ledger.store.writing() as writer:
            writer.add_submission(Submission(participant, submission, epoch, at))

    digest = "sha256:" + "0" * 63
    hand_in("m1", f"{digest}1", 3)
    hand_in("m2", f"{digest}2", 3, long_ago)
    assert codes(folder) == [], "nobody is judged yet, which is no fault of a submission"
    records = [row | {"submission": f"{digest}1"} for row in ledger_kit.records(epoch=3) if row["participant"] == "m1"]
    ledger_kit.add(folder, records)
    with SeasonWatch(folder) as watch:
        assert [row.participant for row in watch.look().unjudged] == ["m2"]
        _, notebook = service.site.competition("small").books()
        notebook.beat(V1, datetime.now(UTC), [{"participant": "m2"}])
        assert watch.look().unjudged == (), "somebody is at it"
        notebook.beat(V1, datetime.now(UTC), [])
        ledger_kit.add(folder, [row | {"submission": f"{digest}2", "participant": "m2"} for row in records[:1]])
        assert watch.look().unjudged == ()


def test_a_ledger_that_cannot_be_read_is_an_alarm_and_is_looked_at_again(tmp_path: Path) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small", scheme_toml=RULES)
    rules = (folder / "scheme.toml").read_text()
    with SeasonWatch(folder) as watch:
        assert watch.look().wrong == ""
        (folder / "scheme.toml").write_text("no rules")
        assert "scheme.toml" in watch.look().wrong
        assert codes(folder) == ["ledger"]
        (folder / "scheme.toml").write_text(rules)
        assert watch.look().wrong == ""
    assert codes(folder) == []


class OtherService(BaseHTTPRequestHandler):
    """A service whose clock differs, and which does not know of troubles."""

    ahead = timedelta(0)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content = json.dumps({"detail": "is not a heartbeat", "where": "body"}).encode() if "troubles" in body else b""
        self.send_response_only(400 if content else 204)
        self.send_header("Date", format_datetime(datetime.now(UTC) - self.ahead, usegmt=True))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_clock_that_is_wrong_is_told_and_an_old_service_is_beaten_to(tmp_path: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), OtherService)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    status.note(tmp_path, once=True)
    try:
        for seconds, which in ((0, ""), (100, "ahead of"), (-100, "behind"), (0, "")):
            OtherService.ahead = timedelta(seconds=seconds)
            with Client(f"http://127.0.0.1:{server.server_port}/small", VALIDATORS[V1]) as client:
                beat_now(client, tmp_path)
            shown = [alarm.what for alarm, _ in status.read_status(tmp_path).alarms]
            assert (which in " ".join(shown), len(shown)) == (True, bool(which)), shown
            assert not which or 90 <= int(re.findall("at least ([0-9]+) seconds", shown[0])[0]) <= 100
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def until(happened: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 90
    while not happened():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.full
def test_an_operators_node_shows_the_season_and_tells_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    (tmp_path / "keys").mkdir()
    key = tmp_path / "keys" / "log.key"
    key.write_bytes(b"77" * 32)
    key.chmod(0o600)
    folder = ledger_kit.ledger_folder(tmp_path / "small", scheme_toml=RULES)
    (tmp_path / "note.sh").write_text(f"cat >> {tmp_path}/told\n")
    words = ["node", "operator", str(folder), "--key", "log", "--port", "0", "--on-alarm", f"sh {tmp_path}/note.sh"]
    page, prom = (folder / "node" / f"status.{suffix}" for suffix in ("html", "prom"))
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "assay", *words], stdout=out, stderr=out)
    try:
        until(lambda: page.exists() and "last heard of" in page.read_text(), "a page with validators")
        assert "All is well." in page.read_text()
        address = status.read_status(folder).content["service"]["address"]
        status.note(folder, held={"epoch": 1, "what": "nobody has an agreed score", "hint": "wait for evidence"})
        until(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text().endswith("\n"), "the command was run")
        (alarm,) = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
        assert (alarm["event"], alarm["code"], alarm["role"]) == ("began", "epoch-held", "operator")
        assert "epoch 1 cannot be closed: nobody has an agreed score" in run("node", "status", folder, code=1, columns=200).stdout
        assert 'assay_node_alarm{role="operator",code="epoch-held"} 1' in prom.read_text()
        with urlopen(f"{address}/metrics", timeout=60) as answer:
            metrics = answer.read()
        assert b'assay_alarm{competition="small",code="epoch-held"} 1' in metrics
        status.note(folder, held=None)
        until(lambda: '"over"' in (tmp_path / "told").read_text(), "it is over")
        assert "nothing wrong" in output("node", "status", folder)
    finally:
        process.terminate()
        assert process.wait(90) == 0, (tmp_path / "out").read_text()
    assert ": ended;" in page.read_text()
