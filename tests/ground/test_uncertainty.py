"""Uncertainty beside the score: known values, hand-made tables, properties, and the page that explains them."""

from __future__ import annotations

import csv
import doctest
import math
import re
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.exact import NANO
from assay.uncertainty import Interval, Pairing, Runs, leaderboard, paired, separation, wilson

Z95 = Decimal("1.95996398454005423552459443052")  # the 97.5 % point of the normal distribution
DOCS = Path(__file__).parents[2] / "docs"


def wilson_by_hand(passed: int, trials: int) -> tuple[Decimal, Decimal]:
    """The two roots of (p̂ − p)² = z² p (1 − p) / n, which is what the interval is, in 40 digits."""
    with localcontext(prec=40):
        n, p, z2 = Decimal(trials), Decimal(passed) / trials, Z95 * Z95
        a, b, c = 1 + z2 / n, -(2 * p + z2 / n), p * p
        root = (b * b - 4 * a * c).sqrt()
        return (-b - root) / (2 * a), (-b + root) / (2 * a)


def mcnemar_by_hand(x: int, y: int) -> Fraction:
    """Twice the smaller tail of n fair coins, at most 1, as a fraction."""
    n = x + y
    return min(Fraction(1), 2 * Fraction(sum(math.comb(n, i) for i in range(min(x, y) + 1)), 2**n))


def runs(outcomes: dict[str, str], validators: int = 1) -> dict[tuple[str, str, int], bool]:
    """Runs from task → letters, one a trial ("+" passed, "-" failed), the same for every validator."""
    return {
        (f"v{v}", task, trial): mark == "+"
        for v in range(validators)
        for task, marks in outcomes.items()
        for trial, mark in enumerate(marks, start=1)
    }


def table(both: int, only_a: int, only_b: int, neither: int) -> tuple[Runs, Runs]:
    """Two participants with one run a task and these counts."""
    marks = [("+", "+")] * both + [("+", "-")] * only_a + [("-", "+")] * only_b + [("-", "-")] * neither
    return runs({f"t{i}": a for i, (a, _) in enumerate(marks)}), runs({f"t{i}": b for i, (_, b) in enumerate(marks)})


cells_of_one = st.dictionaries(st.tuples(st.sampled_from("vw"), st.sampled_from("pqrst"), st.integers(1, 3)), st.booleans())


# Wilson


@pytest.mark.parametrize(
    ("passed", "trials", "low", "high"),
    [(73, 91, 0.708860, 0.871055), (8, 10, 0.490162, 0.943318), (1, 2, 0.094531, 0.905469), (0, 80, 0.0, 0.045818)],
)
def test_wilson_is_the_published_formula(passed: int, trials: int, low: float, high: float) -> None:
    got = wilson(passed, trials)
    by_hand = wilson_by_hand(passed, trials)
    assert (got.low, got.high) == pytest.approx((float(by_hand[0]), float(by_hand[1])), rel=1e-12, abs=1e-15)
    assert (got.low, got.high) == pytest.approx((low, high), abs=6e-7)


def test_wilson_of_none_and_of_all_reaches_the_end_but_not_beyond() -> None:
    z2 = float(Z95 * Z95)
    assert wilson(0, 80).low == 0.0
    assert wilson(0, 80).high == pytest.approx(z2 / (80 + z2), rel=1e-12)
    assert wilson(80, 80).high == 1.0
    assert wilson(80, 80).low == pytest.approx(80 / (80 + z2), rel=1e-12)


def test_confidence_moves_the_ends() -> None:
    narrow, usual, wide = (wilson(73, 91, confidence) for confidence in (0.8, 0.95, 0.99))
    assert wide.low < usual.low < narrow.low < 73 / 91 < narrow.high < usual.high < wide.high


@given(st.integers(1, 100_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.01, 0.999))
def test_wilson_is_a_range_of_rates_around_the_rate(count: tuple[int, int], confidence: float) -> None:
    passed, trials = count
    got = wilson(passed, trials, confidence)
    assert 0 <= got.low <= passed / trials <= got.high <= 1
    mirrored = wilson(trials - passed, trials, confidence)
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - got.high, 1 - got.low), abs=1e-12)


