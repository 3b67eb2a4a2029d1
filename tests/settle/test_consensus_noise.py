"""Rules for noisy scores: `scale = "noise"`, `combine = "clip"` and `"trimmed"`, by hand and against the oracle. SPEC 3."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.exact import NANO, half_even, nanos, text
from assay.folder import parse_case
from assay.scheme import load
from assay.settle import settle
from assay.settle.consensus import agree, noise_reach
from consensus_kit import MOST, agreed, panel, rows, rules
from oracle.consensus import Opinion, combine, flag
from oracle.numbers import show_or_null

Doc = dict[str, Any]
PLAIN: Doc = {"outliers": {"method": "none"}}
NOISE: Doc = {"outliers": {"scale": "noise"}}


def held(scores: list[str], trials: int, **fields: Any) -> Any:
    votes = replace(panel([scores], [1] * len(scores)), trials=trials)
    return agree(votes, rules(outliers={"scale": "noise", **fields}))


def test_noise_spares_whom_the_mad_throws_out() -> None:
    scores = ["0.7", "0.7", "0.7", "0.8"]  # of ten trials: one trial more than the others
    assert rows(agreed(scores, [1] * 4).flagged) == [3]
    assert rows(held(scores, 10).flagged) == []
    assert rows(held(scores, 10_000).flagged) == [3]


def test_the_limit_itself_is_no_outlier() -> None:
    """m = 0.5 of 25 trials: a standard error is 0.1, so 0.75 is 2.5 of them to the bit."""
    scores = ["0.5", "0.5", "0.5", "0.75"]
    assert rows(held(scores, 25, threshold="2.5").flagged) == []
    assert rows(held(scores, 25, threshold="2.499999999").flagged) == [3]
    got = held(scores, 25, threshold="2.5")
    assert (got.z_squared(3, 0), got.modified_z(3, 0)) == (6_250_000_000, None)


def test_a_wider_mad_counts_and_no_scale_at_all_flags_nobody() -> None:
    wide = held(["0.1", "0.5", "0.9", "0.5", "0.3"], 10**6)
    assert wide.z_squared(2, 0) == half_even(NANO * (6745 * 4) ** 2, (10_000 * 2) ** 2)  # the MAD is 0.2
    assert rows(wide.flagged) == []
    all_failed = held(["0", "0", "0", "0.5"], 10, mad_floor="0")
    assert (rows(all_failed.flagged), all_failed.z_squared(3, 0)) == ([], None)
    assert rows(held(["0", "0", "0", "0.5"], 10).flagged) == [3]


def test_the_noise_of_few_trials_reaches_over_all_scores_and_no_further() -> None:
    median2, three = 18 * NANO // 10, 3 * NANO  # 4·m(1 − m) is 0.36
    assert noise_reach(median2, three, 4) == 9 * NANO // 10
    assert noise_reach(median2, three, 1) == 18 * NANO // 10
    assert noise_reach(median2, 4 * NANO, 1) == 2 * NANO


def test_what_is_unknown_about_noise_is_not_shown() -> None:
    short = held(["0.5", "0.6"], 10)
    assert short.z_squared(0, 0) is None
    with pytest.raises(BadInput, match="of how many trials"):
        agree(panel([["0.5", "0.5", "0.6"]], [1, 1, 1]), rules(**NOISE))
    with pytest.raises(BadInput, match="no trials"):
        held(["0.5"], 0)


def test_clip_lowers_what_too_little_stake_reaches() -> None:
    got = agreed(["0.9", "0.6", "0.5"], [49, 2, 49], combine="clip", **PLAIN)
    assert got.score[0] == nanos("0.551")  # 51 % reach 0.6
    assert agreed(["0.9", "0.6", "0.5"], [50, 1, 49], combine="clip", **PLAIN).score[0] == nanos("0.701")
    assert agreed(["0.9", "0.6", "0.5"], [49, 2, 49], combine="clip", kappa="100%", **PLAIN).score[0] == nanos("0.5")


def test_trimmed_cuts_a_validator_in_part() -> None:
    got = agreed(["0.1", "0.5", "0.9"], [10, 80, 10], combine="trimmed", **PLAIN)
    assert got.score[0] == nanos("0.5")
    got = agreed(["0.1", "0.5", "0.9"], [30, 40, 30], combine="trimmed", **PLAIN)  # 10 of each end are left
    assert got.score[0] == nanos("0.5")
    got = agreed(["0.2", "0.8"], [50, 50], combine="trimmed", trim="0", min_validators=2, **PLAIN)
    assert got.score[0] == nanos("0.5")
    got = agreed(["0.2", "0.8", "0.8"], [25, 25, 50], combine="trimmed", **PLAIN)  # 5 of 60 are at 0.2
    assert got.score[0] == nanos("0.75")


@st.composite
def opinions(draw: st.DrawFn) -> list[Opinion]:
    number = draw(st.integers(1, 9))
    score = st.integers(0, NANO) | st.sampled_from([0, NANO // 2, NANO])
    stake = st.integers(1, MOST) | st.integers(1, 5)
    return [Opinion(f"v{at}", draw(stake), Fraction(draw(score), NANO), {}) for at in range(number)]


@given(
    opinions(),
    opinions(),
    st.sampled_from(["clip", "trimmed"]),
    st.integers(1, NANO // 2 - 1) | st.sampled_from([1, NANO // 2 - 1, NANO // 5]),
)
def test_the_oracle_combines_alike(first: list[Opinion], second: list[Opinion], how: str, part: int) -> None:
    rule: Doc = {"combine": how, ("kappa" if how == "clip" else "trim"): f"0.{part:09}"}
    count = max(len(first), len(second))
    stakes = [first[at].stake if at < len(first) else second[at].stake for at in range(count)]
    seen: list[list[Opinion | None]] = [[*people, *[None] * (count - len(people))] for people in (first, second)]
    columns = [_decimals(people) for people in seen]
    got = agree(panel(columns, stakes), rules(min_validators=1, min_stake="0", **rule, **PLAIN))
    for p, people in enumerate(seen):
        known = [Opinion("v", stakes[at], opinion.score, {}) for at, opinion in enumerate(people) if opinion is not None]
        exact = combine(known, rule)
        assert Fraction(got.numerator[p], got.denominator[p]) == exact * NANO
        assert got.score[p] == half_even(exact.numerator * NANO, exact.denominator)


def _decimals(people: Sequence[Opinion | None]) -> list[str | None]:
    return [None if opinion is None else _decimal(opinion.score) for opinion in people]


def _decimal(score: Fraction) -> str:
    count = int(score * NANO)
    return f"{count // NANO}.{count % NANO:09}"


@given(opinions(), st.integers(1, 10_000), st.integers(0, 10 * NANO), st.sampled_from(["0", "0.01", "0.000000001", "0.2"]))
def test_the_oracle_flags_alike(people: list[Opinion], trials: int, threshold: int, floor: str) -> None:
    limit = f"{threshold // NANO}.{threshold % NANO:09}"
    votes = panel([_decimals(people)], [opinion.stake for opinion in people])
    votes = replace(votes, trials=trials)
    section = {"method": "modified-z", "threshold": limit, "mad_floor": floor, "scale": "noise"}
    got = agree(votes, rules(min_validators=1, min_stake="0", outliers=section))
    shown = flag(people, section, trials)
    assert rows(got.flagged) == [at for at, opinion in enumerate(people) if opinion.flagged]
    assert rows(got.excluded) == [at for at, opinion in enumerate(people) if opinion.excluded]
    assert bool(got.flagged_majority[0]) == shown["flagged_majority"]
    for at, opinion in enumerate(people):
        assert _shown(got.z_squared(at, 0)) == show_or_null(opinion.z_squared)


def _shown(count: int | None) -> str | None:
    return None if count is None else text(count)


def test_columns_without_a_quorum_stay_empty() -> None:
    columns: list[list[str | None]] = [["0.5", "0.6", "0.7"], ["0.5", None, None]]
    for how in ("clip", "trimmed"):
        got = agree(panel(columns, [1, 1, 1]), rules(combine=how))
        assert got.score.tolist() == [nanos("0.6") if how == "trimmed" else half_even(1_700_000_000, 3), -1]
        assert (got.numerator[1], got.denominator[1]) == (0, 1)
        empty = agree(panel(columns[1:], [1, 1, 1]), rules(combine=how))
        assert (empty.numerator, empty.denominator, empty.score.tolist()) == ([0], [1], [-1])


SCHEME = '[scheme]\nname = "s"\n[score]\nkind = "{kind}"\n[consensus]\n{consensus}\n[consensus.outliers]\n{outliers}\n'


@pytest.mark.parametrize(
    ("kind", "consensus", "outliers", "match"),
    [
        ("given", "", 'scale = "noise"', "share of trials"),
        ("tests", "", 'method = "z"\nscale = "noise"', "goes only with method"),
        ("tests", "", 'scale = "mad"', "noise"),
        ("tests", 'kappa = "50%"', "", 'kappa does nothing without combine = "clip"'),
        ("tests", 'combine = "clip"\ntrim = "20%"', "", 'trim does nothing without combine = "trimmed"'),
        ("tests", 'combine = "trimmed"\ntrim = "50%"', "", "trim"),
        ("tests", 'combine = "clip"\nkappa = "0"', "", "kappa"),
    ],
)
def test_rules_that_contradict_each_other(kind: str, consensus: str, outliers: str, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        load.parse(SCHEME.format(kind=kind, consensus=consensus, outliers=outliers))


def test_defaults_are_filled_in_only_where_they_matter() -> None:
    plain = load.parse(SCHEME.format(kind="tests", consensus="", outliers=""))
    assert not {"kappa", "trim"} & set(plain.document()["consensus"])
    assert "scale" not in plain.document()["consensus"]["outliers"]
    clip = load.parse(SCHEME.format(kind="tests", consensus='combine = "clip"', outliers=""))
    assert clip.document()["consensus"]["kappa"] == "0.5"
    assert clip.digest == load.parse(SCHEME.format(kind="tests", consensus='combine = "clip"\nkappa = "50%"', outliers="")).digest
    assert load.parse(SCHEME.format(kind="tests", consensus='combine = "trimmed"', outliers="")).consensus.trim == NANO // 5


def test_the_story_tells_the_noise() -> None:
    head = {"kind": "tests", "epoch": 3, "participant": "p", "submission": "s", "observed_at": "2026-01-01T00:00:00Z"}
    tasks = [f"t{number}" for number in range(10)]
    case = {
        "scheme": {"scheme": {"name": "n"}, "score": {"kind": "tests"}, "consensus": {"combine": "clip", **NOISE}},
        "epoch": 3,
        "participants": [{"key": "p", "submission": "s"}],
        "validators": [{"key": f"v{at}", "stake": "1"} for at in range(4)],
        "tasks": tasks,
        "evidence": [
            head | {"validator": f"v{at}", "task": task, "outcome": "pass" if number < passed else "fail"}
            for at, passed in enumerate([7, 7, 7, 8])
            for number, task in enumerate(tasks)
        ],
    }
    story = settle(parse_case(case)).explain("p")
    assert "the noise of n = 10 trials" in story["outliers"].text[0]
    assert "above 12.25 it is an outlier" in story["outliers"].text[0]
    assert story["score"].text == (
        "The mean, weighted by stake and clipped at what enough stake reaches, of the 4 scores that count is 0.7.",
    )
