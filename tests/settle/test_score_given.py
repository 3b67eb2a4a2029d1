"""Scores that arrive already computed. SPEC 2.5."""

from hypothesis import given
from hypothesis import strategies as st

from assay.exact import text
from assay.scheme.model import GivenScore
from assay.settle.score import score as score_given
from score_kit import axes, make

RULES = GivenScore(kind="given")


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 10**9), min_size=1), st.integers(0, 9))
def test_the_latest_epoch_counts(by_epoch: dict[int, int], now: int) -> None:
    records = [make("given", epoch=epoch, score=text(value)) for epoch, value in by_epoch.items()]
    scored = score_given(records, axes(epoch=now), RULES)
    past = [epoch for epoch in by_epoch if epoch <= now]
    assert scored.counting.tolist() == [[bool(past), False], [False, False]]
    assert scored.scores[0, 0] == (by_epoch[max(past)] if past else 0)
    assert scored.work["epoch"][0, 0] == (max(past) if past else 0)


def test_older_submissions_do_not_count() -> None:
    assert not score_given([make("given", submission="older", score="1")], axes(), RULES).counting.any()


def test_participants_without_a_submission_are_told_apart_by_name() -> None:
    records = [make("given", "v1", who, submission="", score=value) for who, value in (("ann", "0.25"), ("bob", "0.5"))]
    scored = score_given(records, axes(submissions=("", "")), RULES)
    assert scored.scores.tolist() == [[250_000_000, 500_000_000], [0, 0]]
