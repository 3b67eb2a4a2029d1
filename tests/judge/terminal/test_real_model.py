"""A real model judges, and answers agents: small, poor at it, and no script. What it answers is not asserted. SPEC 2.3."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import run_kit
from assay.judge.kind_options import TaskOptions
from assay.judge.rubric import replay
from assay.judge.rubric.judgement import JudgeLimits, Judgement
from assay.judge.rubric.run import RubricOptions
from assay.judge.rubric.run import run as run_rubric
from assay.judge.rubric.stored import transcript_key
from assay.judge.running import RunOptions
from assay.judge.service import ModelAccess
from assay.judge.terminal.run import run as run_tests
from assay.settle.score.rubric import VERDICTS
from bounty_run_kit import JUDGE, VALIDATOR, lines, make_run
from cli_kit import output, run
from test_example_bounty import live
from test_faults import with_agent

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools" / "small_model.py"
NAME = "SmolLM2-135M-Instruct"
SMALL = f"""[judge.model]
name = "{NAME}"
max_tokens = 700
timeout = 3600
[judge.fallback]
name = "{NAME}"
max_tokens = 700
timeout = 3600

[payout]
"""
TEXT = {"ann": "One, two, three, and four:\nintegers march in order.\nNone of them is late.\n"}
PATIENT = JudgeLimits(seconds=3600.0, attempts=2)
pytestmark = [pytest.mark.slow, pytest.mark.full]


@pytest.fixture(scope="module")
def fetched() -> None:
    """The model's file is here."""
    done = subprocess.run([sys.executable, TOOL, "fetch"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"there is no model here: {done.stderr.strip()}")


@pytest.fixture(scope="module")
def model(fetched: None) -> Iterator[str]:
    """The address of the model, in a process of its own."""
    with subprocess.Popen(
        [sys.executable, TOOL, "serve", "--offline"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def judged(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A bounty with one solution, judged by the model."""
    place = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_KEYS", str(place / "keys"))
        folder = make_run(place / "b", (JUDGE, SMALL), texts=TEXT)
        done = run_rubric(
            folder, VALIDATOR, RunOptions(own=RubricOptions(ModelAccess(model, ""))), lambda _event: None, limits=PATIENT
        )
        assert not done.errors
        yield folder


def test_it_judges_by_a_rubric(judged: Path) -> None:
    (line,) = lines(judged)
    assert line["outcome"] in ("judged", "unjudged")
    document = json.loads((judged / "judgements" / f"{line['attestation'][7:]}.json").read_text(encoding="utf-8"))
    assert {row["answered"] for row in document["exchanges"]} == {NAME}
    assert document["asked"]["primary"]["asked"] == NAME
    assert document["measured"]["usage"]["prompt"] > 500
    if line["outcome"] == "judged" and all(line["baseline"].values()):
        assert line["verdict"] in VERDICTS


def test_a_replay_comes_to_the_same(judged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(judged.parent / "keys"))
    replayed = replay.replay_stored(judged, replay.find_judgement(judged, lambda everybody: everybody[0].key), transcript_key())
    assert isinstance(replayed.judgement, Judgement)
    (line,) = lines(judged)
    assert replayed.judgement.outcome == line["outcome"]


@pytest.mark.full
def test_it_is_asked_again(judged: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(judged.parent / "keys"))
    rejudged = json.loads(output("rejudge", judged, "ann", "--ask", "--times", "2", "--model-url", model, "--json"))
    assert len(rejudged["asked"]) == 2
    assert 0 <= rejudged["same_answers"] <= rejudged["same_bps"] <= 2
    assert {row["model"] for row in rejudged["asked"]} <= {NAME, None}


def test_it_says_who_it_is_whatever_it_is_asked_for(model: str) -> None:
    body = json.dumps({"model": "other", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    asked = urllib.request.Request(f"{model}/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=600) as answer:
        assert json.load(answer)["model"] == NAME


@pytest.mark.full
def test_another_name_than_the_bountys_is_refused(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a bounty of another model is not judged by it; tests/judge/rubric/test_rubric_models.py has the refusal in short."""
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    folder = make_run(tmp_path / "b", texts=TEXT)
    shown = run("run", folder, "--validator", VALIDATOR, "--model-url", model, columns=300, code=1)
    assert f"another-model: the reply is of '{NAME}'" in " ".join(shown.stdout.split())
    assert lines(folder) == []


@pytest.mark.full
def test_a_panel_of_it_answers_apart_and_settles(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the panel decides is not asserted: that every answer is kept, replayed, and decided on again by the settlement."""
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    folder = make_run(tmp_path / "b", (JUDGE, SMALL), texts=TEXT)
    scheme = folder / "scheme.toml"
    panel = 'kind = "rubric"\n[score.panel]\nanswers = 3\nmax_disagreement = "1/3"\n'
    scheme.write_text(scheme.read_text(encoding="utf-8").replace('kind = "rubric"\n', panel), encoding="utf-8")
    done = run_rubric(
        folder, VALIDATOR, RunOptions(own=RubricOptions(ModelAccess(model, ""))), lambda _event: None, limits=PATIENT
    )
    assert not done.errors
    (line,) = lines(folder)
    assert [answer["judge"] for answer in line["panel"]] == [NAME] * 3
    document = json.loads((folder / "judgements" / f"{line['attestation'][7:]}.json").read_text(encoding="utf-8"))
    assert [answer["parameters"]["seed"] for answer in document["answers"]] == [42, 43, 44]
    assert len({answer["transcript"] for answer in document["answers"]}) == 3
    rejudged = json.loads(output("rejudge", folder, "ann", "--json"))
    assert rejudged["answers"]["outcome"] == line["outcome"]
    assert rejudged["panel"]["panels"] == 1
    (row,) = json.loads(output("settle", folder, "--json"))["agreed"]
    assert row["status"] == ("agreed" if line["outcome"] == "judged" else "unjudged")


@pytest.mark.full
def test_an_agent_asks_it_through_the_proxy(model: str, tmp_path: Path) -> None:
    body = json.dumps({"model": NAME, "max_tokens": 3, "messages": [{"role": "user", "content": "Say yes."}]})
    head = f"POST /chat/completions HTTP/1.0\\r\\nContent-Type: application/json\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
    script = f"""exec 3<>/dev/tcp/127.0.0.1/8080 || exit 1
printf '{head}' >&3; printf '%s' '{body}' >&3
grep -q '{NAME}' <&3 && echo hello > out.txt; exit 0"""
    folder = with_agent(tmp_path, script, more='network = "model"\n')
    summary = run_tests(
        folder, "val-1", replace(run_kit.QUICK, own=TaskOptions(model=ModelAccess(model, ""))), lambda _event: None
    )
    assert (summary.outcomes, summary.errors) == (Counter({"pass": 1}), [])


@pytest.mark.full
def test_it_judges_sealed_solutions_in_an_enclave(fetched: None, tmp_path: Path) -> None:
    """examples/agonaut by its script: sealed, judged, collected, settled. Whatever it answered, it is proven."""
    place = tmp_path / "bounty"
    printed = live("small", place)
    assert "2 judgements, each proven by a quote" in printed
    assert "durations · epoch 1: verified, and computed again" in printed
    settled = {row["participant"]: row for row in json.loads(output("settle", place / "sponsor", "--json"))["agreed"]}
    records = [
        json.loads(line) for file in (place / "epoch-1" / "evidence").glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    assert len(records) == len(settled) == 2
    for record in records:
        file = place / "sponsor" / "judgements" / f"{record['attestation'][7:]}.json"
        document = json.loads(file.read_text(encoding="utf-8"))
        assert {row["answered"] for row in document["exchanges"]} == {NAME}
        assert document["submission"] == record["submission"]
        if record["outcome"] == "judged" and not all(record["baseline"].values()):
            assert settled[record["participant"]]["bps"] == 0
        quote = file.with_suffix(".attestation.json")
        checked = json.loads(output("enclave", "verify", quote, "--bounty", place / "sponsor", "--json"))
        assert (checked["statement"]["judgement"], checked["submission"]) == (record["attestation"], record["submission"])
    for file in place.glob("*.pid"):  # the model, the enclave, and what stands for dstack: told to end, which may take a while
        while running(int(file.read_text())):
            time.sleep(0.1)


def running(process: int) -> bool:
    """Whether the process is there, and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
