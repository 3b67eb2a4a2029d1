"""Quorum and status, combination, and votes that are refused. SPEC 3.1, 3.3."""

from typing import Any

import numpy as np
import pytest

from assay.errors import BadInput
from assay.exact import NANO, half_even, nanos
from assay.settle import consensus
from assay.settle.consensus import Reason, Status, Votes, agree, agree_many, may_count
from consensus_kit import MOST, agreed, codes, ints, panel, rows, rules

# --- quorum, status -----------------------------------------------------------------------------------------------------


def test_reasons_without_a_quorum() -> None:
    columns = [(None,) * 4, ("0.5", "0.5", None, None), (None, "0.5", "0.5", "0.5"), ("0.5",) * 4]
    got = agree(panel(columns, (10, 1, 1, 1), total=13), rules())
    assert [codes(got, p) for p in range(4)] == [
        ("no-quorum", "no-evidence"),
        ("no-quorum", "too-few-validators"),
        ("no-quorum", "too-little-stake"),
        ("agreed", None),
    ]
    assert got.score.tolist() == [-1, -1, -1, NANO // 2]
    assert got.stake == [0, 11, 3, 13]
    assert (got.numerator[2], got.denominator[2], got.median(2)) == (0, 1, None)


def test_exactly_the_needed_stake_is_enough() -> None:
    assert codes(agreed(("1", "1", "1"), (1, 1, 1), total=10)) == ("agreed", None)
    assert codes(agreed(("1", "1", "1"), (1, 1, 1), total=11)) == ("no-quorum", "too-little-stake")
    assert codes(agreed(("1", "1", "1"), (MOST, MOST, MOST), total=10 * MOST)) == ("agreed", None)
    assert codes(agreed(("1", "1", "1"), (MOST, MOST, MOST - 1), total=10 * MOST)) == ("no-quorum", "too-little-stake")


def test_totals_per_participant() -> None:
    votes = panel([("1", "1", "1")] * 2, (1, 1, 1), total=(10, 11))
    assert [codes(agree(votes, rules()), p)[0] for p in range(2)] == ["agreed", "no-quorum"]


def test_unjudged_goes_before_incomplete() -> None:
    columns = [("1", "1", None)] * 3
    votes = panel(columns, (1, 1, 1), incomplete=[[0, 0, 1]] * 3, unjudged=[[0, 0, 1], [0, 0, 0], [1, 0, 0]])
    got = agree(votes, rules())
    assert [codes(got, p)[0] for p in range(3)] == ["unjudged", "incomplete", "incomplete"]
    assert [codes(got, p)[1] for p in range(3)] == ["malformed-or-unjudged", "missing-trials", "missing-trials"]


def test_an_incomplete_validator_without_stake_brings_no_quorum() -> None:
    votes = panel([("1", "1", None)], (1, 1, 0), incomplete=[[0, 0, 1]], unjudged=[[0, 0, 1]])
    assert codes(agree(votes, rules())) == ("no-quorum", "too-few-validators")


def test_validators_below_the_minimum_stake_do_not_count() -> None:
    votes = panel([("1", "1", "1", "0")], (5, 5, 5, 4))
    got = agree(votes, rules(min_validator_stake="5"))
    assert (got.score[0], got.stake, rows(got.votes.counting)) == (NANO, [15], [0, 1, 2])
    assert may_count((0, 4, 5), rules(min_validator_stake="5")) == [False, False, True]
    assert may_count((0, 1), rules()) == [False, True]


def test_recheck_asks_again_after_outliers() -> None:
    scores, stakes = ("0.8", "0.8", "0.8", "0.2"), (1, 1, 1, 2)
    assert codes(agreed(scores, stakes, total=10, recheck=True)) == ("agreed", None)
    got = agreed(scores, stakes, total=11, recheck=True, bps=True)
    assert codes(got) == ("no-quorum", "stake-after-outliers")
    assert (got.score[0], ints(got.bps)[0], rows(got.excluded), got.median(0)) == (-1, -1, [3], nanos("0.8"))
    assert codes(agreed(scores, stakes, total=11)) == ("agreed", None)


# --- combination --------------------------------------------------------------------------------------------------------


def test_the_stake_median_is_the_lower_on_a_tie() -> None:
    none: dict[str, Any] = {"outliers": {"method": "none"}, "combine": "stake-median"}
    assert agreed(("0.9", "0.1", "0.5"), (2, 1, 1), **none).score[0] == nanos("0.5")
    assert agreed(("0.9", "0.1", "0.5"), (3, 1, 1), **none).score[0] == nanos("0.9")
    assert agreed(("0.9", "0.1", "0.5"), (MOST, MOST, 1), **none).score[0] == nanos("0.5")


def test_the_plain_mean_looks_at_no_stake() -> None:
    got = agreed(("0.9", "0.1", "0.5"), (1, 1, MOST), combine="mean", outliers={"method": "none"})
    assert (got.score[0], got.numerator, got.denominator) == (nanos("0.5"), [3 * NANO // 2], [3])
    assert agreed(("0.9", "0.1", "0.501"), (1, 1, MOST), combine="mean", outliers={"method": "none"}).score[0] == nanos(
        "0.500333333"
    )


@pytest.mark.parametrize("combine", ["stake-mean", "stake-median", "mean"])
def test_nobody_at_all(combine: str) -> None:
    fields: dict[str, Any] = {"combine": combine, "min_stake": "0", "outliers": {"method": "z"}}
    assert codes(agree(panel([()], ()), rules(**fields), bps=True)) == ("no-quorum", "no-evidence")
    assert ints(agree(panel([], (1, 1, 1)), rules(**fields), bps=True).score) == []


def test_bps_are_floored_from_the_exact_combination() -> None:
    # (0.9999 + 1 + 1) / 3 = 0.99996…: 9999 BPS.
    assert ints(agreed(("0.9999", "1", "1"), (1,) * 3, bps=True).bps) == [9999]
    # 2^63 − 2 parts of 1 and one of 0.9999: below 1 by less than a nano, and yet not 10 000.
    got = agreed(("1", "0.9999", "1"), (MOST - 1, 1, MOST), bps=True, outliers={"method": "none"})
    assert (got.score[0], ints(got.bps)[0]) == (NANO, 9999)
    assert agreed(("1",) * 3, (1,) * 3).bps is None


def test_blocks_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(7)
    V, P = 2100, 5
    votes = Votes(
        scores=generator.integers(0, NANO + 1, (V, P)),
        counting=generator.random((V, P)) < 0.9,
        stakes=tuple(generator.integers(2**62, MOST, V).tolist()),
        totals=tuple(V * MOST + p for p in range(P)),
    )
    asked = rules()
    whole = agree(votes, asked)
    monkeypatch.setattr(consensus, "BLOCK", 2 * V)
    parts = agree(votes, asked)
    for p in range(P):
        left = rows(votes.counting & ~whole.excluded, p)
        held = sum(votes.stakes[v] for v in left)
        assert whole.score[p] == half_even(sum(votes.stakes[v] * int(votes.scores[v, p]) for v in left), held)
    for name in consensus.Panel._fields:
        assert np.array_equal(getattr(whole, name), getattr(parts, name)), name


def test_many_are_each_as_alone() -> None:
    panels = [panel([("0.8", "0.8", "0.2")], (1, 1, 1)), panel([("1", "1", "1", "0")] * 2, (3, 1, 1, 9))]
    for got, votes in zip(agree_many(panels, rules(), bps=True), panels, strict=True):
        alone = agree(votes, rules(), bps=True)
        assert (ints(got.score), ints(got.bps), got.stake) == (ints(alone.score), ints(alone.bps), alone.stake)
    assert [got.bps for got in agree_many(panels, rules())] == [None, None]
    assert agree(panels[0], rules()).bps is None


# --- refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stakes": (1, 1)}, "another shape"),
        ({"unjudged": np.ones((3, 2), np.bool_)}, "another shape"),
        ({"counting": np.ones((1, 3), np.bool_)}, "another shape"),
        ({"stakes": (1, -1, 1)}, "stake is out of range"),
        ({"stakes": (1, 2**63, 1)}, "stake is out of range"),
        ({"totals": (1, 2)}, "total stake"),
        ({"totals": -1}, "total stake"),
        ({"totals": 2**94}, "total stake"),
        ({"scores": np.array([[0], [0], [-1]])}, "score is out of range"),
        ({"scores": np.array([[0], [0], [NANO + 1]])}, "score is out of range"),
    ],
)
def test_votes_that_make_no_sense_are_refused(change: dict[str, Any], message: str) -> None:
    fine: dict[str, Any] = {
        "scores": np.zeros((3, 1), np.int64),
        "counting": np.ones((3, 1), np.bool_),
        "stakes": (1, 1, 1),
        "totals": 3,
    }
    Votes(**fine)
    with pytest.raises(BadInput, match=message):
        Votes(**fine | change)


def test_codes_are_the_words_of_the_settlement() -> None:
    assert [status.code for status in Status] == ["agreed", "no-quorum", "incomplete", "unjudged", "duplicate"]
    assert [reason.code for reason in Reason] == [
        None,
        "same-submission",
        "malformed-or-unjudged",
        "missing-trials",
        "no-evidence",
        "too-few-validators",
        "too-little-stake",
        "stake-after-outliers",
    ]
