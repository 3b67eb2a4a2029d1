"""A stranger computes a panel's majority and a duel's path again; a changed answer, or step, is found. SPEC 2.3, 6."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import assay
import ledger_kit
import small_folder
from assay.errors import AssayError
from assay.exact import canonical, digest
from assay.ledger import bundle, settling
from assay.rules.duel import Contest, Side
from assay.scheme.load import parse
from cli_kit import run as cli
from verifier_kit import run

KEY = str(ledger_kit.KEY)
MET = {"B1": True, "B2": True, "B3": True, "B4": True}
SCHEME = small_folder.SCHEMES["rubric"].replace(
    "skippable = false}]\n", 'skippable = false}]\npanel = {answers = 3, max_disagreement = "1/3"}\n'
)


def panel_fields(*sides: bool) -> dict[str, Any]:
    """The answers of a panel to the one check, and what they decide."""
    panel = [{"judge": "m", "baseline": MET, "checks": {"c1": side}, "verdict": "COHERENT"} for side in sides]
    return {"panel": panel, "baseline": MET, "checks": {"c1": sum(sides) > 1}, "verdict": "COHERENT"}


@pytest.fixture(scope="module", params=[False, True], ids=["lines", "parquet"])
def epoch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An epoch in which each validator's panel answers alike."""
    place = tmp_path_factory.mktemp("panel")
    folder = ledger_kit.ledger_folder(place / "folder", "rubric", scheme_toml=SCHEME)
    ledger_kit.add(folder, ledger_kit.records("rubric", **panel_fields(True, False, True)))
    with ledger_kit.opened(folder) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 3)
        bundle.export(ledger, 3, place / "epoch-3", as_parquet=request.param)
    return place / "epoch-3"


@pytest.mark.sampled(1)
def test_both_verifiers_compute_the_majority_again(epoch: Path) -> None:
    assert assay.verify(epoch, key=KEY)
    process = run(epoch, "--key", KEY, "--json")
    assert process.returncode == 0, process.stdout + process.stderr
    assert json.loads(process.stdout)["recomputed"]
    settlement = json.loads((epoch / "settlement.json").read_bytes())
    work = [vote["work"] for row in settlement["agreed"] for vote in row["validators"]]
    assert work
    assert {(entry["bps"], entry["flips"], entry["votes"]) for entry in work} == {(10_000, 1, 18)}
    printed = " ".join(cli("explain", epoch, "m1", "--key", KEY, columns=200).stdout.split())
    assert "1 of the panel's 18 votes differ" in printed
    assert "In 3 panels, 3 of 54 votes differ from the majority, most of them at c1 (3/9)." in printed


def test_an_answer_that_was_changed_is_found(epoch: Path) -> None:
    for file in (epoch / "evidence").glob("*.jsonl"):
        whole = file.read_bytes()
        file.write_bytes(whole.replace(b'"c1":false', b'"c1":true', 1))
        try:
            with pytest.raises(AssayError):
                assay.verify(epoch, key=KEY)
            assert run(epoch, "--key", KEY).returncode == 1
        finally:
            file.write_bytes(whole)


def test_a_duel_is_followed_step_by_step(tmp_path: Path) -> None:
    scheme = parse('[scheme]\nname = "small"\n[score]\nkind = "tests"\ntrials = 4\n[duel]\nmargin = "10%"\n')
    sides, tasks = (Side("ann", "first"), Side("bob", "second")), tuple(f"t{number}" for number in range(10))
    contest = Contest(scheme, 4, "v1", *sides, (3, "sha256:" + "5c" * 32), tasks, "sha256:" + "0" * 64)
    ahead = {pair: at % 5 > 0 for at, pair in enumerate(contest.along)}
    behind = {pair: at % 4 == 0 for at, pair in enumerate(contest.along)}
    duel = contest.fought(ahead, behind)
    file = tmp_path / "duel.json"

    def checked(document: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        file.write_bytes(canonical(document))
        return run(file)

    good = checked(duel)
    assert good.returncode == 0, good.stderr
    assert f"ann is better than bob: each of {len(duel['path'])} steps of 40 was computed again" in good.stdout
    assert "–  evidence" in good.stdout
    for change, why in (
        ({"winner": "king"}, "winner differs"),
        ({"path": [duel["path"][0] | {"king_wealth": "1"}, *duel["path"][1:]]}, r"path\[0\] differs"),
        ({"path": [*duel["path"][1::-1], *duel["path"][2:]]}, "the receipt gives another order"),
        ({"path": duel["path"][:-1]}, "a pair is missing in the path"),
        ({"alpha": "0.5"}, r"path\[[0-9]+\] differs"),
        ({"winner": None, "by": None}, "the duel is not decided yet"),
    ):
        changed = {name: value for name, value in (duel | change).items() if name != "digest"}
        process = checked(changed | {"digest": digest(changed)})
        assert process.returncode == 1
        assert re.search(why, process.stderr), process.stderr
    assert "the digest is of another document" in checked(duel | {"epoch": 5}).stderr
    assert checked(contest.fought(behind, ahead)).stdout.startswith("✓  duel        bob stays before ann")
