"""Workflows: four parts, one gate, a window of tasks. SPEC 2.2."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from assay.exact import NANO, nanos, text
from assay.records import Evidence, Workflow
from assay.scheme.model import WorkflowScore
from assay.settle.columns import Columns
from assay.settle.score import score, workflow
from assay.settle.score.standing import workflow_lasting
from assay.settle.score.workflow import TaskScore, averaged, task
from score_kit import axes, make, vectors

RULES = WorkflowScore(kind="workflow")
PERFECT = {"quality": "1", "steps_completed": 4, "steps_total": 4}
FREE = {"cost": "0", "budget": "1", "seconds": "0", "max_seconds": "1"}


def ran(name: str = "t1", validator: str = "v1", **fields: Any) -> Workflow:
    record = make("workflow", validator, task=name, **{**PERFECT, **FREE, **fields})
    assert isinstance(record, Workflow)
    return record


def test_vectors(shared: Path) -> None:
    cases = vectors(shared, "workflow")["cases"]
    assert cases
    for case in cases:
        fields = {name: value for name, value in case.items() if name not in ("score", "note")}
        assert task(ran(**fields), RULES).score == nanos(case["score"])


def test_the_parts_of_the_seeds_example() -> None:
    fields: dict[str, Any] = {
        "steps_completed": 3,
        "cost": "0.01",
        "budget": "0.05",
        "seconds": "2",
        "max_seconds": "10",
        "hard_failures": 1,
    }
    assert task(ran(**fields), RULES) == TaskScore(750_000_000, 800_000_000, 800_000_000, 500_000_000, 745_000_000)


def test_the_gate_is_strict() -> None:
    assert task(ran(quality="0.7"), RULES).score == 450_000_000
    assert task(ran(quality="0.700000001"), RULES).score == 850_000_000  # 0.3500000005 + 0.5, half to even
    assert task(ran(quality="1", steps_completed=7, steps_total=10), RULES).cost == 0


def test_costs_and_times_above_their_limit_are_worth_nothing_but_not_less() -> None:
    assert task(ran(cost="2", seconds="3"), RULES).score == 600_000_000
    assert task(ran(hard_failures=3, quality="0"), RULES).score == 0


def test_declared_retries_are_bounded_by_the_scheme() -> None:
    generous: dict[str, Any] = {"retries": 25, "declared_retries": 1000}
    assert task(ran(**generous), RULES).reliability == 500_000_000  # 5 × 4 steps are free, 5 are not
    assert task(ran(**generous), WorkflowScore(kind="workflow", max_retries_per_step=7)).reliability == NANO


def test_an_invalid_plan_scores_nothing() -> None:
    assert task(ran(outcome="invalid"), RULES) == TaskScore(0, 0, 0, 0, 0)


fractions = st.integers(0, NANO)
amounts = st.integers(0, 3 * NANO)
counts = st.integers(0, 4)


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    total = draw(st.integers(1, 9))
    return {
        "quality": text(draw(st.one_of(st.sampled_from([NANO, 7 * NANO // 10]), fractions))),
        "steps_completed": draw(st.one_of(st.just(total), st.integers(0, total))),
        "steps_total": total,
        "cost": text(draw(amounts)),
        "budget": text(draw(amounts.filter(bool))),
        "seconds": text(draw(amounts)),
        "max_seconds": text(draw(amounts.filter(bool))),
        **{name: draw(counts) for name in ("retries", "declared_retries", "timeouts", "hard_failures")},
    }


def plainly(run: dict[str, Any], rules: WorkflowScore) -> Fraction:
    """SPEC 2.2 once more, in fractions."""
    success = Fraction(run["quality"]) * Fraction(run["steps_completed"], run["steps_total"])
    cost = max(Fraction(0), 1 - Fraction(run["cost"]) / Fraction(run["budget"]))
    latency = max(Fraction(0), 1 - Fraction(run["seconds"]) / Fraction(run["max_seconds"]))
    if not success > Fraction(rules.gate, NANO):
        cost = latency = Fraction(0)
    declared = min(run["declared_retries"], run["steps_total"] * rules.max_retries_per_step)
    trouble = Fraction(max(0, run["retries"] - declared), 10) + Fraction(run["timeouts"], 5) + Fraction(run["hard_failures"], 2)
    reliability = min(Fraction(1), max(Fraction(0), 1 - trouble))
    return success / 2 + cost / 4 + latency * Fraction(15, 100) + reliability / 10


@given(runs(), st.integers(0, 2))
def test_against_fractions(run: dict[str, Any], per_step: int) -> None:
    rules = WorkflowScore(kind="workflow", max_retries_per_step=per_step)
    assert task(ran(**run), rules).score == round(plainly(run, rules) * NANO)


@given(st.lists(runs(), min_size=1, max_size=6), st.integers(1, 4))
def test_the_window_is_the_last_tasks_by_epoch_and_name(all_runs: list[dict[str, Any]], window: int) -> None:
    rules = WorkflowScore(kind="workflow", window=window)
    names = [(index // 2, "zé"[index % 2]) for index in range(len(all_runs))]  # z before é in UTF-8
    records: list[Evidence] = [ran(name, epoch=epoch, **run) for (epoch, name), run in zip(names, all_runs, strict=True)]
    scored = score(records[::-1], axes(), rules)
    each = [round(plainly(run, rules) * NANO) for run in all_runs][-window:]
    assert scored.scores[0, 0] == round(Fraction(sum(each), len(each)))
    assert scored.work["tasks"][0, 0] == len(each)
    assert scored.counting.tolist() == [[True, False], [False, False]]


def test_a_service_error_takes_the_task_out_for_everybody_it_was_judged_for() -> None:
    records: list[Evidence] = [
        ran("t1", epoch=1),
        ran("t2", epoch=1, outcome="invalid"),
        make("workflow", participant="bob", task="t2", submission="older", outcome="service-error"),
        ran("t2", epoch=2, quality="0"),
        ran("t1", "v2", participant="bob", outcome="service-error"),
        ran("t2", "v2", outcome="invalid"),
    ]
    scored = score(records, axes(), RULES)
    assert scored.scores.tolist() == [[550_000_000, 0], [0, 0]]  # (1 + 0.1) / 2: t2 of epoch 1 is out, of epoch 2 it is in
    assert scored.work["tasks"].tolist() == [[2, 0], [1, 0]]
    assert scored.counting.tolist() == [[True, False], [True, False]]
    assert scored.emptied is not None
    assert scored.emptied.tolist() == [[False, False], [False, True]]


def test_only_the_current_submission_and_never_a_duplicate() -> None:
    frame = axes(submissions=("s", "s"), duplicate_of={"bob": "ann"})
    records: list[Evidence] = [
        ran(submission="s"),
        ran("t2", submission="older"),
        make("workflow", participant="bob", task="t1", submission="s", outcome="invalid"),
    ]
    scored = score(records, frame, RULES)
    assert scored.counting.tolist() == [[True, False], [False, False]]
    assert scored.scores[0, 0] == NANO
    assert scored.first == {"ann": 1}


def test_a_task_with_large_denominators_is_settled_in_pythons_integers() -> None:
    weights = RULES.weights
    tops, wholes = (7 * 10**8 + 1, 10**17 + 3, 10**17 + 9), (10**9 - 1, 10**18 - 1, 10**18 - 3)
    parts = [np.array([number], np.int64) for number in (*tops, NANO // 3, *wholes)]
    shares = [Fraction(weight, NANO) for weight in (weights.success, weights.cost, weights.latency, weights.reliability)]
    exact = shares[0] * Fraction(tops[0], wholes[0]) + NANO * sum(
        share * Fraction(top, whole) for share, top, whole in zip(shares[1:3], tops[1:], wholes[1:], strict=True)
    )
    exact += shares[3] * (NANO // 3)
    assert workflow._settled(np.array([0], np.int64), tuple(parts), RULES).tolist() == [round(exact)]


def test_a_field_that_no_record_lacks_is_not_asked_for() -> None:
    columns = Columns.of([ran(), ran("t2")], workflow.COLUMNS)
    assert workflow.wrong(columns, {}).tolist() == [False, False]
    assert workflow.wrong(columns, {"quality": np.array([True, False])}).tolist() == [False, True]


def test_what_a_window_no_longer_reaches_need_not_be_kept() -> None:
    rules = WorkflowScore(kind="workflow", window=1)
    rows = [
        {"validator": "v", "submission": "s", "task": f"t{number}", "epoch": number, "seq": number, "outcome": "ran"}
        for number in (1, 2, 3)
    ]
    assert [row["seq"] for row in workflow_lasting(rows, rules, set())] == [3, 1]  # the first says when it was accepted


def test_only_cells_with_records_and_no_task_left_are_emptied() -> None:
    sums, counts = np.array([NANO, 5, 0, 0], np.int64), np.array([1, 2, 0, 0], np.int64)
    scored = averaged(sums, counts, axes(), {})
    assert scored.scores.tolist() == [[NANO, 2], [0, 0]]
    assert scored.counting.tolist() == [[True, True], [False, False]]
    assert scored.emptied is not None
    assert scored.emptied.tolist() == [[False, False], [False, False]]
    scored = averaged(sums, counts, axes(), {}, seen=np.array([True, True, True, False]))
    assert scored.emptied is not None
    assert scored.emptied.tolist() == [[False, False], [True, False]]
