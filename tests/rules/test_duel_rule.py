"""Duels: against the oracle in fractions, by all orders of small populations, and on real trials. SPEC 7, `[duel]`."""

from __future__ import annotations

import csv
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.conformance import answer
from assay.exact import NANO, nanos
from assay.rules.duel import Course, decide, document, order, outcomes
from assay.scheme.load import parse
from assay.scheme.model import Duel
from depth import depth
from oracle.duel import duel as oracle_duel

SEED = "sha256:" + "5a" * 32
Json = dict[str, Any]


def rules(margin: str = "0", alpha: str = "5%") -> Duel:
    return Duel.model_validate({"margin": margin, "alpha": alpha})


@given(
    st.lists(st.sampled_from(["pass", "fail", "timeout", "error", None]), min_size=2, max_size=60),
    st.sampled_from(["0", "2%", "0.1", "0.333333333", "0.5", "0.999999999"]),
    st.sampled_from(["5%", "50%", "0.999999999", "0.000000001", "0.2"]),
    st.integers(1, 4),
    st.sampled_from([1, 2, 5]),
)
def test_the_oracle_goes_the_same_way(drawn: list[str | None], margin: str, alpha: str, challengers: int, trials: int) -> None:
    pairs = zip(drawn[::2], drawn[1::2], strict=False)
    rows = [
        {"task": f"t{at // trials}", "trial": at % trials + 1, "challenger": challenger, "king": king}
        for at, (challenger, king) in enumerate(pairs)
    ]
    case: Json = {"duel": {"margin": margin, "alpha": alpha}, "receipt": SEED, "challenger": "c", "king": "k", "trials": trials}
    case |= {"tasks": [f"t{at}" for at in range(-(-len(rows) // trials))], "challengers": challengers, "results": rows}
    assert answer("duel", case) == oracle_duel(case)


def won(pairs: int, better: int, worse: int, duel: Duel, challengers: int = 1) -> Fraction:
    """Exactly how often a challenger wins by its wealth, over all orders of a population of pairs."""
    times = total = 0
    for ups in combinations(range(pairs), better):
        rest = [at for at in range(pairs) if at not in ups]
        for downs in combinations(rest, worse):
            population = [(at in ups, at in downs) for at in range(pairs)]
            course = decide(pairs, population, duel, challengers)
            assert course.winner is not None
            times += course.winner == "challenger"
            total += 1
    return Fraction(times, total)


@pytest.mark.parametrize("alpha", ["0.05", "0.2", "0.5", "0.9"])
@pytest.mark.parametrize("margin", ["0", "0.2", "0.25", "0.5"])
def test_whoever_is_not_better_wins_at_most_alpha_of_all_orders(margin: str, alpha: str) -> None:
    pairs = depth(6, 8)
    for better in range(pairs + 1):
        for worse in range(pairs - better + 1):
            if (better - worse) * NANO <= nanos(margin) * pairs:
                assert won(pairs, better, worse, rules(margin, alpha)) <= Fraction(nanos(alpha), NANO)
                assert won(pairs, better, worse, rules(margin, alpha), 3) <= Fraction(nanos(alpha), 3 * NANO)


def test_a_king_that_is_worse_stays_at_most_alpha_of_all_orders() -> None:
    for better, worse in ((3, 2), (1, 0), (4, 2)):
        assert 1 - won(7, better, worse, rules(alpha="50%")) <= Fraction(1, 2)


def test_at_the_boundary_of_the_null() -> None:
    """Populations with as many better as worse pairs: 10^5 runs in full."""
    r, runs = Random(7), depth(600, 50_000)
    for pairs, half in ((40, 20), (60, 10)):
        population = [(True, False)] * half + [(False, True)] * half + [(True, True)] * (pairs - 2 * half)
        wins = 0
        for _ in range(runs):
            r.shuffle(population)
            wins += decide(pairs, population, rules()).winner == "challenger"
        assert wins <= 0.05 * runs


def test_a_mean_exactly_at_its_bound_is_no_free_bet() -> None:
    """Of what is left every pair would have to be lost for the null to hold: a bet there may win, and must not be free before."""
    course = decide(6, [(True, False)] * 3, rules(alpha="0.000000001"))
    assert (course.winner, course.by, len(course.steps)) == (None, None, 3)  # 3 ahead, 3 left: equal is still possible
    course.take(True, True)
    assert (course.winner, course.by) == ("challenger", "certainty")
    with pytest.raises(ValueError, match="decided"):
        course.take(True, True)


def test_wealth_is_rounded_against_the_challenger() -> None:
    course = decide(7, [(True, False), (False, True), (True, True)], rules(alpha="0.000000001"))
    exact = oracle_exact(7, [1, -1, 0])
    assert course.steps[-1].challenger_wealth < exact[0] < course.steps[-1].challenger_wealth + 20
    assert course.steps[-1].king_wealth - 20 < exact[1] < course.steps[-1].king_wealth


def oracle_exact(pairs: int, differences: list[int]) -> tuple[Fraction, Fraction]:
    """The wealth of both without any rounding, at margin 0; no bet is bounded here."""
    up, down, total = [Fraction(10**18)] * 3, [Fraction(10**18)] * 3, 0
    for at, d in enumerate(differences):
        mu, nu = Fraction(-total, pairs - at), Fraction(1 - total, pairs - at)
        bets = [Fraction(quarter, 4) for quarter in (1, 2, 3)]
        up = [wealth * (1 + min(bet, Fraction(3, 4) / (1 + mu)) * (d - mu)) for wealth, bet in zip(up, bets, strict=True)]
        down = [wealth * (1 + min(bet, Fraction(3, 4) / (1 - nu)) * (nu - d)) for wealth, bet in zip(down, bets, strict=True)]
        total += d
    return sum(up, Fraction(0)), sum(down, Fraction(0))


def test_the_order_depends_on_receipt_and_both_submissions() -> None:
    seed = bytes(32)
    orders = [
        tuple(order(["a", "b", "c", "d"], 3, *given))
        for given in ((seed, "c", "k"), (b"\1" * 32, "c", "k"), (seed, "d", "k"), (seed, "c", "l"))
    ]
    assert len(set(orders)) == 4
    assert all(sorted(pairs) == sorted(orders[0]) for pairs in orders)
    assert orders[0] == tuple(order(["d", "c", "b", "a"], 3, seed, "c", "k"))


def test_what_comes_later_changes_nothing_that_was_decided() -> None:
    r = Random(3)
    for _ in range(50):
        population = [(r.random() < 0.7, r.random() < 0.4) for _ in range(80)]
        whole = decide(80, population, rules())
        steps = len(whole.steps)
        for cut in range(steps + 1):
            part = decide(80, population[:cut], rules())
            assert part.steps == whole.steps[:cut]
            assert (part.winner is None) == (cut < steps)


def test_a_duel_goes_with_trials_alone_and_changes_no_digest_where_there_is_none() -> None:
    head = '[scheme]\nname = "s"\n[score]\nkind = "{}"\n'
    plain = parse(head.format("tests"))
    assert "duel" not in plain.document()
    with_duel = parse(head.format("tests") + "[duel]\n")
    assert with_duel.document()["duel"] == {"margin": "0", "alpha": "0.05", "order": "receipt"}
    assert with_duel.digest != plain.digest
    with pytest.raises(Exception, match="a duel needs trials that both sides have"):
        parse(head.format("given") + "[duel]\n")


def test_a_document_says_what_is_waited_for() -> None:
    along = order(["a", "b"], 1, bytes(32), "c", "k")
    first, second = along
    pair_outcomes = outcomes(along, {first: True, second: True}, {first: True})
    assert pair_outcomes == [(True, True), None]
    shown = document(along, decide(2, pair_outcomes, rules()))
    assert shown["waits_for"] == {"task": second[0], "trial": second[1]}
    assert document(along, Course(2, rules()))["path"] == []


@pytest.fixture(scope="module")
def trials(shared: Path) -> dict[str, dict[tuple[str, int], bool]]:
    """The Terminal-Bench trials: agent → task and run → whether it passed."""
    passed: dict[str, dict[tuple[str, int], bool]] = {}
    with (shared / "data" / "terminal-bench-core-0.1.1.trials.csv").open() as file:
        for row in csv.DictReader(file):
            passed.setdefault(row["agent"], {})[row["task"], int(row["run"])] = row["resolved"] == "1"
    return passed


def test_real_agents_are_told_apart_by_a_third_of_the_pairs(trials: dict[str, dict[tuple[str, int], bool]]) -> None:
    steps = wrong = duels = 0
    tasks = sorted({task for task, _ in next(iter(trials.values()))})
    for seed in range(depth(1, 6)):
        for challenger, mine in trials.items():
            for king, theirs in trials.items():
                if challenger == king:
                    continue
                along = order(tasks, 5, bytes([seed]) * 32, challenger, king)
                course = decide(len(along), outcomes(along, mine, theirs), rules())
                better = "challenger" if sum(mine.values()) > sum(theirs.values()) else "king"
                steps, wrong, duels = steps + len(course.steps), wrong + (course.winner != better), duels + 1
    assert steps <= 130 * duels
    assert wrong <= 0.01 * duels


def test_several_challengers_together_win_wrongly_in_at_most_alpha_of_runs() -> None:
    """Five challengers as good as their king, which meets all of them with the same trials: any of them wins in few runs."""
    runs, together, apart = depth(120, 10_000), 0, 0
    king = [at % 2 == 0 for at in range(60)]
    for run in range(runs):
        r = Random(run)
        duels = []
        for _ in range(5):
            sides = [*king]
            r.shuffle(sides)
            pairs = list(zip(sides, king, strict=True))
            r.shuffle(pairs)
            duels.append(pairs)
        together += any(decide(60, pairs, rules(), 5).winner == "challenger" for pairs in duels)
        apart += any(decide(60, pairs, rules()).winner == "challenger" for pairs in duels)
    assert together <= 0.05 * runs
    assert apart > 0.05 * runs, "without sharing, somebody wins far too often"
