"""Checks a stored judgement again: replays its transcript offline, or asks the models again and shows every change. SPEC 2.3, 6.

The result is only information. Evidence, judgements and settlements stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from assay.errors import BadInput, Refused, brief
from assay.exact import canonical
from assay.folder import csvs, evidence, registry
from assay.folder.files import Place
from assay.judge.rubric import asking, panel, prompts, stored
from assay.judge.rubric.asking import Models
from assay.judge.rubric.conversation import (
    Conversation,
    ModelSettings,
    NamedModel,
    ServiceFailure,
    run_conversation,
)
from assay.judge.rubric.judgement import (
    BODY_BYTES,
    LIMITS,
    NAME_CHARACTERS,
    TRANSCRIPT_BYTES,
    JudgeLimits,
    Judgement,
    panel_answers,
    quote_digest,
)
from assay.judge.rubric.questions import RubricCase
from assay.judge.rubric.reply import Reply
from assay.judge.rubric.solution import Solution
from assay.judge.rubric.stored import TRANSCRIPTS, Transcript, digest_hex, document_of, open_transcript
from assay.ledger import config
from assay.ledger.access import open_ledger
from assay.ledger.keys import PrivateKey
from assay.records import Evidence, Participant, Rubric, record
from assay.scheme.bounty import Bounty, read_bounty
from assay.scheme.fields import Digest, Section
from assay.settle.score import rubric as score
from assay.settle.score.rubric import BASELINE
from assay.settle.story.judgements import PanelFlips, flips_of

_Name = Annotated[str, Field(min_length=1, max_length=4 * NAME_CHARACTERS)]
_Text = Annotated[str, Field(max_length=BODY_BYTES)]
_REPLAY_STAGE = "transcript"
_AS_STORED = "give the transcript as it was stored"


@dataclass(frozen=True)
class ChangedAnswer:
    """An answer that differs between two judgements of one solution: `B3`, a check's id, `verdict` or `outcome`."""

    name: str
    before: bool | str | None
    after: bool | str | None
    phase: str = ""
    """`outcome`, `baseline`, `checks` or `verdict`: a check may have the same name as another answer."""


class _TranscriptReply(Section):
    content: _Text | None
    refusal: _Text | None
    finish: _Text | None
    model: _Name | None
    fingerprint: _Name | None


class _Answered(Section):
    model: _Name
    phase: Literal["baseline", "checks", "verdict"]
    part: int
    attempt: int
    system: Digest
    user: list[Digest]
    form: dict[str, Any]
    reply: _TranscriptReply | None
    fault: _Name | None


class _TranscriptModels(Section):
    primary: _Name
    fallback: _Name


class _Parameters(Section):
    temperature: Literal[0]
    seed: Annotated[int, Field(ge=42, le=66)]


class _TranscriptDocument(Section):
    schema_: Annotated[Literal["assay.transcript/2"], Field(alias="schema")]
    bounty: Digest
    submission: Digest
    prompts: Digest
    models: _TranscriptModels
    parameters: _Parameters
    attempts: Annotated[int, Field(ge=1, le=10)]
    answer: int | None = None
    of: int | None = None
    exchanges: Annotated[list[_Answered], Field(min_length=1, max_length=10_000)]
    texts: dict[Digest, str]


def replay_transcript(transcript: bytes, bounty: Bounty, problem: str, solution: Solution) -> Judgement:
    """The judgement that follows from a transcript's replies, without a network; of a panel's, from those of all its answers.

    Every request is made again and compared. Raises Refused (stage `transcript`) if this program would have asked something else,
    and BadInput if it is not a transcript.
    """
    places = panel.seats(bounty)
    if not places:
        return _replayed(transcript, RubricCase(bounty, problem, solution))
    transcripts = panel.split_transcript(transcript)
    if len(transcripts) != len(places):
        raise Refused(_REPLAY_STAGE, "it has another number of answers", expected=str(len(places)), found=str(len(transcripts)))
    seats = zip(transcripts, places, strict=True)
    answers = [_replayed(data, RubricCase(bounty, problem, solution, seat)) for data, seat in seats]
    return panel.panel_judgement(answers, bounty)


