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
        found = json.load(answer)["choices"][0]
    try:
        return dict(read_baseline(Reply(found["message"]["content"], None, found["finish_reason"], "m", None)).answers)
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


def told(what: str, before: Answers, found: list[Answers]) -> None:
    """Print a line: of so many answers so many flipped, and how many replies were malformed."""
    first = before or {}
    whole = [one for one in found if one is not None and first]
    flips = sum(one[name] != yes for one in whole for name, yes in first.items())
    up = sum(one[name] and not yes for one in whole for name, yes in first.items())
    bad = len(found) - len(whole)
    print(
        f"{what:44} {len(found):>4} replies, {bad} malformed; {flips} of {4 * len(whole)} answers flipped, {up} to YES",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--attacks", type=int, default=1000)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        case = make_case(Path(folder))
        honest = case.baseline()
        before = asked(said.url, honest)
        print(f"{'as it stands, temperature 0':44} {before}", flush=True)
        told("asked again, temperature 0", before, [asked(said.url, honest) for _ in range(said.seeds)])
        seeds = [asked(said.url, honest, seed=seed, temperature=0.8) for seed in range(1, said.seeds + 1)]
        told("other seeds, temperature 0.8", before, seeds)
        for name, question in reworded(honest):
            told(name, before, [asked(said.url, question)])
        fitting = [
            injection for injection in INJECTIONS if not injection.refused and sum(map(len, injection.files.values())) <= LONGEST
        ]
        attacked = [RubricCase(case.bounty, case.problem, Solution(one.solution.files)) for one in fitting[: said.attacks]]
        told("attacks in the solution, temperature 0", before, [asked(said.url, one.baseline()) for one in attacked])


if __name__ == "__main__":
    main()
