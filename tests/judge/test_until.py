"""A run until it is decided: it judges no more than can matter, pays as a full run does, and survives kills and errors."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import assay
from assay.errors import BadInput
from assay.judge.cell_queue import Attempt, MissingCells, Report
from assay.judge.running import Judged, RunOptions
from assay.judge.terminal.competition import EveryTrial, TrialCell
from assay.judge.until import UntilDecided
from assay.rules.decided import Until
from cli_kit import output
from depth import depth
from judge_kit import Scripted

TASKS = tuple(f"t{number}" for number in range(20))
RATES = {"ann": 0.9, "bob": 0.5, "cat": 0.2, "dan": 0.6}
SCHEME = """[scheme]
name = "small"
[score]
kind = "tests"
[consensus]
min_validators = 1
min_stake = "0"
[reward]
strategy = "{strategy}"
cap = "100%"
{more}
[decay]
curve = "none"
"""
Keys = list[tuple[object, ...]]


class Prompt:
    """One worker that is free as soon as its result is heard, as a process is; then the next may begin before that is kept."""

    def __init__(self, run: Scripted) -> None:
        self.run = run
        self.going: list[TrialCell] = []

    def start(self, cells: Collection[TrialCell]) -> None: ...

    def idle(self) -> bool:
        return not self.going

    def begin(self, attempt: Attempt[TrialCell]) -> None:
        self.going.append(attempt.cell)

    def listen(self, seconds: float) -> Iterator[Report[TrialCell, Judged]]:
        for cell in [self.going.pop() for _ in self.going[:1]]:
            yield Report(cell, self.run.judge(cell))

    def close(self, *, now: bool) -> None:
        assert self.going == [] or now  # nothing was begun that nobody needs


def season(place: Path, strategy: str = "winner-takes-all", more: str = "", validators: str = "val-1,5\n") -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "scheme.toml").write_text(SCHEME.format(strategy=strategy, more=more))
    rows = "".join(f"{key},{uid},of-{key},2026-01-0{uid}T00:00:00Z\n" for uid, key in enumerate(RATES, 1))
    (place / "participants.csv").write_text(f"key,uid,submission,submitted_at\n{rows}eve,9,,\n")
    (place / "validators.csv").write_text(f"key,stake\n{validators}")
    (place / "tasks.txt").write_text("".join(f"{task}\n" for task in TASKS))
    return place


def judged(folder: Path, until: Until | None = None, *, jobs: int = 1, validator: str = "val-1", **more: Any) -> Scripted:
    choice = None if until is None else UntilDecided.of(folder, validator, until)
    run = Scripted(folder, validator, RunOptions(jobs, epoch=1, delay=0.001, choice=choice), rates=RATES, **more)
    run.carry_out()
    return run


def chosen(run: Scripted) -> UntilDecided:
    assert isinstance(run.options.choice, UntilDecided)
    return run.options.choice


def weights(folder: Path) -> dict[str, int]:
    return {key: weight.u16 for key, weight in assay.open(folder).settle(1).weights.items() if weight.u16}


def evidence(folder: Path) -> list[str]:
    return sorted(line for file in (folder / "evidence").glob("*.jsonl") for line in file.read_text().splitlines())


def keys(folder: Path) -> set[tuple[str, str]]:
    records = assay.open(folder).settle(1).inputs.evidence
    return {(record.participant, record.task) for record in records}  # type: ignore[union-attr]


@pytest.mark.parametrize(("until", "most"), [("paid", 50), ("decided", 79)])
def test_a_run_stops_early_and_pays_as_a_full_one(tmp_path: Path, until: Until, most: int) -> None:
    full, short = season(tmp_path / "full"), season(tmp_path / "short")
    assert judged(full).summary.judged == 80
    run = judged(short, until)
    assert 20 <= run.summary.judged < most
    assert weights(short) == weights(full) == {"ann": 65_535}
    assert assay.open(short).decided(1, until).whole
    choice = chosen(run)
    assert choice.enough
    assert choice.is_all_decided
    assert choice.document["spared"] == 80 - run.summary.judged == run.summary.planned - run.summary.judged
    ranking = assay.open(full).settle(1).ranking
    for row in choice.spared:
        score = assay.open(full).settle(1).agreement.score[list(RATES).index(row.standing.participant)]
        assert (row.standing.lowest or 0) <= score <= (row.standing.highest or 0)
        best, worst = row.standing.places or (0, 0)
        assert best <= ranking.index(row.standing.participant) + 1 <= worst
        assert best == worst or until == "paid"
    text = " ".join(output("settle", short, "--epoch", "1", columns=200).split())
    assert "incomplete" in text
    sentence = "The place is certain (" if until == "decided" else "Its missing trials cannot change what anybody is paid: "
    assert sentence in text
    again = judged(short, until)
    assert again.asked == []
    assert chosen(again).document == choice.document


def test_where_every_score_counts_everything_is_judged(tmp_path: Path) -> None:
    folder = season(tmp_path, "linear")
    run = judged(folder, "paid")
    assert run.summary.judged == 80
    assert chosen(run).document == {"until": "paid", "decided": True, "spared": 0, "participants": []}


def test_whoever_stays_below_the_floor_is_not_judged_further(tmp_path: Path) -> None:
    full, short = (season(tmp_path / name, "linear", 'min_score = "0.7"') for name in ("full", "short"))
    judged(full)
    run = judged(short, "paid")
    assert {row.standing.why for row in chosen(run).spared} == {"below-floor"}
    assert run.summary.judged < 80
    assert weights(short) == weights(full)


def test_a_validator_that_may_still_come_keeps_it_open(tmp_path: Path) -> None:
    """Its scores could turn everything; once it is complete, the other is spared most of its trials."""
    folder = season(tmp_path, validators="val-1,5\nval-2,5\n")
    assert judged(folder, "paid").summary.judged == 80
    second = judged(folder, "paid", validator="val-2")
    assert 0 < second.summary.judged < 40
    full = season(tmp_path / "full", validators="val-1,5\nval-2,5\n")
    for validator in ("val-1", "val-2"):
        judged(full, validator=validator)
    assert weights(folder) == weights(full)


def test_a_validator_that_does_not_count_judges_nothing(tmp_path: Path) -> None:
    folder = season(tmp_path, validators="val-1,5\nval-2,0\n")
    assert judged(folder, "paid", validator="val-2").summary.judged == 0
    judged(folder, "paid")
    assert weights(folder) == {"ann": 65_535}


def test_tasks_that_others_failed_come_first(tmp_path: Path) -> None:
    folder = season(tmp_path)
    only_ann = Scripted(folder, "val-1", RunOptions(epoch=1, participants=("ann",)), rates=RATES)
    only_ann.carry_out()
    failed = {record["task"] for record in map(json.loads, evidence(folder)) if record["outcome"] == "fail"}
    assert 0 < len(failed) < 10
    choice = UntilDecided.of(folder, "val-1", "paid")
    bob = [row for row in assay.open(folder).upcoming().inputs.participants if row.key == "bob"]
    first = list(choice.chosen(EveryTrial(bob, TASKS, 1)))[: len(failed)]
    assert {cell.task for cell in first} == failed


@pytest.mark.parametrize("until", ["paid", "decided"])
def test_the_evidence_alone_says_which_trial_is_next(tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial of a run is the first that a run would begin with that finds all earlier ones."""
    folder = season(tmp_path)
    monkeypatch.setattr(Scripted, "workers", lambda run, _cells: Prompt(run))
    asked = judged(folder, until).asked
    lines = (folder / "evidence" / "run-val-1.jsonl").read_text().splitlines()
    for number in range(0, len(asked), 3):
        (folder / "evidence" / "run-val-1.jsonl").write_text("".join(f"{line}\n" for line in lines[:number]))
        choice = UntilDecided.of(folder, "val-1", until)
        done = {cell.key for cell in asked[:number]}
        people = assay.open(folder).upcoming().inputs.participants
        left = MissingCells(choice.chosen(EveryTrial(people, TASKS, 1)), done)
        assert next(iter(left)) == asked[number]


