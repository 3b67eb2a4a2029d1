"""The section `[score]` of each of the five kinds: the fields, their defaults, and what contradicts itself. SPEC 2, 7.

A rule that is left out by default, and one that is written out and says what holds anyhow, are the same scheme: `None` in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput, brief
from assay.exact import BPS, NANO
from assay.scheme.fields import Key, Nanos, Section, Share, Text, refused

__all__ = [
    "Check",
    "GivenScore",
    "PanelRules",
    "Penalties",
    "PointsScore",
    "Positive",
    "RubricScore",
    "ScoreRules",
    "TestsScore",
    "Weights",
    "WorkflowScore",
]

Positive = Annotated[int, Field(ge=1, le=10**9)]
Repository = Annotated[str, Field(min_length=3, max_length=256, pattern=r"^[^/\s]+/[^/\s]+$")]


def _without_defaults(value: Any, **defaults: object) -> Any:
    """A table without optional rules that say what holds without them, so that it has the digest that it had without them."""
    if not isinstance(value, dict):
        return value
    return {
        name: written
        for name, written in value.items()
        if name not in defaults or type(written) is not type(defaults[name]) or written != defaults[name]
    }


class ScoreRules(Section):
    """The section `[score]` of some kind: its fields are the kind's, each with its default. SPEC 2."""

    if TYPE_CHECKING:
        kind: str

    def whole_share_from(self) -> int | None:
        """In how many tasks a participant must have been seen for its whole share; None if there is no such rule. SPEC 2.2."""
        return None

    def scores_jointly(self) -> bool:
        """Whether all counting validators have one score, of the tasks that all of them saw passed. SPEC 3.0."""
        return False

    def choices(self) -> Iterator[str]:
        """A sentence about each rule that is read in another way than the seeds."""
        return iter(())


class TestsScore(ScoreRules):
    """`[score] kind = "tests"`: the share of tasks passed. SPEC 2.1."""

    __test__ = False
    kind: Literal["tests"]
    agent_timeout: Literal["fail", "verify"] = "fail"
    trials: Annotated[int, Field(ge=1, le=10_000)] = 1
    fresh_boxes: Literal[True] | None = None
    """If true, a validator may not reuse the folder of an earlier box."""
    passed_by: Literal["each", "all"] | None = None
    """all: a task counts as passed only where all counting validators saw each of its trials pass. None is "each"."""

    @model_validator(mode="before")
    @classmethod
    def _written_out(cls, value: Any) -> Any:
        return _without_defaults(value, passed_by="each")

    def scores_jointly(self) -> bool:
        """`passed_by`. SPEC 3.0."""
        return self.passed_by is not None


class Weights(Section):
    """The four parts of a workflow's score; they sum to 1. SPEC 2.2."""

    success: Share = NANO // 2
    cost: Share = NANO // 4
    latency: Share = 3 * NANO // 20
    reliability: Share = NANO // 10

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        if self.success + self.cost + self.latency + self.reliability != NANO:
            raise PydanticCustomError("assay", "the four weights do not sum to 1; change one of them")
        return self


class Penalties(Section):
    """What each kind of trouble takes from a workflow's reliability. SPEC 2.2."""

    unplanned_retry: Nanos = NANO // 10
    timeout: Nanos = NANO // 5
    hard_failure: Nanos = NANO // 2


class WorkflowScore(ScoreRules):
    """`[score] kind = "workflow"`: success, cost, latency and reliability over a rolling window of tasks. SPEC 2.2."""

    kind: Literal["workflow"]
    weights: Weights = Weights()
    gate: Share = 7 * NANO // 10
    penalties: Penalties = Penalties()
    window: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    fresh_boxes: Literal[True] | None = None
    max_retries_per_step: Annotated[int, Field(ge=0, le=1000)] = 5
    warm_up: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """In how many tasks a participant must have been seen for its whole share; with fewer, a part burns. None: no such rule."""

    @model_validator(mode="after")
    def _can_be_warm(self) -> Self:
        if self.warm_up is not None and self.warm_up > self.window:
            raise PydanticCustomError(
                "assay",
                "warm_up is {warm_up}, and no more than the window's {window} tasks are ever seen; make it smaller",
                {"warm_up": self.warm_up, "window": self.window},
            )
        return self

    def whole_share_from(self) -> int | None:
        """`warm_up`. SPEC 2.2."""
        return self.warm_up


