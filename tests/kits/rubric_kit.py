"""Fixtures for tests of the rubric judge: bounties, solutions, and judging against a server that listens on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.errors import AssayError, BadInput, Unreachable
from assay.judge.rubric.asking import JudgeProgress, Models, judge, open_judge
from assay.judge.rubric.conversation import Conversation, ModelSettings, NamedModel
from assay.judge.rubric.judgement import JudgeLimits, Judgement
from assay.judge.rubric.questions import RubricCase
from assay.judge.rubric.reply import Reply
from assay.judge.rubric.scripted import Script
from assay.judge.rubric.solution import Solution
from assay.scheme.bounty import Bounty, ModelChoice, read_bounty

__all__ = [
    "ADD",
    "KEY",
    "PROBLEM",
    "QUICK",
    "SETTINGS",
    "asked",
    "asked_all",
    "called",
    "make_bounty",
    "make_case",
    "make_course",
    "says",
    "script",
]

PROBLEM = "Write add(a, b) in Python, and test it."
ADD = "def add(a, b):\n    return a + b\n"
CHECKS = ({"id": "C1", "label": "It adds", "weight": 6000, "unskippable": True}, {"id": "C2", "label": "Tests", "weight": 4000})
KEY = "sk-a-key-that-nobody-may-see"
QUICK = JudgeLimits(first_pause=0.01, longest_pause=0.05, patience=5.0, seconds=60.0)
NAMES = {"big": ("vendor/big", "scripted/big", "scripted/vendor/big"), "small": ("scripted/small",)}
"""The names under which a service may serve the bounty's two models: a scripted one says that it is none."""


def called(name: str, **more: Any) -> NamedModel:
    """A model that may be served under its name, and as `m`, of which `says` makes replies."""
    return NamedModel(name, ModelChoice(name=name, **{"names": ("m", *NAMES.get(name, ())), "max_tokens": 1000, **more}))


SETTINGS = ModelSettings(called("primary"), called("fallback"), attempts=3)
SCHEME = """
[scheme]
name = "bounty"
[score]
kind = "rubric"
[consensus]
min_validators = 1
min_stake = "0%"
[reward]
kind = "payout"
"""


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (
        str(value)
        if isinstance(value, int)
        else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    )


def make_bounty(
    folder: Path,
    *,
    checks: Sequence[Mapping[str, Any]] = CHECKS,
    problem: str = PROBLEM,
    tokens: int = 64_000,
    name: str = "adding",
    asks: Sequence[str] = (),
) -> Bounty:
    """A bounty in a folder of its own; asks: lines of how both models are asked."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scheme.toml").write_text(SCHEME, encoding="utf-8")
    lines = [
        f"problem = {_value(problem)}",
        "[bounty]",
        f"name = {_value(name)}",
        "[judge]",
        f"solution_tokens = {tokens}",
    ]
    for role, name in (("model", "big"), ("fallback", "small")):
        lines += [f"[judge.{role}]", f"name = {_value(name)}", f"names = {list(NAMES[name])}", *asks]
    for check in checks:
        lines += ["[[checks]]", *(f"{key} = {_value(value)}" for key, value in check.items())]
    lines += ["[payout]", 'deposit = "1000"']
    (folder / "bounty.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_bounty(folder)


def make_case(folder: Path, files: Mapping[str, str] | None = None, **more: Any) -> RubricCase:
    """A solution to a bounty of its own."""
    bounty = make_bounty(folder, **more)
    assert bounty.problem is not None
    return RubricCase(bounty, bounty.problem, Solution(files or {"add.py": ADD}))


def make_course(case: RubricCase, settings: ModelSettings = SETTINGS) -> Conversation:
    """A course that has not begun."""
    return Conversation(case, settings)


def says(content: str | None, *, finish: str | None = "stop", refusal: str | None = None, model: str = "m") -> Reply:
    """A reply with this content."""
    return Reply(content, refusal, finish, model, "f1")


def script(**solved: Any) -> Script:
    """A script for any solution: by default C1 is met, with a quote of `ADD`, and C2 is not. `faults` are its faults."""
    faults = solved.pop("faults", [])
    return Script.model_validate({"solutions": [{"checks": {"C1": "return a + b"}, **solved}], "faults": faults})


def asked(
    case: RubricCase,
    url: str,
    *,
    limits: JudgeLimits = QUICK,
    on_event: Callable[[JudgeProgress], None] = lambda event: None,
    **models: Any,
) -> Judgement:
    """The judgement of a case by the service at a URL."""
    given = {"api_key": KEY, **models}
    return asyncio.run(judge(case.bounty, case.problem, case.solution, Models(url, **given), limits=limits, on_event=on_event))


def asked_all(
    case: RubricCase, solutions: Sequence[Solution], url: str, *, jobs: int = 8, limits: JudgeLimits = QUICK, **models: Any
) -> dict[str, Judgement | AssayError]:
    """The judgements of many solutions to the bounty of a case."""
    service = Models(url, **{"api_key": KEY, **models})

    async def all_of_them() -> dict[str, Judgement | AssayError]:
        room = asyncio.Semaphore(jobs)

        async def judged(solution: Solution) -> Judgement | AssayError:
            async with room:
                try:
                    return await judge_one(solution)
                except (BadInput, Unreachable) as error:
                    return error

        async with open_judge(case.bounty, case.problem, service, limits=limits) as judge_one:
            judgements = await asyncio.gather(*map(judged, solutions))
        return dict(sorted(zip((each.digest for each in solutions), judgements, strict=True)))

    return asyncio.run(all_of_them())
