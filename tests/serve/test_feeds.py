"""News of a service: a valid feed, events that a client who was away catches up with, health, and metrics."""

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import ledger_kit
import postgres
from assay.ledger import settling
from assay.serve import feeds, watching
from assay.serve import tallies as tallies_room
from assay.serve.tallies import Tallies
from disks import mounted, read_only, remount
from service_kit import Running, running

ATOM = "{http://www.w3.org/2005/Atom}"
NAMES = 'key,uid,name,submission\nm1,1,"<b>Atlas & ""co""</b>",s1\nm2,2,]]>,s2\n'


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    folder = ledger_kit.ledger_folder(tmp_path / "small", participants_csv=NAMES)
    with running(folder) as started:
        yield started


def folder_of(service: Running) -> Path:
    return service.site.competition("small").folder


def settle(service: Running, epoch: int, **changes: Any) -> None:
    records = ledger_kit.records(epoch=epoch)
    for record in records:
        record["outcome"] = changes.get(record["participant"], "pass")
        record["submission"] += f"-{epoch}"  # the first record of a submission's trial counts
    (folder_of(service) / "participants.csv").write_text(re.sub(r",s(\d)", rf",s\1-{epoch}", NAMES))
    ledger_kit.add(folder_of(service), records)
    with ledger_kit.opened(folder_of(service)) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, epoch, without_scores=True)


def test_the_feed_is_atom_and_says_who_leads_and_what_changed(service: Running) -> None:
    empty = ElementTree.fromstring(service.ask("GET", "/small/feed.atom").body)
    assert (empty.findtext(f"{ATOM}title"), empty.findall(f"{ATOM}entry")) == ("small", [])
    settle(service, 3, m2="fail")
    settle(service, 4, m1="fail", m2="pass")
    answer = service.ask("GET", "/small/feed.atom")
    assert answer.headers["content-type"] == "application/atom+xml"
    feed = ElementTree.fromstring(answer.body)
    ids = [feed.findtext(f"{ATOM}id"), *(entry.findtext(f"{ATOM}id") for entry in feed.findall(f"{ATOM}entry"))]
    assert ids == [f"{service.address}/small/", f"{service.address}/small/epoch-4/", f"{service.address}/small/epoch-3/"]
    times = [entry.findtext(f"{ATOM}updated") or "" for entry in feed.findall(f"{ATOM}entry")]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", when) for when in (*times, feed.findtext(f"{ATOM}updated") or ""))
    assert feed.find(f"{ATOM}author/{ATOM}name") is not None
    assert {link.get("rel") for link in feed.findall(f"{ATOM}link")} == {"self", "alternate"}
    last, first = feed.findall(f"{ATOM}entry")
    assert first.findtext(f"{ATOM}title") == 'Epoch 3: <b>Atlas & "co"</b> leads with 1'
    assert last.findtext(f"{ATOM}title") == "Epoch 4: ]]> leads with 1"
    summary = last.findtext(f"{ATOM}summary") or ""
    assert 'Before, <b>Atlas & "co"</b> led.' in summary
    with ledger_kit.opened(folder_of(service)) as ledger:
        assert ledger.receipt(4).digest in summary
    assert service.ask("GET", "/small/feed.atom", headers={"If-None-Match": answer.headers["etag"]}).status == 304


