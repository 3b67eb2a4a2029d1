"""A small competition of workflows on a service of a test's own, and what is written down of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.judge.kind_options import TaskOptions
from assay.judge.run_files import evidence_file
from assay.judge.running import RunEvent, RunOptions, RunSummary
from assay.judge.workflow import run as judge
from assay.judge.workflow.planner import load_planner
from assay.judge.workflow.tasks import everything, manifest_text
from workflow_chaos import ChaosServer

QUICK = RunOptions(delay=0.01)
SCHEME = """[scheme]
name = "flows"
[score]
kind = "workflow"
{score}
[consensus]
min_validators = 1
min_stake = "0%"
{consensus}
[decay]
curve = "none"
"""
TASK = """type = "agent"
instruction = "Do it."
budget = "1"
max_seconds = "{seconds}"
min_steps = 2
[services.s]
do = "how"
[quality]
[[quality.checks]]
kind = "keyword"
text = "done"
"""


def run(folder: Path, validator: str = "val-1", events: list[RunEvent] | None = None, **options: Any) -> RunSummary:
    own = TaskOptions(**{name: options.pop(name) for name in ("only", "tasks", "reuse") if name in options})
    return judge.run(
        folder, validator, replace(QUICK, own=own, **options), (lambda _event: None) if events is None else events.append
    )


def plan(action: str = "do", **handling: Any) -> dict[str, Any]:
    """Two steps, one after the other."""
    nodes: list[dict[str, Any]] = [{"id": name, "service": "s", "action": action, "params": {}} for name in ("first", "last")]
    return {"nodes": nodes, "edges": [["first", "last"]], "error_handling": handling}


def competition(
    folder: Path,
    server: ChaosServer,
    planners: Mapping[str, Any],
    *,
    tasks: int = 2,
    seconds: str = "20",
    validators: tuple[str, ...] = ("val-1",),
    score: str = "",
    consensus: str = "",
    services: str = "",
) -> Path:
    """planners: by participant, a plan for all tasks, or the text of a planner.toml."""
    names = [f"t{number}" for number in range(tasks)]
    for name in names:
        (folder / "tasks" / name).mkdir(parents=True)
        (folder / "tasks" / name / "task.toml").write_text(TASK.format(seconds=seconds), encoding="utf-8")
    (folder / "tasks.txt").write_text(manifest_text(everything(folder / "tasks")), encoding="utf-8")
    (folder / "scheme.toml").write_text(SCHEME.format(score=score, consensus=consensus), encoding="utf-8")
    (folder / "validators.csv").write_text("key,stake\n" + "".join(f"{name},100\n" for name in validators), encoding="utf-8")
    (folder / "services.toml").write_text(
        f'[services.s]\nkind = "http"\nurl = "{server.url}"\nactions = ["do", "fail", "ping"]\nhealth = "ping"\n'
        f'max_cost = "0.01"\n[planners]\nprivate = true\nseconds = "20"\n{services}',
        encoding="utf-8",
    )
    with (folder / "participants.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["key", "uid", "submission", "submitted_at"])
        for number, (key, content) in enumerate(planners.items(), start=1):
            digest = "" if content is None else planner(folder / "planners" / key, content, names)
            rows.writerow([key, number, digest, f"2026-01-01T00:00:0{number}Z" if digest else ""])
    return folder


def planner(place: Path, content: Any, names: list[str]) -> str:
    """Puts a submission in its place; its digest."""
    place.mkdir(parents=True)
    (place / "who.txt").write_text(place.name, encoding="utf-8")  # so that no two are the same
    if isinstance(content, str):
        (place / "planner.toml").write_text(content, encoding="utf-8")
    else:
        for name in names:
            (place / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return load_planner(place).digest


def lines(folder: Path, validator: str = "val-1") -> list[dict[str, Any]]:
    file = evidence_file(folder, validator)
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def outcomes(folder: Path, validator: str = "val-1") -> dict[tuple[str, str], str]:
    """(participant, task) → outcome, of an epoch."""
    by_task = {(line["participant"], line["task"]): line["outcome"] for line in lines(folder, validator)}
    assert len(by_task) == len(lines(folder, validator))  # nothing twice
    return by_task


def documents(folder: Path, validator: str = "val-1") -> list[dict[str, Any]]:
    files = sorted((folder / "workflows" / validator).glob("*/*@*/*.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]
