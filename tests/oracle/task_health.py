"""The health of tasks in fractions, from docs/task-health.md: every trial by itself, and every pair of trials."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

Doc = dict[str, Any]
At = tuple[str, str]


def mean(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def ratio(values: list[Fraction]) -> str | None:
    return f"{mean(values).numerator}/{mean(values).denominator}" if values else None


def task_health(given: Doc) -> Doc:
    """The answer to a case of kind task-health."""
    real: dict[tuple[str, str], list[bool]] = {}
    errors: dict[tuple[str, str], int] = {}
    for row in given["results"]:
        at = row["task"], row["participant"]
        real.setdefault(at, []).extend(outcome == "pass" for outcome in row["outcomes"] if outcome != "error")
        errors[at] = errors.get(at, 0) + row["outcomes"].count("error")
    people = sorted({row["participant"] for row in given["results"]})
    return {"tasks": [health_of(task, people, given["tasks"], real, errors) for task in given["tasks"]]}


def health_of(task: str, people: list[str], tasks: list[str], real: dict[At, list[bool]], errors: dict[At, int]) -> Doc:
    def share(name: str, who: str) -> Fraction | None:
        runs = real.get((name, who), [])
        return Fraction(sum(runs), len(runs)) if runs else None

    runs = [real[task, who] for who in people if real.get((task, who))]
    pairs = [pair for own in runs for pair in combinations(own, 2)]
    sides: tuple[list[Fraction], list[Fraction]] = ([], [])
    for who in people:
        own, rest = share(task, who), [value for name in tasks if name != task and (value := share(name, who)) is not None]
        if own is not None and rest and own != Fraction(1, 2):
            sides[0 if own > Fraction(1, 2) else 1].append(mean(rest))
    shares = {share(task, who) for who in people} - {None}
    erring = [who for who in people if errors.get((task, who))]
    repeated = [own for own in runs if len(own) > 1]
    differing = [pair for pair in pairs if pair[0] != pair[1]]
    dead = (len(runs) >= 3 and shares == {0}) or (not runs and len(erring) >= 3)
    words = [
        ("dead", dead),
        ("flaky", len(repeated) >= 3 and len(pairs) >= 10 and Fraction(len(differing), len(pairs) or 1) > Fraction(1, 4)),
        ("never-separating", not dead and len(runs) >= 3 and len(shares) == 1),
        ("negative", len(sides[0]) >= 3 and len(sides[1]) >= 3 and mean(sides[0]) < mean(sides[1])),
    ]
    passed = sum(map(sum, runs))
    return {
        "task": task,
        "participants": len(runs),
        "passed": passed,
        "failed": sum(map(len, runs)) - passed,
        "errors": sum(errors.get((task, who), 0) for who in people),
        "repeated": len(repeated),
        "pairs": len(pairs),
        "differing": len(differing),
        "passers": len(sides[0]),
        "failers": len(sides[1]),
        "rest_passers": ratio(sides[0]),
        "rest_failers": ratio(sides[1]),
        "words": [word for word, holds in words if holds],
    }