class FeedListener:
    """A client of the event stream."""

    def __init__(self, service: Running, last: str | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
        self._connection.request("GET", "/small/events", headers={} if last is None else {"Last-Event-ID": last})
        self.answer = self._connection.getresponse()
        self.id = last

    def next(self) -> tuple[str, Any]:
        """The next event: its name and data."""
        fields: dict[str, str] = {}
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if not line and "event" in fields:
                self.id = fields.get("id", self.id)
                return fields["event"], json.loads(fields["data"])
            if not line:
                assert not self.answer.isclosed(), "the stream ended"
            name, _, value = line.partition(": ")
            fields[name] = value

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


def test_events_say_what_is_new_and_what_was_missed(service: Running) -> None:
    listener = FeedListener(service)
    assert listener.answer.getheader("content-type", "").startswith("text/event-stream")
    assert listener.next() == ("state", {"batches": 0, "records": 0, "settled": None, "heartbeats": []})
    began = listener.id
    ledger_kit.add(folder_of(service), ledger_kit.records())
    name, data = listener.next()
    assert name == "evidence"
    assert data["batches"] >= 1
    key = next(iter(ledger_kit.VALIDATORS.values()))
    body = b'{"judging":[{"participant":"m1","task":"t1"}]}'
    assert service.signed(key, "POST", "/v1/small/heartbeat", body).status == 204
    with ledger_kit.opened(folder_of(service)) as ledger:
        receipt = settling.settle(ledger, ledger_kit.SIGNER, 3).receipt
    assert receipt is not None
    expected = {"epoch": 3, "receipt": receipt.digest, "position": 0}
    seen: dict[str, Any] = {}
    while not {"settled", "heartbeat"} <= set(seen):  # more evidence may be told between them
        name, data = listener.next()
        seen[name] = data
    listener.close()
    assert seen["settled"] == expected
    assert [(beat["validator"], beat["judging"][0]["task"]) for beat in seen["heartbeat"]["heartbeats"]] == [
        (key.public.raw.hex(), "t1")
    ]
    away = FeedListener(service, began)
    assert away.next() == ("evidence", {"batches": 3, "records": 12})
    assert away.next() == ("settled", expected)
    assert away.id == began, "an id comes with the last event of a state only"
    assert away.next()[0] == "heartbeat"
    assert away.id == listener.id
    away.close()


def test_all_listeners_together_ask_the_database_once(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read = [], watching._read

    def counted(*words: Any) -> Any:
        reads.append(threading.get_ident())
        return read(*words)

    monkeypatch.setattr(watching, "_read", counted)
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.05)
    began = time.monotonic()
    listeners = [FeedListener(service) for _ in range(8)]
    for listener in listeners:
        listener.next()
    looks, most = len(reads), 2 + (time.monotonic() - began) / 0.05
    ledger_kit.add(folder_of(service), ledger_kit.records())
    for listener in listeners:
        assert listener.next()[0] == "evidence"
        listener.close()
    assert looks <= most, "a look each 0.05 s, whoever listens"


def test_there_is_a_bound_on_listeners(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LISTENERS", 2)
    listeners = [FeedListener(service) for _ in range(2)]
    for listener in listeners:
        listener.next()
    refused = service.ask("GET", "/small/events")
    assert (refused.status, "retry-after" in refused.headers) == (429, True)
    assert "\nassay_event_listeners 2\n" in service.ask("GET", "/metrics").body.decode()
    for listener in listeners:
        listener.close()


def test_a_stream_ends_by_itself_and_when_the_service_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    with running(folder) as service:
        with monkeypatch.context() as patched:
            patched.setattr(feeds, "EVENT_SECONDS", 0.05)
            listener = FeedListener(service)
            listener.next()
            assert listener.answer.read() == b""
            listener.close()
        listener = FeedListener(service)
        listener.next()
    assert listener.answer.read() == b""  # ended cleanly, and `running` did not wait for its time to be over
    listener.close()


def test_health_says_whether_the_database_answers(service: Running) -> None:
    assert (service.ask("GET", "/healthz").body, service.ask("GET", "/healthz").status) == (b"ok\n", 200)
    for file in folder_of(service).glob("ledger.db*"):
        file.write_bytes(b"this is no database any more" * 1000)
    ill = service.ask("GET", "/healthz")
    assert (ill.status, ill.json["type"]) == (503, "urn:assay:problem:health")
    assert ill.json["detail"].startswith("small: ")
    assert str(folder_of(service)) not in ill.body.decode()
    assert 'assay_ledger_up{competition="small"} 0' in service.ask("GET", "/metrics").body.decode()


def test_health_says_what_is_lost_until_it_is_back(service: Running) -> None:
    folder = folder_of(service)
    batch = next(ledger_kit.batches(folder, ledger_kit.records()))
    key = ledger_kit.VALIDATORS[batch.statement.validator]
    for name, sentence in {
        "ledger.db": "small: the ledger's file ledger.db is gone",
        "scheme.toml": "small: scheme.toml: ",
        "participants.csv": "small: participants.csv: ",
        "log": "small: the log's checkpoint cannot be read",
    }.items():
        (folder / name).rename(folder / "away")
        ill = service.ask("GET", "/healthz")
        assert (ill.status, sentence in ill.json["detail"]) == (503, True), ill
        if name == "log":
            assert service.ask("GET", "/small/log/checkpoint").status == 503
        if name == "ledger.db":  # the open file could still be written, and nobody would read it again
            lost = service.signed(key, "POST", "/v1/small/evidence", batch.data)
            assert (lost.status, "restores a backup and restarts" in lost.json["hint"]) == (503, True)
            (folder / name).write_bytes((folder / "away").read_bytes())
            assert "ledger.db was replaced" in service.ask("GET", "/healthz").json["detail"]
        (folder / "away").rename(folder / name)
        assert service.ask("GET", "/healthz").status == 200


def test_health_says_that_the_database_is_away(tmp_path: Path) -> None:
    with postgres.cluster() as cluster:
        folder = ledger_kit.ledger_folder(tmp_path / "small", database=cluster.database())
        with running(folder) as service:
            assert service.ask("GET", "/healthz").status == 200
            cluster.stop()
            ill = service.ask("GET", "/healthz")
            assert (ill.status, ill.json["detail"].startswith("small: the server does not answer")) == (503, True), ill
            cluster.start()
            assert service.ask("GET", "/healthz").status == 200


def test_health_says_that_the_disk_is_full_or_read_only(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "2g") as disk:
        folder = ledger_kit.ledger_folder(disk / "small")
        with running(folder) as service:
            assert service.ask("GET", "/healthz").status == 200
            remount(disk, "size=1g")
            full = service.ask("GET", "/healthz")
            assert (full.status, "the service's disk is full" in full.json["detail"]) == (503, True), full
            remount(disk, "size=2g")
            with read_only(disk):
                ill = service.ask("GET", "/healthz")
                assert (ill.status, "the service may not read and write small" in ill.json["detail"]) == (503, True), ill
            assert service.ask("GET", "/healthz").status == 200


@pytest.mark.full
def test_metrics_have_no_label_that_a_stranger_chooses(service: Running) -> None:
    settle(service, 3)
    service.ask("GET", "/small/")
    service.ask("GET", '/secret"word/x\n'.replace("\n", "%0a"))
    service.ask("SECRETWORD", "/small/")
    service.ask("GET", "/v1/secretword?secretword=1")
    text = service.ask("GET", "/metrics").body.decode()
    assert "secret" not in text.lower()
    for line in ("records_total", "batches_total"):
        assert f'assay_evidence_{line}{{competition="small"}}' in text
    assert 'assay_epochs_settled_total{competition="small"} 1' in text
    assert 'assay_epoch_settled{competition="small"} 3' in text
    assert re.search(r'assay_http_requests_total\{method="GET",route="/\{segment\}/",status="200"\} 1', text)
    assert re.search(r'method="other",route="[^"]*",status="405"', text)
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .*|\w+(\{(\w+="[^"\\]*",?)*\})? [0-9.]+', line), line


def test_counts_of_a_worker_that_ended_stay_and_its_gauges_do_not(tmp_path: Path) -> None:
    ended, two = (Tallies(tmp_path, ("waits",)) for _ in range(2))
    for tallies, asked, waits in ((ended, 3, 5), (two, 1, 1)):
        tallies.add(("asked", "/a b"), asked)
        tallies.set(("waits",), waits)
    for tallies in (ended, two):
        assert tallies.sums() == ({("asked", "/a b"): 4, ("waits",): 6}, 2)
    ended.close()
    assert two.sums() == ({("asked", "/a b"): 4, ("waits",): 1}, 1)
    three = Tallies(tmp_path, ("waits",))
    three.add(("asked", "/a b"))
    assert two.sums() == ({("asked", "/a b"): 5, ("waits",): 1}, 2)
    assert len([*tmp_path.iterdir()]) == 2
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tallies_room, "BYTES", 64)
        three.add(("more",))
    assert two.sums() == three.sums() == ({("asked", "/a b"): 5, ("waits",): 1}, 2), "a full file takes no new name"
    for tallies in (two, three):
        tallies.close()
