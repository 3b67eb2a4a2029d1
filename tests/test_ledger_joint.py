"""A subnet from its ledgers: one split that names the receipts, exported, verified by strangers, refused where it is changed."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import assay
import cli_kit
import ledger_kit
import small_folder
from assay.errors import BadInput, CannotSettle, Refused
from assay.exact import canonical, digest
from assay.ledger import bundle, joint, keys, making, note, settling
from assay.ledger.opened import open_ledger
from assay.ledger.store import Damaged
from assay.ledger.verify import verify
from cli_kit import files_under, output, refused
from ledger_kit import SIGNER, VALIDATORS

OTHER = keys.read(b"78" * 32)
ORIGINS = {"one": "example.org/small", "two": "x.example.org/small"}
SIGNERS = {"one": SIGNER, "two": OTHER}
KEYS = [str(note.log_key(ORIGINS[name], SIGNERS[name].public)) for name in ORIGINS]
EPOCH = 3
PEOPLE = "key,uid,name,submission\nm1,1,,s1\nm2,2,,s2\n"
Json = dict[str, Any]


def competition(place: Path, kind: str, *epochs: int) -> Path:
    """A competition with a ledger of its own, and evidence of these epochs."""
    small_folder.make(place, kind, validators_csv=ledger_kit.NAMES, participants_csv=PEOPLE, evidence=None)
    making.make(place, ORIGINS[place.name], SIGNERS[place.name])
    for epoch in epochs:
        ledger_kit.add(place, ledger_kit.records(kind, epoch=epoch))
    return place


def settle(place: Path, epoch: int = EPOCH) -> str:
    """Settles; the receipt's digest."""
    with open_ledger(place) as ledger:
        made = settling.settle(ledger, SIGNERS[place.name], epoch)
        assert made.receipt is not None
        return made.receipt.digest


