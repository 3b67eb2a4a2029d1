"""Where a sentence of the story changes: at the number itself, or just beside it."""

import pytest

from test_settle_story import passing, said, settled, told


@pytest.mark.parametrize(
    ("stakes", "sentence"),
    [
        ([10**9 - 2, 1, 1], "all stake in the registry, 1000000000 rao (1 TAO)."),
        ([10**9 - 3, 1, 1], "all stake in the registry, 999999999."),
    ],
)
def test_stake_is_shown_in_tao_from_one_tao_on(stakes: list[int], sentence: str) -> None:
    assert said(told(passing({"a": [8, 8, 8]}, stakes), "a"), "quorum").endswith(sentence)


def test_a_score_at_the_floor_takes_part() -> None:
    settlement = settled(passing({"a": [8] * 3, "b": [2] * 3, "c": [1] * 3}, [1, 1, 1], reward={"min_score": "0.2"}))
    chapters = [{chapter.name for chapter in settlement.explain(key).chapters} & {"cap", "decay"} for key in "abc"]
    assert chapters == [{"cap", "decay"}, {"cap", "decay"}, set()]
    assert "the 2 scores that take part" in said(settlement.explain("b"), "strategy")
