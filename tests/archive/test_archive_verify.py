"""A whole archive is verified as its bundles are one by one: the same digests, and the same first fault of each epoch."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import archive_kit
import ledger_kit
from archive_kit import EPOCHS, KEY, as_bundle, edit, one_by_one
from assay.archive import LocalWorkers, export_epochs, verify_all
from assay.archive.workers import Lost
from assay.errors import BadInput, CannotSettle
from assay.ledger.cosigning import ED25519, WitnessKey
from assay.ledger.verify import verify
from cli_kit import files_under

HERE = LocalWorkers(workers=1)
(OTHER,) = archive_kit.OTHER_KEYS


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return archive_kit.template(tmp_path / "all")


@pytest.mark.parametrize("form", ["lines", "columns"])
def test_every_epoch_is_verified_as_its_bundle_is(form: str, place: Path, tmp_path: Path) -> None:
    report = verify_all(str(place / form), engine=HERE, keys=[KEY, OTHER])
    assert report.verified
    assert report.ignored == ()
    assert [(row.competition, row.epoch, row.fault) for row in report.verdicts] == [
        (name, epoch, None) for name in ("other", "subnet-1/small") for epoch in EPOCHS
    ]
    for row in report.verdicts[3:]:
        alone = verify(place / f"bundle-{row.epoch}", key=KEY)
        assert (row.settlement, row.records) == (alone.receipt["settlement"], alone.receipt["evidence"]["count"])
        again = as_bundle(place / "lines" / "subnet-1" / "small", row.epoch, tmp_path / f"again-{row.epoch}")
        assert files_under(again) == files_under(place / f"bundle-{row.epoch}")


def evidence(epoch: int) -> str:
    return f"epoch-{epoch}/epoch-{epoch}.jsonl"


def without_line(path: Path, line: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:line], *lines[line + 1 :]]))


def twice(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[0]]))


def replaced(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def signed_otherwise(path: Path) -> None:
    data = path.read_bytes()
    at = data.index(b'"sig":"') + 7
    path.write_bytes(data[:at] + (b"B" if data[at : at + 1] == b"A" else b"A") + data[at + 1 :])


def swapped(small: Path) -> None:
    left, right = small / evidence(3), small / evidence(4)
    data = left.read_bytes()
    left.write_bytes(right.read_bytes())
    right.write_bytes(data)


TAMPERED: dict[str, Callable[[Path], object]] = {
    "an outcome": lambda small: edit(small / evidence(4), 2, "outcome", "fail"),
    "an outcome of the first epoch": lambda small: edit(small / evidence(3), 0, "outcome", "fail"),
    "a record is left out": lambda small: without_line(small / evidence(4), 1),
    "a record is twice": lambda small: twice(small / evidence(4)),
    "a record is another seq's": lambda small: edit(small / evidence(9), 0, "seq", 1),
    "no JSON": lambda small: (small / evidence(3)).write_bytes(b"{\n"),
    "no evidence": lambda small: (small / evidence(4)).unlink(),
    "evidence of two epochs swapped": swapped,
    "a batch is left out": lambda small: without_line(small / "epoch-4/batches.jsonl", 1),
    "a batch is twice": lambda small: twice(small / "epoch-3/batches.jsonl"),
    "a batch's signature": lambda small: signed_otherwise(small / "epoch-4/batches.jsonl"),
    "the weights": lambda small: replaced(small / "epoch-4/settlement.json", b'"u16":', b'"u16":1'),
    "the stake": lambda small: replaced(small / "epoch-4/inputs.json", b'"stake":"100"', b'"stake":"900"'),
    "no inputs": lambda small: (small / "epoch-9/inputs.json").unlink(),
    "no settlement": lambda small: (small / "epoch-9/settlement.json").unlink(),
    "a receipt": lambda small: replaced(small / "epoch-4/epoch-4.receipt", b'"sig":"', b'"sig":"AA'),
    "nothing of a receipt": lambda small: (small / "epoch-4/epoch-4.receipt").write_bytes(b"{}"),
    "the last receipt": lambda small: (small / "epoch-9/epoch-9.receipt").write_bytes(b"{}"),
}
SAID_OTHERWISE = {"no settlement", "nothing of a receipt", "a receipt", "no evidence"}
"""Where a bundle cannot be the same: no log can be made without the receipt, and the first file that is missing is another."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", TAMPERED)
def test_the_first_fault_is_that_of_the_bundle(what: str, place: Path, tmp_path: Path) -> None:
    small = place / "lines" / "subnet-1" / "small"
    TAMPERED[what](small)
    report = verify_all(str(place / "lines"), engine=HERE, keys=[KEY, OTHER])
    ours = [
        None if row.fault is None else (row.fault.stage, row.fault.what, row.fault.participant)
        for row in report.verdicts
        if row.competition == "subnet-1/small"
    ]
    alone = [one_by_one(small, epoch, tmp_path) for epoch in EPOCHS]
    assert [our is None for our in ours] == [fault is None for fault in alone]
    if what not in SAID_OTHERWISE:
        assert ours == alone
    assert any(ours)
    assert all(row.fault is None for row in report.verdicts if row.competition == "other")
    named = [row.fault.file for row in report.verdicts if row.fault is not None and row.fault.file]
    assert all(file.startswith("subnet-1/small") for file in named), named


