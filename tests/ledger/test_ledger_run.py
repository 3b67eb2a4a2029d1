"""Judging into a ledger: `assay run --sign` in the real sandbox, then settling and verifying what came of it."""

import shutil
from pathlib import Path

import pytest

import ledger_kit
from assay.ledger import keys
from cli_kit import output, refused, run
from judge_kit import bubblewrap, make_agent, make_competition, make_task
from ledger_kit import SIGNER, V1, VALIDATORS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A competition that is judged by tests, with a ledger, its validator's key named as the validator is."""
    bubblewrap()
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    keys.save("val-1", VALIDATORS[V1])
    keys.save("log", SIGNER)
    make_task(tmp_path / "c" / "tasks" / "t0")
    place = make_competition(tmp_path / "c", {"ann": ""})
    text = (place / "validators.csv").read_text()
    (place / "validators.csv").write_text(f"key,stake,name\n{V1},100,val-1\n")
    assert "val-1" in text
    make_agent(tmp_path / "good", "echo working; echo hello > out.txt\n")
    run("submit", place, "ann", tmp_path / "good")
    return place


def test_what_is_judged_is_signed_settled_and_verified(folder: Path, tmp_path: Path) -> None:
    words = ("run", folder, "--validator", "val-1", "-q", "--sign", "val-1")
    assert "so the competition has no ledger" in refused(*words)
    run("ledger", "init", folder, "--origin", ledger_kit.ORIGIN, "--key", "log")
    assert "not that of the validator" in refused(*words[:-1], "log")
    assert "no validator has the key" in refused("run", folder, "--sign", "log")
    assert "validators.csv: there is no validator 'nobody'" in refused("run", folder, "--validator", "nobody", "--sign", "val-1")
    assert "say whose evidence it is" in run("run", folder, code=2).stderr.replace("\n", " ")
    assert list(folder.glob("evidence/*")) == []

    printed = output(*words)
    assert "1 trial judged (1 pass)." in printed
    assert "1 record signed and added to the ledger." in printed
    assert "1 of 1 participant has an agreed score." in printed
    assert f"to close it:\n  assay settle {folder}" in printed
    assert "0 records signed and added to the ledger." in output("run", folder, "-q", "--sign", "val-1")
    trials = output("trials", folder, "--validator", "val-1")
    assert "1 trial: 1 pass." in trials
    assert V1 not in trials  # a long key is read by its name
    run("export", "harbor", folder, tmp_path / "jobs", "--validator", "val-1")

    run("settle", folder)
    assert "to close it" not in output(*words)
    run("export", "epoch", folder, "1", "-o", tmp_path / "epoch-1")
    assert "computed again" in output("verify", tmp_path / "epoch-1", "--key", str(ledger_kit.KEY))

    make_agent(tmp_path / "better", "echo hello > out.txt\n")
    assert "accepted in epoch 2" in " ".join(output("submit", folder, "ann", tmp_path / "better").split())
    printed = output(*words)
    assert "1 record signed and added to the ledger." in printed
    assert "epoch 2" in printed
    assert "0 records signed" in output(*words[:5], "--sign", "val-1", "--participant", "ann")


@pytest.mark.full
@pytest.mark.no_cover
def test_what_is_judged_and_not_signed_is_not_said_to_count(folder: Path) -> None:
    run("ledger", "init", folder, "--origin", ledger_kit.ORIGIN, "--key", "log")
    printed = output("run", folder, "--validator", "val-1", "-q")
    assert f"It counts once it is signed and added to the ledger:\n  assay evidence sign {folder} --key KEY" in printed
    assert "It counts once" not in output("run", folder, "--validator", "val-1", "-q", "--sign", "val-1")


def test_what_the_epoch_was_settled_before_is_signed_for_the_open_one(folder: Path, tmp_path: Path) -> None:
    run("ledger", "init", folder, "--origin", ledger_kit.ORIGIN, "--key", "log")
    words = ("run", folder, "--validator", "val-1", "-q")
    run(*words, "--sign", "val-1")
    make_agent(tmp_path / "better", "echo hello > out.txt\n")
    run("submit", folder, "ann", tmp_path / "better")
    run(*words)  # judged and not handed in: its epoch is closed meanwhile
    evidence = next(folder.glob("evidence/*.jsonl")).read_bytes()
    run("settle", folder, "--without-scores", "--yes")
    printed = " ".join(output(*words, "--sign", "val-1").split())
    assert "1 record signed and added to the ledger; 1 of an epoch that was settled before, signed for epoch 2." in printed
    assert next(folder.glob("evidence/*.jsonl")).read_bytes() == evidence
    assert "0 records signed and added to the ledger." in output(*words, "--sign", "val-1")
    with ledger_kit.opened(folder) as ledger, ledger.store.reading() as view:
        assert [batch.epoch for batch in view.batches()] == [1, 2]
        assert list(view.conflicts()) == []


