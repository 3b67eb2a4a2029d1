"""The service under attack: strangers, registered participants and validators ask for what they must not get."""

import asyncio
import errno
import gzip
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import small_folder
from assay.errors import CannotSettle
from assay.ledger import keys, settling
from assay.ledger.batch import Batch, StoredRecord
from assay.ledger.keys import PrivateKey
from assay.ledger.store import Damaged, DatabaseUnreachable, View
from assay.peers.guard import ConnectionGuard
from assay.serve import bodies, downloads, http, pages, season, site, watching
from assay.serve.epochs import EpochReader
from assay.serve.http import HttpProblem
from assay.serve.notebook import Notebook
from assay.serve.pages import Query
from assay.serve.registration import invite
from assay.serve.season import Season
from assay.serve.signed import sign_request
from assay.serve.site import now
from service_kit import Answer, Running, listing, running, settle

EVIDENCE, PARTICIPANTS = "/v1/small/evidence", "/v1/small/participants"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    folder = ledger_kit.once(tmp_path / "small", ("service",), ledger_kit.ledger_folder)
    with running(folder) as started:
        yield started


def folder_of(service: Running) -> Path:
    return service.site.competition("small").folder


def notebook_of(service: Running) -> Notebook:
    return service.site.competition("small").books()[1]


def newcomer(number: int) -> PrivateKey:
    return keys.read(f"{number:064x}".encode())


def first_batch(service: Running, epoch: int = 3) -> tuple[PrivateKey, Batch]:
    batch = next(iter(ledger_kit.batches(folder_of(service), ledger_kit.records(epoch=epoch))))
    return ledger_kit.VALIDATORS[batch.statement.validator], batch


def registered(service: Running, key: PrivateKey, **fields: str) -> Answer:
    return service.signed(key, "POST", PARTICIPANTS, json.dumps(fields).encode())


def test_a_request_has_a_bounded_count_of_batches(service: Running) -> None:
    key, _ = first_batch(service)
    answer = service.signed(key, "POST", EVIDENCE, b"\n\n" * 20_000)
    assert (answer.status, answer.json["detail"]) == (413, "there are more than 1000 batches")


def test_an_open_epoch_is_shown_to_nobody(service: Running) -> None:
    folder = folder_of(service)
    for epoch in (3, 4):
        ledger_kit.add(folder, ledger_kit.records(epoch=epoch))
        if epoch == 3:
            with ledger_kit.opened(folder) as ledger:
                settling.settle(ledger, ledger_kit.SIGNER, epoch)
    for name in ("", "board.json", "validators.html", "participant-m1.json"):
        assert service.ask("GET", f"/small/epoch-4/{name}").status == 404, name
        assert service.ask("GET", f"/small/epoch-3/{name}").status == 200, name


@pytest.mark.parametrize("epoch", ["9" * 5000, "9" * 17, "-1", "1e3", "%D9%A3"])
def test_an_epoch_that_is_no_number_is_not_found(service: Running, epoch: str) -> None:
    assert service.ask("GET", f"/small/epoch-{epoch}/").status == 404


