"""The service under attack: strangers, registered participants and validators ask for what they must not get."""

import json
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import ledger_kit
from assay.ledger import keys, settling
from assay.ledger.batch import Batch
from assay.ledger.keys import PrivateKey
from assay.serve.notebook import Notebook
from assay.serve.registration import invite
from assay.serve.site import now
from service_kit import Answer, Running, listing, running

EVIDENCE, PARTICIPANTS = "/v1/small/evidence", "/v1/small/participants"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    folder = ledger_kit.once(tmp_path / "small", ("service",), ledger_kit.made)
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


def registered(service: Running, key: PrivateKey, **said: str) -> Answer:
    return service.signed(key, "POST", PARTICIPANTS, json.dumps(said).encode())


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


def test_a_stranger_writes_nothing(service: Running) -> None:
    before = listing(folder_of(service))
    notebook = notebook_of(service)
    ended = invite(notebook, None, uses=5, until=now() - timedelta(days=1))
    used: list[str] = []
    spend = notebook.spend

    def spending(key: str, nonce: str, moment: datetime, window: timedelta) -> bool:
        used.append(key)
        return spend(key, nonce, moment, window)

    notebook.spend = spending  # type: ignore[method-assign, assignment]
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
