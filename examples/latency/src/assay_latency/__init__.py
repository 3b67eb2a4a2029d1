"""A kind of judge: how fast the service of a participant answers. The submission is the service's URL."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from assay.exact import NANO, half_even
from assay.kind import Json, Kind, Option
from assay.records import Record
from assay.scheme.model import ScoreRules
from assay.settle.inputs import Frame, Scored
from assay.settle.score import accepted, first_epochs, holding, of_kind

Positive = Annotated[int, Field(ge=1, le=10**9)]


class LatencyScore(ScoreRules):
    """`[score] kind = "latency"`: the median of so many rounds; 0 µs scores 1, `limit_us` or more scores 0."""

    kind: Literal["latency"]
    rounds: Positive = 5
    limit_us: Positive = 1_000_000


class Latency(Record):
    """One request: its round, and after how many microseconds the whole answer was there."""

    parts: ClassVar[tuple[str, ...]] = ("round",)  # what tells two records of one submission apart
    kind: Literal["latency"]
    round: Positive
    us: Annotated[int, Field(ge=0, le=10**9)]


class LatencyKind(Kind):
    """Everything that Assay asks of the kind."""

    name = "latency"
    rules = LatencyScore
    record = Latency
    options = (Option("--timeout", "Seconds after which an answer is too late.", float, 5.0),)
    fields: ClassVar[dict[str, str]] = {"round": "1, 2, … as far as the scheme's `rounds`", "us": "microseconds"}

    def score(self, records: Sequence[Any], frame: Frame, rules: LatencyScore) -> Scored:
        """The lower median of the rounds, in whole numbers; who misses a round has no score."""
        mine = of_kind(records, Latency)
        scores, missing, median = (np.zeros(frame.shape, np.int64) for _ in range(3))
        cells: dict[tuple[int, int], list[int]] = {}
        column_of = holding(frame)
        for record in accepted(mine, frame):
            column = column_of(record)
            if column is not None and record.round <= rules.rounds:
                cells.setdefault((frame.row[record.validator], column), []).append(record.us)
        for cell, seen in cells.items():
            missing[cell] = rules.rounds - len(seen)
            if not missing[cell]:
                median[cell] = sorted(seen)[(len(seen) - 1) // 2]
                scores[cell] = half_even(max(0, rules.limit_us - int(median[cell])) * NANO, rules.limit_us)
        heard = np.zeros(frame.shape, np.bool_)
        heard[tuple(zip(*cells, strict=True))] = bool(cells)
        return Scored(
            scores=scores,
            counting=heard & (missing == 0),
            incomplete=heard & (missing > 0),
            missing=missing,
            work={"median_us": median},
            first=first_epochs(mine, frame),
        )

    def saw(self, work: Json) -> str:
        """For `assay explain`."""
        return f"answered after {work['median_us']} µs"

    def work_schema(self) -> Json:
        """For the JSON schema of a settlement."""
        return {"type": "object", "properties": {"median_us": {"type": "integer", "minimum": 0}}, "required": ["median_us"]}

    def sample(self, rules: LatencyScore, judge: int, level: int) -> Iterator[Json]:
        """For a sample: the first answers at once, the third late."""
        for number in range(1, rules.rounds + 1):
            yield {"round": number, "us": (20_000, 90_000, 700_000)[level] + judge}


LATENCY = LatencyKind()