def _replayed(transcript: bytes, case: RubricCase) -> Judgement:
    """The judgement that follows from the transcript of one answer."""
    bounty, solution, recording = case.bounty, case.solution, _parse_transcript(transcript)
    if recording.parameters.model_dump() != case.parameters:
        raise BadInput("this is not a transcript of this answer", field="parameters", hint=_AS_STORED)
    first = bounty.judge.model if case.seat is None else bounty.judge.of_answer(case.seat.answer)
    for what, actual, expected in (
        ("it is of another bounty", recording.bounty, bounty.digest),
        ("it is of another submission", recording.submission, solution.digest),
        ("its prompts are not those of this version of assay", recording.prompts, prompts.digest()),
    ):
        if actual != expected:
            raise Refused(_REPLAY_STAGE, what, expected=expected, found=actual)
    models = recording.models
    for name, model in ((models.primary, first), (models.fallback, bounty.judge.fallback)):
        if not model.served_as(name):
            raise Refused(_REPLAY_STAGE, f"it asked for {brief(name)}, which the bounty does not list as a name of {model.name}")
    settings = ModelSettings(
        NamedModel(models.primary, first), NamedModel(models.fallback, bounty.judge.fallback), recording.attempts
    )
    course = Conversation(case, settings)
    try:
        judgement = run_conversation(course, [_answer(answered) for answered in recording.exchanges])
    except ValueError as error:
        _compare_requests(course, recording)
        raise Refused(_REPLAY_STAGE, f"its replies do not lead to a judgement: {error}") from None
    _compare_requests(course, recording)
    if course.transcript() != transcript:
        raise Refused(_REPLAY_STAGE, "it has texts that no request contains")
    if judgement is None:
        raise Refused(_REPLAY_STAGE, "the service failed in it, so that there is no judgement")
    return judgement


def _parse_transcript(data: bytes) -> _TranscriptDocument:
    hint = _AS_STORED
    if len(data) > TRANSCRIPT_BYTES:
        raise BadInput(f"the transcript is larger than {TRANSCRIPT_BYTES} bytes", hint=hint)
    try:
        document = json.loads(data)
        recording = _TranscriptDocument.model_validate(document)
        if canonical(document) == data:
            return recording
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise BadInput("this is not a transcript", field=place, hint=hint) from None
    except (ValueError, RecursionError):
        pass
    raise BadInput("this is not a transcript: it is not canonical JSON", hint=hint)


def _answer(answered: _Answered) -> Reply | ServiceFailure:
    reply = answered.reply
    if reply is None:
        return ServiceFailure(answered.fault or "")
    return Reply(reply.content, reply.refusal, reply.finish, reply.model, reply.fingerprint)


def _compare_requests(course: Conversation, recording: _TranscriptDocument) -> None:
    """Refuse the first exchange with another request, or another fault, than this program would have."""
    for number, (ours, recorded) in enumerate(zip(course.written, recording.exchanges, strict=False), 1):
        theirs = recorded.model_dump()
        for name, value in ours.items():
            if theirs[name] != value:
                what = f"exchange {number}: {name} does not follow from this bounty and this solution"
                raise Refused(_REPLAY_STAGE, what)


def compare_judgements(old: Judgement, new: Judgement) -> list[ChangedAnswer]:
    """Every changed answer, in the order outcome, baseline, checks, verdict. If there is none, the score is the same."""
    changes = [ChangedAnswer("outcome", old.outcome, new.outcome, "outcome")]
    before, after = old.baseline or {}, new.baseline or {}
    changes += [ChangedAnswer(name, before.get(name), after.get(name), "baseline") for name in BASELINE]
    before, after = old.checks or {}, new.checks or {}
    changes += [ChangedAnswer(name, before.get(name), after.get(name), "checks") for name in dict.fromkeys([*before, *after])]
    changes.append(ChangedAnswer("verdict", old.verdict, new.verdict, "verdict"))
    return [change for change in changes if change.before != change.after]


@dataclass(frozen=True)
class StoredJudgement:
    """A judgement in the evidence, with its bounty and solution."""

    bounty: Bounty
    participant: Participant
    solution: Solution
    record: Rubric

    @property
    def problem(self) -> str:
        """The problem's text. Raises BadInput if it is sealed."""
        if self.bounty.problem is None:
            raise BadInput("the problem is sealed", file=self.bounty.file, field="problem", hint="only the enclave reads it")
        return self.bounty.problem


@dataclass(frozen=True)
class JudgementRound:
    """One more judgement of the solution, and its changes."""

    judgement: Judgement
    changes: tuple[ChangedAnswer, ...]
    bps: int | None
    """The score in BPS; None if it is unjudged."""
    blind: bytes = field(default=b"", repr=False)
    """Of a replay: what proves its quotes against their digests."""
    flips: PanelFlips | None = None
    """The flips of the panel's answers; None without a panel."""


def find_judgement(
    competition: Path, find: Callable[[tuple[Participant, ...]], str], validator: str | None = None
) -> StoredJudgement:
    """The judgement of a participant's current submission; find: chooses the participant's key.

    Raises BadInput if there is none, if there are several and `validator` is not given, and if the solution is not here.
    """
    bounty = read_bounty(competition)
    file = competition / csvs.PARTICIPANTS.name
    everybody = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), bounty.scheme)
    key = find(everybody)
    who = next(entry for entry in everybody if entry.key == key)
    record = _find_record(competition, everybody, who, validator)
    solution = stored.find_solution(competition, who)
    if solution is None:
        hint = "only someone who has the solution can judge it: `assay submit` puts it there"
        raise BadInput(f"the solution of {key!r} is not here", file=stored.solution_file(competition, who.submission), hint=hint)
    return StoredJudgement(bounty, who, solution, record)


