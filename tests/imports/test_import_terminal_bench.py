"""Terminal-Bench 1 runs in every layout that people hand in, and what is refused. FORMATS: Terminal-Bench 1 run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput
from assay.imports import ImportOptions, terminal_bench
from assay.imports.trials import FailureCause

START = "2025-08-10T05:27:18.478461+00:00"


def result(task: str, resolved: bool | None = True, attempt: str = "1-of-1.2025-08-10__05-27-18", **more: Any) -> dict[str, Any]:
    return {
        "id": "x",
        "trial_name": f"{task}.{attempt}",
        "task_id": task,
        "instruction": "do",
        "is_resolved": resolved,
        "failure_mode": "unset",
        "parser_results": {"test": "passed"},
        "trial_started_at": START,
    } | more


def put(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def put_trial(folder: Path, content: dict[str, Any]) -> Path:
    """A trial's file in the folder of a run."""
    return put(folder / content["task_id"] / content["trial_name"] / "results.json", content)


def cells(src: Path, options: ImportOptions | None = None) -> dict[tuple[str, str, str, int], bool | None]:
    return {(t.agent, t.validator, t.task, t.trial): t.resolved for t in terminal_bench.read(src, options)}


def test_a_file_for_each_trial(tmp_path: Path) -> None:
    for run, resolved in (("2025-08-10__05-27-18", True), ("2025-08-11__01-00-00", False)):
        put_trial(tmp_path / "codex_gpt-5" / run, result("t1", resolved))
        put_trial(tmp_path / "codex_gpt-5" / run, result("t.2", None, failure_mode="agent_timeout"))
    expected = {
        ("codex_gpt-5", "run-1", "t1", 1): True,
        ("codex_gpt-5", "run-2", "t1", 1): False,
        ("codex_gpt-5", "run-1", "t.2", 1): None,
        ("codex_gpt-5", "run-2", "t.2", 1): None,
    }
    assert cells(tmp_path) == expected, "a folder of agents"
    assert cells(tmp_path / "codex_gpt-5") == expected, "an agent's folder"
    first = {key: value for key, value in expected.items() if key[1] == "run-1"}
    assert cells(tmp_path / "codex_gpt-5" / "2025-08-10__05-27-18") == first, "a run, called by the folder above it"


