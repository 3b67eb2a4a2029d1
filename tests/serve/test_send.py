"""`assay evidence send`: what is signed gets into the service's ledger, however often it is sent and whatever else is given."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
from assay.errors import BadInput, Unreachable
from assay.ledger import batch
from assay.serve.client import patiently
from cli_kit import output, run
from ledger_kit import V1
from service_kit import Running, running


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(ledger_kit.once(tmp_path / "small", ("send",), ledger_kit.ledger_folder)) as started:
        yield started


@pytest.fixture
def key(tmp_path: Path) -> str:
    """The file of the first validator's key."""
    path = tmp_path / "val-1.key"
    path.write_bytes(b"01" * 32)
    path.chmod(0o600)
    return str(path)


def files(service: Running, place: Path, **changes: Any) -> list[Path]:
    """A file for each validator's batch of both epochs."""
    folder = service.site.competition("small").folder
    place.mkdir()
    written = []
    for number, new_batch in enumerate(
        ledger_kit.batches(folder, [*ledger_kit.records(), *ledger_kit.records(epoch=4, **changes)])
    ):
        written.append(place / f"{number}-{new_batch.statement.validator[:8]}-{new_batch.statement.epoch}.batch")
        written[-1].write_bytes(new_batch.data)
    return written


def stored(service: Running) -> int:
    store, _ = service.site.competition("small").books()
    with store.reading() as view:
        return view.count()


def test_what_contradicts_earlier_evidence_is_named(service: Running, key: str, tmp_path: Path) -> None:
    folder, address = service.site.competition("small").folder, f"{service.address}/small"
    ledger_kit.add(folder, ledger_kit.records(validators=[V1], outcome="pass"))
    changed = ledger_kit.records(validators=[V1], outcome="fail")
    changed[0]["outcome"] = "pass"
    (tmp_path / "again.batch").write_bytes(next(ledger_kit.batches(folder, changed)).data)
    for new in (3, 0):  # also if the first answer was lost
        sent = run("evidence", "send", address, tmp_path / "again.batch", "--key", key, columns=1000)
        assert f"again.batch: {new} new, {4 - new} known, 3 in conflict with an earlier one" in sent.stdout
        *pairs, what, hint = sent.stderr.splitlines()
        counted = [re.fullmatch(r"warning: (.*): record (\d) counts \(outcome pass\); this one does not \(outcome fail\)", line)
                   for line in pairs]  # fmt: skip
        assert {pair[1] for pair in counted if pair} == {"m1, t2", "m2, t1", "m2, t2"}
        assert "3 records contradict earlier ones of the same validator. The earlier one counts, and nothing counts" in what
        assert "go on in the one that has your evidence" in hint


def test_batches_are_accepted_and_refused_one_by_one(service: Running, key: str, tmp_path: Path) -> None:
    paths = files(service, tmp_path / "batches", trial=2)
    mine = [file for file in paths if V1[:8] in file.name]
    address = f"{service.address}/small"
    printed = output("evidence", "send", address, *mine, "--key", key)
    assert printed.splitlines() == [
        *(f"{file}: 4 new, 0 known" for file in mine),
        "8 records accepted by the service, in 2 batches.",
    ]
    assert stored(service) == 8
    (tmp_path / "evidence.jsonl").write_text("{}\n")
    mixed = [tmp_path / "evidence.jsonl", mine[0], paths[1], tmp_path / "missing.batch"]
    again = run("evidence", "send", address, *mixed, "--key", key, "--json", code=2, columns=10_000)
    assert json.loads(again.stdout) == {
        "sent": [{"file": str(mine[0]), "new": 0, "known": 4, "conflicting": 0}],
        "new": 0,
        "refused": 3,
        "logs": {"new": 0, "known": 0},
    }
    errors = [line for line in again.stderr.splitlines() if line.startswith("error:")]
    for line, part in zip(errors, ("sign it first: assay evidence sign", "signed by", "no such file"), strict=True):
        assert part in line
    assert stored(service) == 8


def test_many_batches_go_in_several_requests(service: Running, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = [file for file in files(service, tmp_path / "batches", trial=2) if V1[:8] in file.name]
    most = max(file.stat().st_size for file in mine) + 10
    monkeypatch.setattr(batch, "BATCH_BYTES", most)
    output("evidence", "send", f"{service.address}/small", *mine, "--key", key)
    text = service.ask("GET", "/metrics").body.decode()
    assert 'route="/v1/{segment}/evidence",status="200"} 2' in text
    assert stored(service) == 8


def test_a_stranger_and_a_wrong_address_are_told(service: Running, key: str, tmp_path: Path) -> None:
    (first, *_) = files(service, tmp_path / "batches", trial=2)
    stranger = tmp_path / "stranger.key"
    stranger.write_bytes(b"66" * 32)
    stranger.chmod(0o600)
    refused = run("evidence", "send", f"{service.address}/small", first, "--key", stranger, code=2)
    assert "is not the key of a validator" in refused.stderr
    assert "there is no competition" in run("evidence", "send", f"{service.address}/other", first, "--key", key, code=2).stderr
    assert stored(service) == 0


def test_what_a_service_does_not_answer_is_sent_again() -> None:
    slept: list[float] = []
    answers: list[Any] = [Unreachable("away"), Unreachable("busy"), "done"]

    def act() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert patiently(act, (1, 2, 4), slept.append) == "done"
    assert slept == [1, 2]
    for error in (Unreachable("never", final=True), BadInput("refused")):
        answers[:] = [error, "done"]
        with pytest.raises(type(error)):
            patiently(act, (1, 2), slept.append)
    answers[:] = [Unreachable("away")] * 3
    with pytest.raises(Unreachable):
        patiently(act, (1, 2), slept.append)
    assert slept == [1, 2, 1, 2]