def test_a_registry_that_is_older_than_the_ledger_is_noticed(folder: Path, tmp_path: Path) -> None:
    run("ledger", "init", folder, "--origin", ledger_kit.ORIGIN, "--key", "log")
    words = ("run", folder, "-q", "--sign", "val-1")
    before = (folder / "participants.csv").read_text()
    first = before.split(",")[-2]
    assert first.startswith("sha256:")
    run(*words)
    make_agent(tmp_path / "better", "echo hello > out.txt\n")
    run("submit", folder, "ann", tmp_path / "better")
    (folder / "participants.csv").write_text(before.replace("2026", "2025"))
    done = run(*words)
    assert "is older than the ledger: ann handed in sha256:" in " ".join(done.stderr.split())
    assert "every trial of the submissions in participants.csv has its evidence." in " ".join(done.stdout.split())


def test_without_any_evidence_nothing_is_signed(folder: Path) -> None:
    from assay.cli.judging.signing import Signing
    from assay.cli.show import console

    run("ledger", "init", folder, "--origin", ledger_kit.ORIGIN, "--key", "log")
    signing = Signing(folder, V1, "val-1")
    assert signing.epoch is None
    with console().capture() as capture:
        console().print(signing.add())
    assert capture is not None
    with ledger_kit.opened(folder) as ledger, ledger.store.reading() as view:
        assert view.last_seq() == 0


def test_a_validator_with_a_copy_or_no_ledger_writes_batches_to_be_sent(folder: Path, tmp_path: Path) -> None:
    run("ledger", "init", folder, "--origin", ledger_kit.ORIGIN, "--key", "log")
    theirs = Path(shutil.copytree(folder, tmp_path / "theirs"))
    before = (theirs / "ledger.db").read_bytes()
    printed = output("run", theirs, "-q", "--sign", "val-1")
    assert f"The ledger is not here: {theirs}/ledger.db: is a copy of the ledger in {folder}/ledger.db" in " ".join(
        printed.split()
    )
    assert "1 record signed, not added to a ledger." in " ".join(printed.split())
    (batch,) = theirs.glob("batches/*.batch")
    assert f"Send these files to the operator, who adds them:\n  assay evidence add DIR {batch}" in printed
    assert (theirs / "ledger.db").read_bytes() == before
    assert "1 new, 0 known" in output("evidence", "add", folder, batch)

    (theirs / "ledger.db").unlink()  # ledger.toml is published, the database is not
    shutil.rmtree(theirs / "log")
    printed = output("run", theirs, "-q", "--sign", "val-1")
    assert f"The ledger is not here: {theirs}/ledger.db: there is no such file. 1 record signed, not" in " ".join(printed.split())
    assert "1 record in 1 batch, signed.\n" in output("evidence", "sign", theirs, "--key", "val-1")
    hint = "no such file; only the operator has it: a validator signs with `assay evidence sign` and sends the batches"
    assert hint in refused("evidence", "add", theirs, batch)
    assert hint in refused("settle", theirs)
    assert "Epoch 1. Which epoch is open is not known here: ask the operator" in " ".join(printed.split())
    shutil.rmtree(theirs / "evidence")
    assert "There is nothing to be sent." in signing_of(theirs)


def test_a_validator_without_the_ledger_learns_the_open_epoch_from_a_receipt(folder: Path, tmp_path: Path) -> None:
    run("ledger", "init", folder, "--origin", ledger_kit.ORIGIN, "--key", "log")
    theirs = Path(shutil.copytree(folder, tmp_path / "theirs"))
    (theirs / "ledger.db").unlink()
    output("run", folder, "-q", "--sign", "val-1", "--epoch", "4")
    run("settle", folder, "--key", "log", "--without-scores", "--yes")
    run("receipt", folder, "4", "-o", theirs / "epoch-4.receipt")
    (theirs / "epoch-9.receipt").write_text("{}")
    ledger_kit.ledger_folder(tmp_path / "other")
    printed = " ".join(output("run", theirs, "-q", "--sign", "val-1").split())
    assert "Epoch 5; the newest receipt here says that epoch 4 is settled." in printed
    (batch,) = theirs.glob("batches/epoch-5-*.batch")
    assert "1 new, 0 known" in output("evidence", "add", folder, batch)
    late = run("evidence", "sign", theirs, "--key", "val-1")
    assert "Epoch 5; the newest receipt here says that epoch 4 is settled." in " ".join(late.stdout.split())
    assert late.stderr == ""
    run("receipt", folder, "4", "-o", theirs / "epoch-5.receipt")
    record = next((theirs / "evidence").glob("*.jsonl"))
    record.write_text(record.read_text().replace('"epoch":5', '"epoch":4'))
    late = run("evidence", "sign", theirs, "--key", "val-1")
    assert "epoch 4 is settled: its batches will be refused; sign with --epoch N --from 4" in " ".join(late.stderr.split())
    assert "not known" not in run("evidence", "sign", folder, "--key", "val-1").stdout


def signing_of(place: Path) -> str:
    """What is said where nothing was judged yet."""
    from assay.cli.judging.signing import Signing
    from assay.cli.show import console

    shown = console()
    with shown.capture() as capture:
        shown.print(Signing(place, V1, "val-1").add())
    return capture.get()
