"""`assay workflow`, and `assay run` and `submit` for a competition of workflows. SPEC 2.2."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.cli import workflow_live as following
from assay.exact import NANO
from assay.judge.workflow.plan import Plan
from assay.judge.workflow.record import Moment, StepAttempt, StepRun
from cli_kit import narrow, output, refused, run
from workflow_chaos import reply_of, serving, well
from workflow_run_kit import competition, lines, plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "cswon"
DONE = well("done", cost="0.01")


def written(place: Path, content: Any) -> Path:
    place.write_text(json.dumps(content), encoding="utf-8")
    return place


def test_a_plan_is_checked_by_itself(tmp_path: Path) -> None:
    file = written(tmp_path / "plan.json", plan(last={"retry_count": 2, "timeout_seconds": "1.50"}))
    text = output("workflow", "check", file)
    assert "A plan of 2 steps; its output is what last answers." in text
    assert "1.5 s" in text
    document = json.loads(output("workflow", "check", file, "--json"))
    assert {name: document[name] for name in ("steps", "edges", "declared_retries", "sinks")} == {
        "steps": 2,
        "edges": 1,
        "declared_retries": 2,
        "sinks": ["last"],
    }
    assert refused("workflow", "check", written(file, {"nodes": []})) == f"{file}: nodes: is empty; put at least one in"
    assert "no such file" in refused("workflow", "check", tmp_path / "none.json")


def test_a_plan_is_checked_against_a_task_and_its_competitions_rules(tmp_path: Path) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path / "c", server, {"ann": plan()}, score="max_retries_per_step = 1")
    task = folder / "tasks" / "t0"
    file = written(tmp_path / "plan.json", plan(last={"retry_count": 2}))
    assert "declares 2 retries, the most are 1" in refused("workflow", "check", file, "--task", task)
    (tmp_path / "scheme.toml").write_text('[scheme]\nname = "s"\n[score]\nkind = "workflow"\n', encoding="utf-8")
    assert "for the task t0" in output("workflow", "check", file, "--task", task, "--scheme", tmp_path / "scheme.toml")
    assert json.loads(output("workflow", "check", written(file, plan()), "--task", task, "--json"))["task"] == "t0"
    assert "which the task does not allow" in refused("workflow", "check", written(file, plan("rm")), "--task", task)
    (tmp_path / "scheme.toml").write_text('[scheme]\nname = "s"\n[score]\nkind = "given"\n', encoding="utf-8")
    assert "is 'given'" in refused("workflow", "check", file, "--task", task, "--scheme", tmp_path / "scheme.toml")


def test_a_plan_is_carried_out_at_its_makers_desk(tmp_path: Path) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path / "c", server, {"ann": plan()})
        task, file = folder / "tasks" / "t0", written(tmp_path / "plan.json", plan())
        result = run("workflow", "run", file, task)
        assert [line.split()[2:4] for line in result.stderr.splitlines()] == [
            ["began", "first"],
            ["completed", "first"],
            ["began", "last"],
            ["completed", "last"],
        ]
        assert "quality 1 × 2 of 2 steps" in result.stdout
        assert "0.02 of 1" in result.stdout
        assert "no trouble (0 of 0 declared" in result.stdout
        assert narrow(result.stdout)
        document = json.loads(run("workflow", "run", file, task, "--json").stdout)
        parts = document["parts"]
        assert (parts["success"]["part"], parts["cost"]["value"], parts["cost"]["part"]) == ("0.5", "0.98", "0.245")
        assert (document["outcome"], document["quality"], document["task"]) == ("ran", "1", "t0")
        assert not (folder / "evidence").exists()
        services = folder / "services.toml"
        services.rename(tmp_path / "mine.toml")
        assert "services.toml: no such file" in refused("workflow", "run", file, task)
        assert "Score" in output("workflow", "run", file, task, "--services", tmp_path / "mine.toml")


def test_where_a_part_was_lost_is_said(tmp_path: Path) -> None:
    with serving(do=reply_of({"error": "not today"}), ping=DONE) as server:
        folder = competition(tmp_path / "c", server, {"ann": plan()})
        file = written(tmp_path / "plan.json", plan(first={"retry_count": 1}))
        result = run("workflow", "run", file, folder / "tasks" / "t0", columns=100)
    assert "denied: not today" in result.stderr
    assert "not begun" in result.stdout
    assert "worth nothing: success is not above 0.7" in result.stdout
    assert "1 × hard failure" in result.stdout
    assert "Quality 0: output: none" in result.stdout


def test_a_run_that_was_stopped_says_by_what(tmp_path: Path) -> None:
    with serving(do=DONE, ping=DONE) as server:
        folder = competition(tmp_path / "c", server, {"ann": plan()})
        task = folder / "tasks" / "t0" / "task.toml"
        task.write_text(task.read_text(encoding="utf-8").replace('budget = "1"', 'budget = "0.005"'), encoding="utf-8")
        file = written(tmp_path / "plan.json", plan())
        assert "Stopped: the task's budget was used up." in output("workflow", "run", file, task.parent)


def test_a_broken_service_is_said_and_ends_with_1(tmp_path: Path) -> None:
    with serving(do=reply_of({}, 500), ping=reply_of({}, 500)) as server:
        folder = competition(tmp_path / "c", server, {"ann": plan()})
        file = written(tmp_path / "plan.json", plan())
        assert (
            "the task would count for no participant: s does not answer"
            in run("workflow", "run", file, folder / "tasks" / "t0", code=1, columns=200).stdout
        )
        document = json.loads(run("workflow", "run", file, folder / "tasks" / "t0", "--json", code=1).stdout)
    assert (document["outcome"], document["score"], document["parts"]) == ("service-error", None, None)


def test_who_watches_sees_the_steps_move(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    names = [f"n{number}" for number in range(following.SHOWN + 2)]
    nodes = [{"id": name, "service": "s", "action": "do"} for name in names]
    live = following.Follow(Plan.model_validate({"nodes": nodes, "edges": [["n0", "n1"]]}), quiet=True)
    with live:
        step = StepRun("n0", "s", "do", "going", [StepAttempt(1, 0), StepAttempt(2, 0)])
        live.moment(Moment("began", step, NANO, 5))
        step.state = "completed"
        console = Console(width=80)
        with console.capture() as shown:
            console.print(live._render())
    text = shown.get()
    assert "✓ n0  s.do  attempt 2" in text
    assert "· n1  s.do  ← n0" in text
    assert "… and 2 more" in text
    assert "0.000000005 spent" in text
    assert capsys.readouterr().err == ""


def test_a_task_says_what_it_asks(tmp_path: Path) -> None:
    task = EXAMPLE / "tasks" / "agent-triage"
    text = output("workflow", "task", task)
    assert "agent-triage, a task of type agent" in text
    assert "At most 0.05 and 2 s, counted as 1 step at least." in text
    package = json.loads(output("workflow", "task", task, "--package", "--retries", "2"))
    assert (package["schema"], package["limits"]["retries"]) == ("assay.package/1", 2)
    assert json.loads(output("workflow", "task", task, "--json"))["digest"].startswith("sha256:")
    assert "no such folder" in refused("workflow", "task", tmp_path / "none")


def test_a_set_is_pinned_and_a_round_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("evidence", "workflows"))
    before = (folder / "tasks.txt").read_bytes()
    (folder / "tasks.txt").unlink()
    assert "`assay workflow pin DIR` writes it" in refused("workflow", "round", folder)
    assert "6 tasks pinned; the set is\nsha256:" in output("workflow", "pin", folder)
    assert (folder / "tasks.txt").read_bytes() == before
    assert "Epoch 1: 6 of 6 tasks; all are asked." in output("workflow", "round", folder)
    (folder / "round.toml").write_text("tasks = 2\n", encoding="utf-8")
    (folder / "randomness.csv").write_text("epoch,hex\n3," + "0a" * 32 + "\n", encoding="utf-8")
    assert "Epoch 3: 2 of 6 tasks; drawn by\n0a0a" in output("workflow", "round", folder)
    document = json.loads(output("workflow", "round", folder, "--epoch", "3", "--json"))
    assert (document["epoch"], len(document["tasks"]), document["randomness"]) == (3, 2, "0a" * 32)
    (folder / "scheme.toml").write_text('[scheme]\nname = "s"\n[score]\nkind = "given"\n', encoding="utf-8")
    assert "is 'given'" in refused("workflow", "pin", folder)


def test_a_competition_of_workflows_is_run_and_submitted_to_like_any_other(tmp_path: Path) -> None:
    with serving(do=DONE, ping=DONE) as server:
        folder = competition(tmp_path / "c", server, {"ann": plan(), "bob": None})
        mine = tmp_path / "mine"
        mine.mkdir()
        written(mine / "t0.json", plan())
        assert "mine 1 is the submission of bob:\nsha256:" in output("submit", folder, "bob", mine)
        assert "mine 1 is already the submission of bob" in output("submit", folder, "bob", mine)
        result = run("run", folder, "--validator", "val-1")
    assert "4 tasks judged (1 invalid, 3 ran)." in result.stdout
    assert "invalid  bob  t1" in result.stderr
    assert "quality 1, 2 of 2 steps" in result.stderr
    assert len(lines(folder)) == 4
    assert "Nothing is missing: every task of the submissions in participants.csv has its evidence." in " ".join(
        output("run", folder, "--validator", "val-1", "--quiet").split()
    )
