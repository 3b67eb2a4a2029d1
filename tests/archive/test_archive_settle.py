"""Settling an archive gives the settlements of one by one, and does not need the memory that its evidence would take."""

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import archive_kit
from archive_kit import EPOCHS
from assay.archive import LocalWorkers, settle_all
from assay.archive.listing import split_pattern
from assay.errors import BadInput, CannotSettle
from cli_kit import narrow, output, refused, run
from depth import depth

HERE = LocalWorkers(workers=1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return archive_kit.template(tmp_path / "all")


def digest(place: Path, epoch: int) -> str:
    text: str = json.loads((place / f"bundle-{epoch}" / "settlement.json").read_bytes())["digest"]
    return text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["lines", "columns"])
@pytest.mark.parametrize("kept", [True, False])
def test_settlements_are_those_of_one_by_one(kept: bool, form: str, place: Path) -> None:
    """Also where the archive has no settlement, so that each is computed from the one before it; and without batches."""
    small = place / form / "subnet-1" / "small"
    if not kept:
        for path in (*small.glob("*/settlement.json"), *small.glob("*/batches.jsonl"), *small.glob("*/*.receipt")):
            path.unlink()
    epochs, ignored = settle_all(str(place / form), engine=HERE)
    assert ignored == []
    mine = [row for row in epochs if row.competition == "subnet-1/small"]
    assert [(row.epoch, row.settlement, row.fault) for row in mine] == [(epoch, digest(place, epoch), None) for epoch in EPOCHS]
    assert [bool(row.archived) for row in mine] == [kept] * 3
    assert not any(row.differs for row in epochs)


def test_a_pattern_chooses_epochs(place: Path) -> None:
    def chosen(pattern: str) -> list[tuple[str, int]]:
        return [(row.competition, row.epoch) for row in settle_all(f"{place}/columns/{pattern}", engine=HERE)[0]]

    small = [("subnet-1/small", epoch) for epoch in EPOCHS]
    assert chosen("**/*.parquet") == small
    assert chosen("subnet-1/small/*/*.parquet") == [("", epoch) for epoch in EPOCHS]
    assert chosen("*/*/epoch-9.jsonl") == [("other", 9)]
    assert [epoch for _, epoch in chosen("subnet-1/small/epoch-4/epoch-4.parquet")] == [4]
    for pattern in ("**/*.csv", "nothing/**/*.parquet"):
        with pytest.raises(BadInput, match=r"no evidence|no such folder"):
            chosen(pattern)
    assert split_pattern("s3://b/a/**/*.parquet") == ("s3://b/a", "**/*.parquet")
    assert split_pattern("/a/b/epoch-3/*.jsonl") == ("/a/b", "epoch-3/*.jsonl")
    assert split_pattern("*.jsonl") == (".", "*.jsonl")


def test_what_cannot_be_settled_is_named_and_the_rest_is_settled(place: Path) -> None:
    small = place / "lines" / "subnet-1" / "small"
    (small / "epoch-4" / "settlement.json").unlink()
    (small / "epoch-4" / "inputs.json").write_text("{}")
    (place / "lines" / "other" / "epoch-9" / "inputs.json").unlink()
    (place / "lines" / "other" / "epoch-9" / "inputs.json").symlink_to("/etc/passwd")
    epochs, _ = settle_all(str(place / "lines"), engine=HERE)
    faults = {(row.competition, row.epoch): row.fault for row in epochs if row.fault is not None}
    assert faults.keys() == {("other", 9), ("subnet-1/small", 4), ("subnet-1/small", 9)}
    assert "it rests on epoch 4, which was not settled" in str(faults["subnet-1/small", 9])
    assert "is a symbolic link" in str(faults["other", 9])
    with pytest.raises(CannotSettle, match="epoch 9 rests on epoch 4, which has no settlement"):
        settle_all(f"{small}/epoch-9/*.jsonl", engine=HERE)
    path = place / "columns" / "subnet-1" / "small" / "epoch-3" / "epoch-3.parquet"
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes(50) + data[150:])
    epochs, _ = settle_all(f"{place}/columns/subnet-1/**", engine=HERE)
    assert all(row.fault is not None for row in epochs)


