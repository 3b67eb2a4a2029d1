"""The conversation of one judgement, without a network: it yields questions and receives replies. SPEC 2.3.

- Baseline, checks, verdict, in this order; where the baseline is not met, it ends there.
- An answer that is not accepted is asked for again, and the model is told what was wrong: at temperature 0 the same question
  would have the same answer. After `attempts` answers the fallback model is asked, from the start: one judgement is one model's.
- Where both models' answers stay malformed, the solution is unjudged. Where the service failed one of them, there is no
  judgement: that is not the participant's doing. A reply of a model that the bounty does not name is such a failure.

Asking and replaying use the same conversation, so that they cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, Literal, TypeVar

from assay.exact import canonical
from assay.judge.rubric import prompts
from assay.judge.rubric.injections import detect
from assay.judge.rubric.judgement import Exchange, Judgement
from assay.judge.rubric.questions import PARAMETERS, Case, Question
from assay.judge.rubric.reply import Answers, Faulty, Reply, Verdict, read_baseline, read_checks, read_verdict
from assay.scheme.bounty import ModelChoice
from assay.settle.score.rubric import answer_text

TRANSCRIPT_SCHEMA = "assay.transcript/2"
Role = Literal["primary", "fallback"]
FOREIGN = frozenset({"another-model", "unnamed-model"})
"""Faults of a service whose reply names a model that the bounty does not, or none."""


@dataclass(frozen=True)
class NamedModel:
    """One of the bounty's two models, and the service's name for it."""

    name: str
    model: ModelChoice

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of each request beside model, messages and form."""
        return {**PARAMETERS, "max_tokens": self.model.max_tokens}

    def document(self) -> dict[str, Any]:
        """How it is asked, for a judgement's document."""
        return {"asked": self.name, **self.model.model_dump(mode="json")}


@dataclass(frozen=True)
class ModelSettings:
    """Settings of a conversation beside the case; the transcript has them."""

    primary: NamedModel
    fallback: NamedModel
    attempts: int

    @property
    def models(self) -> dict[Role, NamedModel]:
        """The models to ask, in this order, each once."""
        both: dict[Role, NamedModel] = {"primary": self.primary}
        return both if self.primary == self.fallback else {**both, "fallback": self.fallback}


@dataclass(frozen=True)
class AskedQuestion:
    """A question on its way to a model."""

    role: Role
    called: NamedModel
    question: Question
    attempt: int
    body: Mapping[str, Any]
    texts: Sequence[str] = field(repr=False)
    """Untrusted texts in the request, not to be repeated outside of it."""

    @property
    def model(self) -> str:
        """As the service calls it."""
        return self.called.name


@dataclass(frozen=True)
class ServiceFailure:
    """The service had no answer of this model, however often it was asked; the reason is a code.

    `words` are the service's own, as `service_message` makes them printable; in no document and no transcript.
    """

    reason: str
    words: str = ""


Steps = Generator[AskedQuestion, Reply | ServiceFailure, Judgement | None]
"""Ends with the judgement; with None where the service failed, so that there is none."""


class _GaveUp(Exception):
    """This model's part is over."""

    def __init__(self, code: str, *, service: bool) -> None:
        super().__init__(code)
        self.code, self.service = code, service


T = TypeVar("T")


