"""The service: who may write, what a replay or a forgery gets, and what holds for every answer."""

import asyncio
import gzip
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
import zstandard

import judge_kit
import ledger_kit
from assay.errors import BadInput, Unreachable
from assay.judge.submitting import find
from assay.ledger import keys, settling
from assay.ledger.batch import Batch
from assay.ledger.counting import BatchVerdicts
from assay.ledger.store import StoredBatch
from assay.peers.guard import CONNECTION_LIMITS
from assay.serve import site
from assay.serve.client import Client
from assay.serve.listening import ServeOptions, addresses, listen
from assay.serve.season import Season
from assay.serve.season import read as read_season
from assay.serve.signed import sign_request
from service_kit import Answer, Running, listing, running, settle

STRANGER = keys.read(b"66" * 32)
EVIDENCE = "/v1/small/evidence"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    folder = ledger_kit.once(tmp_path / "small", ("service",), ledger_kit.ledger_folder)
    with running(folder) as started:
        yield started


def batches(service: Running) -> list[Batch]:
    return list(ledger_kit.batches(folder_of(service), ledger_kit.records()))


def folder_of(service: Running) -> Path:
    return service.site.competition("small").folder


def stored(service: Running) -> int:
    store, _ = service.site.competition("small").books()
    with store.reading() as view:
        return view.count()


def test_evidence_is_stored_once_however_often_it_is_sent(service: Running) -> None:
    batch, other, _ = batches(service)
    key = ledger_kit.VALIDATORS[batch.statement.validator]
    first = service.signed(key, "POST", EVIDENCE, batch.data)
    assert (first.status, first.json["batches"][0]["outcome"], first.json["batches"][0]["new"]) == (200, "accepted", 4)
    again = service.signed(key, "POST", EVIDENCE, batch.data)
    assert (again.json["batches"][0]["outcome"], again.json["batches"][0]["batch"]) == ("known", batch.digest)
    assert stored(service) == 4
    several = service.signed(key, "POST", EVIDENCE, batch.data + b"\n" + other.data + b"\n" + b"{}\n")
    assert [row["outcome"] for row in several.json["batches"]] == ["known", "refused", "refused"]
    assert "signed by" in several.json["batches"][1]["detail"]
    assert stored(service) == 4


def test_a_forged_or_replayed_request_writes_nothing(service: Running) -> None:
    batch = batches(service)[0]
    key, body = ledger_kit.VALIDATORS[batch.statement.validator], batch.data
    before = listing(folder_of(service))
    url = f"{service.address}{EVIDENCE}"
    old = datetime.now(UTC) - timedelta(minutes=6)
    unsigned = sign_request(key, "POST", url, sha256(body).digest())
    cases = {
        "no signature": ({}, 401),
        "another body": (sign_request(key, "POST", url, sha256(b"other").digest()), 400),
        "another method": (sign_request(key, "PUT", url, sha256(body).digest()), 401),
        "another path": (sign_request(key, "POST", url + "x", sha256(body).digest()), 401),
        "another service": (sign_request(key, "POST", f"http://localhost:1{EVIDENCE}", sha256(body).digest()), 401),
        "too old": (sign_request(key, "POST", url, sha256(body).digest(), created=old), 401),
        "of the future": (sign_request(key, "POST", url, sha256(body).digest(), created=old + timedelta(minutes=12)), 401),
        "a stranger's key": (sign_request(STRANGER, "POST", url, sha256(body).digest()), 403),
        "short nonce": (sign_request(key, "POST", url, sha256(body).digest(), nonce="short"), 401),
        "a name of another key": (
            unsigned | {"Signature-Input": unsigned["Signature-Input"].replace(key.public.id, STRANGER.public.id)},
            401,
        ),
        "covers less": (unsigned | {"Signature-Input": unsigned["Signature-Input"].replace('"@method" ', "")}, 401),
        "two signatures": (unsigned | {"Signature": unsigned["Signature"] + ", b=:AAAA:"}, 401),
    }
    for name, (headers, status) in cases.items():
        answer = service.ask("POST", EVIDENCE, body, headers)
        assert answer.status == status, (name, answer)
        assert answer.headers["content-type"] == "application/problem+json", name
        assert answer.json["detail"], name
        assert str(folder_of(service)) not in answer.body.decode(), name
    assert stored(service) == 0
    assert listing(folder_of(service)) == before
    headers = sign_request(key, "POST", url, sha256(body).digest())
    assert service.ask("POST", EVIDENCE, body, headers).status == 200
    replay = service.ask("POST", EVIDENCE, body, headers)
    assert (replay.status, replay.json["detail"]) == (409, "this request came before: its nonce was used")


