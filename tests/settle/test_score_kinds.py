"""What a kind must give: whole nanos as int64, for each validator and participant. SPEC 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from assay import kind as kinds
from assay.errors import BadInput
from assay.kind import Kind
from assay.records import Given
from assay.scheme.model import GivenScore
from assay.settle.inputs import Frame, Scored
from assay.settle.score import score
from score_kit import axes, make


class Loose(Kind):
    """The kind given, whose scores go through what a test puts in between."""

    name: ClassVar[str] = "given"
    rules = GivenScore
    record = Given

    def __init__(self, **changed: Any) -> None:
        self.changed = changed

    def score(self, records: Sequence[Any], frame: Frame, rules: Any) -> Scored:
        """As the kind given, and then otherwise."""
        return replace(kinds._own()["given"].score(records, frame, rules), **self.changed)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scored]:
    def put(**changed: Any) -> Scored:
        monkeypatch.setattr("assay.settle.score.find", lambda _name: Loose(**changed))
        return score([make("given", score="0.5")], axes(), GivenScore(kind="given"))

    return put


def test_scores_in_range_pass(answers: Any) -> None:
    assert answers().scores.tolist() == [[500_000_000, 0], [0, 0]]
    assert answers(scores=np.array([[10**9, 0], [0, 0]])).scores[0, 0] == 10**9


@pytest.mark.parametrize(
    "changed",
    [
        {"scores": np.array([[0.5, 0.0], [0.0, 0.0]])},
        {"scores": np.array([[10**9 + 1, 0], [0, 0]])},
        {"scores": np.array([[-1, 0], [0, 0]])},
        {"scores": np.array([[1, 0], [0, 1]])},
        {"scores": np.zeros((2, 3), np.int64)},
        {"counting": np.ones((2, 2), np.int64)},
    ],
    ids=["floats", "above 1", "below 0", "without a score", "another shape", "no booleans"],
)
def test_anything_else_is_refused(answers: Any, changed: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="the scores of the kind 'given' are not nanos from 0 to 1 as int64"):
        answers(**changed)


def test_a_competition_without_participants_has_no_scores() -> None:
    assert score([], axes(()), GivenScore(kind="given")).scores.size == 0
