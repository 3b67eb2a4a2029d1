"""The commands of the ledger that settle, hand out receipts, export, import and verify: what they print and how they end."""

import json
import re
import shutil
from pathlib import Path

import pytest

import ledger_kit
import small_folder
import witness_kit
from assay.cli import errors
from assay.cli.keys import validator_of
from assay.ledger import check, keys
from cli_kit import from_preset, narrow, output, refused, rewrite, run
from ledger_kit import SIGNER, V1, V2

KEY = str(ledger_kit.KEY)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A competition with evidence in its ledger, and the log's key among the keys."""
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    keys.save("small-log", SIGNER)
    place = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(place, ledger_kit.records())
    return place


@pytest.mark.no_cover
def test_settle_keeps_a_receipt_and_says_so(place: Path) -> None:
    assert "--key NAME" in refused("settle", place)
    assert "no such file" in refused("settle", place, "--key", "nobody")
    dry = output("settle", place, "--dry-run")
    assert "Nothing was stored: the epoch is open, and has no receipt." in dry
    assert "--key NAME" in refused("settle", place)
    first = output("settle", place, "--key", "small-log", columns=200)
    assert first.endswith("entry 0 of\nexample.org/small\n")
    again = output("settle", place)
    assert again.endswith("example.org/small, as it was settled before\n")
    assert output("settle", place, "--dry-run") == again
    assert "the ledger already has the previous settlement" in refused("settle", place, "--previous", place / "x.json")
    assert narrow(first, 200)
    assert narrow(output("settle", place).replace("Receipt sha256:", ""))


def test_settle_says_that_witnesses_are_missing(place: Path) -> None:
    """Then `assay ledger witness` says which, and ends with 1 as long as they are no quorum."""
    (place / "witnesses.policy").write_text(f"witness w1 {witness_kit.vkey(1)} {witness_kit.dead(1).url}\nquorum w1\n")
    assert "Nobody is shown it until its witnesses have cosigned" in output("settle", place, "--key", "small-log", columns=300)
    printed = run("ledger", "witness", place, columns=200, code=1).stdout
    assert "The checkpoint of 1 entry waits: the quorum w1 is not reached." in printed
    assert json.loads(run("ledger", "witness", place, "--json", code=1).stdout)["shown"] == 0
    with witness_kit.serving(place, 1, [ledger_kit.KEY]) as witness:
        witness_kit.write_policy(place / "witnesses.policy", 1, witness)
        printed = output("ledger", "witness", place, columns=200)
        assert "1 checkpoint is cosigned: everybody is shown the log with 1 entry." in printed
        assert "Nothing waits for its witnesses." in output("ledger", "witness", place, columns=200)
    assert "witnesses" not in output("settle", place, columns=300)
    (place / "witnesses.policy").unlink()
    assert "docs/witnessing.md" in refused("ledger", "witness", place)


def test_a_fork_is_proven_and_checked(place: Path, tmp_path: Path) -> None:
    output("settle", place, "--key", "small-log")
    other = ledger_kit.ledger_folder(tmp_path / "other")
    ledger_kit.add(other, ledger_kit.records(outcome="fail"))
    output("settle", other, "--key", "small-log")
    proof = tmp_path / "fork.json"
    checkpoints = place / "log/checkpoint", other / "log/checkpoint"
    output("ledger", "fork", *checkpoints, "--key", KEY, "-o", proof)
    printed = output("ledger", "fork", proof, columns=200)
    assert printed.startswith(f"forked: example.org/small signed two histories, of 1 entry, with the key {KEY}")
    assert "there is no fork" in refused("ledger", "fork", checkpoints[0], checkpoints[0], "--key", KEY)
    assert "--key" in refused("ledger", "fork", *checkpoints)
    assert "give two checkpoints, or a proof" in refused("ledger", "fork", place / "scheme.toml")


def test_the_key_of_a_witness_is_printed(place: Path) -> None:
    vkey = output("witness", "key", "--name", "example.net/w", "--key", "small-log").strip()
    assert json.loads(output("witness", "key", "--name", "example.net/w", "--key", "small-log", "--json")) == {
        "name": "example.net/w",
        "key": vkey,
    }
    keys.save("hotkey", keys.new(keys.SR25519))
    assert "not an Ed25519 key" in refused("witness", "key", "--name", "example.net/w", "--key", "hotkey")


