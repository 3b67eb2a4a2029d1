"""From a bounty and a solution to a judgement: three phases, asked again within bounds. SPEC 2.3."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from assay.errors import AssayError, BadInput, Unreachable
from assay.judge.rubric.course import Asked, Course, Failed
from assay.judge.rubric.judgement import Judgement, Measured, Usage
from assay.judge.rubric.limits import LIMITS, Limits
from assay.judge.rubric.model import Models
from assay.judge.rubric.questions import Case, check_size
from assay.judge.rubric.reply import Reply
from assay.judge.rubric.solution import Solution
from assay.scheme.bounty import Bounty

if TYPE_CHECKING:
    from assay.judge.rubric.service import Service

__all__ = ["Event", "check", "check_size", "judge", "judge_all"]


Kind = Literal["asking", "waiting", "malformed", "failed", "judged", "unjudged", "missing"]
"""`waiting`: the service is asked again; `failed`: a model is given up; `missing`: there is no judgement, which is no zero."""


@dataclass(frozen=True)
class Event:
    """Something happened while a solution was judged: for a display. No text of the solution or of a model is in it."""

    kind: Kind
    submission: str
    model: str = ""
    phase: str = ""
    detail: str = ""
    """The code of a fault, or of what the service failed with."""


def _quiet(event: Event) -> None:
    del event


def _done(solution: Solution, found: Judgement | AssayError) -> None:
    del solution, found


def check(bounty: Bounty, problem: str, solution: Solution) -> None:
    """Raise BadInput as `judge` would before it asks; who does not know a sealed problem uses `check_size`."""
    Case(bounty, problem, solution)


async def judge(
    bounty: Bounty,
    problem: str,
    solution: Solution,
    models: Models,
    *,
    on_event: Callable[[Event], None] = _quiet,
    limits: Limits = LIMITS,
) -> Judgement:
    """The judgement of one solution.

    problem: the text itself, which a sealed bounty has only the digest of. Raises BadInput if the digest is another, if something
    is larger than its bound, or if the extra `llm` is missing. Raises Unreachable where the service fails beyond the bounds, or
    refuses us: the submission is then missing, and no record of it is written.
    """
    case = Case(bounty, problem, solution)
    async with _opened(models, limits) as service:
        return await _judged(case, service, on_event)


async def judge_all(
    bounty: Bounty,
    problem: str,
    solutions: Iterable[Solution],
    models: Models,
    *,
    jobs: int = 8,
    on_event: Callable[[Event], None] = _quiet,
    on_done: Callable[[Solution, Judgement | AssayError], None] = _done,
    limits: Limits = LIMITS,
) -> dict[str, Judgement | AssayError]:
    """Many solutions, at most `jobs` at a time over one client, by digest; what befell one (BadInput, Unreachable) is its own.

    on_done is called as each ends. After an Unreachable that is `final` no other is begun: they have it too. Solutions are taken
    from the iterable as there is room for them, and a second one of a digest is passed over.
    """
    left = iter(solutions)
    begun: set[str] = set()
    found: dict[str, Judgement | AssayError] = {}
    final: Unreachable | None = None

    async def work(service: Service) -> None:
        nonlocal final
        result: Judgement | AssayError
        for solution in left:
            if solution.digest in begun:
                continue
            begun.add(solution.digest)
            try:
                if final is not None:
                    raise final
                result = await _judged(Case(bounty, problem, solution), service, on_event)
            except (BadInput, Unreachable) as error:
                result = error
                if isinstance(error, Unreachable) and error.final:
                    final = error
            found[solution.digest] = result
            on_done(solution, result)

    async with _opened(models, limits) as service:
        workers = [asyncio.create_task(work(service)) for _ in range(max(1, jobs))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
    return dict(sorted(found.items()))


@asynccontextmanager
async def _opened(models: Models, limits: Limits) -> AsyncIterator[Service]:
    try:
        from assay.judge.rubric import service
    except ImportError as error:
        raise BadInput("judging by a rubric needs the Python package openai", hint="pip install 'assay[llm]'") from error
    async with service.opened(models, limits) as made:
        yield made


async def _judged(case: Case, service: Service, on_event: Callable[[Event], None]) -> Judgement:
    course = Course(case, service.models.settings(case.bounty, service.limits))
    under_way = _UnderWay(course, service, on_event)
    try:
        found = await under_way.end()
    except Unreachable:
        under_way.tell("missing")
        raise
    under_way.tell(found.outcome, found.model or "")
    return found


class _UnderWay:
    """One judgement under way: asks what its course asks, tells of it, and adds up what it takes."""

    def __init__(self, course: Course, service: Service, on_event: Callable[[Event], None]) -> None:
        self.course, self.service, self.on_event = course, service, on_event
        self.failed: list[str] = []
        self.tries, self.usage = 0, Usage()
        self.cost: int | None = 0 if service.models.prices else None
        self.started = time.monotonic_ns()

    def tell(self, kind: Kind, model: str = "", phase: str = "", detail: str = "") -> None:
        """Tell whoever watches."""
        self.on_event(Event(kind, self.course.case.solution.digest, model, phase, detail))

    async def end(self) -> Judgement:
        """The judgement; raises Unreachable."""
        steps = self.course.steps()
        try:
            asked = next(steps)
            while True:
                answer = await self._answer(asked)
                try:
                    asked = steps.send(answer)
                finally:
                    self._tell_fault()
        except StopIteration as end:
            found: Judgement | None = end.value
        if found is None:
            raise self._unreachable()
        milliseconds = (time.monotonic_ns() - self.started) // 1_000_000
        return replace(found, measured=Measured(self.usage, self.cost, milliseconds, self.tries))

    async def _answer(self, asked: Asked) -> Reply | Failed:
        model, phase = asked.model, asked.question.phase
        self.tell("asking", model, phase)
        came = await self.service.ask(asked, lambda reason: self.tell("waiting", model, phase, reason))
        self.tries += came.tries
        self.usage = Usage(self.usage.prompt + came.usage.prompt, self.usage.completion + came.usage.completion)
        price = self.service.models.prices.get(model)
        self.cost = None if price is None or self.cost is None else self.cost + price.of(came.usage)
        if isinstance(came.answer, Failed):
            self.failed.append(came.answer.reason)
        return came.answer

    def _tell_fault(self) -> None:
        last = self.course.exchanges[-1]
        if last.fault is not None:
            self.tell("failed" if last.fault in self.failed else "malformed", last.asked, last.phase, last.fault)

    def _unreachable(self) -> Unreachable:
        models = self.course.settings.models.values()
        said = ", ".join(f"{model} ({reason})" for model, reason in zip(models, self.failed, strict=False))
        return Unreachable(
            f"the model at {self.service.models.host} gave no judgement: {said}",
            final=self.failed == ["status-404"] * len(models),
            hint="nothing is concluded of the submission; try again later, or check the names of the models",
        )
