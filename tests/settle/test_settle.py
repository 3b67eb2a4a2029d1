"""The package against the oracle: the same case, the same document, for generated competitions of every kind. SPEC 2–6.

How many: `check` a few of each, `full` (what `make test` runs) at least 10,000 settlements, `search` as many as one has time for.
A failing example is named by its kind, seed and size; `oracle.cases.minimise` cuts it down.
"""

from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.conformance import answer, differences
from assay.exact import digest
from oracle import emission as oracle_emission
from oracle import settle as oracle_settle
from oracle.cases import MAX_SIZE, case_of, chain_of, choosing, combining, emission_of, panelled, seeds, suspecting, warming
from oracle.random_scheme import KINDS

Doc = dict[str, Any]

PROFILE = settings.get_profile(settings.get_current_profile_name()).max_examples
# By profile: settlements of a kind, chains of a kind (two to four settlements each), emission splits (one to three each).
FULL = (1200, 400, 600)
CASES, CHAINS, EMISSIONS = FULL if PROFILE == 150 else (PROFILE, PROFILE // 2, PROFILE)
SIZES = st.integers(1, MAX_SIZE)
SHOWN = 12


def undigested(document: Doc) -> Doc:
    """The document without the digests, which the oracle does not compute."""
    rest = {name: value for name, value in document.items() if name != "digest"}
    if "scheme" in rest:
        rest["scheme"] = {name: value for name, value in rest["scheme"].items() if name != "digest"}
    return rest


def hold_equal(oracle: Doc, package: Doc) -> None:
    """Fails with the places where the package's document is not the oracle's."""
    lines = [f"  {difference}" for difference in islice(differences(oracle, package), SHOWN + 1)]
    if lines:
        more = ["  …"] if len(lines) > SHOWN else []
        pytest.fail("\n".join(["the oracle expects, the package got:", *lines[:SHOWN], *more]), pytrace=False)


def hold_digested(document: Doc) -> None:
    assert document["digest"] == digest({name: value for name, value in document.items() if name != "digest"})


@pytest.mark.sampled(2)
@pytest.mark.no_cover
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=CASES)
@given(seed=seeds(), size=SIZES)
def test_one_settlement(kind: str, seed: int, size: int) -> None:
    case = case_of(seed, kind, size)
    document = answer("settle", case)
    hold_equal(oracle_settle(case), undigested(document))
    hold_digested(document)


@pytest.mark.parametrize("kind", ["tests", "given"])
@settings(max_examples=CASES)
@given(seed=seeds(), size=SIZES)
def test_scores_are_clipped_trimmed_and_held_against_noise(kind: str, seed: int, size: int) -> None:
    case = combining(case_of(seed, kind, size), seed)
    hold_equal(oracle_settle(case), undigested(answer("settle", case)))


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ["tests", "points"])
@settings(max_examples=CASES)
@given(seed=seeds(), size=SIZES)
def test_tasks_pass_by_all_validators_and_invalid_issues_take_points(kind: str, seed: int, size: int) -> None:
    case = choosing(case_of(seed, kind, size), seed)
    hold_equal(oracle_settle(case), undigested(answer("settle", case)))


@settings(max_examples=CHAINS)
@given(seed=seeds(), size=SIZES)
def test_a_suspected_injection_counts_as_the_scheme_says(seed: int, size: int) -> None:
    case = suspecting(case_of(seed, "rubric", size), seed)
    document = answer("settle", case)
    hold_equal(oracle_settle(case), undigested(document))
    hold_digested(document)


@settings(max_examples=CHAINS)
@given(seed=seeds(), size=SIZES)
def test_a_panel_decides_by_its_majority(seed: int, size: int) -> None:
    case = panelled(case_of(seed, "rubric", size), seed)
    document = answer("settle", case)
    hold_equal(oracle_settle(case), undigested(document))
    hold_digested(document)


@settings(max_examples=CHAINS)
@given(seed=seeds(), size=SIZES)
def test_whoever_was_seen_in_few_tasks_warms_up(seed: int, size: int) -> None:
    case = warming(case_of(seed, "workflow", size), seed)
    document = answer("settle", case)
    hold_equal(oracle_settle(case), undigested(document))
    hold_digested(document)


@pytest.mark.sampled(2)
@pytest.mark.no_cover
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=CHAINS)
@given(seed=seeds(), size=SIZES, length=st.integers(2, 4))
def test_settlements_that_follow_each_other(kind: str, seed: int, size: int, length: int) -> None:
    previous: Doc | None = None
    for case in chain_of(seed, kind, size, length):
        case["previous"] = previous
        previous = answer("settle", case)
        hold_equal(oracle_settle(case), undigested(previous))


@pytest.mark.no_cover
@settings(max_examples=EMISSIONS)
@given(seed=seeds(), size=SIZES)
def test_an_emission_split(seed: int, size: int) -> None:
    case = emission_of(seed, size)
    competitions = [{"share": part["share"], "case": part["case"]} for part in case["competitions"]]
    document = answer("emission", {"subnet": case["subnet"], "competitions": competitions})
    hold_digested(document)
    for row, part in zip(document["competitions"], case["competitions"], strict=True):
        assert row.pop("settlement") == answer("settle", part["case"])["digest"]
    assert document.pop("schema") == "assay.emission/1"
    hold_equal(oracle_emission(case), undigested(document))


def test_full_is_at_least_ten_thousand_settlements() -> None:
    cases, chains, emissions = FULL
    assert len(KINDS) * (cases + 2 * chains) + emissions >= 10_000


def test_a_difference_is_told() -> None:
    case = case_of(1, "given")
    document = answer("settle", case)
    document["ranking"] = ["nobody"]
    with pytest.raises(pytest.fail.Exception, match=r"ranking\[0\]: expected .*, got \"nobody\""):
        hold_equal(oracle_settle(case), undigested(document))