def test_a_nonce_is_remembered_by_another_process(service: Running) -> None:
    served = service.site.competition("small")
    batch = batches(service)[0]
    key, body = ledger_kit.VALIDATORS[batch.statement.validator], batch.data
    headers = sign_request(key, "POST", f"{service.address}{EVIDENCE}", sha256(body).digest())
    assert service.ask("POST", EVIDENCE, body, headers).status == 200
    with running(served.folder) as other:
        other.site.addresses[:] = service.site.addresses
        other_headers = headers | {"Host": f"127.0.0.1:{service.port}"}
        assert other.ask("POST", EVIDENCE, body, other_headers).status == 409


def test_a_copy_is_refused_also_if_the_nonces_were_removed(service: Running) -> None:
    served = service.site.competition("small")
    _, notebook = served.books()
    signed = datetime.now(UTC) - timedelta(seconds=10)
    notebook.since = signed - timedelta(seconds=1)
    headers = sign_request(
        next(iter(ledger_kit.VALIDATORS.values())),
        "POST",
        f"{service.address}/v1/small/heartbeat",
        sha256(b"{}").digest(),
        created=signed,
    )
    assert service.ask("POST", "/v1/small/heartbeat", b"{}", headers).status == 204
    (served.folder / "ledger.db.requests").unlink()
    gone = service.ask("GET", "/healthz")
    assert (gone.status, "ledger.db.requests is gone" in gone.body.decode()) == (503, True)
    with running(served.folder) as other:
        other.site.addresses[:] = service.site.addresses
        copy = other.ask("POST", "/v1/small/heartbeat", b"{}", headers | {"Host": f"127.0.0.1:{service.port}"})
        assert (copy.status, copy.json["type"]) == (503, "urn:assay:problem:replay")


def test_a_request_for_another_host_is_refused(service: Running) -> None:
    answer = service.ask("GET", "/v1/competitions", headers={"Host": "elsewhere.example"})
    assert (answer.status, answer.json["type"]) == (421, "urn:assay:problem:host")
    assert service.ask("GET", "/v1/competitions", headers={"Host": f"localhost:{service.port}"}).status == 200


