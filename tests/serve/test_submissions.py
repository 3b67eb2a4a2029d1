"""Handing in over HTTP: registration, archives, commitments, states; what is refused writes nothing."""

from __future__ import annotations

import io
import json
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import judge_kit
import ledger_kit
from assay.judge import submitting, tree
from assay.judge.sandbox import InfrastructureError
from assay.judge.terminal import agent as agents
from assay.ledger import keys, settling
from assay.ledger.keys import PrivateKey
from assay.serve import taking, uploads
from assay.serve.archives import pack
from assay.serve.notebook import Notebook, Upload
from assay.serve.signed import sign_request
from assay.serve.unpacking import unpack
from service_kit import Answer, Running, listing, running

ONE, TWO, STRANGER = (keys.read(f"{number}".encode() * 32) for number in (44, 55, 66))
"""The keys of m1 and m2, and one of nobody."""
SCHEME = '[scheme]\nname = "small"\n[score]\nkind = "tests"\n'
PUT = "/v1/small/submissions"


@contextmanager
def served(place: Path, rules: str = "") -> Iterator[Running]:
    folder = ledger_kit.once(place, ("submissions", rules), lambda new: ledger_kit.ledger_folder(new, scheme_toml=SCHEME + rules))
    with running(folder) as service:
        for participant, key in (("m1", ONE), ("m2", TWO)):
            notebook(service).register(participant, key.public.id, datetime.now(UTC))
        yield service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with served(tmp_path / "small") as started:
        yield started


def folder_of(service: Running) -> Path:
    return service.site.competition("small").folder


def notebook(service: Running) -> Notebook:
    return service.site.competition("small").books()[1]


def agent(folder: Path, text: str = "echo hello") -> Path:
    judge_kit.make_agent(folder, text)
    return folder


def packed(folder: Path, *, compressed: bool = True) -> bytes:
    archive = io.BytesIO()
    pack(folder, archive, compressed=compressed)
    return archive.getvalue()


def evil(name: str = "../evil") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = 4
        archive.addfile(info, io.BytesIO(b"evil"))
    return buffer.getvalue()


def own(service: Running, key: PrivateKey = ONE) -> dict[str, Any]:
    answer = service.signed(key, "GET", PUT)
    assert answer.status == 200, answer
    document: dict[str, Any] = answer.json
    return document


def state(service: Running) -> tuple[dict[str, bytes], list[Upload]]:
    return listing(folder_of(service)), notebook(service).uploads()


def test_an_archive_becomes_the_submission_and_the_same_again_is_the_same(service: Running, tmp_path: Path) -> None:
    source = agent(tmp_path / "agent")
    archive = packed(source)
    first = service.signed(ONE, "PUT", PUT, archive)
    assert first.status == 201, first
    assert first.json["submission"] == agents.load_agent(source).digest
    assert (first.json["participant"], first.json["epoch"], first.json["archive"]) == ("m1", 1, digest(archive))
    row = submitting.find(folder_of(service), "m1")
    assert (row.submission, row.row["submitted_at"]) == (first.json["submission"], first.json["at"])
    (kept,) = (folder_of(service) / "agents").iterdir()
    assert tree.digest(kept) == first.json["submission"]
    before = state(service)
    again = service.signed(ONE, "PUT", PUT, archive)
    assert (again.status, again.json) == (200, first.json)
    assert state(service) == before
    other = service.signed(ONE, "PUT", PUT, packed(agent(tmp_path / "other", "echo other")))
    assert other.status == 201
    assert [row["state"] for row in own(service)["submissions"]] == ["received", "replaced"]
    back = service.signed(ONE, "PUT", PUT, archive)
    assert (back.status, back.json["submission"]) == (201, first.json["submission"])
    with ledger_kit.opened(folder_of(service)) as ledger, ledger.store.reading() as view:
        assert view.submissions()["m1"].submission == first.json["submission"]


def digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def headers(service: Running, key: PrivateKey, body: bytes, **how: Any) -> dict[str, str]:
    return sign_request(key, "PUT", f"{service.address}{PUT}", sha256(body).digest(), **how)


