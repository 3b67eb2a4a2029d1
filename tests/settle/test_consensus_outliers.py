"""Outliers at the edges of their fences. SPEC 3.2."""

from assay.exact import NANO, nanos
from consensus_kit import agreed, rows


def test_a_score_exactly_at_the_threshold_is_no_outlier() -> None:
    # Median 0.5, MAD 0 → floor 0.01: |M| = 0.6745·d/0.01. With threshold 6.745, d = 0.1 is on the line and 1 nano more is over.
    at, over = ("0.5", "0.5", "0.5", "0.6"), ("0.5", "0.5", "0.5", "0.600000001")
    assert rows(agreed(at, [1] * 4, outliers={"threshold": "6.745"}).flagged) == []
    assert rows(agreed(over, [1] * 4, outliers={"threshold": "6.745"}).flagged) == [3]
    assert agreed(at, [1] * 4, outliers={"threshold": "6.745"}).modified_z(3, 0) == 6_745_000_000


def test_the_fences_around_a_median_between_two_nanos() -> None:
    # Median 0.5 and half a nano; at most 0.1 away is allowed, so half a nano more is too far on either side.
    low, high = ("0.5",) * 2 + ("0.500000001",) * 3, ("0.5",) * 3 + ("0.500000001",) * 2
    for others, inside, outside in ((low, "0.400000001", "0.4"), (high, "0.6", "0.600000001")):
        assert rows(agreed((inside, *others), [1] * 6, outliers={"threshold": "6.745"}).flagged) == []
        assert rows(agreed((outside, *others), [1] * 6, outliers={"threshold": "6.745"}).flagged) == [0]


def test_the_fences_of_the_z_score_to_the_nano() -> None:
    # Σ = 1 nano, n·σ = 2 nanos: the last score is 2 standard deviations away, and 2 is not more than 2.
    nano = ("0", "0", "0", "0", "0.000000001")
    assert rows(agreed(nano, [1] * 5, outliers={"method": "z"}).flagged) == []
    assert rows(agreed(nano, [1] * 5, outliers={"method": "z", "threshold": "1.999999999"}).flagged) == [4]
    ones = ("1", "1", "1", "1", "0.999999999")
    assert rows(agreed(ones, [1] * 5, outliers={"method": "z"}).flagged) == []
    assert rows(agreed(ones, [1] * 5, outliers={"method": "z", "threshold": "1.999999999"}).flagged) == [4]


def test_a_z_score_exactly_at_the_threshold_is_no_outlier() -> None:
    # 0, 0, 0, 0, 1: mean 0.2, σ = 0.4, z = 2.
    five = ("0", "0", "0", "0", "1")
    assert rows(agreed(five, [1] * 5, outliers={"method": "z"}).flagged) == []
    assert rows(agreed(five, [1] * 5, outliers={"method": "z", "threshold": "1.999999999"}).flagged) == [4]
    got = agreed(five, [1] * 5, outliers={"method": "z"})
    assert (got.mean(0), got.z_squared(4, 0)) == (NANO // 5, 4 * NANO)
    assert (got.median(0), got.mad(0), got.modified_z(4, 0)) == (None, None, None)


def test_without_a_floor_a_mad_of_zero_flags_nobody() -> None:
    got = agreed(("0.8", "0.8", "0.2"), [1000] * 3, outliers={"mad_floor": "0"})
    assert rows(got.flagged) == []
    assert (got.mad(0), got.modified_z(2, 0)) == (0, None)
    assert rows(agreed(("0.8", "0.8", "0.2"), [1000] * 3, outliers={"mad_floor": "0.000000001"}).flagged) == [2]


def test_the_median_of_an_even_count_is_exact() -> None:
    # Median 0.5 + half a nano; shown half to even.
    got = agreed(("0", "0.5", "0.500000001", "1"), [1] * 4)
    assert (int(got.median2[0]), got.median(0)) == (NANO + 1, NANO // 2)
    # Deviations 0.5 nano twice, then 0.5 less and 0.5 more half a nano: the middle two sum to 0.5 of a whole.
    assert int(got.mad4[0]) == 1 + (NANO - 1)


def test_the_flagged_with_exactly_half_of_the_stake_stay() -> None:
    scores = ("0.8", "0.8", "0.8", "0.2")
    half, less = agreed(scores, (1, 1, 1, 3)), agreed(scores, (1, 1, 2, 3))
    assert (rows(half.flagged), rows(half.excluded), bool(half.flagged_majority[0])) == ([3], [], True)
    assert half.score[0] == nanos("0.5")
    assert (rows(less.flagged), rows(less.excluded), bool(less.flagged_majority[0])) == ([3], [3], False)
    assert less.score[0] == nanos("0.8")


def test_the_mean_and_the_z_of_equal_scores() -> None:
    got = agreed(("0.5", "0.5", "0.5"), (1, 1, 1), outliers={"method": "z"})
    assert (got.mean(0), got.z_squared(0, 0), rows(got.flagged)) == (NANO // 2, None, [])
    few = agreed(("0.5", "0.5", None), (1, 1, 1), min_validators=1, outliers={"method": "z"})
    assert (few.mean(0), few.z_squared(0, 0), few.z_squared(2, 0)) == (None, None, None)


def test_two_scores_flag_nobody_and_show_no_median() -> None:
    got = agreed(("0", "1"), (1, 1), min_validators=1)
    assert (rows(got.flagged), got.median(0), got.mad(0), got.mean(0), got.modified_z(0, 0)) == ([], None, None, None, None)
    assert got.score[0] == NANO // 2


def test_method_none_flags_nobody() -> None:
    got = agreed(("0.8", "0.8", "0.8", "0"), (1,) * 4, outliers={"method": "none"})
    assert rows(got.flagged) == []
    assert (got.median(0), got.score[0]) == (None, nanos("0.6"))