class Check(Section):
    """A question of a rubric, its weight in BPS, and whether an answer NO caps the result. SPEC 2.3."""

    id: Key
    label: Text = ""
    description: Text = ""
    weight: Annotated[int, Field(ge=1, le=BPS)]
    skippable: bool = True

    @model_validator(mode="before")
    @classmethod
    def _either_spelling(cls, value: Any) -> Any:
        if isinstance(value, dict) and "unskippable" in value:
            if "skippable" in value:
                raise PydanticCustomError("assay", "has both skippable and unskippable; keep one of them")
            value = dict(value)
            unskippable = value.pop("unskippable")
            value["skippable"] = not unskippable if isinstance(unskippable, bool) else unskippable
        return value


def _bound(value: object) -> object:
    """A fraction p/q of whole numbers, reduced: "2/6" is "1/3"."""
    written = re.fullmatch("([0-9]{1,4})/([1-9][0-9]{0,3})", value) if isinstance(value, str) else None
    if written is None or int(written[1]) > int(written[2]):
        hint = 'write two whole numbers, such as "1/3"; "0/1" asks that all answers agree'
        raise refused(BadInput(f"{brief(value)} is not a fraction from 0 to 1", hint=hint))
    bound = Fraction(int(written[1]), int(written[2]))
    return f"{bound.numerator}/{bound.denominator}"


class PanelRules(Section):
    """`[score.panel]`: each solution is judged by several answers, of which the majority of each question counts. SPEC 2.3."""

    answers: Annotated[int, Field(ge=2, le=25)]
    """k."""
    max_disagreement: Annotated[
        str, BeforeValidator(_bound), Field(json_schema_extra={"type": "string", "pattern": "^[0-9]{1,4}/[1-9][0-9]{0,3}$"})
    ] = "1/1"
    """The largest share of the votes on one question that may differ from the panel's answer; above it nothing is judged."""

    @property
    def bound(self) -> tuple[int, int]:
        """`max_disagreement` as numerator and denominator."""
        most, of = self.max_disagreement.split("/")
        return int(most), int(of)


class RubricScore(ScoreRules):
    """`[score] kind = "rubric"`: a baseline gate, weighted checks and a verdict. SPEC 2.3."""

    kind: Literal["rubric"]
    checks: Annotated[tuple[Check, ...], Field(strict=False, min_length=1, max_length=1000)]
    injection: Literal["unjudged"] | None = None
    """How a judgement counts whose solution seems to speak to the judge; None: it counts, and the suspicion is noted."""
    panel: PanelRules | None = None
    """None: one answer is the judgement."""

    @model_validator(mode="after")
    def _whole_and_unique(self) -> Self:
        ids = [check.id for check in self.checks]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise PydanticCustomError("assay", "two checks are called {id}; give each its own id", {"id": repr(twice[0])})
        total = sum(check.weight for check in self.checks)
        if total != BPS:
            raise PydanticCustomError(
                "assay", "the weights of the checks sum to {total}; they must sum to 10000", {"total": total}
            )
        return self


class PointsScore(ScoreRules):
    """`[score] kind = "points"`: points for valid issues and starred repositories. SPEC 2.4."""

    kind: Literal["points"]
    repositories: Annotated[dict[Repository, Nanos], Field(min_length=1, max_length=10_000)]
    star_points: Nanos = NANO // 4
    star_max: Nanos = 5 * NANO // 4
    full_points: Positive = 100
    window_epochs: Positive | None = None
    invalid: Literal["gate", "subtract"] | None = None
    """subtract: an invalid issue takes its repository's points away. None is "gate": more invalid than valid ones give 0."""
    stars_alone: bool | None = None
    """If true, stars count without a valid issue too. None is false."""

    @model_validator(mode="before")
    @classmethod
    def _written_out(cls, value: Any) -> Any:
        return _without_defaults(value, invalid="gate", stars_alone=False)

    @model_validator(mode="after")
    def _stars_are_worth_something(self) -> Self:
        if self.stars_alone and not (self.star_points and self.star_max):
            raise PydanticCustomError("assay", "stars_alone does nothing where stars give no points; remove it")
        return self

    def choices(self) -> Iterator[str]:
        """`invalid` and `stars_alone`. SPEC 2.4."""
        if self.invalid is not None:
            yield "An invalid issue takes the points of its repository away."
        if self.stars_alone:
            yield "Stars count without a valid issue too."


class GivenScore(ScoreRules):
    """`[score] kind = "given"`: the score arrives already computed. SPEC 2.5."""

    kind: Literal["given"]
