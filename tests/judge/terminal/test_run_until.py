"""`assay run --until`: real agents in real sandboxes, judged until it is decided, paid as after a full run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import assay
from assay.judge.terminal.competition import submit_agent
from cli_kit import output, refused, rewrite, run
from judge_kit import make_agent
from run_kit import competition, outcomes

REWARD = '[reward]\nstrategy = "winner-takes-all"\ncap = "100%"\n[decay]\ncurve = "none"\n'


def season(place: Path) -> Path:
    """Ann passes everything, the others nothing."""
    folder = competition(place / "season", tasks=3)
    make_agent(place / "first", "exit 0")
    submit_agent(folder, "none", str(place / "first"))
    (folder / "validators.csv").write_text("key,stake\nval-1,100\n")
    with (folder / "scheme.toml").open("a") as scheme:
        scheme.write(REWARD)
    return folder


def test_a_real_run_stops_when_it_is_decided_and_pays_as_a_full_one(tmp_path: Path) -> None:
    folder = season(tmp_path)
    asked = ("run", folder, "--validator", "val-1", "--quiet")
    assert "--all: judges also what counts for nothing" in refused(*asked, "--all", "--until", "paid")
    shown = " ".join(run(*asked, "--until", "paid").stdout.split())
    short = assay.open(folder).settle(1)
    judged = outcomes(folder)
    assert {key for key in judged if key[0] == "ann"} == {("ann", f"t{number}", 1) for number in range(3)}
    assert len(judged) < 9
    assert f"{9 - len(judged)} trials need not be judged, because no outcome can change what anybody is paid." in shown
    again = json.loads(output(*asked, "--until", "paid", "--json"))
    assert (again["judged"], again["decided"]["decided"], again["decided"]["spared"]) == (0, True, 9 - len(judged))
    printed = " ".join(output(*asked, "--until", "paid").split())
    assert "Nothing is left to judge: every trial has its evidence, or cannot change anything." in printed
    whole = json.loads(output(*asked, "--json"))
    assert whole["judged"] == 9 - len(judged)
    full = assay.open(folder).settle(1)
    assert "decided" not in whole
    assert [(weight.participant, weight.u16) for weight in full.weights.values() if weight.u16] == [
        (weight.participant, weight.u16) for weight in short.weights.values() if weight.u16
    ]
    ranks = {row["participant"]: row["places"] for row in again["decided"]["participants"]}
    assert all(places[0] <= full.ranking.index(key) + 1 <= places[1] for key, places in ranks.items())


@pytest.mark.full
def test_a_scheme_in_which_every_score_counts_spares_nothing(tmp_path: Path) -> None:
    folder = season(tmp_path)
    rewrite(folder / "scheme.toml", "winner-takes-all", "linear")
    shown = run("run", folder, "--validator", "val-1", "--quiet", "--until", "paid")
    assert "with 'linear' every score has a part in every weight" in shown.stderr
    assert "No trial was spared: each could change something." in " ".join(shown.stdout.split())
    assert len(outcomes(folder)) == 9
