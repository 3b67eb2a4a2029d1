"""Runs on a real Ray cluster of two nodes, whose nodes and drivers are killed: each trial counts once, and nothing is left.

The short form kills a node and the driver three times, and is all that `make test` runs here; `make full` does it fifty times
in a thousand trials, and judges rubrics and workflows too.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import assay
import bounty_run_kit
import workflow_run_kit
from assay.judge.rubric.scripted import ScriptedFault
from assay.judge.running import RunOptions
from assay.judge.terminal.run import run
from depth import depth
from judge_kit import bubblewrap, make_agent, make_competition, make_task
from ray_kit import Cluster, Run, cluster, evidence, until
from workflow_chaos import said, serving, well

pytestmark = pytest.mark.slow

TASKS, TRIALS, KILLS = depth(2, 10), depth(10, 50), depth(3, 50)
COUNT = 2 * TASKS * TRIALS
TOML = "cpus = 1\n"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    bubblewrap()
    with cluster() as made:
        yield made


def competition(folder: Path, *, tasks: int, trials: int, pause: float = 0.2) -> Path:
    """One agent that solves every task after a pause, and one that does nothing."""
    for number in range(tasks):
        make_task(folder / "tasks" / f"t{number}", toml=TOML, solution=None)
    solver = make_agent(folder / "agents" / "solver", f"sleep {pause}\necho hello > out.txt\n")
    idler = make_agent(folder / "agents" / "idler", f"sleep {pause}\n")
    return make_competition(folder, {"ann": solver.digest, "bob": idler.digest}, trials=trials)


def outcomes(folder: Path) -> Counter[tuple[str, ...]]:
    """How often there is a record of each trial, with its outcome."""
    lines = [json.loads(line) for file in (folder / "evidence").glob("*.jsonl") for line in file.read_bytes().splitlines()]
    return Counter((line["participant"], line["task"], str(line["trial"]), line["outcome"]) for line in lines)


def test_each_trial_counts_once_whatever_dies(nodes: Cluster, tmp_path: Path) -> None:
    here, there = competition(tmp_path / "here", tasks=TASKS, trials=TRIALS), tmp_path / "there"
    shutil.copytree(here, there)
    rolls = random.Random(21)
    goals = sorted(rolls.sample(range(1, COUNT - 2), KILLS))
    going = nodes.run(there)
    for number, goal in enumerate(goals):
        if not going.reaches(goal):
            break
        if len(nodes.nodes) > 1 and (number == 0 or rolls.random() < 0.5):
            nodes.lose(nodes.nodes[-1])
            nodes.start()
        else:
            going.kill()
            going = nodes.run(there)
    said = json.loads(going.end())
    assert said["errors"] == []
    found = outcomes(there)
    assert len(found) == COUNT
    assert set(found.values()) == {1}
    until(lambda: not nodes.left(), f"there is something left: {nodes.left()}")
    assert not list((there / "trials").glob("*/.partial/*"))
    run(here, "val-1", RunOptions(jobs=2))
    local, far = (assay.open(folder).settle() for folder in (here, there))
    assert far.digest == local.digest


@pytest.mark.full
def test_stop_leaves_nothing_and_goes_on(nodes: Cluster, tmp_path: Path) -> None:
    folder = competition(tmp_path / "c", tasks=1, trials=4, pause=2.0)
    going: Run = nodes.run(folder)
    assert going.reaches(1)
    assert going.stop() == 130
    before = evidence(folder)
    assert before < 8
    until(lambda: not nodes.left(), f"there is something left: {nodes.left()}")
    assert json.loads(nodes.run(folder).end())["judged"] == 8 - before
    assert set(outcomes(folder).values()) == {1}


@pytest.mark.full
def test_rubrics_are_judged_on_nodes(nodes: Cluster, tmp_path: Path) -> None:
    here, there = bounty_run_kit.make_run(tmp_path / "here"), bounty_run_kit.make_run(tmp_path / "there")
    with bounty_run_kit.scripted(ScriptedFault(kind="429", times=1)) as server:
        going = nodes.run(there, "--model-url", server.url)
        assert json.loads(going.end())["outcomes"] == {"judged": 3}
        bounty_run_kit.judged(here, server.url)
    local, far = (assay.open(folder).settle() for folder in (here, there))
    assert far.document["agreed"] == local.document["agreed"]
    assert bounty_run_kit.outcomes(there) == bounty_run_kit.outcomes(here)


@pytest.mark.full
def test_workflows_are_judged_on_nodes(nodes: Cluster, tmp_path: Path) -> None:
    with serving(do=well("done"), fail=said({"error": "no"}), ping=well("done")) as server:
        folder = workflow_run_kit.competition(
            tmp_path, server, {"ann": workflow_run_kit.plan(), "bob": workflow_run_kit.plan("fail")}
        )
        assert json.loads(nodes.run(folder).end())["outcomes"] == {"invalid": 2, "ran": 2}
    assert {who: what for (who, _), what in workflow_run_kit.outcomes(folder).items()} == {"ann": "ran", "bob": "invalid"}
