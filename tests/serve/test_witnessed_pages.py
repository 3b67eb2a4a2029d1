"""The page of an epoch says who has cosigned, as soon as they have."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.ledger import config, settling
from assay.ledger.check import Receipt, check_checkpoint
from assay.publish.witnesses import LogWitnesses, policy_of
from ledger_kit import KEY, SIGNER, add, ledger_folder, opened, records
from service_kit import Running, running
from witness_kit import RunningWitness, serving, write_policy

NOBODY = "No witness has cosigned this checkpoint"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = ledger_folder(tmp_path / "small")
    add(folder, records())
    with opened(folder) as ledger:
        settling.settle(ledger, SIGNER, 3)
    return folder


@pytest.fixture
def referee(tmp_path: Path) -> Iterator[RunningWitness]:
    with serving(tmp_path, 1, [KEY]) as witness:
        yield witness


def text(service: Running, name: str) -> str:
    answer = service.ask("GET", f"/small/{name}")
    assert answer.status == 200
    return answer.body.decode()


def test_the_page_names_witnesses_as_soon_as_they_have_cosigned(place: Path, referee: RunningWitness) -> None:
    with running(place) as service:
        assert NOBODY in text(service, "epoch.html")
        write_policy(place / config.POLICY, 1, referee, log=KEY)
        with opened(place) as ledger:
            policy = policy_of(ledger)
            assert policy is not None
            assert [asked.reached for asked in LogWitnesses(policy).bring_up(ledger)] == [True]
        shown = text(service, "epoch.html")
        assert NOBODY not in shown
        assert "<dt>w1</dt><dd>cosigned " in shown
        for name in ("epoch.receipt", "log/checkpoint"):
            assert "example.net/w1" in text(service, name)
        receipt = Receipt.parse(text(service, "epoch.receipt").encode())
        assert check_checkpoint(receipt.proof.checkpoint, [KEY]).size == 1
        assert json.loads(text(service, "epoch.json"))["log"]["witnesses"][0]["name"] == "w1"