def test_a_stranger_writes_nothing(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    before = listing(folder_of(service))
    notebook = notebook_of(service)
    ended = invite(notebook, None, uses=5, until=now() - timedelta(days=1))
    used: list[str] = []
    spend = notebook.spend

    def spending(key: str, nonce: str, moment: datetime, window: timedelta) -> bool:
        used.append(key)
        return spend(key, nonce, moment, window)

    monkeypatch.setattr(notebook, "spend", spending)
    for number, code in enumerate(("", "guessed", ended), start=1):
        assert registered(service, newcomer(number), code=code).status == 403, code
    assert used == []
    assert listing(folder_of(service)) == before
    code = invite(notebook, None, uses=5, until=now() + timedelta(days=1))
    assert registered(service, newcomer(1), code=code).status == 201
    assert used == [newcomer(1).public.id]


def test_nobody_takes_the_name_of_another_or_a_formula(service: Running) -> None:
    code = invite(notebook_of(service), None, uses=50, until=now() + timedelta(days=1))
    assert registered(service, newcomer(1), code=code, name="Atlas").status == 201
    before = listing(folder_of(service))
    for name in ("atlas", " Atlas ", "\uff21tlas", "m1", "M1", "\xa0m1", '=HYPERLINK("x")', "+1", "-1", "@x", "a\nb", "\u202ex"):
        answer = registered(service, newcomer(2), code=code, name=name)
        assert answer.status == 400, name
        assert "participants.csv" not in answer.json.get("where", ""), name
    assert listing(folder_of(service)) == before
    assert registered(service, newcomer(2), code=code, name='<b>Boreas</b>, "the wind"').status == 201
    ledger_kit.add(folder_of(service), ledger_kit.records())
    assert b"<b>Boreas" not in service.ask("GET", "/small/").body


def test_one_code_lets_in_one_key(service: Running) -> None:
    code = invite(notebook_of(service), "m1", uses=1, until=now() + timedelta(days=1))
    answers: list[int] = []

    def register(number: int) -> None:
        answers.append(registered(service, newcomer(number), code=code).status)

    threads = [threading.Thread(target=register, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201, 403, 403, 403, 403, 403]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["participants.csv", "validators.csv", "scheme.toml", "acknowledged.jsonl"])
def test_a_file_of_the_operator_that_is_broken_is_not_the_clients_fault(service: Running, name: str) -> None:
    key, batch = first_batch(service)
    file = folder_of(service) / name
    good = file.read_bytes() if file.exists() else None
    file.write_bytes(b"x\n" if good is None else good[: len(good) // 2] + b'"')
    answer = service.signed(key, "POST", EVIDENCE, batch.data)
    assert (answer.status, "retry-after" in answer.headers) == (503, True), answer
    assert str(folder_of(service)) not in answer.body.decode()
    if good is None:
        file.unlink()
    else:
        file.write_bytes(good)
    again = service.signed(key, "POST", EVIDENCE, batch.data)
    assert again.json["batches"][0]["outcome"] in ("accepted", "known")


def test_a_folder_that_is_gone_is_a_fault_of_the_service(service: Running) -> None:
    key, batch = first_batch(service)
    folder = folder_of(service)
    folder.rename(folder.with_name("moved"))
    assert service.signed(key, "POST", EVIDENCE, batch.data).status == 503
    assert service.ask("GET", "/small/").status == 503
    folder.with_name("moved").rename(folder)
    assert service.signed(key, "POST", EVIDENCE, batch.data).status == 200


@pytest.mark.full
def test_a_query_that_a_page_does_not_read_draws_nothing(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(service)
    drawn: list[str] = []
    page = pages.page

    def drawing(shown: Season, name: str, query: Query | None = None) -> bytes:
        drawn.append(name)
        return page(shown, name, query)

    monkeypatch.setattr(site, "page", drawing)
    for number in range(5):
        for name in ("index.html", "validators.html", "board.json"):
            assert service.ask("GET", f"/small/{name}?x={number}&from={number + 1}").status == 200
    assert sorted(drawn) == ["board.json", "index.html", "validators.html"]
    body = service.ask("GET", "/small/?find=m1").body
    assert service.ask("GET", "/small/?find=m2").body != body
    assert service.ask("GET", "/small/?sort=name").body != service.ask("GET", "/small/?sort=name&order=desc").body
    shelf = service.site.competition("small")._shelf
    size = shelf.size
    for number in range(5):
        assert service.ask("GET", f"/small/?find=x{number}").status == 200
    assert shelf.size == size


def test_compressed_answers_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PACKED_BYTES", 10_000)
    kept = http._PackedBodies()
    for number in range(40):
        data = sha256(f"{number}".encode()).digest() * 3 + os.urandom(1000)
        assert gzip.decompress(kept.pack(str(number), "gzip", data)) == data
    assert kept.get("0", "gzip") is None
    assert kept.get("39", "gzip") is not None
    assert sum(kept.get(str(number), "gzip") is not None for number in range(40)) <= 10


def test_readers_leave_threads_to_those_who_send(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger_kit.add(folder_of(service), ledger_kit.records())
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def slow(*_: object) -> bytes:
        begun.release()
        go_on.wait(60)
        return b"{}"

    monkeypatch.setattr(EpochReader, "receipt", slow)
    answers: list[int] = []
    asking = [
        threading.Thread(target=lambda: answers.append(service.ask("GET", "/v1/small/epochs/3/receipt").status))
        for _ in range(http.READERS + http.READERS_WAITING + 3)
    ]
    try:
        for thread in asking:
            thread.start()
        for _ in range(http.READERS):
            assert begun.acquire(timeout=30)
        key, batch = first_batch(service, epoch=4)
        assert service.signed(key, "POST", EVIDENCE, batch.data).status == 200
        assert service.ask("GET", "/healthz").status == 200
    finally:
        go_on.set()
        for thread in asking:
            thread.join()
    assert (answers.count(200), answers.count(429)) == (http.READERS + http.READERS_WAITING, 3)


def test_a_workshop_forgets_what_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PATIENCE", 0.01)
    go_on = threading.Event()

    async def crowd() -> None:
        workshop = downloads.Workshop()
        for number in range(downloads.WAITING):
            with pytest.raises(HttpProblem, match="takes a while"):
                await workshop.once(number, go_on.wait)
        with pytest.raises(HttpProblem, match="too much is being prepared"):
            await workshop.once("another", go_on.wait)
        go_on.set()
        await asyncio.to_thread(workshop._drawing.shutdown)
        await asyncio.sleep(0)
        assert not workshop._under_way

    asyncio.run(crowd())


def test_what_cannot_be_settled_is_not_tried_for_each_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int | None] = []
    monkeypatch.setattr(site, "FAILED_SECONDS", 1000.0)

    def reading(folder: Path, epoch: int | None = None) -> Season:
        tried.append(epoch)
        raise CannotSettle("nobody has a quorum")

    monkeypatch.setattr(site, "read", reading)
    with running(small_folder.make(tmp_path / "plain")) as service:
        for _ in range(4):
            answer = service.ask("GET", "/small/")
            assert (answer.status, answer.json["detail"]) == (404, "nobody has a quorum")
        assert tried == [None]
        (tmp_path / "plain" / "tasks.txt").touch()
        assert service.ask("GET", "/small/").status == 404
    assert tried == [None, None]


def test_an_epoch_that_a_folder_does_not_have_costs_no_settlement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int | None] = []
    read = season.read

    def reading(folder: Path, epoch: int | None = None) -> Season:
        tried.append(epoch)
        return read(folder, epoch)

    monkeypatch.setattr(site, "read", reading)
    with running(small_folder.make(tmp_path / "plain")) as service:
        for epoch in range(100, 105):
            assert service.ask("GET", f"/small/epoch-{epoch}/").status == 404
    assert tried == [None]


def test_a_participant_hands_in_one_thing_at_a_time(service: Running) -> None:
    code = invite(notebook_of(service), None, uses=1, until=now() + timedelta(days=1))
    key, path = newcomer(1), "/v1/small/submissions"
    assert registered(service, key, code=code).status == 201
    for _ in range(100):
        headers = sign_request(key, "PUT", f"{service.address}{path}", sha256(b"slow").digest())
        headers |= {"Host": f"127.0.0.1:{service.port}", "Content-Length": "4"}
        head = f"PUT {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        with socket.create_connection(("127.0.0.1", service.port), 60) as slow:
            slow.sendall(head.encode() + b"\r\nsl")
            time.sleep(0.1)
            if service.signed(key, "PUT", path, b"x").status == 429:
                break  # otherwise the slow one came second
    else:
        pytest.fail("two are taken in at once")
    for _ in range(100):
        answer = service.ask("PUT", path, b"other", sign_request(key, "PUT", f"{service.address}{path}", bytes(32)))
        if answer.status != 429:
            break  # the service has seen that the slow client is gone
        time.sleep(0.1)
    assert (answer.status, answer.json["detail"]) == (400, "the body is not the one that was signed: its digest differs")


def test_a_reader_that_stops_reading_is_dropped(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PIECE_SECONDS", 0.2)
    key = ledger_kit.VALIDATORS[ledger_kit.V1]
    body = os.urandom(30_000_000)
    path = f"/v1/small/objects/{sha256(body).hexdigest()}"
    assert service.signed(key, "PUT", path, body).status == 200
    headers = sign_request(key, "GET", f"{service.address}{path}", sha256(b"").digest())
    head = "".join(f"{name}: {value}\r\n" for name, value in (headers | {"Host": f"127.0.0.1:{service.port}"}).items())
    with socket.create_connection(("127.0.0.1", service.port), 60) as still:
        still.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        for _ in range(100):
            metrics = service.ask("GET", "/metrics").body.decode()
            if 'method="GET",route="/v1/{segment}/objects/{sha256}"' in metrics:
                break  # the request is over, though nothing was read
            time.sleep(0.1)
        else:
            pytest.fail(metrics)
        came = 0
        while piece := still.recv(1 << 20):
            came += len(piece)
    assert came < len(body)


def test_a_redirect_keeps_the_scheme_of_the_public_address(service: Running) -> None:
    service.site.addresses.append("https://assay.example.org")
    answer = service.ask("GET", "/small", headers={"Host": "assay.example.org"})
    assert answer.headers["location"] == "https://assay.example.org/small/"


def test_an_epoch_is_not_read_for_each_who_asks_for_its_submissions(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    code = invite(notebook_of(service), None, uses=1, until=now() + timedelta(days=1))
    assert registered(service, newcomer(1), code=code).status == 201
    read: list[int] = []
    records = View.records

    def noted(view: View, *epochs: int) -> Iterator[StoredRecord]:
        read.append(1)
        return records(view, *epochs)

    ledger_kit.add(folder_of(service), ledger_kit.records())
    monkeypatch.setattr(View, "records", noted)
    assert service.signed(newcomer(1), "GET", "/v1/small/submissions").status == 200
    assert read == []


def test_whose_request_was_accepted_has_reserved_room(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    welcomed: list[bytes] = []
    monkeypatch.setattr(ConnectionGuard, "welcome", lambda guard, guest, receipt: welcomed.append(receipt))
    key, batch = first_batch(service)
    assert service.signed(newcomer(1), "POST", EVIDENCE, batch.data).status == 403
    assert service.signed(key, "POST", EVIDENCE, b"other").status == 200  # refused, and by a validator
    assert service.ask("GET", "/v1/small").status == 200
    assert welcomed == [key.public.raw]


def test_a_broken_request_is_no_line_in_the_log(service: Running, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", service.port), 60) as stranger:
        stranger.sendall(b"GE/T / HTTP/1.1\r\n\r\n")
        assert b" 400 " in stranger.recv(1000)
    assert not caplog.records


def test_a_full_disk_is_no_fault_of_who_sends(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SPOOL", 1)
    key, batch = first_batch(service)

    class FullDisk(tempfile.SpooledTemporaryFile[bytes]):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(tempfile, "SpooledTemporaryFile", FullDisk)
        answer = service.signed(key, "POST", EVIDENCE, batch.data)
    assert (answer.status, "retry-after" in answer.headers) == (503, True), answer
    assert service.signed(key, "POST", EVIDENCE, batch.data).json["batches"][0]["outcome"] == "accepted"


def test_one_address_does_not_take_every_place_of_those_who_listen(service: Running) -> None:
    watch = watching.Watch(service.site)
    with ExitStack() as listening:
        for _ in range(watching.ADDRESS_LISTENERS):
            listening.enter_context(watch.place(address="198.51.100.7"))
        with pytest.raises(HttpProblem, match="wait for news already"), watch.place(address="198.51.100.7"):
            pass
        with watch.place(address="198.51.100.8"), watch.place(), watch.place():
            assert watch.waiting.total() == watching.ADDRESS_LISTENERS + 3
    assert not watch.waiting
    with watch.place(address="198.51.100.7"):
        pass


def test_a_problem_does_not_say_where_the_folder_is(service: Running) -> None:
    folder = folder_of(service)
    error = Damaged(f"{folder}/ledger.db is not whole", file=folder / "ledger.db", hint=f"assay ledger lost {folder} x")
    document = json.loads(bytes(http.problem(error, folder=folder).body))
    assert str(folder) not in json.dumps(document)
    assert (document["detail"], document["hint"]) == ("ledger.db is not whole", "assay ledger lost DIR x")
    assert (document["where"], document["status"]) == ("ledger.db", 503)


def test_strangers_do_not_learn_how_the_database_is_reached() -> None:
    error = DatabaseUnreachable("the server does not answer (connection to db.internal failed: user assay)", hint="start it")
    document = json.loads(bytes(http.problem(error).body))
    assert (document["status"], document["detail"], document["hint"]) == (503, "the server does not answer", "start it")
