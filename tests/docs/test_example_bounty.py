"""examples/agonaut: its script's quotes are in the solutions, its scores are those that its README tells, and `live` runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.competition import open_competition
from assay.judge.rubric.run import RubricOptions, run
from assay.judge.rubric.scripted import read_script
from assay.judge.rubric.scripted_server import scripted_model
from assay.judge.rubric.stored import submit_solution
from assay.judge.running import RunOptions
from assay.judge.service import ModelAccess
from bounty_run_kit import AT, QUICK

EXAMPLE = Path(__file__).parents[2] / "examples" / "agonaut"
BPS = {"larch": 10_000, "maple": 7_000, "noble": 0, "olive": 1_000}


def test_the_scores_are_those_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    place = tmp_path / "bounty"
    place.mkdir()
    for name in ("scheme.toml", "problem.md"):
        shutil.copy(EXAMPLE / name, place)
    text = (EXAMPLE / "bounty.toml").read_text(encoding="utf-8")
    before, after = text.split("[enclave]")
    text = before + "[[checks]]" + after.split("[[checks]]", 1)[1]
    (place / "bounty.toml").write_text(
        "".join(row for row in text.splitlines(True) if "_until" not in row and "_deadline" not in row)
    )
    (place / "participants.csv").write_text("key\n" + "".join(f"{key}\n" for key in BPS))
    (place / "validators.csv").write_text("key,stake\nval-1,1\n")
    for key in BPS:
        submit_solution(place, key, EXAMPLE / "handed-in" / key, at=AT)
    with scripted_model(read_script(EXAMPLE / "replies.toml")) as server:
        done = run(
            place, "val-1", RunOptions(jobs=4, own=RubricOptions(ModelAccess(server.url, ""))), lambda _event: None, limits=QUICK
        )
    assert not done.errors
    settled = open_competition(place).settle().document
    assert {row["participant"]: row["bps"] for row in settled["agreed"]} == BPS
    records = [json.loads(line) for file in (place / "evidence").glob("*.jsonl") for line in file.read_text().splitlines()]
    suspected = {row["participant"]: row["injection_suspected"] for row in records}
    assert suspected == {"larch": False, "maple": False, "noble": False, "olive": True}


@pytest.mark.full
def test_live(tmp_path: Path) -> None:
    """From the commitments to the winners' solutions, by the commands as they are typed; `make demo-full` plays it too."""
    done = live(tmp_path / "bounty")
    for pattern in ("4 judgements, each proven by a quote", "Larch +10000 +1400000000000000000 ", "2 released into sponsor."):
        assert re.search(pattern, done), done
    assert "durations · epoch 1: verified, and computed again" in done


@pytest.mark.full
def test_live_on_a_chain(tmp_path: Path) -> None:
    """The same, with the deposit in a contract on a node of our own: scores and attestations there, prizes claimed."""
    import evm_kit

    evm_kit.built()
    done = live("chain", tmp_path / "bounty")
    for sentence in ("All terms are those of bounty.toml and publish.toml.", "10000 BPS  new", "1365000000000000000"):
        assert sentence in done
    assert done.count("The chain has it, in block") == 5  # larch's commitment, the scores, their division, two claims
    assert "durations · epoch 1: verified, and computed again" in done


def live(*words: str | Path) -> str:
    """What the script prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")} | {"PATH": path, "COLUMNS": "200"}
    done = subprocess.run([EXAMPLE / "live", *words], env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
