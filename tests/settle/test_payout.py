"""Payouts: SPEC 5."""

import json
from fractions import Fraction
from itertools import pairwise
from math import floor
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assay.conformance import answer
from assay.exact import BPS, NANO
from assay.scheme.model import Payout
from assay.settle.reward import Paid, pay
from oracle.cases import case_of, seeds

ONE_BPS = NANO // BPS


def payout(**fields: Any) -> Payout:
    return Payout.model_validate({"deposit": "1000"} | fields)


def test_published_tiers(shared: Path) -> None:
    vectors = json.loads((shared / "vectors" / "payout.json").read_text())
    assert vectors["cases"]
    for case in vectors["cases"]:
        payouts = pay([case["score"] * ONE_BPS], payout(deposit=vectors["deposit"], threshold_bps=vectors["threshold_bps"]))
        assert payouts.released == int(case["released"]), case
        assert payouts.refund == int(vectors["deposit"]) - payouts.released


def test_published_places(shared: Path) -> None:
    places = json.loads((shared / "vectors" / "payout.json").read_text())["places"]
    assert places
    for case in places:
        fields = {key: case[key] for key in ("deposit", "threshold_bps", "split", "fee_bps")}
        payouts = pay([score * ONE_BPS for score in case["scores"]], payout(**fields))
        paid = [row for row in payouts.rows if row.gross]
        assert [str(row.gross) for row in paid] == case["gross"], case
        assert [str(row.fee) for row in paid] == case["fee"], case
        assert [str(row.net) for row in paid] == case["net"], case
        assert str(payouts.refund) == case["refund"], case


def test_no_agreed_score_refunds_the_deposit() -> None:
    payouts = pay([], payout())
    assert (payouts.tier_bps, payouts.released, payouts.rows, payouts.fees, payouts.refund) == (0, 0, [], 0, 1000)


def test_the_best_below_every_tier_releases_nothing_and_is_still_listed() -> None:
    payouts = pay([3499 * ONE_BPS], payout())
    assert (payouts.tier_bps, payouts.released, payouts.refund) == (0, 0, 1000)
    assert payouts.rows == [Paid(1, 0, 0, 0)]


def test_places_beyond_the_split_get_nothing_and_empty_places_are_refunded() -> None:
    rules = payout(split=[6000, 4000], fee_bps=1000)
    three = pay([NANO, NANO, NANO], rules)
    assert three.rows == [Paid(1, 600, 60, 540), Paid(2, 400, 40, 360)]
    assert (three.fees, three.refund) == (100, 0)
    alone = pay([NANO], rules)
    assert alone.rows == [Paid(1, 600, 60, 540)]
    assert alone.refund == 400


def test_tiers_are_compared_exactly() -> None:
    # 80 % of 3 333 BPS is 2 666.4 BPS.
    rules = payout(threshold_bps=3333)
    assert pay([2666 * ONE_BPS], rules).tier_bps == 2500
    assert pay([266_639_999], rules).tier_bps == 2500
    assert pay([266_640_000], rules).tier_bps == 5000