@given(st.integers(1, 2_000).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))))
def test_wilson_rises_with_each_pass_and_narrows_with_more_trials(count: tuple[int, int]) -> None:
    passed, trials = count
    here, more, longer = wilson(passed, trials), wilson(passed + 1, trials), wilson(2 * passed, 2 * trials)
    assert here.low < more.low
    assert here.high < more.high
    assert longer.high - longer.low < here.high - here.low


@pytest.mark.parametrize(("passed", "trials"), [(0, 0), (0, -1), (-1, 5), (6, 5)])
def test_wilson_refuses_counts_that_are_none(passed: int, trials: int) -> None:
    with pytest.raises(BadInput):
        wilson(passed, trials)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, math.nan])
def test_levels_outside_0_to_1_are_refused(level: float) -> None:
    with pytest.raises(BadInput, match="confidence"):
        wilson(1, 2, level)
    with pytest.raises(BadInput, match="alpha"):
        leaderboard(["a"], {}, alpha=level)


# McNemar


@given(st.lists(st.lists(st.booleans(), min_size=14, max_size=14), min_size=1, max_size=30))
def test_each_step_is_the_first_that_the_one_before_it_is_shown_to_pass(rows: list[list[bool]]) -> None:
    rows.sort(key=sum, reverse=True)
    cells = {f"p{row}": {("v", f"t{task}", 1): done for task, done in enumerate(rows[row])} for row in range(len(rows))}
    expected, above = {}, "p0"
    for key in [*cells][1:]:
        pair = paired(cells[above], cells[key])
        if pair.p_value is not None and pair.p_value <= 0.05 and pair.only_a > pair.only_b:
            expected[key] = above
            above = key
    steps = {row.participant: row.step_from for row in leaderboard([*cells], cells) if row.step_from is not None}
    assert steps == expected


@pytest.mark.parametrize(
    ("counts", "p"),
    [
        ((3, 6, 0, 1), Fraction(2, 64)),  # six coins, all one way
        ((3, 0, 5, 1), Fraction(2, 32)),
        ((0, 8, 2, 0), Fraction(2 * (1 + 10 + 45), 1024)),
        ((2, 3, 3, 2), Fraction(1)),
        ((4, 0, 0, 4), Fraction(1)),  # never differ: no evidence of a difference
    ],
)
def test_paired_is_the_exact_binomial(counts: tuple[int, int, int, int], p: Fraction) -> None:
    got = paired(*table(*counts))
    assert (got.both, got.only_a, got.only_b, got.neither, got.undecided) == (*counts, 0)
    assert got.p_value == pytest.approx(float(p), rel=1e-9)


@given(st.integers(0, 60), st.integers(0, 60))
def test_any_discordant_counts_by_hand(x: int, y: int) -> None:
    assert paired(*table(0, x, y, 1)).p_value == pytest.approx(float(mcnemar_by_hand(x, y)), rel=1e-9)


def test_nothing_shared_has_no_p_value() -> None:
    nothing = Pairing(0, 0, 0, 0, None)
    assert paired({}, {}) == nothing
    assert paired(runs({"t": "+"}), runs({"u": "-"})) == nothing
    assert paired({("v", "t", 1): True}, {("w", "t", 1): True}) == nothing  # the same task, but never by the same validator


def test_a_pair_is_a_task_by_majority_of_the_shared_runs() -> None:
    a = runs({"won": "++-", "lost": "--+", "even": "+-", "alone": "+", "extra": "+--"})
    b = runs({"won": "--+", "lost": "---", "even": "++", "extra": "+"})
    assert paired(a, b) == Pairing(both=1, only_a=1, only_b=0, neither=1, p_value=1.0, undecided=1)  # extra: trial 1 is shared


def test_copies_by_more_validators_add_no_certainty() -> None:
    marks_a = {f"t{i}": "+" for i in range(6)} | {"u": "-", "w": "-"}
    marks_b = {f"t{i}": "-" for i in range(5)} | {"t5": "+", "u": "+", "w": "+"}
    single, many = ({"a": runs(marks_a, v), "b": runs(marks_b, v)} for v in (1, 32))
    assert paired(single["a"], single["b"]) == paired(many["a"], many["b"])
    assert paired(single["a"], single["b"]).p_value == pytest.approx(float(mcnemar_by_hand(5, 2)))
    for few_runs, many_runs in zip(leaderboard(["a", "b"], single), leaderboard(["a", "b"], many), strict=True):
        assert many_runs.trials == 32 * few_runs.trials
        assert (many_runs.low, many_runs.high, many_runs.p_next) == (few_runs.low, few_runs.high, few_runs.p_next)


