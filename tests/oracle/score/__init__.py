"""Evidence -> the score of one participant by each validator: SPEC 2, one module per kind.

Every kind has `judged(records, rules, case) -> {validator: Verdict}`, `records` being what stands and bears on the
participant. Only validators with at least one such record are in the result; one whose
records are all outside the window of points has nothing to say and is left out.
"""

from typing import Any

from . import given, points, rubric, tests, workflow
from .verdict import Verdict

__all__ = ["Verdict", "judged"]

Doc = dict[str, Any]


def judged(kind: str, records: list[Doc], standing: list[Doc], rules: Doc, tasks: list[str], epoch: int) -> dict[str, Verdict]:
    """Verdicts of all validators on one participant. `standing`: all standing records of the competition. SPEC 2."""
    by_validator: dict[str, list[Doc]] = {}
    for record in records:
        by_validator.setdefault(record["validator"], []).append(record)
    result = {}
    for validator, own in by_validator.items():
        if kind == "tests":
            result[validator] = tests.verdict(own, tasks, rules["trials"])
        elif kind == "workflow":
            result[validator] = workflow.verdict(own, workflow.taken_out(standing, validator), rules)
        elif kind == "rubric":
            result[validator] = rubric.verdict(own, rules)
        elif kind == "points":
            result[validator] = points.verdict(own, rules, epoch)
        else:
            result[validator] = given.verdict(own)
    return {validator: verdict for validator, verdict in result.items() if verdict.score is not None or verdict.why_not}
