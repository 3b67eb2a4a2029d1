"""Floor, strategies, cap, registration, encoding: examples from SPEC 4 and a slow version written with fractions."""

import json
from decimal import Context, Decimal
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.exact import NANO, U16, nanos, text
from assay.scheme.model import Reward
from assay.settle.reward import STRATEGIES, Allotment, Shares, allot, cap, encode, share_out


def reward(**fields: Any) -> Reward:
    return Reward.model_validate(fields)


def allotted(scores: list[str], rules: Reward, kept: list[str] | None = None, uids: str = "") -> Allotment:
    """Scores and kept fractions as decimals; `uids` has "-" for every participant without one."""
    return allot(
        [nanos(score) for score in scores],
        rules,
        [NANO] * len(scores) if kept is None else [nanos(k) for k in kept],
        [uid != "-" for uid in uids.ljust(len(scores), "+")],
    )


def fractions(shares: Shares) -> list[Fraction]:
    return [shares[i] for i in range(len(shares))]


def half_up(value: Fraction) -> int:
    return floor(value + Fraction(1, 2))


# A slow version of the whole stage, from SPEC 4 alone.


def slow_strategy(scores: list[Fraction], rules: Reward) -> list[Fraction]:
    taking = [i for i, s in enumerate(scores) if s > 0 and s >= Fraction(rules.min_score, NANO)]
    n, top = len(taking), max((scores[i] for i in taking), default=Fraction(0))
    exact = Context(prec=50)
    values = {}
    for rank, i in enumerate(taking, start=1):
        match rules.strategy:
            case "linear" | "direct":
                values[i] = scores[i]
            case "quadratic":
                values[i] = scores[i] ** 2
            case "softmax":
                values[i] = Fraction(exact.exp(exact.divide(Decimal(int((scores[i] - top) * NANO)), Decimal(rules.temperature))))
            case "winner-takes-all":
                values[i] = Fraction(rank <= rules.top)
            case "ranked":
                values[i] = Fraction(n - rank + 1)
    total = sum(values.values(), Fraction(0))
    if rules.strategy == "direct":
        total = max(total, Fraction(1))
    return [values[i] / total if i in values else Fraction(0) for i in range(len(scores))]


def slow_cap(shares: list[Fraction], rules: Reward) -> list[Fraction]:
    limit = Fraction(rules.cap, NANO)
    if rules.excess != "redistribute":
        return [min(share, limit) for share in shares]
    total, out, fixed = sum(shares), list(shares), set()
    while above := {i for i, share in enumerate(out) if share > limit}:
        fixed |= above
        others = sum(share for i, share in enumerate(shares) if i not in fixed)
        left = total - len(fixed) * limit
        out = [limit if i in fixed else share and share / others * left for i, share in enumerate(shares)]
    return out


def slow_remainders(shares: list[Fraction]) -> list[int]:
    given = [floor(share * U16) for share in shares]
    order = sorted(range(len(shares)), key=lambda i: (given[i] - shares[i] * U16, i))
    for i in order[: U16 - sum(given)]:
        given[i] += 1
    return given


