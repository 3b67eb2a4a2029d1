"""The conversation of one judgement, without a network: it yields questions and receives replies. SPEC 2.3.

- The phases are baseline, checks and verdict, in this order. If the baseline is not met, it ends there.
- A rejected answer is asked for again, and the model is told what was wrong: at temperature 0 the same question would get the
  same answer. After `attempts` answers the fallback model is asked, from the start: a judgement has the answers of one model
  only.
- If the answers of both models stay malformed, the solution is unjudged. If the service failed for one of them, there is no
  judgement, because that is not the participant's fault. A reply of a model that the bounty does not name is such a failure.

Asking and replaying use the same conversation, so they cannot differ.
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
from assay.judge.rubric.questions import PARAMETERS, RubricCase, RubricQuestion
from assay.judge.rubric.reply import Answers, Faulty, Reply, VerdictAnswer, read_baseline, read_checks, read_verdict
from assay.scheme.bounty import ModelChoice
from assay.settle.score.rubric import answer_text

TRANSCRIPT_SCHEMA = "assay.transcript/2"
Role = Literal["primary", "fallback"]
FOREIGN = frozenset({"another-model", "unnamed-model"})
"""Faults of a service whose reply names no model, or one that the bounty does not list."""


@dataclass(frozen=True)
class NamedModel:
    """One of the bounty's two models, and the service's name for it."""

    name: str
    model: ModelChoice

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of each request, besides model, messages and form."""
        return {**PARAMETERS, "max_tokens": self.model.max_tokens}

    def document(self) -> dict[str, Any]:
        """The model and its settings, as a judgement's document has them."""
        return {"asked": self.name, **self.model.model_dump(mode="json")}


@dataclass(frozen=True)
class ModelSettings:
    """The settings of a conversation, which its transcript contains."""

    primary: NamedModel
    fallback: NamedModel
    attempts: int

    @property
    def models(self) -> dict[Role, NamedModel]:
        """The models in the order in which they are asked, each once."""
        both: dict[Role, NamedModel] = {"primary": self.primary}
        return both if self.primary == self.fallback else {**both, "fallback": self.fallback}


@dataclass(frozen=True)
class AskedQuestion:
    """A question on its way to a model."""

    role: Role
    called: NamedModel
    question: RubricQuestion
    attempt: int
    body: Mapping[str, Any]
    texts: Sequence[str] = field(repr=False)
    """Untrusted texts in the request. They must not be repeated outside of it."""

    @property
    def model(self) -> str:
        """The service's name for the model."""
        return self.called.name


@dataclass(frozen=True)
class ServiceFailure:
    """The service gave no answer of this model, however often it was asked. The reason is a code.

    `words`: the service's message, made printable by `service_message`. No document and no transcript contains it.
    """

    reason: str
    words: str = ""


Steps = Generator[AskedQuestion, Reply | ServiceFailure, Judgement | None]
"""Yields questions, and returns the judgement; None if the service failed."""


class _GaveUp(Exception):
    """The conversation with this model is over, without a judgement."""

    def __init__(self, code: str, *, service: bool) -> None:
        super().__init__(code)
        self.code, self.service = code, service


T = TypeVar("T")


