"""Trials as Harbor's jobs, and back. FORMATS: Harbor job."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay import imports
from assay.errors import BadInput
from assay.imports import ImportOptions
from assay.judge.running import RunOptions
from assay.judge.terminal import agent as agents
from assay.judge.terminal.competition import submit_agent
from assay.judge.terminal.export import harbor
from assay.judge.terminal.record import TrialStore
from assay.judge.terminal.run import run
from assay.records import Tests, record
from judge_kit import bubblewrap, make_agent, make_competition, make_task

ORACLE, NOOP = agents.BUILT_IN["oracle"].digest, agents.BUILT_IN["noop"].digest
Cell = tuple[str, str, str, int]


def records(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for file in (folder / "evidence").glob("*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            evidence = record(json.loads(line))
            assert isinstance(evidence, Tests)
            rows.append(evidence.model_dump())
    return sorted(rows, key=str)


def back(folder: Path, jobs: Path, target: Path) -> list[dict[str, Any]]:
    """What an import of the jobs makes of them."""
    imports.competition(imports.harbor.read(jobs), target, scheme=(folder / "scheme.toml").read_text(), options=ImportOptions())
    return records(target if (target / "evidence").is_dir() else next(target.rglob("evidence")).parent)


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    bubblewrap()
    folder = tmp_path / "c"
    for name in ("t-1", "t2"):
        make_task(folder / "tasks" / name)
    make_competition(folder, {"ann": ORACLE, "bob": NOOP, "none": ""}, validators=("a", "B"), trials=2)
    for validator in ("a", "B"):
        run(folder, validator)
    return folder


@pytest.mark.full
def test_there_and_back(judged: Path, tmp_path: Path) -> None:
    done = harbor(judged, tmp_path / "jobs")
    assert (done.trials, done.bare, list(done.jobs)) == (16, 0, ["B", "a"])
    assert back(judged, tmp_path / "jobs", tmp_path / "again") == records(judged)
    home = tmp_path / "home"
    shutil.copytree(judged, home, ignore=shutil.ignore_patterns("evidence", "trials"))
    imports.competition(imports.harbor.read(tmp_path / "jobs"), home, options=ImportOptions(into="add"))
    assert records(home) == records(judged)
    (trial,) = [place for place in done.jobs["a"].glob("t2__*") if _result(place)["agent_info"]["name"] == "ann"][:1]
    result = _result(trial)
    assert result["verifier_result"] == {"rewards": {"reward": 1.0}}
    assert result["exception_info"] is None
    assert (trial / "verifier" / "reward.txt").read_text() == "1\n"
    assert (trial / "verifier" / "test-stdout.txt").is_file()
    assert (trial / "agent" / "stdout.txt").is_file()
    assert (trial / "trial.log").read_text() == "pass: passed\n"
    assert json.loads((done.jobs["a"] / "result.json").read_text())["n_total_trials"] == 8

    only = harbor(judged, tmp_path / "one", validators=["B"])
    assert (only.trials, list(only.jobs)) == (8, ["B"])
    for file in (judged / "trials").rglob("result.json"):
        file.unlink()
    assert harbor(judged, tmp_path / "bare").bare == 16
    assert back(judged, tmp_path / "bare", tmp_path / "third") == records(judged)


def _result(trial: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((trial / "result.json").read_text(encoding="utf-8"))
    return result


@pytest.mark.full
@pytest.mark.parametrize("rule", ["fail", "verify"])
def test_time_outs(tmp_path: Path, rule: str) -> None:
    bubblewrap()
    folder = tmp_path / "c"
    make_task(folder / "tasks" / "agent", agent_seconds=1, tests="test -e /app/begun\n", solution=None)
    make_task(folder / "tasks" / "tests", tests_seconds=1, tests="sleep 3000\n", solution=None)
    make_task(folder / "tasks" / "work", agent_seconds=1, solution=None)
    make_competition(folder, {"ann": ""}, agent_timeout=rule)
    make_agent(
        tmp_path / "slow", 'touch begun; test -e "$ASSAY_INSTRUCTION" && grep -q Wait /instruction.md && exit; sleep 3000\n'
    )
    (folder / "tasks" / "tests" / "instruction.md").write_text("Wait.\n")
    make_competition(folder, {"ann": ""}, agent_timeout=rule)
    submit_agent(folder, "ann", str(tmp_path / "slow"))
    run(folder, "val-1")
    done = harbor(folder, tmp_path / "jobs")
    results = {result["task_name"]: result for result in map(_result, done.jobs["val-1"].glob("*__*"))}
    kinds = {task: (result["exception_info"] or {}).get("exception_type") for task, result in results.items()}
    assert kinds == {"agent": "AgentTimeoutError", "tests": "VerifierTimeoutError", "work": "AgentTimeoutError"}
    rewards = {task: (result["verifier_result"] or {}).get("rewards") for task, result in results.items()}
    if rule == "verify":
        assert rewards == {"agent": {"reward": 1.0}, "tests": {"reward": 0.0}, "work": {"reward": 0.0}}
    else:
        assert rewards["agent"] is rewards["work"] is None
    expected = {"fail": ("timeout", "timeout", "timeout"), "verify": ("pass", "timeout", "fail")}[rule]
    assert tuple(row["outcome"] for row in sorted(records(folder), key=lambda row: row["task"])) == expected
    assert back(folder, tmp_path / "jobs", tmp_path / "again") == records(folder)


@pytest.mark.full
def test_what_is_not_exported(judged: Path, tmp_path: Path) -> None:
    submit_agent(judged, "ann", "true")  # what was judged is no longer its submission
    assert harbor(judged, tmp_path / "jobs").trials == 8
    with pytest.raises(BadInput, match="is not empty"):
        harbor(judged, tmp_path / "jobs")
    with pytest.raises(BadInput, match="there is no validator 'b'"):
        harbor(judged, tmp_path / "other", validators=["b"])
    TrialStore(judged, "a").evidence.unlink()
    TrialStore(judged, "B").evidence.unlink()
    with pytest.raises(BadInput, match="no evidence to export"):
        harbor(judged, tmp_path / "none")


@pytest.mark.full
def test_files_that_are_there_and_not_to_be_replaced(judged: Path, tmp_path: Path) -> None:
    run(judged, "a", RunOptions())
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="cannot be written"):
        harbor(judged, tmp_path / "file")