def test_settle_with_the_signer_of_ledger_toml(place: Path) -> None:
    with (place / "ledger.toml").open("a") as file:
        file.write('signer = "small-log"\n')
    document = json.loads(output("settle", place, "--json"))
    assert json.loads(output("settle", place, "--json", "--dry-run")) == document
    assert document["digest"] in output("ledger", "replay", place, columns=200)
    explanation = json.loads(output("explain", place, "m1", "--json"))
    assert explanation["settlement"] == document["digest"]
    assert "val-1" in output("explain", place, "m1")
    assert V1 in output("explain", place, "m1", "--json")


def test_settle_without_anything_to_settle(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    assert "there is no evidence in the ledger" in refused("settle", place, "--dry-run", code=1)
    assert "No epoch is settled yet." in output("ledger", "replay", place)
    assert "no epoch is settled yet" in refused("receipt", place, code=1)
    assert "epoch 3 has no receipt" in refused("receipt", place, "3", code=1)
    assert "epoch 3 has no receipt" in refused("receipt", place, "3", "--for", "m1", code=1)


def test_receipts_exports_and_what_verify_says_of_them(place: Path, tmp_path: Path) -> None:
    run("settle", place, "--key", "small-log")
    receipt, proof, epoch = tmp_path / "e.receipt", tmp_path / "m1.proof", tmp_path / "epoch-3"
    assert output("receipt", place, "-o", receipt) == ""
    assert output("receipt", place, "3") == receipt.read_text("utf-8")
    run("receipt", place, "3", "--for", "m1", "-o", proof)
    assert "could be 2 participants" in refused("receipt", place, "--for", "m")
    exported = output("export", "epoch", place, "3", "-o", epoch)
    assert f"--key {KEY}" in exported
    run("export", "epoch", place, "3", "-o", tmp_path / "columns", "--parquet")
    whole = output("verify", epoch, "--key", KEY)
    assert "small · epoch 3: verified, and computed again" in whole
    assert "–" not in whole.replace("──", "")
    assert "Who signed this receipt" not in whole
    assert "Who signed this receipt" not in output("verify", receipt, "--key", place / "ledger.toml", "--log", place / "log")
    (tmp_path / "other.toml").write_text('origin = "example.org/small"\nkey = "no key"\n')
    assert "other.toml:2: key: " in refused("verify", receipt, "--key", tmp_path / "other.toml")
    (tmp_path / "log.vkey").write_text(KEY + "\n")
    alone = output("verify", receipt, "--key", tmp_path / "log.vkey", "--log", place / "log")
    (tmp_path / "other.vkey").write_text("a+b\n")
    wrong = refused("verify", receipt, "--key", tmp_path / "other.vkey")
    assert wrong.startswith(f"{tmp_path / 'other.vkey'}: it is not a vkey")
    assert "small · epoch 3: verified\n" in alone
    assert "it was not computed again" in " ".join(alone.split())
    assert "Who signed this receipt was not checked" in output("verify", proof)
    report = json.loads(output("verify", receipt, "--evidence", tmp_path / "columns", "--json"))
    assert report["verified"]
    assert report["recomputed"]
    assert "no such file" in refused("verify", receipt, "--key", "no-such-file")


def test_on_a_terminal_a_receipt_is_told_not_printed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("settle", place, "--key", "small-log")
    monkeypatch.setattr("assay.cli.ledger.epochs._terminal", lambda: True)
    printed = output("receipt", place, columns=200)
    assert f"assay receipt {place} 3 -o epoch-3.receipt" in printed
    assert "envelope" not in printed
    mine = output("receipt", place, "3", "--for", "m1", columns=200)
    assert re.search("rank +1\n", mine)
    assert f"assay receipt {place} 3 --for m1 -o m1-epoch-3.proof" in mine
    assert json.loads(output("receipt", place, "-o", "-"))["schema"] == "assay.receipt/1"


@pytest.mark.no_cover
def test_what_verify_refuses_ends_with_1(place: Path, tmp_path: Path) -> None:
    run("settle", place, "--key", "small-log")
    epoch = tmp_path / "epoch-3"
    run("export", "epoch", place, "3", "-o", epoch)
    text = (epoch / "settlement.json").read_text("utf-8")
    (epoch / "settlement.json").write_text(text.replace('"u16":32768', '"u16":32769', 1), "utf-8")
    refusal = refused("verify", epoch, "--key", KEY, code=1)
    assert refusal.startswith("settlement: ")
    assert "m1: weights[0].u16 differs (expected 32768, found 32769)" in refusal
    document = json.loads(run("verify", epoch, "--json", code=1).stdout)
    assert (document["verified"], document["stage"], document["participant"]) == (False, "settlement", "m1")
    assert (document["expected"], document["found"], document["file"]) == ("32768", "32769", str(epoch / "settlement.json"))
    receipt = tmp_path / "e.receipt"
    run("receipt", place, "-o", receipt)
    receipt.write_bytes(receipt.read_bytes()[:-100])
    document = json.loads(run("verify", receipt, "--json", code=1).stdout)
    assert (document["stage"], document["participant"], document["expected"]) == ("receipt", None, None)


def test_a_refusal_is_a_short_sentence_and_whole_in_json(place: Path, tmp_path: Path) -> None:
    run("settle", place, "--key", "small-log")
    epoch = tmp_path / "epoch-3"
    run("export", "epoch", place, "3", "-o", epoch)
    rewrite(epoch / "evidence/epoch-3.jsonl", '"outcome":"pass"', '"outcome":"fail"', most=1)
    refusal = refused("verify", epoch, "--key", KEY, code=1)
    document = json.loads(run("verify", epoch, "--json", code=1).stdout)
    assert refusal.endswith(f"(expected {document['expected'][:15]}…, found {document['found'][:15]}…)")
    assert len(document["expected"]) == len(document["found"]) == len("sha256:") + 64
    alike = f"sha256:{'ab' * 32} and {'ab' * 31}cd"
    assert errors.cut_digests(alike) == alike  # cut, they would look the same


@pytest.mark.no_cover
def test_the_proof_between_two_checkpoints(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `check.py --consistency` is given."""
    for epoch in ("3", "4", "5"):
        run("settle", place, "--epoch", epoch, "--key", "small-log")
        run("receipt", place, epoch, "-o", tmp_path / f"{epoch}.receipt")
        (tmp_path / f"{epoch}.checkpoint").write_bytes((place / "log/checkpoint").read_bytes())
    hashes = tmp_path / "hashes"
    for earlier, later, sizes in (("3", "4", ["1", "2"]), ("3", "5", ["1"]), ("5", "4", ["2", "3"]), ("5", "5", ["3", "3"])):
        hashes.write_text(output("ledger", "consistency", place, *sizes))
        words = [tmp_path / f"{later}.receipt", "--key", KEY, "--checkpoint", tmp_path / f"{earlier}.checkpoint"]
        assert check.main([*map(str, words), "--consistency", str(hashes)]) == 0
        assert "; consistency\n" in capsys.readouterr().out
    assert output("ledger", "consistency", place, "3") == ""
    for wrong in (["4"], ["2", "1"], ["1", "4"]):
        assert "the log has 3 receipts" in refused("ledger", "consistency", place, *wrong)


def test_import_epoch(place: Path, tmp_path: Path) -> None:
    run("settle", place, "--key", "small-log")
    run("export", "epoch", place, "3", "-o", tmp_path / "epoch-3")
    copy = ledger_kit.ledger_folder(tmp_path / "copy")
    assert "Epoch 3: 12 records in 3 batches, verified and added." in output("import", "epoch", copy, tmp_path / "epoch-3")
    assert "The ledger has epoch 3 already." in output("import", "epoch", copy, tmp_path / "epoch-3")
    assert output("receipt", copy) == output("receipt", place)
    run("settle", place, "--epoch", "4", "--key", "small-log")  # nothing new was seen, and it is an epoch all the same
    run("export", "epoch", place, "4", "-o", tmp_path / "epoch-4")
    assert "Epoch 4: 0 records in 0 batches, verified and added." in output("import", "epoch", copy, tmp_path / "epoch-4")


def test_validators_may_be_named(tmp_path: Path) -> None:
    small_folder.make(tmp_path, validators_csv=f"key,stake,name\n{V1},1,val-1\n{V2},1,val-2\nval-2,1,\nx,1,twice\ny,1,twice\n")
    assert validator_of(tmp_path, "val-1") == V1
    assert [validator_of(tmp_path, name) for name in (V2, "val-2", "twice", "nobody")] == [V2, "val-2", "twice", "nobody"]
    assert validator_of(tmp_path / "nowhere", "val-1") == "val-1"


def test_no_ledger_no_commands(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "plain")
    for words in (("receipt", place), ("export", "epoch", place, "1", "-o", tmp_path / "x"), ("ledger", "replay", place)):
        assert "the competition has no ledger" in refused(*words)
    assert not (tmp_path / "x").exists()
    shutil.rmtree(place)