def test_a_file_for_a_whole_run(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        rows = [result("t1", attempt="1-of-1.x"), result("t2", number == 10, attempt="1-of-1.x")]
        put(tmp_path / "a" / f"run{number}" / "results.json", {"id": "r", "results": rows, "accuracy": 0.5})
    outcomes = cells(tmp_path)
    assert len(outcomes) == 6
    assert {key[1]: value for key, value in outcomes.items() if key[2] == "t2"} == {"run-1": False, "run-2": False, "run-3": True}
    assert cells(tmp_path / "a" / "run1" / "results.json") == {("a", "run-1", "t1", 1): True, ("a", "run-1", "t2", 1): False}


def test_attempts_without_runs_are_runs(tmp_path: Path) -> None:
    for attempt in range(1, 6):
        put_trial(tmp_path / "orchestrator", result("t1", attempt == 3, attempt=f"{attempt}-of-5"))
    expected = {("orchestrator", f"run-{k}", "t1", 1): k == 3 for k in range(1, 6)}
    assert cells(tmp_path) == expected
    assert cells(tmp_path / "orchestrator") == expected
    as_trials = cells(tmp_path, ImportOptions(attempts="trials"))
    assert as_trials == {("orchestrator", "run-1", "t1", k): k == 3 for k in range(1, 6)}


def test_the_three_layouts_side_by_side(tmp_path: Path) -> None:
    put_trial(tmp_path / "each" / "2025-08-10__05-27-18", result("t"))
    put(tmp_path / "whole" / "run1_2025-08-10__05-27-18" / "results.json", {"results": [result("t")]})
    for attempt in (1, 2):
        put_trial(tmp_path / "bare", result("t", attempt=f"{attempt}-of-2"))
    assert sorted(cells(tmp_path)) == [
        ("bare", "run-1", "t", 1),
        ("bare", "run-2", "t", 1),
        ("each", "run-1", "t", 1),
        ("whole", "run-1", "t", 1),
    ]


def test_attempts_within_several_runs_are_trials(tmp_path: Path) -> None:
    for run in ("2025-08-10__05-27-18", "2025-08-11__05-27-18"):
        for attempt in (1, 2):
            put_trial(tmp_path / "a" / run, result("t", attempt=f"{attempt}-of-2.{run}"))
    assert sorted(cells(tmp_path)) == [("a", f"run-{r}", "t", k) for r in (1, 2) for k in (1, 2)]
    with pytest.raises(BadInput, match=r"agent 'a' has 2 runs; attempts can stand for runs only"):
        terminal_bench.read(tmp_path, ImportOptions(attempts="runs"))


def test_attempts_that_carry_the_id_of_a_run_are_not_an_agent(tmp_path: Path) -> None:
    for attempt in (1, 2):
        put_trial(tmp_path / "a" / "nightly", result("t", attempt=f"{attempt}-of-2.nightly"))
    assert sorted(cells(tmp_path)) == [("a", "run-1", "t", 1), ("a", "run-2", "t", 1)]


def test_a_run_told_twice_gives_every_trial_twice_for_the_cells_to_compare(tmp_path: Path) -> None:
    run = tmp_path / "a" / "2025-08-10__05-27-18"
    put_trial(run, result("t"))
    put(run / "results.json", {"results": [result("t")]})
    trials = terminal_bench.read(tmp_path)
    assert len(trials) == 2
    assert len({(t.agent, t.validator, t.task, t.trial) for t in trials}) == 1


def test_whose_run_it_is(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "2025-08-10__05-27-18"
    put_trial(run, result("t"))
    assert {key[0] for key in cells(tmp_path / "runs")} == {"runs"}
    put(run / "run_metadata.json", {"agent_name": "terminus", "model_name": "anthropic/claude-4"})
    assert {key[0] for key in cells(tmp_path / "runs")} == {"terminus_claude-4"}
    assert {key[0] for key in cells(run)} == {"terminus_claude-4"}
    assert {key[0] for key in cells(tmp_path / "runs", ImportOptions(agent="mine"))} == {"mine"}


def test_troubles_and_times(tmp_path: Path) -> None:
    run = tmp_path / "a" / "2025-08-10__05-27-18"
    modes = ["unset", "none", None, "agent_timeout", "test_timeout", "agent_installation_failed", "parse_error", "moon_phase"]
    for number, mode in enumerate(modes):
        put_trial(run, result(f"t{number}", None, failure_mode=mode))
    put_trial(run, result("naive", trial_started_at="2025-08-10T05:27:18"))
    put_trial(run, result("undated", trial_started_at=None))
    imported = terminal_bench.read(tmp_path)
    by_task = {t.task: t for t in imported}
    assert [by_task[f"t{n}"].trouble for n in range(len(modes))] == [
        FailureCause.NONE,
        FailureCause.NONE,
        FailureCause.NONE,
        FailureCause.AGENT_TIMEOUT,
        FailureCause.TEST_TIMEOUT,
        FailureCause.SETUP,
        FailureCause.AGENT,
        FailureCause.ELSEWHERE,
    ]
    assert by_task["undated"].started_at is None
    assert imported.notes == (
        "1 start times have no time zone and were read as UTC",
        "failure mode 'moon_phase' is not known here: an error, unless the tests passed",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"task_id": "t", "is_resolved": tr', r"results\.json:1: is not JSON"),
        ('{"task_id": "t",\n"is_resolved": true', r"results\.json:2: ends in the middle; was the run stopped"),
        ("", r"results\.json:1: ends in the middle"),
        ("[1]", r"results\.json: holds a list where an object is expected"),
        ("[" * 100_000, r"results\.json: is nested too deeply"),
        ('{"n": ' + "9" * 5000 + "}", r"results\.json: has a number too long"),
        ('{"n": 1e99999999999999999999}', r"results\.json: has a number too long"),
        ({"is_resolved": True}, r"results\.json: task_id: is missing"),
        ({"task_id": 5, "is_resolved": True}, r"results\.json: task_id: is a number, not text"),
        ({"task_id": "", "is_resolved": True}, r"results\.json: task_id: is empty"),
        ({"task_id": "t"}, r"results\.json: is_resolved: is missing"),
        ({"task_id": "t", "is_resolved": 1}, r"results\.json: is_resolved: is a number; it must be true, false or null"),
        ({"task_id": "t", "is_resolved": "true"}, r"results\.json: is_resolved: is text"),
        ({"task_id": "t", "is_resolved": True, "failure_mode": ["x"]}, r"results\.json: failure_mode: is a list, not text"),
        (
            {"task_id": "t", "is_resolved": True, "trial_name": "t.6-of-5"},
            r"results\.json: trial_name: 't\.6-of-5' counts wrongly",
        ),
        ({"task_id": "t", "is_resolved": True, "trial_name": "t.0-of-5"}, r"results\.json: trial_name: .* counts wrongly"),
        (
            {"task_id": "t", "is_resolved": True, "trial_started_at": "noon"},
            r"results\.json: trial_started_at: 'noon' is not a time",
        ),
        ({"results": {}}, r"results\.json: results: is an object, not a list"),
        ({"results": [5]}, r"results\.json: results\[0\]: is a number, not an object"),
        ({"results": [result("t"), {"task_id": "u"}]}, r"results\.json: results\[1\]\.is_resolved: is missing"),
        ({"results": []}, r"has no trial of Terminal-Bench in it"),
    ],
)
def test_what_cannot_be_read_is_refused_by_file_and_field(tmp_path: Path, content: object, message: str) -> None:
    put(tmp_path / "a" / "run1" / "t" / "t.1-of-1.x" / "results.json", content)
    with pytest.raises(BadInput, match=message):
        terminal_bench.read(tmp_path)


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    put(tmp_path / "run" / "results.json", "").write_bytes(b'{\n"task_id": "\xff"}')
    with pytest.raises(BadInput, match=r"results\.json:2: is not UTF-8"):
        terminal_bench.read(tmp_path)


def test_no_such_folder_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder; give the folder that the harness wrote"):
        terminal_bench.read(tmp_path / "absent")
    with pytest.raises(BadInput, match="has no trial of Terminal-Bench in it"):
        terminal_bench.read(tmp_path)


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    put_trial(outside / "run", result("stolen"))
    src = tmp_path / "src"
    put_trial(src / "a" / "2025-08-10__05-27-18", result("t"))
    (src / "linked").symlink_to(outside)
    (src / "a" / "results.json").symlink_to(outside / "run" / "stolen" / "stolen.1-of-1.2025-08-10__05-27-18" / "results.json")
    (src / "loop").symlink_to(src)
    imported = terminal_bench.read(src)
    assert [t.task for t in imported] == ["t"]
    assert imported.notes == ("3 symbolic links not followed",)


def test_what_the_agent_left_below_a_trial_is_not_read(tmp_path: Path) -> None:
    path = put_trial(tmp_path / "a" / "2025-08-10__05-27-18", result("t", False))
    put(path.parent / "work" / "results.json", result("t", True, attempt="1-of-1.forged"))
    unfinished = tmp_path / "a" / "2025-08-10__05-27-18" / "u" / "u.1-of-1.x"
    put(unfinished / "agent-logs" / "u" / "v" / "results.json", result("u", True))
    assert cells(tmp_path) == {("a", "run-1", "t", 1): False}


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "a" / "2025-08-10__05-27-18"
    put_trial(run, result("t1"))
    put_trial(run, result("t2"))
    with monkeypatch.context() as patch:
        patch.setattr("assay.imports.trials.MAX_BYTES", 20)
        with pytest.raises(BadInput, match=r"results\.json: is larger than 20 bytes"):
            terminal_bench.read(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("assay.imports.trials.MAX_ENTRIES", 5)
        with pytest.raises(BadInput, match="has more than 5 files and folders"):
            terminal_bench.read(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("assay.imports.terminal_bench.MAX_TRIALS", 1)
        with pytest.raises(BadInput, match="holds more than 1 trials"):
            terminal_bench.read(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("assay.imports.trials.MAX_DEPTH", 3)
        with pytest.raises(BadInput, match="has no trial"):
            terminal_bench.read(tmp_path)
        assert cells(tmp_path / "a" / "2025-08-10__05-27-18")
