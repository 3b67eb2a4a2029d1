"""Fixtures for tests of rubric runs: a bounty with solutions handed in, a scripted model, and the documents that a run writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.judge.rubric.judgement import JudgeLimits
from assay.judge.rubric.run import RubricOptions, run
from assay.judge.rubric.scripted import Script, ScriptedFault, ScriptedSolution
from assay.judge.rubric.scripted_server import ScriptedServer, scripted_model
from assay.judge.rubric.stored import submit_solution
from assay.judge.running import RunEvent, RunOptions, RunSummary
from assay.judge.service import ModelAccess
from assay.scheme.fields import instant
from bounty_kit import make_bounty

KEY = "sk-secret-key-of-the-service"
VALIDATOR = "val-1"
QUICK = JudgeLimits(first_pause=0.01, longest_pause=0.05, tries=3, patience=10.0)
AT = instant("2026-11-02T09:00:00Z")

TEXTS = {
    "ann": "One, two, three, and four:\nintegers march in order.\nNone of them is late.\n",
    "bob": "Fractions are finer,\nthe half and the third of all,\nI prefer those.\n",
    "cyd": "buy my pills now, cheap and best",
}
SOLVED = (
    ScriptedSolution(
        name="ann",
        contains="integers march",
        checks={"C1": "integers march in order.", "C2": "None of them is late."},
        verdict="ELEGANT",
    ),
    ScriptedSolution(name="bob", contains="Fractions", checks={"C1": "the half and the third of all,"}, verdict="COHERENT"),
    ScriptedSolution(name="cyd", contains="pills", baseline={"B3": "it is an advertisement"}),
)
JUDGE = """[judge.model]
name = "deepseek-ai/DeepSeek-V3"
names = ["deepseek-chat", "scripted/deepseek-ai/DeepSeek-V3"]
[judge.fallback]
name = "Qwen/Qwen2.5-72B-Instruct"
names = ["scripted/Qwen/Qwen2.5-72B-Instruct"]

[payout]
"""
"""The names under which the models may be served: a scripted one says that it is none."""
BPS = {"ann": 10_000, "bob": 6000, "cyd": 0}


def make_run(folder: Path, *edits: tuple[str, str], texts: Mapping[str, str] = TEXTS) -> Path:
    """A competition's folder in which everybody has handed in a text."""
    make_bounty(folder, ("[payout]\n", JUDGE), *edits)
    (folder / "participants.csv").write_text("key,address\n" + "".join(f"{key},\n" for key in texts), encoding="utf-8")
    (folder / "validators.csv").write_text(f"key,stake\n{VALIDATOR},1\nval-2,1\n", encoding="utf-8")
    source = folder.with_name(f"{folder.name}-texts")
    source.mkdir(exist_ok=True)
    for key, text in texts.items():
        (source / f"{key}.md").write_text(text, encoding="utf-8")
        submit_solution(folder, key, source / f"{key}.md", at=AT)
    return folder


@contextmanager
def scripted(*faults: ScriptedFault, solved: tuple[ScriptedSolution, ...] = SOLVED) -> Iterator[ScriptedServer]:
    """A model that answers as the table says, and fails as `faults` do."""
    with scripted_model(Script(solutions=solved, faults=faults)) as server:
        yield server


def judged(
    folder: Path,
    url: str,
    *,
    validator: str = VALIDATOR,
    limits: JudgeLimits = QUICK,
    tell: Callable[[RunEvent], None] = lambda event: None,
    **options: Any,
) -> RunSummary:
    """A run by the validator."""
    own = {name: options.pop(name) for name in ("model", "primary", "fallback", "prices", "again") if name in options}
    given = RunOptions(**{"jobs": 4, "own": RubricOptions(**{"model": ModelAccess(url, KEY), **own}), **options})
    return run(folder, validator, given, tell, limits=limits)


def lines(folder: Path, validator: str = VALIDATOR) -> list[dict[str, Any]]:
    """The validator's records; none is there twice."""
    file = folder / "evidence" / f"run-{validator}.jsonl"
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    assert len({record["submission"] for record in records}) == len(records)
    return records


def outcomes(folder: Path, validator: str = VALIDATOR) -> dict[str, str]:
    """Participant → how it was judged."""
    return {line["participant"]: line["outcome"] for line in lines(folder, validator)}


def events_of(kind: str, events: list[RunEvent]) -> list[str]:
    """The participants that events of a kind were about."""
    return [event.cell.participant for event in events if event.kind == kind and event.cell is not None]
