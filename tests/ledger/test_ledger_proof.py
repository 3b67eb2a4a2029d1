"""A miner's own proof holds every record that its result rests on, or it is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import small_folder
from assay.errors import Refused
from assay.exact import canonical
from assay.ledger import bundle, check, settling, statements
from assay.ledger.exchange import proof_for
from assay.ledger.verify import verify
from cli_kit import refused, run
from ledger_kit import KEY, SIGNER, V1, V2, VALIDATORS

Json = dict[str, Any]


def seen(epoch: int = 3, **changes: Any) -> list[Json]:
    """What all saw of all: some passed, some failed."""
    records = ledger_kit.records(epoch=epoch, **changes)
    return [record | {"outcome": "pass" if at % 3 else "fail"} for at, record in enumerate(records)]


def proof_of(place: Path, participant: str = "m1") -> Json:
    with ledger_kit.opened(place) as ledger:
        return proof_for(ledger, participant)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two epochs; the second has evidence of its own, and a record that contradicts one of the first."""
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    for epoch, trial in ((3, 1), (4, 2)):
        ledger_kit.add(folder, seen(epoch, trial=trial))
        if epoch == 4:
            ledger_kit.add(folder, ledger_kit.records(epoch=4, validators=[V1], trial=1, outcome="fail"))
        with ledger_kit.opened(folder) as ledger:
            settling.settle(ledger, SIGNER)
    return folder


def written(proof: Json, target: Path) -> Path:
    target.write_bytes(canonical(proof))
    return target


@pytest.mark.no_cover
def test_without_the_records_that_failed_it_is_refused(place: Path, tmp_path: Path) -> None:
    proof = proof_of(place)
    assert proof["schema"] == "assay.proof/2"
    assert proof["result"]["records"]["count"] == len(proof["records"]) == 12
    checks = {result.stage: result for result in verify(written(proof, tmp_path / "a.proof"), key=str(KEY)).checked}
    assert checks["evidence"].what == "all 12 records that it rests on, each under the evidence root of a receipt"
    passed = [row for row in proof["records"] if row["record"]["outcome"] == "pass"]
    assert 0 < len(passed) < 12
    thinned = written(proof | {"records": passed}, tmp_path / "b.proof")
    refusal = refused("verify", thinned, "--key", str(KEY), code=1)
    assert "evidence: the result rests on another number of records (expected 12, found " in refusal


def test_each_record_left_out_or_in_another_place_is_refused(place: Path, tmp_path: Path) -> None:
    proof = proof_of(place)
    rows = proof["records"]
    for at in range(len(rows)):
        others = [*rows[:at], *rows[at + 1 :]]
        for some in (others, [*others, others[0]], [*others, rows[at]]):
            if some == rows:
                continue
            with pytest.raises(Refused, match="evidence: "):
                verify(written(proof | {"records": some}, tmp_path / "a.proof"), key=str(KEY))
    fewer = proof["result"] | {"records": {"root": f"sha256:{check.EMPTY_ROOT.hex()}", "count": 0}}
    with pytest.raises(Refused, match="results: "):
        verify(written(proof | {"records": [], "result": fewer}, tmp_path / "a.proof"), key=str(KEY))


@pytest.mark.sampled(1)
@pytest.mark.no_cover
@pytest.mark.parametrize("kind", list(small_folder.FIELDS))
def test_proofs_of_every_kind_are_whole(kind: str, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", kind)
    for epoch in (3, 4):
        ledger_kit.add(place, ledger_kit.records(kind, epoch=epoch))
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, SIGNER)
            bundle.export(ledger, epoch, tmp_path / f"epoch-{epoch}")
            assert list(settling.replay(ledger))
    for name in ("m1", "m2"):
        proof = proof_of(place, name)
        assert proof["records"]
        assert verify(written(proof, tmp_path / "a.proof"), key=str(KEY))
    assert verify(tmp_path / "epoch-4", key=str(KEY)).recomputed