@dataclass
class Conversation:
    """One judgement under way: the exchanges so far."""

    case: Case
    settings: ModelSettings
    exchanges: list[Exchange] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)
    """The exchanges as the transcript has them."""
    texts: dict[str, str] = field(default_factory=dict)
    """Digest → text, of all parts of all messages: a repeated text is stored once."""
    gave_up: str | None = None
    """Why the primary model was given up, a code."""
    failed: list[tuple[str, ServiceFailure]] = field(default_factory=list)
    """The models that the service failed, and how."""

    def steps(self) -> Steps:
        """The questions, in order."""
        service, reason = False, ""
        for role in self.settings.models:
            try:
                return (yield from self._by(role))
            except _GaveUp as end:
                service, reason = service or end.service, end.code
                if role == "primary":
                    self.gave_up = end.code
        return None if service else self._judgement("unjudged", reason=reason)

    def _by(self, role: Role) -> Generator[AskedQuestion, Reply | ServiceFailure, Judgement]:
        case = self.case
        baseline = yield from self._answer(role, case.baseline(), read_baseline)
        if not all(baseline.answers.values()):
            return self._judgement("judged", role, baseline)
        answers: dict[str, bool] = {}
        reasons: dict[str, str] = {}
        quotes: dict[str, str] = {}
        for part, chunk in enumerate(case.chunks, 1):
            ids = [check.id for check in chunk]
            found = yield from self._answer(
                role, case.checks(part), partial(read_checks, ids=ids, texts=case.texts, gutter=case.gutter)
            )
            answers |= found.answers
            reasons |= found.reasons
            quotes |= found.quotes
        verdict = yield from self._answer(role, case.verdict(answers), read_verdict)
        return self._judgement("judged", role, baseline, Answers(answers, reasons, quotes), verdict)

    def _answer(
        self, role: Role, question: Question, read: Callable[[Reply], T]
    ) -> Generator[AskedQuestion, Reply | ServiceFailure, T]:
        """The answer to one question, asked as often as it may be; raises _GaveUp."""
        asked = question
        code = ""
        for attempt in range(1, self.settings.attempts + 1):
            called = self.settings.models[role]
            body = asked.body(called.name, called.model.format, called.parameters)
            came = yield AskedQuestion(role, called, asked, attempt, body, (*self.case.texts, self.case.problem))
            failed = came if isinstance(came, ServiceFailure) else foreign_reply(came, called.model)
            if failed is not None:
                self._note(role, asked, attempt, came if isinstance(came, Reply) else None, failed.reason)
                self.failed.append((called.name, failed))
                raise _GaveUp(failed.reason, service=True)
            assert isinstance(came, Reply)  # or it failed
            try:
                found = read(_bare(came, called.model))
            except Faulty as fault:
                code = fault.code
                self._note(role, asked, attempt, came, code)
                asked = question.with_faults(fault.told)
            else:
                self._note(role, asked, attempt, came, None)
                return found
        raise _GaveUp(code, service=False)

    def _note(self, role: Role, asked: Question, attempt: int, came: Reply | None, fault: str | None) -> None:
        model = self.settings.models[role].name
        self.exchanges.append(
            Exchange(
                phase=asked.phase,
                part=asked.part,
                asked=model,
                answered=came.model if came is not None else None,
                fingerprint=came.fingerprint if came is not None else None,
                fault=fault,
            )
        )
        reply = None
        if came is not None:
            reply = {
                "content": came.content,
                "refusal": came.refusal,
                "finish": came.finish,
                "model": came.model,
                "fingerprint": came.fingerprint,
            }
        self.said.append(
            {
                "model": model,
                "phase": asked.phase,
                "part": asked.part,
                "attempt": attempt,
                "system": self._keep(asked.system),
                "user": [self._keep(part) for part in asked.parts],
                "form": dict(asked.form),
                "reply": reply,
                "fault": fault,
            }
        )

    def _keep(self, text: str) -> str:
        name = f"sha256:{sha256(text.encode()).hexdigest()}"
        self.texts[name] = text
        return name

    def transcript(self) -> bytes:
        """The questions and answers so far, as canonical JSON."""
        settings = self.settings
        return canonical(
            {
                "schema": TRANSCRIPT_SCHEMA,
                "bounty": self.case.bounty.digest,
                "submission": self.case.solution.digest,
                "prompts": prompts.digest(),
                "models": {"primary": settings.primary.name, "fallback": settings.fallback.name},
                "parameters": dict(PARAMETERS),
                "attempts": settings.attempts,
                "exchanges": self.said,
                "texts": self.texts,
            }
        )

    def _judgement(
        self,
        outcome: Literal["judged", "unjudged"],
        role: Role | None = None,
        baseline: Answers | None = None,
        checks: Answers | None = None,
        verdict: Verdict | None = None,
        *,
        reason: str | None = None,
    ) -> Judgement:
        reasons: dict[str, str] = {}
        for phase, one in (("baseline", baseline), ("checks", checks)):
            reasons |= {} if one is None else {f"{phase}.{name}": said for name, said in one.reasons.items()}
        if verdict is not None:
            reasons["verdict"] = verdict.reason
        return Judgement(
            bounty=self.case.bounty.digest,
            submission=self.case.solution.digest,
            outcome=outcome,
            baseline=None if baseline is None else baseline.answers,
            checks=None if checks is None else checks.answers,
            verdict=None if verdict is None else verdict.verdict,
            quotes={} if checks is None else checks.quotes,
            reasons=reasons,
            detectors=detect(self.case.solution, self.case.ids),
            reason=reason,
            model=None if role is None else self.settings.models[role].name,
            asked={name: called.document() for name, called in self.settings.models.items()},
            fallback=self.gave_up if role == "fallback" else None,
            words=self.failed[0][1].words if role == "fallback" and self.failed else "",
            parameters=PARAMETERS,
            prompts=prompts.digest(),
            exchanges=tuple(self.exchanges),
            transcript=self.transcript(),
        )


def foreign_reply(came: Reply, model: ModelChoice) -> ServiceFailure | None:
    """The failure if a reply is from another model; a filter that rejected a question has no model."""
    if came.model is None:
        return None if came.finish == "content_filter" else ServiceFailure("unnamed-model", "the reply names no model")
    return None if model.served_as(came.model) else ServiceFailure("another-model", f"the reply is of {came.model!r}")


def _bare(came: Reply, model: ModelChoice) -> Reply:
    """The reply without what the model's format lets stand around an answer."""
    return came if came.content is None else replace(came, content=answer_text(came.content, model.format))


def run_conversation(course: Conversation, replies: Sequence[Reply | ServiceFailure]) -> Judgement | None:
    """The judgement that these replies lead to; raises ValueError if they are too few or too many."""
    steps, left = course.steps(), list(replies)
    try:
        next(steps)
        while left:
            steps.send(left.pop(0))
    except StopIteration as end:
        if left:
            raise ValueError("there are more replies than questions") from None
        found: Judgement | None = end.value
        return found
    raise ValueError("there are fewer replies than questions")
