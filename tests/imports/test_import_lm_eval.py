"""lm-evaluation-harness: real samples, written by lm-eval with its dummy model (harness-logs/), and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput
from assay.imports import ImportOptions, lm_eval
from assay.imports.lm_eval import MetricChoice
from assay.imports.trials import decide, threshold_of
from cli_kit import output, refused

LOGS = Path(__file__).parent / "harness-logs" / "lm-eval"
Json = dict[str, Any]


def samples(place: Path, rows: list[Json], task: str = "gsm8k", time: str = "2026-01-05T12-00-00.123456") -> Path:
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"samples_{task}_{time}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def a_row(doc: object, value: object, **more: Any) -> Json:
    return {"doc_id": doc, "doc": {}, "resps": [], "metrics": ["exact_match"], "exact_match": value} | more


def test_real_samples_of_two_models(tmp_path: Path) -> None:
    trials = lm_eval.read(LOGS, None, MetricChoice("acc"))
    assert {(trial.agent, trial.task, trial.validator) for trial in trials} == {
        (agent, f"tiny_choice/{doc}", "run-1") for agent in ("one", "two") for doc in range(3)
    }
    kept = [json.loads(line) for file in LOGS.rglob("samples_*") for line in file.read_text(encoding="utf-8").splitlines()]
    assert sum(trial.resolved is True for trial in trials) == sum(row["acc"] for row in kept)
    message = refused("import", "lm-eval", LOGS, tmp_path / "board")
    assert "metrics: has 2 metrics; name the one that decides: --metric, one of acc, acc_norm" in message
    shown = output("import", "lm-eval", LOGS, tmp_path / "board", "--metric", "acc")
    assert "2 agents, 1 run and 3 tasks: 6 trials." in shown
    assert output("settle", tmp_path / "board").count("tiny_choice") == 0
    rows = json.loads(output("settle", tmp_path / "board", "--json"))["agreed"]
    assert {row["status"] for row in rows} == {"agreed"}


@pytest.mark.parametrize(
    ("value", "threshold", "what"),
    [
        (1.0, None, "pass"),
        (0, None, "fail"),
        (True, None, "pass"),
        (0.65, "0.65", "pass"),
        (0.6499999999999999, "0.65", "fail"),
        (-3.5, "-4", "pass"),
        (float("nan"), None, "error"),
        (None, None, "error"),
    ],
)
def test_values(tmp_path: Path, value: object, threshold: str | None, what: str) -> None:
    file = samples(tmp_path, [a_row(0, value)])
    assert [decide(trial) for trial in lm_eval.read(file, None, MetricChoice(threshold=threshold_of(threshold)))] == [what]


def test_filters_choose_the_lines(tmp_path: Path) -> None:
    rows = [a_row(0, 1, filter="flexible-extract"), a_row(0, 0, filter="strict-match")]
    file = samples(tmp_path / "model", rows)
    for name, what in (("flexible-extract", "pass"), ("strict-match", "fail")):
        assert [decide(trial) for trial in lm_eval.read(file, None, MetricChoice(filter=name))] == [what]
    assert "says fail for agent 'model'" in refused("import", "lm-eval", file, tmp_path / "board")
    with pytest.raises(BadInput, match="has no samples"):
        lm_eval.read(file, None, MetricChoice(filter="none"))


def test_evaluations_of_a_task_are_runs_by_time(tmp_path: Path) -> None:
    for day in (5, 6):
        samples(tmp_path / "m", [a_row(0, day == 6)], time=f"2026-01-0{day}T12-00-00")
    samples(tmp_path / "m", [a_row(0, 1)], task="arc_easy", time="2026-01-07T12-00-00")
    outcomes = sorted((trial.task, trial.validator, decide(trial)) for trial in lm_eval.read(tmp_path))
    assert outcomes == [("arc_easy/0", "run-1", "pass"), ("gsm8k/0", "run-1", "fail"), ("gsm8k/0", "run-2", "pass")]
    assert {trial.agent for trial in lm_eval.read(tmp_path)} == {"m"}
    assert {trial.agent for trial in lm_eval.read(tmp_path, ImportOptions(agent="mine"))} == {"mine"}


def test_the_results_name_the_model(tmp_path: Path) -> None:
    file = samples(tmp_path / "org__model", [a_row(0, 1)])
    (file.parent / "results_2026-01-05T12-00-00.123456.json").write_text('{"model_name": "org/model"}', encoding="utf-8")
    assert {trial.agent for trial in lm_eval.read(tmp_path)} == {"org/model"}


def test_documents_of_two_versions_are_not_compared(tmp_path: Path) -> None:
    samples(tmp_path / "a", [a_row(0, 1, doc_hash="x")])
    samples(tmp_path / "b", [a_row(0, 1, doc_hash="y")])
    with pytest.raises(BadInput, match="document 0 of 'gsm8k' is not the one that another evaluation had"):
        lm_eval.read(tmp_path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (a_row(None, 1), r":1: doc_id: is null"),
        (a_row(0, "C"), "'exact_match' is not a number"),
        (a_row(0, 0.5), "'exact_match' is 0.5, neither 0 nor 1; give the least score that is a pass, for example --threshold"),
        (a_row(0, 1, metrics=["acc"]), "has no 'acc'"),
        ({"doc_id": 0, "resps": []}, "has no metrics"),
        (7, "holds a number where an object is expected"),
    ],
)
def test_what_cannot_be_read_is_refused_by_line(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        lm_eval.read(samples(tmp_path, [row]))


def test_files_that_are_not_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "samples_x.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(BadInput, match="does not have the name of a file of samples"):
        lm_eval.read(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="--log_samples"):
        lm_eval.read(tmp_path / "empty")
    with pytest.raises(BadInput, match="one attempt each"):
        lm_eval.read(LOGS, ImportOptions(attempts="runs"))
    monkeypatch.setattr(lm_eval, "MAX_LINE", 50)
    with pytest.raises(BadInput, match=":1: is longer than 50 bytes"):
        lm_eval.read(LOGS)
    monkeypatch.setattr(lm_eval, "MAX_LINE", 64_000_000)
    monkeypatch.setattr(lm_eval, "MAX_TRIALS", 2)
    with pytest.raises(BadInput, match="holds more than 2 documents"):
        lm_eval.read(LOGS, None, MetricChoice("acc"))


@pytest.mark.skipif("ASSAY_LM_EVAL" not in os.environ, reason="ASSAY_LM_EVAL names no lm_eval to write samples with")
def test_samples_that_lm_eval_writes_now(tmp_path: Path) -> None:
    script = LOGS.parent / "write_lm_eval.sh"
    subprocess.run(["bash", str(script), os.environ["ASSAY_LM_EVAL"], str(tmp_path / "out")], check=True, timeout=1200)
    trials = lm_eval.read(tmp_path / "out", None, MetricChoice("acc"))
    assert {(trial.agent, trial.task) for trial in trials} == {
        (agent, f"tiny_choice/{n}") for agent in ("one", "two") for n in range(3)
    }
