"""The judge: it asks the service of each participant, and says how long the answer took. `JudgeRun` does the rest."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from assay.judge.judge_run import JudgeRun
from assay.judge.running import Judged, RunOptions, RunSummary, Tell
from assay.records import Participant


@dataclass(frozen=True)
class LatencyRound:
    """One round of one participant."""

    participant: str
    submission: str
    round: int

    @property
    def parts(self) -> dict[str, str]:
        """What tells it from others of this participant, for people."""
        return {"round": str(self.round)}

    @property
    def key(self) -> tuple[object, ...]:
        """The submission, then what the record has in `parts`."""
        return self.submission, self.round


class LatencyRun(JudgeRun[LatencyRound, Judged]):
    """A service that cannot be reached is an infrastructure error: it is tried again, and no record is written."""

    unit, submission = "round", "service"

    def cells(self, wanted: Sequence[Participant]) -> list[LatencyRound]:
        """Round after round, so that all are asked at about the same time."""
        score: Any = self.seen.scheme.score  # this kind's rules
        return [LatencyRound(one.key, one.submission, at) for at in range(1, score.rounds + 1) for one in wanted]

    def judge(self, cell: LatencyRound) -> Judged:
        """Ask once."""
        began = time.perf_counter_ns()
        with urlopen(cell.submission, timeout=self.options.own["timeout"]) as answer:
            answer.read(1 << 20)
        us = (time.perf_counter_ns() - began) // 1000
        return Judged("answered", f"{us} µs", evidence=self.evidence(cell, cell.submission, round=cell.round, us=us))


def run(competition: Path, validator: str, options: RunOptions, on_event: Tell) -> RunSummary:
    """What the entry point leads to."""
    return LatencyRun(competition, validator, options, on_event).carry_out()