def test_the_commands_tell_each_epoch(place: Path, tmp_path: Path) -> None:
    archive, key = place / "lines", archive_kit.KEY
    text = output("verify", "--all", archive, "--key", key, "--key", *archive_kit.OTHER_KEYS, "--workers", "1", columns=90)
    assert "2 competitions: 6 epochs verified, and computed again" in text
    assert narrow(text.replace(str(archive), ""), 90)
    archive_kit.edit(archive / "other" / "epoch-4" / "epoch-4.jsonl", 0, "score", "0.9")
    (archive / "note.txt").write_text("")
    result = run("verify", "--all", archive, "--workers", "1", code=1, columns=200)
    assert "4 of 6 epochs verified" in result.stdout
    assert "Who signed these receipts was not checked" in result.stdout
    assert "warning: note.txt: is no file of an archive, and was not read" in result.stderr
    report = json.loads(run("verify", "--all", archive, "--workers", "1", "--json", code=1).stdout)
    assert [(row["competition"], row["epoch"], row.get("stage")) for row in report["epochs"] if not row["verified"]] == [
        ("other", 4, "evidence"),
        ("other", 9, "evidence"),
    ]
    assert report["ignored"] == ["note.txt"]
    settlement = archive / "other" / "epoch-9" / "settlement.json"
    settlement.write_text(settlement.read_text().replace('"digest":"sha256:', '"digest":"sha256:0'))
    result = run("settle", "--archive", archive, "--workers", "1", code=1, columns=300)
    assert "differs from the archive's" in result.stdout
    assert "as in the archive" in result.stdout
    epochs = json.loads(run("settle", "--archive", archive, "--workers", "1", "--json", code=1).stdout)["epochs"]
    assert len(epochs) == 6


def test_options_that_do_not_go_together_are_refused(place: Path) -> None:
    archive = place / "lines"
    assert "--log: does not go with --all" in refused("verify", "--all", archive, "--log", archive)
    assert "--epoch: does not go with --archive" in refused("settle", "--archive", archive, "--epoch", "3")
    assert "there is no engine 'spark'" in refused("verify", "--all", archive, "--engine", "spark")
    assert "name the competition's folder" in run("settle", code=2).stderr


LARGE = """
import json, resource, sys
from assay.archive import LocalWorkers, settle_all
rows, _ = settle_all(sys.argv[1], engine=LocalWorkers(1, int(sys.argv[2])))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([rows[0].settlement, str(rows[0].fault), rows[0].agreed, peak]))
"""
MIB = 2**20


def large(folder: Path, validators: int, participants: int, tasks: int, trials: int = 1) -> int:
    """An archive of one epoch with so many records, without receipts; returns the bytes of its values when decoded."""
    folder.mkdir(parents=True)
    document = {
        "scheme": {"scheme": {"name": "large"}, "score": {"kind": "tests", "trials": trials}},
        "participants": [{"key": f"miner-{p:04}", "uid": p + 1, "submission": f"sha256:{p:064x}"} for p in range(participants)],
        "validators": [{"key": f"{v:064x}", "stake": str(1000 + v)} for v in range(validators)],
        "tasks": [f"task-{t:04}" for t in range(tasks)],
    }
    (folder / "inputs.json").write_text(json.dumps(document))
    duckdb.sql(f"""COPY (
        SELECT row_number() OVER () AS seq, 12::BIGINT AS epoch, format('{{:064x}}', v) AS validator,
            format('miner-{{:04}}', p) AS participant, format('sha256:{{:064x}}', p) AS submission,
            format('task-{{:04}}', t) AS task, CASE WHEN hash(p, t) % 3 = 0 THEN 'pass' ELSE 'fail' END AS outcome,
            r + 1 AS trial, strftime(TIMESTAMP '2026-11-01' + to_seconds((hash(v, p, t) % 86400)::BIGINT),
            '%Y-%m-%dT%H:%M:%SZ') AS observed_at, NULL::VARCHAR AS image
        FROM range({validators}) a(v), range({participants}) b(p), range({tasks}) c(t), range({trials}) d(r))
        TO '{folder / "epoch-12.parquet"}' (FORMAT parquet, COMPRESSION zstd)""")
    each = 4 * 8 + 64 + 10 + 71 + 9 + 4 + 20
    return validators * participants * tasks * trials * each


def settled_apart(archive: Path, memory: int) -> tuple[str, int]:
    """Digest and peak memory of settling an archive in a process of its own, whose workers may use `memory` bytes."""
    command = [sys.executable, "-c", LARGE, f"{archive}/**/*.parquet", str(memory)]
    completed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=3600)
    settlement, fault, agreed, peak = json.loads(completed.stdout)
    assert fault == "None", fault
    assert agreed > 0
    return settlement, peak


@pytest.mark.full
def test_evidence_that_is_ten_times_the_memory_settles(tmp_path: Path) -> None:
    """The process's own libraries take memory whatever is settled, so what counts is what is used beside those."""
    validators, participants, tasks, trials = depth((8, 64, 100, 2), (64, 256, 89, 7))
    decoded = large(tmp_path / "large" / "c" / "epoch-12", validators, participants, tasks, trials)
    large(tmp_path / "tiny" / "c" / "epoch-12", 3, 2, 2)
    _, alone = settled_apart(tmp_path / "tiny", 200 * MIB)
    _, peak = settled_apart(tmp_path / "large", 200 * MIB)
    print(
        f"{decoded / MIB:.0f} MiB of evidence, {(peak - alone) / MIB:.0f} MiB beside the {alone / MIB:.0f} MiB of a tiny archive"
    )
    assert peak - alone < depth(200 * MIB, decoded / 10)