@given(cells_of_one, cells_of_one)
def test_paired_against_a_slow_table_and_swapped(a: Runs, b: Runs) -> None:
    counts = {"both": 0, "only_a": 0, "only_b": 0, "neither": 0, "undecided": 0}
    for task in sorted({run[1] for run in a if run in b}):
        shared = [run for run in a if run in b and run[1] == task]
        share_a, share_b = (Fraction(sum(own[run] for run in shared), len(shared)) - Fraction(1, 2) for own in (a, b))
        if share_a == 0 or share_b == 0:
            counts["undecided"] += 1
        elif share_a > 0:
            counts["both" if share_b > 0 else "only_a"] += 1
        else:
            counts["only_b" if share_b > 0 else "neither"] += 1
    got = paired(a, b)
    assert {name: getattr(got, name) for name in counts} == counts
    assert paired(b, a) == Pairing(got.both, got.only_b, got.only_a, got.neither, got.p_value, got.undecided)
    if not sum(counts.values()):
        assert got.p_value is None
    else:
        assert got.p_value == pytest.approx(float(mcnemar_by_hand(got.only_a, got.only_b)), rel=1e-9)


# The leaderboard


def test_rows_in_ranking_order_compared_with_the_next() -> None:
    top, middle = table(both=1, only_a=7, only_b=0, neither=2)
    rows = leaderboard(["top", "middle", "same"], {"same": middle, "middle": middle, "top": top, "unranked": top})
    assert [row.participant for row in rows] == ["top", "middle", "same"]
    assert [(row.passed, row.trials, row.tasks, row.rate) for row in rows] == [
        (8, 10, 10, 0.8),
        (1, 10, 10, 0.1),
        (1, 10, 10, 0.1),
    ]
    assert [row.p_next for row in rows] == [pytest.approx(2 / 128), 1.0, None]
    assert [row.tied_with_next for row in rows] == [False, True, False]
    assert [Interval(row.low or 0, row.high or 0) for row in rows] == [wilson(8, 10), wilson(1, 10), wilson(1, 10)]


def test_alpha_is_the_highest_p_that_separates() -> None:
    a, b = table(0, 6, 0, 0)
    at = paired(a, b).p_value
    assert at is not None
    assert not leaderboard(["a", "b"], {"a": a, "b": b}, alpha=at)[0].tied_with_next
    assert leaderboard(["a", "b"], {"a": a, "b": b}, alpha=at * 0.999)[0].tied_with_next


def test_a_difference_against_the_ranking_does_not_confirm_the_ranking() -> None:
    a, b = table(0, 0, 9, 0)
    first = leaderboard(["a", "b"], {"a": a, "b": b})[0]
    assert first.p_next == pytest.approx(2 / 512)
    assert first.tied_with_next


def test_the_rate_is_the_mean_over_tasks_and_the_interval_counts_tasks() -> None:
    uneven = runs({"often": "++++++", "once": "-"})
    (row,) = leaderboard(["a"], {"a": uneven})
    assert (row.passed, row.trials, row.tasks, row.rate) == (6, 7, 2, 0.5)
    assert (row.low, row.high) == (wilson(1, 2).low, wilson(1, 2).high)
    assert (row.p_next, row.tied_with_next) == (None, False)


def test_a_participant_without_runs_has_no_interval() -> None:
    rows = leaderboard(["a", "b"], {"a": runs({"t": "+"})})
    assert (rows[1].passed, rows[1].trials, rows[1].tasks) == (0, 0, 0)
    assert (rows[1].rate, rows[1].low, rows[1].high) == (None, None, None)
    assert (rows[0].p_next, rows[0].tied_with_next) == (None, True)
    assert [row.trials for row in leaderboard(["x", "y"], {})] == [0, 0]
    assert leaderboard([], {}) == []


def test_a_participant_ranked_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="twice"):
        leaderboard(["a", "b", "a"], {})


