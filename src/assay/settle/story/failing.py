"""Which tasks a participant did not pass and which checks it missed, by name, as the records say that count. SPEC 2.1–2.3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from assay.exact import text
from assay.records import Evidence, Rubric, Tests, Workflow
from assay.scheme.model import RubricScore, TestsScore, WorkflowScore
from assay.settle.inputs import Scored
from assay.settle.score import workflow
from assay.settle.score.accepted import accepted, holding
from assay.settle.score.rubric import BASELINE
from assay.settle.story.telling import Case, Chapter, Json, Table, named, plural

if TYPE_CHECKING:
    from assay.settle.settlement import Settlement

__all__ = ["failing"]

R = TypeVar("R", Tests, Rubric)

MOST = 20
"""Rows that people are shown; programs get all."""
_GATE = {"B1": "it is legal", "B2": "it is ethical", "B3": "it is not spam", "B4": "it addresses the problem"}


def failing(settlement: Settlement, case: Case, records: Sequence[Evidence] | None = None) -> Chapter | None:
    """The tasks or checks that not every validator whose score counts saw passed; None where no single records say which.

    records: of kind tests about this participant, where the settlement was computed from sums.
    """
    evidence = settlement.inputs.evidence if records is None else records
    rules = case.scheme.score
    if isinstance(evidence, Scored) or not case.row["validators"]:
        return None
    if isinstance(rules, TestsScore):
        return _tests(
            case, _counting(settlement, case, [one for one in evidence if isinstance(one, Tests)]), settlement.inputs.tasks
        )
    if isinstance(rules, RubricScore):
        return _rubric(case, _counting(settlement, case, [one for one in evidence if isinstance(one, Rubric)]), rules)
    if isinstance(rules, WorkflowScore):
        return _workflow(settlement, case, [one for one in evidence if isinstance(one, Workflow)], rules)
    return None


def _votes(case: Case) -> list[str]:
    """The validators that have a whole score of this participant."""
    return [vote["validator"] for vote in case.row["validators"]]


def _counting(settlement: Settlement, case: Case, records: Sequence[R]) -> list[R]:
    """The records that stand, of those validators, about this participant's submission. SPEC 3.0."""
    column, column_of, votes = settlement.frame.column[case.participant.key], holding(settlement.frame), {*_votes(case)}
    return accepted([one for one in records if one.validator in votes and column_of(one) == column], settlement.frame)


def _tests(case: Case, records: Sequence[Tests], tasks: Sequence[str]) -> Chapter:
    """Tasks with a trial that some validator did not see passed. SPEC 2.1."""
    trials = getattr(case.scheme.score, "trials", 1)
    outcomes: dict[str, dict[str, list[str]]] = {task: {} for task in tasks}
    for one in records:
        if one.task in outcomes and one.trial <= trials and one.outcome != "error":
            outcomes[one.task].setdefault(one.validator, []).append(one.outcome)
    facts: list[Json] = []
    rows = []
    for task, seen in outcomes.items():
        by = [
            {"validator": key, "passed": found.count("pass"), "timeout": found.count("timeout"), "trials": trials}
            for key in _votes(case)
            if (found := seen.get(key, [])).count("pass") < trials
        ]
        if by:
            facts.append({"task": task, "validators": by})
            passed = sum(found.count("pass") for found in seen.values())
            rows.append((task, f"{passed} of {trials * len(_votes(case))}", ", ".join(_failed(case, one) for one in by)))
    said = (
        f"{plural(len(rows), 'task')} of {len(tasks)} {'was' if len(rows) == 1 else 'were'} not passed in every trial by every "
        f"{case.judge}."
        if rows
        else f"Every {case.judge} saw every task passed."
    )
    return _chapter("Tasks that were not passed", said, {"tasks": facts}, ("task", "passed", "failed at"), rows)


def _failed(case: Case, by: Json) -> str:
    """A validator, how often the task failed there if it was tried more than once, and whether for want of time."""
    failed, late = by["trials"] - by["passed"], by["timeout"]
    parts = [f"{failed} of {by['trials']}"] if by["trials"] > 1 else []
    parts += [] if not late else ["out of time"] if late == failed else [f"{late} out of time"]
    who = case.called[by["validator"]]
    return f"{who} ({', '.join(parts)})" if parts else who


def _rubric(case: Case, records: Sequence[Rubric], rules: RubricScore) -> Chapter:
    """Checks that some validator's judge answered NO, and what of the baseline was not met. SPEC 2.3."""
    facts: list[Json] = []
    rows = []
    for name in BASELINE:
        if by := [one.validator for one in records if one.baseline[name] is False]:
            facts.append({"check": name, "weight": None, "skippable": False, "validators": by})
            rows.append((name, "all", "no", _said_no(case, by), _GATE[name]))
    for check in rules.checks:
        if by := [one.validator for one in records if all(one.baseline.values()) and one.checks[check.id] is False]:
            facts.append({"check": check.id, "weight": check.weight, "skippable": check.skippable, "validators": by})
            rows.append((check.id, str(check.weight), "yes" if check.skippable else "no", _said_no(case, by), check.label))
    said = f"{plural(len(rows), 'check')} {'was' if len(rows) == 1 else 'were'} missed." if rows else "No check was missed."
    return _chapter(
        "Checks that were missed", said, {"checks": facts}, ("check", "BPS", "skippable", "NO by", "what it asks"), rows
    )


def _said_no(case: Case, keys: Sequence[str]) -> str:
    return named([case.called[key] for key in sorted(keys, key=_votes(case).index)])


def _workflow(settlement: Settlement, case: Case, records: Sequence[Workflow], rules: WorkflowScore) -> Chapter:
    """Tasks of the window in which success was not above the gate at some validator. SPEC 2.2."""
    frame = settlement.frame
    found: dict[tuple[int, str], list[Json]] = {}
    count: set[tuple[int, str]] = set()
    windows = workflow.windows(records, frame, rules)
    for key in _votes(case):
        for record in windows[frame.row[key], frame.column[case.participant.key]]:
            of = (record.epoch, record.task)
            count.add(of)
            parts = workflow.task(record, rules)
            if not workflow.succeeded(record, rules):
                one = {"validator": key, "success": text(parts.success), "score": text(parts.score), "outcome": record.outcome}
                found.setdefault(of, []).append(one)
    rows, facts = [], []
    for epoch, task in sorted(found, key=lambda of: (of[0], of[1].encode())):
        by = found[epoch, task]
        facts.append({"epoch": epoch, "task": task, "validators": by})
        how = [f"{case.called[one['validator']]} ({'invalid' if one['outcome'] == 'invalid' else one['success']})" for one in by]
        rows.append((task, str(epoch), ", ".join(how)))
    gate = text(rules.gate)
    said = (
        f"In {len(rows)} of {plural(len(count), 'task')} success was not above {gate} at every validator, so cost and time give "
        f"nothing there."
        if rows
        else f"In every task success was above {gate}."
    )
    return _chapter("Tasks that failed", said, {"tasks": facts}, ("task", "epoch", "success at"), rows)


def _chapter(title: str, said: str, facts: Json, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Chapter:
    """The chapter `failed`: all of it as facts, and as much as people read as a table."""
    more = [] if len(rows) <= MOST else [f"The first {MOST} are shown; --json has all."]
    table = Table(columns, tuple(rows[:MOST])) if rows else None
    return Chapter(name="failed", title=title, text=(said, *more), facts=facts, table=table)
