"""Inspect AI's logs: real ones, written by inspect-ai with its mock model (harness-logs/), and what is refused. SPEC 2.1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput
from assay.imports import ImportOptions, Trial, inspect_ai
from assay.imports.inspect_ai import ScoreChoice
from assay.imports.trials import FailureCause, decide, passed, task_id, threshold_of
from cli_kit import output, refused

LOGS = Path(__file__).parent / "harness-logs" / "inspect"
BOARD, LIMITED, SHARES = LOGS / "board", LOGS / "limited", LOGS / "shares"
Json = dict[str, Any]


def summary(trial: Trial) -> tuple[str, str, str]:
    """The run, the sample and what it counts as."""
    return trial.validator, trial.task.partition("/")[2], decide(trial)


def a_log(**more: Any) -> Json:
    """A log of one model on two samples."""
    samples = [a_sample(1, "C"), a_sample(2, "I")]
    about: Json = {"task": "t", "task_id": "T", "model": "m", "created": "2026-01-01T00:00:00+00:00"}
    about |= {"dataset": {"sample_ids": [1, 2]}, "config": {"epochs": 1}}
    return {"version": 2, "status": "success", "eval": about | more.pop("eval", {}), "samples": samples} | more


def a_sample(name: object, value: object, **more: Any) -> Json:
    return {"id": name, "epoch": 1, "scores": {"match": {"value": value}}, "started_at": "2026-01-01T00:00:00Z"} | more


def written(place: Path, log: Json, name: str = "log.json") -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(json.dumps(log), encoding="utf-8")
    return place / name


def zipped(place: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return place


def outcomes(log: Json, place: Path, choice: ScoreChoice | None = None) -> list[str]:
    return [decide(trial) for trial in inspect_ai.read(written(place, log), None, choice)]


def test_real_logs_of_two_models_in_both_formats() -> None:
    trials = inspect_ai.read(BOARD)
    by_model = {
        model: sorted(summary(trial) for trial in trials if trial.agent == model) for model in ("mockllm/small", "mockllm/large")
    }
    ids = ("1", "2", "4", "the%20third")
    large = ("pass", "pass", "fail", "pass")
    assert by_model["mockllm/large"] == [
        (run, name, what) for run in ("run-1", "run-2") for name, what in zip(ids, large, strict=True)
    ]
    small = [("pass", "fail", "fail", "pass"), ("error", "fail", "fail", "pass")]
    assert by_model["mockllm/small"] == [
        (f"run-{run}", name, what) for run in (1, 2) for name, what in zip(ids, small[run - 1], strict=True)
    ]
    assert {trial.mode for trial in trials} == {"none", "error"}
    assert all(trial.started_at is not None for trial in trials)


def test_the_board_of_real_logs(tmp_path: Path) -> None:
    shown = output("import", "inspect", BOARD, tmp_path / "board")
    assert "2 agents, 2 runs and 4 tasks: 16 trials." in shown
    board = output("settle", tmp_path / "board")
    assert [line.split()[:3] for line in board.splitlines() if "mockllm" in line][:2] == [
        ["1", "mockllm/large", "0.75"],
        ["2", "mockllm/small", "0.5"],
    ]
    trials = output("import", "inspect", BOARD, tmp_path / "trials", "--attempts", "trials")
    assert "2 agents, 1 run and 4 tasks: 16 trials." in trials
    assert "trials = 2" in (tmp_path / "trials/scheme.toml").read_text(encoding="utf-8")


def test_a_limit_that_inspect_scored_is_the_agents_own() -> None:
    trials = inspect_ai.read(LIMITED)
    assert [(trial.mode, trial.trouble, decide(trial), decide(trial, strict_errors=True)) for trial in trials] == [
        ("limit: message", FailureCause.AGENT, "fail", "error")
    ] * 2


def test_several_scorers_and_shares_need_a_word(tmp_path: Path) -> None:
    message = refused("import", "inspect", SHARES, tmp_path / "board")
    assert "has several scores; name the scorer that decides: --scorer, one of share, match" in message
    assert "samples/1_epoch_1.json" in message
    message = refused("import", "inspect", SHARES, tmp_path / "board", "--scorer", "share")
    assert "the score by 'share' is 0.25, neither 0 nor 1" in message
    assert "--threshold 0.5" in message
    output("import", "inspect", SHARES, tmp_path / "board", "--scorer", "share", "--threshold", "0.5")
    assert json.loads(output("settle", tmp_path / "board", "--json"))["agreed"][0]["score"] == "0.75"
    assert "--threshold: 'half' is not a number" in refused("import", "inspect", SHARES, tmp_path / "x", "--threshold", "half")
    assert "has no score by 'nobody'" in refused("import", "inspect", SHARES, tmp_path / "x", "--scorer", "nobody")


def test_a_log_without_zstandard_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(BadInput, match=r"pip install 'assay\[inspect\]'"):
        inspect_ai.read(LIMITED)


@pytest.mark.parametrize(
    ("value", "threshold", "what"),
    [
        ("C", None, "pass"),
        ("I", None, "fail"),
        ("N", None, "fail"),
        ("P", None, "fail"),
        ("P", "0.5", "pass"),
        ("N", "0.5", "fail"),
        (True, None, "pass"),
        (0, None, "fail"),
        (1.0, None, "pass"),
        (0.7, "0.7", "pass"),
        (0.699999999, "0.7", "fail"),
        (12, "10", "pass"),
        (None, None, "error"),
        (float("nan"), "0.5", "error"),
    ],
)
def test_values(tmp_path: Path, value: object, threshold: str | None, what: str) -> None:
    log = a_log(samples=[a_sample(1, value), a_sample(2, "C")])
    assert outcomes(log, tmp_path, ScoreChoice(None, None, threshold_of(threshold)))[0] == what


def test_values_with_names(tmp_path: Path) -> None:
    log = a_log(samples=[a_sample(1, {"a": 1, "b": 0}), a_sample(2, {"a": 0, "b": 0})])
    assert outcomes(log, tmp_path, ScoreChoice(metric="a")) == ["pass", "fail"]
    for choice in (ScoreChoice(), ScoreChoice(metric="c")):
        with pytest.raises(BadInput, match="--metric, one of a, b"):
            outcomes(log, tmp_path, choice)
    with pytest.raises(BadInput, match="is one value"):
        outcomes(a_log(), tmp_path, ScoreChoice(metric="a"))


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"error": {"message": "the sandbox broke"}}, "error"),
        ({"invalidation": {"author": "me"}}, "error"),
        ({"limit": {"type": "time", "limit": 3}}, "timeout"),
        ({"limit": {"type": "working", "limit": 3}}, "timeout"),
        ({"limit": {"type": "token", "limit": 3}}, "pass"),
        ({"limit": {"type": "token", "limit": 3}, "scores": {}}, "error"),
        ({"limit": {"type": "time", "limit": 3}, "scores": {}}, "error"),
        ({"limit": {"type": "operator", "limit": 1}, "scores": {"match": {"value": "I"}}}, "error"),
        ({"scores": None}, "error"),
    ],
)
def test_errors_limits_and_what_has_no_score(tmp_path: Path, more: Json, what: str) -> None:
    log = a_log(samples=[a_sample(1, "C", **more), a_sample(2, "I")])
    assert outcomes(log, tmp_path) == [what, "fail"]


def test_a_time_limit_under_verify_is_what_the_scorer_says(tmp_path: Path) -> None:
    log = a_log(samples=[a_sample(1, "C", limit={"type": "time", "limit": 3}), a_sample(2, "I")])
    first = next(iter(inspect_ai.read(written(tmp_path, log))))
    assert decide(first, "verify") == "pass"


def test_an_unfinished_log_lacks_trials(tmp_path: Path) -> None:
    log = a_log(status="error", samples=[a_sample(1, "C")])
    assert outcomes(log, tmp_path) == ["pass", "error"]
    absent = [trial for trial in inspect_ai.read(tmp_path / "log.json") if trial.mode == "not in the log"]
    assert [trial.task for trial in absent] == ["t/2"]
    board = tmp_path / "board"
    output("import", "inspect", tmp_path / "log.json", board)
    assert "incomplete" in output("settle", board)


def test_a_retry_is_the_same_run_and_another_log_another(tmp_path: Path) -> None:
    broken = a_log(samples=[a_sample(1, "C"), a_sample(2, "I", error={"message": "x"}, scores={})])
    written(tmp_path / "logs", broken, "a.json")
    written(tmp_path / "logs", a_log(), "b.json")
    assert {trial.validator for trial in inspect_ai.read(tmp_path / "logs")} == {"run-1"}
    assert "4 trials" not in output("import", "inspect", tmp_path / "logs", tmp_path / "one")
    assert json.loads(output("settle", tmp_path / "one", "--json"))["agreed"][0]["score"] == "0.5"
    written(tmp_path / "logs", a_log(eval={"task_id": "U", "created": "2026-01-02T00:00:00Z"}), "c.json")
    assert sorted({trial.validator for trial in inspect_ai.read(tmp_path / "logs")}) == ["run-1", "run-2"]


def test_runs_are_counted_by_task(tmp_path: Path) -> None:
    written(tmp_path / "logs", a_log(), "a.json")
    written(tmp_path / "logs", a_log(eval={"task": "other", "task_id": "O"}), "b.json")
    assert {trial.validator for trial in inspect_ai.read(tmp_path / "logs")} == {"run-1"}
    written(tmp_path / "logs", a_log(eval={"task_id": "U"}), "c.json")
    with pytest.raises(BadInput, match="'m' has 2 logs of one task"):
        inspect_ai.read(tmp_path / "logs", ImportOptions(attempts="runs"))


def test_solver_and_agent_name_the_participant(tmp_path: Path) -> None:
    log = written(tmp_path, a_log(eval={"solver": "react"}))
    assert {trial.agent for trial in inspect_ai.read(log)} == {"react_m"}
    assert {trial.agent for trial in inspect_ai.read(log, ImportOptions(agent="mine"))} == {"mine"}


def test_other_json_in_a_folder_is_passed_over(tmp_path: Path) -> None:
    written(tmp_path / "logs", a_log())
    (tmp_path / "logs/logs.json").write_text("{}", encoding="utf-8")
    assert len(inspect_ai.read(tmp_path / "logs")) == 2
    with pytest.raises(BadInput, match="is not a log of Inspect"):
        inspect_ai.read(tmp_path / "logs/logs.json")
    (tmp_path / "empty").mkdir()
    for nothing in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(BadInput):
            inspect_ai.read(nothing)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eval": {"model": 7}}, r"eval\.model: is a number, not text"),
        ({"eval": {"dataset": {"sample_ids": 7}}}, r"eval\.dataset\.sample_ids: is not a list"),
        ({"eval": {"dataset": {"sample_ids": [1, {}]}}}, r"sample_ids\[1\]: is an object, not a whole number or text"),
        ({"eval": {"dataset": {"sample_ids": [True]}}}, r"sample_ids\[0\]: is a boolean, not a whole number or text"),
        (
            {"eval": {"dataset": {"sample_ids": [1.5]}}},
            r"sample_ids\[0\]: is a number with a fraction, not a whole",
        ),
        ({"eval": {"dataset": {"sample_ids": [""]}}}, r"sample_ids\[0\]: is empty, not a whole number or text"),
        ({"eval": {"dataset": {"sample_ids": [None]}}}, r"sample_ids\[0\]: is null, not"),
        ({"eval": {"config": {"epochs": 10**9}}}, "is not a list of samples"),
        ({"samples": {"a": 1}}, "is not a list of objects"),
        ({"samples": [7]}, "is not a list of objects"),
        ({"samples": [a_sample(None, "C")]}, r"samples\[0\]: id: is null"),
        ({"samples": [a_sample(1, "C", epoch=0)]}, r"samples\[0\]: epoch: is not a number from 1"),
        ({"samples": [a_sample(1, "maybe")]}, "C, I, P, N or a number can be read"),
        ({"samples": [a_sample(1, [1])]}, "is not a number"),
        ({"samples": [a_sample(1, "C", scores=[])]}, "scores: is a list, not an object"),
        ({"samples": [a_sample(1, "C", started_at="noon")]}, r"samples\[0\]: started_at"),
    ],
)
def test_what_cannot_be_read_is_refused_by_place(tmp_path: Path, change: Json, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        inspect_ai.read(written(tmp_path, a_log(**change)))


def test_a_zip_of_somebody_else_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = {name: part for name, part in a_log().items() if name != "samples"}
    members = {"header.json": json.dumps(header).encode(), "samples/1.json": json.dumps(a_sample(1, "C")).encode()}
    log = zipped(tmp_path / "a.eval", members | {"samples/2.json": json.dumps(a_sample(2, "I")).encode()})
    assert [decide(trial) for trial in inspect_ai.read(log)] == ["pass", "fail"]
    with monkeypatch.context() as patch:
        patch.setattr(inspect_ai, "MAX_MEMBER", 20)
        with pytest.raises(BadInput, match="of more than 20 bytes"):
            inspect_ai.read(log)
    with monkeypatch.context() as patch:
        patch.setattr(inspect_ai, "MAX_TOTAL", 20)
        with pytest.raises(BadInput, match="holds more than 20 bytes"):
            inspect_ai.read(log)
    with monkeypatch.context() as patch:
        patch.setattr(inspect_ai, "MAX_RATIO", 3)
        bomb = zipped(tmp_path / "b.eval", members | {"samples/2.json": b'"' + b" " * 4_000_000 + b'"'})
        with pytest.raises(BadInput, match="is compressed more than 3 times"):
            inspect_ai.read(bomb)
    with monkeypatch.context() as patch:
        patch.setattr(inspect_ai, "MAX_TRIALS", 2)
        with pytest.raises(BadInput, match="holds more than 2 files"):
            inspect_ai.read(log)
    deep = zipped(tmp_path / "d.eval", members | {"samples/1.json": b"[" * 200_000})
    with pytest.raises(BadInput, match=r"nested too deeply|ends in the middle"):
        inspect_ai.read(deep)
    with pytest.raises(BadInput, match=r"neither header\.json nor"):
        inspect_ai.read(zipped(tmp_path / "e.eval", {"x.json": b"{}"}))
    (tmp_path / "f.eval").write_bytes(b"no zip")
    with pytest.raises(BadInput, match="is not a log of Inspect"):
        inspect_ai.read(tmp_path / "f.eval")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED])
def test_a_damaged_log_is_refused_however_it_is_compressed(method: int, tmp_path: Path) -> None:
    place, damaged = tmp_path / "whole.eval", tmp_path / "damaged.eval"
    with zipfile.ZipFile(place, "w", method) as archive:
        archive.writestr("header.json", json.dumps(a_log()))
    data = bytearray(place.read_bytes())
    begin = data.find(b"header.json") + len(b"header.json")
    for at in range(begin, begin + 40):
        changed = bytearray(data)
        changed[at : at + 20] = bytes(255 - byte for byte in changed[at : at + 20])
        damaged.write_bytes(changed)
        with pytest.raises(BadInput, match=r"is not a log of Inspect|which is damaged"):
            inspect_ai.read(damaged)


def test_a_damaged_log_is_refused_whatever_byte_it_is(tmp_path: Path) -> None:
    whole = next(LIMITED.glob("*.eval")).read_bytes()
    place = tmp_path / "damaged.eval"
    for at in range(0, len(whole), 97):
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            inspect_ai.read(place)
        except BadInput:
            continue
    place.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput):
        inspect_ai.read(place)


def test_shared_words() -> None:
    assert task_id("a b", "100% c") == "a%20b/100%25%20c"
    assert passed(Decimal("NaN"), None, "it") is None
    with pytest.raises(BadInput, match="is not a number"):
        passed("C", None, "it")
    assert threshold_of(None) is None


@pytest.mark.skipif("ASSAY_INSPECT_PYTHON" not in os.environ, reason="ASSAY_INSPECT_PYTHON names no Python with inspect-ai")
def test_logs_that_inspect_writes_now(tmp_path: Path) -> None:
    script = LOGS.parent / "write_inspect.py"
    subprocess.run([os.environ["ASSAY_INSPECT_PYTHON"], str(script), str(tmp_path)], check=True, timeout=600)
    for folder, choice in (
        ("board", ScoreChoice()),
        ("limited", ScoreChoice()),
        ("shares", ScoreChoice("share", None, Decimal("0.5"))),
    ):
        now, kept = inspect_ai.read(tmp_path / folder, None, choice), inspect_ai.read(LOGS / folder, None, choice)
        assert sorted((trial.agent, *summary(trial)) for trial in now) == sorted((trial.agent, *summary(trial)) for trial in kept)
