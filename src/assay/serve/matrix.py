"""A participant's outcomes by task and validator, and the table of tasks × validators that shows them.

A large table is grouped by what came of the tasks, has narrow cells, and can be filtered. SPEC 2.1, 3.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from assay.exact import NANO, half_even
from assay.records import Evidence, Tests
from assay.serve.draw import share
from assay.serve.season import Json, Season
from assay.settle.score import accepted, holding

__all__ = ["matrix", "outcomes", "pass_rates", "shown_outcome"]

Outcomes = dict[tuple[str, str], list[str]]
GROUPED = 20
"""Tasks above which the table is grouped by their results."""
NARROW = 12
"""Validators above which a cell is only its sign."""
RESULTS = (("fail", "All fail"), ("divided", "Divided"), ("pass", "All pass"))
"""The groups, in the order of the table: what is still to be won stands first."""


def outcomes(season: Season, key: str) -> Outcomes:
    """(task, validator) → the outcomes of the trials that stand, in their order; empty where only sums are known."""
    return season.once(f"outcomes\n{key}", lambda: _outcomes(season, key))


def _outcomes(season: Season, key: str) -> Outcomes:
    trials = season.scheme.kind.trials(season.scheme.score) or 1
    records = [record for record in season.records(key) if isinstance(record, Tests)]
    frame = season.settlement.frame
    column, column_of = frame.column[key], holding(frame)
    about: list[Evidence] = [record for record in accepted(records, frame) if column_of(record) == column]
    standing = [record for record in about if isinstance(record, Tests)]
    seen: Outcomes = {}
    for record in sorted(standing, key=lambda record: record.trial):
        if record.trial <= trials:
            seen.setdefault((record.task, record.validator), []).append(record.outcome)
    return seen


def pass_rates(season: Season, key: str) -> list[float]:
    """Of each task the part of the counted trials that passed; empty where that is not known."""
    seen = outcomes(season, key)
    if not seen:
        return []
    counting = [vote["validator"] for vote in season.agreed[key]["validators"] if not vote["excluded"]]
    rates = []
    for task in season.settlement.inputs.tasks:
        runs = [outcome for validator in counting for outcome in seen.get((task, validator), [])]
        rates.append(runs.count("pass") / len(runs) if runs else 0.0)
    return rates


def matrix(season: Season, key: str) -> Json | None:
    """Tasks × validators: what each saw, the tasks that fail first; None where no single records say."""
    seen = outcomes(season, key)
    if not seen:
        return None
    trials = season.scheme.kind.trials(season.scheme.score) or 1
    columns = [*_columns(season, key, seen)]
    rows = [_row(task, columns, seen, trials) for task in season.settlement.inputs.tasks]
    rows.sort(key=lambda row: (row["passed"], row["task"].encode()))
    grouped = len(rows) > GROUPED
    groups = [
        {"id": result, "title": title, "rows": [row for row in rows if row["result"] == result]} for result, title in RESULTS
    ]
    return {
        "cols": columns,
        "narrow": len(columns) > NARROW,
        "grouped": grouped,
        "groups": [group for group in groups if group["rows"]] if grouped else [{"id": "", "title": "", "rows": rows}],
    }


def _columns(season: Season, key: str, seen: Outcomes) -> Iterator[Json]:
    """The validators that saw anything of this participant, the highest stake first, each with its score and its state."""
    row = season.agreed[key]
    votes = {vote["validator"]: vote for vote in row["validators"]}
    others = {other["validator"]: other for other in row["not_counted"]}
    judged = {validator for _, validator in seen}
    total = int(row["needed_stake_of"]) or 1
    for validator in season.validators.values():
        vote = votes.get(validator.key)
        if vote is None and validator.key not in others and validator.key not in judged:
            continue
        out = vote is not None and vote["excluded"]
        state = "not counted" if vote is None else "counts"
        if out and vote is not None:
            measure = vote["modified_z"] if vote["modified_z"] is not None else vote["z_squared"]
            state = f"left out, {'|M|' if vote['modified_z'] is not None else 'z²'} {measure}"
        yield {
            "key": validator.key,
            "name": season.called[validator.key],
            "stake": f"{share(half_even(validator.stake * NANO, total))} of stake" if season.scheme.stakes else "",
            "score": "–" if vote is None else vote["score"],
            "state": state,
            "cls": "out" if out or vote is None else "",
            "counts": vote is not None and not out,
        }


def _row(task: str, columns: Sequence[Json], seen: Mapping[tuple[str, str], list[str]], trials: int) -> Json:
    """A row of the table: what each validator saw of a task, and how many of the counted trials passed."""
    cells, passed, counted = [], 0, 0
    for column in columns:
        runs = seen.get((task, column["key"]), [])
        if column["counts"]:
            passed += runs.count("pass")
            counted += trials
        count = f"{runs.count('pass')} of {trials}" if trials > 1 and runs else ""
        cells.append({"o": shown_outcome(runs, trials), "cls": column["cls"], "n": count})
    result = "fail" if not passed else "pass" if passed == counted else "divided"
    return {"task": task, "cells": cells, "sum": f"{passed} of {counted}", "passed": passed, "result": result}


def shown_outcome(runs: Sequence[str], trials: int) -> str:
    """Return what a cell shows of a task's trials by one validator."""
    real = [outcome for outcome in runs if outcome != "error"]
    if not runs:
        return "none"
    if len(real) < trials:
        return "missing"
    if all(outcome == "pass" for outcome in real):
        return "pass"
    return "timeout" if all(outcome == "timeout" for outcome in real) else "fail"
