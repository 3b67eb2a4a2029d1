"""Kinds of case for numbers, formats, whole settlements, one validator's score and the agreed score. SPEC 1–7.

A kind is a function with `@kind(Model)`; the model is the shape of its input. The function answers as Assay does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import rfc8785
from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter, ValidationError, WithJsonSchema

from assay import exact, folder
from assay.errors import BadInput
from assay.exact import text
from assay.folder import registry as task_sets
from assay.folder import strict
from assay.folder.files import Place
from assay.records import PANEL_ANSWERS, Amount, PanelAnswer, Workflow
from assay.records import Fraction as ScoreNanos
from assay.records import record as read_record
from assay.scheme import fields
from assay.scheme.bounty import Format
from assay.scheme.fields import Count, Key, Nanos, Rao, Section, Share, Wei, refused
from assay.scheme.model import Consensus, PointsScore, RubricScore, Scheme, WorkflowScore
from assay.scheme.reading import refusal, validate
from assay.scheme.subnet import SubnetFile
from assay.settle import settle as settled
from assay.settle.consensus import Agreement, Reason, Status, Votes, agree
from assay.settle.emission import split, split_input
from assay.settle.pipeline import assigned
from assay.settle.score import points as by_points
from assay.settle.score import rubric as by_rubric
from assay.settle.score import trials as by_tests
from assay.settle.score import workflow as by_workflow
from assay.settle.score.panel import FlipRate

__all__ = [
    "CaseKind",
    "Ratio",
    "apportion",
    "assign",
    "canonical",
    "consensus",
    "decimal",
    "emission",
    "instant",
    "kind",
    "panel",
    "points",
    "ratio",
    "record",
    "rubric",
    "rubric_answer",
    "scheme",
    "settle",
    "task_set",
    "tests",
    "whole_input",
    "workflow",
]


Json = dict[str, Any]
RATIO = "^[0-9]+/[1-9][0-9]*$"


@dataclass(frozen=True)
class CaseKind:
    """A kind of case: the model that its input is checked by (None: the answer checks it itself), and the answer to an input."""

    name: str
    about: str
    model: type[Section] | None
    answer: Callable[[Any], Any]


def kind(model: type[Section]) -> Callable[[Callable[[Any], Any]], CaseKind]:
    """Make a kind of a function from a checked input to an output; its docstring says what the kind is about."""

    def case_kind(function: Callable[[Any], Any]) -> CaseKind:
        return CaseKind(_name(function), _about(function), model, lambda given: function(validate(model, given)))

    return case_kind


def whole_input(function: Callable[[Any], Any]) -> CaseKind:
    """Make a kind of a function that checks its input itself."""
    return CaseKind(_name(function), _about(function), None, function)


def _name(function: Callable[[Any], Any]) -> str:
    return function.__name__.rstrip("_").replace("_", "-")


def _about(function: Callable[[Any], Any]) -> str:
    return " ".join((function.__doc__ or "").split())


def ratio(value: Fraction) -> str:
    """An exact ratio as it stands in a case: `1/3`, in lowest terms, `0/1` for nothing. SPEC 1."""
    return f"{value.numerator}/{value.denominator}"


def _read(value: object) -> Fraction:
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) <= 1000 for part in parts) or not int(parts[1]):
        raise refused(BadInput(f"{str(value)[:60]!r} is not a ratio", hint='write two integers, as in "1/3"'))
    return Fraction(int(parts[0]), int(parts[1]))


Ratio = Annotated[
    Fraction,
    BeforeValidator(_read),
    PlainSerializer(ratio, return_type=str),
    WithJsonSchema({"type": "string", "pattern": RATIO}),
]
"""An exact ratio of at least 0, written as `1/3`."""


class _Decimal(Section):
    value: Any
    read_as: Annotated[Literal["score", "amount", "fraction", "share", "stake", "wei"], Field(alias="as")]


def _of(adapter: TypeAdapter[int], value: object) -> int:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise refusal(error, Section) from None


_READERS: Mapping[str, Any] = {
    "score": partial(_of, TypeAdapter(ScoreNanos)),
    "amount": partial(_of, TypeAdapter(Amount)),
    "fraction": partial(_of, TypeAdapter(Nanos)),
    "share": partial(_of, TypeAdapter(Share)),
    "stake": lambda value: exact.whole(value, 63),
    "wei": lambda value: exact.whole(value, 256),
}


@kind(_Decimal)
def decimal(given: _Decimal) -> Json:
    """A number as it may be written: a score (0 to 1), an amount (money, seconds), a fraction or a share of a scheme (with or
    without %), stake in rao, wei; read into a count (nanos, rao, wei), and written again as the normalised text."""
    count = _READERS[given.read_as](given.value)
    return {"text": str(count) if given.read_as in ("stake", "wei") else exact.text(count), "count": str(count)}


class _Instant(Section):
    text: Any


@kind(_Instant)
def instant(given: _Instant) -> Json:
    """An RFC 3339 time as the instant in UTC, written canonically."""
    return {"utc": fields.instant_text(fields.instant(given.text))}


class _Canonical(Section):
    json_: Annotated[str, Field(alias="json", max_length=1_000_000)]


@kind(_Canonical)
def canonical(given: _Canonical) -> Json:
    """A JSON text into its canonical form (RFC 8785) and its digest; what two readers could take differently is refused."""
    document = strict.parse(given.json_)
    strict.check(document)
    try:
        return {"text": exact.canonical(document).decode(), "digest": exact.digest(document)}
    except rfc8785.CanonicalizationError as error:
        raise BadInput(f"has no canonical form ({error})", hint="write it as a string") from None


class _Apportion(Section):
    amount: Wei
    parts: Annotated[tuple[Ratio, ...], Field(strict=False, min_length=1)]


@kind(_Apportion)
def apportion(given: _Apportion) -> Json:
    """An amount given out whole over parts that sum to 1, by largest remainder, ties to the earlier."""
    if sum(given.parts) != 1:
        raise BadInput("the parts do not sum to 1", field="parts", hint="say where the rest goes")
    whole = 1
    for ratio in given.parts:
        whole *= ratio.denominator
    parts = [int(ratio * whole) for ratio in given.parts]
    return {"amounts": [str(amount) for amount in exact.apportion(given.amount, parts, whole)]}


class _Scheme(Section):
    scheme: Any


@kind(_Scheme)
def scheme(given: _Scheme) -> Json:
    """A scheme (its TOML as JSON) with defaults filled in and fractions normalised, and its digest. SPEC 6, 7."""
    rules = validate(Scheme, given.scheme)
    return {"document": rules.document(), "digest": rules.digest}


class _Record(Section):
    record: Any


@kind(_Record)
def record(given: _Record) -> Json:
    """A record of evidence with defaults filled in and fractions normalised, without `seq`, and its digest. SPEC 6, 7."""
    strict.check(given.record)
    evidence = read_record(given.record)
    return {"document": evidence.document(), "digest": evidence.digest}


@whole_input
def settle(given: Any) -> Json:
    """Scheme, registry and evidence of one epoch into the settlement, digest included. SPEC 2–7."""
    return settled(folder.parse_case(given)).document


class _Competition(Section):
    share: Share
    case: dict[str, Any]


class _Subnet(Section):
    encoding: Literal["round", "exact-sum", "max-upscale"] = "round"
    burn_uid: Annotated[int, Field(ge=0, le=65_535)] = 0
    emission: Rao | None = None
    unearned: Literal["burn", "others"] = "burn"


class _Emission(Section):
    subnet: _Subnet
    competitions: Annotated[tuple[_Competition, ...], Field(strict=False, min_length=1)]


@kind(_Emission)
def emission(given: _Emission) -> Json:
    """The rules of a subnet file and the case of each of its competitions into the emission split, digest included. SPEC 4."""
    plain = given.model_dump(mode="json", exclude_none=True)
    members = [{"path": str(place), "share": member["share"]} for place, member in enumerate(plain["competitions"])]
    rules = validate(SubnetFile, {**plain["subnet"], "competitions": members})
    return split(
        rules, [split_input(settled(folder.parse_case(competition.case))) for competition in given.competitions]
    ).document


HEAD = {"epoch": 0, "validator": "v", "participant": "p", "submission": "s", "observed_at": "2026-01-01T00:00:00Z"}
"""The fields of a record that its score does not depend on."""


class _Tests(Section):
    passed: Count
    trials: Annotated[int, Field(ge=1, le=10**9)]


@kind(_Tests)
def tests(given: _Tests) -> Json:
    """Trials passed, of all trials of the task set (tasks × trials), into the score. SPEC 2.1."""
    if given.passed > given.trials:
        raise BadInput("more trials are passed than there are", field="passed", hint="correct one of the two")
    return {"score": text(by_tests.score_of(given.passed, given.trials))}


class _Workflow(Section):
    score: WorkflowScore
    task: dict[str, Any]


@kind(_Workflow)
def workflow(given: _Workflow) -> Json:
    """One task of a workflow, by the scheme's [score] section: the four parts and S, each half to even. SPEC 2.2."""
    evidence = read_record({"kind": "workflow", "task": "t", **HEAD, **given.task})
    if not isinstance(evidence, Workflow) or evidence.outcome == "service-error":
        raise BadInput("a task that a service error took out has no score", field="task.outcome", hint='use "ran" or "invalid"')
    parts = by_workflow.task(evidence, given.score)
    return {name: text(getattr(parts, name)) for name in ("success", "cost", "latency", "reliability", "score")}


