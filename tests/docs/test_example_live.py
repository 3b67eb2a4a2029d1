"""examples/term-challenge as its README tells it: judged in bubblewrap by three validators who agree, and set on a subnet."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

import assay
from assay.cli import app
from judge_kit import bubblewrap

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "term-challenge"
VALIDATORS = ("elm", "fir", "gum")
SCORES = {
    "all-rounder": "0.9",
    "shell-veteran": "0.7",
    "data-wrangler": "0.6",
    "git-archaeologist": "0.4",
    "apprentice": "0.2",
    "hopeful": "0.1",
}
WANTED = ("/usr/bin/python3", "/usr/bin/git", "/usr/bin/sqlite3")


@pytest.mark.full
def test_three_validators_judge_six_agents(tmp_path: Path) -> None:
    bubblewrap()
    missing = [program for program in WANTED if not Path(program).exists()]
    if missing:
        pytest.skip(f"the tasks need {', '.join(missing)}: tools/system installs them")
    folder = tmp_path / "term-challenge"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("evidence", "trials"))
    for validator in VALIDATORS:
        done = CliRunner().invoke(app, ["run", str(folder), "--validator", validator, "--jobs", "2"], prog_name="assay")
        assert done.exit_code == 0, done.output
        assert "60 trials judged (31 fail, 29 pass)." in done.stdout

    settlement = assay.open(folder).settle()
    assert {row["participant"]: row["score"] for row in settlement.document["agreed"]} == SCORES
    assert list(settlement.ranking) == list(SCORES)
    for row in settlement.document["agreed"]:  # every validator saw the same
        assert [vote["score"] for vote in row["validators"]] == [row["score"]] * 3

    assert settlement.digest in (EXAMPLE / "README.md").read_text(encoding="utf-8")

    listed = CliRunner().invoke(app, ["trials", str(folder), "--json"], prog_name="assay").stdout.splitlines()
    assert len(listed) == 180
    assert {json.loads(line)["sandbox"].split()[0] for line in listed} == {"bubblewrap"}


def play(checkout: Path, place: Path, name: str = "publish") -> str:
    """What a script of examples/term-challenge says, of a checkout."""
    path = os.pathsep.join([str(ROOT / ".venv" / "bin"), os.environ["PATH"]])
    env = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")} | {"PATH": path}
    script = checkout / "examples" / "term-challenge" / name
    done = subprocess.run([script, place], env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full
def test_its_weights_are_set_on_a_subnet(tmp_path: Path, shared: Path) -> None:
    if not any((shared / "data" / "subtensor").glob("metadata-*")):
        pytest.skip(f"{shared}/data/subtensor has no description of a runtime")
    bubblewrap()
    printed = " ".join(play(ROOT, tmp_path / "place").split())  # lines are as wide as the terminal is
    assert re.search(r"The chain has it, in block \d+, by 0x[0-9a-f]{64}\.", printed)
    assert re.search(r"The 6 weights of the receipt sha256:[0-9a-f]{16}… are those of the subnet\.", printed)


@pytest.mark.full
def test_an_audit_finds_two_lies_and_confirms_the_board_without_them(tmp_path: Path) -> None:
    bubblewrap()
    printed = play(ROOT, tmp_path / "place", "audited")
    lied, honest = " ".join(printed.split()).split("-- The same trials as they were:")
    assert "git-archaeologist, apprentice 1 checkpoint is cosigned" in lied
    assert "113 of 180 trials judged again; the outcome is not confirmed." in lied
    assert [task for task in ("broken-report", "config-merge") if re.search(rf"apprentice \S+ {task} pass false", lied)] == [
        "broken-report",
        "config-merge",
    ]
    assert "git-archaeologist 1 checkpoint is cosigned" in honest
    assert re.search(r"\d+ of 180 trials judged again; the outcome is confirmed\.", honest)
    assert printed.count("term-challenge · epoch 1: verified, and computed again") == 2
    assert printed.count("The signed audit verifies offline.") == 2


def test_without_a_runtimes_description_it_says_so(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for part in ("examples/term-challenge", "tests/subtensor"):
        shutil.copytree(ROOT / part, checkout / part, ignore=shutil.ignore_patterns("tasks", "agents", "__pycache__"))
    (checkout / ".venv").symlink_to(ROOT / ".venv")
    printed = play(checkout, tmp_path / "place")
    assert (
        printed == "There is no description of a chain's runtime here, so there is no simulated subnet: nothing was published.\n"
    )
    assert not (tmp_path / "place").exists()
