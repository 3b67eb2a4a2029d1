"""Pass or fail: the share of trials passed over the whole set. SPEC 2.1."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.exact import NANO, nanos
from assay.records import Evidence
from assay.scheme.model import TestsScore
from assay.settle.score import score
from assay.settle.score.trials import score_of, tally
from score_kit import axes, make, vectors

ONE = TestsScore(kind="tests")
TASKS = ("t1", "t2", "t3")


def trial(task: str, outcome: str, validator: str = "v1", **fields: Any) -> Evidence:
    return make("tests", validator, task=task, outcome=outcome, **fields)


def test_vectors(shared: Path) -> None:
    cases = vectors(shared, "tests")["cases"]
    assert cases
    for case in cases:
        assert score_of(case["passed"], case["total"]) == nanos(case["score"])


@given(st.integers(1, 10**9), st.data())
def test_a_score_is_the_exact_rate_rounded_half_to_even(trials: int, data: st.DataObject) -> None:
    passed = data.draw(st.integers(0, trials))
    assert score_of(passed, trials) == round(Fraction(passed, trials) * NANO)


def test_timeouts_fail_and_errors_are_missing() -> None:
    records = [
        *(trial(task, outcome) for task, outcome in zip(TASKS, ("pass", "timeout", "fail"), strict=True)),
        *(trial(task, outcome, "v2") for task, outcome in zip(TASKS, ("pass", "error", "fail"), strict=True)),
    ]
    scored = score(records, axes(tasks=TASKS), ONE)
    assert scored.counting.tolist() == [[True, False], [False, False]]
    assert scored.scores.tolist() == [[333_333_333, 0], [0, 0]]
    assert scored.incomplete is not None
    assert scored.incomplete.tolist() == [[False, False], [True, False]]
    assert scored.missing is not None
    assert scored.missing.tolist() == [[0, 0], [1, 0]]
    assert scored.work["passed"].tolist() == [[1, 0], [0, 0]]
    assert scored.work["trials"].tolist() == [[3, 0], [0, 0]]
    assert scored.first == {"ann": 1}


def test_only_the_set_and_the_scheme_say_what_is_counted() -> None:
    extra = [trial("t9", "pass"), trial("t1", "pass", trial=2), trial("t1", "fail", submission="older")]
    scored = score([trial("t1", "pass"), *extra], axes(tasks=("t1",)), ONE)
    assert scored.scores[0, 0] == NANO
    alone = score([trial("t9", "pass")], axes(tasks=("t1", "t2")), ONE)
    assert alone.incomplete is not None
    assert alone.missing is not None
    assert alone.incomplete[0, 0]
    assert alone.missing[0, 0] == 2


def test_an_empty_task_set_is_refused() -> None:
    with pytest.raises(BadInput, match="the task set is empty"):
        score([], axes(), ONE)


def test_no_participants_no_scores() -> None:
    assert score([], axes((), ("v1",), tasks=TASKS), ONE).scores.shape == (1, 0)


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, dict[tuple[str, str, str, int], str]]:
    """Trials (validator, participant, task, trial) → outcome; some are not there, some are not asked for."""
    trials = draw(st.integers(1, 2))
    outcome = st.sampled_from(["pass", "pass", "fail", "timeout", "error", None])
    names = [(v, p, t, k) for v in ("v1", "v2") for p in ("ann", "bob") for t in ("t1", "t2", "else") for k in (1, 2)]
    often = draw(st.booleans())
    drawn = {name: draw(st.sampled_from(["pass", "fail"]) if often else outcome) for name in names}
    return trials, {name: seen for name, seen in drawn.items() if seen is not None}


@given(runs())
def test_against_fractions(run: tuple[int, dict[tuple[str, str, str, int], str]]) -> None:
    trials, outcomes = run
    records = [trial(t, outcome, v, participant=p, trial=k) for (v, p, t, k), outcome in outcomes.items()]
    scored = score(records, axes(tasks=("t1", "t2")), TestsScore(kind="tests", trials=trials))
    assert scored.missing is not None
    assert scored.incomplete is not None
    for row, v in enumerate(("v1", "v2")):
        for column, p in enumerate(("ann", "bob")):
            cells = [outcomes.get((v, p, t, k), "error") for t in ("t1", "t2") for k in range(1, trials + 1)]
            seen = any(name[:2] == (v, p) for name in outcomes)
            missing = cells.count("error") if seen else 0
            assert scored.missing[row, column] == missing
            assert scored.incomplete[row, column] == (missing > 0)
            assert scored.counting[row, column] == (seen and not missing)
            whole = Fraction(cells.count("pass"), len(cells)) if seen and not missing else Fraction(0)
            assert scored.scores[row, column] == round(whole * NANO)


def test_counts_from_elsewhere_share_the_arithmetic() -> None:
    passed, missing, seen = np.array([[73, 5]]), np.array([[0, 86]]), np.array([[True, True]])
    tasks = tuple(f"t{n}" for n in range(91))
    scored = tally(passed, missing, seen, axes(validators=("v1",), tasks=tasks), ONE, {"ann": 3})
    assert scored.scores.tolist() == [[802_197_802, 0]]
    assert scored.counting.tolist() == [[True, False]]
    assert scored.work["passed"].tolist() == [[73, 0]]
    assert scored.first == {"ann": 3}
    nobody = tally(passed, missing, np.array([[False, False]]), axes(validators=("v1",), tasks=tasks), ONE, {})
    assert nobody.missing is not None
    assert not nobody.counting.any()
    assert not nobody.missing.any()