class _RubricAnswer(Section):
    format: Format
    content: str


@kind(_RubricAnswer)
def rubric_answer(given: _RubricAnswer) -> Json:
    """What is left of what a model answered, to be read as one JSON object, once a fence or a thought is taken off. SPEC 2.3."""
    return {"text": by_rubric.answer_text(given.content, given.format)}


class _Rubric(Section):
    score: RubricScore
    baseline: Any = None
    checks: Any = None
    verdict: Any = None


@kind(_Rubric)
def rubric(given: _Rubric) -> Json:
    """One judgement, by the [score] section: how its BPS came about; or that it is malformed, which is not 0. SPEC 2.3."""
    judgement = by_rubric.judge(given.baseline, given.checks, given.verdict, given.score)
    if judgement is None:
        return {"malformed": True}
    return {name: getattr(judgement, name) for name in ("base", "missed_skippable", "verdict", "gate", "capped", "bps")}


class _Panel(Section):
    score: RubricScore
    panel: Annotated[tuple[PanelAnswer, ...], Field(strict=False, max_length=PANEL_ANSWERS)]


@kind(_Panel)
def panel(given: _Panel) -> Json:
    """A panel's answers, by the [score] section: what they decide, or why they decide nothing; which questions are undecided; and
    the flips of each decided question and of each of the first k answers. SPEC 2.3."""
    if given.score.panel is None:
        raise BadInput("there is no panel", field="score.panel", hint="say how many answers it has")
    decision = by_rubric.decide(given.panel, given.score)
    return {
        "why": decision.why,
        "undecided": list(decision.undecided),
        "baseline": None if decision.baseline is None else dict(decision.baseline),
        "checks": None if decision.checks is None else dict(decision.checks),
        "verdict": decision.verdict,
        "questions": _rates(decision.questions),
        "judges": _rates(decision.judges),
    }