@given(st.lists(cells_of_one, max_size=5))
def test_every_row_agrees_with_the_comparison_of_two(outcomes: list[Runs]) -> None:
    names = [f"p{i}" for i in range(len(outcomes))]
    rows = leaderboard(names, dict(zip(names, outcomes, strict=True)))
    for at, (row, own) in enumerate(zip(rows, outcomes, strict=True)):
        assert (row.passed, row.trials) == (sum(own.values()), len(own))
        by_task = [[passed for run, passed in own.items() if run[1] == task] for task in {run[1] for run in own}]
        assert row.tasks == len(by_task)
        if row.rate is None or row.low is None or row.high is None:
            assert not own
        else:
            assert row.rate == pytest.approx(sum(sum(marks) / len(marks) for marks in by_task) / len(by_task))
            assert 0 <= row.low <= row.rate <= row.high <= 1
        if at + 1 < len(rows):
            assert row.p_next == paired(own, outcomes[at + 1]).p_value


def correlation_by_hand(own: list[Fraction], rest: list[Fraction]) -> float | None:
    """Pearson's correlation from its definition, exact up to the last root."""
    n = len(own)
    deviations, other = ([value - sum(values) / n for value in values] for values in (own, rest))
    spread = sum(value * value for value in deviations) * sum(value * value for value in other)
    return None if not spread else float(sum(a * b for a, b in zip(deviations, other, strict=True))) / math.sqrt(spread)


@given(
    st.integers(2, 5).flatmap(
        lambda tasks: st.lists(st.lists(st.integers(0, 3), min_size=tasks, max_size=tasks), min_size=3, max_size=8)
    )
)
def test_separation_is_the_correlation_of_a_task_with_the_other_tasks(thirds: list[list[int]]) -> None:
    rates = [[passed * (NANO // 3) for passed in row] for row in thirds]
    correlations = separation(rates)
    for at, value in enumerate(correlations):
        own = [Fraction(row[at]) for row in rates]
        rest = [Fraction(sum(row) - row[at]) for row in rates]
        expected = correlation_by_hand(own, rest)
        assert (value is None) == (expected is None)
        if value is not None and expected is not None:
            assert value == pytest.approx(expected, abs=1e-12)
            assert -1 <= value <= 1


def test_a_task_that_the_better_pass_separates_and_one_that_all_pass_does_not() -> None:
    rates = [[NANO, NANO, NANO], [NANO, NANO, 0], [NANO, 0, 0]]
    assert separation(rates) == [None, pytest.approx(0.5), pytest.approx(0.5)]  # everybody passes the first
    weaker = [[NANO, NANO, NANO, 0], [NANO, NANO, 0, 0], [NANO, 0, 0, NANO]]
    assert separation(weaker)[-1] == pytest.approx(-(3**0.5) / 2)
    assert separation(rates[:2]) == [None] * 3
    assert separation([]) == []
    with pytest.raises(BadInput, match="pass rates"):
        separation([[0, NANO], [0]])
    with pytest.raises(BadInput, match="pass rates"):
        separation([[NANO + 1]])


def test_real_trials_thirteen_agents_on_eighty_tasks(shared: Path) -> None:
    """Public Terminal-Bench trials: runs taken as pairs would separate neighbours whom the tasks do not."""
    cells: dict[str, dict[tuple[str, str, int], bool]] = {}
    with (shared / "data" / "terminal-bench-core-0.1.1.trials.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            cells.setdefault(line["agent"], {})["v", line["task"], int(line["run"])] = line["resolved"] == "1"
    ranking = sorted(cells, key=lambda agent: (-sum(cells[agent].values()), agent))
    rows = leaderboard(ranking, cells)
    assert {row.tasks for row in rows} == {80}
    assert all(row.tied_with_next for row in rows[:-1])
    first_and_last = paired(cells[ranking[0]], cells[ranking[-1]])
    assert first_and_last.only_a > first_and_last.only_b
    assert first_and_last.p_value is not None
    assert first_and_last.p_value < 1e-6
    upper, lower = (cells[f"{agent}_claude-4-sonnet"] for agent in ("20250902_orchestrator", "20250811_cursor-cli"))
    assert (paired(upper, lower).only_a, paired(upper, lower).only_b) == (14, 6)
    assert sum(upper[run] and not lower[run] for run in upper) == 71
    assert sum(lower[run] and not upper[run] for run in upper) == 32


@pytest.mark.parametrize("page", ["uncertainty.md", "exactness.md"])
def test_the_examples_on_the_page_come_out_as_printed(page: str) -> None:
    blocks = re.findall(r"^```pycon\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    report: list[str] = []
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, page, 0)
    result = doctest.DocTestRunner().run(examples, out=report.append)
    assert result.attempted > 5
    assert not result.failed, "".join(report)
