"""How often honest validators are left out, and liars: against exact binomials, and what the seeds' rule is known to do."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import comb

import pytest

from assay.exact import NANO
from assay.rules.honest import exclusions, noisy, power
from assay.scheme.load import parse, presets
from oracle.consensus import Opinion, flag

SEEDS = noisy(parse(presets()["term-challenge"]).consensus, False)
NOISE = noisy(SEEDS, True)
FLOOR = NOISE.model_copy(update={"outliers": NOISE.outliers.model_copy(update={"mad_floor": NANO // 10})})


def lost(rules: dict[str, str], trials: int, validators: int, rate: Fraction) -> Fraction:
    """The exact chance that at least one of the honest validators is flagged and so excluded: all outcomes, by the oracle."""
    chance = [comb(trials, count) * rate**count * (1 - rate) ** (trials - count) for count in range(trials + 1)]
    total = Fraction(0)
    for counts in product(range(trials + 1), repeat=validators):
        scores = [Fraction(round(Fraction(count, trials) * NANO), NANO) for count in counts]
        opinions = [Opinion(str(at), 1, score, {}) for at, score in enumerate(scores)]
        flag(opinions, {"method": "modified-z", "threshold": "3.5", "mad_floor": "0.01"} | rules, trials)
        if any(opinion.excluded for opinion in opinions):
            share = Fraction(1)
            for count in counts:
                share *= chance[count]
            total += share
    return total


@pytest.mark.parametrize("rate", [0.5, pytest.param(0.8, marks=pytest.mark.full)])
def test_the_shares_are_those_of_all_outcomes(rate: float) -> None:
    for rules, section in ((SEEDS, {}), (NOISE, {"scale": "noise"})):
        exact = float(lost(section, 10, 3, Fraction(str(rate))))
        (exclusion,) = exclusions(rules, 10, 3, rates=[rate])
        assert abs(exclusion.share - exact) < 5 * (exact * (1 - exact) / exclusion.samples) ** 0.5 + 1e-9


def test_what_is_known_of_the_seeds_rule() -> None:
    few = [exclusion.share for exclusion in exclusions(SEEDS, 10, 3, rates=(0.5, 0.6, 0.7, 0.8))]
    many = [exclusion.share for exclusion in exclusions(SEEDS, 80, 5, rates=(0.5, 0.6, 0.7))]
    assert all(0.41 <= share <= 0.52 for share in few)
    assert all(0.17 <= share <= 0.19 for share in many)


def test_noise_leaves_out_at_most_one_percent() -> None:
    assert all(exclusion.share <= 0.01 for exclusion in exclusions(NOISE, 80, 5))
    assert all(exclusion.share <= 0.01 for exclusion in exclusions(NOISE, 10, 3, rates=(0.5, 0.6)))
    assert all(exclusion.share <= 0.01 for exclusion in exclusions(FLOOR, 10, 3)), "with a floor of one task"
    assert exclusions(NOISE, 10, 3, rates=(0.9,))[0].share > 0.1, "the noise of a median of 1 is 0"


def test_a_seed_decides_every_draw() -> None:
    assert exclusions(SEEDS, 20, 4, samples=500) == exclusions(SEEDS, 20, 4, samples=500)
    assert exclusions(SEEDS, 20, 4, samples=500) != exclusions(SEEDS, 20, 4, samples=500, seed=9)


def test_a_larger_lie_is_found_more_often() -> None:
    powers = power(NOISE, 80, samples=1000)
    for validators in (3, 5, 8, 12, 20):
        shares = [powers[validators, lie] for lie in (2, 3, 4, 5, 6)]
        assert shares == sorted(shares)
    assert powers[20, 6] > 0.9 > 0.1 > powers[20, 2]