def _find_record(competition: Path, everybody: tuple[Participant, ...], who: Participant, validator: str | None) -> Rubric:
    place = competition / "evidence"
    judges = frozenset(row.fields["key"] for row in csvs.read(competition / "validators.csv", csvs.VALIDATORS))
    names = evidence.Registry("rubric", judges, frozenset(participant.key for participant in everybody))
    records = [] if not config.exists(competition) else _in_ledger(competition)  # an enclave's evidence is only there
    records += evidence.read(sorted(place.glob("*.jsonl")), names).records
    matching = [entry for entry in records if isinstance(entry, Rubric) and who.submission and entry.submission == who.submission]
    matching = [entry for entry in matching if validator in (None, entry.validator)]
    if not matching:
        by = "" if validator is None else f" by {validator!r}"
        hint = "`assay run` judges what has no evidence yet"
        raise BadInput(f"there is no judgement of the submission of {who.key!r}{by}", file=place, hint=hint)
    if len({entry.validator for entry in matching}) > 1:
        several = ", ".join(sorted({entry.validator for entry in matching}))
        raise BadInput(f"{who.key!r} was judged by {several}", field="--validator", hint="choose the validator")
    return matching[0]


def _in_ledger(competition: Path) -> list[Evidence]:
    """The records of the competition's ledger that count, in the order of their acceptance."""
    with open_ledger(competition) as ledger, ledger.counted() as view:
        return [record(json.loads(row.body)) for row in view.records()]


def judgement_bps(judgement: Judgement, bounty: Bounty) -> int | None:
    """The score of a judgement in BPS; None if it is unjudged."""
    if judgement.outcome == "unjudged":
        return None
    score_of_rubric = score.judge(judgement.baseline, judgement.checks, judgement.verdict, bounty.rules)
    return None if score_of_rubric is None else score_of_rubric.bps


def replay_stored(competition: Path, original: StoredJudgement, *keys: PrivateKey) -> JudgementRound:
    """Replay the stored transcript offline; raises BadInput if it does not open, Refused if it does not fit.

    keys: one of them must be a key that it is sealed to.
    """
    attestation = original.record.attestation
    if attestation is None:
        raise BadInput("the judgement names no document", field="attestation", hint="it was not made by `assay run`")
    document = document_of(competition, attestation)
    if document.get("bounty") != original.bounty.digest:
        hint = f"it is {original.bounty.digest} now, and was judged as {document.get('bounty')}: restore that version"
        raise BadInput("the bounty was changed since", file=original.bounty.file, hint=hint)
    file = competition / TRANSCRIPTS / f"{digest_hex(attestation)}.sealed"
    transcript = open_transcript(file, *keys, bounty=original.bounty.digest, judgement=attestation)
    replayed = replay_transcript(transcript.data, original.bounty, original.problem, original.solution)
    if document.get("transcript") != replayed.transcript_digest:
        raise Refused("transcript", "it is not the one that the judgement names", file=file)
    _check_same(original.record, replayed, transcript)
    bps, flips = judgement_bps(replayed, original.bounty), flips_of([original.record], original.bounty.rules)
    return JudgementRound(replayed, (), bps, transcript.blind, flips)


def _check_same(record: Rubric, replayed: Judgement, transcript: Transcript) -> None:
    """Refuse evidence that contradicts its own transcript."""
    recorded = {"outcome": record.outcome, "baseline": record.baseline, "checks": record.checks, "verdict": record.verdict}
    for name, answer in replayed.answers.items():
        if recorded[name] != answer:
            raise Refused("evidence", f"its field {name!r} does not follow from the transcript", participant=record.participant)
    if record.panel != (panel_answers(replayed.panel) or None):
        raise Refused("evidence", "its field 'panel' does not follow from the transcript", participant=record.participant)
    if (record.quotes or {}) != {name: quote_digest(quote, transcript.blind) for name, quote in replayed.quotes.items()}:
        raise Refused("evidence", "its quotes are not those of the transcript", participant=record.participant)


async def ask_again(
    original: StoredJudgement,
    before: Judgement,
    models: Models,
    times: int,
    on_round: Callable[[JudgementRound], None],
    *,
    limits: JudgeLimits = LIMITS,
) -> list[JudgementRound]:
    """Ask again `times` times, one after the other. on_round: called when one ends. Raises Unreachable."""
    rounds: list[JudgementRound] = []
    for _ in range(times):
        judgement = await asking.judge(original.bounty, original.problem, original.solution, models, limits=limits)
        changes, bps = tuple(compare_judgements(before, judgement)), judgement_bps(judgement, original.bounty)
        again = original.record.model_copy(update={"panel": panel_answers(judgement.panel) or None})
        rounds.append(JudgementRound(judgement, changes, bps, flips=flips_of([again], original.bounty.rules)))
        on_round(rounds[-1])
    return rounds
