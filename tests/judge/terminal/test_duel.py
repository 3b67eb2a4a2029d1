"""A duel judges pair by pair, in its order, no longer than needed; errors delay it, kills change nothing."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

import ledger_kit
from assay.judge.running import RunOptions
from assay.judge.terminal.competition import TrialCell, submit_agent
from assay.judge.terminal.duel import DuelTrials
from assay.ledger import settling
from assay.rules.duel import Contest, Side
from assay.scheme.load import parse
from cli_kit import output, refused, run
from depth import depth
from judge_kit import Scripted, make_agent
from run_kit import competition, outcomes

SCHEME = '[scheme]\nname = "small"\n[score]\nkind = "tests"\ntrials = {trials}\n[duel]\n'
TASKS = tuple(f"t{number}" for number in range(10))
RATES = {"ann": 0.8, "bob": 0.2}
RECEIPT = (1, "sha256:" + "42" * 32)
Json = dict[str, Any]


def contest(trials: int = 5) -> Contest:
    scheme = parse(SCHEME.format(trials=trials))
    sides = Side("ann", "first"), Side("bob", "second")
    return Contest(scheme, 2, "val-1", *sides, RECEIPT, TASKS, "sha256:" + "0" * 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scheme.toml").write_text(SCHEME.format(trials=5))
    (tmp_path / "participants.csv").write_text("key,submission\nann,first\nbob,second\ncat,third\n")
    (tmp_path / "validators.csv").write_text("key,stake\nval-1,1\n")
    (tmp_path / "tasks.txt").write_text("".join(f"{task}\n" for task in TASKS))
    return tmp_path


def judged(folder: Path, jobs: int = 1, **more: Any) -> tuple[DuelTrials, Scripted]:
    trials = DuelTrials(contest())
    options = RunOptions(jobs, epoch=2, delay=0.001, participants=("ann", "bob"), choice=trials)
    carried = Scripted(folder, "val-1", options, rates=RATES, **more)
    carried.carry_out()
    return trials, carried


def test_pairs_are_judged_in_the_duels_order_until_it_is_decided(folder: Path) -> None:
    trials, carried = judged(folder)
    steps = len(trials.course.steps)
    assert trials.course.winner == "challenger"
    assert 0 < steps < 50
    wanted = [(side, *pair) for pair in trials.along[:steps] for side in ("first", "second")]
    assert [cell.key for cell in carried.asked] == wanted
    assert carried.summary.judged == 2 * steps
    assert len(carried.evidence_file.read_text().splitlines()) == 2 * steps
    again, nothing = judged(folder)
    assert nothing.asked == []
    assert again.contest.fought(*again.passed.values()) == trials.contest.fought(*trials.passed.values())


def test_more_jobs_judge_a_little_beyond_and_decide_alike(folder: Path) -> None:
    trials, carried = judged(folder, jobs=4, seconds=0.005)
    document = trials.contest.fought(*trials.passed.values())
    assert document["winner"] == "challenger"
    assert 2 * len(document["path"]) <= len(carried.asked) < 100  # how far beyond depends on when each worker has its turn
    for file in (folder / "evidence").iterdir():
        file.unlink()
    other, _ = judged(folder)
    assert other.contest.fought(*other.passed.values()) == document


def test_an_error_delays_and_never_decides(folder: Path) -> None:
    third = DuelTrials(contest()).along[2]
    trials, carried = judged(folder, broken=[TrialCell("bob", "second", *third)])
    assert trials.course.winner is None
    assert trials.blocked
    assert trials.enough
    document = trials.contest.fought(*trials.passed.values())
    assert document["waits_for"] == {"task": third[0], "trial": third[1]}
    assert len(document["path"]) == 2
    assert [why for _, why in carried.summary.errors] == ["the disk is full"]
    whole, _ = judged(folder)
    assert whole.course.winner == "challenger"
    assert [step.sum for step in whole.course.steps[:2]] == [row["sum"] for row in document["path"]]


def test_evidence_of_others_says_nothing() -> None:
    trials = DuelTrials(contest())
    trials.saw(("third", "t1", 1), "pass")
    trials.saw(("first", "t1", "x"), "pass")
    assert not any(trials.passed.values())


def test_a_duel_that_is_killed_again_and_again_ends_alike(folder: Path) -> None:
    """Killed 10 times in short, 100 times in full; then it is decided as one that nobody disturbs."""
    r, kills, before = Random(5), depth(10, 100), list[int]()
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            judged(folder, seconds=0.02)
            os._exit(0)
        time.sleep(r.random() * 0.03)  # about one trial
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        before.append(evidence(folder))
    killed, _ = judged(folder)
    document = killed.contest.fought(*killed.passed.values())
    assert document["winner"] == "challenger"
    assert sum(lines < 2 * len(document["path"]) for lines in before) >= min(kills, 20), "killed before it was decided"
    for file in (folder / "evidence").iterdir():
        file.unlink()
    calm, _ = judged(folder)
    assert calm.contest.fought(*calm.passed.values()) == document


def evidence(folder: Path) -> int:
    """How many trials have evidence."""
    return sum(file.read_bytes().count(b"\n") for file in (folder / "evidence").glob("*.jsonl"))


def receipt(place: Path) -> Path:
    """The file of a receipt of epoch 3, of some ledger."""
    folder = ledger_kit.ledger_folder(place)
    ledger_kit.add(folder, ledger_kit.records())
    with ledger_kit.opened(folder) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 3)
    file = place / "epoch-3.receipt"
    file.write_text(output("receipt", folder, "3"))
    return file


def test_the_command_judges_real_trials_and_writes_the_duel(tmp_path: Path) -> None:
    folder = competition(tmp_path / "season", tasks=3, trials=2)
    file, asked = receipt(tmp_path / "other"), ("ann", "bob", "--validator", "val-1", "--quiet")
    assert "there is no section [duel]" in refused("duel", folder, *asked)
    with (folder / "scheme.toml").open("a") as scheme:
        scheme.write("[duel]\n")
    assert "there is no receipt here" in refused("duel", folder, *asked)
    assert "'ann' cannot challenge itself" in refused("duel", folder, "ann", "ann", "--validator", "val-1", "--receipt", file)
    assert "'none' has no submission that counts" in refused("duel", folder, "none", "bob", "--validator", "val-1")
    people = (folder / "participants.csv").read_text()
    for epoch, text in ((4, "the submission of 'ann' was accepted in epoch 4, when the receipt of epoch 3 was known"), (3, "")):
        lines = [f"{line},{epoch}" for line in people.splitlines()]
        (folder / "participants.csv").write_text("\n".join(["key,uid,submission,submitted_at,accepted_epoch", *lines[1:], ""]))
        if text:
            assert text in refused("duel", folder, *asked, "--receipt", file)
    shown = run("duel", folder, *asked, "--receipt", file)
    assert shown.exit_code == 0, shown.output
    assert shown.stderr == ""
    text = " ".join(shown.stdout.split())
    assert "The challenger is better: no outcome of the others can change that. 4 trials of 12 need not be judged." in text
    (written,) = (folder / "duels").iterdir()
    document = json.loads(written.read_text())
    assert (document["winner"], document["by"], len(document["path"]), document["epoch"]) == ("challenger", "certainty", 4, 4)
    assert set(outcomes(folder)) == {(who, row["task"], row["trial"]) for row in document["path"] for who in ("ann", "bob")}
    assert json.loads(output("duel", folder, *asked, "--receipt", file, "--json")) == document
    turned = ("bob", "ann", *asked[2:])
    (folder / "participants.csv").write_text(people)
    assert "nothing says when the submission of 'bob' was accepted" in run("duel", folder, *asked, "--receipt", file).stderr
    back = json.loads(output("duel", folder, *turned, "--receipt", file, "--output", "-"))
    assert (back["winner"], back["challenger"]["participant"]) == ("king", "bob")


@pytest.mark.full
def test_several_challengers_share_alpha_and_the_kings_trials(tmp_path: Path) -> None:
    folder = competition(tmp_path / "season", tasks=2)
    make_agent(tmp_path / "idle", "exit 0")
    submit_agent(folder, "none", str(tmp_path / "idle"))
    file = receipt(tmp_path / "other")
    with (folder / "scheme.toml").open("a") as scheme:
        scheme.write("[duel]\n")
    asked = ("--validator", "val-1", "--quiet", "--receipt", file)
    assert "'ann' is named twice" in refused("duel", folder, "ann", "ann", "bob", *asked)
    assert "'bob' cannot challenge itself" in refused("duel", folder, "ann", "bob", "bob", *asked)
    few = refused("duel", folder, "ann", "none", "bob", *asked, "--challengers", "1")
    assert "1 challengers are fewer than the 2 that are named" in few
    assert run("duel", folder, "ann", "none", "bob", *asked, "--output", tmp_path / "one.json", code=2).exit_code == 2
    shown = run("duel", folder, "ann", "none", "bob", *asked)
    documents = {document["challenger"]["participant"]: document for document in map(_read, (folder / "duels").iterdir())}
    assert documents.keys() == {"ann", "none"}
    assert {document["challengers"] for document in documents.values()} == {2}
    printed = " ".join(shown.stdout.split())
    assert "2 challengers of bob" in printed
    assert "with a chance of at most 5 % that any of 2 wins that is not." in printed
    kings = [key for key in outcomes(folder) if key[0] == "bob"]
    assert len(kings) == len(set(kings)) <= 2
    lines = [json.loads(line) for line in output("duel", folder, "ann", "none", "bob", *asked, "--json").splitlines()]
    assert lines == [documents["ann"], documents["none"]]
    more = json.loads(output("duel", folder, "ann", "bob", *asked, "--json", "--challengers", "40"))
    assert more["challengers"] == 40


def _read(file: Path) -> Json:
    document: Json = json.loads(file.read_text())
    return document
