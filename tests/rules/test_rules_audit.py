"""The risk-limiting audit: its claims, its draw, its martingale against exact fractions, and that its risk limit holds."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.exact import NANO
from assay.rules.audit import (
    ONE,
    SLACK,
    AuditClaim,
    AuditPlan,
    ClaimedTrial,
    claims_of,
    clean_draws,
    draws,
    finding,
    follow,
    overstated,
    plan,
    seed_of,
    share_of,
)
from assay.scheme.model import Scheme
from depth import depth
from oracle import audit as oracle

FIVE = NANO // 20
RECEIPT = bytes(range(32))


def scheme(**sections: object) -> Scheme:
    return Scheme.model_validate({"scheme": {"name": "x"}, "score": {"kind": "tests"}, **sections})


WINNER = scheme(reward={"strategy": "winner-takes-all"})


def trial(who: str, number: int, *, passed: bool, effect: int = NANO // 80, testable: bool = True) -> ClaimedTrial:
    return ClaimedTrial(who, f"v{number % 4}", f"t{number // 4:03}", 1, passed, Fraction(effect), testable)


def board(passes: dict[str, int], each: int = 80) -> tuple[dict[str, int], list[ClaimedTrial]]:
    """Agreed scores (nanos) and trials of participants who passed so many of `each` trials."""
    scores = {who: passed * NANO // each for who, passed in passes.items()}
    rows = [
        trial(who, number, passed=number < passed, effect=NANO // each)
        for who, passed in passes.items()
        for number in range(each)
    ]
    return scores, rows


def planned(passes: dict[str, int]) -> AuditPlan:
    scores, trials = board(passes)
    ranking = sorted(scores, key=lambda who: (-scores[who], who))
    return plan(claims_of(WINNER, ranking, scores), trials, FIVE)


SCORES = {"a": 900, "b": 700, "c": 500, "d": 0}


class TestClaims:
    def pairs(self, rules: Scheme, places: int | None = None) -> list[tuple[str | None, str | None]]:
        return [(claim.above, claim.below) for claim in claims_of(rules, "abcd", SCORES, places)]

    def test_winners_each_beat_everybody_outside(self) -> None:
        assert self.pairs(WINNER) == [("a", "b"), ("a", "c"), ("a", "d")]
        two = scheme(reward={"strategy": "winner-takes-all", "top": 2})
        assert self.pairs(two) == [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]

    def test_shares_by_score_claim_the_order_of_all_that_are_paid(self) -> None:
        assert self.pairs(scheme()) == [("a", "b"), ("b", "c"), ("c", "d")]
        assert self.pairs(scheme(), places=1) == [("a", "b"), ("a", "c"), ("a", "d")]

    def test_a_floor_is_claimed_from_both_sides(self) -> None:
        floor = scheme(reward={"min_score": "0.0000006"})
        assert self.pairs(floor) == [("a", "b"), ("b", "c"), ("b", "d"), ("b", None), (None, "c"), (None, "d")]
        three = scheme(reward={"strategy": "winner-takes-all", "top": 3, "min_score": "0.0000006"})
        assert self.pairs(three)[-2:] == [(None, "c"), (None, "d")]

    def test_margins_leave_room_for_what_was_rounded(self) -> None:
        first = claims_of(WINNER, "abcd", SCORES)[0]
        assert first == AuditClaim("a", "b", 200 - SLACK)

    def test_nothing_is_claimed_where_nobody_is_paid(self) -> None:
        assert claims_of(scheme(), "d", SCORES) == []

    def test_payouts_claim_tiers_and_places(self) -> None:
        pay = {"deposit": "100", "threshold_bps": 10_000, "split": [7000, 3000]}
        rules = scheme(reward={"kind": "payout"}, payout=pay)
        scores = {"a": 9 * NANO // 10, "b": 6 * NANO // 10, "c": 4 * NANO // 10}
        claims = claims_of(rules, "abc", scores)
        assert [(claim.above, claim.below) for claim in claims] == [
            ("a", "b"),
            ("a", None),  # its tier
            ("b", None),  # the lowest tier, without which no place is paid
            ("b", "c"),
            (None, "a"),  # and not a higher tier
            (None, "b"),
            (None, "c"),
        ]
        assert claims[1].margin == NANO // 10 + 1 - SLACK

    def test_a_place_that_is_not_paid_stays_below_the_lowest_tier(self) -> None:
        rules = scheme(reward={"kind": "payout"}, payout={"deposit": "100", "threshold_bps": 10_000, "split": [7000, 3000]})
        nobody = claims_of(rules, "ab", {"a": NANO // 10, "b": 0})
        assert [(claim.above, claim.below) for claim in nobody] == [(None, "a"), (None, "b")]
        best = claims_of(rules, "ab", {"a": NANO, "b": 0})
        assert [(claim.above, claim.below) for claim in best] == [("a", None), ("a", None), (None, "b")]


class TestPlan:
    def test_only_trials_that_can_overstate_a_claim_are_drawn_from(self) -> None:
        audit = planned({"a": 60, "b": 50, "c": 30})
        assert {(row.participant, row.passed) for row in audit.trials} == {("a", True), ("b", False), ("c", False)}
        assert len(audit.trials) == 60 + 30 + 50
        assert audit.trials == tuple(sorted(audit.trials, key=lambda row: row.place))

    def test_a_size_is_the_part_of_the_closest_margin_rounded_up(self) -> None:
        audit = planned({"a": 60, "b": 50, "c": 30})
        margin = 60 * NANO // 80 - 50 * NANO // 80 - SLACK
        exact = Fraction(NANO // 80, margin) * NANO
        assert exact <= audit.sizes[0] < exact + 1
        assert audit.trials[0].participant == "a"

    def test_fails_that_no_tests_decided_are_counted_apart(self) -> None:
        scores, trials = board({"a": 60, "b": 50})
        trials = [
            row if row.passed else trial(row.participant, at, passed=False, testable=False) for at, row in enumerate(trials)
        ]
        audit = plan(claims_of(WINNER, "ab", scores), trials, FIVE)
        assert all(row.passed for row in audit.trials)
        assert {row.participant for row in audit.untested} == {"b"}
        assert len(audit.untested) == 30

    def test_equal_scores_are_recounted(self) -> None:
        audit = planned({"a": 60, "b": 60})
        assert audit.recount
        assert clean_draws(audit) is None

    @pytest.mark.parametrize(
        ("combine", "share"), [("stake-mean", Fraction(3, 10)), ("mean", Fraction(1, 4)), ("stake-median", Fraction(1))]
    )
    def test_one_validator_moves_the_agreed_score_by_its_share(self, combine: str, share: Fraction) -> None:
        assert share_of(scheme(consensus={"combine": combine}), 3, 10, 4) == share


sizes = st.lists(st.integers(1, 10**10), min_size=1, max_size=40)


class TestDraw:
    @given(sizes, st.binary(min_size=32, max_size=32))
    def test_it_is_the_walk_of_the_oracle(self, given_sizes: list[int], randomness: bytes) -> None:
        audit = AuditPlan(
            (), tuple(trial("a", at, passed=True) for at in range(len(given_sizes))), tuple(given_sizes), FIVE, False
        )
        ours = list(islice(draws(audit, seed_of(randomness, RECEIPT)), 30))
        assert ours == list(islice(oracle.draw(given_sizes, randomness, RECEIPT), 30))

    def test_the_order_of_the_evidence_decides_nothing(self) -> None:
        scores, trials = board({"a": 60, "b": 50, "c": 30})
        claims = claims_of(WINNER, "abc", scores)
        random.Random(1).shuffle(mixed := list(trials))
        assert plan(claims, mixed, FIVE) == plan(claims, trials, FIVE)

    def test_other_randomness_or_another_receipt_draws_others(self) -> None:
        audit = planned({"a": 60, "b": 50})
        seeds = [seed_of(bytes(32), RECEIPT), seed_of(RECEIPT, RECEIPT), seed_of(bytes(32), bytes(32))]
        assert len({tuple(islice(draws(audit, seed), 20)) for seed in seeds}) == 3

    def test_trials_come_up_as_often_as_they_are_large(self) -> None:
        audit = AuditPlan((), (trial("a", 0, passed=True), trial("a", 1, passed=True)), (1, 3), FIVE, False)
        taken = list(islice(draws(audit, seed_of(bytes(32), RECEIPT)), 4000))
        assert 2850 < sum(taken) < 3150

    def test_nothing_is_drawn_from_nothing(self) -> None:
        assert list(draws(AuditPlan((), (), (), FIVE, False), bytes(32))) == []

    @pytest.mark.parametrize("lengths", [(31, 32), (32, 33)])
    def test_a_seed_takes_32_bytes_of_each(self, lengths: tuple[int, int]) -> None:
        with pytest.raises(ValueError, match="32 bytes"):
            seed_of(bytes(lengths[0]), bytes(lengths[1]))


@st.composite
def audits(draw: st.DrawFn) -> tuple[AuditPlan, list[Fraction], dict[int, bool]]:
    """A plan, the exact bounds, and which trials are wrong."""
    rows = [
        ClaimedTrial(who, f"v{at}", "t", 1, who == "a", Fraction(draw(st.integers(1, NANO)), draw(st.integers(1, 7))))
        for at in range(draw(st.integers(1, 12)))
        for who in "ab"
    ]
    claims = [AuditClaim("a", "b", draw(st.integers(1, 10**8))), AuditClaim("a", None, draw(st.integers(1, 10**8)))]
    audit = plan(claims, rows, draw(st.sampled_from([FIVE, NANO // 100, NANO // 3])))
    margins = {True: [claim.margin for claim in claims], False: [claims[0].margin]}
    bounds = [oracle.bound(row.effect, margins[row.passed]) for row in audit.trials]
    return audit, bounds, {at: draw(st.booleans()) and draw(st.booleans()) for at in range(len(audit.trials))}


class TestMartingale:
    @given(audits(), st.binary(min_size=32, max_size=32))
    def test_it_is_never_above_the_exact_one(
        self, drawn: tuple[AuditPlan, list[Fraction], dict[int, bool]], randomness: bytes
    ) -> None:
        audit, bounds, wrong = drawn
        path = follow(audit, seed_of(randomness, RECEIPT), wrong, most=60)
        if not path.drawn:  # all trials together could not overstate a margin
            assert path.confirmed
            assert sum(bounds) * oracle.GAMMA <= 1 + Fraction(len(bounds), NANO)
            return
        exact = oracle.martingale(bounds, path.drawn, [wrong[at] for at in range(len(bounds))])
        assert all(Fraction(value, ONE) <= right for value, right in zip(path.values, exact, strict=True))
        reached = [value * audit.risk >= ONE * NANO for value in path.values]
        assert path.confirmed == reached[-1]
        assert not any(reached[:-1])

    def test_a_false_claim_costs_draws_and_many_end_in_a_recount(self) -> None:
        audit = planned({"a": 60, "b": 48, "c": 30})
        seed = seed_of(bytes(32), RECEIPT)
        held = dict.fromkeys(range(len(audit.trials)), False)
        clean = follow(audit, seed, held)
        assert clean.confirmed
        assert len(clean.drawn) == clean_draws(audit)
        once = follow(audit, seed, held | {clean.drawn[0]: True})
        assert once.values[0] < ONE
        assert len(once.drawn) > len(clean.drawn)
        assert not follow(audit, seed, dict.fromkeys(held, True)).confirmed

    def test_it_stops_before_a_trial_that_was_not_judged_again(self) -> None:
        audit = planned({"a": 60, "b": 48})
        seed = seed_of(bytes(32), RECEIPT)
        first = next(draws(audit, seed))
        assert follow(audit, seed, {}).drawn == ()
        assert follow(audit, seed, {first: False}).drawn[0] == first

    def test_a_large_margin_needs_no_draw_and_a_small_one_all_trials(self) -> None:
        far = plan([AuditClaim("a", None, NANO)], [trial("a", 0, passed=True)], FIVE)
        assert follow(far, bytes(32), {}).confirmed
        assert clean_draws(far) == 0
        assert clean_draws(planned({"a": 60, "b": 59})) is None

    @pytest.mark.parametrize(
        ("passed", "seen", "came"),
        [
            (True, ["pass"], "held"),
            (True, ["fail", "pass"], "flaky"),
            (True, ["fail", "timeout"], "flaky"),
            (True, ["fail", "timeout", "fail"], "false"),
            (False, ["pass", "pass", "pass"], "false"),
            (False, ["timeout"], "held"),
            (False, [], "missing"),
        ],
    )
    def test_a_claim_is_false_only_if_no_run_shows_it(self, passed: bool, seen: list[str], came: str) -> None:
        assert finding(passed, seen) == came


class TestRecount:
    def test_it_sums_what_was_overstated_and_understated(self) -> None:
        audit = planned({"a": 60, "b": 50, "c": 30})
        wrong = {at: row.participant == "a" and row.task < "t001" for at, row in enumerate(audit.trials)}
        (first, total, stands), *_ = overstated(audit, wrong)
        assert (first.above, first.below, total, stands) == ("a", "b", Fraction(4 * (NANO // 80)), True)
        _, total, stands = overstated(audit, dict.fromkeys(wrong, True))[0]
        assert (total, stands) == (Fraction(90 * (NANO // 80)), False)

    def test_what_helps_one_claim_can_harm_another(self) -> None:
        scores, trials = board({"a": 60, "b": 50, "c": 30})
        audit = plan(claims_of(scheme(), "abc", scores), trials, FIVE)
        wrong = {at: row.participant == "b" and row.passed for at, row in enumerate(audit.trials)}
        rows = [(total, stands) for _, total, stands in overstated(audit, wrong)]
        assert rows == [(Fraction(-50 * (NANO // 80)), True), (Fraction(50 * (NANO // 80)), False)]

    def test_a_tie_stands_if_nothing_was_overstated(self) -> None:
        audit = planned({"a": 60, "b": 60})
        held = dict.fromkeys(range(len(audit.trials)), False)
        assert overstated(audit, held)[0][1:] == (Fraction(0), True)
        assert not overstated(audit, held | {0: True})[0][2]


@pytest.mark.parametrize("lies", [6, 9, 14])
def test_the_risk_limit_holds(lies: int) -> None:
    """The smallest lie that makes the claim wrong: the first is level with the second in truth."""
    audit = planned({"a": 50 + lies, "b": 50, "c": 35, "d": 20})
    firsts = [at for at, row in enumerate(audit.trials) if row.participant == "a"]
    rng, times = random.Random(lies), depth(400, 20_000)
    confirmed = 0
    for _ in range(times):
        false = set(rng.sample(firsts, lies))
        path = follow(audit, rng.randbytes(32), {at: at in false for at in range(len(audit.trials))})
        confirmed += path.confirmed
    assert confirmed <= times * 0.05 + 3 * (times * 0.05 * 0.95) ** 0.5