@pytest.mark.full
def test_no_flipped_bit_of_columns_passes(place: Path) -> None:
    path = place / "columns" / "subnet-1" / "small" / "epoch-4" / "epoch-4.parquet"
    data = path.read_bytes()
    for at in range(4, len(data), len(data) // 6):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        report = verify_all(str(place / "columns"), engine=HERE)
        wrong = {row.epoch for row in report.verdicts if row.fault is not None}
        assert wrong in (set(), {4, 9})
    path.write_bytes(data[: len(data) // 2])
    assert not verify_all(str(place / "columns"), engine=HERE).verified


def test_hostile_archives_are_refused_by_name(place: Path) -> None:
    small, archive = place / "lines" / "subnet-1" / "small", place / "lines"
    (archive / "README").write_text("ours")
    (small / "epoch-3" / "more").mkdir()
    (small / "epoch-3" / "more" / "x.jsonl").write_text("")
    (small / "epoch-3" / "epoch-4.receipt").write_text("")
    (archive / "linked").symlink_to(small)
    (archive / "away").symlink_to("/etc")
    report = verify_all(str(archive), engine=HERE)
    assert report.ignored == ("README", "subnet-1/small/epoch-3/epoch-4.receipt", "subnet-1/small/epoch-3/more/x.jsonl")
    assert [(name, fault.what, fault.file) for name, fault in report.faults] == [("", "is a symbolic link", "away")]
    assert all(row.fault is None for row in report.verdicts)
    assert not report.verified
    (archive / "away").unlink()
    (archive / "linked").unlink()

    outside = place / "outside.json"
    (small / "epoch-4" / "inputs.json").rename(outside)
    (small / "epoch-4" / "inputs.json").symlink_to(outside)
    shutil.copytree(small / "epoch-9", small / "epoch-09")
    shutil.copy(small / "epoch-9" / "epoch-9.jsonl", small / "epoch-9" / "epoch-9.parquet")
    (small / "epoch-3" / "batches.jsonl").unlink()
    os.mkfifo(small / "epoch-3" / "batches.jsonl")
    report = verify_all(str(archive), engine=HERE)
    assert [(name, fault.what) for name, fault in report.faults] == [
        ("subnet-1/small", "'epoch-09' is not how an epoch's folder is called: another one may be of the same epoch")
    ]
    faults = {row.epoch: row.fault for row in report.verdicts if row.competition == "subnet-1/small"}
    assert [(fault.stage, fault.what, fault.file) for fault in faults.values() if fault] == [
        ("archive", "is a pipe or a device", "subnet-1/small/epoch-3/batches.jsonl"),
        ("archive", "is a symbolic link", "subnet-1/small/epoch-4/inputs.json"),
        (
            "archive",
            "exists beside epoch-9.jsonl: keep the evidence of an epoch in one file",
            "subnet-1/small/epoch-9/epoch-9.parquet",
        ),
    ]
    assert all(row.fault is None for row in report.verdicts if row.competition == "other")
    (small / "epoch-3" / "batches.jsonl").unlink()
    os.truncate(archive / "other" / "epoch-9" / "epoch-9.receipt", 2**35)
    report = verify_all(str(archive), engine=HERE)
    assert [str(row.fault) for row in report.verdicts if row.competition == "other" and row.fault] == [
        "archive: other/epoch-9/epoch-9.receipt: is larger than 4194304 bytes"
    ]


def test_an_epoch_that_is_missing_is_named(place: Path) -> None:
    shutil.rmtree(place / "lines" / "subnet-1" / "small" / "epoch-4")
    report = verify_all(str(place / "lines"), engine=HERE)
    fault = next(row.fault for row in report.verdicts if row.competition == "subnet-1/small" and row.epoch == 9)
    assert fault is not None
    assert str(fault) == ("chain: subnet-1/small/epoch-9/epoch-9.receipt: epoch 4, whose receipt it names, is not in the archive")


def test_one_log_is_in_one_folder(place: Path) -> None:
    shutil.copytree(place / "lines" / "subnet-1", place / "lines" / "subnet-2")
    report = verify_all(str(place / "lines"), engine=HERE)
    assert [(row.competition, row.fault.what) for row in report.verdicts if row.fault is not None] == [
        ("subnet-2/small", "its log is that of the folder 'subnet-1/small': an epoch may be in an archive only once")
    ] * 3


def test_a_key_that_was_not_given_is_refused(place: Path) -> None:
    report = verify_all(str(place / "lines"), engine=HERE, keys=[KEY])
    assert [row.fault.stage if row.fault else "" for row in report.verdicts] == ["receipt"] * 3 + [""] * 3
    assert "it is not signed by a key that was given" in str(report.verdicts[0].fault)


def test_witnesses_that_are_missing_do_not_hide_evidence_that_is_wrong(place: Path, tmp_path: Path) -> None:
    policy = tmp_path / "witnesses.policy"
    witness = WitnessKey("example.org/witness", ED25519, ledger_kit.SIGNER.public.raw)
    policy.write_text(f"log {KEY}\nwitness w {witness}\nquorum w\n")
    edit(place / "lines" / "subnet-1" / "small" / evidence(4), 0, "outcome", "fail")
    report = verify_all(str(place / "lines"), engine=HERE, policy=policy)
    mine = [row for row in report.verdicts if row.competition == "subnet-1/small"]
    assert [(row.fault.stage if row.fault else "", row.held) for row in mine] == [
        ("witnesses", True),
        ("evidence", False),
        ("witnesses", True),
    ]


def dying(shard: int) -> int:
    """A worker that ends at the third shard."""
    if shard == 3:
        os._exit(9)
    return shard * shard


def test_a_worker_that_dies_is_one_shard_lost() -> None:
    results = dict(LocalWorkers(workers=2).map(dying, range(6)))
    assert {shard: result for shard, result in results.items() if shard != 3} == {0: 0, 1: 1, 2: 4, 4: 16, 5: 25}
    assert isinstance(results[3], Lost)


def test_two_workers_find_what_one_finds(place: Path) -> None:
    edit(place / "columns" / "other" / "epoch-4" / "epoch-4.jsonl", 0, "score", "0.123")
    done: list[tuple[int, int]] = []
    two = verify_all(str(place / "columns"), engine=LocalWorkers(2), progress=lambda *counts: done.append(counts))
    assert two == verify_all(str(place / "columns"), engine=HERE)
    assert done == [(number, 6) for number in range(1, 7)]
    assert not two.verified


def test_what_is_no_archive_is_refused(place: Path, tmp_path: Path) -> None:
    for where, words in (
        (tmp_path / "none", "no such folder"),
        (place / "lines" / "other" / "epoch-3" / "inputs.json", "is not a folder"),
        (place / "small", "has no epochs"),
        ("ftp://x/y", "archives are read from folders"),
    ):
        with pytest.raises(BadInput, match=words):
            verify_all(str(where), engine=HERE)


def test_an_archive_grows_by_what_is_new(place: Path, tmp_path: Path) -> None:
    archive = tmp_path / "growing"
    with ledger_kit.opened(place / "small") as ledger:
        assert export_epochs(ledger, str(archive)) == ("small", [3, 4, 9], [], [])
        shutil.rmtree(archive / "small" / "epoch-9")
        before = files_under(archive)
        assert export_epochs(ledger, str(archive)) == ("small", [9], [3, 4], [])
        assert before.items() <= files_under(archive).items()
        assert files_under(archive / "small") == files_under(place / "lines" / "subnet-1" / "small")
    with ledger_kit.opened(place / "other") as ledger, pytest.raises(BadInput, match="not the ledger's receipt of epoch 3"):
        export_epochs(ledger, str(archive), "small")
    with ledger_kit.opened(place / "small") as ledger:
        for name in ("../away", "epoch-3", "a//b", ".hidden", ""):
            if name:
                with pytest.raises(BadInput, match="cannot be a competition's folder"):
                    export_epochs(ledger, str(archive), name)
    empty = ledger_kit.ledger_folder(tmp_path / "empty")
    with ledger_kit.opened(empty) as ledger, pytest.raises(CannotSettle, match="no epoch is settled yet"):
        export_epochs(ledger, str(archive))
