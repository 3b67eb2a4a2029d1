"""A subnet from its ledgers: one split, signed in the subnet's log, exported, verified by strangers, refused if it is forged."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import assay
import cli_kit
import joint_kit
import ledger_kit
import small_folder
from assay.errors import BadInput, CannotSettle, Refused
from assay.exact import canonical, digest
from assay.ledger import config, keys, log, statements, subnet_bundle
from assay.ledger.access import open_ledger
from assay.ledger.store import Damaged
from assay.ledger.verify import verify
from cli_kit import files_under, output, refused
from joint_kit import EPOCH, KEY, KEYS, ORIGIN, ORIGINS, OTHER, PEOPLE, SUBNET, competition, receipts, settle, subnet, with_log
from ledger_kit import SIGNER, VALIDATORS

place = pytest.fixture(scope="module")(joint_kit.signed_once)
exported = pytest.fixture(joint_kit.exported)


@pytest.mark.no_cover
def test_the_split_is_of_the_last_epoch_that_all_have_settled_and_names_the_receipts(place: Path) -> None:
    emission = assay.emission(place / "my-subnet.toml")
    assert (emission.epoch, emission.receipts) == (EPOCH, receipts(place))
    content = dict(emission.document)
    assert content["receipts"] == receipts(place)
    assert content.pop("digest") == digest(content)
    assert assay.emission(place / "my-subnet.toml", EPOCH).document == emission.document


@pytest.mark.no_cover
def test_an_epoch_that_is_open_in_a_ledger_has_no_receipt_there(place: Path) -> None:
    emission = assay.emission(place / "my-subnet.toml", 4)
    assert [receipt["epoch"] for receipt in emission.receipts] == [4]
    assert emission.competitions[1].receipt is None
    shown = output("emission", place / "my-subnet.toml", "--epoch", "4")
    assert "Not settled in a ledger, so without a receipt: small in two." in shown
    assert shown.count("Receipt of small") == 1


def test_one_with_a_ledger_and_one_without(place: Path, tmp_path: Path) -> None:
    plain = small_folder.make(tmp_path / "plain", "given", participants_csv=PEOPLE)
    (plain / "scheme.toml").write_text('[scheme]\nname = "plain"\n[score]\nkind = "given"\n', encoding="utf-8")
    ledger_kit.copied(place / "two", tmp_path / "two")
    path = subnet(tmp_path, "two 60%", "plain 40%")
    emission = assay.emission(path)
    assert (emission.epoch, [receipt["competition"] for receipt in emission.receipts]) == (EPOCH, ["small"])
    assert "Not settled in a ledger, so without a receipt: plain." in output("emission", path)
    assert "receipts" not in assay.emission(subnet(tmp_path, "plain 40%")).document
    with pytest.raises(BadInput, match="the competition has no ledger"):
        subnet_bundle.sign(with_log(subnet(tmp_path, "two 60%", "plain 40%")), SUBNET)
    with pytest.raises(BadInput, match="epoch 1 was skipped"):
        assay.emission(subnet(tmp_path, "two 60%"), 1)


def test_nothing_settled_yet_is_settled_as_a_draft(tmp_path: Path) -> None:
    competition(tmp_path / "one", "tests", EPOCH)
    competition(tmp_path / "two", "given")
    path = subnet(tmp_path, "one 60%", "two 40%")
    assert assay.emission(path).receipts == []
    with_log(path)
    with pytest.raises(CannotSettle, match="epoch 3 has no receipt"):
        subnet_bundle.sign(path, SUBNET, EPOCH)
    with pytest.raises(CannotSettle, match="there is no epoch that all competitions have settled"):
        subnet_bundle.sign(path, SUBNET)


def test_a_receipt_that_was_changed_in_a_ledger_is_refused(place: Path, tmp_path: Path) -> None:
    import sqlite3

    ledger_kit.copied(place / "two", tmp_path / "two")
    with sqlite3.connect(tmp_path / "two" / "ledger.db") as database:
        database.execute("DROP TRIGGER IF EXISTS receipts_no_update")
        triggers = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in triggers:
            database.execute(f'DROP TRIGGER "{name}"')
        (envelope,) = database.execute("SELECT envelope FROM receipts").fetchone()
        wrong = json.loads(envelope)
        wrong["signatures"][0]["sig"] = "AAAA" + wrong["signatures"][0]["sig"][4:]
        database.execute("UPDATE receipts SET envelope = ?", (canonical(wrong),))
    database.close()
    with pytest.raises(Damaged, match="is not as it was signed"):
        assay.emission(subnet(tmp_path, "two 60%"))


def test_the_split_is_signed_once_in_the_subnets_log(place: Path, tmp_path: Path) -> None:
    path = place / "my-subnet.toml"
    with open_ledger(path) as ledger:
        assert (ledger.key.name, ledger.log.size) == (ORIGIN, 1)
        there = ledger.receipt(EPOCH)
        predicate = subnet_bundle.signed(ledger, there).predicate
    assert predicate["split"] == assay.emission(path, EPOCH).document
    assert predicate["rules"] == {"encoding": "round", "burn_uid": 0, "emission": "1000", "unearned": "burn"}
    assert [row["log"] for row in predicate["split"]["receipts"]] == KEYS
    assert (predicate["subnet"], predicate["epoch"], predicate["previous"]) == ("my-subnet", EPOCH, None)
    again = subnet_bundle.sign(path, SUBNET, EPOCH)
    assert (again.new, again.receipt) == (False, there)
    with pytest.raises(BadInput, match="is not the key of this log"):
        subnet_bundle.sign(path, SIGNER)
    copy = copied(place, tmp_path)
    subnet(tmp_path, "one 50%", "two 50%")
    for act in (
        lambda: subnet_bundle.sign(copy, SUBNET),
        lambda: subnet_bundle.export(copy, EPOCH, tmp_path / "out"),
        lambda: list(subnet_bundle.replay(copy)),
    ):
        with pytest.raises(CannotSettle, match=r"was signed as sha256:.*, but the competitions now give"):
            act()


def copied(place: Path, target: Path) -> Path:
    """The subnet and its competitions, to be changed."""
    ledger_kit.copied(place, target)
    return target / "my-subnet.toml"


def test_each_epoch_is_signed_after_the_one_before(place: Path, tmp_path: Path) -> None:
    path = copied(place, tmp_path)
    with pytest.raises(CannotSettle, match="epoch 4 has no receipt"):
        subnet_bundle.sign(path, SUBNET, 4)
    ledger_kit.add(tmp_path / "two", ledger_kit.records("given", epoch=4))
    settle(tmp_path / "two", 4)
    first = subnet_bundle.sign(path, SUBNET, EPOCH)
    signed = subnet_bundle.sign(path, SUBNET)
    assert (signed.new, signed.emission.epoch, signed.receipt.position) == (True, 4, 1)
    with open_ledger(path) as ledger:
        predicate = subnet_bundle.signed(ledger, signed.receipt).predicate
        assert predicate["previous"] == {"epoch": EPOCH, "receipt": first.receipt.digest}
        assert subnet_bundle.audit(ledger) == 2
        seen = ledger.log.note
    assert [split.epoch for split in subnet_bundle.replay(path)] == [EPOCH, 4]
    subnet_bundle.export(path, EPOCH, tmp_path / "old")
    subnet_bundle.export(path, 4, tmp_path / "new")
    (tmp_path / "seen").write_bytes((tmp_path / "old" / "log" / "checkpoint").read_bytes())
    report = verify(tmp_path / "new", key=KEY, checkpoint=tmp_path / "seen", subnet=path)
    assert "consistency" in [result.stage for result in report.checked]
    (tmp_path / "seen").write_bytes(seen)
    with pytest.raises(Refused, match="was rolled back"):
        verify(tmp_path / "old", key=KEY, checkpoint=tmp_path / "seen")
    assert verify(tmp_path / "old", key=KEY, checkpoint=tmp_path / "seen", log=tmp_path / "new" / "log").recomputed


def test_an_epoch_that_was_passed_is_not_signed(place: Path, tmp_path: Path) -> None:
    path = subnet(tmp_path, "one 60%")
    ledger_kit.copied(place / "one", tmp_path / "one")
    with_log(path)
    assert subnet_bundle.sign(path, SUBNET).emission.epoch == 4
    with pytest.raises(BadInput, match="epoch 3 was skipped: the last one signed is 4"):
        subnet_bundle.sign(path, SUBNET, EPOCH)
    with pytest.raises(CannotSettle, match="the split of epoch 3 is not signed"):
        subnet_bundle.export(path, EPOCH, tmp_path / "out")


def test_who_signs_meanwhile_is_not_overtaken(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copied(place, tmp_path)
    ledger_kit.add(tmp_path / "two", ledger_kit.records("given", epoch=4))
    settle(tmp_path / "two", 4)
    state = statements.split_statement
    rival: list[subnet_bundle.SignedSplit] = []

    def slowly(*args: Any) -> bytes:
        monkeypatch.setattr(statements, "split_statement", state)
        rival.append(subnet_bundle.sign(path, SUBNET))
        return state(*args)

    monkeypatch.setattr(statements, "split_statement", slowly)
    signed = subnet_bundle.sign(path, SUBNET)
    assert (signed.new, signed.receipt) == (False, rival[0].receipt)


def test_a_split_that_does_not_name_the_one_before_is_found(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, state = copied(place, tmp_path), statements.split_statement
    ledger_kit.add(tmp_path / "two", ledger_kit.records("given", epoch=4))
    settle(tmp_path / "two", 4)
    monkeypatch.setattr(statements, "split_statement", lambda name, rules, split, _: state(name, rules, split, None))
    subnet_bundle.sign(path, SUBNET)
    with open_ledger(path) as ledger, pytest.raises(Damaged, match="the split of epoch 4 does not follow the one before it"):
        subnet_bundle.audit(ledger)


def test_a_log_that_the_subnet_file_names_must_be_the_competitions(place: Path, tmp_path: Path) -> None:
    path = copied(place, tmp_path)
    subnet(tmp_path, "one 60%", "two 40%", one=KEYS[0], two=KEYS[1])
    assert not subnet_bundle.sign(path, SUBNET).new
    subnet(tmp_path, "one 60%", "two 40%", one=KEYS[0], two=KEYS[0])
    with pytest.raises(BadInput, match=r"my-subnet.toml: competitions\[1\].log: is .*small.*, but the competition's log is"):
        subnet_bundle.sign(path, SUBNET)


def test_the_subnets_log_is_no_competitions(place: Path, tmp_path: Path) -> None:
    ledger_kit.copied(place / "two", tmp_path / "two")
    path = subnet(tmp_path, "two 60%")
    with_log(path)
    settings = config.read(path)
    config.write(config.Config(tmp_path, ORIGINS["two"], KEYS[1], "two/ledger.db", "two/log", None, settings.name))
    with pytest.raises(BadInput, match="a competition has the same log as the subnet"):
        subnet_bundle.sign(path, OTHER)
    with open_ledger(path) as ledger, pytest.raises(Damaged, match="is not as it was signed"):
        subnet_bundle.audit(ledger)


def test_what_was_changed_in_the_subnets_ledger_is_not_gone_on_from(place: Path, tmp_path: Path) -> None:
    import sqlite3

    path = copied(place, tmp_path)
    with sqlite3.connect(tmp_path / "my-subnet.ledger.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("UPDATE settlements SET document = ?", (b"{}",))
    database.close()
    for act in (lambda: subnet_bundle.sign(path, SUBNET), lambda: subnet_bundle.export(path, EPOCH, tmp_path / "out")):
        with pytest.raises(Damaged, match="the split that is stored for epoch 3 is not the one that was signed"):
            act()


@pytest.mark.no_cover
def test_a_stranger_verifies_all_of_it(place: Path, exported: Path) -> None:
    with open_ledger(place / "my-subnet.toml") as ledger:
        statement = ledger.receipt(EPOCH).digest
    for given in (KEY, [KEY, *KEYS], [*KEYS[::-1], KEY, KEY], ()):
        report = assay.verify(exported, key=given)
        assert report.recomputed
        assert report.emission == {
            "subnet": "my-subnet",
            "epoch": EPOCH,
            "statement": statement,
            "digest": assay.emission(place / "my-subnet.toml", EPOCH).digest,
            "receipts": receipts(place),
        }
        assert report.checked[-1].stage == "emission"
        assert report.checked[0].what.startswith("my-subnet epoch 3, signed by ")
        assert set(report.document()) == {"verified", "recomputed", "emission", "stages"}
    alone = verify(exported / "emission.receipt", key=KEY)
    assert (alone.recomputed, alone.checked[-1].done, alone.emission) == (False, False, report.emission)


def test_the_split_is_held_against_a_subnet_file(place: Path, exported: Path, tmp_path: Path) -> None:
    report = verify(exported, key=KEY, subnet=place / "my-subnet.toml")
    assert "this file does not name the log of every competition" in str(report.checked)
    path = subnet(tmp_path, "a 60%", "b 40%", a=KEYS[0], b=KEYS[1])
    assert "does not name the log of every" not in str(verify(exported / "emission.receipt", key=KEY, subnet=path).checked)
    for members, logs, why in (
        (("a 60%", "b 30%"), {}, r"competitions\[1\].share is not that of .* \(expected 0.3, found 0.4\)"),
        (("b 60%", "a 40%"), {"a": KEYS[0], "b": KEYS[1]}, r"competitions\[0\].log is not that of"),
        (("a 60%",), {}, r"competitions is not that of .* \(expected 1, found 2\)"),
    ):
        with pytest.raises(Refused, match=why):
            verify(exported, key=KEY, subnet=subnet(tmp_path, *members, **logs))
    rows = path.read_text()
    for rule, name in (
        ("burn_uid = 1\n", "burn_uid"),
        ('encoding = "exact-sum"\n', "encoding"),
        ('unearned = "others"\n', "unearned"),
    ):
        path.write_text(rule + rows)
        with pytest.raises(Refused, match=f"{name} is not that of"):
            verify(exported, key=KEY, subnet=path)
    with pytest.raises(BadInput, match="a subnet file does not apply"):
        verify(exported / "competitions" / "1", key=KEYS[0], subnet=path)


def test_every_key_must_be_of_a_log_that_is_checked(exported: Path) -> None:
    stranger = str(log.log_key("example.org/stranger", SIGNER.public))
    for given, why in (
        (KEYS, "it is not signed by the key"),
        ([KEYS[0], str(log.log_key(ORIGIN, SIGNER.public))], "it is not signed by the key"),
        ([KEY, stranger], "a key was given for a log that the split does not name"),
        ([KEY, *KEYS, str(log.log_key(ORIGINS["two"], SIGNER.public))], "a key was given for a log that the split does not name"),
    ):
        with pytest.raises(Refused, match=why):
            verify(exported, key=given)
    folder = exported / "competitions" / "1"
    assert verify(folder, key=[KEYS[0], KEYS[0]]).recomputed
    with pytest.raises(BadInput, match="is of one log, but 2 keys were given"):
        verify(folder, key=KEYS)


def test_a_bundle_that_is_not_what_was_exported_is_refused_by_name(exported: Path, tmp_path: Path) -> None:
    whole = Path(shutil.copytree(exported, tmp_path / "whole"))
    competitions = exported / "competitions"
    shutil.rmtree(competitions / "1")
    shutil.copytree(whole, competitions / "1")
    with pytest.raises(Refused, match="it is not the bundle of a competition"):
        verify(exported, key=KEY)
    shutil.rmtree(competitions / "1")
    (competitions / "1").write_text("")
    with pytest.raises(Refused, match="it is not the bundle of a competition"):
        verify(exported, key=KEY)
    (competitions / "1").unlink()
    with pytest.raises(Refused, match="the competitions are not those that the split names"):
        verify(exported, key=KEY)
    (competitions / "1").mkdir()
    with pytest.raises(Refused, match="small: has no receipts"):
        verify(exported, key=KEY)
    shutil.rmtree(competitions)
    with pytest.raises(Refused, match="the competitions are not those that the split names"):
        verify(exported, key=KEY)
    (whole / "competitions" / "3").mkdir()
    with pytest.raises(Refused, match="the competitions are not those that the split names"):
        verify(whole, key=KEY)


def test_what_earlier_versions_exported_is_refused(exported: Path) -> None:
    (exported / "emission.receipt").rename(exported / "emission.json")
    with pytest.raises(Refused, match="nobody signed this split"):
        verify(exported, key=KEY)


def test_what_is_of_one_competition_is_not_asked_of_a_subnet(exported: Path) -> None:
    with pytest.raises(BadInput, match="verify one of its competitions by itself"):
        verify(exported, evidence=exported)


def test_an_export_is_there_whole_or_not_at_all(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "my-subnet.toml"
    (tmp_path / "there").mkdir()
    with pytest.raises(BadInput, match="is there already"):
        subnet_bundle.export(path, EPOCH, tmp_path / "there")
    with pytest.raises(BadInput, match="cannot be written"):
        subnet_bundle.export(path, EPOCH, place / "my-subnet.toml" / "below")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(BadInput, match="No space left on device"):
        subnet_bundle.export(path, EPOCH, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_subnet_without_a_log_signs_and_publishes_nothing(place: Path, tmp_path: Path) -> None:
    ledger_kit.copied(place / "two", tmp_path / "two")
    path = subnet(tmp_path, "two 60%")
    for act in (lambda: subnet_bundle.sign(path, SUBNET), lambda: subnet_bundle.export(path, EPOCH, tmp_path / "out")):
        with pytest.raises(BadInput, match=r"my-subnet.ledger.toml: there is no such file, so the subnet has no log"):
            act()
    with_log(path)
    with pytest.raises(BadInput, match="exists already"):
        with_log(path)
    with pytest.raises(CannotSettle, match="nothing of the subnet is signed yet"):
        subnet_bundle.signed_epoch(path)


def test_uids_in_conflict_between_ledgers_are_refused(place: Path, tmp_path: Path) -> None:
    competition(tmp_path / "one", "tests", EPOCH)
    settle(tmp_path / "one")
    competition(tmp_path / "two", "given", EPOCH)
    (tmp_path / "two" / "participants.csv").write_text("key,uid,name,submission\nm1,9,,s1\nm2,2,,s2\n", encoding="utf-8")
    settle(tmp_path / "two")
    with pytest.raises(BadInput, match="'m1' has uid 9 here and uid 1 in an earlier competition"):
        subnet_bundle.sign(with_log(subnet(tmp_path, "one 60%", "two 40%")), SUBNET)


def test_the_command_line(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    keys.save("subnet-log", SUBNET)
    for name in ORIGINS:
        shutil.copytree(place / name, tmp_path / name)
    path = subnet(tmp_path, "one 60%", "two 40%")
    assert "`assay ledger init` makes one" in refused("emission", path, "--sign")
    assert "goes with --sign" in cli_kit.run("emission", path, "--key", "subnet-log", code=2).stderr
    printed = output("ledger", "init", path, "--origin", ORIGIN, "--key", "subnet-log")
    assert KEY in printed
    assert f"assay emission {path} --sign" in " ".join(printed.split())
    assert "No epoch is signed yet." in output("ledger", "replay", path)
    shown = output("emission", path, "--sign", columns=120)
    for receipt, folder in zip(receipts(place), ORIGINS, strict=True):
        assert f"Receipt of small in {folder} {receipt['digest']}" in shown
    assert f", entry 0 of {ORIGIN}" in " ".join(shown.split())
    assert "as it was signed before" in " ".join(output("emission", path, "--sign", "--key", "subnet-log").split())
    assert json.loads(output("emission", path, "--sign", "--json")) == assay.emission(path, EPOCH).document
    printed = output("export", "emission", path, "3", "-o", tmp_path / "out", columns=120)
    assert f"--key {KEY}" in printed
    assert files_under(tmp_path / "out") == files_under(place / "emission-3")
    board = output("verify", tmp_path / "out", "--key", KEY, "--subnet", path)
    assert "emission of my-subnet · epoch 3: verified, and computed again" in board
    assert cli_kit.narrow(board)
    assert "was not checked" not in board
    assert "give the subnet's public key with --key" in " ".join(output("verify", tmp_path / "out").split())
    assert "emission of my-subnet · epoch 3: verified" in output("verify", tmp_path / "out" / "emission.receipt", "--key", KEY)
    document = json.loads(output("verify", tmp_path / "out", "--json"))
    assert document["emission"]["receipts"] == receipts(place)
    assert "1 signed split in the log. Everything is intact." in output("ledger", "check", path)
    assert "1 epoch comes out as signed." in output("ledger", "replay", path)
    assert output("ledger", "consistency", path, "1") == ""
    assert "already" in output("ledger", "migrate", path)
    text = (tmp_path / "my-subnet.ledger.toml").read_text()
    (tmp_path / "my-subnet.ledger.toml").write_text(
        "".join(splitline for splitline in text.splitlines(True) if "signer" not in splitline)
    )
    assert "does not say which key signs the split" in refused("emission", path, "--sign")
    (tmp_path / "out" / "emission.receipt").unlink()
    (tmp_path / "out" / "emission.json").touch()
    assert "nobody signed this split" in refused("verify", tmp_path / "out", code=1)
    assert len(VALIDATORS) == 3
