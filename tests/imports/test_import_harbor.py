"""Harbor jobs: rewards, exceptions, attempts, and what is refused. FORMATS: Harbor job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput
from assay.imports import ImportOptions, harbor
from assay.imports.trials import FailureCause


def result(task: str, reward: object = 1.0, trial: str = "a1b2c3d", **more: Any) -> dict[str, Any]:
    return {
        "id": "x",
        "task_name": task,
        "trial_name": f"{task}__{trial}",
        "trial_uri": "file:///x",
        "agent_info": {
            "name": "terminus-2",
            "version": "2.0.0",
            "model_info": {"name": "claude-sonnet-4-5", "provider": "anthropic"},
        },
        "agent_result": {"cost_usd": 0.25},
        "verifier_result": None if reward is None else {"rewards": {"reward": reward}},
        "exception_info": None,
        "started_at": "2026-01-05T10:00:00.123456Z",
    } | more


def put(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def put_trial(job: Path, content: dict[str, Any]) -> Path:
    return put(job / content["trial_name"] / "result.json", content)


def raised(kind: str) -> dict[str, Any]:
    return {"exception_info": {"exception_type": kind, "exception_message": "m", "exception_traceback": "t"}}


def cells(src: Path, options: ImportOptions | None = None) -> dict[tuple[str, str, str, int], bool | None]:
    return {(t.agent, t.validator, t.task, t.trial): t.resolved for t in harbor.read(src, options)}


KEY = "terminus-2_claude-sonnet-4-5"


def test_jobs_are_runs(tmp_path: Path) -> None:
    for number, job in enumerate(("2026-01-05__10-00-00", "2026-01-06__10-00-00"), start=1):
        put_trial(tmp_path / job, result("t1", 1.0))
        put_trial(tmp_path / job, result("org/t2".replace("/", "-"), 0.5 if number == 1 else 1))
        put(tmp_path / job / "result.json", {"id": "j", "started_at": "2026-01-05T10:00:00Z", "n_total_trials": 2, "stats": {}})
        put(tmp_path / job / "config.json", {})
    expected = {
        (KEY, "run-1", "t1", 1): True,
        (KEY, "run-1", "org-t2", 1): False,
        (KEY, "run-2", "t1", 1): True,
        (KEY, "run-2", "org-t2", 1): True,
    }
    assert cells(tmp_path) == expected
    first = {key: value for key, value in expected.items() if key[1] == "run-1"}
    assert cells(tmp_path / "2026-01-05__10-00-00") == first


def test_attempts_of_the_only_job_are_runs_by_their_start(tmp_path: Path) -> None:
    for hour, trial, reward in ((12, "aaa", 0), (10, "bbb", 1), (11, "ccc", 0)):
        put_trial(tmp_path / "job", result("t", reward, trial, started_at=f"2026-01-05T{hour}:00:00Z"))
    assert cells(tmp_path) == {(KEY, "run-1", "t", 1): True, (KEY, "run-2", "t", 1): False, (KEY, "run-3", "t", 1): False}
    as_trials = cells(tmp_path, ImportOptions(attempts="trials"))
    assert as_trials == {(KEY, "run-1", "t", 1): True, (KEY, "run-1", "t", 2): False, (KEY, "run-1", "t", 3): False}
    put_trial(tmp_path / "job2", result("t"))
    assert (KEY, "run-1", "t", 3) in cells(tmp_path)
    with pytest.raises(BadInput, match="has 2 jobs; attempts can stand for runs only where there is one job"):
        harbor.read(tmp_path, ImportOptions(attempts="runs"))


def test_who_ran(tmp_path: Path) -> None:
    put_trial(tmp_path / "j", result("t1"))
    put_trial(tmp_path / "j", result("t2", agent_info={"name": "oracle", "version": None, "model_info": None}))
    put_trial(
        tmp_path / "j",
        result("t3", agent_info={"name": "x", "version": "1", "model_info": {"name": "lab/model", "provider": "lab"}}),
    )
    agents = {t.task: (t.agent, t.version) for t in harbor.read(tmp_path)}
    assert agents == {"t1": (KEY, "2.0.0 anthropic/claude-sonnet-4-5"), "t2": ("oracle", ""), "t3": ("x_model", "1 lab/model")}
    assert {t.agent for t in harbor.read(tmp_path, ImportOptions(agent="mine"))} == {"mine"}


@pytest.mark.parametrize(
    ("rewards", "resolved"),
    [
        ('{"reward": 1}', True),
        ('{"reward": 1.0}', True),
        ('{"reward": 1.00000000000000000001}', False),
        ('{"reward": 0.99999999999999999999}', False),
        ('{"reward": 0}', False),
        ('{"reward": 2}', False),
        ('{"reward": -1}', False),
        ('{"reward": NaN}', False),
        ('{"reward": null}', None),
        ('{"reward": 1, "style": 0.2}', True),
        ('{"reward": 0, "style": 1}', False),
        ('{"build": 1, "style": 1.0}', True),
        ('{"build": 1, "style": 0.9}', False),
        ('{"build": 1, "style": null}', None),
        ("{}", None),
        ("null", None),
    ],
)
def test_only_a_reward_of_exactly_one_passes(tmp_path: Path, rewards: str, resolved: bool | None) -> None:
    text = json.dumps(result("t", "REWARDS")).replace('{"reward": "REWARDS"}', rewards)
    put(tmp_path / "j" / "t__x" / "result.json", text)
    assert cells(tmp_path) == {(KEY, "run-1", "t", 1): resolved}


@pytest.mark.parametrize(
    ("exception", "trouble"),
    [
        ("AgentTimeoutError", FailureCause.AGENT_TIMEOUT),
        ("VerifierTimeoutError", FailureCause.TEST_TIMEOUT),
        ("AgentSetupTimeoutError", FailureCause.SETUP),
        ("NonZeroAgentExitCodeError", FailureCause.AGENT),
        ("RewardFileNotFoundError", FailureCause.AGENT),
        ("EnvironmentStartTimeoutError", FailureCause.ELSEWHERE),
        ("DockerException", FailureCause.ELSEWHERE),
        ("RateLimitError", FailureCause.ELSEWHERE),
        ("CancelledError", FailureCause.ELSEWHERE),
    ],
)
def test_exceptions(tmp_path: Path, exception: str, trouble: FailureCause) -> None:
    put_trial(tmp_path / "j", result("t", None, **raised(exception)))
    (trial,) = harbor.read(tmp_path)
    assert (trial.trouble, trial.mode, trial.resolved) == (trouble, exception, None)


def test_a_time_without_a_zone_is_utc_and_said(tmp_path: Path) -> None:
    put_trial(tmp_path / "j", result("t", started_at="2026-01-05T10:00:00.5"))
    imported = harbor.read(tmp_path)
    assert imported.notes == ("1 start times have no time zone and were read as UTC",)
    assert imported.trials[0].started_at is not None
    assert imported.trials[0].started_at.isoformat() == "2026-01-05T10:00:00.500000+00:00"


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in result("t").items() if key != name}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"task_name": "t"', r"result\.json:1: ends in the middle"),
        ({"anything": 1}, r"result\.json: task_name: is missing; is this a file of results"),
        (without("task_name"), r"result\.json: task_name: is missing"),
        (without("agent_info"), r"result\.json: agent_info: is missing"),
        (result("t", agent_info="x"), r"result\.json: agent_info: is text, not an object"),
        (result("t", agent_info={"version": "1"}), r"result\.json: agent_info\.name: is missing"),
        (
            result("t", agent_info={"name": "a", "model_info": {"name": 5}}),
            r"result\.json: agent_info\.model_info\.name: is a number, not text",
        ),
        (result("t", "1"), r"result\.json: verifier_result\.rewards\.reward: is text; a reward is a number"),
        (result("t", True), r"result\.json: verifier_result\.rewards\.reward: is a boolean"),
        (result("t", verifier_result={"rewards": [1]}), r"result\.json: verifier_result\.rewards: is a list, not an object"),
        (result("t", verifier_result=1), r"result\.json: verifier_result: is a number, not an object"),
        (result("t", exception_info={"x": 1}), r"result\.json: exception_info\.exception_type: is missing"),
        (result("t", config={"agent": {"kwargs": {"assay": 1}}}), r"result\.json: config\.agent\.kwargs\.assay: "),
        (
            result("t", config={"agent": {"kwargs": {"assay": {"kind": "given", "validator": "v"}}}}),
            r"result\.json: config\.agent\.kwargs\.assay",
        ),
        (result("t", started_at=17), r"result\.json: started_at: is a number, not text"),
        (result("t", started_at="noon"), r"result\.json: started_at: 'noon' is not a time"),
    ],
)
def test_what_cannot_be_read_is_refused_by_file_and_field(tmp_path: Path, content: object, message: str) -> None:
    put(tmp_path / "j" / "t__x" / "result.json", content)
    with pytest.raises(BadInput, match=message):
        harbor.read(tmp_path)


def test_only_what_harbor_wrote_is_read(tmp_path: Path) -> None:
    path = put_trial(tmp_path / "j", result("t", 0))
    put(path.parent / "artifacts" / "result.json", result("t", 1, "forged"))
    put(path.parent / "logs" / "result.json", result("t", 1, "forged"))
    unfinished = tmp_path / "j" / "u__y"
    put(unfinished / "verifier" / "result.json", {"reward": 1})
    put(unfinished / "agent" / "result.json", result("u", 1, "forged"))
    outside = put_trial(tmp_path.parent / f"{tmp_path.name}-outside", result("stolen"))
    (tmp_path / "j" / "v__z").symlink_to(outside.parent)
    imported = harbor.read(tmp_path)
    assert [(t.task, t.resolved) for t in imported] == [("t", False)]
    assert imported.notes == ("1 symbolic link not followed",)


def test_nothing_there(tmp_path: Path) -> None:
    put(tmp_path / "j" / "result.json", {"n_total_trials": 0, "stats": {}})
    with pytest.raises(BadInput, match=r"has no trial of Harbor in it \(result\.json\); give the folder of a job"):
        harbor.read(tmp_path)
    with pytest.raises(BadInput, match="is not a folder"):
        harbor.read(tmp_path / "j" / "result.json")