@dataclass
class Conversation:
    """One running judgement, with its exchanges so far."""

    case: RubricCase
    settings: ModelSettings
    exchanges: list[Exchange] = field(default_factory=list)
    written: list[dict[str, Any]] = field(default_factory=list)
    """The exchanges in the form of the transcript."""
    texts: dict[str, str] = field(default_factory=dict)
    """Digest → text, for all parts of all messages. A repeated text is stored once."""
    gave_up: str | None = None
    """The reason why the primary model was given up: a code."""
    failed: list[tuple[str, ServiceFailure]] = field(default_factory=list)
    """The models for which the service failed, and how."""

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
            part_answers = yield from self._answer(
                role, case.checks(part), partial(read_checks, ids=ids, texts=case.texts, gutter=case.gutter)
            )
            answers |= part_answers.answers
            reasons |= part_answers.reasons
            quotes |= part_answers.quotes
        verdict = yield from self._answer(role, case.verdict(answers), read_verdict)
        return self._judgement("judged", role, baseline, Answers(answers, reasons, quotes), verdict)

    def _answer(
        self, role: Role, question: RubricQuestion, read: Callable[[Reply], T]
    ) -> Generator[AskedQuestion, Reply | ServiceFailure, T]:
        """The accepted answer to one question, after at most `attempts` tries. Raises _GaveUp."""
        asked = question
        code = ""
        for attempt in range(1, self.settings.attempts + 1):
            called = self.settings.models[role]
            body = asked.body(called.name, called.model.format, called.parameters | self.case.parameters)
            reply = yield AskedQuestion(role, called, asked, attempt, body, (*self.case.texts, self.case.problem))
            failed = reply if isinstance(reply, ServiceFailure) else foreign_reply(reply, called.model)
            if failed is not None:
                self._note(role, asked, attempt, reply if isinstance(reply, Reply) else None, failed.reason)
                self.failed.append((called.name, failed))
                raise _GaveUp(failed.reason, service=True)
            assert isinstance(reply, Reply)  # a failure was handled above
            try:
                accepted = read(_bare(reply, called.model))
            except Faulty as fault:
                code = fault.code
                self._note(role, asked, attempt, reply, code)
                asked = question.with_faults(fault.sentences)
            else:
                self._note(role, asked, attempt, reply, None)
                return accepted
        raise _GaveUp(code, service=False)

    def _note(self, role: Role, asked: RubricQuestion, attempt: int, received: Reply | None, fault: str | None) -> None:
        model = self.settings.models[role].name
        self.exchanges.append(
            Exchange(
                phase=asked.phase,
                part=asked.part,
                asked=model,
                answered=received.model if received is not None else None,
                fingerprint=received.fingerprint if received is not None else None,
                fault=fault,
            )
        )
        reply = None
        if received is not None:
            reply = {
                "content": received.content,
                "refusal": received.refusal,
                "finish": received.finish,
                "model": received.model,
                "fingerprint": received.fingerprint,
            }
        self.written.append(
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
        settings, seat = self.settings, self.case.seat
        return canonical(
            ({} if seat is None else {"answer": seat.answer, "of": seat.of})
            | {
                "schema": TRANSCRIPT_SCHEMA,
                "bounty": self.case.bounty.digest,
                "submission": self.case.solution.digest,
                "prompts": prompts.digest(),
                "models": {"primary": settings.primary.name, "fallback": settings.fallback.name},
                "parameters": self.case.parameters,
                "attempts": settings.attempts,
                "exchanges": self.written,
                "texts": self.texts,
            }
        )

    def _judgement(
        self,
        outcome: Literal["judged", "unjudged"],
        role: Role | None = None,
        baseline: Answers | None = None,
        checks: Answers | None = None,
        verdict: VerdictAnswer | None = None,
        *,
        reason: str | None = None,
    ) -> Judgement:
        reasons: dict[str, str] = {}
        for phase, answers in (("baseline", baseline), ("checks", checks)):
            reasons |= {} if answers is None else {f"{phase}.{name}": sentence for name, sentence in answers.reasons.items()}
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
            parameters=self.case.parameters,
            prompts=prompts.digest(),
            exchanges=tuple(self.exchanges),
            transcript=self.transcript(),
        )


def foreign_reply(reply: Reply, model: ModelChoice) -> ServiceFailure | None:
    """The failure if a reply is of another model; None if it is not. A filter that rejected a question names no model."""
    if reply.model is None:
        return None if reply.finish == "content_filter" else ServiceFailure("unnamed-model", "the reply names no model")
    return None if model.served_as(reply.model) else ServiceFailure("another-model", f"the reply is of {reply.model!r}")


def _bare(reply: Reply, model: ModelChoice) -> Reply:
    """The reply without the text that the model's format allows around an answer."""
    return reply if reply.content is None else replace(reply, content=answer_text(reply.content, model.format))


def run_conversation(course: Conversation, replies: Sequence[Reply | ServiceFailure]) -> Judgement | None:
    """The judgement that follows from these replies. Raises ValueError if there are too few or too many."""
    steps, left = course.steps(), list(replies)
    try:
        next(steps)
        while left:
            steps.send(left.pop(0))
    except StopIteration as end:
        if left:
            raise ValueError("there are more replies than questions") from None
        judgement: Judgement | None = end.value
        return judgement
    raise ValueError("there are fewer replies than questions")
