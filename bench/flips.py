"""Flips of a small real model's rubric answers: by seed, by the words of the question, by an attack in the solution.

    python tools/small_model.py serve            in another terminal; the first line says where
    python -m bench.flips URL [--seeds N] [--attacks N]

It asks the baseline's four questions, as the judge does, of one honest solution. An answer has flipped where it is not that of
the question as it stands, at temperature 0. Nothing of it is a bound for another model.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kits"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "judge" / "rubric"))

from assay.judge.rubric.questions import PARAMETERS, RubricCase, RubricQuestion
from assay.judge.rubric.reply import Faulty, Reply, read_baseline
from assay.judge.rubric.solution import Solution
from injecting import INJECTIONS
from rubric_kit import make_case

TOKENS = 300
LONGEST = 600
"""Bytes of an attack that is tried: the model reads 8192 tokens, and slowly."""
Answers = dict[str, bool] | None


def asked(url: str, question: RubricQuestion, **parameters: Any) -> Answers:
    """The four answers; None where they are malformed."""
    body = question.body("SmolLM2-135M-Instruct", "json_schema", {**PARAMETERS, "max_tokens": TOKENS, **parameters})
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=3600) as answer:
        choice = json.load(answer)["choices"][0]
    try:
        return dict(read_baseline(Reply(choice["message"]["content"], None, choice["finish_reason"], "m", None)).answers)
    except Faulty:
        return None


def reworded(question: RubricQuestion) -> Iterator[tuple[str, RubricQuestion]]:
    """The same question in other words."""
    *rest, own = question.parts
    for name, text in (
        ("every answer of the example is YES", own.replace('"NO"', '"YES"')),
        ("every answer of the example is NO", own.replace('"answer": "YES"', '"answer": "NO"')),
    ):
        yield name, replace(question, parts=(*rest, text))


def report(what: str, before: Answers, answers: list[Answers]) -> None:
    """Print a line: of so many answers so many flipped, and how many replies were malformed."""
    first = before or {}
    whole = [answer for answer in answers if answer is not None and first]
    flips = sum(answer[name] != yes for answer in whole for name, yes in first.items())
    up = sum(answer[name] and not yes for answer in whole for name, yes in first.items())
    bad = len(answers) - len(whole)
    print(
        f"{what:44} {len(answers):>4} replies, {bad} malformed; {flips} of {4 * len(whole)} answers flipped, {up} to YES",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--attacks", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        case = make_case(Path(folder))
        honest = case.baseline()
        before = asked(options.url, honest)
        print(f"{'as it stands, temperature 0':44} {before}", flush=True)
        report("asked again, temperature 0", before, [asked(options.url, honest) for _ in range(options.seeds)])
        seeds = [asked(options.url, honest, seed=seed, temperature=0.8) for seed in range(1, options.seeds + 1)]
        report("other seeds, temperature 0.8", before, seeds)
        for name, question in reworded(honest):
            report(name, before, [asked(options.url, question)])
        fitting = [
            injection for injection in INJECTIONS if not injection.refused and sum(map(len, injection.files.values())) <= LONGEST
        ]
        attacked = [
            RubricCase(case.bounty, case.problem, Solution(injection.solution.files)) for injection in fitting[: options.attacks]
        ]
        report("attacks in the solution, temperature 0", before, [asked(options.url, attack.baseline()) for attack in attacked])


if __name__ == "__main__":
    main()