def test_a_killed_run_judges_the_same_trials(tmp_path: Path) -> None:
    calm, folder = season(tmp_path / "calm"), season(tmp_path / "killed")
    judged(calm, "decided")
    r = Random(7)
    for _ in range(depth(4, 60)):
        child = os.fork()
        if child == 0:
            judged(folder, "decided", seconds=0.01)
            os._exit(0)
        time.sleep(r.random() * 0.2)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    judged(folder, "decided")
    assert keys(folder) == keys(calm)


def test_more_jobs_judge_a_little_beyond_and_pay_alike(tmp_path: Path) -> None:
    folder = season(tmp_path / "several")
    run = judged(folder, "paid", jobs=4, seconds=0.002)
    alone = judged(season(tmp_path / "alone"), "paid")
    assert run.summary.judged <= alone.summary.judged + 12
    assert weights(folder) == {"ann": 65_535}
    assert chosen(run).is_all_decided


def test_an_error_keeps_open_what_depends_on_it(tmp_path: Path) -> None:
    """The leader misses a trial, so it may end without a score: the others are judged, until one of them is certain."""
    folder = season(tmp_path)
    run = judged(folder, "paid", broken=[TrialCell("ann", "of-ann", "t3", 1)])
    assert [cell.parts["task"] for cell, _ in run.summary.errors] == ["t3"]
    assert run.summary.judged > judged(season(tmp_path / "whole"), "paid").summary.judged
    assert {row.standing.participant for row in chosen(run).spared} <= {"bob", "cat"}
    assert not assay.open(folder).decided(1, "paid").whole
    assert judged(folder, "paid").summary.judged == 1
    assert weights(folder) == {"ann": 65_535}
    assert assay.open(folder).decided(1, "paid").whole


def test_a_new_submission_opens_it_again(tmp_path: Path) -> None:
    folder = season(tmp_path)
    judged(folder, "paid")
    people = (folder / "participants.csv").read_text()
    (folder / "participants.csv").write_text(people.replace("of-ann", "new-ann"))
    run = judged(folder, "paid")
    assert {cell.participant for cell in run.asked} >= {"ann"}
    assert assay.open(folder).decided(1, "paid").whole


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('kind = "tests"', 'kind = "tests"\npassed_by = "all"'), "joins their trials"),
        (('kind = "tests"', 'kind = "given"'), "no trials"),
    ],
)
def test_what_has_no_bounds_is_refused(tmp_path: Path, change: tuple[str, str], why: str) -> None:
    folder = season(tmp_path)
    (folder / "scheme.toml").write_text((folder / "scheme.toml").read_text().replace(*change))
    with pytest.raises(BadInput, match=why):
        UntilDecided.of(folder, "val-1", "paid")
