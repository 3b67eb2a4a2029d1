"""`assay init` and `assay emission`: a start that works at once, all of it or nothing."""

import json
import os
from pathlib import Path

import pytest
import rfc8785

from assay.scheme.load import presets
from cli_kit import files_under, from_preset, narrow, output, refused, rewrite, run

COMPETITIONS = sorted(set(presets()) - {"platform"})


def test_without_a_preset_it_names_them(tmp_path: Path) -> None:
    printed = refused("init", tmp_path / "new")
    assert "--preset: says which rules to begin with; give one of" in printed
    assert all(preset in printed for preset in presets())
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("preset", COMPETITIONS)
def test_a_new_competition_has_a_board(tmp_path: Path, preset: str) -> None:
    place = tmp_path / "deep" / "down" / preset
    shown = output("init", "--preset", preset, place)
    files = files_under(place)
    assert all(name in shown for name in files)
    assert {"scheme.toml", "participants.csv", "validators.csv", "evidence/README.md", "evidence/sample.jsonl"} <= set(files)
    if preset != "agonaut":  # which has a part of the sponsor's own: see test_bounty_check.py
        assert files["scheme.toml"].decode() == presets()[preset]
    document = json.loads(output("settle", place, "--json"))
    who = "agent" if preset == "benchmark" else "miner"
    assert document["ranking"] == [f"{who}-a", f"{who}-b", f"{who}-c"]
    assert f"{who}-a" in output("settle", place)


def test_a_new_subnet_has_two_competitions_and_a_split(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "subnet", "platform")
    assert {name.split("/")[0] for name in files_under(place)} == {"my-subnet.toml", "term-challenge", "bounty-challenge"}
    board = output("emission", place / "my-subnet.toml")
    assert narrow(board)
    assert [" ".join(line.split()) for line in board.splitlines()][3:6] == [
        "─────────────────────────────────────────",
        "term-challenge 60 % 60000000000 60",
        "bounty-challenge 40 % 40000000000 40",
    ]
    shown = run("emission", place / "my-subnet.toml", "--json", "--epoch", "1").stdout_bytes
    document = json.loads(shown)
    assert rfc8785.dumps(document) + b"\n" == shown
    shares = [
        json.loads(output("settle", place / name, "--json"))["weights"][0]["share"]
        for name in ("term-challenge", "bounty-challenge")
    ]
    assert shares == ["0.473684211", "0.4525"]
    assert document["weights"][0]["share"] == "0.465210526"  # 0.6 · 9/19 + 0.4 · 0.4525


def test_what_nobody_claims_burns_and_an_unknown_emission_is_left_out(tmp_path: Path) -> None:
    subnet = from_preset(tmp_path / "subnet", "platform") / "my-subnet.toml"
    text = subnet.read_text(encoding="utf-8").replace('"60%"', '"45%"')
    subnet.write_text("\n".join(line for line in text.splitlines() if not line.startswith("emission")), encoding="utf-8")
    board = output("emission", subnet)
    assert "No competition claims 15 %, which burns." in board
    assert "rao" not in board


def test_a_subnet_settles_the_highest_epoch_of_any_competition(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "subnet", "platform")
    rewrite(place / "bounty-challenge/evidence/sample.jsonl", '"epoch": 1', '"epoch": 4')
    assert json.loads(output("emission", place / "my-subnet.toml", "--json"))["epoch"] == 4
    (place / "term-challenge/evidence/sample.jsonl").unlink()
    assert json.loads(output("emission", place / "my-subnet.toml", "--json"))["epoch"] == 4
    (place / "bounty-challenge/evidence/sample.jsonl").unlink()
    assert "none of the competitions has evidence" in refused("emission", place / "my-subnet.toml", code=1)


def test_a_subnet_that_pays_out_is_refused(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "subnet", "platform")
    from_preset(place / "prize", "agonaut")
    rewrite(place / "my-subnet.toml", 'path = "bounty-challenge"', 'path = "prize"')
    assert "settles into payouts" in refused("emission", place / "my-subnet.toml")


def test_two_competitions_of_one_scheme_name_are_told_apart(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "subnet", "platform")
    from_preset(place / "spring")
    rewrite(place / "my-subnet.toml", 'path = "bounty-challenge"', 'path = "spring"')
    rewrite(place / "my-subnet.toml", 'path = "term-challenge"', 'path = "./term-challenge"')
    board = output("emission", place / "my-subnet.toml")
    assert "term-challenge in ./term-challenge" in board
    assert "term-challenge in spring" in board


def test_an_unknown_preset_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    assert "did you mean 'term-challenge'?" in refused("init", "--preset", "term-chalenge", tmp_path / "x")
    assert "the presets are agonaut" in refused("init", "--preset", "zzz", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_what_is_there_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep", encoding="utf-8")
    (tmp_path / "file").write_text("keep", encoding="utf-8")
    before = files_under(tmp_path)
    assert "is not empty" in refused("init", "--preset", "cswon", tmp_path / "mine")
    assert "is a file" in refused("init", "--preset", "cswon", tmp_path / "file")
    assert "cannot be made" in refused("init", "--preset", "cswon", tmp_path / "file" / "below")
    assert files_under(tmp_path) == before


def test_an_empty_folder_stays_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.stat(".").st_ino
    run("init", "--preset", "term-challenge", ".")
    assert os.stat(".").st_ino == before
    assert output("settle", ".").startswith("term-challenge")
    assert sorted(path.name for path in tmp_path.iterdir())[0] == "evidence"


@pytest.mark.parametrize("there", [False, True])
def test_a_start_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    place = tmp_path / "new"
    if there:
        place.mkdir()
    rename = Path.rename

    def full(self: Path, target: Path) -> Path:
        if self.name == "validators.csv" or not there:
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", full)
    assert "No space left on device" in refused("init", "--preset", "term-challenge", place)
    assert files_under(tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == (["new"] if there else [])


def test_the_folder_has_the_usual_permissions(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "new")
    (tmp_path / "usual").mkdir()
    assert place.stat().st_mode == (tmp_path / "usual").stat().st_mode
