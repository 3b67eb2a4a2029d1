"""The health of tasks: planted truths, the oracle in fractions, the real Terminal-Bench trials, the command and the pages."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_folder
from assay.rules.task_health import TaskHealth, TrialCount, task_health
from assay.serve import pages
from assay.serve.season import read
from cli_kit import output
from oracle.task_health import task_health as by_hand

Table = dict[str, list[list[str]]]
RUNS = st.lists(st.sampled_from(["pass", "fail", "timeout", "error"]), max_size=5)


def counted(table: Table) -> dict[str, TaskHealth]:
    rows = {
        task: [
            TrialCount(own.count("pass"), len(own) - own.count("pass") - own.count("error"), own.count("error")) for own in row
        ]
        for task, row in table.items()
    }
    return {health.task: health for health in task_health(rows)}


def as_case(table: Table) -> dict[str, Any]:
    rows = [
        {"task": task, "participant": f"p{at:03}", "outcomes": own} for task, row in table.items() for at, own in enumerate(row)
    ]
    return {"tasks": [*table], "results": rows}


@st.composite
def tables(draw: st.DrawFn, least: int = 0) -> Table:
    people = draw(st.integers(least, 9))
    return {f"t{at}": draw(st.lists(RUNS, min_size=people, max_size=people)) for at in range(draw(st.integers(1, 4)))}


@given(tables())
def test_the_same_as_in_fractions(table: Table) -> None:
    assert [health.document() for health in counted(table).values()] == by_hand(as_case(table))["tasks"]


@given(tables(least=3), st.sampled_from(["fail", "timeout", "error"]))
def test_a_planted_dead_task_is_dead_and_nothing_else(table: Table, outcome: str) -> None:
    table["planted"] = [[outcome, outcome, "error"] for _ in table["t0"]]
    health = counted(table)["planted"]
    assert health.words == ("dead",)
    assert health.errors == len(table["t0"]) * (3 if outcome == "error" else 1)


@given(tables(least=5), st.integers(1, 4))
def test_planted_flakiness_is_told_from_skill(table: Table, trials: int) -> None:
    people = len(table["t0"])
    table["coin"] = [["pass", "fail"] * trials for _ in range(people)]
    table["skill"] = [["pass" if at % 2 else "fail"] * 2 * trials for at in range(people)]
    by_task = counted(table)
    assert ("flaky" in by_task["coin"].words) == (by_task["coin"].pairs >= 10)
    assert "flaky" not in by_task["skill"].words


@given(tables(least=3))
def test_a_planted_gift_separates_nobody(table: Table) -> None:
    table["gift"] = [["pass"] for _ in table["t0"]]
    assert counted(table)["gift"].words == ("never-separating",)


@given(st.integers(3, 12), st.integers(3, 12), st.integers(2, 6))
def test_a_planted_reversal_is_negative_and_its_mirror_is_not(strong: int, weak: int, tasks: int) -> None:
    table = {f"t{at}": [["pass"]] * strong + [["fail"]] * weak for at in range(tasks)}
    table["against"] = [["fail"]] * strong + [["pass"]] * weak
    by_task = counted(table)
    assert by_task["against"].words == ("negative",)
    assert by_task["t0"].words == (() if tasks > 1 else by_task["t0"].words)
    assert by_task["against"].document()["rest_passers"] == "0/1"
    assert by_task["against"].document()["rest_failers"] == "1/1"


@given(tables(least=1), st.randoms())
def test_the_order_of_participants_does_not_matter(table: Table, r: Any) -> None:
    places = list(range(len(table["t0"])))
    r.shuffle(places)
    assert counted({task: [row[at] for at in places] for task, row in table.items()}) == counted(table)


def test_every_task_needs_a_place_for_each_participant() -> None:
    with pytest.raises(ValueError, match="place for each"):
        task_health({"a": [TrialCount(1, 0)], "b": []})


def test_the_real_trials_of_terminal_bench(shared: Path) -> None:
    """13 agents × 5 runs × 80 tasks; a run without a result is an error here."""
    table: dict[str, dict[str, list[str]]] = {}
    with (shared / "data" / "terminal-bench-core-0.1.1.trials.csv").open() as file:
        for row in csv.DictReader(file):
            outcome = {"1": "pass", "0": "fail", "": "error"}[row["resolved"]]
            table.setdefault(row["task"], {}).setdefault(row["agent"], []).append(outcome)
    agents = sorted({agent for row in table.values() for agent in row})
    by_task = counted({task: [row.get(agent, []) for agent in agents] for task, row in table.items()})
    assert sum(health.passed + health.failed + health.errors for health in by_task.values()) == 5200
    words = {word: sorted(task for task, health in by_task.items() if word in health.words) for word in REAL}
    assert {word: len(tasks) for word, tasks in words.items()} == REAL


REAL = {"dead": 18, "flaky": 14, "never-separating": 0, "negative": 1}
"""How many of the 80 tasks each word is about."""


def _season(place: Path) -> Path:
    plan = {"dead": "----", "gift": "++++", "against": "--++", "good": "++--"}
    records = [
        small_folder.record(
            validator=judge, participant=f"m{at}", submission=f"s{at}", task=task, outcome="pass" if signs[at] == "+" else "fail"
        )
        for judge in ("v1", "v2", "v3")
        for task, signs in plan.items()
        for at in range(4)
    ]
    rows = "".join(f"m{at},{at},M{at},s{at}\n" for at in range(1, 4))
    return small_folder.make(
        place,
        evidence=small_folder.lines(records),
        tasks_txt="".join(f"{task}\n" for task in plan),
        participants_csv=f"key,uid,name,submission\nm0,9,M0,s0\n{rows}",
        validators_csv="key,stake,name\nv1,1000,V1\nv2,1000,V2\nv3,1000,V3\n",
    )


def test_the_command_and_the_pages_say_it(tmp_path: Path) -> None:
    folder = _season(tmp_path / "season")
    document = json.loads(output("tasks", "health", str(folder), "--json"))
    words = {row["task"]: row["words"] for row in document["tasks"]}
    assert words == {"dead": ["dead"], "gift": ["never-separating"], "against": [], "good": []}
    sick = json.loads(output("tasks", "health", str(folder), "--json", "--sick"))
    assert [row["task"] for row in sick["tasks"]] == ["dead", "gift"]
    text = output("tasks", "health", str(folder))
    assert "1 dead, 1 never-separating." in text
    assert "██████████" in text
    season = read(folder)
    assert "never-separating" in pages.page(season, "tasks.html").decode()
    assert "nobody ever passed it" in pages.page(season, pages.task_page("dead")).decode()


def test_explain_names_the_sick_tasks_that_a_participant_tried(tmp_path: Path) -> None:
    plan = {"dead": "------", "against": "---+++", "good": "+++---", "also": "+++---"}
    signs = {(task, at): row[at] for task, row in plan.items() for at in range(6)}
    records = [
        small_folder.record(
            validator=judge, participant=f"m{at}", submission=f"s{at}", task=task, outcome="pass" if sign == "+" else "fail"
        )
        for judge in ("v1", "v2", "v3")
        for (task, at), sign in ({("luck", at): "+" if judge == "v1" else "-" for at in range(6)} | signs).items()
    ]
    folder = small_folder.make(
        tmp_path / "season",
        evidence=small_folder.lines(records),
        tasks_txt="".join(f"{task}\n" for task in (*plan, "luck")),
        participants_csv="key,uid,name,submission\n" + "".join(f"m{at},{at + 1},M{at},s{at}\n" for at in range(6)),
        validators_csv="key,stake,name\nv1,1000,V1\nv2,1000,V2\nv3,1000,V3\n",
        scheme_toml='[scheme]\nname = "small"\n[score]\nkind = "tests"\n[consensus.outliers]\nmethod = "none"\n',
    )
    text = " ".join(output("explain", str(folder), "m0", columns=300).split())
    assert "Nobody ever passed dead (0 of 3 passed here), so nothing separates the participants there (dead)." in text
    assert "Trials of one participant often end differently in luck (1 of 3 passed here)" in text
    assert "Those who pass against (0 of 3 passed here) pass less of the other tasks" in text
    rows = json.loads(output("explain", str(folder), "m0", "--json"))["task_health"]
    assert {row["task"]: row["words"] for row in rows} == {
        "dead": ["dead"],
        "against": ["negative"],
        "luck": ["flaky", "never-separating"],
    }
    assert rows[1]["own"] == {"passed": 0, "trials": 3}