def _rates(rates: Sequence[FlipRate]) -> list[Json]:
    return [{"name": rate.name, "flips": rate.flips, "votes": rate.votes} for rate in rates]


class _Points(Section):
    score: PointsScore
    valid: dict[Key, Count]
    invalid: Count | dict[Key, Count]
    starred: Count


@kind(_Points)
def points(given: _Points) -> Json:
    """Valid issues by repository, invalid ones, starred repositories, by the [score] section: points and score. Invalid issues
    are one number; or a number for each repository, as `invalid = "subtract"` needs it. SPEC 2.4."""
    invalid = given.invalid if isinstance(given.invalid, dict) else {next(iter(given.score.repositories)): given.invalid}
    if given.score.invalid == "subtract" and not isinstance(given.invalid, dict):
        raise BadInput("they are not by repository", field="invalid", hint="give a number for each repository")
    for field, counts in (("valid", given.valid), ("invalid", invalid)):
        unknown = sorted(counts.keys() - given.score.repositories.keys())
        if unknown:
            raise BadInput(f"{unknown[0]!r} is not in the table", field=field, hint="issues elsewhere are not counted")
    result = by_points.points(given.valid, invalid, given.starred, given.score)
    return {"valid": result.valid, "points": text(result.points), "score": text(result.score)}


