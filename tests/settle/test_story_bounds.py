"""Where a number, an order or a rule decides a sentence or who is left out: at the bound itself, and just beside it."""

import pytest

from assay.records import Validator
from assay.scheme.model import Scheme
from assay.settle.inputs import failed_audits
from assay.settle.story.judgements import PanelFlips
from test_settle_story import passing, prose, settled, story_of


@pytest.mark.parametrize(
    ("stakes", "sentence"),
    [
        ([10**9 - 2, 1, 1], "all stake in the registry, 1000000000 rao (1 TAO)."),
        ([10**9 - 3, 1, 1], "all stake in the registry, 999999999."),
    ],
)
def test_stake_is_shown_in_tao_from_one_tao_on(stakes: list[int], sentence: str) -> None:
    assert prose(story_of(passing({"a": [8, 8, 8]}, stakes), "a"), "quorum").endswith(sentence)


def test_a_score_at_the_floor_takes_part() -> None:
    settlement = settled(passing({"a": [8] * 3, "b": [2] * 3, "c": [1] * 3}, [1, 1, 1], reward={"min_score": "0.2"}))
    chapters = [{chapter.name for chapter in settlement.explain(key).chapters} & {"cap", "decay"} for key in "abc"]
    assert chapters == [{"cap", "decay"}, {"cap", "decay"}, set()]
    assert "the 2 scores that take part" in prose(settlement.explain("b"), "strategy")


def test_stake_that_just_suffices_is_enough() -> None:
    table = story_of(passing({"a": [8, 8, 8, None]}, [1, 1, 1, 7]), "a")["quorum"].table
    assert table is not None
    assert table.rows == (
        ("validators", "3", "3", "yes"),
        ("stake", "3", "3", "yes"),
        ("share of stake", "30 %", "30 %", "yes"),
    )


def test_the_question_with_most_votes_that_differ_is_named_first() -> None:
    flips = PanelFlips(panels=3, split=0, questions={"B1": (0, 3), "C1": (1, 9), "B2": (2, 3)}, judges={})
    assert flips.sentences() == ["In 3 panels, 3 of 15 votes differ from the majority, most of them at B2 (2/3) and C1 (1/9)."]


@pytest.mark.parametrize(
    ("audit", "left_out"),
    [(None, {}), ({}, {}), ({"failed": "leave-out"}, {"v0": "sha256:" + "0" * 64})],
)
def test_a_failed_audit_leaves_out_where_the_scheme_says_so(audit: dict[str, str] | None, left_out: dict[str, str]) -> None:
    case = passing({"a": [8, 8, 8]}, [1, 1, 1])
    scheme = Scheme.model_validate(case["scheme"] | ({} if audit is None else {"audit": audit}))
    validators = (Validator("v0", 1, failed_audit="sha256:" + "0" * 64), Validator("v1", 1))
    assert failed_audits(scheme, validators) == left_out
