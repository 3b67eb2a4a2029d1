"""What was asked and answered, as canonical JSON (`course` writes it); and a replay of it without a network. SPEC 2.3, 6.

{schema, bounty, submission, prompts, models {primary, fallback}, parameters, attempts, exchanges, texts}; an exchange is {model,
phase, part, attempt, system, user, form, reply, fault}, where system and user name texts by digest. It has all that was asked and
answered, the solution's text included, and neither times nor costs: the same answers make the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from assay.errors import BadInput, Refused, brief
from assay.exact import canonical
from assay.judge.rubric import prompts
from assay.judge.rubric.course import SCHEMA, Called, Course, Failed, Settings, run
from assay.judge.rubric.judgement import Judgement
from assay.judge.rubric.limits import BODY_BYTES, NAME_CHARACTERS, TRANSCRIPT_BYTES
from assay.judge.rubric.questions import Case
from assay.judge.rubric.reply import Reply
from assay.judge.rubric.solution import Solution
from assay.scheme.bounty import Bounty
from assay.scheme.fields import Section
from assay.settle.score.rubric import BASELINE

__all__ = ["SCHEMA", "Change", "compare", "replay"]

_Name = Annotated[str, Field(min_length=1, max_length=4 * NAME_CHARACTERS)]
_Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
_Text = Annotated[str, Field(max_length=BODY_BYTES)]
_STAGE = "transcript"


@dataclass(frozen=True)
class Change:
    """An answer that two judgements of one solution do not share: `B3`, a check's id, `verdict`, `outcome`; before and after."""

    name: str
    before: bool | str | None
    after: bool | str | None
    phase: str = ""
    """`outcome`, `baseline`, `checks` or `verdict`: a check may be called as something else is."""


class _Reply(Section):
    content: _Text | None
    refusal: _Text | None
    finish: _Text | None
    model: _Name | None
    fingerprint: _Name | None


class _Said(Section):
    model: _Name
    phase: Literal["baseline", "checks", "verdict"]
    part: int
    attempt: int
    system: _Digest
    user: list[_Digest]
    form: dict[str, Any]
    reply: _Reply | None
    fault: _Name | None


class _Models(Section):
    primary: _Name
    fallback: _Name


class _Parameters(Section):
    temperature: Literal[0]
    seed: Literal[42]


class _Transcript(Section):
    schema_: Annotated[Literal["assay.transcript/2"], Field(alias="schema")]
    bounty: _Digest
    submission: _Digest
    prompts: _Digest
    models: _Models
    parameters: _Parameters
    attempts: Annotated[int, Field(ge=1, le=10)]
    exchanges: Annotated[list[_Said], Field(min_length=1, max_length=10_000)]
    texts: dict[_Digest, str]


def replay(transcript: bytes, bounty: Bounty, problem: str, solution: Solution) -> Judgement:
    """The judgement that a transcript's replies lead to; no network.

    Every request is made anew and compared. Raises Refused (stage `transcript`) where it is not what we would have asked, and
    BadInput where it is no transcript.
    """
    case, kept = Case(bounty, problem, solution), _read(transcript)
    for what, found, expected in (
        ("it is of another bounty", kept.bounty, bounty.digest),
        ("it is of another submission", kept.submission, solution.digest),
        ("its prompts are not those of this version of assay", kept.prompts, prompts.digest()),
    ):
        if found != expected:
            raise Refused(_STAGE, what, expected=expected, found=found)
    models = kept.models
    for name, model in ((models.primary, bounty.judge.model), (models.fallback, bounty.judge.fallback)):
        if not model.served_as(name):
            raise Refused(_STAGE, f"it asked for {brief(name)}, which the bounty does not list as a name of {model.name}")
    settings = Settings(Called(models.primary, bounty.judge.model), Called(models.fallback, bounty.judge.fallback), kept.attempts)
    course = Course(case, settings)
    try:
        judgement = run(course, [_answer(said) for said in kept.exchanges])
    except ValueError as error:
        _compare_requests(course, kept)
        raise Refused(_STAGE, f"its replies do not make a judgement: {error}") from None
    _compare_requests(course, kept)
    if course.transcript() != transcript:
        raise Refused(_STAGE, "it has texts that were not asked")
    if judgement is None:
        raise Refused(_STAGE, "the service failed in it, so that there is no judgement")
    return judgement


def _read(data: bytes) -> _Transcript:
    hint = "give the transcript as it was kept"
    if len(data) > TRANSCRIPT_BYTES:
        raise BadInput(f"the transcript is larger than {TRANSCRIPT_BYTES} bytes", hint=hint)
    try:
        found = json.loads(data)
        kept = _Transcript.model_validate(found)
        if canonical(found) == data:
            return kept
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise BadInput("this is no transcript", field=place, hint=hint) from None
    except (ValueError, RecursionError):
        pass
    raise BadInput("this is no transcript: it is not canonical JSON", hint=hint)


def _answer(said: _Said) -> Reply | Failed:
    reply = said.reply
    if reply is None:
        return Failed(said.fault or "")
    return Reply(reply.content, reply.refusal, reply.finish, reply.model, reply.fingerprint)


def _compare_requests(course: Course, kept: _Transcript) -> None:
    """Refuse the first exchange that is not what we would have asked, or that was judged otherwise."""
    for number, (ours, said) in enumerate(zip(course.said, kept.exchanges, strict=False), 1):
        theirs = said.model_dump()
        for name, value in ours.items():
            if theirs[name] != value:
                what = f"exchange {number}: {name} is not what this bounty and this solution lead to"
                raise Refused(_STAGE, what)


def compare(old: Judgement, new: Judgement) -> list[Change]:
    """Every answer that changed, in the order outcome, baseline, checks, verdict; empty: the same score."""
    changes = [Change("outcome", old.outcome, new.outcome, "outcome")]
    before, after = old.baseline or {}, new.baseline or {}
    changes += [Change(name, before.get(name), after.get(name), "baseline") for name in BASELINE]
    before, after = old.checks or {}, new.checks or {}
    changes += [Change(name, before.get(name), after.get(name), "checks") for name in dict.fromkeys([*before, *after])]
    changes.append(Change("verdict", old.verdict, new.verdict, "verdict"))
    return [change for change in changes if change.before != change.after]