@pytest.mark.full
@pytest.mark.no_cover
@pytest.mark.parametrize("age", ["", "max_age_epochs = 0\n"])
def test_what_is_too_old_of_another_task_set_or_of_a_stranger_is_none_of_them(age: str, tmp_path: Path) -> None:
    scheme = f"{small_folder.SCHEME}[consensus]\n{age}"
    people = "key,uid,name,submission\nm1,1,,s1\nm2,2,,s2\nm3,3,,s1\nm4,4,,\n"
    place = ledger_kit.ledger_folder(tmp_path / "small", scheme_toml=scheme, participants_csv=people)
    for epoch in (3, 4):
        ledger_kit.add(place, seen(epoch, trial=1))
        own = ledger_kit.records(epoch=epoch, validators=[V2])
        ledger_kit.add(
            place, [record | {"participant": "m4", "submission": ""} for record in own if record["participant"] == "m1"]
        )
        for gone in ("of nobody", ""):  # m1 has handed in something else
            ledger_kit.add(place, [record | {"submission": gone} for record in own if record["participant"] == "m1"])
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, SIGNER)
    assert {row["record"]["submission"] for row in proof_of(place)["records"]} == {"s1"}
    epochs = {row["record"]["epoch"] for row in proof_of(place)["records"]}
    assert epochs == ({4} if age else {3})  # in epoch 4 it is said again of the same cells: the first accepted counts
    assert proof_of(place, "m3")["records"] == []  # a duplicate of m1
    assert {row["record"]["validator"] for row in proof_of(place, "m4")["records"]} == {V2}
    (place / "tasks.txt").write_text("t1\nt9\n")
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER, 5, without_scores=True)
    assert proof_of(place)["records"] == []
    left = ledger_kit.NAMES.replace(f"{V1},100,val-1\n", "")
    (place / "validators.csv").write_text(left)
    (place / "tasks.txt").write_text("t1\nt2\n")
    ledger_kit.add(place, [record for record in seen(6, trial=1) if record["validator"] != V1])
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER, 6, without_scores=True)
    assert {row["record"]["validator"] for row in proof_of(place)["records"]} == set(VALIDATORS) - {V1}


def first_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as it was: results do not say which records they rest on."""
    results = statements.results
    monkeypatch.setattr(statements, "PREDICATE", check.FIRST)
    monkeypatch.setattr(statements, "results", lambda settlement, _=None: results(settlement))


def test_a_receipt_of_version_1_is_read_and_says_that_it_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(place, seen())
    with monkeypatch.context() as earlier, ledger_kit.opened(place) as ledger:
        first_version(earlier)
        settling.settle(ledger, SIGNER)
    with ledger_kit.opened(place) as ledger:
        assert len(list(settling.replay(ledger))) == 1
        bundle.export(ledger, 3, tmp_path / "bundle")
    assert verify(tmp_path / "bundle", key=str(KEY)).recomputed
    proof = proof_of(place)
    assert proof["schema"] == "assay.proof/1"
    file = written(proof, tmp_path / "a.proof")
    assert "–  evidence    whether these are all records" in run("verify", file, "--key", str(KEY), columns=200).stdout
    with pytest.raises(Refused, match="the proof is of another version than the receipt"):
        verify(written(proof | {"schema": "assay.proof/2"}, file), key=str(KEY))
    other = proof | {"result": proof["result"] | {"records": {"root": "sha256:" + "0" * 64, "count": 6}}}
    with pytest.raises(Refused, match="the result is of another version than the receipt"):
        verify(written(other, file), key=str(KEY))
    ledger_kit.add(place, seen(4, trial=2))
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
    last = proof_of(place)
    assert last["schema"] == "assay.proof/2"
    assert verify(written(last, file), key=str(KEY))
    assert json.loads(file.read_bytes())["receipts"]
