"""Sums in limbs are the sums of Python integers, at every size that may occur."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.exact import NANO, half_even
from assay.settle import limbs
from assay.settle.consensus import Agreement, Votes
from assay.settle.inputs import Ints

MOST = 2**63 - 1
STAKES = st.integers(0, MOST) | st.sampled_from([0, 1, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**48 - 1, MOST])
WIDE = st.integers(0, 2**95 - 1) | st.sampled_from([0, 2**32 - 1, 2**32, 2**63, 2**64, 2**95 - 1])


def places(numbers: list[int]) -> Ints:
    """Numerators as `weighted` gives them, the highest place taking what is left."""
    return np.array([[n >> 16 * place & (2**16 - 1 if place < 3 else -1) for n in numbers] for place in range(4)])


@given(st.lists(WIDE, max_size=5))
def test_integers_are_the_inverse_of_wide(numbers: list[int]) -> None:
    assert limbs.integers(limbs.wide(numbers)) == numbers
    assert limbs.integers(places(numbers)) == numbers


@given(st.data())
def test_sums_are_exact(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 4))
    drawn = data.draw(st.lists(STAKES, min_size=rows, max_size=rows))
    values = data.draw(st.lists(st.integers(0, NANO), min_size=rows * columns, max_size=rows * columns))
    marks = data.draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
    scores, mask = np.array(values, np.int64).reshape(rows, columns), np.array(marks, np.bool_).reshape(rows, columns)
    stakes = limbs.split(drawn)
    got = limbs.integers(limbs.weighted(stakes, scores)), limbs.integers(limbs.tally(stakes, mask)[1])
    assert got[0] == [sum(s * x for s, x in zip(drawn, scores[:, p].tolist(), strict=True)) for p in range(columns)]
    assert got[1] == [sum(s for s, marked in zip(drawn, mask[:, p], strict=True) if marked) for p in range(columns)]


@pytest.mark.parametrize("rows", [127, 128, 129, 5000])
def test_the_largest_stakes_and_scores_lose_no_bit(rows: int) -> None:
    stakes = limbs.split([MOST] * rows)
    mask = np.ones((rows, 2), np.bool_)
    assert limbs.integers(limbs.weighted(stakes, np.full((rows, 1), NANO))) == [rows * MOST * NANO]
    assert limbs.integers(limbs.weighted(stakes, np.full((rows, 1), NANO - 1))) == [rows * MOST * (NANO - 1)]
    assert limbs.integers(limbs.tally(stakes, mask)[1]) == [rows * MOST] * 2
    mask[0, 1] = False
    assert limbs.integers(limbs.tally(stakes, mask)[1]) == [rows * MOST, (rows - 1) * MOST]


def test_the_bounds_that_the_arithmetic_rests_on() -> None:
    assert (2**limbs.LIMB - 1) * NANO * limbs.PRODUCTS < 2**53
    assert (2**limbs.BITS - 1) * limbs.ROWS < 2**53


def test_values_that_hold_arrays_can_be_compared_and_be_keys() -> None:
    """NumPy says neither whether two arrays are equal nor what their hash is, so such a value is only equal to itself."""
    stakes = limbs.split([1, 2])
    assert stakes != limbs.split([1, 2])
    assert stakes in {stakes}
    assert Votes.__hash__ is Agreement.__hash__ is object.__hash__


def test_a_total_takes_only_what_the_mask_marks() -> None:
    stakes = limbs.split([1, 2**40, MOST])
    mask = np.array([[True, False, True], [False, False, True], [True, False, True]])
    counts, sums = limbs.tally(stakes, mask)
    assert counts.tolist() == [2, 0, 3]
    assert limbs.integers(sums) == [2**63, 0, 2**63 + 2**40]
    assert limbs.integers(limbs.twice(sums)) == [2**64, 0, 2**64 + 2**41]
    assert sums[0].max() < 2**32


@given(WIDE, WIDE, st.integers(-1, 1))
def test_comparison_is_of_the_whole_numbers(left: int, other: int, step: int) -> None:
    for right in (other, max(0, left + step) % 2**95):
        assert limbs.at_least(limbs.wide([left]), limbs.wide([right])).tolist() == [left >= right]


def test_ties_go_to_the_even_count_and_their_neighbours_do_not() -> None:
    below = 2 * MOST
    above = [below // 2, below // 2 + 1, below // 2 - 1, 3 * below // 2, 3 * below // 2 - 1, NANO * below]
    got = limbs.quotients(places(above), limbs.wide([below] * 6))
    assert got.tolist() == [0, 1, 0, 2, 1, NANO]


@given(st.lists(st.tuples(st.integers(1, 2**75), st.integers(0, 2 * NANO), st.sampled_from([-1, 0, 1])), min_size=1, max_size=6))
def test_quotients_round_halves_to_even_and_near_halves_rightly(parts: list[tuple[int, int, int]]) -> None:
    # (d·h + step) / 2·d is within one part of 2·d of h/2: a tie, or next to one.
    below = [2 * d for d, _, _ in parts]
    above = [min(NANO * 2 * d, max(0, d * h + step)) for d, h, step in parts]
    got = limbs.quotients(places(above), limbs.wide(below)).tolist()
    assert got == [half_even(a, b) for a, b in zip(above, below, strict=True)]


@given(st.lists(st.tuples(st.integers(0, 2**80), st.integers(1, 2**80)), min_size=1, max_size=6))
def test_quotients_of_any_ratio(pairs: list[tuple[int, int]]) -> None:
    above, below = [min(a, b * NANO) for a, b in pairs], [b for _, b in pairs]
    got = limbs.quotients(places(above), limbs.wide(below)).tolist()
    assert got == [half_even(a, b) for a, b in zip(above, below, strict=True)]
