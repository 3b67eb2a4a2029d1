"""The example task set: ten tasks that check clean, and six agents. Running them is for the tests of the sandboxes."""

from __future__ import annotations

import ast
import json
import stat
import subprocess
from pathlib import Path

import pytest

from assay.judge.dockerfile import Context, Copy
from assay.judge.terminal import competition, tasks
from assay.judge.terminal.agent import BUILT_IN, load_agent
from assay.judge.terminal.calibration import inspect_tasks
from judge_kit import try_

EXAMPLES = Path(__file__).parents[2] / "examples"
SET = EXAMPLES / "term-challenge" / "tasks"
AGENTS = sorted(agent for agent in (EXAMPLES / "term-challenge" / "agents").iterdir() if agent.is_dir())
IDS = sorted(folder.name for folder in SET.iterdir())


def test_nothing_is_to_be_said_about_the_example_tasks() -> None:
    assert [str(inspect_task) for inspect_task in inspect_tasks(SET)[0]] == []


def test_there_are_ten_and_all_are_verified_separately() -> None:
    task_set = tasks.read_tasks(SET)
    assert len(task_set) == 10
    assert {task.mode for task in task_set} == {"separate"}
    assert {task.kept for task in task_set} == {("/app",)}
    assert not task_set.passed_over
    assert len(competition.pin_tasks(task_set).text().splitlines()) == 11


@pytest.mark.parametrize("name", IDS)
def test_a_task_is_whole_and_every_step_of_its_image_can_be_carried_out(name: str) -> None:
    task = tasks.read_task(SET / name)
    assert task.solution is not None
    assert task.plan is not None
    assert task.plan.checked().base == "localhost/assay-base:12"
    context = Context.open(task.environment)
    assert all(context.placed(step) for step in task.plan.steps if isinstance(step, Copy))
    assert task.settings.agent.timeout_sec >= 60
    assert task.any_base


@pytest.mark.parametrize("name", IDS)
def test_its_scripts_can_be_parsed_and_are_executable(name: str) -> None:
    for file in (SET / name / "solution" / "solve.sh", SET / name / "tests" / "test.sh"):
        assert file.stat().st_mode & stat.S_IXUSR
        subprocess.run(["bash", "-n", file], check=True)
    ast.parse((SET / name / "tests" / "check.py").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", IDS)
def test_its_tests_read_the_agents_work_and_start_nothing_of_it(name: str) -> None:
    script = (SET / name / "tests" / "test.sh").read_text(encoding="utf-8")
    assert "python3 -I /tests/check.py" in script
    assert "/app" not in script
    assert "/logs/verifier/reward.txt" in script, "Harbor reads its verdict there"


@pytest.mark.parametrize("folder", AGENTS, ids=lambda folder: folder.name)
def test_an_agent_can_be_loaded_and_its_scripts_parsed(folder: Path) -> None:
    agent = load_agent(folder)
    assert agent.name == folder.name
    assert not agent.model
    for file in folder.glob("*.sh"):
        subprocess.run(["bash", "-n", file], check=True)
    for file in folder.glob("*.py"):
        ast.parse(file.read_text(encoding="utf-8"))


def harbor(trial: Path) -> float:
    """The reward as Harbor reads it of /logs/verifier: reward.json first, else reward.txt; it goes by nothing else."""
    as_json, text = trial / "tests" / "reward.json", trial / "tests" / "reward.txt"
    if as_json.exists():
        rewards: dict[str, float] = json.loads(as_json.read_text())
        (value,) = rewards.values()
        return float(value)
    assert text.exists(), "RewardFileNotFoundError"
    assert text.stat().st_size, "RewardFileEmptyError"
    return float(text.read_text())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", IDS)
def test_harbor_gives_the_same_verdict(name: str, tmp_path: Path) -> None:
    if missing := [program for program in ("python3", "git", "sqlite3") if not Path("/usr/bin", program).exists()]:
        pytest.skip(f"the tasks need {', '.join(missing)}: tools/system installs them")
    task = tasks.read_task(SET / name)
    for agent, outcome, reward in (("oracle", "pass", 1.0), ("noop", "fail", 0.0)):
        tried = try_(tmp_path, task, BUILT_IN[agent], name=agent)
        assert (tried.verdict.outcome, harbor(tmp_path / agent)) == (outcome, reward), tried.message


def test_no_two_agents_are_the_same_submission() -> None:
    assert len(AGENTS) == 6
    assert len({load_agent(agent).digest for agent in AGENTS}) == 6