REFUSED: dict[str, tuple[Callable[[Running, bytes], Answer], int, str]] = {
    "not signed": (lambda service, good: service.ask("PUT", PUT, good), 401, "is not signed"),
    "forged": (
        lambda service, good: service.ask("PUT", PUT, good, headers(service, TWO, good) | {"Signature": "assay=:AAAA:"}),
        401,
        "is refused",
    ),
    "old": (
        lambda service, good: service.ask(
            "PUT", PUT, good, headers(service, ONE, good, created=datetime.now(UTC) - timedelta(minutes=6))
        ),
        401,
        "is refused",
    ),
    "a stranger's key": (
        lambda service, good: service.signed(STRANGER, "PUT", PUT, good),
        403,
        "is not the key of a participant",
    ),
    "a validator's key": (
        lambda service, good: service.signed(next(iter(ledger_kit.VALIDATORS.values())), "PUT", PUT, good),
        403,
        "is not the key of a participant",
    ),
    "another body": (lambda service, good: service.ask("PUT", PUT, good, headers(service, ONE, b"other")), 400, "digest differs"),
    "too large": (
        lambda service, good: service.ask("PUT", PUT, bytes(64_000_001), headers(service, ONE, good)),
        413,
        "is larger than 64000000 bytes",
    ),
    "hostile": (lambda service, good: service.signed(ONE, "PUT", PUT, evil()), 400, "'../evil' leads out of the folder"),
    "garbage": (lambda service, good: service.signed(ONE, "PUT", PUT, b"garbage"), 400, "is neither a tar nor a zip"),
    "nothing": (lambda service, good: service.signed(ONE, "PUT", PUT, b""), 400, "is neither a tar nor a zip"),
    "no agent": (lambda service, good: service.signed(ONE, "PUT", PUT, evil("main.py")), 400, "no such file"),
    "sealed": (
        lambda service, good: service.ask(
            "PUT", PUT, good, headers(service, ONE, good) | {"Content-Type": "application/vnd.assay.sealed"}
        ),
        415,
        "takes no sealed submissions",
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_writes_nothing(service: Running, tmp_path: Path, name: str) -> None:
    ask, status, sentence = REFUSED[name]
    before = state(service)
    answer = ask(service, packed(agent(tmp_path / "agent")))
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), answer
    assert sentence in answer.json["detail"]
    assert str(folder_of(service)) not in answer.body.decode()
    assert "assay-upload" not in answer.body.decode()
    assert state(service) == before


def test_an_error_names_the_file_as_the_archive_has_it(service: Running, tmp_path: Path) -> None:
    source = agent(tmp_path / "agent")
    (source / "agent.toml").write_text('name = "x"\n')
    answer = service.signed(ONE, "PUT", PUT, packed(source))
    assert (answer.status, answer.json["where"]) == (400, "agent.toml: command")


def test_a_replay_is_refused_and_writes_nothing(service: Running, tmp_path: Path) -> None:
    archive = packed(agent(tmp_path / "agent"))
    signed = headers(service, ONE, archive)
    assert service.ask("PUT", PUT, archive, signed).status == 201
    before = state(service)
    assert service.ask("PUT", PUT, archive, signed).status == 409
    assert state(service) == before


def test_a_connection_that_is_cut_writes_nothing(service: Running, tmp_path: Path) -> None:
    archive = packed(agent(tmp_path / "agent"))
    before = state(service)
    lines = [f"PUT {PUT} HTTP/1.1", f"Host: 127.0.0.1:{service.port}", f"Content-Length: {len(archive)}"]
    lines += [f"{name}: {value}" for name, value in headers(service, ONE, archive).items()]
    with socket.create_connection(("127.0.0.1", service.port)) as cut:
        cut.sendall("\r\n".join([*lines, "", ""]).encode() + archive[: len(archive) // 2])
        cut.shutdown(socket.SHUT_WR)
        assert b" 201 " not in cut.recv(65_536)
    assert state(service) == before


def test_a_sandbox_that_breaks_is_nobodys_fault(service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "unpack", failing)
    before = state(service)
    answer = service.signed(ONE, "PUT", PUT, packed(agent(tmp_path / "agent")))
    assert (answer.status, answer.json["type"]) == (503, "urn:assay:problem:sandbox")
    assert "the sandbox broke" in answer.json["detail"]
    assert answer.headers["retry-after"] == "30"
    assert state(service) == before


def patient(service: Running, key: PrivateKey, archive: bytes) -> Answer:
    """The answer to an upload that is sent again while the service is busy with others of this participant."""
    while (answer := service.signed(key, "PUT", PUT, archive)).status == 429:
        time.sleep(0.2)
    return answer


def test_many_participants_hand_in_at_once(service: Running, tmp_path: Path) -> None:
    work = [(key, packed(agent(tmp_path / f"{key.public.raw.hex()[:4]}-{number}", f"echo {number}"))) for number in range(3)
            for key in (ONE, TWO)]  # fmt: skip
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda pair: patient(service, *pair), work))
    assert [answer.status for answer in answers] == [201] * 6
    assert len(notebook(service).uploads()) == 6
    for participant in ("m1", "m2"):
        newest = notebook(service).uploads(participant, last=1)[0]
        assert submitting.find(folder_of(service), participant).submission == newest.submission


def test_a_participant_hands_in_one_thing_at_a_time(service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(archive: Path, target: Path, *args: Any, **more: Any) -> None:
        begun.set()
        assert go_on.wait(60)
        unpack(archive, target, *args, **more)

    monkeypatch.setattr(uploads, "unpack", slow)
    first, second = (packed(agent(tmp_path / name, f"echo {name}")) for name in ("first", "second"))
    before = state(service)
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(service.signed, ONE, "PUT", PUT, first)
        try:
            assert begun.wait(60)
            refused = service.signed(ONE, "PUT", PUT, second)
            assert (refused.status, refused.headers["retry-after"]) == (429, "10"), refused
            assert refused.json["detail"] == "another submission of this participant is being taken in"
            assert state(service) == before
        finally:
            go_on.set()
        assert under_way.result().status == 201
    assert service.signed(ONE, "PUT", PUT, second).status == 201


def test_all_workers_and_hosts_share_the_turns(service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(archive: Path, target: Path, *args: Any, **more: Any) -> None:
        begun.set()
        assert go_on.wait(60)
        unpack(archive, target, *args, **more)

    monkeypatch.setattr(uploads, "unpack", slow)
    monkeypatch.setattr(taking, "BOXES", 1)
    monkeypatch.setattr(taking, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(taking, "KEEP_SECONDS", 0.01)
    first, second = (packed(agent(tmp_path / name, f"echo {name}")) for name in ("first", "second"))
    with running(folder_of(service)) as other, ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(service.signed, ONE, "PUT", PUT, first)
        try:
            assert begun.wait(60)
            answers = [other.signed(key, "PUT", PUT, second) for key in (ONE, TWO)]
            assert [answer.status for answer in answers] == [429, 429]
            details = [answer.json["detail"] for answer in answers]
            assert details == ["another submission of this participant is being taken in", "too many submissions come at once"]
        finally:
            go_on.set()
        assert under_way.result().status == 201
        assert [other.signed(key, "PUT", PUT, second).status for key in (ONE, TWO)] == [201, 201]


def test_refused_archives_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "ATTEMPTS", 2)
    with served(tmp_path / "small", "[submission]\nper_epoch = 2\n") as service:
        good = packed(agent(tmp_path / "agent"))
        with monkeypatch.context() as broken:  # which is not the participant's fault
            broken.setattr(uploads, "unpack", failing)
            assert [service.signed(ONE, "PUT", PUT, good).status for _ in range(5)] == [503] * 5
        assert [service.signed(ONE, "PUT", PUT, evil(f"../{number}")).status for number in range(3)] == [400] * 3
        assert service.signed(ONE, "PUT", PUT, good).status == 201
        assert service.signed(ONE, "PUT", PUT, good).status == 200  # known: it costs nothing
        before = state(service)
        refused = service.signed(ONE, "PUT", PUT, evil())
        assert (refused.status, refused.json["type"]) == (429, "urn:assay:problem:quota")
        assert refused.json["detail"] == "4 archives were sent in epoch 1, refused ones included, and 4 are the most"
        assert refused.json["hint"] == "wait for epoch 2; try what you hand in on your machine first: assay trial"
        assert state(service) == before
        assert service.signed(TWO, "PUT", PUT, evil()).status == 400
        service.signed(TWO, "PUT", PUT, good)
        settle(service, 1)
        assert service.signed(ONE, "PUT", PUT, evil()).status == 400


def failing(*_args: object, **_more: object) -> None:
    raise InfrastructureError("the sandbox broke")


def test_the_quota_of_an_epoch_holds(tmp_path: Path) -> None:
    with served(tmp_path / "small", "[submission]\nper_epoch = 2\n") as service:
        archives = [packed(agent(tmp_path / f"agent-{number}", f"echo {number}")) for number in range(3)]
        assert [service.signed(ONE, "PUT", PUT, archive).status for archive in archives[:2]] == [201, 201]
        before = state(service)
        refused = service.signed(ONE, "PUT", PUT, archives[2])
        assert (refused.status, refused.json["type"]) == (429, "urn:assay:problem:quota")
        assert refused.json["detail"] == "2 submissions were handed in in epoch 1, and 2 are the most"
        assert int(refused.headers["retry-after"]) > 0
        assert state(service) == before
        assert service.signed(ONE, "PUT", PUT, archives[1]).status == 200
        assert service.signed(TWO, "PUT", PUT, archives[2]).status == 201
        settle(service, 1)
        assert service.signed(ONE, "PUT", PUT, archives[2]).status == 201


def settle(service: Running, epoch: int) -> None:
    place = folder_of(service)
    now = {name: submitting.find(place, name).submission for name in ("m1", "m2")}
    records = [row | {"submission": now[row["participant"]]} for row in ledger_kit.records(epoch=epoch)]
    ledger_kit.add(place, records)
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, epoch)


def test_commit_and_reveal(tmp_path: Path) -> None:
    with served(tmp_path / "small", "[submission]\nreveal = 1\nper_epoch = 2\n") as service:
        archive = packed(agent(tmp_path / "agent"), compressed=False)
        assert archive == packed(tmp_path / "agent", compressed=False)
        refused = service.signed(ONE, "PUT", PUT, archive)
        assert (refused.status, refused.json["type"]) == (409, "urn:assay:problem:commitment")
        commitment = commit(service, ONE, digest(archive))
        assert (commitment.status, commitment.json["epoch"], commitment.json["from_epoch"]) == (201, 1, 2)
        assert commit(service, ONE, digest(archive)).json == commitment.json
        early = service.signed(ONE, "PUT", PUT, archive)
        assert (early.status, early.json["hint"]) == (409, "hand it in from epoch 2 on")
        assert commit(service, ONE, digest(b"second")).status == 201
        assert commit(service, ONE, digest(b"third")).status == 429
        settle(service, 1)
        assert commit(service, TWO, digest(archive)).json["epoch"] == 2
        assert service.signed(TWO, "PUT", PUT, archive).status == 409
        shown = own(service)
        assert [row["digest"] for row in shown["commitments"]] == [digest(b"second"), digest(archive)]
        assert (shown["epoch"], shown["reveal"], shown["per_epoch"]) == (2, 1, 2)
        revealed = service.signed(ONE, "PUT", PUT, archive)
        assert (revealed.status, revealed.json["at"], revealed.json["epoch"]) == (201, commitment.json["at"], 2)
        assert submitting.find(folder_of(service), "m1").row["submitted_at"] == commitment.json["at"]


def commit(service: Running, key: PrivateKey, committed: str) -> Answer:
    return service.signed(key, "POST", "/v1/small/commitments", json.dumps({"digest": committed}).encode())


def test_commitments_are_refused_where_there_is_no_reveal(service: Running) -> None:
    before = state(service)
    assert commit(service, ONE, digest(b"x")).status == 409
    assert commit(service, ONE, "sha256:short").status == 400
    assert state(service) == before


def test_who_hands_in_what_somebody_handed_in_earlier_is_told(service: Running, tmp_path: Path) -> None:
    archive = packed(agent(tmp_path / "agent"))
    first = service.signed(ONE, "PUT", PUT, archive)
    assert first.json["duplicate"] is False
    registry = folder_of(service) / "participants.csv"
    registry.write_text(registry.read_text().replace(first.json["at"], "2026-01-01T00:00:00Z"))
    other = service.signed(TWO, "PUT", PUT, packed(tmp_path / "agent", compressed=False))
    assert (other.status, other.json["submission"], other.json["duplicate"]) == (201, first.json["submission"], True)
    assert b"m1" not in other.body
    assert (own(service)["submissions"][0]["duplicate"], own(service, TWO)["submissions"][0]["duplicate"]) == (False, True)
    assert service.signed(TWO, "PUT", PUT, packed(agent(tmp_path / "own", "echo own"))).json["duplicate"] is False
    assert [row["duplicate"] for row in own(service, TWO)["submissions"]] == [False, False]


def test_states_of_a_submission(service: Running, tmp_path: Path) -> None:
    answer = service.signed(ONE, "PUT", PUT, packed(agent(tmp_path / "agent")))
    submission = answer.json["submission"]
    assert own(service)["submissions"][0]["state"] == "received"
    validator, key = next(iter(ledger_kit.VALIDATORS.items()))
    judging = {"judging": [{"participant": "m1", "submission": submission}]}
    assert service.signed(key, "POST", "/v1/small/heartbeat", json.dumps(judging).encode()).status == 204
    row = own(service)["submissions"][0]
    assert (row["state"], row["validators"]) == ("being-judged", [validator])
    notebook(service).beat(validator, datetime.now(UTC), [])
    records = [row | {"submission": submission} for row in ledger_kit.records(epoch=1, validators=[validator], participant="m1")]
    ledger_kit.add(folder_of(service), records[:2])
    assert own(service)["submissions"][0]["state"] == "judged"
    settle(service, 1)
    row = own(service)["submissions"][0]
    assert (row["state"], row["score"]) == ("scored", "1")
    assert own(service, TWO)["submissions"] == []
    assert service.ask("GET", PUT).status == 401
    assert service.signed(STRANGER, "GET", PUT).status == 403
