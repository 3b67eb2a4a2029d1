"""Asking a model service: its address and names for the models, and the three phases from a bounty and a solution to a judgement.

Questions are asked again within bounds. SPEC 2.3.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from assay.errors import BadInput, Unreachable, brief
from assay.exact import half_even, nanos
from assay.judge.rubric.conversation import (
    FOREIGN,
    AskedQuestion,
    Conversation,
    ModelSettings,
    NamedModel,
    ServiceFailure,
    foreign_reply,
)
from assay.judge.rubric.judgement import LIMITS, NAME_CHARACTERS, Judgement, Limits, Measured, Spent, Usage
from assay.judge.rubric.questions import Case
from assay.judge.rubric.reply import Reply
from assay.judge.rubric.solution import Solution
from assay.scheme.bounty import Bounty, ModelChoice

if TYPE_CHECKING:
    from assay.judge.rubric.service import ModelService


_MILLION = 1_000_000


@dataclass(frozen=True)
class Price:
    """The price of a million tokens, in millionths of the unit (0.27 $ is 270 000)."""

    prompt: int
    completion: int

    def of(self, usage: Usage) -> int | None:
        """The cost of these tokens, in millionths of the unit, halves to even; None if their number is not known."""
        if usage.prompt is None or usage.completion is None:
            return None
        return half_even(self.prompt * usage.prompt + self.completion * usage.completion, _MILLION)


def parse_prices(given: Sequence[str]) -> dict[str, Price]:
    """Model → its price, of texts NAME=IN/OUT; raises BadInput."""
    prices: dict[str, Price] = {}
    for price in given:
        name, equals, amounts = price.rpartition("=")
        asked, slash, answered = amounts.partition("/")
        try:
            both = nanos(asked), nanos(answered)
        except BadInput:
            both = (1, 1)
        if not (name and equals and slash) or any(amount % 1000 for amount in both):
            hint = "write NAME=IN/OUT with at most six digits after the point, such as --price deepseek-chat=0.27/1.1"
            raise BadInput(f"{price[:100]!r} is not a price", field="--price", hint=hint)
        prices[name] = Price(both[0] // 1000, both[1] // 1000)
    return prices


@dataclass(frozen=True)
class Models:
    """An OpenAI-compatible service and what it calls the two models; raises BadInput for a bad address."""

    base_url: str
    """Such as https://api.example.com/v1. Over plain http a solution can be read on its way: for this machine alone."""
    api_key: str = field(default="", repr=False)
    primary: str | None = None
    """As the service calls it; None: as the bounty does."""
    fallback: str | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    """By the name that the service is asked for."""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.base_url)
            _ = parts.port
        except ValueError as error:
            raise _bad_url(self.base_url, str(error)) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or not self.base_url.isprintable():
            raise _bad_url(self.base_url, "it must begin with http:// or https:// and a host")
        if "@" in parts.netloc:  # not said again: what stands before the @ may be a password
            raise BadInput("the address of the model has a user in it", field="model", hint="give the key by itself")
        if parts.query or parts.fragment:
            raise _bad_url(self.base_url, "it may have a path, but no query or fragment")
        if not (self.api_key.isascii() and self.api_key.isprintable()) or self.api_key != self.api_key.strip():
            raise BadInput("the key is not printable ASCII", field="model", hint="is there a line end in it?")
        for name in (self.primary, self.fallback):
            if name is not None and not (0 < len(name) <= NAME_CHARACTERS and name.isprintable() and " " not in name):
                raise BadInput(f"{brief(name)} is not the name of a model", field="model", hint="use what the service calls it")

    @property
    def host(self) -> str:
        """The service's host, for messages."""
        return urlsplit(self.base_url).netloc

    def settings(self, bounty: Bounty, limits: Limits) -> ModelSettings:
        """The two models as this service calls them; raises BadInput for a name that the bounty does not list."""
        return ModelSettings(
            primary=_named_model("model", self.primary, bounty.judge.model, bounty),
            fallback=_named_model("fallback", self.fallback, bounty.judge.fallback, bounty),
            attempts=limits.attempts,
        )


def _named_model(field: str, name: str | None, model: ModelChoice, bounty: Bounty) -> NamedModel:
    if name is not None and not model.served_as(name):
        listed = ", ".join([model.name, *model.names])
        hint = f"the bounty lists {listed}; the sponsor lists others in judge.{field}.names, which changes the bounty's digest"
        what = f"{brief(name)} is not a name under which {model.name} may be served"
        raise BadInput(what, file=bounty.file, field=f"judge.{field}.names", hint=hint)
    return NamedModel(name or model.name, model)