def subnet(place: Path, *members: str) -> Path:
    rows = "".join(f'[[competitions]]\npath = "{name}"\nshare = "{share}"\n' for name, share in (one.split() for one in members))
    path = place / "my-subnet.toml"
    path.write_text(f'emission = "1000"\n{rows}', encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two competitions with ledgers, both settled at epoch 3, the first at 4 too; and what is exported of epoch 3."""
    place = tmp_path_factory.mktemp("joint")
    for name, kind in (("one", "tests"), ("two", "given")):
        competition(place / name, kind, EPOCH)
        settle(place / name)
    path = subnet(place, "one 60%", "two 40%")
    joint.export(path, EPOCH, place / "emission-3")
    ledger_kit.add(place / "one", ledger_kit.records("tests", epoch=4, trial=2))
    settle(place / "one", 4)
    return place


@pytest.fixture
def exported(place: Path, tmp_path: Path) -> Path:
    """A copy of what was exported, to be changed."""
    return Path(shutil.copytree(place / "emission-3", tmp_path / "emission-3"))


def receipts(place: Path) -> list[Json]:
    found = []
    for name in ORIGINS:
        with open_ledger(place / name) as ledger:
            row = {"competition": "small", "epoch": EPOCH, "digest": ledger.receipt(EPOCH).digest}
            found.append(row | {"log": str(ledger.key)})
    return found


def test_the_split_is_of_the_last_epoch_that_all_have_settled_and_names_the_receipts(place: Path) -> None:
    found = assay.emission(place / "my-subnet.toml")
    assert (found.epoch, found.receipts) == (EPOCH, receipts(place))
    content = dict(found.document)
    assert content["receipts"] == receipts(place)
    assert content.pop("digest") == digest(content)
    assert assay.emission(place / "my-subnet.toml", EPOCH).document == found.document


def test_an_epoch_that_is_open_in_a_ledger_has_no_receipt_there(place: Path) -> None:
    found = assay.emission(place / "my-subnet.toml", 4)
    assert [one["epoch"] for one in found.receipts] == [4]
    assert found.competitions[1].receipt is None
    shown = output("emission", place / "my-subnet.toml", "--epoch", "4")
    assert "Not settled in a ledger, so without a receipt: small." in shown
    assert shown.count("Receipt of small") == 1


def test_one_with_a_ledger_and_one_without(place: Path, tmp_path: Path) -> None:
    plain = small_folder.make(tmp_path / "plain", "given", participants_csv=PEOPLE)
    (plain / "scheme.toml").write_text('[scheme]\nname = "plain"\n[score]\nkind = "given"\n', encoding="utf-8")
    shutil.copytree(place / "two", tmp_path / "two")
    path = subnet(tmp_path, "two 60%", "plain 40%")
    found = assay.emission(path)
    assert (found.epoch, [one["competition"] for one in found.receipts]) == (EPOCH, ["small"])
    assert "Not settled in a ledger, so without a receipt: plain." in output("emission", path)
    assert "receipts" not in assay.emission(subnet(tmp_path, "plain 40%")).document
    with pytest.raises(BadInput, match="the competition has no ledger"):
        joint.export(subnet(tmp_path, "two 60%", "plain 40%"), EPOCH, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(BadInput, match="epoch 1 was passed"):
        assay.emission(subnet(tmp_path, "two 60%"), 1)


def test_nothing_settled_yet_is_settled_as_a_draft(tmp_path: Path) -> None:
    competition(tmp_path / "one", "tests", EPOCH)
    competition(tmp_path / "two", "given")
    path = subnet(tmp_path, "one 60%", "two 40%")
    assert assay.emission(path).receipts == []
    with pytest.raises(CannotSettle, match="epoch 3 has no receipt"):
        joint.export(path, EPOCH, tmp_path / "out")


def test_a_receipt_that_was_changed_in_a_ledger_is_refused(place: Path, tmp_path: Path) -> None:
    import sqlite3

    shutil.copytree(place / "two", tmp_path / "two")
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


def test_a_stranger_verifies_all_of_it(place: Path, exported: Path) -> None:
    for given in (KEYS, KEYS[::-1], ()):
        found = assay.verify(exported, key=given)
        assert found.recomputed
        assert found.emission == {
            "epoch": EPOCH,
            "digest": assay.emission(place / "my-subnet.toml", EPOCH).digest,
            "receipts": receipts(place),
        }
        assert found.checked[-1].stage == "emission"
        assert found.checked[0].what.startswith("one: small epoch 3, signed by ")
        assert set(found.document()) == {"verified", "recomputed", "emission", "stages"}
    with pytest.raises(Refused, match="not signed by the key"):
        verify(exported, key=KEYS[0])
    with pytest.raises(Refused, match="not signed by the key"):
        verify(exported, key=[KEYS[1], KEYS[1]])


def test_one_of_several_keys_is_enough_for_one_competition(exported: Path) -> None:
    for number in (1, 2):
        assert verify(exported / "competitions" / str(number), key=KEYS).recomputed


def put(old: str, new: str) -> Any:
    """A change that replaces the first of a text."""
    return lambda text: text.replace(old, new, 1)


THIRD = '[[competitions]]\npath = "three"\nshare = "0"\n'
CHANGES = [
    ("emission.json", put('"share":"0.6"', '"share":"0.7"'), "competitions[0].share differs"),
    ("emission.json", put('"u16":', '"u16":1'), "u16 differs"),
    (
        "emission.json",
        put('"competition":"small","digest":"sha256:', '"competition":"small","digest":"sha256:0'),
        "digest differs",
    ),
    ("emission.json", lambda _: "{", "is not JSON"),
    ("emission.json", lambda _: "[]", "differs"),
    ("subnet.toml", put("60%", "50%"), "competitions[0].share differs"),
    ("subnet.toml", put("60%", "70%"), "sum to 1.1"),
    ("subnet.toml", put('"1000"', '"1001"'), "competitions[0].emission differs"),
    ("subnet.toml", lambda text: text + THIRD, "the competition 'three' is missing"),
    ("competitions/1/settlement.json", put('"u16":', '"u16":1'), "u16 differs"),
    ("competitions/2/evidence/epoch-3.jsonl", put('"0.5"', '"0.6"'), "at least one was changed"),
]


@pytest.mark.parametrize(("name", "change", "said"), CHANGES)
def test_what_was_changed_is_found(exported: Path, name: str, change: Any, said: str) -> None:
    path = exported / name
    text = path.read_text(encoding="utf-8")
    assert change(text) != text
    path.write_text(change(text), encoding="utf-8")
    with pytest.raises(Refused) as error:
        verify(exported, key=KEYS)
    assert said in str(error.value)


def test_competitions_that_are_exchanged_or_of_another_epoch_are_found(place: Path, exported: Path, tmp_path: Path) -> None:
    one, two = exported / "competitions" / "1", exported / "competitions" / "2"
    one.rename(tmp_path / "x")
    two.rename(one)
    (tmp_path / "x").rename(two)
    with pytest.raises(Refused, match=r"(settlement|receipts\[0\].digest|share|u16) differs"):
        verify(exported, key=KEYS)
    shutil.rmtree(two)
    with open_ledger(place / "one") as ledger:
        bundle.export(ledger, 4, two)
    with pytest.raises(Refused, match="the competitions settle different epochs"):
        verify(exported, key=KEYS)


def test_what_is_of_one_competition_is_not_asked_of_a_subnet(exported: Path) -> None:
    with pytest.raises(BadInput, match="verify one of its competitions by itself"):
        verify(exported, evidence=exported)


def test_an_export_is_there_whole_or_not_at_all(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "my-subnet.toml"
    (tmp_path / "there").mkdir()
    with pytest.raises(BadInput, match="is there already"):
        joint.export(path, EPOCH, tmp_path / "there")
    with pytest.raises(BadInput, match="cannot be written"):
        joint.export(path, EPOCH, place / "my-subnet.toml" / "below")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(BadInput, match="No space left on device"):
        joint.export(path, EPOCH, tmp_path / "out")
    assert [one.name for one in tmp_path.iterdir()] == ["there"]


def test_uids_in_conflict_between_ledgers_are_refused(place: Path, tmp_path: Path) -> None:
    competition(tmp_path / "one", "tests", EPOCH)
    settle(tmp_path / "one")
    competition(tmp_path / "two", "given", EPOCH)
    (tmp_path / "two" / "participants.csv").write_text("key,uid,name,submission\nm1,9,,s1\nm2,2,,s2\n", encoding="utf-8")
    settle(tmp_path / "two")
    with pytest.raises(BadInput, match="'m1' has uid 9 here and uid 1 in an earlier competition"):
        joint.export(subnet(tmp_path, "one 60%", "two 40%"), EPOCH, tmp_path / "out")


def test_the_command_line(place: Path, tmp_path: Path) -> None:
    path = place / "my-subnet.toml"
    shown = output("emission", path, columns=120)
    for one in receipts(place):
        assert f"Receipt of small {one['digest']}" in shown
    said = output("export", "emission", path, "3", "-o", tmp_path / "out", columns=120)
    assert f"--key {KEYS[0]} --key {KEYS[1]}" in said
    assert files_under(tmp_path / "out") == files_under(place / "emission-3")
    board = output("verify", tmp_path / "out", "--key", KEYS[0], "--key", KEYS[1])
    assert "emission · epoch 3: verified, and computed again" in board
    assert cli_kit.narrow(board)
    assert "Whose receipt it is was not checked" not in board
    assert "and each other log's, with --key" in " ".join(output("verify", tmp_path / "out").split())
    document = json.loads(output("verify", tmp_path / "out", "--json"))
    assert document["emission"]["receipts"] == receipts(place)
    (tmp_path / "out" / "subnet.toml").unlink()
    assert "emission: " in refused("verify", tmp_path / "out", code=1)
    assert len(VALIDATORS) == 3
