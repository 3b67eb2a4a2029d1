"""`assay explain` and `assay trials` where evidence came as batches: of a ledger, and of an exported epoch."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ledger_kit
import small_folder
from assay.ledger import bundle, eligible, settling
from cli_kit import narrow, output, refused, run
from ledger_kit import SIGNER, V1, V2, V3

KEY = str(ledger_kit.KEY)
Json = dict[str, Any]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Epoch 3 is settled and exported: m1 fails t2 at two validators; epoch 4 is open."""
    place = ledger_kit.ledger_folder(tmp_path / "small")
    records = ledger_kit.records()
    for record in records:
        if (record["participant"], record["task"]) == ("m1", "t2") and record["validator"] in (V1, V2):
            record["outcome"] = "fail" if record["validator"] == V1 else "timeout"
    ledger_kit.add(place, records)
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
        bundle.export(ledger, 3, place / "epoch-3")
        bundle.export(ledger, 3, place / "columns", as_parquet=True)
    return place


def explained(*words: str | Path) -> Json:
    story: Json = json.loads(output("explain", *words, "--json"))
    return story


def chapter(story: Json, name: str) -> Json:
    return next(part for part in story["chapters"] if part["name"] == name)


def test_the_failed_tasks_are_named_from_the_ledgers_records(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = chapter(explained(place, "m1"), "failed")
    assert [row["task"] for row in failed["facts"]["tasks"]] == ["t2"]
    assert failed["table"]["rows"] == [["t2", "1 of 3", "val-2 (out of time), val-1"]]
    monkeypatch.setattr(eligible, "MANY", 0)  # counted as columns: the settlement has only sums
    assert chapter(explained(place, "m1"), "failed") == failed


def test_one_pass_finds_the_records_of_every_participant(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger_kit.add(place, ledger_kit.records(epoch=4))
    with ledger_kit.opened(place) as ledger:
        for epoch in (3, 4):
            settlement = settling.draft(ledger, epoch).settlement
            by_participant = settling.records_by_participant(ledger, settlement)
            assert sorted(by_participant) == ["m1", "m2"]
            for key, rows in by_participant.items():
                assert [row.seq for row in rows] == [known.seq for known in settling.records_about(ledger, settlement, key)]
        seqs = sorted(row.seq for rows in by_participant.values() for row in rows)
        before = settling.records_by_participant(ledger, settlement, last_seq=seqs[0])
        assert [row.seq for rows in before.values() for row in rows] == seqs[:1], "what came later is left out"


@pytest.mark.no_cover
def test_an_open_epoch_beside_what_is_shown_is_said(place: Path) -> None:
    assert "is not settled" not in output("explain", place, "m1")
    ledger_kit.add(place, ledger_kit.records(epoch=4))
    shown = output("explain", place, "m1")
    assert "epoch 3" in shown.splitlines()[0]
    assert "Epoch 4 has evidence and is not settled: --epoch 4 shows how it stands." in " ".join(shown.split())
    shown = output("explain", place, "m1", "--epoch", "4")
    assert "epoch 4" in shown.splitlines()[0]
    assert "Epoch 4 is not settled: this is how it stands, and it may change." in " ".join(shown.split())
    assert "is not settled" not in output("explain", place, "m1", "--epoch", "3")


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ["epoch-3", "columns"])
def test_an_exported_epoch_is_verified_then_explained(place: Path, name: str) -> None:
    assert explained(place / name, "m1", "--key", KEY) == explained(place, "m1")
    shown = output("explain", place / name, "m1")
    assert narrow(shown)
    assert "Verified first: receipt" in shown
    assert "was not checked: give its public key with --key." in " ".join(shown.split())
    assert "was not checked" not in output("explain", place / name, "m1", "--key", KEY)
    assert "assay trials" not in shown


def test_an_exported_epoch_that_is_not_right_is_not_explained(place: Path) -> None:
    path = place / "epoch-3/settlement.json"
    path.write_text(path.read_text().replace('"u16":', '"u16":1', 1))
    assert refused("explain", place / "epoch-3", "m1", code=1).startswith("settlement: ")
    document = json.loads(run("explain", place / "epoch-3", "m1", "--json", code=1).stdout)
    assert (document["verified"], document["stage"]) == (False, "settlement")


def test_what_does_not_go_with_an_exported_epoch(place: Path, tmp_path: Path) -> None:
    assert "is of epoch 3" in refused("explain", place / "epoch-3", "m1", "--epoch", "4")
    assert "--previous: an exported epoch" in refused("explain", place / "epoch-3", "m1", "--previous", "x.json")
    assert "--key: is only for an exported epoch" in refused("explain", place, "m1", "--key", KEY)
    other = tmp_path / "joint"
    other.mkdir()
    (other / bundle.SPLIT).write_text("{}")
    assert "is of a subnet; explain one of its competitions" in refused("explain", other, "m1")


@pytest.mark.no_cover
def test_trials_that_came_as_batches_are_listed(place: Path) -> None:
    shown = output("trials", place, "--participant", "m1")
    assert narrow(shown)
    assert "6 trials: 1 fail, 4 pass, 1 timeout. All came as evidence from elsewhere" in " ".join(shown.split())
    assert "agent" not in shown.splitlines()[0]
    (only,) = output("trials", place, "--task", "t2", "--outcome", "timeout", "--json").splitlines()
    assert json.loads(only)["validator"] == V2
    assert json.loads(only)["folder"] is None
    assert f"  assay trials {place} --participant m1\n" in output("explain", place, "m1")


def test_trials_in_the_lines_of_a_folder_are_listed(tmp_path: Path) -> None:
    records = [small_folder.record("tests", task=task, participant="m1") for task in ("t1", "t2")]
    small_folder.make(tmp_path / "plain")
    (tmp_path / "plain/evidence/v1.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    before = output("trials", tmp_path / "plain")
    assert "came as evidence from elsewhere" in " ".join(before.split())
    (tmp_path / "plain/evidence/broken.jsonl").write_text('{"kind": "tests"}\n')
    assert "broken.jsonl" in refused("trials", tmp_path / "plain")
    given = small_folder.make(tmp_path / "given", "given")
    assert "There are no such trials." in output("trials", given)


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ["epoch-3", "columns"])
def test_trials_of_an_exported_epoch_are_listed_by_name(place: Path, name: str) -> None:
    exported = place / name
    shown = output("trials", exported, "--validator", "val-2")
    assert narrow(shown)
    words = " ".join(shown.split())
    assert " val-2" in words
    assert "All came as evidence from elsewhere, which says how they ended and no more." in words
    assert f"  assay verify {exported}\n" in shown
    everything = [json.loads(line) for line in output("trials", exported, "--json").splitlines()]
    assert {trial["validator"] for trial in everything} == {V1, V2, V3}
    (exported / "inputs.json").write_text("[]")
    assert "val-2" not in output("trials", exported)


def test_trials_in_the_parquet_of_a_folder_are_listed(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path / "plain", evidence=None)
    columns = {"epoch": [3, 3, 3], "validator": ["v1"] * 3, "participant": ["m1", "m1", "m2"], "submission": ["s1", "s1", "s2"]}
    columns |= {"task": ["t2", "t1", "t1"], "outcome": ["pass", "fail", "pass"]}
    pq.write_table(pa.table(columns), place / "evidence/all.parquet")
    words = " ".join(output("trials", place).split())
    assert "3 trials: 1 fail, 2 pass." in words
    (only,) = output("trials", place, "--participant", "m1", "--outcome", "fail", "--json").splitlines()
    assert json.loads(only) == {"kind": "tests", "epoch": 3, "validator": "v1", "participant": "m1", "submission": "s1"} | {
        "task": "t1",
        "trial": 1,
        "outcome": "fail",
        "folder": None,
    }
    assert "There are no such trials." in output("trials", place, "--task", "t9")
    pq.write_table(pa.table(columns | {"outcome": ["pass", "won", "pass"]}), place / "evidence/all.parquet")
    assert "all.parquet:2: outcome: " in refused("trials", place)


def test_more_trials_than_anybody_reads_are_asked_for_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.folder.bulk.EVIDENCE_RECORDS", 1)
    place = small_folder.make(tmp_path / "plain", evidence=None)
    columns = {"epoch": [3, 3], "validator": ["v1"] * 2, "participant": ["m1", "m2"], "submission": ["s1", "s2"]}
    pq.write_table(pa.table(columns | {"task": ["t1"] * 2, "outcome": ["pass"] * 2}), place / "evidence/all.parquet")
    assert "the answer has more than 1 records; ask for fewer: of one participant" in refused("trials", place)
    assert "1 trial: 1 pass." in output("trials", place, "--participant", "m2")
