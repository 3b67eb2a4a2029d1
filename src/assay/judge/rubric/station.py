"""The judge by a rubric on a node: it asks the model about solutions that are sent here, when the gate says that it may."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from assay.errors import AssayError
from assay.judge.rubric import asking
from assay.judge.rubric.asking import JudgeProgress, Models
from assay.judge.rubric.judgement import JudgeLimits, Judgement, JudgingCost
from assay.judge.rubric.solution import Solution
from assay.judge.stations import ErrandDone, Gate
from assay.scheme.bounty import Bounty

__all__ = ["SolutionReply", "SolutionSettings", "SolutionStation"]


@dataclass(frozen=True)
class SolutionSettings:
    """The settings that all solutions of a run share. The key of the service is in the models."""

    bounty: Bounty
    problem: str
    models: Models
    limits: JudgeLimits


@dataclass(frozen=True)
class SolutionReply:
    """The result of judging a solution: its judgement, or the cost without one, and the reason."""

    judgement: Judgement | None
    missing: tuple[JudgingCost, ...] = ()
    trouble: str = ""


class SolutionStation:
    """A `stations.Station`. One client serves all solutions, as in a run on one machine."""

    def __init__(self, settings: SolutionSettings, _home: Path, gate: Gate) -> None:
        """Raises BadInput where the client is not installed."""
        self._missing: list[JudgingCost] = []
        self._runner, self._open = asyncio.Runner(), AsyncExitStack()
        opened = asking.open_judge(settings.bounty, settings.problem, settings.models, self._heard, settings.limits, gate)
        try:
            self._judge = self._runner.run(self._open.enter_async_context(opened))
        except BaseException:
            self._runner.close()
            raise

    def _heard(self, event: JudgeProgress) -> None:
        if event.measured is not None:
            self._missing.append(event.measured)

    def carry_out(self, payload: Solution, places: Mapping[str, Path], folder: Path, seconds: float) -> ErrandDone:
        """See `Station.carry_out`. The reply is a `SolutionReply`."""
        self._missing.clear()
        try:
            judgement = self._runner.run(self._judge_within(payload, seconds))
        except (AssayError, TimeoutError) as error:
            trouble = str(error) or "the service took too long"
            return ErrandDone(SolutionReply(None, tuple(self._missing), trouble))
        return ErrandDone(SolutionReply(judgement))

    async def _judge_within(self, solution: Solution, seconds: float) -> Judgement:
        async with asyncio.timeout(seconds):
            return await self._judge(solution)

    def close(self) -> None:
        """See `Station.close`."""
        self._runner.run(self._open.aclose())
        self._runner.close()
