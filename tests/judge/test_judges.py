"""Which judge a competition gets: the built-in one, one of another package, or none."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.errors import BadInput
from assay.judge import judges
from assay.judge.terminal.run import run

RUBRIC = """
import json
from collections import Counter
from assay.judge.running import RunSummary

def run(competition, validator, options, on_event):
    record = {"kind": "given", "validator": validator, "participant": "ann", "submission": "", "epoch": 1, "score": "0.5",
              "observed_at": "2026-01-01T00:00:00Z"}
    (competition / "evidence").mkdir()
    (competition / "evidence" / "run.jsonl").write_text(json.dumps(record) + "\\n")
    return RunSummary(1, outcomes=Counter(scored=options.jobs))
"""
SCHEME = '[scheme]\nname = "small"\n[score]\nkind = "given"\n[consensus]\nmin_validators = 1\n'


def package(folder: Path, name: str, entry: str, code: str = "") -> Path:
    """A package that is installed in a folder, with one entry point for the kind `given`."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[assay.judges]\ngiven = {entry}\n")
    (folder / f"{name}.py").write_text(code)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "c"
    place.mkdir()
    (place / "scheme.toml").write_text(SCHEME)
    (place / "participants.csv").write_text("key\nann\n")
    (place / "validators.csv").write_text("key,stake\nval-1,1\n")
    return place


def test_the_built_in_judge_registers_as_others_do() -> None:
    assert judges.find("tests") is run


def test_a_kind_that_nobody_judges_is_refused_by_name(folder: Path) -> None:
    done = CliRunner().invoke(app, ["run", str(folder), "--validator", "val-1"], env={"COLUMNS": "500"})
    assert done.exit_code == 2
    there = ", ".join(sorted({entry_point.name for entry_point in entry_points(group=judges.GROUP)}))
    what = f"scheme.toml: score.kind: there is no judge for the kind 'given', only for: {there}; install a package"
    assert what in done.stderr


def test_another_package_brings_a_judge(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(package(tmp_path / "site", "scorer_one", "scorer_one:run", RUBRIC))
    done = CliRunner().invoke(app, ["run", str(folder), "--validator", "val-1", "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert "1 trial judged (1 scored)." in done.stdout
    assert "1 of 1 participant has an agreed score." in done.stdout


def test_a_judge_that_cannot_be_loaded_says_whose_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(package(tmp_path / "site", "scorer_two", "scorer_two:run", "import not_installed_anywhere\n"))
    with pytest.raises(BadInput, match=r"scorer_two:run of scorer_two cannot be loaded: No module named 'not_installed_anywhere"):
        judges.find("given")
    monkeypatch.syspath_prepend(package(tmp_path / "more", "scorer_three", "scorer_three:run"))
    with pytest.raises(BadInput, match=r"several judges for the kind 'given': scorer_three:run of .* and scorer_two:run of"):
        judges.find("given")
