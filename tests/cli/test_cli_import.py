"""`assay import`: what other harnesses wrote becomes a competition that settles."""

import json
from pathlib import Path

import pytest
import rfc8785

from cli_kit import files_under, output, refused, run


def table(place: Path, agents: int = 2, runs: int = 3, tasks: int = 4) -> Path:
    """A table of trials: agent k passes all but k tasks."""
    rows = [
        f"agent-{agent},{number},task-{task},{int(task > agent)},unset,2026-01-0{number}T00:00:00Z"
        for agent in range(1, agents + 1)
        for number in range(1, runs + 1)
        for task in range(1, tasks + 1)
    ]
    file = place / "trials.csv"
    file.write_text("\n".join(["agent,run,task,resolved,failure_mode,started_at", *rows, ""]), encoding="utf-8")
    return file


def test_a_table_becomes_a_competition(tmp_path: Path) -> None:
    shown = output("import", "csv", table(tmp_path), tmp_path / "season")
    assert "2 agents, 3 runs and 4 tasks: 24 trials." in shown
    assert "Next:" in shown
    document = json.loads(output("settle", tmp_path / "season", "--json"))
    assert [(row["participant"], row["score"]) for row in document["agreed"]] == [("agent-1", "0.75"), ("agent-2", "0.5")]


def test_the_report_is_canonical_json_too(tmp_path: Path) -> None:
    shown = run("import", "csv", table(tmp_path), tmp_path / "season", "--json").stdout_bytes
    document = json.loads(shown)
    assert rfc8785.dumps(document) + b"\n" == shown
    assert (document["agents"], document["added"]) == (2, 24)


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    file = table(tmp_path)
    file.write_text(file.read_text(encoding="utf-8").replace("agent,run,task", "model,seed,problem", 1), encoding="utf-8")
    assert "--column agent=COLUMN" in refused("import", "csv", file, tmp_path / "season")
    words = ["--column", "agent=model", "--column", "run=seed", "--column", "task=problem"]
    assert "2 agents" in output("import", "csv", file, tmp_path / "season", *words)


def test_options_reach_the_import(tmp_path: Path) -> None:
    words = ["--epoch", "7", "--stake", "500", "--no-uids", "--agent", "only", "--scheme", "term-challenge"]
    output("import", "csv", table(tmp_path, agents=1), tmp_path / "season", *words)
    document = json.loads(output("settle", tmp_path / "season", "--json"))
    assert (document["epoch"], document["total_stake"], document["ranking"]) == (7, "1500", ["only"])
    assert document["weights"][0]["uid"] is None


def test_adding_and_making_anew(tmp_path: Path) -> None:
    file, season = table(tmp_path), tmp_path / "season"
    output("import", "csv", file, season)
    before = files_under(season)
    assert "is not empty" in refused("import", "csv", file, season)
    assert "24 trials, 0 of them new." in output("import", "csv", file, season, "--add")
    assert files_under(season) == before
    output("import", "csv", file, season, "--force", "--stake", "7")
    assert files_under(season) != before
    assert "exclude each other" in run("import", "csv", file, season, "--add", "--force", code=2).stderr


def test_a_scheme_of_ones_own(tmp_path: Path) -> None:
    scheme = tmp_path / "mine.toml"
    scheme.write_text('[scheme]\nname = "mine"\n[score]\nkind = "tests"\n', encoding="utf-8")
    assert "season: mine 1.0.0" in output("import", "csv", table(tmp_path), tmp_path / "season", "--scheme", scheme)
    scheme.write_bytes(b"\xff")
    assert "is not UTF-8" in refused("import", "csv", tmp_path / "trials.csv", tmp_path / "other", "--scheme", scheme)


@pytest.mark.parametrize("harness", ["tb", "harbor"])
def test_what_is_no_run_is_refused(tmp_path: Path, harness: str) -> None:
    (tmp_path / "src").mkdir()
    assert refused("import", harness, tmp_path / "src", tmp_path / "season")
    assert refused("import", harness, tmp_path / "nowhere", tmp_path / "season")
    assert not (tmp_path / "season").exists()


def test_a_terminal_bench_run(tmp_path: Path) -> None:
    for number in range(1, 4):
        trials = [{"task_id": f"task-{task}", "trial_name": f"task-{task}.1-of-1", "is_resolved": task == 1} for task in (1, 2)]
        place = tmp_path / "runs" / f"run-{number}"
        place.mkdir(parents=True)
        (place / "results.json").write_text(json.dumps({"results": trials}), encoding="utf-8")
    shown = output("import", "tb", tmp_path / "runs", tmp_path / "season", "--agent", "mine")
    assert "1 agent, 3 runs and 2 tasks: 6 trials." in shown
    assert json.loads(output("settle", tmp_path / "season", "--json"))["agreed"][0]["score"] == "0.5"
