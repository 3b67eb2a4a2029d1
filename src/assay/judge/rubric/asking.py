"""From a bounty and a solution to a judgement: three phases, asked again within bounds. SPEC 2.3."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import AssayError, BadInput, Unreachable
from assay.judge.rubric.course import FOREIGN, Asked, Course, Failed, foreign
from assay.judge.rubric.judgement import Judgement, Measured, Spent, Usage
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
    words: str = ""
    """The service's own words to it, printable and without secrets."""
    measured: Measured | None = None
    """With `missing`: what the solution took until then."""


_FINAL = FOREIGN | {"status-404"}
"""Where both models end so, every other solution has it too, until somebody mends it."""


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
    except (Unreachable, asyncio.CancelledError):
        under_way.tell("missing", measured=under_way.measured())
        raise
    under_way.tell(found.outcome, found.model or "")
    return found


class _UnderWay:
    """One judgement under way: asks what its course asks, tells of it, and adds up what it takes."""

    def __init__(self, course: Course, service: Service, on_event: Callable[[Event], None]) -> None:
        self.course, self.service, self.on_event = course, service, on_event
        self.tries, self.usage = 0, Usage()
        self.cost: int | None = 0 if service.models.prices else None
        self.started = time.monotonic_ns()

    def tell(self, kind: Kind, model: str = "", phase: str = "", detail: str = "", **more: Any) -> None:
        """Tell whoever watches."""
        self.on_event(Event(kind, self.course.case.solution.digest, model, phase, detail, **more))

    def measured(self) -> Measured:
        """What it took so far."""
        milliseconds = (time.monotonic_ns() - self.started) // 1_000_000
        return Measured(self.usage, self.cost, milliseconds, self.tries)

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
        return replace(found, measured=self.measured())

    async def _answer(self, asked: Asked) -> Reply | Failed:
        model, phase = asked.model, asked.question.phase
        self.tell("asking", model, phase)
        spent, price = Spent(), self.service.models.prices.get(model)
        try:
            answer = await self.service.ask(asked, lambda reason: self.tell("waiting", model, phase, reason), spent)
            if isinstance(answer, Reply) and foreign(answer, asked.called.model) is not None:
                price = None  # of another model
            return answer
        finally:
            self.tries += spent.tries
            self.usage += spent.usage
            cost = None if price is None else price.of(spent.usage)
            self.cost = None if cost is None or self.cost is None else self.cost + cost

    def _tell_fault(self) -> None:
        last = self.course.exchanges[-1]
        if last.fault is not None:
            failed = next((one for model, one in self.course.failed if (model, one.reason) == (last.asked, last.fault)), None)
            words = "" if failed is None else failed.words
            self.tell("malformed" if failed is None else "failed", last.asked, last.phase, last.fault, words=words)

    def _unreachable(self) -> Unreachable:
        failed = self.course.failed
        said = ", ".join(f"{model} ({one.reason}{': ' if one.words else ''}{one.words})" for model, one in failed)
        return Unreachable(
            f"the model at {self.service.models.host} gave no judgement: {said}",
            final=len(failed) == len(self.course.settings.models) and all(one.reason in _FINAL for _, one in failed),
            hint="nothing is concluded of the submission; try again later, or check the names of the models",
        )