@pytest.mark.parametrize(("path", "status"), [("/nowhere/", 404), ("/small/nowhere.html", 404), ("/v1/x/evidence", 405)])
def test_what_is_not_there_is_a_problem_document(service: Running, path: str, status: int) -> None:
    ledger_kit.add(folder_of(service), ledger_kit.records())
    answer = service.ask("GET", path)
    assert (answer.status, answer.json["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"


def test_pages_have_tags_compression_and_headers(service: Running) -> None:
    settle(service)
    plain = service.ask("GET", "/small/")
    assert plain.status == 200
    assert "script-src 'self'" in plain.headers["content-security-policy"]
    assert plain.headers["x-content-type-options"] == "nosniff"
    assert service.ask("GET", "/small/", headers={"If-None-Match": plain.headers["etag"]}).status == 304
    packed = service.ask("GET", "/small/", headers={"Accept-Encoding": "gzip"})
    assert (packed.headers["content-encoding"], gzip.decompress(packed.body)) == ("gzip", plain.body)
    small = service.ask("GET", "/small/", headers={"Accept-Encoding": "gzip;q=0.5, zstd"})
    assert (small.headers["content-encoding"], zstandard.decompress(small.body)) == ("zstd", plain.body)
    assert service.ask("GET", "/small/style.css").headers["content-type"].startswith("text/css")
    assert service.ask("GET", "/small/participant-m1.html").status == 200
    assert json.loads(service.ask("GET", "/small/board.json").body)["epoch"] == 3


def test_a_page_follows_the_ledger(service: Running) -> None:
    ledger_kit.add(folder_of(service), ledger_kit.records())
    assert service.ask("GET", "/small/").status == 404  # nobody sees scores before they are settled
    settle(service)
    before = service.ask("GET", "/small/").headers["etag"]
    assert service.ask("GET", "/small/").headers["etag"] == before
    ledger_kit.add(folder_of(service), ledger_kit.records(epoch=4))
    assert service.ask("GET", "/small/epoch-4/").status == 404
    settle(service, 4)
    assert service.ask("GET", "/small/").headers["etag"] != before


@pytest.mark.full
def test_a_batch_is_checked_once_and_not_for_each_page(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    why = BatchVerdicts.why

    def counted(verdicts: BatchVerdicts, stored: StoredBatch) -> str:
        looked.append(stored.id)
        return why(verdicts, stored)

    ledger_kit.add(folder_of(service), ledger_kit.records())
    with ledger_kit.opened(folder_of(service)) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 3)
    ledger_kit.add(folder_of(service), ledger_kit.records(epoch=4))
    monkeypatch.setattr(BatchVerdicts, "why", counted)
    seasons: list[int | None] = []

    def reading(folder: Path, epoch: int | None, judged: dict[tuple[object, ...], str]) -> Season:
        seasons.append(epoch)
        return read_season(folder, epoch, judged)

    monkeypatch.setattr(site, "read", reading)
    first = service.ask("GET", "/small/").headers["etag"]
    assert service.ask("GET", "/v1/small/epochs/3/board").status == 200
    assert sorted(looked) == [4, 5, 6], "the receipt has a verdict on the others"
    find(folder_of(service), "m2").enter("s3")  # everything is drawn again
    assert service.ask("GET", "/small/").headers["etag"] != first
    assert service.ask("GET", "/small/epoch-3/").status == 200
    assert seasons == [None], "the settled epoch is still the same"
    assert sorted(looked) == [4, 5, 6], "the receipt has a verdict on the others"
    with ledger_kit.opened(folder_of(service)) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 4)
    assert [service.ask("GET", f"/small/{page}").status for page in ("", "epoch-3/", "epoch-4/")] == [200] * 3
    assert seasons == [None, None, 3]


@pytest.mark.full
def test_the_epoch_before_is_shown_while_a_settled_one_is_read(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> int:
        epoch: int = service.ask("GET", "/small/board.json").json["epoch"]
        return epoch

    begun, done, answers = threading.Event(), threading.Event(), list[int]()

    def slowly(folder: Path, epoch: int | None, judged: dict[tuple[object, ...], str]) -> Season:
        begun.set()
        done.wait()
        return read_season(folder, epoch, judged)

    for epoch in (3, 4):
        settle(service, epoch)
        if epoch == 3:
            assert shown() == 3
    monkeypatch.setattr(site, "read", slowly)
    first = threading.Thread(target=lambda: answers.append(shown()))
    first.start()
    begun.wait()
    assert shown() == 3
    done.set()
    first.join()
    assert [*answers, shown()] == [4, 4], "what was drawn meanwhile is not kept"


def test_a_heartbeat_is_kept_for_everybody(service: Running) -> None:
    key = next(iter(ledger_kit.VALIDATORS.values()))
    body = b'{"judging":[{"participant":"m1","task":"t1","done":3,"total":80}]}'
    assert service.signed(key, "POST", "/v1/small/heartbeat", body).status == 204
    _, notebook = service.site.competition("small").books()
    (beat,) = notebook.heartbeats()
    assert (beat.validator, beat.judging[0]["done"]) == (key.public.raw.hex(), 3)
    judge_kit.make_task(
        service.site.competition("small").folder / "tasks" / "t2", base='[metadata.assay]\nbase = "any"\nhidden = true\n'
    )
    rows = [("m1", "t2"), ("m1", "t1"), ("m1", "../.."), ("m1", "x" * 256), ("nobody", "t1")]
    body = json.dumps({"judging": [{"participant": person, "task": task} for person, task in rows]}).encode()
    assert service.signed(key, "POST", "/v1/small/heartbeat", body).status == 204
    (beat,) = notebook.heartbeats()
    cells = [(row["participant"], row["task"]) for row in beat.judging]
    assert cells == [("m1", ""), ("m1", "t1"), ("m1", ""), ("m1", "x" * 256)], "hidden tasks count; strangers do not"
    for wrong in (b"", b"[]", b'{"judging":[{"task":"t1"}]}', b'{"judging":{}}', b'{"judging":' + b"[" * 10_000):
        assert service.signed(key, "POST", "/v1/small/heartbeat", wrong).status == 400
    for turned in ("\\u202e", "\\u0000"):
        names = f'{{"judging":[{{"participant":"m1","task":"t{turned}"}}]}}'
        assert service.signed(key, "POST", "/v1/small/heartbeat", names.encode()).status == 400
    assert service.signed(key, "POST", "/v1/small/heartbeat", b" " * 70_000).status == 413


def test_the_client_says_what_the_service_says(service: Running) -> None:
    batch = batches(service)[0]
    key = ledger_kit.VALIDATORS[batch.statement.validator]
    with Client(service.address, key) as client:  # the only competition is found
        answer = client.send("POST", "evidence", batch.data, "application/vnd.assay.batches")
        assert answer["batches"][0]["outcome"] == "accepted"
    with Client(f"{service.address}/small", STRANGER) as client, pytest.raises(BadInput, match="not the key of a validator"):
        client.send("POST", "evidence", batch.data, "application/vnd.assay.batches")
    with Client("http://127.0.0.1:1/small", key) as client, pytest.raises(Unreachable, match="does not answer"):
        client.get("x")
    with pytest.raises(BadInput, match="not the address of a service"):
        Client("ftp://somewhere")


def test_a_slow_or_broken_body_is_dropped(tmp_path: Path) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    with running(folder, replace(CONNECTION_LIMITS, header=0.05)) as service:
        with socket.create_connection(("127.0.0.1", service.port), 60) as slow:
            slow.sendall(b"GET /v1/comp")
            assert slow.recv(100) == b""  # the head did not come in time
        key = next(iter(ledger_kit.VALIDATORS.values()))
        headers = sign_request(key, "POST", f"{service.address}{EVIDENCE}", bytes(32)) | {
            "Host": f"127.0.0.1:{service.port}",
            "Content-Length": "1000",
        }
        head = f"POST {EVIDENCE} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        with socket.create_connection(("127.0.0.1", service.port), 60) as cut:
            cut.sendall(head.encode() + b"\r\nhalf")
        assert service.ask("GET", "/v1/competitions").status == 200
        assert stored(service) == 0


def test_an_answer_does_not_wait_until_its_head_is_acknowledged() -> None:
    asked: list[int] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def served() -> None:
        with listen(ServeOptions(Path(), port=0)) as opened:
            async with await asyncio.start_server(connected, sock=opened):
                reader, writer = await asyncio.open_connection(*opened.getsockname())
                assert await reader.read() == b""
                writer.close()

    asyncio.run(served())
    assert asked == [1]


def test_where_the_service_is_found() -> None:
    here = ServeOptions(Path(), port=8400)
    assert addresses(here, 8400)[0] == "http://127.0.0.1:8400"
    assert addresses(replace(here, address="https://assay.example.org/"), 8400)[0] == "https://assay.example.org"
    assert addresses(replace(here, host="192.0.2.7"), 80) == ["http://192.0.2.7"]
    assert addresses(replace(here, address="https://x.org:443"), 8400)[0] == "https://x.org"  # as clients write it in Host
    assert addresses(replace(here, address="https://x.org:80"), 8400)[0] == "https://x.org:80"
    for wrong in ("assay.example.org", "https://x/path", "ftp://x"):
        with pytest.raises(BadInput, match="is not an address"):
            addresses(replace(here, address=wrong), 8400)
    with pytest.raises(BadInput, match="does not know its own"):
        addresses(replace(here, host="0.0.0.0"), 8400)
    with listen(replace(here, port=0)) as opened, pytest.raises(Unreachable, match="cannot be used"):
        listen(replace(here, port=opened.getsockname()[1]))


def test_a_browser_gets_a_page_where_there_is_no_board_yet(service: Running) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml"}
    answer = service.ask("GET", "/small/", headers=browser)
    assert (answer.status, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    text = answer.body.decode()
    assert "No board yet" in text
    assert "m1" in text  # has handed in
    assert 'href="start.html"' in text
    assert service.ask("GET", "/small/").headers["content-type"] == "application/problem+json"


def test_a_board_names_who_handed_in_since_and_links_to_other_epochs(service: Running) -> None:
    folder = folder_of(service)
    for epoch in (3, 4):
        settle(service, epoch)
    board = service.ask("GET", "/small/").body.decode()
    assert 'href="epoch-3/index.html"' in board
    assert "Handed in since" not in board
    find(folder, "m2").enter("s3")
    assert "Handed in since" in service.ask("GET", "/small/").body.decode()
    assert 'href="../index.html"' in service.ask("GET", "/small/epoch-3/").body.decode()
    assert service.ask("GET", "/small/epoch-9/").status == 404
    page = service.ask("GET", "/small/%3Cscript%3E.html", headers={"Accept": "text/html"}).body
    assert b"There is no page" in page
    assert b"<script" not in page


def test_the_live_page_shows_what_validators_say_of_themselves(service: Running) -> None:
    key = next(iter(ledger_kit.VALIDATORS.values()))
    assert b"m1" in service.ask("GET", "/small/live.html").body  # nothing is settled; m1 waits to be judged
    body = b'{"judging":[{"participant":"m1","submission":"s1","task":"t1","done":3,"total":80,"since":"2026-11-23T00:00:00Z"}]}'
    assert service.signed(key, "POST", "/v1/small/heartbeat", body).status == 204
    assert b"3 of 80" in service.ask("GET", "/small/live.html").body
    settle(service)
    page = service.ask("GET", "/small/live.html").body.decode()
    assert "3 of 80" in page
    assert "val-1" in page
    assert f"{service.address}/small" in service.ask("GET", "/small/start.html").body.decode()
    assert 'href="live.html"' in service.ask("GET", "/small/").body.decode()


def test_a_key_of_another_competition_of_the_subnet_writes_nothing(tmp_path: Path) -> None:
    ledger_kit.ledger_folder(tmp_path / "small")
    validators = f"key,stake,name\n{STRANGER.public.raw.hex()},100,other\n"
    scheme = '[scheme]\nname = "other"\n[score]\nkind = "tests"\n'
    ledger_kit.ledger_folder(tmp_path / "other", scheme_toml=scheme, validators_csv=validators)
    rows = "".join(f'[[competitions]]\npath = "{name}"\nshare = "50%"\n' for name in ("small", "other"))
    (tmp_path / "subnet.toml").write_text(rows)
    batch = next(ledger_kit.batches(tmp_path / "small", ledger_kit.records()))
    key = ledger_kit.VALIDATORS[batch.statement.validator]
    with running(tmp_path / "subnet.toml") as service:
        refused = service.signed(key, "POST", "/v1/other/evidence", batch.data)
        assert (refused.status, "not the key of a validator of 'other'" in refused.json["detail"]) == (403, True)
        headers = sign_request(key, "POST", f"{service.address}{EVIDENCE}", sha256(batch.data).digest())
        assert service.ask("POST", "/v1/other/evidence", batch.data, headers).status == 401
        stores = [served.books()[0] for served in service.site.competitions.values()]
        for store in stores:
            with store.reading() as view:
                assert view.count() == 0
        assert service.ask("POST", EVIDENCE, batch.data, headers).status == 200
        assert b"other" in service.ask("GET", "/").body


def test_a_participant_that_has_an_answer_already_gets_no_body(tmp_path: Path) -> None:
    key = keys.read(b"31" * 32)
    people = f"key,uid,submission\n{key.public.id},1,s1\nm2,2,s2\n"
    with running(ledger_kit.ledger_folder(tmp_path / "small", participants_csv=people)) as service:
        path = "/v1/small/submissions"

        def look(etag: str = "") -> Answer:
            headers = sign_request(key, "GET", f"{service.address}{path}", sha256(b"").digest())
            return service.ask("GET", path, headers=headers | {"If-None-Match": etag})

        first = look()
        assert (first.status, first.headers["cache-control"]) == (200, "private, no-cache")
        same = look(first.headers["etag"])
        assert (same.status, same.body, same.headers["etag"]) == (304, b"", first.headers["etag"])
        served = service.site.competition("small")
        scheme = served.folder / "scheme.toml"
        scheme.write_text(f"{scheme.read_text()}\n[submission]\nper_epoch = 7\n")
        other = look(first.headers["etag"])
        assert (other.status, other.json["per_epoch"]) == (200, 7)
