"""SPEC 2.1: the share of passed trials over the whole task set."""

from fractions import Fraction
from typing import Any

from ..numbers import nanos
from .verdict import Verdict

Doc = dict[str, Any]


def verdict(records: list[Doc], tasks: list[str], trials: int) -> Verdict:
    """S = mean over tasks of passed trials / trials; a missing cell or an error makes the validator incomplete. SPEC 2.1."""
    outcomes = {(record["task"], record.get("trial", 1)): record["outcome"] for record in records}
    missing = 0
    passed = 0
    per_task = []
    for task in tasks:
        passed_here = 0
        for trial in range(1, trials + 1):
            outcome = outcomes.get((task, trial), "error")
            if outcome == "error":
                missing += 1
            if outcome == "pass":
                passed_here += 1
        passed += passed_here
        per_task.append(Fraction(passed_here, trials))
    if missing:
        return Verdict(why_not="incomplete", missing=missing)
    work = {"passed": passed, "trials": len(tasks) * trials}
    whole = {task for task, share in zip(tasks, per_task, strict=True) if share == 1}
    return Verdict(nanos(sum(per_task, Fraction(0)) / len(tasks)), work, whole=whole)