def _bad_url(url: str, why: str) -> BadInput:
    hint = f"{why}; for example https://api.example.com/v1"
    return BadInput(f"{brief(url, 100)} is not the address of a model", field="model", hint=hint)


ProgressKind = Literal["asking", "waiting", "malformed", "failed", "judged", "unjudged", "missing"]
"""`waiting`: the service is asked again; `failed`: a model is given up; `missing`: there is no judgement, which is no zero."""


@dataclass(frozen=True)
class JudgeProgress:
    """Something happened while a solution was judged: for a display. No text of the solution or of a model is in it."""

    kind: ProgressKind
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


def _quiet(event: JudgeProgress) -> None:
    del event


def check_case(bounty: Bounty, problem: str, solution: Solution) -> None:
    """Raise BadInput as `judge` would before it asks; without a sealed problem's text use `check_size`."""
    Case(bounty, problem, solution)


async def judge(
    bounty: Bounty,
    problem: str,
    solution: Solution,
    models: Models,
    *,
    on_event: Callable[[JudgeProgress], None] = _quiet,
    limits: Limits = LIMITS,
) -> Judgement:
    """The judgement of one solution.

    problem: the text itself; a sealed bounty has only its digest. Raises BadInput if the digest is another, if something
    is larger than its bound, or if the extra `llm` is missing. Raises Unreachable if the service fails beyond the bounds, or
    refuses the key: the submission is then missing, and no record of it is written.
    """
    check_case(bounty, problem, solution)  # before the service is opened
    async with open_judge(bounty, problem, models, on_event, limits) as judge_one:
        return await judge_one(solution)


SolutionJudge = Callable[[Solution], Awaitable[Judgement]]
"""Judges one solution; raises BadInput and Unreachable as `judge` does."""


@asynccontextmanager
async def open_judge(
    bounty: Bounty, problem: str, models: Models, on_event: Callable[[JudgeProgress], None] = _quiet, limits: Limits = LIMITS
) -> AsyncIterator[SolutionJudge]:
    """Judges solutions over one client, also several at a time. After an Unreachable that is `final` it asks nothing more."""
    async with _open_service(models, limits) as service:
        final: Unreachable | None = None

        async def judge_one(solution: Solution) -> Judgement:
            nonlocal final
            if final is not None:
                raise final
            try:
                return await _judged(Case(bounty, problem, solution), service, on_event)
            except Unreachable as error:
                final = error if error.final else final
                raise

        yield judge_one


@asynccontextmanager
async def _open_service(models: Models, limits: Limits) -> AsyncIterator[ModelService]:
    try:
        from assay.judge.rubric import service
    except ImportError as error:
        raise BadInput("judging by a rubric needs the Python package openai", hint="pip install 'assay[llm]'") from error
    async with service.open_service(models, limits) as made:
        yield made


async def _judged(case: Case, service: ModelService, on_event: Callable[[JudgeProgress], None]) -> Judgement:
    course = Conversation(case, service.models.settings(case.bounty, service.limits))
    under_way = _RunningJudgement(course, service, on_event)
    try:
        found = await under_way.end()
    except (Unreachable, asyncio.CancelledError):
        under_way.tell("missing", measured=under_way.measured())
        raise
    under_way.tell(found.outcome, found.model or "")
    return found


class _RunningJudgement:
    """One judgement under way: asks what its course asks, tells of it, and adds up what it takes."""

    def __init__(self, course: Conversation, service: ModelService, on_event: Callable[[JudgeProgress], None]) -> None:
        self.course, self.service, self.on_event = course, service, on_event
        self.tries, self.usage = 0, Usage()
        self.cost: int | None = 0 if service.models.prices else None
        self.started = time.monotonic_ns()

    def tell(self, kind: ProgressKind, model: str = "", phase: str = "", detail: str = "", **more: Any) -> None:
        """Tell whoever watches."""
        self.on_event(JudgeProgress(kind, self.course.case.solution.digest, model, phase, detail, **more))

    def measured(self) -> Measured:
        """The cost so far."""
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

    async def _answer(self, asked: AskedQuestion) -> Reply | ServiceFailure:
        model, phase = asked.model, asked.question.phase
        self.tell("asking", model, phase)
        spent, price = Spent(), self.service.models.prices.get(model)
        try:
            answer = await self.service.ask(asked, lambda reason: self.tell("waiting", model, phase, reason), spent)
            if isinstance(answer, Reply) and foreign_reply(answer, asked.called.model) is not None:
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
