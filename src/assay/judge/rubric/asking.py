"""Asks a model service the three phases of questions about a solution, and returns the judgement. SPEC 2.3.

It also holds the service's address, its names for the two models, and their prices. Questions are repeated within bounds.
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
from assay.judge.rubric.judgement import LIMITS, NAME_CHARACTERS, JudgeLimits, Judgement, JudgingCost, Spent, TokenUsage
from assay.judge.rubric.panel import panel_judgement, seats
from assay.judge.rubric.questions import PanelSeat, RubricCase
from assay.judge.rubric.reply import Reply
from assay.judge.rubric.solution import Solution
from assay.judge.stations import Gate
from assay.scheme.bounty import Bounty, ModelChoice

if TYPE_CHECKING:
    from assay.judge.rubric.service import ModelService


_MILLION = 1_000_000


@dataclass(frozen=True)
class Price:
    """The price of a million tokens, in millionths of the unit (0.27 $ is 270 000)."""

    prompt: int
    completion: int

    def of(self, usage: TokenUsage) -> int | None:
        """The cost of these tokens in millionths of the unit, rounded half to even; None if their number is not known."""
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
    """An OpenAI-compatible service, and its names for the two models. Raises BadInput for a bad address."""

    base_url: str
    """For example https://api.example.com/v1. Use plain http only on this machine: others could read a solution on its way."""
    api_key: str = field(default="", repr=False)
    primary: str | None = None
    """The service's name for the first model; None: the bounty's name."""
    fallback: str | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    """Prices by the service's names of the models."""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.base_url)
            _ = parts.port
        except ValueError as error:
            raise _bad_url(self.base_url, str(error)) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or not self.base_url.isprintable():
            raise _bad_url(self.base_url, "it must begin with http:// or https:// and a host")
        if "@" in parts.netloc:  # the message does not repeat the address: it may have a password before the @
            raise BadInput(
                "the address of the model contains a user name or a password",
                field="model",
                hint="leave it out, and give the key separately",
            )
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

    def settings(self, bounty: Bounty, limits: JudgeLimits, seat: PanelSeat | None = None) -> ModelSettings:
        """The two models under this service's names. Raises BadInput for a name that the bounty does not list.

        seat: the answer of a panel. A name for the first model is then used for those models that list it.
        """
        members, name = bounty.judge.members, self.primary
        model = members[0] if seat is None else bounty.judge.of_answer(seat.answer)
        if name is not None and not model.served_as(name) and any(other.served_as(name) for other in members):
            name = None
        return ModelSettings(
            primary=_named_model("model", name, model, bounty),
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
"""`waiting`: the request is repeated later; `failed`: a model is given up; `missing`: there is no judgement (and no zero)."""


@dataclass(frozen=True)
class JudgeProgress:
    """One event of judging, for a display. It contains no text of the solution or of a model."""

    kind: ProgressKind
    submission: str
    model: str = ""
    phase: str = ""
    detail: str = ""
    """The code of a fault, or of the service's failure."""
    words: str = ""
    """The service's own message, printable and without secrets."""
    measured: JudgingCost | None = None
    """With `missing`: the cost until then."""


_FINAL = FOREIGN | {"status-404"}
"""If both models fail with one of these, every other solution would fail too, until somebody repairs it."""


def _quiet(event: JudgeProgress) -> None:
    del event


def check_case(bounty: Bounty, problem: str, solution: Solution) -> None:
    """Raise BadInput as `judge` would, without asking. If the problem is sealed, use `check_size`."""
    RubricCase(bounty, problem, solution)


async def judge(
    bounty: Bounty,
    problem: str,
    solution: Solution,
    models: Models,
    *,
    on_event: Callable[[JudgeProgress], None] = _quiet,
    limits: JudgeLimits = LIMITS,
) -> Judgement:
    """The judgement of one solution.

    problem: the text itself; a sealed bounty has only its digest. Raises BadInput if the digest differs, if something is larger
    than its bound, or if the extra `llm` is missing. Raises Unreachable if the service fails beyond the bounds, or refuses the
    key: the judgement is then missing, and no record is written.
    """
    check_case(bounty, problem, solution)  # before the service is opened
    async with open_judge(bounty, problem, models, on_event, limits) as judge_one:
        return await judge_one(solution)


SolutionJudge = Callable[[Solution], Awaitable[Judgement]]
"""Judges one solution; raises BadInput and Unreachable as `judge` does."""


@asynccontextmanager
async def open_judge(
    bounty: Bounty,
    problem: str,
    models: Models,
    on_event: Callable[[JudgeProgress], None] = _quiet,
    limits: JudgeLimits = LIMITS,
    gate: Gate | None = None,
) -> AsyncIterator[SolutionJudge]:
    """Judge solutions over one client, also several at a time. After an Unreachable that is `final` it asks nothing more."""
    async with _open_service(models, limits, gate) as service:
        final: Unreachable | None = None

        async def judge_one(solution: Solution) -> Judgement:
            nonlocal final
            if final is not None:
                raise final
            try:
                if bounty.rules.panel is None:
                    return await _judged(RubricCase(bounty, problem, solution), service, on_event)
                return await _panel_judged(
                    [RubricCase(bounty, problem, solution, seat) for seat in seats(bounty)], service, on_event
                )
            except Unreachable as error:
                final = error if error.final else final
                raise

        yield judge_one


@asynccontextmanager
async def _open_service(models: Models, limits: JudgeLimits, gate: Gate | None = None) -> AsyncIterator[ModelService]:
    try:
        from assay.judge.rubric import service
    except ImportError as error:
        raise BadInput("judging by a rubric needs the Python package openai", hint="pip install 'assay[llm]'") from error
    async with service.open_service(models, limits, gate) as opened:
        yield opened


PASSES = 2
"""Attempts at an answer of a panel before the whole panel is missing."""


async def _panel_judged(
    cases: Sequence[RubricCase], service: ModelService, on_event: Callable[[JudgeProgress], None]
) -> Judgement:
    """The judgement of a panel, one answer after the other; those that a service failed to give are asked for once more.

    Raises Unreachable if one is still missing: an error is no vote, so there is no judgement.
    """
    answers: dict[int, Judgement] = {}
    try:
        for turn in range(PASSES):
            for at, case in enumerate(cases):
                if at not in answers:
                    try:
                        answers[at] = await _judged(case, service, on_event)
                    except Unreachable as error:
                        if error.final or turn == PASSES - 1:
                            raise
    except (Unreachable, asyncio.CancelledError):
        for answer in answers.values():  # what they cost was spent without a judgement
            on_event(JudgeProgress("missing", answer.submission, measured=answer.measured))
        raise
    return panel_judgement([answers[at] for at in range(len(cases))], cases[0].bounty)


async def _judged(case: RubricCase, service: ModelService, on_event: Callable[[JudgeProgress], None]) -> Judgement:
    course = Conversation(case, service.models.settings(case.bounty, service.limits, case.seat))
    under_way = _RunningJudgement(course, service, on_event)
    try:
        judgement = await under_way.end()
    except (Unreachable, asyncio.CancelledError):
        under_way.tell("missing", measured=under_way.measured())
        raise
    under_way.tell(judgement.outcome, judgement.model or "")
    return judgement


class _RunningJudgement:
    """A running judgement: asks the questions of its conversation, reports events, and adds up the cost."""

    def __init__(self, course: Conversation, service: ModelService, on_event: Callable[[JudgeProgress], None]) -> None:
        self.course, self.service, self.on_event = course, service, on_event
        self.tries, self.usage = 0, TokenUsage()
        self.cost: int | None = 0 if service.models.prices else None
        self.started = time.monotonic_ns()

    def tell(self, kind: ProgressKind, model: str = "", phase: str = "", detail: str = "", **more: Any) -> None:
        """Report an event."""
        seat = self.course.case.seat
        phase = phase if seat is None or not phase else f"{phase} {seat.answer}/{seat.of}"
        self.on_event(JudgeProgress(kind, self.course.case.solution.digest, model, phase, detail, **more))

    def measured(self) -> JudgingCost:
        """The cost so far."""
        milliseconds = (time.monotonic_ns() - self.started) // 1_000_000
        return JudgingCost(self.usage, self.cost, milliseconds, self.tries)

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
            judgement: Judgement | None = end.value
        if judgement is None:
            raise self._unreachable()
        return replace(judgement, measured=self.measured())

    async def _answer(self, asked: AskedQuestion) -> Reply | ServiceFailure:
        model, phase = asked.model, asked.question.phase
        self.tell("asking", model, phase)
        spent, price = Spent(), self.service.models.prices.get(model)
        try:
            answer = await self.service.ask(asked, lambda reason: self.tell("waiting", model, phase, reason), spent)
            if isinstance(answer, Reply) and foreign_reply(answer, asked.called.model) is not None:
                price = None  # the price is of another model
            return answer
        finally:
            self.tries += spent.tries
            self.usage += spent.usage
            cost = None if price is None else price.of(spent.usage)
            self.cost = None if cost is None or self.cost is None else self.cost + cost

    def _tell_fault(self) -> None:
        last = self.course.exchanges[-1]
        if last.fault is not None:
            failed = next(
                (failure for model, failure in self.course.failed if (model, failure.reason) == (last.asked, last.fault)), None
            )
            words = "" if failed is None else failed.words
            self.tell("malformed" if failed is None else "failed", last.asked, last.phase, last.fault, words=words)

    def _unreachable(self) -> Unreachable:
        failed = self.course.failed
        reasons = ", ".join(
            f"{model} ({failure.reason}{': ' if failure.words else ''}{failure.words})" for model, failure in failed
        )
        return Unreachable(
            f"the model at {self.service.models.host} gave no judgement: {reasons}",
            final=len(failed) == len(self.course.settings.models) and all(failure.reason in _FINAL for _, failure in failed),
            hint="this says nothing about the submission; try again later, or check the names of the models",
        )