class _TaskSet(Section):
    lines: Annotated[tuple[str, ...], Field(strict=False)]


@kind(_TaskSet)
def task_set(given: _TaskSet) -> Json:
    """The lines of tasks.txt into the task ids, in their order, and the digest of the set. SPEC 2.1, 6."""
    text = "\n".join(given.lines).encode()
    tasks = task_sets.parse_tasks(task_sets.task_lines(text, "tasks.txt"), 1, Place("tasks.txt"))
    return {"ids": list(tasks.ids), "digest": tasks.digest}


class _Vote(Section):
    validator: Key
    stake: Rao
    score: ScoreNanos | None = None
    state: Literal["incomplete", "unjudged", "silent"] | None = None


class _Consensus(Section):
    consensus: Consensus
    votes: Annotated[tuple[_Vote, ...], Field(strict=False, min_length=1)]
    bps: bool = False
    trials: Annotated[int, Field(ge=1, le=10**12)] | None = None


@kind(_Consensus)
def consensus(given: _Consensus) -> Json:
    """What each validator of the registry says of one participant (a whole score, an incomplete run, a malformed judgement, or
    nothing), by the scheme's [consensus] section: status, agreed score, who was flagged and excluded. `trials`: of how many
    trials each score is the share that passed, for scale = "noise". SPEC 3."""
    votes = given.votes
    if len({vote.validator for vote in votes}) != len(votes):
        raise BadInput("a validator votes twice", field="votes", hint="keep one of the two")
    for place, vote in enumerate(votes):
        if (vote.score is None) == (vote.state is None):
            raise BadInput("has score and state, or neither", field=f"votes[{place}]", hint="give one of the two")
    column = (len(votes), 1)
    state = np.array([vote.state or "whole" for vote in votes]).reshape(column)
    agreement = agree(
        Votes(
            scores=np.array([vote.score or 0 for vote in votes], np.int64).reshape(column),
            counting=state == "whole",
            stakes=tuple(vote.stake for vote in votes),
            totals=sum(vote.stake for vote in votes),
            incomplete=state == "incomplete",
            unjudged=state == "unjudged",
            trials=given.trials,
        ),
        given.consensus,
        bps=given.bps,
    )
    return _answer(agreement, votes)


def _answer(agreement: Agreement, votes: tuple[_Vote, ...]) -> Json:
    agreed = int(agreement.status[0]) == Status.AGREED
    return {
        "status": Status(int(agreement.status[0])).code,
        "reason": Reason(int(agreement.reason[0])).code,
        "score": text(int(agreement.score[0])) if agreed else None,
        "bps": int(agreement.bps[0]) if agreed and agreement.bps is not None else None,
        "stake": str(agreement.stake[0]),
        "median": _maybe(agreement.median(0)),
        "mad": _maybe(agreement.mad(0)),
        "mean": _maybe(agreement.mean(0)),
        "flagged_majority": bool(agreement.flagged_majority[0]),
        "validators": [
            {
                "validator": vote.validator,
                "flagged": bool(agreement.flagged[row, 0]),
                "excluded": bool(agreement.excluded[row, 0]),
                "modified_z": _maybe(agreement.modified_z(row, 0)),
                "z_squared": _maybe(agreement.z_squared(row, 0)),
            }
            for row, vote in enumerate(votes)
            if agreement.votes.counting[row, 0]
        ],
    }


def _maybe(count: int | None) -> str | None:
    return None if count is None else text(count)


class _Assign(Section):
    assign: Annotated[int, Field(ge=1, le=10**9)]
    validators: Annotated[tuple[Key, ...], Field(strict=False, min_length=1)]
    submission: Key
    randomness: Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")]


@kind(_Assign)
def assign(given: _Assign) -> Json:
    """Which of the validators that may count are drawn for a submission, by their keys' UTF-8 bytes. SPEC 3.0."""
    keys = tuple(sorted(set(given.validators), key=str.encode))
    rows = assigned(keys, [True] * len(keys), given.submission, bytes.fromhex(given.randomness), given.assign)
    return {"validators": [keys[row] for row in sorted(rows)]}