scores_ = st.lists(st.one_of(st.integers(0, NANO), st.integers(0, 10).map(lambda tenth: tenth * NANO // 10)), max_size=12).map(
    lambda scores: sorted(scores, reverse=True)
)
fraction_ = st.one_of(st.integers(0, 20).map(lambda n: n * NANO // 20), st.integers(0, NANO))


@st.composite
def rules_(draw: st.DrawFn) -> Reward:
    excess = draw(st.sampled_from(["redistribute", "drop", "burn"]))
    return reward(
        strategy=draw(st.sampled_from(sorted(STRATEGIES))),
        min_score=draw(st.sampled_from(["0", "0.000000001", "0.333333333", "0.5"])),
        temperature=draw(st.sampled_from(["0.01", "0.333333333", "1"])),
        top=draw(st.integers(1, 4)),
        cap=text(draw(st.one_of(st.integers(1, 20).map(lambda n: n * NANO // 20), st.integers(1, NANO)))),
        excess=excess,
        encoding=draw(st.sampled_from(["round"] if excess == "drop" else ["round", "exact-sum", "max-upscale"])),
    )


@pytest.mark.no_cover
@given(scores=scores_, rules=rules_(), data=st.data())
def test_allot_is_what_the_fractions_say(scores: list[int], rules: Reward, data: st.DataObject) -> None:
    n = len(scores)
    kept = data.draw(st.lists(fraction_, min_size=n, max_size=n))
    registered = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    allotment = allot(scores, rules, kept, registered)

    strategy = slow_strategy([Fraction(score, NANO) for score in scores], rules)
    capped = slow_cap(strategy, rules)
    decayed = [share * Fraction(k, NANO) for share, k in zip(capped, kept, strict=True)]
    final = [share if uid else Fraction(0) for share, uid in zip(decayed, registered, strict=True)]
    cut = Fraction(sum(strategy) - sum(capped))
    unallocated = cut if rules.excess == "drop" else Fraction(0)
    burn = Fraction(1 - sum(final) - unallocated)

    assert fractions(allotment.strategy) == strategy
    assert fractions(allotment.capped) == capped
    assert fractions(allotment.share) == final
    assert allotment.unallocated == unallocated
    assert allotment.burn_strategy == 1 - sum(strategy)
    assert allotment.burn_cap == cut - unallocated
    assert allotment.burn_decay == sum(capped) - sum(decayed)
    assert allotment.burn_unregistered == sum(decayed) - sum(final)
    assert (
        allotment.burn
        == burn
        == allotment.burn_strategy + allotment.burn_cap + allotment.burn_decay + allotment.burn_unregistered
    )

    whole = [*final, burn]
    chain = [half_up(share / max(whole) * U16) for share in whole]
    weights = {
        "round": lambda: [half_up(share * U16) for share in whole],
        "exact-sum": lambda: slow_remainders(whole),
        "max-upscale": lambda: chain,
    }[rules.encoding]()
    assert [*allotment.u16, allotment.burn_u16] == weights
    assert [*allotment.chain_u16, allotment.burn_chain_u16] == chain
    if rules.encoding == "exact-sum":
        assert sum(weights) == U16


@given(parts=st.lists(st.integers(0, 50), min_size=1, max_size=60), percent=st.integers(1, 100))
def test_one_pass_of_water_filling_is_the_repeated_rule(parts: list[int], percent: int) -> None:
    rules = reward(cap=f"{percent}%")
    shares = Shares(parts, max(1, sum(parts)))
    capped = cap(shares, rules)
    assert fractions(capped.shares) == slow_cap(fractions(shares), rules)
    assert Fraction(capped.burnt, capped.shares.denominator) == shares.total - capped.shares.total
    assert all(share <= Fraction(percent, 100) for share in fractions(capped.shares))


@given(
    scores=st.lists(st.integers(1, 5).map(lambda n: n * NANO // 5), min_size=1, max_size=8),
    strategy=st.sampled_from(["linear", "quadratic", "softmax"]),
    cap=st.sampled_from(["15%", "30%", "100%"]),
    excess=st.sampled_from(["redistribute", "drop", "burn"]),
)
def test_equal_scores_get_equal_weights(scores: list[int], strategy: str, cap: str, excess: str) -> None:
    allotment = allot(scores, reward(strategy=strategy, cap=cap, excess=excess), [NANO] * len(scores), [True] * len(scores))
    for weights in (allotment.u16, allotment.chain_u16):
        assert len(set(zip(scores, weights, strict=True))) == len(set(scores))


def test_published_weights(shared: Path) -> None:
    cases = json.loads((shared / "vectors" / "weights.json").read_text())["cases"]
    assert cases
    for case in cases:
        fields = {key: case[key] for key in ("strategy", "temperature", "top") if key in case}
        allotment = allotted(case["scores"], reward(cap="100%", **fields))
        assert allotment.u16 == case["u16"], case
        assert allotment.burn_u16 == case.get("burn", 0), case


def test_published_caps(shared: Path) -> None:
    cases = json.loads((shared / "vectors" / "cap.json").read_text())["cases"]
    assert cases
    for case in cases:
        parts = [nanos(share) for share in case["shares"]]
        capped = cap(Shares(parts, NANO), reward(cap=case["cap"], excess=case["excess"]))
        assert fractions(capped.shares) == [Fraction(share) for share in case["out"]], case
        assert Fraction(capped.burnt, capped.shares.denominator) == Fraction(case["burn"]), case


def test_nobody_takes_part_and_everything_burns() -> None:
    for strategy in STRATEGIES:
        for scores in ([], ["0", "0"], ["0.2", "0.1"]):
            allotment = allotted(scores, reward(strategy=strategy, min_score="0.3"))
            assert allotment.burn_strategy == allotment.burn == 1
            assert allotment.u16 == allotment.chain_u16 == [0] * len(scores)
            assert allotment.burn_u16 == allotment.burn_chain_u16 == U16


def test_the_floor_lets_in_who_reaches_it_exactly() -> None:
    allotment = allotted(["0.6", "0.3", "0.299999999", "0"], reward(min_score="0.3", cap="100%"))
    assert fractions(allotment.share) == [Fraction(2, 3), Fraction(1, 3), 0, 0]


def test_direct_leaves_the_rest_to_burn_and_the_cap_redistributes_only_what_was_shared_out() -> None:
    allotment = allotted(["0.6", "0.1", "0.1"], reward(strategy="direct", cap="0.3"))
    assert fractions(allotment.capped) == [Fraction("0.3"), Fraction("0.25"), Fraction("0.25")]
    assert allotment.burn_strategy == allotment.burn == Fraction("0.2")


def test_losers_of_winner_takes_all_do_not_get_what_the_cap_takes_from_the_winner() -> None:
    allotment = allotted(["0.9", "0.8"], reward(strategy="winner-takes-all"))
    assert fractions(allotment.share) == [Fraction(1, 2), 0]
    assert allotment.burn_cap == Fraction(1, 2)


def test_fewer_winners_share_all_where_fewer_have_a_score() -> None:
    allotment = allotted(["0.9", "0.8", "0"], reward(strategy="winner-takes-all", top=5))
    assert fractions(allotment.share) == [Fraction(1, 2), Fraction(1, 2), 0]
    assert allotment.burn == 0


def test_everyone_at_the_cap_exactly_is_left_alone() -> None:
    allotment = allotted(["0.5", "0.5"], reward(cap="50%"))
    assert allotment.u16 == [32768, 32768]  # halves up, each by itself
    assert allotment.burn_u16 == 0


def test_what_is_dropped_belongs_to_nobody() -> None:
    allotment = allotted(["0.9", "0.1"], reward(excess="drop"), kept=["0.5", "1"])
    assert fractions(allotment.share) == [Fraction(1, 4), Fraction(1, 10)]
    assert allotment.unallocated == Fraction(2, 5)
    assert allotment.burn == allotment.burn_decay == Fraction(1, 4)


def test_what_is_burnt_and_what_decays_and_what_has_no_uid_add_up() -> None:
    allotment = allotted(["0.5", "0.25", "0.25"], reward(cap="40%", excess="burn"), kept=["0.5", "1", "0.8"], uids="++-")
    assert allotment.burn_cap == Fraction("0.1")
    assert allotment.burn_decay == Fraction("0.25")
    assert allotment.burn_unregistered == Fraction("0.2")
    assert allotment.burn == Fraction("0.55")
    assert allotment.u16 == [13107, 16384, 0]


def test_when_all_decay_alike_the_burn_is_their_burnt_fraction() -> None:
    allotment = allotted(["0.7", "0.6", "0.5"], reward(), kept=["0.9"] * 3)
    assert allotment.burn_u16 == 6554  # B · 65535, halves up
    everything = allotted(["0.7"], reward(cap="100%"), kept=["0"])
    assert (everything.u16, everything.burn_u16) == ([0], U16)


def test_the_remainder_goes_to_the_earlier_and_to_the_burn_last() -> None:
    allotment = allotted(["0.5"] * 4, reward(encoding="exact-sum"), kept=["0.8"] * 4)
    assert allotment.u16 == [13107] * 4
    assert allotment.burn_u16 == 13107
    thirds = encode([1, 1, 1], 1, 4, "exact-sum")
    assert (thirds.u16, thirds.burn_u16) == ([16384, 16384, 16384], 16383)


def test_the_chain_form_scales_the_largest_to_the_top_and_counts_the_burn() -> None:
    allotment = allotted(["0.5", "0.5"], reward(cap="25%", excess="burn", encoding="max-upscale"))
    assert allotment.u16 == allotment.chain_u16 == [32768, 32768]
    assert allotment.burn_u16 == allotment.burn_chain_u16 == U16


def test_shares_for_the_reader_round_half_to_even() -> None:
    shares = Shares([1, 3, 2, 0], 4 * NANO)
    assert shares.nanos() == [0, 1, 0, 0]
    assert Shares([1, 3, 5, 2], 2).nanos() == [NANO // 2, 3 * NANO // 2, 5 * NANO // 2, NANO]
    assert Shares([1, 3, 5], 2 * NANO).nanos() == [0, 2, 2]
    assert shares.total == Fraction(6, 4 * NANO)


def test_a_share_is_the_same_however_many_there_are() -> None:
    n = 5_000
    allotment = allot([NANO // 2] * n, reward(), [NANO] * n, [True] * n)
    assert set(allotment.u16) == {13}
    assert allotment.burn == 0


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        allot([1, 2], reward(), [NANO], [True, True])


def test_share_out_keeps_the_place_of_those_who_take_no_part() -> None:
    # A rubric ranks by BPS, so its nanos need not fall.
    shares = share_out([NANO // 2, 0, NANO // 4, NANO // 4], reward(strategy="ranked"))
    assert fractions(shares) == [Fraction(1, 2), 0, Fraction(1, 3), Fraction(1, 6)]