def test_a_scheme_may_have_tiers_of_its_own() -> None:
    rules = payout(tiers=[{"reach_bps": 9000, "release_bps": 7000}], threshold_bps=10_000)
    assert pay([NANO * 9 // 10], rules).released == 700
    assert pay([NANO * 9 // 10 - 1], rules).released == 0


@st.composite
def tiers(draw: st.DrawFn) -> list[dict[str, int]]:
    reach = sorted(draw(st.sets(st.integers(1, BPS), min_size=1, max_size=5)), reverse=True)
    release = sorted(draw(st.lists(st.integers(0, BPS), min_size=len(reach), max_size=len(reach))), reverse=True)
    return [{"reach_bps": a, "release_bps": b} for a, b in zip(reach, release, strict=True)]


@given(
    scores=st.lists(st.integers(0, BPS).map(lambda bps: bps * ONE_BPS) | st.integers(0, NANO), max_size=8),
    deposit=st.integers(0, 2**256 - 1) | st.integers(0, 300),
    threshold=st.integers(1, BPS),
    fee=st.integers(0, BPS),
    steps=tiers(),
    cuts=st.sets(st.integers(1, BPS - 1), max_size=7),
)
def test_nothing_of_a_deposit_is_lost_or_made_whatever_the_tiers(
    scores: list[int], deposit: int, threshold: int, fee: int, steps: list[dict[str, int]], cuts: set[int]
) -> None:
    edges = [0, *sorted(cuts), BPS]
    rules = payout(
        deposit=str(deposit), threshold_bps=threshold, split=[b - a for a, b in pairwise(edges)], fee_bps=fee, tiers=steps
    )
    payouts = pay(sorted(scores, reverse=True), rules)
    assert sum(row.net for row in payouts.rows) + payouts.fees + payouts.refund == deposit
    assert all(row.net + row.fee == row.gross for row in payouts.rows)
    assert min([payouts.refund, payouts.fees, *(value for row in payouts.rows for value in (row.gross, row.fee, row.net))]) >= 0
    assert sum(row.gross for row in payouts.rows) <= payouts.released <= deposit


@given(seed=seeds())
def test_a_settlement_gives_out_the_deposit_to_the_addresses_of_the_registry(seed: int) -> None:
    case = case_of(seed, "rubric", 4)
    case["scheme"] |= {
        "reward": {"kind": "payout"},
        "payout": {"deposit": str(seed), "split": [5000, 3000, 2000], "fee_bps": 333},
    }
    case["scheme"].pop("decay", None)
    document = answer("settle", case)
    rows = document["payouts"]
    assert sum(int(row["net"]) + int(row["fee"]) for row in rows) + int(document["refund"]) == seed
    assert sum(int(row["fee"]) for row in rows) == int(document["fees"])
    addresses = {participant["key"]: participant["address"] for participant in case["participants"]}
    assert [row["address"] for row in rows] == [addresses[row["participant"]] for row in rows]


@given(
    scores=st.lists(st.integers(0, BPS).map(lambda bps: bps * ONE_BPS) | st.integers(0, NANO), max_size=6),
    deposit=st.integers(0, 2**256 - 1) | st.integers(0, 300),
    threshold=st.integers(1, BPS),
    fee=st.integers(0, BPS),
    cuts=st.sets(st.integers(1, BPS - 1), max_size=4),
)
def test_pay_is_what_the_fractions_say_and_loses_no_wei(
    scores: list[int], deposit: int, threshold: int, fee: int, cuts: set[int]
) -> None:
    scores = sorted(scores, reverse=True)
    edges = [0, *sorted(cuts), BPS]
    split = [b - a for a, b in pairwise(edges)]
    payouts = pay(scores, payout(deposit=str(deposit), threshold_bps=threshold, split=split, fee_bps=fee))

    ratios = [Fraction(score, NANO) / Fraction(threshold, BPS) for score in scores]
    best = ratios[0] if ratios else Fraction(0)
    tier = Fraction(1) if best >= 1 else Fraction(1, 2) if best >= Fraction(4, 5) else Fraction(best >= Fraction(1, 2), 4)
    released = floor(deposit * tier)
    gross = [floor(released * Fraction(part, BPS)) if r >= Fraction(1, 2) else 0 for r, part in zip(ratios, split, strict=False)]
    fees = [floor(g * Fraction(fee, BPS)) for g in gross]

    assert payouts.released == released
    assert payouts.tier_bps == tier * BPS
    assert [(row.place, row.gross, row.fee, row.net) for row in payouts.rows] == [
        (place, g, f, g - f) for place, (g, f) in enumerate(zip(gross, fees, strict=True), start=1)
    ]
    assert sum(row.net for row in payouts.rows) + payouts.fees + payouts.refund == deposit
    assert min([payouts.refund, *(row.net for row in payouts.rows)]) >= 0
    assert payouts.fees == sum(fees)
