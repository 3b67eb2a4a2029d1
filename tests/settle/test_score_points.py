"""Points for issues and stars. SPEC 2.4."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.exact import NANO, nanos
from assay.records import Evidence
from assay.scheme.model import PointsScore
from assay.settle.score import score
from assay.settle.score.points import Tally, points
from score_kit import axes, make

RULES = PointsScore.model_validate({"kind": "points", "repositories": {"a/b": "5"}})


def issues(epoch: int = 1, repository: str = "a/b", validator: str = "v1", participant: str = "ann", **counts: Any) -> Evidence:
    return make("points", validator, participant, epoch=epoch, repository=repository, **counts)


@pytest.mark.parametrize(
    ("valid", "invalid", "starred", "worth", "expected"),
    [
        (20, 0, 0, "100", "1"),  # the seed: 5 points an issue, 20 issues for 100 %
        (10, 0, 0, "50", "0.5"),
        (9, 9, 1, "45.25", "0.4525"),
        (9, 10, 5, "0", "0"),
        (0, 0, 5, "0", "0"),  # a star alone is worth nothing
        (1, 0, 5, "6.25", "0.0625"),
        (1, 0, 9, "6.25", "0.0625"),
        (20, 0, 5, "101.25", "1"),
    ],
)
def test_the_seeds_numbers(valid: int, invalid: int, starred: int, worth: str, expected: str) -> None:
    assert points({"a/b": valid}, {"a/b": invalid}, starred, RULES) == Tally(
        valid, invalid, starred, nanos(worth), nanos(expected)
    )


@pytest.mark.parametrize(
    ("rules", "valid", "invalid", "starred", "worth"),
    [
        ({"invalid": "subtract"}, 5, 1, 0, "20"),
        ({"invalid": "subtract"}, 5, 4, 1, "5.25"),
        ({"invalid": "subtract"}, 1, 2, 5, "0"),  # 5 + 1.25 − 10
        ({"invalid": "subtract"}, 0, 0, 5, "0"),  # a star alone is worth nothing
        ({"stars_alone": True}, 0, 0, 5, "1.25"),
        ({"stars_alone": True}, 0, 1, 5, "0"),
        ({"stars_alone": True, "star_points": "6", "star_max": "7", "invalid": "subtract"}, 0, 1, 2, "2"),
    ],
)
def test_a_scheme_may_take_points_and_count_stars_alone(
    rules: dict[str, Any], valid: int, invalid: int, starred: int, worth: str
) -> None:
    section = PointsScore.model_validate({"kind": "points", "repositories": {"a/b": "5"}} | rules)
    assert points({"a/b": valid}, {"a/b": invalid}, starred, section).points == nanos(worth)


def test_an_invalid_issue_takes_the_points_of_its_own_repository() -> None:
    table = {"a/b": "5", "c/d": "1"}
    rules = PointsScore.model_validate({"kind": "points", "repositories": table, "invalid": "subtract"})
    scored = score([issues(repository="a/b", valid=2), issues(repository="c/d", invalid=3)], axes(), rules)
    assert {name: scored.work[name][0, 0] for name in scored.work} == {
        "valid": 2,
        "invalid": 3,
        "starred": 0,
        "points": nanos("7"),
    }


def test_what_holds_anyhow_changes_no_digest() -> None:
    plain = PointsScore.model_validate({"kind": "points", "repositories": {"a/b": "5"}})
    written = plain.model_dump(mode="json", exclude_none=True) | {"invalid": "gate", "stars_alone": False}
    assert PointsScore.model_validate(written) == plain


@pytest.mark.parametrize("rules", [{"star_points": "0"}, {"star_max": "0"}])
def test_stars_that_are_worth_nothing_do_not_count_alone(rules: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="stars_alone does nothing where stars give no points"):
        PointsScore.model_validate({"kind": "points", "repositories": {"a/b": "5"}, "stars_alone": True} | rules)


def test_a_revoked_issue_is_taken_back_in_the_epoch_it_is_revoked_but_no_further_than_to_zero() -> None:
    records = [issues(1, valid=3, invalid=2), issues(2, valid=1, revoked_valid=2), issues(3, revoked_invalid=5)]
    scored = score(records, axes(), RULES)
    assert scored.scores[0, 0] == nanos("0.1")
    assert {name: array[0, 0] for name, array in scored.work.items()} == {
        "valid": 2,
        "invalid": 0,
        "starred": 0,
        "points": nanos("10"),
    }


def test_repositories_outside_the_table_do_not_count() -> None:
    assert not score([issues(repository="c/d", valid=9, starred=True)], axes(), RULES).counting.any()


def test_a_validator_counts_from_its_first_record_in_the_window() -> None:
    rules = RULES.model_copy(update={"window_epochs": 2})
    old = issues(3, valid=9, starred=True)
    assert not score([old], axes(epoch=5), rules).counting.any()
    scored = score([old, issues(4, valid=1, starred=True)], axes(epoch=5), rules)
    assert scored.counting.tolist() == [[True, False], [False, False]]
    assert scored.work["points"][0, 0] == nanos("5.25")


def test_the_latest_star_counts_even_from_before_the_window() -> None:
    rules = PointsScore.model_validate({"kind": "points", "repositories": {"a/b": "5", "c/d": "1"}, "window_epochs": 1})
    before = [issues(1, starred=True), issues(2, starred=False), issues(3, "c/d", starred=True)]
    scored = score([*before, issues(5, valid=1, starred=False), issues(5, validator="v2", valid=2)], axes(epoch=5), rules)
    assert scored.work["starred"].tolist() == [[1, 0], [0, 0]]
    assert scored.work["points"].tolist() == [[nanos("5.25"), 0], [nanos("10"), 0]]
    assert scored.first == {"ann": 1}


def test_a_table_may_value_an_issue_beyond_64_bits() -> None:
    rules = PointsScore.model_validate({"kind": "points", "repositories": {"a/b": "1" + "0" * 30}})
    scored = score([issues(valid=1)], axes(), rules)
    assert scored.work["points"][0, 0] == 10**39
    assert scored.scores[0, 0] == NANO


counts = st.fixed_dictionaries(
    {name: st.integers(0, 12) for name in ("valid", "invalid", "revoked_valid", "revoked_invalid")} | {"starred": st.booleans()}
)
books = st.dictionaries(st.tuples(st.sampled_from(["a/b", "c/d", "e/f"]), st.integers(0, 6)), counts, max_size=8)


@given(books, st.sampled_from([None, 1, 3]))
def test_against_fractions(book: dict[tuple[str, int], dict[str, Any]], window: int | None) -> None:
    table = {"a/b": "5", "c/d": "0.333333333"}
    rules = PointsScore.model_validate({"kind": "points", "repositories": table, "full_points": 7, "window_epochs": window})
    scored = score([issues(epoch, repository, **entry) for (repository, epoch), entry in book.items()], axes(epoch=5), rules)
    start = 0 if window is None else 5 - window + 1
    recent = [(repository, entry) for (repository, epoch), entry in book.items() if start <= epoch <= 5 and repository in table]
    valid = {
        name: max(0, sum(entry["valid"] - entry["revoked_valid"] for where, entry in recent if where == name)) for name in table
    }
    invalid = sum(
        max(0, sum(entry["invalid"] - entry["revoked_invalid"] for where, entry in recent if where == name)) for name in table
    )
    latest = {repository: entry["starred"] for (repository, epoch), entry in sorted(book.items()) if epoch <= 5}
    stars = sum(latest.get(name, False) for name in table)
    whole = sum((Fraction(table[name]) * valid[name] for name in table), Fraction(0))
    whole += min(Fraction(5, 4), Fraction(stars, 4)) if sum(valid.values()) else 0
    whole = Fraction(0) if invalid > sum(valid.values()) else whole
    assert scored.counting[0, 0] == bool(recent)
    assert scored.scores[0, 0] == (round(min(Fraction(1), whole / 7) * NANO) if recent else 0)
